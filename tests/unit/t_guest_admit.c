// SPDX-License-Identifier: Apache-2.0
/* The admission policy, on a table played by a plain clock of slots. */
#include <glib.h>
#include <string.h>

#include "guest_admit.h"
#include "guest_stream.h"
#include "util_rcu.h"

#define SLOTS 64u
#define READ_NS 8000
#define MAP_NS 300000

struct table {
	struct guest_admit *a;
	uint64_t in[SLOTS]; /* key + 1 */
	bool used[SLOTS];
	unsigned int hand;
	uint64_t rng;
	uint64_t hits, maps;
};

static void table_init(struct table *t)
{
	memset(t, 0, sizeof(*t));
	t->a = guest_admit_new(SLOTS);
	t->rng = 12345;
}

static uint64_t rnd(struct table *t, uint64_t n)
{
	t->rng = t->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (t->rng >> 33) % n;
}

static void map(struct table *t, uint64_t key)
{
	while (t->in[t->hand] && t->used[t->hand]) {
		t->used[t->hand] = false;
		t->hand = (t->hand + 1) % SLOTS;
	}
	t->in[t->hand] = key + 1;
	t->used[t->hand] = true;
	t->hand = (t->hand + 1) % SLOTS;
	t->maps++;
	guest_admit_mapped(t->a, util_hash_u64(key), MAP_NS);
}

static void use(struct table *t, uint64_t key)
{
	for (unsigned int i = 0; i < SLOTS; i++) {
		if (t->in[i] != key + 1)
			continue;
		t->used[i] = true;
		t->hits++;
		guest_admit_hit(t->a, util_hash_u64(key));
		return;
	}
	guest_admit_read(t->a, READ_NS, 1);
	if (guest_admit_miss(t->a, util_hash_u64(key)))
		map(t, key);
}

static void uniform_does_not_churn(void)
{
	for (unsigned int times = 2; times <= 64; times *= 2) {
		struct table t;

		table_init(&t);
		for (unsigned int i = 0; i < 400000; i++)
			use(&t, rnd(&t, SLOTS * times));
		g_test_message("%u times the window: %u maps", times, (unsigned int)t.maps);
		/* The window fills once; what is lost to chance is less than one more filling. */
		g_assert_cmpuint(t.maps, >=, SLOTS);
		g_assert_cmpuint(t.maps, <, 2 * SLOTS);
		guest_admit_free(t.a);
	}
}

static void single_touches_map_nothing(void)
{
	struct table t;

	table_init(&t);
	for (uint64_t i = 0; i < 100000; i++)
		use(&t, i);
	g_assert_cmpuint(t.maps, <, 10);
	guest_admit_free(t.a);
}

/* Nine of ten uses go to as many as the window holds, minus a few; the others to very many. */
static uint64_t hot(struct table *t, uint64_t base)
{
	return rnd(t, 10) ? base + rnd(t, SLOTS - 8) : 1000000 + rnd(t, 100000);
}

static void the_hot_get_in(void)
{
	struct table t;

	table_init(&t);
	for (unsigned int i = 0; i < 400000; i++)
		use(&t, hot(&t, 0));
	/* 90% would be all */
	g_assert_cmpuint(t.hits, >, 400000 * 85 / 100);

	/* Others become hot: they take over. */
	t.hits = 0;
	for (unsigned int i = 0; i < 400000; i++)
		use(&t, hot(&t, 5000));
	g_test_message("hits after the change: %u%%", (unsigned int)(t.hits / 4000));
	g_assert_cmpuint(t.hits, >, 400000 * 70 / 100);
	guest_admit_free(t.a);
}

static void a_cold_window_does_not_keep_the_hot_out(void)
{
	struct table t;

	table_init(&t);
	for (unsigned int i = 0; i < 100000; i++)
		use(&t, 5000 + rnd(&t, SLOTS * 4));
	g_assert_cmpuint(t.maps, >=, SLOTS);
	t.hits = 0;
	for (unsigned int i = 0; i < 400000; i++)
		use(&t, hot(&t, 0));
	g_assert_cmpuint(t.hits, >, 400000 * 75 / 100);
	guest_admit_free(t.a);
}

static void dear_maps_are_not_made(void)
{
	struct guest_admit *a = guest_admit_new(SLOTS);
	unsigned int yes = 0;

	for (unsigned int i = 0; i < 200; i++) {
		guest_admit_mapped(a, 1, 1000000000);
		guest_admit_read(a, 1000, 1);
	}
	guest_admit_forget(a);
	for (unsigned int i = 0; i < 1000; i++)
		yes += guest_admit_miss(a, util_hash_u64(i % 10));
	g_assert_cmpuint(yes, ==, 0);
	/* Where reads cost as much, the same uses are worth it. */
	for (unsigned int i = 0; i < 1000; i++)
		guest_admit_read(a, 1000000000, 1);
	for (unsigned int i = 0; i < 1000; i++)
		yes += guest_admit_miss(a, util_hash_u64(i % 10));
	g_assert_cmpuint(yes, >, 0);
	guest_admit_free(a);
}

static void test_streams_are_seen_among_others(void)
{
	struct guest_streams streams = {0};
	struct table t;
	unsigned int seen = 0;

	table_init(&t);
	for (unsigned int step = 0; step < 50; step++) {
		for (unsigned int stream = 0; stream < 4; stream++)
			seen += guest_stream_enter(&streams, stream * 100000 + step) > 1;
		for (unsigned int other = 0; other < 8; other++)
			guest_stream_enter(&streams, 1000000 + rnd(&t, 1u << 30));
	}
	/* not always at once: what is new has to find a place first */
	g_assert_cmpuint(seen, >, 4 * 50 - 40);
	guest_admit_free(t.a);
}

static void test_chance_is_no_stream(void)
{
	struct guest_streams streams = {0};
	struct table t;
	unsigned int seen = 0;

	table_init(&t);
	for (unsigned int i = 0; i < 10000; i++)
		seen += guest_stream_enter(&streams, rnd(&t, 512)) > 1;
	/* 16 places of 512 */
	g_assert_cmpuint(seen, <, 10000 / 20);
	g_assert_cmpuint(guest_stream_enter(&streams, 5000), ==, 1);
	g_assert_cmpuint(guest_stream_enter(&streams, 5001), ==, 2);
	g_assert_true(guest_stream_in(&streams, 5001, 2));
	g_assert_false(guest_stream_in(&streams, 5001, 3));
	g_assert_false(guest_stream_in(&streams, 5000, 1));
	g_assert_cmpuint(guest_stream_enter(&streams, 5003), ==, 1);
	g_assert_false(guest_stream_in(&streams, 5003, 2));
	guest_admit_free(t.a);
}

static void test_a_stream_is_mapped_if_its_operations_are_many(void)
{
	struct guest_admit *a = guest_admit_new(SLOTS);

	for (unsigned int i = 0; i < 200; i++) {
		guest_admit_read(a, READ_NS, 1);
		guest_admit_mapped(a, i, MAP_NS);
	}
	g_assert_true(guest_admit_full(a));
	g_assert_true(guest_admit_stream(a, 512));
	g_assert_false(guest_admit_stream(a, 2));
	guest_admit_free(a);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/admit/uniform", uniform_does_not_churn);
	g_test_add_func("/admit/single-touches", single_touches_map_nothing);
	g_test_add_func("/admit/hot", the_hot_get_in);
	g_test_add_func("/admit/cold-window", a_cold_window_does_not_keep_the_hot_out);
	g_test_add_func("/admit/dear-maps", dear_maps_are_not_made);
	g_test_add_func("/stream/among-others", test_streams_are_seen_among_others);
	g_test_add_func("/stream/chance", test_chance_is_no_stream);
	g_test_add_func("/stream/worth", test_a_stream_is_mapped_if_its_operations_are_many);
	return g_test_run();
}
