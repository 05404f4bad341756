/* SPDX-License-Identifier: Apache-2.0 */
/* Who would only wait for each other takes turns; see fuse_lane.c. */
#ifndef DAXMAP_FUSE_LANE_H
#define DAXMAP_FUSE_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "fuse_pool.h"
#include "util_lock.h"

#define FUSE_LANES 64

/** struct fuse_lane - the jobs that want one object's lock; @node 0: free */
struct fuse_lane {
	uint64_t node;
	struct fuse_job *head;
	struct fuse_job **tail;
};

/** struct fuse_lanes - those of one queue; all under @lock; the first @n may be in use */
struct fuse_lanes {
	struct util_mutex lock;
	unsigned int n;
	struct fuse_lane lanes[FUSE_LANES];
};

void fuse_lanes_init(struct fuse_lanes *l);
void fuse_lanes_destroy(struct fuse_lanes *l);

/** enum fuse_lane_turn - what fuse_lane_enter() says */
enum fuse_lane_turn {
	FUSE_LANE_GO,	/* run @job, then call fuse_lane_next() */
	FUSE_LANE_WAIT, /* @job will be handed out by fuse_lane_next() */
	FUSE_LANE_NONE, /* no lane is free: run @job, and that is all */
};

/** fuse_lane_enter() - @job wants the lock of @node (not 0). Any thread. */
enum fuse_lane_turn fuse_lane_enter(struct fuse_lanes *l, uint64_t node, struct fuse_job *job);
/** fuse_lane_next() - who had the turn on @node is done: the next to run, or NULL */
struct fuse_job *fuse_lane_next(struct fuse_lanes *l, uint64_t node);

#endif
