/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtqueue and its thread. All functions are for the main thread unless they say otherwise.
 * Lock order: a queue's lock is innermost; no two are held at once.
 */
#ifndef DAXMAP_VHOST_QUEUE_H
#define DAXMAP_VHOST_QUEUE_H

#include <pthread.h>

#include "util_lock.h"
#include "vhost.h"
#include "vhost_ring.h"
#include "vhost_wait.h"

struct elem;

/* A thread that is the queue's, was, or may become it. */
struct vhost_hand {
	struct vhost_queue *q;
	pthread_t thread;
	struct vhost_hand *next; /* of those that have left */
};

/* Counts the elements of one queue that lie in one snapshot of guest memory. */
struct vhost_hold {
	struct vhost_hold *next; /* free list */
	struct vhost_mem *mem;
	uint64_t popped; /* queue thread while current, constant after */
	uint64_t done;	 /* under the queue's lock */
};

/**
 * struct vhost_queue - see vhost_queue.c
 *
 * [L] under @lock; [T] the queue's thread; [M] main thread; [Q] main thread while quiesced.
 */
struct vhost_queue {
	struct vhost_dev *d;
	unsigned int index;
	struct util_mutex lock;
	struct util_cond changed; /* main waits: the thread went idle or out, an element ended */
	struct util_cond go;	  /* the thread waits: a pause ended */
	struct util_cond relief;  /* spare threads wait: the queue has none, or the session ends */

	/* set by messages */
	struct vhost_ring ring;	     /* available side [T], used side [L], the rest [Q] */
	struct vhost_ring_addr addr; /* [M] */
	bool addr_set;		     /* [M] */
	bool kick_set;		     /* [M] */
	int call, err;		     /* [L] */
	bool enabled;		     /* [L] */
	bool ready;		     /* [L] started, not stopped */
	bool broken;		     /* [L] */

	/* threads: [T] is whoever took over last; see relieve() */
	uint64_t risk;		 /* atomic: odd while the thread is in what may block */
	unsigned int hands;	 /* [L] threads that there are */
	unsigned int spares;	 /* [L] of these, wait to take over */
	unsigned int away;	 /* [L], read anywhere: of these, block while another took over */
	bool vacant;		 /* [L] a spare one is to take over */
	struct vhost_hand *left; /* [L] threads that have left, to be joined */
	bool has_thread;	 /* [M] */
	struct vhost_wait wait;	 /* kick [Q], wake any, the rest [T] */
	bool attention;		 /* atomic: look at the fields below */
	unsigned int pause;	 /* [L] */
	bool quit;		 /* [L] */
	bool idle;		 /* [L] the thread waits for go */
	bool out;		 /* [L] the thread is inside a request that is parked */
	bool asleep;		 /* [L] in or near its sleep, pops nothing */
	bool went_out;		 /* [T] */

	/* elements */
	struct elem *free;		/* [L] */
	struct elem *own_free;		/* [T] */
	struct elem *batch;		/* [T] ended by the thread itself, newest first */
	unsigned int batched;		/* [T] how many @batch has */
	bool quick;			/* [T] see flush_due() */
	uint64_t flushed_ns;		/* [T] when the thread last published, or began a batch */
	struct elem *ended;		/* atomic: see elem_combine() */
	struct elem *held, **held_tail; /* [L] ended while stopped */
	struct vhost_hold *hold;	/* [L] written by [T] */
	struct vhost_hold *hold_free;	/* [L] */
	struct vhost_segs segs;		/* [T] */
	uint64_t popped;		/* [T], [Q] */
	uint64_t done;			/* [L] */
	uint64_t parked;		/* [L] */

	/* what a restart is compared with */
	uint32_t epoch;			  /* [L] counts fresh starts */
	uint32_t run_epoch;		  /* [T] */
	uint64_t fresh_popped;		  /* [Q] @popped at the last fresh start */
	bool stopped_once;		  /* [M] saved_* are set */
	uint64_t stop_gen;		  /* [M] vhost_dev.stop_gen when it stopped */
	uint16_t saved_avail, saved_used; /* [M] */
};

void vhost_queue_init(struct vhost_queue *q, struct vhost_dev *d, unsigned int index);
/** vhost_queue_destroy() - the session has ended (vhost_queue_close()). */
void vhost_queue_destroy(struct vhost_queue *q);

/** vhost_queue_quiesce() - waits until the thread neither pops nor runs a request that is not
 * parked; it stays so until vhost_queue_resume(). */
void vhost_queue_quiesce(struct vhost_queue *q);
void vhost_queue_resume(struct vhost_queue *q);

enum vhost_start {
	VHOST_START_FRESH, /* first start, or somewhere else than it stopped */
	VHOST_START_CONT,  /* just where it stopped */
	VHOST_START_RESET, /* fresh, and the driver that used it before is gone */
};

/** vhost_queue_start() - the ring (mapped, kick set) starts at ring.next_avail. Starts the
 * thread. Quiesced. Returns enum vhost_start or a negative errno (no thread). */
int vhost_queue_start(struct vhost_queue *q);

/** vhost_queue_stop() - stops popping, waits for all elements but parked ones; returns the next
 * available index. Idempotent. */
uint16_t vhost_queue_stop(struct vhost_queue *q);

/** vhost_queue_forget() - the device was reset: completions still to come are dropped. The ring
 * is not ready, or quiesced and about to start. */
void vhost_queue_forget(struct vhost_queue *q);

/** vhost_queue_set_kick() - takes @fd over (-1: none, poll instead). Quiesced. */
void vhost_queue_set_kick(struct vhost_queue *q, int fd);
void vhost_queue_enable(struct vhost_queue *q, bool on);
/** vhost_queue_set_call() - takes @fd over (-1: none). */
void vhost_queue_set_call(struct vhost_queue *q, int fd);
void vhost_queue_set_err(struct vhost_queue *q, int fd);

/** vhost_queue_relieve() - the relief thread: the queue's thread has been in what it began when
 * queue.risk became @risk for too long: another takes over, unless it ended just now. */
void vhost_queue_relieve(struct vhost_queue *q, uint64_t risk);

/** vhost_queue_close() - session end, first half: stops, ends the thread unless it is in a parked
 * request. vhost_queue_join() - second half: waits for everything and resets to pristine. */
void vhost_queue_close(struct vhost_queue *q);
void vhost_queue_join(struct vhost_queue *q);

#endif
