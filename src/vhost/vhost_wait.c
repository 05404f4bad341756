// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting for a kick.
 *
 * One system call a sleep: the kick's eventfd stands edge-triggered in an epoll set and is never
 * read. Each write to an eventfd is an edge, whatever its count, so none is lost; one that came
 * while the thread was busy ends the next sleep at once, which costs a look at the ring. Other
 * descriptors (the protocol does not say what it must be) are drained, as their writer might block
 * or its edges go missing once they are full.
 *
 * Polling. Two threads that hand one request to and fro spend far more on sleeping and waking
 * than on the request. So before it sleeps the thread looks at the ring for @poll_ns. That
 * time follows what the last wait turned out to be: one that ended within the budget would have
 * been met by polling, so the time doubles; a longer one was not worth any, so it halves, down to
 * nothing. An idle queue thus polls a few more times, ever shorter, and not at all from then on.
 */
#define G_LOG_DOMAIN "vhost"
#include "vhost_wait.h"

#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_log.h"

/* syscalls: eventfd2 epoll_create1 epoll_ctl epoll_wait epoll_pwait read write fstat newfstatat */

#define POLL_MIN_NS 2000u
#define NO_KICK_TICK_MS 1

enum { WAKE, KICK };

static void drain(int fd)
{
	uint64_t v;

	if (read(fd, &v, sizeof(v)) < 0 && errno != EAGAIN && errno != EINTR)
		util_log_once("cannot read an event descriptor: %s", g_strerror(errno));
}

void vhost_wait_init(struct vhost_wait *w, unsigned int poll_us)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u32 = WAKE};

	*w = (struct vhost_wait){.kick = -1, .max_ns = poll_us * 1000u};
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->epoll < 0 || w->wake < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &e) < 0)
		g_error("a queue's descriptors: %s", g_strerror(errno));
}

void vhost_wait_destroy(struct vhost_wait *w)
{
	util_close(&w->kick);
	util_close(&w->wake);
	util_close(&w->epoll);
}

static void kick_unusable(struct vhost_wait *w)
{
	util_log_once("a kick descriptor is unusable; polling instead");
	w->kick_fails = true;
}

void vhost_wait_set_kick(struct vhost_wait *w, int fd)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u32 = KICK};
	struct stat st;

	/* Others may hold the same description, which then would stay in the set. */
	if (w->kick >= 0)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->kick, NULL);
	util_close(&w->kick);
	w->kick = fd;
	w->kick_fails = false;
	if (fd < 0)
		return;
	w->kick_drain = fstat(fd, &st) < 0 || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode);
	if (w->kick_drain)
		e.events = EPOLLIN;
	if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		kick_unusable(w);
}

void vhost_wait_reset(struct vhost_wait *w)
{
	vhost_wait_set_kick(w, -1);
	drain(w->wake);
	w->poll_ns = 0;
}

static void kicked(struct vhost_wait *w, uint32_t events)
{
	if (!(events & EPOLLIN)) {
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->kick, NULL);
		kick_unusable(w);
	} else if (w->kick_drain) {
		drain(w->kick);
	}
}

void vhost_wait_sleep(struct vhost_wait *w)
{
	struct epoll_event e[2];
	bool tick = w->kick < 0 || w->kick_fails;
	int n = epoll_wait(w->epoll, e, G_N_ELEMENTS(e), tick ? NO_KICK_TICK_MS : -1);

	for (int i = 0; i < n; i++) {
		if (e[i].data.u32 == KICK)
			kicked(w, e[i].events);
	}
}

void vhost_wait_wake(struct vhost_wait *w)
{
	uint64_t one = 1;

	if (write(w->wake, &one, sizeof(one)) < 0)
		util_log_once("cannot wake a queue: %s", g_strerror(errno));
}

void vhost_wait_learn(struct vhost_wait *w, uint64_t ns)
{
	if (ns > w->max_ns)
		w->poll_ns = w->poll_ns / 2 < POLL_MIN_NS ? 0 : w->poll_ns / 2;
	else
		w->poll_ns = CLAMP(w->poll_ns * 2, MIN(POLL_MIN_NS, w->max_ns), w->max_ns);
}
