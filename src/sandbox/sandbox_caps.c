// SPDX-License-Identifier: Apache-2.0
/*
 * Capabilities that a file server for a guest's root needs: to act on files of any owner and to
 * create as any user. CAP_DAC_READ_SEARCH is not among them: with open_by_handle_at() it reaches
 * out of a chroot, and CAP_DAC_OVERRIDE gives the rest. Of the list, those that we have are kept;
 * no error where some are missing: an ordinary user serves his own files.
 */
#include "sandbox.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include <cap-ng.h>

static const int kept[] = {
	CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID,
	CAP_SETGID, CAP_SETUID,	      CAP_MKNOD,  CAP_SETFCAP,
};

typedef void (*modcap_fn)(int cap, bool add, void *ctx);

static bool each_modcap(const char *modcaps, modcap_fn fn, void *ctx, GError **error)
{
	g_auto(GStrv) parts = NULL;

	if (!modcaps)
		return true;
	parts = g_strsplit(modcaps, ":", -1);
	for (char **p = parts; *p; p++) {
		const char *name = *p + 1;
		int cap;

		if (**p != '+' && **p != '-') {
			g_set_error(error, SANDBOX_ERROR, EINVAL,
				    "\"%s\" must begin with + or - (as in +sys_admin:-mknod)", *p);
			return false;
		}
		if (g_ascii_strncasecmp(name, "cap_", 4) == 0)
			name += 4;
		cap = capng_name_to_capability(name);
		if (cap < 0) {
			g_set_error(error, SANDBOX_ERROR, EINVAL,
				    "\"%s\" is not the name of a capability", name);
			return false;
		}
		if (fn)
			fn(cap, **p == '+', ctx);
	}
	return true;
}

bool sandbox_modcaps_valid(const char *modcaps, GError **error)
{
	return each_modcap(modcaps, NULL, NULL, error);
}

static void set_wanted(int cap, bool add, void *ctx)
{
	uint64_t *wanted = ctx;

	if (add)
		*wanted |= 1ull << cap;
	else
		*wanted &= ~(1ull << cap);
}

bool sandbox_drop_caps(const char *modcaps, GError **error)
{
	uint64_t wanted = 0, have = 0;
	bool setpcap;
	int err;

	for (size_t i = 0; i < G_N_ELEMENTS(kept); i++)
		set_wanted(kept[i], true, &wanted);
	if (!each_modcap(modcaps, set_wanted, &wanted, error))
		return false;
	if (capng_get_caps_process() < 0) {
		g_set_error(error, SANDBOX_ERROR, errno, "reading our capabilities failed");
		return false;
	}
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		if (capng_have_capability(CAPNG_PERMITTED, (unsigned int)cap) == 1)
			have |= 1ull << cap;
	setpcap = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) == 1;
	capng_clear(setpcap ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS);
	for (int cap = 0; cap <= CAP_LAST_CAP; cap++)
		if (wanted & have & (1ull << cap))
			capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED,
				     (unsigned int)cap);
	err = capng_apply(setpcap ? CAPNG_SELECT_BOTH : CAPNG_SELECT_CAPS);
	if (err < 0) {
		g_set_error(error, SANDBOX_ERROR, errno, "dropping capabilities failed (%d): %s",
			    err, g_strerror(errno));
		return false;
	}
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return true;
}
