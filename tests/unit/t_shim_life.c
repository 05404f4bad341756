// SPDX-License-Identifier: Apache-2.0
/* Nodes, descriptors and processes of the size shim: what is made goes again. */
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim_internal.h"
#include "t_shim_kit.h"
#include "util_fd.h"
#include "util_lock.h"

struct env {
	char *dir;
	struct shim *s;
};

static struct env setup(bool readonly)
{
	struct env e = {.dir = kit_dir(".")};

	e.s = kit_shim(e.dir, readonly);
	return e;
}

static void teardown(struct env *e)
{
	if (e->s && shim_check(e->s))
		kit_settle(e->s, 0, 0);
	shim_free(e->s);
	kit_rmdir(e->dir);
	g_free(e->dir);
}

/* ---- nodes ---- */

static void test_one_node_a_file(void)
{
	struct env e = setup(false);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 100);
		util_autofd other = kit_file(e.dir, "g", 100);
		util_autofd a = shim_open(e.s, real, 1, 1, true);
		util_autofd b = shim_open(e.s, real, 1, 1, true);
		util_autofd c = shim_open(e.s, other, 1, 2, true);
		struct stat sa, sb, sc;

		fstat(a, &sa);
		fstat(b, &sb);
		fstat(c, &sc);
		g_assert_true(sa.st_dev == shim_dev(e.s) && sc.st_dev == shim_dev(e.s));
		g_assert_cmpuint(sa.st_ino, ==, sb.st_ino);
		g_assert_cmpuint(sa.st_ino, !=, sc.st_ino);
		kit_settle(e.s, 2, 0);
		/* a key names one file at a time */
		g_assert_cmpint(shim_open(e.s, other, 1, 1, true), ==, -EINVAL);
		util_close(&a);
		util_close(&c);
		kit_settle(e.s, 1, 0);
		util_close(&b);
		kit_settle(e.s, 0, 0);
		a = shim_open(e.s, other, 1, 1, true);
		g_assert_cmpint(a, >=, 0);
	}
	teardown(&e);
}

static void test_thousand(void)
{
	enum { N = 1000 };
	struct env e = setup(false);
	struct rlimit lim = {4096, 4096};
	int fds[N];

	if (e.s && setrlimit(RLIMIT_NOFILE, &lim) < 0) {
		g_test_skip("RLIMIT_NOFILE below 4096");
	} else if (e.s) {
		unsigned int before = kit_count_fds(getpid());
		unsigned int helper = kit_count_fds(shim_helper_pid(e.s));
		struct shim_stats st;

		for (unsigned int i = 0; i < N; i++) {
			g_autofree char *name = g_strdup_printf("f%u", i);
			util_autofd real = kit_file(e.dir, name, i + 1);

			fds[i] = shim_open(e.s, real, 7, i, true);
			g_assert_cmpint(fds[i], >=, 0);
		}
		kit_settle(e.s, N, 0);
		g_assert_cmpint(shim_get_stats(e.s, &st), ==, 0);
		g_assert_cmpuint(st.backings, ==, N);
		g_assert_cmpuint(kit_count_fds(shim_helper_pid(e.s)), ==, helper);
		for (unsigned int i = 0; i < N; i += 97) {
			uint8_t *map = kit_map(fds[i], 0);

			g_assert_cmpuint(map[i], ==, kit_byte(i));
			munmap(map, SLOT);
		}
		for (unsigned int i = 0; i < N; i++)
			close(fds[i]);
		kit_settle(e.s, 0, 0);
		g_assert_cmpuint(kit_count_fds(getpid()), ==, before);
		g_assert_cmpuint(kit_count_fds(shim_helper_pid(e.s)), ==, helper);
	}
	teardown(&e);
}

struct storm {
	struct env *e;
	int *reals;
	unsigned int files;
	unsigned int seed;
};

static void *storm(void *arg)
{
	struct storm *t = arg;

	for (unsigned int i = 0; i < 400; i++) {
		unsigned int f = (i * 7 + t->seed * 13) % t->files;
		util_autofd fd = shim_open(t->e->s, t->reals[f], 3, f, true);
		uint8_t *map;

		g_assert_cmpint(fd, >=, 0);
		map = kit_map(fd, 0);
		g_assert_cmpuint(map[f], ==, kit_byte(f));
		munmap(map, SLOT);
	}
	return NULL;
}

static void test_concurrent(void)
{
	enum { THREADS = 4, FILES = 10 };
	struct env e = setup(false);
	pthread_t threads[THREADS];
	struct storm args[THREADS];
	int reals[FILES];

	if (e.s) {
		unsigned int before = kit_count_fds(getpid());

		for (unsigned int i = 0; i < FILES; i++) {
			g_autofree char *name = g_strdup_printf("f%u", i);

			reals[i] = kit_file(e.dir, name, 5000);
		}
		for (unsigned int i = 0; i < THREADS; i++) {
			args[i] = (struct storm){&e, reals, FILES, i};
			g_assert_cmpint(pthread_create(&threads[i], NULL, storm, &args[i]), ==, 0);
		}
		for (unsigned int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		for (unsigned int i = 0; i < FILES; i++)
			close(reals[i]);
		kit_settle(e.s, 0, 0);
		g_assert_cmpuint(kit_count_fds(getpid()), ==, before);
	}
	teardown(&e);
}

static void test_no_descriptor_left(void)
{
	struct env e = setup(false);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 100);
		util_autofd fd = -1;
		struct rlimit old, low;

		getrlimit(RLIMIT_NOFILE, &old);
		low = old;
		low.rlim_cur = 0;
		g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &low), ==, 0);
		g_assert_cmpint(shim_open(e.s, real, 1, 1, true), ==, -EMFILE);
		g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &old), ==, 0);
		kit_settle(e.s, 0, 0); /* the announced open was taken back */
		fd = shim_open(e.s, real, 1, 1, true);
		g_assert_cmpint(fd, >=, 0);
	}
	teardown(&e);
}

/* ---- a daemon that has gone mad ---- */

static void send_raw(struct shim *s, const void *data, size_t size, int fd)
{
	struct iovec iov = {(void *)data, size};
	char control[CMSG_SPACE(sizeof(int))] = {0};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *c = (void *)control;

		mh.msg_control = control;
		mh.msg_controllen = sizeof(control);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	g_assert_cmpint(sendmsg(shim_event_fd(s), &mh, MSG_NOSIGNAL), ==, (ssize_t)size);
}

static int raw_open(struct shim *s, struct shim_msg *msg, int fd)
{
	g_autofree char *name = g_strdup_printf(SHIM_NAME, msg->seq);
	int r;

	send_raw(s, msg, sizeof(*msg), fd);
	r = openat(shim_mnt_fd(s), name, O_RDWR | O_CLOEXEC);
	return r < 0 ? -errno : r;
}

/* The helper keeps CAP_SYS_ADMIN: it must not lend it to whoever holds the socket. */
static void test_helper_trusts_nobody(void)
{
	struct env e = setup(false);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 100);
		util_autofd ro = kit_reopen(real, O_RDONLY);
		util_autofd path = kit_reopen(real, O_PATH);
		util_autofd dir = open(e.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct shim_msg msg = {.op = SHIM_OP_ADD, .writable = 1, .seq = 1000};
		char junk[300] = {0};

		g_assert_cmpint(raw_open(e.s, &msg, ro), ==, -EACCES);
		msg.seq++;
		g_assert_cmpint(raw_open(e.s, &msg, path), ==, -EACCES);
		msg.seq++;
		g_assert_cmpint(raw_open(e.s, &msg, -1), ==, -EMFILE);
		msg.seq++;
		msg.writable = 0;
		g_assert_cmpint(raw_open(e.s, &msg, real), ==, -EACCES);
		msg.seq++;
		send_raw(e.s, junk, sizeof(junk), real);
		send_raw(e.s, junk, 3, -1);
		msg.op = 77;
		g_assert_cmpint(raw_open(e.s, &msg, real), ==, -ENOENT);
		/* the same name twice, and a node of a directory */
		msg.op = SHIM_OP_ADD;
		send_raw(e.s, &msg, sizeof(msg), ro);
		send_raw(e.s, &msg, sizeof(msg), dir);
		msg.op = SHIM_OP_CANCEL;
		send_raw(e.s, &msg, sizeof(msg), -1);
		send_raw(e.s, &msg, sizeof(msg), -1);
		kit_settle(e.s, 0, 0);
		g_assert_true(shim_check(e.s));
	}
	teardown(&e);
}

/* ---- the helper's death, the daemon's death ---- */

static void count_death(void *ctx)
{
	++*(unsigned int *)ctx;
}

static void test_helper_killed(void)
{
	unsigned int deaths = 0;
	struct env e = {.dir = kit_dir(".")};
	struct shim_config config = {.share_fd = -1, .died = count_death, .ctx = &deaths};
	g_autoptr(GError) error = NULL;

	e.s = shim_start(&config, &error);
	if (!e.s)
		g_test_skip(error->message);
	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 5000);
		util_autofd fd = shim_open(e.s, real, 1, 1, true);
		uint8_t *map = kit_map(fd, 0), *late, byte = 77;
		struct shim_stats st;
		siginfo_t info;

		g_assert_cmpuint(map[0], ==, kit_byte(0));
		g_assert_true(shim_check(e.s));
		kill(shim_helper_pid(e.s), SIGKILL);
		g_assert_cmpint(waitid(P_PID, (id_t)shim_helper_pid(e.s), &info, WEXITED | WNOWAIT),
				==, 0);
		g_assert_cmpint(shim_open(e.s, real, 1, 2, true), ==, -ENOTCONN);
		g_assert_false(shim_check(e.s));
		g_assert_cmpint(shim_open(e.s, real, 1, 1, true), ==, -ENOTCONN);
		g_assert_cmpint(shim_get_stats(e.s, &st), <, 0);
		g_assert_cmpuint(deaths, ==, 1);

		/* what is mapped stays a mapping of the file; pages not touched before, too */
		g_assert_cmpint(kit_touch(map + 4999), ==, kit_byte(4999));
		map[1] = 78;
		g_assert_cmpint(pread(real, &byte, 1, 1), ==, 1);
		g_assert_cmpuint(byte, ==, 78);
		g_assert_cmpint(pwrite(real, &byte, 1, 20000), ==, 1);
		g_assert_cmpint(kit_touch(map + 20000), ==, 78);
		/* an open descriptor can even be mapped anew */
		late = kit_map(fd, 0);
		g_assert_cmpuint(late[1], ==, 78);
		munmap(late, SLOT);
		util_close(&fd);
		g_assert_cmpuint(map[1], ==, 78);
		munmap(map, SLOT);
	}
	teardown(&e);
}

/* The helper of a daemon that dies at once, without a word, dies too. */
static void test_daemon_killed(void)
{
	int pipe_fds[2];
	pid_t daemon, helper;
	util_autofd pidfd = -1;

	g_assert_cmpint(pipe2(pipe_fds, O_CLOEXEC), ==, 0);
	daemon = fork();
	if (daemon == 0) {
		struct shim_config config = {.share_fd = -1};
		struct shim *s = shim_start(&config, NULL);

		helper = s ? shim_helper_pid(s) : -1;
		if (write(pipe_fds[1], &helper, sizeof(helper)) != sizeof(helper))
			_exit(1);
		pause();
	}
	g_assert_cmpint(read(pipe_fds[0], &helper, sizeof(helper)), ==, sizeof(helper));
	if (helper > 0)
		pidfd = (int)syscall(SYS_pidfd_open, helper, 0);
	kill(daemon, SIGKILL);
	g_assert_cmpint(waitpid(daemon, NULL, 0), ==, daemon);
	if (helper < 0) {
		g_test_skip("no shim here");
	} else if (pidfd >= 0) {
		struct pollfd p = {.fd = pidfd, .events = POLLIN};

		g_assert_cmpint(poll(&p, 1, 20000), ==, 1);
	}
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

/* The sandbox forks after shim_start(), changes root and drops every privilege. */
static int in_sandbox(struct env *e)
{
	util_autofd real = kit_file(e->dir, "f", 5000);
	util_autofd fd = -1;
	uint8_t *map;

	if (unshare(CLONE_NEWNS | CLONE_NEWNET) < 0 || chroot(e->dir) < 0)
		return 1;
	if (setresuid(12345, 12345, 12345) < 0)
		return 2;
	capng_clear(CAPNG_SELECT_CAPS);
	if (capng_apply(CAPNG_SELECT_CAPS) < 0)
		return 2;
	fd = shim_open(e->s, real, 1, 1, true);
	if (fd < 0)
		return 3;
	map = kit_map(fd, 0);
	if (map[4999] != kit_byte(4999))
		return 4;
	map[4999] = 5;
	munmap(map, SLOT);
	return shim_check(e->s) ? 0 : 5;
}

static void test_from_sandbox(void)
{
	struct env e = setup(false);
	int status;

	if (e.s) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(in_sandbox(&e));
		g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
		g_assert_cmpint(status, ==, 0);
	}
	teardown(&e);
}

/* ---- the cage ---- */

static char *status_field(pid_t pid, const char *field)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/status", (int)pid);
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
	lines = g_strsplit(text, "\n", -1);
	for (char **l = lines; *l; l++)
		if (g_str_has_prefix(*l, field))
			return g_strdup(g_strstrip(*l + strlen(field)));
	return NULL;
}

static void check_field(pid_t pid, const char *field, const char *want)
{
	g_autofree char *got = status_field(pid, field);

	if (g_strcmp0(got, want))
		g_error("%s %s, expected %s", field, got, want);
}

static void test_cage(void)
{
	struct env e = setup(false);

	if (e.s) {
		pid_t pid = shim_helper_pid(e.s);

		check_field(pid, "CapEff:", "0000000000200000"); /* CAP_SYS_ADMIN */
		check_field(pid, "CapPrm:", "0000000000200000");
		check_field(pid, "CapInh:", "0000000000000000");
		check_field(pid, "CapAmb:", "0000000000000000");
		check_field(pid, "NoNewPrivs:", "1");
		check_field(pid, "Seccomp:", "2");
		check_field(pid, "Name:", "daxmapd-shim");
		g_assert_cmpuint(kit_count_fds(pid), ==, 5);
	}
	teardown(&e);
}

static void test_invisible(void)
{
	static const char *const files[] = {"/proc/self/mountinfo", "/proc/1/mountinfo"};
	struct env e = setup(false);

	for (unsigned int i = 0; e.s && i < G_N_ELEMENTS(files); i++) {
		g_autofree char *text = NULL;

		if (g_file_get_contents(files[i], &text, NULL, NULL))
			g_assert_null(strstr(text, "daxmapd-shim"));
	}
	teardown(&e);
}

/* ---- waits for nothing ---- */

static void *touch(void *p)
{
	kit_touch(p);
	return NULL;
}

/* A read-only file whose file system has stopped: a page fault on it waits, nothing else does.
 * The file system that stops is another shim, whose helper is sent SIGSTOP. */
static void test_slow_file(void)
{
	struct env slow = setup(true);
	struct env e = setup(false);

	if (slow.s && e.s) {
		util_autofd disk = kit_file(slow.dir, "f", 5000);
		util_autofd disk_ro = kit_reopen(disk, O_RDONLY);
		util_autofd real = shim_open(slow.s, disk_ro, 1, 1, false);
		util_autofd real_ro = kit_reopen(real, O_RDONLY);
		util_autofd a = shim_open(e.s, real_ro, 1, 1, false);
		util_autofd other = kit_file(e.dir, "g", 5000);
		util_autofd b = -1;
		uint8_t *map = kit_map(a, 0);
		struct shim_stats st;
		pthread_t thread;
		struct stat stat_a;
		int status;

		kill(shim_helper_pid(slow.s), SIGSTOP);
		g_assert_cmpint(waitpid(shim_helper_pid(slow.s), &status, WUNTRACED), ==,
				shim_helper_pid(slow.s));
		g_assert_cmpint(pthread_create(&thread, NULL, touch, map), ==, 0);
		for (unsigned int i = 0; i < 100; i++) {
			util_close(&b);
			b = shim_open(e.s, other, 1, 2, true);
			g_assert_cmpint(b, >=, 0);
			g_assert_cmpint(fstat(a, &stat_a), ==, 0);
			g_assert_cmpint(lseek(a, 0, SEEK_END), ==, (off_t)SHIM_SIZE);
			g_assert_cmpint(shim_get_stats(e.s, &st), ==, 0);
		}
		kill(shim_helper_pid(slow.s), SIGCONT);
		pthread_join(thread, NULL);
		g_assert_cmpuint(map[4999], ==, kit_byte(4999));
		munmap(map, SLOT);
	}
	teardown(&e);
	teardown(&slow);
}

/* ---- the option, and where there is no shim ---- */

static void test_choose(void)
{
	struct shim_config config = {.share_fd = -1};
	g_autoptr(GError) error = NULL;
	g_autofree char *off = NULL, *automatic = NULL, *reason = NULL;
	bool usable = shim_probe(-1, false, &reason);
	struct shim *s = shim_choose(SHIM_OFF, &config, &off, &error);

	g_assert_null(s);
	g_assert_no_error(error);
	g_assert_cmpstr(off, ==, "DAX size shim: off (as asked)");
	s = shim_choose(SHIM_AUTO, &config, &automatic, &error);
	g_assert_no_error(error);
	g_assert_cmpint(s != NULL, ==, usable);
	g_assert_nonnull(strstr(automatic, usable ? "on" : reason));
	g_test_message("%s; probe: %s", automatic, reason);
	shim_free(s);
}

static bool write_text(const char *path, const char *text)
{
	util_autofd fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool enter_userns(void)
{
	g_autofree char *uid = g_strdup_printf("0 %u 1", (unsigned int)geteuid());
	g_autofree char *gid = g_strdup_printf("0 %u 1", (unsigned int)getegid());

	return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
	       write_text("/proc/self/setgroups", "deny") &&
	       write_text("/proc/self/uid_map", uid) && write_text("/proc/self/gid_map", gid);
}

/* @userns: all capabilities, but in a user namespace of our own */
static int unprivileged(bool userns)
{
	struct shim_config config = {.share_fd = -1};
	g_autoptr(GError) error = NULL;
	g_autofree char *line = NULL, *again = NULL;

	if (userns) {
		if (!enter_userns())
			return 77;
	} else {
		capng_clear(CAPNG_SELECT_BOTH);
		if (capng_apply(CAPNG_SELECT_BOTH) < 0)
			return 77;
	}
	if (shim_choose(SHIM_AUTO, &config, &line, &error) || error)
		return 1;
	g_printerr("# %s\n", line);
	if (!strstr(line, "off (") || !strstr(line, "CAP_SYS_ADMIN"))
		return 2;
	if (shim_choose(SHIM_ON, &config, &again, &error))
		return 3;
	if (!g_error_matches(error, SHIM_ERROR, SHIM_ERROR_PRIVILEGE))
		return 4;
	return 0;
}

static void test_unprivileged(gconstpointer userns)
{
	struct env e = setup(false);
	int status;

	if (e.s) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(unprivileged(userns != NULL));
		g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			g_test_skip("cannot give up privileges here");
		else
			g_assert_cmpint(status, ==, 0);
	}
	teardown(&e);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/shim/choose", test_choose);
	g_test_add_data_func("/shim/unprivileged/no-capability", NULL, test_unprivileged);
	g_test_add_data_func("/shim/unprivileged/user-namespace", "", test_unprivileged);
	g_test_add_func("/shim/nodes/one-a-file", test_one_node_a_file);
	g_test_add_func("/shim/nodes/thousand", test_thousand);
	g_test_add_func("/shim/nodes/concurrent", test_concurrent);
	g_test_add_func("/shim/nodes/no-descriptor-left", test_no_descriptor_left);
	g_test_add_func("/shim/helper/trusts-nobody", test_helper_trusts_nobody);
	g_test_add_func("/shim/helper/killed", test_helper_killed);
	g_test_add_func("/shim/helper/cage", test_cage);
	g_test_add_func("/shim/helper/invisible", test_invisible);
	g_test_add_func("/shim/helper/waits-for-nothing", test_slow_file);
	g_test_add_func("/shim/daemon/killed", test_daemon_killed);
	g_test_add_func("/shim/daemon/from-a-sandbox", test_from_sandbox);
	return g_test_run();
}
