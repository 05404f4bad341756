// SPDX-License-Identifier: Apache-2.0
#include "daemon_shim.h"

#include <fcntl.h>

#include "util_fd.h"
#include "util_log.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "shim"

static void helper_died(void *ctx)
{
	g_warning(
		"the DAX size shim's helper has died: what is mapped stays mapped, but only files "
		"whose size is a multiple of 2M are mapped from now on");
}

/* Why none is needed; NULL: it is. */
static const char *not_needed(const struct daemon_config *c)
{
	if (!c->cache_size)
		return "no DAX window";
	if (c->dialect == DAEMON_DIALECT_FS_MAP)
		return "the fs_map dialect maps beyond the end of a file";
	if (c->readonly)
		return "no DAX window on a read-only share";
	return NULL;
}

bool daemon_shim_start(const struct daemon_config *c, struct shim **shim, GError **error)
{
	util_autofd share = open(c->shared_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct shim_config config = {
		.share_fd = share,
		.seccomp = (enum sandbox_seccomp_mode)c->seccomp,
		.died = helper_died,
	};
	const char *why = not_needed(c);
	g_autofree char *line = NULL;
	GError *failed = NULL;

	*shim = NULL;
	if (why) {
		g_debug("DAX size shim: off (%s)", why);
		return true;
	}
	*shim = shim_choose((enum shim_want)c->dax_shim, &config, &line, &failed);
	if (failed) {
		g_propagate_error(error, failed);
		return false;
	}
	if (*shim)
		g_message("%s", line);
	else
		g_message("%s: only files whose size is a multiple of 2M are mapped", line);
	return true;
}

int daemon_shim_wrap(struct shim *shim, struct dm_file_key key, int real, bool writable)
{
	int fd;

	if (!shim || !shim_alive(shim))
		return real;
	fd = shim_open(shim, real, key.hi, key.lo, writable);
	if (fd < 0) {
		util_log_once("a file is mapped without the DAX size shim: %s", g_strerror(-fd));
		return real;
	}
	util_close(&real);
	return fd;
}

bool daemon_shim_any_size(const struct shim *shim)
{
	return shim && shim_alive(shim);
}
