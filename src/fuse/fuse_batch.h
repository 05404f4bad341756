/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READs of one queue that are kept for a moment, to be run together (fs_batch.h). Belongs to
 * the queue's thread. Kept are at most FS_BATCH_MAX, never over a wait: see fuse_session_flush().
 */
#ifndef DAXMAP_FUSE_BATCH_H
#define DAXMAP_FUSE_BATCH_H

#include <stdbool.h>

#include "fs_batch.h"
#include "util_gvec.h"

struct fuse_ctx;
struct fuse_request;

#define FUSE_KEPT_SEGS 20 /* 64 KiB of pages, and some */

struct fuse_kept {
	struct fuse_request *r;
	struct util_gvec v;
	struct iovec iov[FUSE_KEPT_SEGS];
};

struct fuse_batch {
	struct fs_batch *ring;
	unsigned int n;
	struct fuse_kept kept[FS_BATCH_MAX];
};

/** fuse_batch_new() - NULL where it cannot be had; as fs_batch_new() */
struct fuse_batch *fuse_batch_new(void);
void fuse_batch_free(struct fuse_batch *b);

/** fuse_batch_keep() - keeps the READ of @c, its arguments decoded; false: run it otherwise */
bool fuse_batch_keep(struct fuse_batch *b, struct fuse_ctx *c);

#endif
