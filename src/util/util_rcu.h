/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one door to liburcu. Flavour: bp, so no thread of an embedder has to register.
 *
 * liburcu 0.13 carries no ThreadSanitizer annotations, and its own code is not instrumented,
 * so under TSan each wrapper states the edge that the call really gives:
 *   reader unlock  -> what follows a grace period (synchronize, call_rcu callback)
 *   publish        -> the reader that dereferences the pointer
 * Nothing is suppressed: a real race on an RCU-protected object is still reported.
 *
 * RCU read sections must be short: never across a system call that can block, never across
 * a call into a window driver.
 */
#ifndef DAXMAP_UTIL_RCU_H
#define DAXMAP_UTIL_RCU_H

/*
 * The read lock and unlock are a few instructions; a hit is made of little else, so they are
 * taken inline. liburcu offers that behind _LGPL_SOURCE: LGPL-2.1 section 5 leaves the use of
 * small inline functions (ten lines or less) unrestricted, and the library stays linked
 * dynamically. Under sanitizers they stay inside liburcu: TSan must not see its insides, and
 * UBSan would report that its reader arena is less aligned than its type says.
 */
#ifndef DAXMAPD_SANITIZED
#define _LGPL_SOURCE
#endif
#include <urcu/urcu-bp.h>
#include <urcu/rculfhash.h>
#include <stdbool.h>

#ifdef DAXMAPD_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* One address stands for "all grace periods". */
extern char util_rcu_grace;

/** util_rcu_read_lock() - enters a read section; nests; any thread, no registration. */
static inline void util_rcu_read_lock(void)
{
	urcu_bp_read_lock();
}

static inline void util_rcu_read_unlock(void)
{
#ifdef DAXMAPD_TSAN
	__tsan_release(&util_rcu_grace);
#endif
	urcu_bp_read_unlock();
}

/** util_rcu_synchronize() - waits for all read sections; never inside one, never under a lock
 * that a read section may wait for. */
static inline void util_rcu_synchronize(void)
{
	urcu_bp_synchronize_rcu();
#ifdef DAXMAPD_TSAN
	__tsan_acquire(&util_rcu_grace);
#endif
}

/** util_rcu_deref() - reads a published pointer; inside a read section. */
#define util_rcu_deref(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)

/** util_rcu_publish() - stores @v so that readers see what was written to it before. */
#define util_rcu_publish(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)

/** util_rcu_xchg() - publishes @v and returns what stood there. */
#define util_rcu_xchg(p, v) __atomic_exchange_n(&(p), (v), __ATOMIC_ACQ_REL)

/** struct util_rcu_head - embed it in what util_rcu_call() frees. */
struct util_rcu_head {
	struct rcu_head head;
	void (*fn)(struct util_rcu_head *head);
};

/** util_rcu_call() - runs @fn(@head) after a grace period, on liburcu's thread.
 * @fn must not block for long and must not wait for a grace period. */
void util_rcu_call(struct util_rcu_head *head, void (*fn)(struct util_rcu_head *head));

/** util_rcu_barrier() - waits until every util_rcu_call() made before has run. Not in a read
 * section. */
void util_rcu_barrier(void);

/*
 * Hash table (urcu rculfhash). Duties as in <urcu/rculfhash.h>: lookups and the use of what
 * they return inside a read section; add and del too; freeing after a grace period.
 */
struct cds_lfht *util_lfht_new(unsigned long min_buckets);
/** util_lfht_destroy() - the table must be empty; not in a read section. */
void util_lfht_destroy(struct cds_lfht *ht);
void util_lfht_add(struct cds_lfht *ht, unsigned long hash, struct cds_lfht_node *node);
/** util_lfht_add_unique() - returns @node if it was added, else the node already there. */
struct cds_lfht_node *util_lfht_add_unique(struct cds_lfht *ht, unsigned long hash,
					   cds_lfht_match_fct match, const void *key,
					   struct cds_lfht_node *node);
/** util_lfht_lookup() - NULL when not there. */
struct cds_lfht_node *util_lfht_lookup(struct cds_lfht *ht, unsigned long hash,
				       cds_lfht_match_fct match, const void *key);
/** util_lfht_del() - true when this call is the one that removed @node. */
bool util_lfht_del(struct cds_lfht *ht, struct cds_lfht_node *node);
/** util_lfht_first()/next() - walk all nodes; NULL at the end; inside a read section. */
struct cds_lfht_node *util_lfht_first(struct cds_lfht *ht, struct cds_lfht_iter *it);
struct cds_lfht_node *util_lfht_next(struct cds_lfht *ht, struct cds_lfht_iter *it);

/** util_hash_u64() - a well-mixed hash of @v. */
static inline unsigned long util_hash_u64(uint64_t v)
{
	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdull;
	v ^= v >> 33;
	v *= 0xc4ceb9fe1a85ec53ull;
	v ^= v >> 33;
	return (unsigned long)v;
}

#endif
