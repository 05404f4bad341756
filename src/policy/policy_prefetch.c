// SPDX-License-Identifier: Apache-2.0
#include "policy_prefetch.h"

#include <glib.h>
#include <sys/prctl.h>

#include "util_lock.h"

/* syscalls: prctl */

struct job {
	uint64_t node;
	uint64_t offset;
	uint64_t len;
};

/* Lock: leaf; nothing is called under it. */
struct policy_prefetch {
	void (*read)(void *ctx, uint64_t node, uint64_t offset, uint64_t len);
	void *ctx;
	struct util_mutex lock;
	struct util_cond wake; /* work came, or stop */
	struct util_cond idle; /* busy became false */
	/* under lock: */
	struct job jobs[POLICY_PREFETCH_DEPTH];
	unsigned int first;
	unsigned int n;
	bool busy;
	bool stop;
	struct policy_prefetch_stats stats;
	GThread *thread;
};

static bool take_locked(struct policy_prefetch *pp, struct job *job) UTIL_REQUIRES(pp->lock)
{
	while (!pp->stop && !pp->n)
		util_cond_wait(&pp->wake, &pp->lock);
	if (pp->stop)
		return false;
	*job = pp->jobs[pp->first];
	pp->first = (pp->first + 1) % POLICY_PREFETCH_DEPTH;
	pp->n--;
	pp->busy = true;
	return true;
}

static void *work(void *arg)
{
	struct policy_prefetch *pp = arg;
	struct job job;

	prctl(PR_SET_NAME, "prefetch", 0, 0, 0);
	util_mutex_lock(&pp->lock);
	while (take_locked(pp, &job)) {
		util_mutex_unlock(&pp->lock);
		pp->read(pp->ctx, job.node, job.offset, job.len);
		util_mutex_lock(&pp->lock);
		pp->stats.ranges++;
		pp->stats.bytes += job.len;
		pp->busy = false;
		util_cond_broadcast(&pp->idle);
	}
	util_mutex_unlock(&pp->lock);
	return NULL;
}

struct policy_prefetch *policy_prefetch_new(void (*read)(void *ctx, uint64_t node, uint64_t offset,
							 uint64_t len),
					    void *ctx)
{
	struct policy_prefetch *pp = g_new0(struct policy_prefetch, 1);

	pp->read = read;
	pp->ctx = ctx;
	util_mutex_init(&pp->lock);
	util_cond_init(&pp->wake);
	util_cond_init(&pp->idle);
	pp->thread = g_thread_new("prefetch", work, pp);
	return pp;
}

void policy_prefetch_free(struct policy_prefetch *pp)
{
	if (!pp)
		return;
	util_mutex_lock(&pp->lock);
	pp->stop = true;
	util_cond_signal(&pp->wake);
	util_mutex_unlock(&pp->lock);
	g_thread_join(pp->thread);
	util_cond_destroy(&pp->idle);
	util_cond_destroy(&pp->wake);
	util_mutex_destroy(&pp->lock);
	g_free(pp);
}

void policy_prefetch_push(struct policy_prefetch *pp, uint64_t node, uint64_t offset, uint64_t len)
{
	util_mutex_lock(&pp->lock);
	if (pp->n == POLICY_PREFETCH_DEPTH) {
		pp->stats.dropped++;
	} else {
		pp->jobs[(pp->first + pp->n) % POLICY_PREFETCH_DEPTH] =
			(struct job){node, offset, len};
		pp->n++;
		util_cond_signal(&pp->wake);
	}
	util_mutex_unlock(&pp->lock);
}

void policy_prefetch_quiesce(struct policy_prefetch *pp)
{
	util_mutex_lock(&pp->lock);
	pp->n = 0;
	while (pp->busy)
		util_cond_wait(&pp->idle, &pp->lock);
	util_mutex_unlock(&pp->lock);
}

void policy_prefetch_get_stats(struct policy_prefetch *pp, struct policy_prefetch_stats *out)
{
	util_mutex_lock(&pp->lock);
	*out = pp->stats;
	util_mutex_unlock(&pp->lock);
}
