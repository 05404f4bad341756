// SPDX-License-Identifier: Apache-2.0
/*
 * The guard's cage: the capabilities that it takes to read /proc/PID/syscall of any process
 * (CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH as the file belongs to that process's user), and the
 * system calls that its code declares in comments of the form "hold-syscalls: name name", collected
 * at build time. Files are opened below /proc only, and for reading; no capability is left that
 * would write, mount, or reach into another process but by reading.
 */
#include "hold_internal.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>

#include "hold_syscalls.h"
#include "util_sanitize.h"

static const int allowed[] = {
#define HOLD_NR(name) SCMP_SYS(name),
	HOLD_SYSCALLS(HOLD_NR)
#undef HOLD_NR
#ifdef UTIL_SANITIZED
	/* the end of a thread, a report and its symbols */
	SCMP_SYS(mmap),
	SCMP_SYS(mprotect),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(open),
	SCMP_SYS(stat),
	SCMP_SYS(readlink),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(prlimit64),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(tgkill),
	SCMP_SYS(pipe2),
	SCMP_SYS(prctl),
#endif
};

int hold_jail_caps(void)
{
	capng_clear(CAPNG_SELECT_BOTH);
	if (capng_updatev(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_SYS_PTRACE,
			  CAP_DAC_READ_SEARCH, -1) < 0)
		return -EPERM;
	/* The bounding set needs CAP_SETPCAP, which may be missing; no_new_privs makes up for it.
	 */
	if (capng_apply(CAPNG_SELECT_BOTH) < 0 && capng_apply(CAPNG_SELECT_CAPS) < 0)
		return -EPERM;
	return 0;
}

/* Rules narrower than a system call's name. */
static int add_rule(scmp_filter_ctx ctx, int nr, int proc)
{
	if (nr == SCMP_SYS(openat))
		return seccomp_rule_add(
			ctx, SCMP_ACT_ALLOW, nr, 2,
			SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffff, (scmp_datum_t)proc),
			SCMP_A2(SCMP_CMP_MASKED_EQ, 0xffffffff, O_RDONLY | O_CLOEXEC));
	return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
}

int hold_jail_seccomp(int proc, enum hold_seccomp action)
{
	static const uint32_t actions[] = {
		[HOLD_SECCOMP_KILL] = SCMP_ACT_KILL_PROCESS,
		[HOLD_SECCOMP_LOG] = SCMP_ACT_LOG,
		[HOLD_SECCOMP_TRAP] = SCMP_ACT_TRAP,
	};
	scmp_filter_ctx ctx;
	int r;

	if (action == HOLD_SECCOMP_NONE)
		return 0;
	ctx = seccomp_init(actions[action]);
	if (!ctx)
		return -ENOMEM;
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	for (unsigned int i = 0; i < G_N_ELEMENTS(allowed) && r == 0; i++)
		r = add_rule(ctx, allowed[i], proc);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}
