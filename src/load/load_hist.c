// SPDX-License-Identifier: Apache-2.0
#include "load_hist.h"

void load_hist_merge(struct load_hist *to, const struct load_hist *from)
{
	to->count += from->count;
	if (from->max > to->max)
		to->max = from->max;
	for (unsigned int i = 0; i < LOAD_HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

/* The highest value that falls into bucket @i. */
static uint64_t upper(unsigned int i)
{
	unsigned int log = i / LOAD_HIST_SUB;
	uint64_t sub = i % LOAD_HIST_SUB;

	if (!log)
		return sub;
	return ((sub + LOAD_HIST_SUB + 1) << (log - 1)) - 1;
}

uint64_t load_hist_quantile(const struct load_hist *h, double q)
{
	uint64_t want = (uint64_t)(q * (double)h->count);
	uint64_t seen = 0;

	if (!h->count)
		return 0;
	if (want >= h->count)
		return h->max;
	for (unsigned int i = 0; i < LOAD_HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen > want)
			return upper(i) < h->max ? upper(i) : h->max;
	}
	return h->max;
}
