/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon's helper processes (src/shim, src/hold) have in common: each is forked from the
 * daemon before its sandbox closes, keeps a capability or two, and shuts itself in with a list of
 * system calls of its own, declared beside the code in comments of the form "NAME-syscalls: name
 * name" and collected at build time (gen_helper_syscalls.sh).
 */
#ifndef DAXMAP_SANDBOX_HELPER_H
#define DAXMAP_SANDBOX_HELPER_H

#include <stddef.h>
#include <sys/types.h>

#include <seccomp.h>

#include "sandbox.h"

/** sandbox_helper_settle() - first of all in a helper: takes the name @name, leaves the terminal's
 * signals to the daemon, raises RLIMIT_NOFILE as far as it goes, leaves the directory. 0 or a
 * negative errno. */
int sandbox_helper_settle(const char *name);

/** sandbox_helper_tie() - the kernel kills this process with its parent @parent; ends it if that
 * has gone already. A change of capabilities unties it. */
void sandbox_helper_tie(pid_t parent);

/** sandbox_helper_keep_caps() - keeps the capabilities @caps alone, for ever. Before threads are
 * made. 0 or a negative errno. */
int sandbox_helper_keep_caps(const int *caps, size_t n);

/** sandbox_helper_rule - adds what is allowed of system call @nr; @arg is the owner's. 0 or a
 * negative errno. */
typedef int sandbox_helper_rule(scmp_filter_ctx filter, int nr, int arg);

/**
 * sandbox_helper_seccomp() - allows the system calls @allowed on all threads of the process, each
 * as far as @rule says
 *
 * 0 or a negative errno.
 */
int sandbox_helper_seccomp(enum sandbox_seccomp_mode mode, const int *allowed, size_t n,
			   sandbox_helper_rule *rule, int arg);

#endif
