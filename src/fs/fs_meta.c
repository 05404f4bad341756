// SPDX-License-Identifier: Apache-2.0
/*
 * Attributes and names: everything that is neither the bytes of a file nor a listing.
 *
 * What makes a name books the descriptor of its node first, so that at the limit nothing is made
 * that could not be answered.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "fs_int.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE (1 << 0)
#define RENAME_EXCHANGE (1 << 1)
#define RENAME_WHITEOUT (1 << 2)
#endif

void fs_hook_resized(struct fs *fs, const struct fs_node *node, uint64_t size)
{
	if (fs->hooks.resized)
		fs->hooks.resized(fs->hooks.ctx, node->id, size);
}

/* syscalls: fstat newfstatat */
static int stat_node(const struct fs_node *node, struct fs_attr *out)
{
	out->node = node->id;
	out->submount = false;
	return fstat(node->fd, &out->st) < 0 ? -errno : 0;
}

/* A node that the guest has forgotten lives on under its open handles. */
static struct fs_node *node_or_handle(struct fs *fs, uint64_t id, bool has_handle, uint64_t handle)
{
	struct fs_node *node = fs_node_get(fs, id);
	struct fs_handle *h;

	if (node || !has_handle)
		return node;
	h = fs_handle_get(fs, 0, handle, false);
	if (!h)
		h = fs_handle_get(fs, 0, handle, true);
	if (!h)
		return NULL;
	node = h->node;
	fs_node_ref(node);
	fs_handle_put(fs, h);
	return node;
}

int fs_getattr(struct fs *fs, uint64_t id, bool has_handle, uint64_t handle, struct fs_attr *out)
{
	struct fs_node *node = node_or_handle(fs, id, has_handle, handle);
	int err;

	if (!node)
		return -ESTALE;
	err = stat_node(node, out);
	fs_node_put(fs, node);
	return err;
}

int fs_getattr_cached(struct fs *fs, uint64_t id, struct fs_attr *out)
{
	struct fs_node *node = fs_node_get(fs, id);
	int err;

	if (!node)
		return -ESTALE;
	err = node->mount->remote ? -EAGAIN : stat_node(node, out);
	fs_node_put(fs, node);
	return err;
}

/* syscalls: ftruncate */
static int set_size_handle(struct fs *fs, const struct fs_node *node, const struct fs_setattr *set)
{
	struct fs_handle *h = fs_handle_get(fs, node->id, set->handle, false);
	int err = 0;

	if (!h)
		return -EBADF;
	if (ftruncate(h->fd, (off_t)set->size) < 0)
		err = -errno;
	fs_handle_put(fs, h);
	return err;
}

/* syscalls: ftruncate close */
static int set_size_node(struct fs *fs, const struct fs_node *node, const struct fs_setattr *set)
{
	int fd;
	int err = fs_fd_take(fs, FS_FD_HANDLE);

	if (err < 0)
		return err;
	fd = fs_node_reopen(fs, node, O_RDWR | (set->nowait ? O_NONBLOCK : 0));
	if (fd < 0) {
		fs_fd_give(fs);
		return fd;
	}
	if (ftruncate(fd, (off_t)set->size) < 0)
		err = -errno;
	fs_fd_close(fs, &fd);
	return err;
}

static int set_size(struct fs *fs, const struct fs_node *node, const struct fs_setattr *set)
{
	int err;

	if (S_ISDIR(node->type))
		return -EISDIR;
	if (!S_ISREG(node->type))
		return -EINVAL;
	if (set->size > INT64_MAX)
		return -EFBIG;
	fs_cred_fsetid(!(set->valid & FS_SET_KILL_SUIDGID));
	err = set->has_handle ? set_size_handle(fs, node, set) : set_size_node(fs, node, set);
	/* A handle that was opened for reading only: the file may still be written to. */
	if (set->has_handle && err == -EINVAL)
		err = set_size_node(fs, node, set);
	if (err == 0)
		fs_hook_resized(fs, node, set->size);
	return err;
}

/* syscalls: utimensat */
static int set_times(struct fs *fs, const struct fs_node *node, const struct fs_setattr *set)
{
	char buf[FS_PROC_NAME];
	struct timespec ts[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};

	if (set->valid & FS_SET_ATIME_NOW)
		ts[0].tv_nsec = UTIME_NOW;
	else if (set->valid & FS_SET_ATIME)
		ts[0] = set->atime;
	if (set->valid & FS_SET_MTIME_NOW)
		ts[1].tv_nsec = UTIME_NOW;
	else if (set->valid & FS_SET_MTIME)
		ts[1] = set->mtime;
	if (utimensat(fs->config.proc_self_fd, fs_proc_name(buf, node->fd), ts, 0) < 0)
		return -errno;
	return 0;
}

/* syscalls: fchmodat fchownat */
static int set_all(struct fs *fs, const struct fs_node *node, const struct fs_setattr *set)
{
	char buf[FS_PROC_NAME];
	int err = 0;

	if (set->valid & FS_SET_MODE) {
		fs_cred_fsetid(true);
		if (fchmodat(fs->config.proc_self_fd, fs_proc_name(buf, node->fd),
			     set->mode & 07777, 0) < 0)
			return -errno;
	}
	if (set->valid & (FS_SET_UID | FS_SET_GID)) {
		uid_t uid = set->valid & FS_SET_UID ? set->uid : (uid_t)-1;
		gid_t gid = set->valid & FS_SET_GID ? set->gid : (gid_t)-1;

		if (fchownat(node->fd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	if (set->valid & FS_SET_SIZE)
		err = set_size(fs, node, set);
	if (err == 0 &&
	    (set->valid & (FS_SET_ATIME | FS_SET_MTIME | FS_SET_ATIME_NOW | FS_SET_MTIME_NOW)))
		err = set_times(fs, node, set);
	return err;
}

int fs_setattr(struct fs *fs, uint64_t id, const struct fs_setattr *set, struct fs_attr *out)
{
	struct fs_node *node;
	int err = fs_writable(fs);

	if (err < 0)
		return err;
	node = node_or_handle(fs, id, set->has_handle, set->handle);
	if (!node)
		return -ESTALE;
	err = set_all(fs, node, set);
	if (err == 0)
		err = stat_node(node, out);
	fs_node_put(fs, node);
	return err;
}

/* syscalls: readlinkat */
ssize_t fs_readlink(struct fs *fs, uint64_t id, char *buf, size_t size)
{
	struct fs_node *node = fs_node_get(fs, id);
	ssize_t n;

	if (!node)
		return -ESTALE;
	n = S_ISLNK(node->type) ? readlinkat(node->fd, "", buf, size) : (errno = EINVAL, -1);
	if (n < 0)
		n = -errno;
	fs_node_put(fs, node);
	return n;
}

/* The common frame of everything that makes a name. */

struct make {
	const char *target; /* a symbolic link's; else NULL */
	mode_t mode;
	dev_t rdev;
};

/* syscalls: symlinkat mkdirat mknodat */
static int make_at(int dirfd, const char *name, const struct make *m)
{
	if (m->target)
		return symlinkat(m->target, dirfd, name);
	if (S_ISDIR(m->mode))
		return mkdirat(dirfd, name, m->mode & 07777);
	return mknodat(dirfd, name, m->mode, m->rdev);
}

static int make_as(struct fs *fs, const struct fs_cred *c, int dirfd, const char *name,
		   const struct make *m)
{
	struct fs_cred_scope scope;
	int err = fs_cred_enter(fs, c, &scope);

	if (err < 0)
		return err;
	do {
		err = make_at(dirfd, name, m) < 0 ? -errno : 0;
	} while (err == -EACCES && fs_cred_override(&scope));
	fs_cred_leave(&scope);
	return err;
}

static int make(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name,
		const struct make *m, struct fs_attr *out)
{
	struct fs_node *dir;
	int err = fs_name_check(name);

	if (err == 0)
		err = fs_writable(fs);
	if (err == 0)
		err = fs_node_get_dir(fs, parent, &dir);
	if (err < 0)
		return err;
	err = fs_fd_take(fs, FS_FD_NODE);
	if (err == 0) {
		err = make_as(fs, c, dir->fd, name, m);
		if (err < 0)
			fs_fd_give(fs);
		else
			err = fs_node_lookup_new(fs, dir, name, out);
	}
	fs_node_put(fs, dir);
	return err;
}

int fs_symlink(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name,
	       const char *target, struct fs_attr *out)
{
	const struct make m = {.target = target, .mode = S_IFLNK};

	return make(fs, c, parent, name, &m, out);
}

int fs_mknod(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name, mode_t mode,
	     dev_t rdev, struct fs_attr *out)
{
	const struct make m = {.mode = mode, .rdev = rdev};

	switch (mode & S_IFMT) {
	case 0:
	case S_IFREG:
	case S_IFIFO:
	case S_IFSOCK:
	case S_IFCHR:
	case S_IFBLK:
		return make(fs, c, parent, name, &m, out);
	default:
		return -EINVAL;
	}
}

int fs_mkdir(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name, mode_t mode,
	     struct fs_attr *out)
{
	const struct make m = {.mode = S_IFDIR | (mode & 07777)};

	return make(fs, c, parent, name, &m, out);
}

/* syscalls: unlinkat */
static int remove_at(struct fs *fs, uint64_t parent, const char *name, int flags)
{
	struct fs_node *dir;
	int err = fs_name_check(name);

	if (err == 0)
		err = fs_writable(fs);
	if (err == 0)
		err = fs_node_get_dir(fs, parent, &dir);
	if (err < 0)
		return err;
	if (unlinkat(dir->fd, name, flags) < 0)
		err = -errno;
	fs_node_put(fs, dir);
	return err;
}

int fs_unlink(struct fs *fs, uint64_t parent, const char *name)
{
	return remove_at(fs, parent, name, 0);
}

int fs_rmdir(struct fs *fs, uint64_t parent, const char *name)
{
	return remove_at(fs, parent, name, AT_REMOVEDIR);
}

/* syscalls: renameat2 renameat */
static int rename_between(const struct fs_node *from, const char *name, const struct fs_node *to,
			  const char *newname, unsigned int flags)
{
	if (flags == 0)
		return renameat(from->fd, name, to->fd, newname) < 0 ? -errno : 0;
	if (syscall(SYS_renameat2, from->fd, name, to->fd, newname, flags) < 0)
		return -errno;
	return 0;
}

int fs_rename(struct fs *fs, uint64_t parent, const char *name, uint64_t newparent,
	      const char *newname, unsigned int flags)
{
	struct fs_node *from;
	struct fs_node *to;
	int err = fs_name_check(name);

	if (err == 0)
		err = fs_name_check(newname);
	if (err == 0 &&
	    (flags & ~(unsigned int)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT)))
		err = -EINVAL;
	if (err == 0)
		err = fs_writable(fs);
	if (err == 0)
		err = fs_node_get_dir(fs, parent, &from);
	if (err < 0)
		return err;
	err = fs_node_get_dir(fs, newparent, &to);
	if (err == 0) {
		err = rename_between(from, name, to, newname, flags);
		if (err == 0)
			fs_node_renamed(fs, to, newname);
		if (err == 0 && flags & RENAME_EXCHANGE)
			fs_node_renamed(fs, from, name);
		fs_node_put(fs, to);
	}
	fs_node_put(fs, from);
	return err;
}

/* syscalls: linkat */
static int link_in(struct fs *fs, const struct fs_node *node, struct fs_node *dir, const char *name,
		   struct fs_attr *out)
{
	char buf[FS_PROC_NAME];
	int err = fs_fd_take(fs, FS_FD_NODE);
	bool booked = err == 0;

	/* At the limit too: the node is known, so its new name needs no descriptor. */
	if (linkat(fs->config.proc_self_fd, fs_proc_name(buf, node->fd), dir->fd, name,
		   AT_SYMLINK_FOLLOW) < 0) {
		err = -errno;
		if (booked)
			fs_fd_give(fs);
		return err;
	}
	if (booked)
		return fs_node_lookup_new(fs, dir, name, out);
	return fs_node_lookup(fs, dir, name, FS_LOOKUP_ANY, out, NULL);
}

int fs_link(struct fs *fs, uint64_t id, uint64_t newparent, const char *newname,
	    struct fs_attr *out)
{
	struct fs_node *node;
	struct fs_node *dir;
	int err = fs_name_check(newname);

	if (err == 0)
		err = fs_writable(fs);
	if (err < 0)
		return err;
	node = fs_node_get(fs, id);
	if (!node)
		return -ESTALE;
	err = fs_node_get_dir(fs, newparent, &dir);
	if (err == 0) {
		err = link_in(fs, node, dir, newname, out);
		fs_node_put(fs, dir);
	}
	fs_node_put(fs, node);
	return err;
}

/* syscalls: fstatfs */
int fs_statfs(struct fs *fs, uint64_t id, struct statvfs *out)
{
	struct fs_node *node = fs_node_get(fs, id);
	int err;

	if (!node)
		return -ESTALE;
	err = fstatvfs(node->fd, out) < 0 ? -errno : 0;
	fs_node_put(fs, node);
	return err;
}

/* By the mode bits, as access(2) has it; host ACLs are not asked. */
static int access_by_mode(const struct fs_cred *c, const struct stat *st, unsigned int want)
{
	unsigned int have;

	if (c->uid == 0) {
		if ((want & X_OK) && !S_ISDIR(st->st_mode) && !(st->st_mode & 0111))
			return -EACCES;
		return 0;
	}
	if (c->uid == st->st_uid)
		have = st->st_mode >> 6;
	else if (c->gid == st->st_gid || (c->has_sup_group && c->sup_gid == st->st_gid))
		have = st->st_mode >> 3;
	else
		have = st->st_mode;
	return (want & ~have & 7) ? -EACCES : 0;
}

int fs_access(struct fs *fs, const struct fs_cred *c, uint64_t id, int mask)
{
	struct fs_attr attr;
	int err = fs_getattr(fs, id, false, 0, &attr);

	if (err < 0)
		return err;
	if (mask & ~(R_OK | W_OK | X_OK))
		return -EINVAL;
	if ((mask & W_OK) && fs->config.readonly)
		return -EROFS;
	return access_by_mode(c, &attr.st, (unsigned int)mask);
}

/* syscalls: syncfs close */
int fs_syncfs(struct fs *fs, uint64_t id)
{
	struct fs_node *node = fs_node_get(fs, id);
	int fd;
	int err;

	if (!node)
		return -ESTALE;
	err = fs_fd_take(fs, FS_FD_HANDLE);
	if (err == 0) {
		fd = fs_node_reopen(fs, node, O_RDONLY);
		if (fd < 0) {
			fs_fd_give(fs);
			err = fd;
		} else {
			if (syncfs(fd) < 0)
				err = -errno;
			fs_fd_close(fs, &fd);
		}
	}
	fs_node_put(fs, node);
	return err;
}
