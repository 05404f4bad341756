// SPDX-License-Identifier: Apache-2.0
/*
 * The guard process. Theory of operation.
 *
 * The kernel asks it before a marked file is truncated (FAN_PRE_ACCESS) or opened
 * (FAN_OPEN_PERM: an open with O_TRUNC asks nothing else), and the thread that does it waits for
 * the answer. Neither event says what that thread does: a truncation to a length that is no
 * multiple of the page looks as a read of one page, one to a multiple as a read of nothing, and an
 * open is an open. To take one for the other would put zeros in the place of bytes. So the guard
 * looks which system call the thread is in, with its arguments: /proc/TID/syscall. That costs two
 * capabilities (hold_jail.c), and it is the reason why this is a process of its own.
 *
 * An event that cannot make the file shorter is answered at once, by its numbers; one that could,
 * after a look at the thread; one of the daemon's own threads at once (a guest that truncates has
 * unmapped what lies behind). What remains is asked of the daemon, and is *held* until it answers:
 *
 *     UNKNOWN  the thread was still on its way to sleep: looked at again, for 50 ms at most
 *     ASKED    the daemon has been told; let go HOLD_BOUND_MS later whatever happens
 *     GRACE    it has answered, and wants some more time
 *     LET_GO   the truncation goes on; the daemon is told when it is over: when the file changes by
 *              that thread (FAN_MODIFY in a second group, as this one's kind of event is not sent
 *              for a truncation; marked as long as something is held), or after 2 s
 *
 * As long as one that was let go unanswered has no answer, nothing new is held: a daemon or a VMM
 * that is stuck costs one truncation the bound, not each. So does a full table.
 *
 * One thread, which waits for the kernel's questions and the daemon's messages only. What might
 * wait for a disk, the last close of a file, is done by another. The death of the guard closes the
 * group, and all that is held goes on.
 */
#include "hold_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sandbox_helper.h"
#include "util_fd.h"
#include "util_sock.h"

enum {
	GUARD_SOCK = 3,
	GUARD_SHARE,
	GUARD_FREE,
};

#define MAX_HELD 256
#define LOOKS 16 /* at a thread that still runs, before others get their turn */
#define UNKNOWN_MS 50
#define OVER_MS 2000
#define MS UINT64_C(1000000)

enum step { UNKNOWN, ASKED, GRACE, LET_GO };

/**
 * struct held - one thread that waits, or has been let go
 * @fd: of the event: names it, and its file
 * @deadline: of the step; nanoseconds
 * @last: of ASKED: when it has to be over
 */
struct held {
	enum step step;
	uint64_t id;
	pid_t tid;
	int fd;
	uint64_t dev;
	uint64_t ino;
	uint64_t deadline;
	uint64_t last;
};

struct guard {
	int fan;
	int changes; /* another group */
	int proc;
	int to_close;
	pid_t daemon;
	uint64_t page;
	uint64_t next_id;
	unsigned int stuck; /* let go unanswered, and not answered since */
	unsigned int n;
	struct held held[MAX_HELD];
};

/* hold-syscalls: clock_gettime */
static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

/* ---- the daemon ---- */

/* hold-syscalls: sendto */
static bool tell(const struct hold_msg *msg)
{
	return send(GUARD_SOCK, msg, sizeof(*msg), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*msg);
}

static bool tell_of(enum hold_kind kind, const struct held *x, uint64_t length)
{
	const struct hold_msg msg = {
		.op = kind, .id = x->id, .dev = x->dev, .ino = x->ino, .length = length};

	return tell(&msg);
}

/* hold-syscalls: write close */
static void close_later(struct guard *g, int fd)
{
	if (write(g->to_close, &fd, sizeof(fd)) != sizeof(fd))
		close(fd);
}

struct closer {
	int ends[2];
	sem_t runs;
};

/* hold-syscalls: read */
static void *closer(void *arg)
{
	struct closer *c = arg;
	int from = c->ends[0], fd;

	sem_post(&c->runs);
	while (read(from, &fd, sizeof(fd)) == sizeof(fd))
		close(fd);
	return NULL;
}

/* ---- what a thread does ---- */

static enum hold_what of_open(unsigned long flags, uint64_t *length)
{
	*length = 0;
	return flags & O_TRUNC ? HOLD_WHAT_TRUNCATE : HOLD_WHAT_OTHER;
}

/* "running", or the call's number and six arguments; proc(5). A 32-bit process has other numbers,
 * which mean nothing that asks us where they coincide. */
enum hold_what hold_parse_syscall(const char *text, uint64_t *length)
{
	unsigned long arg[3];
	char *at;
	long nr;

	if (strncmp(text, "running", 7) == 0)
		return HOLD_WHAT_UNKNOWN;
	nr = strtol(text, &at, 10);
	if (at == text || nr < 0)
		return HOLD_WHAT_OTHER;
	for (int i = 0; i < 3; i++) {
		if (*at != ' ')
			return HOLD_WHAT_OTHER;
		arg[i] = strtoul(at, &at, 16);
	}
	switch (nr) {
	case SYS_truncate:
	case SYS_ftruncate:
		*length = arg[1];
		return HOLD_WHAT_TRUNCATE;
	case SYS_openat:
		return of_open(arg[2], length);
#ifdef SYS_open
	case SYS_open:
		return of_open(arg[1], length);
#endif
#ifdef SYS_creat
	case SYS_creat:
		return of_open(O_TRUNC, length);
#endif
	default:
		return HOLD_WHAT_OTHER;
	}
}

/* hold-syscalls: openat */
static enum hold_what look_once(const struct guard *g, pid_t tid, uint64_t *length)
{
	char text[256];
	ssize_t n;
	int fd;

	snprintf(text, sizeof(text), "%d/syscall", (int)tid);
	fd = openat(g->proc, text, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return HOLD_WHAT_OTHER;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return HOLD_WHAT_OTHER;
	text[n] = '\0';
	return hold_parse_syscall(text, length);
}

/* hold-syscalls: sched_yield */
static enum hold_what look(const struct guard *g, pid_t tid, uint64_t *length)
{
	enum hold_what what = HOLD_WHAT_UNKNOWN;

	/* 0: in a pid namespace that we do not see */
	if (tid <= 0)
		return HOLD_WHAT_OTHER;
	for (int i = 0; i < LOOKS && what == HOLD_WHAT_UNKNOWN; i++) {
		if (i)
			sched_yield();
		what = look_once(g, tid, length);
	}
	return what;
}

/* hold-syscalls: newfstatat fstat */
static bool is_daemons(const struct guard *g, pid_t tid)
{
	struct stat st;
	char name[64];

	snprintf(name, sizeof(name), "%d/task/%d", (int)g->daemon, (int)tid);
	return fstatat(g->proc, name, &st, 0) == 0;
}

/* ---- answers ---- */

static bool answer(const struct guard *g, int fd)
{
	const struct fanotify_response r = {.fd = fd, .response = FAN_ALLOW};

	return write(g->fan, &r, sizeof(r)) == sizeof(r);
}

/* The kernel knows the event by its number. While the thread waits, this close is not the last. */
static void allow(const struct guard *g, int fd)
{
	close(fd);
	answer(g, fd);
}

static void drop(struct guard *g, struct held *x)
{
	*x = g->held[--g->n];
}

/* hold-syscalls: fanotify_mark */
static void over(struct guard *g, struct held *x)
{
	bool others = false;

	/* The daemon waits for this one; nobody else does. */
	if (!tell_of(HOLD_OVER, x, 0)) {
		x->deadline = now_ns() + UNKNOWN_MS * MS;
		return;
	}
	for (unsigned int i = 0; i < g->n; i++) {
		const struct held *o = &g->held[i];

		others |= o != x && o->step != UNKNOWN && o->dev == x->dev && o->ino == x->ino;
	}
	if (!others)
		fanotify_mark(g->changes, FAN_MARK_REMOVE, FAN_MODIFY, x->fd, NULL);
	close_later(g, x->fd);
	drop(g, x);
}

static void let_go(struct guard *g, struct held *x, uint64_t now)
{
	x->step = LET_GO;
	x->deadline = now + OVER_MS * MS;
	if (!answer(g, x->fd)) /* the thread was killed */
		over(g, x);
}

static void let_go_late(struct guard *g, struct held *x, uint64_t now)
{
	g->stuck++;
	tell_of(HOLD_LATE, x, 0);
	let_go(g, x, now);
}

/* The thread of @x is about to truncate to @length. */
static void hold(struct guard *g, struct held *x, uint64_t length, uint64_t now)
{
	if (is_daemons(g, x->tid)) {
		allow(g, x->fd);
		drop(g, x);
		return;
	}
	if (!g->stuck) {
		x->id = ++g->next_id;
		x->step = ASKED;
		x->last = x->deadline = now + HOLD_BOUND_MS * MS;
		fanotify_mark(g->changes, FAN_MARK_ADD, FAN_MODIFY, x->fd, NULL);
		if (tell_of(HOLD_ASKED, x, length))
			return;
		x->id = 0;
	}
	tell_of(HOLD_LATE, x, 0);
	allow(g, x->fd);
	drop(g, x);
}

/* ---- the kernel's questions ---- */

static bool get_range(const struct fanotify_event_metadata *m, const char *event,
		      struct hold_fan_range *r)
{
	if (m->event_len < m->metadata_len + sizeof(*r))
		return false;
	memcpy(r, event + m->metadata_len, sizeof(*r));
	return r->info_type == HOLD_FAN_INFO_RANGE;
}

/* Could this be a truncation that takes a page away? A truncation asks with the page that its
 * length is in, or, at the start of a page, with nothing behind it. */
static bool may_cut(const struct guard *g, const struct fanotify_event_metadata *m,
		    const char *event, uint64_t size)
{
	struct hold_fan_range r;

	if (m->mask & FAN_OPEN_PERM)
		return size > 0;
	return get_range(m, event, &r) && r.count <= g->page && r.offset < size &&
	       r.count < size - r.offset;
}

static void on_question(struct guard *g, const struct fanotify_event_metadata *m, const char *event)
{
	struct held x = {.step = UNKNOWN, .tid = m->pid, .fd = m->fd};
	enum hold_what what = HOLD_WHAT_OTHER;
	uint64_t length = 0, now;
	struct stat st;

	if (m->fd < 0)
		return;
	if (fstat(m->fd, &st) == 0 && may_cut(g, m, event, (uint64_t)st.st_size))
		what = look(g, m->pid, &length);
	if (what == HOLD_WHAT_OTHER || g->n == MAX_HELD) {
		allow(g, m->fd);
		return;
	}
	now = now_ns();
	x.dev = st.st_dev;
	x.ino = st.st_ino;
	x.deadline = now + UNKNOWN_MS * MS;
	g->held[g->n] = x;
	if (what == HOLD_WHAT_TRUNCATE)
		hold(g, &g->held[g->n++], length, now);
	else
		g->n++;
}

/* Which file it is does not matter: a thread does one thing at a time. */
static void on_change(struct guard *g, const struct fanotify_event_metadata *m, const char *event)
{
	for (unsigned int i = 0; i < g->n; i++) {
		struct held *x = &g->held[i];

		if (x->step == LET_GO && x->tid == m->pid) {
			over(g, x);
			return;
		}
	}
}

/* Takes what is queued in @fan; false when the group is of no use any more. */
static bool drain_fan(struct guard *g, int fan,
		      void (*event)(struct guard *g, const struct fanotify_event_metadata *m,
				    const char *at))
{
	_Alignas(struct fanotify_event_metadata) char buf[4096];
	struct fanotify_event_metadata m;
	ssize_t n = read(fan, buf, sizeof(buf));

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	for (char *p = buf; n >= (ssize_t)sizeof(m); p += m.event_len, n -= m.event_len) {
		memcpy(&m, p, sizeof(m));
		if (m.event_len < sizeof(m) || m.event_len > n ||
		    m.vers != FANOTIFY_METADATA_VERSION)
			return false;
		event(g, &m, p);
	}
	return true;
}

/* ---- the daemon's messages ---- */

static void on_done(struct guard *g, const struct hold_msg *msg)
{
	uint64_t now = now_ns();

	for (unsigned int i = 0; i < g->n; i++) {
		struct held *x = &g->held[i];

		if (x->id != msg->id || x->step != ASKED)
			continue;
		if (msg->length == 0) {
			let_go(g, x, now);
			return;
		}
		x->step = GRACE;
		x->deadline = MIN(x->last, now + MIN(msg->length, HOLD_BOUND_MS) * MS);
		return;
	}
	g->stuck -= g->stuck > 0;
}

/* Takes over @fd. */
static void on_file(struct guard *g, const struct hold_msg *msg, int fd)
{
	unsigned int how = msg->op == HOLD_OP_WATCH ? FAN_MARK_ADD : FAN_MARK_REMOVE;
	struct hold_msg reply = {.op = HOLD_WATCHED};
	struct stat st;

	if (fd < 0)
		return;
	if (fanotify_mark(g->fan, how, HOLD_FAN_MASK, fd, NULL) < 0) {
		reply.op = HOLD_REFUSED;
		reply.err = -errno;
	}
	if (how == FAN_MARK_ADD && fstat(fd, &st) == 0) {
		reply.dev = st.st_dev;
		reply.ino = st.st_ino;
		tell(&reply);
	}
	close_later(g, fd);
}

/* Reads all messages that are there; false at the end of the daemon. */
/* hold-syscalls: recvmsg */
static bool drain_socket(struct guard *g)
{
	for (;;) {
		struct hold_msg msg;
		int fd;
		ssize_t n = util_sock_recv(GUARD_SOCK, &msg, sizeof(msg), &fd, &g->daemon);

		if (n < 0)
			return n == -EAGAIN;
		if (n == 0)
			return false;
		if (n == sizeof(msg) && msg.op == HOLD_OP_DONE)
			on_done(g, &msg);
		else if (n == sizeof(msg) && (msg.op == HOLD_OP_WATCH || msg.op == HOLD_OP_UNWATCH))
			on_file(g, &msg, util_steal_fd(&fd));
		util_close(&fd);
	}
}

/* ---- time ---- */

static void look_again(struct guard *g, struct held *x, uint64_t now)
{
	uint64_t length;
	enum hold_what what = look_once(g, x->tid, &length);

	if (what == HOLD_WHAT_TRUNCATE) {
		hold(g, x, length, now);
	} else if (what == HOLD_WHAT_OTHER || now >= x->deadline) {
		allow(g, x->fd);
		drop(g, x);
	}
}

static void on_time(struct guard *g)
{
	uint64_t now = now_ns();

	/* Backwards: what is dropped is replaced by the last. */
	for (unsigned int i = g->n; i-- > 0;) {
		struct held *x = &g->held[i];

		if (x->step == UNKNOWN)
			look_again(g, x, now);
		else if (now < x->deadline)
			continue;
		else if (x->step == ASKED)
			let_go_late(g, x, now);
		else if (x->step == GRACE)
			let_go(g, x, now);
		else
			over(g, x);
	}
}

/* NULL: nothing to wait for. */
static const struct timespec *next_time(const struct guard *g, struct timespec *t)
{
	uint64_t now = now_ns(), wait = UINT64_MAX;

	for (unsigned int i = 0; i < g->n; i++) {
		const struct held *x = &g->held[i];
		uint64_t left = x->deadline > now ? x->deadline - now : 0;

		wait = MIN(wait, x->step == UNKNOWN ? MIN(left, MS) : left);
	}
	if (wait == UINT64_MAX)
		return NULL;
	t->tv_sec = (time_t)(wait / (1000 * MS));
	t->tv_nsec = (long)(wait % (1000 * MS));
	return t;
}

/* ---- life ---- */

/* hold-syscalls: ppoll restart_syscall rt_sigreturn */
static int serve(struct guard *g)
{
	struct pollfd fds[3] = {{.fd = GUARD_SOCK, .events = POLLIN},
				{.fd = g->fan, .events = POLLIN},
				{.fd = g->changes, .events = POLLIN}};
	struct timespec t;

	for (;;) {
		if (ppoll(fds, 3, next_time(g, &t), NULL) < 0 && errno != EINTR)
			return 1;
		if (!drain_socket(g))
			return 0;
		if (!drain_fan(g, g->fan, on_question) || !drain_fan(g, g->changes, on_change))
			return 2;
		on_time(g);
	}
}

static void refuse(enum hold_step step, int err)
{
	const struct hold_msg msg = {.op = HOLD_OP_READY, .id = step, .err = err ? -err : -EIO};

	tell(&msg);
	_exit(1);
}

static int new_group(void)
{
	return fanotify_init(FAN_CLASS_PRE_CONTENT | FAN_REPORT_TID | FAN_CLOEXEC | FAN_NONBLOCK,
			     O_RDONLY | O_CLOEXEC | O_LARGEFILE);
}

/* In a group of its own, that is closed again: nobody would answer. */
static void probe_share(void)
{
	int fan = new_group();

	if (fan < 0)
		refuse(HOLD_STEP_FANOTIFY, errno);
	if (fcntl(GUARD_SHARE, F_GETFD) >= 0 &&
	    fanotify_mark(fan, FAN_MARK_ADD, HOLD_FAN_PRE_ACCESS, GUARD_SHARE, ".") < 0)
		refuse(HOLD_STEP_SHARE, errno);
	close(fan);
	close(GUARD_SHARE);
}

static void probe_proc(const struct guard *g, pid_t parent)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "%d/syscall", (int)parent);
	fd = openat(g->proc, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, name, sizeof(name)) <= 0)
		refuse(HOLD_STEP_PROC, errno);
	close(fd);
}

static void move_fds(int sock, int share)
{
	int s = fcntl(sock, F_DUPFD_CLOEXEC, GUARD_FREE);
	int d = share < 0 ? -1 : fcntl(share, F_DUPFD_CLOEXEC, GUARD_FREE);

	if (s < 0 || dup3(s, GUARD_SOCK, O_CLOEXEC) < 0)
		_exit(3);
	if (d < 0)
		close(GUARD_SHARE);
	else if (dup3(d, GUARD_SHARE, O_CLOEXEC) < 0)
		_exit(3);
	if (close_range(GUARD_FREE, ~0u, 0) < 0)
		_exit(3);
}

/* Waits until it runs: what a new thread asks of the kernel need not be in the list. */
static void start_closer(struct guard *g)
{
	static struct closer c;
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256u << 10);
	sem_init(&c.runs, 0, 0);
	if (pipe2(c.ends, O_CLOEXEC) < 0 || fcntl(c.ends[1], F_SETFL, O_NONBLOCK) < 0 ||
	    pthread_create(&thread, &attr, closer, &c))
		_exit(5);
	pthread_attr_destroy(&attr);
	while (sem_wait(&c.runs) < 0 && errno == EINTR)
		continue;
	g->to_close = c.ends[1];
}

/* hold-syscalls: exit_group exit futex madvise munmap */
void hold_guard_main(int sock, int share_fd, pid_t parent, enum sandbox_seccomp_mode seccomp)
{
	static struct guard g;
	const struct hold_msg ready = {.op = HOLD_OP_READY};

	move_fds(sock, share_fd);
	if (sandbox_helper_settle("daxmapd-hold") < 0)
		_exit(4);
	sandbox_helper_tie(parent);
	g.page = (uint64_t)sysconf(_SC_PAGESIZE);
	probe_share();
	g.fan = new_group();
	g.changes = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_REPORT_TID | FAN_CLOEXEC |
					  FAN_NONBLOCK,
				  O_RDONLY);
	g.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (g.fan < 0 || g.changes < 0 || g.proc < 0)
		refuse(HOLD_STEP_FANOTIFY, errno);
	if (hold_jail_caps() < 0)
		refuse(HOLD_STEP_PROC, EPERM);
	sandbox_helper_tie(parent); /* again, as this was a change of capabilities */
	probe_proc(&g, parent);
	start_closer(&g);
	if (hold_jail_seccomp(g.proc, seccomp) < 0)
		refuse(HOLD_STEP_JAIL, EINVAL);
	if (!tell(&ready))
		_exit(6);
	_exit(serve(&g));
}
