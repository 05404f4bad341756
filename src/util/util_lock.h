/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutex and condition variable with clang's thread-safety annotations. Annotate functions
 * (UTIL_REQUIRES, UTIL_EXCLUDES), comment fields, unlock explicitly.
 */
#ifndef DAXMAP_UTIL_LOCK_H
#define DAXMAP_UTIL_LOCK_H

#include <pthread.h>
#include <stdint.h>

#if defined(__clang__)
#define UTIL_TSA(x) __attribute__((x))
#else
#define UTIL_TSA(x)
#endif
#define UTIL_CAPABILITY(name) UTIL_TSA(capability(name))
#define UTIL_ACQUIRE(...) UTIL_TSA(acquire_capability(__VA_ARGS__))
#define UTIL_RELEASE(...) UTIL_TSA(release_capability(__VA_ARGS__))
#define UTIL_TRY_ACQUIRE(...) UTIL_TSA(try_acquire_capability(__VA_ARGS__))
#define UTIL_REQUIRES(...) UTIL_TSA(requires_capability(__VA_ARGS__))
#define UTIL_EXCLUDES(...) UTIL_TSA(locks_excluded(__VA_ARGS__))
#define UTIL_NO_TSA UTIL_TSA(no_thread_safety_analysis)

struct UTIL_CAPABILITY("mutex") util_mutex {
	pthread_mutex_t m;
};

struct util_cond {
	pthread_cond_t c; /* CLOCK_MONOTONIC */
};

void util_mutex_init(struct util_mutex *m);
void util_mutex_destroy(struct util_mutex *m) UTIL_EXCLUDES(m);
void util_mutex_lock(struct util_mutex *m) UTIL_ACQUIRE(m);
/** util_mutex_trylock() - true when the lock was taken. */
_Bool util_mutex_trylock(struct util_mutex *m) UTIL_TRY_ACQUIRE(1, m);
void util_mutex_unlock(struct util_mutex *m) UTIL_RELEASE(m);

void util_cond_init(struct util_cond *c);
void util_cond_destroy(struct util_cond *c);
void util_cond_wait(struct util_cond *c, struct util_mutex *m) UTIL_REQUIRES(m);
/** util_cond_wait_until() - false when CLOCK_MONOTONIC passed @deadline_ns first. */
_Bool util_cond_wait_until(struct util_cond *c, struct util_mutex *m, uint64_t deadline_ns)
	UTIL_REQUIRES(m);
void util_cond_signal(struct util_cond *c);
void util_cond_broadcast(struct util_cond *c);

/** util_now_ns() - CLOCK_MONOTONIC in nanoseconds. */
uint64_t util_now_ns(void);

#endif
