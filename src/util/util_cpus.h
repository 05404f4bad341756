/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_UTIL_CPUS_H
#define DAXMAP_UTIL_CPUS_H

#include <sched.h>

/** util_cpus_nth() - number of the @n-th CPU of @set, from 0, counting round; -1: it has none */
static inline int util_cpus_nth(const cpu_set_t *set, unsigned int n)
{
	int count = CPU_COUNT(set), cpu = 0;

	if (count == 0)
		return -1;
	for (n %= (unsigned int)count;; cpu++)
		if (CPU_ISSET(cpu, set) && n-- == 0)
			return cpu;
}

#endif
