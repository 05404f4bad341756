// SPDX-License-Identifier: Apache-2.0
/*
 * The set of candidates: lists in the order of joining, split into shards so that no lock is
 * shared by all. The oldest of all is the oldest of the shards' heads; as stamps come from one
 * clock the order over shards is exact up to what races while looking.
 *
 * To claim a candidate takes locks of the user that it holds when it adds and deletes nodes. So
 * the collector takes a hold on the head, moves it to the young end, drops the shard's lock, and
 * only then asks for the claim; whoever took the node away meanwhile has said so in its own state,
 * which the claim looks at.
 */
#include "rc.h"

#include <glib.h>

#define SHARDS 8

struct shard {
	struct util_mutex lock;
	struct cds_list_head list;
} __attribute__((aligned(64)));

struct rc_set {
	enum rc_policy policy;
	const struct rc_ops *ops;
	void *ctx;
	size_t count;
	struct shard shards[SHARDS];
};

struct rc_set *rc_set_new(enum rc_policy policy, const struct rc_ops *ops, void *ctx)
{
	struct rc_set *set = g_aligned_alloc0(1, sizeof(*set), 64);

	set->policy = policy;
	set->ops = ops;
	set->ctx = ctx;
	for (unsigned int i = 0; i < SHARDS; i++) {
		util_mutex_init(&set->shards[i].lock);
		CDS_INIT_LIST_HEAD(&set->shards[i].list);
	}
	return set;
}

void rc_set_set_policy(struct rc_set *set, enum rc_policy policy)
{
	__atomic_store_n(&set->policy, policy, __ATOMIC_RELAXED);
}

static bool is_clock(const struct rc_set *set)
{
	return __atomic_load_n(&set->policy, __ATOMIC_RELAXED) == RC_CLOCK;
}

void rc_set_free(struct rc_set *set)
{
	g_assert(set->count == 0);
	for (unsigned int i = 0; i < SHARDS; i++)
		util_mutex_destroy(&set->shards[i].lock);
	g_aligned_free(set);
}

void rc_node_init(struct rc_node *n, unsigned int hint)
{
	*n = (struct rc_node){.shard = (uint8_t)(hint % SHARDS)};
}

void rc_add(struct rc_set *set, struct rc_node *n, uint64_t now_ns)
{
	struct shard *s = &set->shards[n->shard];

	util_mutex_lock(&s->lock);
	g_assert(!n->queued);
	n->stamp = now_ns;
	n->queued = true;
	cds_list_add_tail(&n->link, &s->list);
	util_mutex_unlock(&s->lock);
	__atomic_add_fetch(&set->count, 1, __ATOMIC_RELAXED);
}

void rc_del(struct rc_set *set, struct rc_node *n)
{
	struct shard *s = &set->shards[n->shard];
	bool was;

	util_mutex_lock(&s->lock);
	was = n->queued;
	if (was)
		cds_list_del(&n->link);
	n->queued = false;
	util_mutex_unlock(&s->lock);
	if (was)
		__atomic_sub_fetch(&set->count, 1, __ATOMIC_RELAXED);
}

void rc_replace(struct rc_set *set, struct rc_node *old, struct rc_node **new, size_t n)
{
	struct shard *s = &set->shards[old->shard];

	util_mutex_lock(&s->lock);
	g_assert(old->queued);
	for (size_t i = 0; i < n; i++) {
		new[i]->shard = old->shard;
		new[i]->stamp = old->stamp;
		new[i]->queued = true;
		cds_list_add_tail(&new[i]->link, &old->link);
	}
	cds_list_del(&old->link);
	old->queued = false;
	util_mutex_unlock(&s->lock);
	__atomic_add_fetch(&set->count, n - 1, __ATOMIC_RELAXED);
}

size_t rc_count(const struct rc_set *set)
{
	return __atomic_load_n(&set->count, __ATOMIC_RELAXED);
}

bool rc_queued(struct rc_set *set, struct rc_node *n)
{
	struct shard *s = &set->shards[n->shard];
	bool queued;

	util_mutex_lock(&s->lock);
	queued = n->queued;
	util_mutex_unlock(&s->lock);
	return queued;
}

static bool head_stamp(struct shard *s, uint64_t *stamp)
{
	bool any;

	util_mutex_lock(&s->lock);
	any = !cds_list_empty(&s->list);
	if (any)
		*stamp = cds_list_first_entry(&s->list, struct rc_node, link)->stamp;
	util_mutex_unlock(&s->lock);
	return any;
}

static struct shard *oldest_shard(struct rc_set *set, uint64_t *stamp)
{
	struct shard *oldest = NULL;
	uint64_t t;

	for (unsigned int i = 0; i < SHARDS; i++) {
		if (head_stamp(&set->shards[i], &t) && (!oldest || t < *stamp)) {
			oldest = &set->shards[i];
			*stamp = t;
		}
	}
	return oldest;
}

bool rc_oldest(struct rc_set *set, uint64_t *stamp)
{
	return oldest_shard(set, stamp) != NULL;
}

/* Moves the head, if it is older than @before_ns, to the young end with the stamp of @now_ns,
 * and takes a hold on it. */
static struct rc_node *hold_head(struct rc_set *set, struct shard *s, uint64_t before_ns,
				 uint64_t now_ns)
{
	struct rc_node *n = NULL;

	util_mutex_lock(&s->lock);
	if (!cds_list_empty(&s->list)) {
		n = cds_list_first_entry(&s->list, struct rc_node, link);
		if (n->stamp < before_ns) {
			cds_list_del(&n->link);
			cds_list_add_tail(&n->link, &s->list);
			n->stamp = now_ns;
			set->ops->hold(set->ctx, n);
		} else {
			n = NULL;
		}
	}
	util_mutex_unlock(&s->lock);
	return n;
}

static bool second_chance(struct rc_set *set, struct rc_node *n)
{
	return is_clock(set) && __atomic_exchange_n(&n->referenced, false, __ATOMIC_RELAXED);
}

size_t rc_collect(struct rc_set *set, size_t want, uint64_t before_ns, void *batch, size_t *busy)
{
	/* twice round: the first may only take second chances away */
	size_t looks = rc_count(set) * (is_clock(set) ? 2 : 1);
	uint64_t now = util_now_ns();
	size_t got = 0;
	uint64_t stamp = 0;

	for (; got < want && looks > 0; looks--) {
		struct shard *s = oldest_shard(set, &stamp);
		enum rc_verdict v = RC_BUSY;
		struct rc_node *n;

		if (!s || stamp >= before_ns)
			break;
		n = hold_head(set, s, before_ns, now);
		if (!n)
			continue;
		if (!second_chance(set, n)) {
			v = set->ops->claim(set->ctx, batch, n);
			if (v == RC_BUSY && busy)
				(*busy)++;
		}
		got += v == RC_TAKEN;
		set->ops->drop(set->ctx, n);
	}
	return got;
}
