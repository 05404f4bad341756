// SPDX-License-Identifier: Apache-2.0
/*
 * Fitting the mappings of a file to its size.
 *
 * Whoever touches a mapping behind the last page of its file gets SIGBUS: here that is the VMM, and
 * it dies of it. When a file has become shorter under mappings, what of them lies behind its new
 * end is replaced by zeros that belong to nobody (a range is then "blank"); when it has become
 * longer again, the file is put back. The owner still has the same range throughout: it is never
 * taken away.
 *
 * A blank range holds nothing that anybody may rely on, so putting the file back may take it away
 * for a moment where the driver does not overlay; and so may the replacement itself, of bytes that
 * the file has lost. Bytes that the file still has do not go: a range with the end inside is cut at
 * the end where the driver splits; elsewhere it stays as it is, and is counted as left.
 *
 * One exception, only if the caller asks for it (DM_FIT_TEAR), as there a driver that cannot split
 * leaves nothing but the death of the VMM: the range is *torn*, that is unmapped and mapped again
 * as two, in one batch. Between these operations the owner reads zeros where the file has bytes,
 * and what it stored there would be lost; so nothing is torn that a setup has asked to write. (A
 * blank range with the end inside loses nothing by it, and is torn in any case.)
 *
 * Only LIVE ranges are looked at. Nobody touches what lingers, and a setup does not revive a blank
 * range, but maps over it; one that is live it keeps, whose owner may go on using it if the setup
 * fails. The range is claimed, closed and free of pins while the driver works; a pin asked for
 * meanwhile finds nothing (EFAULT), as it does behind the end of the file.
 */
#include "dm_core.h"

#include <unistd.h>

#include "util_overflow.h"
#include "util_yield.h"

#define ROUNDS 3

enum outcome {
	FIT_SAME,  /* the driver has what it had; of a torn range's head: its file */
	FIT_DONE,  /* it has the other */
	FIT_ZEROS, /* asked for the file, and got zeros */
	FIT_HOLE,  /* nothing */
};

/*
 * One range that is to be replaced.
 * @blank: what it becomes
 * @was_blank: what it is
 * @tear: 0, or where in the window it is torn: what lies in front stays the file's
 * @head: what became of that
 */
struct swap {
	struct dm_core *c;
	struct dm_range *r;
	bool blank;
	bool was_blank;
	uint64_t tear;
	enum outcome head;
	int err;
};

static struct dm_chan_op map_op(const struct dm_range *r, int zeros)
{
	struct dm_chan_op op = {
		.w =
			{
				.kind = DM_OP_MAP,
				.flags = r->flags,
				.fd = zeros,
				.offset = r->offset,
				.len = r->len,
			},
	};

	if (zeros >= 0) {
		op.w.flags |= DM_MAP_BLANK;
		return op;
	}
	op.w.fd = r->file->fd;
	op.w.key_hi = r->file->key.hi;
	op.w.key_lo = r->file->key.lo;
	op.w.fd_offset = r->file_offset;
	return op;
}

/* Returns the error of the channel; each operation has its own. */
static int ask(struct dm_core *c, struct dm_chan_op *ops, size_t n)
{
	struct dm_chan_request req = {.ops = ops, .n = n, .has_map = true, .ordered = true};

	util_yield();
	return dm_submit(c, &req);
}

static int make_zeros(const struct swap *s)
{
	const struct dm_file_provider *p = &s->c->provider;
	uint64_t len = s->tear ? dm_range_end(s->r) - s->tear : s->r->len;

	return p->zeros ? p->zeros(p->ctx, len) : -ENOSYS;
}

/* The range is unmapped and what should have replaced it was refused. */
static enum outcome fill_hole(struct swap *s)
{
	int zeros = make_zeros(s);
	struct dm_chan_op op;

	if (zeros < 0)
		return FIT_HOLE;
	op = map_op(s->r, zeros);
	if (ask(s->c, &op, 1) == 0 && op.w.result == 0) {
		close(zeros);
		return FIT_ZEROS;
	}
	close(zeros);
	return FIT_HOLE;
}

static enum outcome replace(struct swap *s, int zeros)
{
	bool overlay = dm_can(s->c, DM_WINDOW_OVERLAY);
	struct dm_chan_op ops[2] = {
		{.w = {.kind = DM_OP_UNMAP, .fd = -1, .offset = s->r->offset, .len = s->r->len}},
		map_op(s->r, zeros),
	};
	size_t first = overlay ? 1 : 0;

	s->err = ask(s->c, ops + first, 2 - first);
	if (s->err)
		return FIT_SAME;
	s->err = overlay || !ops[0].w.result ? ops[1].w.result : ops[0].w.result;
	if (!s->err)
		return FIT_DONE;
	if (overlay || ops[0].w.result)
		return FIT_SAME;
	return fill_hole(s);
}

/* Returns what became of the tail; of the head: s->head. */
static enum outcome tear(struct swap *s, int zeros)
{
	uint64_t keep = s->tear - s->r->offset;
	struct dm_chan_op ops[3] = {
		{.w = {.kind = DM_OP_UNMAP, .fd = -1, .offset = s->r->offset, .len = s->r->len}},
		map_op(s->r, -1),
		map_op(s->r, zeros),
	};

	ops[1].w.len = keep;
	ops[2].w.offset += keep;
	ops[2].w.len -= keep;
	s->head = FIT_SAME;
	s->err = ask(s->c, ops, DM_MUTATE(33) ? 1 : 3);
	if (!s->err)
		s->err = ops[0].w.result;
	if (s->err)
		return FIT_SAME;
	s->err = ops[1].w.result ? ops[1].w.result : ops[2].w.result;
	if (ops[1].w.result && (ask(s->c, &ops[1], 1) || ops[1].w.result))
		s->head = FIT_HOLE;
	return ops[2].w.result ? FIT_HOLE : FIT_DONE;
}

/* syscalls: close */
static enum outcome run_swap(struct swap *s)
{
	enum outcome o;
	int zeros = -1;

	if (!dm_range_wait_unpinned(s->c, s->r, util_now_ns() + s->c->pin_wait_ns)) {
		s->err = -EBUSY;
		return FIT_SAME;
	}
	if (s->blank || s->tear) {
		zeros = make_zeros(s);
		if (zeros < 0) {
			s->err = zeros;
			return FIT_SAME;
		}
	}
	o = s->tear ? tear(s, zeros) : replace(s, zeros);
	if (zeros >= 0)
		close(zeros);
	return o;
}

static void drop_locked(struct dm_core *c, struct dm_range *r)
{
	dm_index_update(c, &r, 1, NULL, 0);
	dm_range_dropped_locked(c, r);
}

static void commit_locked(struct swap *s, enum outcome o)
{
	bool changed = o == FIT_DONE || (o == FIT_ZEROS && s->blank);

	if (changed && !DM_MUTATE(28)) {
		__atomic_store_n(&s->r->blank, s->blank, __ATOMIC_RELAXED);
		dm_count(s->c, s->blank ? DM_C_blanked : DM_C_unblanked, 1);
		dm_core_trace(s->c, DM_TRACE_MAP, s->r, 0);
	} else if (!changed) {
		dm_count(s->c, DM_C_blank_errors, 1);
	}
	if (o == FIT_HOLE)
		drop_locked(s->c, s->r);
	else
		dm_range_open_locked(s->r);
}

/* The range was torn: two stand in its place, or what the driver has left of them. s->r becomes the
 * tail; @gone: the head, if there is a hole, with a reference. */
static void commit_torn_locked(struct swap *s, enum outcome tail, struct dm_range **gone)
{
	struct dm_range *pieces[3];

	s->blank = true;
	dm_range_cut_locked(s->c, s->r, s->tear, dm_range_end(s->r), pieces);
	dm_range_unref(s->r);
	s->r = pieces[1];
	dm_range_ref(s->r);
	dm_range_close_locked(s->r);
	if (s->head == FIT_HOLE) {
		*gone = pieces[0];
		dm_range_close_locked(pieces[0]);
		drop_locked(s->c, pieces[0]);
	} else if (s->was_blank) {
		__atomic_store_n(&pieces[0]->blank, false, __ATOMIC_RELAXED);
		dm_count(s->c, DM_C_unblanked, 1);
	}
	commit_locked(s, tail);
}

static void count_outcome(const struct swap *s, enum outcome o, struct dm_fitted *out)
{
	bool done = o == FIT_DONE || (o == FIT_ZEROS && s->blank);

	if (done && s->blank)
		out->blanked++;
	else if (done)
		out->restored++;
	else if (s->blank)
		out->left++;
	else
		out->failed++;
	if (s->tear && o != FIT_SAME && s->was_blank)
		out->restored += s->head != FIT_HOLE;
	else if (s->tear && o != FIT_SAME)
		out->torn++;
	if (s->head == FIT_HOLE)
		out->holes++;
	if (o == FIT_HOLE)
		out->holes++;
	else if (done ? s->blank : s->r->blank)
		out->blank_from = MIN(out->blank_from, s->r->file_offset);
	if (!done && !out->err)
		out->err = s->err;
}

/* A range with the end inside, of a driver that cannot split. */
static bool may_tear(struct dm_core *c, const struct dm_range *r, unsigned int how)
{
	bool harmless = r->blank || ((how & DM_FIT_TEAR) && (!r->asked_write || DM_MUTATE(34)));

	return !dm_can(c, DM_WINDOW_OVERLAY) && !dm_can(c, DM_WINDOW_SPLIT) && harmless &&
	       !r->owned && dm_budget_reserve(c, 1, c->budget.limit);
}

/*
 * The part of @r to be replaced: all of it, or what a cut at the end of the file leaves on the
 * wrong side, or all that is to be torn at @tear; NULL: nothing. @end: of the file, rounded up to
 * the granule.
 */
static struct dm_range *choose_locked(struct dm_core *c, struct dm_range *r, uint64_t end,
				      unsigned int how, uint64_t *tear_at, struct dm_fitted *out)
{
	uint64_t cut = r->offset + (end - r->file_offset);
	struct dm_range *pieces[3];

	if (DM_MUTATE(29))
		end += c->caps.granule;
	if (r->blank ? r->file_offset >= end : r->file_offset + r->len <= end) {
		if (r->blank)
			out->blank_from = MIN(out->blank_from, r->file_offset);
		return NULL;
	}
	if (!r->blank && !(how & DM_FIT_BLANK))
		return NULL;
	if (r->blank ? r->file_offset + r->len <= end : r->file_offset >= end)
		return r;
	/* The end lies inside. */
	if (dm_can(c, DM_WINDOW_SPLIT) && dm_budget_reserve(c, 1, c->budget.limit)) {
		bool was_blank = r->blank;

		dm_range_cut_locked(c, r, cut, dm_range_end(r), pieces);
		if (was_blank)
			out->blank_from = MIN(out->blank_from, pieces[1]->file_offset);
		r = pieces[was_blank ? 0 : 1];
		return r->state == DM_LIVE ? r : NULL;
	}
	if (DM_MUTATE(30))
		return r;
	if (may_tear(c, r, how)) {
		*tear_at = cut;
		return r;
	}
	out->left++;
	return r->blank ? r : NULL; /* its bytes in front of the end count */
}

/* The index's reference, no lock held. */
static void release_dropped(struct dm_core *c, struct dm_range *r)
{
	dm_budget_release(c, 1);
	dm_file_put(c, r->file);
	dm_range_unref(r);
}

/* True: @r was cut by somebody else meanwhile; there are pieces of it. */
static bool fit_range(struct dm_core *c, struct dm_range *r, uint64_t end, unsigned int how,
		      struct dm_fitted *out)
{
	struct swap s = {.c = c};
	struct dm_range *gone = NULL;
	enum outcome o = FIT_SAME;
	struct dm_claim cl;
	bool cut;

	/* A claim would withdraw its unmap. */
	if (dm_range_state(r) == DM_LINGERING || dm_range_state(r) == DM_UNMAPPING)
		return false;
	dm_claim_acquire_range(c, &cl, r);
	cut = r->state == DM_FREE;
	if (r->state == DM_LIVE)
		s.r = choose_locked(c, r, end, how, &s.tear, out);
	if (s.r) {
		s.was_blank = s.r->blank;
		s.blank = !s.was_blank;
		dm_range_ref(s.r);
		dm_range_close_locked(s.r);
		dm_stripes_unlock(c, cl.mask);
		o = run_swap(&s);
		dm_stripes_lock(c, cl.mask);
		if (s.tear && o != FIT_SAME)
			commit_torn_locked(&s, o, &gone);
		else
			commit_locked(&s, o);
		count_outcome(&s, o, out);
	}
	dm_claim_release(c, &cl);
	dm_stripes_unlock(c, cl.mask);
	dm_stripes_wake(c, cl.mask);
	if (!s.r)
		return cut;
	if (s.tear && o == FIT_SAME)
		dm_budget_release(c, 1);
	if (gone)
		release_dropped(c, gone);
	if (o == FIT_HOLE)
		release_dropped(c, s.r);
	dm_range_unref(s.r);
	return false;
}

int dm_host_fit(struct dm_table *t, struct dm_file_key file, uint64_t size, unsigned int how,
		struct dm_fitted *out)
{
	struct dm_core *c = dm_table_core(t);
	bool again = true;
	struct dm_vec v;
	uint64_t end;

	*out = (struct dm_fitted){.blank_from = UINT64_MAX};
	if (!util_round_up(size, c->caps.granule, &end))
		end = INT64_MAX;
	/* what was cut while we looked has left pieces: look once more */
	for (int round = 0; round < ROUNDS && again && !dm_core_broken(c); round++) {
		again = false;
		dm_vec_init(&v);
		dm_file_collect(c, file, &v);
		for (size_t i = 0; i < v.n; i++) {
			again |= fit_range(c, v.v[i], end, how, out);
			dm_range_unref(v.v[i]);
		}
		dm_vec_clear(&v);
	}
	return dm_core_broken(c) ? -EPIPE : out->err;
}
