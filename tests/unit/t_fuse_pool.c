// SPDX-License-Identifier: Apache-2.0
/* A pool makes threads when jobs wait, not more than it may, and none stay that have no work. */
#include <glib.h>
#include <sched.h>

#include "fuse_lane.h"
#include "fuse_policy.h"
#include "fuse_pool.h"
#include "util_lock.h"

struct gate {
	struct util_mutex m;
	struct util_cond c;
	unsigned int inside;
	unsigned int done;
	bool open;
};

struct gated_job {
	struct fuse_job job;
	struct gate *gate;
};

static void gate_run(struct fuse_job *job)
{
	struct gate *g = ((struct gated_job *)job)->gate;

	util_mutex_lock(&g->m);
	g->inside++;
	util_cond_broadcast(&g->c);
	while (!g->open)
		util_cond_wait(&g->c, &g->m);
	g->done++;
	util_cond_broadcast(&g->c);
	util_mutex_unlock(&g->m);
}

static void gate_init(struct gate *g)
{
	*g = (struct gate){0};
	util_mutex_init(&g->m);
	util_cond_init(&g->c);
}

static void gate_wait_inside(struct gate *g, unsigned int n)
{
	util_mutex_lock(&g->m);
	while (g->inside < n)
		util_cond_wait(&g->c, &g->m);
	util_mutex_unlock(&g->m);
}

static void gate_open_and_wait(struct gate *g, unsigned int n)
{
	util_mutex_lock(&g->m);
	g->open = true;
	util_cond_broadcast(&g->c);
	while (g->done < n)
		util_cond_wait(&g->c, &g->m);
	util_mutex_unlock(&g->m);
}

static void test_grows_to_its_cap(void)
{
	struct fuse_pool *p = fuse_pool_new("t", 3, 60000, NULL, NULL, 0);
	struct gated_job jobs[5];
	struct gate g;

	gate_init(&g);
	g_assert_cmpuint(fuse_pool_threads(p), ==, 0);
	for (int i = 0; i < 5; i++) {
		jobs[i] = (struct gated_job){{.run = gate_run}, &g};
		fuse_pool_push(p, &jobs[i].job);
	}
	gate_wait_inside(&g, 3);
	g_assert_cmpuint(fuse_pool_threads(p), ==, 3);
	g_assert_cmpuint(fuse_pool_backlog(p), ==, 2);
	gate_open_and_wait(&g, 5);
	g_assert_cmpuint(fuse_pool_backlog(p), ==, 0);
	fuse_pool_free(p);
}

static void test_shrinks_when_idle(void)
{
	struct fuse_pool *p = fuse_pool_new("t", 4, 1, NULL, NULL, 0);

	for (int round = 0; round < 3; round++) {
		struct gated_job jobs[4];
		struct gate g;

		gate_init(&g);
		for (int i = 0; i < 4; i++) {
			jobs[i] = (struct gated_job){{.run = gate_run}, &g};
			fuse_pool_push(p, &jobs[i].job);
		}
		gate_wait_inside(&g, 4);
		gate_open_and_wait(&g, 4);
		while (fuse_pool_threads(p))
			sched_yield();
	}
	fuse_pool_free(p);
}

struct counter_job {
	struct fuse_job job;
	unsigned int *n;
};

static void count_run(struct fuse_job *job)
{
	__atomic_add_fetch(((struct counter_job *)job)->n, 1, __ATOMIC_RELAXED);
}

static gpointer pusher(gpointer data)
{
	struct fuse_pool *p = ((void **)data)[0];
	struct counter_job *jobs = ((void **)data)[1];

	for (int i = 0; i < 5000; i++)
		fuse_pool_push(p, &jobs[i].job);
	return NULL;
}

static void test_every_job_runs_once(void)
{
	/* An idle time of 0: threads come and go all the time. */
	struct fuse_pool *p = fuse_pool_new("t", 2, 0, NULL, NULL, 0);
	struct counter_job *jobs[3];
	void *args[3][2];
	GThread *threads[3];
	unsigned int n = 0;

	for (int t = 0; t < 3; t++) {
		jobs[t] = g_new0(struct counter_job, 5000);
		for (int i = 0; i < 5000; i++)
			jobs[t][i] = (struct counter_job){{.run = count_run}, &n};
		args[t][0] = p;
		args[t][1] = jobs[t];
		threads[t] = g_thread_new("pusher", pusher, args[t]);
	}
	for (int t = 0; t < 3; t++)
		g_thread_join(threads[t]);
	fuse_pool_free(p);
	g_assert_cmpuint(n, ==, 15000);
	for (int t = 0; t < 3; t++)
		g_free(jobs[t]);
}

static void test_policy_follows_what_it_sees(void)
{
	struct fuse_policy *p = g_new0(struct fuse_policy, 1);
	uint64_t now = 1000000000ull;

	g_assert_true(fuse_policy_is_fast(p, 3, false, now));
	fuse_policy_note(p, 3, 0, 2000000, FUSE_POLICY_BLOCKED, now);
	g_assert_false(fuse_policy_is_fast(p, 3, false, now));
	g_assert_true(fuse_policy_is_fast(p, 4, false, now));
	for (int i = 0; i < 64; i++)
		fuse_policy_note(p, 3, 0, 5000, FUSE_POLICY_RAN, now);
	g_assert_false(fuse_policy_is_fast(p, 3, false, now + 1));
	g_assert_true(fuse_policy_is_fast(p, 3, false, now + 1000000000ull));
	for (int i = 0; i < 64; i++)
		fuse_policy_note(p, 3, 0, 200000, FUSE_POLICY_BLOCKED, now);
	g_assert_false(fuse_policy_is_fast(p, 3, false, now + 1000000000ull));
	g_free(p);
}

/* A busy machine takes the CPU away for milliseconds: no reason for one more thread. What
 * computes for long is one. */
static void test_policy_tells_busy_from_blocked(void)
{
	struct fuse_policy *p = g_new0(struct fuse_policy, 1);

	for (int i = 0; i < 1000; i++) {
		fuse_policy_note(p, 3, 0, 10000, FUSE_POLICY_UNSEEN, 1);
		fuse_policy_note(p, 3, 0, 10000, FUSE_POLICY_UNSEEN, 1);
		fuse_policy_note(p, 3, 0, 4000000, i % 2 ? FUSE_POLICY_RAN : FUSE_POLICY_UNSEEN, 1);
		g_assert_true(fuse_policy_is_fast(p, 3, false, 2));
	}
	for (int i = 0; i < 64; i++)
		fuse_policy_note(p, 3, 0, 800000, FUSE_POLICY_RAN, 1);
	g_assert_false(fuse_policy_is_fast(p, 3, false, 2));
	g_free(p);
}

static void test_trust_is_per_object(void)
{
	struct fuse_policy *p = g_new0(struct fuse_policy, 1);

	for (int i = 0; i < 15; i++) {
		fuse_policy_note(p, 16, 7, 3000, FUSE_POLICY_RAN, 1);
		g_assert_false(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PROVEN));
	}
	for (int i = 0; i < 3; i++)
		fuse_policy_note(p, 16, 7, 3000, FUSE_POLICY_RAN, 1);
	g_assert_true(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PROVEN));
	g_assert_false(fuse_policy_trusts(p, 16, 8, FUSE_POLICY_PROVEN));
	g_assert_false(fuse_policy_trusts(p, 1, 7, FUSE_POLICY_PROVEN));
	fuse_policy_note(p, 16, 7, 5000000, FUSE_POLICY_UNSEEN, 1);
	g_assert_true(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PROVEN));
	fuse_policy_note(p, 16, 7, 60000, FUSE_POLICY_BLOCKED, 1);
	g_assert_false(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PROVEN));
	g_free(p);
}

/* A run that sleeps is seen to, one that computes as long is not. */
static void test_blocking_is_seen(void)
{
	struct fuse_policy *p = g_new0(struct fuse_policy, 1);
	struct fuse_policy_run run;

	for (int i = 0; i < 20; i++) {
		fuse_policy_begin(p, &run, 16, 7, 0, FUSE_POLICY_POOLED);
		fuse_policy_end(p, &run);
	}
	g_assert_true(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PROVEN));
	fuse_policy_begin(p, &run, 16, 7, 0, FUSE_POLICY_POOLED);
	while (util_now_ns() - run.begun_ns < 100000)
		;
	fuse_policy_end(p, &run);
	g_assert_true(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PROVEN));
	fuse_policy_begin(p, &run, 16, 7, 0, FUSE_POLICY_POOLED);
	g_usleep(1000);
	fuse_policy_end(p, &run);
	g_assert_false(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PROVEN));
	g_free(p);
}

/* Where others go on meanwhile a few blocked runs are no reason to hand on the rest; many are. */
static void test_patience(void)
{
	struct fuse_policy *p = g_new0(struct fuse_policy, 1);
	struct fuse_policy_run run;

	g_assert_true(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PATIENT));
	g_assert_true(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_UNKNOWN));
	fuse_policy_note(p, 3, 0, 20000000, FUSE_POLICY_BLOCKED, 1);
	fuse_policy_note(p, 16, 7, 20000000, FUSE_POLICY_BLOCKED, 1);
	g_assert_false(fuse_policy_is_fast(p, 3, false, 2));
	g_assert_true(fuse_policy_is_fast(p, 3, true, 2));
	g_assert_false(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_UNKNOWN));
	g_assert_true(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PATIENT));
	for (int i = 0; i < 3; i++) {
		fuse_policy_note(p, 3, 0, 20000000, FUSE_POLICY_BLOCKED, 1);
		fuse_policy_note(p, 16, 7, 20000000, FUSE_POLICY_BLOCKED, 1);
	}
	g_assert_false(fuse_policy_is_fast(p, 3, true, 2));
	g_assert_false(fuse_policy_trusts(p, 16, 7, FUSE_POLICY_PATIENT));
	/* The pool sees when that is over. */
	for (int i = 0; i < 8; i++)
		fuse_policy_note(p, 3, 0, 20000, FUSE_POLICY_RAN, 1);
	g_assert_true(fuse_policy_is_fast(p, 3, true, 2));
	/* A copy takes its time. */
	for (int i = 0; i < 20; i++) {
		fuse_policy_begin(p, &run, 16, 9, 4u << 20, FUSE_POLICY_POOLED);
		g_usleep(100);
		fuse_policy_end(p, &run);
	}
	g_assert_true(fuse_policy_trusts(p, 16, 9, FUSE_POLICY_PROVEN));
	g_free(p);
}

static void test_lanes(void)
{
	struct fuse_job jobs[FUSE_LANES + 1] = {0}, a = {0}, b = {0};
	struct fuse_lanes l;

	fuse_lanes_init(&l);
	for (unsigned int i = 0; i < FUSE_LANES; i++)
		g_assert_cmpint(fuse_lane_enter(&l, 100 + i, &jobs[i]), ==, FUSE_LANE_GO);
	g_assert_cmpint(fuse_lane_enter(&l, 7, &jobs[FUSE_LANES]), ==, FUSE_LANE_NONE);
	g_assert_cmpint(fuse_lane_enter(&l, 103, &a), ==, FUSE_LANE_WAIT);
	g_assert_cmpint(fuse_lane_enter(&l, 103, &b), ==, FUSE_LANE_WAIT);
	g_assert_null(fuse_lane_next(&l, 104));
	g_assert_cmpint(fuse_lane_enter(&l, 7, &jobs[FUSE_LANES]), ==, FUSE_LANE_GO);
	g_assert_true(fuse_lane_next(&l, 103) == &a);
	g_assert_true(fuse_lane_next(&l, 103) == &b);
	g_assert_null(fuse_lane_next(&l, 103));
	g_assert_cmpint(fuse_lane_enter(&l, 103, &a), ==, FUSE_LANE_GO);
	fuse_lanes_destroy(&l);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/pool/grows", test_grows_to_its_cap);
	g_test_add_func("/fuse/pool/shrinks", test_shrinks_when_idle);
	g_test_add_func("/fuse/pool/every-job-once", test_every_job_runs_once);
	g_test_add_func("/fuse/policy/kind", test_policy_follows_what_it_sees);
	g_test_add_func("/fuse/policy/object", test_trust_is_per_object);
	g_test_add_func("/fuse/policy/busy", test_policy_tells_busy_from_blocked);
	g_test_add_func("/fuse/policy/blocking", test_blocking_is_seen);
	g_test_add_func("/fuse/policy/patience", test_patience);
	g_test_add_func("/fuse/lanes", test_lanes);
	return g_test_run();
}
