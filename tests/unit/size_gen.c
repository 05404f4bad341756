// SPDX-License-Identifier: Apache-2.0
#include "size_gen.h"

#include <math.h>
#include <string.h>

const char *const gen_names[GEN_LOADS] = {
	"uniform", "zipf-0.8", "zipf-1.1", "scan", "loop", "phases", "tenants",
};

/* --- accesses --- */

static uint64_t rnd(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static double *zipf_make(double s, uint32_t n)
{
	double *sums = g_new(double, n), sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sums[i] = sum += pow(i + 1, -s);
	return sums;
}

static uint32_t zipf_pick(const double *sums, uint32_t n, uint64_t *seed)
{
	double x = (double)(rnd(seed) >> 11) * 0x1p-53 * sums[n - 1];
	uint32_t lo = 0, hi = n - 1;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (sums[mid] < x)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

unsigned int gen_file(enum gen_load load, uint32_t blocks, uint32_t block)
{
	return load == GEN_TENANTS && block >= MAX(1, blocks / 16) ? 2 : 1;
}

uint32_t *gen_accesses(enum gen_load load, uint32_t blocks, size_t n, uint64_t seed)
{
	uint32_t *a = g_new(uint32_t, n), small = MAX(1, blocks / 16), quarter = MAX(1, blocks / 4);
	uint32_t zn = load == GEN_TENANTS ? small : blocks;
	g_autofree double *z = zipf_make(load == GEN_ZIPF_LOW ? 0.8 : 1.1, zn);
	uint32_t at = small;

	for (size_t i = 0; i < n; i++) {
		switch (load) {
		case GEN_ZIPF_LOW:
		case GEN_ZIPF_HIGH:
			a[i] = zipf_pick(z, blocks, &seed);
			break;
		case GEN_SCAN:
			a[i] = (uint32_t)(i / 8 % blocks);
			break;
		case GEN_LOOP:
			a[i] = (uint32_t)(i % blocks);
			break;
		case GEN_PHASES:
			a[i] = (uint32_t)(i / MAX(1, n / 5) % 3) * quarter +
			       (uint32_t)(rnd(&seed) % quarter);
			break;
		case GEN_TENANTS:
			if (i % 2) {
				a[i] = zipf_pick(z, small, &seed);
				break;
			}
			a[i] = at;
			at = at + 1 < blocks ? at + 1 : small;
			break;
		default:
			a[i] = (uint32_t)(rnd(&seed) % blocks);
		}
	}
	return a;
}

/* --- the guest --- */

struct guest {
	struct gen_window *w;
	GArray *events;
	GQueue list; /* of granules + 1, oldest first */
	bool *in, *used;
	enum gen_load load;
	uint32_t blocks;
	bool guest_seat;
	uint64_t now, seed;
	bool full; /* a newcomer found no slot */
};

static void record(struct guest *g, enum size_kind kind, uint32_t block, uint64_t ns)
{
	struct size_event e = {
		.kind = kind,
		.mapped = g_queue_get_length(&g->list),
		.at_ns = g->now,
		.ns = ns,
		.file_hi = 7,
		.file_lo = gen_file(g->load, g->blocks, block),
		.file_offset = block * GEN_GRANULE,
		.len = kind == SIZE_ACCESS ? 4096 : GEN_GRANULE,
	};

	if (g->events)
		g_array_append_val(g->events, e);
}

static void give_up(struct guest *g)
{
	for (;;) {
		uint32_t b = GPOINTER_TO_UINT(g_queue_pop_head(&g->list)) - 1;

		if (!g->w->clock || !g->used[b]) {
			g->in[b] = false;
			record(g, g->guest_seat ? SIZE_UNMAP : SIZE_REMOVE, b, 1000);
			return;
		}
		g->used[b] = false;
		g_queue_push_tail(&g->list, GUINT_TO_POINTER(b + 1));
	}
}

static bool above_high(struct guest *g)
{
	uint32_t slots = g->w->slots, used = g_queue_get_length(&g->list);

	return g->w->high < 100 && (g->full || !g->w->late) &&
	       slots - used < MAX((uint64_t)slots * (100 - g->w->high) / 100, 1);
}

static void keep_free(struct guest *g)
{
	struct gen_window *w = g->w;
	uint32_t least = w->slots * w->low / 100;

	while (w->chunk && above_high(g) && g_queue_get_length(&g->list) > 1)
		for (uint32_t i = 0; i < w->chunk && g_queue_get_length(&g->list) > 1; i++)
			give_up(g);
	if (!w->chunk && above_high(g))
		while (g_queue_get_length(&g->list) > MAX(least, 1))
			give_up(g);
}

/* A map takes what it takes, a fifth more or less. */
static uint64_t map_ns(struct guest *g)
{
	double noise = 0.8 + 0.4 * (double)(rnd(&g->seed) >> 11) * 0x1p-53;
	double ns = g->w->base_ns + g->w->slope_ns * g_queue_get_length(&g->list);

	g->w->map_ns += ns;
	return (uint64_t)(ns * noise);
}

static void use(struct guest *g, uint32_t block)
{
	uint64_t ns;

	g->now += 10000;
	if (g->guest_seat)
		record(g, SIZE_ACCESS, block, 0);
	if (g->in[block]) {
		g->used[block] = true;
		return;
	}
	if (g_queue_get_length(&g->list) == g->w->slots) {
		g->full = true;
		give_up(g);
	}
	g_queue_push_tail(&g->list, GUINT_TO_POINTER(block + 1));
	g->in[block] = true;
	g->used[block] = false;
	g->w->misses++;
	ns = map_ns(g);
	g->now += ns;
	record(g, SIZE_MAP, block, ns);
	if (!g->guest_seat)
		record(g, SIZE_SETUP, block, ns);
	keep_free(g);
}

void gen_run(struct gen_window *w, enum gen_load load, uint32_t blocks, const uint32_t *accesses,
	     size_t n, bool guest_seat, GArray *events)
{
	struct guest g = {
		.w = w,
		.events = events,
		.load = load,
		.blocks = blocks,
		.guest_seat = guest_seat,
		.seed = 3,
	};

	g.in = g_new0(bool, blocks);
	g.used = g_new0(bool, blocks);
	g_queue_init(&g.list);
	w->misses = 0;
	w->map_ns = 0;
	for (size_t i = 0; i < n; i++)
		use(&g, accesses[i]);
	g_queue_clear(&g.list);
	g_free(g.in);
	g_free(g.used);
}

/* --- a source --- */

struct memory {
	GArray *events;
	size_t at;
};

static bool memory_rewind(void *ctx, GError **error)
{
	((struct memory *)ctx)->at = 0;
	return true;
}

static gssize memory_next(void *ctx, struct size_event *e, size_t n, GError **error)
{
	struct memory *m = ctx;

	n = MIN(n, m->events->len - m->at);
	if (n)
		memcpy(e, &g_array_index(m->events, struct size_event, m->at), n * sizeof(*e));
	m->at += n;
	return (gssize)n;
}

static char *memory_name(void *ctx, uint64_t hi, uint64_t lo)
{
	return g_strdup(lo == 1 ? "db/small.idx" : "db/large.dat");
}

void gen_source(struct size_source *s, GArray *events, uint64_t window, bool guest_seat,
		uint32_t budget)
{
	struct memory *m = g_new0(struct memory, 1);

	m->events = events;
	*s = (struct size_source){
		.rewind = memory_rewind,
		.next = memory_next,
		.name = memory_name,
		.ctx = m,
		.window = window,
		.granule = GEN_GRANULE,
		.budget = budget,
		.guest_seat = guest_seat,
	};
}

void gen_source_clear(struct size_source *s)
{
	g_free(s->ctx);
}
