/* SPDX-License-Identifier: Apache-2.0 */
/*
 * util_yield() marks a racy point. Built with -Ddebug_yield=true it now and then gives the CPU
 * away there; otherwise it is nothing. The stream of decisions of a thread depends on the seed
 * alone (util_yield_seed()), not on time.
 */
#ifndef DAXMAP_UTIL_YIELD_H
#define DAXMAP_UTIL_YIELD_H

#include <stdint.h>

#ifdef DAXMAPD_DEBUG_YIELD
void util_yield(void);
void util_yield_seed(uint64_t seed);
#else
static inline void util_yield(void)
{
}
static inline void util_yield_seed(uint64_t seed)
{
	(void)seed;
}
#endif

#endif
