// SPDX-License-Identifier: Apache-2.0
#include <glib.h>

#include "daemon_worker.h"
#include "util_lock.h"

struct gate {
	struct util_mutex lock;
	struct util_cond cond;
	bool open;
	int entered;
	int done;
};

static void gated_reset(void *ctx)
{
	struct gate *g = ctx;

	util_mutex_lock(&g->lock);
	g->entered++;
	util_cond_broadcast(&g->cond);
	while (!g->open)
		util_cond_wait(&g->cond, &g->lock);
	g->done++;
	util_mutex_unlock(&g->lock);
}

static void gate_init(struct gate *g, bool open)
{
	*g = (struct gate){.open = open};
	util_mutex_init(&g->lock);
	util_cond_init(&g->cond);
}

static void gate_open(struct gate *g)
{
	util_mutex_lock(&g->lock);
	g->open = true;
	util_cond_broadcast(&g->cond);
	util_mutex_unlock(&g->lock);
}

static void reset_counts_from_the_asking_on(void)
{
	struct daemon_worker *w;
	struct gate g;

	gate_init(&g, false);
	w = daemon_worker_new(gated_reset, &g);
	g_assert_false(daemon_worker_resetting(w));
	daemon_worker_reset(w);
	g_assert_true(daemon_worker_resetting(w));
	util_mutex_lock(&g.lock);
	while (!g.entered)
		util_cond_wait(&g.cond, &g.lock);
	util_mutex_unlock(&g.lock);
	g_assert_true(daemon_worker_resetting(w));
	/* One that is asked for while another runs is not covered by it. */
	daemon_worker_reset(w);
	gate_open(&g);
	daemon_worker_wait(w);
	g_assert_false(daemon_worker_resetting(w));
	g_assert_cmpint(g.done, ==, 2);
	daemon_worker_free(w);
}

static void free_does_what_was_asked(void)
{
	struct daemon_worker *w;
	struct gate g;

	gate_init(&g, true);
	w = daemon_worker_new(gated_reset, &g);
	daemon_worker_reset(w);
	daemon_worker_free(w);
	g_assert_cmpint(g.done, ==, 1);
	daemon_worker_free(NULL);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/worker/counts", reset_counts_from_the_asking_on);
	g_test_add_func("/worker/free", free_does_what_was_asked);
	return g_test_run();
}
