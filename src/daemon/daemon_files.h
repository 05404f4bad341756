/* SPDX-License-Identifier: Apache-2.0 */
/* What the control command "files" answers. */
#ifndef DAXMAP_DAEMON_FILES_H
#define DAXMAP_DAEMON_FILES_H

#include <json-glib/json-glib.h>

#include "daemon_device.h"

#define DAEMON_FILES_MAX 1000

/**
 * daemon_files_json() - the files that have mapped ranges, those with the most mapped bytes first
 * @request: {"limit": N}: how many at most; DAEMON_FILES_MAX is the default and the limit
 *
 * {"total": how many there are, "files": [...]}. Any thread; nothing waits for it.
 */
JsonNode *daemon_files_json(const struct daemon_device *d, JsonObject *request);

#endif
