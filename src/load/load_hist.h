/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies in logarithmic buckets, 32 to each power of two: about 3% wide, up to hours. */
#ifndef DAXMAP_LOAD_HIST_H
#define DAXMAP_LOAD_HIST_H

#include <stdint.h>

#define LOAD_HIST_SUB 32u
#define LOAD_HIST_BUCKETS (LOAD_HIST_SUB * 40)

/** struct load_hist - ns; of one thread until merged */
struct load_hist {
	uint64_t count;
	uint64_t max;
	uint64_t bucket[LOAD_HIST_BUCKETS];
};

static inline unsigned int load_hist_index(uint64_t ns)
{
	unsigned int log;

	if (ns < LOAD_HIST_SUB)
		return (unsigned int)ns;
	log = 63 - (unsigned int)__builtin_clzll(ns) - 5; /* 5 = log2(LOAD_HIST_SUB) */
	if (log > 38)
		return LOAD_HIST_BUCKETS - 1;
	return (log + 1) * LOAD_HIST_SUB + (unsigned int)((ns >> log) - LOAD_HIST_SUB);
}

static inline void load_hist_add(struct load_hist *h, uint64_t ns)
{
	h->count++;
	h->bucket[load_hist_index(ns)]++;
	if (ns > h->max)
		h->max = ns;
}

void load_hist_merge(struct load_hist *to, const struct load_hist *from);
/** load_hist_quantile() - ns that a part @q (0..1) of all were at or below, to a bucket's width */
uint64_t load_hist_quantile(const struct load_hist *h, double q);

#endif
