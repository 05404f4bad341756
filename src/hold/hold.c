// SPDX-License-Identifier: Apache-2.0
/*
 * The daemon's side: a socket to the guard (hold_guard.c), which is the other end's only business.
 * Messages of one size, descriptors with some. Nothing here waits for the guard: what its queue
 * does not take is not sent, which costs a truncation its hold, and nothing else.
 */
#include "hold_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_sock.h"

struct hold {
	int sock;
	pid_t owner; /* who called hold_start() */
	pid_t guard; /* a child of @owner */
	atomic_bool dead;
};

static const char *const steps[] = {
	[HOLD_STEP_FANOTIFY] = "fanotify: ",
	[HOLD_STEP_SHARE] = "the share's file system: ",
	[HOLD_STEP_PROC] = "/proc: ",
	[HOLD_STEP_JAIL] = "seccomp: ",
};

static const char *reason(const struct hold_msg *m)
{
	if (m->id == HOLD_STEP_FANOTIFY && m->err == -EPERM)
		return "needs CAP_SYS_ADMIN in the initial user namespace";
	if (m->id == HOLD_STEP_FANOTIFY && m->err == -EINVAL)
		return "no FAN_PRE_ACCESS in this kernel (Linux 6.14 or newer)";
	if (m->id == HOLD_STEP_SHARE && (m->err == -EOPNOTSUPP || m->err == -EINVAL))
		return "knows no FAN_PRE_ACCESS (ext4, xfs and btrfs do, from Linux 6.14 on)";
	if (m->id == HOLD_STEP_PROC && m->err == -EPERM)
		return "needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";
	return g_strerror(-m->err);
}

static bool fork_guard(struct hold *h, const struct hold_config *config)
{
	pid_t parent = getpid();
	int pair[2], on = 1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	/* The guard must know whose truncations are ours. */
	h->owner = parent;
	h->guard = setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ? -1 : fork();
	if (h->guard == 0)
		hold_guard_main(pair[1], config->share_fd, parent, config->seccomp);
	close(pair[1]);
	h->sock = pair[0];
	return h->guard > 0;
}

struct hold *hold_start(const struct hold_config *config, char **why)
{
	struct hold *h = g_new0(struct hold, 1);
	struct hold_msg m = {0};
	ssize_t n;

	h->sock = -1;
	if (!fork_guard(h, config)) {
		*why = g_strdup(g_strerror(errno));
		hold_free(h);
		return NULL;
	}
	do
		n = recv(h->sock, &m, sizeof(m), 0);
	while (n < 0 && errno == EINTR);
	if (n == sizeof(m) && m.op == HOLD_OP_READY && m.err == 0)
		return h;
	if (n == sizeof(m) && m.op == HOLD_OP_READY && m.id < G_N_ELEMENTS(steps))
		*why = g_strdup_printf("%s%s", steps[m.id], reason(&m));
	else
		*why = g_strdup("the guard does not answer");
	hold_free(h);
	return NULL;
}

/* syscalls: close wait4 getpid */
void hold_free(struct hold *h)
{
	if (!h)
		return;
	util_close(&h->sock);
	if (h->guard > 0 && h->owner == getpid())
		while (waitpid(h->guard, NULL, 0) < 0 && errno == EINTR)
			continue;
	g_free(h);
}

pid_t hold_guard_pid(const struct hold *h)
{
	return h->guard;
}

int hold_event_fd(const struct hold *h)
{
	return h->sock;
}

static int send_msg(struct hold *h, const struct hold_msg *msg, int fd)
{
	ssize_t n;

	if (atomic_load(&h->dead))
		return -ENOTCONN;
	n = util_sock_send(h->sock, msg, sizeof(*msg), fd, MSG_DONTWAIT);
	return n < 0 ? (int)n : 0;
}

int hold_watch(struct hold *h, int fd)
{
	const struct hold_msg msg = {.op = HOLD_OP_WATCH};

	return send_msg(h, &msg, fd);
}

void hold_unwatch(struct hold *h, int fd)
{
	const struct hold_msg msg = {.op = HOLD_OP_UNWATCH};

	send_msg(h, &msg, fd);
}

void hold_done(struct hold *h, uint64_t id, unsigned int grace_ms)
{
	const struct hold_msg msg = {.op = HOLD_OP_DONE, .id = id, .length = grace_ms};

	send_msg(h, &msg, -1);
}

/* syscalls: recvfrom */
bool hold_next(struct hold *h, struct hold_event *e)
{
	struct hold_msg m;
	ssize_t n;

	if (atomic_load(&h->dead))
		return false;
	do
		n = recv(h->sock, &m, sizeof(m), MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n != sizeof(m) || m.op < HOLD_WATCHED || m.op >= HOLD_DEAD) {
		atomic_store(&h->dead, true);
		*e = (struct hold_event){.kind = HOLD_DEAD};
		return true;
	}
	*e = (struct hold_event){
		.kind = (enum hold_kind)m.op,
		.err = m.err,
		.id = m.id,
		.dev = m.dev,
		.ino = m.ino,
		.length = m.length,
	};
	return true;
}
