/* SPDX-License-Identifier: Apache-2.0 */
/* The guest seat from inside. Theory of operation: dm_cache.c. */
#ifndef DAXMAP_DM_CACHE_H
#define DAXMAP_DM_CACHE_H

#include <daxmap/cache.h>

#include "dm_core.h"

#define DM_MAGAZINE 8
#define DM_JOINS 32

/** struct dm_magazine - free slots that a thread has at hand */
struct dm_magazine {
	struct util_mutex lock;
	uint32_t n;
	uint32_t slots[DM_MAGAZINE];
} __attribute__((aligned(64)));

/**
 * struct dm_slots - free slots: nothing is mapped there, and nobody else has them
 * @n: all there are; constant
 * @load: how many a magazine takes at once; 0 = no magazines
 * @free: in FIFO and magazines
 * @ring: the FIFO, @count from @head on
 */
struct dm_slots {
	uint32_t n;
	uint32_t load;
	uint32_t free;
	uint32_t head;
	uint32_t count;
	uint32_t *ring;
	struct util_mutex lock;
	struct dm_magazine magazines[DM_SHARDS];
};

/** struct dm_miss - a slot's worth of a file that somebody is mapping; others wait for it */
struct dm_miss {
	struct cds_list_head link;
	struct dm_file_key file;
	uint64_t offset;
	uint32_t refs;
	bool done;
	int err;
};

struct dm_join {
	struct util_mutex lock;
	struct util_cond cond;
	struct cds_list_head misses;
} __attribute__((aligned(64)));

/**
 * struct dm_choice - map over a victim, or unmap it ahead?
 * @over_ns: moving average of a map over a victim
 * @free_ns: of a map where nothing is
 * @unmap_ns: of an unmap, each of a batch
 * @misses: when to try the other way
 * @early: what is done now
 */
struct dm_choice {
	uint64_t over_ns;
	uint64_t free_ns;
	uint64_t unmap_ns;
	uint32_t misses;
	bool early;
};

/** struct dm_sleep - getters that found every slot in use */
struct dm_sleep {
	uint32_t waiters; /* read by each put */
	uint32_t events __attribute__((aligned(64)));
	struct util_mutex lock;
	struct util_cond cond;
} __attribute__((aligned(64)));

struct dm_vanilla;

struct dm_cache {
	struct dm_core core;
	uint64_t slot_size;
	struct dm_range **orphans; /* by slot: forgotten, but with pins; under its stripe */
	struct dm_vanilla *vanilla;
	struct dm_cache_config config;
	bool ended; /* forgotten, and no new session yet */
	struct dm_sleep sleep;
	struct dm_choice choice __attribute__((aligned(64)));
	struct dm_slots slots;
	struct dm_join joins[DM_JOINS];
};

/** struct dm_place - a slot to map into, perhaps with a victim in it */
struct dm_place {
	uint64_t offset;
	bool victim; /* evict.ranges[0], claimed */
	struct dm_evict evict;
};

struct dm_core *dm_cache_core(struct dm_cache *c);

static inline struct dm_cache *dm_cache_of(struct dm_core *core)
{
	return caa_container_of(core, struct dm_cache, core);
}

static inline bool dm_cache_dead(const struct dm_cache *c)
{
	return dm_core_broken(&c->core) || __atomic_load_n(&c->ended, __ATOMIC_SEQ_CST);
}

static inline void dm_cache_touch(struct dm_range *r)
{
	if (!__atomic_load_n(&r->rc.referenced, __ATOMIC_RELAXED))
		__atomic_store_n(&r->rc.referenced, true, __ATOMIC_RELAXED);
}

/**
 * dm_cache_lookup() - the open range of these bytes, pinned, or NULL
 * @failed: on NULL, slot_size bytes of the window in which a pin has failed, or UINT64_MAX: then
 *	    the caller calls dm_cache_failed() once it holds no lock
 */
static inline __attribute__((always_inline)) struct dm_range *
dm_cache_lookup(struct dm_cache *c, struct dm_file_key file, uint64_t offset, unsigned int shard,
		uint64_t *failed)
{
	struct dm_range *r;

	*failed = UINT64_MAX;
	util_rcu_read_lock();
	r = dm_index_by_file(&c->core, file, offset);
	if (G_LIKELY(r) && G_UNLIKELY(!dm_cell_pin(r->cell, shard))) {
		*failed = r->offset;
		r = NULL;
	}
	util_rcu_read_unlock();
	if (G_LIKELY(r) && !__atomic_load_n(&r->rc.referenced, __ATOMIC_RELAXED))
		__atomic_store_n(&r->rc.referenced, true, __ATOMIC_RELAXED);
	return r;
}

/** dm_cache_failed() - wakes who may have seen a pin that failed; no lock held. */
static inline void dm_cache_failed(struct dm_cache *c, uint64_t failed)
{
	if (failed != UINT64_MAX)
		dm_range_wake_closer(&c->core, failed, failed + c->slot_size);
}

/** dm_cache_hit() - as dm_cache_lookup(), with no lock held. */
static inline __attribute__((always_inline)) struct dm_range *
dm_cache_hit(struct dm_cache *c, struct dm_file_key file, uint64_t offset, unsigned int shard)
{
	uint64_t failed;
	struct dm_range *r = dm_cache_lookup(c, file, offset, shard, &failed);

	if (G_UNLIKELY(!r))
		dm_cache_failed(c, failed);
	return r;
}

/* dm_cache_slot.c */
void dm_slots_init(struct dm_slots *s, uint32_t n);
void dm_slots_destroy(struct dm_slots *s);
bool dm_slots_pop(struct dm_slots *s, uint32_t *slot);
void dm_slots_push(struct dm_slots *s, uint32_t slot);

/* dm_cache_miss.c */
/** dm_cache_miss() - maps, or waits for who does. On 0 *@out is the range, pinned, or NULL: then
 * look again. */
int dm_cache_miss(struct dm_cache *c, struct dm_file_key file, uint64_t offset, bool write,
		  struct dm_range **out);
/** dm_cache_map() - maps @offset of @file wherever there is a slot. *@out is pinned. */
int dm_cache_map(struct dm_cache *c, struct dm_file_key file, uint64_t offset, bool write,
		 struct dm_range **out);

/* dm_cache_reclaim.c */
extern const struct dm_seat_ops dm_cache_seat;
void dm_reclaim_init(struct dm_cache *c);
/** dm_place_get() - a slot; waits up to the configured time. 0, -EBUSY, -EPIPE. */
int dm_place_get(struct dm_cache *c, struct dm_place *p);
void dm_place_put(struct dm_place *p);
/** dm_choice_note() - a map took @ns, over a victim or not. */
void dm_choice_note(struct dm_cache *c, bool over, uint64_t ns);
/** dm_sleep_wake() - a slot or a range has become free, or the session has ended. */
void dm_sleep_wake(struct dm_cache *c);

/* dm_cache_vanilla.c */
void dm_vanilla_init(struct dm_cache *c);
void dm_vanilla_destroy(struct dm_cache *c);
int dm_vanilla_get(struct dm_cache *c, struct dm_file_key file, uint64_t offset, bool write,
		   bool may_map, struct dm_range **out);
void dm_vanilla_put(struct dm_cache *c, struct dm_file_key file);
bool dm_vanilla_gate(struct dm_core *core, struct dm_range *r);
/** dm_vanilla_ungate() - the victim that passed the gate is gone, or was not taken. */
void dm_vanilla_ungate(struct dm_cache *c);

#endif
