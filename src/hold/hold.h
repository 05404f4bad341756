/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops truncations of files until something has been done about them. The kernel asks a process
 * of ours, the guard, before a file that we watch becomes shorter; the guard asks us, and answers
 * in bounded time whatever we do. docs/truncation.md says why and at what price.
 *
 * Threads: any, unless said otherwise. Nothing here waits, but for hold_start() and hold_free().
 */
#ifndef DAXMAP_HOLD_H
#define DAXMAP_HOLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <glib.h>

#include "sandbox.h"

/** HOLD_BOUND_MS - a truncation is let go after this, whether we have answered or not */
#define HOLD_BOUND_MS 1000

struct hold;

/** enum hold_want - --dax-hold */
enum hold_want {
	HOLD_OFF,
	HOLD_AUTO,
	HOLD_ON,
};

/**
 * struct hold_config - for hold_start()
 * @share_fd: the shared directory, an O_PATH descriptor will do; borrowed; -1: its file system is
 *            not probed
 * @seccomp: for the guard
 */
struct hold_config {
	int share_fd;
	enum sandbox_seccomp_mode seccomp;
};

/**
 * hold_start() - probes, and forks the guard
 * @why: out, on failure: one line for people; the caller frees it
 *
 * Needs Linux 6.14 (FAN_PRE_ACCESS), CAP_SYS_ADMIN for the start, and CAP_SYS_PTRACE and
 * CAP_DAC_READ_SEARCH for the guard, which keeps only these two. Call it once, early, as
 * shim_start(). The guard lives until the last copy of the process has gone.
 */
struct hold *hold_start(const struct hold_config *config, char **why);
/** hold_free() - ends the guard: whatever it holds goes on. NULL is allowed. */
void hold_free(struct hold *h);
/** hold_guard_pid() - in the pid namespace of hold_start() */
pid_t hold_guard_pid(const struct hold *h);
/** hold_event_fd() - polls readable when hold_next() has something to tell */
int hold_event_fd(const struct hold *h);

/**
 * hold_watch() - from soon on, truncations of @fd's file are held; hold_next() tells from when
 * @fd: borrowed
 *
 * 0, or a negative errno. A file may be watched more than once; one hold_unwatch() ends it.
 */
int hold_watch(struct hold *h, int fd);
void hold_unwatch(struct hold *h, int fd);

/**
 * enum hold_kind - what the guard tells
 * @HOLD_WATCHED: truncations of this file are held from now on
 * @HOLD_REFUSED: they cannot be; @err (a negative errno) says why
 * @HOLD_ASKED: the file is about to become @length bytes long, and waits for hold_done()
 * @HOLD_LATE: that has taken too long, or there were too many: it goes on unanswered
 * @HOLD_OVER: a truncation that was asked about has been done, or has failed, or seems to be
 *             given up: the file's size is what it is
 * @HOLD_DEAD: the guard has died; nothing is held any more, and nothing will be. Told once
 */
enum hold_kind {
	HOLD_WATCHED = 1,
	HOLD_REFUSED,
	HOLD_ASKED,
	HOLD_LATE,
	HOLD_OVER,
	HOLD_DEAD,
};

/**
 * struct hold_event - @dev, @ino: of the file, as fstat() says
 * @id: of one truncation: ASKED, then perhaps LATE, then OVER. 0 in others; a LATE with 0 was
 *      never asked about
 */
struct hold_event {
	enum hold_kind kind;
	int err;
	uint64_t id;
	uint64_t dev;
	uint64_t ino;
	uint64_t length;
};

/** hold_next() - takes the next event; false: there is none now. One thread. */
bool hold_next(struct hold *h, struct hold_event *e);

/**
 * hold_done() - lets the truncation go on
 * @grace_ms: after this much more time
 */
void hold_done(struct hold *h, uint64_t id, unsigned int grace_ms);

#endif
