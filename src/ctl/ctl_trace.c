// SPDX-License-Identifier: Apache-2.0
/*
 * daxmapctl trace: start, stop and status ask a daemon; show and export read a file.
 *
 * The file is opened here, with this user's rights, and handed to the daemon, which in its sandbox
 * could not open it. A trace is checked as a whole before the first line of it is printed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-glib/json-glib.h>

#include "ctl_client.h"
#include "ctl_common.h"
#include "trace_reader.h"
#include "trace_text.h"
#include "trace_writer.h"
#include "util_fd.h"

#define OUTPUT_CHUNK (256u << 10)

/* --- a daemon --- */

static void print_status(JsonObject *o)
{
	const char *error = json_object_get_string_member_with_default(o, "error", NULL);
	gboolean recording = json_object_get_boolean_member_with_default(o, "recording", FALSE);

	if (!recording && !json_object_get_int_member_with_default(o, "max_bytes", 0)) {
		printf("no trace is under way\n");
		return;
	}
	printf("%s%s%s: %" PRId64 " events, %" PRId64 " lost, %" PRId64 " of at most %" PRId64
	       " bytes, %.1f s\n",
	       json_object_get_string_member_with_default(o, "ending", "?"), error ? ": " : "",
	       error ? error : "", json_object_get_int_member_with_default(o, "events", 0),
	       json_object_get_int_member_with_default(o, "lost", 0),
	       json_object_get_int_member_with_default(o, "bytes", 0),
	       json_object_get_int_member_with_default(o, "max_bytes", 0),
	       (double)json_object_get_int_member_with_default(o, "time_ns", 0) / 1e9);
}

static int print_answer(JsonNode *result, gboolean json)
{
	if (json) {
		g_autofree char *text = json_to_string(result, FALSE);

		printf("%s\n", text);
	} else if (JSON_NODE_HOLDS_OBJECT(result)) {
		print_status(json_node_get_object(result));
	}
	return ctl_flush();
}

static int ask(struct ctl_client *c, JsonObject *request, int fd, gboolean json)
{
	g_autoptr(GError) error = NULL;
	g_autoptr(JsonNode) result = ctl_client_request(c, request, fd, &error);

	return result ? print_answer(result, json) : ctl_complain("%s", error->message);
}

static int start_in(struct ctl_client *c, const char *path, guint64 max, gboolean names,
		    gboolean json)
{
	g_autoptr(JsonObject) request = json_object_new();
	g_autoptr(GError) error = NULL;
	util_autofd fd = trace_file_create(path, &error);
	struct stat st;
	int status;

	if (fd < 0)
		return ctl_complain("%s", error->message);
	json_object_set_string_member(request, "command", "trace-start");
	if (max)
		json_object_set_int_member(request, "max_bytes", (gint64)max);
	json_object_set_boolean_member(request, "names", names);
	status = ask(c, request, fd, json);
	if (status != CTL_EXIT_OK && fstat(fd, &st) == 0 && st.st_size == 0)
		unlink(path); /* nobody has begun */
	return status;
}

static int start(const char *control, const char *path, const char *max, gboolean names,
		 gboolean json)
{
	g_autoptr(GError) error = NULL;
	struct ctl_client *c;
	guint64 bytes = 0;
	int status;

	if (max && !ctl_parse_size(max, TRACE_MAX_BYTES_MIN, INT64_MAX, &bytes))
		return ctl_complain(
			"trace start: option --max-size: \"%s\" is not allowed; it takes "
			"%u bytes at least, with an optional K, M, G or T",
			max, (unsigned int)TRACE_MAX_BYTES_MIN);
	c = ctl_client_connect(control, &error);
	if (!c)
		return ctl_complain("%s", error->message);
	status = start_in(c, path, bytes, names, json);
	ctl_client_free(c);
	return status;
}

static int start_main(int argc, char **argv)
{
	g_autofree char *control = NULL, *max = NULL;
	gboolean no_names = FALSE, json = FALSE;
	const GOptionEntry entries[] = {
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME, &control,
		 "the daemon's control socket (required)", "PATH"},
		{"max-size", 0, 0, G_OPTION_ARG_STRING, &max,
		 "stop when the file has this size; K, M, G, T (default: 1G)", "SIZE"},
		{"no-names", 0, 0, G_OPTION_ARG_NONE, &no_names, "record no paths of files", NULL},
		{"json", 0, 0, G_OPTION_ARG_NONE, &json, "print JSON", NULL},
		{0},
	};
	int status;

	if (!ctl_parse("trace start", "FILE - record what happens to the window", entries, &argc,
		       &argv, 1, &status))
		return status;
	if (argc < 2)
		return ctl_complain("trace start: which FILE?");
	if (!control)
		return ctl_complain("trace start: --control-path is required");
	return start(control, argv[1], max, !no_names, json);
}

static int ask_main(const char *name, const char *usage, const char *command, int argc, char **argv)
{
	g_autoptr(JsonObject) request = json_object_new();
	g_autofree char *control = NULL;
	g_autoptr(GError) error = NULL;
	struct ctl_client *c;
	gboolean json = FALSE;
	const GOptionEntry entries[] = {
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME, &control,
		 "the daemon's control socket (required)", "PATH"},
		{"json", 0, 0, G_OPTION_ARG_NONE, &json, "print JSON", NULL},
		{0},
	};
	int status;

	if (!ctl_parse(name, usage, entries, &argc, &argv, 0, &status))
		return status;
	if (!control)
		return ctl_complain("%s: --control-path is required", name);
	json_object_set_string_member(request, "command", command);
	c = ctl_client_connect(control, &error);
	if (!c)
		return ctl_complain("%s", error->message);
	status = ask(c, request, -1, json);
	ctl_client_free(c);
	return status;
}

static int stop_main(int argc, char **argv)
{
	return ask_main("trace stop", "- end the trace under way", "trace-stop", argc, argv);
}

static int status_main(int argc, char **argv)
{
	return ask_main("trace status", "- how the trace goes", "trace-status", argc, argv);
}

/* --- a file --- */

struct trace_reader *ctl_open_trace(const char *path, gboolean partial)
{
	g_autoptr(GError) error = NULL;
	struct trace_reader *r = trace_reader_open(path, partial ? TRACE_READ_PARTIAL : 0, &error);

	if (!r)
		ctl_complain("%s", error->message);
	else if (trace_reader_bad_blocks(r))
		ctl_complain("%s: %" PRIu64 " damaged or missing blocks are passed over", path,
			     trace_reader_bad_blocks(r));
	return r;
}

/* Every event through @line, to stdout. */
static int print_events(struct trace_reader *r,
			void (*line)(GString *out, const struct trace_event *e, const char *name))
{
	g_autoptr(GString) out = g_string_sized_new(OUTPUT_CHUNK + 8192);
	g_autoptr(GError) error = NULL;
	struct trace_event e;
	int got;

	while ((got = trace_reader_next(r, &e, &error)) > 0) {
		bool file = trace_kind_fields(e.kind) & TRACE_F_FILE;

		line(out, &e, file ? trace_reader_file(r, e.file_id)->name : NULL);
		if (out->len < OUTPUT_CHUNK)
			continue;
		if (fwrite(out->str, 1, out->len, stdout) != out->len)
			return ctl_flush();
		g_string_truncate(out, 0);
	}
	fwrite(out->str, 1, out->len, stdout);
	if (got < 0)
		return ctl_complain("%s", error->message);
	return ctl_flush();
}

struct summary {
	uint64_t kinds[TRACE_KINDS];
	GArray *files; /* of uint64_t: events of each */
};

static int summarise(struct trace_reader *r, struct summary *s)
{
	g_autoptr(GError) error = NULL;
	struct trace_event e;
	int got;

	while ((got = trace_reader_next(r, &e, &error)) > 0) {
		s->kinds[e.kind]++;
		if (!(trace_kind_fields(e.kind) & TRACE_F_PLACE))
			continue;
		if (e.file_id >= s->files->len)
			g_array_set_size(s->files, e.file_id + 1);
		g_array_index(s->files, uint64_t, e.file_id)++;
	}
	return got < 0 ? ctl_complain("%s", error->message) : CTL_EXIT_OK;
}

static void print_summary(struct trace_reader *r, const struct summary *s)
{
	g_autoptr(GString) out = g_string_new(NULL);

	trace_text_info(out, trace_reader_info(r), 0);
	g_string_append(out, "\nevents\n");
	for (unsigned int k = 0; k < TRACE_KINDS; k++)
		if (s->kinds[k])
			g_string_append_printf(out, "  %-8s %" PRIu64 "\n", trace_kind_name(k),
					       s->kinds[k]);
	g_string_append_printf(out, "\nfiles (%u)\n", s->files->len);
	for (uint32_t i = 0; i < s->files->len; i++) {
		const struct trace_file *f = trace_reader_file(r, i);
		g_autofree char *name =
			f->name ? g_strescape(f->name, NULL) : g_strdup_printf("file %u", i);

		g_string_append_printf(out,
				       "  %10" PRIu64 " events, up to byte %-14" PRIu64 " %s\n",
				       g_array_index(s->files, uint64_t, i), f->end, name);
	}
	fputs(out->str, stdout);
}

static int show(struct trace_reader *r, gboolean events)
{
	struct summary s = {0};
	int status;

	if (events) {
		uint64_t n = trace_reader_info(r)->events;

		status = print_events(r, trace_text_line);
		if (status == CTL_EXIT_OK)
			printf("end of trace: %" PRIu64 " events\n", n);
	} else {
		s.files = g_array_new(FALSE, TRUE, sizeof(uint64_t));
		status = summarise(r, &s);
		if (status == CTL_EXIT_OK)
			print_summary(r, &s);
		g_array_unref(s.files);
	}
	return status == CTL_EXIT_OK ? ctl_flush() : status;
}

static int show_main(int argc, char **argv)
{
	gboolean partial = FALSE, events = FALSE;
	const GOptionEntry entries[] = {
		{"events", 0, 0, G_OPTION_ARG_NONE, &events, "every event, a line each", NULL},
		{"partial", 0, 0, G_OPTION_ARG_NONE, &partial,
		 "take what is there of an unfinished or damaged trace", NULL},
		{0},
	};
	struct trace_reader *r;
	int status;

	if (!ctl_parse("trace show", "FILE - what a trace holds", entries, &argc, &argv, 1,
		       &status))
		return status;
	if (argc < 2)
		return ctl_complain("trace show: which FILE?");
	r = ctl_open_trace(argv[1], partial);
	if (!r)
		return CTL_EXIT_BAD;
	status = show(r, events);
	trace_reader_free(r);
	return status;
}

static int export_main(int argc, char **argv)
{
	gboolean partial = FALSE;
	const GOptionEntry entries[] = {
		{"partial", 0, 0, G_OPTION_ARG_NONE, &partial,
		 "take what is there of an unfinished or damaged trace", NULL},
		{0},
	};
	struct trace_reader *r;
	int status;

	if (!ctl_parse("trace export", "FILE - a trace's events as CSV on standard output", entries,
		       &argc, &argv, 1, &status))
		return status;
	if (argc < 2)
		return ctl_complain("trace export: which FILE?");
	r = ctl_open_trace(argv[1], partial);
	if (!r)
		return CTL_EXIT_BAD;
	printf("%s\n", trace_text_csv_header());
	status = print_events(r, trace_text_csv);
	trace_reader_free(r);
	return status;
}

/* --- the command --- */

static const struct ctl_command subcommands[] = {
	{"start", "have a daemon record into a file", start_main},
	{"stop", "end that", stop_main},
	{"status", "how the recording goes", status_main},
	{"show", "what a trace holds", show_main},
	{"export", "a trace's events as CSV", export_main},
};

static void usage(FILE *out)
{
	fprintf(out, "Usage: daxmapctl trace COMMAND [OPTION...]\n\nCommands:\n");
	for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++)
		fprintf(out, "  %-10s %s\n", subcommands[i].name, subcommands[i].help);
	fprintf(out, "\ndaxmapctl trace COMMAND --help lists a command's options.\n");
}

static int trace_main(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return CTL_EXIT_BAD;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		usage(stdout);
		return ctl_flush();
	}
	for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++)
		if (!strcmp(argv[1], subcommands[i].name))
			return subcommands[i].main(argc - 1, argv + 1);
	ctl_complain("trace: \"%s\" is not a command", argv[1]);
	usage(stderr);
	return CTL_EXIT_BAD;
}

const struct ctl_command ctl_trace_command = {"trace", "record a window's life, and read it",
					      trace_main};
