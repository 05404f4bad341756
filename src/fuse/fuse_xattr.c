// SPDX-License-Identifier: Apache-2.0
/* Extended attributes: values are at most 64 KiB and go through a buffer. */
#include <errno.h>
#include <limits.h>
#include <linux/limits.h>
#include <sys/xattr.h>

#include "fuse_internal.h"

ssize_t fuse_op_setxattr(struct fuse_ctx *c)
{
	const struct fuse_setxattr_in *in = fuse_args(c, struct fuse_setxattr_in);
	g_autofree char *value = NULL;
	char name[XATTR_NAME_MAX + 1];
	ssize_t n;
	int flags, err;

	if (!c->s->cfg.xattr)
		return -ENOSYS;
	if (in->size > XATTR_SIZE_MAX)
		return -E2BIG;
	n = fuse_cursor_read_string(&c->in, name, sizeof(name));
	if (n <= 0)
		return n ? n : -EINVAL;
	value = g_malloc(MAX(in->size, 1));
	err = fuse_cursor_read(&c->in, value, in->size);
	if (err)
		return err;
	flags = (int)in->flags & (XATTR_CREATE | XATTR_REPLACE);
	if (c->s->flags & FUSE_SETXATTR_EXT && in->setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID)
		flags |= FS_XATTR_ACL_KILL_SGID;
	return fs_setxattr(c->s->cfg.fs, c->st->h.nodeid, name, value, in->size, flags);
}

/* @name NULL: the list of names. Size 0 asks for the size. */
static ssize_t get(struct fuse_ctx *c, const char *name)
{
	uint32_t size = fuse_args(c, struct fuse_getxattr_in)->size;
	size_t cap = MIN(size, XATTR_SIZE_MAX);
	g_autofree char *value = g_malloc(MAX(cap, 1));
	ssize_t n;

	if (size && c->out.left < cap)
		cap = c->out.left;
	if (size && !cap)
		return -ERANGE;
	n = name ? fs_getxattr(c->s->cfg.fs, c->st->h.nodeid, name, value, cap)
		 : fs_listxattr(c->s->cfg.fs, c->st->h.nodeid, value, cap);
	if (n < 0)
		return n;
	if (!size) {
		struct fuse_getxattr_out out = {.size = (uint32_t)n};

		return fuse_reply(c, &out, sizeof(out));
	}
	return fuse_reply(c, value, (size_t)n);
}

ssize_t fuse_op_getxattr(struct fuse_ctx *c)
{
	char name[XATTR_NAME_MAX + 1];
	ssize_t n;

	if (!c->s->cfg.xattr)
		return -ENOSYS;
	n = fuse_cursor_read_string(&c->in, name, sizeof(name));
	if (n <= 0)
		return n ? n : -EINVAL;
	return get(c, name);
}

ssize_t fuse_op_listxattr(struct fuse_ctx *c)
{
	return c->s->cfg.xattr ? get(c, NULL) : -ENOSYS;
}

ssize_t fuse_op_removexattr(struct fuse_ctx *c)
{
	char name[XATTR_NAME_MAX + 1];
	ssize_t n;

	if (!c->s->cfg.xattr)
		return -ENOSYS;
	n = fuse_cursor_read_string(&c->in, name, sizeof(name));
	if (n <= 0)
		return n ? n : -EINVAL;
	return fs_removexattr(c->s->cfg.fs, c->st->h.nodeid, name);
}
