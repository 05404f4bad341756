/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_BENCH_MEDIAN_H
#define DAXMAP_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int bench_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/** bench_median() - of @n values, at least one; sorts them */
static inline double bench_median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), bench_by_value);
	return v[n / 2];
}

#endif
