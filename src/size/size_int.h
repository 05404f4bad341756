/* SPDX-License-Identifier: Apache-2.0 */
/* Between the passes; see size.h. */
#ifndef DAXMAP_SIZE_INT_H
#define DAXMAP_SIZE_INT_H

#include "size.h"
#include "size_blocks.h"
#include "size_stack.h"

#define SIZE_BATCH 1024u
#define SIZE_NO_FILE UINT32_MAX
/* No event uses more granules: a corrupt length must not take for ever. */
#define SIZE_EVENT_GRANULES 65536u

/** struct size_seen - what the first pass counts of a file */
struct size_seen {
	uint64_t hi, lo;
	uint64_t uses;	 /* accesses, or setups */
	uint64_t misses; /* as recorded */
	uint64_t blocks;
};

/** struct size_scan - what the first pass found; size_scan_clear() */
struct size_scan {
	struct size_totals totals;
	bool hits_known;
	struct size_cost *map, *unmap;
	double extra_ns;    /* a setup takes so much more than its map */
	double maps_a_miss; /* below 1: some are revived */
	double mapped_mean; /* at maps, once something had been unmapped */
	struct size_blocks *file_ids;
	GArray *files; /* of struct size_seen */
};

bool size_scan_read(struct size_source *source, struct size_scan *s, GError **error);
void size_scan_clear(struct size_scan *s);
/** size_scan_file() - the file's place in @s->files, or SIZE_NO_FILE */
uint32_t size_scan_file(const struct size_scan *s, uint64_t hi, uint64_t lo);

/**
 * struct size_plan - what the second pass is to find out
 * @slots: window sizes
 * @families: bit i: simulate policy i
 * @track: by place in scan->files: 0, or 1 + the place in by_file where its misses are counted; may
 *         be NULL
 * @skip: not 0 for a file that is left out; may be NULL
 */
struct size_plan {
	const struct size_scan *scan;
	uint32_t slots[SIZE_WINDOWS_MAX];
	unsigned int n;
	unsigned int families;
	bool lru;
	const uint8_t *track;
	const uint8_t *skip;
};

/** struct size_curves - misses by window, scaled to the whole trace */
struct size_curves {
	double misses[SIZE_FAMILIES][SIZE_WINDOWS_MAX];
	double live[SIZE_FAMILIES][SIZE_WINDOWS_MAX];	   /* once it is full */
	double live_mean[SIZE_FAMILIES][SIZE_WINDOWS_MAX]; /* over all misses */
	double lru[SIZE_WINDOWS_MAX];
	double least[SIZE_WINDOWS_MAX]; /* bounded only */
	double most[SIZE_WINDOWS_MAX];
	double by_file[SIZE_FAMILIES][SIZE_FILES_MAX][SIZE_WINDOWS_MAX]; /* of the files tracked */
	uint64_t blocks;
	uint64_t accesses;
};

/** size_curves_exact() - every access is known */
bool size_curves_exact(struct size_source *source, const struct size_plan *plan,
		       struct size_curves *out, GError **error);
/** size_curves_bounded() - only setups and removes are; the family is Linux's */
bool size_curves_bounded(struct size_source *source, const struct size_plan *plan,
			 struct size_curves *out, GError **error);

/** size_choose() - the smallest row allowed whose cost is at most 1 + tolerance times that of the
 * cheapest, which goes into *@best; -1 when no row is allowed. @cost: by row */
int size_choose(const struct size_report *r, const double *cost, int *best);
/** size_give_reasons() - reasons and notes, once everything else is known */
void size_give_reasons(struct size_report *r, const struct size_scan *s,
		       const struct size_options *o);
/** size_exclude() - globs for the files of @r that are better off without; "" where one has no
 * name */
void size_exclude(struct size_report *r);

#endif
