/* SPDX-License-Identifier: Apache-2.0 */
/* How a queue's thread waits for its next request; see vhost_wait.c. */
#ifndef DAXMAP_VHOST_WAIT_H
#define DAXMAP_VHOST_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct vhost_wait - one waiter
 * @epoll, @wake: descriptors, owned
 * @kick: owned; -1: none, so the ring has to be looked at
 * @kick_fails: the kick descriptor cannot be waited on
 * @kick_drain: what was written to it must be read
 * @max_ns, @poll_ns: how long to poll before sleeping: at most, and now
 */
struct vhost_wait {
	int epoll;
	int wake;
	int kick;
	bool kick_fails;
	bool kick_drain;
	unsigned int max_ns;
	unsigned int poll_ns;
};

/** vhost_wait_init() - @poll_us: the most to poll; 0: never. Aborts without descriptors. */
void vhost_wait_init(struct vhost_wait *w, unsigned int poll_us);
void vhost_wait_destroy(struct vhost_wait *w);

/** vhost_wait_set_kick() - takes @fd over (-1: none). Nobody waits. */
void vhost_wait_set_kick(struct vhost_wait *w, int fd);
/** vhost_wait_reset() - drops the kick and all that has been learned. Nobody waits. */
void vhost_wait_reset(struct vhost_wait *w);

/** vhost_wait_sleep() - until a kick or vhost_wait_wake() that came after the last return, or for
 * a moment where there are no kicks. May return for no reason. */
void vhost_wait_sleep(struct vhost_wait *w);
/** vhost_wait_wake() - ends the sleep, or the next one; any thread. */
void vhost_wait_wake(struct vhost_wait *w);

/** vhost_wait_learn() - something came after @ns of waiting, polling and sleep together */
void vhost_wait_learn(struct vhost_wait *w, uint64_t ns);

#endif
