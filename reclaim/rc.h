/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reclaim: which range goes next, how many, and when. Knows no table: it sees a node embedded in
 * whatever may be reclaimed, and callbacks.
 */
#ifndef DAXMAP_RC_H
#define DAXMAP_RC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

#include "util_lock.h"

/**
 * struct rc_node - embedded in a candidate
 * @stamp: when it joined, CLOCK_MONOTONIC ns
 * @shard: which part of the set it belongs to; constant while queued
 * @queued: in the set; under the shard's lock
 * @referenced: clock: used since the hand came by; any thread may set it, without a lock
 */
struct rc_node {
	struct cds_list_head link;
	uint64_t stamp;
	uint8_t shard;
	bool queued;
	bool referenced;
};

enum rc_verdict {
	RC_TAKEN, /* the caller has claimed it, and taken it out of the set */
	RC_BUSY,  /* in use: stays, looked at again later */
	RC_GONE,  /* somebody else has it, or it left the set meanwhile */
};

/**
 * struct rc_ops - what the set asks of its user
 * @hold: keeps @n from being freed; called under the shard's lock: takes no other
 * @claim: tries to claim it; no lock of reclaim held; may take the user's locks
 * @drop: undoes hold
 */
struct rc_ops {
	void (*hold)(void *ctx, struct rc_node *n);
	enum rc_verdict (*claim)(void *ctx, void *batch, struct rc_node *n);
	void (*drop)(void *ctx, struct rc_node *n);
};

enum rc_policy {
	RC_FIFO,  /* oldest first */
	RC_CLOCK, /* oldest first, but what was referenced gets another round */
};

struct rc_set;

/** rc_set_new() - @ops and @ctx are borrowed for the life of the set. */
struct rc_set *rc_set_new(enum rc_policy policy, const struct rc_ops *ops, void *ctx);
/** rc_set_set_policy() - from the next collection on; any thread. */
void rc_set_set_policy(struct rc_set *set, enum rc_policy policy);
/** rc_set_free() - must be empty. */
void rc_set_free(struct rc_set *set);

/** rc_node_init() - @hint spreads nodes over the shards. */
void rc_node_init(struct rc_node *n, unsigned int hint);
/** rc_add() - joins at the young end. @now_ns as its stamp. The node must not be queued. */
void rc_add(struct rc_set *set, struct rc_node *n, uint64_t now_ns);
/** rc_del() - leaves; fine if it is not queued. */
void rc_del(struct rc_set *set, struct rc_node *n);
/** rc_replace() - @new, none of them queued, take the place and stamp of @old. */
void rc_replace(struct rc_set *set, struct rc_node *old, struct rc_node **new, size_t n);
/** rc_count() - how many are queued now. */
size_t rc_count(const struct rc_set *set);
/** rc_oldest() - stamp of the oldest; false when empty. */
bool rc_oldest(struct rc_set *set, uint64_t *stamp);
/** rc_queued() - for checks only. */
bool rc_queued(struct rc_set *set, struct rc_node *n);

/**
 * rc_collect() - claims up to @want nodes stamped before @before_ns, oldest first
 * @batch: passed to the claim callback
 * @busy: if not NULL, the number of nodes found in use is added
 *
 * Looks at each node at most about once. Returns how many were claimed. No lock held.
 */
size_t rc_collect(struct rc_set *set, size_t want, uint64_t before_ns, void *batch, size_t *busy);

/*
 * Cost: what a map took, against how many mappings were live.
 */
#define RC_COST_BINS 16

/** struct rc_cost - by power of two of live mappings, a moving average in ns; 0 = no sample */
struct rc_cost {
	uint64_t ns[RC_COST_BINS];
};

/** rc_cost_add() - any thread, no lock; samples may be lost to races. */
void rc_cost_add(struct rc_cost *c, uint32_t live, uint64_t ns);
/** rc_cost_dearer() - how much dearer a map is at @live mappings than at the fewest measured,
 * in percent: 100 = the same, or nothing known. */
uint32_t rc_cost_dearer(const struct rc_cost *c, uint32_t live);

/**
 * struct rc_load - what the policy decides on
 * @idle: candidates
 * @mapped: mappings live
 * @budget: how many may be; 0 = no limit
 * @bytes: mapped bytes
 * @window: window size, bytes; 0 = no limit, as filling it costs nothing
 * @dearer: rc_cost_dearer() now, percent
 * @overlay: a map may simply replace a candidate
 */
struct rc_load {
	size_t idle;
	uint64_t mapped;
	uint64_t budget;
	uint64_t bytes;
	uint64_t window;
	uint32_t dearer;
	bool overlay;
};

/**
 * struct rc_marks - the policy's constants
 * @high: percent of budget or window above which the worker drains
 * @low: percent down to which it drains
 * @linger_ns: age at which a candidate goes all the same; 0 = by cost
 *
 * Those that a worker looks at may change under it: rc_marks_load(), rc_marks_store(). Each field
 * is one, so a decision may see some old and some new; the next one does not.
 */
struct rc_marks {
	uint32_t high;
	uint32_t low;
	uint64_t linger_ns;
};

static inline struct rc_marks rc_marks_load(const struct rc_marks *m)
{
	return (struct rc_marks){
		.high = __atomic_load_n(&m->high, __ATOMIC_RELAXED),
		.low = __atomic_load_n(&m->low, __ATOMIC_RELAXED),
		.linger_ns = __atomic_load_n(&m->linger_ns, __ATOMIC_RELAXED),
	};
}

static inline void rc_marks_store(struct rc_marks *m, const struct rc_marks *from)
{
	__atomic_store_n(&m->high, from->high, __ATOMIC_RELAXED);
	__atomic_store_n(&m->low, from->low, __ATOMIC_RELAXED);
	__atomic_store_n(&m->linger_ns, from->linger_ns, __ATOMIC_RELAXED);
}

/** struct rc_decision - @want candidates at once, whatever their age; all older than @age_ns */
struct rc_decision {
	size_t want;
	uint64_t age_ns;
};

struct rc_decision rc_decide(const struct rc_load *load, const struct rc_marks *marks,
			     bool pressure);
/** rc_above_high() - is the load above the high watermark? */
bool rc_above_high(const struct rc_load *load, const struct rc_marks *marks);

/*
 * The worker thread.
 */
struct rc_worker;

enum rc_drained {
	RC_DRAINED,
	RC_IN_USE,  /* some that should have gone are in use */
	RC_REFUSED, /* none went, as the other side refuses */
};

/**
 * struct rc_worker_ops - what the worker asks of its user
 * @load: fills in the load; any cost
 * @drain: evicts up to @want candidates and then all stamped before @before_ns; blocks
 */
struct rc_worker_ops {
	void (*load)(void *ctx, struct rc_load *load);
	enum rc_drained (*drain)(void *ctx, size_t want, uint64_t before_ns);
	bool (*oldest)(void *ctx, uint64_t *stamp);
};

/** rc_worker_new() - starts the thread. Opens the memory pressure file, if there is one, before
 * it returns. @marks, @ops and @ctx are borrowed. */
struct rc_worker *rc_worker_new(const struct rc_marks *marks, const struct rc_worker_ops *ops,
				void *ctx);
/** rc_worker_new_with_psi() - as rc_worker_new(); @psi_fd, which is closed in the end, says POLLPRI
 * when memory is short; -1: nothing does. */
struct rc_worker *rc_worker_new_with_psi(const struct rc_marks *marks,
					 const struct rc_worker_ops *ops, void *ctx, int psi_fd);
/** rc_psi_open() - a trigger set in the pressure file @path, or -1. */
int rc_psi_open(const char *path);
/** rc_worker_free() - stops it in whatever state it is; waits for a drain under way. */
void rc_worker_free(struct rc_worker *w);
/**
 * rc_worker_kick() - a candidate has come
 * @urgent: the load is above the high watermark
 *
 * One atomic load unless the worker sleeps without a reason to wake up in time.
 */
void rc_worker_kick(struct rc_worker *w, bool urgent);
/** rc_worker_look() - has it decide anew, by marks that have changed; any thread. NULL is fine. */
void rc_worker_look(struct rc_worker *w);
/** rc_worker_passes() - how many times it woke up and decided. */
uint64_t rc_worker_passes(const struct rc_worker *w);

#endif
