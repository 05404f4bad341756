/* SPDX-License-Identifier: Apache-2.0 */
/* The counters in Prometheus' text format. docs/metrics.md lists the names, which stay. */
#ifndef DAXMAP_DAEMON_METRICS_H
#define DAXMAP_DAEMON_METRICS_H

#include "daemon_device.h"

/**
 * daemon_metrics_text() - a snapshot
 * @proc_self_fd, @proc_task_fd: as for daemon_stats_json()
 *
 * Each family once: # HELP, # TYPE, its samples. Each sample has the labels tag and socket, which
 * tell the daemons of a host apart. Any thread. The caller frees it.
 */
char *daemon_metrics_text(const struct daemon_device *d, int proc_self_fd, int proc_task_fd);

/** daemon_metrics_label() - @text as it stands between the quotes of a label: valid UTF-8, with
 * backslash, quote and newline escaped. The caller frees it. */
char *daemon_metrics_label(const char *text);

#endif
