// SPDX-License-Identifier: Apache-2.0
/* Names and attributes. */
#include <sys/sysmacros.h>

#include "t_fs_common.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#endif

static void lookup_same_file_is_same_node(struct share *s, gconstpointer d)
{
	struct fs_attr a;
	struct fs_attr b;

	t_write(s, "f", "hello");
	for (int i = 0; i < 20; i++) { /* both orders of trying are met */
		g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "f", &a), ==, 0);
		g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "f", &b), ==, 0);
		g_assert_cmpuint(a.node, ==, b.node);
		g_assert_cmpint(b.st.st_size, ==, 5);
		g_assert_true(S_ISREG(b.st.st_mode));
		g_assert_cmpuint(t_stats(s).nodes, ==, 2);
	}
	fs_forget(s->fs, a.node, 39);
	g_assert_cmpuint(t_stats(s).nodes, ==, 2);
	fs_forget(s->fs, a.node, 1);
	g_assert_cmpuint(t_stats(s).nodes, ==, 1);
	g_assert_cmpint(fs_getattr(s->fs, a.node, false, 0, &b), ==, -ESTALE);
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "f", &b), ==, 0);
	g_assert_cmpuint(a.node, !=, b.node); /* ids are not used again */
	fs_forget(s->fs, b.node, UINT64_MAX); /* too much is just all */
	g_assert_cmpuint(t_stats(s).nodes, ==, 1);
	fs_forget(s->fs, b.node, 1);
	fs_forget(s->fs, FS_ROOT_ID, 1000);
	g_assert_cmpint(fs_getattr(s->fs, FS_ROOT_ID, false, 0, &b), ==, 0);
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "none", &b), ==, -ENOENT);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
}

static void lookup_cached_agrees(struct share *s, gconstpointer d)
{
	struct fs_attr a;
	struct fs_attr b;
	int err;

	t_write(s, "f", "hello");
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "f", &a), ==, 0);
	err = fs_lookup_cached(s->fs, FS_ROOT_ID, "f", &b);
	if (err == -EAGAIN) {
		g_test_skip("openat2 has no RESOLVE_CACHED here, or nothing is cached");
		return;
	}
	g_assert_cmpint(err, ==, 0);
	g_assert_cmpuint(a.node, ==, b.node);
	g_assert_cmpint(fs_getattr_cached(s->fs, a.node, &b), ==, 0);
	g_assert_cmpint(b.st.st_size, ==, 5);
	g_assert_cmpint(fs_lookup_cached(s->fs, FS_ROOT_ID, "..", &b), ==, -EINVAL);
}

/* Every operation that takes a name, with every name that is none. */
static void odd_names_are_refused(struct share *s, gconstpointer d)
{
	char longname[NAME_MAX + 2];
	const char *bad[] = {"",	   ".",		  "..", "/",	"a/b",
			     "../outside", "/etc/passwd", "d/", "d/..", longname};
	struct fs_attr a;
	uint64_t h;
	uint64_t f;

	memset(longname, 'x', sizeof(longname) - 1);
	longname[sizeof(longname) - 1] = '\0';
	t_write(s, "f", "");
	f = t_lookup(s, FS_ROOT_ID, "f");
	for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
		const char *n = bad[i];
		int want = n == longname ? -ENAMETOOLONG : -EINVAL;
		struct fs *fs = s->fs;

		g_assert_cmpint(fs_lookup(fs, FS_ROOT_ID, n, &a), ==, want);
		g_assert_cmpint(fs_lookup_cached(fs, FS_ROOT_ID, n, &a), ==, want);
		g_assert_cmpint(fs_symlink(fs, &me, FS_ROOT_ID, n, "x", &a), ==, want);
		g_assert_cmpint(fs_mknod(fs, &me, FS_ROOT_ID, n, S_IFREG | 0600, 0, &a), ==, want);
		g_assert_cmpint(fs_mkdir(fs, &me, FS_ROOT_ID, n, 0700, &a), ==, want);
		g_assert_cmpint(fs_unlink(fs, FS_ROOT_ID, n), ==, want);
		g_assert_cmpint(fs_rmdir(fs, FS_ROOT_ID, n), ==, want);
		g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, n, FS_ROOT_ID, "g", 0), ==, want);
		g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, "f", FS_ROOT_ID, n, 0), ==, want);
		g_assert_cmpint(fs_link(fs, f, FS_ROOT_ID, n, &a), ==, want);
		g_assert_cmpint(fs_create(fs, &me, FS_ROOT_ID, n, 0600, O_RDWR, false, &a, &h), ==,
				want);
	}
	longname[NAME_MAX] = '\0';
	g_assert_cmpint(fs_mkdir(s->fs, &me, FS_ROOT_ID, longname, 0700, &a), ==, 0);
	g_assert_cmpint(fs_mkdir(s->fs, &me, FS_ROOT_ID, "...", 0700, &a), ==, 0);
	g_assert_cmpint(fs_mkdir(s->fs, &me, FS_ROOT_ID, "\xff\n *", 0700, &a), ==, 0);
	/* A file is no directory; nothing has no children. */
	g_assert_cmpint(fs_lookup(s->fs, f, "x", &a), ==, -ENOTDIR);
	g_assert_cmpint(fs_lookup(s->fs, 12345678, "x", &a), ==, -ESTALE);
}

static void make_and_remove_all_kinds(struct share *s, gconstpointer d)
{
	struct fs *fs = s->fs;
	struct fs_attr a;
	struct fs_attr dir;
	char buf[16];

	g_assert_cmpint(fs_mkdir(fs, &me, FS_ROOT_ID, "d", 0751, &dir), ==, 0);
	g_assert_cmpuint(dir.st.st_mode, ==, S_IFDIR | 0751);
	g_assert_cmpint(fs_mkdir(fs, &me, FS_ROOT_ID, "d", 0751, &a), ==, -EEXIST);
	g_assert_cmpint(fs_symlink(fs, &me, dir.node, "l", "to/../nowhere", &a), ==, 0);
	g_assert_true(S_ISLNK(a.st.st_mode));
	g_assert_cmpint(fs_readlink(fs, a.node, buf, sizeof(buf)), ==, 13);
	g_assert_cmpmem(buf, 13, "to/../nowhere", 13);
	g_assert_cmpint(fs_readlink(fs, dir.node, buf, sizeof(buf)), ==, -EINVAL);
	g_assert_cmpint(fs_mknod(fs, &me, dir.node, "p", S_IFIFO | 0600, 0, &a), ==, 0);
	g_assert_true(S_ISFIFO(a.st.st_mode));
	g_assert_cmpint(fs_mknod(fs, &me, dir.node, "s", S_IFSOCK | 0600, 0, &a), ==, 0);
	g_assert_cmpint(fs_mknod(fs, &me, dir.node, "r", S_IFREG | 0640, 0, &a), ==, 0);
	g_assert_cmpint(fs_mknod(fs, &me, dir.node, "x", S_IFDIR | 0640, 0, &a), ==, -EINVAL);
	if (geteuid() == 0 &&
	    fs_mknod(fs, &me, dir.node, "c", S_IFCHR | 0600, makedev(1, 3), &a) == 0)
		g_assert_cmpuint(a.st.st_rdev, ==, makedev(1, 3));

	g_assert_cmpint(fs_rmdir(fs, FS_ROOT_ID, "d"), ==, -ENOTEMPTY);
	g_assert_cmpint(fs_unlink(fs, FS_ROOT_ID, "d"), ==, -EISDIR);
	g_assert_cmpint(fs_rmdir(fs, dir.node, "r"), ==, -ENOTDIR);
	fs_unlink(fs, dir.node, "c");
	g_assert_cmpint(fs_unlink(fs, dir.node, "l"), ==, 0);
	g_assert_cmpint(fs_unlink(fs, dir.node, "p"), ==, 0);
	g_assert_cmpint(fs_unlink(fs, dir.node, "s"), ==, 0);
	g_assert_cmpint(fs_unlink(fs, dir.node, "r"), ==, 0);
	g_assert_cmpint(fs_unlink(fs, dir.node, "r"), ==, -ENOENT);
	g_assert_cmpint(fs_rmdir(fs, FS_ROOT_ID, "d"), ==, 0);
}

static void rename_flags(struct share *s, gconstpointer d)
{
	struct fs *fs = s->fs;
	struct fs_attr a;
	uint64_t x;
	uint64_t y;

	t_write(s, "x", "x");
	t_write(s, "y", "yy");
	x = t_lookup(s, FS_ROOT_ID, "x");
	y = t_lookup(s, FS_ROOT_ID, "y");
	g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, "x", FS_ROOT_ID, "y", RENAME_NOREPLACE), ==,
			-EEXIST);
	g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, "x", FS_ROOT_ID, "y", RENAME_EXCHANGE), ==, 0);
	g_assert_cmpuint(t_lookup(s, FS_ROOT_ID, "x"), ==, y);
	g_assert_cmpuint(t_lookup(s, FS_ROOT_ID, "y"), ==, x);
	g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, "x", FS_ROOT_ID, "y", 0x40), ==, -EINVAL);
	g_assert_cmpint(fs_mkdir(fs, &me, FS_ROOT_ID, "d", 0755, &a), ==, 0);
	g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, "x", a.node, "z", 0), ==, 0);
	g_assert_cmpuint(t_lookup(s, a.node, "z"), ==, y);
	g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, "y", a.node, "z", 0), ==, 0);
	/* y was overwritten, but is still looked up: its inode is there. */
	g_assert_cmpint(fs_getattr(fs, y, false, 0, &a), ==, 0);
	g_assert_cmpuint(a.st.st_nlink, ==, 0);
}

static void link_names_any_inode(struct share *s, gconstpointer d)
{
	struct fs_attr a;
	struct fs_attr b;
	uint64_t h;

	t_write(s, "f", "x");
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "f", &a), ==, 0);
	g_assert_cmpint(fs_link(s->fs, a.node, FS_ROOT_ID, "g", &b), ==, 0);
	g_assert_cmpuint(a.node, ==, b.node);
	g_assert_cmpuint(b.st.st_nlink, ==, 2);
	g_assert_cmpint(fs_symlink(s->fs, &me, FS_ROOT_ID, "l", "f", &a), ==, 0);
	g_assert_cmpint(fs_link(s->fs, a.node, FS_ROOT_ID, "l2", &b), ==, 0);
	g_assert_cmpuint(a.node, ==, b.node);
	g_assert_cmpint(fs_tmpfile(s->fs, &me, FS_ROOT_ID, 0600, O_RDWR, &a, &h), ==, 0);
	g_assert_cmpuint(a.st.st_nlink, ==, 0);
	g_assert_cmpint(t_pwrite(s, a.node, h, "abc", 3, 0, 0), ==, 3);
	g_assert_cmpint(fs_link(s->fs, a.node, FS_ROOT_ID, "named", &b), ==, 0);
	g_assert_cmpuint(a.node, ==, b.node);
	g_assert_cmpint(b.st.st_size, ==, 3);
	g_assert_cmpint(fs_release(s->fs, h), ==, 0);
}

static uint64_t last_size;
static void on_resized(void *ctx, uint64_t node, uint64_t size)
{
	last_size = size;
}

static void setattr_each_field(struct share *s, gconstpointer d)
{
	struct fs_setattr set = {.valid = FS_SET_MODE, .mode = 0604};
	struct fs_attr a;
	uint64_t f;
	uint64_t l;
	uint64_t h;

	t_share_stop(s);
	s->hooks.resized = on_resized;
	t_share_start(s);
	t_write(s, "f", "0123456789");
	f = t_lookup(s, FS_ROOT_ID, "f");
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
	g_assert_cmpuint(a.st.st_mode, ==, S_IFREG | 0604);

	set = (struct fs_setattr){.valid = FS_SET_SIZE, .size = 4};
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
	g_assert_cmpint(a.st.st_size, ==, 4);
	g_assert_cmpuint(last_size, ==, 4);
	g_assert_cmpint(fs_open(s->fs, f, O_RDWR, false, &h), ==, 0);
	set = (struct fs_setattr){.valid = FS_SET_SIZE, .size = 9, .has_handle = true, .handle = h};
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
	g_assert_cmpint(a.st.st_size, ==, 9);
	set.handle = h + 1000;
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, -EBADF);
	set = (struct fs_setattr){.valid = FS_SET_SIZE, .size = UINT64_MAX};
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, -EFBIG);
	g_assert_cmpint(fs_setattr(s->fs, FS_ROOT_ID, &set, &a), ==, -EISDIR);

	set = (struct fs_setattr){
		.valid = FS_SET_ATIME | FS_SET_MTIME, .atime = {1000, 1}, .mtime = {2000, 2}};
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
	g_assert_cmpint(a.st.st_atim.tv_sec, ==, 1000);
	g_assert_cmpint(a.st.st_mtim.tv_nsec, ==, 2);
	set = (struct fs_setattr){.valid = FS_SET_ATIME_NOW};
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
	g_assert_cmpint(a.st.st_atim.tv_sec, >, 1000);
	g_assert_cmpint(a.st.st_mtim.tv_sec, ==, 2000);

	/* A link's own times, not its target's. */
	g_assert_cmpint(fs_symlink(s->fs, &me, FS_ROOT_ID, "l", "f", &a), ==, 0);
	l = a.node;
	set = (struct fs_setattr){.valid = FS_SET_MTIME, .mtime = {5, 0}};
	g_assert_cmpint(fs_setattr(s->fs, l, &set, &a), ==, 0);
	g_assert_cmpint(a.st.st_mtim.tv_sec, ==, 5);
	if (geteuid() == 0) {
		set = (struct fs_setattr){.valid = FS_SET_UID, .uid = 77};
		g_assert_cmpint(fs_setattr(s->fs, l, &set, &a), ==, 0);
		g_assert_cmpuint(a.st.st_uid, ==, 77);
		g_assert_cmpint(fs_getattr(s->fs, f, false, 0, &a), ==, 0);
		g_assert_cmpuint(a.st.st_uid, ==, 0);
		g_assert_cmpint(a.st.st_mtim.tv_sec, ==, 2000);
	}
}

static void xattr_on_every_kind(struct share *s, gconstpointer d)
{
	const char *kind[] = {"f", "d", "l", "p"};
	struct fs_attr a;
	char buf[256];

	if (geteuid() != 0) {
		g_test_skip("trusted.* needs CAP_SYS_ADMIN");
		return;
	}
	g_assert_cmpint(fs_mknod(s->fs, &me, FS_ROOT_ID, "f", S_IFREG | 0644, 0, &a), ==, 0);
	g_assert_cmpint(fs_mkdir(s->fs, &me, FS_ROOT_ID, "d", 0755, &a), ==, 0);
	g_assert_cmpint(fs_symlink(s->fs, &me, FS_ROOT_ID, "l", "f", &a), ==, 0);
	g_assert_cmpint(fs_mknod(s->fs, &me, FS_ROOT_ID, "p", S_IFIFO | 0600, 0, &a), ==, 0);
	for (guint i = 0; i < G_N_ELEMENTS(kind); i++) {
		uint64_t n = t_lookup(s, FS_ROOT_ID, kind[i]);
		int err = fs_setxattr(s->fs, n, "trusted.t", kind[i], 1, 0);

		if (err == -EOPNOTSUPP || err == -EPERM) {
			g_test_skip("no trusted.* here");
			return;
		}
		g_assert_cmpint(err, ==, 0);
		g_assert_cmpint(fs_setxattr(s->fs, n, "trusted.t", kind[i], 1, 1), ==, -EEXIST);
		g_assert_cmpint(fs_getxattr(s->fs, n, "trusted.t", NULL, 0), ==, 1);
		g_assert_cmpint(fs_getxattr(s->fs, n, "trusted.t", buf, sizeof(buf)), ==, 1);
		g_assert_cmpint(buf[0], ==, kind[i][0]);
		g_assert_cmpint(fs_listxattr(s->fs, n, buf, sizeof(buf)), ==, 10);
		g_assert_cmpstr(buf, ==, "trusted.t");
	}
	for (guint i = 0; i < G_N_ELEMENTS(kind); i++) {
		uint64_t n = t_lookup(s, FS_ROOT_ID, kind[i]);

		g_assert_cmpint(fs_removexattr(s->fs, n, "trusted.t"), ==, 0);
		g_assert_cmpint(fs_getxattr(s->fs, n, "trusted.t", buf, 1), ==, -ENODATA);
		g_assert_cmpint(fs_getxattr(s->fs, n, "system.posix_acl_access", buf, 1), ==,
				-EOPNOTSUPP);
	}
}

static void statfs_access_sync(struct share *s, gconstpointer d)
{
	const struct fs_cred user = {.uid = 4321, .gid = 4321};
	const struct fs_cred grp = {.uid = 1001, .gid = 1};
	struct fs_attr a;
	struct statvfs v;
	uint64_t f;

	g_assert_cmpint(fs_statfs(s->fs, FS_ROOT_ID, &v), ==, 0);
	g_assert_cmpuint(v.f_bsize, >, 0);
	g_assert_cmpint(fs_mknod(s->fs, &me, FS_ROOT_ID, "f", S_IFREG | 0640, 0, &a), ==, 0);
	f = a.node;
	g_assert_cmpint(fs_access(s->fs, &me, f, R_OK | W_OK), ==, 0);
	g_assert_cmpint(fs_access(s->fs, &me, f, X_OK), ==, -EACCES);
	g_assert_cmpint(fs_access(s->fs, &user, f, F_OK), ==, 0);
	g_assert_cmpint(fs_access(s->fs, &user, f, R_OK), ==, -EACCES);
	g_assert_cmpint(fs_access(s->fs, &grp, f, W_OK), ==, -EACCES);
	g_assert_cmpint(fs_access(s->fs, &user, FS_ROOT_ID, R_OK | X_OK), ==, 0);
	g_assert_cmpint(fs_access(s->fs, &user, f, 0x100), ==, -EINVAL);
	g_assert_cmpint(fs_syncfs(s->fs, FS_ROOT_ID), ==, 0);
}

static void readonly_changes_nothing(struct share *s, gconstpointer d)
{
	struct fs *fs;
	struct fs_setattr set = {.valid = FS_SET_MODE, .mode = 0};
	struct fs_attr a;
	struct statvfs v;
	uint64_t f;
	uint64_t h;
	char c;
	bool writable = true;
	int fd;

	t_share_stop(s);
	s->config.readonly = true;
	t_share_start(s);
	fs = s->fs;
	t_write(s, "f", "x");
	f = t_lookup(s, FS_ROOT_ID, "f");
	g_assert_cmpint(fs_setattr(fs, f, &set, &a), ==, -EROFS);
	set.valid = 0;
	g_assert_cmpint(fs_setattr(fs, f, &set, &a), ==, -EROFS);
	g_assert_cmpint(fs_symlink(fs, &me, FS_ROOT_ID, "l", "x", &a), ==, -EROFS);
	g_assert_cmpint(fs_mknod(fs, &me, FS_ROOT_ID, "n", S_IFREG, 0, &a), ==, -EROFS);
	g_assert_cmpint(fs_mkdir(fs, &me, FS_ROOT_ID, "d", 0700, &a), ==, -EROFS);
	g_assert_cmpint(fs_unlink(fs, FS_ROOT_ID, "f"), ==, -EROFS);
	g_assert_cmpint(fs_rmdir(fs, FS_ROOT_ID, "f"), ==, -EROFS);
	g_assert_cmpint(fs_rename(fs, FS_ROOT_ID, "f", FS_ROOT_ID, "g", 0), ==, -EROFS);
	g_assert_cmpint(fs_link(fs, f, FS_ROOT_ID, "g", &a), ==, -EROFS);
	g_assert_cmpint(fs_setxattr(fs, f, "user.x", "", 0, 0), ==, -EROFS);
	g_assert_cmpint(fs_removexattr(fs, f, "user.x"), ==, -EROFS);
	g_assert_cmpint(fs_open(fs, f, O_RDWR, false, &h), ==, -EROFS);
	g_assert_cmpint(fs_open(fs, f, O_WRONLY, false, &h), ==, -EROFS);
	g_assert_cmpint(fs_open(fs, f, O_RDONLY | O_TRUNC, false, &h), ==, -EROFS);
	g_assert_cmpint(fs_create(fs, &me, FS_ROOT_ID, "n", 0600, O_RDONLY, false, &a, &h), ==,
			-EROFS);
	g_assert_cmpint(fs_tmpfile(fs, &me, FS_ROOT_ID, 0600, O_RDWR, &a, &h), ==, -EROFS);
	g_assert_cmpint(fs_access(fs, &me, f, W_OK), ==, -EROFS);
	g_assert_cmpint(fs_open(fs, f, O_RDONLY, false, &h), ==, 0);
	g_assert_cmpint(t_pwrite(s, f, h, "y", 1, 0, 0), ==, -EROFS);
	g_assert_cmpint(fs_fallocate(fs, f, h, 0, 0, 4096), ==, -EROFS);
	g_assert_cmpint(fs_copy_file_range(fs, f, h, 0, f, h, 0, 1, 0), ==, -EROFS);
	g_assert_cmpint(t_pread(s, f, h, &c, 1, 0), ==, 1);
	g_assert_cmpint(c, ==, 'x');
	fd = fs_open_for_map(fs, f, &writable);
	g_assert_cmpint(fd, >=, 0);
	g_assert_false(writable);
	g_assert_cmpint(fcntl(fd, F_GETFL) & O_ACCMODE, ==, O_RDONLY);
	close(fd);
	g_assert_cmpint(fs_statfs(fs, FS_ROOT_ID, &v), ==, 0);
	g_assert_cmpint(fs_release(fs, h), ==, 0);
}

static void reset_forgets_all(struct share *s, gconstpointer d)
{
	struct fs_attr a;
	uint64_t h;
	uint64_t f = 0;
	guint before;

	before = count_fds();
	for (int i = 0; i < 700; i++) {
		g_autofree char *n = g_strdup_printf("f%d", i);

		f = t_create(s, n, &h);
	}
	g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &h), ==, 0);
	g_assert_cmpuint(t_stats(s).nodes, ==, 701);
	g_assert_cmpuint(t_stats(s).handles, ==, 701);
	fs_reset(s->fs);
	g_assert_cmpuint(t_stats(s).nodes, ==, 1);
	g_assert_cmpuint(t_stats(s).handles, ==, 0);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
	g_assert_cmpuint(count_fds(), ==, before);
	g_assert_cmpint(fs_getattr(s->fs, f, false, 0, &a), ==, -ESTALE);
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "f3", &a), ==, 0);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	T_FS("/fs/lookup", NULL, lookup_same_file_is_same_node);
	T_FS("/fs/lookup-cached", NULL, lookup_cached_agrees);
	T_FS("/fs/odd-names", NULL, odd_names_are_refused);
	T_FS("/fs/make-remove", NULL, make_and_remove_all_kinds);
	T_FS("/fs/rename", NULL, rename_flags);
	T_FS("/fs/link", NULL, link_names_any_inode);
	T_FS("/fs/setattr", NULL, setattr_each_field);
	T_FS("/fs/xattr", NULL, xattr_on_every_kind);
	T_FS("/fs/statfs-access-sync", NULL, statfs_access_sync);
	T_FS("/fs/readonly", NULL, readonly_changes_nothing);
	T_FS("/fs/reset", NULL, reset_forgets_all);
	return g_test_run();
}
