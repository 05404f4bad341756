/* SPDX-License-Identifier: Apache-2.0 */
/* The size shim as the daemon uses it: when it is wanted, and what goes through it. */
#ifndef DAXMAP_DAEMON_SHIM_H
#define DAXMAP_DAEMON_SHIM_H

#include <daxmap/file.h>

#include "daemon_options.h"
#include "shim.h"

/**
 * daemon_shim_start() - as --dax-shim says; logs one line of what was chosen and why
 *
 * Before the sandbox and before any thread. *@shim is NULL where there is none: not wanted, no
 * window, a dialect that needs none, or, under auto, not to be had. Return: false with @error
 * where --dax-shim=on cannot be.
 */
bool daemon_shim_start(const struct daemon_config *c, struct shim **shim, GError **error);

/**
 * daemon_shim_wrap() - the descriptor to map instead of @real
 * @shim: may be NULL: @real is returned
 * @key: of the file
 * @real: taken over
 * @writable: is @real read-write? If not, the result can be mapped, but what is stored there stays
 *            there (docs/shim.md)
 *
 * A file that the shim cannot serve comes back as it is: it maps as far as the VMM lets it.
 * Any thread; blocks for a round trip to the helper.
 */
int daemon_shim_wrap(struct shim *shim, struct dm_file_key key, int real, bool writable);

/** daemon_shim_any_size() - can files of any size be mapped? False once the helper has died. */
bool daemon_shim_any_size(const struct shim *shim);

#endif
