/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stack distances (Mattson et al. 1970): how many different blocks were used since this one was
 * used last, itself included. With LRU a window of W blocks hits exactly the accesses whose
 * distance is at most W, so one pass gives the exact miss ratio of every size. Threads: one at a
 * time.
 */
#ifndef DAXMAP_SIZE_STACK_H
#define DAXMAP_SIZE_STACK_H

#include <stdint.h>

struct size_stack;

struct size_stack *size_stack_new(void);
void size_stack_free(struct size_stack *s);

/** size_stack_access() - uses block @id (numbers as size_blocks gives them); returns its distance,
 * 1: it was the last one used, 0: never used before. O(log n). */
uint32_t size_stack_access(struct size_stack *s, uint32_t id);
/** size_stack_misses() - of all accesses so far, how many a window of @blocks would miss with LRU
 */
uint64_t size_stack_misses(const struct size_stack *s, uint32_t blocks);
/** size_stack_total() - accesses so far */
uint64_t size_stack_total(const struct size_stack *s);
/** size_stack_blocks() - different blocks so far */
uint32_t size_stack_blocks(const struct size_stack *s);

#endif
