// SPDX-License-Identifier: Apache-2.0
/* The counted windows against sequences whose answers can be worked out by hand. */
#include <glib.h>
#include <string.h>

#include "sim.h"
#include "sim_table.h"

static struct sim_counts run(const struct sim_cache_config *config, const char *pieces)
{
	struct sim_cache *c = sim_cache_new(config);
	struct sim_counts n;

	for (; *pieces; pieces++)
		if (*pieces != ' ')
			sim_cache_access(c, 0, (uint64_t)*pieces);
	sim_cache_counts(c, &n);
	sim_cache_free(c);
	return n;
}

static void a_loop_larger_than_the_window_always_misses(void)
{
	struct sim_counts n = run(&(struct sim_cache_config){.slots = 3}, "abcd abcd abcd");

	g_assert_cmpuint(n.misses, ==, 12);
	g_assert_cmpuint(n.maps, ==, 12);
	g_assert_cmpuint(n.unmaps, ==, 9);
	g_assert_cmpuint(n.live, ==, 3);
	n = run(&(struct sim_cache_config){.slots = 4}, "abcd abcd abcd");
	g_assert_cmpuint(n.misses, ==, 4);
	g_assert_cmpuint(n.hits, ==, 8);
	g_assert_cmpuint(n.unmaps, ==, 0);
}

static void policies_choose_their_victims(void)
{
	/* d replaces a in FIFO, b in the others: then a hits there. */
	const char *s = "abc a d a";

	g_assert_cmpuint(run(&(struct sim_cache_config){.slots = 3}, s).misses, ==, 5);
	g_assert_cmpuint(run(&(struct sim_cache_config){.slots = 3, .policy = SIM_CLOCK}, s).misses,
			 ==, 4);
	g_assert_cmpuint(run(&(struct sim_cache_config){.slots = 3, .policy = SIM_LRU}, s).misses,
			 ==, 4);
	/* All were used: CLOCK takes the oldest after one round, as FIFO; LRU the one used longest
	 * ago. */
	s = "abc cba d a";
	g_assert_cmpuint(run(&(struct sim_cache_config){.slots = 3, .policy = SIM_CLOCK}, s).misses,
			 ==, 5);
	g_assert_cmpuint(run(&(struct sim_cache_config){.slots = 3, .policy = SIM_LRU}, s).misses,
			 ==, 4);
}

static void reserve_budget_and_overlay_count(void)
{
	const struct sim_cost cost = {.map = 100, .map_live = 10, .unmap = 50, .hit = 1};
	struct sim_counts n =
		run(&(struct sim_cache_config){.slots = 10, .reserve = 20, .cost = cost},
		    "abcdefghi a");

	/* 8 slots: i replaces a. 9 + 1 maps, 2 unmaps. */
	g_assert_cmpuint(n.maps, ==, 10);
	g_assert_cmpuint(n.unmaps, ==, 2);
	g_assert_cmpuint(n.live_peak, ==, 8);
	/* live at each map: 0..7, then 7 twice, for one was unmapped before. */
	g_assert_cmpfloat(n.ns, ==, 10 * 1 + 10 * 100 + 10 * (28 + 7 + 7) + 2 * 50);
	n = run(&(struct sim_cache_config){.slots = 10, .budget = 2}, "abc");
	g_assert_cmpuint(n.live_peak, ==, 2);
	n = run(&(struct sim_cache_config){.slots = 2, .overlay = true}, "abc");
	g_assert_cmpuint(n.unmaps, ==, 0);
	g_assert_cmpuint(n.elided, ==, 1);
	g_assert_cmpuint(n.live_peak, ==, 2);
}

/* Against a plain list, with collisions and deletions in the hash. */
static void it_agrees_with_a_plain_list(void)
{
	enum { SLOTS = 37, ACCESSES = 20000 };
	struct sim_cache *c =
		sim_cache_new(&(struct sim_cache_config){.slots = SLOTS, .policy = SIM_LRU});
	struct {
		uint32_t file;
		uint64_t index;
	} list[SLOTS], now;
	unsigned int n = 0;
	g_autoptr(GRand) rand = g_rand_new_with_seed(g_test_rand_int());

	for (int i = 0; i < ACCESSES; i++) {
		unsigned int k = 0;

		now.file = (uint32_t)g_rand_int_range(rand, 0, 3);
		now.index = (uint64_t)g_rand_int_range(rand, 0, 30) << 40;
		while (k < n && (list[k].file != now.file || list[k].index != now.index))
			k++;
		g_assert_true(sim_cache_access(c, now.file, now.index) == (k < n));
		if (k == n && n < SLOTS)
			n++;
		k = MIN(k, n - 1);
		memmove(&list[1], &list[0], k * sizeof(list[0]));
		memcpy(&list[0], &now, sizeof(now));
	}
	sim_cache_free(c);
}

#define M 2097152ull

static void the_table_saves_what_it_can(void)
{
	struct sim_table *t = sim_table_new(&(struct sim_table_config){.overlay = true});
	struct sim_counts n;

	g_assert_false(sim_table_setup(t, 0, M, 1, 0));
	g_assert_true(sim_table_setup(t, 0, M, 1, 0)); /* again */
	sim_table_remove(t, 0, M);
	g_assert_true(sim_table_setup(t, 0, M, 1, 0)); /* revived */
	sim_table_remove(t, 0, M);
	g_assert_false(sim_table_setup(t, 0, M, 2, 0)); /* mapped over */
	sim_table_counts(t, &n);
	g_assert_cmpuint(n.maps, ==, 2);
	g_assert_cmpuint(n.unmaps, ==, 0);
	g_assert_cmpuint(n.elided, ==, 2);
	g_assert_cmpuint(n.live, ==, 1);
	sim_table_free(t);

	t = sim_table_new(&(struct sim_table_config){.forward = true});
	sim_table_setup(t, 0, M, 1, 0);
	sim_table_remove(t, 0, M);
	g_assert_false(sim_table_setup(t, 0, M, 1, 0));
	sim_table_remove(t, 0, UINT64_MAX);
	sim_table_counts(t, &n);
	g_assert_cmpuint(n.maps, ==, 2);
	g_assert_cmpuint(n.unmaps, ==, 2);
	g_assert_cmpuint(n.elided, ==, 0);
	sim_table_free(t);
}

static void the_table_keeps_to_its_budget(void)
{
	struct sim_table *t = sim_table_new(&(struct sim_table_config){.budget = 2});
	struct sim_counts n;

	sim_table_setup(t, 0, M, 1, 0);
	sim_table_setup(t, M, M, 1, M);
	g_assert_false(sim_table_setup(t, 2 * M, M, 1, 2 * M)); /* both are in use */
	sim_table_counts(t, &n);
	g_assert_cmpuint(n.refused, ==, 1);
	sim_table_remove(t, M, M);
	g_assert_false(sim_table_setup(t, 2 * M, M, 1, 2 * M));
	sim_table_counts(t, &n);
	g_assert_cmpuint(n.refused, ==, 1);
	g_assert_cmpuint(n.unmaps, ==, 1);
	g_assert_cmpuint(n.live_peak, ==, 2);
	sim_table_free(t);

	t = sim_table_new(&(struct sim_table_config){.linger = 1});
	for (uint64_t i = 0; i < 4; i++)
		sim_table_setup(t, i * M, M, 1, i * M);
	sim_table_remove(t, 0, 3 * M);
	sim_table_counts(t, &n);
	g_assert_cmpuint(n.unmaps, ==, 2);
	g_assert_true(sim_table_setup(t, 2 * M, M, 1, 2 * M)); /* the youngest stayed */
	sim_table_free(t);
}

static void the_table_cuts_ranges(void)
{
	struct sim_table *t = sim_table_new(&(struct sim_table_config){.overlay = true});
	struct sim_counts n;

	sim_table_setup(t, 0, 4 * M, 1, 8 * M);
	sim_table_remove(t, M, M);
	g_assert_true(sim_table_setup(t, 0, M, 1, 8 * M));
	g_assert_true(sim_table_setup(t, M, M, 1, 9 * M));
	g_assert_true(sim_table_setup(t, 2 * M, 2 * M, 1, 10 * M));
	g_assert_false(sim_table_setup(t, 3 * M, M, 1, 0));
	sim_table_counts(t, &n);
	g_assert_cmpuint(n.live, ==, 4);
	sim_table_present(t, 9 * M, M, 5, 0, true);
	sim_table_present(t, 9 * M, M, 5, 0, true);
	g_assert_true(sim_table_setup(t, 9 * M, M, 5, 0));
	sim_table_drop(t);
	g_assert_false(sim_table_setup(t, 9 * M, M, 5, 0));
	sim_table_counts(t, &n);
	g_assert_cmpuint(n.live, ==, 1);
	sim_table_free(t);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/sim/loop", a_loop_larger_than_the_window_always_misses);
	g_test_add_func("/sim/policies", policies_choose_their_victims);
	g_test_add_func("/sim/limits", reserve_budget_and_overlay_count);
	g_test_add_func("/sim/plain-list", it_agrees_with_a_plain_list);
	g_test_add_func("/sim/table", the_table_saves_what_it_can);
	g_test_add_func("/sim/table-budget", the_table_keeps_to_its_budget);
	g_test_add_func("/sim/table-cut", the_table_cuts_ranges);
	return g_test_run();
}
