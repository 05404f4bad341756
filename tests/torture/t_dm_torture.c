// SPDX-License-Identifier: Apache-2.0
/*
 * Many threads on one table over a window of real memory, with a driver that refuses and
 * disconnects at random.
 *
 * Each page of each file carries its file's number and its own. Each guest thread has some slots
 * of the window to itself, as a guest's threads do, and reads, under its own knowledge, what must
 * be there after a setup was answered; others pin whatever they find, anywhere, and check that
 * the bytes behind a pin are those that the pin describes, and stay so. So a map that is answered
 * early, a range that is unmapped or mapped over while it is in use, or handed out with another's
 * bytes, is seen as wrong bytes or as SIGSEGV. One more thread says that files have become shorter
 * or longer: behind the end there may be zeros, and nowhere else.
 *
 * DM_TORTURE_OPS: operations a guest thread. DM_TORTURE_SEED.
 */
#include <errno.h>
#include <daxmap/local.h>
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dm_core.h"
#include "test_random.h"
#include "torture_files.h"
#include "util_yield.h"
#include "watchdog.h"
#include "window_fake.h"
#include "window_faulty.h"

#define PAGE TORTURE_PAGE
#define SLOT 4	 /* pages */
#define SLOTS 12 /* of each guest thread */
#define GUESTS 4
#define PINNERS 2
#define FILES 5
#define FILE_PAGES 64
#define ENDLESS 1000 /* pages */
#define WINDOW_PAGES (GUESTS * SLOTS * SLOT)

struct torture {
	struct dm_window *window;
	struct dm_table *t;
	struct torture_files files;
	uint64_t end[FILES];	/* pages; behind it zeros may stand */
	uint32_t fits[FILES];	/* how often that was about to change */
	uint64_t blanks, fills; /* ranges replaced, and put back */
	bool with_disconnects;
	/* guests run inside, the session's end runs alone */
	GRWLock session;
	uint64_t sessions;
	uint64_t ops;
	uint64_t seed;
	int running;
	uint64_t reads, pins, errors, breaks;
};

struct worker {
	struct torture *tt;
	unsigned int id;
	uint64_t rng;
	uint64_t session;
	struct torture_stamp has[SLOTS * SLOT]; /* what the guest thread has; file 0 = nothing */
};

static uint64_t rnd(struct worker *w, uint64_t n)
{
	return test_rnd(&w->rng, n);
}

static int file_zeros(void *ctx, uint64_t len)
{
	int fd = memfd_create("zeros", MFD_CLOEXEC);

	g_assert_cmpint(fd, >=, 0);
	g_assert_cmpint(ftruncate(fd, (off_t)len), ==, 0);
	return fd;
}

/* As a guest reads: the fitter may put other pages there meanwhile, which ThreadSanitizer would
 * take for a race. */
__attribute__((no_sanitize("thread"), noinline)) static struct torture_stamp
read_stamp(const char *at)
{
	const volatile struct torture_stamp *s = (const volatile void *)at;

	return (struct torture_stamp){.file = s->file, .page = s->page};
}

struct fit {
	uint32_t fits;
	uint64_t end;
};

static struct fit fit_of(const struct torture *tt, uint64_t file)
{
	return (struct fit){
		.fits = __atomic_load_n(&tt->fits[file], __ATOMIC_SEQ_CST),
		.end = __atomic_load_n(&tt->end[file], __ATOMIC_SEQ_CST),
	};
}

/* Everything the thread believes to have is readable and right. */
static void read_all(struct worker *w)
{
	struct torture *tt = w->tt;
	const char *base = dm_window_base(tt->window);
	uint64_t first = (uint64_t)w->id * SLOTS * SLOT;

	for (unsigned int i = 0; i < SLOTS * SLOT; i++) {
		struct fit before, after;
		struct torture_stamp s;

		if (!w->has[i].file)
			continue;
		before = fit_of(tt, w->has[i].file);
		s = read_stamp(base + (first + i) * PAGE);
		after = fit_of(tt, w->has[i].file);
		if (s.file == 0 && before.fits == after.fits)
			g_assert_cmpuint(after.end, <=, w->has[i].page);
		if (s.file)
			g_assert_cmpuint(s.file, ==, w->has[i].file);
		/* half of it may have been read from zeros, while a fit was under way (odd) */
		if (s.page || (s.file && before.fits == after.fits && after.fits % 2 == 0))
			g_assert_cmpuint(s.page, ==, w->has[i].page);
		__atomic_add_fetch(&tt->reads, 1, __ATOMIC_RELAXED);
	}
}

static void setup(struct worker *w, unsigned int at, unsigned int n)
{
	struct torture *tt = w->tt;
	uint64_t first = (uint64_t)w->id * SLOTS * SLOT;
	struct torture_stamp want = {.file = 1 + rnd(w, FILES - 1),
				     .page = rnd(w, 3) ? at : rnd(w, FILE_PAGES - n)};
	int err;

	err = dm_host_setup(tt->t, (first + at) * PAGE, n * PAGE,
			    (struct dm_file_key){0, want.file}, want.page * PAGE, rnd(w, 2));
	if (err)
		__atomic_add_fetch(&tt->errors, 1, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < n; i++) {
		struct torture_stamp *s = &w->has[at + i];

		if (err == 0)
			*s = (struct torture_stamp){.file = want.file, .page = want.page + i};
		else if (s->file != want.file || s->page != want.page + i)
			/* it may be there still, but the guest has let go of it */
			*s = (struct torture_stamp){0};
	}
	g_assert_true(err == 0 || err == -EIO || err == -EPIPE || err == -EBUSY || err == -ENOMEM);
}

static void guest_op(struct worker *w)
{
	struct torture *tt = w->tt;
	uint64_t first = (uint64_t)w->id * SLOTS * SLOT;
	unsigned int at = (unsigned int)rnd(w, SLOTS) * SLOT, n = SLOT;
	uint64_t what;

	if (rnd(w, 4) == 0) {
		at = (unsigned int)rnd(w, SLOTS * SLOT - 1);
		n = 1 + (unsigned int)rnd(w, MIN(10, SLOTS * SLOT - at));
	}
	what = rnd(w, 40);
	if (what == 0) {
		dm_host_flush_file(tt->t, (struct dm_file_key){0, 1 + rnd(w, FILES - 1)}, false);
	} else if (what < 19) {
		/* the guest stops using it first */
		memset(&w->has[at], 0, n * sizeof(w->has[0]));
		dm_host_remove(tt->t, (first + at) * PAGE, n * PAGE);
	} else {
		setup(w, at, n);
	}
	if (rnd(w, 4) == 0)
		read_all(w);
}

/* The session has ended: a guest has nothing, and the channel works again. */
static void end_session(struct torture *tt)
{
	g_rw_lock_writer_lock(&tt->session);
	if (dm_host_broken(tt->t)) {
		window_faulty_reconnect(tt->window);
		dm_host_forget(tt->t);
		tt->sessions++;
		tt->breaks++;
	}
	g_rw_lock_writer_unlock(&tt->session);
}

static gpointer guest(gpointer data)
{
	struct worker *w = data;
	struct torture *tt = w->tt;

	util_yield_seed(w->rng);
	for (uint64_t i = 0; i < tt->ops; i++) {
		bool broken;

		g_rw_lock_reader_lock(&tt->session);
		if (w->session != tt->sessions) {
			memset(w->has, 0, sizeof(w->has));
			w->session = tt->sessions;
		}
		guest_op(w);
		broken = dm_host_broken(tt->t);
		g_rw_lock_reader_unlock(&tt->session);
		if (broken)
			end_session(tt);
	}
	g_atomic_int_add(&tt->running, -1);
	return NULL;
}

static void check_pin(const struct torture *tt, const struct dm_pin *pin, bool *blank)
{
	for (uint64_t done = 0; done < pin->len; done += PAGE) {
		struct torture_stamp s = read_stamp((const char *)pin->addr + done), f;

		/* zeros, or the bytes, but no change from one to the other */
		if (done == 0)
			*blank = s.file == 0;
		g_assert_true(*blank == (s.file == 0));
		if (*blank)
			continue;
		g_assert_cmpuint(s.page, ==, (pin->file_offset + done) / PAGE);
		g_assert_cmpint(pread(pin->fd, &f, sizeof(f), (off_t)(pin->file_offset + done)), ==,
				sizeof(f));
		g_assert_cmpuint(s.file, ==, f.file);
		g_assert_cmpint(g_atomic_int_get(&tt->files.open[s.file]), ==, 1);
	}
}

static gpointer pinner(gpointer data)
{
	struct worker *w = data;
	struct torture *tt = w->tt;

	util_yield_seed(w->rng);
	while (g_atomic_int_get(&tt->running) > 0) {
		uint64_t page = rnd(w, WINDOW_PAGES);
		bool blank = false, still = false;
		struct dm_pin pin;

		if (dm_host_pin(tt->t, page * PAGE, (1 + rnd(w, 6)) * PAGE, &pin) != 0) {
			sched_yield();
			continue;
		}
		check_pin(tt, &pin, &blank);
		util_yield();
		check_pin(tt, &pin, &still);
		g_assert_true(blank == still);
		dm_host_unpin(tt->t, &pin);
		__atomic_add_fetch(&tt->pins, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Files become shorter and longer. */
static gpointer fitter(gpointer data)
{
	struct worker *w = data;
	struct torture *tt = w->tt;

	util_yield_seed(w->rng);
	while (g_atomic_int_get(&tt->running) > 0) {
		uint64_t file = 1 + rnd(w, FILES - 1), end = rnd(w, 3) ? rnd(w, 40) : ENDLESS;
		uint64_t old = tt->end[file];
		struct dm_fitted out;

		__atomic_add_fetch(&tt->fits[file], 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&tt->end[file], MIN(old, end), __ATOMIC_SEQ_CST);
		if (dm_host_fit(tt->t, (struct dm_file_key){0, file}, end * PAGE, DM_FIT_BLANK,
				&out) == 0 &&
		    !out.failed)
			__atomic_store_n(&tt->end[file], end, __ATOMIC_SEQ_CST);
		__atomic_add_fetch(&tt->fits[file], 1, __ATOMIC_SEQ_CST);
		g_assert_cmpuint(out.holes, ==, 0);
		tt->blanks += out.blanked;
		tt->fills += out.restored;
		g_usleep(100);
	}
	return NULL;
}

/* Looks at everything while it changes. */
static void count_range(void *ctx, const struct dm_range_info *r)
{
	*(uint64_t *)ctx += r->len;
}

static gpointer watcher(gpointer data)
{
	struct worker *w = data;
	struct torture *tt = w->tt;

	while (g_atomic_int_get(&tt->running) > 0) {
		uint64_t bytes = 0;

		dm_core_check(dm_table_core(tt->t));
		dm_table_foreach(tt->t, count_range, &bytes);
		g_usleep(500);
	}
	return NULL;
}

static void torture(uint64_t seed, uint64_t ops, bool disconnects, uint32_t budget, bool serial)
{
	struct torture tt = {.ops = ops, .seed = seed, .running = GUESTS};
	struct worker w[GUESTS + PINNERS + 2];
	GThread *threads[GUESTS + PINNERS + 2];
	struct dm_file_provider provider = torture_provider(&tt.files);
	struct dm_table_config config = {.linger_ms = 1};
	struct dm_window *local = dm_window_local_new(WINDOW_PAGES * PAGE, budget, NULL);
	struct dm_stats s;

	if (serial) /* so that requests queue up and are combined */
		local->caps.flags &= ~(uint32_t)DM_WINDOW_CONCURRENT;
	tt.window = window_faulty_new(local, seed);
	window_faulty_set_rates(tt.window, 2000, 2000, disconnects ? 100 : 0);
	for (uint64_t f = 0; f < FILES; f++) {
		tt.files.fds[f] = torture_file_new(f, FILE_PAGES);
		tt.end[f] = ENDLESS;
	}
	g_rw_lock_init(&tt.session);
	provider.zeros = file_zeros;
	tt.t = dm_table_new(tt.window, &provider, &config);
	for (unsigned int i = 0; i < G_N_ELEMENTS(w); i++) {
		w[i] = (struct worker){.tt = &tt, .id = i};
		w[i].rng = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
		threads[i] = g_thread_new("torture",
					  i < GUESTS		  ? guest
					  : i < GUESTS + PINNERS  ? pinner
					  : i == GUESTS + PINNERS ? watcher
								  : fitter,
					  &w[i]);
	}
	for (unsigned int i = 0; i < G_N_ELEMENTS(w); i++)
		g_thread_join(threads[i]);

	window_faulty_set_rates(tt.window, 0, 0, 0);
	dm_table_stats(tt.t, &s);
	g_test_message("seed %" G_GUINT64_FORMAT ": %" G_GUINT64_FORMAT " reads, %" G_GUINT64_FORMAT
		       " pins, %" G_GUINT64_FORMAT " errors, %" G_GUINT64_FORMAT
		       " breaks; maps %" G_GUINT64_FORMAT ", unmaps %" G_GUINT64_FORMAT
		       ", revived %" G_GUINT64_FORMAT ", overlaid %" G_GUINT64_FORMAT
		       ", cancelled %" G_GUINT64_FORMAT ", by worker %" G_GUINT64_FORMAT
		       ", joined %" G_GUINT64_FORMAT ", calls %" G_GUINT64_FORMAT
		       ", waits %" G_GUINT64_FORMAT ", blanked %" G_GUINT64_FORMAT
		       ", put back %" G_GUINT64_FORMAT,
		       seed, tt.reads, tt.pins, tt.errors, tt.breaks, s.maps, s.unmaps,
		       s.elided_revived, s.elided_overlaid, s.elided_cancelled, s.deferred_unmaps,
		       s.coalesced, s.batches, s.waits, tt.blanks, tt.fills);
	g_assert_true(dm_host_flush(tt.t) == 0);
	dm_table_stats(tt.t, &s);
	g_assert_cmpuint(s.mapped, ==, 0);
	g_assert_cmpuint(s.files_open, ==, 0);
	g_assert_cmpuint(s.removed_ranges, ==, dm_stats_accounted(&s));
	g_assert_true(!budget || s.mapped_peak <= budget);
	dm_table_free(tt.t);
	dm_window_destroy(tt.window);
	for (uint64_t f = 0; f < FILES; f++) {
		g_assert_cmpint(tt.files.open[f], ==, 0);
		close(tt.files.fds[f]);
	}
	g_rw_lock_clear(&tt.session);
}

/*
 * As many threads as there may be mappings, each with one at a time: there always is room, or
 * something lingers, or is on its way out. So nobody may be refused.
 */
struct roomer {
	struct torture *tt;
	unsigned int id;
};

static gpointer roomer(gpointer data)
{
	struct roomer *r = data;
	struct dm_file_key file = {0, 1 + r->id % (FILES - 1)};

	util_yield_seed(r->tt->seed + r->id);
	for (uint64_t i = 0; i < r->tt->ops; i++) {
		uint64_t at = (r->id * 3 + i % 3) * SLOT * PAGE;

		g_assert_cmpint(dm_host_setup(r->tt->t, at, SLOT * PAGE, file, 0, false), ==, 0);
		g_assert_cmpint(dm_host_remove(r->tt->t, at, SLOT * PAGE), ==, 0);
	}
	return NULL;
}

static void room(uint64_t seed, uint64_t ops, bool overlay)
{
	struct torture tt = {.ops = ops, .seed = seed};
	struct roomer r[GUESTS];
	GThread *threads[GUESTS];
	struct dm_file_provider provider = torture_provider(&tt.files);
	struct dm_table_config config = {.linger_ms = 1};
	struct window_fake_config fc = {
		.caps = {.flags = overlay ? DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT : 0,
			 .size = WINDOW_PAGES * PAGE,
			 .granule = PAGE,
			 .max_mappings = GUESTS,
			 .batch = 4},
	};

	tt.window = window_fake_new(&fc);
	tt.t = dm_table_new(tt.window, &provider, &config);
	for (unsigned int i = 0; i < GUESTS; i++) {
		r[i] = (struct roomer){&tt, i};
		threads[i] = g_thread_new("roomer", roomer, &r[i]);
	}
	for (unsigned int i = 0; i < GUESTS; i++)
		g_thread_join(threads[i]);
	g_assert_cmpint(dm_host_flush(tt.t), ==, 0);
	dm_table_free(tt.t);
	g_assert_cmpstr(window_fake_violation(tt.window), ==, NULL);
	dm_window_destroy(tt.window);
}

static uint64_t ops(void)
{
	return test_env_number("DM_TORTURE_OPS", 8000);
}

static uint64_t seed(void)
{
	return test_env_number("DM_TORTURE_SEED", (uint64_t)g_get_real_time());
}

static void test_concurrent(void)
{
	torture(seed(), ops(), false, 0, false);
}

static void test_serial(void)
{
	torture(seed(), ops(), false, 0, true);
}

static void test_budget(void)
{
	torture(seed(), ops() / 4, false, 40, true);
}

static void test_disconnects(void)
{
	torture(seed(), ops(), true, 0, true);
}

static void test_room(void)
{
	room(seed(), ops(), false);
	room(seed(), ops(), true);
}

int main(int argc, char **argv)
{
	int rc;

	g_test_init(&argc, &argv, NULL);
	watchdog_start((unsigned int)test_env_number("DM_TORTURE_SECONDS", 240));
	g_test_add_func("/dm/torture/concurrent", test_concurrent);
	g_test_add_func("/dm/torture/serial", test_serial);
	g_test_add_func("/dm/torture/budget", test_budget);
	g_test_add_func("/dm/torture/disconnects", test_disconnects);
	g_test_add_func("/dm/torture/room", test_room);
	rc = g_test_run();
	watchdog_stop();
	return rc;
}
