/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workloads with known properties, and a guest that runs them through a window and records. The
 * guest's window is written for being obviously right, without a line of src/size.
 */
#ifndef DAXMAP_SIZE_GEN_H
#define DAXMAP_SIZE_GEN_H

#include "size.h"

#define GEN_GRANULE (UINT64_C(2) << 20)

enum gen_load {
	GEN_UNIFORM,
	GEN_ZIPF_LOW,  /* exponent 0.8 */
	GEN_ZIPF_HIGH, /* 1.1 */
	GEN_SCAN,      /* once, in order, each granule used 8 times in a row */
	GEN_LOOP,      /* the same again and again */
	GEN_PHASES,    /* a working set of a quarter, then another, and back */
	GEN_TENANTS,   /* zipf in a small file, half of the time; a loop over a large one */
	GEN_LOADS,
};
extern const char *const gen_names[GEN_LOADS];

/** gen_accesses() - @n granules of @blocks; the file is 1, with GEN_TENANTS also 2; to be freed */
uint32_t *gen_accesses(enum gen_load load, uint32_t blocks, size_t n, uint64_t seed);
/** gen_file() - of which file is granule @block? */
unsigned int gen_file(enum gen_load load, uint32_t blocks, uint32_t block);

/**
 * struct gen_window - a window and what it did
 * @slots, @clock, @high, @low, @chunk, @late: as struct size_policy
 * @base_ns, @slope_ns: a map's cost, and for each live mapping
 */
struct gen_window {
	uint32_t slots;
	bool clock;
	uint32_t high, low, chunk;
	bool late;
	double base_ns, slope_ns;
	/* result */
	uint64_t misses;
	double map_ns; /* all together */
};

/** gen_run() - runs @accesses; with @events not NULL records them there */
void gen_run(struct gen_window *w, enum gen_load load, uint32_t blocks, const uint32_t *accesses,
	     size_t n, bool guest_seat, GArray *events);

/** gen_source() - @events (of struct size_event; borrowed) as a source */
void gen_source(struct size_source *s, GArray *events, uint64_t window, bool guest_seat,
		uint32_t budget);
void gen_source_clear(struct size_source *s);

#endif
