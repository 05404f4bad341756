/* SPDX-License-Identifier: Apache-2.0 */
/* The relief thread: see vhost_relief.c. */
#ifndef DAXMAP_VHOST_RELIEF_H
#define DAXMAP_VHOST_RELIEF_H

#include <pthread.h>
#include <stdbool.h>

#include "util_lock.h"

struct vhost_queue;

/** struct vhost_relief - @lock is outermost: a queue's may be taken under it, not the reverse */
struct vhost_relief {
	struct util_mutex lock;
	struct util_cond wake;
	pthread_t thread;
	struct vhost_queue *queues;
	unsigned int n;	 /* 0: there is nobody to relieve */
	bool has_thread; /* main thread */
	bool quit;	 /* under lock */
	bool asleep;	 /* atomic: until vhost_relief_wake() */
};

/** vhost_relief_init() - for the @n queues of the array @queues; without a thread as yet. */
void vhost_relief_init(struct vhost_relief *r, struct vhost_queue *queues, unsigned int n);
void vhost_relief_destroy(struct vhost_relief *r);

/** vhost_relief_begin() - starts the thread unless it runs; main thread. 0 or a negative errno. */
int vhost_relief_begin(struct vhost_relief *r);
/** vhost_relief_end() - ends the thread; main thread, no queue's lock held. */
void vhost_relief_end(struct vhost_relief *r);

void vhost_relief_wake(struct vhost_relief *r);

/** vhost_relief_attend() - a queue's thread, with its queue.risk just made odd (sequentially
 * consistent): sees that somebody looks. */
static inline void vhost_relief_attend(struct vhost_relief *r)
{
	if (__builtin_expect(__atomic_load_n(&r->asleep, __ATOMIC_SEQ_CST), 0))
		vhost_relief_wake(r);
}

#endif
