// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include "util_rcu.h"

#include <glib.h>

#include "util_lock.h"

char util_rcu_grace;

static inline void tsan_release(void *p)
{
#ifdef DAXMAPD_TSAN
	__tsan_release(p);
#else
	(void)p;
#endif
}

static inline void tsan_acquire(void *p)
{
#ifdef DAXMAPD_TSAN
	__tsan_acquire(p);
#else
	(void)p;
#endif
}

static void run_callback(struct rcu_head *head)
{
	struct util_rcu_head *h = caa_container_of(head, struct util_rcu_head, head);

	tsan_acquire(&util_rcu_grace);
	tsan_acquire(h);
	h->fn(h);
	tsan_release(&util_rcu_grace);
}

void util_rcu_call(struct util_rcu_head *head, void (*fn)(struct util_rcu_head *head))
{
	head->fn = fn;
	tsan_release(head);
	urcu_bp_call_rcu(&head->head, run_callback);
}

/*
 * urcu_bp_barrier() hands heap memory between threads inside liburcu, out of TSan's sight. One
 * default call_rcu thread runs all callbacks in order, so a callback of our own is a barrier.
 */
struct barrier {
	struct util_rcu_head head;
	struct util_mutex lock;
	struct util_cond passed;
	bool done;
};

static void pass_barrier(struct util_rcu_head *head)
{
	struct barrier *b = caa_container_of(head, struct barrier, head);

	util_mutex_lock(&b->lock);
	b->done = true;
	util_cond_signal(&b->passed);
	util_mutex_unlock(&b->lock);
}

void util_rcu_barrier(void)
{
	struct barrier b = {.done = false};

	util_mutex_init(&b.lock);
	util_cond_init(&b.passed);
	util_rcu_call(&b.head, pass_barrier);
	util_mutex_lock(&b.lock);
	while (!b.done)
		util_cond_wait(&b.passed, &b.lock);
	util_mutex_unlock(&b.lock);
	util_cond_destroy(&b.passed);
	util_mutex_destroy(&b.lock);
	tsan_acquire(&util_rcu_grace);
}

/*
 * Resizing runs on a thread of liburcu's own with heap memory handed over out of TSan's sight:
 * under TSan the tables keep the size they are born with.
 */
#ifdef DAXMAPD_TSAN
#define LFHT_FLAGS 0
#else
#define LFHT_FLAGS (CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING)
#endif

struct cds_lfht *util_lfht_new(unsigned long min_buckets)
{
	struct cds_lfht *ht =
		cds_lfht_new_flavor(min_buckets, min_buckets, 0, LFHT_FLAGS, &urcu_bp_flavor, NULL);

	if (!ht)
		g_error("cds_lfht_new: out of memory");
	return ht;
}

void util_lfht_destroy(struct cds_lfht *ht)
{
	int err = cds_lfht_destroy(ht, NULL);

	if (err)
		g_error("cds_lfht_destroy: the table is not empty");
}

void util_lfht_add(struct cds_lfht *ht, unsigned long hash, struct cds_lfht_node *node)
{
	tsan_release(node);
	cds_lfht_add(ht, hash, node);
}

/*
 * The match function reads the key of a node that another thread added: the edge must stand
 * before the match runs, and only the node's address is known there. So the match is wrapped.
 */
struct match_ctx {
	cds_lfht_match_fct match;
	const void *key;
};

static int match_acquire(struct cds_lfht_node *node, const void *key)
{
	const struct match_ctx *c = key;

	tsan_acquire(node);
	return c->match(node, c->key);
}

struct cds_lfht_node *util_lfht_add_unique(struct cds_lfht *ht, unsigned long hash,
					   cds_lfht_match_fct match, const void *key,
					   struct cds_lfht_node *node)
{
	struct cds_lfht_node *found;

	tsan_release(node);
#ifdef DAXMAPD_TSAN
	struct match_ctx c = {match, key};

	found = cds_lfht_add_unique(ht, hash, match_acquire, &c, node);
#else
	found = cds_lfht_add_unique(ht, hash, match, key, node);
#endif
	if (found != node)
		tsan_acquire(found);
	return found;
}

struct cds_lfht_node *util_lfht_lookup(struct cds_lfht *ht, unsigned long hash,
				       cds_lfht_match_fct match, const void *key)
{
	struct cds_lfht_iter it;

#ifdef DAXMAPD_TSAN
	struct match_ctx c = {match, key};

	cds_lfht_lookup(ht, hash, match_acquire, &c, &it);
#else
	(void)match_acquire;
	cds_lfht_lookup(ht, hash, match, key, &it);
#endif
	return cds_lfht_iter_get_node(&it);
}

bool util_lfht_del(struct cds_lfht *ht, struct cds_lfht_node *node)
{
	return cds_lfht_del(ht, node) == 0;
}

struct cds_lfht_node *util_lfht_first(struct cds_lfht *ht, struct cds_lfht_iter *it)
{
	struct cds_lfht_node *node;

	cds_lfht_first(ht, it);
	node = cds_lfht_iter_get_node(it);
	if (node)
		tsan_acquire(node);
	return node;
}

struct cds_lfht_node *util_lfht_next(struct cds_lfht *ht, struct cds_lfht_iter *it)
{
	struct cds_lfht_node *node;

	cds_lfht_next(ht, it);
	node = cds_lfht_iter_get_node(it);
	if (node)
		tsan_acquire(node);
	return node;
}
