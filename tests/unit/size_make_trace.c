// SPDX-License-Identifier: Apache-2.0
/*
 * Writes a trace of a known load that ran through a window: to try daxmapctl size and replay on,
 * and to see what ten million events take them.
 */
#include <stdio.h>
#include <string.h>

#include "size_gen.h"
#include "trace_writer.h"

static gchar *opt_load;
static gint opt_blocks = 1000;
static gint64 opt_accesses = 1000000;
static gint opt_slots = 64;
static gint opt_seed = 1;
static gboolean opt_host;
static gdouble opt_base_us = 300;
static gdouble opt_slope_us;

static const GOptionEntry entries[] = {
	{"load", 0, 0, G_OPTION_ARG_STRING, &opt_load,
	 "uniform|zipf-0.8|zipf-1.1|scan|loop|phases|tenants (zipf-1.1)", "NAME"},
	{"ranges", 0, 0, G_OPTION_ARG_INT, &opt_blocks, "of 2 MiB, all together (1000)", "N"},
	{"accesses", 0, 0, G_OPTION_ARG_INT64, &opt_accesses, "(1000000)", "N"},
	{"slots", 0, 0, G_OPTION_ARG_INT, &opt_slots, "of the window (64)", "N"},
	{"seed", 0, 0, G_OPTION_ARG_INT, &opt_seed, "(1)", "N"},
	{"host", 0, 0, G_OPTION_ARG_NONE, &opt_host, "as the daemon records it, for a Linux guest",
	 NULL},
	{"map-us", 0, 0, G_OPTION_ARG_DOUBLE, &opt_base_us, "a map (300)", "US"},
	{"live-us", 0, 0, G_OPTION_ARG_DOUBLE, &opt_slope_us, "and for each live mapping (0)",
	 "US"},
	{0},
};

static enum trace_kind kind_of(enum size_kind kind)
{
	switch (kind) {
	case SIZE_ACCESS:
		return TRACE_ACCESS;
	case SIZE_SETUP:
		return TRACE_SETUP;
	case SIZE_REMOVE:
		return TRACE_REMOVE;
	case SIZE_MAP:
		return TRACE_MAP;
	default:
		return TRACE_UNMAP;
	}
}

static void write_events(struct trace_writer *w, const GArray *events)
{
	static const char *const names[] = {"db/small.idx", "db/large.dat"};
	struct trace_writer_stats st;

	for (unsigned int i = 0; i < G_N_ELEMENTS(names); i++) {
		struct trace_event t = {.kind = TRACE_NAME, .file = {7, i + 1}, .name = names[i]};

		t.time_ns = 1;
		trace_record(w, &t);
	}

	for (guint i = 0; i < events->len; i++) {
		const struct size_event *e = &g_array_index(events, struct size_event, i);
		struct trace_event t = {
			.kind = (uint8_t)kind_of(e->kind),
			.mapped = e->mapped,
			.time_ns = e->at_ns,
			.len = e->len,
			.file = {e->file_hi, e->file_lo},
			.file_offset = e->file_offset,
			.ns = e->ns,
		};

		trace_record(w, &t);
		/* the disk must follow: nothing may be lost here */
		if (i % 65536 == 65535) {
			do {
				g_usleep(1000);
				trace_writer_stats(w, &st);
			} while (st.bytes + (64 << 16) < (uint64_t)i * 5);
		}
	}
}

static int make(enum gen_load load, const char *path)
{
	const struct size_policy *p = &size_policies[opt_host ? SIZE_LINUX : SIZE_CLOCK];
	struct gen_window w = {
		.slots = (uint32_t)opt_slots,
		.clock = p->clock,
		.high = p->high,
		.low = p->low,
		.chunk = p->chunk,
		.base_ns = opt_base_us * 1000,
		.slope_ns = opt_slope_us * 1000,
	};
	struct trace_writer_config c = {
		.info = {.seat = opt_host ? TRACE_SEAT_HOST : TRACE_SEAT_GUEST,
			 .window_size = w.slots * GEN_GRANULE,
			 .granule = 4096,
			 .slot_size = GEN_GRANULE,
			 .budget = 480,
			 .driver = "shmem"},
		.max_bytes = UINT64_C(1) << 40,
		.blocks = 1024,
	};
	g_autoptr(GArray) events = g_array_new(FALSE, FALSE, sizeof(struct size_event));
	g_autofree uint32_t *a =
		gen_accesses(load, (uint32_t)opt_blocks, (size_t)opt_accesses, (uint64_t)opt_seed);
	g_autoptr(GError) error = NULL;
	struct trace_writer_stats st;
	struct trace_writer *tw;
	int fd;

	gen_run(&w, load, (uint32_t)opt_blocks, a, (size_t)opt_accesses, !opt_host, events);
	fd = trace_file_create(path, &error);
	tw = fd >= 0 ? trace_writer_new(fd, &c, &error) : NULL;
	if (!tw) {
		fprintf(stderr, "size_make_trace: %s\n", error->message);
		return 1;
	}
	write_events(tw, events);
	trace_writer_free(tw, &st);
	printf("%u events, %" G_GUINT64_FORMAT " lost, %" G_GUINT64_FORMAT
	       " bytes, miss ratio %.4f\n",
	       events->len, st.lost, st.bytes, (double)w.misses / (double)opt_accesses);
	return st.lost ? 1 : 0;
}

int main(int argc, char **argv)
{
	g_autoptr(GOptionContext) ctx = g_option_context_new("FILE");
	g_autoptr(GError) error = NULL;

	g_option_context_add_main_entries(ctx, entries, NULL);
	if (!g_option_context_parse(ctx, &argc, &argv, &error) || argc != 2 || opt_blocks < 8 ||
	    opt_accesses < 1 || opt_slots < 1) {
		fprintf(stderr, "size_make_trace: %s\n", error ? error->message : "bad usage");
		return 2;
	}
	for (int i = 0; i < GEN_LOADS; i++)
		if (!strcmp(opt_load ? opt_load : "zipf-1.1", gen_names[i]))
			return make((enum gen_load)i, argv[1]);
	fprintf(stderr, "size_make_trace: no such load: %s\n", opt_load);
	return 2;
}
