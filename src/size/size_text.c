// SPDX-License-Identifier: Apache-2.0
/* The report as text. */
#include "size_int.h"

#include <string.h>

#define INDENT "  "

static char *time_text(double ns)
{
	if (ns < 10000)
		return g_strdup_printf("%.2f us", ns / 1000);
	if (ns < 1e7)
		return g_strdup_printf("%.1f us", ns / 1000);
	return g_strdup_printf("%.1f ms", ns / 1e6);
}

/* Full up to @least, open up to @most: "####--" of @width characters. */
static void put_bar(GString *s, double least, double most, unsigned int width)
{
	unsigned int a = (unsigned int)(least * width + 0.5);
	unsigned int b = (unsigned int)(most * width + 0.5);

	for (unsigned int i = 0; i < width; i++)
		g_string_append_c(s, i < a ? '#' : i < b ? '-' : ' ');
	g_string_truncate(s, strlen(g_strchomp(s->str)));
}

static void put_wrapped(GString *s, const char *text, unsigned int width)
{
	g_auto(GStrv) words = g_strsplit(text, " ", -1);
	unsigned int at = 0;

	for (char **w = words; *w; w++) {
		unsigned int len = (unsigned int)g_utf8_strlen(*w, -1);

		if (at == 0) {
			g_string_append(s, INDENT "- ");
			at = 4;
		} else if (at + 1 + len > width) {
			g_string_append(s, "\n" INDENT "  ");
			at = 4;
		} else {
			g_string_append_c(s, ' ');
			at++;
		}
		g_string_append(s, *w);
		at += len;
	}
	g_string_append_c(s, '\n');
}

static void put_lines(GString *s, const char *head, const GPtrArray *lines, unsigned int width)
{
	if (!lines->len)
		return;
	g_string_append_printf(s, "\n%s\n", head);
	for (guint i = 0; i < lines->len; i++)
		put_wrapped(s, g_ptr_array_index(lines, i), width);
}

static void put_head(GString *s, const struct size_report *r)
{
	const struct size_totals *t = &r->totals;
	g_autofree char *set = size_bytes_text(t->distinct * r->granule);
	g_autofree char *window = r->window ? size_bytes_text(r->window) : g_strdup("unknown");

	g_string_append_printf(
		s, "%" G_GUINT64_FORMAT " events in %.1f s, recorded by the %s; window %s\n",
		t->events, (double)(t->last_ns - t->first_ns) / 1e9,
		r->guest_seat ? "guest" : "daemon", window);
	g_string_append_printf(s,
			       "%" G_GUINT64_FORMAT " %s of %" G_GUINT64_FORMAT
			       " file%s; %s used, in %" G_GUINT64_FORMAT " ranges\n\n",
			       t->accesses, r->exact == SIZE_EXACT ? "accesses" : "setups",
			       t->files, t->files == 1 ? "" : "s", set, t->distinct);
}

static void put_row(GString *s, const struct size_report *r, int i, unsigned int bar)
{
	const struct size_row *row = &r->rows[i];
	double all = (double)MAX(r->totals.accesses, 1);
	g_autofree char *size = size_bytes_text(row->bytes);
	g_autofree char *miss = time_text(row->miss_ns);
	g_autofree char *cost = time_text(row->cost_ns / all);
	const char *mark = i == r->recommend ? "=>" : row->not_allowed ? " x" : "  ";

	g_string_append_printf(s, "%s %6s%c %6.0f  ", mark, size, row->recorded ? '*' : ' ',
			       row->live);
	if (r->exact == SIZE_EXACT)
		g_string_append_printf(s, "%6.2f%% ", 100 * row->misses / all);
	else if (row->open)
		g_string_append_printf(s, "   >= 100%% ");
	else
		g_string_append_printf(s, "%4.0f..%3.0f%% ", 100 * row->least / all,
				       100 * row->most / all);
	g_string_append_printf(s, "%10s %10s%s  ", miss, cost, row->open ? "+" : " ");
	put_bar(s, row->least / all, row->most / all, bar);
	g_string_append_c(s, '\n');
}

static void put_table(GString *s, const struct size_report *r, unsigned int width)
{
	bool exact = r->exact == SIZE_EXACT;
	unsigned int fixed = exact ? 51 : 55;
	unsigned int bar = width > fixed + 8 ? MIN(width - fixed, 50) : 8;

	g_string_append_printf(s, "   window    live  %s     a miss  %s  misses, 0 to 100%%\n",
			       exact ? " misses" : "   misses ",
			       exact ? " an access" : "   a setup");
	for (unsigned int i = 0; i < r->n_rows; i++)
		put_row(s, r, (int)i, bar);
	g_string_append_printf(s, "   * recorded with; => recommended%s%s\n",
			       exact ? "" : "; # surely misses, - perhaps",
			       r->best >= 0 ? "; x not to be had" : "");
}

static void put_answer(GString *s, const struct size_report *r)
{
	g_autofree char *size = NULL;

	if (r->recommend < 0) {
		g_string_append(s, "\nRecommended: no DAX (--cache-size=0)\n");
		return;
	}
	size = size_bytes_text(r->rows[r->recommend].bytes);
	g_string_append_printf(s, "\nRecommended: --cache-size=%s", size);
	for (guint i = 0; i < r->exclude->len; i++) {
		g_autofree char *q = g_shell_quote(g_ptr_array_index(r->exclude, i));

		g_string_append_printf(s, " --dax-exclude=%s", q);
	}
	g_string_append_c(s, '\n');
	for (guint i = 0; i < r->reasons->len; i++)
		put_wrapped(s, g_ptr_array_index(r->reasons, i), 78);
}

static void put_files(GString *s, const struct size_report *r)
{
	bool exact = r->exact == SIZE_EXACT;
	unsigned int shown = MIN(r->n_files, 12);

	if (r->recommend < 0 && r->best < 0)
		return;
	g_string_append_printf(s,
			       "\nFiles, all of them in the best window\n   %10s %8s %8s%s  file\n",
			       exact ? "accesses" : "setups", "ranges", "misses",
			       exact ? "      by DAX by request" : "");
	for (unsigned int i = 0; i < shown; i++) {
		const struct size_file *f = &r->files[i];
		double uses = (double)MAX(f->accesses, 1);
		g_autofree char *dax = time_text(f->dax_ns / uses);
		g_autofree char *read = time_text(f->read_ns / uses);
		g_autofree char *key = g_strdup_printf("inode %" G_GUINT64_FORMAT, f->lo);

		g_string_append_printf(s,
				       "%s %10" G_GUINT64_FORMAT " %8" G_GUINT64_FORMAT " %7.2f%%",
				       f->better_off ? "x " : "  ", f->accesses, f->blocks,
				       100 * f->misses / uses);
		if (exact)
			g_string_append_printf(s, " %11s %10s", dax, read);
		g_string_append_printf(s, "  %s\n", f->name ? f->name : key);
	}
	if (r->totals.files > shown)
		g_string_append_printf(s, "   and %" G_GUINT64_FORMAT " more\n",
				       r->totals.files - shown);
	for (unsigned int i = 0; i < shown; i++) {
		if (r->files[i].better_off) {
			g_string_append(s, "   x better off without DAX\n");
			break;
		}
	}
}

char *size_text(const struct size_report *r, unsigned int width)
{
	GString *s = g_string_new(NULL);

	width = CLAMP(width, 60, 120);
	put_head(s, r);
	put_table(s, r, width);
	put_answer(s, r);
	if (r->recommend < 0)
		put_lines(s, "Because", r->reasons, 78);
	put_files(s, r);
	put_lines(s, "What this rests on", r->notes, 78);
	return g_string_free(s, FALSE);
}
