// SPDX-License-Identifier: Apache-2.0
/*
 * The worker sleeps in poll() on its eventfd and on a memory pressure trigger: for ever while
 * there is no candidate, else until the oldest one comes of age. A kick is an eventfd write only
 * when the worker has said that it sleeps without a deadline (the first candidate wakes it, and
 * it then knows when to look again) or when a watermark was passed since it last looked.
 *
 * Pressure: Linux PSI (Documentation/accounting/psi.rst). The trigger asks to be woken when tasks
 * were stalled on memory for 100 ms within one second. Where the file is missing, or may not be
 * written, there is no such trigger.
 *
 * Where the other side refuses all that should go, it is left alone for 10 ms, then twice as long
 * each time, up to a second, whatever kicks meanwhile.
 */
#include "rc.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_lock.h"

/* syscalls: openat eventfd2 ppoll read write close */

#define PSI_FILE "/proc/pressure/memory"
#define PSI_TRIGGER "some 100000 1000000"
#define RETRY_NS UINT64_C(10000000)
#define RETRY_MAX_NS UINT64_C(1000000000)

struct rc_worker {
	const struct rc_marks *marks;
	const struct rc_worker_ops *ops;
	void *ctx;
	GThread *thread;
	int event_fd;
	int psi_fd;
	bool stop;
	bool want_first;   /* the next candidate must kick */
	bool want_urgent;  /* the next urgent one must */
	uint64_t retry_ns; /* 0, or how long the other side is left alone after a refusal ... */
	uint64_t retry_at; /* ... and until when, whoever kicks */
	uint64_t passes;
};

int rc_psi_open(const char *path)
{
	int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && write(fd, PSI_TRIGGER, sizeof(PSI_TRIGGER)) < 0)
		util_close(&fd);
	return fd;
}

static void wake(struct rc_worker *w)
{
	uint64_t one = 1;
	ssize_t n;

	do {
		n = write(w->event_fd, &one, sizeof(one));
	} while (n < 0 && errno == EINTR);
}

void rc_worker_kick(struct rc_worker *w, bool urgent)
{
	if (!w)
		return;
	if (__atomic_load_n(&w->want_first, __ATOMIC_SEQ_CST) &&
	    __atomic_exchange_n(&w->want_first, false, __ATOMIC_SEQ_CST))
		wake(w);
	else if (urgent && __atomic_load_n(&w->want_urgent, __ATOMIC_SEQ_CST) &&
		 __atomic_exchange_n(&w->want_urgent, false, __ATOMIC_SEQ_CST))
		wake(w);
}

void rc_worker_look(struct rc_worker *w)
{
	if (w)
		wake(w);
}

uint64_t rc_worker_passes(const struct rc_worker *w)
{
	return w ? __atomic_load_n(&w->passes, __ATOMIC_RELAXED) : 0;
}

/* Sleeps until @deadline_ns (UINT64_MAX: for ever) or a kick; true when memory is short. */
static bool nap(struct rc_worker *w, uint64_t deadline_ns)
{
	struct pollfd p[2] = {
		{.fd = w->event_fd, .events = POLLIN},
		{.fd = w->psi_fd, .events = POLLPRI},
	};
	struct timespec ts, *timeout = NULL;
	uint64_t now = util_now_ns(), count;
	int n;

	if (deadline_ns != UINT64_MAX) {
		uint64_t left = deadline_ns > now ? deadline_ns - now : 0;

		ts.tv_sec = (time_t)(left / 1000000000u);
		ts.tv_nsec = (long)(left % 1000000000u);
		timeout = &ts;
	}
	n = ppoll(p, 2, timeout, NULL);
	if (n <= 0)
		return false;
	if (p[0].revents & POLLIN && read(w->event_fd, &count, sizeof(count)) < 0 &&
	    errno != EAGAIN)
		g_warning("reclaim: eventfd: %s", g_strerror(errno));
	if (p[1].revents & (POLLERR | POLLNVAL))
		util_close(&w->psi_fd);
	return p[1].revents & POLLPRI;
}

/* When to look again after a drain that did not do all it should; 0: it did. */
static uint64_t look_again(struct rc_worker *w, enum rc_drained how)
{
	uint64_t now = util_now_ns();

	if (how == RC_REFUSED) {
		w->retry_ns = w->retry_ns ? MIN(2 * w->retry_ns, RETRY_MAX_NS) : RETRY_NS;
		w->retry_at = now + w->retry_ns;
		return w->retry_at;
	}
	w->retry_ns = 0;
	return how == RC_IN_USE ? now + RETRY_NS : 0;
}

/* One look at the load; returns when to look again. */
static uint64_t pass(struct rc_worker *w, bool pressure)
{
	uint64_t now = util_now_ns(), stamp, again;
	struct rc_marks marks = rc_marks_load(w->marks);
	struct rc_load load = {0};
	struct rc_decision d;

	if (w->retry_ns && now < w->retry_at)
		return w->retry_at;
	w->ops->load(w->ctx, &load);
	d = rc_decide(&load, &marks, pressure);
	__atomic_add_fetch(&w->passes, 1, __ATOMIC_RELAXED);
	if (load.idle) {
		again = look_again(
			w, w->ops->drain(w->ctx, d.want, now > d.age_ns ? now - d.age_ns : 0));
		if (again)
			return again;
	}
	if (!w->ops->oldest(w->ctx, &stamp))
		return UINT64_MAX;
	/* at least the retry time from now: what is in use is stamped anew, not spun upon */
	return MAX(stamp + d.age_ns, util_now_ns() + RETRY_NS / 10);
}

static gpointer run(gpointer data)
{
	struct rc_worker *w = data;
	bool pressure = false;
	uint64_t again, stamp;

	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&w->want_urgent, true, __ATOMIC_SEQ_CST);
		again = pass(w, pressure);
		if (again == UINT64_MAX) {
			__atomic_store_n(&w->want_first, true, __ATOMIC_SEQ_CST);
			/* one that came before the flag was up does not kick */
			if (w->ops->oldest(w->ctx, &stamp))
				again = 0;
		}
		if (again != 0)
			pressure = nap(w, again);
		__atomic_store_n(&w->want_first, false, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

struct rc_worker *rc_worker_new_with_psi(const struct rc_marks *marks,
					 const struct rc_worker_ops *ops, void *ctx, int psi_fd)
{
	struct rc_worker *w = g_new0(struct rc_worker, 1);

	w->marks = marks;
	w->ops = ops;
	w->ctx = ctx;
	w->psi_fd = psi_fd;
	w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->event_fd < 0)
		g_error("eventfd: %s", g_strerror(errno));
	w->thread = g_thread_new("dax-reclaim", run, w);
	return w;
}

struct rc_worker *rc_worker_new(const struct rc_marks *marks, const struct rc_worker_ops *ops,
				void *ctx)
{
	return rc_worker_new_with_psi(marks, ops, ctx, rc_psi_open(PSI_FILE));
}

void rc_worker_free(struct rc_worker *w)
{
	if (!w)
		return;
	__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
	wake(w);
	g_thread_join(w->thread);
	util_close(&w->event_fd);
	util_close(&w->psi_fd);
	g_free(w);
}
