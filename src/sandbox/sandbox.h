/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing the door behind us: what the daemon can still reach once it serves a guest.
 *
 * Order of use, all before the first thread is made (namespaces and capabilities belong to a
 * thread, and the fork must find only one):
 *   sandbox_raise_nofile()   while the privilege is there
 *   (the owner opens sockets, logs, trace files)
 *   sandbox_enter()          returns in the process that serves
 *   sandbox_seccomp()        last
 */
#ifndef DAXMAP_SANDBOX_H
#define DAXMAP_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

/** enum sandbox_mode - where the daemon lives while it serves */
enum sandbox_mode {
	SANDBOX_NAMESPACE, /* new mount, pid and net namespaces (and user, when not root) */
	SANDBOX_CHROOT,
	SANDBOX_NONE,
};

/** enum sandbox_seccomp_mode - what happens at a system call that nobody declared */
enum sandbox_seccomp_mode {
	SANDBOX_SECCOMP_KILL,
	SANDBOX_SECCOMP_LOG,
	SANDBOX_SECCOMP_TRAP, /* a line on stderr with its number, then the end */
	SANDBOX_SECCOMP_NONE,
};

/**
 * struct sandbox_config - how to close
 * @mode: where to
 * @shared_dir: becomes the root (but in SANDBOX_NONE)
 * @modcaps: NULL, or changes to the capabilities kept: "+sys_admin:-mknod"
 * @parent_exit: called in the waiting parent when the serving child is gone, to clean up outside
 *               the sandbox; not called in SANDBOX_NONE, which makes no child
 */
struct sandbox_config {
	enum sandbox_mode mode;
	const char *shared_dir;
	const char *modcaps;
	void (*parent_exit)(void *ctx);
	void *ctx;
};

/**
 * struct sandbox_fds - descriptors that reach what has no path any more; the caller owns them
 * @root_fd: O_PATH, the shared directory
 * @proc_self_fd: O_PATH, /proc/self/fd; in SANDBOX_NAMESPACE its ".." leads nowhere
 * @proc_task_fd: O_PATH, /proc/self/task, likewise
 */
struct sandbox_fds {
	int root_fd;
	int proc_self_fd;
	int proc_task_fd;
};

#define SANDBOX_ERROR (sandbox_error_quark())
GQuark sandbox_error_quark(void);

/**
 * sandbox_raise_nofile() - raises RLIMIT_NOFILE
 * @want: 0 = leave it; -1 = as far as we may, up to a million; else exactly this many
 *
 * Returns the soft limit now, or -1 with @error (only when @want was given and is out of reach).
 */
int64_t sandbox_raise_nofile(int64_t want, GError **error);

/**
 * sandbox_enter() - closes the sandbox and drops capabilities
 *
 * In SANDBOX_NAMESPACE and SANDBOX_CHROOT forks: the child returns; the parent never does: it
 * relays SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 to the child, and ends as the child ended.
 * The child gets SIGKILL when the parent dies. False with @error, in parent or child: the
 * process must end then.
 */
bool sandbox_enter(const struct sandbox_config *c, struct sandbox_fds *out, GError **error);

/** sandbox_seccomp() - installs the filter for all threads; sets no_new_privs in every mode. */
bool sandbox_seccomp(enum sandbox_seccomp_mode mode, GError **error);

/** sandbox_drop_caps() - keeps what a file server needs, of that what we have, changed by
 * @modcaps; the calling thread. Part of sandbox_enter(). */
bool sandbox_drop_caps(const char *modcaps, GError **error);

/** sandbox_modcaps_valid() - would sandbox_drop_caps() take @modcaps? */
bool sandbox_modcaps_valid(const char *modcaps, GError **error);

#endif
