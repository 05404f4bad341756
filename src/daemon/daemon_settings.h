/* SPDX-License-Identifier: Apache-2.0 */
/* What of the command line can change while the daemon serves, and why the rest cannot. */
#ifndef DAXMAP_DAEMON_SETTINGS_H
#define DAXMAP_DAEMON_SETTINGS_H

#include <json-glib/json-glib.h>

#include "daemon_device.h"

struct daemon_settings;

/** daemon_settings_new() - @given and @device are borrowed */
struct daemon_settings *daemon_settings_new(const struct daemon_config *given,
					    struct daemon_device *device);
void daemon_settings_free(struct daemon_settings *s);

/**
 * daemon_settings_set() - the control command "set": {"name": ..., "value": ...}
 *
 * Names and values are those of the command line, with or without the dashes in front; so are the
 * complaints. The answer is {"name", "old", "new"}; a change is logged. One thread (the control
 * thread) calls all of these.
 */
JsonNode *daemon_settings_set(struct daemon_settings *s, JsonObject *request, GError **error);

/** daemon_settings_list() - the control command "settings": an array of {"name", "value",
 * "allowed", "changeable", "why"}, the latter where it is not. */
JsonNode *daemon_settings_list(struct daemon_settings *s);

#endif
