// SPDX-License-Identifier: Apache-2.0
/*
 * Ranges: their life, their pins, what the owner has of them, and cutting.
 *
 * A range is one mapping of the driver; its extent never changes. What the owner has of it is
 * apart: all of it as a rule (LIVE, no bitmap), or, where the owner gave a part back that could
 * not be cut off, the granules of a bitmap. So a driver that only unmaps whole mappings keeps the
 * whole, and the owner still loses nothing but what it gave back.
 *
 * Pins are counted in a cell (dm_pin.c). Once a range is closed the number of pins only falls, and
 * zero is final until it is opened again. Only LIVE ranges are open.
 *
 * Cutting makes new ranges and closes the old one, after they have been published: a reader that
 * finds the old one closed looks again and finds a piece. Pins of the old range stay good, as each
 * piece counts as pinned while its parent is.
 */
#include "dm_core.h"

#include "dm_probe.h"
#include "util_yield.h"

static const char *const state_names[] = {
	[DM_FREE] = "free",	      [DM_MAPPING] = "mapping",	    [DM_LIVE] = "live",
	[DM_LINGERING] = "lingering", [DM_UNMAPPING] = "unmapping",
};
G_STATIC_ASSERT(G_N_ELEMENTS(state_names) == DM_STATE_COUNT);

const char *dm_state_name(enum dm_state s)
{
	return state_names[s];
}

#define BITS (8 * sizeof(unsigned long))

struct dm_range *dm_range_new(struct dm_core *c, struct dm_file *file, uint64_t offset,
			      uint64_t len, uint64_t file_offset)
{
	struct dm_range *r = g_aligned_alloc0(1, sizeof(*r), 64);

	r->offset = offset;
	r->len = len;
	r->file_offset = file_offset;
	r->file = file;
	r->key = file->key;
	r->core = c;
	r->cell = dm_cell_new(&c->cells);
	r->refs = 1;
	r->state = DM_MAPPING;
	r->flags = file->writable || DM_MUTATE(18) ? DM_MAP_WRITE : 0;
	rc_node_init(&r->rc, (unsigned int)(offset >> c->chunk_shift));
	return r;
}

void dm_range_ref(struct dm_range *r)
{
	__atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
}

static void range_free(struct util_rcu_head *head)
{
	struct dm_range *r = caa_container_of(head, struct dm_range, rcu);

	dm_cell_free(&r->core->cells, r->cell);
	g_free(r->owned);
	g_aligned_free(r);
}

void dm_range_unref(struct dm_range *r)
{
	while (r && __atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL) == 0) {
		struct dm_range *parent = r->parent;

		util_rcu_call(&r->rcu, range_free);
		r = parent;
	}
}

uint64_t dm_range_mask(const struct dm_core *c, const struct dm_range *r)
{
	return dm_extent_mask(c, r->offset, dm_range_end(r));
}

/* Pins */

void dm_range_wake_closer(struct dm_core *c, uint64_t offset, uint64_t end)
{
	uint64_t mask = dm_extent_mask(c, offset, end);

	/* a sleeper has looked under its stripe: pass through the lock, so that it sleeps by now */
	dm_stripes_lock(c, mask);
	dm_stripes_unlock(c, mask);
	dm_stripes_wake(c, mask);
	dm_budget_wake(c);
	if (c->seat)
		c->seat->unpinned(c, offset);
	dm_core_put_orphans(c);
}

uint32_t dm_range_pins(const struct dm_range *r)
{
	return dm_cell_guess(r->cell);
}

static bool chain_pinned(const struct dm_range *r)
{
	for (; r; r = r->parent)
		if (dm_cell_pins(r->cell))
			return true;
	return false;
}

bool dm_range_pinned_locked(struct dm_range *r)
{
	return chain_pinned(r) && !DM_MUTATE(1);
}

void dm_range_close_locked(struct dm_range *r)
{
	dm_cell_close(r->cell);
}

void dm_range_open_locked(struct dm_range *r)
{
	dm_cell_open(r->cell);
}

bool dm_range_wait_unpinned(struct dm_core *c, struct dm_range *r, uint64_t deadline_ns)
{
	struct dm_stripe *s = &c->stripes[(r->offset >> c->chunk_shift) % DM_STRIPES];
	uint64_t start = 0;
	bool in_time = true;

	util_mutex_lock(&s->lock);
	while (dm_range_pinned_locked(r) && in_time) {
		if (!start)
			start = util_now_ns();
		in_time = util_cond_wait_until(&s->cond, &s->lock, deadline_ns);
	}
	in_time = !dm_range_pinned_locked(r);
	util_mutex_unlock(&s->lock);
	if (start) {
		dm_count(c, DM_C_waits, 1);
		dm_count(c, DM_C_wait_ns, util_now_ns() - start);
	}
	return in_time;
}

/* What the owner has */

static bool bit_get(const unsigned long *map, uint64_t i)
{
	return __atomic_load_n(&map[i / BITS], __ATOMIC_RELAXED) >> (i % BITS) & 1;
}

static void bit_put(unsigned long *map, uint64_t i, bool on)
{
	if (on)
		__atomic_fetch_or(&map[i / BITS], 1ul << (i % BITS), __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(&map[i / BITS], ~(1ul << (i % BITS)), __ATOMIC_RELAXED);
}

static uint32_t granules(const struct dm_core *c, const struct dm_range *r)
{
	return (uint32_t)(r->len / c->caps.granule);
}

static unsigned long *owned_map(const struct dm_range *r)
{
	return __atomic_load_n(&r->owned, __ATOMIC_ACQUIRE);
}

/* [lo, hi) of the window as granules of the range, clipped. */
static void clip(const struct dm_core *c, const struct dm_range *r, uint64_t *lo, uint64_t *hi)
{
	*lo = (MAX(*lo, r->offset) - r->offset) / c->caps.granule;
	*hi = (MIN(*hi, dm_range_end(r)) - r->offset) / c->caps.granule;
}

bool dm_range_owned(const struct dm_core *c, const struct dm_range *r, uint64_t lo, uint64_t hi)
{
	const unsigned long *map = owned_map(r);

	if (dm_range_state(r) != DM_LIVE)
		return false;
	clip(c, r, &lo, &hi);
	if (!map)
		return lo < hi;
	for (; lo < hi; lo++)
		if (bit_get(map, lo))
			return true;
	return false;
}

uint64_t dm_range_owned_run_map(const struct dm_core *c, const struct dm_range *r, uint64_t lo)
{
	const unsigned long *map = owned_map(r);
	uint64_t g, n = granules(c, r);

	for (g = (lo - r->offset) / c->caps.granule; g < n && bit_get(map, g); g++)
		;
	g = r->offset + g * c->caps.granule;
	return g > lo ? g - lo : 0;
}

static unsigned long *need_map(const struct dm_core *c, struct dm_range *r, bool full)
{
	unsigned long *map = r->owned;

	if (map)
		return map;
	map = g_new0(unsigned long, (granules(c, r) + BITS - 1) / BITS);
	for (uint32_t i = 0; full && i < granules(c, r); i++)
		bit_put(map, i, true);
	r->n_owned = full ? granules(c, r) : 0;
	__atomic_store_n(&r->owned, map, __ATOMIC_RELEASE);
	return map;
}

static void owned_change(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi, bool on)
{
	unsigned long *map = need_map(c, r, !on);

	clip(c, r, &lo, &hi);
	for (; lo < hi; lo++) {
		if (bit_get(map, lo) == on)
			continue;
		bit_put(map, lo, on);
		r->n_owned += on ? 1u : -1u;
	}
}

void dm_range_give_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi)
{
	if (r->owned)
		owned_change(c, r, lo, hi, true);
}

bool dm_range_take_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi)
{
	if ((lo <= r->offset && hi >= dm_range_end(r)) || DM_MUTATE(4))
		return true;
	owned_change(c, r, lo, hi, false);
	return r->n_owned == 0;
}

/* The life */

void dm_range_linger_locked(struct dm_core *c, struct dm_range *r)
{
	dm_range_set_state(r, DM_LINGERING);
	r->withdrawn = false;
	rc_add(c->lingering, &r->rc, util_now_ns());
	dm_budget_wake(c); /* who waits for room may take it */
}

void dm_range_unlinger_locked(struct dm_core *c, struct dm_range *r)
{
	rc_del(c->lingering, &r->rc);
}

void dm_range_give_back_locked(struct dm_core *c, struct dm_range *r, bool linger)
{
	g_assert(r->state == DM_LIVE);
	dm_range_close_locked(r);
	if (r->owned)
		owned_change(c, r, r->offset, dm_range_end(r), false);
	dm_count(c, DM_C_removed_ranges, 1);
	__atomic_fetch_add(&r->file->counts.removed, 1, __ATOMIC_RELAXED);
	dm_count(c, DM_C_live, (uint64_t)-1);
	dm_count(c, DM_C_lingering, 1);
	dm_core_trace(c, DM_TRACE_REMOVE, r, 0);
	if (c->seat) {
		rc_del(c->lingering, &r->rc);
		if (!DM_MUTATE(21))
			dm_index_hide(c, r);
	}
	if (linger)
		dm_range_linger_locked(c, r);
	else
		dm_range_set_state(r, DM_UNMAPPING);
}

void dm_range_revive_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi)
{
	g_assert(r->state == DM_LINGERING);
	dm_range_unlinger_locked(c, r);
	/* what was wanted back once is kept longer the next time it lingers, by the clock */
	__atomic_store_n(&r->rc.referenced, true, __ATOMIC_RELAXED);
	dm_range_set_state(r, DM_LIVE);
	if (DM_MUTATE(14))
		hi = dm_range_end(r);
	if (r->owned || lo > r->offset || hi < dm_range_end(r))
		owned_change(c, r, lo, hi, true);
	dm_count(c, DM_C_live, 1);
	dm_count(c, DM_C_lingering, (uint64_t)-1);
	dm_count(c, r->withdrawn ? DM_C_elided_cancelled : DM_C_elided_revived, 1);
	dm_core_trace(c, r->withdrawn ? DM_TRACE_CANCEL : DM_TRACE_REVIVE, r, 0);
	DM_PROBE3(elide, r->offset, r->len, r->withdrawn ? DM_TRACE_CANCEL : DM_TRACE_REVIVE);
	r->withdrawn = false;
	dm_range_open_locked(r);
}

void dm_range_dropped_locked(struct dm_core *c, struct dm_range *r)
{
	g_assert(dm_range_closed(r));
	dm_count(c, r->state == DM_LIVE ? DM_C_live : DM_C_lingering, (uint64_t)-1);
	__atomic_sub_fetch(&c->budget.bytes, r->len, __ATOMIC_RELAXED);
	dm_range_set_state(r, DM_FREE);
}

/* Cutting */

unsigned int dm_range_pieces(const struct dm_range *r, uint64_t lo, uint64_t hi)
{
	return 1u + (lo > r->offset) + (hi < dm_range_end(r));
}

static struct dm_range *make_piece(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi)
{
	struct dm_range *p = dm_range_new(c, r->file, lo, hi - lo,
					  r->file_offset + (DM_MUTATE(10) ? 0 : lo - r->offset));

	dm_file_ref(c, r->file);
	p->flags = r->flags;
	p->asked_write = r->asked_write;
	p->withdrawn = r->withdrawn;
	p->blank = r->blank && !DM_MUTATE(31);
	p->state = r->state;
	p->parent = r;
	dm_range_ref(r);
	if (r->owned && !DM_MUTATE(16)) {
		uint64_t base = (lo - r->offset) / c->caps.granule;

		need_map(c, p, false);
		for (uint32_t i = 0; i < granules(c, p); i++) {
			if (bit_get(r->owned, base + i)) {
				bit_put(p->owned, i, true);
				p->n_owned++;
			}
		}
	}
	if (r->state == DM_LIVE)
		dm_cell_open(p->cell);
	return p;
}

/* A piece of a LIVE range of which the owner has nothing has been given back. */
static void settle_piece(struct dm_core *c, struct dm_range *p, bool was_live)
{
	if (was_live) {
		dm_count(c, DM_C_live, 1);
		if (p->owned && p->n_owned == 0)
			dm_range_give_back_locked(c, p, true);
	} else {
		dm_count(c, DM_C_removed_ranges, 1);
		dm_count(c, DM_C_lingering, 1);
	}
}

size_t dm_range_cut_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi,
			   struct dm_range *pieces[3])
{
	uint64_t at[4] = {r->offset, MAX(lo, r->offset), MIN(hi, dm_range_end(r)), dm_range_end(r)};
	bool was_live = r->state == DM_LIVE, pinned;
	struct rc_node *nodes[3];
	size_t n = 0;

	g_assert(was_live || r->state == DM_LINGERING);
	for (int i = 0; i < 3; i++) {
		if (at[i] == at[i + 1])
			continue;
		pieces[n] = make_piece(c, r, at[i], at[i + 1]);
		nodes[n] = &pieces[n]->rc;
		n++;
	}
	dm_index_update(c, &r, 1, pieces, n);
	if (was_live)
		util_yield();
	else
		rc_replace(c->lingering, &r->rc, nodes, n);
	dm_range_close_locked(r);
	/* r stood for one; each piece stands for one */
	if (was_live) {
		dm_count(c, DM_C_live, (uint64_t)-1);
	} else {
		dm_count(c, DM_C_removed_ranges, (uint64_t)-1);
		dm_count(c, DM_C_lingering, (uint64_t)-1);
	}
	dm_range_set_state(r, DM_FREE);
	/* final, as all are closed: a chain of parents ends with its last pin */
	pinned = chain_pinned(r);
	for (size_t i = 0; i < n; i++) {
		settle_piece(c, pieces[i], was_live);
		if (!pinned) {
			pieces[i]->parent = NULL;
			dm_range_unref(r);
		}
		dm_range_unref(pieces[i]); /* the index has its own */
	}
	dm_file_put(c, r->file); /* not the last: the pieces have theirs */
	dm_range_unref(r);
	return n;
}
