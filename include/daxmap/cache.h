/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table in the guest's seat: whoever uses the window itself asks for bytes of a file and
 * gets a pointer; the table picks the slot, keeps what is warm, and reclaims what is idle.
 * Each slot is slot_size bytes of the window.
 *
 * Threads: any. RCU: not inside a read section; no registration.
 */
#ifndef DAXMAP_CACHE_H
#define DAXMAP_CACHE_H

#include <daxmap/table.h>
#include <daxmap/trace.h>

struct dm_cache;

/**
 * struct dm_cache_config - zero means the default
 * @slot_size: bytes, a power of two >= the driver's granule; 2 MiB
 * @free_low: percent of slots free below which the worker reclaims, where victims are unmapped
 *            ahead; default: as many whole ones as make a slot in ten, at most 4 slots
 * @free_high: percent up to which it does; default: as make twice that, at least 3 slots
 * @remove_early: 1: unmap victims ahead of reuse, batched; -1: map over them; 0: measure both
 *                and take the cheaper. A driver that does not overlay leaves no choice.
 * @wait_ms: how long a get waits for a slot when all are pinned, before -EBUSY; 1000
 * @fifo: victims first-in first-out instead of clock
 * @no_worker: reclaim only inline
 * @vanilla: the published baseline for comparison: per-file lock held by readers against
 *           reclaim, one unmap before each map, one at a time
 */
struct dm_cache_config {
	uint64_t slot_size;
	uint32_t free_low;
	uint32_t free_high;
	int remove_early;
	uint32_t wait_ms;
	bool fifo;
	bool no_worker;
	bool vanilla;
};

/**
 * struct dm_ref - what a get returns
 * @addr: the bytes asked for; NULL where the driver has no base address
 * @len: how many of them are there; may be less than asked (never crosses a slot)
 * @range: the table's own
 */
struct dm_ref {
	void *addr;
	uint64_t len;
	void *range;
};

/**
 * dm_cache_new() - as dm_table_new()
 *
 * There are as many slots as the window has room for and the driver mappings. NULL when the slot
 * size is not a power of two, not a multiple of the granule, or larger than the window.
 */
struct dm_cache *dm_cache_new(struct dm_window *window, const struct dm_file_provider *provider,
			      const struct dm_cache_config *config);
/** dm_cache_free() - no ref may be out, no call under way. Unmaps what is mapped unless the session
 * has ended. */
void dm_cache_free(struct dm_cache *c);

/**
 * dm_cache_get() - pins @len bytes of @file at @offset
 *
 * A hit takes no lock. A miss maps the slot around @offset and blocks while the driver works; who
 * misses the same slot meanwhile waits for that one map. A file is mapped read-write wherever its
 * provider opened it so, whatever the first get wanted. Who holds refs and gets more than there
 * are slots waits for itself, and gets -EBUSY.
 *
 * Returns 0, -EINVAL (no byte, or beyond the largest file), -EBUSY (all slots pinned for wait_ms),
 * -EPIPE (session ended, or the channel broke), -EACCES (write to a file that only opens
 * read-only), or what provider or driver said.
 */
int dm_cache_get(struct dm_cache *c, struct dm_file_key file, uint64_t offset, uint64_t len,
		 bool write, struct dm_ref *ref);
/** dm_cache_try_get() - as get, but -EAGAIN instead of mapping; takes no lock. */
int dm_cache_try_get(struct dm_cache *c, struct dm_file_key file, uint64_t offset, uint64_t len,
		     bool write, struct dm_ref *ref);
/** dm_cache_put() - lets go; any thread. Also after the session has ended. */
void dm_cache_put(struct dm_cache *c, struct dm_ref *ref);

/** dm_cache_flush_file() - drops every idle range of @file; -EBUSY when some were pinned. What is
 * got meanwhile may be mapped anew. */
int dm_cache_flush_file(struct dm_cache *c, struct dm_file_key file);
/**
 * dm_cache_forget() - the session has ended: forgets every range without a word to the driver
 *
 * Waits for driver calls under way, not for refs: their slots stay out of use until the put, so
 * the table puts no other bytes there. All gets answer -EPIPE until dm_cache_renew(). Also to be
 * called when a get said that the channel broke.
 */
void dm_cache_forget(struct dm_cache *c);
/** dm_cache_renew() - a new session has begun, with nothing mapped: gets work again. Forgets
 * first. */
void dm_cache_renew(struct dm_cache *c);
void dm_cache_stats(struct dm_cache *c, struct dm_stats *out);
/** dm_cache_set_trace() - as dm_table_set_trace(). */
void dm_cache_set_trace(struct dm_cache *c, const struct dm_trace *trace);

#endif
