// SPDX-License-Identifier: Apache-2.0
/* The guest seat's rules one by one, over the strict fake VMM and the faulty layer. */
#include <daxmap/cache.h>
#include <errno.h>
#include <glib.h>

#include "dm_cache.h"
#include "dm_fixture.h"

#define SLOT (4 * FX_GRANULE)
#define SLOTS 16u

struct fixture {
	struct dm_fixture files;
	struct dm_window *fake;
	struct dm_window *window;
	struct dm_cache *c;
};

static void begin(struct fixture *fx, uint32_t flags, uint32_t max_mappings,
		  const struct dm_cache_config *config)
{
	struct window_fake_config fc = {
		.caps = {.flags = flags,
			 .size = SLOTS * SLOT,
			 .granule = FX_GRANULE,
			 .max_mappings = max_mappings,
			 .batch = 8},
	};
	struct dm_cache_config d = config ? *config : (struct dm_cache_config){.no_worker = true};
	struct dm_file_provider provider = {.ctx = &fx->files, .open = fx_open, .close = fx_close};

	d.slot_size = SLOT;
	d.wait_ms = d.wait_ms ? d.wait_ms : 20;
	*fx = (struct fixture){0};
	fx->fake = window_fake_new(&fc);
	fx->window = window_faulty_new(fx->fake, 1);
	fx->c = dm_cache_new(fx->window, &provider, &d);
	g_assert_nonnull(fx->c);
}

static struct dm_stats stats(struct fixture *fx)
{
	struct dm_stats s;

	dm_cache_stats(fx->c, &s);
	return s;
}

static struct window_fake_counts vmm(struct fixture *fx)
{
	struct window_fake_counts counts;

	window_fake_counts(fx->fake, &counts);
	return counts;
}

static void assert_balance(struct fixture *fx)
{
	struct dm_stats s = stats(fx);

	dm_core_check(dm_cache_core(fx->c));
	g_assert_cmpuint(s.removed_ranges, ==, dm_stats_accounted(&s));
	g_assert_cmpuint(s.mapped, ==, s.live + s.lingering);
}

static void end(struct fixture *fx)
{
	assert_balance(fx);
	dm_cache_free(fx->c);
	g_assert_cmpint(fx->files.open_files, ==, 0);
	g_assert_cmpint(fx->files.twice, ==, 0);
	g_assert_cmpstr(window_fake_violation(fx->fake), ==, NULL);
	dm_window_destroy(fx->window);
}

static struct dm_file_key key(uint64_t file)
{
	return (struct dm_file_key){7, file};
}

/* In slots. */
static int get(struct fixture *fx, uint64_t file, uint64_t at, struct dm_ref *ref)
{
	return dm_cache_get(fx->c, key(file), at * SLOT, SLOT, false, ref);
}

static void touch(struct fixture *fx, uint64_t file, uint64_t at)
{
	struct dm_ref ref;

	g_assert_cmpint(get(fx, file, at, &ref), ==, 0);
	dm_cache_put(fx->c, &ref);
}

static void touch_many(struct fixture *fx, uint64_t file, uint64_t first, uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++)
		touch(fx, file, i);
}

static bool has(struct fixture *fx, uint64_t file, uint64_t at)
{
	struct dm_ref ref;

	if (dm_cache_try_get(fx->c, key(file), at * SLOT, 1, false, &ref) != 0)
		return false;
	dm_cache_put(fx->c, &ref);
	return true;
}

/* Does the VMM show at the ref what was asked for? */
static bool shows(struct fixture *fx, const struct dm_ref *ref, uint64_t file, uint64_t at)
{
	const struct dm_range *r = ref->range;
	const struct window_fake_page *p = &window_fake_pages(fx->fake)[r->offset / FX_GRANULE];

	for (uint64_t i = 0; i < SLOT / FX_GRANULE; i++)
		if (!p[i].mapping || p[i].key_lo != file ||
		    p[i].file_offset != at * SLOT + i * FX_GRANULE)
			return false;
	return true;
}

static void test_hit(void)
{
	struct fixture fx;
	struct dm_ref a, b;

	begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_cmpint(get(&fx, 1, 3, &a), ==, 0);
	g_assert_true(shows(&fx, &a, 1, 3));
	g_assert_cmpint(get(&fx, 1, 3, &b), ==, 0);
	g_assert_true(a.range == b.range);
	dm_cache_put(fx.c, &a);
	dm_cache_put(fx.c, &b);
	touch(&fx, 1, 3);
	g_assert_cmpuint(vmm(&fx).maps, ==, 1);
	g_assert_cmpuint(stats(&fx).misses, ==, 1);
	g_assert_cmpuint(stats(&fx).hits, ==, 2);
	end(&fx);
}

static void test_extent(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_cmpint(dm_cache_get(fx.c, key(1), SLOT - 10, 100, false, &ref), ==, 0);
	g_assert_cmpuint(ref.len, ==, 10);
	dm_cache_put(fx.c, &ref);
	g_assert_cmpint(dm_cache_get(fx.c, key(1), SLOT, 100, false, &ref), ==, 0);
	g_assert_cmpuint(ref.len, ==, 100);
	dm_cache_put(fx.c, &ref);
	g_assert_cmpint(dm_cache_get(fx.c, key(1), 0, 0, false, &ref), ==, -EINVAL);
	g_assert_cmpint(dm_cache_get(fx.c, key(1), INT64_MAX, 1, false, &ref), ==, -EINVAL);
	g_assert_cmpint(dm_cache_get(fx.c, key(1), UINT64_MAX, 1, false, &ref), ==, -EINVAL);
	end(&fx);
}

static void test_bad_slot_size(void)
{
	struct dm_file_provider provider = {.open = fx_open, .close = fx_close};
	struct window_fake_config fc = {.caps = {.size = 65536, .granule = 4096, .batch = 1}};
	struct dm_window *w = window_fake_new(&fc);

	for (unsigned int i = 0; i < 3; i++) {
		struct dm_cache_config d = {.slot_size = (uint64_t[]){2048, 12288, 131072}[i]};

		g_assert_null(dm_cache_new(w, &provider, &d));
	}
	dm_window_destroy(w);
}

static void test_full_window_overlays(void)
{
	struct dm_cache_config d = {.remove_early = -1};
	struct fixture fx;

	begin(&fx, FX_OVERLAY, 0, &d);
	touch_many(&fx, 1, 0, SLOTS + 5);
	g_assert_cmpuint(vmm(&fx).submits, ==, SLOTS + 5);
	g_assert_cmpuint(vmm(&fx).unmaps, ==, 0);
	g_assert_cmpuint(stats(&fx).elided_overlaid, ==, 5);
	end(&fx);
}

static void test_full_window_unmaps_in_the_same_batch(void)
{
	struct fixture fx;

	begin(&fx, FX_SHMEM, 0, NULL);
	touch_many(&fx, 1, 0, SLOTS + 5);
	g_assert_cmpuint(vmm(&fx).submits, ==, SLOTS + 5);
	g_assert_cmpuint(vmm(&fx).unmaps, ==, 5);
	g_assert_cmpuint(vmm(&fx).overlap_refused, ==, 0);
	g_assert_cmpuint(stats(&fx).reclaim_inline, ==, 5);
	end(&fx);
}

static void test_budget_bounds_the_slots(void)
{
	struct fixture fx;

	begin(&fx, FX_SHMEM, 5, NULL);
	touch_many(&fx, 1, 0, 20);
	g_assert_cmpuint(vmm(&fx).peak, ==, 5);
	end(&fx);
}

static void test_clock_keeps_what_is_warm(void)
{
	struct fixture fx;

	begin(&fx, FX_SHMEM, 0, NULL);
	touch_many(&fx, 1, 0, SLOTS);
	touch(&fx, 1, 0);
	touch(&fx, 1, 100);
	g_assert_true(has(&fx, 1, 0));
	g_assert_false(has(&fx, 1, 1));
	end(&fx);
}

static void test_fifo_does_not(void)
{
	struct dm_cache_config d = {.fifo = true, .no_worker = true};
	struct fixture fx;

	begin(&fx, FX_SHMEM, 0, &d);
	touch_many(&fx, 1, 0, SLOTS);
	touch(&fx, 1, 0);
	touch(&fx, 1, 100);
	g_assert_false(has(&fx, 1, 0));
	g_assert_true(has(&fx, 1, 1));
	end(&fx);
}

static void test_pinned_stay(void)
{
	struct fixture fx;
	struct dm_ref refs[SLOTS], more;

	begin(&fx, FX_OVERLAY, 0, NULL);
	for (uint64_t i = 0; i < SLOTS; i++)
		g_assert_cmpint(get(&fx, 1, i, &refs[i]), ==, 0);
	g_assert_cmpint(get(&fx, 2, 0, &more), ==, -EBUSY);
	g_assert_cmpuint(stats(&fx).reclaim_skipped, >, 0);
	dm_cache_put(fx.c, &refs[7]);
	g_assert_cmpint(get(&fx, 2, 0, &more), ==, 0);
	for (uint64_t i = 0; i < SLOTS; i++) {
		if (i == 7)
			continue;
		g_assert_true(shows(&fx, &refs[i], 1, i));
		dm_cache_put(fx.c, &refs[i]);
	}
	dm_cache_put(fx.c, &more);
	end(&fx);
}

static gpointer get_in_thread(gpointer data)
{
	touch(data, 2, 0);
	return NULL;
}

static void test_put_wakes_who_waits(void)
{
	struct dm_cache_config d = {.no_worker = true, .wait_ms = 100000};
	struct fixture fx;
	struct dm_ref refs[SLOTS];
	GThread *t;

	begin(&fx, FX_OVERLAY, 0, &d);
	for (uint64_t i = 0; i < SLOTS; i++)
		g_assert_cmpint(get(&fx, 1, i, &refs[i]), ==, 0);
	t = g_thread_new("waiter", get_in_thread, &fx);
	while (!__atomic_load_n(&fx.c->sleep.waiters, __ATOMIC_SEQ_CST))
		g_thread_yield();
	for (uint64_t i = 0; i < SLOTS; i++)
		dm_cache_put(fx.c, &refs[i]);
	g_thread_join(t);
	end(&fx);
}

static gpointer get_same(gpointer data)
{
	touch(data, 3, 9);
	return NULL;
}

static void test_misses_join(void)
{
	struct fixture fx;
	GThread *t[4];

	begin(&fx, FX_OVERLAY, 0, NULL);
	window_faulty_hold(fx.window);
	for (int i = 0; i < 4; i++)
		t[i] = g_thread_new("getter", get_same, &fx);
	window_faulty_wait_held(fx.window);
	window_faulty_let_go(fx.window);
	for (int i = 0; i < 4; i++)
		g_thread_join(t[i]);
	g_assert_cmpuint(vmm(&fx).maps, ==, 1);
	g_assert_cmpuint(stats(&fx).misses, ==, 1);
	g_assert_cmpuint(stats(&fx).hits, ==, 3);
	end(&fx);
}

static void test_refused_map_loses_no_slot(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_OVERLAY, 0, NULL);
	window_faulty_set_rates(fx.window, 65536, 0, 0);
	g_assert_cmpint(get(&fx, 1, 0, &ref), ==, -EIO);
	g_assert_cmpint(fx.files.open_files, ==, 0);
	window_faulty_set_rates(fx.window, 0, 0, 0);
	touch_many(&fx, 1, 0, SLOTS);
	g_assert_cmpuint(vmm(&fx).live, ==, SLOTS);
	/* and over a victim: which stays mapped, but is not found any more */
	window_faulty_set_rates(fx.window, 65536, 65536, 0);
	g_assert_cmpint(get(&fx, 2, 0, &ref), ==, -EIO);
	assert_balance(&fx);
	g_assert_cmpuint(stats(&fx).lingering, ==, 1);
	window_faulty_set_rates(fx.window, 0, 0, 0);
	touch_many(&fx, 2, 0, SLOTS);
	g_assert_cmpuint(stats(&fx).lingering, ==, 0);
	end(&fx);
}

static void test_refused_unmap(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_SHMEM, 0, NULL);
	touch_many(&fx, 1, 0, SLOTS);
	window_faulty_set_rates(fx.window, 0, 65536, 0);
	g_assert_cmpint(get(&fx, 2, 0, &ref), <, 0);
	assert_balance(&fx);
	window_faulty_set_rates(fx.window, 65536, 0, 0);
	g_assert_cmpint(get(&fx, 2, 0, &ref), ==, -EIO); /* unmapped, not mapped: a free slot */
	assert_balance(&fx);
	g_assert_cmpuint(vmm(&fx).live, ==, SLOTS - 1);
	window_faulty_set_rates(fx.window, 0, 0, 0);
	touch_many(&fx, 2, 0, SLOTS);
	end(&fx);
}

static void test_provider_error(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_OVERLAY, 0, NULL);
	fx.files.open_error = -ESTALE;
	g_assert_cmpint(get(&fx, 1, 0, &ref), ==, -ESTALE);
	fx.files.open_error = 0;
	touch(&fx, 1, 0);
	end(&fx);
}

static void test_read_only_file(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_OVERLAY, 0, NULL);
	fx.files.read_only = true;
	g_assert_cmpint(dm_cache_get(fx.c, key(1), 0, 1, true, &ref), ==, -EACCES);
	touch(&fx, 1, 0);
	g_assert_cmpint(dm_cache_get(fx.c, key(1), 0, 1, true, &ref), ==, -EACCES);
	/* mapped writable at once where it may be: no upgrade, no second map */
	fx.files.read_only = false;
	touch(&fx, 2, 0);
	g_assert_cmpint(dm_cache_get(fx.c, key(2), 0, 1, true, &ref), ==, 0);
	dm_cache_put(fx.c, &ref);
	g_assert_cmpuint(vmm(&fx).maps, ==, 2);
	end(&fx);
}

static void test_flush_file(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_SHMEM, 0, NULL);
	touch_many(&fx, 1, 0, 10);
	touch_many(&fx, 2, 0, 3);
	g_assert_cmpint(get(&fx, 1, 4, &ref), ==, 0);
	g_assert_cmpint(dm_cache_flush_file(fx.c, key(1)), ==, -EBUSY);
	g_assert_cmpuint(vmm(&fx).live, ==, 4);
	g_assert_true(has(&fx, 1, 4));
	dm_cache_put(fx.c, &ref);
	g_assert_cmpint(dm_cache_flush_file(fx.c, key(1)), ==, 0);
	g_assert_cmpuint(vmm(&fx).live, ==, 3);
	g_assert_cmpint(fx.files.open_files, ==, 1);
	touch_many(&fx, 1, 0, SLOTS);
	end(&fx);
}

static void test_forget(void)
{
	struct fixture fx;
	struct dm_ref ref, other;

	begin(&fx, FX_OVERLAY, 0, NULL);
	touch_many(&fx, 1, 0, SLOTS);
	g_assert_cmpint(get(&fx, 1, 4, &ref), ==, 0);
	dm_cache_forget(fx.c);
	window_fake_reset(fx.fake);
	g_assert_cmpint(get(&fx, 1, 4, &other), ==, -EPIPE);
	g_assert_cmpint(dm_cache_flush_file(fx.c, key(1)), ==, -EPIPE);
	g_assert_cmpint(fx.files.open_files, ==, 1); /* the ref's */

	dm_cache_renew(fx.c);
	for (uint64_t i = 0; i < 2 * SLOTS; i++) {
		struct dm_ref r2;

		g_assert_cmpint(get(&fx, 2, i, &r2), ==, 0);
		g_assert_true(((struct dm_range *)r2.range)->offset !=
			      ((struct dm_range *)ref.range)->offset);
		dm_cache_put(fx.c, &r2);
	}
	g_assert_cmpuint(vmm(&fx).live, ==, SLOTS - 1);
	dm_cache_put(fx.c, &ref);
	touch(&fx, 3, 0);
	g_assert_cmpuint(vmm(&fx).live, ==, SLOTS);
	end(&fx);
}

static void test_broken_channel(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_OVERLAY, 0, NULL);
	touch_many(&fx, 1, 0, SLOTS);
	window_faulty_disconnect(fx.window);
	g_assert_cmpint(get(&fx, 2, 0, &ref), ==, -EPIPE);
	g_assert_cmpint(get(&fx, 1, 0, &ref), ==, -EPIPE);
	window_faulty_reconnect(fx.window);
	window_fake_reset(fx.fake);
	dm_cache_renew(fx.c);
	assert_balance(&fx);
	touch_many(&fx, 1, 0, SLOTS);
	end(&fx);
}

static void test_try_get_maps_nothing(void)
{
	struct fixture fx;
	struct dm_ref ref;

	begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_cmpint(dm_cache_try_get(fx.c, key(1), 0, 1, false, &ref), ==, -EAGAIN);
	g_assert_cmpuint(vmm(&fx).submits, ==, 0);
	touch(&fx, 1, 0);
	g_assert_true(has(&fx, 1, 0));
	end(&fx);
}

/* With locks that ThreadSanitizer sees. */
struct seen {
	struct util_mutex lock;
	struct util_cond cond;
	unsigned int unmaps;
};

static void on_event(void *ctx, const struct dm_trace_event *e)
{
	struct seen *s = ctx;

	if (e->kind != DM_TRACE_UNMAP)
		return;
	util_mutex_lock(&s->lock);
	s->unmaps++;
	util_cond_signal(&s->cond);
	util_mutex_unlock(&s->lock);
}

static void test_worker_keeps_a_stock(void)
{
	struct dm_cache_config d = {.free_low = 25, .free_high = 50};
	struct seen s = {.unmaps = 0};
	struct dm_trace trace = {.fn = on_event, .ctx = &s};
	struct fixture fx;
	struct dm_ref held;

	util_mutex_init(&s.lock);
	util_cond_init(&s.cond);
	begin(&fx, FX_SHMEM, 0, &d);
	dm_cache_set_trace(fx.c, &trace);
	g_assert_cmpint(get(&fx, 1, 0, &held), ==, 0);
	touch_many(&fx, 1, 1, 12); /* leaves 3 of 16 free */
	util_mutex_lock(&s.lock);
	while (s.unmaps < 5) /* 8 free */
		util_cond_wait(&s.cond, &s.lock);
	util_mutex_unlock(&s.lock);
	g_assert_true(has(&fx, 1, 0)); /* in use: skipped */
	dm_cache_put(fx.c, &held);
	dm_cache_set_trace(fx.c, NULL);
	dm_cache_free(fx.c);
	g_assert_cmpint(fx.files.open_files, ==, 0);
	dm_window_destroy(fx.window);
	util_cond_destroy(&s.cond);
	util_mutex_destroy(&s.lock);
}

static void test_the_cheaper_way(void)
{
	struct fixture fx;

	begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_false(fx.c->choice.early);
	fx.c->choice.unmap_ns = 1000;
	for (int i = 0; i < 50; i++) { /* a strict VMM behind: the overlay pays for the unmap */
		dm_choice_note(fx.c, true, 9000);
		dm_choice_note(fx.c, false, 5000);
	}
	g_assert_true(fx.c->choice.early);
	for (int i = 0; i < 100; i++)
		dm_choice_note(fx.c, true, 4000);
	g_assert_false(fx.c->choice.early);
	/* both ways are tried: after enough misses each has samples */
	fx.c->choice = (struct dm_choice){0};
	touch_many(&fx, 1, 0, 10 * SLOTS);
	g_assert_cmpuint(fx.c->choice.over_ns, >, 0);
	g_assert_cmpuint(fx.c->choice.free_ns, >, 0);
	g_assert_cmpuint(fx.c->choice.unmap_ns, >, 0);
	end(&fx);
}

static void test_vanilla(void)
{
	struct dm_cache_config d = {.vanilla = true};
	struct fixture fx;
	struct dm_ref ref, other;

	begin(&fx, FX_OVERLAY, 0, &d);
	touch_many(&fx, 1, 0, SLOTS + 4);
	g_assert_cmpuint(vmm(&fx).submits, ==, SLOTS + 8);
	g_assert_cmpuint(vmm(&fx).unmaps, ==, 4);
	/* one reader of the file keeps reclaim away from all of it */
	g_assert_cmpint(get(&fx, 1, SLOTS, &ref), ==, 0);
	g_assert_cmpint(get(&fx, 2, 0, &other), ==, -EBUSY);
	dm_cache_put(fx.c, &ref);
	touch(&fx, 2, 0);
	end(&fx);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/cache/hit", test_hit);
	g_test_add_func("/cache/extent", test_extent);
	g_test_add_func("/cache/bad-slot-size", test_bad_slot_size);
	g_test_add_func("/cache/full-overlays", test_full_window_overlays);
	g_test_add_func("/cache/full-unmaps", test_full_window_unmaps_in_the_same_batch);
	g_test_add_func("/cache/budget", test_budget_bounds_the_slots);
	g_test_add_func("/cache/clock", test_clock_keeps_what_is_warm);
	g_test_add_func("/cache/fifo", test_fifo_does_not);
	g_test_add_func("/cache/pinned", test_pinned_stay);
	g_test_add_func("/cache/put-wakes", test_put_wakes_who_waits);
	g_test_add_func("/cache/join", test_misses_join);
	g_test_add_func("/cache/refused-map", test_refused_map_loses_no_slot);
	g_test_add_func("/cache/refused-unmap", test_refused_unmap);
	g_test_add_func("/cache/provider-error", test_provider_error);
	g_test_add_func("/cache/read-only", test_read_only_file);
	g_test_add_func("/cache/flush-file", test_flush_file);
	g_test_add_func("/cache/forget", test_forget);
	g_test_add_func("/cache/broken", test_broken_channel);
	g_test_add_func("/cache/try-get", test_try_get_maps_nothing);
	g_test_add_func("/cache/worker", test_worker_keeps_a_stock);
	g_test_add_func("/cache/cheaper-way", test_the_cheaper_way);
	g_test_add_func("/cache/vanilla", test_vanilla);
	return g_test_run();
}
