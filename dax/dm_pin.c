// SPDX-License-Identifier: Apache-2.0
/*
 * Pins without a shared cache line.
 *
 * Two threads that pin the same range would hand a counter's cache line to and fro, at 50 to 100 ns
 * a time. So each thread counts in a row of its own, with a plain add: pins are the sum of the
 * rows, and an unpin by another thread than the pin's is fine, as only the sum means anything
 * (modulo 2^32). What is dear is to close a range, which happens when it is given back or evicted:
 *
 *	pin	count up;   light barrier; if closed: count down, no pin
 *	unpin	count down; light barrier; if closed: wake who waits
 *	close	set closed; dm_pin_barrier(); sum the rows
 *
 * Of a pin and a close one sees the other. The light barrier holds back the compiler only; the
 * closer's makes up for it with membarrier(2), which has every running thread of the process pass
 * a full barrier. Where the kernel has none both are full barriers, and no more is lost than speed.
 *
 * Once closed and seen by all, no count goes up for good, so a sum of 0 is exact and final although
 * the rows are read one after the other: each is read at or above what it is when the last one is
 * read. A pin that fails counts up and down again; who saw it is woken, and looks once more.
 *
 * A cell that was never pinned is closed without the barrier: the first pin sets USED and the
 * closer CLOSED in the same word, atomically, and so they see each other anyway. In the host's seat,
 * where pins are rare, a remove thus costs no system call.
 *
 * Cells lie in chunks: a row of states, then one of counts for each shard, so that no two threads
 * write to one cache line. Rows that no thread uses are never touched, and take no memory. Chunks
 * stay until the table goes, so an unpin may look at the state after it has counted.
 */
#include "dm_pin.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* syscalls: membarrier mmap munmap */

#define CHUNK_BYTES ((DM_SHARDS + 1) * DM_CELL_ROW * sizeof(uint32_t))

bool dm_pin_asymmetric;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static int membarrier(int cmd)
{
	return (int)syscall(SYS_membarrier, cmd, 0);
}

static void look_for_membarrier(void)
{
	dm_pin_asymmetric = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
}

void dm_pin_barrier(void)
{
	if (!dm_pin_asymmetric)
		cmm_smp_mb();
	else if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0)
		g_error("membarrier failed, which had been promised");
}

/* Cells */

void dm_cells_init(struct dm_cells *cs)
{
	pthread_once(&once, look_for_membarrier);
	*cs = (struct dm_cells){0};
	util_mutex_init(&cs->lock);
}

void dm_cells_destroy(struct dm_cells *cs)
{
	g_assert(cs->n_free == cs->n_chunks * DM_CELL_ROW);
	for (uint32_t i = 0; i < cs->n_chunks; i++)
		munmap(cs->chunks[i], CHUNK_BYTES);
	g_free(cs->chunks);
	g_free(cs->free);
	util_mutex_destroy(&cs->lock);
}

static void push_free(struct dm_cells *cs, uint32_t *cell)
{
	if (cs->n_free == cs->max_free) {
		cs->max_free = MAX(DM_CELL_ROW, cs->max_free * 2);
		cs->free = g_renew(uint32_t *, cs->free, cs->max_free);
	}
	cs->free[cs->n_free++] = cell;
}

static void add_chunk(struct dm_cells *cs)
{
	uint32_t *chunk =
		mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		g_error("out of memory for pins");
	if (cs->n_chunks == cs->max_chunks) {
		cs->max_chunks = MAX(4, cs->max_chunks * 2);
		cs->chunks = g_renew(void *, cs->chunks, cs->max_chunks);
	}
	cs->chunks[cs->n_chunks++] = chunk;
	for (uint32_t i = DM_CELL_ROW; i > 0; i--)
		push_free(cs, chunk + i - 1);
}

uint32_t *dm_cell_new(struct dm_cells *cs)
{
	uint32_t *cell;

	util_mutex_lock(&cs->lock);
	if (cs->n_free == 0)
		add_chunk(cs);
	cell = cs->free[--cs->n_free];
	util_mutex_unlock(&cs->lock);
	__atomic_store_n(cell, DM_CELL_CLOSED, __ATOMIC_RELAXED);
	return cell;
}

void dm_cell_free(struct dm_cells *cs, uint32_t *cell)
{
	util_mutex_lock(&cs->lock);
	push_free(cs, cell);
	util_mutex_unlock(&cs->lock);
}

/* Their life */

bool dm_cell_pin_first(uint32_t *cell)
{
	return !(__atomic_fetch_or(cell, DM_CELL_USED, __ATOMIC_SEQ_CST) & DM_CELL_CLOSED);
}

void dm_cell_close(uint32_t *cell)
{
	__atomic_fetch_or(cell, DM_CELL_CLOSED, __ATOMIC_SEQ_CST);
}

void dm_cell_open(uint32_t *cell)
{
	__atomic_fetch_and(cell, DM_CELL_USED, __ATOMIC_RELEASE);
}

void dm_cell_open_pinned(uint32_t *cell)
{
	dm_cell_add(cell, dm_thread_shard(), 1);
	__atomic_store_n(cell, DM_CELL_USED, __ATOMIC_RELEASE);
}

uint32_t dm_cell_guess(const uint32_t *cell)
{
	unsigned int high = __atomic_load_n(&dm_shards_high, __ATOMIC_ACQUIRE);
	uint32_t n = __atomic_load_n(cell + DM_SHARDS * DM_CELL_ROW, __ATOMIC_ACQUIRE);

	for (unsigned int i = 0; i < high; i++)
		n += __atomic_load_n(cell + (i + 1) * DM_CELL_ROW, __ATOMIC_ACQUIRE);
	return n;
}

uint32_t dm_cell_pins(uint32_t *cell)
{
	uint32_t state = __atomic_load_n(cell, __ATOMIC_ACQUIRE);

	if (!(state & DM_CELL_USED))
		return 0;
	if ((state & (DM_CELL_CLOSED | DM_CELL_SEEN)) == DM_CELL_CLOSED) {
		dm_pin_barrier();
		__atomic_fetch_or(cell, DM_CELL_SEEN, __ATOMIC_ACQ_REL);
	}
	return dm_cell_guess(cell);
}
