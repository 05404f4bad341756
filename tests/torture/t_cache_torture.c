// SPDX-License-Identifier: Apache-2.0
/*
 * Many threads on the guest seat: 16 slots of real memory over 10,000 ranges of files whose pages
 * carry file and page number, with a driver that refuses and disconnects at random, sessions that
 * end in between, flushes, and the worker reclaiming.
 *
 * Each thread gets, checks every page behind the ref, now and then holds a second ref, adds one to
 * a word of a page, checks again, puts. So bytes that are early, stale or another's are counted as
 * stale; what is unmapped under a ref is a SIGSEGV; a write that went elsewhere is missing from the
 * sum over the files at the end. A ref stays good when its session ends.
 *
 * DM_TORTURE_OPS: operations a thread. DM_TORTURE_SEED.
 */
#include <daxmap/cache.h>
#include <daxmap/local.h>
#include <errno.h>
#include <glib.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dm_cache.h"
#include "test_random.h"
#include "torture_files.h"
#include "util_yield.h"
#include "watchdog.h"
#include "window_faulty.h"

#define PAGE TORTURE_PAGE
#define SLOT (2 * PAGE)
#define SLOTS 16
#define FILES 8
#define RANGES 1250 /* of each file */
#define THREADS 8
#define HOT 10

struct torture {
	struct dm_window *window;
	struct dm_cache *c;
	struct torture_files files;
	GMutex session;
	uint64_t ops;
	uint64_t rates; /* chance in 65536 that a submit breaks the channel */
	int running;
	uint64_t gets, stale, busy, refused, broken, sessions, writes, eagain;
};

struct worker {
	struct torture *tt;
	uint64_t rng;
};

static uint64_t rnd(struct worker *w, uint64_t n)
{
	return test_rnd(&w->rng, n);
}

static void count(uint64_t *what)
{
	__atomic_add_fetch(what, 1, __ATOMIC_RELAXED);
}

static uint64_t sum_of_writes(int fd)
{
	struct torture_stamp s;
	uint64_t n = 0;

	for (uint64_t page = 0; page < RANGES * SLOT / PAGE; page++) {
		g_assert_cmpint(pread(fd, &s, sizeof(s), (off_t)(page * PAGE)), ==, sizeof(s));
		n += s.writes;
	}
	return n;
}

struct held {
	struct dm_ref ref;
	uint64_t file;
	uint64_t offset;
	bool write;
};

static void check(struct torture *tt, const struct held *h)
{
	for (uint64_t done = 0; done < h->ref.len; done += PAGE) {
		const struct torture_stamp *s = (const void *)((const char *)h->ref.addr + done);

		if (__atomic_load_n(&s->file, __ATOMIC_RELAXED) != h->file ||
		    __atomic_load_n(&s->page, __ATOMIC_RELAXED) != (h->offset + done) / PAGE)
			count(&tt->stale);
	}
}

/* The back-end has gone and come back. */
static void next_session(struct torture *tt)
{
	g_mutex_lock(&tt->session);
	if (window_faulty_broken(tt->window)) {
		window_faulty_reconnect(tt->window);
		dm_cache_renew(tt->c);
		count(&tt->sessions);
	}
	g_mutex_unlock(&tt->session);
}

static int get(struct worker *w, struct held *h, bool try)
{
	struct torture *tt = w->tt;
	struct dm_file_key key = {0, h->file = rnd(w, FILES)};
	uint64_t range = rnd(w, 3) ? rnd(w, HOT / 5) : rnd(w, RANGES);
	int err;

	h->offset = range * SLOT + (rnd(w, 2) ? 0 : PAGE);
	h->write = rnd(w, 3) == 0;
	if (try)
		err = dm_cache_try_get(tt->c, key, h->offset, SLOT, h->write, &h->ref);
	else
		err = dm_cache_get(tt->c, key, h->offset, SLOT, h->write, &h->ref);
	switch (err) {
	case 0:
		g_assert_cmpuint(h->ref.len, ==, SLOT - h->offset % SLOT);
		count(&tt->gets);
		break;
	case -EBUSY:
		count(&tt->busy);
		break;
	case -EIO:
		count(&tt->refused);
		break;
	case -EPIPE:
		count(&tt->broken);
		next_session(tt);
		break;
	default:
		g_assert_true(try && err == -EAGAIN);
		count(&tt->eagain);
	}
	return err;
}

static void use(struct worker *w, struct held *h)
{
	struct torture *tt = w->tt;
	struct torture_stamp *s = h->ref.addr;

	check(tt, h);
	util_yield();
	if (h->write) {
		__atomic_add_fetch(&s->writes, 1, __ATOMIC_RELAXED);
		count(&tt->writes);
	}
	if (rnd(w, 8) == 0)
		sched_yield();
	check(tt, h);
}

static void one_op(struct worker *w)
{
	struct torture *tt = w->tt;
	struct held a, b;
	bool second;

	if (rnd(w, 200) == 0)
		dm_cache_flush_file(tt->c, (struct dm_file_key){0, rnd(w, FILES)});
	if (tt->rates && rnd(w, 3000) == 0) {
		window_faulty_disconnect(tt->window);
		dm_cache_forget(tt->c);
	}
	if (get(w, &a, rnd(w, 8) == 0) != 0)
		return;
	second = rnd(w, 4) == 0 && get(w, &b, false) == 0;
	use(w, &a);
	if (second)
		use(w, &b);
	dm_cache_put(tt->c, &a.ref);
	if (second) {
		check(tt, &b);
		dm_cache_put(tt->c, &b.ref);
	}
}

static gpointer run(gpointer data)
{
	struct worker *w = data;

	util_yield_seed(w->rng);
	for (uint64_t i = 0; i < w->tt->ops; i++)
		one_op(w);
	g_atomic_int_add(&w->tt->running, -1);
	return NULL;
}

static gpointer watch(gpointer data)
{
	struct torture *tt = data;

	while (g_atomic_int_get(&tt->running) > 0) {
		dm_core_check(dm_cache_core(tt->c));
		g_usleep(1000);
	}
	return NULL;
}

static void begin(struct torture *tt, uint32_t drop_flags, struct dm_cache_config config,
		  uint64_t seed)
{
	struct dm_file_provider provider = torture_provider(&tt->files);
	struct dm_window *local = dm_window_local_new(SLOTS * SLOT, 0, NULL);

	g_assert_nonnull(local);
	local->caps.flags &= ~drop_flags;
	config.slot_size = SLOT;
	tt->window = window_faulty_new(local, seed);
	window_faulty_set_rates(tt->window, 1000, 1000, (uint32_t)tt->rates);
	for (uint64_t f = 0; f < FILES; f++)
		tt->files.fds[f] = torture_file_new(f, RANGES * SLOT / PAGE);
	tt->c = dm_cache_new(tt->window, &provider, &config);
	g_mutex_init(&tt->session);
}

static void end(struct torture *tt, uint64_t seed)
{
	uint64_t writes = 0;
	struct dm_stats s;

	window_faulty_set_rates(tt->window, 0, 0, 0);
	next_session(tt);
	dm_drain_destroy(dm_cache_core(tt->c)); /* the worker may be half way through a batch */
	for (uint64_t f = 0; f < FILES; f++)
		g_assert_cmpint(dm_cache_flush_file(tt->c, (struct dm_file_key){0, f}), ==, 0);
	dm_cache_stats(tt->c, &s);
	g_test_message("seed %" G_GUINT64_FORMAT ": gets %" G_GUINT64_FORMAT
		       ", STALE %" G_GUINT64_FORMAT ", busy %" G_GUINT64_FORMAT
		       ", refused %" G_GUINT64_FORMAT ", broken %" G_GUINT64_FORMAT
		       ", sessions %" G_GUINT64_FORMAT "; hits %" G_GUINT64_FORMAT
		       ", misses %" G_GUINT64_FORMAT ", overlaid %" G_GUINT64_FORMAT
		       ", inline %" G_GUINT64_FORMAT ", by worker %" G_GUINT64_FORMAT
		       ", skipped %" G_GUINT64_FORMAT ", waits %" G_GUINT64_FORMAT,
		       seed, tt->gets, tt->stale, tt->busy, tt->refused, tt->broken, tt->sessions,
		       s.hits, s.misses, s.elided_overlaid, s.reclaim_inline, s.deferred_unmaps,
		       s.reclaim_skipped, s.waits);
	g_assert_cmpuint(tt->stale, ==, 0);
	g_assert_cmpuint(s.mapped, ==, 0);
	g_assert_cmpuint(s.mapped_peak, <=, SLOTS);
	g_assert_cmpuint(s.files_open, ==, 0);
	g_assert_cmpuint(s.removed_ranges, ==, dm_stats_accounted(&s));
	g_assert_cmpuint(tt->c->slots.free, ==, SLOTS);
	dm_cache_free(tt->c);
	dm_window_destroy(tt->window);
	for (uint64_t f = 0; f < FILES; f++) {
		g_assert_cmpint(tt->files.open[f], ==, 0);
		writes += sum_of_writes(tt->files.fds[f]);
		close(tt->files.fds[f]);
	}
	g_assert_cmpuint(writes, ==, tt->writes);
	g_mutex_clear(&tt->session);
}

static void torture(uint32_t drop_flags, struct dm_cache_config config, uint64_t disconnect,
		    uint64_t share)
{
	uint64_t seed = test_env_number("DM_TORTURE_SEED", (uint64_t)g_get_real_time());
	struct torture tt = {.rates = disconnect, .running = THREADS};
	struct worker w[THREADS];
	GThread *threads[THREADS + 1];

	tt.ops = test_env_number("DM_TORTURE_OPS", 8000) / share;
	config.wait_ms = 20;
	begin(&tt, drop_flags, config, seed);
	for (unsigned int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.tt = &tt};
		w[i].rng = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
		threads[i] = g_thread_new("torture", run, &w[i]);
	}
	threads[THREADS] = g_thread_new("watch", watch, &tt);
	for (unsigned int i = 0; i <= THREADS; i++)
		g_thread_join(threads[i]);
	end(&tt, seed);
}

static void test_overlay(void)
{
	torture(0, (struct dm_cache_config){.free_low = 20, .free_high = 40}, 0, 1);
}

static void test_unmap_ahead(void)
{
	torture(DM_WINDOW_OVERLAY | DM_WINDOW_CONCURRENT,
		(struct dm_cache_config){.free_low = 20, .free_high = 40}, 0, 1);
}

static void test_sessions(void)
{
	torture(0, (struct dm_cache_config){.remove_early = 1}, 150, 1);
}

static void test_sessions_serial(void)
{
	torture(DM_WINDOW_OVERLAY | DM_WINDOW_CONCURRENT, (struct dm_cache_config){.fifo = true},
		150, 2);
}

static void test_vanilla(void)
{
	torture(0, (struct dm_cache_config){.vanilla = true}, 0, 32); /* it mostly waits */
}

int main(int argc, char **argv)
{
	int rc;

	g_test_init(&argc, &argv, NULL);
	watchdog_start((unsigned int)test_env_number("DM_TORTURE_SECONDS", 240));
	g_test_add_func("/cache/torture/overlay", test_overlay);
	g_test_add_func("/cache/torture/unmap-ahead", test_unmap_ahead);
	g_test_add_func("/cache/torture/sessions", test_sessions);
	g_test_add_func("/cache/torture/sessions-serial", test_sessions_serial);
	g_test_add_func("/cache/torture/vanilla", test_vanilla);
	rc = g_test_run();
	watchdog_stop();
	return rc;
}
