/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked arithmetic for every sum of numbers that came from outside.
 * All functions return true when the result fits and was stored, false when it does not
 * (the result is then unspecified and must not be used).
 */
#ifndef DAXMAP_UTIL_OVERFLOW_H
#define DAXMAP_UTIL_OVERFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool util_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
	return !__builtin_add_overflow(a, b, sum);
}

static inline bool util_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
	return !__builtin_mul_overflow(a, b, product);
}

static inline bool util_add_size(size_t a, size_t b, size_t *sum)
{
	return !__builtin_add_overflow(a, b, sum);
}

static inline bool util_mul_size(size_t a, size_t b, size_t *product)
{
	return !__builtin_mul_overflow(a, b, product);
}

/** util_range_inside() - is [off, off + len) inside [0, limit)? An empty range at limit is. */
static inline bool util_range_inside(uint64_t off, uint64_t len, uint64_t limit)
{
	return off <= limit && len <= limit - off;
}

/** util_is_aligned() - @align must be a power of two. */
static inline bool util_is_aligned(uint64_t v, uint64_t align)
{
	return (v & (align - 1)) == 0;
}

static inline bool util_is_pow2(uint64_t v)
{
	return v != 0 && (v & (v - 1)) == 0;
}

/** util_round_up() - rounds @v up to @align (a power of two); false when that overflows. */
static inline bool util_round_up(uint64_t v, uint64_t align, uint64_t *rounded)
{
	uint64_t sum;

	if (!util_add_u64(v, align - 1, &sum))
		return false;
	*rounded = sum & ~(align - 1);
	return true;
}

#endif
