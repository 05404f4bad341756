/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins: counted by each thread for itself. Theory of operation: dm_pin.c.
 */
#ifndef DAXMAP_DM_PIN_H
#define DAXMAP_DM_PIN_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>
#include <urcu/arch.h>
#include <urcu/compiler.h>

#include "util_lock.h"

#define DM_SHARDS 64 /* of threads; the last one is shared by all that find no other */

/* four bytes: where this is a shared library, there is room for them in every thread */
extern _Thread_local unsigned int dm_shard_of_thread __attribute__((tls_model("initial-exec")));
extern unsigned int dm_shards_high; /* shards from here on were never taken, but the last one */
unsigned int dm_thread_shard_slow(void);

/** dm_thread_shard() - this thread's own, or the last one. */
static inline unsigned int dm_thread_shard(void)
{
	return G_LIKELY(dm_shard_of_thread) ? dm_shard_of_thread - 1 : dm_thread_shard_slow();
}

/** dm_shard_is_own() - does no other thread write to what belongs to @shard? */
static inline bool dm_shard_is_own(unsigned int shard)
{
	return shard < DM_SHARDS - 1;
}

/* The state of a cell, in row 0; a row of counts for each shard follows. */
#define DM_CELL_CLOSED (1u << 0) /* no new pins */
#define DM_CELL_USED (1u << 1)	 /* has been pinned */
#define DM_CELL_SEEN (1u << 2)	 /* closed, and every thread has seen that */
#define DM_CELL_ROW 1024u

/** struct dm_cells - where ranges get their cells from */
struct dm_cells {
	struct util_mutex lock;
	void **chunks;
	uint32_t n_chunks;
	uint32_t max_chunks;
	uint32_t **free;
	uint32_t n_free;
	uint32_t max_free;
};

void dm_cells_init(struct dm_cells *cs);
/** dm_cells_destroy() - no cell is in use, and no unpin under way. */
void dm_cells_destroy(struct dm_cells *cs);
/** dm_cell_new() - a closed cell without pins. */
uint32_t *dm_cell_new(struct dm_cells *cs);
/** dm_cell_free() - no pins; a grace period after the last lookup that could find it. */
void dm_cell_free(struct dm_cells *cs, uint32_t *cell);

extern bool dm_pin_asymmetric;
/** dm_pin_barrier() - on return every thread sees what we wrote, and we see what each had written
 * when it last saw something older. May take microseconds; never on the path of a hit. */
void dm_pin_barrier(void);

/* The other side of dm_pin_barrier(). */
static inline void dm_pin_light_barrier(void)
{
	if (G_LIKELY(dm_pin_asymmetric))
		cmm_barrier();
	else
		cmm_smp_mb();
}

static inline void dm_cell_add(uint32_t *cell, unsigned int shard, uint32_t n)
{
	uint32_t *v = cell + (shard + 1) * DM_CELL_ROW;

	if (G_LIKELY(dm_shard_is_own(shard)))
		__atomic_store_n(v, __atomic_load_n(v, __ATOMIC_RELAXED) + n, __ATOMIC_RELEASE);
	else
		__atomic_fetch_add(v, n, __ATOMIC_RELEASE);
}

/** dm_cell_pin_first() - goes on with a pin that has been counted: false = closed. */
bool dm_cell_pin_first(uint32_t *cell);

/**
 * dm_cell_pin() - takes a pin unless the cell is closed
 *
 * In a read section in which the cell's owner was found. On false the cell may have shown a pin
 * for a moment that nobody has: whoever waits for pins has to be woken.
 */
static inline bool dm_cell_pin(uint32_t *cell, unsigned int shard)
{
	dm_cell_add(cell, shard, 1);
	dm_pin_light_barrier();
	if (G_LIKELY(__atomic_load_n(cell, __ATOMIC_ACQUIRE) == DM_CELL_USED) ||
	    dm_cell_pin_first(cell))
		return true;
	dm_cell_add(cell, shard, -1u);
	return false;
}

/** dm_cell_unpin() - any thread; true = the cell is closed, and who waits for pins has to be woken.
 * Its owner may be gone afterwards. */
static inline bool dm_cell_unpin(uint32_t *cell, unsigned int shard)
{
	dm_cell_add(cell, shard, -1u);
	dm_pin_light_barrier();
	return __atomic_load_n(cell, __ATOMIC_ACQUIRE) & DM_CELL_CLOSED;
}

static inline bool dm_cell_closed(const uint32_t *cell)
{
	return __atomic_load_n(cell, __ATOMIC_RELAXED) & DM_CELL_CLOSED;
}

/** dm_cell_close() - no new pins from here on, but some may still be found to fail. */
void dm_cell_close(uint32_t *cell);
void dm_cell_open(uint32_t *cell);
/** dm_cell_open_pinned() - opens a cell that nobody can find yet, with a pin of the caller's. */
void dm_cell_open_pinned(uint32_t *cell);
/**
 * dm_cell_pins() - how many pins there are
 *
 * Of an open cell: a guess. Of a closed one: exact, but for those that fail; 0 is final until it
 * is opened, which must not happen meanwhile.
 */
uint32_t dm_cell_pins(uint32_t *cell);
/** dm_cell_guess() - about how many pins there are; at any time. */
uint32_t dm_cell_guess(const uint32_t *cell);

#endif
