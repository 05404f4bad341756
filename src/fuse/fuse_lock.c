// SPDX-License-Identifier: Apache-2.0
/*
 * File locks (whole files, FUSE_LK_FLOCK), and INTERRUPT.
 *
 * A SETLKW that cannot have its lock at once joins a list; one thread, which exists only while
 * the list is not empty, tries them all again, in order of arrival: at once when this session
 * gives a lock back, else at growing intervals, as a process of the host may hold it. So a guest
 * with a thousand waiters holds one thread, and a waiter can always be cancelled: by INTERRUPT,
 * and by DESTROY, INIT or a reset, which wait for every request. To the transport it is parked.
 *
 * POSIX locks are not offered (FUSE_POSIX_LOCKS): the guest keeps them among its own processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "fuse_internal.h"

#define FIRST_RETRY_NS 2000000ull
#define LAST_RETRY_NS 200000000ull

static int lock_op(const struct fuse_lk_in *in)
{
	switch (in->lk.type) {
	case F_RDLCK:
		return LOCK_SH;
	case F_WRLCK:
		return LOCK_EX;
	case F_UNLCK:
		return LOCK_UN;
	default:
		return -EINVAL;
	}
}

static int try_lock(struct fuse_session *s, const struct fuse_lk_in *in)
{
	int op = lock_op(in);

	return op < 0 ? op : fs_flock(s->cfg.fs, in->fh, op | LOCK_NB);
}

static bool is_stopped(struct fuse_lock_waits *l, const struct fuse_state *st)
{
	bool stopped;

	util_mutex_lock(&l->m);
	stopped = l->cancel || st->interrupted;
	util_mutex_unlock(&l->m);
	return stopped;
}

static void unlink_job(struct fuse_lock_waits *l, struct fuse_job *job)
{
	struct fuse_job **at;

	util_mutex_lock(&l->m);
	for (at = &l->head; *at != job; at = &(*at)->next)
		;
	*at = job->next;
	util_mutex_unlock(&l->m);
}

/* The next one to look at: only this thread takes from the list, others append. */
static struct fuse_job *next_waiter(struct fuse_lock_waits *l, struct fuse_job *job)
{
	struct fuse_job *next;

	util_mutex_lock(&l->m);
	next = job ? job->next : l->head;
	util_mutex_unlock(&l->m);
	return next;
}

/* Tries all once, and finishes what has an answer. True when nobody waits any more: the thread's
 * job has then ended, decided under the lock. */
static bool try_all(struct fuse_session *s)
{
	struct fuse_lock_waits *l = &s->locks;
	struct fuse_job *job = next_waiter(l, NULL);
	bool empty;

	while (job) {
		struct fuse_job *next;
		struct fuse_state *st = (struct fuse_state *)job;
		int err = is_stopped(l, st)
				  ? -EINTR
				  : try_lock(s, (const struct fuse_lk_in *)(void *)st->args);

		next = next_waiter(l, job);
		if (err != -EWOULDBLOCK) {
			unlink_job(l, job);
			fuse_finish(s, fuse_request_of_job(job), err);
		}
		job = next;
	}
	util_mutex_lock(&l->m);
	empty = !l->head;
	if (empty)
		l->thread_runs = false;
	util_mutex_unlock(&l->m);
	return empty;
}

static void lock_thread(struct fuse_job *thread_job)
{
	struct fuse_session *s =
		(struct fuse_session *)(void *)((char *)thread_job -
						offsetof(struct fuse_session, locks.thread_job));
	struct fuse_lock_waits *l = &s->locks;
	uint64_t interval = FIRST_RETRY_NS;
	uint64_t seen = 0;

	while (!try_all(s)) {
		util_mutex_lock(&l->m);
		if (l->events == seen &&
		    !util_cond_wait_until(&l->wake, &l->m, util_now_ns() + interval))
			interval = MIN(interval * 2, LAST_RETRY_NS);
		else
			interval = FIRST_RETRY_NS;
		seen = l->events;
		util_mutex_unlock(&l->m);
	}
}

static void wake(struct fuse_lock_waits *l) UTIL_REQUIRES(l->m)
{
	l->events++;
	util_cond_broadcast(&l->wake);
}

static ssize_t wait_for_lock(struct fuse_ctx *c)
{
	struct fuse_lock_waits *l = &c->s->locks;
	struct fuse_job **at;
	bool start;

	/* Whoever has the lock may keep it for ever: a stop of the device cannot wait for that. */
	fuse_park(c->r, true);
	util_mutex_lock(&l->m);
	if (l->cancel) {
		util_mutex_unlock(&l->m);
		return -EINTR;
	}
	c->st->job.next = NULL;
	for (at = &l->head; *at; at = &(*at)->next)
		;
	*at = &c->st->job;
	start = !l->thread_runs;
	l->thread_runs = true;
	wake(l);
	util_mutex_unlock(&l->m);
	if (start)
		fuse_pool_push(c->s->locker, &l->thread_job);
	return FUSE_TAKEN;
}

static ssize_t set_lock(struct fuse_ctx *c, bool wait)
{
	const struct fuse_lk_in *in = fuse_args(c, struct fuse_lk_in);
	int err;

	if (!(in->lk_flags & FUSE_LK_FLOCK) || !c->s->cfg.flock)
		return -ENOSYS;
	err = try_lock(c->s, in);
	if (err == -EWOULDBLOCK && wait)
		return wait_for_lock(c);
	/* Also a lock made weaker lets others in. */
	if (!err && in->lk.type != F_WRLCK)
		fuse_lock_released(c->s);
	return err;
}

ssize_t fuse_op_getlk(struct fuse_ctx *c)
{
	return -ENOSYS;
}

ssize_t fuse_op_setlk(struct fuse_ctx *c)
{
	return set_lock(c, false);
}

ssize_t fuse_op_setlkw(struct fuse_ctx *c)
{
	return set_lock(c, true);
}

/* Only what waits for a lock can be interrupted; for anything else it comes too late or too
 * early, which the protocol allows. */
ssize_t fuse_op_interrupt(struct fuse_ctx *c)
{
	uint64_t unique = fuse_args(c, struct fuse_interrupt_in)->unique;
	struct fuse_lock_waits *l = &c->s->locks;

	util_mutex_lock(&l->m);
	for (struct fuse_job *job = l->head; job; job = job->next) {
		struct fuse_state *st = (struct fuse_state *)job;

		if (st->h.unique == unique) {
			st->interrupted = true;
			wake(l);
		}
	}
	util_mutex_unlock(&l->m);
	return 0;
}

void fuse_lock_released(struct fuse_session *s)
{
	struct fuse_lock_waits *l = &s->locks;

	if (!s->cfg.flock)
		return;
	util_mutex_lock(&l->m);
	if (l->thread_runs)
		wake(l);
	util_mutex_unlock(&l->m);
}

void fuse_lock_cancel(struct fuse_session *s, bool cancel)
{
	struct fuse_lock_waits *l = &s->locks;

	util_mutex_lock(&l->m);
	l->cancel = cancel;
	if (cancel)
		wake(l);
	util_mutex_unlock(&l->m);
}

void fuse_lock_setup(struct fuse_session *s)
{
	util_mutex_init(&s->locks.m);
	util_cond_init(&s->locks.wake);
	s->locks.thread_job.run = lock_thread;
}

void fuse_lock_cleanup(struct fuse_session *s)
{
	util_cond_destroy(&s->locks.wake);
	util_mutex_destroy(&s->locks.m);
}
