// SPDX-License-Identifier: Apache-2.0
#include "trace_text.h"

#include <inttypes.h>

#include <daxmap/window.h>

#define NS_PER_S UINT64_C(1000000000)

const char *trace_text_csv_header(void)
{
	return "time_ns,kind,stream,file,file_offset,len,window_offset,write,cost_ns,mapped,value,"
	       "name";
}

/* Quoted; what no terminal should get becomes an escape. */
static void append_quoted(GString *out, const char *s, char quote)
{
	g_string_append_c(out, '"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c < 0x20 || c == 0x7f)
			g_string_append_printf(out, "\\x%02x", c);
		else if (c == '"')
			g_string_append_printf(out, "%c\"", quote);
		else if (c == '\\' && quote == '\\')
			g_string_append(out, "\\\\");
		else
			g_string_append_c(out, *s);
	}
	g_string_append_c(out, '"');
}

static void append_number(GString *out, bool there, uint64_t v)
{
	g_string_append_c(out, ',');
	if (there)
		g_string_append_printf(out, "%" PRIu64, v);
}

void trace_text_csv(GString *out, const struct trace_event *e, const char *name)
{
	unsigned int f = trace_kind_fields(e->kind);

	g_string_append_printf(out, "%" PRIu64 ",%s,%u", e->time_ns, trace_kind_name(e->kind),
			       e->stream);
	append_number(out, f & TRACE_F_FILE, e->file_id);
	append_number(out, f & TRACE_F_PLACE, e->file_offset);
	append_number(out, f & TRACE_F_PLACE, e->len);
	append_number(out, f & TRACE_F_WINDOW, e->offset);
	append_number(out, true, e->write);
	append_number(out, f & TRACE_F_COST, e->ns);
	append_number(out, f & TRACE_F_MAPPED, e->mapped);
	append_number(out, f & TRACE_F_VALUE, e->value);
	g_string_append_c(out, ',');
	if (name && f & TRACE_F_FILE)
		append_quoted(out, name, '"');
	g_string_append_c(out, '\n');
}

void trace_text_line(GString *out, const struct trace_event *e, const char *name)
{
	unsigned int f = trace_kind_fields(e->kind);

	g_string_append_printf(out, "%6" PRIu64 ".%09" PRIu64 " %-8s", e->time_ns / NS_PER_S,
			       e->time_ns % NS_PER_S, trace_kind_name(e->kind));
	if (f & TRACE_F_WINDOW)
		g_string_append_printf(out, " window %#" PRIx64, e->offset);
	if (f & TRACE_F_PLACE)
		g_string_append_printf(out, " len %#" PRIx64, e->len);
	if (f & TRACE_F_FILE)
		g_string_append_printf(out, " file %u", e->file_id);
	if (f & TRACE_F_PLACE)
		g_string_append_printf(out, " at %#" PRIx64, e->file_offset);
	if (e->write)
		g_string_append(out, " write");
	if (f & TRACE_F_COST)
		g_string_append_printf(out, " took %.1f us", (double)e->ns / 1000);
	if (f & TRACE_F_MAPPED)
		g_string_append_printf(out, " mapped %u", e->mapped);
	if (f & TRACE_F_VALUE)
		g_string_append_printf(out, " value %" PRIu64, e->value);
	if (name && f & TRACE_F_FILE) {
		g_string_append_c(out, ' ');
		append_quoted(out, name, '\\');
	}
	g_string_append_c(out, '\n');
}

static void append_start(GString *out, uint64_t real_ns, int indent)
{
	g_autoptr(GDateTime) t = g_date_time_new_from_unix_utc((gint64)(real_ns / NS_PER_S));
	g_autofree char *text = t ? g_date_time_format_iso8601(t) : g_strdup("?");

	g_string_append_printf(out, "%*sstart    %s\n", indent, "", text);
}

void trace_text_info(GString *out, const struct trace_info *i, unsigned int indent)
{
	const int in = (int)indent;

	append_start(out, i->start_real_ns, in);
	if (i->ending != TRACE_OPEN)
		g_string_append_printf(out, "%*slasted   %.3f s\n", in, "",
				       (double)i->end_ns / NS_PER_S);
	g_string_append_printf(out, "%*sending   %s%s%s\n", in, "", trace_ending_text(i->ending),
			       i->ending == TRACE_ERROR ? ": " : "",
			       i->ending == TRACE_ERROR ? g_strerror(i->error) : "");
	g_string_append_printf(out, "%*sseat     %s\n", in, "",
			       i->seat == TRACE_SEAT_HOST ? "host (hits are not known)"
							  : "guest (accesses are known)");
	g_string_append_printf(out, "%*sdriver   %s%s\n", in, "", i->driver,
			       i->caps & DM_WINDOW_OVERLAY ? ", overlays" : "");
	g_string_append_printf(out,
			       "%*swindow   %" PRIu64 " bytes, slots of %" PRIu64
			       ", granule %" PRIu64 ", budget %u\n",
			       in, "", i->window_size, i->slot_size, i->granule, i->budget);
	g_string_append_printf(out,
			       "%*sevents   %" PRIu64 " in %" PRIu64 " blocks, %" PRIu64 " lost\n",
			       in, "", i->events, i->blocks, i->lost);
	g_string_append_printf(out, "%*sproducer %s\n", in, "", i->producer);
}
