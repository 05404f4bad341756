// SPDX-License-Identifier: Apache-2.0
/*
 * Operations are gathered in bins of live mappings, each bin exact up to 32 and then about a
 * sixteenth wide. A bin keeps a reservoir of what they took. The line goes through the bins' means
 * with the top 5% cut to what stands there: one asker that lost its CPU for 50 ms is no cost of
 * mapping, but a tail that all have is. Bins weigh as their square root of samples over scatter, so
 * the full window, where most operations happen, does not drown the way there, which is what shows
 * the slope.
 */
#include "size_cost.h"

#include <math.h>
#include <stdlib.h>

#include <glib.h>

#define EXACT 32u
#define SUB 16u
#define BINS (EXACT + SUB * 28u)
#define KEEP 128u
#define ENOUGH_BINS 4u
#define ENOUGH_SPAN 16u

struct bin {
	uint64_t n;
	double live_sum;
	uint32_t *kept; /* in units of 64 ns, so that 32 bits hold four minutes */
};

struct size_cost {
	struct bin bins[BINS];
	uint64_t seed;
	uint64_t n;
	uint32_t live_min;
	uint32_t live_max;
};

#define UNIT 64u

struct size_cost *size_cost_new(void)
{
	struct size_cost *c = g_new0(struct size_cost, 1);

	c->seed = 88172645463325252u;
	c->live_min = UINT32_MAX;
	return c;
}

void size_cost_free(struct size_cost *c)
{
	if (!c)
		return;
	for (unsigned int i = 0; i < BINS; i++)
		g_free(c->bins[i].kept);
	g_free(c);
}

static unsigned int bin_of(uint32_t live)
{
	unsigned int log;

	if (live < EXACT)
		return live;
	log = 31u - (unsigned int)__builtin_clz(live);
	return MIN(BINS - 1, EXACT + (log - 5) * SUB + (live >> (log - 4)) % SUB);
}

static uint64_t next(struct size_cost *c)
{
	c->seed ^= c->seed << 13;
	c->seed ^= c->seed >> 7;
	c->seed ^= c->seed << 17;
	return c->seed;
}

void size_cost_add(struct size_cost *c, uint32_t live, uint64_t ns)
{
	struct bin *b = &c->bins[bin_of(live)];
	uint64_t at = b->n++;

	b->live_sum += live;
	c->n++;
	c->live_min = MIN(c->live_min, live);
	c->live_max = MAX(c->live_max, live);
	if (!b->kept)
		b->kept = g_new(uint32_t, KEEP);
	if (at >= KEEP)
		at = next(c) % (at + 1);
	if (at < KEEP)
		b->kept[at] = (uint32_t)MIN(ns / UNIT, UINT32_MAX);
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

struct point {
	double x, y, weight;
};

/* Mean and, for the weight, its variance. */
static void point_of(const struct bin *b, struct point *p)
{
	unsigned int n = (unsigned int)MIN(b->n, KEEP);
	double sum = 0, square = 0, cap, var;

	qsort(b->kept, n, sizeof(*b->kept), by_value);
	cap = b->kept[n - 1 - n / 20];
	for (unsigned int i = 0; i < n; i++) {
		double v = MIN(b->kept[i], cap);

		sum += v;
		square += v * v;
	}
	p->x = b->live_sum / (double)b->n;
	p->y = sum / n * UNIT;
	var = MAX(square / n - sum / n * (sum / n), 0) * UNIT * UNIT;
	/* a bin of one or two says little of its own scatter: never better than a tenth of the mean
	 */
	p->weight = sqrt((double)b->n) / MAX(sqrt(var), MAX(p->y / 10, 1));
}

static unsigned int points_of(const struct size_cost *c, struct point *p)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < BINS; i++)
		if (c->bins[i].n)
			point_of(&c->bins[i], &p[n++]);
	return n;
}

struct sums {
	double w, x, y, xx, xy;
};

static double residual_error(const struct point *p, unsigned int n, double base, double slope,
			     double sxx)
{
	double sum = 0, w = 0;

	for (unsigned int i = 0; i < n; i++) {
		double d = p[i].y - base - slope * p[i].x;

		sum += p[i].weight * d * d;
		w += p[i].weight;
	}
	return n > 2 ? sqrt(sum / w * n / (n - 2) / (sxx / w * n)) : INFINITY;
}

void size_cost_fit(const struct size_cost *c, double usual_slope, struct size_line *out)
{
	struct point *p = g_new(struct point, BINS);
	unsigned int n = points_of(c, p);
	struct sums s = {0};
	double sxx;

	*out = (struct size_line){
		.samples = c->n, .live_min = c->live_min, .live_max = c->live_max};
	for (unsigned int i = 0; i < n; i++) {
		s.w += p[i].weight;
		s.x += p[i].weight * p[i].x;
		s.y += p[i].weight * p[i].y;
		s.xx += p[i].weight * p[i].x * p[i].x;
		s.xy += p[i].weight * p[i].x * p[i].y;
	}
	if (n) {
		sxx = s.xx - s.x * s.x / s.w;
		out->source = SIZE_COST_ASSUMED;
		out->slope = usual_slope;
		if (n >= ENOUGH_BINS && c->live_max - c->live_min >= ENOUGH_SPAN) {
			double slope = (s.xy - s.x * s.y / s.w) / sxx;
			double base = (s.y - slope * s.x) / s.w;
			double error = residual_error(p, n, base, slope, sxx);

			/* a third of itself, or no more than what nobody would notice */
			if (error < fabs(slope) / 3 || error * c->live_max < base / 4) {
				out->source = SIZE_COST_FITTED;
				out->slope = MAX(slope, 0);
				out->slope_error = error;
			}
		}
		out->base = MAX((s.y - out->slope * s.x) / s.w, 0);
	}
	g_free(p);
}

double size_line_at(const struct size_line *l, double live)
{
	return l->base + l->slope * live;
}
