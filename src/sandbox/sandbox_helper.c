// SPDX-License-Identifier: Apache-2.0
#include "sandbox_helper.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cap-ng.h>

#include "sandbox_priv.h"
#include "util_sanitize.h"

#ifdef UTIL_SANITIZED
/* The end of a thread, a report and its symbols. */
static const int sanitizers[] = {
	SCMP_SYS(sigaltstack),	   SCMP_SYS(open),	   SCMP_SYS(stat),
	SCMP_SYS(readlink),	   SCMP_SYS(getpid),	   SCMP_SYS(gettid),
	SCMP_SYS(prlimit64),	   SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),	   SCMP_SYS(sched_getaffinity),
	SCMP_SYS(tgkill),	   SCMP_SYS(pipe2),	   SCMP_SYS(prctl),
};
#endif

int sandbox_helper_settle(const char *name)
{
	/* The terminal's signals are the daemon's to act on: we go when it has gone. */
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
	struct rlimit nofile;

	for (unsigned int i = 0; i < G_N_ELEMENTS(ignored); i++)
		signal(ignored[i], SIG_IGN);
	prctl(PR_SET_NAME, name);
	prctl(PR_SET_DUMPABLE, 0);
	if (getrlimit(RLIMIT_NOFILE, &nofile) == 0) {
		nofile.rlim_cur = nofile.rlim_max;
		setrlimit(RLIMIT_NOFILE, &nofile);
	}
	return chdir("/") < 0 ? -errno : 0;
}

void sandbox_helper_tie(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
}

int sandbox_helper_keep_caps(const int *caps, size_t n)
{
	capng_clear(CAPNG_SELECT_BOTH);
	for (size_t i = 0; i < n; i++)
		if (capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED,
				 (unsigned int)caps[i]) < 0)
			return -EPERM;
	/* The bounding set needs CAP_SETPCAP, which may be missing; no_new_privs makes up for it.
	 */
	if (capng_apply(CAPNG_SELECT_BOTH) < 0 && capng_apply(CAPNG_SELECT_CAPS) < 0)
		return -EPERM;
	return 0;
}

static int add_rules(scmp_filter_ctx filter, const int *allowed, size_t n,
		     sandbox_helper_rule *rule, int arg)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		err = rule(filter, allowed[i], arg);
#ifdef UTIL_SANITIZED
	for (size_t i = 0; i < G_N_ELEMENTS(sanitizers) && !err; i++)
		err = seccomp_rule_add(filter, SCMP_ACT_ALLOW, sanitizers[i], 0);
#endif
	return err;
}

int sandbox_helper_seccomp(enum sandbox_seccomp_mode mode, const int *allowed, size_t n,
			   sandbox_helper_rule *rule, int arg)
{
	scmp_filter_ctx filter;
	int err;

	if (mode == SANDBOX_SECCOMP_NONE)
		return 0;
	filter = seccomp_init(sandbox_seccomp_action(mode));
	if (!filter)
		return -ENOMEM;
	err = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
	if (!err)
		err = add_rules(filter, allowed, n, rule, arg);
	if (!err)
		err = seccomp_load(filter);
	seccomp_release(filter);
	return err;
}
