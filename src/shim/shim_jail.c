// SPDX-License-Identifier: Apache-2.0
/*
 * The helper's cage: one capability, and the system calls that its code declares in comments of
 * the form "shim-syscalls: name name", collected at build time into shim_syscalls.h. ioctl is
 * for the two passthrough requests on /dev/fuse alone, and memory cannot be made executable.
 */
#include "shim_internal.h"

#include <sys/mman.h>

#include <cap-ng.h>

#include "sandbox_helper.h"
#include "shim_syscalls.h"
#include "util_sanitize.h"

static const int allowed[] = {
#define SHIM_NR(name) SCMP_SYS(name),
	HELPER_SYSCALLS(SHIM_NR)
#undef SHIM_NR
#ifdef UTIL_SANITIZED
		SCMP_SYS(write),
	SCMP_SYS(openat),
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(pipe),
	SCMP_SYS(mincore),
#endif
};

int shim_jail_caps(void)
{
	static const int kept[] = {CAP_SYS_ADMIN};

	return sandbox_helper_keep_caps(kept, G_N_ELEMENTS(kept));
}

static int add_ioctl(scmp_filter_ctx filter, int fuse)
{
	static const unsigned long requests[] = {SHIM_BACKING_OPEN, SHIM_BACKING_CLOSE};
	int err = 0;

	for (unsigned int i = 0; i < G_N_ELEMENTS(requests) && !err; i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 2,
				       SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)fuse),
				       SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, requests[i]));
	return err;
}

/* Some narrower than a system call's name. */
static int add_rule(scmp_filter_ctx filter, int nr, int fuse)
{
	if (nr == SCMP_SYS(ioctl))
		return add_ioctl(filter, fuse);
	if (nr == SCMP_SYS(mmap) || nr == SCMP_SYS(mprotect))
		return seccomp_rule_add(filter, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, nr, 0);
}

int shim_jail_seccomp(int fuse, enum sandbox_seccomp_mode mode)
{
	return sandbox_helper_seccomp(mode, allowed, G_N_ELEMENTS(allowed), add_rule, fuse);
}
