// SPDX-License-Identifier: Apache-2.0
/*
 * The helper's cage: one capability, and the system calls that its code declares in comments of
 * the form "shim-syscalls: name name", collected at build time into shim_syscalls.h. ioctl is
 * for the two passthrough requests on /dev/fuse alone, and memory cannot be made executable.
 */
#include "shim_internal.h"

#include <cap-ng.h>
#include <errno.h>
#include <seccomp.h>
#include <sys/mman.h>

#include "shim_syscalls.h"
#include "util_sanitize.h"

static const int allowed[] = {
#define SHIM_NR(name) SCMP_SYS(name),
	SHIM_SYSCALLS(SHIM_NR)
#undef SHIM_NR
#ifdef UTIL_SANITIZED
	/* the end of a thread, a report and its symbols */
	SCMP_SYS(sigaltstack),
	SCMP_SYS(write),
	SCMP_SYS(open),
	SCMP_SYS(openat),
	SCMP_SYS(stat),
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(readlink),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(prlimit64),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(tgkill),
	SCMP_SYS(pipe),
	SCMP_SYS(pipe2),
	SCMP_SYS(mincore),
	SCMP_SYS(prctl),
#endif
};

int shim_jail_caps(void)
{
	capng_clear(CAPNG_SELECT_BOTH);
	if (capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, CAP_SYS_ADMIN) < 0)
		return -EPERM;
	/* The bounding set needs CAP_SETPCAP, which may be missing; no_new_privs makes up for it.
	 */
	if (capng_apply(CAPNG_SELECT_BOTH) < 0 && capng_apply(CAPNG_SELECT_CAPS) < 0)
		return -EPERM;
	return 0;
}

/* Rules narrower than a system call's name. */
static int add_narrow(scmp_filter_ctx ctx, int nr, int fuse)
{
	static const unsigned long requests[] = {SHIM_BACKING_OPEN, SHIM_BACKING_CLOSE};
	int r = 0;

	if (nr == SCMP_SYS(mmap) || nr == SCMP_SYS(mprotect))
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	for (unsigned int i = 0; i < G_N_ELEMENTS(requests) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 2,
				     SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)fuse),
				     SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, requests[i]));
	return r;
}

static int add_rules(scmp_filter_ctx ctx, int fuse)
{
	int r = 0;

	for (unsigned int i = 0; i < G_N_ELEMENTS(allowed) && r == 0; i++) {
		int nr = allowed[i];

		if (nr == SCMP_SYS(mmap) || nr == SCMP_SYS(mprotect) || nr == SCMP_SYS(ioctl))
			r = add_narrow(ctx, nr, fuse);
		else
			r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
	}
	return r;
}

int shim_jail_seccomp(int fuse, enum shim_seccomp action)
{
	static const uint32_t actions[] = {
		[SHIM_SECCOMP_KILL] = SCMP_ACT_KILL_PROCESS,
		[SHIM_SECCOMP_LOG] = SCMP_ACT_LOG,
		[SHIM_SECCOMP_TRAP] = SCMP_ACT_TRAP,
	};
	scmp_filter_ctx ctx;
	int r;

	if (action == SHIM_SECCOMP_NONE)
		return 0;
	ctx = seccomp_init(actions[action]);
	if (!ctx)
		return -ENOMEM;
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = add_rules(ctx, fuse);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}
