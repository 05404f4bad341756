/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of worker threads that grows on demand and shrinks when idle. Knows nothing of FUSE. */
#ifndef DAXMAP_FUSE_POOL_H
#define DAXMAP_FUSE_POOL_H

#include <stdint.h>

struct fuse_pool;

/** struct fuse_job - embedded in what is to be done; @run may free it */
struct fuse_job {
	struct fuse_job *next;
	void (*run)(struct fuse_job *job);
};

/**
 * fuse_pool_new() - makes a pool without threads
 * @name: of the threads, at most 15 bytes are shown; copied
 * @max_threads: at least 1
 * @idle_ms: how long a thread without work stays
 * @start: called first in each thread (CPU binding); may be NULL
 */
struct fuse_pool *fuse_pool_new(const char *name, unsigned int max_threads, unsigned int idle_ms,
				void (*start)(void *ctx, unsigned int arg), void *ctx,
				unsigned int arg);
/** fuse_pool_free() - runs what is queued, ends the threads. NULL is fine. */
void fuse_pool_free(struct fuse_pool *p);

/** fuse_pool_push() - first in, first out; any thread. Does not wait. When no thread can be
 * made and none exists, the job runs right here. */
void fuse_pool_push(struct fuse_pool *p, struct fuse_job *job);

/** fuse_pool_threads() - how many threads there are now; a snapshot */
unsigned int fuse_pool_threads(struct fuse_pool *p);
/** fuse_pool_backlog() - jobs that no thread has taken yet; a snapshot, no lock */
unsigned int fuse_pool_backlog(struct fuse_pool *p);

#endif
