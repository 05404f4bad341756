// SPDX-License-Identifier: Apache-2.0
/*
 * The core of the table, shared by both seats.
 *
 * A table stands between the user of a window, who says which bytes of which file are to appear
 * where and when it lets go of them, and a driver, to whom each change costs a round trip. It
 * keeps a range for every mapping that the driver holds, and lets the driver hold on to what was
 * given back for as long as that may save a call.
 *
 *	dm_range.c   a range: life, what its owner has of it, cutting
 *	dm_pin.c     pins, counted by each thread for itself
 *	dm_index.c   by window offset and by (file, offset); RCU lookups
 *	dm_claim.c   stripes, and claims on extents while the driver works
 *	dm_file.c    keys to open files
 *	dm_budget.c  how many mappings there may be
 *	dm_plan.c    what a setup needs of the driver
 *	dm_unmap.c   victims, flushes
 *	dm_fit.c     files that became shorter or longer under their mappings
 *	dm_submit.c  the channel: combining askers into batches
 *	dm_drain.c   the glue to reclaim
 *	dm_host.c    the host seat
 *	dm_cache*.c  the guest seat
 *
 * Invariants (dm_core_check() asserts what can be seen from inside):
 *  1. The driver has exactly the ranges in the index: LIVE, LINGERING, UNMAPPING. They do not
 *     overlap. A MAPPING range joins when the driver has done it.
 *  2. A range with pins, or cut from one that has pins, is not unmapped or mapped over.
 *  3. Mappings reserved or held never exceed the budget.
 *  4. A file is open while it has a range or a setup under way, once.
 *  5. When the channel breaks nothing is known any more: every call answers EPIPE until
 *     dm_host_forget().
 *
 * The order of an operation: open the file (no lock); claim the extent (stripes, then sleep);
 * reserve room (perhaps evict others, trying only); submit (no lock); commit under the stripes;
 * release, wake; put files (no lock).
 */
#include "dm_core.h"

#include <string.h>

#define PIN_WAIT_NS UINT64_C(2000000000)
#define CHUNK_MAX (UINT64_C(2) << 20)

/* A chunk: a Linux guest's slot where the window has room for 32 of them. */
static void size_chunks(struct dm_core *c, uint64_t chunk)
{
	c->chunk_size = chunk ? chunk : CHUNK_MAX;
	while (!chunk && c->chunk_size > c->caps.size / DM_STRIPES)
		c->chunk_size /= 2;
	c->chunk_size = MAX(c->chunk_size, c->caps.granule);
	c->chunk_shift = (unsigned int)__builtin_ctzll(c->chunk_size);
	c->n_chunks = (c->caps.size + c->chunk_size - 1) >> c->chunk_shift;
	c->chunks = g_new0(uintptr_t, c->n_chunks);
}

void dm_core_init(struct dm_core *c, struct dm_window *window,
		  const struct dm_file_provider *provider, const struct dm_table_config *config,
		  const struct dm_seat_ops *seat, uint64_t chunk)
{
	static const struct dm_table_config defaults;

	if (!config)
		config = &defaults;
	memset(c, 0, sizeof(*c));
	c->window = window;
	c->seat = seat;
	c->caps = window->caps;
	c->provider = *provider;
	c->forward = config->manager == DM_MANAGER_FORWARD;
	c->base = dm_window_base(window);
	c->pin_wait_ns = PIN_WAIT_NS;
	g_assert(c->caps.granule && (c->caps.granule & (c->caps.granule - 1)) == 0);
	g_assert(c->caps.size >= c->caps.granule && c->caps.size % c->caps.granule == 0);
	g_assert(c->caps.batch >= 1);
	size_chunks(c, chunk);
	dm_index_init(c);
	dm_cells_init(&c->cells);
	util_mutex_init(&c->orphans_lock);
	dm_vec_init(&c->orphans);
	for (unsigned int i = 0; i < DM_STRIPES; i++) {
		util_mutex_init(&c->stripes[i].lock);
		util_cond_init(&c->stripes[i].cond);
	}
	dm_files_init(c);
	dm_chan_init(&c->chan);
	dm_budget_init(c, config->max_mappings);
	dm_drain_init(c, config);
}

void dm_core_destroy(struct dm_core *c)
{
	dm_drain_destroy(c);
	dm_core_drop_all(c);
	g_assert(c->budget.mapped == 0 && c->budget.unmapping == 0);
	if (c->n_orphans)
		g_error("a pin outlives its table");
	dm_vec_clear(&c->orphans);
	util_mutex_destroy(&c->orphans_lock);
	rc_set_free(c->lingering);
	dm_chan_destroy(&c->chan);
	dm_files_destroy(c);
	for (unsigned int i = 0; i < DM_STRIPES; i++) {
		g_assert(c->stripes[i].n_claims == 0);
		g_free(c->stripes[i].claims);
		util_cond_destroy(&c->stripes[i].cond);
		util_mutex_destroy(&c->stripes[i].lock);
	}
	util_mutex_destroy(&c->budget.lock);
	util_cond_destroy(&c->budget.cond);
	util_rcu_barrier();
	dm_cells_destroy(&c->cells);
	dm_index_destroy(c);
}

static void put_range(struct dm_core *c, struct dm_range *r)
{
	dm_file_put(c, r->file);
	dm_range_unref(r);
}

void dm_core_put_orphans(struct dm_core *c)
{
	struct dm_vec free;
	size_t kept = 0;

	if (__atomic_load_n(&c->n_orphans, __ATOMIC_SEQ_CST) == 0)
		return;
	dm_vec_init(&free);
	util_mutex_lock(&c->orphans_lock);
	for (size_t i = 0; i < c->orphans.n; i++) {
		struct dm_range *r = c->orphans.v[i];

		if (dm_range_pinned_locked(r)) /* closed for good, so no stripe is needed */
			c->orphans.v[kept++] = r;
		else
			dm_vec_add(&free, r);
	}
	c->orphans.n = kept;
	__atomic_store_n(&c->n_orphans, kept, __ATOMIC_SEQ_CST);
	util_mutex_unlock(&c->orphans_lock);
	for (size_t i = 0; i < free.n; i++)
		put_range(c, free.v[i]);
	dm_vec_clear(&free);
}

static void add_orphan(struct dm_core *c, struct dm_range *r)
{
	util_mutex_lock(&c->orphans_lock);
	dm_vec_add(&c->orphans, r);
	__atomic_store_n(&c->n_orphans, c->orphans.n, __ATOMIC_SEQ_CST);
	util_mutex_unlock(&c->orphans_lock);
}

/* Takes @all out of the table. The claim's stripes are locked, and they are not on return. */
static void drop_claimed(struct dm_core *c, struct dm_claim *cl, struct dm_vec *all)
{
	dm_index_update(c, all->v, all->n, NULL, 0);
	for (size_t i = 0; i < all->n; i++)
		dm_range_dropped_locked(c, all->v[i]);
	dm_count(c, DM_C_dropped, all->n);
	dm_budget_release(c, (uint32_t)all->n);
	if (!DM_MUTATE(17))
		__atomic_store_n(&c->broken, false, __ATOMIC_SEQ_CST);
	dm_claim_release(c, cl);
	dm_stripes_unlock(c, cl->mask);
	dm_stripes_wake(c, cl->mask);
}

void dm_core_drop_all(struct dm_core *c)
{
	uint64_t deadline;
	struct dm_claim cl;
	struct dm_vec all;

	dm_vec_init(&all);
	dm_claim_acquire(c, &cl, 0, c->caps.size);
	deadline = util_now_ns() + c->pin_wait_ns;
	dm_index_collect(c, 0, c->caps.size, &all);
	for (size_t i = 0; i < all.n; i++)
		dm_unmap_begin_locked(c, all.v[i]);
	dm_stripes_unlock(c, cl.mask);
	for (size_t i = 0; i < all.n; i++)
		dm_range_wait_unpinned(c, all.v[i], deadline);
	dm_stripes_lock(c, cl.mask);
	drop_claimed(c, &cl, &all);

	dm_budget_unmapped(c, (uint32_t)all.n);
	for (size_t i = 0; i < all.n; i++) {
		if (dm_range_pinned_locked(all.v[i])) /* closed for good, so no stripe is needed */
			add_orphan(c, all.v[i]);
		else
			put_range(c, all.v[i]);
	}
	dm_vec_clear(&all);
	dm_core_put_orphans(c); /* whose pins went before they were orphans */
}

void dm_core_trace_event(struct dm_core *c, struct dm_trace_event *e)
{
	const struct dm_trace *t;

	e->mapped = __atomic_load_n(&c->budget.mapped, __ATOMIC_RELAXED);
	util_rcu_read_lock();
	t = util_rcu_deref(c->trace);
	if (t)
		t->fn(t->ctx, e);
	util_rcu_read_unlock();
}

void dm_core_trace_slow(struct dm_core *c, enum dm_trace_kind kind, const struct dm_range *r,
			uint64_t ns)
{
	struct dm_trace_event e = {
		.kind = kind,
		.offset = r->offset,
		.len = r->len,
		.file = r->file->key,
		.file_offset = r->file_offset,
		.ns = ns,
	};
	dm_core_trace_event(c, &e);
}

/* Checks */

static void check_range(struct dm_core *c, struct dm_range *r, uint64_t *live, uint64_t *lingering)
{
	bool claimed = dm_claimed(c, r->offset, dm_range_end(r));

	for (uint64_t at = r->offset; at < dm_range_end(r); at += c->chunk_size)
		g_assert(dm_index_lookup(c, at) == r);
	g_assert(dm_index_lookup(c, dm_range_end(r) - 1) == r);
	g_assert(r->len && r->len % c->caps.granule == 0 && r->offset % c->caps.granule == 0);
	switch ((enum dm_state)r->state) {
	case DM_LIVE:
		g_assert(!(dm_range_closed(r)) || claimed);
		g_assert(!r->owned || r->n_owned > 0);
		g_assert(!c->seat || rc_queued(c->lingering, &r->rc));
		(*live)++;
		break;
	case DM_LINGERING:
		g_assert(dm_range_closed(r));
		g_assert(rc_queued(c->lingering, &r->rc));
		g_assert(!r->owned || r->n_owned == 0);
		(*lingering)++;
		break;
	case DM_UNMAPPING:
		g_assert(dm_range_closed(r));
		g_assert(claimed);
		(*lingering)++;
		break;
	default:
		g_assert_not_reached();
	}
}

void dm_core_check(struct dm_core *c)
{
	uint64_t all = (UINT64_C(1) << DM_STRIPES) - 1;
	uint64_t pos = 0, n = 0, live = 0, lingering = 0;
	struct dm_range *r;
	struct dm_stats s;

	dm_stripes_lock(c, all);
	while (pos < c->caps.size && (r = dm_index_next(c, pos, c->caps.size))) {
		g_assert(r->offset >= pos);
		check_range(c, r, &live, &lingering);
		pos = dm_range_end(r);
		n++;
	}
	dm_core_stats(c, &s);
	g_assert_cmpuint(s.live, ==, live);
	g_assert_cmpuint(s.lingering, ==, lingering);
	g_assert_cmpuint(s.mapped, >=, n);
	g_assert_cmpuint(s.mapped, <=, c->budget.hard);
	dm_stripes_unlock(c, all);
}
