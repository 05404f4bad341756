/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size shim: descriptors that map a real file but report one huge constant size, for VMMs
 * that refuse to map beyond a file's end. docs/shim.md says why it exists and what holds.
 */
#ifndef DAXMAP_SHIM_H
#define DAXMAP_SHIM_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sandbox.h"

/** SHIM_SIZE - the size, in bytes, that every shim file reports; larger files are refused. */
#define SHIM_SIZE (UINT64_C(1) << 40)

struct shim;

/** enum shim_want - --dax-shim */
enum shim_want {
	SHIM_OFF,
	SHIM_AUTO,
	SHIM_ON,
};

enum shim_error {
	SHIM_ERROR_KERNEL,    /* no FUSE, or no passthrough in it */
	SHIM_ERROR_PRIVILEGE, /* no CAP_SYS_ADMIN in the initial user namespace */
	SHIM_ERROR_SHARE,     /* the share's file system cannot be passed through to */
	SHIM_ERROR_FAILED,    /* a system call failed that should not */
};
#define SHIM_ERROR (shim_error_quark())
GQuark shim_error_quark(void);

/**
 * struct shim_config - for shim_start()
 * @share_fd: descriptor (O_PATH will do) of the shared directory, for the probe of its file
 *            system; borrowed for the call; -1: not probed
 * @readonly: only read-only files will be asked for: passthrough is not required, and the share
 *            is not probed
 * @seccomp: for the helper
 * @died: may be NULL; called once, from the thread that notices the helper's death (in
 *        shim_open() or shim_check()), with no lock held
 * @ctx: for @died
 */
struct shim_config {
	int share_fd;
	bool readonly;
	enum sandbox_seccomp_mode seccomp;
	void (*died)(void *ctx);
	void *ctx;
};

/**
 * shim_probe() - would shim_start() work?
 * @share_fd: as in struct shim_config
 * @readonly: as in struct shim_config
 * @reason: out, may be NULL: one line for people; the caller frees it
 *
 * Mounts and unmounts a private file system, so it needs what shim_start() needs.
 */
bool shim_probe(int share_fd, bool readonly, char **reason);

/**
 * shim_start() - probes, mounts, and forks the helper
 *
 * Call it once, early: while the process still has CAP_SYS_ADMIN and /dev/fuse, before the
 * sandbox closes, and while the process has one thread (the helper is a fork without exec).
 * The process may fork and change its namespaces afterwards: the shim is two descriptors, and
 * every copy of the process may use it. The helper lives until the last copy has closed them.
 * Return: the shim, or NULL with @error (SHIM_ERROR) whose message is one line for people.
 */
struct shim *shim_start(const struct shim_config *config, GError **error);

/**
 * shim_choose() - shim_start() under an option of three values
 * @line: out: what was chosen and why, one line for the log; the caller frees it
 *
 * Return: the shim; or NULL without an error when it is off or, under SHIM_AUTO, not to be had;
 * or NULL with @error under SHIM_ON.
 */
struct shim *shim_choose(enum shim_want want, const struct shim_config *config, char **line,
			 GError **error);

/** shim_free() - ends the helper and frees the shim. Descriptors from shim_open() and mappings of
 * them stay as they are after the helper's death (docs/shim.md). No other call may be under way.
 * NULL is allowed. */
void shim_free(struct shim *shim);

/**
 * shim_open() - a descriptor that maps @real_fd's file at any offset up to SHIM_SIZE
 * @real_fd: the real, regular file; borrowed for the call. With @writable it must be O_RDWR, and
 *           neither append-only, immutable, nor sealed against writes; without, O_RDONLY
 * @key_hi: with @key_lo names the file: one shim node a key and @writable. One key must not name
 *          two files at a time
 * @key_lo: see @key_hi
 * @writable: true: mmap of the result is a mapping of the real file. false: the result has a page
 *            cache of its own, filled by the helper and never written back: a second, incoherent
 *            copy that can be mapped read-write without a way for a byte to reach the file
 *
 * The result is O_RDWR in both cases. Only mmap, fstat, fstatfs and lseek work on it, and reads
 * when not @writable: everything else is refused by the helper. Closing it is the only release:
 * the node goes with its last descriptor and mapping, wherever that is.
 *
 * Any number of threads at once; blocks for two round trips to the helper.
 * Return: a new close-on-exec descriptor; -ENOTCONN once the helper has died; -EACCES (@real_fd
 * has the wrong access mode), -EPERM (append-only, immutable, sealed), -EINVAL (not a regular
 * file; or the key names another file), -EFBIG, -ELOOP (file systems stacked too deep), -EROFS,
 * -ETXTBSY (the file is being executed), -EMFILE and other errno of open(2).
 */
int shim_open(struct shim *shim, int real_fd, uint64_t key_hi, uint64_t key_lo, bool writable);

/** shim_check() - false once the helper has died; the first call that notices runs the died
 * callback. Any thread. Does not block. */
bool shim_check(struct shim *shim);

/** shim_alive() - false once the death has been noticed: shim_check() without asking the kernel. */
bool shim_alive(const struct shim *shim);

/** shim_event_fd() - polls readable or hung up when the helper dies: then call shim_check(). Owned
 * by the shim; never read from it. */
int shim_event_fd(const struct shim *shim);

/** shim_dev() - st_dev of every descriptor that shim_open() returns. */
dev_t shim_dev(const struct shim *shim);

/** shim_can_write() - are writable files served (passthrough), or only read-only ones? */
bool shim_can_write(const struct shim *shim);

/** shim_helper_pid() - the helper's process id in the pid namespace of shim_start(). */
pid_t shim_helper_pid(const struct shim *shim);

/**
 * struct shim_stats - the helper's gauges
 * @nodes: nodes alive
 * @backings: backing ids registered in the kernel
 * @fds: real files held open by the helper, or queued to be closed (read-only nodes)
 * @pending: opens announced and not yet looked up
 * @refused: requests that were refused since the start (writes, truncation, ...)
 */
struct shim_stats {
	uint64_t nodes;
	uint64_t backings;
	uint64_t fds;
	uint64_t pending;
	uint64_t refused;
};

/** shim_get_stats() - one round trip to the helper; 0 or a negative errno. */
int shim_get_stats(struct shim *shim, struct shim_stats *out);

#endif
