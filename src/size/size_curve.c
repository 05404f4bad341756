// SPDX-License-Identifier: Apache-2.0
/*
 * The second pass: misses of every window size.
 *
 * Where every access is known it is a simulation of each policy at each size, and the stack
 * distances for LRU: exact, but for accesses that raced in the trace. Where a trace has more
 * granules than SIZE_BLOCKS_MAX, one in 2^shift of them, chosen by hash, stands for all, in windows
 * so many times smaller (Waldspurger et al. 2017).
 *
 * The daemon sees only what misses in the guest's window, W slots. Of a window W' > W that says:
 *
 *  - estimate: a first-in first-out guest (Linux) changes its list at misses only, so the recorded
 *    misses, run through W' slots, give W' its own. What is lost is that a block may be used unseen
 *    while it is in W; if W' has just given it up then, W' misses where nothing was recorded.
 *  - most: the same, but every victim of W' that W holds at that moment is used at once, misses,
 *    and goes back into W'.
 *  - least: with the best of luck no unseen use costs anything, and the policy is as good as LRU:
 *    misses whose stack distance among the recorded ones alone is above W'.
 *
 * Of W' < W it says nothing but that it misses as often as W at least.
 */
#include "size_int.h"

#include <math.h>
#include <string.h>

struct run {
	const struct size_plan *plan;
	struct size_curves *out;
	struct size_blocks *blocks;
	struct size_stack *stack;
	struct size_sim *sims[SIZE_FAMILIES];
	unsigned int shift;
	unsigned int scale; /* log2 */
	uint64_t present;   /* in the sample */
	uint64_t cold_present[SIZE_FAMILIES][SIZE_WINDOWS_MAX];
	uint64_t accesses;
	uint8_t *held;
	uint32_t held_n;
};

static void run_init(struct run *r, struct size_source *source, const struct size_plan *plan,
		     struct size_curves *out)
{
	uint32_t slots[SIZE_WINDOWS_MAX];

	memset(out, 0, sizeof(*out));
	*r = (struct run){.plan = plan, .out = out, .scale = plan->scan->totals.shift};
	r->shift = (unsigned int)__builtin_ctzll(source->granule);
	r->blocks = size_blocks_new(r->scale);
	if (plan->lru)
		r->stack = size_stack_new();
	for (unsigned int i = 0; i < plan->n; i++)
		slots[i] = MAX(plan->slots[i] >> r->scale, 1u);
	for (unsigned int f = 0; f < SIZE_FAMILIES; f++)
		if (plan->families & 1u << f)
			r->sims[f] = size_sim_new(&size_policies[f], slots, plan->n);
}

static void run_clear(struct run *r)
{
	size_blocks_free(r->blocks);
	size_stack_free(r->stack);
	for (unsigned int f = 0; f < SIZE_FAMILIES; f++)
		size_sim_free(r->sims[f]);
	g_free(r->held);
}

/* What was mapped already is put into the windows; its misses are taken out of the account. */
static void use(struct run *r, uint32_t id, unsigned int track, bool present)
{
	for (unsigned int f = 0; f < SIZE_FAMILIES; f++) {
		uint32_t missed;

		if (!r->sims[f])
			continue;
		missed = size_sim_access(r->sims[f], id);
		if (!missed || (!present && !track))
			continue;
		for (; missed; missed &= missed - 1) {
			unsigned int w = (unsigned int)__builtin_ctz(missed);

			if (present)
				r->cold_present[f][w]++;
			else
				r->out->by_file[f][track - 1][w]++;
		}
	}
	if (r->stack)
		size_stack_access(r->stack, id);
	if (present)
		r->present++;
	else
		r->accesses++;
}

static void use_range(struct run *r, const struct size_event *e)
{
	uint64_t first = e->file_offset >> r->shift, last;
	unsigned int track = 0;

	if (!e->len || __builtin_add_overflow(e->file_offset, e->len - 1, &last))
		return;
	last = MIN(last >> r->shift, first + SIZE_EVENT_GRANULES - 1);
	if (r->plan->track || r->plan->skip) {
		uint32_t file = size_scan_file(r->plan->scan, e->file_hi, e->file_lo);

		if (file != SIZE_NO_FILE && r->plan->skip && r->plan->skip[file])
			return;
		if (file != SIZE_NO_FILE && r->plan->track)
			track = r->plan->track[file];
	}
	for (uint64_t i = first; i <= last; i++) {
		bool is_new;
		uint32_t id;

		if (size_blocks_find(r->blocks, size_block_key(e->file_hi, e->file_lo, i), &id,
				     &is_new))
			use(r, id, track, e->kind == SIZE_PRESENT);
	}
}

/* Misses that were none: of the sizes that held all that was there. */
static double settle(double misses, double present, unsigned int scale)
{
	return ldexp(MAX(misses - present, 0), (int)scale);
}

static void take_curves(struct run *r)
{
	struct size_curves *o = r->out;
	unsigned int n = r->plan->n;

	for (unsigned int w = 0; w < n; w++) {
		uint32_t slots = MAX(r->plan->slots[w] >> r->scale, 1u);

		for (unsigned int f = 0; f < SIZE_FAMILIES; f++) {
			if (!r->sims[f])
				continue;
			o->misses[f][w] = settle((double)size_sim_misses(r->sims[f], w),
						 (double)r->cold_present[f][w], r->scale);
			o->live[f][w] = ldexp(size_sim_live(r->sims[f], w), (int)r->scale);
			o->live_mean[f][w] =
				ldexp(size_sim_live_mean(r->sims[f], w), (int)r->scale);
		}
		if (r->stack)
			o->lru[w] = settle((double)size_stack_misses(r->stack, slots),
					   (double)r->present, r->scale);
	}
	for (unsigned int f = 0; f < SIZE_FAMILIES && r->scale; f++)
		for (unsigned int t = 0; t < SIZE_FILES_MAX; t++)
			for (unsigned int w = 0; w < n; w++)
				o->by_file[f][t][w] = ldexp(o->by_file[f][t][w], (int)r->scale);
	o->blocks = (uint64_t)size_blocks_count(r->blocks) << r->scale;
	o->accesses = r->accesses << r->scale;
}

/* --- every access is known --- */

bool size_curves_exact(struct size_source *source, const struct size_plan *plan,
		       struct size_curves *out, GError **error)
{
	g_autofree struct size_event *e = g_new(struct size_event, SIZE_BATCH);
	struct run r;
	gssize n = -1;

	run_init(&r, source, plan, out);
	if (source->rewind(source->ctx, error))
		while ((n = source->next(source->ctx, e, SIZE_BATCH, error)) > 0)
			for (gssize i = 0; i < n; i++)
				if (e[i].kind == SIZE_ACCESS || e[i].kind == SIZE_PRESENT)
					use_range(&r, &e[i]);
	if (n == 0)
		take_curves(&r);
	run_clear(&r);
	return n == 0;
}

/* --- only what the daemon sees --- */

static void hold_range(struct run *r, const struct size_event *e, bool held)
{
	uint64_t first = e->file_offset >> r->shift, last;

	if (!e->len || __builtin_add_overflow(e->file_offset, e->len - 1, &last))
		return;
	last = MIN(last >> r->shift, first + SIZE_EVENT_GRANULES - 1);
	for (uint64_t i = first; i <= last; i++) {
		uint32_t id;

		if (!size_blocks_lookup(r->blocks, size_block_key(e->file_hi, e->file_lo, i), &id))
			continue;
		if (id >= r->held_n) {
			uint32_t room = MAX(1024u, r->held_n);

			while (room <= id)
				room *= 2;
			r->held = g_renew(uint8_t, r->held, room);
			memset(r->held + r->held_n, 0, room - r->held_n);
			r->held_n = room;
		}
		r->held[id] = held;
	}
	size_sim_watch(r->sims[SIZE_LINUX], r->held, r->held_n);
}

static bool read_bounded(struct run *r, struct size_source *source, bool watch, GError **error)
{
	g_autofree struct size_event *e = g_new(struct size_event, SIZE_BATCH);
	gssize n = -1;

	if (!source->rewind(source->ctx, error))
		return false;
	while ((n = source->next(source->ctx, e, SIZE_BATCH, error)) > 0) {
		for (gssize i = 0; i < n; i++) {
			bool setup = e[i].kind == SIZE_SETUP || e[i].kind == SIZE_PRESENT;

			if (setup)
				use_range(r, &e[i]);
			if (watch && (setup || e[i].kind == SIZE_REMOVE))
				hold_range(r, &e[i], setup);
		}
	}
	return n == 0;
}

bool size_curves_bounded(struct size_source *source, const struct size_plan *plan,
			 struct size_curves *out, GError **error)
{
	g_autofree struct size_curves *worst = g_new(struct size_curves, 1);
	struct size_plan p = *plan;
	struct run r;
	bool good;

	p.families = 1u << SIZE_LINUX;
	p.lru = true;
	run_init(&r, source, &p, out);
	good = read_bounded(&r, source, false, error);
	if (good)
		take_curves(&r);
	run_clear(&r);
	if (!good)
		return false;
	p.lru = false;
	p.track = NULL;
	run_init(&r, source, &p, worst);
	good = read_bounded(&r, source, true, error);
	if (good)
		take_curves(&r);
	run_clear(&r);
	for (unsigned int w = 0; w < p.n && good; w++) {
		out->least[w] = MIN(out->lru[w], out->misses[SIZE_LINUX][w]);
		out->most[w] = MAX(worst->misses[SIZE_LINUX][w], out->misses[SIZE_LINUX][w]);
	}
	return good;
}
