// SPDX-License-Identifier: Apache-2.0
/*
 * Misses. The first who misses some bytes maps them; who comes meanwhile sleeps, and then finds
 * the range, or gets the same error. The join is by (file, offset) and has nothing to do with the
 * claim, which is on the slot.
 *
 * A range is published open, with the getter's pin on it.
 */
#include "dm_cache.h"

#include <errno.h>

#include "util_yield.h"

static struct dm_join *join_of(struct dm_cache *c, struct dm_file_key file, uint64_t offset)
{
	uint64_t h = util_hash_u64(file.hi ^ util_hash_u64(file.lo ^ util_hash_u64(offset)));

	return &c->joins[(h >> 40) % DM_JOINS];
}

static struct dm_miss *find_miss(struct dm_join *j, struct dm_file_key file, uint64_t offset)
{
	struct dm_miss *m;

	cds_list_for_each_entry (m, &j->misses, link)
		if (m->offset == offset && dm_file_key_equal(m->file, file))
			return m;
	return NULL;
}

static void unref_locked(struct dm_miss *m)
{
	if (--m->refs == 0)
		g_free(m);
}

/* @m is held for us. */
static int wait_for_other(struct dm_cache *c, struct dm_join *j, struct dm_miss *m)
{
	uint64_t start = util_now_ns();
	int err;

	util_mutex_lock(&j->lock);
	while (!m->done)
		util_cond_wait(&j->cond, &j->lock);
	err = m->err;
	unref_locked(m);
	util_mutex_unlock(&j->lock);
	dm_count(&c->core, DM_C_waits, 1);
	dm_count(&c->core, DM_C_wait_ns, util_now_ns() - start);
	return err;
}

int dm_cache_miss(struct dm_cache *c, struct dm_file_key file, uint64_t offset, bool write,
		  struct dm_range **out)
{
	struct dm_join *j = join_of(c, file, offset);
	struct dm_miss *m;
	uint64_t failed;
	int err;

	util_mutex_lock(&j->lock);
	*out = dm_cache_lookup(c, file, offset, dm_thread_shard(), &failed);
	if (*out) {
		util_mutex_unlock(&j->lock);
		dm_count(&c->core, DM_C_hits, 1);
		return 0;
	}
	m = find_miss(j, file, offset);
	if (m) {
		m->refs++;
		util_mutex_unlock(&j->lock);
		dm_cache_failed(c, failed);
		err = wait_for_other(c, j, m);
		/* whether it may be written is for each to see */
		return err == -EACCES ? 0 : err;
	}
	m = g_new0(struct dm_miss, 1);
	m->file = file;
	m->offset = offset;
	m->refs = 1;
	cds_list_add_tail(&m->link, &j->misses);
	util_mutex_unlock(&j->lock);
	dm_cache_failed(c, failed);

	dm_count(&c->core, DM_C_misses, 1);
	err = dm_cache_map(c, file, offset, write, out);

	util_mutex_lock(&j->lock);
	cds_list_del(&m->link);
	m->done = true;
	m->err = err;
	util_cond_broadcast(&j->cond);
	unref_locked(m);
	util_mutex_unlock(&j->lock);
	return err;
}

struct mapping {
	struct dm_cache *c;
	struct dm_place *place;
	struct dm_range *made;
	struct dm_claim claim; /* where there is no victim: that one's is in the place */
	struct dm_chan_op ops[2];
	struct dm_chan_request req;
};

static struct dm_chan_op *map_op(struct mapping *m)
{
	return &m->ops[m->req.n - 1];
}

/* Where the driver does not overlay, the victim's unmap goes ahead of the map. */
static int ask_driver(struct mapping *m)
{
	const struct dm_range *r = m->made;
	bool unmap = m->place->victim && !dm_can(&m->c->core, DM_WINDOW_OVERLAY);

	if (unmap)
		m->ops[0] = m->place->evict.ops[0];
	m->req = (struct dm_chan_request){
		.ops = m->ops,
		.n = 1u + unmap,
		.has_map = true,
		.ordered = unmap,
	};
	map_op(m)->cancelled = false;
	map_op(m)->w = (struct dm_window_op){
		.kind = DM_OP_MAP,
		.flags = r->flags,
		.fd = r->file->fd,
		.key_hi = r->file->key.hi,
		.key_lo = r->file->key.lo,
		.fd_offset = r->file_offset,
		.offset = r->offset,
		.len = r->len,
	};
	util_yield();
	return dm_submit(&m->c->core, &m->req);
}

static bool unmapped(const struct mapping *m)
{
	return m->req.n == 2 && m->ops[0].w.result == 0;
}

static void publish_locked(struct mapping *m, struct dm_range *victim)
{
	struct dm_core *core = &m->c->core;
	struct dm_range *r = m->made;

	dm_range_set_state(r, DM_LIVE);
	dm_cell_open_pinned(r->cell); /* the getter's */
	rc_add(core->lingering, &r->rc, util_now_ns());
	dm_index_update(core, &victim, victim != NULL, &r, 1);
	dm_count(core, DM_C_live, 1);
	__atomic_add_fetch(&core->budget.bytes, r->len, __ATOMIC_RELAXED);
	dm_core_trace(core, DM_TRACE_MAP, r, m->req.ns);
}

/* Books what became of the victim; true when the driver does not have it any more. */
static bool settle_victim_locked(struct mapping *m, struct dm_range *victim, bool mapped)
{
	struct dm_core *core = &m->c->core;

	if (!mapped && !unmapped(m) && !DM_MUTATE(25)) {
		dm_range_linger_locked(core, victim);
		return false;
	}
	if (!mapped)
		dm_index_update(core, &victim, 1, NULL, 0);
	dm_range_dropped_locked(core, victim);
	dm_count(core, unmapped(m) ? DM_C_asked_unmaps : DM_C_elided_overlaid, 1);
	dm_core_trace(core, unmapped(m) ? DM_TRACE_UNMAP : DM_TRACE_OVERLAY, victim, m->req.ns);
	return true;
}

static void end_claim_locked(struct dm_core *core, struct dm_claim *cl)
{
	uint64_t mask = cl->mask;

	dm_claim_release(core, cl);
	dm_stripes_unlock(core, mask);
	dm_stripes_wake(core, mask);
}

static int map_over_victim(struct mapping *m)
{
	struct dm_core *core = &m->c->core;
	struct dm_evict *e = &m->place->evict;
	struct dm_range *victim = e->ranges[0];
	bool mapped, gone;

	ask_driver(m);
	mapped = map_op(m)->w.result == 0 || DM_MUTATE(24);
	dm_stripes_lock(core, e->claims[0].mask);
	if (mapped)
		publish_locked(m, victim);
	gone = settle_victim_locked(m, victim, mapped);
	if (gone && !mapped)
		dm_budget_release(core, 1);
	end_claim_locked(core, &e->claims[0]);
	e->n = 0;
	dm_budget_unmapped(core, 1);

	if (!mapped) {
		if (gone)
			dm_slots_push(&m->c->slots, (uint32_t)(m->place->offset / m->c->slot_size));
		dm_sleep_wake(m->c);
	}
	if (gone) {
		if (m->req.n == 2)
			dm_count(core, DM_C_reclaim_inline, 1);
		dm_file_put(core, victim->file);
		dm_range_unref(victim);
	}
	dm_range_unref(victim); /* the batch's */
	if (mapped)
		dm_choice_note(m->c, true, m->req.ns);
	return map_op(m)->w.result;
}

static int map_in_free(struct mapping *m)
{
	struct dm_core *core = &m->c->core;
	struct dm_range *r = m->made;
	int err;

	dm_claim_acquire(core, &m->claim, r->offset, dm_range_end(r));
	dm_stripes_unlock(core, m->claim.mask);
	err = dm_cache_dead(m->c) ? -EPIPE : 0;
	if (!err && !dm_budget_reserve(core, 1, core->budget.limit))
		err = -ENOMEM;
	if (!err) {
		ask_driver(m);
		err = map_op(m)->w.result;
		if (err)
			dm_budget_release(core, 1);
	}
	dm_stripes_lock(core, m->claim.mask);
	if (!err)
		publish_locked(m, NULL);
	end_claim_locked(core, &m->claim);
	if (err) {
		if (!DM_MUTATE(22))
			dm_slots_push(&m->c->slots, (uint32_t)(m->place->offset / m->c->slot_size));
		dm_sleep_wake(m->c);
	} else {
		dm_choice_note(m->c, false, m->req.ns);
	}
	return err;
}

static int map_at(struct dm_cache *c, struct dm_file *f, uint64_t offset, struct dm_place *place,
		  struct dm_range **out)
{
	struct mapping m = {.c = c, .place = place};
	int err;

	m.made = dm_range_new(&c->core, f, place->offset, c->slot_size, offset);
	dm_file_ref(&c->core, f);
	err = place->victim ? map_over_victim(&m) : map_in_free(&m);
	if (err) {
		dm_count(&c->core, DM_C_refused_driver, 1);
		dm_file_put(&c->core, f);
	} else {
		*out = m.made;
	}
	dm_range_unref(m.made); /* the index has its own */
	return err;
}

int dm_cache_map(struct dm_cache *c, struct dm_file_key file, uint64_t offset, bool write,
		 struct dm_range **out)
{
	struct dm_place place;
	struct dm_file *f;
	int err;

	err = dm_file_get(&c->core, file, &f);
	if (err)
		return err;
	err = write && !f->writable ? -EACCES : dm_place_get(c, &place);
	if (!err) {
		err = map_at(c, f, offset, &place, out);
		dm_place_put(&place);
	}
	dm_file_put(&c->core, f);
	return err;
}
