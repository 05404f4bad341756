// SPDX-License-Identifier: Apache-2.0
/*
 * The passes in order, and the arithmetic between them.
 *
 * A miss of a window costs what the maps of the trace cost, at as many live mappings as that window
 * has when it is full: that is what makes a larger window dearer on QEMU. A window is as good as
 * the sum of all its misses and hits; of those within the tolerance of the best the smallest is
 * recommended, as each gigabyte of window costs the guest 16 MiB of memory.
 */
#include "size_int.h"

#include <math.h>
#include <string.h>

#define TOLERANCE 0.05
/* A file must lose so much by DAX before it is worth a rule. */
#define WORSE 1.2

struct work {
	struct size_source *source;
	const struct size_options *options;
	struct size_scan scan;
	struct size_plan plan;
	struct size_curves *curves;
	struct size_report *report;
	uint8_t *track;
	uint32_t recorded_slots;
};

void size_report_free(struct size_report *r)
{
	if (!r)
		return;
	for (unsigned int i = 0; i < r->n_files; i++)
		g_free(r->files[i].name);
	g_ptr_array_unref(r->exclude);
	g_ptr_array_unref(r->reasons);
	g_ptr_array_unref(r->notes);
	g_free(r);
}

int size_choose(const struct size_report *r, const double *cost, int *best)
{
	*best = -1;
	for (unsigned int i = 0; i < r->n_rows; i++)
		if (!r->rows[i].not_allowed && (*best < 0 || cost[i] < cost[*best]))
			*best = (int)i;
	for (unsigned int i = 0; i < r->n_rows; i++)
		if (!r->rows[i].not_allowed && cost[i] <= cost[*best] * (1 + r->tolerance))
			return (int)i;
	return -1;
}

/* --- which sizes --- */

static uint64_t round_up(uint64_t v)
{
	return v <= 1 ? 1 : UINT64_C(1) << (64 - __builtin_clzll(v - 1));
}

/* The window in which everything finds a place, with Linux's fifth kept free. */
static uint64_t enough(const struct work *k)
{
	uint64_t need = k->scan.totals.distinct + k->scan.totals.distinct / 4 + 1;
	uint64_t slots = round_up(MAX(need, k->recorded_slots));

	if (k->source->guest_seat && k->source->budget)
		slots = MIN(slots, round_up(k->source->budget));
	return slots;
}

static void make_rows(struct work *k)
{
	const struct size_options *o = k->options;
	struct size_report *r = k->report;
	uint64_t granule = k->source->granule, last = enough(k);

	for (uint64_t slots = 1; slots <= last && r->n_rows < SIZE_ROWS_MAX; slots *= 2) {
		struct size_row *row = &r->rows[r->n_rows];
		uint64_t bytes;

		if (__builtin_mul_overflow(slots, granule, &bytes))
			break;
		if (bytes < o->min || (o->max && bytes > o->max))
			continue;
		row->bytes = bytes;
		row->slots = (uint32_t)MIN(slots, UINT32_MAX);
		if (k->source->guest_seat && k->source->budget)
			row->slots = MIN(row->slots, k->source->budget);
		row->recorded = bytes == k->source->window;
		row->pages = k->source->guest_seat ? 0 : bytes >> SIZE_PAGES_SHIFT;
		k->plan.slots[k->plan.n++] = row->slots;
		r->n_rows++;
	}
	/* one more, that is no row: the recorded window itself, to check against */
	if (k->recorded_slots)
		k->plan.slots[k->plan.n++] = k->recorded_slots;
}

/* --- which files --- */

static int by_uses(const void *a, const void *b, gpointer data)
{
	const struct size_scan *s = data;
	uint64_t x = g_array_index(s->files, struct size_seen, *(const uint32_t *)a).uses;
	uint64_t y = g_array_index(s->files, struct size_seen, *(const uint32_t *)b).uses;

	return (x < y) - (x > y);
}

static void pick_files(struct work *k)
{
	struct size_report *r = k->report;
	guint n = k->scan.files->len;
	g_autofree uint32_t *order = g_new(uint32_t, MAX(n, 1));

	k->track = g_new0(uint8_t, MAX(n, 1));
	for (guint i = 0; i < n; i++)
		order[i] = i;
	g_qsort_with_data(order, (gint)n, sizeof(*order), by_uses, &k->scan);
	r->n_files = MIN(n, SIZE_FILES_MAX);
	for (unsigned int i = 0; i < r->n_files; i++) {
		const struct size_seen *f =
			&g_array_index(k->scan.files, struct size_seen, order[i]);

		k->track[order[i]] = (uint8_t)(i + 1);
		r->files[i] = (struct size_file){
			.hi = f->hi,
			.lo = f->lo,
			.accesses = f->uses,
			.recorded_misses = f->misses,
			.blocks = f->blocks,
		};
		if (k->source->name)
			r->files[i].name = k->source->name(k->source->ctx, f->hi, f->lo);
	}
}

/* --- what it costs --- */

static void fit_costs(struct work *k)
{
	const struct size_options *o = k->options;
	struct size_report *r = k->report;

	size_cost_fit(k->scan.map, o->usual_slope, &r->map);
	size_cost_fit(k->scan.unmap, 0, &r->unmap);
	r->extra_ns = k->scan.extra_ns;
	r->maps_a_miss = k->scan.maps_a_miss;
	if (o->map_given) {
		r->map = (struct size_line){
			.source = SIZE_COST_GIVEN,
			.base = o->map_base,
			.slope = o->map_slope,
		};
		r->extra_ns = 0;
		r->maps_a_miss = 1;
	}
	r->read_given = o->read_ns > 0;
	r->hit_given = o->hit_ns > 0;
	r->read_ns = r->read_given ? o->read_ns : SIZE_READ_NS;
	r->hit_ns = r->hit_given ? o->hit_ns : SIZE_HIT_NS;
	r->tolerance = o->tolerance > 0 ? o->tolerance : TOLERANCE;
}

static double miss_ns(const struct size_report *r, double live)
{
	return r->extra_ns + r->maps_a_miss * size_line_at(&r->map, live);
}

static double cost_of(const struct size_report *r, double accesses, double misses, double ns)
{
	return misses * ns + (r->exact == SIZE_EXACT ? accesses * r->hit_ns : 0);
}

static void cost_rows(struct size_report *r)
{
	for (unsigned int i = 0; i < r->n_rows; i++) {
		struct size_row *row = &r->rows[i];

		row->miss_ns = miss_ns(r, row->live_mean);
		row->cost_ns = cost_of(r, (double)r->totals.accesses, row->misses, row->miss_ns);
	}
}

/* --- the curves become rows --- */

/* The policy that misses at the recorded size as often as was recorded. */
static enum size_family closest(const struct work *k)
{
	unsigned int w = k->report->n_rows;
	double recorded = (double)k->scan.totals.misses, least = INFINITY;
	enum size_family best = SIZE_CLOCK;

	if (!k->recorded_slots)
		return best;
	for (unsigned int f = 0; f < SIZE_FAMILIES; f++) {
		double off = fabs(k->curves->misses[f][w] - recorded);

		/* a thousandth is no reason to leave the first, which is the default */
		if (off < least - (double)k->scan.totals.accesses / 1000) {
			least = off;
			best = (enum size_family)f;
		}
	}
	return best;
}

static bool exact_rows(struct work *k, GError **error)
{
	struct size_report *r = k->report;

	k->plan.families = (1u << SIZE_FAMILIES) - 1;
	k->plan.lru = true;
	if (!size_curves_exact(k->source, &k->plan, k->curves, error))
		return false;
	r->totals.accesses = k->curves->accesses;
	r->family = closest(k);
	if (k->recorded_slots)
		r->check_predicted = k->curves->misses[r->family][r->n_rows];
	for (unsigned int i = 0; i < r->n_rows; i++) {
		struct size_row *row = &r->rows[i];

		row->misses = row->least = row->most = k->curves->misses[r->family][i];
		row->live = k->curves->live[r->family][i];
		row->live_mean = k->curves->live_mean[r->family][i];
		row->lru = k->curves->lru[i];
		for (unsigned int f = 0; f < SIZE_FAMILIES; f++)
			row->family[f] = k->curves->misses[f][i];
	}
	return true;
}

/* Nothing was ever given up: then each window in which all fits misses the same, surely. */
static bool fits(const struct work *k, const struct size_row *row)
{
	return k->scan.totals.removes == 0 &&
	       (uint64_t)row->slots - MAX(row->slots / 5, 1) >= k->scan.totals.distinct;
}

static bool bounded_rows(struct work *k, GError **error)
{
	struct size_report *r = k->report;

	if (!size_curves_bounded(k->source, &k->plan, k->curves, error))
		return false;
	r->totals.accesses = k->curves->accesses;
	r->family = SIZE_LINUX;
	for (unsigned int i = 0; i < r->n_rows; i++) {
		struct size_row *row = &r->rows[i];
		double recorded = (double)r->totals.accesses;

		row->live = k->curves->live[SIZE_LINUX][i];
		row->live_mean = k->curves->live_mean[SIZE_LINUX][i];
		row->misses = MIN(k->curves->misses[SIZE_LINUX][i], recorded);
		row->least = MIN(k->curves->least[i], row->misses);
		row->most = MIN(k->curves->most[i], recorded);
		if (r->window && row->bytes < r->window && !fits(k, row)) {
			row->open = true;
			row->misses = row->least = row->most = recorded;
		} else if (row->recorded) {
			row->misses = row->least = row->most = recorded;
		}
		row->misses = (row->least + row->most) / 2;
	}
	return true;
}

/* What the driver refuses, and what nothing is known of. */
static void allow(struct size_report *r)
{
	for (unsigned int i = 0; i < r->n_rows; i++) {
		struct size_row *row = &r->rows[i];

		if (row->open)
			row->not_allowed = "hits below the recorded size are not known";
		else if (!r->guest_seat && r->budget && row->live > r->budget)
			row->not_allowed = "more live mappings than the budget";
		else if (!r->guest_seat && row->bytes < 2u << 20)
			row->not_allowed = "less than 2M";
	}
}

/* --- files --- */

static void judge_files(struct work *k, unsigned int row)
{
	struct size_report *r = k->report;

	for (unsigned int i = 0; i < r->n_files; i++) {
		struct size_file *f = &r->files[i];

		f->misses = k->curves->by_file[r->family][i][row];
		f->dax_ns = cost_of(r, (double)f->accesses, f->misses, r->rows[row].miss_ns);
		f->read_ns = (double)f->accesses * r->read_ns;
		f->better_off = r->exact == SIZE_EXACT && f->dax_ns > f->read_ns * WORSE;
	}
}

/* What is left when those files go by request: does it pay, and which window then? */
static bool try_without(struct work *k, GError **error)
{
	g_autofree struct size_curves *c = g_new(struct size_curves, 1);
	g_autofree uint8_t *skip = g_new0(uint8_t, k->scan.files->len + 1);
	struct size_report *r = k->report;
	struct size_plan p = k->plan;
	double cost[SIZE_ROWS_MAX], by_read = 0;
	int best, row;

	for (guint i = 0; i < k->scan.files->len; i++) {
		skip[i] = k->track[i] && r->files[k->track[i] - 1].better_off;
		if (skip[i])
			by_read += r->files[k->track[i] - 1].read_ns;
	}
	p.families = 1u << r->family;
	p.lru = false;
	p.track = NULL;
	p.skip = skip;
	if (!size_curves_exact(k->source, &p, c, error))
		return false;
	for (unsigned int i = 0; i < r->n_rows; i++)
		cost[i] = by_read + cost_of(r, (double)c->accesses, c->misses[r->family][i],
					    miss_ns(r, c->live_mean[r->family][i]));
	row = size_choose(r, cost, &best);
	if (row >= 0 && cost[row] * (1 + r->tolerance) < r->rows[r->choice].cost_ns) {
		r->without = row;
		r->without_ns = cost[row];
	}
	return true;
}

static bool decide(struct work *k, GError **error)
{
	struct size_report *r = k->report;
	double cost[SIZE_ROWS_MAX];
	bool candidates = false;

	for (unsigned int i = 0; i < r->n_rows; i++)
		cost[i] = r->rows[i].cost_ns;
	r->choice = size_choose(r, cost, &r->best);
	if (r->exact == SIZE_EXACT)
		r->all_read_ns = (double)r->totals.accesses * r->read_ns;
	else if (k->options->accesses)
		r->all_read_ns = (double)k->options->accesses * r->read_ns;
	if (r->choice < 0)
		return true;
	judge_files(k, (unsigned int)r->choice);
	for (unsigned int i = 0; i < r->n_files; i++)
		candidates |= r->files[i].better_off;
	if (candidates && r->n_files > 1 && !try_without(k, error))
		return false;
	return true;
}

/* When all that remains is dearer than requests, no window. */
static void last_word(struct work *k)
{
	struct size_report *r = k->report;
	double hits = r->exact == SIZE_BOUNDED ? (double)k->options->accesses * r->hit_ns : 0;
	double cost;

	if (r->choice < 0)
		return;
	cost = r->without >= 0 ? r->without_ns : r->rows[r->choice].cost_ns + hits;
	if (r->all_read_ns < 0 || cost < r->all_read_ns)
		r->recommend = r->without >= 0 ? r->without : r->choice;
	else
		r->without = -1;
}

/* --- all of it --- */

static bool usable(const struct work *k, GError **error)
{
	if (k->scan.hits_known || k->scan.totals.setups || k->scan.totals.maps)
		return true;
	g_set_error(error, SIZE_ERROR, 0,
		    "the trace holds %" G_GUINT64_FORMAT " events, none of them an access or a "
		    "mapping: there is nothing to go by",
		    k->scan.totals.events);
	return false;
}

static void begin_report(struct work *k)
{
	struct size_report *r = k->report;
	const struct size_source *s = k->source;

	r->totals = k->scan.totals;
	r->exact = k->scan.hits_known ? SIZE_EXACT : SIZE_BOUNDED;
	r->window = s->window;
	r->granule = s->granule;
	r->budget = s->budget;
	r->guest_seat = s->guest_seat;
	r->check_predicted = -1;
	r->all_read_ns = -1;
	r->best = r->choice = r->recommend = r->without = -1;
	if (s->window)
		k->recorded_slots = (uint32_t)MIN(s->window / s->granule, UINT32_MAX / 2);
	if (s->guest_seat && s->budget && k->recorded_slots)
		k->recorded_slots = MIN(k->recorded_slots, s->budget);
}

static bool analyse(struct work *k, GError **error)
{
	if (!size_scan_read(k->source, &k->scan, error) || !usable(k, error))
		return false;
	begin_report(k);
	make_rows(k);
	pick_files(k);
	fit_costs(k);
	k->plan.scan = &k->scan;
	k->plan.track = k->track;
	if (!(k->scan.hits_known ? exact_rows(k, error) : bounded_rows(k, error)))
		return false;
	cost_rows(k->report);
	allow(k->report);
	if (!decide(k, error))
		return false;
	last_word(k);
	size_exclude(k->report);
	size_give_reasons(k->report, &k->scan, k->options);
	return true;
}

struct size_report *size_analyse(struct size_source *source, const struct size_options *options,
				 GError **error)
{
	struct work k = {.source = source, .options = options};
	bool good;

	g_assert(source->granule && (source->granule & (source->granule - 1)) == 0);
	k.report = g_new0(struct size_report, 1);
	k.report->exclude = g_ptr_array_new_with_free_func(g_free);
	k.report->reasons = g_ptr_array_new_with_free_func(g_free);
	k.report->notes = g_ptr_array_new_with_free_func(g_free);
	k.curves = g_new0(struct size_curves, 1);
	good = analyse(&k, error);
	size_scan_clear(&k.scan);
	g_free(k.curves);
	g_free(k.track);
	if (good)
		return k.report;
	size_report_free(k.report);
	return NULL;
}
