// SPDX-License-Identifier: Apache-2.0
/*
 * A block has two words: in which windows it is, and in which it was used since its last chance; a
 * bit a window. So an access that all windows hit costs one look, whatever their number. Each
 * window has a ring of the blocks that it holds, oldest first. Victims are taken as the table's
 * reclaim set and Linux's list take them: from the old end; with a second chance, back to the
 * young end.
 */
#include "size_sim.h"

#include <string.h>

#include <glib.h>

const struct size_policy size_policies[SIZE_FAMILIES] = {
	[SIZE_CLOCK] = {.name = "clock", .clock = true, .high = 100},
	[SIZE_CLOCK_EARLY] = {.name = "clock, 10-20% kept free",
			      .clock = true,
			      .high = 90,
			      .low = 80,
			      .late = true},
	[SIZE_FIFO] = {.name = "fifo", .high = 100},
	[SIZE_LINUX] = {.name = "Linux: fifo, 20% kept free", .high = 80, .chunk = 10},
};

struct window {
	uint32_t slots;
	uint32_t high;
	uint32_t low;
	uint32_t *ring;
	uint32_t oldest;
	uint32_t used;
	bool full; /* has given something up */
	uint64_t misses;
	uint64_t pushed;      /* those that took a slot */
	uint64_t settled;     /* misses since it was full */
	uint64_t settled_sum; /* of slots in use at those */
	uint64_t sum;	      /* at all misses */
};

struct size_sim {
	const struct size_policy *policy;
	unsigned int n;
	uint32_t all;
	struct window windows[SIZE_WINDOWS_MAX];
	uint32_t *in;
	uint32_t *used;
	uint32_t room;
	const uint8_t *held;
	uint32_t n_held;
};

static void window_init(struct window *w, const struct size_policy *p, uint32_t slots)
{
	uint64_t least_free = MAX(slots * (uint64_t)(100 - p->high) / 100, 1);

	w->slots = slots;
	w->high = p->high >= 100 ? slots : (uint32_t)(slots - MIN(least_free, slots));
	w->low = (uint32_t)(slots * (uint64_t)p->low / 100);
	w->ring = g_new(uint32_t, slots);
}

struct size_sim *size_sim_new(const struct size_policy *policy, const uint32_t *slots,
			      unsigned int n)
{
	struct size_sim *s = g_new0(struct size_sim, 1);

	g_assert(n <= SIZE_WINDOWS_MAX);
	s->policy = policy;
	s->n = n;
	s->all = n == 32 ? UINT32_MAX : (1u << n) - 1;
	for (unsigned int i = 0; i < n; i++)
		window_init(&s->windows[i], policy, MAX(slots[i], 1u));
	return s;
}

void size_sim_free(struct size_sim *s)
{
	if (!s)
		return;
	for (unsigned int i = 0; i < s->n; i++)
		g_free(s->windows[i].ring);
	g_free(s->in);
	g_free(s->used);
	g_free(s);
}

void size_sim_watch(struct size_sim *s, const uint8_t *held, uint32_t n)
{
	s->held = held;
	s->n_held = n;
}

static void make_room(struct size_sim *s, uint32_t id)
{
	uint32_t room = MAX(s->room, 1024u);

	while (room <= id)
		room *= 2;
	s->in = g_renew(uint32_t, s->in, room);
	s->used = g_renew(uint32_t, s->used, room);
	memset(s->in + s->room, 0, (room - s->room) * sizeof(*s->in));
	memset(s->used + s->room, 0, (room - s->room) * sizeof(*s->used));
	s->room = room;
}

static uint32_t pop(struct window *w)
{
	uint32_t id = w->ring[w->oldest];

	w->oldest = w->oldest + 1 == w->slots ? 0 : w->oldest + 1;
	w->used--;
	return id;
}

static void push(struct window *w, uint32_t id)
{
	uint32_t at = w->oldest + w->used;

	w->ring[at >= w->slots ? at - w->slots : at] = id;
	w->used++;
}

static bool is_held(const struct size_sim *s, uint32_t id)
{
	return id < s->n_held && s->held[id];
}

/* Twice round at most: the first time may only take chances away. */
static void evict(struct size_sim *s, struct window *w, uint32_t bit)
{
	uint32_t looks = 2 * w->used;
	uint32_t again = w->used;

	w->full = true;
	while (looks--) {
		uint32_t id = pop(w);

		if (s->policy->clock && (s->used[id] & bit)) {
			s->used[id] &= ~bit;
		} else if (again && is_held(s, id)) {
			again--;
			w->misses++;
		} else {
			s->in[id] &= ~bit;
			return;
		}
		push(w, id);
	}
}

static void reclaim(struct size_sim *s, struct window *w, uint32_t bit)
{
	uint32_t chunk = s->policy->chunk;

	if (w->used <= w->high || w->high == w->slots || (s->policy->late && !w->full))
		return;
	if (!chunk) {
		while (w->used > w->low && w->used > 1)
			evict(s, w, bit);
		return;
	}
	/* the newcomer is in use: it stays */
	while (w->used > w->high && w->used > 1)
		for (uint32_t i = 0; i < chunk && w->used > 1; i++)
			evict(s, w, bit);
}

static void miss(struct size_sim *s, unsigned int i, uint32_t id)
{
	struct window *w = &s->windows[i];
	uint32_t bit = 1u << i;

	if (w->used == w->slots)
		evict(s, w, bit);
	push(w, id);
	s->in[id] |= bit;
	s->used[id] &= ~bit;
	w->misses++;
	if (w->full) {
		w->settled++;
		w->settled_sum += w->used;
	}
	w->sum += w->used;
	w->pushed++;
	reclaim(s, w, bit);
}

uint32_t size_sim_access(struct size_sim *s, uint32_t id)
{
	uint32_t missed;

	if (G_UNLIKELY(id >= s->room))
		make_room(s, id);
	missed = ~s->in[id] & s->all;
	s->used[id] |= s->in[id];
	for (uint32_t m = missed; m; m &= m - 1)
		miss(s, (unsigned int)__builtin_ctz(m), id);
	return missed;
}

uint64_t size_sim_misses(const struct size_sim *s, unsigned int window)
{
	return s->windows[window].misses;
}

double size_sim_live(const struct size_sim *s, unsigned int window)
{
	const struct window *w = &s->windows[window];

	return w->settled ? (double)w->settled_sum / (double)w->settled : w->used;
}

double size_sim_live_mean(const struct size_sim *s, unsigned int window)
{
	const struct window *w = &s->windows[window];

	return w->pushed ? (double)w->sum / (double)w->pushed : 0;
}

bool size_sim_full(const struct size_sim *s, unsigned int window)
{
	return s->windows[window].full;
}
