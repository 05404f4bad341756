// SPDX-License-Identifier: Apache-2.0
/* Each case runs in a forked process: what it closes stays closed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cap-ng.h>
#include <glib.h>
#include <glib/gstdio.h>

#include "sandbox.h"
#include "util_sanitize.h"

/* In a child: a claim that does not hold ends it with 99 and the reason on stderr. */
#define CLAIM(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "# line %d: %s (errno %d)\n", __LINE__, #cond, errno);     \
			_exit(99);                                                                 \
		}                                                                                  \
	} while (0)

typedef void (*child_fn)(const char *dir);

static int run_in(child_fn fn, const char *dir)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	g_assert_cmpint(pid, >=, 0);
	if (pid == 0) {
		prctl(PR_SET_DUMPABLE, 0);
		fn(dir);
		_exit(0);
	}
	g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
	return status;
}

/* --- seccomp --- */

static int forbidden;

static const struct {
	const char *name;
	long args[6];
	int nr;
} forbidden_calls[] = {
	{"execve", {0}, SYS_execve},
	{"execveat", {0}, SYS_execveat},
#ifndef UTIL_SANITIZED
	{"ptrace", {PTRACE_TRACEME}, SYS_ptrace},
	{"clone-process", {SIGCHLD}, SYS_clone},
	{"kill", {1, 0}, SYS_kill},
#endif
	{"mount", {0}, SYS_mount},
	{"umount2", {0}, SYS_umount2},
	{"pivot_root", {0}, SYS_pivot_root},
	{"chroot", {0}, SYS_chroot},
	{"setns", {-1, 0}, SYS_setns},
	{"unshare", {CLONE_NEWNS}, SYS_unshare},
	{"socket-inet", {AF_INET, SOCK_STREAM, 0}, SYS_socket},
	{"socket-unix", {AF_UNIX, SOCK_STREAM, 0}, SYS_socket},
	{"connect", {-1, 0, 0}, SYS_connect},
	{"bpf", {0}, SYS_bpf},
	{"init_module", {0}, SYS_init_module},
	{"open_by_handle_at", {-1, 0, 0}, SYS_open_by_handle_at},
	{"keyctl", {0}, SYS_keyctl},
	{"userfaultfd", {0}, SYS_userfaultfd},
	{"io_uring_setup", {0}, SYS_io_uring_setup},
	{"process_vm_writev", {0}, SYS_process_vm_writev},
	{"reboot", {0}, SYS_reboot},
};

static void make_forbidden(const char *dir)
{
	const long *a = forbidden_calls[forbidden].args;

	CLAIM(sandbox_seccomp(SANDBOX_SECCOMP_KILL, NULL));
	syscall(forbidden_calls[forbidden].nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void seccomp_kills(gconstpointer data)
{
	int status;

	forbidden = GPOINTER_TO_INT(data);
	status = run_in(make_forbidden, NULL);
	g_assert_true(WIFSIGNALED(status));
	g_assert_cmpint(WTERMSIG(status), ==, SIGSYS);
}

static void *thread_work(void *arg)
{
	g_autofree char *p = g_malloc(1 << 20);

	memset(p, 1, 1 << 20);
	*(int *)arg = p[77];
	return NULL;
}

static void do_allowed(const char *dir)
{
	pthread_t t;
	int out = 0, fd;

	CLAIM(sandbox_seccomp(SANDBOX_SECCOMP_KILL, NULL));
	CLAIM(pthread_create(&t, NULL, thread_work, &out) == 0);
	CLAIM(pthread_join(t, NULL) == 0 && out == 1);
	fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	CLAIM(fd >= 0);
	close(fd);
}

static void seccomp_lets_threads_and_files_be(void)
{
	g_assert_cmpint(run_in(do_allowed, NULL), ==, 0);
}

static void do_trap(const char *dir)
{
	close(STDERR_FILENO);
	CLAIM(sandbox_seccomp(SANDBOX_SECCOMP_TRAP, NULL));
	syscall(SYS_chroot, "/");
}

static void seccomp_trap_ends_with_a_line(void)
{
	int status = run_in(do_trap, NULL);

	g_assert_true(WIFEXITED(status));
	g_assert_cmpint(WEXITSTATUS(status), ==, 128 + SIGSYS);
}

static void do_log(const char *dir)
{
	CLAIM(sandbox_seccomp(SANDBOX_SECCOMP_LOG, NULL));
	CLAIM(syscall(SYS_umount2, "/nowhere", 0) < 0);
}

static void seccomp_log_lets_pass(void)
{
	g_assert_cmpint(run_in(do_log, NULL), ==, 0);
}

static void do_none(const char *dir)
{
	CLAIM(sandbox_seccomp(SANDBOX_SECCOMP_NONE, NULL));
	CLAIM(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	CLAIM(prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 0);
}

static void no_new_privs_in_every_mode(void)
{
	g_assert_cmpint(run_in(do_none, NULL), ==, 0);
}

/* --- places --- */

static char *make_share(void)
{
	char *dir = g_dir_make_tmp("sandbox-XXXXXX", NULL);
	g_autofree char *file = g_build_filename(dir, "inside", NULL);

	g_assert_nonnull(dir);
	g_assert_cmpint(g_chmod(dir, 0755), ==, 0);
	g_assert_true(g_file_set_contents(file, "x", 1, NULL));
	return dir;
}

static void drop_share(char *dir)
{
	g_autofree char *file = g_build_filename(dir, "inside", NULL);

	g_unlink(file);
	g_rmdir(dir);
	g_free(dir);
}

static void enter(enum sandbox_mode mode, const char *dir, struct sandbox_fds *fds)
{
	struct sandbox_config c = {.mode = mode, .shared_dir = dir};
	g_autoptr(GError) error = NULL;

	if (!sandbox_enter(&c, fds, &error)) {
		fprintf(stderr, "# %s\n", error->message);
		_exit(strstr(error->message, "was refused") ? 77 : 98);
	}
}

static bool same(int dirfd_a, const char *a, int dirfd_b, const char *b)
{
	struct stat sa, sb;

	return fstatat(dirfd_a, a, &sa, AT_EMPTY_PATH) == 0 &&
	       fstatat(dirfd_b, b, &sb, AT_EMPTY_PATH) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

static void check_fds(const struct sandbox_fds *fds)
{
	struct stat st;
	char num[16];
	int file = openat(fds->root_fd, "inside", O_PATH | O_CLOEXEC);
	int again;

	CLAIM(file >= 0);
	snprintf(num, sizeof(num), "%d", file);
	again = openat(fds->proc_self_fd, num, O_RDONLY | O_CLOEXEC);
	CLAIM(again >= 0);
	CLAIM(same(again, "", fds->root_fd, "inside"));
	snprintf(num, sizeof(num), "%d", (int)gettid());
	CLAIM(fstatat(fds->proc_task_fd, num, &st, 0) == 0 && S_ISDIR(st.st_mode));
	close(file);
	close(again);
}

static void check_caps(void)
{
	CLAIM(capng_get_caps_process() == 0);
	CLAIM(capng_have_capability(CAPNG_EFFECTIVE, CAP_SYS_ADMIN) == 0);
	CLAIM(capng_have_capability(CAPNG_PERMITTED, CAP_SYS_CHROOT) == 0);
	CLAIM(capng_have_capability(CAPNG_PERMITTED, CAP_DAC_READ_SEARCH) == 0);
}

static void do_namespace(const char *dir)
{
	struct sandbox_fds fds;
	int s;

	enter(SANDBOX_NAMESPACE, dir, &fds);
	CLAIM(getpid() == 1);
	CLAIM(access("/inside", F_OK) == 0);
	CLAIM(access("/proc", F_OK) < 0 && errno == ENOENT);
	CLAIM(same(fds.root_fd, "..", fds.root_fd, ""));
	CLAIM(same(fds.proc_self_fd, "..", fds.proc_self_fd, ""));
	CLAIM(same(fds.proc_task_fd, "..", fds.proc_task_fd, ""));
	check_fds(&fds);
	check_caps();
	CLAIM(umount2("/", MNT_DETACH) < 0 && errno == EPERM);
	/* No way out by the network: not even loopback is up. */
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CLAIM(s >= 0);
	CLAIM(sandbox_seccomp(SANDBOX_SECCOMP_KILL, NULL));
	check_fds(&fds);
	_exit(42);
}

static void expect_exit(child_fn fn, int code)
{
	char *dir = make_share();
	int status = run_in(fn, dir);

	drop_share(dir);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		g_test_skip("this machine refuses namespaces to this user");
		return;
	}
	g_assert_true(WIFEXITED(status));
	g_assert_cmpint(WEXITSTATUS(status), ==, code);
}

static void namespace_shows_the_share_alone(void)
{
	expect_exit(do_namespace, 42);
}

static void do_user_namespace(const char *dir)
{
	CLAIM(chown(dir, 65534, 65534) == 0);
	CLAIM(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	prctl(PR_SET_DUMPABLE, 1);
	do_namespace(dir);
}

static void namespace_for_an_ordinary_user(void)
{
	if (geteuid() != 0) {
		g_test_skip("needs root to become someone else");
		return;
	}
	expect_exit(do_user_namespace, 42);
}

static void do_chroot(const char *dir)
{
	struct sandbox_fds fds;

	enter(SANDBOX_CHROOT, dir, &fds);
	CLAIM(access("/inside", F_OK) == 0);
	CLAIM(access("/proc", F_OK) < 0);
	check_fds(&fds);
	check_caps();
	_exit(43);
}

static void chroot_shows_the_share_alone(void)
{
	if (geteuid() != 0) {
		g_test_skip("needs CAP_SYS_CHROOT");
		return;
	}
	expect_exit(do_chroot, 43);
}

static void do_sandbox_none(const char *dir)
{
	struct sandbox_fds fds;
	pid_t pid = getpid();

	enter(SANDBOX_NONE, dir, &fds);
	CLAIM(getpid() == pid);
	check_fds(&fds);
	check_caps();
	_exit(44);
}

static void none_still_drops_capabilities(void)
{
	expect_exit(do_sandbox_none, 44);
}

static void without_cap(int cap)
{
	CLAIM(capng_get_caps_process() == 0);
	CLAIM(capng_update(CAPNG_DROP, CAPNG_EFFECTIVE | CAPNG_PERMITTED, (unsigned int)cap) == 0);
	CLAIM(capng_apply(CAPNG_SELECT_CAPS) == 0);
}

static void claim_refused(enum sandbox_mode mode, const char *dir, const char *option,
			  const char *instead)
{
	struct sandbox_config c = {.mode = mode, .shared_dir = dir};
	struct sandbox_fds fds;
	GError *error = NULL;

	CLAIM(!sandbox_enter(&c, &fds, &error));
	CLAIM(strstr(error->message, option) && strstr(error->message, instead));
	_exit(45);
}

static void do_no_sys_admin(const char *dir)
{
	without_cap(CAP_SYS_ADMIN);
	claim_refused(SANDBOX_NAMESPACE, dir, "--sandbox=namespace", "--sandbox=chroot");
}

static void do_no_sys_chroot(const char *dir)
{
	without_cap(CAP_SYS_CHROOT);
	claim_refused(SANDBOX_CHROOT, dir, "--sandbox=chroot", "--sandbox=none");
}

static void do_chroot_without_sys_admin(const char *dir)
{
	without_cap(CAP_SYS_ADMIN);
	do_chroot(dir);
}

static void refusals_name_what_to_use_instead(void)
{
	if (geteuid() != 0) {
		g_test_skip("needs root");
		return;
	}
	expect_exit(do_no_sys_admin, 45);
	expect_exit(do_no_sys_chroot, 45);
	expect_exit(do_chroot_without_sys_admin, 43);
}

/* --- the parent --- */

static int ready[2];

static void on_term(int sig)
{
	_exit(46);
}

static void wait_for_term(const char *dir)
{
	struct sandbox_fds fds;

	enter(SANDBOX_CHROOT, dir, &fds);
	signal(SIGTERM, on_term);
	CLAIM(write(ready[1], "r", 1) == 1);
	for (;;)
		pause();
}

static void die_by_signal(const char *dir)
{
	struct sandbox_fds fds;

	enter(SANDBOX_CHROOT, dir, &fds);
	signal(SIGABRT, SIG_DFL);
	abort();
}

static void parent_relays_and_ends_alike(void)
{
	char *dir;
	char byte;
	int status;
	pid_t pid;

	if (geteuid() != 0) {
		g_test_skip("needs CAP_SYS_CHROOT");
		return;
	}
	dir = make_share();
	g_assert_cmpint(pipe(ready), ==, 0);
	pid = fork();
	if (pid == 0)
		wait_for_term(dir);
	g_assert_cmpint(read(ready[0], &byte, 1), ==, 1);
	g_assert_cmpint(kill(pid, SIGTERM), ==, 0);
	g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
	g_assert_true(WIFEXITED(status));
	g_assert_cmpint(WEXITSTATUS(status), ==, 46);
	status = run_in(die_by_signal, dir);
	g_assert_true(WIFSIGNALED(status));
	g_assert_cmpint(WTERMSIG(status), ==, SIGABRT);
	drop_share(dir);
}

static void do_rlimit(const char *dir)
{
	struct rlimit r = {100, 200};
	GError *error = NULL;

	CLAIM(setrlimit(RLIMIT_NOFILE, &r) == 0);
	without_cap(CAP_SYS_RESOURCE);
	CLAIM(sandbox_raise_nofile(0, &error) == 100);
	CLAIM(sandbox_raise_nofile(150, &error) == 150);
	CLAIM(sandbox_raise_nofile(-1, &error) == 200);
	CLAIM(sandbox_raise_nofile(300, &error) == -1);
	CLAIM(strstr(error->message, "--rlimit-nofile=300") && strstr(error->message, "200"));
}

static void nofile_goes_as_far_as_allowed(void)
{
	g_assert_cmpint(run_in(do_rlimit, NULL), ==, 0);
}

static void modcaps_are_checked(void)
{
	g_autoptr(GError) e1 = NULL, e2 = NULL;

	g_assert_true(sandbox_modcaps_valid("+sys_admin:-mknod", NULL));
	g_assert_true(sandbox_modcaps_valid(NULL, NULL));
	g_assert_false(sandbox_modcaps_valid("sys_admin", &e1));
	g_assert_nonnull(strstr(e1->message, "sys_admin"));
	g_assert_false(sandbox_modcaps_valid("+no_such", &e2));
	g_assert_nonnull(strstr(e2->message, "no_such"));
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	for (size_t i = 0; i < G_N_ELEMENTS(forbidden_calls); i++) {
		g_autofree char *path =
			g_strdup_printf("/seccomp/kills/%s", forbidden_calls[i].name);

		g_test_add_data_func(path, GINT_TO_POINTER((int)i), seccomp_kills);
	}
	g_test_add_func("/seccomp/lets-threads-and-files-be", seccomp_lets_threads_and_files_be);
	g_test_add_func("/seccomp/trap-ends-with-a-line", seccomp_trap_ends_with_a_line);
	g_test_add_func("/seccomp/log-lets-pass", seccomp_log_lets_pass);
	g_test_add_func("/seccomp/no-new-privs-in-every-mode", no_new_privs_in_every_mode);
	g_test_add_func("/sandbox/namespace", namespace_shows_the_share_alone);
	g_test_add_func("/sandbox/namespace-ordinary-user", namespace_for_an_ordinary_user);
	g_test_add_func("/sandbox/chroot", chroot_shows_the_share_alone);
	g_test_add_func("/sandbox/none", none_still_drops_capabilities);
	g_test_add_func("/sandbox/refusals", refusals_name_what_to_use_instead);
	g_test_add_func("/sandbox/parent", parent_relays_and_ends_alike);
	g_test_add_func("/sandbox/nofile", nofile_goes_as_far_as_allowed);
	g_test_add_func("/sandbox/modcaps", modcaps_are_checked);
	return g_test_run();
}
