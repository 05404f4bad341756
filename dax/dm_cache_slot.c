// SPDX-License-Identifier: Apache-2.0
/*
 * Free slots: a FIFO, and a magazine of a few for each counting shard (as good as each thread),
 * filled from the FIFO several at a time. What is freed joins the FIFO. Small windows have no
 * magazines; where there are some, an empty FIFO makes a taker look into the others', so no slot
 * is out of reach.
 */
#include "dm_cache.h"

void dm_slots_init(struct dm_slots *s, uint32_t n)
{
	s->n = n;
	s->free = n;
	s->count = n;
	s->load = MIN(DM_MAGAZINE, n / 64);
	s->ring = g_new(uint32_t, n);
	for (uint32_t i = 0; i < n; i++)
		s->ring[i] = i;
	util_mutex_init(&s->lock);
	for (unsigned int i = 0; i < DM_SHARDS; i++)
		util_mutex_init(&s->magazines[i].lock);
}

void dm_slots_destroy(struct dm_slots *s)
{
	for (unsigned int i = 0; i < DM_SHARDS; i++)
		util_mutex_destroy(&s->magazines[i].lock);
	util_mutex_destroy(&s->lock);
	g_free(s->ring);
}

/* Up to @want of the FIFO. */
static uint32_t take(struct dm_slots *s, uint32_t *slots, uint32_t want)
{
	uint32_t n;

	util_mutex_lock(&s->lock);
	want = MIN(want, s->count);
	for (n = 0; n < want; n++) {
		slots[n] = s->ring[s->head];
		s->head = (s->head + 1) % s->n;
	}
	s->count -= want;
	util_mutex_unlock(&s->lock);
	return n;
}

static bool pop_magazine(struct dm_slots *s, struct dm_magazine *m, uint32_t *slot, bool fill)
{
	bool got;

	util_mutex_lock(&m->lock);
	if (m->n == 0 && fill)
		m->n = take(s, m->slots, s->load);
	got = m->n > 0;
	if (got) { /* the one that was freed first */
		*slot = m->slots[0];
		m->n--;
		for (uint32_t i = 0; i < m->n; i++)
			m->slots[i] = m->slots[i + 1];
	}
	util_mutex_unlock(&m->lock);
	return got;
}

static bool pop(struct dm_slots *s, uint32_t *slot)
{
	if (!s->load)
		return take(s, slot, 1) == 1;
	if (pop_magazine(s, &s->magazines[dm_thread_shard()], slot, true))
		return true;
	for (unsigned int i = 0; i < DM_SHARDS; i++)
		if (pop_magazine(s, &s->magazines[i], slot, false))
			return true;
	return false;
}

bool dm_slots_pop(struct dm_slots *s, uint32_t *slot)
{
	if (__atomic_load_n(&s->free, __ATOMIC_SEQ_CST) == 0 || !pop(s, slot))
		return false;
	__atomic_sub_fetch(&s->free, 1, __ATOMIC_RELAXED);
	return true;
}

void dm_slots_push(struct dm_slots *s, uint32_t slot)
{
	util_mutex_lock(&s->lock);
	g_assert(s->count < s->n && slot < s->n);
	s->ring[(s->head + s->count++) % s->n] = slot;
	__atomic_add_fetch(&s->free, 1, __ATOMIC_SEQ_CST); /* before who frees looks for sleepers */
	util_mutex_unlock(&s->lock);
}
