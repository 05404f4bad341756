// SPDX-License-Identifier: Apache-2.0
/* A program for gnuplot: misses above, time below, over the window size. Data is inline. */
#include "size_int.h"

#include <string.h>

static void put_tics(GString *s, const struct size_report *r)
{
	g_string_append(s, "set xtics (");
	for (unsigned int i = 0; i < r->n_rows; i++) {
		g_autofree char *size = size_bytes_text(r->rows[i].bytes);

		g_string_append_printf(s, "%s'%s' %u", i ? ", " : "", size, i);
	}
	g_string_append_printf(s, ")\nset xrange [-0.3:%u.3]\n", MAX(r->n_rows, 2) - 1);
}

static void put_data(GString *s, const struct size_report *r)
{
	double all = (double)MAX(r->totals.accesses, 1);

	/* place, misses, least, most, LRU (percent); us, us at least, us at most; allowed? */
	g_string_append(s, "$rows << EOD\n");
	for (unsigned int i = 0; i < r->n_rows; i++) {
		const struct size_row *row = &r->rows[i];
		double rest = row->cost_ns - row->misses * row->miss_ns;

		if (row->open) { /* nothing is known of it */
			g_string_append_printf(s, "%u NaN NaN NaN NaN NaN NaN NaN 1\n", i);
			continue;
		}
		g_string_append_printf(
			s, "%u %.4f %.4f %.4f %.4f %.4f %.4f %.4f %d\n", i, 100 * row->misses / all,
			100 * row->least / all, 100 * row->most / all, 100 * row->lru / all,
			row->cost_ns / all / 1000, (row->least * row->miss_ns + rest) / all / 1000,
			(row->most * row->miss_ns + rest) / all / 1000, row->not_allowed == NULL);
	}
	g_string_append(s, "EOD\n");
}

static void put_arrow(GString *s, const struct size_report *r)
{
	if (r->recommend < 0)
		return;
	g_string_append_printf(s,
			       "set arrow 1 from first %d, graph 0 to first %d, graph 1 nohead "
			       "lw 2 dt 2 lc rgb '#2ca02c'\n",
			       r->recommend, r->recommend);
}

static void put_misses(GString *s, const struct size_report *r)
{
	bool exact = r->exact == SIZE_EXACT;

	g_string_append_printf(s, "set ylabel '%s'\nset yrange [0:105]\n",
			       exact ? "misses, % of accesses" : "setups left, % of recorded");
	g_string_append(s, "set key top right opaque\nset lmargin 11\nset rmargin 3\n");
	if (exact)
		g_string_append_printf(s,
				       "plot $rows u 1:2 w lp lw 2 pt 7 lc rgb '#1f77b4' t '%s', "
				       "$rows u 1:5 w l lw 2 dt 3 lc rgb '#7f7f7f' t 'LRU'\n",
				       size_policies[r->family].name);
	else
		g_string_append(s, "plot $rows u 1:3:4 w filledcurves fs solid 0.25 noborder "
				   "lc rgb '#1f77b4' t 'between the bounds', "
				   "$rows u 1:2 w lp lw 2 pt 7 lc rgb '#1f77b4' t 'estimate'\n");
}

/* Are there rows that are drawn and not allowed? */
static bool refused(const struct size_report *r)
{
	for (unsigned int i = 0; i < r->n_rows; i++)
		if (r->rows[i].not_allowed && !r->rows[i].open)
			return true;
	return false;
}

static void put_times(GString *s, const struct size_report *r)
{
	bool exact = r->exact == SIZE_EXACT;

	g_string_append_printf(s, "set ylabel '%s'\nset yrange [*:*]\nset xlabel 'window'\n",
			       exact ? "us an access" : "us a recorded setup");
	g_string_append(s, "set logscale y\nplot ");
	if (!exact)
		g_string_append(s,
				"$rows u 1:($7>0?$7:NaN):8 w filledcurves fs solid 0.25 noborder "
				"lc rgb '#d62728' not, ");
	g_string_append(s, "$rows u 1:($6>0?$6:NaN) w lp lw 2 pt 7 lc rgb '#d62728' "
			   "t 'through the window'");
	if (refused(r))
		g_string_append(s, ", $rows u ($9==1?NaN:$1):($6>0?$6:NaN) w p pt 2 ps 2 lw 3 "
				   "lc rgb 'black' t 'not to be had'");
	if (exact)
		g_string_append_printf(s, ", %g w l lw 2 dt 3 lc rgb '#7f7f7f' t 'by request'",
				       r->read_ns / 1000);
	g_string_append_c(s, '\n');
}

char *size_gnuplot(const struct size_report *r, const char *terminal, const char *path)
{
	GString *s = g_string_new(NULL);
	g_autofree char *window = r->window ? size_bytes_text(r->window) : g_strdup("?");
	g_autofree char *best = r->recommend >= 0 ? size_bytes_text(r->rows[r->recommend].bytes)
						  : g_strdup("no DAX");

	g_string_append_printf(s, "set terminal %s\nset output \"", terminal);
	for (; *path; path++) {
		if (strchr("\\\"", *path))
			g_string_append_c(s, '\\');
		g_string_append_c(s, *path);
	}
	g_string_append(s, "\"\nset encoding utf8\n");
	put_data(s, r);
	put_tics(s, r);
	g_string_append_printf(s,
			       "set grid lc rgb '#dddddd'\nset multiplot layout 2,1 title "
			       "'recorded with %s, recommended: %s'\n",
			       window, best);
	put_arrow(s, r);
	put_misses(s, r);
	put_times(s, r);
	g_string_append(s, "unset multiplot\n");
	return g_string_free(s, FALSE);
}
