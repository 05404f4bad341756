// SPDX-License-Identifier: Apache-2.0
/*
 * The budget: how many mappings the driver may hold for us. A map is reserved before it is sent
 * and released when the driver refused it, or once an unmap has been done; so the number reserved
 * is never below what the other side holds.
 */
#include "dm_core.h"

void dm_budget_init(struct dm_core *c, uint32_t limit)
{
	struct dm_budget *b = &c->budget;

	b->hard = c->caps.max_mappings ? c->caps.max_mappings : UINT32_MAX;
	b->limit = limit ? MIN(limit, b->hard) : b->hard;
	util_mutex_init(&b->lock);
	util_cond_init(&b->cond);
}

static void note_peak(struct dm_budget *b, uint32_t mapped)
{
	uint32_t peak = __atomic_load_n(&b->peak, __ATOMIC_RELAXED);

	while (peak < mapped && !__atomic_compare_exchange_n(&b->peak, &peak, mapped, true,
							     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

bool dm_budget_reserve(struct dm_core *c, uint32_t n, uint32_t limit)
{
	struct dm_budget *b = &c->budget;
	uint32_t m = __atomic_load_n(&b->mapped, __ATOMIC_RELAXED);

	if (DM_MUTATE(2))
		limit = UINT32_MAX;
	do {
		if (n > limit || m > limit - n)
			return n == 0;
	} while (!__atomic_compare_exchange_n(&b->mapped, &m, m + n, true, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
	note_peak(b, m + n);
	return true;
}

void dm_budget_wake(struct dm_core *c)
{
	struct dm_budget *b = &c->budget;

	__atomic_add_fetch(&b->events, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&b->waiters, __ATOMIC_SEQ_CST) == 0)
		return;
	util_mutex_lock(&b->lock);
	util_cond_broadcast(&b->cond);
	util_mutex_unlock(&b->lock);
}

void dm_budget_release(struct dm_core *c, uint32_t n)
{
	uint32_t was;

	if (n == 0)
		return;
	was = __atomic_fetch_sub(&c->budget.mapped, n, __ATOMIC_SEQ_CST);
	g_assert(was >= n);
	dm_budget_wake(c);
}

void dm_budget_unmapping(struct dm_core *c)
{
	__atomic_add_fetch(&c->budget.unmapping, 1, __ATOMIC_SEQ_CST);
}

void dm_budget_unmapped(struct dm_core *c, uint32_t n)
{
	if (n == 0)
		return;
	__atomic_fetch_sub(&c->budget.unmapping, n, __ATOMIC_SEQ_CST);
	dm_budget_wake(c);
}

bool dm_budget_wait(struct dm_core *c, uint32_t seen_events, uint64_t deadline_ns)
{
	struct dm_budget *b = &c->budget;
	bool in_time = true;

	util_mutex_lock(&b->lock);
	__atomic_add_fetch(&b->waiters, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&b->events, __ATOMIC_SEQ_CST) == seen_events)
		in_time = util_cond_wait_until(&b->cond, &b->lock, deadline_ns);
	__atomic_sub_fetch(&b->waiters, 1, __ATOMIC_SEQ_CST);
	util_mutex_unlock(&b->lock);
	return in_time;
}
