/* SPDX-License-Identifier: Apache-2.0 */
/* Reads ahead in a thread of its own: readahead(2) may wait for a disk, a reply must not. */
#ifndef DAXMAP_POLICY_PREFETCH_H
#define DAXMAP_POLICY_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

struct policy_prefetch;

/** struct policy_prefetch_stats - counters */
struct policy_prefetch_stats {
	uint64_t ranges;  /* done */
	uint64_t bytes;	  /* done */
	uint64_t dropped; /* the queue was full: the disk is behind, more would only displace */
};

#define POLICY_PREFETCH_DEPTH 64u

/**
 * policy_prefetch_new() - starts the thread
 * @read: starts reading @len bytes at @offset of @node; called in that thread, may block
 */
struct policy_prefetch *policy_prefetch_new(void (*read)(void *ctx, uint64_t node, uint64_t offset,
							 uint64_t len),
					    void *ctx);
/** policy_prefetch_free() - as quiesce, then ends the thread. NULL is allowed. */
void policy_prefetch_free(struct policy_prefetch *pp);

/** policy_prefetch_push() - queues a range; drops it where POLICY_PREFETCH_DEPTH wait. Any thread;
 * does not block. */
void policy_prefetch_push(struct policy_prefetch *pp, uint64_t node, uint64_t offset, uint64_t len);

/** policy_prefetch_quiesce() - forgets what is queued and waits for the read under way: no node is
 * used when it returns. Nobody may push meanwhile. */
void policy_prefetch_quiesce(struct policy_prefetch *pp);

void policy_prefetch_get_stats(struct policy_prefetch *pp, struct policy_prefetch_stats *out);

#endif
