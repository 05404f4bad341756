/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which files a guest should map. The owner tells what happens (maps asked for, maps given back,
 * files opened) and asks, for each reply that carries attributes, whether the file is to be marked
 * (FUSE_ATTR_DAX). Times are CLOCK_MONOTONIC nanoseconds, given by the caller: nothing in here
 * reads a clock. docs/policy.md says what is decided and why.
 *
 * Any thread, no RCU duties. No call blocks; policy_mark() takes no lock, the others take one of
 * several that are held for some loads and stores.
 */
#ifndef DAXMAP_POLICY_H
#define DAXMAP_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct policy;

/** POLICY_MIN_SIZE - smaller files are not marked by default, bytes: reading one is a single FUSE
 * request, mapping it a round trip to the VMM and a slot of the window */
#define POLICY_MIN_SIZE (256ull << 10)

enum policy_prefetch_mode {
	POLICY_PREFETCH_AUTO, /* what is read in sequence */
	POLICY_PREFETCH_ON,   /* every range that is mapped */
	POLICY_PREFETCH_OFF,
};

/**
 * struct policy_config - strings are copied
 * @window_size: bytes
 * @granule: what the guest maps at a time, bytes, a power of two
 * @all: mark every file that can be mapped, whether it pays or not
 * @can_protect: the VMM can write-protect a mapping, so files that only open read-only are fine
 * @guard: the thrash guard takes marks away
 * @min_size: smaller files are not marked, bytes
 * @max_share: files larger than this percentage of the window are not marked; 0: no limit
 * @include: NULL-terminated globs, NULL: all files
 * @exclude: NULL-terminated globs, or NULL
 * @prefetch: see the enum
 */
struct policy_config {
	uint64_t window_size;
	uint64_t granule;
	bool all;
	bool can_protect;
	bool guard;
	uint64_t min_size;
	uint64_t max_share;
	const char *const *include;
	const char *const *exclude;
	enum policy_prefetch_mode prefetch;
};

struct policy *policy_new(const struct policy_config *config);
/** policy_tune() - changes guard, min_size, max_share and prefetch of a policy in use; the rest of
 * @config does not count. Any thread, one at a time. */
void policy_tune(struct policy *p, const struct policy_config *config);
void policy_free(struct policy *p);

/** struct policy_file - a file's identity, which outlives what the guest calls it (a node id) */
struct policy_file {
	uint64_t dev;
	uint64_t ino;
};

/** enum policy_verdict - marked, or why not; policy_verdict_name() */
enum policy_verdict {
	POLICY_MARKED,
	POLICY_SMALL,	  /* below min_size */
	POLICY_PARTIAL,	  /* its last granule cannot be mapped */
	POLICY_SHARE,	  /* above max_share */
	POLICY_FSTYPE,	  /* mmap of its file system is not coherent, or not known to be */
	POLICY_READONLY,  /* cannot be opened for writing, and the VMM cannot write-protect */
	POLICY_GLOB,	  /* excluded, or not included */
	POLICY_DIRECT,	  /* opened with O_DIRECT only */
	POLICY_THRASH,	  /* the guard's */
	POLICY_FAILED,	  /* a mapping of it was refused lately */
	POLICY_TRUNCATED, /* became shorter on the host while it was mapped */
	POLICY_VERDICTS,
};
const char *policy_verdict_name(enum policy_verdict v);

/**
 * struct policy_query - a file to be judged, with what it takes to know more, asked only if needed
 * @size: bytes, as in the reply that the mark goes into
 * @any_size: mappings may reach beyond the end of a file
 * @truncated: the host has made it shorter under mappings, which are still there
 * @fs_type: statfs f_type; false: not known
 * @can_write: can it be opened for reading and writing?
 * @path: its path in the share ("dir/name"), or as much of its end as is known, then *@whole is
 *        false; its length, 0 when no name is known, or a negative errno
 */
struct policy_query {
	struct policy_file file;
	uint64_t size;
	bool any_size;
	bool truncated;
	void *ctx;
	bool (*fs_type)(void *ctx, uint32_t *type);
	bool (*can_write)(void *ctx);
	ssize_t (*path)(void *ctx, char *buf, size_t size, bool *whole);
};

/** policy_mark() - is the file to be marked? Counts the answer. */
enum policy_verdict policy_mark(struct policy *p, const struct policy_query *q, uint64_t now_ns);

/** policy_wants_paths() - are there globs, so that struct policy_query.path matters? */
bool policy_wants_paths(const struct policy *p);

/** struct policy_prefetch_wish - a part of the file to be read ahead; @len 0: nothing */
struct policy_prefetch_wish {
	uint64_t offset;
	uint64_t len;
};

/**
 * policy_setup() - the guest asks for a mapping; before or after it is made
 * @offset: in the window, bytes; @len, @file_offset: bytes
 * @wish: out
 */
void policy_setup(struct policy *p, struct policy_file file, uint64_t offset, uint64_t len,
		  uint64_t file_offset, uint64_t now_ns, struct policy_prefetch_wish *wish);

/** policy_refused() - that mapping could not be made, for @err (a negative errno). If it is the
 * file's fault, it loses its mark for a while: the guest has no other way than EIO. */
void policy_refused(struct policy *p, struct policy_file file, uint64_t offset, uint64_t len,
		    int err, uint64_t now_ns);

/** policy_remove() - the guest gives a part of the window back; @len may reach beyond its end */
void policy_remove(struct policy *p, uint64_t offset, uint64_t len, uint64_t now_ns);

/** policy_reset() - everything was unmapped at once (DESTROY, reset). What was learned stays. */
void policy_reset(struct policy *p);

/** policy_opened() - @direct_only: all handles open on it are O_DIRECT (there is at least one) */
void policy_opened(struct policy *p, struct policy_file file, bool direct_only, uint64_t now_ns);
/** policy_any_direct() - may policy_opened() with @direct_only false matter? Else it can be saved
 */
bool policy_any_direct(const struct policy *p);

/**
 * struct policy_file_stats - what is known of one file
 * @refaults: its ranges that came back soon after they were given back, as long as it is remembered
 * @thrash: without its mark for that now
 */
struct policy_file_stats {
	uint64_t refaults;
	bool thrash;
};
/** policy_file_stats() - takes no lock; zero for a file that is not remembered */
void policy_file_stats(const struct policy *p, struct policy_file file, uint64_t now_ns,
		       struct policy_file_stats *out);

/* X(name, help): counters, but for those called gauges */
/* clang-format off */
#define POLICY_STATS(X) \
	X(marks, "replies that marked a file") \
	X(unmarked_small, "replies that did not: below --dax-min-size") \
	X(unmarked_partial, "... its last 2M cannot be mapped (no size shim)") \
	X(unmarked_share, "... above --dax-max-share") \
	X(unmarked_fstype, "... file system whose mmap is not known to be coherent") \
	X(unmarked_readonly, "... not writable, and the VMM cannot write-protect") \
	X(unmarked_glob, "... by --dax-include or --dax-exclude") \
	X(unmarked_direct, "... opened with O_DIRECT only") \
	X(unmarked_thrash, "... taken away by the thrash guard") \
	X(unmarked_failed, "... a mapping of it was refused lately") \
	X(unmarked_truncated, "... became shorter on the host while it was mapped") \
	X(refaults, "ranges mapped again soon after they were given back") \
	X(thrash_events, "times that a file lost its mark to the guard") \
	X(thrash_files, "gauge: files without their mark for that now") \
	X(prefetch_wishes, "ranges that prefetch was asked for") \
	X(prefetch_sequential, "setups that went on where the file's last one ended")
/* clang-format on */

/** struct policy_stats - a snapshot */
struct policy_stats {
#define X(name, help) uint64_t name;
	POLICY_STATS(X)
#undef X
};
void policy_get_stats(struct policy *p, uint64_t now_ns, struct policy_stats *out);

/* --- parts, for their own tests --- */

/**
 * policy_glob_match() - does a file match?
 * @glob: '*' and '?' do not match '/', '**' does; '[a-z]', '[!a-z]'; '\' quotes. Without a '/' it
 * is compared with the last part of the path; with one, with the whole path in the share (a leading
 * '/' says no more). A trailing '/' or '/' '**' means everything below.
 * @whole: @path begins at the root of the share; if not, globs with a '/' that do not begin with
 *         '**' never match
 *
 * Time is bounded by the product of both lengths.
 */
bool policy_glob_match(const char *glob, const char *path, bool whole);
/** policy_glob_valid() - false: empty, an open '[', or a '\' at the end */
bool policy_glob_valid(const char *glob);

/** policy_fstype_name() - of a file system whose shared mappings are coherent with read and write
 * on this host, whoever writes; NULL: it is not, or not known */
const char *policy_fstype_name(uint32_t magic);

#endif
