// SPDX-License-Identifier: Apache-2.0
/*
 * The two indexes: by window offset, and by (file, offset).
 *
 * The window is an array of chunks (2 MiB in a window of 64 MiB and more, so that a Linux guest's
 * slot is one chunk). A chunk holds nothing, one range, or an immutable sorted list of the ranges
 * that touch it; a range longer than a chunk stands in several. Writers hold the chunk's stripe
 * and publish a new list; readers need RCU only. So the usual range costs 8 bytes of index and a
 * lookup is two loads; a chunk full of 4 KiB ranges costs a copy of its list at each change,
 * which is nothing beside a driver call.
 *
 * By (file, offset) ranges are found, in the guest seat only, at their first byte: in a hash table
 * of fixed size, as there are never more ranges than slots. It is not rculfhash, which cannot know
 * that: a lookup here is one load of the bucket and one line of the range, inlined into the hit.
 */
#include "dm_core.h"

#include <string.h>

struct dm_span {
	struct util_rcu_head rcu;
	size_t n;
	struct dm_range *r[];
};

static void span_free(struct util_rcu_head *head)
{
	g_free(caa_container_of(head, struct dm_span, rcu));
}

/* The entries of a chunk value; *@one is storage for the lone-range case. */
static struct dm_range *const *entries(uintptr_t v, struct dm_range **one, size_t *n)
{
	const struct dm_span *span;

	if (!(v & DM_SPAN_TAG)) {
		*one = (struct dm_range *)v;
		*n = v != 0;
		return one;
	}
	span = (const struct dm_span *)(v & ~DM_SPAN_TAG);
	*n = span->n;
	return span->r;
}

/* First entry that ends behind @offset, or *n. */
static size_t first_behind(struct dm_range *const *r, size_t n, uint64_t offset)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (dm_range_end(r[mid]) > offset)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

struct dm_range *dm_index_lookup_span(uintptr_t v, uint64_t offset)
{
	struct dm_range *one;
	struct dm_range *const *r;
	size_t n, i;

	r = entries(v, &one, &n);
	i = first_behind(r, n, offset);
	return i < n && r[i]->offset <= offset ? r[i] : NULL;
}

struct dm_range *dm_index_next(const struct dm_core *c, uint64_t offset, uint64_t limit)
{
	while (offset < limit) {
		uint64_t chunk = offset >> c->chunk_shift;
		uintptr_t v = __atomic_load_n(&c->chunks[chunk], __ATOMIC_ACQUIRE);
		struct dm_range *one;
		struct dm_range *const *r;
		size_t n, i;

		r = entries(v, &one, &n);
		i = first_behind(r, n, offset);
		if (i < n)
			return r[i]->offset < limit ? r[i] : NULL;
		offset = (chunk + 1) << c->chunk_shift;
	}
	return NULL;
}

void dm_index_collect(const struct dm_core *c, uint64_t lo, uint64_t hi, struct dm_vec *out)
{
	struct dm_range *r;

	while (lo < hi && (r = dm_index_next(c, lo, hi))) {
		dm_vec_add(out, r);
		lo = dm_range_end(r);
	}
}

static int by_offset(const void *a, const void *b)
{
	const struct dm_range *const *x = a, *const *y = b;

	return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static bool touches(const struct dm_range *r, uint64_t lo, uint64_t hi)
{
	return r->offset < hi && lo < dm_range_end(r);
}

/* Builds and publishes the new value of one chunk: old entries but those gone, and @add. */
static void chunk_rebuild(struct dm_core *c, uint64_t chunk, struct dm_range **add, size_t n_add)
{
	uint64_t lo = chunk << c->chunk_shift, hi = lo + c->chunk_size;
	uintptr_t old = c->chunks[chunk], new;
	struct dm_range *one;
	struct dm_range *const *r;
	struct dm_span *span;
	size_t n;

	r = entries(old, &one, &n);
	span = g_malloc(sizeof(*span) + (n + n_add) * sizeof(span->r[0]));
	span->n = 0;
	for (size_t i = 0; i < n; i++)
		if (!r[i]->gone)
			span->r[span->n++] = r[i];
	for (size_t i = 0; i < n_add; i++)
		if (touches(add[i], lo, hi))
			span->r[span->n++] = add[i];
	qsort(span->r, span->n, sizeof(span->r[0]), by_offset);

	if (span->n > 1)
		new = (uintptr_t)span | DM_SPAN_TAG;
	else
		new = span->n ? (uintptr_t)span->r[0] : 0;
	__atomic_store_n(&c->chunks[chunk], new, __ATOMIC_RELEASE);
	if (!(new &DM_SPAN_TAG))
		g_free(span);
	if (old & DM_SPAN_TAG)
		util_rcu_call(&((struct dm_span *)(old & ~DM_SPAN_TAG))->rcu, span_free);
}

/* The hash of the guest seat: chains that readers walk under RCU, writers under a bucket's lock. */

static struct util_mutex *hash_lock(struct dm_core *c, const struct dm_range *r)
{
	return &c->hash_locks[dm_file_hash(r->key, r->file_offset) & c->by_file_mask &
			      (DM_HASH_LOCKS - 1)];
}

void dm_index_init(struct dm_core *c)
{
	uint64_t n = DM_HASH_LOCKS;

	for (unsigned int i = 0; i < DM_HASH_LOCKS; i++)
		util_mutex_init(&c->hash_locks[i]);
	if (!c->seat)
		return;
	while (n < 4 * c->n_chunks) /* few chains: a branch that is guessed wrong costs 5 ns */
		n *= 2;
	c->by_file = g_new0(struct dm_range *, n);
	c->by_file_mask = n - 1;
}

void dm_index_destroy(struct dm_core *c)
{
	for (unsigned int i = 0; i < DM_HASH_LOCKS; i++)
		util_mutex_destroy(&c->hash_locks[i]);
	g_free(c->by_file);
	g_free(c->chunks);
}

static void hash_add(struct dm_core *c, struct dm_range *r)
{
	struct dm_range **head =
		&c->by_file[dm_file_hash(r->key, r->file_offset) & c->by_file_mask];
	struct util_mutex *lock = hash_lock(c, r);

	util_mutex_lock(lock);
	r->hash_next = *head;
	r->hash_prev = head;
	if (r->hash_next)
		r->hash_next->hash_prev = &r->hash_next;
	util_rcu_publish(*head, r);
	util_mutex_unlock(lock);
}

void dm_index_hide(struct dm_core *c, struct dm_range *r)
{
	struct util_mutex *lock = hash_lock(c, r);

	util_mutex_lock(lock);
	if (r->hash_prev) {
		/* who stands on r goes on from here */
		util_rcu_publish(*r->hash_prev, r->hash_next);
		if (r->hash_next)
			r->hash_next->hash_prev = r->hash_prev;
		r->hash_prev = NULL;
	}
	util_mutex_unlock(lock);
}

static void link_file(struct dm_core *c, struct dm_range *r, bool link)
{
	struct dm_file_stripe *s = dm_file_stripe(c, r->file->key);

	util_mutex_lock(&s->lock);
	if (link)
		cds_list_add_tail(&r->in_file, &r->file->ranges);
	else
		cds_list_del(&r->in_file);
	util_mutex_unlock(&s->lock);
	if (c->seat && link)
		hash_add(c, r);
	else if (c->seat)
		dm_index_hide(c, r);
}

void dm_index_update(struct dm_core *c, struct dm_range **del, size_t n_del, struct dm_range **add,
		     size_t n_add)
{
	uint64_t lo = UINT64_MAX, hi = 0;

	for (size_t i = 0; i < n_del; i++) {
		del[i]->gone = true;
		lo = MIN(lo, del[i]->offset);
		hi = MAX(hi, dm_range_end(del[i]));
	}
	for (size_t i = 0; i < n_add; i++) {
		dm_range_ref(add[i]);
		link_file(c, add[i], true);
		lo = MIN(lo, add[i]->offset);
		hi = MAX(hi, dm_range_end(add[i]));
	}
	if (lo < hi)
		for (uint64_t i = lo >> c->chunk_shift; i <= (hi - 1) >> c->chunk_shift; i++)
			chunk_rebuild(c, i, add, n_add);
	for (size_t i = 0; i < n_del; i++)
		link_file(c, del[i], false);
}
