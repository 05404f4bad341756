// SPDX-License-Identifier: Apache-2.0
/*
 * The list of system calls is generated at build time (gen_syscalls.py) from comments beside the
 * code that makes the calls; what the libraries below us make is declared here.
 *
 * Threads may be made, processes not: clone() is allowed with CLONE_THREAD only. Its flags can be
 * seen in a register, those of clone3() cannot, so clone3() answers ENOSYS and libc falls back.
 * unshare() may give a thread its own umask and working directory (fs_cred.c), and nothing else.
 */
/*
 * libc: memory, threads, time, exit
 * syscalls: brk mmap munmap mremap mprotect madvise
 * syscalls: futex set_robust_list get_robust_list rseq set_tid_address sched_yield
 * syscalls: sched_getaffinity getcpu exit exit_group restart_syscall
 * syscalls: rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack gettid getpid tgkill
 * syscalls: clock_gettime clock_nanosleep nanosleep gettimeofday time getrandom
 * syscalls: read write writev close fcntl lseek fstat newfstatat prlimit64 getrlimit uname
 * syscalls: dup getuid geteuid getgid getegid sysinfo
 * GLib: thread pools, main loops, logging
 * syscalls: eventfd2 poll ppoll sched_getattr sched_setattr openat
 * liburcu
 * syscalls: membarrier
 */
#include "sandbox_priv.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <seccomp.h>

#include "sandbox_syscalls.h"
#include "util_sanitize.h"

static const int allowed[] = {
#define X(name) SCMP_SYS(name),
	SANDBOX_SYSCALLS(X)
#undef X
#ifdef UTIL_SANITIZED
	/* symbolizer, leak check at exit */
	SCMP_SYS(ptrace),
	SCMP_SYS(wait4),
	SCMP_SYS(prctl),
	SCMP_SYS(readlink),
	SCMP_SYS(clone),
	SCMP_SYS(pipe2),
	SCMP_SYS(getppid),
	SCMP_SYS(kill),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(open),
	SCMP_SYS(stat),
	SCMP_SYS(access),
	SCMP_SYS(arch_prctl),
	SCMP_SYS(getdents64),
	SCMP_SYS(unlink),
	SCMP_SYS(select),
	SCMP_SYS(pselect6),
	SCMP_SYS(socketpair),
	SCMP_SYS(fork),
	SCMP_SYS(dup2),
#endif
};

static void trapped(int sig, siginfo_t *info, void *ucontext)
{
	char line[96];
	int n = snprintf(line, sizeof(line), "daxmapd: seccomp: system call %d is not allowed\n",
			 info->si_syscall);

	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		_exit(128 + sig);
	_exit(128 + sig);
}

uint32_t sandbox_seccomp_action(enum sandbox_seccomp_mode mode)
{
	switch (mode) {
	case SANDBOX_SECCOMP_LOG:
		return SCMP_ACT_LOG;
	case SANDBOX_SECCOMP_TRAP:
		return SCMP_ACT_TRAP;
	default:
		return SCMP_ACT_KILL_PROCESS;
	}
}

static int add_rules(scmp_filter_ctx ctx)
{
	int err = 0;

	for (size_t i = 0; i < G_N_ELEMENTS(allowed) && !err; i++) {
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
		/* Not a call of this architecture, or there twice. */
		if (err == -EDOM || err == -EEXIST)
			err = 0;
	}
#ifndef UTIL_SANITIZED
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				       SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
#endif
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(unshare), 1,
				       SCMP_A0(SCMP_CMP_EQ, CLONE_FS));
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return err;
}

bool sandbox_seccomp(enum sandbox_seccomp_mode mode, GError **error)
{
	scmp_filter_ctx ctx;
	int err;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
		g_set_error(error, SANDBOX_ERROR, errno, "no_new_privs: %s", g_strerror(errno));
		return false;
	}
	if (mode == SANDBOX_SECCOMP_NONE)
		return true;
	if (mode == SANDBOX_SECCOMP_TRAP) {
		struct sigaction sa = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};

		sigaction(SIGSYS, &sa, NULL);
	}
	ctx = seccomp_init(sandbox_seccomp_action(mode));
	if (!ctx) {
		g_set_error(error, SANDBOX_ERROR, ENOMEM, "seccomp_init failed");
		return false;
	}
	err = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	if (!err)
		err = add_rules(ctx);
	if (!err)
		err = seccomp_load(ctx);
	seccomp_release(ctx);
	if (err) {
		g_set_error(
			error, SANDBOX_ERROR, -err,
			"--seccomp: installing the filter failed: %s; --seccomp=none does without",
			g_strerror(-err));
		return false;
	}
	return true;
}
