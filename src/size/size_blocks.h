/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for what is cached: a granule of a file gets a number, counted from 0 in the order of first
 * use, so that everything else about it lies in plain arrays. Threads: one at a time.
 */
#ifndef DAXMAP_SIZE_BLOCKS_H
#define DAXMAP_SIZE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct size_blocks;

/* A trace with more distinct granules than this is sampled: one terabyte of them at 2 MiB. */
#define SIZE_BLOCKS_MAX (1u << 19)

/** size_block_key() - the name of granule @index of a file; 64 bits, never 0. Two granules are
 * confused once in 2^64 pairs. */
uint64_t size_block_key(uint64_t hi, uint64_t lo, uint64_t index);

/**
 * size_blocks_new() - an empty table
 * @shift: only keys whose top @shift bits are 0 get a number: one in 2^shift
 */
struct size_blocks *size_blocks_new(unsigned int shift);
void size_blocks_free(struct size_blocks *b);

/** size_blocks_find() - the number of @key into *@id; *@is_new: it got it now. False: it is not in
 * the sample, or the table holds SIZE_BLOCKS_MAX already. */
bool size_blocks_find(struct size_blocks *b, uint64_t key, uint32_t *id, bool *is_new);
/** size_blocks_lookup() - as find, but gives no number to what has none */
bool size_blocks_lookup(const struct size_blocks *b, uint64_t key, uint32_t *id);
/** size_blocks_count() - numbers given */
uint32_t size_blocks_count(const struct size_blocks *b);

/*
 * How many distinct keys are there? Counted exactly up to SIZE_BLOCKS_MAX, then by a sample that is
 * halved as often as it overflows.
 */
struct size_distinct;
struct size_distinct *size_distinct_new(void);
void size_distinct_free(struct size_distinct *d);
void size_distinct_add(struct size_distinct *d, uint64_t key);
/** size_distinct_count() - the count, or its estimate */
uint64_t size_distinct_count(const struct size_distinct *d);
/** size_distinct_shift() - 0: exact; else the @shift for which a size_blocks holds the sample */
unsigned int size_distinct_shift(const struct size_distinct *d);

#endif
