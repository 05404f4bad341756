// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load_options.h"
#include "util_help.h"
#include "util_overflow.h"

static const char *const rw_names[] = {
	"read",	  "write",   "randread", "randwrite", "randrw",
	"lookup", "getattr", "create",	 "readdir",   "untar",
};
static const char *const engine_names[] = {"read", "dax", "auto"};
static const char *const reclaim_names[] = {"fine", "vanilla"};
static const char *const mode_names[] = {"none", "strict", "overlay"};
static const char *const admission_names[] = {"always", "never", "adaptive", "eager"};

G_STATIC_ASSERT(G_N_ELEMENTS(rw_names) == LOAD_UNTAR + 1);
G_STATIC_ASSERT(GUEST_WINDOW_STRICT == 1 && GUEST_WINDOW_OVERLAY == 2);

const char *load_rw_name(enum load_rw rw)
{
	return rw_names[rw];
}

const char *load_engine_name(enum load_engine e)
{
	return engine_names[e];
}

/* The options as they came: all strings, so that what is wrong can be quoted. */
struct raw_options {
	char *rw, *engine, *reclaim, *mode, *admission;
	char *bs, *size, *window, *slot, *seed, *ops;
	char *iodepth, *jobs, *files, *queues, *rwmixread, *poll_us, *timeout, *pid;
	char *zipf, *runtime, *ramp;
};

static bool refuse(GError **error, const char *option, const char *value, const char *allowed)
{
	g_set_error(error, G_OPTION_ERROR, G_OPTION_ERROR_BAD_VALUE,
		    "option --%s: bad value '%s', allowed: %s", option, value, allowed);
	return false;
}

static bool refuse_u64(GError **error, const char *option, uint64_t value, const char *allowed)
{
	g_autofree char *text = g_strdup_printf("%" G_GUINT64_FORMAT, value);

	return refuse(error, option, text, allowed);
}

static bool parse_choice(const char *option, const char *value, const char *const *names, size_t n,
			 unsigned int first, int *out, GError **error)
{
	g_autoptr(GString) allowed = g_string_new(NULL);

	if (!value)
		return true;
	for (size_t i = first; i < n; i++) {
		if (!strcmp(value, names[i])) {
			*out = (int)i;
			return true;
		}
		g_string_append_printf(allowed, "%s%s", i > first ? "|" : "", names[i]);
	}
	return refuse(error, option, value, allowed->str);
}

static unsigned int shift_of(char c)
{
	const char *at = c ? strchr("kmgt", g_ascii_tolower(c)) : NULL;

	return at ? 10 * (unsigned int)(at - "kmgt" + 1) : 0;
}

static bool parse_u64(const char *option, const char *value, uint64_t min, uint64_t max,
		      bool suffix, uint64_t *out, GError **error)
{
	g_autofree char *allowed = NULL;
	char *end = NULL;
	uint64_t v;
	bool good;

	if (!value)
		return true;
	v = g_ascii_strtoull(value, &end, 10);
	good = g_ascii_isdigit(*value);
	if (good && suffix && shift_of(*end)) {
		good = util_mul_u64(v, 1ull << shift_of(*end), &v);
		end++;
	}
	if (good && !*end && v >= min && v <= max) {
		*out = v;
		return true;
	}
	allowed = g_strdup_printf("%" G_GUINT64_FORMAT "..%" G_GUINT64_FORMAT "%s", min, max,
				  suffix ? " with an optional K, M, G or T" : "");
	return refuse(error, option, value, allowed);
}

static bool parse_uint(const char *option, const char *value, unsigned int min, unsigned int max,
		       unsigned int *out, GError **error)
{
	uint64_t v = *out;

	if (!parse_u64(option, value, min, max, false, &v, error))
		return false;
	*out = (unsigned int)v;
	return true;
}

static bool parse_double(const char *option, const char *value, double min, double max, double *out,
			 GError **error)
{
	g_autofree char *allowed = NULL;
	char *end = NULL;
	double v;

	if (!value)
		return true;
	v = g_ascii_strtod(value, &end);
	if (end != value && !*end && v >= min && v <= max) {
		*out = v;
		return true;
	}
	allowed = g_strdup_printf("%g..%g", min, max);
	return refuse(error, option, value, allowed);
}

static void set_defaults(struct load_config *c)
{
	*c = (struct load_config){
		.rw = LOAD_RANDREAD,
		.window_mode = GUEST_WINDOW_STRICT,
		.admission = -1,
		.bs = 4096,
		.slot = 2u << 20,
		.size = 256ull << 20,
		.seed = 1,
		.iodepth = 1,
		.jobs = 1,
		.rwmixread = 50,
		.poll_us = 20,
		.timeout = 30,
		.runtime = 5,
	};
}

static bool parse_choices(struct load_config *c, const struct raw_options *o, GError **error)
{
	int rw = c->rw, engine = c->engine, reclaim = c->reclaim, mode = c->window_mode;
	bool good;

	good = parse_choice("rw", o->rw, rw_names, G_N_ELEMENTS(rw_names), 0, &rw, error) &&
	       parse_choice("engine", o->engine, engine_names, G_N_ELEMENTS(engine_names), 0,
			    &engine, error) &&
	       parse_choice("reclaim", o->reclaim, reclaim_names, G_N_ELEMENTS(reclaim_names), 0,
			    &reclaim, error) &&
	       parse_choice("window-mode", o->mode, mode_names, G_N_ELEMENTS(mode_names), 1, &mode,
			    error) &&
	       parse_choice("admission", o->admission, admission_names,
			    G_N_ELEMENTS(admission_names), 0, &c->admission, error);
	c->rw = (enum load_rw)rw;
	c->engine = (enum load_engine)engine;
	c->reclaim = (enum load_reclaim)reclaim;
	c->window_mode = (enum guest_window_mode)mode;
	return good;
}

static bool parse_numbers(struct load_config *c, const struct raw_options *o, GError **error)
{
	unsigned int pid = 0;
	bool good;

	good = parse_u64("bs", o->bs, 512, 1u << 20, true, &c->bs, error) &&
	       parse_u64("size", o->size, 4096, 1ull << 42, true, &c->size, error) &&
	       parse_u64("window", o->window, 2u << 20, 1ull << 40, true, &c->window, error) &&
	       parse_u64("slot", o->slot, 4096, 1u << 30, true, &c->slot, error) &&
	       parse_u64("seed", o->seed, 0, UINT64_MAX, false, &c->seed, error) &&
	       parse_u64("ops", o->ops, 1, UINT64_MAX, true, &c->ops, error) &&
	       parse_uint("iodepth", o->iodepth, 1, 1024, &c->iodepth, error) &&
	       parse_uint("jobs", o->jobs, 1, 256, &c->jobs, error) &&
	       parse_uint("files", o->files, 1, 1000000, &c->files, error) &&
	       parse_uint("queues", o->queues, 1, GUEST_MAX_QUEUES - 1, &c->queues, error) &&
	       parse_uint("rwmixread", o->rwmixread, 0, 100, &c->rwmixread, error) &&
	       parse_uint("poll-us", o->poll_us, 0, 1000000, &c->poll_us, error) &&
	       parse_uint("timeout", o->timeout, 1, 86400, &c->timeout, error) &&
	       parse_uint("daemon-pid", o->pid, 1, 1u << 30, &pid, error) &&
	       parse_double("zipf", o->zipf, 0, 10, &c->zipf, error) &&
	       parse_double("ramp", o->ramp, 0, 86400, &c->ramp, error) &&
	       parse_double("runtime", o->runtime, 0.01, 86400, &c->runtime, error);
	c->daemon_pid = (int)pid;
	return good;
}

static bool check(struct load_config *c, GError **error)
{
	if (!c->socket_path && !c->null) {
		g_set_error(error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED,
			    "option --socket-path is missing (or --null)");
		return false;
	}
	if (!c->files)
		c->files = load_is_io(c->rw) ? 1 : 1000;
	if (c->ramp > 0 && c->ops) {
		g_set_error(error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED,
			    "option --ramp: not with --ops");
		return false;
	}
	if (!util_is_pow2(c->bs))
		return refuse_u64(error, "bs", c->bs, "a power of two, 512..1M");
	if (!util_is_pow2(c->slot) || c->slot < c->bs)
		return refuse_u64(error, "slot", c->slot, "a power of two, 4K..1G, at least --bs");
	if (load_is_io(c->rw) && c->size / c->files < c->bs)
		return refuse_u64(error, "size", c->size, "at least --bs for each of --files");
	if (c->null && c->sums) {
		g_set_error(error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED,
			    "option --sum: not with --null, which has no files");
		return false;
	}
	if (c->mmap_like && c->verify) {
		g_set_error(error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED,
			    "option --mmap: not with --verify, for it copies nothing");
		return false;
	}
	if (c->trace && (c->engine == LOAD_ENGINE_READ || !load_is_io(c->rw))) {
		g_set_error(
			error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED,
			"option --dax-trace: only with --engine=dax or auto, and reads and writes");
		return false;
	}
	if (c->null && (c->verify || c->engine != LOAD_ENGINE_READ)) {
		g_set_error(error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED,
			    "option --null: only with --engine=read and without --verify");
		return false;
	}
	return true;
}

static void raw_clear(struct raw_options *o)
{
	char **p = (char **)o;

	for (size_t i = 0; i < sizeof(*o) / sizeof(*p); i++)
		g_free(p[i]);
}

/* clang-format off */
#define ENTRY(name, kind, target, help, arg) {name, 0, 0, G_OPTION_ARG_##kind, target, help, arg}

static GOptionContext *make_context(struct load_config *c, struct raw_options *o)
{
	GOptionEntry entries[] = {
		ENTRY("socket-path", FILENAME, &c->socket_path, "back-end's socket", "PATH"),
		ENTRY("rw", STRING, &o->rw, "read|write|randread|randwrite|randrw|lookup|getattr|create|readdir|untar; default randread", "LOAD"),
		ENTRY("engine", STRING, &o->engine, "read: FUSE requests; dax: all is mapped; auto: as admission says; default read", "read|dax|auto"),
		ENTRY("bs", STRING, &o->bs, "bytes of one operation; default 4K", "SIZE"),
		ENTRY("size", STRING, &o->size, "bytes of all files together; default 256M", "SIZE"),
		ENTRY("files", STRING, &o->files, "number of files; default 1 (names of metadata loads: 1000)", "N"),
		ENTRY("iodepth", STRING, &o->iodepth, "operations in flight of each job; default 1", "N"),
		ENTRY("jobs", STRING, &o->jobs, "independent streams; default 1", "N"),
		ENTRY("bind", NONE, &c->bind, "each thread that copies or waits for answers stays on one CPU, in turn over those allowed", NULL),
		ENTRY("queues", STRING, &o->queues, "request queues to use; default: all there are", "N"),
		ENTRY("rwmixread", STRING, &o->rwmixread, "percent of reads in randrw; default 50", "N"),
		ENTRY("zipf", STRING, &o->zipf, "random places by Zipf's law with this exponent, scattered; default 0: uniform", "T"),
		ENTRY("runtime", STRING, &o->runtime, "seconds; default 5", "S"),
		ENTRY("ramp", STRING, &o->ramp, "seconds before that: the load runs, and nothing is counted; default 0", "S"),
		ENTRY("ops", STRING, &o->ops, "instead of --runtime: so many operations of each job", "N"),
		ENTRY("seed", STRING, &o->seed, "of all that is random; default 1", "N"),
		ENTRY("verify", NONE, &c->verify, "check every page read, and all that was written at the end", NULL),
		ENTRY("window", STRING, &o->window, "use so much of the DAX window; default: all of it", "SIZE"),
		ENTRY("slot", STRING, &o->slot, "bytes that are mapped at a time; default 2M, as a Linux guest's", "SIZE"),
		ENTRY("window-mode", STRING, &o->mode, "play a VMM that refuses overlaps (QEMU), or one that overlays; default strict", "strict|overlay"),
		ENTRY("reclaim", STRING, &o->reclaim, "fine, or vanilla: the published baseline; default fine", "fine|vanilla"),
		ENTRY("admission", STRING, &o->admission, "what is mapped: all, and operations wait for it; nothing; what has proved worth it; all, and requests serve the meantime; default: adaptive with --engine=auto, eager with dax, but always with --mmap and --reclaim=vanilla", "always|never|adaptive|eager"),
		ENTRY("mmap", NONE, &c->mmap_like, "dax: touch the mapped bytes in place instead of copying them", NULL),
		ENTRY("dax-trace", FILENAME, &c->trace, "record every access and every map into this file, for daxmapctl", "FILE"),
		ENTRY("dir", STRING, &c->dir, "directory on the share for the files; default daxmap-load", "NAME"),
		ENTRY("lay-out-only", NONE, &c->layout_only, "make the files and leave", NULL),
		ENTRY("daemon-pid", STRING, &o->pid, "whose CPU time to count (with its children); default: the socket's peer", "PID"),
		ENTRY("poll-us", STRING, &o->poll_us, "look for completions so long before sleeping; default 20", "N"),
		ENTRY("timeout", STRING, &o->timeout, "give up when nothing was answered for so many seconds; default 30", "S"),
		ENTRY("json", NONE, &c->json, "print JSON", NULL),
		ENTRY("null", NONE, &c->null, "measure the generator itself against a back-end that does nothing", NULL),
		ENTRY("sum", FILENAME_ARRAY, &c->sums, "instead of a load: print the MD5 of this file of the share, in the form of md5sum, read with --engine; may be given again", "PATH"),
		ENTRY("beside", FILENAME, &c->beside, "a read of this file of the share is under way all the while, on the first queue", "PATH"),
		ENTRY("progress", NONE, &c->progress, "a line on stderr each second", NULL),
		ENTRY("connect-only", NONE, &c->connect_only, "connect, INIT, say what the back-end offers, and leave", NULL),
		{"help", 'h', 0, G_OPTION_ARG_NONE, &c->help, "print this, and leave", NULL},
		{0},
	};
	GOptionContext *ctx = g_option_context_new("- load on any vhost-user-fs back-end");

	g_option_context_set_help_enabled(ctx, FALSE);
	g_option_context_set_description(ctx,
		"SIZE takes K, M, G, T. Exit status: 0 good; 1 data wrong, a rule broken, an error or a "
		"dead back-end;\n2 bad usage.");
	g_option_context_add_main_entries(ctx, entries, NULL);
	return ctx;
}
/* clang-format on */

bool load_options_parse(struct load_config *c, int argc, char **argv, GError **error)
{
	struct raw_options o = {0};
	GOptionContext *ctx;
	bool good;

	set_defaults(c);
	ctx = make_context(c, &o);
	good = g_option_context_parse(ctx, &argc, &argv, error);
	if (good && c->help) {
		g_autofree char *text = util_help_text(ctx);

		fputs(text, stdout);
		exit(0);
	}
	g_option_context_free(ctx);
	if (good && argc > 1) {
		g_set_error(error, G_OPTION_ERROR, G_OPTION_ERROR_FAILED,
			    "unknown argument '%s' (see --help)", argv[1]);
		good = false;
	}
	good = good && parse_choices(c, &o, error) && parse_numbers(c, &o, error) &&
	       check(c, error);
	if (!c->dir)
		c->dir = g_strdup("daxmap-load");
	raw_clear(&o);
	return good;
}

void load_options_clear(struct load_config *c)
{
	g_free(c->socket_path);
	g_free(c->dir);
	g_free(c->beside);
	g_free(c->trace);
	g_strfreev(c->sums);
}
