// SPDX-License-Identifier: Apache-2.0
#include "fuse_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

/* --- the log --- */

static GMutex log_lock;
static GString *log_text;

static GLogWriterOutput log_writer(GLogLevelFlags level, const GLogField *fields, gsize n,
				   gpointer data)
{
	g_mutex_lock(&log_lock);
	for (gsize i = 0; i < n; i++) {
		if (level <= G_LOG_LEVEL_WARNING && g_str_equal(fields[i].key, "MESSAGE"))
			g_string_append(log_text, fields[i].value);
	}
	g_mutex_unlock(&log_lock);
	if (level <= G_LOG_LEVEL_CRITICAL)
		return g_log_writer_default(level, fields, n, data);
	return G_LOG_WRITER_HANDLED;
}

bool rig_saw_warning(const char *pattern)
{
	bool saw;

	g_mutex_lock(&log_lock);
	saw = g_pattern_match_simple(pattern, log_text->str);
	g_string_truncate(log_text, 0);
	g_mutex_unlock(&log_lock);
	return saw;
}

/* --- the window --- */

static int window_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	struct rig_window *rw = (struct rig_window *)w;

	util_mutex_lock(&rw->m);
	for (size_t i = 0; i < n; i++) {
		ops[i].result = 0;
		if (ops[i].kind == DM_OP_UNMAP) {
			rw->unmaps++;
			continue;
		}
		rw->waiting++;
		util_cond_broadcast(&rw->c);
		while (rw->hold)
			util_cond_wait(&rw->c, &rw->m);
		rw->waiting--;
		ops[i].result = rw->fail;
		if (!rw->fail)
			rw->maps++;
	}
	util_mutex_unlock(&rw->m);
	return 0;
}

static void window_destroy(struct dm_window *w)
{
}

static const struct dm_window_ops window_ops = {
	.name = "rig",
	.submit = window_submit,
	.destroy = window_destroy,
};

static int provide(void *ctx, struct dm_file_key key, bool *writable)
{
	return fs_open_for_map(((struct rig *)ctx)->fs, key.lo, writable);
}

static void unprovide(void *ctx, struct dm_file_key key, int fd)
{
	close(fd);
}

static bool dax_if_multiple(void *ctx, const struct fs_attr *a)
{
	return a->st.st_size && a->st.st_size % (off_t)RIG_SLOT == 0;
}

static const struct fuse_dax_ops dax_ops = {.mark = dax_if_multiple};

static void node_gone(void *ctx, uint64_t node, bool unlinked)
{
	struct rig *g = ctx;

	if (unlinked && g->s)
		fuse_session_file_gone(g->s, node);
}

struct rig *rig_new(void (*adjust)(struct fuse_config *cfg))
{
	struct rig *g = g_new0(struct rig, 1);
	struct fs_hooks hooks = {.ctx = g, .node_gone = node_gone};
	struct dm_file_provider provider = {.ctx = g, .open = provide, .close = unprovide};
	struct fs_config fc = {.xattr = true, .flock = true, .cache = FS_CACHE_AUTO};
	GError *error = NULL;

	if (!log_text) {
		log_text = g_string_new(NULL);
		g_log_set_writer_func(log_writer, NULL, NULL);
	}
	g->dir = g_dir_make_tmp("fuse-XXXXXX", &error);
	g_assert_no_error(error);
	fc.root_fd = open(g->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fc.proc_self_fd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	g->fs = fs_new(&fc, &hooks, &error);
	g_assert_no_error(error);
	util_mutex_init(&g->window.m);
	util_cond_init(&g->window.c);
	g->window.w.ops = &window_ops;
	g->window.w.caps = (struct dm_window_caps){
		.flags = DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT | DM_WINDOW_CONCURRENT,
		.size = RIG_WINDOW,
		.granule = 4096,
		.batch = 8,
	};
	g->table = dm_table_new(&g->window.w, &provider, NULL);
	g->cfg = (struct fuse_config){
		.fs = g->fs,
		.table = g->table,
		.num_queues = 4,
		.pool_size = -1,
		.dax = FUSE_DAX_INODE,
		.window_size = RIG_WINDOW,
		.dax_ops = &dax_ops,
		.attr_timeout = -1,
		.entry_timeout = -1,
		.cache = FS_CACHE_AUTO,
		.xattr = true,
		.flock = true,
		.killpriv_v2 = true,
		.readdirplus = true,
	};
	if (adjust)
		adjust(&g->cfg);
	g->s = fuse_session_new(&g->cfg);
	return g;
}

static void remove_tree(const char *path)
{
	GDir *d = g_dir_open(path, 0, NULL);
	const char *name;

	while (d && (name = g_dir_read_name(d))) {
		g_autofree char *child = g_build_filename(path, name, NULL);

		if (g_file_test(child, G_FILE_TEST_IS_DIR) &&
		    !g_file_test(child, G_FILE_TEST_IS_SYMLINK))
			remove_tree(child);
		else
			g_unlink(child);
	}
	if (d)
		g_dir_close(d);
	g_rmdir(path);
}

void rig_free(struct rig *g)
{
	struct fuse_session *s = g->s;

	fuse_session_reset(s);
	g->s = NULL;
	fuse_session_free(s);
	dm_table_free(g->table);
	fs_free(g->fs);
	remove_tree(g->dir);
	g_free(g->dir);
	util_cond_destroy(&g->window.c);
	util_mutex_destroy(&g->window.m);
	g_free(g);
}

/* --- requests --- */

static void req_done(struct fuse_request *r, size_t len)
{
	struct rig_req *q = (struct rig_req *)r;

	util_mutex_lock(&q->m);
	q->done++;
	q->len = len;
	util_cond_broadcast(&q->c);
	util_mutex_unlock(&q->m);
}

static void req_parked(struct fuse_request *r, bool parked)
{
	struct rig_req *q = (struct rig_req *)r;

	util_mutex_lock(&q->m);
	g_assert_cmpint(q->parked, !=, parked);
	q->parked = parked;
	q->parks += parked;
	util_cond_broadcast(&q->c);
	util_mutex_unlock(&q->m);
}

static void make_gvec(struct util_gvec *v, unsigned char *bytes, size_t len, size_t piece)
{
	size_t n = piece ? (len + piece - 1) / piece : 1;

	*v = (struct util_gvec){.iov = g_new0(struct iovec, MAX(n, 1)), .len = len};
	for (size_t at = 0; at < len; at += v->iov[v->n++].iov_len)
		v->iov[v->n] = (struct iovec){bytes + at, piece ? MIN(piece, len - at) : len};
}

struct rig_req *rig_prepare(struct rig *g, uint32_t opcode, uint64_t node, const void *args,
			    size_t args_len, const void *data, size_t data_len, size_t in_size)
{
	struct rig_req *q = g_new0(struct rig_req, 1);
	size_t len = sizeof(struct fuse_in_header) + args_len + data_len;
	struct fuse_in_header h = {
		.len = (uint32_t)len,
		.opcode = opcode,
		.unique = __atomic_add_fetch(&g->unique, 1, __ATOMIC_RELAXED),
		.nodeid = node,
		.uid = getuid(),
		.gid = getgid(),
	};

	q->rig = g;
	util_mutex_init(&q->m);
	util_cond_init(&q->c);
	q->out = g_malloc(len);
	q->in_size = in_size;
	q->in = g_malloc(MAX(in_size, 1));
	memcpy(q->out, &h, sizeof(h));
	if (args_len)
		memcpy(q->out + sizeof(h), args, args_len);
	if (data_len)
		memcpy(q->out + sizeof(h) + args_len, data, data_len);
	make_gvec(&q->r.out, q->out, len, g->piece);
	make_gvec(&q->r.in, q->in, in_size, g->piece);
	q->r.done = req_done;
	q->r.parked = req_parked;
	return q;
}

void rig_send(struct rig_req *q, unsigned int queue)
{
	q->r.queue = queue;
	fuse_session_handle(q->rig->s, &q->r);
}

bool rig_is_done(struct rig_req *q)
{
	bool done;

	util_mutex_lock(&q->m);
	done = q->done;
	util_mutex_unlock(&q->m);
	return done;
}

int rig_wait(struct rig_req *q)
{
	struct fuse_in_header ih;
	struct fuse_out_header oh;

	util_mutex_lock(&q->m);
	while (!q->done)
		util_cond_wait(&q->c, &q->m);
	g_assert_false(q->parked);
	util_mutex_unlock(&q->m);
	g_assert_cmpuint(q->done, ==, 1);
	g_assert_cmpuint(q->len, <=, q->in_size);
	if (!q->len)
		return 0;
	g_assert_cmpuint(q->len, >=, sizeof(oh));
	memcpy(&oh, q->in, sizeof(oh));
	memcpy(&ih, q->out, sizeof(ih));
	g_assert_cmpuint(oh.len, ==, q->len);
	g_assert_cmpuint(oh.unique, ==, ih.unique);
	g_assert_cmpint(oh.error, <=, 0);
	g_assert_cmpint(oh.error, >, -512);
	q->error = oh.error;
	q->payload_len = q->len - sizeof(oh);
	q->payload = q->in + sizeof(oh);
	if (q->error)
		g_assert_cmpuint(q->payload_len, ==, 0);
	return q->error;
}

void rig_req_free(struct rig_req *q)
{
	g_free(q->r.out.iov);
	g_free(q->r.in.iov);
	g_free(q->r.out.window);
	g_free(q->r.in.window);
	g_free(q->out);
	g_free(q->in);
	util_cond_destroy(&q->c);
	util_mutex_destroy(&q->m);
	g_free(q);
}

/* Returns the payload's size or a negative errno. */
static ssize_t call(struct rig *g, uint32_t opcode, uint64_t node, const void *args,
		    size_t args_len, const void *data, size_t data_len, void *out, size_t out_len)
{
	struct rig_req *q = rig_prepare(g, opcode, node, args, args_len, data, data_len,
					sizeof(struct fuse_out_header) + out_len);
	ssize_t n;

	rig_send(q, 1);
	n = rig_wait(q);
	if (!n && q->len) {
		n = (ssize_t)q->payload_len;
		if (n)
			memcpy(out, q->payload, (size_t)n);
	}
	rig_req_free(q);
	return n;
}

int rig_call(struct rig *g, uint32_t opcode, uint64_t node, const void *args, size_t args_len,
	     const void *data, size_t data_len, void *out, size_t out_len)
{
	ssize_t n = call(g, opcode, node, args, args_len, data, data_len, out, out_len);

	return n < 0 ? (int)n : 0;
}

int rig_init_flags(struct rig *g, uint64_t flags, struct fuse_init_out *out)
{
	struct fuse_init_in in = {
		.major = 7,
		.minor = 38,
		.max_readahead = 131072,
		.flags = (uint32_t)(flags | FUSE_INIT_EXT),
		.flags2 = (uint32_t)(flags >> 32),
	};

	return rig_call(g, FUSE_INIT, 0, &in, sizeof(in), NULL, 0, out, sizeof(*out));
}

int rig_init(struct rig *g)
{
	struct fuse_init_out out;

	return rig_init_flags(g, UINT64_MAX, &out);
}

int rig_destroy(struct rig *g)
{
	return rig_call(g, FUSE_DESTROY, 0, NULL, 0, NULL, 0, NULL, 0);
}

int rig_lookup(struct rig *g, uint64_t parent, const char *name, struct fuse_entry_out *e)
{
	return rig_call(g, FUSE_LOOKUP, parent, NULL, 0, name, strlen(name) + 1, e, sizeof(*e));
}

int rig_create(struct rig *g, uint64_t parent, const char *name, uint64_t *node, uint64_t *fh)
{
	struct fuse_create_in in = {.flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0644};
	unsigned char out[sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out)];
	struct fuse_entry_out e;
	struct fuse_open_out o;
	int err = rig_call(g, FUSE_CREATE, parent, &in, sizeof(in), name, strlen(name) + 1, out,
			   sizeof(out));

	memcpy(&e, out, sizeof(e));
	memcpy(&o, out + sizeof(e), sizeof(o));
	*node = e.nodeid;
	*fh = o.fh;
	return err;
}

ssize_t rig_write(struct rig *g, uint64_t node, uint64_t fh, uint64_t off, const void *data,
		  size_t n)
{
	struct fuse_write_in in = {.fh = fh, .offset = off, .size = (uint32_t)n};
	struct fuse_write_out out = {0};
	int err = rig_call(g, FUSE_WRITE, node, &in, sizeof(in), data, n, &out, sizeof(out));

	return err ? err : (ssize_t)out.size;
}

ssize_t rig_read(struct rig *g, uint64_t node, uint64_t fh, uint64_t off, void *data, size_t n)
{
	struct fuse_read_in in = {.fh = fh, .offset = off, .size = (uint32_t)n};

	return call(g, FUSE_READ, node, &in, sizeof(in), NULL, 0, data, n);
}

int rig_setup(struct rig *g, uint64_t node, uint64_t foffset, uint64_t moffset, uint64_t flags)
{
	struct fuse_setupmapping_in in = {
		.fh = UINT64_MAX,
		.foffset = foffset,
		.len = RIG_SLOT,
		.flags = flags,
		.moffset = moffset,
	};

	return rig_call(g, FUSE_SETUPMAPPING, node, &in, sizeof(in), NULL, 0, NULL, 0);
}

int rig_remove(struct rig *g, uint64_t moffset, uint64_t len)
{
	struct fuse_removemapping_in in = {.count = 1};
	struct fuse_removemapping_one one = {.moffset = moffset, .len = len};

	return rig_call(g, FUSE_REMOVEMAPPING, 0, &in, sizeof(in), &one, sizeof(one), NULL, 0);
}

uint64_t rig_count(struct rig *g, const char *op)
{
	struct fuse_op_stats st;

	for (unsigned int i = 0; fuse_session_op_stats(g->s, i, &st); i++) {
		if (g_str_equal(st.name, op))
			return st.count;
	}
	g_assert_not_reached();
}
