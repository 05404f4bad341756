// SPDX-License-Identifier: Apache-2.0
/*
 * A word an entry, so that every step is one atomic operation and nobody waits. 40 bits of the tag
 * stand beside the set's index, so two ranges are confused once in 2^40 looks. Times wrap after 13
 * days; what is that old would be a wrong refault once in 13 days a set: no matter.
 */
#include "policy_int.h"

#define TICK_SHIFT 26
#define TICK_MASK 0xffffffull

static uint64_t ticks(uint64_t ns)
{
	return (ns >> TICK_SHIFT) & TICK_MASK;
}

/* The set comes from the low bits, the upper ones are kept; never 0. */
static uint64_t word_of(uint64_t tag, uint64_t now_ns)
{
	uint64_t w = (tag & ~TICK_MASK) | ticks(now_ns);

	return w ? w : TICK_MASK + 1;
}

static uint64_t age(uint64_t word, uint64_t now_ns)
{
	return (ticks(now_ns) - word) & TICK_MASK;
}

void ghost_add(struct ghost *g, uint64_t tag, uint64_t now_ns)
{
	uint64_t *set = g->words[tag % GHOST_SETS];
	unsigned int victim = 0;
	uint64_t oldest = 0;

	for (unsigned int i = 0; i < GHOST_WAYS; i++) {
		uint64_t w = load(set[i]);
		uint64_t a = w ? age(w, now_ns) + 1 : UINT64_MAX;

		if ((w & ~TICK_MASK) == (tag & ~TICK_MASK))
			a = UINT64_MAX;
		if (a > oldest) {
			oldest = a;
			victim = i;
		}
	}
	store(set[victim], word_of(tag, now_ns));
}

bool ghost_take(struct ghost *g, uint64_t tag, uint64_t now_ns, uint64_t *age_ns)
{
	uint64_t *set = g->words[tag % GHOST_SETS];

	for (unsigned int i = 0; i < GHOST_WAYS; i++) {
		uint64_t w = load(set[i]);

		if (!w || (w & ~TICK_MASK) != (tag & ~TICK_MASK))
			continue;
		if (!__atomic_compare_exchange_n(&set[i], &w, 0, false, __ATOMIC_RELAXED,
						 __ATOMIC_RELAXED))
			return false;
		*age_ns = age(w, now_ns) << TICK_SHIFT;
		return true;
	}
	return false;
}
