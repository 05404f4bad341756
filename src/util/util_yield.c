// SPDX-License-Identifier: Apache-2.0
#include "util_yield.h"

#ifdef DAXMAPD_DEBUG_YIELD
#include <sched.h>
#include <time.h>

static _Thread_local uint64_t state = 0x9e3779b97f4a7c15ull;

void util_yield_seed(uint64_t seed)
{
	state = seed ? seed : 1;
}

void util_yield(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	if ((state & 7) == 0)
		sched_yield();
	if ((state & 1023) == 1)
		nanosleep(&(struct timespec){.tv_nsec = 50000}, 0);
}
#else
typedef int util_yield_is_off;
#endif
