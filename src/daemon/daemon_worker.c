// SPDX-License-Identifier: Apache-2.0
/*
 * Why a reset has to be waited for: the main channel may not wait until the old guest's requests
 * are gone, but the next guest's INIT must not overtake that, or the reset would take away what
 * the new one has just made. So the reset is counted at once, and queue threads wait on the count
 * before they take a request up.
 */
#include "daemon_worker.h"

#include <glib.h>

#include "util_lock.h"

struct daemon_worker {
	void (*reset)(void *ctx);
	void *ctx;
	struct util_mutex lock; /* innermost: nothing is called under it */
	struct util_cond wake;	/* work came, or stop */
	struct util_cond idle;	/* pending went to 0 */
	unsigned int pending;	/* asked for or under way; written under lock, read without */
	bool stop;		/* lock */
	GThread *thread;
};

/* How many resets there are to do, in one go; 0 at the end. */
static unsigned int take(struct daemon_worker *w)
{
	unsigned int n;

	util_mutex_lock(&w->lock);
	while (!w->stop && !w->pending)
		util_cond_wait(&w->wake, &w->lock);
	n = w->pending;
	util_mutex_unlock(&w->lock);
	return n;
}

static void *work(void *arg)
{
	struct daemon_worker *w = arg;
	unsigned int n;

	while ((n = take(w)) > 0) {
		w->reset(w->ctx);
		util_mutex_lock(&w->lock);
		__atomic_store_n(&w->pending, w->pending - n, __ATOMIC_RELEASE);
		if (!w->pending)
			util_cond_broadcast(&w->idle);
		util_mutex_unlock(&w->lock);
	}
	return NULL;
}

struct daemon_worker *daemon_worker_new(void (*reset)(void *ctx), void *ctx)
{
	struct daemon_worker *w = g_new0(struct daemon_worker, 1);

	w->reset = reset;
	w->ctx = ctx;
	util_mutex_init(&w->lock);
	util_cond_init(&w->wake);
	util_cond_init(&w->idle);
	w->thread = g_thread_new("worker", work, w);
	return w;
}

void daemon_worker_free(struct daemon_worker *w)
{
	if (!w)
		return;
	util_mutex_lock(&w->lock);
	w->stop = true;
	util_cond_signal(&w->wake);
	util_mutex_unlock(&w->lock);
	g_thread_join(w->thread);
	util_cond_destroy(&w->idle);
	util_cond_destroy(&w->wake);
	util_mutex_destroy(&w->lock);
	g_free(w);
}

void daemon_worker_reset(struct daemon_worker *w)
{
	util_mutex_lock(&w->lock);
	__atomic_store_n(&w->pending, w->pending + 1, __ATOMIC_RELEASE);
	util_cond_signal(&w->wake);
	util_mutex_unlock(&w->lock);
}

bool daemon_worker_resetting(struct daemon_worker *w)
{
	return __atomic_load_n(&w->pending, __ATOMIC_ACQUIRE) > 0;
}

void daemon_worker_wait(struct daemon_worker *w)
{
	util_mutex_lock(&w->lock);
	while (w->pending)
		util_cond_wait(&w->idle, &w->lock);
	util_mutex_unlock(&w->lock);
}
