/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a map costs against how many are live: a + b * live, fitted to what was measured.
 * Threads: one at a time.
 */
#ifndef DAXMAP_SIZE_COST_H
#define DAXMAP_SIZE_COST_H

#include <stdbool.h>
#include <stdint.h>

struct size_cost;

struct size_cost *size_cost_new(void);
void size_cost_free(struct size_cost *c);
/** size_cost_add() - one operation took @ns while @live ranges were mapped */
void size_cost_add(struct size_cost *c, uint32_t live, uint64_t ns);

/** enum size_cost_source - where a line's slope comes from */
enum size_cost_source {
	SIZE_COST_NONE,	   /* nothing measured: not even a mean */
	SIZE_COST_FITTED,  /* base and slope are the data's */
	SIZE_COST_ASSUMED, /* the data lie too close together, or scatter too much, to show a slope:
			      it is the one that was passed in; the base is the data's */
	SIZE_COST_GIVEN,   /* both by the user */
};

/**
 * struct size_line - base + slope * live, ns
 * @slope_error: standard error of the fitted slope; 0 where there is none
 * @live_min, @live_max: measured between these
 * @samples: operations
 */
struct size_line {
	enum size_cost_source source;
	double base;
	double slope;
	double slope_error;
	uint32_t live_min;
	uint32_t live_max;
	uint64_t samples;
};

/**
 * size_cost_fit() - the line
 * @usual_slope: ns a live mapping, for when the data do not show one
 *
 * Never negative: not the slope, nor the base.
 */
void size_cost_fit(const struct size_cost *c, double usual_slope, struct size_line *out);
double size_line_at(const struct size_line *l, double live);

#endif
