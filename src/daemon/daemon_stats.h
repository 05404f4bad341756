/* SPDX-License-Identifier: Apache-2.0 */
/* What the control command "stats" answers. */
#ifndef DAXMAP_DAEMON_STATS_H
#define DAXMAP_DAEMON_STATS_H

#include <json-glib/json-glib.h>

#include "daemon_device.h"

/**
 * daemon_stats_json() - a snapshot as a JSON object
 * @proc_self_fd, @proc_task_fd: where descriptors and threads are counted; -1 = not counted
 * @mappings: list every mapped range, too
 *
 * Any thread.
 */
JsonNode *daemon_stats_json(const struct daemon_device *d, int proc_self_fd, int proc_task_fd,
			    bool mappings);

/**
 * daemon_stats_entries() - how many names a directory of /proc has
 * @own: not counted: what the counting itself takes
 */
uint64_t daemon_stats_entries(int dirfd, unsigned int own);

#endif
