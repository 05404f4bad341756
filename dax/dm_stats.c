// SPDX-License-Identifier: Apache-2.0
/* Counters: sharded by thread, summed by the reader. */
#include "dm_core.h"

static _Thread_local unsigned int shard;
static unsigned int next_shard;

unsigned int dm_thread_shard(void)
{
	if (G_UNLIKELY(shard == 0))
		shard = __atomic_add_fetch(&next_shard, 1, __ATOMIC_RELAXED) % DM_SHARDS + 1;
	return shard - 1;
}

void dm_count_latency(struct dm_core *c, uint64_t ns)
{
	unsigned int bucket = ns ? 63u - (unsigned int)__builtin_clzll(ns) : 0;

	bucket = MIN(bucket, DM_HIST_BUCKETS - 1);
	__atomic_fetch_add(&c->counters[dm_thread_shard()].hist[bucket], 1, __ATOMIC_RELAXED);
}

static uint64_t sum(const struct dm_core *c, enum dm_counter what)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < DM_SHARDS; i++)
		n += __atomic_load_n(&c->counters[i].v[what], __ATOMIC_RELAXED);
	return n;
}

void dm_core_stats(struct dm_core *c, struct dm_stats *out)
{
	*out = (struct dm_stats){0};
#define X(name, kind, help) out->name = sum(c, DM_C_##name);
	DM_STATS(X)
#undef X
	for (unsigned int b = 0; b < DM_HIST_BUCKETS; b++)
		for (unsigned int i = 0; i < DM_SHARDS; i++)
			out->map_latency[b] +=
				__atomic_load_n(&c->counters[i].hist[b], __ATOMIC_RELAXED);
	out->reclaimed = out->deferred_unmaps;
	out->reclaim_passes = rc_worker_passes(c->worker);
	out->mapped = __atomic_load_n(&c->budget.mapped, __ATOMIC_RELAXED);
	out->mapped_peak = __atomic_load_n(&c->budget.peak, __ATOMIC_RELAXED);
	out->mapped_bytes = __atomic_load_n(&c->budget.bytes, __ATOMIC_RELAXED);
}
