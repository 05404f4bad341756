// SPDX-License-Identifier: Apache-2.0
/* Names and attributes. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "fuse_internal.h"

/* --- helpers --- */

ssize_t fuse_reply(struct fuse_ctx *c, const void *data, size_t n)
{
	int err = fuse_cursor_write(&c->out, data, n);

	return err ? err : (ssize_t)n;
}

int fuse_read_name(struct fuse_ctx *c, char *buf)
{
	ssize_t n = fuse_cursor_read_string(&c->in, buf, NAME_MAX + 1);

	if (n == 0)
		return -EINVAL;
	return n < 0 ? (int)n : 0;
}

/*
 * Extensions: struct fuse_ext_header {size with the header, type}, each padded to 8 bytes.
 * FUSE_EXT_GROUPS carries the one group that the new file may get (fs/fuse/dir.c).
 */
int fuse_cred(struct fuse_ctx *c, uint32_t umask, struct fs_cred *out)
{
	*out = (struct fs_cred){
		.uid = c->st->h.uid,
		.gid = c->st->h.gid,
		.umask = c->s->flags & FUSE_DONT_MASK ? umask & 07777 : 0,
	};
	if (!(c->s->flags & FUSE_BIT_CREATE_SUPP_GROUP))
		return 0;
	while (c->ext.left >= sizeof(struct fuse_ext_header)) {
		struct fuse_ext_header h;
		uint32_t groups[2]; /* nr_groups, the group */
		size_t body;
		int err = fuse_cursor_read(&c->ext, &h, sizeof(h));

		if (err)
			return err;
		if (h.size < sizeof(h) || h.size - sizeof(h) > c->ext.left)
			return -EINVAL;
		body = h.size - sizeof(h);
		if (h.type == FUSE_TYPE_EXT_GROUPS) {
			if (body < sizeof(groups) || out->has_sup_group)
				return -EINVAL;
			err = fuse_cursor_read(&c->ext, groups, sizeof(groups));
			if (err)
				return err;
			if (groups[0] != 1)
				return -EINVAL;
			out->has_sup_group = true;
			out->sup_gid = groups[1];
			body -= sizeof(groups);
		}
		body += -h.size & 7u;
		fuse_cursor_skip(&c->ext, MIN(body, c->ext.left));
	}
	return 0;
}

static void split_seconds(double t, uint64_t *sec, uint32_t *nsec)
{
	*sec = t > 0 ? (uint64_t)t : 0;
	*nsec = t > 0 ? (uint32_t)((t - (double)*sec) * 1e9) : 0;
}

void fuse_fill_attr(struct fuse_session *s, const struct fs_attr *a, struct fuse_attr *out)
{
	const struct stat *st = &a->st;

	*out = (struct fuse_attr){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec,
		.mtime = (uint64_t)st->st_mtim.tv_sec,
		.ctime = (uint64_t)st->st_ctim.tv_sec,
		.atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev,
		.blksize = (uint32_t)st->st_blksize,
	};
	if (a->submount && s->flags & FUSE_SUBMOUNTS)
		out->flags |= FUSE_ATTR_SUBMOUNT;
	if (!s->dax || !S_ISREG(st->st_mode) || !s->cfg.dax_ops)
		return;
	if (s->cfg.dax_ops->size)
		out->size = s->cfg.dax_ops->size(s->cfg.dax_ctx, a);
	if (s->cfg.dax_ops->mark(s->cfg.dax_ctx, a))
		out->flags |= FUSE_ATTR_DAX;
}

void fuse_fill_entry(struct fuse_session *s, const struct fs_attr *a, struct fuse_entry_out *out)
{
	*out = (struct fuse_entry_out){.nodeid = a->node};
	split_seconds(s->entry_timeout, &out->entry_valid, &out->entry_valid_nsec);
	split_seconds(s->attr_timeout, &out->attr_valid, &out->attr_valid_nsec);
	fuse_fill_attr(s, a, &out->attr);
}

size_t fuse_entry_size(const struct fuse_session *s)
{
	return s->minor < 9 ? FUSE_COMPAT_ENTRY_OUT_SIZE : sizeof(struct fuse_entry_out);
}

static ssize_t reply_entry(struct fuse_ctx *c, int err, const struct fs_attr *a)
{
	struct fuse_entry_out out;

	if (err)
		return err;
	fuse_fill_entry(c->s, a, &out);
	return fuse_reply(c, &out, fuse_entry_size(c->s));
}

static ssize_t reply_attr(struct fuse_ctx *c, int err, const struct fs_attr *a)
{
	struct fuse_attr_out out = {0};

	if (err)
		return err;
	split_seconds(c->s->attr_timeout, &out.attr_valid, &out.attr_valid_nsec);
	fuse_fill_attr(c->s, a, &out.attr);
	return fuse_reply(c, &out, c->s->minor < 9 ? FUSE_COMPAT_ATTR_OUT_SIZE : sizeof(out));
}

/* --- operations --- */

ssize_t fuse_op_lookup(struct fuse_ctx *c)
{
	char name[NAME_MAX + 1];
	struct fs_attr a;
	int err = fuse_read_name(c, name);

	if (err)
		return err;
	if (c->nowait) {
		err = fs_lookup_cached(c->s->cfg.fs, c->st->h.nodeid, name, &a);
	} else if (c->local) {
		err = fs_lookup_local(c->s->cfg.fs, c->st->h.nodeid, name, &a);
	} else {
		err = fs_lookup(c->s->cfg.fs, c->st->h.nodeid, name, &a);
	}
	if (err == -EAGAIN && (c->nowait || c->local))
		return FUSE_AGAIN;
	return reply_entry(c, err, &a);
}

ssize_t fuse_op_forget(struct fuse_ctx *c)
{
	fs_forget(c->s->cfg.fs, c->st->h.nodeid, fuse_args(c, struct fuse_forget_in)->nlookup);
	return 0;
}

ssize_t fuse_op_batch_forget(struct fuse_ctx *c)
{
	uint32_t count = fuse_args(c, struct fuse_batch_forget_in)->count;
	struct fuse_forget_one one;

	for (; count; count--) {
		int err = fuse_cursor_read(&c->in, &one, sizeof(one));

		if (err)
			return err;
		fs_forget(c->s->cfg.fs, one.nodeid, one.nlookup);
	}
	return 0;
}

ssize_t fuse_op_getattr(struct fuse_ctx *c)
{
	const struct fuse_getattr_in *in = fuse_args(c, struct fuse_getattr_in);
	struct fs_attr a;
	int err;

	if (c->nowait) {
		/* By a handle or not, it is the same inode. */
		err = fs_getattr_cached(c->s->cfg.fs, c->st->h.nodeid, &a);
		if (err == -EAGAIN)
			return FUSE_AGAIN;
	} else {
		err = fs_getattr(c->s->cfg.fs, c->st->h.nodeid, in->getattr_flags & FUSE_GETATTR_FH,
				 in->fh, &a);
	}
	return reply_attr(c, err, &a);
}

static uint32_t setattr_valid(uint32_t fuse)
{
	static const struct {
		uint32_t fuse;
		uint32_t fs;
	} bits[] = {
		{FATTR_MODE, FS_SET_MODE},
		{FATTR_UID, FS_SET_UID},
		{FATTR_GID, FS_SET_GID},
		{FATTR_SIZE, FS_SET_SIZE},
		{FATTR_ATIME, FS_SET_ATIME},
		{FATTR_MTIME, FS_SET_MTIME},
		{FATTR_ATIME_NOW, FS_SET_ATIME_NOW},
		{FATTR_MTIME_NOW, FS_SET_MTIME_NOW},
		{FATTR_KILL_SUIDGID, FS_SET_KILL_SUIDGID},
	};
	uint32_t valid = 0;

	for (size_t i = 0; i < G_N_ELEMENTS(bits); i++) {
		if (fuse & bits[i].fuse)
			valid |= bits[i].fs;
	}
	return valid;
}

ssize_t fuse_op_setattr(struct fuse_ctx *c)
{
	const struct fuse_setattr_in *in = fuse_args(c, struct fuse_setattr_in);
	struct fs_setattr set = {
		.valid = setattr_valid(in->valid),
		.mode = in->mode & 07777,
		.uid = in->uid,
		.gid = in->gid,
		.size = in->size,
		.atime = {.tv_sec = (time_t)in->atime, .tv_nsec = in->atimensec},
		.mtime = {.tv_sec = (time_t)in->mtime, .tv_nsec = in->mtimensec},
		.has_handle = in->valid & FATTR_FH,
		.handle = in->fh,
		.nowait = c->local,
	};
	void *truncating = NULL;
	struct fs_attr a;
	int err;

	if (in->atimensec >= 1000000000u || in->mtimensec >= 1000000000u)
		return -EINVAL;
	if (in->valid & FATTR_SIZE)
		truncating = fuse_dax_truncating(c, c->st->h.nodeid);
	err = fs_setattr(c->s->cfg.fs, c->st->h.nodeid, &set, &a);
	fuse_dax_truncated(c, truncating);
	if (err == -EAGAIN && c->local)
		return FUSE_AGAIN;
	if (in->valid & FATTR_SIZE)
		fuse_dax_grown(c, c->st->h.nodeid);
	return reply_attr(c, err, &a);
}

ssize_t fuse_op_readlink(struct fuse_ctx *c)
{
	char target[PATH_MAX];
	ssize_t n = fs_readlink(c->s->cfg.fs, c->st->h.nodeid, target, sizeof(target));

	return n < 0 ? n : fuse_reply(c, target, (size_t)n);
}

ssize_t fuse_op_symlink(struct fuse_ctx *c)
{
	char name[NAME_MAX + 1], target[PATH_MAX];
	struct fs_cred cred;
	struct fs_attr a;
	ssize_t n;
	int err = fuse_read_name(c, name);

	if (err)
		return err;
	n = fuse_cursor_read_string(&c->in, target, sizeof(target));
	if (n < 0)
		return n;
	err = fuse_cred(c, 0, &cred);
	if (err)
		return err;
	err = fs_symlink(c->s->cfg.fs, &cred, c->st->h.nodeid, name, target, &a);
	return reply_entry(c, err, &a);
}

ssize_t fuse_op_mknod(struct fuse_ctx *c)
{
	const struct fuse_mknod_in *in = fuse_args(c, struct fuse_mknod_in);
	char name[NAME_MAX + 1];
	struct fs_cred cred;
	struct fs_attr a;
	int err = fuse_read_name(c, name);

	if (!err)
		err = fuse_cred(c, in->umask, &cred);
	/* The guest's new_encode_dev() is glibc's dev_t for what fits into 32 bits. */
	if (!err)
		err = fs_mknod(c->s->cfg.fs, &cred, c->st->h.nodeid, name, in->mode, in->rdev, &a);
	return reply_entry(c, err, &a);
}

ssize_t fuse_op_mkdir(struct fuse_ctx *c)
{
	const struct fuse_mkdir_in *in = fuse_args(c, struct fuse_mkdir_in);
	char name[NAME_MAX + 1];
	struct fs_cred cred;
	struct fs_attr a;
	int err = fuse_read_name(c, name);

	if (!err)
		err = fuse_cred(c, in->umask, &cred);
	if (!err)
		err = fs_mkdir(c->s->cfg.fs, &cred, c->st->h.nodeid, name, in->mode, &a);
	return reply_entry(c, err, &a);
}

ssize_t fuse_op_unlink(struct fuse_ctx *c)
{
	char name[NAME_MAX + 1];
	int err = fuse_read_name(c, name);

	return err ? err : fs_unlink(c->s->cfg.fs, c->st->h.nodeid, name);
}

ssize_t fuse_op_rmdir(struct fuse_ctx *c)
{
	char name[NAME_MAX + 1];
	int err = fuse_read_name(c, name);

	return err ? err : fs_rmdir(c->s->cfg.fs, c->st->h.nodeid, name);
}

static ssize_t do_rename(struct fuse_ctx *c, uint64_t newdir, uint32_t flags)
{
	char from[NAME_MAX + 1], to[NAME_MAX + 1];
	int err = fuse_read_name(c, from);

	if (!err)
		err = fuse_read_name(c, to);
	if (!err)
		err = fs_rename(c->s->cfg.fs, c->st->h.nodeid, from, newdir, to, flags);
	return err;
}

ssize_t fuse_op_rename(struct fuse_ctx *c)
{
	return do_rename(c, fuse_args(c, struct fuse_rename_in)->newdir, 0);
}

ssize_t fuse_op_rename2(struct fuse_ctx *c)
{
	const struct fuse_rename2_in *in = fuse_args(c, struct fuse_rename2_in);

	return do_rename(c, in->newdir, in->flags);
}

ssize_t fuse_op_link(struct fuse_ctx *c)
{
	char name[NAME_MAX + 1];
	struct fs_attr a;
	int err = fuse_read_name(c, name);

	if (!err)
		err = fs_link(c->s->cfg.fs, fuse_args(c, struct fuse_link_in)->oldnodeid,
			      c->st->h.nodeid, name, &a);
	return reply_entry(c, err, &a);
}

ssize_t fuse_op_statfs(struct fuse_ctx *c)
{
	struct fuse_statfs_out out = {0};
	struct statvfs v;
	int err = fs_statfs(c->s->cfg.fs, c->st->h.nodeid, &v);

	if (err)
		return err;
	out.st = (struct fuse_kstatfs){
		.blocks = v.f_blocks,
		.bfree = v.f_bfree,
		.bavail = v.f_bavail,
		.files = v.f_files,
		.ffree = v.f_ffree,
		.bsize = (uint32_t)v.f_bsize,
		.namelen = (uint32_t)v.f_namemax,
		.frsize = (uint32_t)v.f_frsize,
	};
	return fuse_reply(c, &out, c->s->minor < 4 ? FUSE_COMPAT_STATFS_SIZE : sizeof(out));
}

ssize_t fuse_op_access(struct fuse_ctx *c)
{
	struct fs_cred cred = {.uid = c->st->h.uid, .gid = c->st->h.gid};

	return fs_access(c->s->cfg.fs, &cred, c->st->h.nodeid,
			 (int)fuse_args(c, struct fuse_access_in)->mask);
}

ssize_t fuse_op_syncfs(struct fuse_ctx *c)
{
	return fs_syncfs(c->s->cfg.fs, c->st->h.nodeid);
}
