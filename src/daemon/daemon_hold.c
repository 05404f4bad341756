// SPDX-License-Identifier: Apache-2.0
#include "daemon_hold.h"

#include <fcntl.h>
#include <gio/gio.h>

#include "util_fd.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "hold"

/* Truncations of what is never mapped need no holding. */
static bool has_window(const struct daemon_config *c)
{
	return c->cache_size && (!c->readonly || c->dialect == DAEMON_DIALECT_FS_MAP);
}

bool daemon_hold_start(const struct daemon_config *c, struct hold **hold, GError **error)
{
	util_autofd share = open(c->shared_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct hold_config config = {
		.share_fd = share,
		.seccomp = (enum hold_seccomp)c->seccomp,
	};
	g_autofree char *why = NULL;

	G_STATIC_ASSERT((int)HOLD_SECCOMP_LOG == (int)SANDBOX_SECCOMP_LOG &&
			(int)HOLD_SECCOMP_TRAP == (int)SANDBOX_SECCOMP_TRAP &&
			(int)HOLD_SECCOMP_NONE == (int)SANDBOX_SECCOMP_NONE);
	*hold = NULL;
	if (!has_window(c))
		return true;
	if (c->dax_hold == HOLD_OFF)
		why = g_strdup("as asked");
	else
		*hold = hold_start(&config, &why);
	if (*hold)
		g_message("truncations of mapped files on the host: held until the VMM shows zeros "
			  "there (for %u ms at most)",
			  HOLD_BOUND_MS);
	else if (c->dax_hold == HOLD_ON)
		g_set_error(error, G_IO_ERROR, G_IO_ERROR_NOT_SUPPORTED, "--dax-hold=on: %s", why);
	else
		g_message("truncations of mapped files on the host: noticed afterwards only (%s)",
			  why);
	return *hold || c->dax_hold != HOLD_ON;
}
