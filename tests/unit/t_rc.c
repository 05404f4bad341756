// SPDX-License-Identifier: Apache-2.0
/* Reclaim by itself: order, second chances, policy, cost, and the worker. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rc.h"
#include "util_lock.h"

struct item {
	struct rc_node n;
	unsigned int id;
	bool busy;
};

struct taken {
	struct rc_set *set;
	unsigned int ids[64];
	size_t n;
};

static void hold(void *ctx, struct rc_node *n)
{
}

static enum rc_verdict claim(void *ctx, void *batch, struct rc_node *n)
{
	struct item *it = (struct item *)n;
	struct taken *t = batch;

	if (it->busy)
		return RC_BUSY;
	rc_del(t->set, n);
	t->ids[t->n++] = it->id;
	return RC_TAKEN;
}

static const struct rc_ops ops = {.hold = hold, .claim = claim, .drop = hold};

static void fill(struct rc_set *set, struct item *it, unsigned int n)
{
	memset(it, 0, n * sizeof(*it));
	for (unsigned int i = 0; i < n; i++) {
		rc_node_init(&it[i].n, i * 3);
		it[i].id = i;
		rc_add(set, &it[i].n, 100 + i);
	}
}

static void test_oldest_first_over_shards(void)
{
	struct rc_set *set = rc_set_new(RC_FIFO, &ops, NULL);
	struct taken t = {.set = set};
	struct item it[40];
	uint64_t stamp;

	fill(set, it, 40);
	it[2].busy = true;
	g_assert_true(rc_oldest(set, &stamp) && stamp == 100);
	g_assert_cmpuint(rc_collect(set, 10, UINT64_MAX, &t, NULL), ==, 10);
	for (unsigned int i = 0; i < 10; i++)
		g_assert_cmpuint(t.ids[i], ==, i < 2 ? i : i + 1);
	/* older than 120 are 11..19 */
	t.n = 0;
	g_assert_cmpuint(rc_collect(set, 40, 120, &t, NULL), ==, 9);
	it[2].busy = false;
	g_assert_cmpuint(rc_collect(set, 100, UINT64_MAX, &t, NULL), ==, 21);
	g_assert_cmpuint(rc_count(set), ==, 0);
	rc_set_free(set);
}

static void test_clock_gives_a_second_chance(void)
{
	struct rc_set *set = rc_set_new(RC_CLOCK, &ops, NULL);
	struct taken t = {.set = set};
	struct item it[8];
	size_t busy = 0;

	fill(set, it, 8);
	it[0].n.referenced = it[1].n.referenced = true;
	g_assert_cmpuint(rc_collect(set, 2, UINT64_MAX, &t, &busy), ==, 2);
	g_assert_cmpuint(t.ids[0], ==, 2);
	g_assert_cmpuint(t.ids[1], ==, 3);
	g_assert_false(it[0].n.referenced);
	g_assert_cmpuint(rc_collect(set, 8, UINT64_MAX, &t, &busy), ==, 6);
	g_assert_cmpuint(busy, ==, 0);
	rc_set_free(set);
}

static void test_all_busy_ends(void)
{
	struct rc_set *set = rc_set_new(RC_CLOCK, &ops, NULL);
	struct taken t = {.set = set};
	struct item it[8];
	size_t busy = 0;

	fill(set, it, 8);
	for (unsigned int i = 0; i < 8; i++)
		it[i].busy = true;
	g_assert_cmpuint(rc_collect(set, 4, UINT64_MAX, &t, &busy), ==, 0);
	g_assert_cmpuint(busy, >=, 8);
	for (unsigned int i = 0; i < 8; i++)
		rc_del(set, &it[i].n);
	rc_set_free(set);
}

static void test_policy(void)
{
	struct rc_marks marks = {.high = 80, .low = 60};
	struct rc_load l = {.idle = 50,
			    .mapped = 79,
			    .budget = 100,
			    .bytes = 79,
			    .window = 1000,
			    .dearer = 100,
			    .overlay = true};
	struct rc_decision d = rc_decide(&l, &marks, false), dear, exact;

	g_assert_cmpuint(d.want, ==, 0);
	l.mapped = 81;
	g_assert_cmpuint(rc_decide(&l, &marks, false).want, ==, 21);
	l.idle = 5;
	g_assert_cmpuint(rc_decide(&l, &marks, false).want, ==, 5);
	g_assert_cmpuint(rc_decide(&l, &marks, true).want, ==, 5);
	/* by bytes: 810 of 1000 in 81 ranges of 10 */
	l = (struct rc_load){
		.idle = 50, .mapped = 81, .bytes = 810, .window = 1000, .overlay = true};
	g_assert_cmpuint(rc_decide(&l, &marks, false).want, ==, 21);
	/* ages: overlay long, dearer maps less long, an unmap in the way soon */
	l.dearer = 400;
	dear = rc_decide(&l, &marks, false);
	l.overlay = false;
	exact = rc_decide(&l, &marks, false);
	g_assert_cmpuint(exact.age_ns, <, dear.age_ns);
	g_assert_cmpuint(dear.age_ns, <, d.age_ns);
}

static void test_cost(void)
{
	struct rc_cost c = {0};

	g_assert_cmpuint(rc_cost_dearer(&c, 400), ==, 100);
	for (int i = 0; i < 100; i++) {
		rc_cost_add(&c, 4, 1000);
		rc_cost_add(&c, 400, 4000);
	}
	g_assert_cmpuint(rc_cost_dearer(&c, 4), ==, 100);
	g_assert_cmpuint(rc_cost_dearer(&c, 400), >, 350);
	g_assert_cmpuint(rc_cost_dearer(&c, 400), <, 450);
}

/* A worker over candidates that are only a number. */
struct farm {
	size_t idle;
	size_t drains;
	size_t asked; /* of the last drain */
	enum rc_drained answer;
};

static void farm_load(void *ctx, struct rc_load *l)
{
	struct farm *f = ctx;

	*l = (struct rc_load){.idle = __atomic_load_n(&f->idle, __ATOMIC_SEQ_CST), .overlay = true};
}

static enum rc_drained farm_drain(void *ctx, size_t want, uint64_t before_ns)
{
	struct farm *f = ctx;

	if (f->answer == RC_DRAINED && want)
		__atomic_store_n(&f->idle, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&f->asked, want, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&f->drains, 1, __ATOMIC_SEQ_CST);
	return f->answer;
}

static bool farm_oldest(void *ctx, uint64_t *stamp)
{
	struct farm *f = ctx;

	*stamp = util_now_ns();
	return __atomic_load_n(&f->idle, __ATOMIC_SEQ_CST) > 0;
}

static const struct rc_worker_ops farm_ops = {
	.load = farm_load, .drain = farm_drain, .oldest = farm_oldest};
static const struct rc_marks an_hour = {
	.high = 80, .low = 60, .linger_ns = UINT64_C(3600000000000)};

/* Out-of-band data makes a socket say POLLPRI, as a pressure file does. */
static void test_pressure_drains_all(void)
{
	struct farm f = {.idle = 7};
	struct rc_worker *w;
	int s[2], psi;
	char c;

	g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), ==, 0);
	psi = fcntl(s[0], F_DUPFD_CLOEXEC, 0);
	w = rc_worker_new_with_psi(&an_hour, &farm_ops, &f, psi);
	while (__atomic_load_n(&f.drains, __ATOMIC_SEQ_CST) == 0)
		g_usleep(100);
	g_assert_cmpuint(__atomic_load_n(&f.idle, __ATOMIC_SEQ_CST), ==, 7);
	if (send(s[1], "!", 1, MSG_OOB) != 1) {
		g_test_skip("no out-of-band data on this kernel's Unix sockets");
	} else {
		while (__atomic_load_n(&f.idle, __ATOMIC_SEQ_CST))
			g_usleep(100);
		g_assert_cmpint(recv(s[0], &c, 1, MSG_OOB), ==, 1);
	}
	rc_worker_free(w);
	g_assert_cmpint(fcntl(psi, F_GETFD), ==, -1);
	close(s[0]);
	close(s[1]);
}

static void test_pressure_file(void)
{
	g_autofree char *path = NULL, *text = NULL;
	int fd = g_file_open_tmp("psi-XXXXXX", &path, NULL);
	gsize n;

	g_assert_cmpint(fd, >=, 0);
	close(fd);
	fd = rc_psi_open(path);
	g_assert_cmpint(fd, >=, 0);
	close(fd);
	g_assert_true(g_file_get_contents(path, &text, &n, NULL));
	g_assert_cmpstr(text, ==, "some 100000 1000000");
	g_assert_cmpuint(n, ==, strlen(text) + 1);
	g_unlink(path);
	g_assert_cmpint(rc_psi_open(path), ==, -1); /* then there is no such trigger */
	g_assert_cmpint(rc_psi_open("/proc/version"), ==, -1);
}

/* However often it is kicked, who refuses is asked every 10 ms at most, and less and less. */
static void test_refusals_slow_the_worker_down(void)
{
	struct farm f = {.idle = 1, .answer = RC_REFUSED};
	uint64_t start = util_now_ns();
	struct rc_worker *w = rc_worker_new_with_psi(&an_hour, &farm_ops, &f, -1);
	size_t drains;

	while ((drains = __atomic_load_n(&f.drains, __ATOMIC_SEQ_CST)) < 4) {
		rc_worker_kick(w, true);
		g_usleep(100);
	}
	/* 10 + 20 + 40 ms lie between four of them */
	g_assert_cmpuint(util_now_ns() - start, >=, 70000000);
	rc_worker_free(w);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/rc/oldest-first", test_oldest_first_over_shards);
	g_test_add_func("/rc/clock", test_clock_gives_a_second_chance);
	g_test_add_func("/rc/all-busy", test_all_busy_ends);
	g_test_add_func("/rc/policy", test_policy);
	g_test_add_func("/rc/cost", test_cost);
	g_test_add_func("/rc/worker/pressure", test_pressure_drains_all);
	g_test_add_func("/rc/worker/pressure-file", test_pressure_file);
	g_test_add_func("/rc/worker/refusals", test_refusals_slow_the_worker_down);
	return g_test_run();
}
