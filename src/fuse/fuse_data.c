// SPDX-License-Identifier: Apache-2.0
/* Files: open, read, write and the rest that takes a handle. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>

#include "fuse_internal.h"
#include "fuse_window.h"
#include "util_overflow.h"

/* --- opening --- */

/*
 * As virtiofsd: 'never' and 'metadata' keep file data out of the guest's cache (DIRECT_IO),
 * 'always' keeps it over an open. A DAX inode ignores all of it.
 * NOFLUSH: a handle that cannot write has nothing that close could report, and that saves a
 * request; not with POSIX locks, which a flush drops.
 */
uint32_t fuse_open_flags(struct fuse_session *s, int flags, bool dir)
{
	uint32_t out = 0;

	switch (s->cfg.cache) {
	case FS_CACHE_NEVER:
		out = dir ? 0 : FOPEN_DIRECT_IO;
		break;
	case FS_CACHE_METADATA:
		out = dir ? FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE : FOPEN_DIRECT_IO;
		break;
	case FS_CACHE_AUTO:
		break;
	case FS_CACHE_ALWAYS:
		out = dir ? FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE : FOPEN_KEEP_CACHE;
		break;
	}
	if (dir)
		return out;
	/* The host's own inode lock orders what the guest then sends at once. */
	if (out & FOPEN_DIRECT_IO)
		out |= FOPEN_PARALLEL_DIRECT_WRITES;
	if ((flags & O_ACCMODE) == O_RDONLY && !(s->flags & FUSE_POSIX_LOCKS))
		out |= FOPEN_NOFLUSH;
	return out;
}

/* A guest's open never fails for want of waiting: O_NONBLOCK is ours. */
static int host_flags(const struct fuse_ctx *c, uint32_t flags)
{
	return ((int)flags & ~O_NONBLOCK) | (c->local ? O_NONBLOCK : 0);
}

static bool open_kills(const struct fuse_session *s, uint32_t open_flags)
{
	return s->flags & FUSE_HANDLE_KILLPRIV_V2 && open_flags & FUSE_OPEN_KILL_SUIDGID;
}

ssize_t fuse_op_open(struct fuse_ctx *c)
{
	const struct fuse_open_in *in = fuse_args(c, struct fuse_open_in);
	struct fuse_open_out out = {0};
	void *truncating = in->flags & O_TRUNC ? fuse_dax_truncating(c, c->st->h.nodeid) : NULL;
	int err = fs_open(c->s->cfg.fs, c->st->h.nodeid, host_flags(c, in->flags),
			  open_kills(c->s, in->open_flags), &out.fh);

	fuse_dax_truncated(c, truncating);
	if (err == -EAGAIN && c->local)
		return FUSE_AGAIN;
	if (err)
		return err;
	fuse_dax_hook(c->s, opened, c->st->h.nodeid, (int)in->flags);
	out.open_flags = fuse_open_flags(c->s, (int)in->flags, false);
	return fuse_reply(c, &out, sizeof(out));
}

static ssize_t reply_create(struct fuse_ctx *c, const struct fs_attr *a, uint64_t handle)
{
	struct fuse_open_out open = {.fh = handle};
	int flags = (int)fuse_args(c, struct fuse_create_in)->flags;
	struct fuse_entry_out entry;
	ssize_t n, m;

	fuse_dax_hook(c->s, opened, a->node, flags);
	fuse_fill_entry(c->s, a, &entry);
	open.open_flags = fuse_open_flags(c->s, flags, false);
	n = fuse_reply(c, &entry, fuse_entry_size(c->s));
	m = fuse_reply(c, &open, sizeof(open));
	return n < 0 ? n : m < 0 ? m : n + m;
}

ssize_t fuse_op_create(struct fuse_ctx *c)
{
	const struct fuse_create_in *in = fuse_args(c, struct fuse_create_in);
	char name[NAME_MAX + 1];
	struct fs_cred cred;
	struct fs_attr a;
	uint64_t handle = 0;
	int err = fuse_read_name(c, name);

	if (!err)
		err = fuse_cred(c, in->umask, &cred);
	if (!err)
		err = fs_create(c->s->cfg.fs, &cred, c->st->h.nodeid, name, in->mode,
				host_flags(c, in->flags), open_kills(c->s, in->open_flags), &a,
				&handle);
	if (err == -EAGAIN && c->local)
		return FUSE_AGAIN;
	return err ? err : reply_create(c, &a, handle);
}

ssize_t fuse_op_tmpfile(struct fuse_ctx *c)
{
	const struct fuse_create_in *in = fuse_args(c, struct fuse_create_in);
	struct fs_cred cred;
	struct fs_attr a;
	uint64_t handle = 0;
	int err = fuse_cred(c, in->umask, &cred);

	if (!err)
		err = fs_tmpfile(c->s->cfg.fs, &cred, c->st->h.nodeid, in->mode, (int)in->flags, &a,
				 &handle);
	return err ? err : reply_create(c, &a, handle);
}

/* --- reading and writing --- */

struct io {
	struct fuse_ctx *c;
	bool store; /* into the guest's buffer: a READ */
	const struct util_gvec *buf;
	size_t skip; /* where the data starts in @buf */
	uint64_t handle;
	uint64_t offset;
	size_t size;
	uint32_t flags;
};

static ssize_t io_call(const struct io *io, const struct util_gvec *v)
{
	struct fs *fs = io->c->s->cfg.fs;
	uint64_t node = io->c->st->h.nodeid;

	return io->store ? fs_read(fs, node, io->handle, v, io->offset, io->flags)
			 : fs_write(fs, node, io->handle, v, io->offset, io->flags);
}

static ssize_t io_window(const struct io *io, const struct util_gvec *v)
{
	struct fuse_table *t = fuse_table_get(io->c->s);
	struct fuse_window_io w;
	ssize_t n = fuse_window_resolve(&w, t ? t->t : NULL, v, io->store);

	if (!n)
		n = io_call(io, &w.v);
	fuse_window_release(&w);
	fuse_table_put(io->c->s, t);
	return n;
}

/* All of it, or up to the end of the file (fs.h); without waiting: all of that, or not now. */
static ssize_t io_run(struct io *io)
{
	struct fuse_slice slice;
	uint64_t end;
	ssize_t n;

	if (!util_add_u64(io->offset, io->size, &end) || end > INT64_MAX)
		return -EINVAL;
	if (io->c->nowait)
		io->flags |= FS_IO_NOWAIT;
	n = fuse_slice_init(&slice, io->buf, io->skip, io->size);
	if (!n && !slice.in_window)
		n = io_call(io, &slice.v);
	else if (!n)
		n = io->c->nowait ? -EAGAIN : io_window(io, &slice.v);
	fuse_slice_fini(&slice);
	if (n == -EAGAIN && io->c->nowait)
		return FUSE_AGAIN;
	fuse_dax_hook(io->c->s, touched, io->c->st->h.nodeid);
	return n;
}

ssize_t fuse_op_read(struct fuse_ctx *c)
{
	const struct fuse_read_in *in = fuse_args(c, struct fuse_read_in);
	struct io io = {
		.c = c,
		.store = true,
		.buf = &c->r->in,
		.skip = sizeof(struct fuse_out_header),
		.handle = in->fh,
		.offset = in->offset,
		.size = in->size,
	};

	/* Answering less than asked would say that the file ends there. */
	return in->size > c->out.left ? -EINVAL : io_run(&io);
}

ssize_t fuse_op_write(struct fuse_ctx *c)
{
	const struct fuse_write_in *in = fuse_args(c, struct fuse_write_in);
	struct fuse_write_out out = {0};
	struct io io = {
		.c = c,
		.buf = &c->r->out,
		.skip = c->r->out.len - c->in.left - c->ext.left,
		.handle = in->fh,
		.offset = in->offset,
		.size = in->size,
	};
	ssize_t n;

	if (in->size > c->in.left)
		return -EINVAL;
	if (in->write_flags & FUSE_WRITE_CACHE)
		io.flags |= FS_IO_CACHE;
	if (in->write_flags & FUSE_WRITE_KILL_SUIDGID)
		io.flags |= FS_IO_KILL_SUIDGID;
	n = io_run(&io);
	if (n < 0)
		return n;
	fuse_dax_grown(c, c->st->h.nodeid);
	out.size = (uint32_t)n;
	return fuse_reply(c, &out, sizeof(out));
}

/* --- the rest --- */

ssize_t fuse_op_release(struct fuse_ctx *c)
{
	const struct fuse_release_in *in = fuse_args(c, struct fuse_release_in);
	int err;

	if (in->release_flags & FUSE_RELEASE_FLUSH)
		fs_flush(c->s->cfg.fs, c->st->h.nodeid, in->fh);
	err = fs_release(c->s->cfg.fs, in->fh);
	fuse_lock_released(c->s);
	return err;
}

ssize_t fuse_op_flush(struct fuse_ctx *c)
{
	return fs_flush(c->s->cfg.fs, c->st->h.nodeid, fuse_args(c, struct fuse_flush_in)->fh);
}

ssize_t fuse_op_fsync(struct fuse_ctx *c)
{
	const struct fuse_fsync_in *in = fuse_args(c, struct fuse_fsync_in);

	return fs_fsync(c->s->cfg.fs, c->st->h.nodeid, in->fh,
			in->fsync_flags & FUSE_FSYNC_FDATASYNC);
}

ssize_t fuse_op_fallocate(struct fuse_ctx *c)
{
	const struct fuse_fallocate_in *in = fuse_args(c, struct fuse_fallocate_in);
	uint64_t end;
	int err;

	if (!util_add_u64(in->offset, in->length, &end) || end > INT64_MAX)
		return -EFBIG;
	err = fs_fallocate(c->s->cfg.fs, c->st->h.nodeid, in->fh, (int)in->mode, in->offset,
			   in->length);
	if (!err)
		fuse_dax_grown(c, c->st->h.nodeid);
	return err;
}

ssize_t fuse_op_lseek(struct fuse_ctx *c)
{
	const struct fuse_lseek_in *in = fuse_args(c, struct fuse_lseek_in);
	struct fuse_lseek_out out;
	off_t pos = fs_lseek(c->s->cfg.fs, c->st->h.nodeid, in->fh, in->offset, (int)in->whence);

	if (pos < 0)
		return pos;
	out.offset = (uint64_t)pos;
	return fuse_reply(c, &out, sizeof(out));
}

ssize_t fuse_op_copy_file_range(struct fuse_ctx *c)
{
	const struct fuse_copy_file_range_in *in = fuse_args(c, struct fuse_copy_file_range_in);
	struct fuse_write_out out = {0};
	uint64_t end;
	/* The reply has 32 bits for the count. */
	size_t len = (size_t)MIN(in->len, (uint64_t)0x7ffff000);
	ssize_t n;

	if (!util_add_u64(in->off_in, len, &end) || end > INT64_MAX ||
	    !util_add_u64(in->off_out, len, &end) || end > INT64_MAX)
		return -EINVAL;
	n = fs_copy_file_range(c->s->cfg.fs, c->st->h.nodeid, in->fh_in, in->off_in, in->nodeid_out,
			       in->fh_out, in->off_out, len, (unsigned int)in->flags);
	if (n < 0)
		return n;
	fuse_dax_grown(c, in->nodeid_out);
	out.size = (uint32_t)n;
	return fuse_reply(c, &out, sizeof(out));
}
