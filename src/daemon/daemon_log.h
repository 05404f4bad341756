/* SPDX-License-Identifier: Apache-2.0 */
/* Where g_message() and friends go. */
#ifndef DAXMAP_DAEMON_LOG_H
#define DAXMAP_DAEMON_LOG_H

#include <stdbool.h>

enum daemon_log_level {
	DAEMON_LOG_ERROR,
	DAEMON_LOG_WARN,
	DAEMON_LOG_INFO,
	DAEMON_LOG_DEBUG,
};

/**
 * daemon_log_start() - takes GLib's log over
 * @level: what is less important is dropped
 * @to_syslog: /dev/log instead of stderr; the socket is opened here, before the sandbox closes.
 *             What the system log does not take goes to stderr.
 */
void daemon_log_start(enum daemon_log_level level, bool to_syslog);

/** daemon_log_set_level() - any thread, any time. */
void daemon_log_set_level(enum daemon_log_level level);

#endif
