/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of dmap ranges, host seat: the window's user (a guest) picks the offsets, asks for
 * maps and gives them back; the table decides what the driver is asked, and when.
 *
 * Threads: every function may be called from any thread at any time unless it says otherwise.
 * RCU: no function may be called inside an RCU read section of liburcu-bp; callers need not
 * register. Errors: a negative errno; nothing is half done.
 */
#ifndef DAXMAP_TABLE_H
#define DAXMAP_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <daxmap/file.h>
#include <daxmap/stats.h>
#include <daxmap/window.h>

struct dm_table;

/** enum dm_manager - how much the table does */
enum dm_manager {
	DM_MANAGER_FULL,    /* linger, elide, batch, reclaim in the background */
	DM_MANAGER_FORWARD, /* one driver call per request, waiting for each: for comparison */
};

/** enum dm_policy - how reclaim picks its victims */
enum dm_policy {
	DM_POLICY_FIFO,	 /* longest lingering first: the order in which Linux reuses slots */
	DM_POLICY_CLOCK, /* second chance */
};

/**
 * struct dm_table_config - how a table behaves; zero means the default
 * @manager: full or forward
 * @policy: victim choice
 * @max_mappings: budget of live driver mappings; 0 = the driver's own limit
 * @high_watermark: percent of the budget (or of the window) above which the worker drains;
 *                  DM_HIGH_WATERMARK
 * @low_watermark: percent down to which it drains; DM_LOW_WATERMARK
 * @linger_ms: age at which a lingering range is drained all the same; 0 = default
 * @no_worker: no background thread; the asker reclaims
 */
struct dm_table_config {
	enum dm_manager manager;
	enum dm_policy policy;
	uint32_t max_mappings;
	uint32_t high_watermark;
	uint32_t low_watermark;
	uint32_t linger_ms;
	bool no_worker;
};

#define DM_HIGH_WATERMARK 80
#define DM_LOW_WATERMARK 60

/**
 * dm_table_new() - makes a table over @window
 * @window: borrowed; must outlive the table
 * @provider: copied; its ctx must outlive the table
 * @config: copied; NULL = all defaults
 *
 * Returns the table; out of memory aborts (GLib).
 */
struct dm_table *dm_table_new(struct dm_window *window, const struct dm_file_provider *provider,
			      const struct dm_table_config *config);

/**
 * dm_table_tune() - changes policy, watermarks and linger_ms of a table in use
 * @config: of which only those count; zero means the default, as in dm_table_new()
 *
 * Good for every decision that begins after it returns.
 */
void dm_table_tune(struct dm_table *t, const struct dm_table_config *config);

/** dm_table_free() - stops the worker and frees everything. No call may be under way. Mappings
 * are not undone: dm_host_flush() first where they should be. */
void dm_table_free(struct dm_table *t);

/**
 * dm_host_setup() - the guest asks for a mapping
 * @t: the table
 * @offset: in the window, bytes, aligned to the granule
 * @len: bytes, aligned, not 0
 * @file: key; opened through the provider if no range of it is mapped yet
 * @file_offset: bytes, aligned
 * @write: the guest wants to write through it
 *
 * On return 0 the guest may use every byte of it. Legal over ranges that the table thinks
 * mapped: the same bytes of the same file are answered at once (also the upgrade to write, as
 * ranges are mapped read-write wherever the file allows it); anything else replaces them.
 * Blocks while the driver works.
 *
 * Returns 0, -EINVAL (unaligned, empty), -ERANGE (outside the window, or the sum overflows),
 * -ENOMEM (budget used up by live ranges), -EACCES (write to a file that only opens read-only),
 * -EBUSY (a pinned range is in the way), -EPIPE (session broken), or what the provider or the
 * driver said.
 */
int dm_host_setup(struct dm_table *t, uint64_t offset, uint64_t len, struct dm_file_key file,
		  uint64_t file_offset, bool write);

/**
 * dm_host_remove() - the guest gives [offset, offset + len) back
 *
 * Ranges partly inside are cut where the driver can split. Removing nothing is fine. @len may
 * reach beyond the window (UINT64_MAX: all of it). A range with pins lingers once the last pin
 * is dropped. Does not wait for the driver unless the manager is FORWARD, or a setup under way
 * next to these bytes works on the very range that they belong to.
 * Returns 0, -EINVAL, -EPIPE.
 */
int dm_host_remove(struct dm_table *t, uint64_t offset, uint64_t len);

/**
 * dm_host_flush_file() - unmaps the lingering ranges of @file, or, with @live, all of them
 *
 * For unlink + forget (@live false) and for the end of an owner (@live true). Returns when the
 * driver has done it, or with -EBUSY if a pin has lasted for two seconds meanwhile.
 */
int dm_host_flush_file(struct dm_table *t, struct dm_file_key file, bool live);

/** dm_host_flush() - unmaps everything, waits for it, and leaves an empty table (FUSE_DESTROY,
 * a repeated FUSE_INIT). Waits two seconds for pins; what is pinned then lingers, and the answer is
 * -EBUSY. */
int dm_host_flush(struct dm_table *t);

/** dm_host_forget() - drops every range without a word to the driver: the VMM has dropped them
 * itself (device reset), or the session is gone. Also ends the broken state. Waits for driver calls
 * under way to return, and two seconds for pins: one that lasts longer (an I/O stuck in the host's
 * disk) keeps its file open until the unpin, and nothing else. */
void dm_host_forget(struct dm_table *t);

/** dm_host_broken() - has the driver's channel broken, so that every call answers -EPIPE? */
bool dm_host_broken(struct dm_table *t);

/**
 * struct dm_fitted - what dm_host_fit() did, in ranges
 * @blanked: were replaced by zeros
 * @restored: are the file's again
 * @left: reach behind the end and could not be replaced
 * @torn: of @blanked and @holes: what the file keeps of them was away for a moment
 * @failed: should be the file's again and are not
 * @holes: of @left and @failed: the driver lost them half-way; the owner has nothing there
 * @blank_from: where in the file the first blank range begins; UINT64_MAX: there is none
 * @err: the first error
 */
struct dm_fitted {
	uint32_t blanked;
	uint32_t restored;
	uint32_t left;
	uint32_t torn;
	uint32_t failed;
	uint32_t holes;
	uint64_t blank_from;
	int err;
};

/**
 * enum dm_fit_flags - for dm_host_fit()
 * @DM_FIT_BLANK: replace by zeros what lies behind the end, whole pages only
 * @DM_FIT_TEAR: also where the end lies inside of a range that the driver cannot split, and that
 *               no setup has asked to write: its bytes in front of the end, too, read as zeros for
 *               a moment. (A blank range is taken apart so in any case: there is nothing to lose)
 */
enum dm_fit_flags {
	DM_FIT_BLANK = 1u << 0,
	DM_FIT_TEAR = 1u << 1,
};

/**
 * dm_host_fit() - the file is @size bytes long now: makes its live mappings fit
 * @how: enum dm_fit_flags
 * @out: what was done
 *
 * A blank range that has bytes of the file again becomes the file's in any case. A range is never
 * taken from its owner (but for DM_FIT_TEAR, a moment long); while one is being replaced, a pin of
 * it finds nothing. Waits for the driver, and for pins as long as a setup does. Calls for one file
 * must not overlap. Returns 0, -EPIPE, or out->err.
 */
int dm_host_fit(struct dm_table *t, struct dm_file_key file, uint64_t size, unsigned int how,
		struct dm_fitted *out);

/**
 * struct dm_pin - holds one mapped range for an I/O into it
 * @fd: the file, borrowed until the unpin; read-write where @writable
 * @writable: may it be written?
 * @file_offset: byte in the file where the pinned bytes start
 * @len: bytes pinned from the asked offset on; may be less than asked (end of the range)
 * @addr: where the bytes are in this process, or NULL
 * @range: the table's own
 */
struct dm_pin {
	int fd;
	bool writable;
	uint64_t file_offset;
	uint64_t len;
	void *addr;
	void *range;
};

/**
 * dm_host_pin() - pins the live range at @offset of the window
 *
 * While pinned it is not unmapped, overlaid or handed out. Takes no lock; does not block.
 * Returns 0, -EFAULT (nothing live there).
 */
int dm_host_pin(struct dm_table *t, uint64_t offset, uint64_t len, struct dm_pin *pin);
void dm_host_unpin(struct dm_table *t, struct dm_pin *pin);

/** dm_table_stats() - fills @out. Cheap, takes no lock that a request waits for. */
void dm_table_stats(struct dm_table *t, struct dm_stats *out);

/** struct dm_range_info - one range as dm_table_foreach() shows it; @blank: it shows zeros in place
 * of the file (dm_host_fit()) */
struct dm_range_info {
	uint64_t offset;
	uint64_t len;
	struct dm_file_key file;
	uint64_t file_offset;
	uint32_t pins;
	bool blank;
	const char *state;
};

/**
 * struct dm_file_counts - what became of a file's setups and ranges
 * @setups: setups answered with success
 * @revived: among them those that took a given-back range again
 * @removed: ranges given back
 * @maps: maps that those setups needed
 * @map_ns: nanoseconds that those setups waited for the driver
 */
struct dm_file_counts {
	uint64_t setups;
	uint64_t revived;
	uint64_t removed;
	uint64_t maps;
	uint64_t map_ns;
};

/**
 * struct dm_file_info - one file as dm_table_foreach_file() shows it
 * @ranges, @bytes: mapped, those given back included
 * @live_bytes: of ranges that the owner has
 * @counts: also from times before the file was without mapped ranges, unless so many other files
 *          came and went since that these were forgotten
 */
struct dm_file_info {
	struct dm_file_key file;
	uint64_t ranges;
	uint64_t bytes;
	uint64_t live_bytes;
	uint64_t pins;
	struct dm_file_counts counts;
};

/** dm_table_foreach_file() - calls @fn for each file that has mapped ranges, in no order, for
 * showing only. Memory and time grow with the number of mapped ranges; no request waits for it. */
void dm_table_foreach_file(struct dm_table *t, void (*fn)(void *ctx, const struct dm_file_info *f),
			   void *ctx);

/** dm_table_foreach() - calls @fn for each mapped range, in window order, for showing only:
 * ranges may come and go meanwhile. @fn must not call the table. */
void dm_table_foreach(struct dm_table *t, void (*fn)(void *ctx, const struct dm_range_info *r),
		      void *ctx);

#endif
