// SPDX-License-Identifier: Apache-2.0
/*
 * Two buffered writes of one file, or two changes of one directory, exclude each other inside the
 * kernel (i_rwsem). Given to two workers at once, the second spins and sleeps there: one more
 * thread, no more progress, twice the CPU time, and a run that looks as if it had waited for a
 * disk. So at most one of them is in the pool at a time; the others wait here, cost nothing, and
 * are run by the worker that had the turn before, without a change of threads.
 *
 * A lane is an exact object, not a hash of it: a stuck file must not delay another.
 */
#include "fuse_lane.h"

#include <string.h>

void fuse_lanes_init(struct fuse_lanes *l)
{
	memset(l, 0, sizeof(*l));
	util_mutex_init(&l->lock);
}

void fuse_lanes_destroy(struct fuse_lanes *l)
{
	util_mutex_destroy(&l->lock);
}

/* The lane of @node, or a free one, or NULL. */
static struct fuse_lane *find(struct fuse_lanes *l, uint64_t node) UTIL_REQUIRES(l->lock)
{
	struct fuse_lane *free_lane = NULL;

	for (unsigned int i = 0; i < l->n; i++) {
		if (l->lanes[i].node == node)
			return &l->lanes[i];
		if (!l->lanes[i].node)
			free_lane = &l->lanes[i];
	}
	if (!free_lane && l->n < FUSE_LANES)
		free_lane = &l->lanes[l->n++];
	return free_lane;
}

enum fuse_lane_turn fuse_lane_enter(struct fuse_lanes *l, uint64_t node, struct fuse_job *job)
{
	enum fuse_lane_turn turn = FUSE_LANE_NONE;
	struct fuse_lane *lane;

	util_mutex_lock(&l->lock);
	lane = find(l, node);
	if (lane && lane->node) {
		job->next = NULL;
		*lane->tail = job;
		lane->tail = &job->next;
		turn = FUSE_LANE_WAIT;
	} else if (lane) {
		*lane = (struct fuse_lane){.node = node, .tail = &lane->head};
		turn = FUSE_LANE_GO;
	}
	util_mutex_unlock(&l->lock);
	return turn;
}

struct fuse_job *fuse_lane_next(struct fuse_lanes *l, uint64_t node)
{
	struct fuse_job *job = NULL;

	util_mutex_lock(&l->lock);
	for (unsigned int i = 0; i < l->n; i++) {
		struct fuse_lane *lane = &l->lanes[i];

		if (lane->node != node)
			continue;
		job = lane->head;
		if (!job) {
			lane->node = 0;
			while (l->n && !l->lanes[l->n - 1].node)
				l->n--;
			break;
		}
		lane->head = job->next;
		if (!lane->head)
			lane->tail = &lane->head;
		break;
	}
	util_mutex_unlock(&l->lock);
	return job;
}
