// SPDX-License-Identifier: Apache-2.0
/*
 * Open addressing with linear probing; the keys are hashes already. Keys are never taken out one
 * by one: the counter of distinct keys throws away half of them when it is full, by the bit of the
 * hash that comes next, which is what makes it a uniform sample (SHARDS, Waldspurger et al. 2015).
 */
#include "size_blocks.h"

#include <glib.h>

#define FIRST_SLOTS 4096u
#define SHIFT_MAX 32u

struct size_blocks {
	uint64_t *keys;
	uint32_t *ids;
	uint32_t slots; /* a power of two */
	uint32_t count;
	unsigned int shift;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93u;
	return x ^ x >> 32;
}

uint64_t size_block_key(uint64_t hi, uint64_t lo, uint64_t index)
{
	uint64_t h = mix(mix(mix(hi + 0x9e3779b97f4a7c15u) ^ lo) + index);

	return h ? h : 1;
}

static bool in_sample(uint64_t key, unsigned int shift)
{
	return shift == 0 || key >> (64 - shift) == 0;
}

struct size_blocks *size_blocks_new(unsigned int shift)
{
	struct size_blocks *b = g_new0(struct size_blocks, 1);

	b->shift = MIN(shift, SHIFT_MAX);
	b->slots = FIRST_SLOTS;
	b->keys = g_new0(uint64_t, b->slots);
	b->ids = g_new0(uint32_t, b->slots);
	return b;
}

void size_blocks_free(struct size_blocks *b)
{
	if (!b)
		return;
	g_free(b->keys);
	g_free(b->ids);
	g_free(b);
}

/* Where @key is, or where it would be put. */
static uint32_t slot_of(const struct size_blocks *b, uint64_t key)
{
	uint32_t i = (uint32_t)key & (b->slots - 1);

	while (b->keys[i] && b->keys[i] != key)
		i = (i + 1) & (b->slots - 1);
	return i;
}

static void grow(struct size_blocks *b)
{
	uint64_t *keys = b->keys;
	uint32_t *ids = b->ids;
	uint32_t n = b->slots;

	b->slots *= 2;
	b->keys = g_new0(uint64_t, b->slots);
	b->ids = g_new0(uint32_t, b->slots);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at;

		if (!keys[i])
			continue;
		at = slot_of(b, keys[i]);
		b->keys[at] = keys[i];
		b->ids[at] = ids[i];
	}
	g_free(keys);
	g_free(ids);
}

bool size_blocks_lookup(const struct size_blocks *b, uint64_t key, uint32_t *id)
{
	uint32_t i = slot_of(b, key);

	*id = b->ids[i];
	return b->keys[i] != 0;
}

bool size_blocks_find(struct size_blocks *b, uint64_t key, uint32_t *id, bool *is_new)
{
	uint32_t i;

	*is_new = false;
	if (!in_sample(key, b->shift))
		return false;
	i = slot_of(b, key);
	if (!b->keys[i]) {
		if (b->count == SIZE_BLOCKS_MAX)
			return false;
		if (b->count >= b->slots / 2) {
			grow(b);
			i = slot_of(b, key);
		}
		b->keys[i] = key;
		b->ids[i] = b->count++;
		*is_new = true;
	}
	*id = b->ids[i];
	return true;
}

uint32_t size_blocks_count(const struct size_blocks *b)
{
	return b->count;
}

/* --- counting --- */

struct size_distinct {
	struct size_blocks *b;
};

struct size_distinct *size_distinct_new(void)
{
	struct size_distinct *d = g_new0(struct size_distinct, 1);

	d->b = size_blocks_new(0);
	return d;
}

void size_distinct_free(struct size_distinct *d)
{
	if (!d)
		return;
	size_blocks_free(d->b);
	g_free(d);
}

/* Keeps the half of the sample whose next bit is 0. */
static void halve(struct size_distinct *d)
{
	struct size_blocks *old = d->b;

	d->b = size_blocks_new(old->shift + 1);
	for (uint32_t i = 0; i < old->slots; i++) {
		uint32_t id;
		bool is_new;

		if (old->keys[i])
			size_blocks_find(d->b, old->keys[i], &id, &is_new);
	}
	size_blocks_free(old);
}

void size_distinct_add(struct size_distinct *d, uint64_t key)
{
	bool is_new;
	uint32_t id;

	while (!size_blocks_find(d->b, key, &id, &is_new) && in_sample(key, d->b->shift) &&
	       d->b->shift < SHIFT_MAX)
		halve(d);
}

uint64_t size_distinct_count(const struct size_distinct *d)
{
	return (uint64_t)d->b->count << d->b->shift;
}

unsigned int size_distinct_shift(const struct size_distinct *d)
{
	return d->b->shift;
}
