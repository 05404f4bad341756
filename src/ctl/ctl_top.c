// SPDX-License-Identifier: Apache-2.0
/*
 * daxmapctl top: the daemons' windows, file by file, refreshed.
 *
 * A host does not see what a guest does with a range that it has mapped: no hit leaves the guest.
 * What the host sees is each setup (a miss in the guest's window), each range given back, which of
 * them came back by reviving, and which came back soon after they had gone (refaults: thrash).
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl_client.h"
#include "ctl_common.h"
#include "ctl_fmt.h"
#include "ctl_sample.h"
#include "ctl_term.h"

#define BATCH_WIDTH 160
#define PLAIN_HEAD "\033[7m" /* of the table, on a terminal */

struct view {
	const char *path;
	struct ctl_client *client;
	struct ctl_sample *before; /* NULL: rates are those since the daemon's start */
	struct ctl_sample *now;	   /* NULL: not reachable */
	char *error;
};

struct file {
	const char *path;
	guint64 node;
	guint64 bytes;
	guint64 live;
	guint64 pins;
	double setups;
	double revived;
	double removed;
	double refaults;
	double map_ns; /* a map; below 0: none */
	gboolean thrash;
};

enum sort { SORT_MAPPED, SORT_SETUPS, SORT_REMOVED, SORT_REFAULTS, SORT_NAME, SORTS };
static const char *const sort_names[] = {"mapped", "setups", "removed", "refaults", "name"};
G_STATIC_ASSERT(G_N_ELEMENTS(sort_names) == SORTS);

struct top {
	struct view *views;
	guint n_views;
	enum sort sort;
	gboolean paused;
	gboolean terminal;
	gint interval;
};

/* --- samples --- */

static void view_fail(struct view *v, const GError *error)
{
	g_free(v->error);
	v->error = g_strdup(error->message);
	g_clear_pointer(&v->client, ctl_client_free);
	g_clear_pointer(&v->before, ctl_sample_free);
	g_clear_pointer(&v->now, ctl_sample_free);
}

static void view_look(struct view *v)
{
	g_autoptr(GError) error = NULL;
	struct ctl_sample *s = NULL;

	if (!v->client)
		v->client = ctl_client_connect(v->path, &error);
	if (v->client)
		s = ctl_sample_take(v->client, &error);
	if (!s) {
		view_fail(v, error);
		return;
	}
	ctl_sample_free(v->before);
	v->before = v->now;
	v->now = s;
	g_clear_pointer(&v->error, g_free);
}

/* FALSE when none of them can be reached. */
static gboolean look(struct top *t)
{
	guint there = 0;

	for (guint i = 0; i < t->n_views; i++) {
		view_look(&t->views[i]);
		there += t->views[i].now != NULL;
	}
	return there > 0;
}

static double seconds_of(const struct view *v)
{
	return v->before ? (double)(v->now->at_us - v->before->at_us) / 1e6 : v->now->uptime_s;
}

/* --- files --- */

static guint64 number(JsonObject *o, const char *name)
{
	return (guint64)MAX(0, json_object_get_int_member_with_default(o, name, 0));
}

static JsonArray *files_of(const struct ctl_sample *s)
{
	JsonNode *n = json_object_get_member(json_node_get_object(s->files), "files");

	return n && JSON_NODE_HOLDS_ARRAY(n) ? json_node_get_array(n) : NULL;
}

static GHashTable *by_node(const struct ctl_sample *s)
{
	GHashTable *h = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
	JsonArray *a = s ? files_of(s) : NULL;

	for (guint i = 0; a && i < json_array_get_length(a); i++) {
		JsonObject *o = json_array_get_object_element(a, i);
		guint64 *node = g_new(guint64, 1);

		*node = number(o, "node");
		g_hash_table_insert(h, node, o);
	}
	return h;
}

static struct file file_of(JsonObject *o, JsonObject *old, double seconds)
{
	guint64 maps = number(o, "maps"), ns = number(o, "map_ns");
	struct file f = {
		.path = json_object_get_string_member_with_default(o, "path", NULL),
		.node = number(o, "node"),
		.bytes = number(o, "bytes"),
		.live = number(o, "live_bytes"),
		.pins = number(o, "pins"),
		.thrash = json_object_get_boolean_member_with_default(o, "thrash", FALSE),
	};

#define RATE(name) ctl_rate(number(o, name), old ? number(old, name) : 0, seconds)
	f.setups = RATE("setups");
	f.revived = RATE("revived");
	f.removed = RATE("removed");
	f.refaults = RATE("refaults");
#undef RATE
	f.map_ns = maps ? (double)ns / (double)maps : -1;
	return f;
}

static double key_of(const struct file *f, enum sort by)
{
	switch (by) {
	case SORT_SETUPS:
		return f->setups;
	case SORT_REMOVED:
		return f->removed;
	case SORT_REFAULTS:
		return f->refaults;
	default:
		return (double)f->bytes;
	}
}

static gint compare(gconstpointer a, gconstpointer b, gpointer data)
{
	const struct file *x = a, *y = b;
	enum sort by = *(const enum sort *)data;
	double kx = key_of(x, by), ky = key_of(y, by);

	if (by == SORT_NAME)
		return g_strcmp0(x->path, y->path);
	if (kx < ky || kx > ky)
		return kx < ky ? 1 : -1;
	return x->bytes == y->bytes ? g_strcmp0(x->path, y->path) : x->bytes < y->bytes ? 1 : -1;
}

static GArray *sorted_files(const struct top *t, const struct view *v)
{
	GArray *files = g_array_new(FALSE, FALSE, sizeof(struct file));
	GHashTable *old = by_node(v->before);
	JsonArray *a = files_of(v->now);
	enum sort by = t->sort;

	for (guint i = 0; a && i < json_array_get_length(a); i++) {
		JsonObject *o = json_array_get_object_element(a, i);
		guint64 node = number(o, "node");
		struct file f = file_of(o, g_hash_table_lookup(old, &node), seconds_of(v));

		g_array_append_val(files, f);
	}
	g_hash_table_destroy(old);
	g_array_sort_with_data(files, compare, &by);
	return files;
}

/* --- text --- */

static void add_line(GPtrArray *lines, guint width, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void add_line(GPtrArray *lines, guint width, const char *format, ...)
{
	g_autofree char *text = NULL;
	va_list ap;

	va_start(ap, format);
	text = g_strdup_vprintf(format, ap);
	va_end(ap);
	g_ptr_array_add(lines, ctl_fmt_cut(text, width, FALSE));
}

static const char *state_of(const struct ctl_sample *s)
{
	if (s->broken)
		return "channel to the VMM broken";
	if (!s->connected)
		return "no VMM";
	return s->running ? "guest runs" : "guest stopped";
}

static void add_window(GPtrArray *lines, guint width, const struct view *v)
{
	const struct ctl_sample *s = v->now;
	char size[CTL_FMT_SIZE], bytes[CTL_FMT_SIZE];

	if (!s->window_size) {
		add_line(lines, width, "window   off (--cache-size 0)");
		return;
	}
	add_line(lines, width,
		 "window   %s: %s mapped (%.0f%%)   live %" G_GUINT64_FORMAT
		 "   lingering %" G_GUINT64_FORMAT "   budget %" G_GUINT64_FORMAT
		 " of %" G_GUINT64_FORMAT " (peak %" G_GUINT64_FORMAT ")",
		 ctl_fmt_bytes(size, s->window_size), ctl_fmt_bytes(bytes, s->mapped_bytes),
		 100.0 * (double)s->mapped_bytes / (double)s->window_size, s->live, s->lingering,
		 s->mapped, s->max_mappings, s->mapped_peak);
}

static void add_rates(GPtrArray *lines, guint width, const struct view *v)
{
	static const struct ctl_sample none;
	const struct ctl_sample *s = v->now, *b = v->before ? v->before : &none;
	char t1[CTL_FMT_SIZE], t2[CTL_FMT_SIZE], t3[CTL_FMT_SIZE], t4[CTL_FMT_SIZE];
	double sec = seconds_of(v), setups = ctl_rate(s->setups, b->setups, sec);
	double revived = ctl_rate(s->revived, b->revived, sec);
	const guint64 *since = v->before ? b->map_latency : NULL;

	add_line(lines, width,
		 "guest    setups %s/s   revived %s/s (%.0f%%)   removed %s/s   thrash %s/s",
		 ctl_fmt_rate(t1, setups), ctl_fmt_rate(t2, revived),
		 setups > 0 ? MIN(100, 100 * revived / setups) : 0,
		 ctl_fmt_rate(t3, ctl_rate(s->removed, b->removed, sec)),
		 ctl_fmt_rate(t4, ctl_rate(s->refaults, b->refaults, sec)));
	if (since && ctl_percentile(s->map_latency, since, 50) < 0)
		since = NULL; /* none just now: of all */
	add_line(lines, width, "VMM      maps %s/s   unmaps %s/s   a map: p50 %s  p99 %s%s",
		 ctl_fmt_rate(t1, ctl_rate(s->maps, b->maps, sec)),
		 ctl_fmt_rate(t2, ctl_rate(s->unmaps, b->unmaps, sec)),
		 ctl_fmt_ns(t3, ctl_percentile(s->map_latency, since, 50)),
		 ctl_fmt_ns(t4, ctl_percentile(s->map_latency, since, 99)),
		 since ? "" : " (since start)");
	add_line(lines, width,
		 "cost     %s/s in maps   waits %s/s   refused %" G_GUINT64_FORMAT
		 "   files off for thrash %" G_GUINT64_FORMAT,
		 ctl_fmt_ns(t1, ctl_rate(s->map_ns, b->map_ns, sec)),
		 ctl_fmt_rate(t2, ctl_rate(s->waits, b->waits, sec)),
		 s->refused_budget + s->refused_driver, s->thrash_files);
	add_line(lines, width, "FUSE     requests %s/s   reads %s/s   writes %s/s",
		 ctl_fmt_rate(t1, ctl_rate(s->requests, b->requests, sec)),
		 ctl_fmt_rate(t2, ctl_rate(s->reads, b->reads, sec)),
		 ctl_fmt_rate(t3, ctl_rate(s->writes, b->writes, sec)));
}

#define COLUMNS "%7s %7s %8s %8s %8s %8s %9s  "
#define COLUMNS_WIDTH (7 + 8 + 9 * 4 + 10 + 2)

static void add_head(GPtrArray *lines, guint width, gboolean terminal)
{
	g_autofree char *text =
		g_strdup_printf(COLUMNS "%s", "MAPPED", "LIVE", "SETUP/s", "REVIVE/s", "REMOVE/s",
				"THRASH/s", "A MAP", "FILE");
	g_autofree char *cut = ctl_fmt_cut(text, width, FALSE);

	if (terminal)
		g_ptr_array_add(lines, g_strdup_printf(PLAIN_HEAD "%-*s", (int)width, cut));
	else
		g_ptr_array_add(lines, g_steal_pointer(&cut));
}

static void add_file(GPtrArray *lines, guint width, const struct file *f)
{
	char b1[CTL_FMT_SIZE], b2[CTL_FMT_SIZE], r1[CTL_FMT_SIZE], r2[CTL_FMT_SIZE];
	char r3[CTL_FMT_SIZE], r4[CTL_FMT_SIZE], ns[CTL_FMT_SIZE];
	g_autofree char *node = g_strdup_printf("(node %" G_GUINT64_FORMAT ")", f->node);
	g_autofree char *path =
		ctl_fmt_cut(f->path ? f->path : node,
			    width > COLUMNS_WIDTH + 8 ? width - COLUMNS_WIDTH : 8, TRUE);

	add_line(lines, width, COLUMNS "%s%s", ctl_fmt_bytes(b1, f->bytes),
		 ctl_fmt_bytes(b2, f->live), ctl_fmt_rate(r1, f->setups),
		 ctl_fmt_rate(r2, f->revived), ctl_fmt_rate(r3, f->removed),
		 ctl_fmt_rate(r4, f->refaults), ctl_fmt_ns(ns, f->map_ns), path,
		 f->thrash ? " (thrashes)" : "");
}

static void add_view(const struct top *t, GPtrArray *lines, const struct view *v, guint rows,
		     guint width)
{
	guint end = lines->len + rows, left;
	char up[CTL_FMT_SIZE];
	GArray *files;

	if (!v->now) {
		add_line(lines, width, "%s: %s", v->path, v->error);
		return;
	}
	add_line(lines, width, "%s   tag %s   daxmapd %s   up %s   %s   rates %s", v->path,
		 v->now->tag, v->now->version, ctl_fmt_span(up, v->now->uptime_s), state_of(v->now),
		 v->before ? "now" : "since start");
	add_window(lines, width, v);
	add_rates(lines, width, v);
	add_head(lines, width, t->terminal);
	files = sorted_files(t, v);
	left = end > lines->len ? end - lines->len : 0;
	for (guint i = 0; i < MIN(files->len, left); i++) {
		if (i + 1 == left && v->now->total_files > left) {
			add_line(lines, width, "... and %" G_GUINT64_FORMAT " more files",
				 v->now->total_files - i);
			break;
		}
		add_file(lines, width, &g_array_index(files, struct file, i));
	}
	if (!files->len && left)
		add_line(lines, width, "no file is mapped");
	g_array_unref(files);
}

static GPtrArray *frame(const struct top *t, guint rows, guint width)
{
	GPtrArray *lines = g_ptr_array_new_with_free_func(g_free);
	guint room = rows - (t->terminal && rows > 1);

	for (guint i = 0; i < t->n_views; i++) {
		guint from = lines->len, share = (room - MIN(from, room)) / (t->n_views - i);

		add_view(t, lines, &t->views[i], share, width);
		if (i + 1 < t->n_views && !t->terminal)
			g_ptr_array_add(lines, g_strdup(""));
	}
	if (!t->terminal)
		return lines;
	while (lines->len > room)
		g_ptr_array_remove_index(lines, lines->len - 1);
	while (lines->len < room)
		g_ptr_array_add(lines, g_strdup(""));
	add_line(lines, width, "q quit   s sort (%s)   space %s   every %d s%s",
		 sort_names[t->sort], t->paused ? "go on" : "pause", t->interval,
		 t->paused ? "   PAUSED" : "");
	return lines;
}

/* --- life --- */

/* FALSE when it is time to end. */
static gboolean on_key(struct top *t, char key)
{
	switch (key) {
	case 'q':
	case 'Q':
	case 4: /* ^D */
		return FALSE;
	case 's':
		t->sort = (t->sort + 1) % SORTS;
		break;
	case 'S':
		t->sort = (t->sort + SORTS - 1) % SORTS;
		break;
	case 'f':
	case ' ':
		t->paused = !t->paused;
		break;
	default:
		break;
	}
	return TRUE;
}

static gboolean draw(const struct top *t)
{
	guint rows, width;
	GPtrArray *lines;
	gboolean good;

	ctl_term_size(&rows, &width);
	lines = frame(t, rows, width);
	good = ctl_term_draw(lines);
	g_ptr_array_unref(lines);
	return good;
}

/* Until the next look is due; FALSE when it is time to end. */
static gboolean attend(struct top *t, gint64 next_us)
{
	for (;;) {
		char key = 0;

		if (!draw(t))
			return FALSE;
		switch (ctl_term_wait(next_us, &key)) {
		case CTL_TERM_KEY:
			if (!on_key(t, key))
				return FALSE;
			break;
		case CTL_TERM_GONE:
			return FALSE;
		case CTL_TERM_REDRAW:
			break;
		case CTL_TERM_TIMEOUT:
			if (g_get_monotonic_time() >= next_us)
				return TRUE;
			break;
		}
	}
}

static int on_terminal(struct top *t)
{
	gint64 interval_us = t->interval * G_USEC_PER_SEC;
	gint64 next_us = g_get_monotonic_time();
	gboolean there = TRUE;

	if (!ctl_term_open())
		return ctl_complain(
			"top: stdout is no terminal: --once or --batch N print plain text");
	do {
		next_us = MAX(next_us + interval_us, g_get_monotonic_time());
		if (!attend(t, next_us))
			break;
		if (!t->paused)
			there = look(t);
	} while (there);
	ctl_term_close();
	return there ? CTL_EXIT_OK : ctl_complain("top: %s", t->views[0].error);
}

static int in_batch(struct top *t, int times)
{
	for (int i = 0; i < times; i++) {
		GPtrArray *lines;
		int status;

		if (i) {
			g_usleep((gulong)t->interval * G_USEC_PER_SEC);
			if (!look(t))
				return ctl_complain("top: %s", t->views[0].error);
			printf("\n");
		}
		lines = frame(t, G_MAXINT32, BATCH_WIDTH);
		for (guint l = 0; l < lines->len; l++)
			printf("%s\n", (const char *)lines->pdata[l]);
		g_ptr_array_unref(lines);
		status = ctl_flush();
		if (status != CTL_EXIT_OK)
			return status;
	}
	return CTL_EXIT_OK;
}

/* Everybody must be there at the start: a wrong path is a mistake. */
static int run(struct top *t, char **paths, int times)
{
	int status = CTL_EXIT_OK;

	t->n_views = g_strv_length(paths);
	t->views = g_new0(struct view, t->n_views);
	for (guint i = 0; i < t->n_views; i++)
		t->views[i].path = paths[i];
	look(t);
	for (guint i = 0; i < t->n_views && status == CTL_EXIT_OK; i++)
		if (!t->views[i].now)
			status = ctl_complain("top: %s", t->views[i].error);
	if (status == CTL_EXIT_OK)
		status = times ? in_batch(t, times) : on_terminal(t);
	for (guint i = 0; i < t->n_views; i++) {
		ctl_client_free(t->views[i].client);
		ctl_sample_free(t->views[i].before);
		ctl_sample_free(t->views[i].now);
		g_free(t->views[i].error);
	}
	g_free(t->views);
	return status;
}

static gboolean find_sort(const char *name, enum sort *out)
{
	for (guint i = 0; i < SORTS; i++) {
		if (strcmp(name, sort_names[i]) == 0) {
			*out = (enum sort)i;
			return TRUE;
		}
	}
	return FALSE;
}

static int top_main(int argc, char **argv)
{
	g_auto(GStrv) paths = NULL;
	g_autofree char *sort = NULL;
	gboolean once = FALSE;
	gint batch = -1;
	struct top t = {.interval = 1};
	const GOptionEntry entries[] = {
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &paths,
		 "a daemon's control socket (required); may be given again", "PATH"},
		{"interval", 0, 0, G_OPTION_ARG_INT, &t.interval,
		 "seconds between two looks, 1..3600 (default: 1)", "S"},
		{"sort", 0, 0, G_OPTION_ARG_STRING, &sort,
		 "by mapped, setups, removed, refaults or name (default: mapped)", "KEY"},
		{"once", 0, 0, G_OPTION_ARG_NONE, &once,
		 "one table as plain text; rates are "
		 "those since the daemon's start",
		 NULL},
		{"batch", 0, 0, G_OPTION_ARG_INT, &batch, "N tables as plain text", "N"},
		{0},
	};
	int status;

	if (!ctl_parse("top", "- watch which files are mapped", entries, &argc, &argv, 0, &status))
		return status;
	if (!paths)
		return ctl_complain("top: --control-path is required");
	if (t.interval < 1 || t.interval > 3600)
		return ctl_complain("top: option --interval: %d is not allowed; it takes 1 to 3600",
				    t.interval);
	if (batch == 0 || batch < -1)
		return ctl_complain("top: option --batch: %d is not allowed; it takes 1 or more",
				    batch);
	if (sort && !find_sort(sort, &t.sort))
		return ctl_complain("top: option --sort: \"%s\" is not allowed; it takes mapped, "
				    "setups, removed, refaults or name",
				    sort);
	t.terminal = !once && batch < 0;
	return run(&t, paths, once ? 1 : MAX(batch, 0));
}

const struct ctl_command ctl_top_command = {"top", "watch which files are mapped", top_main};
