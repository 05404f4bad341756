/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon's counters were at a moment, and what they did since the one before. */
#ifndef DAXMAP_CTL_SAMPLE_H
#define DAXMAP_CTL_SAMPLE_H

#include <glib.h>

#include "ctl_client.h"

#define CTL_HIST_BUCKETS 32

/* X(field, object of the stats, name there) */
/* clang-format off */
#define CTL_SAMPLE(X) \
	X(setups, "table", "setups") \
	X(revived, "table", "elided_revived") \
	X(removed, "table", "removed_ranges") \
	X(maps, "table", "maps") \
	X(unmaps, "table", "unmaps") \
	X(map_errors, "table", "map_errors") \
	X(map_ns, "table", "map_ns") \
	X(waits, "table", "waits") \
	X(refused_budget, "table", "refused_budget") \
	X(refused_driver, "table", "refused_driver") \
	X(live, "table", "live") \
	X(lingering, "table", "lingering") \
	X(mapped, "table", "mapped") \
	X(mapped_peak, "table", "mapped_peak") \
	X(mapped_bytes, "table", "mapped_bytes") \
	X(refaults, "policy", "refaults") \
	X(thrash_files, "policy", "thrash_files") \
	X(window_size, "session", "window_size") \
	X(max_mappings, "session", "max_mappings")
/* clang-format on */

/**
 * struct ctl_sample - the daemon at a moment
 * @at_us: g_get_monotonic_time()
 * @uptime_s: of the daemon
 * @reads, @writes, @requests: FUSE requests
 * @files: what the command "files" answered; owned, NULL: none
 */
struct ctl_sample {
	gint64 at_us;
	double uptime_s;
	char *version;
	char *tag;
	gboolean connected;
	gboolean running;
	gboolean broken;
#define X(field, object, name) guint64 field;
	CTL_SAMPLE(X)
#undef X
	guint64 reads;
	guint64 writes;
	guint64 requests;
	guint64 map_latency[CTL_HIST_BUCKETS];
	guint64 total_files;
	JsonNode *files;
};

/** ctl_sample_take() - asks the daemon; NULL with @error. */
struct ctl_sample *ctl_sample_take(struct ctl_client *c, GError **error);
void ctl_sample_free(struct ctl_sample *s);

/** ctl_rate() - a second, of a counter that went from @before to @now in @seconds; one that went
 * back was begun anew. */
double ctl_rate(guint64 now, guint64 before, double seconds);

/** ctl_percentile() - nanoseconds that @percent of the maps took at most, within a bucket by
 * interpolation; -1: there were none. Of those since @before (NULL: of all). */
double ctl_percentile(const guint64 now[CTL_HIST_BUCKETS], const guint64 *before, double percent);

#endif
