// SPDX-License-Identifier: Apache-2.0
/*
 * Files: opening them, and the way of their bytes.
 *
 * O_APPEND never reaches the host. The guest's kernel has turned an append into an offset by the
 * time its write arrives; Linux ignores the offset of a pwrite() to a descriptor with O_APPEND and
 * appends, so a write replayed, split or sent out of order would land elsewhere than the guest's
 * page cache believes.
 *
 * Reads and writes go straight between the file and the guest's memory. FS_IO_NOWAIT gives the
 * whole answer or -EAGAIN, never a part: the caller does it all again where it may block, and
 * nobody has to tell a short read at the end of a file from one that would have waited. Where a
 * file system refuses RWF_NOWAIT, that is learned per mount, separately for reading and writing;
 * one that lives in memory is then not asked to.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/uio.h>

#include "fs_int.h"
#include "util_overflow.h"

/* What a guest may ask for; the rest is ours to decide. */
static int open_flags(const struct fs *fs, int flags)
{
	int keep = O_ACCMODE | O_TRUNC | O_SYNC | O_DSYNC | O_NOATIME | O_LARGEFILE;

	if (fs->config.allow_direct_io)
		keep |= O_DIRECT;
	flags &= keep;
	/* A guest that writes whole pages back has to read them first. */
	if (fs->config.writeback && (flags & O_ACCMODE) == O_WRONLY)
		flags = (flags & ~O_ACCMODE) | O_RDWR;
	return flags | O_CLOEXEC;
}

static enum fs_handle_kind kind_of(int flags)
{
	if (flags & O_DIRECT)
		return FS_HANDLE_DIRECT;
	return flags & (O_DSYNC | O_SYNC) ? FS_HANDLE_SYNC : FS_HANDLE_FILE;
}

static int open_check(const struct fs *fs, int flags)
{
	if ((flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	if (fs->config.readonly && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC)))
		return -EROFS;
	return 0;
}

static int type_check(const struct fs_node *node)
{
	if (S_ISREG(node->type))
		return 0;
	if (S_ISDIR(node->type))
		return -EISDIR;
	return S_ISLNK(node->type) ? -ELOOP : -ENXIO;
}

/* Opens @node, of which a reference is taken over if that succeeds. A descriptor is booked and
 * stays so. */
static int open_node(struct fs *fs, struct fs_node *node, int flags, bool kill_suidgid)
{
	int fd = type_check(node);

	if (fd < 0)
		return fd;
	flags = open_flags(fs, flags) | (flags & O_NONBLOCK);
	if (flags & O_TRUNC)
		fs_cred_fsetid(!kill_suidgid);
	fd = fs_node_reopen(fs, node, flags);
	if (fd >= 0 && (flags & O_TRUNC))
		fs_hook_resized(fs, node, 0);
	return fd;
}

int fs_open(struct fs *fs, uint64_t id, int flags, bool kill_suidgid, uint64_t *handle)
{
	struct fs_node *node;
	int fd;
	int err = open_check(fs, flags);

	if (err < 0)
		return err;
	node = fs_node_get(fs, id);
	if (!node)
		return -ESTALE;
	err = fs_fd_take(fs, FS_FD_HANDLE);
	if (err == 0) {
		fd = open_node(fs, node, flags, kill_suidgid);
		if (fd >= 0)
			return fs_handle_new(fs, node, fd, kind_of(flags), handle);
		fs_fd_give(fs);
		err = fd;
	}
	fs_node_put(fs, node);
	return err;
}

/* syscalls: openat */
static int create_as(struct fs *fs, const struct fs_cred *c, int dirfd, const char *name, int flags,
		     mode_t mode)
{
	struct fs_cred_scope scope;
	int fd = fs_cred_enter(fs, c, &scope);

	if (fd < 0)
		return fd;
	do {
		fd = openat(dirfd, name, flags, mode & 07777);
		if (fd < 0)
			fd = -errno;
	} while (fd == -EACCES && fs_cred_override(&scope));
	fs_cred_leave(&scope);
	return fd;
}

/* The node and the handle of a file just made; @fd and two bookings are taken over. */
static int created(struct fs *fs, struct fs_node *dir, int fd, const char *name, int flags,
		   struct fs_attr *out, uint64_t *handle)
{
	struct fs_node *node;
	int err = fs_node_of_fd(fs, dir, fd, name, out, &node);

	if (err < 0) {
		fs_fd_close(fs, &fd);
		return err;
	}
	err = fs_handle_new(fs, node, fd, kind_of(flags), handle);
	if (err < 0)
		fs_forget(fs, out->node, 1);
	return err;
}

/* Somebody was faster: open what is there, if it is a file. The booking of the handle is taken
 * over. */
static int create_existing(struct fs *fs, struct fs_node *dir, const char *name, int flags,
			   bool kill_suidgid, struct fs_attr *out, uint64_t *handle)
{
	struct fs_node *node;
	int fd;
	int err = fs_node_lookup(fs, dir, name, FS_LOOKUP_ANY, out, &node);

	if (err < 0) {
		fs_fd_give(fs);
		return err;
	}
	fd = open_node(fs, node, flags, kill_suidgid);
	if (fd < 0) {
		err = fd;
		fs_fd_give(fs);
		fs_node_put(fs, node);
	} else {
		if (flags & O_TRUNC)
			fstat(fd, &out->st);
		err = fs_handle_new(fs, node, fd, kind_of(flags), handle);
	}
	if (err < 0)
		fs_forget(fs, out->node, 1);
	return err;
}

/* Books what a new file needs: a handle's descriptor and a node's. */
static int take_both(struct fs *fs)
{
	int err = fs_fd_take(fs, FS_FD_HANDLE);

	if (err < 0)
		return err;
	err = fs_fd_take(fs, FS_FD_NODE);
	if (err < 0)
		fs_fd_give(fs);
	return err;
}

static int create_in(struct fs *fs, const struct fs_cred *c, struct fs_node *dir, const char *name,
		     mode_t mode, int flags, bool kill_suidgid, struct fs_attr *out,
		     uint64_t *handle)
{
	int fd;
	int err = take_both(fs);

	if (err < 0)
		return err;
	/* O_EXCL always: O_CREAT alone would open a FIFO or a device that stands there. */
	fd = create_as(fs, c, dir->fd, name, open_flags(fs, flags) | O_CREAT | O_EXCL | O_NOFOLLOW,
		       mode);
	if (fd >= 0)
		return created(fs, dir, fd, name, flags, out, handle);
	fs_fd_give(fs);
	if (fd == -EEXIST && !(flags & O_EXCL))
		return create_existing(fs, dir, name, flags, kill_suidgid, out, handle);
	fs_fd_give(fs);
	return fd;
}

int fs_create(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name,
	      mode_t mode, int flags, bool kill_suidgid, struct fs_attr *out, uint64_t *handle)
{
	struct fs_node *dir;
	int err = fs_name_check(name);

	if (err == 0)
		err = fs_writable(fs);
	if (err == 0)
		err = open_check(fs, flags);
	if (err == 0)
		err = fs_node_get_dir(fs, parent, &dir);
	if (err < 0)
		return err;
	err = create_in(fs, c, dir, name, mode, flags, kill_suidgid, out, handle);
	fs_node_put(fs, dir);
	return err;
}

int fs_tmpfile(struct fs *fs, const struct fs_cred *c, uint64_t parent, mode_t mode, int flags,
	       struct fs_attr *out, uint64_t *handle)
{
	struct fs_node *dir;
	int fd;
	int err = fs_writable(fs);

	if (err == 0)
		err = open_check(fs, flags);
	if (err == 0)
		err = fs_node_get_dir(fs, parent, &dir);
	if (err < 0)
		return err;
	err = take_both(fs);
	if (err < 0)
		goto out;
	/* O_EXCL here means: may never be given a name. That is for the guest to say. */
	fd = create_as(fs, c, dir->fd, ".",
		       (open_flags(fs, flags) & ~O_TRUNC) | O_TMPFILE | (flags & O_EXCL), mode);
	if (fd >= 0) {
		err = created(fs, dir, fd, NULL, flags, out, handle);
	} else {
		fs_fd_give(fs);
		fs_fd_give(fs);
		err = fd;
	}
out:
	fs_node_put(fs, dir);
	return err;
}

int fs_release(struct fs *fs, uint64_t handle)
{
	return fs_handle_close(fs, handle, false);
}

/* syscalls: fcntl close */
int fs_flush(struct fs *fs, uint64_t node, uint64_t handle)
{
	struct fs_handle *h = fs_handle_get(fs, node, handle, false);
	int err = 0;
	int fd;

	if (!h)
		return -EBADF;
	/* A close tells of write errors only where a server may have them still. */
	if (h->node->mount->remote) {
		fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0 || close(fd) < 0)
			err = -errno;
	}
	fs_handle_put(fs, h);
	return err;
}

/* syscalls: fsync fdatasync */
int fs_handle_sync(struct fs *fs, uint64_t node, uint64_t handle, bool dir, bool datasync)
{
	struct fs_handle *h = fs_handle_get(fs, node, handle, dir);
	int err = 0;

	if (!h)
		return -EBADF;
	if ((datasync ? fdatasync(h->fd) : fsync(h->fd)) < 0)
		err = -errno;
	fs_handle_put(fs, h);
	return err;
}

int fs_fsync(struct fs *fs, uint64_t node, uint64_t handle, bool datasync)
{
	return fs_handle_sync(fs, node, handle, false, datasync);
}

/* A position in a guest buffer. */
struct cursor {
	const struct util_gvec *buf;
	unsigned int seg;
	size_t off; /* in that segment */
	size_t done;
};

static void cursor_advance(struct cursor *c, size_t n)
{
	c->done += n;
	while (c->seg < c->buf->n) {
		size_t left = c->buf->iov[c->seg].iov_len - c->off;

		if (n < left) {
			c->off += n;
			return;
		}
		n -= left;
		c->off = 0;
		c->seg++;
	}
}

/* One system call from where the cursor stands: up to IOV_MAX segments, or the rest of one that
 * was done in part. */
/* syscalls: preadv2 pwritev2 preadv pwritev */
static ssize_t io_step(int fd, const struct cursor *c, bool write, off_t offset, int flags)
{
	const struct iovec *iov = c->buf->iov + c->seg;
	int count = (int)MIN(c->buf->n - c->seg, (unsigned int)IOV_MAX);
	struct iovec rest;

	if (c->off) {
		rest.iov_base = (char *)iov->iov_base + c->off;
		rest.iov_len = iov->iov_len - c->off;
		iov = &rest;
		count = 1;
	}
	return write ? pwritev2(fd, iov, count, offset, flags)
		     : preadv2(fd, iov, count, offset, flags);
}

/* RWF flags for this mount; -EAGAIN when it is known that it cannot say whether it would wait. */
static int nowait_flag(const struct fs_mount *m, bool write)
{
	if (!__atomic_load_n(write ? &m->no_nowait_write : &m->no_nowait_read, __ATOMIC_RELAXED))
		return RWF_NOWAIT;
	return m->in_memory ? 0 : -EAGAIN;
}

static void nowait_refused(struct fs_mount *m, bool write)
{
	__atomic_store_n(write ? &m->no_nowait_write : &m->no_nowait_read, true, __ATOMIC_RELAXED);
}

static ssize_t io_loop(struct fs_handle *h, const struct util_gvec *buf, uint64_t offset,
		       bool write, bool nowait)
{
	struct fs_mount *mount = h->node->mount;
	struct cursor c = {.buf = buf};
	int flags = 0;
	ssize_t n;

	while (c.done < buf->len) {
		if (nowait) {
			flags = nowait_flag(mount, write);
			if (flags < 0)
				return flags;
		}
		n = io_step(h->fd, &c, write, (off_t)(offset + c.done), flags);
		if (n > 0) {
			cursor_advance(&c, (size_t)n);
			continue;
		}
		if (n == 0)
			break;
		if (errno == EINTR)
			continue;
		if (errno == EOPNOTSUPP && flags == RWF_NOWAIT) {
			nowait_refused(mount, write);
			continue;
		}
		/* What was written stays written, and the next write meets the error. A read that
		 * is cut short would look like the end of the file. */
		if (write && c.done && errno != EAGAIN)
			break;
		return -errno;
	}
	return (ssize_t)c.done;
}

static ssize_t io(struct fs *fs, uint64_t node, uint64_t handle, const struct util_gvec *buf,
		  uint64_t offset, uint32_t flags, bool write)
{
	struct fs_handle *h;
	uint64_t end;
	ssize_t n;

	if (!util_add_u64(offset, buf->len, &end) || end > INT64_MAX)
		return write ? -EFBIG : -EINVAL;
	if (buf->window)
		return -EFAULT; /* not for us: the caller resolves the window */
	h = fs_handle_get(fs, node, handle, false);
	if (!h)
		return -EBADF;
	n = io_loop(h, buf, offset, write, flags & FS_IO_NOWAIT);
	fs_handle_put(fs, h);
	return n;
}

ssize_t fs_read(struct fs *fs, uint64_t node, uint64_t handle, const struct util_gvec *buf,
		uint64_t offset, uint32_t flags)
{
	return io(fs, node, handle, buf, offset, flags, false);
}

ssize_t fs_write(struct fs *fs, uint64_t node, uint64_t handle, const struct util_gvec *buf,
		 uint64_t offset, uint32_t flags)
{
	if (fs->config.readonly)
		return -EROFS;
	fs_cred_fsetid(!(flags & FS_IO_KILL_SUIDGID));
	return io(fs, node, handle, buf, offset, flags, true);
}

static bool buffered_locally(const struct fs_handle *h)
{
	return h->kind == FS_HANDLE_FILE && !h->node->mount->remote;
}

bool fs_writes_exclude(struct fs *fs, uint64_t node, uint64_t handle)
{
	struct fs_handle *h = fs_handle_get(fs, node, handle, false);
	bool exclude = h && buffered_locally(h);

	if (h)
		fs_handle_put(fs, h);
	return exclude;
}

bool fs_write_is_blind(struct fs *fs, uint64_t node, uint64_t handle)
{
	struct fs_handle *h = fs_handle_get(fs, node, handle, false);
	bool blind = h && buffered_locally(h) && nowait_flag(h->node->mount, true) < 0;

	if (h)
		fs_handle_put(fs, h);
	return blind;
}

bool fs_nowait_useful(struct fs *fs, uint64_t node, bool write)
{
	struct fs_node *n = fs_node_get(fs, node);
	bool useful = n && nowait_flag(n->mount, write) >= 0;

	if (n)
		fs_node_put(fs, n);
	return useful;
}

/* syscalls: fallocate fstat newfstatat */
int fs_fallocate(struct fs *fs, uint64_t node, uint64_t handle, int mode, uint64_t offset,
		 uint64_t len)
{
	struct fs_handle *h;
	struct stat st;
	uint64_t end;
	int err = 0;

	if (fs->config.readonly)
		return -EROFS;
	if (!util_add_u64(offset, len, &end) || end > INT64_MAX)
		return -EFBIG;
	h = fs_handle_get(fs, node, handle, false);
	if (!h)
		return -EBADF;
	/* Who asks is not known here, so setuid and setgid bits go: the safe side. */
	fs_cred_fsetid(false);
	if (fallocate(h->fd, mode, (off_t)offset, (off_t)len) < 0)
		err = -errno;
	else if (fs->hooks.resized && !(mode & FALLOC_FL_KEEP_SIZE) && fstat(h->fd, &st) == 0)
		fs_hook_resized(fs, h->node, (uint64_t)st.st_size);
	fs_handle_put(fs, h);
	return err;
}

/* syscalls: lseek */
off_t fs_lseek(struct fs *fs, uint64_t node, uint64_t handle, uint64_t offset, int whence)
{
	struct fs_handle *h;
	off_t pos;

	/* Only these two ask the file; the others are the guest's own arithmetic. */
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return -EINVAL;
	if (offset > INT64_MAX)
		return -ENXIO;
	h = fs_handle_get(fs, node, handle, false);
	if (!h)
		return -EBADF;
	pos = lseek(h->fd, (off_t)offset, whence);
	if (pos < 0)
		pos = -errno;
	fs_handle_put(fs, h);
	return pos;
}

/* syscalls: copy_file_range */
ssize_t fs_copy_file_range(struct fs *fs, uint64_t node_in, uint64_t handle_in, uint64_t off_in,
			   uint64_t node_out, uint64_t handle_out, uint64_t off_out, size_t len,
			   unsigned int flags)
{
	struct fs_handle *in;
	struct fs_handle *out;
	off_t from = (off_t)off_in;
	off_t to = (off_t)off_out;
	ssize_t n = -EBADF;

	if (fs->config.readonly)
		return -EROFS;
	if (off_in > INT64_MAX || off_out > INT64_MAX)
		return -EINVAL;
	in = fs_handle_get(fs, node_in, handle_in, false);
	out = fs_handle_get(fs, node_out, handle_out, false);
	if (in && out) {
		fs_cred_fsetid(false); /* as for fallocate */
		n = copy_file_range(in->fd, &from, out->fd, &to, len, flags);
		if (n < 0)
			n = -errno;
	}
	if (out)
		fs_handle_put(fs, out);
	if (in)
		fs_handle_put(fs, in);
	return n;
}

int fs_open_for_map(struct fs *fs, uint64_t id, bool *writable)
{
	struct fs_node *node = fs_node_get(fs, id);
	int fd;

	if (!node)
		return -ESTALE;
	fd = S_ISDIR(node->type) ? -EISDIR : S_ISREG(node->type) ? 0 : -EINVAL;
	if (fd == 0) {
		*writable = !fs->config.readonly;
		fd = *writable ? fs_node_reopen(fs, node, O_RDWR) : -EROFS;
		if (fd == -EROFS || fd == -EACCES || fd == -EPERM || fd == -ETXTBSY) {
			*writable = false;
			fd = fs_node_reopen(fs, node, O_RDONLY);
		}
		if (fd >= 0)
			__atomic_store_n(&node->mapped, true, __ATOMIC_RELAXED);
	}
	fs_node_put(fs, node);
	return fd;
}
