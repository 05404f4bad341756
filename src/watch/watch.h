/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that change their size on the host while a guest has them mapped. What is done about it,
 * what is left, and why: docs/truncation.md.
 *
 * Files are named as the table names them. Threads: any, unless said otherwise; functions that say
 * that they wait for the VMM must not be called where the VMM may be waiting for the caller.
 */
#ifndef DAXMAP_WATCH_H
#define DAXMAP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <daxmap/file.h>

struct dm_table;
struct hold;
struct watch;
struct watch_file;

/**
 * struct watch_config - for watch_new()
 * @size_checks_only: no fanotify
 * @other_fd: polled too, for the owner's sake; -1: nothing. When it becomes readable or hangs up,
 *            @other is called once and the descriptor is left alone from then on
 * @hold: stops truncations until they have been seen to; borrowed, as long as the watch lives;
 *        NULL: they are noticed afterwards
 * @thread_start: first thing in the watching thread; may be NULL
 */
struct watch_config {
	bool size_checks_only;
	struct hold *hold;
	int other_fd;
	void (*other)(void *ctx);
	void (*thread_start)(void *ctx);
	void *ctx;
};

/** watch_new() - before the table: files are opened while it maps. Logs one line where only sizes
 * can be checked. */
struct watch *watch_new(const struct watch_config *config);
/** watch_start() - starts the thread. @table: borrowed until watch_stop() */
void watch_start(struct watch *w, struct dm_table *table);
/** watch_stop() - ends the thread: the table may go. What waits for the VMM must be let go first.
 */
void watch_stop(struct watch *w);
/** watch_free() - all files are closed. NULL is allowed. */
void watch_free(struct watch *w);

/* The provider's part (struct dm_file_provider) */

/** watch_open() - @fd's file, the real one, is about to be mapped; @fd is borrowed */
void watch_open(struct watch *w, struct dm_file_key key, int fd);
/** watch_close() - it has no ranges any more */
void watch_close(struct watch *w, struct dm_file_key key);
/** watch_zeros() - for dm_file_provider.zeros */
int watch_zeros(uint64_t len);

/* What requests ask and tell. None of these waits, but for the file system. */

/** watch_is_truncated() - has it become shorter on the host since it is mapped? */
bool watch_is_truncated(struct watch *w, struct dm_file_key key);

/**
 * watch_size() - the size that a guest is to be told
 * @size: as the host has just said
 *
 * Smaller than @size while zeros stand in the way of bytes that the file has got back: they are
 * replaced right away, and for the guest the file grows then. A size that is smaller than it was is
 * looked into.
 */
uint64_t watch_size(struct watch *w, struct dm_file_key key, uint64_t size);

/** watch_touched() - a guest reads or writes it; a size check where the kernel tells us nothing */
void watch_touched(struct watch *w, struct dm_file_key key);

/** watch_truncating() - a guest is about to set its size: not what we watch for. Give the result,
 * perhaps NULL, to watch_truncated(). */
struct watch_file *watch_truncating(struct watch *w, struct dm_file_key key);
/** watch_truncated() - it has, or it has failed to */
void watch_truncated(struct watch *w, struct watch_file *f);

/** watch_must_settle() - after a guest may have made it longer: has watch_settle() to be called
 * before the answer? */
bool watch_must_settle(struct watch *w, struct dm_file_key key);

/* These wait for the VMM. */

/** watch_settle() - puts its bytes back where zeros stand */
void watch_settle(struct watch *w, struct dm_file_key key);
/** watch_mapped() - a part of it has been mapped for a guest who had seen that it is there */
void watch_mapped(struct watch *w, struct dm_file_key key, uint64_t file_offset, uint64_t len);

/* X(name, help) */
/* clang-format off */
#define WATCH_STATS(X) \
	X(files, "gauge: mapped files that are watched, one way or the other") \
	X(marked, "gauge: of those, files whose changes the kernel tells us") \
	X(mark_errors, "files whose changes it does not") \
	X(events, "changes that it told us") \
	X(overflows, "times that it had lost some: every file was looked at") \
	X(checks, "sizes looked at") \
	X(truncations, "times that a file had become shorter on the host") \
	X(truncated_files, "gauge: mapped files that have, and lost their mark for it") \
	X(blanked, "ranges replaced by zeros") \
	X(restored, "of those, ranges that show the file again") \
	X(left, "ranges behind the end that could not be replaced: touched, they kill the VMM") \
	X(guarded, "gauge: mapped files whose truncations on the host are held until they fit") \
	X(hold_errors, "files whose truncations cannot be") \
	X(held, "truncations that were") \
	X(late, "of those, let go before all was replaced") \
	X(torn, "ranges with the end inside that were unmapped for a moment: zeros in the place of bytes") \
	X(failed, "ranges that should show the file again and do not") \
	X(holes, "ranges lost by the VMM while they were replaced")
/* clang-format on */

/** struct watch_stats - a snapshot */
struct watch_stats {
#define X(name, help) uint64_t name;
	WATCH_STATS(X)
#undef X
};
void watch_get_stats(const struct watch *w, struct watch_stats *out);

#endif
