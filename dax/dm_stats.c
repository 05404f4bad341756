// SPDX-License-Identifier: Apache-2.0
/*
 * Counters: sharded by thread, summed by the reader.
 *
 * A thread has a shard to itself for as long as it lives, so that it counts with a plain add; when
 * more threads live than there are shards, the others share the last one and count atomically.
 */
#include "dm_core.h"

#include <pthread.h>

#define OWN_SHARDS (DM_SHARDS - 1)
G_STATIC_ASSERT(OWN_SHARDS <= 64);

_Thread_local unsigned int dm_shard_of_thread; /* 1 + its number; 0 = not looked for yet */
unsigned int dm_shards_high;

static uint64_t taken;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A thread ends: the next to come may go on counting where it stopped. */
static void give_shard_back(void *value)
{
	unsigned int shard = GPOINTER_TO_UINT(value) - 1;

	dm_shard_of_thread = DM_SHARDS;
	if (shard < OWN_SHARDS)
		__atomic_fetch_and(&taken, ~(UINT64_C(1) << shard), __ATOMIC_RELEASE);
}

static void make_key(void)
{
	if (pthread_key_create(&key, give_shard_back) != 0)
		g_error("pthread_key_create: out of keys");
}

/* Before this thread writes anything: who reads all shards then looks at it. */
static void note_high(unsigned int n)
{
	unsigned int old = __atomic_load_n(&dm_shards_high, __ATOMIC_RELAXED);

	n = MIN(n, OWN_SHARDS);
	while (old < n && !__atomic_compare_exchange_n(&dm_shards_high, &old, n, true,
						       __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
}

unsigned int dm_thread_shard_slow(void)
{
	uint64_t old = __atomic_load_n(&taken, __ATOMIC_RELAXED);
	unsigned int shard;

	pthread_once(&once, make_key);
	do {
		shard = ~old ? (unsigned int)__builtin_ctzll(~old) : OWN_SHARDS;
		if (shard >= OWN_SHARDS) {
			shard = OWN_SHARDS;
			break;
		}
	} while (!__atomic_compare_exchange_n(&taken, &old, old | UINT64_C(1) << shard, true,
					      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	note_high(shard + 1);
	dm_shard_of_thread = shard + 1;
	pthread_setspecific(key, GUINT_TO_POINTER(shard + 1));
	return shard;
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
		n += __atomic_load_n(&c->counters[i].v[what], __ATOMIC_ACQUIRE);
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
