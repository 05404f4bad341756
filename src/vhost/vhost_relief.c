// SPDX-License-Identifier: Apache-2.0
/*
 * Handing what may block to another thread beforehand costs two changes of threads a request, and
 * most of what may block does not: a buffered write, a create. So a queue's thread does that
 * itself, says so (vhost_queue.risk is odd meanwhile, and another number each time), and this
 * thread looks once in a tick: who is still in what it was in one tick before has blocked, and
 * another thread takes its queue over (vhost_queue_relieve()). So nobody waits longer than two
 * ticks behind what blocks, and what does not block wakes nobody.
 *
 * A thread that is kept from its CPU by others looks the same as one that blocks. To relieve it
 * costs a change of threads a few hundred times a second at most, and harms nobody else.
 *
 * Idleness: after LINGER_TICKS without any such call it sleeps without a timer until the next one
 * begins. Both sides store, then load, sequentially consistent: either the caller sees @asleep, or
 * this thread sees its call.
 */
#define G_LOG_DOMAIN "vhost"
#include "vhost_relief.h"

#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "vhost.h"
#include "vhost_queue.h"

/* syscalls: prctl */

#define TICK_NS 2000000u
#define LINGER_TICKS 16

struct view {
	uint64_t risk[VHOST_MAX_QUEUES]; /* as seen the last time */
};

/* Relieves who has blocked; true when something was begun since the last look, or is under way. */
static bool look(struct vhost_relief *r, struct view *v)
{
	bool active = false;

	for (unsigned int i = 0; i < r->n; i++) {
		uint64_t risk = __atomic_load_n(&r->queues[i].risk, __ATOMIC_SEQ_CST);

		active |= risk != v->risk[i] || risk & 1;
		if (risk & 1 && risk == v->risk[i])
			vhost_queue_relieve(&r->queues[i], risk);
		v->risk[i] = risk;
	}
	return active;
}

/* Under the lock. */
static void sleep_until_needed(struct vhost_relief *r, struct view *v) UTIL_REQUIRES(r->lock)
{
	__atomic_store_n(&r->asleep, true, __ATOMIC_SEQ_CST);
	if (!look(r, v)) {
		while (!r->quit && r->asleep)
			util_cond_wait(&r->wake, &r->lock);
	}
	__atomic_store_n(&r->asleep, false, __ATOMIC_RELAXED);
}

static void *relief_main(void *arg)
{
	struct vhost_relief *r = arg;
	unsigned int calm = LINGER_TICKS;
	struct view v = {{0}};

	prctl(PR_SET_NAME, "relief", 0, 0, 0);
	util_mutex_lock(&r->lock);
	while (!r->quit) {
		if (calm++ == LINGER_TICKS) {
			sleep_until_needed(r, &v);
			calm = 0;
		}
		util_cond_wait_until(&r->wake, &r->lock, util_now_ns() + TICK_NS);
		if (look(r, &v))
			calm = 0;
	}
	util_mutex_unlock(&r->lock);
	return NULL;
}

void vhost_relief_init(struct vhost_relief *r, struct vhost_queue *queues, unsigned int n)
{
	memset(r, 0, sizeof(*r));
	r->queues = queues;
	r->n = n;
	util_mutex_init(&r->lock);
	util_cond_init(&r->wake);
}

void vhost_relief_destroy(struct vhost_relief *r)
{
	util_cond_destroy(&r->wake);
	util_mutex_destroy(&r->lock);
}

int vhost_relief_begin(struct vhost_relief *r)
{
	sigset_t all, old;
	int err;

	if (r->has_thread || !r->n)
		return 0;
	r->quit = false;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&r->thread, NULL, relief_main, r);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	r->has_thread = !err;
	return -err;
}

void vhost_relief_end(struct vhost_relief *r)
{
	if (!r->has_thread)
		return;
	util_mutex_lock(&r->lock);
	r->quit = true;
	util_cond_signal(&r->wake);
	util_mutex_unlock(&r->lock);
	pthread_join(r->thread, NULL);
	r->has_thread = false;
}

void vhost_relief_wake(struct vhost_relief *r)
{
	util_mutex_lock(&r->lock);
	__atomic_store_n(&r->asleep, false, __ATOMIC_RELAXED);
	util_cond_signal(&r->wake);
	util_mutex_unlock(&r->lock);
}
