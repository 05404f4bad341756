// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <glib.h>
#include <string.h>

#include "util_fd.h"
#include "util_lock.h"
#include "util_log.h"
#include "util_overflow.h"
#include "util_rcu.h"

__extension__ typedef unsigned __int128 wide;

static void test_sums_at_the_borders(void)
{
	static const uint64_t edge[] = {0,
					1,
					4095,
					4096,
					INT64_MAX,
					INT64_MAX + 1ull,
					UINT64_MAX - 4095,
					UINT64_MAX - 1,
					UINT64_MAX};

	for (size_t i = 0; i < G_N_ELEMENTS(edge); i++) {
		for (size_t k = 0; k < G_N_ELEMENTS(edge); k++) {
			wide a = edge[i];
			wide b = edge[k];
			uint64_t r = 0;

			g_assert_cmpint(util_add_u64(edge[i], edge[k], &r), ==,
					a + b <= UINT64_MAX);
			if (a + b <= UINT64_MAX)
				g_assert_cmpuint(r, ==, edge[i] + edge[k]);
			g_assert_cmpint(util_mul_u64(edge[i], edge[k], &r), ==,
					a * b <= UINT64_MAX);
			for (size_t l = 0; l < G_N_ELEMENTS(edge); l++)
				g_assert_cmpint(util_range_inside(edge[i], edge[k], edge[l]), ==,
						a + b <= edge[l]);
		}
	}
}

static void test_rounding(void)
{
	uint64_t r = 0;

	g_assert_true(util_round_up(0, 4096, &r) && r == 0);
	g_assert_true(util_round_up(1, 4096, &r) && r == 4096);
	g_assert_true(util_round_up(4096, 4096, &r) && r == 4096);
	g_assert_true(util_round_up(UINT64_MAX - 4095, 4096, &r) && r == UINT64_MAX - 4095);
	g_assert_false(util_round_up(UINT64_MAX - 4094, 4096, &r));
	g_assert_false(util_is_pow2(0));
	g_assert_true(util_is_pow2(1ull << 63));
	g_assert_false(util_is_pow2(6));
	g_assert_true(util_is_aligned(1ull << 21, 1ull << 21));
	g_assert_false(util_is_aligned((1ull << 21) + 4096, 1ull << 21));
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_descriptors_close_themselves(void)
{
	int seen = -1;
	int kept = -1;

	{
		util_autofd fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		seen = fd;
		g_assert_true(is_open(seen));
	}
	g_assert_false(is_open(seen));
	{
		util_autofd fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		kept = util_steal_fd(&fd);
		g_assert_cmpint(fd, ==, -1);
	}
	g_assert_true(is_open(kept));
	errno = ENOSPC;
	util_close(&kept);
	g_assert_cmpint(errno, ==, ENOSPC);
	g_assert_cmpint(kept, ==, -1);
}

static void test_log_lets_one_line_through(void)
{
	struct util_once once = {0};
	uint64_t dropped = 99;

	g_assert_true(util_log_allowed(&once, &dropped));
	g_assert_cmpuint(dropped, ==, 0);
	for (int i = 0; i < 5; i++)
		g_assert_false(util_log_allowed(&once, &dropped));
	once.next_ns = 0;
	g_assert_true(util_log_allowed(&once, &dropped));
	g_assert_cmpuint(dropped, ==, 5);
}

/* --- RCU: a writer replaces an object, readers must never see a freed or half-written one --- */

struct box {
	struct util_rcu_head rcu;
	struct cds_lfht_node node;
	uint64_t a;
	uint64_t b;
};

static struct box *shared;
static int stop;

static void free_box(struct util_rcu_head *h)
{
	struct box *b = caa_container_of(h, struct box, rcu);

	b->a = 1;
	b->b = 2;
	g_free(b);
}

static gpointer read_boxes(gpointer data)
{
	uint64_t *bad = data;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		util_rcu_read_lock();
		struct box *b = util_rcu_deref(shared);

		if (b->a != ~b->b)
			(*bad)++;
		util_rcu_read_unlock();
	}
	return NULL;
}

static struct box *new_box(uint64_t v)
{
	struct box *b = g_new0(struct box, 1);

	b->a = v;
	b->b = ~v;
	return b;
}

static void test_rcu_readers_see_whole_objects(void)
{
	uint64_t bad[2] = {0};
	GThread *t[2];

	stop = 0;
	util_rcu_publish(shared, new_box(0));
	for (int i = 0; i < 2; i++)
		t[i] = g_thread_new("reader", read_boxes, &bad[i]);
	for (uint64_t v = 1; v < 3000; v++) {
		struct box *old = util_rcu_xchg(shared, new_box(v));

		if (v % 100) {
			util_rcu_call(&old->rcu, free_box);
		} else {
			util_rcu_synchronize();
			free_box(&old->rcu);
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		g_thread_join(t[i]);
	util_rcu_barrier();
	g_assert_cmpuint(bad[0] + bad[1], ==, 0);
	g_free(shared);
}

static int match_box(struct cds_lfht_node *node, const void *key)
{
	struct box *b = caa_container_of(node, struct box, node);

	return b->a == *(const uint64_t *)key;
}

static gpointer find_boxes(gpointer data)
{
	struct cds_lfht *ht = data;
	uint64_t found = 0;
	uint64_t key = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		key = (key + 1) % 64;
		util_rcu_read_lock();
		struct cds_lfht_node *n = util_lfht_lookup(ht, util_hash_u64(key), match_box, &key);

		if (n) {
			struct box *b = caa_container_of(n, struct box, node);

			g_assert_cmpuint(b->b, ==, ~key);
			found++;
		}
		util_rcu_read_unlock();
	}
	return GSIZE_TO_POINTER(found);
}

static void test_hash_table_beside_readers(void)
{
	struct cds_lfht *ht = util_lfht_new(16);
	struct box *box[64] = {NULL};
	GThread *t;

	stop = 0;
	t = g_thread_new("finder", find_boxes, ht);
	for (int i = 0; i < 6000; i++) {
		uint64_t k = (uint64_t)i % 64;

		util_rcu_read_lock();
		if (box[k]) {
			g_assert_true(util_lfht_del(ht, &box[k]->node));
			g_assert_false(util_lfht_del(ht, &box[k]->node));
			util_rcu_call(&box[k]->rcu, free_box);
			box[k] = NULL;
		} else {
			box[k] = new_box(k);
			util_lfht_add(ht, util_hash_u64(k), &box[k]->node);
			struct box *twin = new_box(k);

			g_assert_true(util_lfht_add_unique(ht, util_hash_u64(k), match_box, &k,
							   &twin->node) == &box[k]->node);
			g_free(twin);
		}
		util_rcu_read_unlock();
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	g_thread_join(t);
	for (int k = 0; k < 64; k++) {
		if (!box[k])
			continue;
		util_rcu_read_lock();
		g_assert_true(util_lfht_del(ht, &box[k]->node));
		util_rcu_call(&box[k]->rcu, free_box);
		util_rcu_read_unlock();
	}
	util_rcu_barrier();
	util_lfht_destroy(ht);
}

static void test_timed_wait_ends(void)
{
	struct util_mutex m;
	struct util_cond c;

	util_mutex_init(&m);
	util_cond_init(&c);
	util_mutex_lock(&m);
	g_assert_false(util_cond_wait_until(&c, &m, util_now_ns() + 1000000));
	util_mutex_unlock(&m);
	if (util_mutex_trylock(&m))
		util_mutex_unlock(&m);
	else
		g_assert_not_reached();
	util_cond_destroy(&c);
	util_mutex_destroy(&m);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/util/overflow/borders", test_sums_at_the_borders);
	g_test_add_func("/util/overflow/rounding", test_rounding);
	g_test_add_func("/util/fd/autoclose", test_descriptors_close_themselves);
	g_test_add_func("/util/log/once", test_log_lets_one_line_through);
	g_test_add_func("/util/rcu/publish", test_rcu_readers_see_whole_objects);
	g_test_add_func("/util/rcu/hash", test_hash_table_beside_readers);
	g_test_add_func("/util/lock/timed-wait", test_timed_wait_ends);
	return g_test_run();
}
