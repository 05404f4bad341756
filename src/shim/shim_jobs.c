// SPDX-License-Identifier: Apache-2.0
#include "shim_jobs.h"

#include <glib.h>

#include "shim_internal.h"

#define SHIM_STACK (512u << 10)

/* shim-syscalls: futex sched_yield */
static struct shim_job *jobs_wait(struct shim_jobs *j) UTIL_EXCLUDES(&j->lock)
{
	struct shim_job *job;

	util_mutex_lock(&j->lock);
	while (!j->head)
		util_cond_wait(&j->wake, &j->lock);
	job = j->head;
	j->head = job->next;
	if (!j->head)
		j->tail = &j->head;
	util_mutex_unlock(&j->lock);
	return job;
}

static void *worker(void *arg)
{
	struct shim_jobs *j = arg;
	void *buf = g_malloc(SHIM_MAX_READ);

	util_mutex_lock(&j->lock);
	j->ready++;
	util_cond_broadcast(&j->wake);
	util_mutex_unlock(&j->lock);
	for (;;) {
		struct shim_job *job = jobs_wait(j);

		j->run(j->ctx, job, buf);
		g_free(job);
	}
	return NULL;
}

int shim_jobs_start(struct shim_jobs *j, unsigned int threads,
		    void (*run)(void *ctx, struct shim_job *job, void *buf), void *ctx)
{
	pthread_attr_t attr;
	int r = 0;

	util_mutex_init(&j->lock);
	util_cond_init(&j->wake);
	j->head = NULL;
	j->tail = &j->head;
	j->ready = 0;
	j->run = run;
	j->ctx = ctx;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, SHIM_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (unsigned int i = 0; i < threads && r == 0; i++) {
		pthread_t thread;

		r = pthread_create(&thread, &attr, worker, j);
	}
	pthread_attr_destroy(&attr);
	util_mutex_lock(&j->lock);
	while (r == 0 && j->ready < threads)
		util_cond_wait(&j->wake, &j->lock);
	util_mutex_unlock(&j->lock);
	return -r;
}

void shim_jobs_add(struct shim_jobs *j, const struct shim_job *job)
{
	struct shim_job *copy = g_memdup2(job, sizeof(*job));

	copy->next = NULL;
	util_mutex_lock(&j->lock);
	*j->tail = copy;
	j->tail = &copy->next;
	util_cond_signal(&j->wake);
	util_mutex_unlock(&j->lock);
}
