// SPDX-License-Identifier: Apache-2.0
/*
 * The table by itself, no VMM:
 *  a  a hit (find the range at an offset, take a reference, drop it) against GHashTable under a
 *     pthread_rwlock and under one mutex, all doing the same work, interleaved: host seat (table,
 *     by window offset) and guest seat (cache, by file and offset)
 *  c  maps a second of the local driver through the table, by threads, on one file and on many
 *  d  bytes of memory a range
 * Usage: dm_micro [OPERATIONS [PARTS]], PARTS being letters of these. Lines that begin with "bench
 * " are for machines. Floor of (a): "alone", the loop with nothing in it; it is part of all the
 * others.
 */
#include <daxmap/cache.h>
#include <daxmap/local.h>
#include <daxmap/table.h>
#include <glib.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench_median.h"
#include "util_lock.h"
#include "window_fake.h"

#define SLOT (UINT64_C(2) << 20)
#define ROUNDS 7

static int mem_fds[64];

static int file_open(void *ctx, struct dm_file_key key, bool *writable)
{
	*writable = true;
	return mem_fds[key.lo % 64];
}

static void file_close(void *ctx, struct dm_file_key key, int fd)
{
}

static const struct dm_file_provider provider = {.open = file_open, .close = file_close};

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s >> 11;
}

/* (a) */

struct entry {
	uint64_t offset;
	uint32_t refs;
	char pad[116]; /* as far apart as the table's ranges */
};

struct hit {
	enum { HIT_TABLE, HIT_CACHE, HIT_RWLOCK, HIT_MUTEX, HIT_ALONE } how;
	struct dm_table *t;
	struct dm_cache *c;
	GHashTable *hash;
	pthread_rwlock_t *rwlock;
	pthread_mutex_t *mutex;
	pthread_barrier_t *start;
	uint64_t slots;
	uint64_t ops;
	uint64_t seed;
	uint64_t own;
	double ns;
} __attribute__((aligned(64)));

static void hit_table(struct hit *h, uint64_t offset)
{
	struct dm_pin pin;

	if (dm_host_pin(h->t, offset, 4096, &pin) != 0)
		abort();
	dm_host_unpin(h->t, &pin);
}

static void hit_cache(struct hit *h, uint64_t offset)
{
	struct dm_ref ref;

	if (dm_cache_get(h->c, (struct dm_file_key){0, offset / SLOT % 64}, offset, 4096, false,
			 &ref) != 0)
		abort();
	dm_cache_put(h->c, &ref);
}

static void hit_hash(struct hit *h, uint64_t offset)
{
	uint64_t key = offset / SLOT * SLOT;
	struct entry *e;

	if (h->how == HIT_RWLOCK)
		pthread_rwlock_rdlock(h->rwlock);
	else
		pthread_mutex_lock(h->mutex);
	e = g_hash_table_lookup(h->hash, &key);
	__atomic_add_fetch(&e->refs, 1, __ATOMIC_ACQUIRE);
	if (h->how == HIT_RWLOCK)
		pthread_rwlock_unlock(h->rwlock);
	else
		pthread_mutex_unlock(h->mutex);
	__atomic_sub_fetch(&e->refs, 1, __ATOMIC_RELEASE);
}

static void *hit_thread(void *arg)
{
	struct hit *h = arg;
	uint64_t s = h->seed, start;

	pthread_barrier_wait(h->start);
	start = util_now_ns();
	for (uint64_t i = 0; i < h->ops; i++) {
		uint64_t offset = rnd(&s) % (h->slots * SLOT / 4096) * 4096;

		switch (h->how) {
		case HIT_TABLE:
			hit_table(h, offset);
			break;
		case HIT_CACHE:
			hit_cache(h, offset);
			break;
		case HIT_RWLOCK:
		case HIT_MUTEX:
			hit_hash(h, offset);
			break;
		case HIT_ALONE:
			__atomic_store_n(&h->own, offset, __ATOMIC_RELAXED);
		}
	}
	h->ns = (double)(util_now_ns() - start) / (double)h->ops;
	return NULL;
}

static double hit_round(const struct hit *with, unsigned int threads)
{
	pthread_barrier_t start;
	struct hit h[8];
	pthread_t t[8];
	double ns = 0;

	pthread_barrier_init(&start, NULL, threads);
	for (unsigned int i = 0; i < threads; i++) {
		h[i] = *with;
		h[i].seed = 88172645463325252u + i * 7919;
		h[i].start = &start;
		pthread_create(&t[i], NULL, hit_thread, &h[i]);
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		ns += h[i].ns / threads;
	}
	pthread_barrier_destroy(&start);
	return ns;
}

static void bench_hit(unsigned int threads, uint64_t slots, uint64_t ops)
{
	static const char *const names[] = {"table", "cache", "rwlock", "mutex", "alone"};
	pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	struct window_fake_config fc = {
		.caps = {.size = slots * SLOT, .granule = SLOT, .batch = 8},
	};
	struct dm_table_config config = {.no_worker = true};
	struct dm_cache_config cache_config = {.slot_size = SLOT, .no_worker = true};
	struct dm_window *w = window_fake_new(&fc), *w2 = window_fake_new(&fc);
	struct hit h = {.slots = slots, .ops = ops, .rwlock = &rwlock, .mutex = &mutex};
	double ns[5][ROUNDS], m[5];

	h.t = dm_table_new(w, &provider, &config);
	h.c = dm_cache_new(w2, &provider, &cache_config);
	h.hash = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
	for (uint64_t i = 0; i < slots; i++) {
		struct entry *e = g_new0(struct entry, 1);

		e->offset = i * SLOT;
		g_hash_table_insert(h.hash, &e->offset, e);
		if (dm_host_setup(h.t, i * SLOT, SLOT, (struct dm_file_key){0, i % 64}, i * SLOT,
				  true) != 0)
			abort();
		hit_cache(&h, i * SLOT);
	}
	for (unsigned int r = 0; r < ROUNDS; r++)
		for (unsigned int how = 0; how < 5; how++) {
			h.how = how;
			ns[how][r] = hit_round(&h, threads);
		}
	for (unsigned int how = 0; how < 5; how++)
		m[how] = bench_median(ns[how], ROUNDS);
	for (unsigned int how = 0; how < 5; how++)
		printf("  %-7s %7.1f ns a hit, %u threads, %" G_GUINT64_FORMAT " ranges\n",
		       names[how], m[how], threads, slots);
	for (unsigned int how = HIT_TABLE; how <= HIT_CACHE; how++)
		printf("bench a seat=%s threads=%u ranges=%" G_GUINT64_FORMAT
		       " table_ns=%.1f rwlock_ns=%.1f mutex_ns=%.1f floor_ns=%.1f vs_rwlock=%.2f"
		       " vs_mutex=%.2f\n",
		       how == HIT_TABLE ? "host" : "guest", threads, slots, m[how], m[2], m[3],
		       m[4], m[2] / m[how], m[3] / m[how]);
	dm_cache_free(h.c);
	dm_window_destroy(w2);
	dm_table_free(h.t);
	dm_window_destroy(w);
	g_hash_table_destroy(h.hash);
}

/* (c) */

struct mapper {
	struct dm_table *t;
	pthread_barrier_t *start;
	uint64_t first_slot;
	uint64_t slots;
	uint64_t maps;
	uint64_t file; /* or UINT64_MAX: many */
	double ns;
};

static void *map_thread(void *arg)
{
	struct mapper *m = arg;
	uint64_t start;

	pthread_barrier_wait(m->start);
	start = util_now_ns();
	for (uint64_t i = 0; i < m->maps; i++) {
		uint64_t offset = (m->first_slot + i % m->slots) * SLOT;
		uint64_t file = m->file == UINT64_MAX ? i % 64 : m->file;

		/* never the same bytes twice in a slot: each is an overlay */
		if (dm_host_setup(m->t, offset, SLOT, (struct dm_file_key){0, file}, i % 512 * SLOT,
				  true) != 0)
			abort();
		dm_host_remove(m->t, offset, SLOT);
	}
	m->ns = (double)(util_now_ns() - start);
	return NULL;
}

static double map_round(unsigned int threads, bool many, bool forward, uint64_t maps)
{
	struct dm_window *w = dm_window_local_new(128 * SLOT, 0, NULL);
	struct dm_table_config config = {.no_worker = true,
					 .manager = forward ? DM_MANAGER_FORWARD : DM_MANAGER_FULL};
	struct dm_table *t = dm_table_new(w, &provider, &config);
	pthread_barrier_t start;
	struct mapper m[8];
	pthread_t id[8];
	double rate = 0;

	pthread_barrier_init(&start, NULL, threads);
	for (unsigned int i = 0; i < threads; i++) {
		m[i] = (struct mapper){.t = t,
				       .start = &start,
				       .first_slot = i * 63,
				       .slots = 63,
				       .maps = maps,
				       .file = many ? UINT64_MAX : 0};
		pthread_create(&id[i], NULL, map_thread, &m[i]);
	}
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(id[i], NULL);
		rate += (double)maps * 1e9 / m[i].ns;
	}
	pthread_barrier_destroy(&start);
	dm_host_flush(t);
	dm_table_free(t);
	dm_window_destroy(w);
	return rate;
}

static void bench_map(uint64_t maps)
{
	double rate[8][ROUNDS];

	for (unsigned int r = 0; r < ROUNDS; r++)
		for (unsigned int k = 0; k < 8; k++)
			rate[k][r] = map_round(1 + (k & 1), k & 2, k & 4, maps);
	for (unsigned int k = 0; k < 8; k++)
		printf("bench c threads=%u files=%s manager=%s maps_per_s=%.0f\n", 1 + (k & 1),
		       k & 2 ? "64" : "1", k & 4 ? "forward" : "full",
		       bench_median(rate[k], ROUNDS));
}

/* (d) */

static void bench_memory(uint64_t slots)
{
	struct window_fake_config fc = {
		.caps = {.size = slots * SLOT, .granule = SLOT, .batch = 8},
	};
	struct dm_table_config config = {.no_worker = true};
	struct dm_window *w = window_fake_new(&fc);
	struct dm_table *t = dm_table_new(w, &provider, &config);
	struct mallinfo2 before = mallinfo2(), after;

	for (uint64_t i = 0; i < slots; i++)
		if (dm_host_setup(t, i * SLOT, SLOT, (struct dm_file_key){0, 1}, i * SLOT, true))
			abort();
	after = mallinfo2();
	printf("bench d ranges=%" G_GUINT64_FORMAT " bytes_per_range=%.1f\n", slots,
	       (double)(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) /
			       (double)slots +
		       8.0 /* its chunk */);
	dm_table_free(t);
	dm_window_destroy(w);
}

int main(int argc, char **argv)
{
	uint64_t scale = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
	const char *parts = argc > 2 ? argv[2] : "acd";

	for (unsigned int i = 0; i < 64; i++) {
		mem_fds[i] = memfd_create("bench", MFD_CLOEXEC);
		if (mem_fds[i] < 0 || ftruncate(mem_fds[i], (off_t)(1024 * SLOT)) != 0)
			return 1;
	}
	if (strchr(parts, 'a')) {
		bench_hit(1, 256, scale);
		bench_hit(2, 256, scale);
	}
	if (strchr(parts, 'c'))
		bench_map(scale / 50 + 1);
	if (strchr(parts, 'd'))
		bench_memory(16384);
	return 0;
}
