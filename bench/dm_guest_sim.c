// SPDX-License-Identifier: Apache-2.0
/*
 * A Linux-like guest over the table, and a VMM that costs what QEMU was measured to: the calls
 * that the VMM gets for each miss, and how long the guest waits for it, full against forward.
 *
 * The guest (fs/fuse/dax.c in Linux): slots are reused first-in first-out; below a fifth free a
 * background thread takes back the mappings made first, ten a pass, a REMOVE each; a read that
 * finds no free slot takes one back itself. An inode's lock is held by a SETUP, by a REMOVE and by
 * each look-up, in the order of coming: so a reader waits for a REMOVE of its file whether it
 * misses or hits.
 *
 * The VMM is the strict fake, one operation at a time, each taking a + b * live (really waited
 * for), whoever asked. "shmem" can neither overlay nor split, "overlay" both.
 *
 * Wait a miss, two ways:
 *  reader    all that the reader spends on locks, SETUPs and REMOVEs of its own
 *  requests  all that SETUPs and REMOVEs take from being sent to being answered, the background
 *            thread's among them; queueing for the VMM included
 *
 * Work: the reader's own time between two misses, as a multiple of one VMM operation. At 0 the
 * VMM is never idle: then a miss costs one map and one unmap, whoever waits for which, and no
 * manager can do better than that ("floor" is the VMM's time for one map).
 *
 * Lines that begin with "bench " are for machines. Exits with 1 if a rule of the VMM was broken,
 * the sums do not balance, or (with --check) a target is missed that does not depend on time.
 */
#include <daxmap/table.h>
#include <glib.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench_median.h"
#include "util_lock.h"
#include "window_fake.h"

#define SLOT (UINT64_C(2) << 20)
#define RECLAIM_CHUNK 10
#define MAX_ROUNDS 15

static gint opt_slots = 64;
static gint opt_misses = 600;
static gint opt_rounds = 3;
static gint opt_a_us = 300;
static gint opt_b_us = 8;
static gdouble opt_work = -1;
static gboolean opt_check;
static gchar *opt_driver;
static gchar *opt_pattern;

static const GOptionEntry entries[] = {
	{"slots", 0, 0, G_OPTION_ARG_INT, &opt_slots, "window, in 2 MiB slots (64)", "N"},
	{"misses", 0, 0, G_OPTION_ARG_INT, &opt_misses, "misses measured in a round (600)", "N"},
	{"rounds", 0, 0, G_OPTION_ARG_INT, &opt_rounds, "rounds, interleaved (3)", "N"},
	{"a", 0, 0, G_OPTION_ARG_INT, &opt_a_us, "VMM operation, microseconds (300)", "US"},
	{"b", 0, 0, G_OPTION_ARG_INT, &opt_b_us, "and for each live mapping; overlay: 0 (8)", "US"},
	{"work", 0, 0, G_OPTION_ARG_DOUBLE, &opt_work, "only this much work a miss", "X"},
	{"driver", 0, 0, G_OPTION_ARG_STRING, &opt_driver, "only this driver", "NAME"},
	{"pattern", 0, 0, G_OPTION_ARG_STRING, &opt_pattern, "only this pattern", "NAME"},
	{"check", 0, 0, G_OPTION_ARG_NONE, &opt_check, "fail where calls a miss are too many",
	 NULL},
	{NULL},
};

static void sleep_ns(uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (ns && nanosleep(&ts, &ts) != 0)
		;
}

/* --- the VMM: the fake, with its cost waited for --- */

struct vmm {
	struct dm_window w;
	struct dm_window *fake;
	uint64_t a_ns;
	uint64_t b_ns;
	uint32_t live;
	uint64_t op_ns; /* spent in operations, as slept */
	uint64_t sum_live;
	uint64_t ops;
};

static int vmm_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	struct vmm *v = (struct vmm *)w;
	struct window_fake_counts counts;

	for (size_t i = 0; i < n; i++) {
		uint64_t start = util_now_ns();

		v->sum_live += v->live;
		sleep_ns(v->a_ns + v->b_ns * v->live);
		if (dm_window_submit(v->fake, &ops[i], 1) != 0)
			abort();
		window_fake_counts(v->fake, &counts);
		v->live = counts.live;
		v->op_ns += util_now_ns() - start;
		v->ops++;
	}
	return 0;
}

static const struct dm_window_ops vmm_ops = {.name = "vmm", .submit = vmm_submit};

static int file_open(void *ctx, struct dm_file_key key, bool *writable)
{
	*writable = true;
	return 1;
}

static void file_close(void *ctx, struct dm_file_key key, int fd)
{
}

static const struct dm_file_provider provider = {.open = file_open, .close = file_close};

/* --- the inode's lock: granted in the order of coming --- */

struct queue_lock {
	struct util_mutex lock;
	struct util_cond cond;
	uint64_t next;
	uint64_t serving;
};

static void queue_lock(struct queue_lock *q)
{
	uint64_t mine;

	util_mutex_lock(&q->lock);
	mine = q->next++;
	while (q->serving != mine)
		util_cond_wait(&q->cond, &q->lock);
	util_mutex_unlock(&q->lock);
}

static void queue_unlock(struct queue_lock *q)
{
	util_mutex_lock(&q->lock);
	q->serving++;
	util_cond_broadcast(&q->cond);
	util_mutex_unlock(&q->lock);
}

/* --- the guest --- */

enum pattern { UNIFORM, ZIPF, SEQUENTIAL, PATTERNS };
static const char *const pattern_names[] = {"uniform", "zipf", "sequential"};

struct guest {
	struct dm_table *t;
	enum pattern pattern;
	uint32_t slots;
	uint32_t chunks;
	uint64_t think_ns; /* after each access */
	struct queue_lock inode;
	GArray *slot_of; /* chunk -> slot + 1; under the inode's lock */
	double *zipf;	 /* cumulative */
	GMutex lock;	 /* the lists */
	GCond kick;
	GQueue free; /* slots */
	GQueue busy; /* chunks, in the order of mapping */
	bool stop;
	uint64_t seed;
	uint64_t pos;
	uint64_t accesses;
	uint64_t misses;
	uint64_t inline_removes;
	uint64_t wait_ns;     /* the reader's */
	uint64_t requests_ns; /* from a request to its answer, whoever sent it; atomic */
};

static double rnd(struct guest *g)
{
	g->seed ^= g->seed << 13;
	g->seed ^= g->seed >> 7;
	g->seed ^= g->seed << 17;
	return (double)(g->seed >> 11) / (double)(UINT64_C(1) << 53);
}

static uint32_t next_chunk(struct guest *g)
{
	uint32_t lo = 0, hi = g->chunks - 1;
	double x;

	if (g->pattern == UNIFORM)
		return (uint32_t)(rnd(g) * g->chunks);
	if (g->pattern == SEQUENTIAL) /* 128 KiB reads */
		return (uint32_t)(g->pos++ / 16 % g->chunks);
	x = rnd(g) * g->zipf[g->chunks - 1];
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (g->zipf[mid] < x)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* spread: neighbours in rank are not neighbours in the file */
	return (uint32_t)((uint64_t)lo * 2654435761u % g->chunks);
}

static uint32_t *slot_of(struct guest *g, uint32_t chunk)
{
	return &g_array_index(g->slot_of, uint32_t, chunk);
}

/* Takes back the mapping made first; false when there is none. */
static bool reclaim_one(struct guest *g)
{
	uint32_t chunk, slot;
	uint64_t start;
	gpointer p;

	g_mutex_lock(&g->lock);
	p = g_queue_pop_head(&g->busy);
	g_mutex_unlock(&g->lock);
	if (!p)
		return false;
	chunk = GPOINTER_TO_UINT(p) - 1;
	queue_lock(&g->inode);
	slot = *slot_of(g, chunk) - 1;
	start = util_now_ns();
	if (dm_host_remove(g->t, slot * SLOT, SLOT) != 0)
		abort();
	__atomic_fetch_add(&g->requests_ns, util_now_ns() - start, __ATOMIC_RELAXED);
	*slot_of(g, chunk) = 0;
	g_mutex_lock(&g->lock);
	g_queue_push_tail(&g->free, GUINT_TO_POINTER(slot + 1));
	g_mutex_unlock(&g->lock);
	queue_unlock(&g->inode);
	return true;
}

static bool too_few(struct guest *g)
{
	return g_queue_get_length(&g->free) < MAX(1, g->slots / 5);
}

static gpointer reclaimer(gpointer data)
{
	struct guest *g = data;

	g_mutex_lock(&g->lock);
	while (!g->stop) {
		if (!too_few(g)) {
			g_cond_wait(&g->kick, &g->lock);
			continue;
		}
		g_mutex_unlock(&g->lock);
		for (int i = 0; i < RECLAIM_CHUNK && reclaim_one(g); i++)
			;
		g_mutex_lock(&g->lock);
	}
	g_mutex_unlock(&g->lock);
	return NULL;
}

static uint32_t take_slot(struct guest *g)
{
	gpointer p;

	for (;;) {
		g_mutex_lock(&g->lock);
		p = g_queue_pop_head(&g->free);
		if (too_few(g))
			g_cond_signal(&g->kick);
		g_mutex_unlock(&g->lock);
		if (p)
			return GPOINTER_TO_UINT(p) - 1;
		g->inline_removes++;
		reclaim_one(g);
	}
}

static void miss(struct guest *g, uint32_t chunk)
{
	uint32_t slot = take_slot(g);
	struct dm_file_key key = {0, 1};
	uint64_t start;

	queue_lock(&g->inode);
	start = util_now_ns();
	if (dm_host_setup(g->t, slot * SLOT, SLOT, key, chunk * SLOT, false) != 0)
		abort();
	__atomic_fetch_add(&g->requests_ns, util_now_ns() - start, __ATOMIC_RELAXED);
	*slot_of(g, chunk) = slot + 1;
	g_mutex_lock(&g->lock);
	g_queue_push_tail(&g->busy, GUINT_TO_POINTER(chunk + 1));
	g_mutex_unlock(&g->lock);
	queue_unlock(&g->inode);
	g->misses++;
}

static void read_some(struct guest *g, uint64_t misses)
{
	uint64_t until = g->misses + misses, owed = 0;

	while (g->misses < until) {
		uint32_t chunk = next_chunk(g);
		uint64_t start = util_now_ns();
		bool hit;

		queue_lock(&g->inode);
		hit = *slot_of(g, chunk) != 0;
		queue_unlock(&g->inode);
		if (!hit)
			miss(g, chunk);
		g->wait_ns += util_now_ns() - start;
		g->accesses++;
		owed += g->think_ns;
		if (owed >= 100000) { /* shorter sleeps are all overhead */
			start = util_now_ns();
			sleep_ns(owed);
			owed -= MIN(owed, util_now_ns() - start);
		}
	}
}

/* --- one run --- */

struct outcome {
	double calls; /* a miss */
	double maps;
	double wait_us;	    /* a miss */
	double requests_us; /* a miss */
	double op_us;	    /* an operation, as waited for */
	double path;	    /* unmaps on the guest's path, a miss */
	double hits;	    /* an access */
	double live;	    /* mappings, at an operation */
};

static void fill_zipf(struct guest *g)
{
	double sum = 0;

	g->zipf = g_new(double, g->chunks);
	for (uint32_t i = 0; i < g->chunks; i++)
		g->zipf[i] = sum += 1 / pow(i + 1, 1.1);
}

static void guest_init(struct guest *g, struct dm_table *t, enum pattern pattern)
{
	*g = (struct guest){.t = t, .pattern = pattern, .seed = 88172645463325252u};
	g->slots = (uint32_t)opt_slots;
	g->chunks = 4 * g->slots;
	g->slot_of = g_array_sized_new(FALSE, TRUE, sizeof(uint32_t), g->chunks);
	g_array_set_size(g->slot_of, g->chunks);
	util_mutex_init(&g->inode.lock);
	util_cond_init(&g->inode.cond);
	g_mutex_init(&g->lock);
	g_cond_init(&g->kick);
	g_queue_init(&g->free);
	g_queue_init(&g->busy);
	for (uint32_t i = 0; i < g->slots; i++)
		g_queue_push_tail(&g->free, GUINT_TO_POINTER(i + 1));
	fill_zipf(g);
}

static void guest_clear(struct guest *g)
{
	g_queue_clear(&g->free);
	g_queue_clear(&g->busy);
	g_array_free(g->slot_of, TRUE);
	g_free(g->zipf);
	util_mutex_destroy(&g->inode.lock);
	util_cond_destroy(&g->inode.cond);
	g_mutex_clear(&g->lock);
	g_cond_clear(&g->kick);
}

static bool balanced(const struct dm_stats *s)
{
	return s->removed_ranges == dm_stats_accounted(s);
}

static void check(const struct vmm *v, struct dm_table *t)
{
	struct dm_stats s;

	if (window_fake_violation(v->fake))
		g_error("rule broken: %s", window_fake_violation(v->fake));
	dm_table_stats(t, &s);
	if (!balanced(&s))
		g_error("the sums do not balance");
}

/* How many accesses a miss will take: the work is spread over them. */
static double accesses_a_miss(struct guest *g)
{
	return (double)g->accesses / (double)g->misses;
}

static void measure(struct guest *g, struct vmm *v, double work, struct outcome *o)
{
	uint64_t misses, accesses, ops, op_ns, wait_ns, requests_ns, sum_live;
	struct dm_stats s0, s1;
	GThread *worker = g_thread_new("reclaimer", reclaimer, g);

	read_some(g, g->slots); /* fill the window, at no cost */
	v->a_ns = (uint64_t)opt_a_us * 1000;
	v->b_ns = v->w.caps.flags & DM_WINDOW_OVERLAY ? 0 : (uint64_t)opt_b_us * 1000;
	read_some(g, MIN(g->slots, (uint64_t)opt_misses / 2));
	/* an operation at four fifths of the slots */
	g->think_ns = (uint64_t)(work * (double)(v->a_ns + v->b_ns * g->slots * 4 / 5) /
				 accesses_a_miss(g));
	misses = g->misses, accesses = g->accesses, ops = v->ops, op_ns = v->op_ns;
	wait_ns = g->wait_ns;
	sum_live = v->sum_live;
	requests_ns = __atomic_load_n(&g->requests_ns, __ATOMIC_RELAXED);
	dm_table_stats(g->t, &s0);
	read_some(g, (uint64_t)opt_misses);
	dm_table_stats(g->t, &s1);
	requests_ns = __atomic_load_n(&g->requests_ns, __ATOMIC_RELAXED) - requests_ns;
	misses = g->misses - misses;
	*o = (struct outcome){
		.calls = (double)(v->ops - ops) / (double)misses,
		.maps = (double)(s1.maps - s0.maps) / (double)misses,
		.wait_us = (double)(g->wait_ns - wait_ns) / (double)misses / 1000,
		.requests_us = (double)requests_ns / (double)misses / 1000,
		.op_us = (double)(v->op_ns - op_ns) / (double)MAX(1, v->ops - ops) / 1000,
		.path = (double)(s1.asked_unmaps - s0.asked_unmaps) / (double)misses,
		.live = (double)(v->sum_live - sum_live) / (double)MAX(1, v->ops - ops),
		.hits = 1 - (double)misses / (double)(g->accesses - accesses),
	};
	g_mutex_lock(&g->lock);
	g->stop = true;
	g_cond_signal(&g->kick);
	g_mutex_unlock(&g->lock);
	g_thread_join(worker);
}

static void run(bool overlay, enum pattern pattern, bool forward, double work, struct outcome *o)
{
	struct window_fake_config fc = {
		.caps = {.size = (uint64_t)opt_slots * SLOT,
			 .granule = SLOT,
			 .batch = overlay ? 8 : 32,
			 .max_mappings = overlay ? 0 : 480,
			 .flags = overlay ? DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT : 0},
	};
	struct dm_table_config config = {
		.manager = forward ? DM_MANAGER_FORWARD : DM_MANAGER_FULL,
	};
	struct vmm v = {.w = {.ops = &vmm_ops, .caps = fc.caps}, .fake = window_fake_new(&fc)};
	struct dm_table *t = dm_table_new(&v.w, &provider, &config);
	struct guest g;

	guest_init(&g, t, pattern);
	measure(&g, &v, work, o);
	v.a_ns = v.b_ns = 0;
	dm_host_flush(t);
	check(&v, t);
	dm_table_free(t);
	dm_window_destroy(v.fake);
	guest_clear(&g);
}

/* --- full against forward --- */

static double median(const struct outcome *o, int n, size_t field)
{
	double v[MAX_ROUNDS];

	for (int i = 0; i < n; i++)
		v[i] = *(const double *)((const char *)&o[i] + field);
	return bench_median(v, (size_t)n);
}

static double mean(const struct outcome *o, int n, size_t field)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += *(const double *)((const char *)&o[i] + field);
	return sum / n;
}
#define MEDIAN(o, field) median(o, opt_rounds, offsetof(struct outcome, field))
#define MEAN(o, field) mean(o, opt_rounds, offsetof(struct outcome, field))

/* Returns false when a target is missed that time has no part in. */
static bool compare(bool overlay, enum pattern pattern, double work)
{
	struct outcome full[MAX_ROUNDS], forward[MAX_ROUNDS];
	double wait[2], requests[2];

	for (int i = 0; i < opt_rounds; i++) {
		run(overlay, pattern, i % 2 == 0, work, i % 2 ? &full[i] : &forward[i]);
		run(overlay, pattern, i % 2 != 0, work, i % 2 ? &forward[i] : &full[i]);
	}
	wait[0] = MEDIAN(full, wait_us);
	wait[1] = MEDIAN(forward, wait_us);
	requests[0] = MEDIAN(full, requests_us);
	requests[1] = MEDIAN(forward, requests_us);
	printf("bench b driver=%s pattern=%s work=%.1f slots=%d file=4x rounds=%d misses=%d "
	       "hits=%.2f full_calls=%.3f forward_calls=%.3f full_unmaps_on_path=%.3f "
	       "full_live=%.1f forward_live=%.1f full_op_us=%.0f forward_op_us=%.0f "
	       "full_reader_us=%.0f forward_reader_us=%.0f reader_ratio=%.2f "
	       "full_requests_us=%.0f forward_requests_us=%.0f requests_ratio=%.2f\n",
	       overlay ? "overlay" : "shmem", pattern_names[pattern], work, opt_slots, opt_rounds,
	       opt_misses, MEAN(full, hits), MEAN(full, calls), MEAN(forward, calls),
	       MEAN(full, path), MEAN(full, live), MEAN(forward, live), MEAN(full, op_us),
	       MEAN(forward, op_us), wait[0], wait[1], wait[1] / wait[0], requests[0], requests[1],
	       requests[1] / requests[0]);
	fflush(stdout);
	/* shmem: whether the worker keeps up is a matter of time */
	return !overlay || MEAN(full, calls) <= 1.05;
}

static bool wanted(const char *option, const char *name)
{
	return !option || g_str_equal(option, name);
}

int main(int argc, char **argv)
{
	static const double works[] = {0, 1, 2};
	g_autoptr(GOptionContext) context = g_option_context_new(NULL);
	g_autoptr(GError) error = NULL;
	bool good = true;

	g_option_context_add_main_entries(context, entries, NULL);
	if (!g_option_context_parse(context, &argc, &argv, &error) || opt_slots < 8 ||
	    opt_misses < 1 || opt_rounds < 1 || opt_rounds > MAX_ROUNDS) {
		fprintf(stderr, "dm_guest_sim: %s\n", error ? error->message : "bad number");
		return 2;
	}
	printf("# VMM operation: %d us + %d us * live (overlay: %d us); wait and calls a miss\n",
	       opt_a_us, opt_b_us, opt_a_us);
	for (int overlay = 1; overlay >= 0; overlay--)
		for (enum pattern p = 0; p < PATTERNS; p++)
			for (size_t i = 0; i < G_N_ELEMENTS(works); i++) {
				double work = opt_work >= 0 ? opt_work : works[i];

				if (!wanted(opt_driver, overlay ? "overlay" : "shmem") ||
				    !wanted(opt_pattern, pattern_names[p]) ||
				    (opt_work >= 0 && i > 0))
					continue;
				good &= compare(overlay, p, work);
			}
	return opt_check && !good ? 1 : 0;
}
