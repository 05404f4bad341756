// SPDX-License-Identifier: Apache-2.0
/*
 * A worker pool.
 *
 * One mutex over a list of jobs and a stack of idle workers. Each worker sleeps on a condition
 * of its own, and the one that went idle last is woken first: its cache is warm, and under a
 * light load the ones at the bottom of the stack reach their idle time and leave. A pool
 * without work has no threads and costs nothing.
 *
 * A worker that is woken is given its job by the one who wakes it (@worker.job), so that a busy
 * worker that finishes in between cannot take it and leave the woken one without.
 *
 * A leaving thread puts itself on the list of the dead, where the next to grow the pool, or the
 * end of the pool, joins it.
 */
#include "fuse_pool.h"

#include <errno.h>
#include <glib.h>
#include <pthread.h>
#include <stdbool.h>

#include "util_lock.h"
#include "util_log.h"

/* syscalls: prctl */

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "fuse"

struct worker {
	struct fuse_pool *pool;
	pthread_t thread;
	struct util_cond wake;
	struct fuse_job *job; /* under pool.lock */
	struct worker *next;  /* in idle or dead; under pool.lock */
};

struct fuse_pool {
	struct util_mutex lock;
	struct util_cond empty; /* the last thread has left */
	/* all under lock: */
	struct fuse_job *head;
	struct fuse_job **tail;
	struct worker *idle;
	struct worker *dead;
	unsigned int threads;
	bool closing;
	/* constant: */
	unsigned int max_threads;
	uint64_t idle_ns;
	void (*start)(void *ctx, unsigned int arg);
	void *ctx;
	unsigned int arg;
	char name[16];
	/* written under lock, read anywhere: */
	unsigned int backlog;
};

static void queue_put(struct fuse_pool *p, struct fuse_job *job) UTIL_REQUIRES(p->lock)
{
	job->next = NULL;
	*p->tail = job;
	p->tail = &job->next;
	__atomic_store_n(&p->backlog, p->backlog + 1, __ATOMIC_RELAXED);
}

static struct fuse_job *queue_take(struct fuse_pool *p) UTIL_REQUIRES(p->lock)
{
	struct fuse_job *job = p->head;

	if (!job)
		return NULL;
	p->head = job->next;
	if (!p->head)
		p->tail = &p->head;
	__atomic_store_n(&p->backlog, p->backlog - 1, __ATOMIC_RELAXED);
	return job;
}

static void idle_remove(struct fuse_pool *p, struct worker *w) UTIL_REQUIRES(p->lock)
{
	for (struct worker **at = &p->idle; *at; at = &(*at)->next) {
		if (*at == w) {
			*at = w->next;
			return;
		}
	}
}

/* The next job, or NULL when the thread is to leave. */
static struct fuse_job *next_job(struct fuse_pool *p, struct worker *w) UTIL_REQUIRES(p->lock)
{
	struct fuse_job *job = queue_take(p);
	uint64_t deadline;

	if (job || p->closing)
		return job;
	deadline = util_now_ns() + p->idle_ns;
	w->next = p->idle;
	p->idle = w;
	while (!w->job && !p->closing) {
		if (!util_cond_wait_until(&w->wake, &p->lock, deadline) && !w->job)
			break;
	}
	if (!w->job)
		idle_remove(p, w);
	job = w->job;
	w->job = NULL;
	return job;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct fuse_pool *p = w->pool;
	struct fuse_job *job;

	pthread_setname_np(pthread_self(), p->name);
	if (p->start)
		p->start(p->ctx, p->arg);
	util_mutex_lock(&p->lock);
	job = w->job;
	w->job = NULL;
	while (job || (job = next_job(p, w))) {
		util_mutex_unlock(&p->lock);
		job->run(job);
		job = NULL;
		util_mutex_lock(&p->lock);
	}
	w->next = p->dead;
	p->dead = w;
	if (--p->threads == 0)
		util_cond_broadcast(&p->empty);
	util_mutex_unlock(&p->lock);
	return NULL;
}

static void bury(struct worker *dead)
{
	while (dead) {
		struct worker *w = dead;

		dead = w->next;
		pthread_join(w->thread, NULL);
		util_cond_destroy(&w->wake);
		g_free(w);
	}
}

/* A thread for @job; false when there is none to be had. */
static bool grow(struct fuse_pool *p, struct fuse_job *job) UTIL_REQUIRES(p->lock)
{
	struct worker *w = g_new0(struct worker, 1);
	int err;

	w->pool = p;
	w->job = job;
	util_cond_init(&w->wake);
	p->threads++;
	err = pthread_create(&w->thread, NULL, worker_main, w);
	if (!err)
		return true;
	p->threads--;
	util_cond_destroy(&w->wake);
	g_free(w);
	util_log_once("no worker thread: %s", g_strerror(err));
	return false;
}

void fuse_pool_push(struct fuse_pool *p, struct fuse_job *job)
{
	struct worker *dead;
	bool run_here = false;

	util_mutex_lock(&p->lock);
	dead = p->dead;
	p->dead = NULL;
	if (p->idle) {
		struct worker *w = p->idle;

		p->idle = w->next;
		w->job = job;
		util_cond_signal(&w->wake);
	} else if (p->threads >= p->max_threads || !grow(p, job)) {
		if (p->threads)
			queue_put(p, job);
		else
			run_here = true;
	}
	util_mutex_unlock(&p->lock);
	bury(dead);
	if (run_here)
		job->run(job);
}

struct fuse_pool *fuse_pool_new(const char *name, unsigned int max_threads, unsigned int idle_ms,
				void (*start)(void *ctx, unsigned int arg), void *ctx,
				unsigned int arg)
{
	struct fuse_pool *p = g_new0(struct fuse_pool, 1);

	util_mutex_init(&p->lock);
	util_cond_init(&p->empty);
	p->tail = &p->head;
	p->max_threads = MAX(max_threads, 1);
	p->idle_ns = (uint64_t)idle_ms * 1000000u;
	p->start = start;
	p->ctx = ctx;
	p->arg = arg;
	g_strlcpy(p->name, name, sizeof(p->name));
	return p;
}

void fuse_pool_free(struct fuse_pool *p)
{
	struct worker *dead;

	if (!p)
		return;
	util_mutex_lock(&p->lock);
	p->closing = true;
	for (struct worker *w = p->idle; w; w = w->next)
		util_cond_signal(&w->wake);
	while (p->threads)
		util_cond_wait(&p->empty, &p->lock);
	dead = p->dead;
	p->dead = NULL;
	util_mutex_unlock(&p->lock);
	bury(dead);
	util_cond_destroy(&p->empty);
	util_mutex_destroy(&p->lock);
	g_free(p);
}

unsigned int fuse_pool_threads(struct fuse_pool *p)
{
	unsigned int n;

	util_mutex_lock(&p->lock);
	n = p->threads;
	util_mutex_unlock(&p->lock);
	return n;
}

unsigned int fuse_pool_backlog(struct fuse_pool *p)
{
	return __atomic_load_n(&p->backlog, __ATOMIC_RELAXED);
}
