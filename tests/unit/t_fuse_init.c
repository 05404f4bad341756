// SPDX-License-Identifier: Apache-2.0
/* INIT and DESTROY: what is agreed, what is refused, and what holds before and after. */
#include <errno.h>
#include <string.h>

#include "fuse_rig.h"

#define ROOT FUSE_ROOT_ID

static int init_raw(struct rig *g, uint32_t major, uint32_t minor, size_t in_len,
		    struct fuse_init_out *out, size_t out_len, size_t *reply)
{
	struct fuse_init_in in = {
		.major = major, .minor = minor, .flags = FUSE_MAX_PAGES | FUSE_INIT_EXT};
	struct rig_req *q = rig_prepare(g, FUSE_INIT, 0, &in, in_len, NULL, 0,
					sizeof(struct fuse_out_header) + out_len);
	int err;

	rig_send(q, 1);
	err = rig_wait(q);
	*reply = q->payload_len;
	memset(out, 0, sizeof(*out));
	memcpy(out, q->payload, q->payload_len);
	rig_req_free(q);
	return err;
}

static int getattr(struct rig *g)
{
	struct fuse_getattr_in in = {0};
	struct fuse_attr_out out;

	return rig_call(g, FUSE_GETATTR, ROOT, &in, sizeof(in), NULL, 0, &out, sizeof(out));
}

static void test_nothing_before_init(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_entry_out e;

	g_assert_cmpint(getattr(g), ==, -EIO);
	g_assert_cmpint(rig_lookup(g, ROOT, "x", &e), ==, -EIO);
	g_assert_cmpint(rig_destroy(g), ==, -EIO);
	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(getattr(g), ==, 0);
	g_assert_cmpint(rig_destroy(g), ==, 0);
	g_assert_cmpint(getattr(g), ==, -EIO);
	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(getattr(g), ==, 0);
	rig_free(g);
}

static void test_versions(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_init_out out;
	size_t n;

	g_assert_cmpint(init_raw(g, 6, 40, 64, &out, 64, &n), ==, -EPROTO);
	g_assert_true(rig_saw_warning("*too old*"));
	g_assert_cmpint(getattr(g), ==, -EIO);
	g_assert_cmpint(init_raw(g, 8, 1, 64, &out, 64, &n), ==, 0);
	g_assert_cmpuint(out.major, ==, 7);
	g_assert_cmpuint(out.minor, ==, 38);
	g_assert_cmpint(getattr(g), ==, -EIO); /* it will ask again */
	g_assert_cmpint(init_raw(g, 7, 4, 16, &out, 64, &n), ==, 0);
	g_assert_cmpuint(n, ==, 8);
	g_assert_cmpint(init_raw(g, 7, 22, 16, &out, 64, &n), ==, 0);
	g_assert_cmpuint(n, ==, 24);
	g_assert_cmpint(init_raw(g, 7, 31, 16, &out, 64, &n), ==, 0);
	g_assert_cmpuint(n, ==, 64);
	g_assert_cmpuint(out.minor, ==, 31);
	g_assert_cmpuint(out.max_pages, ==, 256);
	g_assert_cmpuint(out.max_write, ==, 1 << 20);
	g_assert_cmpint(init_raw(g, 7, 99, 64, &out, 64, &n), ==, 0);
	g_assert_cmpuint(out.minor, ==, 38);
	g_assert_cmpint(init_raw(g, 7, 38, 64, &out, 63, &n), ==, -EINVAL);
	g_assert_cmpint(getattr(g), ==, -EIO);
	rig_free(g);
}

static void test_flags_follow_both_sides(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_init_out out;
	uint64_t flags;

	g_assert_cmpint(rig_init_flags(g, FUSE_FLOCK_LOCKS | FUSE_POSIX_LOCKS, &out), ==, 0);
	g_assert_cmphex(out.flags, ==, FUSE_FLOCK_LOCKS | FUSE_INIT_EXT);
	g_assert_cmpuint(out.max_write, ==, 131072);
	g_assert_cmpuint(out.map_alignment, ==, 0);
	g_assert_cmpuint(out.max_readahead, ==, 131072);

	g_assert_cmpint(rig_init_flags(g, UINT64_MAX, &out), ==, 0);
	flags = out.flags | (uint64_t)out.flags2 << 32;
	g_assert_true(flags & FUSE_HANDLE_KILLPRIV_V2);
	g_assert_true(flags & FUSE_BIT_CREATE_SUPP_GROUP);
	g_assert_true(flags & FUSE_HAS_INODE_DAX);
	g_assert_true(flags & FUSE_MAP_ALIGNMENT);
	g_assert_false(flags & FUSE_POSIX_LOCKS);
	g_assert_false(flags & FUSE_WRITEBACK_CACHE);
	g_assert_false(flags & FUSE_POSIX_ACL);
	g_assert_false(flags & FUSE_SECURITY_CTX);
	g_assert_false(flags & FUSE_HANDLE_KILLPRIV);
	g_assert_cmpuint(out.map_alignment, ==, 12);
	g_assert_cmpint(fuse_session_guest_dax(g->s), ==, FUSE_DAX_INODE);
	g_assert_cmpint(rig_destroy(g), ==, 0);
	g_assert_cmpint(fuse_session_guest_dax(g->s), ==, FUSE_DAX_NONE);
	rig_free(g);
}

static bool yes(void *ctx)
{
	return true;
}

static bool no_mark(void *ctx, const struct fs_attr *a)
{
	return false;
}

static void always_ok(struct fuse_config *cfg)
{
	static const struct fuse_dax_ops ops = {.mark = no_mark, .any_size = yes};

	cfg->dax_ops = &ops;
}

/* What the daemon prefers does not make a file mappable. */
static void prefers_always(struct fuse_config *cfg)
{
	cfg->dax = FUSE_DAX_ALWAYS;
}

static void no_dax(struct fuse_config *cfg)
{
	cfg->dax = FUSE_DAX_NONE;
	cfg->table = NULL;
}

static void test_dax_always_needs_every_file(void)
{
	uint64_t always = UINT64_MAX & ~FUSE_HAS_INODE_DAX;
	struct fuse_init_out out;
	struct rig *g = rig_new(NULL);

	g_assert_cmpint(rig_init_flags(g, always, &out), ==, -EOPNOTSUPP);
	g_assert_true(rig_saw_warning("*dax=always*not every file*"));
	g_assert_cmpint(getattr(g), ==, -EIO);
	rig_free(g);

	g = rig_new(prefers_always);
	g_assert_cmpint(rig_init_flags(g, always, &out), ==, -EOPNOTSUPP);
	g_assert_true(rig_saw_warning("*dax=always*not every file*"));
	rig_free(g);

	g = rig_new(always_ok);
	g_assert_cmpint(rig_init_flags(g, always, &out), ==, 0);
	g_assert_cmpint(fuse_session_guest_dax(g->s), ==, FUSE_DAX_ALWAYS);
	g_assert_cmpuint(out.map_alignment, ==, 12);
	rig_free(g);

	g = rig_new(no_dax);
	g_assert_cmpint(rig_init_flags(g, always, &out), ==, -EOPNOTSUPP);
	g_assert_true(rig_saw_warning("*dax=always*no DAX window*"));
	g_assert_cmpint(rig_init_flags(g, UINT64_MAX, &out), ==, 0);
	g_assert_false(out.flags & FUSE_MAP_ALIGNMENT);
	g_assert_false(out.flags2 & (FUSE_HAS_INODE_DAX >> 32));
	g_assert_cmpint(rig_setup(g, ROOT, 0, 0, 3), ==, -ENOSYS);
	rig_free(g);
}

static void cache_never(struct fuse_config *cfg)
{
	cfg->cache = FS_CACHE_NEVER;
}

static void cache_metadata(struct fuse_config *cfg)
{
	cfg->cache = FS_CACHE_METADATA;
}

static void cache_always(struct fuse_config *cfg)
{
	cfg->cache = FS_CACHE_ALWAYS;
}

static void check_cache(void (*mode)(struct fuse_config *), uint64_t timeout, uint32_t file_flags,
			uint32_t dir_flags)
{
	struct rig *g = rig_new(mode);
	struct fuse_entry_out e;
	struct fuse_open_in in = {.flags = 2 /* O_RDWR */};
	struct fuse_open_out o;
	uint64_t node, fh;

	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "f", &node, &fh), ==, 0);
	g_assert_cmpint(rig_lookup(g, ROOT, "f", &e), ==, 0);
	g_assert_cmpuint(e.entry_valid, ==, timeout);
	g_assert_cmpuint(e.attr_valid, ==, timeout);
	g_assert_cmpint(rig_call(g, FUSE_OPEN, node, &in, sizeof(in), NULL, 0, &o, sizeof(o)), ==,
			0);
	g_assert_cmphex(o.open_flags, ==, file_flags);
	in.flags = 0;
	g_assert_cmpint(rig_call(g, FUSE_OPEN, node, &in, sizeof(in), NULL, 0, &o, sizeof(o)), ==,
			0);
	g_assert_cmphex(o.open_flags, ==, file_flags | FOPEN_NOFLUSH);
	g_assert_cmpint(rig_call(g, FUSE_OPENDIR, ROOT, &in, sizeof(in), NULL, 0, &o, sizeof(o)),
			==, 0);
	g_assert_cmphex(o.open_flags, ==, dir_flags);
	rig_free(g);
}

static void test_cache_modes(void)
{
	uint32_t direct = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
	uint32_t keep_dir = FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE;

	check_cache(cache_never, 0, direct, 0);
	check_cache(cache_metadata, 86400, direct, keep_dir);
	check_cache(NULL, 1, 0, 0);
	check_cache(cache_always, 86400, FOPEN_KEEP_CACHE, keep_dir);
}

static void test_repeated_init_forgets(void)
{
	struct rig *g = rig_new(NULL);
	uint64_t node, fh;
	struct fs_stats st;
	char byte;

	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "f", &node, &fh), ==, 0);
	fs_get_stats(g->fs, &st);
	g_assert_cmpuint(st.handles, ==, 1);
	g_assert_cmpint(rig_init(g), ==, 0);
	fs_get_stats(g->fs, &st);
	g_assert_cmpuint(st.handles, ==, 0);
	g_assert_cmpint(rig_read(g, node, fh, 0, &byte, 1), <, 0);
	rig_free(g);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/init/first", test_nothing_before_init);
	g_test_add_func("/fuse/init/versions", test_versions);
	g_test_add_func("/fuse/init/flags", test_flags_follow_both_sides);
	g_test_add_func("/fuse/init/dax-always", test_dax_always_needs_every_file);
	g_test_add_func("/fuse/init/cache-modes", test_cache_modes);
	g_test_add_func("/fuse/init/repeated", test_repeated_init_forgets);
	return g_test_run();
}
