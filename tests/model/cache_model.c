// SPDX-License-Identifier: Apache-2.0
/*
 * The model test of the guest seat: random gets, puts, flushes, reclaims and ends of sessions of
 * one user against the strict fake VMM and a plain reference: the refs that are out, and the bytes
 * that each must show. After every step:
 *  - each ref of the present session shows its bytes, with the right access;
 *  - each range that the table has is one whole slot that the VMM shows the same way, and no other
 *    granule is mapped;
 *  - no slot of a ref, also of one that outlived its session, is anybody else's;
 *  - every slot is free, mapped or an orphan's, and a get fails with EBUSY only when each is
 *    pinned;
 *  - a hit made no driver call; no rule of the VMM was broken; the counters balance; the files
 *    open are those mapped, and those of orphans.
 *
 * DM_MODEL_OPS: operations over all configurations. DM_MODEL_SEED.
 */
#include <daxmap/cache.h>
#include <errno.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test_random.h"
#include "dm_cache.h"
#include "window_fake.h"
#include "window_faulty.h"

#ifdef DM_MUTATION_RUNTIME
int dm_mutation;
#endif

#define SLOTS 24
#define PAGES_A_SLOT 4
#define PAGES (SLOTS * PAGES_A_SLOT)
#define FILES 5
#define READ_ONLY_FILE 4
#define FILE_SLOTS 20
#define MAX_REFS 40

struct out {
	struct dm_ref ref;
	uint64_t session;
	uint64_t file;
	uint64_t slot; /* of the file */
	uint64_t at;   /* slot of the window */
};

struct model {
	const char *name;
	uint64_t seed;
	uint64_t rng;
	uint64_t step;
	uint64_t granule;
	uint32_t flags;
	uint32_t slots; /* that the budget leaves */
	bool faults;
	bool faults_now;
	bool refused;
	bool ended;
	uint64_t session;
	struct dm_window *fake;
	struct dm_window *window;
	struct dm_cache *c;
	int open[FILES];
	struct out refs[MAX_REFS];
	unsigned int n_refs;
	uint64_t gets, busy, failed;
	char what[160];
};

static struct model *now;

#define CHECK(m, cond)                                                                             \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail(m, __LINE__, #cond);                                                  \
	} while (0)

static void G_GNUC_NORETURN fail(struct model *m, int line, const char *cond)
{
	fprintf(stderr,
		"# %s: seed %" G_GUINT64_FORMAT ", step %" G_GUINT64_FORMAT ": %s: line %d: %s\n",
		m->name, m->seed, m->step, m->what, line, cond);
	fprintf(stderr, "# slots %u; refs out: %u; %s\n", m->slots, m->n_refs,
		window_fake_violation(m->fake) ? window_fake_violation(m->fake) : "no violation");
	_exit(1);
}

static void on_abort(int sig)
{
	if (now)
		fprintf(stderr,
			"# signal %d: %s: seed %" G_GUINT64_FORMAT ", step %" G_GUINT64_FORMAT
			": %s\n",
			sig, now->name, now->seed, now->step, now->what);
	_exit(1);
}

static uint64_t rnd(struct model *m, uint64_t n)
{
	return test_rnd(&m->rng, n);
}

static int file_open(void *ctx, struct dm_file_key key, bool *writable)
{
	struct model *m = ctx;

	CHECK(m, m->open[key.lo] == 0);
	m->open[key.lo] = 1;
	*writable = key.lo != READ_ONLY_FILE;
	return 100 + (int)key.lo;
}

static void file_close(void *ctx, struct dm_file_key key, int fd)
{
	struct model *m = ctx;

	CHECK(m, m->open[key.lo] == 1 && fd == 100 + (int)key.lo);
	m->open[key.lo] = 0;
}

/* Checks */

static bool shows(const struct model *m, uint64_t slot, uint64_t file, uint64_t file_offset)
{
	const struct window_fake_page *p = &window_fake_pages(m->fake)[slot * PAGES_A_SLOT];

	for (uint64_t i = 0; i < PAGES_A_SLOT; i++)
		if (!p[i].mapping || p[i].mapping != p[0].mapping || p[i].key_lo != file ||
		    p[i].file_offset != file_offset + i * m->granule ||
		    p[i].flags != (file == READ_ONLY_FILE ? 0 : DM_MAP_WRITE))
			return false;
	return true;
}

static void check_refs(struct model *m, unsigned int *used)
{
	for (unsigned int i = 0; i < m->n_refs; i++) {
		const struct out *o = &m->refs[i];

		if (o->session == m->session && !m->ended) {
			CHECK(m, shows(m, o->at, o->file, o->slot * m->c->slot_size));
			continue;
		}
		CHECK(m, m->c->orphans[o->at] == o->ref.range);
	}
	for (unsigned int s = 0; s < m->slots; s++)
		*used += m->c->orphans[s] != NULL;
}

static void check_ranges(struct model *m, unsigned int *used, bool *mapped)
{
	struct dm_core *core = dm_cache_core(m->c);
	uint64_t granules = 0, vmm = 0;
	struct dm_range *r;

	for (uint64_t s = 0; s < SLOTS; s++) {
		r = dm_index_lookup(core, s * m->c->slot_size);
		if (!r)
			continue;
		(*used)++;
		mapped[r->key.lo] = true;
		granules += PAGES_A_SLOT;
		CHECK(m, s < m->slots && !m->c->orphans[s]);
		CHECK(m, r->offset == s * m->c->slot_size && r->len == m->c->slot_size);
		CHECK(m, shows(m, s, r->key.lo, r->file_offset));
		util_rcu_read_lock();
		CHECK(m, (dm_index_by_file(core, r->key, r->file_offset) == r) ==
				 (r->state == DM_LIVE));
		util_rcu_read_unlock();
	}
	for (unsigned int g = 0; g < PAGES; g++)
		vmm += window_fake_pages(m->fake)[g].mapping != 0;
	CHECK(m, granules == vmm);
}

static void check(struct model *m)
{
	bool mapped[FILES] = {false};
	struct window_fake_counts counts;
	unsigned int used = 0;
	struct dm_stats s;

	if (dm_core_broken(dm_cache_core(m->c)))
		return;
	check_refs(m, &used);
	check_ranges(m, &used, mapped);
	CHECK(m, used + m->c->slots.free == m->slots);
	for (unsigned int i = 0; i < m->n_refs; i++)
		mapped[m->refs[i].file] = true;
	for (unsigned int f = 0; f < FILES; f++)
		CHECK(m, m->open[f] == mapped[f]);
	window_fake_counts(m->fake, &counts);
	dm_cache_stats(m->c, &s);
	CHECK(m, window_fake_violation(m->fake) == NULL);
	CHECK(m, m->refused || counts.overlap_refused == 0);
	CHECK(m, s.mapped == counts.live && s.mapped_bytes == counts.live * m->c->slot_size);
	CHECK(m, counts.peak <= m->slots && s.mapped_peak <= m->slots);
	CHECK(m, s.removed_ranges == dm_stats_accounted(&s));
	if (m->step % 16 == 0)
		dm_core_check(dm_cache_core(m->c));
}

/* Operations */

static uint64_t submits(struct model *m)
{
	struct window_fake_counts counts;

	window_fake_counts(m->fake, &counts);
	return counts.submits;
}

static void put(struct model *m, unsigned int i)
{
	dm_cache_put(m->c, &m->refs[i].ref);
	m->refs[i] = m->refs[--m->n_refs];
}

static bool all_pinned(const struct model *m)
{
	bool pinned[SLOTS] = {false};
	unsigned int n = 0;

	for (unsigned int i = 0; i < m->n_refs; i++)
		pinned[m->refs[i].at] = true;
	for (unsigned int s = 0; s < m->slots; s++)
		n += pinned[s];
	return n == m->slots;
}

static bool held(const struct model *m, uint64_t file, uint64_t slot)
{
	for (unsigned int i = 0; i < m->n_refs; i++)
		if (m->refs[i].session == m->session && m->refs[i].file == file &&
		    m->refs[i].slot == slot)
			return true;
	return false;
}

static void check_refusal(struct model *m, int err, bool write, bool try, uint64_t file)
{
	switch (-err) {
	case EACCES:
		CHECK(m, write && file == READ_ONLY_FILE);
		break;
	case EAGAIN:
		CHECK(m, try);
		break;
	case EBUSY:
		CHECK(m, all_pinned(m));
		m->busy++;
		break;
	case EPIPE:
		CHECK(m, m->ended || dm_core_broken(dm_cache_core(m->c)));
		break;
	case EIO:
	case EEXIST:
		CHECK(m, m->refused);
		m->failed++;
		break;
	default:
		fail(m, __LINE__, "unexpected refusal");
	}
}

static void op_get(struct model *m)
{
	struct out *o = &m->refs[m->n_refs];
	bool write = rnd(m, 4) == 0, try = rnd(m, 8) == 0, there, hold;
	struct dm_file_key key = {0, 1 + rnd(m, FILES - 1)};
	uint64_t slot = rnd(m, 3) ? rnd(m, 5) : rnd(m, FILE_SLOTS);
	uint64_t calls = submits(m), in = rnd(m, m->c->slot_size), size = m->c->slot_size;
	int err;

	snprintf(m->what, sizeof(m->what),
		 "get file %" G_GUINT64_FORMAT "@%" G_GUINT64_FORMAT " write %d try %d", key.lo,
		 slot, write, try);
	there = held(m, key.lo, slot) && !m->ended;
	err = (try ? dm_cache_try_get : dm_cache_get)(m->c, key, slot * size + in, size, write,
						      &o->ref);
	CHECK(m, (!there && !try) || submits(m) == calls);
	if (err) {
		CHECK(m, !there || err == -EACCES);
		check_refusal(m, err, write, try, key.lo);
		return;
	}
	m->gets++;
	CHECK(m, !(write && key.lo == READ_ONLY_FILE) && !m->ended);
	CHECK(m, o->ref.len == size - in);
	o->file = key.lo;
	o->slot = slot;
	o->session = m->session;
	o->at = ((struct dm_range *)o->ref.range)->offset / size;
	m->n_refs++;
	hold = rnd(m, 3) == 0 && m->n_refs < MAX_REFS;
	if (!hold) {
		CHECK(m, shows(m, o->at, o->file, slot * size));
		put(m, m->n_refs - 1);
	}
}

static void op_flush_file(struct model *m)
{
	struct dm_file_key key = {0, 1 + rnd(m, FILES - 1)};
	bool pinned = false;
	int err;

	snprintf(m->what, sizeof(m->what), "flush file %" G_GUINT64_FORMAT, key.lo);
	err = dm_cache_flush_file(m->c, key);
	if (m->ended || dm_core_broken(dm_cache_core(m->c))) {
		CHECK(m, err == -EPIPE);
		return;
	}
	for (unsigned int i = 0; i < m->n_refs; i++)
		pinned |= m->refs[i].file == key.lo && m->refs[i].session == m->session;
	CHECK(m, err == (pinned ? -EBUSY : 0) || m->faults_now);
	for (uint64_t s = 0; err == 0 && s < SLOTS; s++)
		CHECK(m, !window_fake_pages(m->fake)[s * PAGES_A_SLOT].mapping ||
				 window_fake_pages(m->fake)[s * PAGES_A_SLOT].key_lo != key.lo);
}

/* The session ends; sometimes the next begins at once. */
static void op_forget(struct model *m)
{
	snprintf(m->what, sizeof(m->what), "forget");
	window_faulty_reconnect(m->window);
	window_fake_reset(m->fake);
	if (rnd(m, 2)) {
		dm_cache_forget(m->c);
		m->ended = true;
	} else {
		dm_cache_renew(m->c);
		m->ended = false;
	}
	m->session++;
	m->refused = m->faults_now;
}

static void op_renew(struct model *m)
{
	snprintf(m->what, sizeof(m->what), "renew");
	dm_cache_renew(m->c);
	m->session++;
	m->ended = false;
}

/* What the worker does. */
static void op_reclaim(struct model *m)
{
	struct dm_evict e;

	snprintf(m->what, sizeof(m->what), "reclaim");
	dm_evict_init(&e, 1 + rnd(m, 6), false);
	dm_evict_oldest(dm_cache_core(m->c), &e, e.max, UINT64_MAX, NULL);
	dm_evict_run(dm_cache_core(m->c), &e, DM_C_deferred_unmaps);
	dm_evict_destroy(&e);
}

static void step(struct model *m)
{
	uint64_t r = rnd(m, 1000);

	if (m->faults && m->step % 64 == 0) {
		uint32_t rate;

		m->faults_now = rnd(m, 2);
		rate = m->faults_now ? 8000 : 0;
		window_faulty_set_rates(m->window, rate, rate, m->faults_now ? 60 : 0);
		m->refused |= m->faults_now;
	}
	if (m->ended && rnd(m, 4) == 0)
		op_renew(m);
	else if (r < 780 && m->n_refs < MAX_REFS)
		op_get(m);
	else if (r < 940 && m->n_refs)
		put(m, (unsigned int)rnd(m, m->n_refs));
	else if (r < 975)
		op_reclaim(m);
	else if (r < 990)
		op_flush_file(m);
	else if (r < 996)
		op_forget(m);
	else
		while (m->n_refs)
			put(m, 0);
	if (dm_core_broken(dm_cache_core(m->c))) {
		op_forget(m);
		if (m->ended)
			op_renew(m);
	}
	check(m);
}

static void run(struct model *m, uint64_t steps)
{
	uint32_t limit = rnd(m, 2) ? 0 : 3 + (uint32_t)rnd(m, SLOTS);
	struct window_fake_config fc = {
		.caps = {.flags = m->flags,
			 .size = PAGES * m->granule,
			 .granule = m->granule,
			 .max_mappings = limit,
			 .batch = 1 + (uint32_t)rnd(m, 8)},
	};
	struct dm_cache_config config = {
		.slot_size = PAGES_A_SLOT * m->granule,
		.remove_early = (int)rnd(m, 3) - 1,
		.fifo = rnd(m, 2),
		.no_worker = true,
	};
	struct dm_file_provider provider = {.ctx = m, .open = file_open, .close = file_close};

	now = m;
	m->slots = limit ? MIN(limit, SLOTS) : SLOTS;
	m->fake = window_fake_new(&fc);
	m->window = window_faulty_new(m->fake, rnd(m, UINT32_MAX));
	m->c = dm_cache_new(m->window, &provider, &config);
	m->c->config.wait_ms = 0; /* one thread: nobody will put meanwhile */
	for (m->step = 0; m->step < steps; m->step++)
		step(m);
	while (m->n_refs)
		put(m, 0);
	dm_cache_free(m->c);
	for (unsigned int f = 0; f < FILES; f++)
		CHECK(m, m->open[f] == 0);
	dm_window_destroy(m->window);
	now = NULL;
}

static const struct {
	const char *name;
	uint32_t flags;
} drivers[] = {
	{"shmem", 0},
	{"overlay", DM_WINDOW_OVERLAY},
	{"overlay+split", DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT},
	{"concurrent", DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT | DM_WINDOW_CONCURRENT},
};
static const uint64_t sizes[] = {4096, 65536, UINT64_C(2) << 20};

int main(int argc, char **argv)
{
	uint64_t ops = test_env_number("DM_MODEL_OPS", 1200000);
	uint64_t seed = test_env_number("DM_MODEL_SEED", (uint64_t)g_get_real_time());
	unsigned int runs = G_N_ELEMENTS(drivers) * G_N_ELEMENTS(sizes) * 3;

#ifdef DM_MUTATION_RUNTIME
	dm_mutation = (int)test_env_number("DM_MUTATION", 0);
	alarm(120); /* a bug may also hang */
#endif
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
	printf("1..%u\n# DM_MODEL_SEED=%" G_GUINT64_FORMAT " DM_MODEL_OPS=%" G_GUINT64_FORMAT "\n",
	       runs, seed, ops);
	for (unsigned int i = 0; i < runs; i++) {
		struct model m = {
			.name = drivers[i % G_N_ELEMENTS(drivers)].name,
			.flags = drivers[i % G_N_ELEMENTS(drivers)].flags,
			.granule = sizes[i / G_N_ELEMENTS(drivers) % G_N_ELEMENTS(sizes)],
			.faults = i % 3 == 2,
			.seed = seed,
		};

		m.rng = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
		for (int k = 0; k < 8; k++)
			rnd(&m, 2);
		run(&m, ops / runs);
		printf("ok %u %s, granule %" G_GUINT64_FORMAT "%s, slots %u # %" G_GUINT64_FORMAT
		       " got, %" G_GUINT64_FORMAT " busy, %" G_GUINT64_FORMAT " refused\n",
		       i + 1, m.name, m.granule, m.faults ? ", faults" : "", m.slots, m.gets,
		       m.busy, m.failed);
	}
	(void)argc;
	(void)argv;
	return 0;
}
