/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock table of libdaxmap. Order = order of declaration; a thread that holds one may take
 * only what stands below it. None is held across a driver call, a provider call, or a grace
 * period.
 *
 *  lock               guards                                      edge taken in
 *  -----------------  ------------------------------------------  -----------------------------
 *  dm_stripe.lock     the window index of its chunks, the state   several at once, in index
 *                     and ownership of every range that touches   order: dm_stripes_lock()
 *                     them, the claims on them
 *  dm_file_stripe     file keys of its hash, their list of        dm_index_update() under
 *                     ranges                                      stripes
 *  hash_locks         chains of the file index, guest seat        dm_index_update() under
 *                                                                 stripes; dm_index_hide() too
 *  rc_shard.lock      a part of the list of lingering ranges      dm_range_linger(),
 *                                                                 dm_range_unlinger() under
 *                                                                 stripes
 *  dm_chan.lock       requests queued for the driver              dm_submit_cancel() under
 *                                                                 stripes
 *  dm_budget.lock     sleepers waiting for a free mapping         leaf: dm_budget_wake() under
 *                                                                 stripes, dm_budget_wait()
 *  dm_core.orphans_lock  ranges dropped while pinned              leaf
 *  dm_cells.lock      free pin cells                              leaf: dm_range_new() under
 *                                                                 stripes
 *
 * The guest seat adds: dm_join.lock (misses under way), dm_magazine.lock above dm_slots.lock (free
 * slots: pop_magazine()), dm_sleep.lock. None is taken with another lock held but that one, and
 * nothing is taken under dm_join.lock. dm_vanilla.one, of the baseline only, stands above all.
 *
 * A range belongs to all stripes that its extent touches. Whoever holds one of them may read its
 * state; whoever changes it holds them all. dm_lock_extent() takes an extent's stripes and, with
 * them, those of every range that reaches into it.
 *
 * What waits for the driver is a claim (struct dm_claim), not a lock: an extent of the window,
 * and the ranges in it, belong to one asker until the claim is released. Claims are granted in
 * the order of registration and nobody waits for a second claim while holding one (others are
 * only tried), so they cannot deadlock.
 */
#ifndef DAXMAP_DM_LOCKS_H
#define DAXMAP_DM_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "util_lock.h"

#define DM_STRIPES 32 /* ThreadSanitizer cannot follow 64 locks held by one thread */
#define DM_FILE_STRIPES 16

struct dm_chan_request;
struct dm_core;
struct dm_range;

/**
 * struct dm_claim - one asker's right to an extent of the window while the driver works
 * @lo: first byte
 * @hi: one past the last
 * @ask_lo: what was asked for, before it grew to whole ranges: within it, a remove may as well
 *          have come before the holder, and need not wait
 * @ask_hi: one past its last byte
 * @seq: order of registration
 * @mask: the stripes it is registered with
 * @req: the queued request that holds the unmap which this claim is for, or NULL: then the
 *       claim cannot be withdrawn
 * @slot: which operation of @req
 * @range: the range being unmapped; with @req
 */
struct dm_claim {
	uint64_t lo;
	uint64_t hi;
	uint64_t ask_lo;
	uint64_t ask_hi;
	uint64_t seq;
	uint64_t mask;
	struct dm_chan_request *req;
	uint32_t slot;
	struct dm_range *range;
};

struct dm_stripe {
	struct util_mutex lock;
	struct util_cond cond;
	struct dm_claim **claims; /* ascending seq */
	uint32_t n_claims;
	uint32_t max_claims;
} __attribute__((aligned(64)));

/** dm_extent_mask() - the stripes that [lo, hi) touches. */
uint64_t dm_extent_mask(const struct dm_core *c, uint64_t lo, uint64_t hi);
void dm_stripes_lock(struct dm_core *c, uint64_t mask);
void dm_stripes_unlock(struct dm_core *c, uint64_t mask);
/** dm_stripes_wake() - wakes all sleepers of these stripes. No lock needed. */
void dm_stripes_wake(struct dm_core *c, uint64_t mask);

/**
 * dm_lock_extent() - locks the stripes of [lo, hi) and of every range that reaches into it
 *
 * Returns the mask to unlock.
 */
uint64_t dm_lock_extent(struct dm_core *c, uint64_t lo, uint64_t hi);

/**
 * dm_claim_acquire() - waits until [lo, hi), grown to whole ranges, belongs to @cl
 *
 * Withdraws queued unmaps that are in the way. On return the stripes of cl->mask are locked.
 */
void dm_claim_acquire(struct dm_core *c, struct dm_claim *cl, uint64_t lo, uint64_t hi);

/** dm_claim_acquire_range() - as dm_claim_acquire(), for one who wants the range as it is: a
 * remove must not pass over it. */
void dm_claim_acquire_range(struct dm_core *c, struct dm_claim *cl, const struct dm_range *r);

/**
 * dm_claim_try() - claims [lo, hi), whose stripes are locked, unless somebody else has a claim
 * there. Fill in @req, @slot and @range before.
 */
bool dm_claim_try(struct dm_core *c, struct dm_claim *cl, uint64_t lo, uint64_t hi);

/** dm_claim_release() - gives the claim up; its stripes are locked. Wake them once unlocked. */
void dm_claim_release(struct dm_core *c, struct dm_claim *cl);

/**
 * dm_claim_in_the_way() - a claim on @r that a remove of [lo, hi), part of it, must wait for
 *
 * One that asked for other bytes, and only grew to @r, or only looks at it: the remove is not
 * answered by what that one does. NULL: none. The stripes of @r are locked.
 */
const struct dm_claim *dm_claim_in_the_way(const struct dm_core *c, const struct dm_range *r,
					   uint64_t lo, uint64_t hi);

/** dm_claim_wait() - unlocks the stripes in @mask and sleeps until @x, seen under them, is gone. */
void dm_claim_wait(struct dm_core *c, uint64_t mask, const struct dm_claim *x);

/** dm_claimed() - does anybody have a claim on [lo, hi)? Its stripes are locked. */
bool dm_claimed(const struct dm_core *c, uint64_t lo, uint64_t hi);

#endif
