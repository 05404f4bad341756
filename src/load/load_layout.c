// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "load_io.h"
#include "load_layout.h"
#include "load_page.h"

#define CHUNK (1u << 20)

static int fail(struct load_run *run, int err, const char *what, const char *name)
{
	if (err)
		load_run_fail(run, err, "%s '%s'", what, name);
	return err;
}

/* --- directories --- */

static int make_dir(struct load_run *run, uint64_t parent, const char *name, uint64_t *node)
{
	struct fuse_entry_out e = {0};
	int err = guest_fuse_lookup(run->fuse, parent, name, &e);

	if (err == -ENOENT || (!err && !e.nodeid)) {
		err = guest_fuse_mkdir(run->fuse, parent, name, 0755, &e);
		if (err == -EEXIST)
			err = guest_fuse_lookup(run->fuse, parent, name, &e);
	}
	*node = e.nodeid;
	return fail(run, err, "cannot make directory", name);
}

/* --- data files --- */

static int write_all(struct load_run *run, unsigned int i, void *buf)
{
	struct load_file *f = &run->files[i];
	uint32_t chunk = MIN(CHUNK, guest_fuse_max_write(run->fuse));

	for (uint64_t at = 0; at < run->per_file;) {
		uint32_t len = (uint32_t)MIN(chunk, run->per_file - at);
		ssize_t n;

		for (uint32_t u = 0; u < len && !run->config->null; u += run->unit)
			load_page_fill((char *)buf + u, run->unit, i, at + u, 1);
		n = guest_fuse_write(run->fuse, f->node, f->fh, at, buf, len);
		if (n < 0 || (uint32_t)n != len)
			return n < 0 ? (int)n : -EIO;
		at += len;
	}
	return guest_fuse_fsync(run->fuse, f->node, f->fh, false);
}

static bool stamped(struct load_run *run, unsigned int i, uint64_t off, void *buf)
{
	struct load_file *f = &run->files[i];
	uint32_t gen = 0;

	return guest_fuse_read(run->fuse, f->node, f->fh, off, buf, run->unit) == run->unit &&
	       load_page_check(buf, run->unit, i, off, &gen);
}

char *load_layout_name(const struct load_run *run, unsigned int i)
{
	const struct load_config *c = run->config;

	/* What is written without --verify carries no stamps. */
	return g_strdup_printf("%s-%u.%u", load_writes(c->rw) && !c->verify ? "scratch" : "data",
			       run->unit, i);
}

static int make_file(struct load_run *run, unsigned int i, void *buf)
{
	struct load_file *f = &run->files[i];
	g_autofree char *name = NULL;
	struct fuse_entry_out e = {0};
	int err;

	name = load_layout_name(run, i);
	err = guest_fuse_lookup(run->fuse, run->dir, name, &e);
	if (!err && e.nodeid) {
		f->node = e.nodeid;
		err = guest_fuse_open(run->fuse, f->node, O_RDWR, &f->fh);
	} else {
		err = guest_fuse_create(run->fuse, run->dir, name, 0644, O_RDWR, &e, &f->fh);
		f->node = e.nodeid;
	}
	if (err)
		return fail(run, err, "cannot open", name);
	if (e.attr.size != run->per_file ||
	    (!run->config->null &&
	     (!stamped(run, i, 0, buf) || !stamped(run, i, run->per_file - run->unit, buf)))) {
		if (e.attr.size > run->per_file)
			err = guest_fuse_truncate(run->fuse, f->node, run->per_file);
		err = err ? err : write_all(run, i, buf);
	}
	if (!err)
		err = guest_fuse_getattr(run->fuse, f->node, &e.attr);
	f->dax = e.attr.flags & FUSE_ATTR_DAX;
	return fail(run, err, "cannot write", name);
}

static int make_data(struct load_run *run)
{
	const struct load_config *c = run->config;
	void *buf = guest_mem_alloc(guest_frontend_mem(run->fe), CHUNK);
	int err = buf ? 0 : -ENOMEM;

	run->files = g_new0(struct load_file, c->files);
	for (unsigned int i = 0; !err && i < c->files; i++)
		err = make_file(run, i, buf);
	guest_mem_release(guest_frontend_mem(run->fe), buf, CHUNK);
	return err;
}

/* --- names --- */

static int make_names(struct load_run *run)
{
	const struct load_config *c = run->config;
	g_autofree char *dir = g_strdup_printf("names-%u", c->files);
	int err = make_dir(run, run->dir, dir, &run->names);

	run->nodes = g_new0(uint64_t, c->files);
	for (unsigned int i = 0; !err && i < c->files; i++) {
		char name[LOAD_NAME];
		struct fuse_entry_out e = {0};
		uint64_t fh;

		g_snprintf(name, sizeof(name), "n%u", i);
		err = guest_fuse_lookup(run->fuse, run->names, name, &e);
		if (err == -ENOENT || (!err && !e.nodeid)) {
			err = guest_fuse_create(run->fuse, run->names, name, 0644, O_WRONLY, &e,
						&fh);
			if (!err)
				err = guest_fuse_release(run->fuse, e.nodeid, fh);
		}
		run->nodes[i] = e.nodeid;
		fail(run, err, "cannot make", name);
	}
	return err;
}

static int make_job_dirs(struct load_run *run)
{
	int err = 0;

	for (unsigned int i = 0; !err && i < run->config->jobs; i++) {
		char name[LOAD_NAME];

		g_snprintf(name, sizeof(name), "job-%u", i);
		err = make_dir(run, run->dir, name, &run->jobs[i].dir);
	}
	return err;
}

int load_layout_make(struct load_run *run)
{
	const struct load_config *c = run->config;
	int err = make_dir(run, FUSE_ROOT_ID, c->dir, &run->dir);

	if (err)
		return err;
	if (load_is_io(c->rw))
		return make_data(run);
	if (c->rw == LOAD_CREATE || c->rw == LOAD_UNTAR)
		return make_job_dirs(run);
	return make_names(run);
}

/* --- afterwards --- */

int load_layout_check(struct load_run *run)
{
	void *buf = guest_mem_alloc(guest_frontend_mem(run->fe), CHUNK);
	int err = buf ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < run->config->files; i++) {
		struct load_file *f = &run->files[i];

		for (uint64_t at = 0; !err && at < run->per_file; at += CHUNK) {
			uint32_t len = (uint32_t)MIN(CHUNK, run->per_file - at);
			ssize_t n = guest_fuse_read(run->fuse, f->node, f->fh, at, buf, len);

			if (n != (ssize_t)len)
				err = n < 0 ? (int)n : -EIO;
			else
				load_io_check(run, &run->verify_errors, buf, i, at, len);
		}
	}
	guest_mem_release(guest_frontend_mem(run->fe), buf, CHUNK);
	return fail(run, err, "cannot read back", "data");
}

struct names {
	GPtrArray *names;
	GArray *dirs; /* bool */
};

static bool collect(void *ctx, const struct fuse_dirent *d, const struct fuse_entry_out *entry)
{
	struct names *n = ctx;
	bool is_dir = d->type == 4; /* DT_DIR */

	if ((d->namelen == 1 && d->name[0] == '.') ||
	    (d->namelen == 2 && !memcmp(d->name, "..", 2)))
		return true;
	g_ptr_array_add(n->names, g_strndup(d->name, d->namelen));
	g_array_append_val(n->dirs, is_dir);
	return true;
}

static void empty_dir(struct load_run *run, uint64_t node)
{
	struct names n = {
		.names = g_ptr_array_new_with_free_func(g_free),
		.dirs = g_array_new(FALSE, FALSE, sizeof(bool)),
	};
	struct fuse_entry_out e;
	uint64_t fh;

	if (!guest_fuse_opendir(run->fuse, node, &fh)) {
		guest_fuse_list(run->fuse, node, fh, 0, 65536, false, collect, &n);
		guest_fuse_releasedir(run->fuse, node, fh);
	}
	for (unsigned int i = 0; i < n.names->len; i++) {
		const char *name = n.names->pdata[i];

		if (!g_array_index(n.dirs, bool, i)) {
			guest_fuse_unlink(run->fuse, node, name);
		} else if (!guest_fuse_lookup(run->fuse, node, name, &e)) {
			empty_dir(run, e.nodeid);
			guest_fuse_rmdir(run->fuse, node, name);
			guest_fuse_forget(run->fuse, e.nodeid, 1);
		}
	}
	g_ptr_array_unref(n.names);
	g_array_unref(n.dirs);
}

void load_layout_clear(struct load_run *run)
{
	const struct load_config *c = run->config;
	bool alive = guest_frontend_alive(run->fe);

	for (unsigned int i = 0; alive && run->files && i < c->files; i++)
		if (run->files[i].node)
			guest_fuse_release(run->fuse, run->files[i].node, run->files[i].fh);
	for (unsigned int i = 0; alive && run->jobs && i < c->jobs; i++) {
		char name[LOAD_NAME];

		if (!run->jobs[i].dir || (c->rw != LOAD_CREATE && c->rw != LOAD_UNTAR))
			continue;
		g_snprintf(name, sizeof(name), "job-%u", i);
		empty_dir(run, run->jobs[i].dir);
		guest_fuse_rmdir(run->fuse, run->dir, name);
	}
	g_free(run->files);
	g_free(run->nodes);
}
