// SPDX-License-Identifier: Apache-2.0
#include "fuse_batch.h"

#include <string.h>

#include "fuse_internal.h"

struct fuse_batch *fuse_batch_new(void)
{
	struct fs_batch *ring = fs_batch_new();
	struct fuse_batch *b;

	if (!ring)
		return NULL;
	b = g_new0(struct fuse_batch, 1);
	b->ring = ring;
	return b;
}

void fuse_batch_free(struct fuse_batch *b)
{
	if (!b)
		return;
	fs_batch_free(b->ring);
	g_free(b);
}

bool fuse_batch_keep(struct fuse_batch *b, struct fuse_ctx *c)
{
	const struct fuse_read_in *in = fuse_args(c, struct fuse_read_in);
	struct fuse_kept *k = &b->kept[b->n];
	struct fuse_slice slice;
	unsigned int slot;
	bool kept;

	if (b->n == FS_BATCH_MAX || in->size > c->out.left || c->r->in.n > FUSE_KEPT_SEGS)
		return false;
	kept = fuse_slice_init(&slice, &c->r->in, sizeof(struct fuse_out_header), in->size) == 0 &&
	       !slice.in_window && slice.v.n <= FUSE_KEPT_SEGS;
	if (kept) {
		memcpy(k->iov, slice.v.iov, slice.v.n * sizeof(*k->iov));
		k->v = (struct util_gvec){.iov = k->iov, .n = slice.v.n, .len = slice.v.len};
		k->r = c->r;
		kept = fs_batch_read(b->ring, c->s->cfg.fs, c->st->h.nodeid, in->fh, &k->v,
				     in->offset, &slot);
	}
	fuse_slice_fini(&slice);
	b->n += kept;
	return kept;
}
