// SPDX-License-Identifier: Apache-2.0
/*
 * daxmapctl stats: the daemon's counters, as text for people or as the JSON that they came in.
 *
 * The text is the JSON, walked. What a number counts shows in its name: names that end in _ns, _ms,
 * bytes or size get a unit. While watching, what grows is shown with its rate.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>
#include <json-glib/json-glib.h>

#include "ctl_client.h"
#include "ctl_common.h"
#include "ctl_fmt.h"
#include "ctl_term.h"

#define NAME_WIDTH 28
#define VALUE_WIDTH 16
#define BAR 40

/**
 * struct page - text in the making
 * @before: what the numbers were at the last look, by path; NULL: not watching
 * @seconds: since then; 0: this is the first look
 */
struct page {
	GString *out;
	GHashTable *before;
	double seconds;
};

static void add_value(struct page *p, const char *path, const char *name, JsonNode *v, int indent);

struct level {
	struct page *page;
	const char *path;
	int indent;
};

static void add_member(JsonObject *o, const gchar *name, JsonNode *v, gpointer data)
{
	const struct level *l = data;
	g_autofree char *path = g_strdup_printf("%s.%s", l->path, name);

	add_value(l->page, path, name, v, l->indent);
}

static void add_object(struct page *p, const char *path, JsonObject *o, int indent)
{
	struct level l = {p, path, indent};

	json_object_foreach_member(o, add_member, &l);
}

/* In words, if the number has a unit. */
static char *with_unit(const char *name, gint64 v)
{
	char buf[CTL_FMT_SIZE];

	if (g_str_has_suffix(name, "_ns"))
		return g_strdup_printf("ns (%s)", ctl_fmt_ns(buf, (double)v));
	if (g_str_has_suffix(name, "_ms"))
		return g_strdup_printf("ms (%s)", ctl_fmt_span(buf, (double)v / 1e3));
	if (g_str_has_suffix(name, "bytes") || g_str_has_suffix(name, "window_size"))
		return g_strdup_printf("B (%s)", ctl_fmt_bytes(buf, (guint64)v));
	return g_strdup("");
}

/* What it changed by a second, while watching. */
static char *change(struct page *p, const char *path, gint64 v)
{
	gint64 *old = p->before ? g_hash_table_lookup(p->before, path) : NULL, *kept;
	char buf[CTL_FMT_SIZE];
	gint64 by = old && p->seconds > 0 ? v - *old : 0;

	if (p->before) {
		kept = g_new(gint64, 1);
		*kept = v;
		g_hash_table_replace(p->before, g_strdup(path), kept);
	}
	if (!by)
		return g_strdup("");
	return g_strdup_printf("%s%s/s", by < 0 ? "-" : "+",
			       ctl_fmt_rate(buf, (double)ABS(by) / p->seconds));
}

static void add_number(struct page *p, const char *path, const char *name, gint64 v, int indent)
{
	g_autofree char *unit = with_unit(name, v), *by = change(p, path, v);

	g_string_append_printf(p->out, "%*s%-*s %*" G_GINT64_FORMAT " %-16s%s", indent, "",
			       NAME_WIDTH - indent, name, VALUE_WIDTH, v, unit, by);
	while (p->out->len && p->out->str[p->out->len - 1] == ' ')
		g_string_truncate(p->out, p->out->len - 1);
	g_string_append_c(p->out, '\n');
}

/* Bucket i: 2^i to 2^(i+1) ns. */
static void add_histogram(struct page *p, JsonArray *a)
{
	guint n = json_array_get_length(a);
	gint64 most = 1;

	g_string_append(p->out, "map_latency\n");
	for (guint i = 0; i < n; i++)
		most = MAX(most, json_array_get_int_element(a, i));
	for (guint i = 0; i < MIN(n, 63); i++) {
		gint64 v = json_array_get_int_element(a, i);
		char lo[CTL_FMT_SIZE], hi[CTL_FMT_SIZE];
		g_autofree char *span = NULL, *bar = NULL;

		if (!v)
			continue;
		span = g_strdup_printf("%s to %s", ctl_fmt_ns(lo, (double)(1ull << i)),
				       ctl_fmt_ns(hi, (double)(2ull << i)));
		bar = g_strnfill((gsize)((v * BAR + most - 1) / most), '#');
		g_string_append_printf(p->out, "  %-*s %*" G_GINT64_FORMAT " %s\n", NAME_WIDTH - 2,
				       span, VALUE_WIDTH, v, bar);
	}
}

/* One line an operation. */
static void add_op(JsonObject *fuse, const gchar *name, JsonNode *v, gpointer data)
{
	struct page *p = data;
	g_autofree char *path = g_strdup_printf(".fuse.%s", name), *by = NULL;
	JsonObject *o;
	gint64 n;

	if (!JSON_NODE_HOLDS_OBJECT(v))
		return;
	o = json_node_get_object(v);
	n = json_object_get_int_member_with_default(o, "count", 0);
	by = change(p, path, n);
	g_string_append_printf(
		p->out,
		"  %-*s %*" G_GINT64_FORMAT " %10" G_GINT64_FORMAT " %10" G_GINT64_FORMAT "%s%s\n",
		NAME_WIDTH - 2, name, VALUE_WIDTH, n,
		json_object_get_int_member_with_default(o, "errors", 0),
		json_object_get_int_member_with_default(o, "offloaded", 0), *by ? "   " : "", by);
}

static void add_fuse(struct page *p, JsonObject *fuse)
{
	g_string_append_printf(p->out, "%-*s %*s %10s %10s\n", NAME_WIDTH, "fuse", VALUE_WIDTH,
			       "requests", "errors", "offloaded");
	json_object_foreach_member(fuse, add_op, p);
}

static gint64 int_of(JsonObject *o, const char *name)
{
	return json_object_get_int_member_with_default(o, name, 0);
}

static void add_mappings(struct page *p, JsonArray *a)
{
	guint n = json_array_get_length(a);
	char at[CTL_FMT_SIZE], len[CTL_FMT_SIZE], from[CTL_FMT_SIZE];

	g_string_append_printf(p->out, "mappings (%u)\n", n);
	if (n)
		g_string_append_printf(p->out, "  %10s %8s %12s %12s %6s  %s\n", "window at",
				       "length", "node", "file at", "pins", "state");
	for (guint i = 0; i < n; i++) {
		JsonObject *o = json_array_get_object_element(a, i);

		g_string_append_printf(
			p->out,
			"  %10s %8s %12" G_GINT64_FORMAT " %12s %6" G_GINT64_FORMAT "  %s\n",
			ctl_fmt_bytes(at, (guint64)int_of(o, "offset")),
			ctl_fmt_bytes(len, (guint64)int_of(o, "len")), int_of(o, "node"),
			ctl_fmt_bytes(from, (guint64)int_of(o, "file_offset")), int_of(o, "pins"),
			json_object_get_string_member_with_default(o, "state", "?"));
	}
}

static void add_value(struct page *p, const char *path, const char *name, JsonNode *v, int indent)
{
	g_autofree char *text = NULL;

	if (JSON_NODE_HOLDS_OBJECT(v) && strcmp(path, ".fuse") == 0) {
		add_fuse(p, json_node_get_object(v));
	} else if (JSON_NODE_HOLDS_OBJECT(v)) {
		g_string_append_printf(p->out, "%*s%s\n", indent, "", name);
		add_object(p, path, json_node_get_object(v), indent + 2);
	} else if (JSON_NODE_HOLDS_ARRAY(v) && strcmp(name, "map_latency_log2_ns") == 0) {
		add_histogram(p, json_node_get_array(v));
	} else if (JSON_NODE_HOLDS_ARRAY(v) && strcmp(name, "mappings") == 0) {
		add_mappings(p, json_node_get_array(v));
	} else if (json_node_get_value_type(v) == G_TYPE_INT64) {
		add_number(p, path, name, json_node_get_int(v), indent);
	} else {
		text = json_node_get_value_type(v) == G_TYPE_STRING
			       ? g_strdup(json_node_get_string(v))
			       : json_to_string(v, FALSE);
		g_string_append_printf(p->out, "%*s%-*s %*s\n", indent, "", NAME_WIDTH - indent,
				       name, VALUE_WIDTH, text);
	}
}

struct source {
	const char *path;
	struct ctl_client *client;
	GHashTable *before;
	gint64 at_us;
};

struct request {
	gboolean json;
	gboolean several;
	int watch_s; /* 0: once */
};

static JsonNode *ask(struct source *s, gboolean mappings, GError **error)
{
	g_autoptr(JsonObject) o = json_object_new();

	json_object_set_string_member(o, "command", "stats");
	json_object_set_boolean_member(o, "mappings", mappings);
	return ctl_client_request(s->client, o, -1, error);
}

static void add_text(GString *out, struct source *s, const struct request *r, JsonObject *stats)
{
	gint64 now = g_get_monotonic_time();
	struct page p = {
		.out = out,
		.before = r->watch_s ? s->before : NULL,
		.seconds = s->at_us ? (double)(now - s->at_us) / 1e6 : 0,
	};

	s->at_us = now;
	if (r->several)
		g_string_append_printf(out, "%s== %s ==\n", out->len ? "\n" : "", s->path);
	add_object(&p, "", stats, 0);
}

/* What this daemon says, appended to @out. */
static int look(GString *out, struct source *s, const struct request *r)
{
	g_autoptr(GError) error = NULL;
	g_autoptr(JsonNode) stats = ask(s, r->json || !r->watch_s, &error);
	g_autofree char *text = NULL;
	JsonObject *o;

	if (!stats || !JSON_NODE_HOLDS_OBJECT(stats))
		return ctl_complain("%s", error ? error->message : "the answer is no object");
	o = json_node_get_object(stats);
	if (!r->json) {
		add_text(out, s, r, o);
		return CTL_EXIT_OK;
	}
	if (r->several)
		json_object_set_string_member(o, "control_path", s->path);
	text = json_to_string(stats, FALSE);
	g_string_append_printf(out, "%s\n", text);
	return CTL_EXIT_OK;
}

/* As much of it as the terminal shows. */
static void print_screen(const GString *text)
{
	g_auto(GStrv) lines = g_strsplit(text->str, "\n", -1);
	guint n = g_strv_length(lines), rows, columns;

	ctl_term_size(&rows, &columns);
	n -= n > 0 && !*lines[n - 1];
	printf("\033[H");
	for (guint i = 0; i < MIN(n, rows); i++) {
		g_autofree char *cut = i + 1 == rows && n > rows
					       ? g_strdup_printf("... %u more lines", n - i)
					       : ctl_fmt_cut(lines[i], columns, FALSE);

		printf("%s%s\033[K", i ? "\n" : "", cut);
	}
	printf("\033[J");
}

static int show(struct source *sources, guint n, const struct request *r)
{
	gboolean screen = r->watch_s && !r->json && isatty(STDOUT_FILENO);
	int status = CTL_EXIT_OK;

	do {
		g_autoptr(GString) out = g_string_new(NULL);

		for (guint i = 0; i < n && status == CTL_EXIT_OK; i++)
			status = look(out, &sources[i], r);
		if (status != CTL_EXIT_OK)
			return status;
		if (screen)
			print_screen(out);
		else
			fputs(out->str, stdout);
		status = ctl_flush();
		if (r->watch_s)
			sleep((unsigned int)r->watch_s);
	} while (r->watch_s && status == CTL_EXIT_OK);
	return status;
}

static int run(char **paths, const struct request *r)
{
	guint n = g_strv_length(paths);
	g_autofree struct source *sources = g_new0(struct source, n);
	g_autoptr(GError) error = NULL;
	int status = CTL_EXIT_OK;

	for (guint i = 0; i < n && status == CTL_EXIT_OK; i++) {
		sources[i].path = paths[i];
		sources[i].before = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
		sources[i].client = ctl_client_connect(paths[i], &error);
		if (!sources[i].client)
			status = ctl_complain("%s", error->message);
	}
	if (status == CTL_EXIT_OK)
		status = show(sources, n, r);
	for (guint i = 0; i < n; i++) {
		ctl_client_free(sources[i].client);
		g_clear_pointer(&sources[i].before, g_hash_table_destroy);
	}
	return status;
}

static int stats_main(int argc, char **argv)
{
	g_auto(GStrv) paths = NULL;
	gboolean json = FALSE, watch = FALSE;
	gint interval = 1;
	const GOptionEntry entries[] = {
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &paths,
		 "a daemon's control socket (required); may be given again", "PATH"},
		{"json", 0, 0, G_OPTION_ARG_NONE, &json, "one JSON object a line", NULL},
		{"watch", 0, 0, G_OPTION_ARG_NONE, &watch,
		 "again and again until interrupted, with what changed a second", NULL},
		{"interval", 0, 0, G_OPTION_ARG_INT, &interval,
		 "seconds between two looks, 1..3600 (default: 1)", "S"},
		{0},
	};
	struct request r;
	int status;

	if (!ctl_parse("stats", "- show daemons' counters", entries, &argc, &argv, 0, &status))
		return status;
	if (!paths)
		return ctl_complain("stats: --control-path is required");
	if (interval < 1 || interval > 3600)
		return ctl_complain(
			"stats: option --interval: %d is not allowed; it takes 1 to 3600",
			interval);
	r = (struct request){json, g_strv_length(paths) > 1, watch ? interval : 0};
	return run(paths, &r);
}

const struct ctl_command ctl_stats_command = {"stats", "show daemons' counters", stats_main};
