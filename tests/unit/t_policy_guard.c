// SPDX-License-Identifier: Apache-2.0
/*
 * The thrash guard against traces. The guest here reclaims first in, first out, as Linux does, and
 * the clock is a number: every run is the same.
 */
#include <glib.h>

#include "policy_int.h"
#include "util_rcu.h"
#include "util_lock.h"

#define SLOT (2ull << 20)
#define WINDOW 32u /* slots */
#define USABLE 26u /* the guest reclaims beyond this */
#define MS 1000000ull

struct mapped {
	uint64_t ino; /* 0: free */
	uint64_t slot;
};

struct guest {
	struct policy *p;
	uint64_t now;
	struct mapped window[WINDOW];
	unsigned int next; /* the oldest */
	unsigned int used;
	uint64_t maps;
};

static bool fs_type(void *ctx, uint32_t *type)
{
	*type = 0xef53;
	return true;
}

static bool can_write(void *ctx)
{
	return true;
}

static struct guest *guest_new(bool guard)
{
	struct guest *g = g_new0(struct guest, 1);
	const struct policy_config c = {
		.window_size = WINDOW * SLOT, .granule = SLOT, .guard = guard};

	g->p = policy_new(&c);
	g->now = 1000 * SECOND;
	return g;
}

static void guest_free(struct guest *g)
{
	policy_free(g->p);
	g_free(g);
}

static enum policy_verdict verdict(struct guest *g, uint64_t ino)
{
	const struct policy_query q = {
		.file = {1, ino},
		.size = SLOT,
		.any_size = true,
		.fs_type = fs_type,
		.can_write = can_write,
	};

	return policy_mark(g->p, &q, g->now);
}

static bool marked(struct guest *g, uint64_t ino)
{
	return verdict(g, ino) == POLICY_MARKED;
}

static struct policy_stats stats(struct guest *g)
{
	struct policy_stats s;

	policy_get_stats(g->p, g->now, &s);
	return s;
}

static void give_back(struct guest *g, unsigned int i)
{
	policy_remove(g->p, i * SLOT, SLOT, g->now);
	g->window[i] = (struct mapped){0};
	g->used--;
}

/* One access that takes @ms. */
static void access_slot(struct guest *g, uint64_t ino, uint64_t slot, unsigned int ms)
{
	struct policy_prefetch_wish wish;

	g->now += ms * MS;
	for (unsigned int i = 0; i < WINDOW; i++)
		if (g->window[i].ino == ino && g->window[i].slot == slot)
			return;
	/* Slots are taken round and round, so the oldest is @used behind. */
	if (g->used == USABLE)
		give_back(g, (g->next + WINDOW - USABLE) % WINDOW);
	g_assert_cmpuint(g->window[g->next].ino, ==, 0);
	g->window[g->next] = (struct mapped){ino, slot};
	policy_setup(g->p, (struct policy_file){1, ino}, g->next * SLOT, SLOT, slot * SLOT, g->now,
		     &wish);
	g->next = (g->next + 1) % WINDOW;
	g->used++;
	g->maps++;
}

/* The guest evicts the inode: all its ranges go. */
static void evict(struct guest *g, uint64_t ino)
{
	for (unsigned int i = 0; i < WINDOW; i++) {
		if (g->window[i].ino != ino)
			continue;
		policy_remove(g->p, i * SLOT, SLOT, g->now);
		g->window[i] = (struct mapped){0};
	}
	g->used = g->next = 0;
}

static void loop(struct guest *g, uint64_t ino, unsigned int slots, unsigned int times,
		 unsigned int ms)
{
	for (unsigned int t = 0; t < times; t++)
		for (unsigned int i = 0; i < slots; i++)
			access_slot(g, ino, i, ms);
}

static void a_loop_over_twice_the_window_loses_its_mark(void)
{
	struct guest *g = guest_new(true);

	loop(g, 1, 2 * WINDOW, 1, 5);
	g_assert_true(marked(g, 1));
	g_assert_cmpuint(stats(g).refaults, ==, 0);
	loop(g, 1, 2 * WINDOW, 2, 5);
	g_assert_false(marked(g, 1));
	g_assert_cmpuint(stats(g).thrash_events, ==, 1);
	g_assert_cmpuint(stats(g).thrash_files, ==, 1);
	g_assert_cmpuint(stats(g).unmarked_thrash, ==, 1);
	g_assert_true(marked(g, 2));
	guest_free(g);
}

static void a_scan_of_any_length_keeps_its_mark(void)
{
	struct guest *g = guest_new(true);

	for (unsigned int i = 0; i < 100000; i++)
		access_slot(g, 1, i, 1);
	g_assert_cmpuint(stats(g).refaults, ==, 0);
	g_assert_true(marked(g, 1));
	guest_free(g);
}

static void what_fits_keeps_its_mark(void)
{
	struct guest *g = guest_new(true);

	loop(g, 1, USABLE, 100, 1);
	g_assert_cmpuint(g->maps, ==, USABLE);
	g_assert_true(marked(g, 1));
	guest_free(g);
}

/* An inode that the guest evicts and opens again and again refaults, but nothing is short. */
static void eviction_is_no_thrashing(void)
{
	struct guest *g = guest_new(true);

	for (unsigned int i = 0; i < 100; i++) {
		loop(g, 1, 20, 1, 1);
		evict(g, 1);
	}
	g_assert_cmpuint(stats(g).refaults, >, 1000);
	g_assert_true(marked(g, 1));
	g_assert_cmpuint(stats(g).thrash_events, ==, 0);
	guest_free(g);
}

static void slow_refaults_are_no_thrashing(void)
{
	struct guest *g = guest_new(true);

	/* Two a second: the mapping is not what anybody waits for. */
	loop(g, 1, 2 * WINDOW, 20, 500);
	g_assert_cmpuint(stats(g).refaults, >, 1000);
	g_assert_true(marked(g, 1));
	guest_free(g);
}

/* Random reads over 768 slots and a hot file of 16: both refault alike, one is to blame. */
static void a_hot_small_file_keeps_its_mark(void)
{
	struct guest *g = guest_new(true);
	GRand *r = g_rand_new_with_seed(42);
	uint64_t maps;

	for (unsigned int i = 0; i < 3000 && marked(g, 1); i++) {
		access_slot(g, 1, (uint64_t)g_rand_int_range(r, 0, 768), 3);
		access_slot(g, 2, i % 16, 1);
		g_assert_true(marked(g, 2));
	}
	g_assert_false(marked(g, 1));
	/* The guest still has the large one open, and goes on with both. */
	for (unsigned int i = 0; i < 2000; i++) {
		access_slot(g, 1, (uint64_t)g_rand_int_range(r, 0, 768), 3);
		access_slot(g, 2, i % 16, 1);
	}
	g_assert_false(marked(g, 1));
	g_assert_true(marked(g, 2));
	g_assert_cmpuint(stats(g).thrash_events, ==, 1);
	/* Now it has noticed. */
	loop(g, 2, 16, 1, 1);
	maps = g->maps;
	loop(g, 2, 16, 1000, 1);
	g_assert_cmpuint(g->maps, ==, maps);
	g_assert_true(marked(g, 2));
	g_rand_free(r);
	guest_free(g);
}

/* Of two that do not fit together one goes, the larger; then the other fits. */
static void of_two_the_larger_goes(void)
{
	struct guest *g = guest_new(true);

	for (unsigned int i = 0; i < 2000; i++) {
		if (marked(g, 1))
			access_slot(g, 1, i % 22, 2);
		if (marked(g, 2))
			access_slot(g, 2, i % 18, 2);
	}
	g_assert_false(marked(g, 1));
	g_assert_true(marked(g, 2));
	g_assert_cmpuint(stats(g).thrash_events, ==, 1);
	guest_free(g);
}

/* Until the mark is back, in seconds. */
static unsigned int away(struct guest *g, uint64_t ino)
{
	unsigned int s = 0;

	while (!marked(g, ino)) {
		g->now += SECOND;
		g_assert_cmpuint(++s, <, 4000);
	}
	return s;
}

static unsigned int until_lost(struct guest *g, uint64_t ino)
{
	uint64_t before = stats(g).refaults;

	for (unsigned int i = 0; marked(g, ino); i++) {
		access_slot(g, ino, i % (2 * WINDOW), 5);
		g_assert_cmpuint(i, <, 10000);
	}
	return (unsigned int)(stats(g).refaults - before);
}

static void the_mark_comes_back_on_probation(void)
{
	struct guest *g = guest_new(true);
	unsigned int first, second, third;

	g_assert_cmpuint(until_lost(g, 1), ==, GUARD_ON);
	first = away(g, 1);
	g_assert_cmpuint(first, ==, GUARD_COOL_NS / SECOND);
	g_assert_cmpuint(stats(g).thrash_files, ==, 0);
	/* Again: half as much is enough, and it lasts twice as long. */
	g_assert_cmpuint(until_lost(g, 1), ==, GUARD_ON / 2);
	second = away(g, 1);
	g_assert_cmpuint(second, ==, 2 * first);
	until_lost(g, 1);
	third = away(g, 1);
	g_assert_cmpuint(third, ==, 4 * first);
	/* After some good cool-downs all is forgotten. */
	g->now += (GUARD_PROBATION * third + 1) * SECOND;
	g_assert_cmpuint(until_lost(g, 1), ==, GUARD_ON);
	g_assert_cmpuint(away(g, 1), ==, first);
	g_assert_cmpuint(stats(g).thrash_events, ==, 4);
	guest_free(g);
}

static void the_cool_down_has_a_limit(void)
{
	struct guest *g = guest_new(true);
	unsigned int s = 0;

	for (unsigned int i = 0; i < 10; i++) {
		until_lost(g, 1);
		s = away(g, 1);
	}
	g_assert_cmpuint(s, ==, (GUARD_COOL_NS / SECOND) << (GUARD_STRIKES_MAX - 1));
	guest_free(g);
}

/* A guest that holds the file open does not notice: the mark must not come back under it. */
static void the_cool_down_waits_for_the_guest(void)
{
	struct guest *g = guest_new(true);

	until_lost(g, 1);
	for (unsigned int i = 0; i < 40000; i++) {
		access_slot(g, 1, i % (2 * WINDOW), 5);
		g_assert_false(marked(g, 1));
	}
	g_assert_cmpuint(stats(g).thrash_events, ==, 1);
	g_assert_cmpuint(away(g, 1), ==, GUARD_COOL_NS / SECOND);
	guest_free(g);
}

static void it_can_be_switched_off(void)
{
	struct guest *g = guest_new(false);

	loop(g, 1, 2 * WINDOW, 10, 5);
	g_assert_true(marked(g, 1));
	g_assert_cmpuint(stats(g).refaults, >, 100);
	guest_free(g);
}

/* A range mapped over another is given back as well; one mapped again as it is is nothing. */
static void setups_over_setups(void)
{
	struct guest *g = guest_new(true);
	struct policy_prefetch_wish w;
	const struct policy_file a = {1, 1}, b = {1, 2};

	policy_setup(g->p, a, 0, SLOT, 0, g->now, &w);
	policy_setup(g->p, a, 0, SLOT, 0, g->now, &w);
	g_assert_cmpuint(stats(g).refaults, ==, 0);
	policy_setup(g->p, b, 0, SLOT, 0, g->now, &w);
	policy_setup(g->p, a, 5 * SLOT, SLOT, 0, g->now, &w);
	g_assert_cmpuint(stats(g).refaults, ==, 1);
	/* Too late is no refault. */
	policy_remove(g->p, 0, UINT64_MAX, g->now);
	policy_setup(g->p, a, 5 * SLOT, SLOT, 0, g->now + 2 * GUARD_SOON_NS, &w);
	g_assert_cmpuint(stats(g).refaults, ==, 1);
	/* A reset gives nothing back, and a setup that failed was none. */
	policy_reset(g->p);
	policy_setup(g->p, b, 6 * SLOT, SLOT, 8 * SLOT, g->now, &w);
	policy_refused(g->p, b, 6 * SLOT, SLOT, -12, g->now);
	policy_remove(g->p, 6 * SLOT, SLOT, g->now);
	policy_setup(g->p, b, 6 * SLOT, SLOT, 8 * SLOT, g->now, &w);
	g_assert_cmpuint(stats(g).refaults, ==, 1);
	/* Odd ranges from a guest. */
	policy_remove(g->p, UINT64_MAX, UINT64_MAX, g->now);
	policy_remove(g->p, WINDOW * SLOT, 1, g->now);
	policy_remove(g->p, 0, 0, g->now);
	policy_setup(g->p, b, (WINDOW - 1) * SLOT, UINT64_MAX, INT64_MAX - 4095, g->now, &w);
	policy_setup(g->p, b, 4096, 4096, 4096, g->now, &w);
	guest_free(g);
}

static void ghosts_are_bounded_and_aged(void)
{
	struct ghost *gh = g_new0(struct ghost, 1);
	uint64_t age, now = 100 * SECOND, kept = 0;

	for (uint64_t i = 0; i < 4 * GHOST_SETS * GHOST_WAYS; i++)
		ghost_add(gh, util_hash_u64(i + 1), now + i);
	for (uint64_t i = 0; i < 4 * GHOST_SETS * GHOST_WAYS; i++)
		kept += ghost_take(gh, util_hash_u64(i + 1), now, &age);
	g_assert_cmpuint(kept, >, GHOST_SETS * GHOST_WAYS * 9 / 10);
	g_assert_cmpuint(kept, <=, GHOST_SETS * GHOST_WAYS);
	/* The oldest of a set goes first; a tag that comes again stays one. */
	for (uint64_t i = 1; i <= GHOST_WAYS + 1; i++)
		ghost_add(gh, i << 32, now + i * SECOND);
	ghost_add(gh, 3ull << 32, now + 10 * SECOND);
	g_assert_false(ghost_take(gh, 1ull << 32, now, &age));
	for (uint64_t i = 2; i <= GHOST_WAYS + 1; i++)
		g_assert_true(ghost_take(gh, i << 32, now + 20 * SECOND, &age));
	g_assert_cmpuint(age / SECOND, ==, 20 - (GHOST_WAYS + 1));
	g_assert_false(ghost_take(gh, 3ull << 32, now, &age));
	g_free(gh);
}

/* More files than there is room for: memory stays what it is, nothing breaks, the guilty stays. */
static void the_file_table_is_bounded(void)
{
	struct guest *g = guest_new(true);

	until_lost(g, 1);
	for (uint64_t i = 0; i < 20000; i++) {
		access_slot(g, 10 + i, 0, 0);
		policy_opened(g->p, (struct policy_file){1, 10 + i}, i % 2, g->now);
	}
	g_assert_false(marked(g, 1));
	for (uint64_t i = 0; i < 20000; i++)
		policy_opened(g->p, (struct policy_file){1, 10 + i}, false, g->now);
	g_assert_false(policy_any_direct(g->p));
	guest_free(g);
}

/* --- threads --- */

struct thread {
	struct policy *p;
	uint64_t seed;
};

static void *hammer(void *arg)
{
	struct thread *t = arg;
	GRand *r = g_rand_new_with_seed((guint32)t->seed);

	for (uint64_t i = 0; i < 20000; i++) {
		struct policy_file f = {1, (uint64_t)g_rand_int_range(r, 1, 40)};
		uint64_t slot = (uint64_t)g_rand_int_range(r, 0, WINDOW);
		uint64_t now = (1000 + i / 1000) * SECOND;
		struct policy_prefetch_wish w;
		struct policy_stats s;
		const struct policy_query q = {.file = f,
					       .size = SLOT,
					       .any_size = true,
					       .fs_type = fs_type,
					       .can_write = can_write};

		policy_setup(t->p, f, slot * SLOT, SLOT,
			     (uint64_t)g_rand_int_range(r, 0, 20) * SLOT, now, &w);
		policy_mark(t->p, &q, now);
		policy_remove(t->p, slot * SLOT, SLOT, now);
		policy_opened(t->p, f, i % 3 == 0, now);
		if (i % 50 == 0)
			policy_refused(t->p, f, slot * SLOT, SLOT, -13, now);
		if (i % 500 == 0)
			policy_get_stats(t->p, now, &s);
		if (i % 5000 == 0)
			policy_reset(t->p);
	}
	g_rand_free(r);
	return NULL;
}

static void any_thread_may_tell_anything(void)
{
	struct guest *g = guest_new(true);
	struct thread t[4];
	GThread *threads[4];
	struct policy_stats s;

	for (uint64_t i = 0; i < 4; i++) {
		t[i] = (struct thread){g->p, i};
		threads[i] = g_thread_new("hammer", hammer, &t[i]);
	}
	for (unsigned int i = 0; i < 4; i++)
		g_thread_join(threads[i]);
	for (uint64_t i = 1; i < 40; i++)
		policy_opened(g->p, (struct policy_file){1, i}, false, 2000 * SECOND);
	g_assert_false(policy_any_direct(g->p));
	policy_get_stats(g->p, 1000 * SECOND, &s);
	g_assert_cmpuint(s.marks + s.unmarked_direct + s.unmarked_failed + s.unmarked_thrash, ==,
			 4 * 20000);
	guest_free(g);
}

/* Its refaults stay known whether it acts or not; switched on again it remembers the strike. */
static void it_can_be_switched_off_in_use(void)
{
	struct guest *g = guest_new(true);
	struct policy_file_stats f;

	loop(g, 1, 2 * WINDOW, 3, 5);
	policy_file_stats(g->p, (struct policy_file){1, 1}, g->now, &f);
	g_assert_true(f.thrash);
	g_assert_cmpuint(f.refaults, ==, stats(g).refaults);
	g_assert_cmpuint(f.refaults, ==, 4 * WINDOW);
	policy_tune(g->p, &(struct policy_config){.guard = false});
	g_assert_true(marked(g, 1));
	g_assert_cmpuint(stats(g).thrash_files, ==, 0);
	policy_tune(g->p, &(struct policy_config){.guard = true});
	g_assert_false(marked(g, 1));
	g_assert_cmpuint(stats(g).thrash_files, ==, 1);
	policy_file_stats(g->p, (struct policy_file){1, 2}, g->now, &f);
	g_assert_false(f.thrash);
	g_assert_cmpuint(f.refaults, ==, 0);
	guest_free(g);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/guard/loop", a_loop_over_twice_the_window_loses_its_mark);
	g_test_add_func("/guard/scan", a_scan_of_any_length_keeps_its_mark);
	g_test_add_func("/guard/fits", what_fits_keeps_its_mark);
	g_test_add_func("/guard/eviction", eviction_is_no_thrashing);
	g_test_add_func("/guard/slow", slow_refaults_are_no_thrashing);
	g_test_add_func("/guard/hot-small-file", a_hot_small_file_keeps_its_mark);
	g_test_add_func("/guard/of-two", of_two_the_larger_goes);
	g_test_add_func("/guard/probation", the_mark_comes_back_on_probation);
	g_test_add_func("/guard/limit", the_cool_down_has_a_limit);
	g_test_add_func("/guard/waits", the_cool_down_waits_for_the_guest);
	g_test_add_func("/guard/off", it_can_be_switched_off);
	g_test_add_func("/guard/off-in-use", it_can_be_switched_off_in_use);
	g_test_add_func("/guard/over", setups_over_setups);
	g_test_add_func("/guard/ghosts", ghosts_are_bounded_and_aged);
	g_test_add_func("/guard/table", the_file_table_is_bounded);
	g_test_add_func("/guard/threads", any_thread_may_tell_anything);
	return g_test_run();
}
