/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM that is not there: it maps nothing, but holds every driver rule to the letter and knows
 * for each granule of the window what it would show. For tests and simulations.
 */
#ifndef DAXMAP_WINDOW_FAKE_H
#define DAXMAP_WINDOW_FAKE_H

#include <daxmap/window.h>

/**
 * struct window_fake_config - what kind of VMM
 * @caps: what it can do; it holds the planner to it
 * @cost_ns: simulated time of an operation ...
 * @cost_per_live_ns: ... plus this for each live mapping
 * @between: with reply before commit: called when the results stand but nothing is committed yet;
 *           no lock held; may be NULL
 * @ctx: for @between
 */
struct window_fake_config {
	struct dm_window_caps caps;
	uint64_t cost_ns;
	uint64_t cost_per_live_ns;
	void (*between)(void *ctx);
	void *ctx;
};

/** struct window_fake_page - what stands at one granule of the window */
struct window_fake_page {
	uint64_t mapping; /* which mapping, 0 = a hole */
	uint64_t key_hi;
	uint64_t key_lo;
	uint64_t file_offset;
	uint32_t flags;
};

/** struct window_fake_counts - what happened to it */
struct window_fake_counts {
	uint64_t submits;
	uint64_t maps;
	uint64_t unmaps;
	uint64_t overlap_refused; /* maps over a mapping, refused as the VMM cannot overlay */
	uint64_t violations;	  /* rules broken, or too many mappings: a VM would have died */
	uint64_t sim_ns;
	uint32_t live;
	uint32_t peak;
};

struct dm_window *window_fake_new(const struct window_fake_config *config);
/** window_fake_page() - one entry for each granule. Stable while no submit runs. */
const struct window_fake_page *window_fake_pages(struct dm_window *w);
/** window_fake_page_at() - one of them, as it is between two operations; any time. */
struct window_fake_page window_fake_page_at(struct dm_window *w, uint64_t granule);
void window_fake_counts(struct dm_window *w, struct window_fake_counts *out);
/** window_fake_violation() - the first rule broken, or NULL. */
const char *window_fake_violation(struct dm_window *w);
/** window_fake_reset() - as a device reset: every mapping is gone; overlap_refused starts anew. */
void window_fake_reset(struct dm_window *w);

#endif
