// SPDX-License-Identifier: Apache-2.0
/*
 * The host seat, several threads: what happens while the driver is busy. The faulty layer holds
 * a submit, so each test stops at the moment it is about.
 */
#include "dm_fixture.h"

#include <errno.h>

#include "dm_core.h"

struct asker {
	struct dm_fixture *fx;
	uint64_t g, n, file, fg;
	int result;
	GThread *thread;
};

static gpointer ask(gpointer data)
{
	struct asker *a = data;

	a->result = fx_setup(a->fx, a->g, a->n, a->file, a->fg);
	return NULL;
}

static void asker_start(struct asker *a)
{
	a->thread = g_thread_new("asker", ask, a);
}

static int asker_join(struct asker *a)
{
	g_thread_join(a->thread);
	return a->result;
}

static size_t queued(struct dm_fixture *fx)
{
	struct dm_chan *ch = &dm_table_core(fx->t)->chan;
	struct cds_list_head *at;
	size_t n = 0;

	util_mutex_lock(&ch->lock);
	cds_list_for_each(at, &ch->maps) n++;
	cds_list_for_each(at, &ch->unmaps) n++;
	util_mutex_unlock(&ch->lock);
	return n;
}

static void wait_queued(struct dm_fixture *fx, size_t n)
{
	while (queued(fx) < n)
		g_usleep(100);
}

/* While one call is at the driver, all that come make one more. */
static void test_askers_are_combined(void)
{
	struct dm_fixture fx;
	struct asker a[5];

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	window_faulty_hold(fx.window);
	for (unsigned int i = 0; i < G_N_ELEMENTS(a); i++) {
		a[i] = (struct asker){.fx = &fx, .g = i * 2, .n = 1, .file = 1 + i, .fg = i};
		asker_start(&a[i]);
		if (i == 0)
			window_faulty_wait_held(fx.window);
	}
	wait_queued(&fx, 4);
	window_faulty_let_go(fx.window);
	for (unsigned int i = 0; i < G_N_ELEMENTS(a); i++) {
		g_assert_cmpint(asker_join(&a[i]), ==, 0);
		g_assert_true(fx_shows(&fx, i * 2, 1 + i, i));
	}
	g_assert_cmpuint(fx_vmm(&fx).submits, ==, 2);
	g_assert_cmpuint(fx_stats(&fx).batches, ==, 2);
	g_assert_cmpuint(fx_stats(&fx).batched_ops, ==, 5);
	fx_end(&fx);
}

/* Neighbours of one file become one mapping where it can be split again, and only there. */
static void test_neighbours_are_joined(void)
{
	for (int split = 0; split < 2; split++) {
		struct dm_fixture fx;
		struct asker a[4];

		fx_begin(&fx, split ? FX_OVERLAY : FX_SHMEM, 0, NULL);
		window_faulty_hold(fx.window);
		for (unsigned int i = 0; i < G_N_ELEMENTS(a); i++) {
			a[i] = (struct asker){
				.fx = &fx, .g = 10 - i, .n = 1, .file = 1, .fg = 10 - i};
			asker_start(&a[i]);
			if (i == 0)
				window_faulty_wait_held(fx.window);
		}
		wait_queued(&fx, 3);
		window_faulty_let_go(fx.window);
		for (unsigned int i = 0; i < G_N_ELEMENTS(a); i++)
			g_assert_cmpint(asker_join(&a[i]), ==, 0);
		g_assert_cmpuint(fx_vmm(&fx).maps, ==, split ? 2 : 4);
		g_assert_cmpuint(fx_stats(&fx).coalesced, ==, split ? 2 : 0);
		g_assert_cmpuint(fx_stats(&fx).live, ==, 4);
		g_assert_cmpint(fx_remove(&fx, 8, 1), ==, 0);
		g_assert_cmpint(dm_host_flush_file(fx.t, (struct dm_file_key){7, 1}, false), ==, 0);
		g_assert_true(fx_shows(&fx, 7, 1, 7) && fx_hole(&fx, 8) && fx_shows(&fx, 9, 1, 9));
		fx_end(&fx);
	}
}

static gpointer evict_all(gpointer data)
{
	struct dm_fixture *fx = data;
	struct dm_core *c = dm_table_core(fx->t);
	struct dm_evict e;

	dm_evict_init(&e, 8, true);
	dm_evict_oldest(c, &e, 8, UINT64_MAX, NULL);
	dm_evict_run(c, &e, DM_C_deferred_unmaps);
	dm_evict_destroy(&e);
	return NULL;
}

/* An unmap still in the queue is withdrawn by whoever wants the bytes back. */
static void test_queued_unmap_is_cancelled(void)
{
	struct dm_fixture fx;
	struct asker blocker = {.fx = &fx, .g = 20, .n = 1, .file = 3};
	struct dm_stats s;
	GThread *worker;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 4, 2, 2, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 8), ==, 0);
	window_faulty_hold(fx.window);
	asker_start(&blocker);
	window_faulty_wait_held(fx.window);
	worker = g_thread_new("evict", evict_all, &fx);
	wait_queued(&fx, 1);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0); /* while the driver is held */
	g_assert_true(fx_owned(&fx, 0));
	window_faulty_let_go(fx.window);
	g_thread_join(worker);
	g_assert_cmpint(asker_join(&blocker), ==, 0);
	s = fx_stats(&fx);
	g_assert_cmpuint(s.elided_cancelled, ==, 1);
	g_assert_cmpuint(s.deferred_unmaps, ==, 1);
	g_assert_true(fx_owned(&fx, 1) && fx_shows(&fx, 0, 1, 0) && fx_hole(&fx, 4));
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* A setup of bytes that are being mapped waits for that, and asks for nothing. */
static void test_second_asker_waits_for_the_first(void)
{
	struct dm_fixture fx;
	struct asker a = {.fx = &fx, .g = 0, .n = 2, .file = 1}, b = a;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	window_faulty_hold(fx.window);
	asker_start(&a);
	window_faulty_wait_held(fx.window);
	asker_start(&b);
	/* a remove does not wait, and does not see what was not answered yet */
	g_assert_cmpint(fx_remove(&fx, 0, 2), ==, 0);
	g_assert_false(fx_owned(&fx, 0));
	window_faulty_let_go(fx.window);
	g_assert_cmpint(asker_join(&a), ==, 0);
	g_assert_cmpint(asker_join(&b), ==, 0);
	g_assert_cmpuint(fx_vmm(&fx).maps, ==, 1);
	g_assert_true(fx_owned(&fx, 0));
	fx_end(&fx);
}

static gpointer remove_two(gpointer data)
{
	g_assert_cmpint(fx_remove(data, 0, 2), ==, 0);
	return NULL;
}

/* A setup whose claim has grown to a range does not swallow the remove of another part of it. */
static void test_remove_beside_a_setup_is_not_lost(void)
{
	for (int split = 0; split < 2; split++) {
		struct dm_fixture fx;
		struct asker a = {.fx = &fx, .g = 3, .n = 2, .file = 1, .fg = 3};
		GThread *t;

		fx_begin(&fx, split ? FX_OVERLAY : FX_SHMEM, 0, NULL);
		g_assert_cmpint(fx_setup(&fx, 0, 4, 1, 0), ==, 0);
		window_faulty_hold(fx.window);
		asker_start(&a); /* maps granule 4 */
		window_faulty_wait_held(fx.window);
		t = g_thread_new("remove", remove_two, &fx);
		while (fx_stats(&fx).removes == 0)
			g_usleep(100);
		g_usleep(1000); /* so that it is in the middle: only a bug depends on it */
		window_faulty_let_go(fx.window);
		g_assert_cmpint(asker_join(&a), ==, 0);
		g_thread_join(t);
		g_assert_false(fx_owned(&fx, 0) || fx_owned(&fx, 1));
		g_assert_true(fx_owned(&fx, 2) && fx_owned(&fx, 3) && fx_owned(&fx, 4));
		fx_assert_balance(&fx);
		fx_end(&fx);
	}
}

static gpointer unpin_later(gpointer data)
{
	struct dm_fixture *fx = ((void **)data)[0];
	struct dm_pin *pin = ((void **)data)[1];

	/* until the setup has closed the range */
	while (fx_owned(fx, 0))
		g_usleep(100);
	g_assert_true(fx_shows(fx, 0, 1, 0));
	dm_host_unpin(fx->t, pin);
	return NULL;
}

static void test_replacing_waits_for_pins(void)
{
	struct dm_fixture fx;
	struct dm_pin pin;
	void *args[2] = {&fx, &pin};
	GThread *t;

	fx_begin(&fx, FX_OVERLAY, 0, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, 0, 1, &pin), ==, 0);
	t = g_thread_new("unpin", unpin_later, args);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 2, 0), ==, 0);
	g_thread_join(t);
	g_assert_true(fx_shows(&fx, 0, 2, 0));

	/* nobody unpins: busy, and everything as it was */
	dm_table_core(fx.t)->pin_wait_ns = 1;
	g_assert_cmpint(dm_host_pin(fx.t, 0, 1, &pin), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 3, 0), ==, -EBUSY);
	g_assert_true(fx_owned(&fx, 0) && fx_shows(&fx, 0, 2, 0));
	dm_host_unpin(fx.t, &pin);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void wait_for_sleeper(struct dm_fixture *fx)
{
	while (__atomic_load_n(&dm_table_core(fx->t)->budget.waiters, __ATOMIC_SEQ_CST) == 0)
		g_usleep(100);
}

/* Who waits at the budget, as what lingers is pinned, takes what comes to linger meanwhile. */
static void test_new_lingering_range_ends_the_wait_for_room(void)
{
	struct dm_fixture fx;
	struct asker a = {.fx = &fx, .g = 10, .n = 1, .file = 3};
	struct dm_pin pin;

	fx_begin(&fx, FX_SHMEM, 2, NULL);
	dm_table_core(fx.t)->pin_wait_ns = UINT64_C(3600000000000);
	g_assert_cmpint(fx_setup(&fx, 0, 1, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 4, 1, 2, 0), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, 0, 1, &pin), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 1), ==, 0);
	asker_start(&a);
	wait_for_sleeper(&fx);
	g_assert_cmpint(fx_remove(&fx, 4, 1), ==, 0);
	g_assert_cmpint(asker_join(&a), ==, 0);
	g_assert_true(fx_hole(&fx, 4) && fx_shows(&fx, 10, 3, 0));
	dm_host_unpin(fx.t, &pin);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* No ENOMEM while another setup's unmaps are under way that will make room. */
static void test_room_made_by_a_setup_is_waited_for(void)
{
	struct dm_fixture fx;
	struct asker a = {.fx = &fx, .g = 2, .n = 4, .file = 3};
	struct asker b = {.fx = &fx, .g = 20, .n = 1, .file = 4};

	fx_begin(&fx, DM_WINDOW_OVERLAY, 2, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 4, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 4, 4, 2, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 8), ==, 0);
	window_faulty_hold(fx.window);
	asker_start(&a); /* unmaps both first, as they reach out */
	window_faulty_wait_held(fx.window);
	asker_start(&b);
	wait_for_sleeper(&fx);
	window_faulty_let_go(fx.window);
	g_assert_cmpint(asker_join(&a), ==, 0);
	g_assert_cmpint(asker_join(&b), ==, 0);
	g_assert_true(fx_shows(&fx, 2, 3, 0) && fx_shows(&fx, 20, 4, 0) && fx_hole(&fx, 0));
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* A driver that refuses to unmap is asked about once for each range, not until the time is up. */
static void test_refused_unmaps_end_the_search_for_room(void)
{
	struct dm_fixture fx;

	fx_begin(&fx, FX_SHMEM, 4, NULL);
	dm_table_core(fx.t)->pin_wait_ns = UINT64_C(3600000000000);
	for (uint64_t g = 0; g < 4; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, 1, g), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 4), ==, 0);
	window_faulty_set_rates(fx.window, 0, 65536, 0);
	g_assert_cmpint(fx_setup(&fx, 10, 1, 2, 0), ==, -ENOMEM);
	g_assert_cmpuint(fx_stats(&fx).unmap_errors, <=, 8);
	g_assert_cmpuint(fx_stats(&fx).lingering, ==, 4);
	window_faulty_set_rates(fx.window, 0, 0, 0);
	g_assert_cmpint(fx_setup(&fx, 10, 1, 2, 0), ==, 0);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* The worker takes what lingers, but not what is pinned, and leaves nothing behind when stopped. */
static void test_worker_drains_and_skips(void)
{
	struct dm_table_config config = {.linger_ms = 1};
	struct dm_fixture fx;
	struct dm_pin pin;

	fx_begin(&fx, FX_SHMEM, 0, &config);
	for (uint64_t g = 0; g < 8; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, 1, g), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, 3 * FX_GRANULE, 1, &pin), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 6), ==, 0);
	while (fx_stats(&fx).deferred_unmaps < 5 || fx_stats(&fx).reclaim_skipped == 0)
		g_usleep(500);
	g_assert_true(fx_shows(&fx, 3, 1, 3) && fx_shows(&fx, 6, 1, 6) && fx_hole(&fx, 5));
	dm_host_unpin(fx.t, &pin);
	while (fx_stats(&fx).lingering)
		g_usleep(500);
	g_assert_true(fx_hole(&fx, 3));
	g_assert_cmpuint(fx_stats(&fx).reclaimed, ==, 6);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

static void test_worker_keeps_to_watermarks(void)
{
	struct dm_table_config config = {
		.linger_ms = 3600000, .high_watermark = 50, .low_watermark = 25};
	struct dm_fixture fx;
	struct dm_stats s;

	/* an overlay VMM, so that nothing else makes the worker drain; 40 mappings */
	fx_begin(&fx, FX_OVERLAY, 40, &config);
	for (uint64_t g = 0; g < 20; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, 1, g), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 20), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 30, 1, 1, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 30, 1), ==, 0); /* 21 of 40: above */
	do {
		g_usleep(500);
		s = fx_stats(&fx);
	} while (s.lingering > 10);
	s = fx_stats(&fx);
	/* the oldest went first, down to the mark and no further */
	g_assert_true(!fx_hole(&fx, 30));
	g_assert_cmpuint(s.deferred_unmaps, ==, 11);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* A setup that passes the high watermark wakes the worker, not only the next remove. */
static void test_setup_above_the_watermark_wakes_the_worker(void)
{
	struct dm_table_config config = {
		.linger_ms = 3600000, .high_watermark = 50, .low_watermark = 25};
	struct dm_fixture fx;

	fx_begin(&fx, FX_OVERLAY, 40, &config);
	for (uint64_t g = 0; g < 10; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, 1, g), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 10), ==, 0);
	for (uint64_t g = 20; g < 31; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, 1, g), ==, 0); /* 21 of 40: above */
	while (fx_stats(&fx).lingering > 0)
		g_usleep(500);
	g_assert_cmpuint(fx_stats(&fx).deferred_unmaps, ==, 10);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* What the driver refused to flush is tried again by the worker. */
static void test_refused_flush_is_tried_again(void)
{
	struct dm_table_config config = {.linger_ms = 1};
	struct dm_fixture fx;

	fx_begin(&fx, FX_SHMEM, 0, &config);
	g_assert_cmpint(fx_setup(&fx, 0, 1, 1, 0), ==, 0);
	window_faulty_set_rates(fx.window, 0, 65536, 0);
	g_assert_cmpint(dm_host_flush(fx.t), ==, -EIO);
	window_faulty_set_rates(fx.window, 0, 0, 0);
	while (g_atomic_int_get(&fx.open_files) > 0)
		g_usleep(500);
	fx_assert_balance(&fx);
	fx_end(&fx);
}

/* Stopping with a drain stuck at the driver. */
static gpointer let_go_later(gpointer data)
{
	struct dm_fixture *fx = data;

	g_usleep(2000);
	window_faulty_let_go(fx->window);
	return NULL;
}

static void test_worker_stops_in_the_middle(void)
{
	struct dm_table_config config = {.linger_ms = 1};
	struct dm_fixture fx;
	GThread *t;

	fx_begin(&fx, FX_SHMEM, 0, &config);
	g_assert_cmpint(fx_setup(&fx, 0, 4, 1, 0), ==, 0);
	window_faulty_hold(fx.window);
	g_assert_cmpint(fx_remove(&fx, 0, 4), ==, 0);
	window_faulty_wait_held(fx.window);
	t = g_thread_new("let-go", let_go_later, &fx);
	fx_end(&fx);
	g_thread_join(t);
}

/* An I/O that is stuck holds up neither the end of a session nor its device's reset. */
static void test_stuck_pin_and_flush(void)
{
	struct dm_fixture fx;
	struct dm_pin pin;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	dm_table_core(fx.t)->pin_wait_ns = 1000000;
	for (uint64_t g = 0; g < 3; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, g, 0), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, FX_GRANULE, 1, &pin), ==, 0);
	g_assert_cmpint(dm_host_flush(fx.t), ==, -EBUSY);
	g_assert_true(fx_hole(&fx, 0) && fx_shows(&fx, 1, 1, 0) && fx_hole(&fx, 2));
	fx_assert_balance(&fx);
	dm_host_unpin(fx.t, &pin);
	g_assert_cmpint(dm_host_flush(fx.t), ==, 0);
	g_assert_true(fx_hole(&fx, 1));
	fx_end(&fx);
}

static void test_stuck_pin_and_forget(void)
{
	struct dm_fixture fx;
	struct dm_pin pin;

	fx_begin(&fx, FX_SHMEM, 0, NULL);
	dm_table_core(fx.t)->pin_wait_ns = 1000000;
	for (uint64_t g = 0; g < 3; g++)
		g_assert_cmpint(fx_setup(&fx, g, 1, g, 0), ==, 0);
	g_assert_cmpint(dm_host_pin(fx.t, FX_GRANULE, 1, &pin), ==, 0);
	window_fake_reset(fx.fake);
	dm_host_forget(fx.t);
	g_assert_cmpint(fx.open_files, ==, 1);
	g_assert_cmpuint(fx_stats(&fx).mapped, ==, 0);
	fx_assert_balance(&fx);
	/* the next session has the place, and the file, at once */
	g_assert_cmpint(fx_setup(&fx, 1, 1, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 2, 1, 5, 0), ==, 0);
	g_assert_cmpint(fx.open_files, ==, 2);
	g_assert_cmpint(dm_host_flush(fx.t), ==, 0);
	g_assert_cmpint(fx.open_files, ==, 1);
	dm_host_unpin(fx.t, &pin);
	g_assert_cmpint(fx.open_files, ==, 0);
	fx_end(&fx);
}

static void count_event(void *ctx, const struct dm_trace_event *e)
{
	unsigned int *n = ctx;

	n[e->kind]++;
}

static void test_trace(void)
{
	unsigned int n[DM_TRACE_PIN + 1] = {0};
	struct dm_trace trace = {.fn = count_event, .ctx = n};
	struct dm_fixture fx;

	fx_begin(&fx, FX_OVERLAY, 0, NULL);
	dm_table_set_trace(fx.t, &trace);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(fx_remove(&fx, 0, 2), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 2, 0), ==, 0);
	g_assert_true(fx_owned(&fx, 0));
	g_assert_cmpint(dm_host_flush(fx.t), ==, 0);
	dm_table_set_trace(fx.t, NULL);
	g_assert_cmpint(fx_setup(&fx, 0, 2, 1, 0), ==, 0);
	g_assert_cmpuint(n[DM_TRACE_SETUP], ==, 3);
	g_assert_cmpuint(n[DM_TRACE_MAP], ==, 2);
	g_assert_cmpuint(n[DM_TRACE_REVIVE], ==, 1);
	g_assert_cmpuint(n[DM_TRACE_REMOVE], ==, 3);
	g_assert_cmpuint(n[DM_TRACE_OVERLAY], ==, 1);
	g_assert_cmpuint(n[DM_TRACE_UNMAP], ==, 1);
	g_assert_cmpuint(n[DM_TRACE_PIN], ==, 1);
	fx_end(&fx);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/dm/threads/stuck-pin-and-flush", test_stuck_pin_and_flush);
	g_test_add_func("/dm/threads/stuck-pin-and-forget", test_stuck_pin_and_forget);
	g_test_add_func("/dm/combine", test_askers_are_combined);
	g_test_add_func("/dm/join", test_neighbours_are_joined);
	g_test_add_func("/dm/cancel", test_queued_unmap_is_cancelled);
	g_test_add_func("/dm/second-asker", test_second_asker_waits_for_the_first);
	g_test_add_func("/dm/remove-beside-setup", test_remove_beside_a_setup_is_not_lost);
	g_test_add_func("/dm/replace-pinned", test_replacing_waits_for_pins);
	g_test_add_func("/dm/room/new-lingering", test_new_lingering_range_ends_the_wait_for_room);
	g_test_add_func("/dm/room/of-a-setup", test_room_made_by_a_setup_is_waited_for);
	g_test_add_func("/dm/room/refused", test_refused_unmaps_end_the_search_for_room);
	g_test_add_func("/dm/worker-drains", test_worker_drains_and_skips);
	g_test_add_func("/dm/worker-watermarks", test_worker_keeps_to_watermarks);
	g_test_add_func("/dm/worker-setup-above", test_setup_above_the_watermark_wakes_the_worker);
	g_test_add_func("/dm/worker-flush-again", test_refused_flush_is_tried_again);
	g_test_add_func("/dm/worker-stops", test_worker_stops_in_the_middle);
	g_test_add_func("/dm/trace", test_trace);
	return g_test_run();
}
