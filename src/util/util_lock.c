// SPDX-License-Identifier: Apache-2.0
/*
 * The pthread calls can only fail through a bug of ours (a destroyed or foreign lock), so
 * a failure aborts.
 */
#include "util_lock.h"

#include <errno.h>
#include <glib.h>
#include <time.h>

static void must(int err, const char *what)
{
	if (G_UNLIKELY(err))
		g_error("%s: %s", what, g_strerror(err));
}

void util_mutex_init(struct util_mutex *m)
{
	must(pthread_mutex_init(&m->m, NULL), "pthread_mutex_init");
}

void util_mutex_destroy(struct util_mutex *m)
{
	must(pthread_mutex_destroy(&m->m), "pthread_mutex_destroy");
}

void util_mutex_lock(struct util_mutex *m) UTIL_NO_TSA
{
	must(pthread_mutex_lock(&m->m), "pthread_mutex_lock");
}

_Bool util_mutex_trylock(struct util_mutex *m) UTIL_NO_TSA
{
	int err = pthread_mutex_trylock(&m->m);

	if (err == EBUSY)
		return 0;
	must(err, "pthread_mutex_trylock");
	return 1;
}

void util_mutex_unlock(struct util_mutex *m) UTIL_NO_TSA
{
	must(pthread_mutex_unlock(&m->m), "pthread_mutex_unlock");
}

void util_cond_init(struct util_cond *c)
{
	pthread_condattr_t attr;

	must(pthread_condattr_init(&attr), "pthread_condattr_init");
	must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC), "pthread_condattr_setclock");
	must(pthread_cond_init(&c->c, &attr), "pthread_cond_init");
	pthread_condattr_destroy(&attr);
}

void util_cond_destroy(struct util_cond *c)
{
	must(pthread_cond_destroy(&c->c), "pthread_cond_destroy");
}

void util_cond_wait(struct util_cond *c, struct util_mutex *m)
{
	must(pthread_cond_wait(&c->c, &m->m), "pthread_cond_wait");
}

_Bool util_cond_wait_until(struct util_cond *c, struct util_mutex *m, uint64_t deadline_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline_ns / 1000000000u),
		.tv_nsec = (long)(deadline_ns % 1000000000u),
	};
	int err = pthread_cond_timedwait(&c->c, &m->m, &ts);

	if (err == ETIMEDOUT)
		return 0;
	must(err, "pthread_cond_timedwait");
	return 1;
}

void util_cond_signal(struct util_cond *c)
{
	must(pthread_cond_signal(&c->c), "pthread_cond_signal");
}

void util_cond_broadcast(struct util_cond *c)
{
	must(pthread_cond_broadcast(&c->c), "pthread_cond_broadcast");
}

uint64_t util_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}
