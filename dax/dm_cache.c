// SPDX-License-Identifier: Apache-2.0
/*
 * The guest seat: whoever uses the window asks for bytes of a file, and the table picks the slot.
 *
 *	dm_cache.c		the calls, and the hit
 *	dm_cache_miss.c		joining of misses, mapping
 *	dm_cache_slot.c		free slots
 *	dm_cache_reclaim.c	victims, the worker, overlay or early unmap
 *	dm_cache_vanilla.c	the published baseline, for comparison
 *
 * The window is cut into slots; a range is one slot and a slot's worth of a file, aligned. The
 * ranges, their states and their indexes are those of the core, read a little differently:
 *
 *	LIVE	   mapped and in the file index: gets find it. Without pins it is idle, and may be
 *		   evicted at any moment. In the reclaim set.
 *	UNMAPPING  a victim: not in the file index any more, its slot claimed by who evicts it
 *	LINGERING  a victim that the driver refused to unmap: nobody finds it, the slot is not free.
 *		   In the reclaim set
 *
 * A hit is an RCU lookup by (file, offset), a count of the thread's own (dm_pin.c), and the touch
 * bit, written only if clear: it writes to no cache line that another thread's hit writes to.
 * Eviction closes the range and looks for pins: of a get and an eviction at least one loses. A
 * getter that loses goes on as a miss, and finds the index without that range, or waits for who
 * maps the bytes anew. An evictor that loses opens the range again. So the same bytes may be mapped
 * twice for a while, in the slot that is on its way out, or nearly was, and in a new one: both show
 * the page cache, and the one that no get finds goes cold.
 *
 * A slot belongs, at any time, to the free list, to a range, to a miss that is mapping into it, or
 * to an orphan. An orphan is a range that was pinned when its session died: out of all indexes,
 * with the slot kept out of use until the last put.
 *
 * Who needs a slot takes a free one, else a victim: with a map over it where the driver overlays,
 * else with an unmap ahead of the map in the same batch; and sleeps, up to wait_ms, when all are
 * pinned. Where unmapping ahead pays, the worker keeps a stock of free slots.
 */
#include "dm_cache.h"

#include <errno.h>

#include "util_yield.h"

#define SLOT_DEFAULT (UINT64_C(2) << 20)
#define STOCK_LOW 4

struct dm_core *dm_cache_core(struct dm_cache *c)
{
	return &c->core;
}

/* Rounded up. */
static uint32_t percent(uint64_t part, uint64_t of)
{
	return (uint32_t)((part * 100 + of - 1) / of);
}

/* A free slot serves the next miss and no hit, so a few are kept, whatever the window's size. */
static struct dm_cache_config fill_in(const struct dm_cache_config *config, uint64_t size)
{
	struct dm_cache_config d = config ? *config : (struct dm_cache_config){0};
	uint64_t slots, low;

	if (!d.slot_size)
		d.slot_size = SLOT_DEFAULT;
	slots = MAX(size / d.slot_size, 1);
	low = CLAMP(slots / 10, 1, STOCK_LOW);
	if (!d.free_low)
		d.free_low = percent(low, slots);
	if (!d.free_high)
		d.free_high = MAX(d.free_low, percent(low + MAX(low, 2), slots));
	d.free_high = MIN(d.free_high, 100);
	d.free_low = MIN(d.free_low, d.free_high);
	if (!d.wait_ms)
		d.wait_ms = 1000;
	if (d.vanilla) {
		d.fifo = true;
		d.no_worker = true;
		d.remove_early = 1;
	}
	return d;
}

struct dm_cache *dm_cache_new(struct dm_window *window, const struct dm_file_provider *provider,
			      const struct dm_cache_config *config)
{
	struct dm_cache_config d = fill_in(config, window->caps.size);
	struct dm_table_config t = {
		.policy = d.fifo ? DM_POLICY_FIFO : DM_POLICY_CLOCK,
		.no_worker = true,
	};
	uint64_t slots = window->caps.size / d.slot_size;
	struct dm_cache *c;

	if ((d.slot_size & (d.slot_size - 1)) || d.slot_size % window->caps.granule || slots == 0)
		return NULL;
	c = g_aligned_alloc0(1, sizeof(*c), 64);
	c->config = d;
	c->slot_size = d.slot_size;
	util_mutex_init(&c->sleep.lock);
	util_cond_init(&c->sleep.cond);
	for (unsigned int i = 0; i < DM_JOINS; i++) {
		util_mutex_init(&c->joins[i].lock);
		util_cond_init(&c->joins[i].cond);
		CDS_INIT_LIST_HEAD(&c->joins[i].misses);
	}
	dm_core_init(&c->core, window, provider, &t, &dm_cache_seat, d.slot_size);
	slots = MIN(slots, c->core.budget.limit);
	c->orphans = g_new0(struct dm_range *, slots);
	dm_slots_init(&c->slots, (uint32_t)slots);
	if (d.vanilla)
		dm_vanilla_init(c);
	dm_reclaim_init(c);
	return c;
}

void dm_cache_free(struct dm_cache *c)
{
	if (!c)
		return;
	dm_drain_destroy(&c->core);
	if (dm_cache_dead(c) || dm_unmap_extent(&c->core, 0, c->core.caps.size, true) == -EPIPE)
		dm_cache_forget(c);
	for (uint32_t i = 0; i < c->slots.n; i++)
		g_assert(!c->orphans[i]);
	dm_core_destroy(&c->core);
	dm_slots_destroy(&c->slots);
	dm_vanilla_destroy(c);
	for (unsigned int i = 0; i < DM_JOINS; i++) {
		g_assert(cds_list_empty(&c->joins[i].misses));
		util_cond_destroy(&c->joins[i].cond);
		util_mutex_destroy(&c->joins[i].lock);
	}
	util_cond_destroy(&c->sleep.cond);
	util_mutex_destroy(&c->sleep.lock);
	g_free(c->orphans);
	g_aligned_free(c);
}

static inline void let_go(struct dm_cache *c, struct dm_range *r)
{
	uint64_t offset = r->offset, end = offset + r->len;

	if (G_UNLIKELY(c->vanilla)) {
		struct dm_file_key file = r->key;

		dm_range_unpin(&c->core, r);
		dm_vanilla_put(c, file);
	} else if (G_UNLIKELY(dm_cell_unpin(r->cell, dm_thread_shard()))) {
		dm_range_wake_closer(&c->core, offset, end);
	}
	/* a sleeper counts itself, and passes dm_pin_barrier(), before it looks for pins */
	if (G_UNLIKELY(__atomic_load_n(&c->sleep.waiters, __ATOMIC_RELAXED)))
		dm_sleep_wake(c);
}

static inline int answer(struct dm_cache *c, struct dm_range *r, uint64_t offset, uint64_t len,
			 bool write, struct dm_ref *ref)
{
	uint64_t in = offset - r->file_offset;

	if (G_UNLIKELY(write && !(r->flags & DM_MAP_WRITE))) {
		let_go(c, r);
		return -EACCES;
	}
	ref->addr = c->core.base ? (char *)c->core.base + r->offset + in : NULL;
	ref->len = MIN(len, r->len - in);
	ref->range = r;
	return 0;
}

/* Not a hit at the first look. */
static G_GNUC_NO_INLINE int find(struct dm_cache *c, struct dm_file_key file, uint64_t offset,
				 bool write, struct dm_range **out)
{
	if (c->vanilla)
		return dm_vanilla_get(c, file, offset, write, true, out);
	for (;;) {
		int err;

		util_yield();
		err = dm_cache_miss(c, file, offset, write, out);
		if (err || *out)
			return err;
		*out = dm_cache_hit(c, file, offset, dm_thread_shard());
		if (*out) {
			dm_count(&c->core, DM_C_hits, 1);
			return 0;
		}
	}
}

/* All but a hit at the first look. */
static G_GNUC_NO_INLINE int get_slow(struct dm_cache *c, struct dm_file_key file, uint64_t offset,
				     uint64_t len, bool write, bool may_map, struct dm_ref *ref)
{
	uint64_t first = offset & ~(c->slot_size - 1);
	struct dm_range *r = NULL;
	int err;

	if (len == 0 || first > INT64_MAX - c->slot_size)
		return -EINVAL;
	if (dm_cache_dead(c))
		return -EPIPE;
	if (may_map)
		err = find(c, file, first, write, &r);
	else
		err = c->vanilla ? dm_vanilla_get(c, file, first, write, false, &r) : -EAGAIN;
	return err ? err : answer(c, r, offset, len, write, ref);
}

static inline int get(struct dm_cache *c, struct dm_file_key file, uint64_t offset, uint64_t len,
		      bool write, bool may_map, struct dm_ref *ref)
{
	unsigned int shard = dm_thread_shard();
	struct dm_range *r;

	if (G_UNLIKELY(len == 0 || c->vanilla || dm_cache_dead(c)))
		return get_slow(c, file, offset, len, write, may_map, ref);
	r = dm_cache_hit(c, file, offset & ~(c->slot_size - 1), shard);
	if (G_UNLIKELY(!r))
		return get_slow(c, file, offset, len, write, may_map, ref);
	dm_count_by(&c->core, shard, DM_C_hits, 1);
	return answer(c, r, offset, len, write, ref);
}

int dm_cache_get(struct dm_cache *c, struct dm_file_key file, uint64_t offset, uint64_t len,
		 bool write, struct dm_ref *ref)
{
	return get(c, file, offset, len, write, true, ref);
}

int dm_cache_try_get(struct dm_cache *c, struct dm_file_key file, uint64_t offset, uint64_t len,
		     bool write, struct dm_ref *ref)
{
	return get(c, file, offset, len, write, false, ref);
}

void dm_cache_put(struct dm_cache *c, struct dm_ref *ref)
{
	let_go(c, ref->range);
	ref->range = NULL;
}

/* Waits until nobody else is at work on @r. */
static void wait_for(struct dm_core *core, const struct dm_range *r)
{
	struct dm_claim cl;

	dm_claim_acquire(core, &cl, r->offset, dm_range_end(r));
	dm_claim_release(core, &cl);
	dm_stripes_unlock(core, cl.mask);
	dm_stripes_wake(core, cl.mask);
}

/* Claims @r for @e. Nobody waits for a claim with claims in hand, so those of @e go first. */
static int flush_one(struct dm_core *core, struct dm_evict *e, struct dm_range *r)
{
	int err = 0, rc;

	while ((rc = dm_evict_try(core, e, r)) == -EAGAIN) {
		bool full = e->n == e->max;
		int e_rc = dm_evict_run(core, e, DM_C_asked_unmaps);

		err = dm_first_err(err, e_rc);
		if (!full)
			wait_for(core, r);
	}
	return err ? err : rc == -EBUSY ? rc : 0;
}

int dm_cache_flush_file(struct dm_cache *c, struct dm_file_key file)
{
	struct dm_core *core = &c->core;
	struct dm_evict e;
	struct dm_vec v;
	bool busy = false;
	int err = 0, rc;

	if (dm_cache_dead(c))
		return -EPIPE;
	dm_vec_init(&v);
	dm_evict_init(&e, core->caps.batch, false);
	dm_file_collect(core, file, &v);
	for (size_t i = 0; i < v.n; i++) {
		rc = flush_one(core, &e, v.v[i]);
		busy |= rc == -EBUSY;
		if (rc != -EBUSY)
			err = dm_first_err(err, rc);
	}
	err = dm_first_err(err, dm_evict_run(core, &e, DM_C_asked_unmaps));
	dm_evict_destroy(&e);
	dm_sleep_wake(c);
	for (size_t i = 0; i < v.n; i++)
		dm_range_unref(v.v[i]);
	dm_vec_clear(&v);
	return err ? err : busy ? -EBUSY : 0;
}

/* Takes all ranges out of the table. Returns those without pins; the others are orphans now. */
static void disown_locked(struct dm_cache *c, struct dm_vec *all, struct dm_vec *gone)
{
	struct dm_core *core = &c->core;

	for (size_t i = 0; i < all->n; i++)
		dm_unmap_begin_locked(core, all->v[i]);
	dm_index_update(core, all->v, all->n, NULL, 0);
	for (size_t i = 0; i < all->n; i++) {
		struct dm_range *r = all->v[i];

		dm_range_dropped_locked(core, r);
		dm_count(core, DM_C_dropped, 1);
		if (dm_range_pinned_locked(r) && !DM_MUTATE(23))
			c->orphans[r->offset / c->slot_size] = r;
		else
			dm_vec_add(gone, r);
	}
	/* here, as a put of an orphan frees its slot as soon as the stripes are unlocked */
	if (!DM_MUTATE(26))
		dm_budget_release(core, (uint32_t)all->n);
	dm_budget_unmapped(core, (uint32_t)all->n);
}

void dm_cache_forget(struct dm_cache *c)
{
	struct dm_core *core = &c->core;
	struct dm_vec all, gone;
	struct dm_claim cl;

	__atomic_store_n(&c->ended, true, __ATOMIC_SEQ_CST);
	dm_sleep_wake(c);
	dm_vec_init(&all);
	dm_vec_init(&gone);
	dm_claim_acquire(core, &cl, 0, core->caps.size);
	dm_index_collect(core, 0, core->caps.size, &all);
	disown_locked(c, &all, &gone);
	dm_claim_release(core, &cl);
	dm_stripes_unlock(core, cl.mask);
	dm_stripes_wake(core, cl.mask);

	for (size_t i = 0; i < gone.n; i++) {
		dm_slots_push(&c->slots, (uint32_t)(gone.v[i]->offset / c->slot_size));
		dm_file_put(core, gone.v[i]->file);
		dm_range_unref(gone.v[i]);
	}
	dm_vec_clear(&gone);
	dm_vec_clear(&all);
}

void dm_cache_renew(struct dm_cache *c)
{
	dm_cache_forget(c);
	__atomic_store_n(&c->core.broken, false, __ATOMIC_SEQ_CST);
	__atomic_store_n(&c->ended, false, __ATOMIC_SEQ_CST);
}

void dm_cache_stats(struct dm_cache *c, struct dm_stats *out)
{
	dm_core_stats(&c->core, out);
}

void dm_cache_set_trace(struct dm_cache *c, const struct dm_trace *trace)
{
	util_rcu_publish(c->core.trace, trace);
	util_rcu_synchronize();
}
