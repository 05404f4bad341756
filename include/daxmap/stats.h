/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of a table. One list is the source of the structure, of the names and of the JSON. */
#ifndef DAXMAP_STATS_H
#define DAXMAP_STATS_H

#include <stdint.h>

/*
 * X(name, kind, help). kind: C = counter (only grows), G = gauge.
 * The balance, whenever nothing is under way:
 *   removed_ranges = elided_revived + elided_overlaid + elided_cancelled
 *                    + deferred_unmaps + asked_unmaps + dropped + lingering
 * A given-back range that is cut counts as so many; a live one that a setup replaces, a flush
 * takes or a session's end drops counts as given back first.
 */
/* clang-format off */
#define DM_STATS(X) \
	X(setups, C, "setup requests asked of the table") \
	X(removes, C, "remove requests asked of the table") \
	X(removed_ranges, C, "ranges that removes gave back") \
	X(maps, C, "map operations that the driver performed") \
	X(unmaps, C, "unmap operations that the driver performed") \
	X(map_errors, C, "map operations that the driver refused") \
	X(unmap_errors, C, "unmap operations that the driver refused") \
	X(elided_revived, C, "setups answered by reviving a lingering range") \
	X(elided_overlaid, C, "lingering ranges replaced by a map over them") \
	X(elided_cancelled, C, "unmaps withdrawn before they were sent") \
	X(upgraded, C, "setups that asked for writing on a range already mapped so") \
	X(repeated, C, "setups of bytes that were live already") \
	X(batches, C, "submit calls to the driver") \
	X(batched_ops, C, "operations in those calls") \
	X(coalesced, C, "operations saved by joining neighbours") \
	X(refused_budget, C, "setups refused: budget used up by live ranges") \
	X(refused_driver, C, "setups refused by the driver") \
	X(refused_bad, C, "setups or removes with impossible arguments") \
	X(pins, C, "pins taken") \
	X(waits, C, "times an asker slept on a range in transition") \
	X(wait_ns, C, "nanoseconds slept there") \
	X(map_ns, C, "nanoseconds from submit to usable, summed over map operations") \
	X(reclaim_passes, C, "passes of the reclaim worker") \
	X(reclaimed, C, "ranges unmapped by the reclaim worker") \
	X(reclaim_skipped, C, "ranges in use that reclaim passed over") \
	X(reclaim_inline, C, "ranges reclaimed by an asker itself; among the asked_unmaps") \
	X(deferred_unmaps, C, "unmaps done by the worker for ranges given back") \
	X(asked_unmaps, C, "ranges given back that a request unmapped itself") \
	X(dropped, C, "ranges given back that went with their session") \
	X(blanked, C, "live ranges replaced by zeros: their file had become shorter") \
	X(unblanked, C, "of those, replaced by the file again: it had grown") \
	X(blank_errors, C, "replacements that failed") \
	X(hits, C, "gets answered without a map (guest seat)") \
	X(misses, C, "gets that had to map (guest seat)") \
	X(live, G, "ranges mapped and owned") \
	X(lingering, G, "ranges mapped and given back, those on their way out included") \
	X(mapped, G, "ranges that the driver has mapped") \
	X(mapped_peak, G, "most ranges ever mapped at once") \
	X(mapped_bytes, G, "bytes that the driver has mapped") \
	X(files_open, G, "files held open because they have mapped ranges")
/* clang-format on */

#define DM_HIST_BUCKETS 32

/** struct dm_stats - a snapshot; each number is read once, not all at one instant */
struct dm_stats {
#define X(name, kind, help) uint64_t name;
	DM_STATS(X)
#undef X
	uint64_t map_latency[DM_HIST_BUCKETS]; /* bucket i: 2^i <= ns < 2^(i+1) */
};

/** dm_stats_accounted() - ranges given back of which it is known what became; removed_ranges
 * whenever nothing is under way. */
static inline uint64_t dm_stats_accounted(const struct dm_stats *s)
{
	return s->elided_revived + s->elided_overlaid + s->elided_cancelled + s->deferred_unmaps +
	       s->asked_unmaps + s->dropped + s->lingering;
}

#endif
