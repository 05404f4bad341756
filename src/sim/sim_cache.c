// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Slots are an array. One queue runs through those in use, oldest first; FIFO takes its head,
 * CLOCK passes over what was used since it was last looked at and puts it behind, LRU puts behind
 * whatever is used. What a new slot finds free it takes; otherwise it takes a victim's. A reserve
 * is slots that are never filled: reclaim ahead of use empties as many as are filled.
 *
 * Which slot holds a piece is found in an open-addressed hash, twice as large as the slots at
 * least, with deletion by moving the rest of the run back.
 */
#include "sim.h"

#include <glib.h>

#include "util_rcu.h"

#define NONE UINT32_MAX

struct slot {
	uint64_t index;
	uint32_t file;
	uint32_t next;
	uint32_t prev;
	bool referenced;
};

struct sim_cache {
	struct sim_cache_config cfg;
	struct sim_counts n;
	struct slot *slots;
	uint32_t room; /* slots that may be filled */
	uint32_t used;
	uint32_t head, tail;
	uint32_t *hash; /* slot numbers; NONE = empty */
	uint32_t mask;
};

struct sim_cache *sim_cache_new(const struct sim_cache_config *config)
{
	struct sim_cache *c = g_new0(struct sim_cache, 1);
	uint64_t room = config->slots;
	uint32_t size = 4;

	g_return_val_if_fail(config->slots > 0 && config->reserve < 100, NULL);
	c->cfg = *config;
	room -= room * config->reserve / 100;
	if (config->budget)
		room = MIN(room, config->budget);
	c->room = (uint32_t)CLAMP(room, 1, 1u << 28);
	while (size < 2 * c->room)
		size *= 2;
	c->mask = size - 1;
	c->hash = g_new(uint32_t, size);
	c->slots = g_new(struct slot, c->room);
	sim_cache_drop(c);
	return c;
}

void sim_cache_free(struct sim_cache *c)
{
	if (!c)
		return;
	g_free(c->hash);
	g_free(c->slots);
	g_free(c);
}

void sim_cache_drop(struct sim_cache *c)
{
	for (uint32_t i = 0; i <= c->mask; i++)
		c->hash[i] = NONE;
	c->used = 0;
	c->head = c->tail = NONE;
	c->n.live = 0;
}

/* --- hash --- */

static uint32_t bucket_of(const struct sim_cache *c, uint32_t file, uint64_t index)
{
	return (uint32_t)util_hash_u64(index ^ (uint64_t)file << 40) & c->mask;
}

static uint32_t find(const struct sim_cache *c, uint32_t file, uint64_t index, uint32_t *bucket)
{
	uint32_t b = bucket_of(c, file, index);

	while (c->hash[b] != NONE) {
		const struct slot *s = &c->slots[c->hash[b]];

		if (s->index == index && s->file == file)
			break;
		b = (b + 1) & c->mask;
	}
	*bucket = b;
	return c->hash[b];
}

static void forget(struct sim_cache *c, const struct slot *s)
{
	uint32_t hole, b;

	find(c, s->file, s->index, &hole);
	for (b = (hole + 1) & c->mask; c->hash[b] != NONE; b = (b + 1) & c->mask) {
		const struct slot *o = &c->slots[c->hash[b]];
		uint32_t home = bucket_of(c, o->file, o->index);

		/* It may move to the hole unless its home lies behind the hole. */
		if (((b - home) & c->mask) >= ((b - hole) & c->mask)) {
			c->hash[hole] = c->hash[b];
			hole = b;
		}
	}
	c->hash[hole] = NONE;
}

/* --- queue --- */

static void push(struct sim_cache *c, uint32_t i)
{
	struct slot *s = &c->slots[i];

	s->next = NONE;
	s->prev = c->tail;
	if (c->tail != NONE)
		c->slots[c->tail].next = i;
	else
		c->head = i;
	c->tail = i;
}

static void take(struct sim_cache *c, uint32_t i)
{
	struct slot *s = &c->slots[i];

	if (s->prev != NONE)
		c->slots[s->prev].next = s->next;
	else
		c->head = s->next;
	if (s->next != NONE)
		c->slots[s->next].prev = s->prev;
	else
		c->tail = s->prev;
}

static uint32_t victim(struct sim_cache *c)
{
	uint32_t i = c->head;

	while (c->cfg.policy == SIM_CLOCK && c->slots[i].referenced) {
		c->slots[i].referenced = false;
		take(c, i);
		push(c, i);
		i = c->head;
	}
	take(c, i);
	return i;
}

/* --- accesses --- */

static void unmap(struct sim_cache *c)
{
	c->n.unmaps++;
	c->n.ns += c->cfg.cost.unmap + c->cfg.cost.unmap_live * (double)c->n.live;
	c->n.live--;
}

static void map(struct sim_cache *c)
{
	c->n.maps++;
	c->n.ns += c->cfg.cost.map + c->cfg.cost.map_live * (double)c->n.live;
}

static uint32_t make_room(struct sim_cache *c)
{
	uint32_t i;

	if (c->used < c->room)
		return c->used++;
	i = victim(c);
	forget(c, &c->slots[i]);
	/* Slots that are kept free are emptied ahead: nothing is left there to map over. */
	if (c->cfg.overlay && !c->cfg.reserve) {
		c->n.elided++;
		c->n.live--;
	} else {
		unmap(c);
	}
	return i;
}

bool sim_cache_access(struct sim_cache *c, uint32_t file, uint64_t index)
{
	uint32_t bucket, i = find(c, file, index, &bucket);

	c->n.requests++;
	c->n.ns += c->cfg.cost.hit;
	if (i != NONE) {
		c->n.hits++;
		c->slots[i].referenced = true;
		if (c->cfg.policy == SIM_LRU && i != c->tail) {
			take(c, i);
			push(c, i);
		}
		return true;
	}
	c->n.misses++;
	i = make_room(c);
	map(c);
	c->n.live++;
	c->n.live_peak = MAX(c->n.live_peak, c->n.live);
	c->slots[i] = (struct slot){.file = file, .index = index};
	push(c, i);
	find(c, file, index, &bucket); /* the victim's leaving may have moved it */
	c->hash[bucket] = i;
	return false;
}

void sim_cache_counts(const struct sim_cache *c, struct sim_counts *out)
{
	*out = c->n;
}
