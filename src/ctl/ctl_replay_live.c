// SPDX-License-Identifier: Apache-2.0
/*
 * A trace against a daemon, with the user-space guest as the guest. What a guest recorded goes
 * through a window of our own (guest_file), which maps and reclaims as that guest did; what a
 * daemon recorded goes as it came: the same SETUPMAPPING and REMOVEMAPPING in the same order, at
 * the same places. Nothing is written to any file, unless files are to be made.
 */
#include "ctl_replay.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "ctl_client.h"
#include "guest.h"
#include "util_lock.h"

#define MAP_FLAGS (FUSE_SETUPMAPPING_FLAG_READ)

struct live {
	const struct ctl_replay_live *cfg;
	struct trace_reader *r;
	struct guest_frontend *fe;
	struct guest_fuse *fuse;
	struct guest_files *files;
	uint64_t dir;	 /* node of make_files */
	GArray *nodes;	 /* of uint64_t, by file id; 0 = not yet looked up */
	GPtrArray *open; /* of struct guest_file, by file id; NULL = not yet opened */
	struct ctl_replay_outcome *out;
};

static bool fail(GError **error, int err, const char *what, const char *name)
{
	g_set_error(error, CTL_ERROR, -err, "%s%s%s: %s", what, name ? " " : "", name ? name : "",
		    g_strerror(-err));
	return false;
}

/* --- session --- */

static bool begin(struct live *l, GError **error)
{
	const struct guest_config c = {
		.socket_path = l->cfg->socket_path,
		.num_queues = 1,
		.window.mode = l->cfg->overlay ? GUEST_WINDOW_OVERLAY : GUEST_WINDOW_STRICT,
	};
	int err;

	l->fe = guest_frontend_new(&c, error);
	if (!l->fe)
		return false;
	l->fuse = guest_fuse_new(l->fe, NULL);
	if (guest_frontend_connect(l->fe, error) || guest_frontend_start(l->fe, error))
		return false;
	err = guest_fuse_init(l->fuse, 0, NULL);
	if (err)
		return fail(error, err, "FUSE_INIT", NULL);
	if (!guest_window_base(guest_frontend_window(l->fe)))
		return fail(error, -ENODEV, "the daemon offers no DAX window", NULL);
	return true;
}

static void close_file(void *f)
{
	if (f)
		guest_file_close(f);
}

static void end(struct live *l)
{
	g_ptr_array_unref(l->open);
	g_array_unref(l->nodes);
	guest_files_free(l->files);
	if (l->fuse && guest_frontend_alive(l->fe))
		guest_fuse_destroy(l->fuse);
	if (l->fe)
		guest_frontend_disconnect(l->fe);
	guest_fuse_free(l->fuse);
	guest_frontend_free(l->fe);
}

/* --- files --- */

static bool make_dir(struct live *l, GError **error)
{
	struct fuse_entry_out e;
	int err = guest_fuse_mkdir(l->fuse, FUSE_ROOT_ID, l->cfg->make_files, 0755, &e);

	if (err == -EEXIST)
		err = guest_fuse_lookup(l->fuse, FUSE_ROOT_ID, l->cfg->make_files, &e);
	if (err)
		return fail(error, err, "cannot make the directory", l->cfg->make_files);
	l->dir = e.nodeid;
	return true;
}

static bool make_file(struct live *l, uint32_t id, uint64_t *node, GError **error)
{
	const struct trace_file *f = trace_reader_file(l->r, id);
	g_autofree char *name = g_strdup_printf("trace-%u", id);
	struct fuse_entry_out e;
	uint64_t fh;
	int err;

	if (!l->dir && !make_dir(l, error))
		return false;
	err = guest_fuse_create(l->fuse, l->dir, name, 0644, O_RDWR, &e, &fh);
	if (err)
		return fail(error, err, "cannot make the file", name);
	err = guest_fuse_truncate(l->fuse, e.nodeid, f->end);
	guest_fuse_release(l->fuse, e.nodeid, fh);
	if (err)
		return fail(error, err, "cannot give its size to the file", name);
	*node = e.nodeid;
	return true;
}

static bool find_file(struct live *l, uint32_t id, uint64_t *node, GError **error)
{
	const struct trace_file *f = trace_reader_file(l->r, id);
	struct fuse_entry_out e;
	int err;

	if (l->cfg->make_files)
		return make_file(l, id, node, error);
	if (!f->name) {
		g_set_error(error, CTL_ERROR, ENOENT,
			    "the trace has no names of files; --make-files=DIR makes files for it");
		return false;
	}
	err = guest_fuse_path(l->fuse, f->name, &e);
	if (err)
		return fail(error, err, "the share's file", f->name);
	*node = e.nodeid;
	return true;
}

static bool node_of(struct live *l, uint32_t id, uint64_t *node, GError **error)
{
	if (id >= l->nodes->len)
		g_array_set_size(l->nodes, id + 1);
	*node = g_array_index(l->nodes, uint64_t, id);
	if (*node)
		return true;
	if (!find_file(l, id, node, error))
		return false;
	g_array_index(l->nodes, uint64_t, id) = *node;
	return true;
}

static struct guest_file *file_of(struct live *l, uint32_t id, GError **error)
{
	const struct trace_file *f = trace_reader_file(l->r, id);
	g_autofree char *made = g_strdup_printf("%s/trace-%u", l->cfg->make_files, id);
	const char *path = l->cfg->make_files ? made : f->name;
	uint64_t node;
	int err = 0;

	if (id >= l->open->len)
		g_ptr_array_set_size(l->open, (gint)id + 1);
	if (l->open->pdata[id])
		return l->open->pdata[id];
	if (!node_of(l, id, &node, error))
		return NULL;
	l->open->pdata[id] = guest_file_open(l->files, path, O_RDONLY, &err);
	if (!l->open->pdata[id])
		fail(error, err, "the share's file", path);
	return l->open->pdata[id];
}

/* The files of the trace, before the clock runs. */
static bool prepare_files(struct live *l, bool guest, GError **error)
{
	for (uint32_t id = 0; id < l->nodes->len; id++) {
		uint64_t node;

		if (!trace_reader_file(l->r, id)->end)
			continue;
		if (guest ? !file_of(l, id, error) : !node_of(l, id, &node, error))
			return false;
	}
	return true;
}

/* --- requests --- */

static void note(struct live *l, uint64_t start, int err)
{
	struct ctl_replay_outcome *o = l->out;
	uint64_t ns = util_now_ns() - start;

	o->seconds += (double)ns / 1e9;
	o->slowest_ns = MAX(o->slowest_ns, ns);
	if (err && !o->refused++)
		o->first_error = err;
}

static bool is_over(struct live *l, GError **error)
{
	if (guest_frontend_alive(l->fe))
		return false;
	g_set_error(error, CTL_ERROR, ENOTCONN, "the daemon at %s has gone", l->cfg->socket_path);
	return true;
}

/* An access, slot by slot; a file that is shorter now ends it. */
static bool replay_access(struct live *l, const struct trace_event *e, GError **error)
{
	struct guest_file *f = file_of(l, e->file_id, error);
	uint64_t at = e->file_offset, left = e->len, start = util_now_ns();
	int err = 0;

	if (!f)
		return false;
	left = MIN(left, guest_file_size(f) - MIN(at, guest_file_size(f)));
	while (left && !err) {
		struct dm_ref ref;
		uint64_t n;

		err = guest_file_get(f, at, left, false, &ref);
		if (err)
			break;
		n = ref.len;
		guest_file_put(f, &ref);
		at += n;
		left -= n;
	}
	l->out->counts.requests++;
	note(l, start, err);
	return !err || !is_over(l, error);
}

static bool replay_setup(struct live *l, const struct trace_event *e, GError **error)
{
	uint64_t node, start;
	int err;

	if (!node_of(l, e->file_id, &node, error))
		return false;
	start = util_now_ns();
	err = guest_fuse_setupmapping(l->fuse, node, e->file_offset, e->len, MAP_FLAGS, e->offset);
	l->out->counts.requests++;
	note(l, start, err);
	return !err || !is_over(l, error);
}

static bool replay_remove(struct live *l, const struct trace_event *e, GError **error)
{
	uint64_t start = util_now_ns();
	int err = guest_fuse_removemapping(l->fuse, FUSE_ROOT_ID, e->offset, e->len);

	note(l, start, err);
	return !err || !is_over(l, error);
}

static bool run(struct live *l, bool guest, GError **error)
{
	struct trace_event e;
	int got;

	while ((got = trace_reader_next(l->r, &e, error)) > 0) {
		bool good = true;

		if (guest && e.kind == TRACE_ACCESS)
			good = replay_access(l, &e, error);
		else if (!guest && e.kind == TRACE_SETUP)
			good = replay_setup(l, &e, error);
		else if (!guest && e.kind == TRACE_REMOVE)
			good = replay_remove(l, &e, error);
		if (!good)
			return false;
	}
	return got == 0;
}

static bool make_window(struct live *l, const struct trace_info *info, GError **error)
{
	const struct guest_files_config c = {
		.window = l->cfg->window,
		.max_mappings = l->cfg->overlay ? 0
				: info->budget	? info->budget
						: 480,
		.cache.fifo = l->cfg->fifo,
	};

	l->files = guest_files_new(l->fuse, &c, error);
	return l->files != NULL;
}

static void take_stats(struct live *l)
{
	struct dm_stats s;

	guest_files_stats(l->files, &s);
	l->out->counts.hits = s.hits;
	l->out->counts.misses = s.misses;
	l->out->counts.maps = s.maps;
	l->out->counts.unmaps = s.unmaps;
	l->out->counts.elided = s.elided_overlaid + s.elided_revived + s.elided_cancelled;
	l->out->counts.live_peak = s.mapped_peak;
}

bool ctl_replay_live(struct trace_reader *r, const struct sim_survey *survey,
		     const struct ctl_replay_live *cfg, struct ctl_replay_outcome *out,
		     GError **error)
{
	bool guest = survey->accesses > 0, good;
	struct live l = {.cfg = cfg, .r = r, .out = out};

	*out = (struct ctl_replay_outcome){0};
	l.nodes = g_array_new(FALSE, TRUE, sizeof(uint64_t));
	l.open = g_ptr_array_new_with_free_func(close_file);
	g_array_set_size(l.nodes, survey->files);
	g_ptr_array_set_size(l.open, (gint)survey->files);
	good = begin(&l, error) && (!guest || make_window(&l, trace_reader_info(r), error)) &&
	       prepare_files(&l, guest, error) && run(&l, guest, error);
	if (good && guest)
		take_stats(&l);
	end(&l);
	return good;
}
