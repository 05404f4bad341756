// SPDX-License-Identifier: Apache-2.0
/* daxmap-load's instruments: what measures and checks others must itself be right. */
#include <glib.h>
#include <string.h>
#include <unistd.h>

#include "load_cpu.h"
#include "load_hist.h"
#include "load_page.h"

static void quantiles_are_within_a_bucket(void)
{
	struct load_hist *h = g_new0(struct load_hist, 1);

	for (uint64_t i = 1; i <= 1000000; i++)
		load_hist_add(h, i * 7);
	for (double q = 0.01; q < 1; q += 0.01) {
		double want = q * 7e6, got = (double)load_hist_quantile(h, q);

		g_assert_cmpfloat(got, >=, want * 0.999);
		g_assert_cmpfloat(got, <=, want * 1.04);
	}
	g_assert_cmpuint(load_hist_quantile(h, 1), ==, 7000000);
	g_free(h);
}

static void every_value_has_its_bucket(void)
{
	unsigned int last = 0;

	for (uint64_t v = 0; v < 1u << 20; v++) {
		unsigned int i = load_hist_index(v);

		g_assert_cmpuint(i, >=, last);
		g_assert_cmpuint(i - last, <=, 1);
		last = i;
	}
	g_assert_cmpuint(load_hist_index(UINT64_MAX), ==, LOAD_HIST_BUCKETS - 1);
}

static void merged_is_as_counted_together(void)
{
	struct load_hist *a = g_new0(struct load_hist, 3);

	for (uint64_t i = 0; i < 1000; i++) {
		load_hist_add(&a[i % 2], i * i);
		load_hist_add(&a[2], i * i);
	}
	load_hist_merge(&a[0], &a[1]);
	g_assert_cmpmem(&a[0], sizeof(a[0]), &a[2], sizeof(a[2]));
	g_free(a);
}

static void any_changed_bit_is_seen(void)
{
	static const uint32_t units[] = {512, 4096};

	for (unsigned int u = 0; u < G_N_ELEMENTS(units); u++) {
		uint32_t unit = units[u], gen = 3;
		g_autofree uint8_t *p = g_malloc(unit);

		load_page_fill(p, unit, 5, 81920, 3);
		g_assert_true(load_page_check(p, unit, 5, 81920, &gen));
		for (uint32_t bit = 0; bit < unit * 8; bit++) {
			p[bit / 8] ^= (uint8_t)(1u << bit % 8);
			gen = 3;
			g_assert_false(load_page_check(p, unit, 5, 81920, &gen));
			p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
	}
}

static void another_page_is_seen(void)
{
	uint8_t p[4096], q[4096];
	uint32_t gen = 0;

	load_page_fill(p, sizeof(p), 1, 4096, 9);
	g_assert_true(load_page_check(p, sizeof(p), 1, 4096, &gen));
	g_assert_cmpuint(gen, ==, 9);
	g_assert_false(load_page_check(p, sizeof(p), 2, 4096, &gen));
	g_assert_false(load_page_check(p, sizeof(p), 1, 8192, &gen));
	gen = 8;
	g_assert_false(load_page_check(p, sizeof(p), 1, 4096, &gen));

	/* Half of another generation */
	load_page_fill(q, sizeof(q), 1, 4096, 10);
	memcpy(p + 2048, q + 2048, 2048);
	gen = 0;
	g_assert_false(load_page_check(p, sizeof(p), 1, 4096, &gen));
	memset(p, 0, sizeof(p));
	g_assert_false(load_page_check(p, sizeof(p), 0, 0, &gen));
}

static void we_are_no_back_end(void)
{
	g_assert_false(load_cpu_known(0));
	g_assert_false(load_cpu_known(getpid()));
	g_assert_false(load_cpu_known(getppid()));
	g_assert_cmpuint(load_cpu_self(), >, 0);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/load/hist/quantiles", quantiles_are_within_a_bucket);
	g_test_add_func("/load/hist/index", every_value_has_its_bucket);
	g_test_add_func("/load/hist/merge", merged_is_as_counted_together);
	g_test_add_func("/load/page/bits", any_changed_bit_is_seen);
	g_test_add_func("/load/page/others", another_page_is_seen);
	g_test_add_func("/load/cpu/self", we_are_no_back_end);
	return g_test_run();
}
