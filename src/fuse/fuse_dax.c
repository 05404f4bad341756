// SPDX-License-Identifier: Apache-2.0
/*
 * SETUPMAPPING and REMOVEMAPPING: checks what can be checked without the table, names the file,
 * and asks the table. The guest gives an error straight to its application, so each kind of
 * refusal is logged with its reason.
 */
#include <errno.h>
#include <inttypes.h>

#include "daxmap/table.h"
#include "fuse_internal.h"
#include "util_log.h"
#include "util_overflow.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "fuse"

#define GRANULE (1u << FUSE_MAP_ALIGN_LOG2)
#define NO_HANDLE UINT64_MAX

void *fuse_dax_truncating(struct fuse_ctx *c, uint64_t node)
{
	const struct fuse_dax_ops *ops = c->s->cfg.dax_ops;

	return c->s->dax && ops && ops->truncating ? ops->truncating(c->s->cfg.dax_ctx, node)
						   : NULL;
}

void fuse_dax_truncated(struct fuse_ctx *c, void *what)
{
	if (what)
		c->s->cfg.dax_ops->truncated(c->s->cfg.dax_ctx, what);
}

void fuse_dax_grown(struct fuse_ctx *c, uint64_t node)
{
	const struct fuse_dax_ops *ops = c->s->cfg.dax_ops;
	bool parked = c->st->parked;

	if (!c->s->dax || !ops || !ops->must_settle ||
	    G_LIKELY(!ops->must_settle(c->s->cfg.dax_ctx, node)))
		return;
	fuse_park(c->r, true);
	ops->settle(c->s->cfg.dax_ctx, node);
	fuse_park(c->r, parked);
	/* Other memory may lie behind the reply now. */
	fuse_cursor_init(&c->out, &c->r->in);
	fuse_cursor_skip(&c->out, sizeof(struct fuse_out_header));
}

static void log_refusal(const struct fuse_setupmapping_in *in, uint64_t node, int err)
{
	switch (err) {
	case -ENOMEM:
		util_log_once("mapping refused: as many are live as the VMM may have (node "
			      "%" PRIu64 ")",
			      node);
		break;
	case -EACCES:
	case -EROFS:
		util_log_once("mapping refused: node %" PRIu64 " can only be read", node);
		break;
	case -EPIPE:
		util_log_once("mapping refused: the channel to the VMM is broken (node %" PRIu64
			      ")",
			      node);
		break;
	default:
		util_log_once("mapping refused: node %" PRIu64 ", file offset %#" PRIx64
			      ", %#" PRIx64 " bytes at %#" PRIx64 " of the window: %s",
			      node, in->foffset, in->len, in->moffset, g_strerror(-err));
	}
}

static int check_setup(struct fuse_session *s, const struct fuse_setupmapping_in *in)
{
	uint64_t end;

	if (in->flags & ~(FUSE_SETUPMAPPING_FLAG_READ | FUSE_SETUPMAPPING_FLAG_WRITE))
		return -EINVAL;
	if (!in->len || !util_is_aligned(in->len | in->foffset | in->moffset, GRANULE))
		return -EINVAL;
	if (!util_add_u64(in->foffset, in->len, &end) || end > INT64_MAX)
		return -EINVAL;
	if (!util_range_inside(in->moffset, in->len, s->cfg.window_size))
		return -EINVAL;
	if (in->flags & FUSE_SETUPMAPPING_FLAG_WRITE && s->cfg.readonly)
		return -EROFS;
	return 0;
}

/*
 * What the guest is told. Never ENOMEM: Linux takes that from a fault for its own lack of memory
 * and retries for ever (dax_fault_return() in fs/dax.c), where EIO gives SIGBUS.
 */
static int guest_errno(int err)
{
	switch (err) {
	case -ENOMEM:
	case -ENOTCONN: /* the size shim's helper has died */
		return -EIO;
	case -ERANGE:
		return -EINVAL;
	default:
		return err;
	}
}

/*
 * Is there a byte of the file? A guest that goes by an old size may ask for what is not: touching
 * it would kill the VMM.
 */
static int check_end(struct fuse_ctx *c, uint64_t node, uint64_t file_offset)
{
	struct fs_attr a;
	int err = fs_getattr(c->s->cfg.fs, node, false, 0, &a);

	if (err || !S_ISREG(a.st.st_mode)) /* opening it will say so */
		return 0;
	fuse_dax_hook(c->s, size, &a);
	if (file_offset < (uint64_t)a.st.st_size)
		return 0;
	util_log_once("mapping refused: node %" PRIu64 " ends at %" PRIi64
		      ", before file offset %#" PRIx64,
		      node, (int64_t)a.st.st_size, file_offset);
	return -ENXIO;
}

ssize_t fuse_op_setupmapping(struct fuse_ctx *c)
{
	const struct fuse_setupmapping_in *in = fuse_args(c, struct fuse_setupmapping_in);
	uint64_t node = c->st->h.nodeid;
	struct fuse_table *t;
	int err;

	if (!c->s->dax)
		return -ENOSYS;
	err = check_setup(c->s, in);
	if (!err && in->fh != NO_HANDLE)
		err = fs_node_of_handle(c->s->cfg.fs, in->fh, &node);
	if (!err && check_end(c, node, in->foffset))
		return -EIO;
	if (!err) {
		fuse_dax_hook(c->s, setup, node, in->moffset, in->len, in->foffset);
		t = fuse_table_get(c->s);
		err = t ? dm_host_setup(t->t, in->moffset, in->len, fuse_file_key(node),
					in->foffset, in->flags & FUSE_SETUPMAPPING_FLAG_WRITE)
			: -EPIPE;
		fuse_table_put(c->s, t);
		if (err)
			fuse_dax_hook(c->s, refused, node, in->moffset, in->len, err);
		else
			fuse_dax_hook(c->s, mapped, node, in->foffset, in->len);
	}
	if (err)
		log_refusal(in, node, err);
	return guest_errno(err);
}

/* Every entry is tried; the first error is the answer. */
ssize_t fuse_op_removemapping(struct fuse_ctx *c)
{
	uint32_t count = fuse_args(c, struct fuse_removemapping_in)->count;
	struct fuse_removemapping_one one;
	struct fuse_table *t;
	int first = 0;

	if (!c->s->dax)
		return -ENOSYS;
	if (count > c->in.left / sizeof(one))
		return -EINVAL;
	t = fuse_table_get(c->s);
	if (!t)
		return -EPIPE;
	for (; count; count--) {
		int err = fuse_cursor_read(&c->in, &one, sizeof(one));

		if (!err) {
			fuse_dax_hook(c->s, remove, one.moffset, one.len);
			err = dm_host_remove(t->t, one.moffset, one.len);
		}
		if (err && !first)
			first = err;
	}
	fuse_table_put(c->s, t);
	return first;
}
