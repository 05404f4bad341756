// SPDX-License-Identifier: Apache-2.0
#include "daemon_hold.h"

#include <fcntl.h>
#include <gio/gio.h>

#include "daemon_window.h"
#include "util_fd.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "hold"

bool daemon_hold_start(const struct daemon_config *c, struct hold **hold, GError **error)
{
	util_autofd share = open(c->shared_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct hold_config config = {
		.share_fd = share,
		.seccomp = (enum sandbox_seccomp_mode)c->seccomp,
	};
	g_autofree char *why = NULL;

	*hold = NULL;
	if (!daemon_window_offered(c)) /* what is never mapped needs no holding */
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
