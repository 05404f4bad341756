// SPDX-License-Identifier: Apache-2.0
/*
 * The planner: what a setup needs of the driver.
 *
 * Under a claim on its extent, a setup sorts what is mapped there:
 *  - keepers hold the very bytes asked for (zeros in their place: only while live). A live one is
 * answered as it is, a lingering one is revived; neither ever goes and comes back, so there is no
 * moment at which bytes that the owner has are not there;
 *  - what else is there is displaced: the owner asks for other bytes, so it has let go of these;
 *  - what keepers leave is gaps: each is one map.
 * No gap: answered without the driver.
 *
 * A displaced range goes
 *  - by the map over it, where the driver overlays (the whole range, or with DM_WINDOW_SPLIT the
 *    part, cut off beforehand);
 *  - else by an unmap that is sent ahead of the map in the same batch: of the part, where the
 *    driver splits; of the whole mapping otherwise, which is refused with EBUSY when the owner has
 *    bytes of it outside the extent asked for: unmapping those would make a hole. (Where it
 *    overlays but does not split, that unmap is waited for.)
 *
 * Budget: a gap over displaced ranges takes over the room of one of them; the others need room,
 * as do cuts. What is short comes from lingering ranges elsewhere. Their unmaps travel in the same
 * batch, ahead of the maps, as long as the driver would survive that they fail; at the driver's
 * hard limit they are waited for first. If that is not enough, lingering ranges that would be cut
 * go whole first.
 *
 * Once the driver has been asked, the owner has let go of what was displaced, whatever the
 * outcome. When one gap fails, those that were mapped linger and the keepers stay as they were:
 * the owner gets an error and nothing of the extent that it had not before.
 */
#include "dm_core.h"

#include "dm_probe.h"
#include "util_yield.h"

/* displaced ranges [first, first + n) of the plan lie in the gap */
struct gap {
	uint64_t lo;
	uint64_t hi;
	size_t first;
	size_t n;
	size_t op; /* its map; its unmaps, if any, stand right before it */
	struct dm_range *made;
};

struct plan {
	struct dm_core *c;
	struct dm_claim claim;
	struct dm_file *file;
	uint64_t offset;
	uint64_t end;
	uint64_t file_offset;
	bool write;
	struct dm_vec keep;
	struct dm_vec displaced;
	struct gap *gaps;
	size_t n_gaps;
	size_t max_gaps;
	uint32_t room; /* mappings that the gaps need beyond those they replace */
	uint32_t cuts; /* mappings that cutting adds */
	bool early;    /* what reaches beyond the extent goes by a call of its own first */
	bool unmap;    /* displaced ranges are unmapped, not overlaid */
	bool revived;
	bool upgraded;
	uint64_t deadline;
	struct dm_evict victims;
	struct dm_chan_op *ops;
	size_t n_ops;
	uint64_t ns;
};

static bool sticks_out(const struct plan *p, const struct dm_range *r)
{
	return r->offset < p->offset || dm_range_end(r) > p->end;
}

static bool owned_outside(const struct plan *p, const struct dm_range *r)
{
	return (r->offset < p->offset && dm_range_owned(p->c, r, r->offset, p->offset)) ||
	       (dm_range_end(r) > p->end && dm_range_owned(p->c, r, p->end, dm_range_end(r)));
}

static bool same_bytes(const struct plan *p, const struct dm_range *r)
{
	/* What lingers is not fitted (dm_fit.c): zeros there may hide bytes by now. */
	return r->file == p->file && (!r->blank || r->state == DM_LIVE || DM_MUTATE(32)) &&
	       (r->file_offset - r->offset == p->file_offset - p->offset || DM_MUTATE(5));
}

/* [lo, hi) is to be mapped; the displaced from @first on lie in it. */
static void add_gap(struct plan *p, uint64_t lo, uint64_t hi, size_t first)
{
	struct gap g = {.lo = lo, .hi = hi, .first = first, .n = p->displaced.n - first};

	if (g.n == 0)
		p->room++;
	if (p->n_gaps == p->max_gaps) {
		p->max_gaps = MAX(4, p->max_gaps * 2);
		p->gaps = g_renew(struct gap, p->gaps, p->max_gaps);
	}
	p->gaps[p->n_gaps++] = g;
}

/* Will @r be cut down to the extent? */
static bool to_be_cut(const struct plan *p, const struct dm_range *r)
{
	return sticks_out(p, r) && dm_can(p->c, DM_WINDOW_SPLIT) && !DM_MUTATE(15);
}

static int displace(struct plan *p, struct dm_range *r)
{
	if (to_be_cut(p, r))
		p->cuts += dm_range_pieces(r, p->offset, p->end) - 1;
	else if (sticks_out(p, r) && owned_outside(p, r) && !DM_MUTATE(6))
		return -EBUSY;
	else if (sticks_out(p, r))
		p->early |= dm_can(p->c, DM_WINDOW_OVERLAY);
	if (!dm_can(p->c, DM_WINDOW_OVERLAY))
		p->unmap = true;
	dm_vec_add(&p->displaced, r);
	return 0;
}

static int classify_locked(struct plan *p)
{
	uint64_t pos = p->offset;
	struct dm_vec found;
	size_t first = 0;
	int err = 0;

	dm_vec_init(&found);
	dm_index_collect(p->c, p->offset, p->end, &found);
	for (size_t i = 0; i < found.n && !err; i++) {
		struct dm_range *r = found.v[i];

		if (!same_bytes(p, r)) {
			err = displace(p, r);
			continue;
		}
		if (pos < r->offset)
			add_gap(p, pos, r->offset, first);
		first = p->displaced.n;
		pos = dm_range_end(r);
		dm_vec_add(&p->keep, r);
	}
	if (!err && pos < p->end)
		add_gap(p, pos, p->end, first);
	dm_vec_clear(&found);
	return err;
}

/* May it go whole, though it reaches beyond the extent? */
static bool goes_early(const struct plan *p, const struct dm_range *r)
{
	return sticks_out(p, r) && !owned_outside(p, r) &&
	       (r->state == DM_LINGERING || !to_be_cut(p, r));
}

/*
 * Unmaps what may go whole, and waits for it: where the VMM would overlay a part of a mapping if
 * the unmap ahead of it failed, or where there is no room for the pieces of a cut. Then sorts
 * what is there anew. The stripes are locked, and are again on return.
 */
static int go_early_locked(struct plan *p)
{
	struct dm_core *c = p->c;
	struct dm_vec go;
	int err = 0;

	dm_vec_init(&go);
	for (size_t i = 0; i < p->displaced.n; i++) {
		struct dm_range *r = p->displaced.v[i];

		if (!goes_early(p, r) || dm_range_pinned_locked(r))
			continue;
		dm_range_close_locked(r);
		if (dm_range_pinned_locked(r)) { /* one more came in before that */
			dm_range_open_locked(r);
			continue;
		}
		dm_unmap_begin_locked(c, r);
		dm_vec_add(&go, r);
	}
	dm_stripes_unlock(c, p->claim.mask);
	if (go.n)
		err = dm_unmap_claimed(c, &go);
	dm_stripes_lock(c, p->claim.mask);
	dm_vec_clear(&go);
	dm_vec_clear(&p->keep);
	dm_vec_clear(&p->displaced);
	p->n_gaps = 0;
	p->room = 0;
	p->cuts = 0;
	p->early = false;
	return err ? err : classify_locked(p);
}

/* Keepers */

static void revive(struct plan *p, struct dm_range *r)
{
	struct dm_core *c = p->c;
	uint32_t more = dm_range_pieces(r, p->offset, p->end) - 1;
	bool left = r->offset < p->offset;
	struct dm_range *pieces[3];

	if (more && dm_can(c, DM_WINDOW_SPLIT) && dm_budget_reserve(c, more, c->budget.limit)) {
		dm_range_cut_locked(c, r, p->offset, p->end, pieces);
		r = pieces[left];
	}
	dm_range_revive_locked(c, r, p->offset, p->end);
	r->asked_write = p->write;
	p->revived = true;
}

static void commit_keepers_locked(struct plan *p)
{
	for (size_t i = 0; i < p->keep.n; i++) {
		struct dm_range *r = p->keep.v[i];

		if (r->state == DM_LINGERING) {
			revive(p, r);
			continue;
		}
		dm_range_give_locked(p->c, r, p->offset, p->end);
		p->upgraded |= p->write && !r->asked_write;
		r->asked_write |= p->write;
	}
}

static void end_claim_locked(struct plan *p)
{
	dm_claim_release(p->c, &p->claim);
	dm_stripes_unlock(p->c, p->claim.mask);
	dm_stripes_wake(p->c, p->claim.mask);
}

/* Room in the budget */

/* Reserves what the unmaps of @victims will make room for, if the driver survives that they fail.
 */
static bool borrow_room(struct dm_core *c, uint32_t need, size_t victims)
{
	uint64_t limit = (uint64_t)c->budget.limit + victims;

	return limit <= (DM_MUTATE(7) ? UINT64_MAX : c->budget.hard) &&
	       dm_budget_reserve(c, need, (uint32_t)MIN(limit, UINT32_MAX));
}

/* Nobody is left to evict: sleeps if there may be; @events were seen before looking. */
static bool wait_for_room(struct plan *p, uint32_t events, bool busy)
{
	struct dm_budget *b = &p->c->budget;
	bool on_their_way = __atomic_load_n(&b->unmapping, __ATOMIC_SEQ_CST) > 0;

	if (events != __atomic_load_n(&b->events, __ATOMIC_SEQ_CST))
		return true;
	if (!busy && !on_their_way)
		return false;
	dm_count(p->c, DM_C_waits, 1);
	return dm_budget_wait(p->c, events, p->deadline);
}

/*
 * Reserves what is needed. Leaves victims in p->victims whose unmaps must be sent ahead of the
 * maps in the same batch.
 */
static int make_room(struct plan *p)
{
	struct dm_core *c = p->c;
	struct dm_budget *b = &c->budget;
	uint32_t need = p->room + p->cuts;
	size_t refused = 0;

	for (;;) {
		/* what happens after this look is seen before we give up */
		uint32_t events = __atomic_load_n(&b->events, __ATOMIC_SEQ_CST);
		size_t busy = 0, got;

		if (dm_budget_reserve(c, need, b->limit))
			return 0;
		if (!p->victims.max)
			dm_evict_init(&p->victims, MAX(1, need), false);
		got = dm_evict_oldest(c, &p->victims, need, UINT64_MAX, &busy);
		if (got && borrow_room(c, need, got))
			return 0;
		if (got) {
			dm_count(c, DM_C_reclaim_inline, got);
			if (dm_evict_run(c, &p->victims, DM_C_asked_unmaps) == 0)
				continue;
			if (dm_core_broken(c))
				return -EPIPE;
			refused += got; /* each gets about one try */
			if (refused > rc_count(c->lingering) || util_now_ns() >= p->deadline)
				return -ENOMEM;
			continue;
		}
		if (!wait_for_room(p, events, busy > 0))
			return -ENOMEM;
	}
}

/* Displaced ranges */

/* Cuts them down to the extent where the driver can, and lets no new pin in. */
static void close_displaced_locked(struct plan *p)
{
	for (size_t i = 0; i < p->displaced.n; i++) {
		struct dm_range *r = p->displaced.v[i];
		struct dm_range *pieces[3];

		if (to_be_cut(p, r)) {
			bool left = r->offset < p->offset;

			dm_range_cut_locked(p->c, r, p->offset, p->end, pieces);
			r = pieces[left];
			p->displaced.v[i] = r;
		}
		dm_range_close_locked(r);
	}
}

static void reopen_displaced_locked(struct plan *p)
{
	for (size_t i = 0; i < p->displaced.n; i++)
		if (p->displaced.v[i]->state == DM_LIVE)
			dm_range_open_locked(p->displaced.v[i]);
}

static int wait_for_pins(struct plan *p)
{
	for (size_t i = 0; i < p->displaced.n; i++)
		if (!dm_range_wait_unpinned(p->c, p->displaced.v[i], p->deadline))
			return -EBUSY;
	return 0;
}

/* The driver */

static void build_ops(struct plan *p)
{
	const struct dm_evict *e = &p->victims;
	struct dm_chan_op *op;

	p->ops = g_new0(struct dm_chan_op, e->n + p->displaced.n + p->n_gaps);
	op = p->ops;
	for (size_t i = 0; i < e->n; i++)
		*op++ = e->ops[i];
	for (size_t i = 0; i < p->n_gaps; i++) {
		struct gap *g = &p->gaps[i];

		for (size_t j = g->first; p->unmap && j < g->first + g->n; j++, op++) {
			op->w.kind = DM_OP_UNMAP;
			op->w.fd = -1;
			op->w.offset = p->displaced.v[j]->offset;
			op->w.len = p->displaced.v[j]->len;
		}
		g->op = (size_t)(op - p->ops);
		op->w.kind = DM_OP_MAP;
		op->w.flags = g->made->flags;
		op->w.fd = p->file->fd;
		op->w.key_hi = p->file->key.hi;
		op->w.key_lo = p->file->key.lo;
		op->w.fd_offset = g->made->file_offset;
		op->w.offset = g->lo;
		op->w.len = g->hi - g->lo;
		op++;
	}
	p->n_ops = (size_t)(op - p->ops);
}

static int ask_driver(struct plan *p)
{
	struct dm_evict *e = &p->victims;
	struct dm_chan_request req = {.has_map = true};
	int rc;

	build_ops(p);
	req.ops = p->ops;
	req.n = p->n_ops;
	req.ordered = p->n_ops > p->n_gaps;
	util_yield();
	rc = dm_submit(p->c, &req);
	p->ns = req.ns;
	e->req.ns = req.ns;
	for (size_t i = 0; i < e->n; i++)
		e->ops[i].w.result = p->ops[i].w.result;
	return rc;
}

/* Books what became of the displaced ranges of @g; returns how many are gone. */
static size_t settle_displaced_locked(struct plan *p, const struct gap *g, bool mapped,
				      struct dm_vec *gone)
{
	size_t n = 0;

	for (size_t j = g->first; j < g->first + g->n; j++) {
		struct dm_range *r = p->displaced.v[j];
		bool unmapped = p->unmap && p->ops[g->op - g->n + (j - g->first)].w.result == 0;

		if (!unmapped && !mapped) {
			dm_range_linger_locked(p->c, r);
			continue;
		}
		if (!DM_MUTATE(8) || !p->unmap)
			dm_count(p->c, p->unmap ? DM_C_asked_unmaps : DM_C_elided_overlaid, 1);
		dm_core_trace(p->c, p->unmap ? DM_TRACE_UNMAP : DM_TRACE_OVERLAY, r, p->ns);
		if (!p->unmap)
			DM_PROBE3(elide, r->offset, r->len, DM_TRACE_OVERLAY);
		dm_vec_add(gone, r);
		n++;
	}
	return n;
}

static int commit_gap_locked(struct plan *p, struct gap *g, struct dm_vec *dead)
{
	struct dm_core *c = p->c;
	int result = p->ops[g->op].w.result;
	size_t first = dead->n;
	size_t gone = settle_displaced_locked(p, g, result == 0, dead);

	if (result && !DM_MUTATE(9)) {
		dm_index_update(c, dead->v + first, gone, NULL, 0);
		dm_budget_release(c, (uint32_t)(g->n == 0 ? 1 : gone));
	} else {
		dm_range_set_state(g->made, DM_LIVE);
		dm_index_update(c, dead->v + first, gone, &g->made, 1);
		dm_count(c, DM_C_live, 1);
		__atomic_add_fetch(&c->budget.bytes, g->made->len, __ATOMIC_RELAXED);
		dm_core_trace(c, DM_TRACE_MAP, g->made, p->ns);
		DM_PROBE3(map, g->lo, g->hi - g->lo, p->ns);
		if (g->n > 1)
			dm_budget_release(c, (uint32_t)(g->n - 1));
	}
	for (size_t i = first; i < dead->n; i++)
		dm_range_dropped_locked(c, dead->v[i]);
	return result;
}

/* All or nothing for the owner: opens what was mapped, or lets it linger. */
static int commit_locked(struct plan *p, struct dm_vec *dead)
{
	int err = 0;

	for (size_t i = 0; i < p->n_gaps; i++) {
		int result = commit_gap_locked(p, &p->gaps[i], dead);

		err = err ? err : result;
	}
	for (size_t i = 0; i < p->n_gaps; i++) {
		struct dm_range *r = p->gaps[i].made;

		if (r->state != DM_LIVE)
			continue;
		if (err) {
			dm_range_give_back_locked(p->c, r, true);
		} else {
			r->asked_write = p->write;
			dm_range_open_locked(r);
		}
	}
	if (!err || DM_MUTATE(12))
		commit_keepers_locked(p);
	return err;
}

static void make_ranges_locked(struct plan *p)
{
	for (size_t i = 0; i < p->n_gaps; i++) {
		struct gap *g = &p->gaps[i];

		g->made = dm_range_new(p->c, p->file, g->lo, g->hi - g->lo,
				       p->file_offset + (g->lo - p->offset));
		dm_file_ref(p->c, p->file);
	}
	for (size_t i = 0; i < p->displaced.n; i++)
		dm_unmap_begin_locked(p->c, p->displaced.v[i]);
}

/* The session broke while the driver had our request: the table stays as it was until all of it
 * is forgotten. */
static void abandon_locked(struct plan *p)
{
	for (size_t i = 0; i < p->displaced.n; i++)
		dm_range_linger_locked(p->c, p->displaced.v[i]);
	dm_budget_release(p->c, p->room);
}

static void put_ranges(struct plan *p, struct dm_vec *dead)
{
	for (size_t i = 0; i < dead->n; i++) {
		struct dm_range *r = dead->v[i];

		dm_file_put(p->c, r->file);
		dm_range_unref(r);
	}
	for (size_t i = 0; i < p->n_gaps; i++) {
		struct dm_range *r = p->gaps[i].made;

		if (dm_range_state(r) == DM_MAPPING) /* never became one */
			dm_file_put(p->c, r->file);
		dm_range_unref(r);
	}
}

/* Maps the gaps. Under the claim, whose stripes are locked; they are not on return. */
static int map_gaps(struct plan *p)
{
	struct dm_vec dead;
	int err;

	dm_vec_init(&dead);
	make_ranges_locked(p);
	dm_stripes_unlock(p->c, p->claim.mask);
	err = ask_driver(p);
	dm_stripes_lock(p->c, p->claim.mask);
	if (err)
		abandon_locked(p);
	else
		err = commit_locked(p, &dead);
	end_claim_locked(p);
	dm_budget_unmapped(p->c, (uint32_t)p->displaced.n);
	put_ranges(p, &dead);
	dm_vec_clear(&dead);
	if (err)
		dm_count(p->c, DM_C_refused_driver, 1);
	return err;
}

/* As map_gaps(), from where nothing is reserved or closed yet. */
static int run_plan(struct plan *p)
{
	struct dm_core *c = p->c;
	int err;

	dm_stripes_unlock(c, p->claim.mask);
	p->deadline = util_now_ns() + c->pin_wait_ns;
	err = make_room(p);
	dm_stripes_lock(c, p->claim.mask);
	if (err == -ENOMEM && p->cuts && go_early_locked(p) == 0) {
		dm_stripes_unlock(c, p->claim.mask);
		err = make_room(p);
		dm_stripes_lock(c, p->claim.mask);
	}
	if (err) {
		if (err == -ENOMEM)
			dm_count(c, DM_C_refused_budget, 1);
		end_claim_locked(p);
		return err;
	}
	close_displaced_locked(p);
	if (p->displaced.n) {
		dm_stripes_unlock(c, p->claim.mask);
		err = wait_for_pins(p);
		dm_stripes_lock(c, p->claim.mask);
	}
	if (err) {
		reopen_displaced_locked(p);
		dm_budget_release(c, p->room);
		end_claim_locked(p);
		dm_evict_run(c, &p->victims, DM_C_asked_unmaps);
		return err;
	}
	err = map_gaps(p);
	dm_count(c, DM_C_reclaim_inline, p->victims.n);
	dm_evict_finish(c, &p->victims, DM_C_asked_unmaps);
	return err;
}

static int setup_claimed(struct plan *p)
{
	struct dm_core *c = p->c;
	int err = dm_core_broken(c) ? -EPIPE : classify_locked(p);

	if (!err && p->early)
		err = go_early_locked(p);
	if (!err && p->early) /* still there: pinned */
		err = -EBUSY;
	if (!err && p->n_gaps)
		return run_plan(p);
	if (!err) {
		commit_keepers_locked(p);
		if (!p->revived)
			dm_count(c, p->upgraded ? DM_C_upgraded : DM_C_repeated, 1);
	}
	end_claim_locked(p);
	return err;
}

/* In the file, which is held open by the setup. */
static void count_setup(const struct plan *p)
{
	struct dm_file_counts *n = &p->file->counts;

	__atomic_fetch_add(&n->setups, 1, __ATOMIC_RELAXED);
	if (p->revived)
		__atomic_fetch_add(&n->revived, 1, __ATOMIC_RELAXED);
	if (p->n_gaps) {
		__atomic_fetch_add(&n->maps, p->n_gaps, __ATOMIC_RELAXED);
		__atomic_fetch_add(&n->map_ns, p->ns, __ATOMIC_RELAXED);
	}
}

int dm_plan_setup(struct dm_core *c, uint64_t offset, uint64_t len, struct dm_file_key file,
		  uint64_t file_offset, bool write)
{
	struct plan p = {
		.c = c,
		.offset = offset,
		.end = offset + len,
		.file_offset = file_offset,
		.write = write,
	};
	int err;

	err = dm_file_get(c, file, &p.file);
	if (err)
		return err;
	if (write && !p.file->writable) {
		dm_file_put(c, p.file);
		return -EACCES;
	}
	dm_vec_init(&p.keep);
	dm_vec_init(&p.displaced);
	dm_claim_acquire(c, &p.claim, offset, offset + len);
	err = setup_claimed(&p);
	if (!err)
		count_setup(&p);
	dm_file_put(c, p.file);
	if (p.victims.max)
		dm_evict_destroy(&p.victims);
	dm_vec_clear(&p.keep);
	dm_vec_clear(&p.displaced);
	g_free(p.gaps);
	if (p.ops) /* a watermark may be passed, or what failed lingers */
		dm_drain_kick(c);
	g_free(p.ops);
	return err;
}
