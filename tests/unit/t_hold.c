// SPDX-License-Identifier: Apache-2.0
/*
 * The guard of truncations (src/hold): what it asks about and what not, and that nobody on the
 * host waits longer than the bound, whoever is stuck or dead. Truncations are done by child
 * processes: our own are never held.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib.h>
#include <linux/fs.h>

#include "hold_internal.h"

#define SIZE (UINT64_C(8) << 20)
#define PAGE 4096
#define FOREVER 20000

struct rig {
	char *dir;
	char *path;
	int fd; /* open before it is watched */
	struct hold *hold;
};

static void rig_free(struct rig *g)
{
	hold_free(g->hold);
	close(g->fd);
	unlink(g->path);
	rmdir(g->dir);
	g_free(g->path);
	g_free(g->dir);
	g_free(g);
}

/* NULL: skipped. */
static struct rig *rig_new(void)
{
	struct rig *g = g_new0(struct rig, 1);
	struct hold_config c = {.share_fd = -1};
	g_autofree char *why = NULL;

#ifdef DAXMAPD_SANITIZED
	c.seccomp = SANDBOX_SECCOMP_NONE;
#endif
	g->dir = g_dir_make_tmp("t_hold-XXXXXX", NULL);
	g->path = g_build_filename(g->dir, "f", NULL);
	g->fd = open(g->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	g_assert_cmpint(g->fd, >=, 0);
	g_assert_cmpint(chmod(g->dir, 0755), ==, 0);
	g_assert_cmpint(fchmod(g->fd, 0666), ==, 0);
	g_assert_cmpint(ftruncate(g->fd, SIZE), ==, 0);
	c.share_fd = open(g->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	g->hold = hold_start(&c, &why);
	close(c.share_fd);
	if (g->hold)
		return g;
	g_test_skip(why);
	rig_free(g);
	return NULL;
}

/* The next event; fails when none comes. */
static struct hold_event next(struct rig *g)
{
	struct pollfd p = {.fd = hold_event_fd(g->hold), .events = POLLIN};
	struct hold_event e = {0};

	while (!hold_next(g->hold, &e))
		g_assert_cmpint(poll(&p, 1, FOREVER), ==, 1);
	return e;
}

static void watch(struct rig *g)
{
	struct stat st;
	struct hold_event e;

	g_assert_cmpint(hold_watch(g->hold, g->fd), ==, 0);
	e = next(g);
	g_assert_cmpint(fstat(g->fd, &st), ==, 0);
	g_assert_cmpint(e.kind, ==, HOLD_WATCHED);
	g_assert_cmpuint(e.dev, ==, st.st_dev);
	g_assert_cmpuint(e.ino, ==, st.st_ino);
}

static struct rig *rig_watched(void)
{
	struct rig *g = rig_new();

	if (g)
		watch(g);
	return g;
}

static uint64_t size_of(struct rig *g)
{
	struct stat st;

	g_assert_cmpint(fstat(g->fd, &st), ==, 0);
	return (uint64_t)st.st_size;
}

enum how { TRUNCATE, FTRUNCATE, O_TRUNC_, CREAT, GROW };

static int shorten(struct rig *g, enum how how, uint64_t to)
{
	switch (how) {
	case TRUNCATE:
		return truncate(g->path, (off_t)to);
	case FTRUNCATE:
	case GROW:
		return ftruncate(g->fd, (off_t)to);
	case O_TRUNC_:
		return open(g->path, O_RDWR | O_TRUNC | O_CLOEXEC) < 0;
	default:
		return creat(g->path, 0600) < 0;
	}
}

static pid_t child(struct rig *g, enum how how, uint64_t to)
{
	pid_t pid = fork();

	g_assert_cmpint(pid, >=, 0);
	if (pid == 0)
		_exit(shorten(g, how, to) ? 1 : 0);
	return pid;
}

static void join(pid_t pid)
{
	int status;

	g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
	g_assert_cmpint(status, ==, 0);
}

/* A child truncates, and is held: the event that asks. */
static struct hold_event ask(struct rig *g, enum how how, uint64_t to, pid_t *pid)
{
	struct hold_event e;

	*pid = child(g, how, to);
	e = next(g);
	g_assert_cmpint(e.kind, ==, HOLD_ASKED);
	return e;
}

/* And goes on. */
static void check_held(struct rig *g, enum how how, uint64_t to)
{
	pid_t pid;
	struct hold_event e = ask(g, how, to, &pid);
	uint64_t id = e.id;

	g_assert_cmpuint(e.length, ==, to);
	g_assert_cmpuint(size_of(g), ==, SIZE);
	g_assert_cmpint(waitpid(pid, NULL, WNOHANG), ==, 0);
	hold_done(g->hold, id, how == FTRUNCATE ? 1 : 0);
	join(pid);
	g_assert_cmpuint(size_of(g), ==, to);
	e = next(g);
	g_assert_cmpint(e.kind, ==, HOLD_OVER);
	g_assert_cmpuint(e.id, ==, id);
	g_assert_cmpint(ftruncate(g->fd, SIZE), ==, 0);
}

static void test_held(void)
{
	static const uint64_t to[] = {0, 1, PAGE - 1, PAGE, 5000, SIZE - PAGE - 1, SIZE - PAGE};
	struct rig *g = rig_watched();

	if (!g)
		return;
	for (unsigned int i = 0; i < G_N_ELEMENTS(to); i++) {
		check_held(g, TRUNCATE, to[i]);
		check_held(g, FTRUNCATE, to[i]);
	}
	check_held(g, O_TRUNC_, 0);
	check_held(g, CREAT, 0);
	rig_free(g);
}

static void do_harmless(struct rig *g)
{
	int rw = open(g->path, O_RDWR | O_CLOEXEC), ro = open(g->path, O_RDONLY | O_CLOEXEC);
	char buf[3 * PAGE];
	bool ok = rw >= 0 && ro >= 0;

	for (int i = 0; i < 50; i++) {
		ok &= pread(ro, buf, 0, 0) == 0 && pread(ro, buf, 1, 5) == 1;
		ok &= pread(ro, buf, PAGE, i * PAGE) == PAGE && pread(ro, buf, 3 * PAGE, 7) > 0;
		ok &= pwrite(rw, buf, 0, PAGE) == 0 && pwrite(rw, buf, 100, i * PAGE) == 100;
		ok &= pwrite(g->fd, buf, 100, 3 * PAGE) == 100;
		ok &= ftruncate(rw, SIZE) == 0 && ftruncate(g->fd, SIZE - 1) == 0;
		ok &= fallocate(rw, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0;
		ok &= ftruncate(g->fd, SIZE) == 0 && truncate(g->path, SIZE) == 0;
	}
	_exit(!ok);
}

/* Reads, writes, opens, growth, and a truncation inside of the last page: nobody is asked. The
 * first event there is is that of a truncation. */
static void test_others(void)
{
	struct rig *g = rig_watched();
	pid_t pid;

	if (!g)
		return;
	pid = fork();
	if (pid == 0)
		do_harmless(g);
	join(pid);
	g_assert_cmpint(ftruncate(g->fd, 5), ==, 0); /* ours */
	close(open(g->path, O_RDWR | O_TRUNC | O_CLOEXEC));
	g_assert_cmpint(ftruncate(g->fd, SIZE), ==, 0);
	check_held(g, TRUNCATE, 100);
	hold_unwatch(g->hold, g->fd);
	join(child(g, TRUNCATE, 1)); /* nobody would answer */
	rig_free(g);
}

static void *own_truncations(void *arg)
{
	struct rig *g = arg;

	for (int i = 0; i < 100; i++) {
		g_assert_cmpint(ftruncate(g->fd, i * 1000), ==, 0);
		g_assert_cmpint(ftruncate(g->fd, SIZE), ==, 0);
	}
	return NULL;
}

/* The daemon's own threads do not wait for the daemon. */
static void test_own(void)
{
	struct rig *g = rig_watched();
	pthread_t threads[2];

	if (!g)
		return;
	for (int i = 0; i < 2; i++)
		g_assert_cmpint(pthread_create(&threads[i], NULL, own_truncations, g), ==, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	check_held(g, FTRUNCATE, 100);
	rig_free(g);
}

static void test_other_user(void)
{
	struct rig *g = rig_watched();
	pid_t pid;

	if (!g)
		return;
	pid = fork();
	if (pid == 0)
		_exit(setresuid(65534, 65534, 65534) || truncate(g->path, 7));
	g_assert_cmpint(next(g).kind, ==, HOLD_ASKED);
	hold_done(g->hold, 1, 0);
	join(pid);
	rig_free(g);
}

/* Nobody answers: it goes on all the same, the next ones are not held, and OVER comes. Then an
 * answer, and all is as before. */
static void test_late(void)
{
	struct rig *g = rig_watched();
	struct hold_event e;

	if (!g)
		return;
	join(child(g, TRUNCATE, 100));
	g_assert_cmpint(next(g).kind, ==, HOLD_ASKED);
	g_assert_cmpint(next(g).kind, ==, HOLD_LATE);
	g_assert_cmpint(next(g).kind, ==, HOLD_OVER);
	g_assert_cmpint(ftruncate(g->fd, SIZE), ==, 0);
	join(child(g, TRUNCATE, 100));
	e = next(g);
	g_assert_cmpint(e.kind, ==, HOLD_LATE);
	g_assert_cmpuint(e.id, ==, 0);
	hold_done(g->hold, 1, 0);
	g_assert_cmpint(ftruncate(g->fd, SIZE), ==, 0);
	check_held(g, TRUNCATE, 5);
	rig_free(g);
}

/* The guard dies with a truncation in its hands. */
static void test_guard_dies(void)
{
	struct rig *g = rig_watched();
	struct hold_event e;
	pid_t pid;

	if (!g)
		return;
	ask(g, FTRUNCATE, 100, &pid);
	g_assert_cmpint(kill(hold_guard_pid(g->hold), SIGKILL), ==, 0);
	join(pid);
	g_assert_cmpint(next(g).kind, ==, HOLD_DEAD);
	g_assert_false(hold_next(g->hold, &e));
	g_assert_cmpint(hold_watch(g->hold, g->fd), ==, -ENOTCONN);
	hold_unwatch(g->hold, g->fd);
	hold_done(g->hold, 1, 0);
	join(child(g, FTRUNCATE, 50));
	rig_free(g);
}

/* And so does the daemon: the end of the socket is the end of the guard. */
static void test_daemon_dies(void)
{
	struct rig *g = rig_watched();
	pid_t pid;

	if (!g)
		return;
	ask(g, TRUNCATE, 100, &pid);
	hold_free(g_steal_pointer(&g->hold));
	join(pid);
	rig_free(g);
}

/* Who truncates is killed while it waits: told as over. */
static void test_truncator_dies(void)
{
	struct rig *g = rig_watched();
	struct hold_event e;
	pid_t pid;

	if (!g)
		return;
	e = ask(g, TRUNCATE, 100, &pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	hold_done(g->hold, e.id, 0);
	g_assert_cmpint(next(g).kind, ==, HOLD_OVER);
	g_assert_cmpuint(size_of(g), ==, SIZE);
	check_held(g, TRUNCATE, 5);
	rig_free(g);
}

/* Asked about, let go, and then the file system refuses. */
static void test_fails(void)
{
	struct rig *g = rig_watched();
	int flags = 0, status;
	struct hold_event e;
	pid_t pid;

	if (!g)
		return;
	g_assert_cmpint(ioctl(g->fd, FS_IOC_GETFLAGS, &flags), ==, 0);
	flags |= FS_IMMUTABLE_FL;
	if (ioctl(g->fd, FS_IOC_SETFLAGS, &flags) < 0) {
		g_test_skip("no immutable files here");
		rig_free(g);
		return;
	}
	e = ask(g, FTRUNCATE, 100, &pid);
	hold_done(g->hold, e.id, 0);
	g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
	g_assert_cmpint(status, !=, 0);
	g_assert_cmpint(next(g).kind, ==, HOLD_OVER);
	g_assert_cmpuint(size_of(g), ==, SIZE);
	flags &= ~FS_IMMUTABLE_FL;
	g_assert_cmpint(ioctl(g->fd, FS_IOC_SETFLAGS, &flags), ==, 0);
	rig_free(g);
}

/* Many at once, on one file; each has its id, and each goes on. Some come too late to take anything
 * away. */
static void test_many(void)
{
	struct rig *g = rig_watched();
	unsigned int left = 40, asked = 0, over = 0;
	struct hold_event e;
	struct pollfd p;

	if (!g)
		return;
	for (unsigned int i = 0; i < left; i++)
		child(g, i % 2 ? TRUNCATE : FTRUNCATE, (40 - i) * 3 * PAGE);
	p = (struct pollfd){.fd = hold_event_fd(g->hold), .events = POLLIN};
	while (left || over < asked) {
		while (hold_next(g->hold, &e)) {
			asked += e.kind == HOLD_ASKED;
			over += e.kind == HOLD_OVER;
			if (e.kind == HOLD_ASKED)
				hold_done(g->hold, e.id, asked % 3);
		}
		while (left && waitpid(-1, NULL, WNOHANG) > 0)
			left--;
		poll(&p, 1, 10);
	}
	g_assert_cmpuint(asked, >, 0);
	g_test_message("%u of 40 were held", asked);
	rig_free(g);
}

static void test_no_file_system(void)
{
	struct rig *g = rig_new();
	struct hold_event e;
	int fd;

	if (!g)
		return;
	fd = memfd_create("t_hold", MFD_CLOEXEC);
	g_assert_cmpint(hold_watch(g->hold, fd), ==, 0);
	e = next(g);
	g_assert_cmpint(e.kind, ==, HOLD_REFUSED);
	g_assert_cmpint(e.err, <, 0);
	close(fd);
	watch(g);
	check_held(g, TRUNCATE, 5);
	rig_free(g);
}

static void test_parse(void)
{
	static const struct {
		const char *text;
		enum hold_what what;
		uint64_t length;
	} t[] = {
		{"running\n", HOLD_WHAT_UNKNOWN, 0},
		{"-1 0x7ffd 0x7f2e\n", HOLD_WHAT_OTHER, 0},
		{"", HOLD_WHAT_OTHER, 0},
		{"x", HOLD_WHAT_OTHER, 0},
		{"0 0x3 0x7ffd 0x64 0x0 0x0 0x0 0x7ffd 0x7f2e\n", HOLD_WHAT_OTHER, 0},
	};
	g_autofree char *cut = g_strdup_printf("%d 0x3 0x1388", SYS_ftruncate);
	uint64_t length;

	for (unsigned int i = 0; i < G_N_ELEMENTS(t); i++)
		g_assert_cmpint(hold_parse_syscall(t[i].text, &length), ==, t[i].what);
	g_assert_cmpint(hold_parse_syscall(cut, &length), ==, HOLD_WHAT_OTHER);
	for (int i = 0; i < 4; i++) {
		bool open = i >= 2, trunc = i != 2;
		g_autofree char *text =
			g_strdup_printf("%d 0x3 0x1388 0x%x 0x0 0x0 0x0 0x7ffd 0x7f2e\n",
					open ? SYS_openat
					: i  ? SYS_truncate
					     : SYS_ftruncate,
					O_RDWR | (open && trunc ? O_TRUNC : 0));

		g_assert_cmpint(hold_parse_syscall(text, &length), ==,
				trunc ? HOLD_WHAT_TRUNCATE : HOLD_WHAT_OTHER);
		g_assert_cmpuint(length, ==, open ? 0 : 5000);
	}
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/hold/parse", test_parse);
	g_test_add_func("/hold/held", test_held);
	g_test_add_func("/hold/others", test_others);
	g_test_add_func("/hold/own", test_own);
	g_test_add_func("/hold/other-user", test_other_user);
	g_test_add_func("/hold/many", test_many);
	g_test_add_func("/hold/late", test_late);
	g_test_add_func("/hold/fails", test_fails);
	g_test_add_func("/hold/guard-dies", test_guard_dies);
	g_test_add_func("/hold/daemon-dies", test_daemon_dies);
	g_test_add_func("/hold/truncator-dies", test_truncator_dies);
	g_test_add_func("/hold/no-file-system", test_no_file_system);
	return g_test_run();
}
