/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging goes through GLib (g_warning() and friends with a G_LOG_DOMAIN per library). What can
 * happen a million times is said once, then counted.
 */
#ifndef DAXMAP_UTIL_LOG_H
#define DAXMAP_UTIL_LOG_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

/** struct util_once - statically initialised to zero; lets one line through an interval. */
struct util_once {
	uint64_t next_ns;
	uint64_t dropped;
};

/**
 * util_log_allowed() - may this line be logged now?
 * @o: the line's own state
 * @dropped: how many were withheld since the last one that passed
 *
 * One line a minute passes. Any thread, no lock.
 */
bool util_log_allowed(struct util_once *o, uint64_t *dropped);

/** util_log_once() - a warning that at most once a minute reaches the log, with a count of the
 * others. @fmt must be a literal. */
#define util_log_once(fmt, ...)                                                                    \
	do {                                                                                       \
		static struct util_once once_;                                                     \
		uint64_t dropped_;                                                                 \
		if (util_log_allowed(&once_, &dropped_))                                           \
			g_warning(fmt " (%" G_GUINT64_FORMAT " more like this were not logged)",   \
				  ##__VA_ARGS__, dropped_);                                        \
	} while (0)

#endif
