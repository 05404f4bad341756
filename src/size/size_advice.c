// SPDX-License-Identifier: Apache-2.0
/*
 * The answer in words: why this window and not its neighbours, what requests would cost instead,
 * which files are better off without DAX, and what all this rests on.
 */
#include "size_int.h"

#include <string.h>

static void say(GPtrArray *to, const char *format, ...) G_GNUC_PRINTF(2, 3);

static void say(GPtrArray *to, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	g_ptr_array_add(to, g_strdup_vprintf(format, ap));
	va_end(ap);
}

char *size_bytes_text(uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	int unit = -1;
	double v = (double)bytes;

	while (v >= 1024 && unit < 5) {
		v /= 1024;
		unit++;
	}
	if (unit < 0)
		return g_strdup_printf("%" G_GUINT64_FORMAT, bytes);
	return g_strdup_printf(v == (double)(uint64_t)v ? "%.0f%c" : "%.1f%c", v, units[unit]);
}

/* --- names --- */

/* ".db" of "a/b.db"; NULL without one */
static const char *suffix_of(const char *name)
{
	const char *base = name ? strrchr(name, '/') : NULL;
	const char *dot;

	if (!name)
		return NULL;
	base = base ? base + 1 : name;
	dot = strrchr(base, '.');
	return dot && dot != base && dot[1] ? dot : NULL;
}

/* All files of the trace with this suffix are to go, and they are several. */
static bool suffix_goes(const struct size_report *r, const char *suffix)
{
	unsigned int n = 0;

	if (!suffix || strpbrk(suffix, "*?[\\") || r->totals.files > r->n_files)
		return false;
	for (unsigned int i = 0; i < r->n_files; i++) {
		const char *other = suffix_of(r->files[i].name);

		if (!r->files[i].name)
			return false;
		if (!other || strcmp(other, suffix) != 0)
			continue;
		if (!r->files[i].better_off)
			return false;
		n++;
	}
	return n > 1;
}

static char *escape(const char *name)
{
	GString *s = g_string_new("/");

	for (; *name; name++) {
		if (strchr("*?[]\\", *name))
			g_string_append_c(s, '\\');
		g_string_append_c(s, *name);
	}
	return g_string_free(s, FALSE);
}

static void add_glob(GPtrArray *globs, char *glob)
{
	for (guint i = 0; i < globs->len; i++) {
		if (strcmp(g_ptr_array_index(globs, i), glob) == 0) {
			g_free(glob);
			return;
		}
	}
	g_ptr_array_add(globs, glob);
}

void size_exclude(struct size_report *r)
{
	for (unsigned int i = 0; i < r->n_files && r->without >= 0; i++) {
		const char *name = r->files[i].name;
		const char *suffix = suffix_of(name);

		if (!r->files[i].better_off)
			continue;
		if (suffix_goes(r, suffix))
			add_glob(r->exclude, g_strdup_printf("*%s", suffix));
		else if (name)
			add_glob(r->exclude, escape(name));
	}
}

/* --- reasons --- */

static double us(double ns)
{
	return ns / 1000;
}

static const char *noun(const struct size_report *r)
{
	return r->exact == SIZE_EXACT ? "an access" : "a recorded setup";
}

static double per_access(const struct size_report *r, double cost_ns)
{
	return r->totals.accesses ? cost_ns / (double)r->totals.accesses : 0;
}

static double percent(const struct size_report *r, double misses)
{
	return r->totals.accesses ? 100 * misses / (double)r->totals.accesses : 0;
}

static const struct size_row *recorded_row(const struct size_report *r)
{
	for (unsigned int i = 0; i < r->n_rows; i++)
		if (r->rows[i].recorded)
			return &r->rows[i];
	return NULL;
}

static void why_not_larger(struct size_report *r, unsigned int i)
{
	const struct size_row *here = &r->rows[i], *next;
	g_autofree char *size = NULL, *pages = NULL;
	double gain;

	if (i + 1 >= r->n_rows)
		return;
	next = &r->rows[i + 1];
	size = size_bytes_text(next->bytes);
	if (next->not_allowed) {
		say(r->reasons, "%s is not for this driver: %s (%.0f of %u)", size,
		    next->not_allowed, next->live, r->budget);
		return;
	}
	gain = here->cost_ns > 0 ? 100 * (1 - next->cost_ns / here->cost_ns) : 0;
	pages = size_bytes_text(next->pages - here->pages);
	if (gain < 0 && next->misses < here->misses)
		say(r->reasons,
		    "%s would miss less and still cost %.1f%% more: with %.0f mappings live "
		    "instead "
		    "of %.0f a miss takes %.0f us instead of %.0f",
		    size, -gain, next->live, here->live, us(next->miss_ns), us(here->miss_ns));
	else if (next->pages)
		say(r->reasons, "%s would gain %.1f%% and take %s more of the guest's memory", size,
		    MAX(gain, 0), pages);
	else
		say(r->reasons, "%s would gain %.1f%%", size, MAX(gain, 0));
}

static void why_not_smaller(struct size_report *r, unsigned int i)
{
	const struct size_row *here = &r->rows[i], *next;
	g_autofree char *size = NULL;

	if (i == 0)
		return;
	next = &r->rows[i - 1];
	size = size_bytes_text(next->bytes);
	if (next->open)
		say(r->reasons,
		    "of %s nothing is known but that it misses no less than the recorded "
		    "window: record with a smaller one to see",
		    size);
	else if (here->cost_ns > 0)
		say(r->reasons, "%s would cost %.1f%% more", size,
		    100 * (next->cost_ns / here->cost_ns - 1));
}

static void why_this(struct size_report *r, unsigned int i)
{
	const struct size_row *row = &r->rows[i], *was = recorded_row(r);
	g_autofree char *size = size_bytes_text(row->bytes);
	g_autofree char *set = size_bytes_text(r->totals.distinct * r->granule);

	if (r->without >= 0)
		say(r->reasons, "with all files in the window the best would be %s:", size);
	if (row->misses <= (double)r->totals.distinct * 1.02)
		say(r->reasons,
		    "%s holds all that is used again: %s in %" G_GUINT64_FORMAT
		    " ranges were used; the %.1f%% of misses are first uses",
		    size, set, r->totals.distinct, percent(r, row->misses));
	else
		say(r->reasons,
		    "with %s %.1f%% of %s%s miss; %s in %" G_GUINT64_FORMAT " ranges were used",
		    size, percent(r, row->misses),
		    r->exact == SIZE_EXACT ? "accesses" : "recorded setups",
		    r->exact == SIZE_EXACT ? "" : " still", set, r->totals.distinct);
	if (was && was != row && row->cost_ns > 0) {
		double ratio = was->cost_ns / row->cost_ns;
		g_autofree char *old = size_bytes_text(was->bytes);

		if (ratio >= 1)
			say(r->reasons,
			    "that is %.1f us %s, %.2f times less than with the recorded %s",
			    us(per_access(r, row->cost_ns)), noun(r), ratio, old);
		else
			say(r->reasons, "that is %.1f us %s, as good as the recorded %s (%.1f us)",
			    us(per_access(r, row->cost_ns)), noun(r), old,
			    us(per_access(r, was->cost_ns)));
	}
}

static void against_requests(struct size_report *r, int i)
{
	const struct size_row *row = &r->rows[i];
	double gain = r->read_ns - r->hit_ns;

	if (r->all_read_ns >= 0 && r->exact == SIZE_EXACT)
		say(r->reasons,
		    "without DAX an access would cost a request of %.1f us (%s): %s %.2f times",
		    us(r->read_ns), r->read_given ? "given" : "assumed; see --read-us",
		    row->cost_ns <= r->all_read_ns ? "DAX wins" : "DAX loses",
		    row->cost_ns <= r->all_read_ns ? r->all_read_ns / row->cost_ns
						   : row->cost_ns / r->all_read_ns);
	else if (gain > 0)
		say(r->reasons,
		    "against requests of %.1f us (%s) DAX pays where a mapping serves more than "
		    "%.0f accesses before it goes; the daemon cannot see how many it serves "
		    "(--accesses tells)",
		    us(r->read_ns), r->read_given ? "given" : "assumed; see --read-us",
		    row->miss_ns / gain);
}

static void without_files(struct size_report *r)
{
	g_autofree char *size = NULL;
	unsigned int n = 0;

	if (r->without < 0)
		return;
	for (unsigned int i = 0; i < r->n_files; i++)
		n += r->files[i].better_off;
	size = size_bytes_text(r->rows[r->without].bytes);
	say(r->reasons,
	    "%u file%s (marked below) cost more through the window than by request, and take "
	    "others' "
	    "places: without them a window of %s gives %.1f us an access, all requests included, "
	    "instead of %.1f us",
	    n, n == 1 ? "" : "s", size, us(per_access(r, r->without_ns)),
	    us(per_access(r, r->rows[r->choice].cost_ns)));
}

static void why_none(struct size_report *r)
{
	if (r->best < 0) {
		say(r->reasons, "no size is allowed");
		return;
	}
	say(r->reasons,
	    "turn DAX off: the best window gives %.1f us an access, a request costs %.1f us (%s)",
	    us(r->rows[r->best].cost_ns / MAX(r->all_read_ns / r->read_ns, 1)), us(r->read_ns),
	    r->read_given ? "given" : "assumed; see --read-us");
	if (r->choice >= 0) {
		g_autofree char *size = size_bytes_text(r->rows[r->choice].bytes);

		say(r->reasons, "if there must be a window, %s does as well as any", size);
	}
	if (r->exact == SIZE_EXACT)
		say(r->reasons, "%.1f%% of accesses miss even there, and a miss takes %.0f us",
		    percent(r, r->rows[r->best].misses), us(r->rows[r->best].miss_ns));
}

/* --- notes --- */

static void note_misses(struct size_report *r)
{
	double total = (double)MAX(r->totals.accesses, 1);

	if (r->exact == SIZE_EXACT)
		say(r->notes, "every access is known: misses are exact for the policy, \"%s\"",
		    size_policies[r->family].name);
	else
		say(r->notes,
		    "hits are not known: misses are counted in recorded setups, and lie "
		    "between bounds for a guest with the policy \"%s\"",
		    size_policies[r->family].name);
	if (r->totals.shift)
		say(r->notes,
		    "one range in %u was looked at, as there are too many; small windows are "
		    "the less certain for it",
		    1u << r->totals.shift);
	if (r->check_predicted >= 0)
		say(r->notes,
		    "check: at the recorded size this says %.1f%% misses, and %.1f%% were recorded",
		    100 * r->check_predicted / total, 100 * (double)r->totals.misses / total);
	if (r->totals.sessions > 1)
		say(r->notes, "%" G_GUINT64_FORMAT " sessions are looked at as one",
		    r->totals.sessions);
	if (r->totals.accesses < 4 * r->totals.distinct)
		say(r->notes,
		    "the trace is short: %.1f uses a range on average; the larger sizes show "
		    "little but first uses",
		    (double)r->totals.accesses / (double)MAX(r->totals.distinct, 1));
}

static void note_cost(struct size_report *r)
{
	const struct size_line *l = &r->map;

	switch (l->source) {
	case SIZE_COST_GIVEN:
		say(r->notes, "a miss costs %.0f us + %.2f us a live mapping, as given",
		    us(l->base), us(l->slope));
		break;
	case SIZE_COST_FITTED:
		say(r->notes,
		    "a map costs %.0f us + %.2f us (+-%.2f) a live mapping: measured on "
		    "%" G_GUINT64_FORMAT " maps at %u to %u live%s",
		    us(l->base), us(l->slope), us(l->slope_error), l->samples, l->live_min,
		    l->live_max, "; beyond that it is a guess");
		break;
	case SIZE_COST_ASSUMED:
		say(r->notes,
		    "a map costs %.0f us + %.2f us a live mapping: the first from "
		    "%" G_GUINT64_FORMAT " maps at %u to %u live, the second assumed, as those "
		    "show none",
		    us(l->base), us(l->slope), l->samples, l->live_min, l->live_max);
		break;
	case SIZE_COST_NONE:
		say(r->notes, "no map was measured: sizes are compared by their misses alone; see "
			      "--map-us");
		break;
	}
	if (r->extra_ns > 0 && l->source != SIZE_COST_GIVEN)
		say(r->notes, "and a setup waits %.0f us more than its map takes", us(r->extra_ns));
}

static void note_guest(struct size_report *r)
{
	for (unsigned int i = 0; i < r->n_rows && r->budget && !r->guest_seat; i++) {
		if (r->rows[i].slots <= r->budget || r->rows[i].not_allowed)
			continue;
		g_autofree char *size = size_bytes_text(r->rows[i].bytes);

		say(r->notes,
		    "%s has %u slots and the budget is %u: a guest that maps faster than it "
		    "reclaims can be refused",
		    size, r->rows[i].slots, r->budget);
	}
	if (!r->guest_seat)
		say(r->notes,
		    "Linux keeps a fifth of the window free, and pays 16M of memory for each "
		    "1G of it");
}

void size_give_reasons(struct size_report *r, const struct size_scan *s,
		       const struct size_options *o)
{
	int i = r->choice;

	if (r->recommend >= 0) {
		without_files(r);
		why_this(r, (unsigned int)i);
		why_not_smaller(r, (unsigned int)i);
		why_not_larger(r, (unsigned int)i);
		against_requests(r, i);
	} else {
		why_none(r);
	}
	note_misses(r);
	note_cost(r);
	note_guest(r);
}
