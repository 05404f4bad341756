/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core that both seats share: ranges and their life, the two indexes, file keys, the budget,
 * the channel to the driver, the glue to reclaim. Theory of operation: dm_core.c.
 */
#ifndef DAXMAP_DM_CORE_H
#define DAXMAP_DM_CORE_H

#include <errno.h>

#include <daxmap/file.h>
#include <daxmap/stats.h>
#include <daxmap/table.h>
#include <daxmap/trace.h>
#include <daxmap/window.h>

#include <glib.h>

#include "dm_locks.h"
#include "dm_mutate.h"
#include "dm_pin.h"
#include "dm_vec.h"
#include "rc.h"
#include "util_rcu.h"

/**
 * enum dm_state - the life of a range
 * @DM_FREE: not in the index; only its last holders still see it
 * @DM_MAPPING: not in the index; its claim holds the extent. Becomes LIVE or FREE
 * @DM_LIVE: the owner has it (all, or where .owned says so). May be pinned. Becomes LINGERING
 * @DM_LINGERING: the VMM has it, the owner does not. Older pins may still be held; no new ones.
 *                In the reclaim set. Becomes LIVE (revived) or UNMAPPING
 * @DM_UNMAPPING: claimed for an unmap or for a map over it; no pins. Becomes FREE, or LINGERING
 *                when the driver refused or the unmap was withdrawn
 */
enum dm_state {
	DM_FREE,
	DM_MAPPING,
	DM_LIVE,
	DM_LINGERING,
	DM_UNMAPPING,
	DM_STATE_COUNT,
};

const char *dm_state_name(enum dm_state s);

/**
 * struct dm_range - one mapping of the driver, and what its owner has of it
 * @offset: window, bytes; constant, as is all of the extent: a cut makes new ranges
 * @len: bytes
 * @file_offset: bytes
 * @file: holds one reference of it until the range is dropped; readable in a read section later
 * @cell: its pins, and whether new ones may come; dm_pin.h
 * @refs: of the object: the index, children, whoever looks at it without a lock
 * @state: enum dm_state; written under all its stripes
 * @flags: enum dm_map_flags as mapped
 * @asked_write: a setup has asked for writing
 * @withdrawn: its queued unmap was just withdrawn
 * @blank: the driver has zeros there, not the file (dm_fit.c); written under stripes and a claim
 * @owned: NULL = all of it when LIVE, none otherwise; else one bit a granule. Set once, bits
 *         change under its stripes, read by pins without
 * @n_owned: bits set
 * @parent: the range that this was cut from, while that one may still be pinned; under stripes
 * @rc: place in the reclaim set while LINGERING; in the guest seat while LIVE, too
 * @hash_next, @hash_prev: (file, file_offset) index, guest seat only; hash_prev NULL = not in it
 * @key: the file's
 * @in_file: list of the file's ranges; under the file stripe
 * @core: the table's, for the cell to go back to
 */
struct dm_range {
	/* what a lookup reads: constant while a reader may find it, but for the link */
	struct dm_range *hash_next;
	struct dm_file_key key;
	uint64_t file_offset;
	uint64_t offset;
	uint64_t len;
	uint32_t *cell;
	uint8_t flags;
	uint8_t state;
	bool asked_write;
	bool withdrawn;
	bool blank;
	bool gone; /* scratch of dm_index_update() */
	/* and a pin in the host's seat */
	struct dm_file *file __attribute__((aligned(64)));
	unsigned long *owned;
	struct dm_range **hash_prev;
	struct rc_node rc;
	uint32_t refs;
	uint32_t n_owned;
	struct dm_range *parent;
	struct dm_core *core;
	struct cds_list_head in_file;
	struct util_rcu_head rcu;
};

#define DM_FILE_PAST 64

enum dm_file_state { DM_FILE_OPENING, DM_FILE_OPEN, DM_FILE_CLOSING };

/**
 * struct dm_file - one open file
 * @refs: its ranges, and setups under way; under the file stripe
 * @state: OPENING and CLOSING are claims of the thread that calls the provider
 * @counts: atomic
 */
struct dm_file {
	struct dm_file_key key;
	int fd;
	bool writable;
	enum dm_file_state state;
	uint32_t refs;
	struct cds_list_head ranges;
	struct dm_file_counts counts;
	struct util_rcu_head rcu;
};

/**
 * struct dm_file_stripe - a part of the files, by key
 * @past: the counts of files that were closed, for when they are opened again: a file that
 *        thrashes may have no range for a moment. Direct-mapped: who needs the place takes it
 */
struct dm_file_stripe {
	struct util_mutex lock;
	struct util_cond cond;
	GHashTable *files;
	struct {
		struct dm_file_key key;
		struct dm_file_counts counts;
	} past[DM_FILE_PAST];
} __attribute__((aligned(64)));

/* Counters: sharded by thread. Gauges among them are sums of +1 and -1. */
enum dm_counter {
#define X(name, kind, help) DM_C_##name,
	DM_STATS(X)
#undef X
		DM_C_COUNT,
};

#define DM_HASH_LOCKS 16

struct dm_counters {
	uint64_t v[DM_C_COUNT];
	uint64_t hist[DM_HIST_BUCKETS];
} __attribute__((aligned(64)));

/**
 * struct dm_budget - how many mappings the driver may hold for us
 * @bytes: mapped now
 * @mapped: reserved or mapped now
 * @limit: an asker gets ENOMEM above this
 * @hard: what the other side survives; only a map sent behind the unmap that makes room for it
 *        may reserve up to here
 */
struct dm_budget {
	uint64_t bytes;
	uint32_t mapped;
	uint32_t peak;
	uint32_t limit;
	uint32_t hard;
	uint32_t unmapping; /* ranges on their way out: each will make room, or linger again */
	uint32_t events;    /* grows with all that a sleeper may wait for */
	uint32_t waiters;
	struct util_mutex lock;
	struct util_cond cond;
};

/**
 * struct dm_chan_op - one operation of a request
 * @w: as the driver gets it; result filled in
 * @cancelled: withdrawn before it was sent; w.result is meaningless
 */
struct dm_chan_op {
	struct dm_window_op w;
	bool cancelled;
};

enum dm_req_phase { DM_REQ_NEW, DM_REQ_QUEUED, DM_REQ_SENT, DM_REQ_DONE };

/** struct dm_chan_request - what one asker wants of the driver, in order */
struct dm_chan_request {
	struct cds_list_head link;
	struct dm_chan_op *ops;
	size_t n;
	bool has_map;
	bool ordered; /* its operations depend on each other: do not reorder or join */
	bool patient; /* nobody waits: may be kept until no map is likely to come meanwhile */
	bool lead;
	enum dm_req_phase phase;
	int rc;
	uint64_t ns; /* out: how long it took */
	struct util_cond cond;
};

struct dm_chan {
	struct util_mutex lock;
	struct cds_list_head maps;
	struct cds_list_head unmaps;
	struct cds_list_head patient;
	bool busy;
	unsigned int owed;	  /* rounds of maps that have overtaken patient unmaps */
	uint64_t map_end_ns;	  /* when the last round of maps came back ... */
	uint64_t map_ns;	  /* ... and how long it took */
	unsigned int passed_over; /* times that maps were preferred to queued unmaps */
};

/**
 * struct dm_seat_ops - what the guest seat does otherwise than the host seat; all may be NULL
 * @gate: asked before a victim is claimed, no lock held; false = it is in use
 * @freed: the driver has nothing at @offset any more; no lock held
 * @unpinned: the last pin of the closed range at @offset has gone; no lock held
 *
 * In the guest seat LIVE ranges stand in the reclaim set, and one without pins may be evicted: it
 * leaves the file index at once, so that a miss of the same bytes goes elsewhere.
 */
struct dm_seat_ops {
	bool (*gate)(struct dm_core *c, struct dm_range *r);
	void (*freed)(struct dm_core *c, uint64_t offset);
	void (*unpinned)(struct dm_core *c, uint64_t offset);
};

struct dm_core {
	/* what a hit reads; nothing here changes but .broken and .trace */
	struct dm_window *window;
	const struct dm_seat_ops *seat; /* NULL: the host seat */
	struct dm_window_caps caps;
	void *base;
	uintptr_t *chunks;	   /* NULL, a range, or a dm_span | 1 */
	struct dm_range **by_file; /* buckets; guest seat only */
	uint64_t by_file_mask;
	const struct dm_trace *trace;
	unsigned int chunk_shift;
	bool broken;
	bool forward;
	uint64_t chunk_size;
	uint64_t n_chunks;
	struct dm_file_provider provider;
	/* what changes with each setup */
	uint64_t claim_seq __attribute__((aligned(64)));
	uint64_t pin_wait_ns;
	struct dm_budget budget;
	struct dm_chan chan;
	struct rc_set *lingering;
	struct rc_worker *worker;
	struct rc_marks marks;
	struct rc_cost cost;
	struct util_mutex hash_locks[DM_HASH_LOCKS];
	struct dm_cells cells;
	struct util_mutex orphans_lock;
	struct dm_vec orphans; /* host seat: dropped, but pinned: they hold their files */
	size_t n_orphans;      /* read without the lock */
	struct dm_stripe stripes[DM_STRIPES];
	struct dm_file_stripe file_stripes[DM_FILE_STRIPES];
	struct dm_counters counters[DM_SHARDS];
};

static inline bool dm_can(const struct dm_core *c, uint32_t flag)
{
	return c->caps.flags & flag;
}

/* dm_core.c */
/** dm_core_init() - @seat: NULL for the host seat; @chunk: of the window index, a power of two; 0
 * = chosen. */
void dm_core_init(struct dm_core *c, struct dm_window *window,
		  const struct dm_file_provider *provider, const struct dm_table_config *config,
		  const struct dm_seat_ops *seat, uint64_t chunk);
void dm_core_destroy(struct dm_core *c);
/** dm_core_drop_all() - forgets every range; the driver hears nothing. Waits for pins, but not for
 * ever: what is pinned then is an orphan until the unpin. */
void dm_core_drop_all(struct dm_core *c);
/** dm_core_put_orphans() - lets go of those that are pinned no more; no lock held. */
void dm_core_put_orphans(struct dm_core *c);
static inline bool dm_core_broken(const struct dm_core *c)
{
	return __atomic_load_n(&c->broken, __ATOMIC_SEQ_CST);
}
void dm_core_stats(struct dm_core *c, struct dm_stats *out);
/** dm_core_check() - asserts every invariant of the table that can be seen from inside. Takes
 * all stripes. */
void dm_core_check(struct dm_core *c);
struct dm_core *dm_table_core(struct dm_table *t);
void dm_core_trace_slow(struct dm_core *c, enum dm_trace_kind kind, const struct dm_range *r,
			uint64_t ns);
static inline void dm_core_trace(struct dm_core *c, enum dm_trace_kind kind,
				 const struct dm_range *r, uint64_t ns)
{
	if (G_UNLIKELY(__atomic_load_n(&c->trace, __ATOMIC_RELAXED)))
		dm_core_trace_slow(c, kind, r, ns);
}
/** dm_core_trace_event() - as dm_core_trace(), with an event of one's own. */
void dm_core_trace_event(struct dm_core *c, struct dm_trace_event *e);

/* dm_stats.c */
static inline void dm_count_by(struct dm_core *c, unsigned int shard, enum dm_counter what,
			       uint64_t n)
{
	uint64_t *v = &c->counters[shard].v[what];

	if (G_LIKELY(dm_shard_is_own(shard)))
		__atomic_store_n(v, __atomic_load_n(v, __ATOMIC_RELAXED) + n, __ATOMIC_RELEASE);
	else
		__atomic_fetch_add(v, n, __ATOMIC_RELEASE);
}

static inline void dm_count(struct dm_core *c, enum dm_counter what, uint64_t n)
{
	dm_count_by(c, dm_thread_shard(), what, n);
}

void dm_count_latency(struct dm_core *c, uint64_t ns);

/* dm_budget.c */
void dm_budget_init(struct dm_core *c, uint32_t limit);
/** dm_budget_reserve() - room for @n more mappings under @limit? Then they are reserved. */
bool dm_budget_reserve(struct dm_core *c, uint32_t n, uint32_t limit);
void dm_budget_release(struct dm_core *c, uint32_t n);
/** dm_budget_wait() - sleeps while .events is @seen_events; false at @deadline_ns. */
bool dm_budget_wait(struct dm_core *c, uint32_t seen_events, uint64_t deadline_ns);
void dm_budget_wake(struct dm_core *c);
/**
 * dm_budget_unmapping() - a range is about to leave the reclaim set to be unmapped
 *
 * Who needs room gives up when nothing lingers and nothing is on its way out. So a range counts
 * here before it leaves the set, and until it has been released, or lingers again:
 * dm_budget_unmapped().
 */
void dm_budget_unmapping(struct dm_core *c);
void dm_budget_unmapped(struct dm_core *c, uint32_t n);

/* dm_index.c: lookups under RCU or under the stripes of the place looked at. */
#define DM_SPAN_TAG ((uintptr_t)1)
struct dm_range *dm_index_lookup_span(uintptr_t v, uint64_t offset);
static inline struct dm_range *dm_index_lookup(const struct dm_core *c, uint64_t offset)
{
	uintptr_t v = __atomic_load_n(&c->chunks[offset >> c->chunk_shift], __ATOMIC_ACQUIRE);
	struct dm_range *r = (struct dm_range *)v;

	if (v & DM_SPAN_TAG)
		return dm_index_lookup_span(v, offset);
	return r && offset - r->offset < r->len ? r : NULL;
}
/** dm_index_next() - the range at or behind @offset and below @limit, or NULL; under the
 * stripes of [offset, limit), or in a read section (then a snapshot). */
struct dm_range *dm_index_next(const struct dm_core *c, uint64_t offset, uint64_t limit);
/** dm_index_collect() - appends the ranges that reach into [lo, hi), in window order. */
void dm_index_collect(const struct dm_core *c, uint64_t lo, uint64_t hi, struct dm_vec *out);
/**
 * dm_index_update() - replaces @del by @add, for a reader at once in each chunk
 *
 * All their stripes are locked. Files' lists and the file index follow. The references that
 * the index held on @del pass to the caller.
 */
void dm_index_update(struct dm_core *c, struct dm_range **del, size_t n_del, struct dm_range **add,
		     size_t n_add);
static inline uint64_t dm_file_hash(struct dm_file_key key, uint64_t file_offset)
{
	/* the upper half of a product hangs on all bits; offsets are multiples of the slot */
	return (key.hi * UINT64_C(0x9e3779b97f4a7c15) + key.lo * UINT64_C(0xc2b2ae3d27d4eb4f) +
		file_offset * UINT64_C(0x165667b19e3779f9)) >>
	       32;
}
/** dm_index_by_file() - guest seat: a range that starts at @file_offset of the file; read
 * section. */
static inline struct dm_range *dm_index_by_file(const struct dm_core *c, struct dm_file_key key,
						uint64_t file_offset)
{
	struct dm_range *r =
		util_rcu_deref(c->by_file[dm_file_hash(key, file_offset) & c->by_file_mask]);

	while (G_LIKELY(r) &&
	       G_UNLIKELY(r->file_offset != file_offset || !dm_file_key_equal(r->key, key)))
		r = util_rcu_deref(r->hash_next);
	return r;
}
void dm_index_init(struct dm_core *c);
void dm_index_destroy(struct dm_core *c);
/** dm_index_hide() - takes it out of the file index only; under its stripes. */
void dm_index_hide(struct dm_core *c, struct dm_range *r);

/* dm_file.c */
int dm_file_get(struct dm_core *c, struct dm_file_key key, struct dm_file **out);
void dm_file_ref(struct dm_core *c, struct dm_file *f);
/** dm_file_put() - may call the provider: no lock held. */
void dm_file_put(struct dm_core *c, struct dm_file *f);
struct dm_file_stripe *dm_file_stripe(struct dm_core *c, struct dm_file_key key);
/** dm_file_collect() - appends a reference to each range of the file. */
void dm_file_collect(struct dm_core *c, struct dm_file_key key, struct dm_vec *out);
void dm_files_init(struct dm_core *c);
void dm_files_destroy(struct dm_core *c);

/* dm_range.c: functions with _locked want the stripes of the range. */
struct dm_range *dm_range_new(struct dm_core *c, struct dm_file *file, uint64_t offset,
			      uint64_t len, uint64_t file_offset);
void dm_range_ref(struct dm_range *r);
void dm_range_unref(struct dm_range *r);
static inline uint64_t dm_range_end(const struct dm_range *r)
{
	return r->offset + r->len;
}
static inline enum dm_state dm_range_state(const struct dm_range *r)
{
	return (enum dm_state)__atomic_load_n(&r->state, __ATOMIC_RELAXED);
}
static inline void dm_range_set_state(struct dm_range *r, enum dm_state s)
{
	__atomic_store_n(&r->state, (uint8_t)s, __ATOMIC_RELAXED);
}
uint64_t dm_range_mask(const struct dm_core *c, const struct dm_range *r);
static inline bool dm_range_closed(const struct dm_range *r)
{
	return dm_cell_closed(r->cell);
}
/** dm_range_wake_closer() - a pin of a closed range has gone, or failed. */
void dm_range_wake_closer(struct dm_core *c, uint64_t offset, uint64_t end);
static inline void dm_range_unpin(struct dm_core *c, struct dm_range *r)
{
	uint64_t offset = r->offset, end = r->offset + r->len;

	/* the range may be gone afterwards */
	if (G_UNLIKELY(dm_cell_unpin(r->cell, dm_thread_shard())))
		dm_range_wake_closer(c, offset, end);
}
/** dm_range_pinned_locked() - exact once it is closed; one of its stripes is locked. */
bool dm_range_pinned_locked(struct dm_range *r);
/** dm_range_pins() - how many, about; no lock needed. */
uint32_t dm_range_pins(const struct dm_range *r);
void dm_range_close_locked(struct dm_range *r);
void dm_range_open_locked(struct dm_range *r);
/** dm_range_wait_unpinned() - the range is closed and claimed by the caller; no lock held.
 * False at the deadline. */
bool dm_range_wait_unpinned(struct dm_core *c, struct dm_range *r, uint64_t deadline_ns);
/** dm_range_owned() - does the owner have any byte of [lo, hi) (clipped to the range)? */
bool dm_range_owned(const struct dm_core *c, const struct dm_range *r, uint64_t lo, uint64_t hi);
/** dm_range_owned_run() - how many bytes from @lo on the owner has. */
uint64_t dm_range_owned_run_map(const struct dm_core *c, const struct dm_range *r, uint64_t lo);
static inline uint64_t dm_range_owned_run(const struct dm_core *c, const struct dm_range *r,
					  uint64_t lo)
{
	if (G_UNLIKELY(__atomic_load_n(&r->owned, __ATOMIC_ACQUIRE)))
		return dm_range_owned_run_map(c, r, lo);
	return r->offset + r->len - lo;
}
/** dm_range_give_locked() - the owner has [lo, hi) of it now (clipped). */
void dm_range_give_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi);
/** dm_range_take_locked() - the owner gave [lo, hi) back; true when nothing is left. */
bool dm_range_take_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi);
/** dm_range_give_back_locked() - LIVE -> LINGERING; counted as removed. Joins the reclaim set
 * when @linger. */
void dm_range_give_back_locked(struct dm_core *c, struct dm_range *r, bool linger);
/** dm_range_revive_locked() - LINGERING -> LIVE with all bytes, or with [lo, hi) only. */
void dm_range_revive_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi);
void dm_range_linger_locked(struct dm_core *c, struct dm_range *r);
void dm_range_unlinger_locked(struct dm_core *c, struct dm_range *r);
/**
 * dm_range_cut_locked() - cuts @r at @lo and @hi into up to three; @pieces gets them in order
 *
 * The budget for the additional pieces is reserved already. Old pins stay good: the pieces count
 * as pinned while @r is. Returns how many pieces, at least 2.
 */
size_t dm_range_cut_locked(struct dm_core *c, struct dm_range *r, uint64_t lo, uint64_t hi,
			   struct dm_range *pieces[3]);
/** dm_range_pieces() - how many pieces that cut would make. */
unsigned int dm_range_pieces(const struct dm_range *r, uint64_t lo, uint64_t hi);
/** dm_range_dropped_locked() - the driver does not have it any more: books only. The caller
 * takes it out of the index, and puts file and range once unlocked. */
void dm_range_dropped_locked(struct dm_core *c, struct dm_range *r);

/* dm_submit.c */
void dm_chan_init(struct dm_chan *ch);
void dm_chan_destroy(struct dm_chan *ch);
/**
 * dm_submit() - has the driver do @req, with whatever others have queued; no lock held
 *
 * Returns 0 or -EPIPE (the table is then broken). Results are in the operations.
 */
int dm_submit(struct dm_core *c, struct dm_chan_request *req);
#define DM_PATIENT_MAX 4
/** dm_chan_owed() - how many unmaps the next patient request should hold: 1 to DM_PATIENT_MAX. */
size_t dm_chan_owed(struct dm_core *c);
/** dm_submit_cancel() - withdraws one operation; false when it has been sent already. */
bool dm_submit_cancel(struct dm_core *c, struct dm_chan_request *req, uint32_t slot);

/* dm_plan.c */
int dm_plan_setup(struct dm_core *c, uint64_t offset, uint64_t len, struct dm_file_key file,
		  uint64_t file_offset, bool write);

/* dm_unmap.c */
/** struct dm_evict - a batch of claimed victims on its way to the driver */
struct dm_evict {
	size_t n;
	size_t max;
	struct dm_claim *claims;
	struct dm_range **ranges;
	struct dm_chan_op *ops;
	bool withdrawable;
	struct dm_chan_request req;
};
/** dm_evict_init() - room for @max; @withdrawable: a setup may take them back while queued. */
void dm_evict_init(struct dm_evict *e, size_t max, bool withdrawable);
void dm_evict_destroy(struct dm_evict *e);
/** dm_evict_try() - claims a LINGERING range; -EBUSY pinned, -EAGAIN claimed, -ENOENT changed. */
int dm_evict_try(struct dm_core *c, struct dm_evict *e, struct dm_range *r);
/**
 * dm_first_err() - the error of several steps: @err, the first one, unless a later one (@now) says
 * that the channel is broken, which outweighs any other.
 */
static inline int dm_first_err(int err, int now)
{
	return err == 0 || now == -EPIPE ? now : err;
}

/** dm_evict_finish() - books what e->ops say; @by: the counter of ranges that went. */
int dm_evict_finish(struct dm_core *c, struct dm_evict *e, enum dm_counter by);
/** dm_evict_run() - submits and finishes. Returns the first error. */
int dm_evict_run(struct dm_core *c, struct dm_evict *e, enum dm_counter by);
/** dm_evict_oldest() - claims up to @want victims that linger since before @before_ns. */
size_t dm_evict_oldest(struct dm_core *c, struct dm_evict *e, size_t want, uint64_t before_ns,
		       size_t *busy);
/** dm_unmap_begin_locked() - LIVE or LINGERING -> UNMAPPING, under the caller's claim, who calls
 * dm_budget_unmapped() in the end. */
void dm_unmap_begin_locked(struct dm_core *c, struct dm_range *r);
/**
 * dm_unmap_claimed() - unmaps ranges that the caller has begun to, and waits for pins
 *
 * No lock held. Those that the driver refused linger, and so do those that are still pinned after
 * .pin_wait_ns (EBUSY).
 */
int dm_unmap_claimed(struct dm_core *c, struct dm_vec *ranges);
int dm_unmap_file(struct dm_core *c, struct dm_file_key file, bool live);
int dm_unmap_extent(struct dm_core *c, uint64_t lo, uint64_t hi, bool all);

/* dm_drain.c */
void dm_drain_init(struct dm_core *c, const struct dm_table_config *config);
void dm_drain_destroy(struct dm_core *c);
void dm_drain_tune(struct dm_core *c, const struct dm_table_config *config);
/** dm_drain_kick() - a range has begun to linger, or more is mapped while some do; no lock needed.
 */
void dm_drain_kick(struct dm_core *c);

#endif
