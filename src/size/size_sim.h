/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of many sizes under one policy, all fed with the same accesses. Threads: one at a time.
 */
#ifndef DAXMAP_SIZE_SIM_H
#define DAXMAP_SIZE_SIM_H

#include <stdbool.h>
#include <stdint.h>

#define SIZE_WINDOWS_MAX 32u

/**
 * struct size_policy - who goes, and when
 * @name: for people
 * @clock: victims get a second chance when they were used since; else first-in first-out
 * @high: more percent of the slots in use than this start reclaim; 100: a victim goes only when a
 *        newcomer needs its slot
 * @low: reclaim goes down to so many percent in use
 * @late: none of that before a newcomer has found the window full once
 * @chunk: not 0: instead of down to @low, so many slots at a time until @high is met again
 */
struct size_policy {
	const char *name;
	bool clock;
	uint32_t high;
	uint32_t low;
	uint32_t chunk;
	bool late;
};

/* What is known: the table in the guest's seat (with a stock of free slots once unmapping ahead was
 * measured to be cheaper, which it cannot be before something had to go: dax/dm_cache_reclaim.c),
 * and Linux: first-in first-out, ten at a time once less than a fifth is free (fs/fuse/dax.c). */
enum size_family { SIZE_CLOCK, SIZE_CLOCK_EARLY, SIZE_FIFO, SIZE_LINUX, SIZE_FAMILIES };
extern const struct size_policy size_policies[SIZE_FAMILIES];

struct size_sim;

/**
 * size_sim_new() - @n empty windows of @slots[0..n-1], each at least 1
 * @policy: borrowed
 */
struct size_sim *size_sim_new(const struct size_policy *policy, const uint32_t *slots,
			      unsigned int n);
void size_sim_free(struct size_sim *s);

/** size_sim_access() - uses block @id in all windows; bit i of the answer: window i missed it, and
 * has mapped it. */
uint32_t size_sim_access(struct size_sim *s, uint32_t id);
/**
 * size_sim_watch() - says which blocks somebody else holds, and may use without our seeing it
 *
 * A victim that is held goes back to the young end at once, and counts as one more miss.
 * @held: one byte a block, not 0: held; borrowed. May be moved between accesses by calling again.
 */
void size_sim_watch(struct size_sim *s, const uint8_t *held, uint32_t n);

uint64_t size_sim_misses(const struct size_sim *s, unsigned int window);
/** size_sim_live() - slots in use, on average over the misses since the window was full first; if
 * it never was, those in use now */
double size_sim_live(const struct size_sim *s, unsigned int window);
/** size_sim_live_mean() - the same over all misses, which tells what they cost */
double size_sim_live_mean(const struct size_sim *s, unsigned int window);
/** size_sim_full() - did the window ever have to give something up? */
bool size_sim_full(const struct size_sim *s, unsigned int window);

#endif
