// SPDX-License-Identifier: Apache-2.0
/* Window sizing: each part against its plain counterpart, then whole answers against measuring. */
#include <math.h>
#include <string.h>

#include "size_blocks.h"
#include "size_gen.h"
#include "sim.h"
#include "size_stack.h"

#define BLOCKS 400u
#define ACCESSES 20000u
#define POINTS 2.0

static uint32_t move_to_front(uint32_t *list, uint32_t *n, uint32_t id)
{
	uint32_t at = 0;
	bool found;

	while (at < *n && list[at] != id)
		at++;
	found = at < *n;
	if (!found)
		at = (*n)++;
	memmove(list + 1, list, at * sizeof(*list));
	list[0] = id;
	return found ? at + 1 : 0;
}

static void test_stack(void)
{
	struct size_stack *s = size_stack_new();
	uint32_t list[3000], n = 0;
	uint64_t hits_100 = 0;

	for (unsigned int i = 0; i < 60000; i++) {
		/* new blocks now and then, so that the line grows while it is in use */
		uint32_t id = n < 3000 && (n == 0 || g_test_rand_int_range(0, 10) == 0)
				      ? n
				      : (uint32_t)g_test_rand_int_range(0, (gint)n);
		uint32_t d = move_to_front(list, &n, id);

		g_assert_cmpuint(size_stack_access(s, id), ==, d);
		hits_100 += d && d <= 100;
	}
	g_assert_cmpuint(size_stack_blocks(s), ==, 3000);
	g_assert_cmpuint(size_stack_misses(s, 100), ==, 60000 - hits_100);
	g_assert_cmpuint(size_stack_misses(s, 0), ==, 60000);
	g_assert_cmpuint(size_stack_misses(s, UINT32_MAX), ==, 3000);
	size_stack_free(s);
}

static void test_blocks(void)
{
	struct size_blocks *b = size_blocks_new(0);
	bool is_new;
	uint32_t id;

	for (unsigned int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < 20000; i++) {
			g_assert_true(
				size_blocks_find(b, size_block_key(i % 3, i, i % 7), &id, &is_new));
			g_assert_cmpuint(id, ==, i);
			g_assert_true(is_new == (round == 0));
		}
	}
	g_assert_false(size_blocks_lookup(b, size_block_key(9, 9, 9), &id));
	g_assert_cmpuint(size_blocks_count(b), ==, 20000);
	size_blocks_free(b);
}

static void test_distinct(void)
{
	struct size_distinct *d = size_distinct_new();
	const uint32_t many = 5 * SIZE_BLOCKS_MAX;

	for (uint32_t i = 0; i < SIZE_BLOCKS_MAX; i++)
		size_distinct_add(d, size_block_key(1, 2, i));
	g_assert_cmpuint(size_distinct_count(d), ==, SIZE_BLOCKS_MAX);
	g_assert_cmpuint(size_distinct_shift(d), ==, 0);
	for (uint32_t i = 0; i < many; i++)
		size_distinct_add(d, size_block_key(1, 2, i));
	g_assert_cmpfloat(fabs((double)size_distinct_count(d) / many - 1), <, 0.01);
	g_assert_cmpuint(size_distinct_shift(d), ==, 3);
	size_distinct_free(d);
}

static void test_policies(void)
{
	static const uint32_t slots[] = {1, 2, 7, 32, 256, 400};

	for (int load = 0; load < GEN_LOADS; load++) {
		g_autofree uint32_t *a = gen_accesses(load, BLOCKS, ACCESSES, 5);

		for (int f = 0; f < SIZE_FAMILIES; f++) {
			const struct size_policy *p = &size_policies[f];
			struct size_sim *sim = size_sim_new(p, slots, G_N_ELEMENTS(slots));

			for (size_t i = 0; i < ACCESSES; i++)
				size_sim_access(sim, a[i]);
			for (unsigned int w = 0; w < G_N_ELEMENTS(slots); w++) {
				struct gen_window ref = {
					.slots = slots[w],
					.clock = p->clock,
					.high = p->high,
					.low = p->low,
					.chunk = p->chunk,
					.late = p->late,
				};

				gen_run(&ref, load, BLOCKS, a, ACCESSES, true, NULL);
				g_assert_cmpuint(size_sim_misses(sim, w), ==, ref.misses);
				g_assert_true(size_sim_full(sim, w) || ref.misses <= slots[w]);
			}
			size_sim_free(sim);
		}
	}
}

/* --- costs --- */

static void fit(uint32_t from, uint32_t to, unsigned int n, double base, double slope, double noise,
		struct size_line *l)
{
	struct size_cost *c = size_cost_new();

	for (unsigned int i = 0; i < n; i++) {
		uint32_t live = from + i * (to - from) / MAX(n, 1);
		double x = g_test_rand_double_range(-noise, noise);

		/* one in fifty is late by 50 ms */
		size_cost_add(c, live,
			      (uint64_t)((base + slope * live) * (1 + x)) +
				      (i % 50 == 49 ? 50000000 : 0));
	}
	size_cost_fit(c, 8500, l);
	size_cost_free(c);
}

static void test_cost(void)
{
	struct size_line l;

	fit(0, 400, 3000, 300000, 8000, 0.3, &l);
	g_assert_cmpint(l.source, ==, SIZE_COST_FITTED);
	g_assert_cmpfloat(fabs(l.slope / 8000 - 1), <, 0.15);
	g_assert_cmpfloat(fabs(size_line_at(&l, 200) / 1900000 - 1), <, 0.1);
	fit(0, 400, 3000, 300000, 0, 0.3, &l);
	g_assert_cmpint(l.source, ==, SIZE_COST_FITTED);
	g_assert_cmpfloat(l.slope, <, 200);
	/* too close together to show anything: the usual slope, through the middle of the data */
	fit(30, 32, 500, 300000, 8000, 0.3, &l);
	g_assert_cmpint(l.source, ==, SIZE_COST_ASSUMED);
	g_assert_cmpfloat(l.slope, ==, 8500);
	g_assert_cmpfloat(fabs(size_line_at(&l, 31) / 548000 - 1), <, 0.1);
	fit(0, 0, 0, 0, 0, 0, &l);
	g_assert_cmpint(l.source, ==, SIZE_COST_NONE);
	g_assert_cmpfloat(size_line_at(&l, 100), ==, 0);
}

/* --- whole answers --- */

static struct size_report *analyse(GArray *events, uint64_t window, bool guest_seat,
				   uint32_t budget, const struct size_options *options)
{
	g_autoptr(GError) error = NULL;
	struct size_source s;
	struct size_report *r;

	gen_source(&s, events, window, guest_seat, budget);
	r = size_analyse(&s, options, &error);
	g_assert_no_error(error);
	gen_source_clear(&s);
	return r;
}

static double points(double a, double b, double all)
{
	return 100 * fabs(a - b) / all;
}

/* Measures every size; the smallest within 5% of the best. */
static int measure_all(const struct size_report *r, enum gen_load load, uint32_t blocks,
		       const uint32_t *a, bool guest_seat, const struct gen_window *like,
		       double *worst, double *cost)
{
	int best = -1;

	for (unsigned int i = 0; i < r->n_rows; i++) {
		const struct size_row *row = &r->rows[i];
		struct gen_window w = *like;

		w.slots = row->slots;
		gen_run(&w, load, blocks, a, ACCESSES, guest_seat, NULL);
		cost[i] = w.map_ns + (guest_seat ? ACCESSES * r->hit_ns : 0);
		if (!row->not_allowed)
			best = best < 0 || cost[i] < cost[best] ? (int)i : best;
		if (r->exact == SIZE_EXACT)
			*worst = MAX(*worst, points(row->misses, (double)w.misses, ACCESSES));
		else if (!row->open)
			*worst = MAX(*worst, MAX(row->least - (double)w.misses,
						 (double)w.misses - row->most) *
						     100 / (double)r->totals.accesses);
	}
	for (unsigned int i = 0; i < r->n_rows; i++)
		if (!r->rows[i].not_allowed && cost[i] <= 1.05 * cost[best])
			return (int)i;
	return best;
}

/* Recorded with one window, told of all. */
static void check_answer(enum gen_load load, uint32_t blocks, uint32_t recorded, enum size_family f,
			 double slope)
{
	const struct size_policy *p = &size_policies[f];
	struct gen_window w = {
		.slots = recorded,
		.clock = p->clock,
		.high = p->high,
		.low = p->low,
		.chunk = p->chunk,
		.late = p->late,
		.base_ns = 300000,
		.slope_ns = slope,
	};
	bool guest_seat = f != SIZE_LINUX;
	/* a request is dear here, so that the answer is a size */
	struct size_options o = {.usual_slope = slope, .read_ns = 1e8};
	g_autofree uint32_t *a = gen_accesses(load, blocks, ACCESSES, 11);
	g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(struct size_event));
	double cost[SIZE_ROWS_MAX] = {0}, worst = 0;
	struct size_report *r;
	int measured;

	gen_run(&w, load, blocks, a, ACCESSES, guest_seat, events);
	r = analyse(events, recorded * GEN_GRANULE, guest_seat, 480, &o);
	g_assert_true((r->exact == SIZE_EXACT) == guest_seat);
	measured = measure_all(r, load, blocks, a, guest_seat, &w, &worst, cost);
	g_test_message(
		"%s in %u, recorded with %u slots, %s, %.0f us a live one: off by %.2f points, "
		"recommended row %d, measured %d, cost %.3f",
		gen_names[load], blocks, recorded, p->name, slope / 1000, worst, r->recommend,
		measured, cost[MAX(r->recommend, 0)] / cost[measured]);
	g_assert_cmpfloat(worst, <=, POINTS);
	g_assert_cmpint(r->recommend, >=, 0);
	g_assert_cmpint(ABS(r->recommend - measured), <=, 1);
	/* and not much dearer than the best */
	g_assert_cmpfloat(cost[r->recommend], <=, 1.2 * cost[measured]);
	size_report_free(r);
}

/* And once more, by the simulator that replays traces. */
static void test_sim(void)
{
	static const struct {
		enum sim_policy policy;
		int family; /* -1: LRU */
	} pairs[] = {{SIM_FIFO, SIZE_FIFO}, {SIM_CLOCK, SIZE_CLOCK}, {SIM_LRU, -1}};
	struct size_options o = {0};

	for (int load = 0; load < GEN_LOADS; load++) {
		g_autofree uint32_t *a = gen_accesses(load, BLOCKS, ACCESSES, 3);
		g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(struct size_event));
		struct gen_window w = {.slots = 32, .clock = true, .high = 100};
		struct size_report *r;

		gen_run(&w, load, BLOCKS, a, ACCESSES, true, events);
		r = analyse(events, 32 * GEN_GRANULE, true, 0, &o);
		for (unsigned int i = 0; i < r->n_rows * G_N_ELEMENTS(pairs); i++) {
			const struct size_row *row = &r->rows[i / G_N_ELEMENTS(pairs)];
			int f = pairs[i % G_N_ELEMENTS(pairs)].family;
			struct sim_cache_config c = {
				.slots = row->slots,
				.policy = pairs[i % G_N_ELEMENTS(pairs)].policy,
			};
			struct sim_cache *sim = sim_cache_new(&c);
			struct sim_counts n;

			for (size_t k = 0; k < ACCESSES; k++)
				sim_cache_access(sim, gen_file(load, BLOCKS, a[k]), a[k]);
			sim_cache_counts(sim, &n);
			g_assert_cmpfloat(f < 0 ? row->lru : row->family[f], ==, (double)n.misses);
			sim_cache_free(sim);
		}
		size_report_free(r);
	}
}

static void test_answers(void)
{
	static const uint32_t blocks[] = {400, 2000}, recorded[] = {16, 64};

	for (int load = 0; load < GEN_LOADS; load++) {
		for (unsigned int i = 0; i < 4; i++) {
			for (int f = 0; f < SIZE_FAMILIES; f++) {
				/* cheap and dear maps by turns */
				check_answer(load, blocks[i / 2], recorded[i % 2], f,
					     (unsigned int)(load + f) % 2 ? 8000 : 0);
			}
		}
	}
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/size/stack-distances-are-those-of-a-list", test_stack);
	g_test_add_func("/size/blocks-are-numbered-in-order", test_blocks);
	g_test_add_func("/size/many-distinct-ones-are-estimated", test_distinct);
	g_test_add_func("/size/policies-do-as-plain-windows-do", test_policies);
	g_test_add_func("/size/cost-line", test_cost);
	g_test_add_func("/size/misses-are-as-replayed", test_sim);
	g_test_add_func("/size/answers-are-as-measured", test_answers);
	return g_test_run();
}
