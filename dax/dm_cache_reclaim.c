// SPDX-License-Identifier: Apache-2.0
/*
 * Where a miss gets its slot from, and who makes slots free.
 *
 * A driver that overlays leaves a choice: map over a victim (one call, on the getter's way), or
 * unmap victims ahead, in batches, by the worker, so that the getter maps where nothing is. Which
 * is cheaper depends on the other side: a strict VMM behind a FUSE back-end pays for the overlay
 * with an unmap of its own while the getter waits; mmap pays next to nothing. So both are measured
 * as they happen, as moving averages of what the driver took:
 *
 *	map over a victim   against   map where nothing is + an unmap of a batch
 *
 * The worker's unmap keeps no getter waiting, but takes CPU time and the driver's, and what the
 * other side does after its answer is not seen at all; so it must be a quarter better. The other
 * way is tried once in PROBE misses (more often while there is no sample): in the early way a miss
 * maps over a victim though there are free slots; in the other one it unmaps a few victims.
 *
 * Watermarks are percentages of free slots; the worker is kicked by a miss that leaves fewer than
 * free_low, and fills up to free_high. Ranges with pins are passed over.
 */
#include "dm_cache.h"

#include <errno.h>

#include "dm_probe.h"
#include "util_yield.h"

#define PROBE 64u
#define PROBE_UNKNOWN 8u
#define PROBE_BATCH 4u
#define NEVER_NS UINT64_C(1000000000000000000)

/* The choice */

static void average(uint64_t *avg, uint64_t ns)
{
	uint64_t old = __atomic_load_n(avg, __ATOMIC_RELAXED);

	if (old)
		ns = MIN(ns, old * 8); /* the asker lost its CPU */
	__atomic_store_n(avg, old ? old - old / 8 + ns / 8 : MAX(ns, 8), __ATOMIC_RELAXED);
}

static bool is_measured(const struct dm_cache *c)
{
	return dm_can(&c->core, DM_WINDOW_OVERLAY) && c->config.remove_early == 0;
}

static void choose(struct dm_cache *c)
{
	struct dm_choice *ch = &c->choice;
	uint64_t over = __atomic_load_n(&ch->over_ns, __ATOMIC_RELAXED);
	uint64_t where_free = __atomic_load_n(&ch->free_ns, __ATOMIC_RELAXED);
	uint64_t unmap = __atomic_load_n(&ch->unmap_ns, __ATOMIC_RELAXED);
	bool early = __atomic_load_n(&ch->early, __ATOMIC_RELAXED);
	uint64_t ahead = where_free + unmap;

	if (!is_measured(c) || !over || !where_free || !unmap)
		return;
	if (early ? over - over / 8 < ahead : ahead < over - over / 4)
		__atomic_store_n(&ch->early, !early, __ATOMIC_RELAXED);
}

void dm_choice_note(struct dm_cache *c, bool over, uint64_t ns)
{
	average(over ? &c->choice.over_ns : &c->choice.free_ns, ns);
	choose(c);
}

static bool early(const struct dm_cache *c)
{
	return __atomic_load_n(&c->choice.early, __ATOMIC_RELAXED);
}

/* Is it time to try the other way? */
static bool probe_now(struct dm_cache *c)
{
	struct dm_choice *ch = &c->choice;
	const uint64_t *sample = early(c) ? &ch->over_ns : &ch->unmap_ns;
	uint32_t n;

	if (!is_measured(c))
		return false;
	n = __atomic_add_fetch(&ch->misses, 1, __ATOMIC_RELAXED);
	return n % (__atomic_load_n(sample, __ATOMIC_RELAXED) ? PROBE : PROBE_UNKNOWN) == 0;
}

/* Unmapping */

static int run_unmaps(struct dm_cache *c, struct dm_evict *e, enum dm_counter by)
{
	size_t n = e->n;
	int err = dm_evict_run(&c->core, e, by);

	if (!err && n)
		average(&c->choice.unmap_ns, e->req.ns / n);
	return err;
}

/* Unmaps up to @want victims; returns how many slots that should have freed. */
static size_t unmap_some(struct dm_cache *c, size_t want, enum dm_counter by, bool *ok)
{
	struct dm_core *core = &c->core;
	size_t busy = 0, done = 0;
	struct dm_evict e;

	dm_evict_init(&e, MIN(core->caps.batch, MAX(1, want)), false);
	while (done < want && *ok) {
		size_t n = dm_evict_oldest(core, &e, want - done, UINT64_MAX, &busy);

		if (n == 0)
			break;
		DM_PROBE2(reclaim, n, rc_count(core->lingering));
		*ok = run_unmaps(c, &e, by) == 0;
		if (c->vanilla)
			dm_vanilla_ungate(c);
		done += n;
	}
	if (c->vanilla) /* it passed the gate, and was not taken */
		dm_vanilla_ungate(c);
	dm_evict_destroy(&e);
	dm_count(core, DM_C_reclaim_skipped, busy);
	if (!*ok) /* what was refused is a victim again */
		dm_sleep_wake(c);
	return done;
}

/* The worker */

static uint32_t used(const struct dm_cache *c)
{
	return c->slots.n - MIN(c->slots.n, __atomic_load_n(&c->slots.free, __ATOMIC_RELAXED));
}

static void load(void *ctx, struct rc_load *l)
{
	struct dm_cache *c = dm_cache_of(ctx);

	*l = (struct rc_load){.mapped = used(c), .budget = c->slots.n, .window = 1};
	if (early(c) && !dm_cache_dead(c))
		l->idle = rc_count(c->core.lingering);
}

static enum rc_drained drain(void *ctx, size_t want, uint64_t before_ns)
{
	struct dm_cache *c = dm_cache_of(ctx);
	uint64_t keep = (uint64_t)c->slots.n * c->core.marks.low / 100;
	bool ok = true;

	/* memory pressure asks for all; but what is mapped is in use, not given back */
	want = MIN(want, used(c) > keep ? used(c) - keep : 0);
	if (want == 0 || unmap_some(c, want, DM_C_deferred_unmaps, &ok) > 0)
		return ok ? RC_DRAINED : RC_REFUSED;
	return RC_IN_USE;
}

static bool oldest(void *ctx, uint64_t *stamp)
{
	return false;
}

static const struct rc_worker_ops worker_ops = {.load = load, .drain = drain, .oldest = oldest};

static void kick(struct dm_cache *c)
{
	struct rc_load l;

	if (!c->core.worker || !early(c))
		return;
	load(&c->core, &l);
	if (rc_above_high(&l, &c->core.marks))
		rc_worker_kick(c->core.worker, true);
}

void dm_reclaim_init(struct dm_cache *c)
{
	struct dm_core *core = &c->core;

	c->choice.early = !dm_can(core, DM_WINDOW_OVERLAY) || c->config.remove_early > 0;
	core->marks = (struct rc_marks){
		.high = 100 - c->config.free_low,
		.low = 100 - c->config.free_high,
		.linger_ns = NEVER_NS,
	};
	if (!c->config.no_worker && (early(c) || is_measured(c)))
		core->worker = rc_worker_new(&core->marks, &worker_ops, core);
}

/* Places */

static uint64_t slot_offset(const struct dm_cache *c, uint32_t slot)
{
	return slot * c->slot_size;
}

static bool place_free(struct dm_cache *c, struct dm_place *p)
{
	uint32_t slot;

	if (!dm_slots_pop(&c->slots, &slot))
		return false;
	p->offset = slot_offset(c, slot);
	p->victim = false;
	return true;
}

/* In the baseline a slot is always free before it is mapped. */
static bool place_victim(struct dm_cache *c, struct dm_place *p)
{
	size_t busy = 0;
	bool ok = true;

	if (c->vanilla)
		return unmap_some(c, 1, DM_C_asked_unmaps, &ok) && place_free(c, p);
	if (!p->evict.max)
		dm_evict_init(&p->evict, 1, false);
	p->victim = dm_evict_oldest(&c->core, &p->evict, 1, UINT64_MAX, &busy) == 1;
	if (p->victim)
		p->offset = p->evict.ranges[0]->offset;
	if (busy)
		dm_count(&c->core, DM_C_reclaim_skipped, busy);
	return p->victim;
}

static bool try_place(struct dm_cache *c, struct dm_place *p, bool probe)
{
	bool ok = true;

	if (probe && early(c) && place_victim(c, p))
		return true;
	if (place_free(c, p))
		return true;
	if (probe && !early(c) && unmap_some(c, PROBE_BATCH, DM_C_asked_unmaps, &ok) &&
	    place_free(c, p))
		return true;
	return place_victim(c, p);
}

/* Sleeps until something may have become free; false when the time is up. */
static bool sleep_until(struct dm_cache *c, uint32_t seen, uint64_t deadline_ns)
{
	struct dm_sleep *s = &c->sleep;
	bool in_time = true;

	util_mutex_lock(&s->lock);
	while (s->events == seen && in_time)
		in_time = util_cond_wait_until(&s->cond, &s->lock, deadline_ns);
	util_mutex_unlock(&s->lock);
	return in_time;
}

void dm_sleep_wake(struct dm_cache *c)
{
	struct dm_sleep *s = &c->sleep;

	if (__atomic_load_n(&s->waiters, __ATOMIC_SEQ_CST) == 0)
		return;
	util_mutex_lock(&s->lock);
	__atomic_add_fetch(&s->events, 1, __ATOMIC_SEQ_CST);
	util_cond_broadcast(&s->cond);
	util_mutex_unlock(&s->lock);
}

static int wait_for_place(struct dm_cache *c, struct dm_place *p)
{
	uint64_t start = util_now_ns();
	uint64_t deadline = start + c->config.wait_ms * UINT64_C(1000000);
	bool in_time = true;
	int err = -EBUSY;

	__atomic_add_fetch(&c->sleep.waiters, 1, __ATOMIC_SEQ_CST);
	dm_pin_barrier(); /* whoever lets go after we have looked sees us */
	while (in_time) {
		uint32_t seen = __atomic_load_n(&c->sleep.events, __ATOMIC_SEQ_CST);

		util_yield();
		if (dm_cache_dead(c)) {
			err = -EPIPE;
			break;
		}
		if (try_place(c, p, false)) {
			err = 0;
			break;
		}
		in_time = sleep_until(c, seen, deadline);
	}
	__atomic_sub_fetch(&c->sleep.waiters, 1, __ATOMIC_SEQ_CST);
	dm_count(&c->core, DM_C_waits, 1);
	dm_count(&c->core, DM_C_wait_ns, util_now_ns() - start);
	return err;
}

int dm_place_get(struct dm_cache *c, struct dm_place *p)
{
	int err = 0;

	*p = (struct dm_place){0};
	if (!try_place(c, p, probe_now(c)))
		err = wait_for_place(c, p);
	kick(c);
	if (err)
		dm_place_put(p);
	return err;
}

void dm_place_put(struct dm_place *p)
{
	if (p->evict.max)
		dm_evict_destroy(&p->evict);
}

/* What the core tells the seat */

static void freed(struct dm_core *core, uint64_t offset)
{
	struct dm_cache *c = dm_cache_of(core);

	dm_slots_push(&c->slots, (uint32_t)(offset / c->slot_size));
	dm_sleep_wake(c);
}

static void unpinned(struct dm_core *core, uint64_t offset)
{
	struct dm_cache *c = dm_cache_of(core);
	struct dm_range **at = &c->orphans[offset / c->slot_size], *r;
	uint64_t mask = dm_extent_mask(core, offset, offset + c->slot_size);

	dm_stripes_lock(core, mask);
	r = *at;
	if (r && !dm_range_pinned_locked(r))
		*at = NULL;
	else
		r = NULL;
	dm_stripes_unlock(core, mask);
	if (!r)
		return;
	freed(core, offset);
	dm_file_put(core, r->file);
	dm_range_unref(r);
}

static bool gate(struct dm_core *core, struct dm_range *r)
{
	return !dm_cache_of(core)->vanilla || dm_vanilla_gate(core, r);
}

const struct dm_seat_ops dm_cache_seat = {.gate = gate, .freed = freed, .unpinned = unpinned};
