/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's side and the guard share. Not for other folders. */
#ifndef DAXMAP_HOLD_INTERNAL_H
#define DAXMAP_HOLD_INTERNAL_H

#include "hold.h"

/*
 * linux/fanotify.h of Linux 6.14, in case the build machine's is older. Own names, so that both
 * kinds of header compile.
 */
#define HOLD_FAN_PRE_ACCESS UINT64_C(0x00100000)
#define HOLD_FAN_INFO_RANGE 6

struct hold_fan_range {
	uint8_t info_type;
	uint8_t pad;
	uint16_t len;
	uint32_t pad2;
	uint64_t offset;
	uint64_t count;
};

/** HOLD_FAN_MASK - what the guard is asked about: truncate, ftruncate; and open, for O_TRUNC */
#define HOLD_FAN_MASK (HOLD_FAN_PRE_ACCESS | FAN_OPEN_PERM)

/** enum hold_op - daemon to guard; guard to daemon: enum hold_kind, and READY at the start */
enum hold_op {
	HOLD_OP_WATCH = 101, /* with a descriptor, as UNWATCH */
	HOLD_OP_UNWATCH,
	HOLD_OP_DONE,  /* @id; @length: grace, ms */
	HOLD_OP_READY, /* @err: 0, or why there will be no guard */
};

struct hold_msg {
	uint32_t op;
	int32_t err;
	uint64_t id;
	uint64_t dev;
	uint64_t ino;
	uint64_t length;
};

/** enum hold_step - where the start failed; in READY's @id */
enum hold_step { HOLD_STEP_FANOTIFY, HOLD_STEP_SHARE, HOLD_STEP_PROC, HOLD_STEP_JAIL };

/** enum hold_what - what a thread that is waiting for the guard is doing */
enum hold_what {
	HOLD_WHAT_OTHER,    /* nothing that makes a file shorter */
	HOLD_WHAT_TRUNCATE, /* to a length */
	HOLD_WHAT_UNKNOWN,  /* it runs: ask again */
};

/** hold_parse_syscall() - @text: of /proc/PID/syscall; @length: out */
enum hold_what hold_parse_syscall(const char *text, uint64_t *length);

/** hold_guard_main() - takes over the whole process. @share_fd: -1, or to be probed */
void hold_guard_main(int sock, int share_fd, pid_t parent, enum sandbox_seccomp_mode seccomp)
	__attribute__((noreturn));

/* hold_jail.c */
/** hold_jail_caps() - keeps what reading /proc/PID/syscall of anybody needs. Before threads. */
int hold_jail_caps(void);
/** hold_jail_seccomp() - allows what the guard declares; @proc: of /proc, the only place where
 * anything may be opened, for reading */
int hold_jail_seccomp(int proc, enum sandbox_seccomp_mode mode);

#endif
