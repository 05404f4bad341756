// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * namespace: the parent makes the pid namespace (which holds for children only) and forks. It
 * stays outside, so it can remove the socket at the end, and sits in sigwaitinfo(). The child is
 * pid 1 in there; it makes its own mount and net namespaces, mounts a /proc of that pid namespace,
 * clones /proc/self/fd and /proc/self/task out of it as detached mounts (a walk up from them ends
 * at once), makes the shared directory its root and detaches everything else. Mounts that the host
 * makes inside the share later still arrive (slave propagation); nothing goes the other way.
 * An ordinary user gets the same inside a user namespace in which he is root.
 *
 * chroot: for hosts without CAP_SYS_ADMIN. Weaker: the descriptor of /proc/self/fd has a parent
 * directory, so names from the guest are all that stands between it and /proc; the file server
 * refuses ".." and "/" in any mode.
 *
 * none: the file server's own checks, capabilities and seccomp are all there is.
 */
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cap-ng.h>

#include "util_fd.h"

#define NOFILE_WANTED 1000000

G_DEFINE_QUARK(sandbox - error, sandbox_error)

static bool fail(GError **error, const char *what)
{
	int err = errno;

	g_set_error(error, SANDBOX_ERROR, err, "%s: %s", what, g_strerror(err));
	return false;
}

int64_t sandbox_raise_nofile(int64_t want, GError **error)
{
	struct rlimit now, next;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0) {
		fail(error, "getrlimit(RLIMIT_NOFILE)");
		return -1;
	}
	if (want == 0)
		return (int64_t)now.rlim_cur;
	next.rlim_cur = want < 0 ? NOFILE_WANTED : (rlim_t)want;
	next.rlim_max = MAX(next.rlim_cur, now.rlim_max);
	if (setrlimit(RLIMIT_NOFILE, &next) == 0)
		return (int64_t)next.rlim_cur;
	if (want > 0 && next.rlim_cur > now.rlim_max) {
		g_set_error(
			error, SANDBOX_ERROR, errno,
			"--rlimit-nofile=%" G_GINT64_FORMAT ": the hard limit is %" G_GUINT64_FORMAT
			" and raising it was refused (%s); ask for no more, or raise it outside",
			want, (guint64)now.rlim_max, g_strerror(errno));
		return -1;
	}
	next.rlim_cur = MIN(next.rlim_cur, now.rlim_max);
	next.rlim_max = now.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &next) < 0) {
		fail(error, "setrlimit(RLIMIT_NOFILE)");
		return -1;
	}
	return (int64_t)next.rlim_cur;
}

/* --- the parent --- */

static const int relayed[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

static void relay_set(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < G_N_ELEMENTS(relayed); i++)
		sigaddset(set, relayed[i]);
	sigaddset(set, SIGCHLD);
}

static void G_GNUC_NORETURN end_like(int status)
{
	if (WIFSIGNALED(status)) {
		int sig = WTERMSIG(status);
		sigset_t set;

		fprintf(stderr, "daxmapd: the serving process was killed by signal %d (%s)%s\n",
			sig, strsignal(sig),
			sig == SIGSYS ? ": a system call that is not on the seccomp list; run with "
					"--seccomp=trap to see which"
				      : "");
		signal(sig, SIG_DFL);
		prctl(PR_SET_DUMPABLE, 0); /* the child's core is the one that tells */
		sigemptyset(&set);
		sigaddset(&set, sig);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		raise(sig);
		_exit(128 + sig);
	}
	_exit(WEXITSTATUS(status));
}

static void G_GNUC_NORETURN wait_and_relay(pid_t child, const struct sandbox_config *c)
{
	sigset_t set;
	int status;

	relay_set(&set);
	for (;;) {
		siginfo_t info;
		int sig = sigwaitinfo(&set, &info);

		if (sig < 0)
			continue;
		if (sig != SIGCHLD) {
			kill(child, sig);
			continue;
		}
		if (waitpid(child, &status, WNOHANG) == child)
			break;
	}
	if (c->parent_exit)
		c->parent_exit(c->ctx);
	end_like(status);
}

/* Forks. True in the child; the parent does not come back; false when there is no child. */
static bool fork_child(const struct sandbox_config *c, GError **error)
{
	sigset_t set, old;
	pid_t pid;

	relay_set(&set);
	sigprocmask(SIG_BLOCK, &set, &old);
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		fail(error, "fork");
		sigprocmask(SIG_SETMASK, &old, NULL);
		return false;
	}
	if (pid > 0)
		wait_and_relay(pid, c);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return true;
}

/* --- namespaces --- */

static bool write_file(const char *path, const char *text, GError **error)
{
	util_autofd fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return fail(error, path);
	return true;
}

static bool map_self(uid_t uid, gid_t gid, GError **error)
{
	g_autofree char *u = g_strdup_printf("0 %u 1", (unsigned int)uid);
	g_autofree char *g = g_strdup_printf("0 %u 1", (unsigned int)gid);

	return write_file("/proc/self/setgroups", "deny", error) &&
	       write_file("/proc/self/uid_map", u, error) &&
	       write_file("/proc/self/gid_map", g, error);
}

static bool no_namespace(GError **error)
{
	int err = errno;

	g_set_error(
		error, SANDBOX_ERROR, err,
		"--sandbox=namespace: making the namespaces was refused (%s): it needs "
		"CAP_SYS_ADMIN%s; use --sandbox=chroot (needs CAP_SYS_CHROOT) or --sandbox=none",
		g_strerror(err),
		geteuid() == 0 ? "" : ", or a kernel that lets users make user namespaces");
	return false;
}

/* In a chroot into a plain folder there is nothing that pivot_root could take away. */
static bool no_root_mount(GError **error)
{
	g_set_error(
		error, SANDBOX_ERROR, EINVAL,
		"--sandbox=namespace was refused: \"/\" is not a mount point (a chroot into a "
		"plain folder?); use --sandbox=chroot, or bind-mount the folder onto itself first");
	return false;
}

static bool have_cap(unsigned int cap)
{
	capng_get_caps_process();
	return capng_have_capability(CAPNG_EFFECTIVE, cap) == 1;
}

/* In the parent: what must exist before the fork. */
static bool unshare_for_child(GError **error)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (have_cap(CAP_SYS_ADMIN)) {
		if (unshare(CLONE_NEWPID) < 0)
			return no_namespace(error);
		return true;
	}
	/* Root without the capability (a container) would lose all ids but its own in there. */
	if (uid == 0) {
		errno = EPERM;
		return no_namespace(error);
	}
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
		return no_namespace(error);
	return map_self(uid, gid, error);
}

static int clone_tree(const char *path)
{
#ifdef SYS_open_tree
	return (int)syscall(SYS_open_tree, AT_FDCWD, path, 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
#else
	errno = ENOSYS;
	return -1;
#endif
}

static int open_proc(const char *path, bool detached)
{
	int fd = detached ? clone_tree(path) : -1;

	if (fd < 0)
		fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd;
}

static bool open_proc_fds(struct sandbox_fds *out, bool detached, GError **error)
{
	out->proc_self_fd = open_proc("/proc/self/fd", detached);
	if (out->proc_self_fd < 0)
		return fail(error, "/proc/self/fd");
	out->proc_task_fd = open_proc("/proc/self/task", detached);
	if (out->proc_task_fd < 0)
		return fail(error, "/proc/self/task");
	return true;
}

/* A /proc of our own pid namespace. In a container that hides parts of /proc the kernel refuses
 * a fresh one to a user namespace: the old one serves too, only its other entries are more. */
static bool mount_proc(struct sandbox_fds *out, GError **error)
{
	if (mount("proc", "/proc", "proc", MS_NODEV | MS_NOEXEC | MS_NOSUID | MS_RELATIME, NULL) <
		    0 &&
	    errno != EPERM)
		return fail(error, "--sandbox=namespace: mounting /proc");
	return open_proc_fds(out, true, error);
}

static bool pivot_into(const char *dir, GError **error)
{
	util_autofd oldroot = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	util_autofd newroot = -1;

	if (oldroot < 0)
		return fail(error, "/");
	if (mount(dir, dir, NULL, MS_BIND | MS_REC, NULL) < 0)
		return fail(error, dir);
	newroot = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (newroot < 0)
		return fail(error, dir);
	if (fchdir(newroot) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return fail(error, "pivot_root");
	if (fchdir(oldroot) < 0 || mount("", ".", "", MS_SLAVE | MS_REC, NULL) < 0 ||
	    umount2(".", MNT_DETACH) < 0)
		return fail(error, "detaching the old root");
	if (fchdir(newroot) < 0)
		return fail(error, "fchdir");
	return true;
}

static bool enter_namespace(const struct sandbox_config *c, struct sandbox_fds *out, GError **error)
{
	if (!unshare_for_child(error) || !fork_child(c, error))
		return false;
	if (unshare(CLONE_NEWNS | CLONE_NEWNET) < 0)
		return no_namespace(error);
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return errno == EINVAL ? no_root_mount(error)
				       : fail(error, "--sandbox=namespace: making mounts private");
	return mount_proc(out, error) && pivot_into(c->shared_dir, error);
}

/* --- chroot --- */

static bool enter_chroot(const struct sandbox_config *c, struct sandbox_fds *out, GError **error)
{
	if (!have_cap(CAP_SYS_CHROOT)) {
		g_set_error(
			error, SANDBOX_ERROR, EPERM,
			"--sandbox=chroot needs CAP_SYS_CHROOT, which this process has not; use "
			"--sandbox=namespace as an ordinary user, or --sandbox=none");
		return false;
	}
	if (!fork_child(c, error) || !open_proc_fds(out, false, error))
		return false;
	if (chdir(c->shared_dir) < 0 || chroot(".") < 0)
		return fail(error, c->shared_dir);
	return true;
}

bool sandbox_enter(const struct sandbox_config *c, struct sandbox_fds *out, GError **error)
{
	const char *root = c->mode == SANDBOX_NONE ? c->shared_dir : "/";
	bool ok = false;

	*out = (struct sandbox_fds){-1, -1, -1};
	switch (c->mode) {
	case SANDBOX_NAMESPACE:
		ok = enter_namespace(c, out, error);
		break;
	case SANDBOX_CHROOT:
		ok = enter_chroot(c, out, error);
		break;
	case SANDBOX_NONE:
		ok = open_proc_fds(out, false, error);
		break;
	}
	if (!ok)
		return false;
	out->root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (out->root_fd < 0)
		return fail(error, c->shared_dir);
	return sandbox_drop_caps(c->modcaps, error);
}
