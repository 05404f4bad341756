// SPDX-License-Identifier: Apache-2.0
/*
 * Unmapping: batches of victims, and what a claim holds.
 *
 * Victims (struct dm_evict) are claimed one by one, without waiting: who is pinned, claimed or
 * changed is passed over. Flushes wait: they first try to get all they want in batches, and then
 * take what was claimed by others one at a time, holding nothing else meanwhile.
 */
#include "dm_core.h"

#include "dm_probe.h"
#include "util_yield.h"

void dm_evict_init(struct dm_evict *e, size_t max, bool withdrawable)
{
	*e = (struct dm_evict){.max = max, .withdrawable = withdrawable};
	e->claims = g_new0(struct dm_claim, max);
	e->ranges = g_new0(struct dm_range *, max);
	e->ops = g_new0(struct dm_chan_op, max);
	e->req.ops = e->ops;
}

void dm_evict_destroy(struct dm_evict *e)
{
	g_assert(e->n == 0);
	g_free(e->claims);
	g_free(e->ranges);
	g_free(e->ops);
}

static struct dm_chan_op unmap_op(const struct dm_range *r)
{
	return (struct dm_chan_op){
		.w = {.kind = DM_OP_UNMAP, .fd = -1, .offset = r->offset, .len = r->len},
	};
}

/* Closes a range that nobody has a pin on; of a pin and this one fails, or both. */
static bool close_idle_locked(struct dm_range *r)
{
	dm_range_close_locked(r);
	if (!dm_range_pinned_locked(r) || DM_MUTATE(20))
		return true;
	dm_range_open_locked(r);
	return false;
}

static int evict_try_locked(struct dm_core *c, struct dm_evict *e, struct dm_range *r)
{
	struct dm_claim *cl = &e->claims[e->n];

	bool idle = c->seat && r->state == DM_LIVE;

	if (r->state != DM_LINGERING && !idle)
		return -ENOENT;
	if (dm_range_pinned_locked(r) && !DM_MUTATE(20))
		return -EBUSY;
	*cl = (struct dm_claim){
		.req = e->withdrawable ? &e->req : NULL,
		.slot = (uint32_t)e->n,
		.range = r,
	};
	if (!dm_claim_try(c, cl, r->offset, dm_range_end(r)))
		return -EAGAIN;
	if (idle && !close_idle_locked(r)) {
		dm_claim_release(c, cl);
		return -EBUSY;
	}
	dm_unmap_begin_locked(c, r);
	dm_range_ref(r);
	e->ops[e->n] = unmap_op(r);
	e->ranges[e->n++] = r;
	return 0;
}

int dm_evict_try(struct dm_core *c, struct dm_evict *e, struct dm_range *r)
{
	uint64_t mask = dm_range_mask(c, r);
	int err;

	if (e->n == e->max)
		return -EAGAIN;
	dm_stripes_lock(c, mask);
	err = evict_try_locked(c, e, r);
	dm_stripes_unlock(c, mask);
	return err;
}

size_t dm_evict_oldest(struct dm_core *c, struct dm_evict *e, size_t want, uint64_t before_ns,
		       size_t *busy)
{
	return rc_collect(c->lingering, MIN(want, e->max - e->n), before_ns, e, busy);
}

/*
 * Books the outcome of an unmap, all that is counted included: whoever gets the claim next finds
 * sums that balance. The index's reference passes to the caller when true; see dropped().
 */
static bool unmapped_locked(struct dm_core *c, struct dm_range *r, int result, enum dm_counter by,
			    uint64_t ns)
{
	if (result && !DM_MUTATE(3)) {
		dm_range_linger_locked(c, r);
		return false;
	}
	dm_count(c, by, 1); /* before it is seen to linger no more */
	dm_budget_release(c, 1);
	dm_index_update(c, &r, 1, NULL, 0);
	dm_range_dropped_locked(c, r);
	dm_core_trace(c, DM_TRACE_UNMAP, r, ns);
	DM_PROBE3(unmap, r->offset, r->len, ns);
	return true;
}

/* The rest, with no lock held. */
static void dropped(struct dm_core *c, struct dm_range *r)
{
	if (c->seat)
		c->seat->freed(c, r->offset);
	if (!DM_MUTATE(11))
		dm_file_put(c, r->file);
	dm_range_unref(r);
}

int dm_evict_finish(struct dm_core *c, struct dm_evict *e, enum dm_counter by)
{
	int first_err = 0;

	for (size_t i = 0; i < e->n; i++) {
		struct dm_range *r = e->ranges[i];
		struct dm_claim *cl = &e->claims[i];
		int result = e->ops[i].w.result;
		bool gone;

		if (e->ops[i].cancelled) {
			/* who withdrew it may still be looking at the claim, under its stripes */
			dm_stripes_lock(c, cl->mask);
			dm_stripes_unlock(c, cl->mask);
			dm_range_unref(r);
			continue;
		}
		dm_stripes_lock(c, cl->mask);
		gone = unmapped_locked(c, r, result, by, e->req.ns);
		dm_claim_release(c, cl);
		dm_stripes_unlock(c, cl->mask);
		dm_stripes_wake(c, cl->mask);
		if (gone)
			dropped(c, r);
		else
			first_err = dm_first_err(first_err, result);
		dm_budget_unmapped(c, 1);
		dm_range_unref(r);
	}
	e->n = 0;
	return first_err;
}

int dm_evict_run(struct dm_core *c, struct dm_evict *e, enum dm_counter by)
{
	if (e->n == 0)
		return 0;
	e->req.n = e->n; /* a setup may be looking at .phase already */
	util_yield();
	dm_submit(c, &e->req);
	return dm_evict_finish(c, e, by);
}

void dm_unmap_begin_locked(struct dm_core *c, struct dm_range *r)
{
	dm_budget_unmapping(c);
	util_yield();
	if (r->state == DM_LIVE) {
		dm_range_give_back_locked(c, r, false);
		return;
	}
	g_assert(r->state == DM_LINGERING);
	dm_range_unlinger_locked(c, r);
	r->withdrawn = false;
	dm_range_set_state(r, DM_UNMAPPING);
}

/* What the driver, or we ourselves, said of an unmap; true: the driver does not have it any more.
 */
static bool settle_unmap(struct dm_core *c, struct dm_range *r, int result, uint64_t ns)
{
	uint64_t mask = dm_range_mask(c, r);
	bool gone;

	dm_stripes_lock(c, mask);
	gone = unmapped_locked(c, r, result, DM_C_asked_unmaps, ns);
	dm_stripes_unlock(c, mask);
	if (gone)
		dropped(c, r);
	dm_budget_unmapped(c, 1);
	return gone;
}

/* One batch of dm_unmap_claimed(). Those whose pins outlast the deadline linger. */
static int unmap_batch(struct dm_core *c, struct dm_range **v, size_t n, uint64_t deadline)
{
	struct dm_chan_op *ops = g_new(struct dm_chan_op, n);
	struct dm_range **sent = g_new(struct dm_range *, n);
	struct dm_chan_request req = {.ops = ops};
	int first_err = 0;

	for (size_t i = 0; i < n; i++) {
		if (!dm_range_wait_unpinned(c, v[i], deadline)) {
			settle_unmap(c, v[i], -EBUSY, 0);
			first_err = dm_first_err(first_err, -EBUSY);
			continue;
		}
		sent[req.n] = v[i];
		ops[req.n++] = unmap_op(v[i]);
	}
	if (req.n)
		dm_submit(c, &req);
	for (size_t i = 0; i < req.n; i++)
		if (!settle_unmap(c, sent[i], ops[i].w.result, req.ns))
			first_err = dm_first_err(first_err, ops[i].w.result);
	g_free(sent);
	g_free(ops);
	return first_err;
}

int dm_unmap_claimed(struct dm_core *c, struct dm_vec *ranges)
{
	uint64_t deadline = util_now_ns() + c->pin_wait_ns;
	size_t batch = MAX(1, c->caps.batch);
	int first_err = 0;

	for (size_t i = 0; i < ranges->n; i += batch) {
		int err = unmap_batch(c, ranges->v + i, MIN(batch, ranges->n - i), deadline);

		first_err = dm_first_err(first_err, err);
	}
	return first_err;
}

static void end_claim(struct dm_core *c, struct dm_claim *cl)
{
	dm_stripes_lock(c, cl->mask);
	dm_claim_release(c, cl);
	dm_stripes_unlock(c, cl->mask);
	dm_stripes_wake(c, cl->mask);
}

/*
 * What of @r lies in [lo, hi) and has been given up with this call, as a range to unmap; NULL
 * when the mapping must stay for what the owner keeps of it.
 */
static struct dm_range *part_to_unmap_locked(struct dm_core *c, struct dm_range *r, uint64_t lo,
					     uint64_t hi)
{
	unsigned int more = dm_range_pieces(r, lo, hi) - 1;
	bool left = lo > r->offset;
	struct dm_range *pieces[3];

	if (r->state == DM_LINGERING)
		return more ? NULL : r;
	if (!more)
		return r;
	if (dm_can(c, DM_WINDOW_SPLIT) && dm_budget_reserve(c, more, c->budget.limit)) {
		dm_range_cut_locked(c, r, lo, hi, pieces);
		return pieces[left];
	}
	return dm_range_take_locked(c, r, lo, hi) ? r : NULL;
}

int dm_unmap_extent(struct dm_core *c, uint64_t lo, uint64_t hi, bool all)
{
	struct dm_vec found, victims;
	struct dm_claim cl;
	int err;

	dm_vec_init(&found);
	dm_vec_init(&victims);
	dm_claim_acquire(c, &cl, lo, hi);
	dm_index_collect(c, lo, hi, &found);
	for (size_t i = 0; i < found.n; i++) {
		struct dm_range *r = found.v[i];

		if (!all)
			r = part_to_unmap_locked(c, r, lo, hi);
		if (DM_MUTATE(13) && all && r->state == DM_LINGERING)
			continue;
		/* a piece of which the owner had nothing lingers already */
		if (r) {
			dm_unmap_begin_locked(c, r);
			dm_vec_add(&victims, r);
		}
	}
	dm_stripes_unlock(c, cl.mask);
	err = dm_unmap_claimed(c, &victims);
	end_claim(c, &cl);
	dm_vec_clear(&found);
	dm_vec_clear(&victims);
	return err;
}

/* Gives a LIVE range back that nobody has a claim on. */
static void give_up(struct dm_core *c, struct dm_range *r)
{
	uint64_t mask = dm_range_mask(c, r);

	dm_stripes_lock(c, mask);
	if (r->state == DM_LIVE && !dm_claimed(c, r->offset, dm_range_end(r)))
		dm_range_give_back_locked(c, r, true);
	dm_stripes_unlock(c, mask);
}

/* Waits for whoever has @r, then unmaps it if it still is there. */
static int unmap_one(struct dm_core *c, struct dm_range *r, bool live)
{
	struct dm_vec one;
	struct dm_claim cl;
	int err = 0;

	dm_vec_init(&one);
	dm_claim_acquire_range(c, &cl, r);
	if (r->state == DM_LINGERING || (live && r->state == DM_LIVE)) {
		dm_unmap_begin_locked(c, r);
		dm_vec_add(&one, r);
	}
	dm_stripes_unlock(c, cl.mask);
	err = dm_unmap_claimed(c, &one);
	end_claim(c, &cl);
	dm_vec_clear(&one);
	return err;
}

static int unmap_vec(struct dm_core *c, struct dm_vec *v, bool live)
{
	struct dm_vec later;
	struct dm_evict e;
	int err = 0, first_err = 0;

	dm_vec_init(&later);
	dm_evict_init(&e, MAX(1, c->caps.batch), false);
	for (size_t i = 0; i < v->n; i++) {
		if (live)
			give_up(c, v->v[i]);
		if (e.n == e.max) {
			err = dm_evict_run(c, &e, DM_C_asked_unmaps);
			first_err = dm_first_err(first_err, err);
		}
		if (dm_evict_try(c, &e, v->v[i]) != 0)
			dm_vec_add(&later, v->v[i]);
	}
	err = dm_evict_run(c, &e, DM_C_asked_unmaps);
	first_err = dm_first_err(first_err, err);
	dm_evict_destroy(&e);
	for (size_t i = 0; i < later.n; i++) {
		err = unmap_one(c, later.v[i], live);
		first_err = dm_first_err(first_err, err);
	}
	dm_vec_clear(&later);
	return first_err;
}

int dm_unmap_file(struct dm_core *c, struct dm_file_key file, bool live)
{
	struct dm_vec v;
	bool again = true;
	int err = 0;

	if (DM_MUTATE(27) && !live)
		return 0;
	/* what was cut while we looked has left pieces: look once more */
	for (int round = 0; round < 3 && again && !err; round++) {
		again = false;
		dm_vec_init(&v);
		dm_file_collect(c, file, &v);
		err = unmap_vec(c, &v, live);
		for (size_t i = 0; i < v.n; i++) {
			again |= dm_range_state(v.v[i]) == DM_FREE;
			dm_range_unref(v.v[i]);
		}
		dm_vec_clear(&v);
	}
	return err;
}
