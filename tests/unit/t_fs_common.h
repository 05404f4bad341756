/* SPDX-License-Identifier: Apache-2.0 */
/* A share in a directory of its own, for the tests of src/fs. */
#ifndef DAXMAP_T_FS_COMMON_H
#define DAXMAP_T_FS_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>
#include <glib/gstdio.h>

#include "count_tasks.h"
#include "fs.h"

struct share {
	char *base; /* absolute; holds "root" (shared) and "outside" */
	char *root;
	struct fs *fs;
	struct fs_config config;
	struct fs_hooks hooks;
	guint fds; /* open in this process before */
};

static struct fs_cred me; /* whoever runs the test; set by t_share_start() */

static inline char *t_path(const struct share *s, const char *name)
{
	return g_build_filename(s->root, name, NULL);
}

static inline void t_write(const struct share *s, const char *name, const char *text)
{
	g_autofree char *p = t_path(s, name);

	size_t len = strlen(text);
	int fd = open(p, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);

	g_assert_cmpint(fd, >=, 0);
	g_assert_cmpint(write(fd, text, len), ==, (ssize_t)len);
	close(fd);
}

static inline void t_share_start(struct share *s)
{
	g_autoptr(GError) error = NULL;

	me = (struct fs_cred){.uid = geteuid(), .gid = getegid()};
	s->fds = count_fds();
	s->config.root_fd = open(s->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	s->config.proc_self_fd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	s->fs = fs_new(&s->config, &s->hooks, &error);
	g_assert_no_error(error);
	g_assert_nonnull(s->fs);
}

/* Stops serving: every descriptor must be back. */
static inline void t_share_stop(struct share *s)
{
	fs_free(s->fs);
	s->fs = NULL;
	g_assert_cmpuint(count_fds(), ==, s->fds);
}

static inline void t_share_setup(struct share *s, gconstpointer data)
{
	memset(s, 0, sizeof(*s));
	umask(0);
	s->base = g_dir_make_tmp("daxmap-fs-XXXXXX", NULL);
	g_assert_nonnull(s->base);
	g_chmod(s->base, 0755);
	s->root = g_build_filename(s->base, "root", NULL);
	g_assert_cmpint(g_mkdir(s->root, 0755), ==, 0);
	s->config.xattr = true;
	if (data)
		s->config = *(const struct fs_config *)data;
	t_share_start(s);
}

static inline void t_remove_tree(const char *path)
{
	char *argv[] = {(char *)(guintptr) "rm", (char *)(guintptr) "-rf", (char *)(guintptr) "--",
			(char *)(guintptr)path, NULL};

	g_spawn_sync("/", argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
}

static inline void t_share_teardown(struct share *s, gconstpointer data)
{
	if (s->fs)
		t_share_stop(s);
	t_remove_tree(s->base);
	g_free(s->root);
	g_free(s->base);
}

static inline uint64_t t_lookup(struct share *s, uint64_t parent, const char *name)
{
	struct fs_attr a;

	g_assert_cmpint(fs_lookup(s->fs, parent, name, &a), ==, 0);
	return a.node;
}

static inline uint64_t t_create(struct share *s, const char *name, uint64_t *handle)
{
	struct fs_attr a;

	g_assert_cmpint(fs_create(s->fs, &me, FS_ROOT_ID, name, 0644, O_RDWR, false, &a, handle),
			==, 0);
	return a.node;
}

static inline struct util_gvec t_gvec(struct iovec *iov, void *buf, size_t len)
{
	*iov = (struct iovec){buf, len};
	return (struct util_gvec){.iov = iov, .n = 1, .len = len};
}

static inline ssize_t t_pread(struct share *s, uint64_t node, uint64_t h, void *buf, size_t len,
			      uint64_t off)
{
	struct iovec iov;
	struct util_gvec v = t_gvec(&iov, buf, len);

	return fs_read(s->fs, node, h, &v, off, 0);
}

static inline ssize_t t_pwrite(struct share *s, uint64_t node, uint64_t h, const void *buf,
			       size_t len, uint64_t off, uint32_t flags)
{
	struct iovec iov;
	struct util_gvec v = t_gvec(&iov, (void *)(guintptr)buf, len);

	return fs_write(s->fs, node, h, &v, off, flags);
}

static inline struct fs_stats t_stats(struct share *s)
{
	struct fs_stats st;

	fs_get_stats(s->fs, &st);
	return st;
}

#define T_FS(path, config, fn)                                                                     \
	g_test_add(path, struct share, config, t_share_setup, fn, t_share_teardown)

#endif
