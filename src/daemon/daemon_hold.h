/* SPDX-License-Identifier: Apache-2.0 */
/* Holding truncations (src/hold) as the daemon uses it: when it is wanted. */
#ifndef DAXMAP_DAEMON_HOLD_H
#define DAXMAP_DAEMON_HOLD_H

#include "daemon_options.h"
#include "hold.h"

/**
 * daemon_hold_start() - as --dax-hold says; logs one line of what was chosen and why
 *
 * Before the sandbox and before any thread. *@hold is NULL where there is none: not wanted, no
 * window, or, under auto, not to be had. Return: false with @error where --dax-hold=on cannot be.
 */
bool daemon_hold_start(const struct daemon_config *c, struct hold **hold, GError **error);

#endif
