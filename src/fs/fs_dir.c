// SPDX-License-Identifier: Apache-2.0
/*
 * Directories. A listing is a stream of getdents64 records; the cookie of a name is the d_off of
 * the file system, which tells where the next one begins. What one getdents64 gave and the guest
 * did not yet take stays in the handle's buffer, so a guest that goes on where it stopped costs
 * neither a seek nor a second read; any other cookie seeks. Listings of one handle take turns.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "fs_int.h"

#define FS_DIR_BUF 32768

struct fs_dir *fs_dir_new(void)
{
	struct fs_dir *dir = g_new0(struct fs_dir, 1);

	util_mutex_init(&dir->lock);
	return dir;
}

void fs_dir_free(struct fs_dir *dir)
{
	util_mutex_destroy(&dir->lock);
	g_free(dir->buf);
	g_free(dir);
}

/* syscalls: openat */
int fs_opendir(struct fs *fs, uint64_t id, uint64_t *handle)
{
	struct fs_node *node;
	int fd;
	int err = fs_node_get_dir(fs, id, &node);

	if (err < 0)
		return err;
	err = fs_fd_take(fs, FS_FD_HANDLE);
	if (err == 0) {
		fd = fs_node_reopen(fs, node, O_RDONLY | O_DIRECTORY);
		if (fd >= 0)
			return fs_handle_new(fs, node, fd, FS_HANDLE_DIR, handle);
		fs_fd_give(fs);
		err = fd;
	}
	fs_node_put(fs, node);
	return err;
}

int fs_releasedir(struct fs *fs, uint64_t handle)
{
	return fs_handle_close(fs, handle, true);
}

int fs_fsyncdir(struct fs *fs, uint64_t node, uint64_t handle, bool datasync)
{
	return fs_handle_sync(fs, node, handle, true, datasync);
}

/* syscalls: lseek */
static int seek_locked(struct fs_handle *h, uint64_t cookie) UTIL_REQUIRES(h->dir->lock)
{
	struct fs_dir *d = h->dir;

	/* 0 is a start over, also where we stand at 0: it must show what has changed. */
	if (cookie != 0 && cookie == d->cookie)
		return 0;
	if (cookie > INT64_MAX)
		return -EINVAL;
	if (lseek(h->fd, (off_t)cookie, SEEK_SET) < 0)
		return -errno;
	d->pos = 0;
	d->len = 0;
	d->cookie = cookie;
	return 0;
}

/* The next record, not yet consumed; NULL at the end of the directory. */
/* syscalls: getdents64 */
static int peek_locked(struct fs_handle *h, struct dirent64 **out) UTIL_REQUIRES(h->dir->lock)
{
	struct fs_dir *d = h->dir;
	ssize_t n;

	*out = NULL;
	if (d->pos == d->len) {
		if (!d->buf)
			d->buf = g_try_malloc(FS_DIR_BUF);
		if (!d->buf)
			return -ENOMEM;
		n = getdents64(h->fd, d->buf, FS_DIR_BUF);
		if (n < 0)
			return -errno;
		d->pos = 0;
		d->len = (uint32_t)n;
		if (n == 0) {
			g_clear_pointer(&d->buf, g_free);
			return 0;
		}
	}
	*out = (struct dirent64 *)(void *)(d->buf + d->pos);
	return 0;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* A name that cannot be looked up, for want of descriptors, because it has just gone, or because
 * another machine would be asked that does not serve this directory, is still listed: the guest
 * asks again if it wants to know. */
static void fill_attr(struct fs *fs, struct fs_node *dir, struct fs_dirent *e)
{
	if (is_dots(e->name))
		return;
	e->has_attr = fs_node_lookup(fs, dir, e->name,
				     dir->mount->remote ? FS_LOOKUP_ANY : FS_LOOKUP_LOCAL, &e->attr,
				     NULL) == 0;
	if (e->has_attr)
		e->type = IFTODT(e->attr.st.st_mode);
}

static int list_locked(struct fs *fs, struct fs_handle *h, bool plus,
		       bool (*emit)(void *ctx, const struct fs_dirent *d), void *ctx)
	UTIL_REQUIRES(h->dir->lock)
{
	struct fs_dir *d = h->dir;
	struct dirent64 *rec;
	bool any = false;
	int err;

	for (;;) {
		err = peek_locked(h, &rec);
		if (err < 0)
			return any ? 0 : err;
		if (!rec)
			return 0;

		struct fs_dirent e = {
			.name = rec->d_name,
			.namelen = strlen(rec->d_name),
			.ino = rec->d_ino,
			.next = (uint64_t)rec->d_off,
			.type = rec->d_type,
		};
		/* What lies above the share is not the guest's to know. */
		if (h->node == fs->root && is_dots(e.name))
			e.ino = h->node->ino;
		if (plus)
			fill_attr(fs, h->node, &e);
		if (!emit(ctx, &e)) {
			if (e.has_attr)
				fs_forget(fs, e.attr.node, 1);
			return 0;
		}
		any = true;
		d->pos += rec->d_reclen;
		d->cookie = e.next;
	}
}

int fs_readdir(struct fs *fs, uint64_t node, uint64_t handle, uint64_t cookie, bool plus,
	       bool (*emit)(void *ctx, const struct fs_dirent *d), void *ctx)
{
	struct fs_handle *h = fs_handle_get(fs, node, handle, true);
	int err;

	if (!h)
		return -EBADF;
	util_mutex_lock(&h->dir->lock);
	err = seek_locked(h, cookie);
	if (err == 0)
		err = list_locked(fs, h, plus, emit, ctx);
	util_mutex_unlock(&h->dir->lock);
	fs_handle_put(fs, h);
	return err;
}
