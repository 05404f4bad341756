// SPDX-License-Identifier: Apache-2.0
/*
 * Stripes and claims.
 *
 * A stripe stands for every 32nd chunk of the window. An operation locks the stripes of its
 * extent in index order, looks, and either answers on the spot or registers a claim on the
 * extent, unlocks, and talks to the driver. What a claim covers is changed by its holder only
 * (pins aside, which need no lock).
 *
 * A claim is registered with each of its stripes, so two that overlap meet in the stripe of any
 * chunk they share. It is granted when no claim with a smaller number overlaps it. Claims grow to
 * whole ranges; one that must grow is registered anew, behind the others, so that nobody waits
 * with a grant in hand.
 */
#include "dm_core.h"

#include "util_yield.h"

uint64_t dm_extent_mask(const struct dm_core *c, uint64_t lo, uint64_t hi)
{
	uint64_t first = lo >> c->chunk_shift;
	uint64_t last = (hi - 1) >> c->chunk_shift;
	uint64_t mask = 0;

	if (last - first >= DM_STRIPES - 1)
		return (UINT64_C(1) << DM_STRIPES) - 1;
	for (uint64_t i = first; i <= last; i++)
		mask |= UINT64_C(1) << (i % DM_STRIPES);
	return mask;
}

void dm_stripes_lock(struct dm_core *c, uint64_t mask) UTIL_NO_TSA
{
	for (; mask; mask &= mask - 1)
		util_mutex_lock(&c->stripes[__builtin_ctzll(mask)].lock);
}

void dm_stripes_unlock(struct dm_core *c, uint64_t mask) UTIL_NO_TSA
{
	for (; mask; mask &= mask - 1)
		util_mutex_unlock(&c->stripes[__builtin_ctzll(mask)].lock);
	util_yield();
}

void dm_stripes_wake(struct dm_core *c, uint64_t mask)
{
	for (; mask; mask &= mask - 1)
		util_cond_broadcast(&c->stripes[__builtin_ctzll(mask)].cond);
}

/* Grows [*lo, *hi) to the ranges that reach into it; true when it grew. */
static bool grow_to_ranges(const struct dm_core *c, uint64_t *lo, uint64_t *hi)
{
	struct dm_range *first = dm_index_lookup(c, *lo);
	struct dm_range *last = dm_index_lookup(c, *hi - 1);
	bool grew = false;

	if (first && first->offset < *lo) {
		*lo = first->offset;
		grew = true;
	}
	if (last && dm_range_end(last) > *hi) {
		*hi = dm_range_end(last);
		grew = true;
	}
	return grew;
}

uint64_t dm_lock_extent(struct dm_core *c, uint64_t lo, uint64_t hi)
{
	uint64_t mask = dm_extent_mask(c, lo, hi);

	for (;;) {
		uint64_t need;

		dm_stripes_lock(c, mask);
		grow_to_ranges(c, &lo, &hi);
		need = dm_extent_mask(c, lo, hi);
		if ((need & ~mask) == 0)
			return mask;
		dm_stripes_unlock(c, mask);
		mask |= need;
	}
}

static bool overlaps(const struct dm_claim *cl, uint64_t lo, uint64_t hi)
{
	return cl->lo < hi && lo < cl->hi;
}

static void register_claim(struct dm_core *c, struct dm_claim *cl)
{
	cl->seq = __atomic_add_fetch(&c->claim_seq, 1, __ATOMIC_RELAXED);
	for (uint64_t m = cl->mask; m; m &= m - 1) {
		struct dm_stripe *s = &c->stripes[__builtin_ctzll(m)];

		if (s->n_claims == s->max_claims) {
			s->max_claims = MAX(4, s->max_claims * 2);
			s->claims = g_renew(struct dm_claim *, s->claims, s->max_claims);
		}
		s->claims[s->n_claims++] = cl;
	}
}

void dm_claim_release(struct dm_core *c, struct dm_claim *cl)
{
	for (uint64_t m = cl->mask; m; m &= m - 1) {
		struct dm_stripe *s = &c->stripes[__builtin_ctzll(m)];
		uint32_t i = 0;

		while (s->claims[i] != cl)
			i++;
		s->n_claims--;
		for (; i < s->n_claims; i++)
			s->claims[i] = s->claims[i + 1];
	}
}

/* The first claim, older than @seq, on [lo, hi). */
static struct dm_claim *find_conflict(const struct dm_core *c, uint64_t mask, uint64_t lo,
				      uint64_t hi, uint64_t seq)
{
	for (; mask; mask &= mask - 1) {
		const struct dm_stripe *s = &c->stripes[__builtin_ctzll(mask)];

		for (uint32_t i = 0; i < s->n_claims; i++)
			if (s->claims[i]->seq < seq && overlaps(s->claims[i], lo, hi))
				return s->claims[i];
	}
	return NULL;
}

bool dm_claimed(const struct dm_core *c, uint64_t lo, uint64_t hi)
{
	return find_conflict(c, dm_extent_mask(c, lo, hi), lo, hi, UINT64_MAX) != NULL;
}

const struct dm_claim *dm_claim_in_the_way(const struct dm_core *c, const struct dm_range *r,
					   uint64_t lo, uint64_t hi)
{
	lo = MAX(lo, r->offset);
	hi = MIN(hi, dm_range_end(r));
	for (uint64_t m = dm_range_mask(c, r); m; m &= m - 1) {
		const struct dm_stripe *s = &c->stripes[__builtin_ctzll(m)];

		for (uint32_t i = 0; i < s->n_claims; i++) {
			const struct dm_claim *x = s->claims[i];

			if (overlaps(x, r->offset, dm_range_end(r)) &&
			    (lo < x->ask_lo || hi > x->ask_hi))
				return x;
		}
	}
	return NULL;
}

bool dm_claim_try(struct dm_core *c, struct dm_claim *cl, uint64_t lo, uint64_t hi)
{
	if (dm_claimed(c, lo, hi))
		return false;
	cl->lo = cl->ask_lo = lo;
	cl->hi = cl->ask_hi = hi;
	cl->mask = dm_extent_mask(c, lo, hi);
	register_claim(c, cl);
	return true;
}

static bool still_there(const struct dm_stripe *s, uint64_t seq)
{
	for (uint32_t i = 0; i < s->n_claims; i++)
		if (s->claims[i]->seq == seq)
			return true;
	return false;
}

/* Sleeps until the claim numbered @seq is gone from the stripe. No stripe is locked. */
static void wait_for_claim(struct dm_core *c, unsigned int stripe, uint64_t seq)
{
	struct dm_stripe *s = &c->stripes[stripe];
	uint64_t start = util_now_ns();

	util_mutex_lock(&s->lock);
	while (still_there(s, seq))
		util_cond_wait(&s->cond, &s->lock);
	util_mutex_unlock(&s->lock);
	dm_count(c, DM_C_waits, 1);
	dm_count(c, DM_C_wait_ns, util_now_ns() - start);
}

void dm_claim_wait(struct dm_core *c, uint64_t mask, const struct dm_claim *x)
{
	unsigned int stripe = (unsigned int)__builtin_ctzll(mask & x->mask);
	uint64_t seq = x->seq;

	dm_stripes_unlock(c, mask);
	wait_for_claim(c, stripe, seq);
}

/*
 * Withdraws the unmap behind claim @seq if it is still queued: the range lingers again, the
 * claim is gone. All stripes of claim and range are locked.
 */
static bool withdraw(struct dm_core *c, uint64_t mask, uint64_t seq)
{
	struct dm_stripe *s = &c->stripes[__builtin_ctzll(mask)];

	for (uint32_t i = 0; i < s->n_claims; i++) {
		struct dm_claim *x = s->claims[i];

		if (x->seq != seq)
			continue;
		if (!x->req || !dm_submit_cancel(c, x->req, x->slot))
			return false;
		dm_claim_release(c, x);
		dm_range_linger_locked(c, x->range);
		x->range->withdrawn = true;
		dm_budget_unmapped(c, 1);
		return true;
	}
	return true;
}

/* Gets rid of @x, which is older than we are; its stripes within @mask are locked, and are
 * again on return, but nothing seen before holds. */
static void wait_conflict(struct dm_core *c, uint64_t mask, const struct dm_claim *x)
{
	unsigned int stripe = (unsigned int)__builtin_ctzll(mask & x->mask);
	uint64_t x_mask = x->mask, seq = x->seq;
	bool queued = x->req != NULL;
	bool gone = false;

	/* once unlocked x may be gone: only its number is used from here on */
	dm_stripes_unlock(c, mask);
	if (queued) {
		dm_stripes_lock(c, x_mask);
		gone = withdraw(c, x_mask, seq);
		dm_stripes_unlock(c, x_mask);
		if (gone)
			dm_stripes_wake(c, x_mask);
	}
	if (!gone)
		wait_for_claim(c, stripe, seq);
	dm_stripes_lock(c, mask);
}

/* @cl: .ask_lo and .ask_hi are filled in. */
static void acquire(struct dm_core *c, struct dm_claim *cl, uint64_t lo, uint64_t hi)
{
	struct dm_claim *x;

	for (;;) {
		cl->lo = lo;
		cl->hi = hi;
		cl->mask = dm_extent_mask(c, lo, hi);
		dm_stripes_lock(c, cl->mask);
		register_claim(c, cl);
		while ((x = find_conflict(c, cl->mask, lo, hi, cl->seq)))
			wait_conflict(c, cl->mask, x);
		if (!grow_to_ranges(c, &lo, &hi))
			return;
		dm_claim_release(c, cl);
		dm_stripes_unlock(c, cl->mask);
		dm_stripes_wake(c, cl->mask);
	}
}

void dm_claim_acquire(struct dm_core *c, struct dm_claim *cl, uint64_t lo, uint64_t hi)
{
	*cl = (struct dm_claim){.ask_lo = lo, .ask_hi = hi};
	acquire(c, cl, lo, hi);
}

void dm_claim_acquire_range(struct dm_core *c, struct dm_claim *cl, const struct dm_range *r)
{
	*cl = (struct dm_claim){.ask_lo = 0, .ask_hi = 0};
	acquire(c, cl, r->offset, dm_range_end(r));
}
