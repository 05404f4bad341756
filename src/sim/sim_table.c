// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Ranges are an array, sorted by their place in the window; there are hundreds, so finding is a
 * binary search and inserting moves memory. Each given-back range has the number of its giving
 * back; the lowest is the oldest.
 *
 * Time is what the asker waits for. Unmaps of what lingers too many are made by a worker beside
 * it: they are counted, and their time is not.
 */
#include "sim_table.h"

#include <glib.h>

struct range {
	uint64_t offset;
	uint64_t len;
	uint64_t file_offset;
	uint64_t given; /* number of the giving back; 0 = it was not */
	uint32_t file;
};

struct sim_table {
	struct sim_table_config cfg;
	struct sim_counts n;
	GArray *ranges; /* of struct range, by offset, not overlapping */
	GQueue order;	/* offsets of ranges given back, oldest first; stale ones among them */
	uint64_t lingering;
	uint64_t clock;
};

/* An entry of the order. */
struct given {
	uint64_t offset;
	uint64_t number;
};

static struct range *at(const struct sim_table *t, guint i)
{
	return &g_array_index(t->ranges, struct range, i);
}

static uint64_t end_of(const struct range *r)
{
	return r->offset + r->len;
}

struct sim_table *sim_table_new(const struct sim_table_config *config)
{
	struct sim_table *t = g_new0(struct sim_table, 1);

	t->cfg = *config;
	t->ranges = g_array_new(FALSE, FALSE, sizeof(struct range));
	g_queue_init(&t->order);
	return t;
}

void sim_table_drop(struct sim_table *t)
{
	g_array_set_size(t->ranges, 0);
	g_queue_clear_full(&t->order, g_free);
	t->lingering = 0;
	t->n.live = 0;
}

void sim_table_free(struct sim_table *t)
{
	if (!t)
		return;
	sim_table_drop(t);
	g_array_unref(t->ranges);
	g_free(t);
}

/* Index of the first range that ends behind @offset. */
static guint find(const struct sim_table *t, uint64_t offset)
{
	guint lo = 0, hi = t->ranges->len;

	while (lo < hi) {
		guint mid = lo + (hi - lo) / 2;

		if (end_of(at(t, mid)) > offset)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* --- calls of the driver --- */

static double unmap_cost(const struct sim_table *t)
{
	return t->cfg.cost.unmap + t->cfg.cost.unmap_live * (double)t->n.live;
}

static void forget(struct sim_table *t, guint i)
{
	t->lingering -= at(t, i)->given != 0;
	t->n.live--;
	g_array_remove_index(t->ranges, i);
}

static void unmap(struct sim_table *t, guint i, bool waits)
{
	t->n.unmaps++;
	if (waits)
		t->n.ns += unmap_cost(t);
	forget(t, i);
}

static void insert(struct sim_table *t, guint i, struct range r)
{
	g_array_insert_val(t->ranges, i, r);
	t->n.live++;
	t->n.live_peak = MAX(t->n.live_peak, t->n.live);
}

/* The oldest range that lingers; false when none does. */
static bool oldest(struct sim_table *t, guint *i)
{
	struct given *g;

	while ((g = g_queue_peek_head(&t->order))) {
		*i = find(t, g->offset);
		if (*i < t->ranges->len && at(t, *i)->offset == g->offset &&
		    at(t, *i)->given == g->number)
			return true;
		g_free(g_queue_pop_head(&t->order));
	}
	return false;
}

static void drain(struct sim_table *t)
{
	guint i;

	while (t->cfg.linger && t->lingering > t->cfg.linger && oldest(t, &i))
		unmap(t, i, false);
}

static bool make_room(struct sim_table *t)
{
	guint i;

	while (t->cfg.budget && t->n.live >= t->cfg.budget) {
		if (!oldest(t, &i))
			return false;
		unmap(t, i, true);
	}
	return true;
}

/* --- cutting --- */

static void note_given(struct sim_table *t, struct range *r)
{
	struct given *g = g_new(struct given, 1);

	r->given = ++t->clock;
	*g = (struct given){r->offset, r->given};
	g_queue_push_tail(&t->order, g);
	t->lingering++;
}

/* Cuts range @i so that no piece of it crosses @offset. */
static void cut(struct sim_table *t, guint i, uint64_t offset)
{
	struct range left = *at(t, i), right = left;
	uint64_t n = offset - left.offset;

	right.offset += n;
	right.file_offset += n;
	right.len -= n;
	at(t, i)->len = n;
	insert(t, i + 1, right);
	if (!left.given)
		return;
	at(t, i + 1)->given = 0;
	note_given(t, at(t, i + 1));
}

/* Makes [lo, hi) a whole number of ranges and holes; index of the first range in it. */
static guint cut_out(struct sim_table *t, uint64_t lo, uint64_t hi)
{
	guint i = find(t, lo), last;

	if (i < t->ranges->len && at(t, i)->offset < lo) {
		cut(t, i, lo);
		i++;
	}
	last = find(t, hi);
	if (last < t->ranges->len && at(t, last)->offset < hi)
		cut(t, last, hi);
	return i;
}

/* --- requests --- */

static bool is_there(const struct range *r, uint64_t offset, uint64_t len, uint32_t file,
		     uint64_t file_offset)
{
	return r->offset <= offset && offset + len <= end_of(r) && r->file == file &&
	       r->file_offset + (offset - r->offset) == file_offset;
}

/* What lies in the way goes, by the map itself or before it. */
static void clear_way(struct sim_table *t, uint64_t offset, uint64_t len)
{
	guint i;

	if (!t->cfg.overlay) {
		/* The driver takes back whole mappings only. */
		i = find(t, offset);
		while (i < t->ranges->len && at(t, i)->offset < offset + len)
			unmap(t, i, true);
		return;
	}
	i = cut_out(t, offset, offset + len);
	while (i < t->ranges->len && at(t, i)->offset < offset + len) {
		t->n.elided++;
		forget(t, i);
	}
}

bool sim_table_setup(struct sim_table *t, uint64_t offset, uint64_t len, uint32_t file,
		     uint64_t file_offset)
{
	guint i = find(t, offset);

	t->n.requests++;
	t->n.ns += t->cfg.cost.hit;
	if (i < t->ranges->len && is_there(at(t, i), offset, len, file, file_offset)) {
		t->n.hits++;
		if (at(t, i)->given) {
			at(t, i)->given = 0;
			t->lingering--;
			t->n.elided++;
		}
		return true;
	}
	t->n.misses++;
	clear_way(t, offset, len);
	if (!make_room(t)) {
		t->n.refused++;
		return false;
	}
	t->n.maps++;
	t->n.ns += t->cfg.cost.map + t->cfg.cost.map_live * (double)t->n.live;
	insert(t, find(t, offset),
	       (struct range){
		       .offset = offset, .len = len, .file = file, .file_offset = file_offset});
	return false;
}

void sim_table_remove(struct sim_table *t, uint64_t offset, uint64_t len)
{
	guint i = cut_out(t, offset, offset + len);

	while (i < t->ranges->len && at(t, i)->offset < offset + len) {
		if (t->cfg.forward) {
			unmap(t, i, true);
			continue;
		}
		if (!at(t, i)->given)
			note_given(t, at(t, i));
		i++;
	}
	drain(t);
}

void sim_table_present(struct sim_table *t, uint64_t offset, uint64_t len, uint32_t file,
		       uint64_t file_offset, bool lingering)
{
	guint i = find(t, offset);

	if (i < t->ranges->len && at(t, i)->offset < offset + len)
		return; /* it was set up while the list was made */
	insert(t, i,
	       (struct range){
		       .offset = offset, .len = len, .file = file, .file_offset = file_offset});
	if (lingering)
		note_given(t, at(t, i));
}

void sim_table_counts(const struct sim_table *t, struct sim_counts *out)
{
	*out = t->n;
}
