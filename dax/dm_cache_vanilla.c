// SPDX-License-Identifier: Apache-2.0
/*
 * The baseline that the published fine-grained reclaim patch was measured against: whoever uses a
 * range of a file holds that file's lock shared, from get to put; reclaim of a range needs the
 * lock of its file alone; slots are unmapped before they are mapped again, one at a time. A
 * waiting writer keeps new readers out, as the kernel's rwsem does. For comparison only.
 *
 * All waits end at the configured time, as a thread may well wait for itself.
 */
#include "dm_cache.h"

#include <errno.h>

struct file_lock {
	struct dm_file_key key;
	struct util_mutex lock;
	struct util_cond cond;
	uint32_t readers;
	uint32_t writers_waiting;
	bool writer;
	struct cds_lfht_node node;
	struct file_lock *next;
};

struct dm_vanilla {
	struct util_mutex one;	/* one miss at a time */
	struct file_lock *held; /* of the victim; under @one */
	uint64_t deadline;	/* of the miss; under @one */
	struct cds_lfht *files;
	struct file_lock *all;
};

static int match(struct cds_lfht_node *node, const void *key)
{
	return dm_file_key_equal(caa_container_of(node, struct file_lock, node)->key,
				 *(const struct dm_file_key *)key);
}

static unsigned long hash(struct dm_file_key key)
{
	return util_hash_u64(key.hi ^ util_hash_u64(key.lo));
}

static void lock_free(struct file_lock *l)
{
	util_cond_destroy(&l->cond);
	util_mutex_destroy(&l->lock);
	g_free(l);
}

/* Made at the first use; there until the cache is freed. */
static struct file_lock *lock_of(struct dm_vanilla *v, struct dm_file_key key)
{
	struct cds_lfht_node *n;
	struct file_lock *l;

	util_rcu_read_lock();
	n = util_lfht_lookup(v->files, hash(key), match, &key);
	util_rcu_read_unlock();
	if (n)
		return caa_container_of(n, struct file_lock, node);
	l = g_new0(struct file_lock, 1);
	l->key = key;
	util_mutex_init(&l->lock);
	util_cond_init(&l->cond);
	util_rcu_read_lock();
	n = util_lfht_add_unique(v->files, hash(key), match, &key, &l->node);
	util_rcu_read_unlock();
	if (n != &l->node) {
		lock_free(l);
		return caa_container_of(n, struct file_lock, node);
	}
	l->next = __atomic_load_n(&v->all, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&v->all, &l->next, l, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	return l;
}

static bool lock_shared(struct file_lock *l, uint64_t deadline)
{
	bool in_time = true, got;

	util_mutex_lock(&l->lock);
	while ((l->writer || l->writers_waiting) && in_time)
		in_time = util_cond_wait_until(&l->cond, &l->lock, deadline);
	got = !l->writer && !l->writers_waiting;
	l->readers += got;
	util_mutex_unlock(&l->lock);
	return got;
}

static void unlock_shared(struct file_lock *l)
{
	util_mutex_lock(&l->lock);
	g_assert(l->readers > 0);
	if (--l->readers == 0 && l->writers_waiting)
		util_cond_broadcast(&l->cond);
	util_mutex_unlock(&l->lock);
}

static bool lock_alone(struct file_lock *l, uint64_t deadline)
{
	bool in_time = true;

	util_mutex_lock(&l->lock);
	l->writers_waiting++;
	while ((l->writer || l->readers) && in_time)
		in_time = util_cond_wait_until(&l->cond, &l->lock, deadline);
	l->writers_waiting--;
	in_time = !l->writer && !l->readers;
	l->writer = in_time || l->writer;
	if (!in_time)
		util_cond_broadcast(&l->cond);
	util_mutex_unlock(&l->lock);
	return in_time;
}

static void unlock_alone(struct file_lock *l)
{
	util_mutex_lock(&l->lock);
	l->writer = false;
	util_cond_broadcast(&l->cond);
	util_mutex_unlock(&l->lock);
}

void dm_vanilla_init(struct dm_cache *c)
{
	c->vanilla = g_new0(struct dm_vanilla, 1);
	util_mutex_init(&c->vanilla->one);
	c->vanilla->files = util_lfht_new(64);
}

void dm_vanilla_destroy(struct dm_cache *c)
{
	struct dm_vanilla *v = c->vanilla;
	struct file_lock *l, *next;

	if (!v)
		return;
	for (l = v->all; l; l = l->next) {
		util_rcu_read_lock();
		util_lfht_del(v->files, &l->node);
		util_rcu_read_unlock();
	}
	util_rcu_barrier();
	util_lfht_destroy(v->files);
	for (l = v->all; l; l = next) {
		next = l->next;
		g_assert(!l->readers && !l->writer);
		lock_free(l);
	}
	util_mutex_destroy(&v->one);
	g_free(v);
}

bool dm_vanilla_gate(struct dm_core *core, struct dm_range *r)
{
	struct dm_vanilla *v = dm_cache_of(core)->vanilla;
	struct file_lock *l = lock_of(v, r->file->key);

	if (v->held == l)
		return true;
	dm_vanilla_ungate(dm_cache_of(core));
	if (!lock_alone(l, v->deadline))
		return false;
	v->held = l;
	return true;
}

void dm_vanilla_ungate(struct dm_cache *c)
{
	struct dm_vanilla *v = c->vanilla;

	if (v->held)
		unlock_alone(v->held);
	v->held = NULL;
}

/* Maps if nobody has meanwhile; the caller looks again. */
static int miss(struct dm_cache *c, struct dm_file_key file, uint64_t offset, bool write)
{
	struct dm_vanilla *v = c->vanilla;
	struct dm_range *r;
	int err = 0;

	util_mutex_lock(&v->one);
	v->deadline = util_now_ns() + c->config.wait_ms * UINT64_C(1000000);
	r = dm_cache_hit(c, file, offset, dm_thread_shard());
	if (!r) {
		dm_count(&c->core, DM_C_misses, 1);
		err = dm_cache_map(c, file, offset, write, &r);
	}
	dm_vanilla_ungate(c);
	util_mutex_unlock(&v->one);
	if (!err)
		dm_range_unpin(&c->core, r);
	return err;
}

int dm_vanilla_get(struct dm_cache *c, struct dm_file_key file, uint64_t offset, bool write,
		   bool may_map, struct dm_range **out)
{
	struct file_lock *l = lock_of(c->vanilla, file);
	uint64_t deadline = util_now_ns() + c->config.wait_ms * UINT64_C(1000000);
	bool missed = false;

	for (;;) {
		int err;

		if (!lock_shared(l, may_map ? deadline : 0))
			return may_map ? -EBUSY : -EAGAIN;
		*out = dm_cache_hit(c, file, offset, dm_thread_shard());
		if (*out) {
			if (!missed)
				dm_count(&c->core, DM_C_hits, 1);
			return 0;
		}
		unlock_shared(l);
		if (!may_map)
			return -EAGAIN;
		missed = true;
		err = miss(c, file, offset, write);
		if (err)
			return err;
	}
}

void dm_vanilla_put(struct dm_cache *c, struct dm_file_key file)
{
	unlock_shared(lock_of(c->vanilla, file));
}
