/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large must the window be? Answers from what was recorded.
 *
 *	size_blocks	numbers for granules of files; how many there are
 *	size_stack	exact LRU: stack distances
 *	size_sim	windows of many sizes under the known policies
 *	size_cost	what a map costs against live mappings
 *	size_scan	first pass: what kind of a trace, how much of everything, costs, files
 *	size_curve	second pass: misses by size, exact or between bounds
 *	size_advice	times, the recommendation and its reasons, files that are better off without
 *	size_text	for people: tables, a plot of characters
 *	size_plot	gnuplot's input
 *	size_trace	a trace file as a source of events
 *
 * It knows no sockets and no files of its own: events come from a source that can be read again.
 * Threads: one at a time.
 */
#ifndef DAXMAP_SIZE_H
#define DAXMAP_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "size_cost.h"
#include "size_sim.h"

#define SIZE_ROWS_MAX (SIZE_WINDOWS_MAX - 1)
#define SIZE_FILES_MAX 64u

enum size_kind {
	SIZE_ACCESS,  /* used, mapped already or not (guest's seat) */
	SIZE_SETUP,   /* the guest asked for a range and got it; @ns = until the answer */
	SIZE_REVIVE,  /* such a SETUP needed no driver call */
	SIZE_REMOVE,  /* the guest gave a range back */
	SIZE_MAP,     /* the driver mapped; @ns = until usable */
	SIZE_UNMAP,   /* the driver unmapped; @ns = until done */
	SIZE_OVERLAY, /* a map took the place of a range without an unmap */
	SIZE_PRESENT, /* mapped when the trace began */
	SIZE_BEGIN,   /* a session begins with nothing mapped */
	SIZE_OTHER,
};

/** struct size_event - one event; sizes and offsets in bytes, @mapped: ranges the driver has then,
 * @ns: what it took */
struct size_event {
	enum size_kind kind;
	uint32_t mapped;
	uint64_t at_ns;
	uint64_t ns;
	uint64_t file_hi;
	uint64_t file_lo;
	uint64_t file_offset;
	uint64_t len;
};

/**
 * struct size_source - where events come from
 * @rewind: from the beginning again; false: it cannot, *@error is set
 * @next: up to @n events into @e; how many; 0 at the end; -1: unreadable, *@error is set
 * @name: of a file, newly allocated, or NULL; the function may be NULL
 * @window: bytes; 0: not known
 * @granule: bytes of one mapping of the guest; a power of two
 * @budget: live mappings at most; 0: no limit known
 * @guest_seat: the guest recorded; else the daemon
 */
struct size_source {
	bool (*rewind)(void *ctx, GError **error);
	gssize (*next)(void *ctx, struct size_event *e, size_t n, GError **error);
	char *(*name)(void *ctx, uint64_t file_hi, uint64_t file_lo);
	void *ctx;
	uint64_t window;
	uint64_t granule;
	uint32_t budget;
	bool guest_seat;
};

/**
 * struct size_options - 0 means: the default
 * @read_ns: a FUSE request for what one access uses, as the guest waits for it; 0: SIZE_READ_NS
 * @hit_ns: an access to what is mapped; 0: SIZE_HIT_NS
 * @map_base, @map_slope: what a miss costs, ns and ns a live mapping; used when @map_given
 * @usual_slope: ns a live mapping, where the trace does not show one
 * @tolerance: a smaller window is taken when it costs at most so much more, as a fraction; 0.05
 * @min, @max: bytes; only these windows
 * @accesses: of the guest during the trace, where hits are not seen; 0: not known
 */
struct size_options {
	double read_ns;
	double hit_ns;
	bool map_given;
	double map_base;
	double map_slope;
	double usual_slope;
	double tolerance;
	uint64_t min;
	uint64_t max;
	uint64_t accesses;
};

/* 19.4k IOPS of 4 KiB random reads without DAX (virtiofs-tests, 2020, KVM, one reader) */
#define SIZE_READ_NS 51500.0
#define SIZE_HIT_NS 500.0
/* QEMU 11.1, see docs/vmm-facts.md: 3.4 ms a map at 400 live, 4.4 ms at 500 */
#define SIZE_QEMU_SLOPE_NS 8500.0
/* A guest's struct pages: 64 bytes for 4 KiB */
#define SIZE_PAGES_SHIFT 6

/** enum size_exact - what can be said of the misses */
enum size_exact {
	SIZE_EXACT,   /* every access is known */
	SIZE_BOUNDED, /* hits are not known: between bounds, and an estimate */
};

/** struct size_row - one window size */
struct size_row {
	uint64_t bytes;
	uint32_t slots;	    /* mappings that it can hold: budget applied */
	bool recorded;	    /* the size of the trace's own window */
	bool open;	    /* no upper bound: smaller than the recorded window, hits unknown */
	double live;	    /* of them in use, when it is full */
	double live_mean;   /* the same over all misses, those that fill it included */
	double misses;	    /* of the policy that fits best; the estimate between the bounds */
	double least, most; /* bounds; both = misses where it is exact */
	double lru;	    /* with LRU (SIZE_EXACT only) */
	double family[SIZE_FAMILIES]; /* with each policy (SIZE_EXACT only) */
	double miss_ns;		      /* one miss, at @live_mean */
	double cost_ns;		      /* all accesses (SIZE_BOUNDED: all misses) together */
	uint64_t pages;		      /* bytes of struct pages in the guest */
	const char *not_allowed;      /* why the driver does not take it, or NULL */
};

/** struct size_file - one file; times over the whole trace, at the recommended size */
struct size_file {
	uint64_t hi, lo;
	char *name;
	uint64_t accesses; /* SIZE_BOUNDED: setups */
	uint64_t recorded_misses;
	uint64_t blocks; /* different granules */
	double misses;
	double dax_ns;
	double read_ns;
	bool better_off; /* without DAX */
};

/** struct size_totals - of the trace */
struct size_totals {
	uint64_t events;
	uint64_t setups, revived, removes, maps, unmaps, overlays, sessions;
	uint64_t first_ns, last_ns;
	uint64_t accesses; /* SIZE_BOUNDED: setups */
	uint64_t bytes;	   /* that the accesses used */
	uint64_t misses;   /* as recorded */
	uint64_t present;  /* granules mapped when the trace began */
	uint64_t cold;	   /* first uses of others */
	uint64_t distinct; /* granules */
	uint64_t files;
	uint32_t mapped_max;
	unsigned int shift; /* one granule in 2^shift is looked at; 0: all */
};

/** struct size_report - the answer; size_report_free() */
struct size_report {
	struct size_totals totals;
	enum size_exact exact;
	uint64_t window; /* the recorded one; 0: not known */
	uint64_t granule;
	uint32_t budget;
	bool guest_seat;
	enum size_family family; /* the policy whose misses are used */
	double check_predicted;	 /* its misses at the recorded size; < 0: not known */
	double extra_ns;	 /* what a setup takes beyond its map */
	double maps_a_miss;
	struct size_line map, unmap;
	double read_ns, hit_ns;
	bool read_given, hit_given;
	double tolerance;
	struct size_row rows[SIZE_ROWS_MAX];
	unsigned int n_rows;
	int best;	    /* the cheapest row allowed; -1: none */
	int choice;	    /* row, when all files go through the window; -1: none is allowed */
	int without;	    /* row when the files that are better off without DAX go; -1: none do */
	int recommend;	    /* one of the two; -1: no window at all */
	double without_ns;  /* cost then, requests of those files included */
	double all_read_ns; /* cost of everything as requests; < 0: not known */
	struct size_file files[SIZE_FILES_MAX];
	unsigned int n_files;
	GPtrArray *exclude; /* of char *: globs to exclude */
	GPtrArray *reasons; /* of char * */
	GPtrArray *notes;   /* of char *: what the answer rests on, and what weakens it */
};

#define SIZE_ERROR (size_error_quark())
GQuark size_error_quark(void);

/** size_analyse() - reads @source as often as it needs; NULL with @error: an unreadable source, or
 * nothing in it to go by. */
struct size_report *size_analyse(struct size_source *source, const struct size_options *options,
				 GError **error);
void size_report_free(struct size_report *r);

/** size_text() - the report for people, @width columns (60 at least) */
char *size_text(const struct size_report *r, unsigned int width);
/** size_gnuplot() - a program for gnuplot that draws the report into @path (quoted) as @terminal */
char *size_gnuplot(const struct size_report *r, const char *terminal, const char *path);
/** size_bytes_text() - as 512M; newly allocated */
char *size_bytes_text(uint64_t bytes);

#endif
