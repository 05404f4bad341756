// SPDX-License-Identifier: Apache-2.0
/* Directories: entries go straight into the guest's buffer. */
#include <errno.h>
#include <fcntl.h>

#include "fuse_internal.h"

ssize_t fuse_op_opendir(struct fuse_ctx *c)
{
	struct fuse_open_out out = {0};
	int err = fs_opendir(c->s->cfg.fs, c->st->h.nodeid, &out.fh);

	if (err)
		return err;
	out.open_flags = fuse_open_flags(c->s, O_RDONLY, true);
	return fuse_reply(c, &out, sizeof(out));
}

struct listing {
	struct fuse_ctx *c;
	struct fuse_cursor out;
	size_t written;
	bool plus;
	bool full;
	int err;
};

static int emit_entry(struct listing *l, const struct fs_dirent *d, size_t padded)
{
	struct fuse_dirent head = {
		.ino = d->ino,
		.off = d->next,
		.namelen = (uint32_t)d->namelen,
		.type = d->type,
	};
	struct fuse_entry_out entry = {0}; /* nodeid 0: no attributes, look it up */
	int err = 0;

	if (l->plus) {
		if (d->has_attr)
			fuse_fill_entry(l->c->s, &d->attr, &entry);
		err = fuse_cursor_write(&l->out, &entry, sizeof(entry));
	}
	if (!err)
		err = fuse_cursor_write(&l->out, &head, FUSE_NAME_OFFSET);
	if (!err)
		err = fuse_cursor_write(&l->out, d->name, d->namelen);
	if (!err)
		err = fuse_cursor_zero(&l->out, padded - FUSE_NAME_OFFSET - d->namelen);
	return err;
}

static bool emit(void *ctx, const struct fs_dirent *d)
{
	struct listing *l = ctx;
	size_t padded = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + d->namelen);
	size_t need = padded + (l->plus ? sizeof(struct fuse_entry_out) : 0);

	if (need > l->out.left) {
		l->full = true;
		return false;
	}
	l->err = emit_entry(l, d, padded);
	if (l->err)
		return false;
	l->written += need;
	return true;
}

static ssize_t list(struct fuse_ctx *c, bool plus)
{
	const struct fuse_read_in *in = fuse_args(c, struct fuse_read_in);
	struct listing l = {.c = c, .out = c->out, .plus = plus};
	int err;

	l.out.left = MIN(l.out.left, in->size);
	err = fs_readdir(c->s->cfg.fs, c->st->h.nodeid, in->fh, in->offset, plus, emit, &l);
	/* What has been emitted carries lookup counts: it has to reach the guest. */
	if (l.written)
		return (ssize_t)l.written;
	if (err || l.err)
		return err ? err : l.err;
	/* Nothing at all would say that the directory ends here. */
	return l.full ? -EINVAL : 0;
}

ssize_t fuse_op_readdir(struct fuse_ctx *c)
{
	return list(c, false);
}

ssize_t fuse_op_readdirplus(struct fuse_ctx *c)
{
	return list(c, true);
}

ssize_t fuse_op_releasedir(struct fuse_ctx *c)
{
	return fs_releasedir(c->s->cfg.fs, fuse_args(c, struct fuse_release_in)->fh);
}

ssize_t fuse_op_fsyncdir(struct fuse_ctx *c)
{
	const struct fuse_fsync_in *in = fuse_args(c, struct fuse_fsync_in);

	return fs_fsyncdir(c->s->cfg.fs, c->st->h.nodeid, in->fh,
			   in->fsync_flags & FUSE_FSYNC_FDATASYNC);
}
