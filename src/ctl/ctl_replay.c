// SPDX-License-Identifier: Apache-2.0
/*
 * daxmapctl replay: what would a trace have done with another window? Counted (src/sim), or tried
 * on a daemon. Nothing is printed before all is known.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl_common.h"
#include "ctl_replay.h"
#include "util_overflow.h"

#define WINDOWS_MAX 64u
#define SLOT_DEFAULT (2ull << 20)
#define US 1000.0

struct options {
	char **windows;
	char *granule, *policy, *seat, *overlay, *cost;
	char *socket, *make_files;
	gint reserve, budget, linger;
	gboolean forward, json, partial;
};

struct replay {
	const char *path;
	struct trace_reader *r;
	struct sim_survey survey;
	uint64_t windows[WINDOWS_MAX];
	size_t n;
	uint64_t slot;
	enum sim_policy policy;
	bool table;
	bool overlay;
	uint64_t budget;
	struct sim_cost cost;
	bool cost_given;
	struct sim_counts counts[WINDOWS_MAX];
};

static const char *const policy_names[] = {"fifo", "clock", "lru"};

/* --- options --- */

static bool bad(const char *option, const char *value, const char *wanted)
{
	ctl_complain("replay: option --%s: \"%s\" is not allowed; it takes %s", option, value,
		     wanted);
	return false;
}

static bool take_windows(struct replay *p, const struct options *o)
{
	const struct trace_info *info = trace_reader_info(p->r);

	for (char **w = o->windows; w && *w; w++) {
		g_auto(GStrv) sizes = g_strsplit(*w, ",", -1);

		for (char **s = sizes; *s; s++) {
			if (p->n == WINDOWS_MAX)
				return bad("window", *s, "at most 64 sizes in all");
			if (!ctl_parse_size(*s, p->slot, 1ull << 46, &p->windows[p->n++]))
				return bad("window", *s,
					   "sizes of a --granule or more, joined by commas");
		}
	}
	if (!p->n && info->window_size >= p->slot)
		p->windows[p->n++] = info->window_size;
	if (p->n)
		return true;
	ctl_complain("replay: the trace does not say how large its window was: --window is "
		     "required");
	return false;
}

static bool take_cost(struct replay *p, const char *text)
{
	g_auto(GStrv) parts = g_strsplit(text, ",", -1);
	double *to[] = {&p->cost.map, &p->cost.map_live, &p->cost.unmap, &p->cost.unmap_live,
			&p->cost.hit};
	guint n = g_strv_length(parts);

	for (guint i = 0; i < n && n <= G_N_ELEMENTS(to); i++) {
		char *end;
		double v = g_ascii_strtod(parts[i], &end);

		if (end == parts[i] || *end || !(v >= 0 && v <= 1e9))
			n = G_MAXUINT;
		else
			*to[i] = v * US;
	}
	p->cost_given = true;
	if (n >= 1 && n <= G_N_ELEMENTS(to))
		return true;
	return bad("cost", text, "microseconds: MAP[,MAP_PER_LIVE[,UNMAP[,UNMAP_PER_LIVE[,HIT]]]]");
}

static bool take_choices(struct replay *p, const struct options *o)
{
	const struct trace_info *info = trace_reader_info(p->r);
	bool host = !p->survey.accesses;

	p->policy = info->seat == TRACE_SEAT_GUEST ? SIM_CLOCK : SIM_FIFO;
	if (o->policy) {
		size_t i = 0;

		while (i < G_N_ELEMENTS(policy_names) && strcmp(policy_names[i], o->policy) != 0)
			i++;
		if (i == G_N_ELEMENTS(policy_names))
			return bad("policy", o->policy, "one of fifo, clock, lru");
		p->policy = (enum sim_policy)i;
	}
	p->table = host && !o->windows && !o->policy;
	if (o->seat && strcmp(o->seat, "host") != 0 && strcmp(o->seat, "guest") != 0)
		return bad("seat", o->seat, "one of host, guest");
	if (o->seat)
		p->table = !strcmp(o->seat, "host");
	p->overlay = info->caps & 1; /* DM_WINDOW_OVERLAY */
	if (o->overlay && strcmp(o->overlay, "yes") != 0 && strcmp(o->overlay, "no") != 0)
		return bad("overlay", o->overlay, "one of yes, no");
	if (o->overlay)
		p->overlay = !strcmp(o->overlay, "yes");
	p->budget = o->budget >= 0 ? (uint64_t)o->budget : info->budget;
	return true;
}

static bool take_options(struct replay *p, const struct options *o)
{
	const struct trace_info *info = trace_reader_info(p->r);
	uint64_t slot = info->slot_size;

	p->cost = p->survey.fit.cost;
	if (o->granule && (!ctl_parse_size(o->granule, 4096, 1ull << 40, &slot)))
		return bad("granule", o->granule, "a power of two from 4K up");
	if (!slot)
		slot = SLOT_DEFAULT;
	if (!util_is_pow2(slot) || slot < 4096)
		return bad("granule", o->granule ? o->granule : "of the trace",
			   "a power of two from 4K up");
	p->slot = slot;
	if (o->reserve < 0 || o->reserve > 90)
		return bad("reserve", "that", "0 to 90 percent");
	return take_choices(p, o) && take_windows(p, o) && (!o->cost || take_cost(p, o->cost));
}

/* --- counting --- */

static bool run_table(struct replay *p, const struct options *o, GError **error)
{
	const struct sim_table_config c = {
		.budget = p->budget,
		.linger = o->linger > 0 ? (uint64_t)o->linger : 0,
		.forward = o->forward,
		.overlay = p->overlay,
		.cost = p->cost,
	};
	struct sim_table *t = sim_table_new(&c);
	bool good = sim_replay_table(p->r, t, error);

	p->n = 1;
	sim_table_counts(t, &p->counts[0]);
	sim_table_free(t);
	return good;
}

static bool run_caches(struct replay *p, const struct options *o, GError **error)
{
	struct sim_cache *caches[WINDOWS_MAX];
	bool good;

	for (size_t i = 0; i < p->n; i++) {
		const struct sim_cache_config c = {
			.slots = p->windows[i] / p->slot,
			.budget = p->budget,
			.policy = p->policy,
			.reserve = (uint32_t)o->reserve,
			.overlay = p->overlay,
			.cost = p->cost,
		};

		caches[i] = sim_cache_new(&c);
	}
	good = sim_replay_caches(p->r, p->slot, p->survey.accesses > 0, caches, p->n, error);
	for (size_t i = 0; i < p->n; i++) {
		sim_cache_counts(caches[i], &p->counts[i]);
		sim_cache_free(caches[i]);
	}
	return good;
}

/* --- printing --- */

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static const char *mode_of(const struct replay *p)
{
	if (p->table)
		return "table";
	return p->survey.accesses ? "accesses" : "setups";
}

static void print_head(const struct replay *p)
{
	const struct sim_fit *f = &p->survey.fit;

	if (p->table)
		printf("%s: %" PRIu64 " setups and %" PRIu64 " removes through the host's table\n",
		       p->path, p->survey.setups, p->survey.removes);
	else if (p->survey.accesses)
		printf("%s: %" PRIu64 " accesses, exact\n", p->path, p->survey.accesses);
	else
		printf("%s: %" PRIu64 " setups, an estimate: what the guest found mapped is not in "
		       "the trace\n",
		       p->path, p->survey.setups);
	printf("cost: map %.2f us + %.3f us for each live mapping, unmap %.2f us + %.3f us",
	       p->cost.map / US, p->cost.map_live / US, p->cost.unmap / US,
	       p->cost.unmap_live / US);
	if (p->cost_given)
		printf(" (as given)\n");
	else
		printf(" (fitted to %" PRIu64 " maps and %" PRIu64 " unmaps)\n", f->maps,
		       f->unmaps);
}

static void print_text(const struct replay *p)
{
	print_head(p);
	printf("%10s %6s %12s %12s %7s %10s %10s %10s %8s %7s %12s\n", "window", "slots",
	       "requests", "hits", "miss%", "maps", "unmaps", "elided", "refused", "peak",
	       "time ms");
	for (size_t i = 0; i < p->n; i++) {
		const struct sim_counts *n = &p->counts[i];

		printf("%9.1fM %6" PRIu64 " %12" PRIu64 " %12" PRIu64 " %7.2f %10" PRIu64
		       " %10" PRIu64 " %10" PRIu64 " %8" PRIu64 " %7" PRIu64 " %12.3f\n",
		       (double)p->windows[i] / (1 << 20), p->windows[i] / p->slot, n->requests,
		       n->hits, percent(n->misses, n->requests), n->maps, n->unmaps, n->elided,
		       n->refused, n->live_peak, n->ns / 1e6);
	}
}

static void print_json(const struct replay *p)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct sim_counts *n = &p->counts[i];

		printf("{\"mode\":\"%s\",\"window\":%" PRIu64 ",\"slot\":%" PRIu64
		       ",\"policy\":\"%s\",\"requests\":%" PRIu64 ",\"hits\":%" PRIu64
		       ",\"misses\":%" PRIu64 ",\"maps\":%" PRIu64 ",\"unmaps\":%" PRIu64
		       ",\"elided\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"live_peak\":%" PRIu64
		       ",\"time_ns\":%.0f}\n",
		       mode_of(p), p->windows[i], p->slot, policy_names[p->policy], n->requests,
		       n->hits, n->misses, n->maps, n->unmaps, n->elided, n->refused, n->live_peak,
		       n->ns);
	}
}

/* --- live --- */

static void print_live(const struct replay *p, const struct ctl_replay_outcome *out, bool json)
{
	const struct sim_counts *n = &out->counts;

	if (json) {
		printf("{\"mode\":\"live-%s\",\"requests\":%" PRIu64 ",\"hits\":%" PRIu64
		       ",\"misses\":%" PRIu64 ",\"maps\":%" PRIu64 ",\"unmaps\":%" PRIu64
		       ",\"elided\":%" PRIu64 ",\"refused\":%" PRIu64
		       ",\"time_ns\":%.0f,\"slowest_ns\":%" PRIu64 "}\n",
		       p->survey.accesses ? "accesses" : "setups", n->requests, n->hits, n->misses,
		       n->maps, n->unmaps, n->elided, out->refused, out->seconds * 1e9,
		       out->slowest_ns);
		return;
	}
	printf("%s: %" PRIu64 " %s replayed in %.3f s, the slowest %.1f us\n", p->path, n->requests,
	       p->survey.accesses ? "accesses" : "setups", out->seconds,
	       (double)out->slowest_ns / US);
	if (p->survey.accesses)
		printf("hits %" PRIu64 ", misses %" PRIu64 " (%.2f%%), maps %" PRIu64
		       ", unmaps %" PRIu64 ", elided %" PRIu64 "\n",
		       n->hits, n->misses, percent(n->misses, n->hits + n->misses), n->maps,
		       n->unmaps, n->elided);
}

static int run_live(struct replay *p, const struct options *o)
{
	const struct ctl_replay_live live = {
		.socket_path = o->socket,
		.window = o->windows ? p->windows[0] : 0,
		.overlay = o->overlay && p->overlay,
		.fifo = o->policy && p->policy == SIM_FIFO,
		.make_files = o->make_files,
	};
	struct ctl_replay_outcome out;
	g_autoptr(GError) error = NULL;

	if (!ctl_replay_live(p->r, &p->survey, &live, &out, &error))
		return ctl_complain("replay: %s", error->message);
	print_live(p, &out, o->json);
	if (out.refused)
		return ctl_complain("replay: %" PRIu64 " requests were refused, the first with: %s",
				    out.refused, g_strerror(-out.first_error));
	return ctl_flush();
}

static int run(struct replay *p, const struct options *o)
{
	g_autoptr(GError) error = NULL;

	if (!sim_survey(p->r, &p->survey, &error))
		return ctl_complain("%s", error->message);
	trace_reader_rewind(p->r);
	if (!take_options(p, o))
		return CTL_EXIT_BAD;
	if (!p->survey.accesses && !p->survey.setups)
		return ctl_complain("replay: %s: there is no access and no setup in it", p->path);
	if (o->socket)
		return run_live(p, o);
	if (p->table && !p->survey.setups)
		return ctl_complain("replay: --seat=host: there is no setup in the trace");
	if (!(p->table ? run_table(p, o, &error) : run_caches(p, o, &error)))
		return ctl_complain("%s", error->message);
	if (o->json)
		print_json(p);
	else
		print_text(p);
	return ctl_flush();
}

static void clear(struct options *o)
{
	g_strfreev(o->windows);
	g_free(o->granule);
	g_free(o->policy);
	g_free(o->seat);
	g_free(o->overlay);
	g_free(o->cost);
	g_free(o->socket);
	g_free(o->make_files);
}

/* clang-format off */
static int replay_main(int argc, char **argv)
{
	struct options o = {.budget = -1};
	const GOptionEntry entries[] = {
		{"window", 0, 0, G_OPTION_ARG_STRING_ARRAY, &o.windows, "window sizes, joined by commas; K, M, G (default: the trace's)", "SIZE"},
		{"granule", 0, 0, G_OPTION_ARG_STRING, &o.granule, "bytes of a slot (default: the trace's)", "SIZE"},
		{"policy", 0, 0, G_OPTION_ARG_STRING, &o.policy, "victims: oldest first, second chance, or least recently used (default: the recorder's)", "fifo|clock|lru"},
		{"reserve", 0, 0, G_OPTION_ARG_INT, &o.reserve, "percent of the slots that reclaim keeps free; the Linux guest: 20 (default: 0)", "N"},
		{"budget", 0, 0, G_OPTION_ARG_INT, &o.budget, "live mappings at most; 0: no limit (default: the trace's)", "N"},
		{"overlay", 0, 0, G_OPTION_ARG_STRING, &o.overlay, "can the driver map over a mapping? (default: as the trace's)", "yes|no"},
		{"cost", 0, 0, G_OPTION_ARG_STRING, &o.cost, "microseconds: MAP,MAP_PER_LIVE,UNMAP,UNMAP_PER_LIVE,HIT (default: fitted to the trace)", "LIST"},
		{"seat", 0, 0, G_OPTION_ARG_STRING, &o.seat, "replay what the guest used, or what it asked the daemon for (default: as recorded)", "guest|host"},
		{"linger", 0, 0, G_OPTION_ARG_INT, &o.linger, "host: given-back ranges that stay mapped (default: all that the budget bears)", "N"},
		{"forward", 0, 0, G_OPTION_ARG_NONE, &o.forward, "host: unmap at every remove, as without a table", NULL},
		{"socket-path", 0, 0, G_OPTION_ARG_FILENAME, &o.socket, "replay against the daemon on this vhost-user socket", "PATH"},
		{"make-files", 0, 0, G_OPTION_ARG_FILENAME, &o.make_files, "with it: make empty files of the right size in this new directory of the share", "NAME"},
		{"partial", 0, 0, G_OPTION_ARG_NONE, &o.partial, "take what is there of an unfinished or damaged trace", NULL},
		{"json", 0, 0, G_OPTION_ARG_NONE, &o.json, "one JSON object for each window", NULL},
		{0},
	};
	struct replay *p;
	int status;

	if (!ctl_parse("replay", "TRACE - what another window would have done", entries, &argc, &argv, 1, &status))
		return status;
	if (argc < 2) {
		clear(&o);
		return ctl_complain("replay: which TRACE?");
	}
	p = g_new0(struct replay, 1);
	p->path = argv[1];
	p->r = ctl_open_trace(argv[1], o.partial);
	status = p->r ? run(p, &o) : CTL_EXIT_BAD;
	trace_reader_free(p->r);
	g_free(p);
	clear(&o);
	return status;
}
/* clang-format on */

const struct ctl_command ctl_replay_command = {
	"replay", "count what another window would have done", replay_main};
