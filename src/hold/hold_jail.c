// SPDX-License-Identifier: Apache-2.0
/*
 * The guard's cage: the capabilities that it takes to read /proc/PID/syscall of any process
 * (CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH as the file belongs to that process's user), and the
 * system calls that its code declares in comments of the form "hold-syscalls: name name", collected
 * at build time. Files are opened below /proc only, and for reading; no capability is left that
 * would write, mount, or reach into another process but by reading.
 */
#include "hold_internal.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cap-ng.h>

#include "hold_syscalls.h"
#include "sandbox_helper.h"
#include "util_sanitize.h"

static const int allowed[] = {
#define HOLD_NR(name) SCMP_SYS(name),
	HELPER_SYSCALLS(HOLD_NR)
#undef HOLD_NR
#ifdef UTIL_SANITIZED
		SCMP_SYS(mmap),
	SCMP_SYS(mprotect),
#endif
};

int hold_jail_caps(void)
{
	static const int kept[] = {CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH};

	return sandbox_helper_keep_caps(kept, G_N_ELEMENTS(kept));
}

/* Some narrower than a system call's name. */
static int add_rule(scmp_filter_ctx filter, int nr, int proc)
{
	if (nr == SCMP_SYS(openat))
		return seccomp_rule_add(
			filter, SCMP_ACT_ALLOW, nr, 2,
			SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffff, (scmp_datum_t)proc),
			SCMP_A2(SCMP_CMP_MASKED_EQ, 0xffffffff, O_RDONLY | O_CLOEXEC));
	return seccomp_rule_add(filter, SCMP_ACT_ALLOW, nr, 0);
}

int hold_jail_seccomp(int proc, enum sandbox_seccomp_mode mode)
{
	return sandbox_helper_seccomp(mode, allowed, G_N_ELEMENTS(allowed), add_rule, proc);
}
