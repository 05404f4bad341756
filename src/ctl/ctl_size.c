// SPDX-License-Identifier: Apache-2.0
/*
 * daxmapctl size: how large must the window be? From a trace, or from some seconds of a daemon's
 * life. The arithmetic is src/size; here are options, recording, and the ways to put it out.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <gio/gio.h>
#include <glib/gstdio.h>
#include <json-glib/json-glib.h>

#include "ctl_client.h"
#include "ctl_common.h"
#include "ctl_size.h"
#include "size_trace.h"
#include "trace_writer.h"
#include "util_fd.h"

struct options {
	char *control, *keep, *plot;
	char *read_us, *hit_us, *map_us, *tolerance, *min, *max, *accesses, *budget;
	gboolean live, partial, json;
	gint seconds;
	/* parsed */
	struct size_options size;
	guint64 budget_n;
	gboolean budget_given;
};

static void options_clear(struct options *o)
{
	g_free(o->control);
	g_free(o->keep);
	g_free(o->plot);
	g_free(o->read_us);
	g_free(o->hit_us);
	g_free(o->map_us);
	g_free(o->tolerance);
	g_free(o->min);
	g_free(o->max);
	g_free(o->accesses);
	g_free(o->budget);
}

/* --- options --- */

static gboolean refuse(const char *option, const char *value, const char *allowed)
{
	ctl_complain("size: option --%s: \"%s\" is not allowed; it takes %s", option, value,
		     allowed);
	return FALSE;
}

static gboolean number(const char *option, const char *value, double min, double max,
		       const char *allowed, const char **end, double *out)
{
	char *stop;
	double v = g_ascii_strtod(value, &stop);

	if (stop == value || !(v >= min && v <= max) || (!end && *stop))
		return refuse(option, value, allowed);
	if (end)
		*end = stop;
	*out = v;
	return TRUE;
}

/* "A" or "A,B": microseconds, and microseconds a live mapping */
static gboolean map_cost(struct options *o)
{
	static const char allowed[] = "microseconds, as in 300, and after a comma those that each "
				      "live mapping adds, as in 300,8.5";
	double base, slope = 0;
	const char *end;

	if (!number("map-us", o->map_us, 0, 1e9, allowed, &end, &base))
		return FALSE;
	if (*end && (*end != ',' || !number("map-us", end + 1, 0, 1e9, allowed, NULL, &slope)))
		return *end == ',' ? FALSE : refuse("map-us", o->map_us, allowed);
	o->size.map_given = true;
	o->size.map_base = base * 1000;
	o->size.map_slope = slope * 1000;
	return TRUE;
}

static gboolean window_size(const char *option, const char *value, uint64_t *out)
{
	guint64 v;

	if (!value)
		return TRUE;
	if (!ctl_parse_size(value, 4096, G_GUINT64_CONSTANT(1) << 50, &v))
		return refuse(option, value, "4K to 1024T, with an optional K, M, G or T");
	*out = v;
	return TRUE;
}

static gboolean plot_name(const char *path)
{
	return g_str_has_suffix(path, ".svg") || g_str_has_suffix(path, ".png");
}

static gboolean count(const char *option, const char *value, guint64 max, guint64 *out)
{
	if (g_ascii_string_to_unsigned(value, 10, 0, max, out, NULL))
		return TRUE;
	return refuse(option, value, "a whole number");
}

static gboolean parse_values(struct options *o)
{
	double v;

	if (o->read_us) {
		if (!number("read-us", o->read_us, 0.001, 1e9, "0.001 to 1e9", NULL, &v))
			return FALSE;
		o->size.read_ns = v * 1000;
	}
	if (o->hit_us) {
		if (!number("hit-us", o->hit_us, 0.001, 1e9, "0.001 to 1e9", NULL, &v))
			return FALSE;
		o->size.hit_ns = v * 1000;
	}
	if (o->tolerance) {
		if (!number("tolerance", o->tolerance, 0.1, 100, "0.1 to 100 (percent)", NULL, &v))
			return FALSE;
		o->size.tolerance = v / 100;
	}
	if (o->map_us && !map_cost(o))
		return FALSE;
	if (o->accesses && !count("accesses", o->accesses, INT64_MAX, &o->size.accesses))
		return FALSE;
	o->budget_given = o->budget != NULL;
	if (o->budget && !count("budget", o->budget, UINT32_MAX, &o->budget_n))
		return FALSE;
	if (o->plot && !plot_name(o->plot))
		return refuse("plot", o->plot, "a name that ends with .svg or .png");
	return window_size("min", o->min, &o->size.min) && window_size("max", o->max, &o->size.max);
}

static gboolean check_use(const struct options *o, const char *path)
{
	if (o->live == (path != NULL)) {
		ctl_complain("size: it takes either a TRACE or --live");
		return FALSE;
	}
	if (o->live && !o->control) {
		ctl_complain("size: --live: --control-path is required");
		return FALSE;
	}
	if (!o->live && (o->control || o->keep)) {
		ctl_complain("size: --control-path and --keep go with --live");
		return FALSE;
	}
	if (o->seconds < 1 || o->seconds > 86400) {
		ctl_complain("size: option --seconds: %d is not allowed; it takes 1 to 86400",
			     o->seconds);
		return FALSE;
	}
	return TRUE;
}

/* --- recording --- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
	interrupted = 1;
}

/* An interrupt ends the wait, not the program: the daemon must be told to stop. */
static void wait_seconds(int seconds)
{
	struct sigaction sa = {.sa_handler = on_interrupt}, old_int, old_term;
	struct timespec end;

	sigaction(SIGINT, &sa, &old_int);
	sigaction(SIGTERM, &sa, &old_term);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	while (!interrupted && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
		;
	sigaction(SIGINT, &old_int, NULL);
	sigaction(SIGTERM, &old_term, NULL);
}

static gboolean ask(struct ctl_client *c, const char *command, int fd, GError **error)
{
	g_autoptr(JsonObject) request = json_object_new();
	JsonNode *answer;

	json_object_set_string_member(request, "command", command);
	answer = ctl_client_request(c, request, fd, error);
	if (!answer)
		return FALSE;
	json_node_unref(answer);
	return TRUE;
}

static gboolean record(const struct options *o, const char *path, GError **error)
{
	struct ctl_client *c = ctl_client_connect(o->control, error);
	util_autofd fd = -1;
	gboolean good;

	if (!c)
		return FALSE;
	fd = trace_file_create(path, error);
	good = fd >= 0 && ask(c, "trace-start", fd, error);
	ctl_client_free(c);
	if (!good)
		return FALSE;
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "recording for %d s...\n", o->seconds);
	wait_seconds(o->seconds);
	/* a connection of its own: the daemon does not wait for a silent one */
	c = ctl_client_connect(o->control, error);
	good = c && ask(c, "trace-stop", -1, error);
	ctl_client_free(c);
	return good;
}

static char *live_trace(const struct options *o)
{
	g_autoptr(GError) error = NULL;
	g_autofree char *path = g_strdup(o->keep);
	gboolean good = TRUE;

	if (!path) {
		util_autofd fd = g_file_open_tmp("daxmapctl-size-XXXXXX", &path, &error);

		good = fd >= 0;
	}
	if (good && record(o, path, &error))
		return g_steal_pointer(&path);
	ctl_complain("size: %s", error->message);
	if (path && !o->keep)
		g_unlink(path);
	return NULL;
}

/* --- the answer --- */

static gboolean draw(const struct size_report *r, const char *path)
{
	gboolean svg = g_str_has_suffix(path, ".svg");
	g_autofree char *script = size_gnuplot(
		r,
		svg ? "svg size 900,760 dynamic font 'sans-serif,15' background rgb 'white'"
		    : "pngcairo size 900,760 font 'sans-serif,12'",
		path);
	g_autoptr(GSubprocess) p = NULL;
	g_autoptr(GError) error = NULL;
	g_autofree char *said = NULL;

	p = g_subprocess_new(G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_SILENCE |
				     G_SUBPROCESS_FLAGS_STDERR_PIPE,
			     &error, "gnuplot", "-", NULL);
	if (!p) {
		ctl_complain("size: --plot needs gnuplot, which cannot be started: %s",
			     error->message);
		return FALSE;
	}
	if (g_subprocess_communicate_utf8(p, script, NULL, NULL, &said, &error) &&
	    g_subprocess_get_successful(p))
		return TRUE;
	ctl_complain("size: gnuplot cannot draw %s: %s", path,
		     said && *g_strstrip(said) ? said
		     : error		       ? error->message
					       : "it gave up");
	return FALSE;
}

static unsigned int columns(void)
{
	struct winsize w;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 100;
}

static gboolean print(const struct options *o, const struct size_report *r)
{
	g_autofree char *text = o->json ? ctl_size_json(r) : size_text(r, columns());

	fputs(text, stdout);
	return ctl_flush() == CTL_EXIT_OK;
}

static void usual_costs(struct size_source *s, const struct options *o, struct size_options *so)
{
	const struct trace_info *info = trace_reader_info(size_trace_reader(s));

	*so = o->size;
	if (!s->guest_seat && strcmp(info->driver, "shmem") == 0)
		so->usual_slope = SIZE_QEMU_SLOPE_NS;
	if (o->budget_given)
		s->budget = (uint32_t)o->budget_n;
}

static int analyse(const struct options *o, const char *path)
{
	g_autoptr(GError) error = NULL;
	struct size_options so;
	struct size_source source;
	struct size_report *r;
	uint64_t bad;
	gboolean good;

	if (!size_trace_open(&source, path, o->partial ? TRACE_READ_PARTIAL : 0, &error))
		return ctl_complain("%s", error->message);
	bad = trace_reader_bad_blocks(size_trace_reader(&source));
	if (bad)
		fprintf(stderr,
			"daxmapctl: %s: %" G_GUINT64_FORMAT
			" damaged or missing blocks are passed over\n",
			path, bad);
	usual_costs(&source, o, &so);
	r = size_analyse(&source, &so, &error);
	size_trace_close(&source);
	if (!r)
		return ctl_complain("%s: %s", path, error->message);
	good = (!o->plot || draw(r, o->plot)) && print(o, r);
	size_report_free(r);
	return good ? CTL_EXIT_OK : CTL_EXIT_BAD;
}

static int run(struct options *o, const char *path)
{
	g_autofree char *recorded = NULL;
	int status;

	if (!check_use(o, path) || !parse_values(o))
		return CTL_EXIT_BAD;
	if (!o->live)
		return analyse(o, path);
	recorded = live_trace(o);
	if (!recorded)
		return CTL_EXIT_BAD;
	status = analyse(o, recorded);
	if (!o->keep)
		g_unlink(recorded);
	return status;
}

static int size_main(int argc, char **argv)
{
	struct options o = {.seconds = 10};
	/* clang-format off */
	const GOptionEntry entries[] = {
		{"live", 0, 0, G_OPTION_ARG_NONE, &o.live, "record a daemon for a while, then look at that", NULL},
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME, &o.control, "the daemon's control socket (for --live)", "PATH"},
		{"seconds", 0, 0, G_OPTION_ARG_INT, &o.seconds, "how long (default: 10; an interrupt ends it earlier)", "S"},
		{"keep", 0, 0, G_OPTION_ARG_FILENAME, &o.keep, "keep what --live records there", "FILE"},
		{"read-us", 0, 0, G_OPTION_ARG_STRING, &o.read_us, "what an access costs without DAX, by request (default: 51.5)", "US"},
		{"hit-us", 0, 0, G_OPTION_ARG_STRING, &o.hit_us, "what an access to mapped bytes costs (default: 0.5)", "US"},
		{"map-us", 0, 0, G_OPTION_ARG_STRING, &o.map_us, "what a miss costs, and more for each live mapping (default: as traced)", "US[,US]"},
		{"accesses", 0, 0, G_OPTION_ARG_STRING, &o.accesses, "how many accesses the guest made, where the trace does not know", "N"},
		{"budget", 0, 0, G_OPTION_ARG_STRING, &o.budget, "live mappings that the VMM bears; 0: no limit (default: as traced)", "N"},
		{"min", 0, 0, G_OPTION_ARG_STRING, &o.min, "no smaller windows than this", "SIZE"},
		{"max", 0, 0, G_OPTION_ARG_STRING, &o.max, "no larger windows than this", "SIZE"},
		{"tolerance", 0, 0, G_OPTION_ARG_STRING, &o.tolerance, "take a smaller window when it costs at most so much more (default: 5)", "PERCENT"},
		{"plot", 0, 0, G_OPTION_ARG_FILENAME, &o.plot, "draw it, with gnuplot, as .svg or .png", "FILE"},
		{"partial", 0, 0, G_OPTION_ARG_NONE, &o.partial, "take what is there of an unfinished or damaged trace", NULL},
		{"json", 0, 0, G_OPTION_ARG_NONE, &o.json, "print JSON", NULL},
		{0},
	};
	/* clang-format on */
	int status;

	if (ctl_parse("size", "[TRACE] - how large the window must be", entries, &argc, &argv, 1,
		      &status))
		status = run(&o, argc > 1 ? argv[1] : NULL);
	options_clear(&o);
	return status;
}

const struct ctl_command ctl_size_command = {"size", "say how large the window must be", size_main};
