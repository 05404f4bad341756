// SPDX-License-Identifier: Apache-2.0
/*
 * The host seat: the window's user picks the offsets. What comes in is a guest's, so every number
 * is checked and every order of calls is legal.
 *
 * A remove answers at once: the range lingers. It passes over bytes that a setup or a flush under
 * way has asked for: it may as well have come before those. A claim that merely grew to the range
 * does not answer the remove: that one, of a guest that maps pieces of a range and gives back
 * others at the same time, is waited for.
 */
#include "dm_core.h"

#include "dm_probe.h"
#include "util_overflow.h"
#include "util_yield.h"

struct dm_table {
	struct dm_core core;
};

struct dm_core *dm_table_core(struct dm_table *t)
{
	return &t->core;
}

struct dm_table *dm_table_new(struct dm_window *window, const struct dm_file_provider *provider,
			      const struct dm_table_config *config)
{
	struct dm_table *t = g_aligned_alloc0(1, sizeof(*t), 64);

	dm_core_init(&t->core, window, provider, config, NULL, 0);
	return t;
}

void dm_table_tune(struct dm_table *t, const struct dm_table_config *config)
{
	dm_drain_tune(&t->core, config);
}

void dm_table_free(struct dm_table *t)
{
	if (!t)
		return;
	dm_core_destroy(&t->core);
	g_aligned_free(t);
}

static int check_setup(const struct dm_core *c, uint64_t offset, uint64_t len, uint64_t file_offset)
{
	uint64_t granule = c->caps.granule, file_end;

	if (len == 0 || !util_is_aligned(offset, granule) || !util_is_aligned(len, granule) ||
	    !util_is_aligned(file_offset, granule))
		return -EINVAL;
	if (!util_range_inside(offset, len, c->caps.size) ||
	    !util_add_u64(file_offset, len, &file_end) || file_end > INT64_MAX)
		return -ERANGE;
	return 0;
}

int dm_host_setup(struct dm_table *t, uint64_t offset, uint64_t len, struct dm_file_key file,
		  uint64_t file_offset, bool write)
{
	struct dm_core *c = &t->core;
	uint64_t start = 0;
	int err;

	dm_count(c, DM_C_setups, 1);
	if (dm_core_broken(c))
		return -EPIPE;
	err = check_setup(c, offset, len, file_offset);
	if (err) {
		dm_count(c, DM_C_refused_bad, 1);
		return err;
	}
	DM_PROBE3(setup, offset, len, file_offset);
	if (G_UNLIKELY(__atomic_load_n(&c->trace, __ATOMIC_RELAXED)))
		start = util_now_ns();
	err = dm_plan_setup(c, offset, len, file, file_offset, write);
	if (start && !err) {
		struct dm_trace_event e = {
			.kind = DM_TRACE_SETUP,
			.offset = offset,
			.len = len,
			.file = file,
			.file_offset = file_offset,
			.ns = util_now_ns() - start,
		};

		dm_core_trace_event(c, &e);
	}
	return err;
}

static void remove_part_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi)
{
	uint32_t more = dm_range_pieces(r, lo, hi) - 1;
	bool left = r->offset < lo;
	struct dm_range *pieces[3];

	if (more && dm_can(c, DM_WINDOW_SPLIT) && dm_budget_reserve(c, more, c->budget.limit)) {
		dm_range_cut_locked(c, r, lo, hi, pieces);
		r = pieces[left];
		if (r->state != DM_LIVE) /* the owner had nothing of it */
			return;
	} else if (!dm_range_take_locked(c, r, lo, hi)) {
		return;
	}
	dm_range_give_back_locked(c, r, true);
}

/* Gives back what can be; returns a claim that must be waited for before the rest can. */
static const struct dm_claim *remove_locked(struct dm_core *c, uint64_t lo, uint64_t hi)
{
	const struct dm_claim *wait = NULL, *x;
	struct dm_vec found;

	dm_vec_init(&found);
	dm_index_collect(c, lo, hi, &found);
	for (size_t i = 0; i < found.n; i++) {
		struct dm_range *r = found.v[i];

		if (r->state != DM_LIVE)
			continue;
		if (!dm_claimed(c, r->offset, dm_range_end(r))) {
			remove_part_locked(c, r, lo, hi);
			continue;
		}
		x = dm_claim_in_the_way(c, r, lo, hi);
		if (x && dm_range_owned(c, r, lo, hi))
			wait = x;
	}
	dm_vec_clear(&found);
	return wait;
}

static void remove_lazily(struct dm_core *c, uint64_t lo, uint64_t hi)
{
	const struct dm_claim *wait;

	do {
		uint64_t mask = dm_lock_extent(c, lo, hi);

		wait = remove_locked(c, lo, hi);
		if (wait)
			dm_claim_wait(c, mask, wait);
		else
			dm_stripes_unlock(c, mask);
	} while (wait);
	dm_drain_kick(c);
}

int dm_host_remove(struct dm_table *t, uint64_t offset, uint64_t len)
{
	struct dm_core *c = &t->core;
	uint64_t end;

	dm_count(c, DM_C_removes, 1);
	if (dm_core_broken(c))
		return -EPIPE;
	if (!util_add_u64(offset, len, &end) || end > c->caps.size)
		end = c->caps.size;
	if (!util_is_aligned(offset, c->caps.granule) || !util_is_aligned(end, c->caps.granule)) {
		dm_count(c, DM_C_refused_bad, 1);
		return -EINVAL;
	}
	if (offset >= end)
		return 0;
	DM_PROBE2(remove, offset, len);
	if (!c->forward) {
		remove_lazily(c, offset, end);
		return 0;
	}
	/* refused by the driver: it lingers, and the owner has let go all the same */
	return dm_unmap_extent(c, offset, end, false) == -EPIPE ? -EPIPE : 0;
}

int dm_host_flush_file(struct dm_table *t, struct dm_file_key file, bool live)
{
	int err;

	if (dm_core_broken(&t->core))
		return -EPIPE;
	err = dm_unmap_file(&t->core, file, live);
	if (err) /* what the driver refused lingers */
		dm_drain_kick(&t->core);
	return err;
}

int dm_host_flush(struct dm_table *t)
{
	int err;

	if (dm_core_broken(&t->core))
		return -EPIPE;
	err = dm_unmap_extent(&t->core, 0, t->core.caps.size, true);
	if (err) /* what the driver refused lingers */
		dm_drain_kick(&t->core);
	return err;
}

void dm_host_forget(struct dm_table *t)
{
	dm_core_drop_all(&t->core);
}

bool dm_host_broken(struct dm_table *t)
{
	return dm_core_broken(&t->core);
}

/*
 * The range at @offset, pinned. One that is closed may have been cut: then the index has a piece
 * of it by now. Closed and still in the index: not the owner's.
 */
static inline struct dm_range *pin_at(struct dm_core *c, uint64_t offset, unsigned int shard)
{
	uint64_t lo = UINT64_MAX, hi = 0;
	struct dm_range *last = NULL, *r;

	util_rcu_read_lock();
	while ((r = dm_index_lookup(c, offset)) && r != last) {
		util_yield();
		if (dm_cell_pin(r->cell, shard))
			break;
		last = r;
		lo = MIN(lo, r->offset);
		hi = MAX(hi, dm_range_end(r));
	}
	if (r == last)
		r = NULL;
	util_rcu_read_unlock();
	if (G_UNLIKELY(hi)) /* those that failed */
		dm_range_wake_closer(c, lo, hi);
	return r;
}

int dm_host_pin(struct dm_table *t, uint64_t offset, uint64_t len, struct dm_pin *pin)
{
	struct dm_core *c = &t->core;
	unsigned int shard = dm_thread_shard();
	struct dm_range *r;
	uint64_t run;

	if (offset >= c->caps.size || dm_core_broken(c))
		return -EFAULT;
	r = pin_at(c, offset, shard);
	if (!r)
		return -EFAULT;
	run = dm_range_owned_run(c, r, offset);
	if (run == 0) {
		dm_range_unpin(c, r);
		return -EFAULT;
	}
	*pin = (struct dm_pin){
		.fd = r->file->fd,
		.writable = r->file->writable,
		.file_offset = r->file_offset + (offset - r->offset),
		.len = MIN(len, run),
		.addr = c->base ? (char *)c->base + offset : NULL,
		.range = r,
	};
	dm_count_by(c, shard, DM_C_pins, 1);
	dm_core_trace(c, DM_TRACE_PIN, r, 0);
	return 0;
}

void dm_host_unpin(struct dm_table *t, struct dm_pin *pin)
{
	dm_range_unpin(&t->core, pin->range);
	pin->range = NULL;
}

void dm_table_stats(struct dm_table *t, struct dm_stats *out)
{
	dm_core_stats(&t->core, out);
}

void dm_table_foreach(struct dm_table *t, void (*fn)(void *ctx, const struct dm_range_info *r),
		      void *ctx)
{
	struct dm_core *c = &t->core;
	struct dm_range_info info;
	uint64_t pos = 0;
	struct dm_range *r;

	while (pos < c->caps.size) {
		util_rcu_read_lock();
		r = dm_index_next(c, pos, c->caps.size);
		if (r)
			info = (struct dm_range_info){
				.offset = r->offset,
				.len = r->len,
				.file = r->file->key,
				.file_offset = r->file_offset,
				.pins = dm_range_pins(r),
				.blank = __atomic_load_n(&r->blank, __ATOMIC_RELAXED),
				.state = dm_state_name(dm_range_state(r)),
			};
		util_rcu_read_unlock();
		if (!r)
			return;
		fn(ctx, &info);
		pos = info.offset + info.len;
	}
}

static void add_range(GHashTable *files, const struct dm_range *r)
{
	struct dm_file *f = r->file;
	struct dm_file_info *info = g_hash_table_lookup(files, f);

	if (!info) {
		info = g_new0(struct dm_file_info, 1);
		info->file = f->key;
		g_hash_table_insert(files, f, info);
	}
	info->ranges++;
	info->bytes += r->len;
	info->live_bytes += dm_range_state(r) == DM_LIVE ? r->len : 0;
	info->pins += dm_range_pins(r);
#define LOAD(x) info->counts.x = __atomic_load_n(&f->counts.x, __ATOMIC_RELAXED)
	LOAD(setups);
	LOAD(revived);
	LOAD(removed);
	LOAD(maps);
	LOAD(map_ns);
#undef LOAD
}

/* Files by address: one that goes and comes meanwhile may be shown twice, or share a line with
 * another that got its memory. */
void dm_table_foreach_file(struct dm_table *t, void (*fn)(void *ctx, const struct dm_file_info *f),
			   void *ctx)
{
	GHashTable *files = g_hash_table_new_full(NULL, NULL, NULL, g_free);
	struct dm_core *c = &t->core;
	uint64_t pos = 0;
	GHashTableIter it;
	struct dm_range *r;
	gpointer info;

	while (pos < c->caps.size) {
		util_rcu_read_lock();
		r = dm_index_next(c, pos, c->caps.size);
		if (r) {
			add_range(files, r);
			pos = dm_range_end(r);
		}
		util_rcu_read_unlock();
		if (!r)
			break;
	}
	g_hash_table_iter_init(&it, files);
	while (g_hash_table_iter_next(&it, NULL, &info))
		fn(ctx, info);
	g_hash_table_destroy(files);
}

void dm_table_set_trace(struct dm_table *t, const struct dm_trace *trace)
{
	util_rcu_publish(t->core.trace, trace);
	util_rcu_synchronize();
}
