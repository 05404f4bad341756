// SPDX-License-Identifier: Apache-2.0
/*
 * File keys: each file with a mapped range is open exactly once. The provider is called without
 * a lock; OPENING and CLOSING are the claim, and others who want the file sleep on its stripe.
 * A file that is being closed is waited for and opened anew, so the provider never sees a second
 * open before the close.
 */
#include "dm_core.h"

#include "util_yield.h"

static guint key_hash(gconstpointer p)
{
	const struct dm_file_key *k = p;

	return (guint)util_hash_u64(k->hi ^ util_hash_u64(k->lo));
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
	return dm_file_key_equal(*(const struct dm_file_key *)a, *(const struct dm_file_key *)b);
}

void dm_files_init(struct dm_core *c)
{
	for (unsigned int i = 0; i < DM_FILE_STRIPES; i++) {
		util_mutex_init(&c->file_stripes[i].lock);
		util_cond_init(&c->file_stripes[i].cond);
		c->file_stripes[i].files = g_hash_table_new(key_hash, key_equal);
	}
}

void dm_files_destroy(struct dm_core *c)
{
	for (unsigned int i = 0; i < DM_FILE_STRIPES; i++) {
		g_assert(g_hash_table_size(c->file_stripes[i].files) == 0);
		g_hash_table_destroy(c->file_stripes[i].files);
		util_cond_destroy(&c->file_stripes[i].cond);
		util_mutex_destroy(&c->file_stripes[i].lock);
	}
}

struct dm_file_stripe *dm_file_stripe(struct dm_core *c, struct dm_file_key key)
{
	return &c->file_stripes[(key_hash(&key) >> 8) % DM_FILE_STRIPES];
}

static void file_free(struct util_rcu_head *head)
{
	g_free(caa_container_of(head, struct dm_file, rcu));
}

/* Opens a file that stands in its stripe as OPENING. The lock is dropped and taken again. */
static int file_open_locked(struct dm_core *c, struct dm_file_stripe *s, struct dm_file *f)
	UTIL_REQUIRES(s->lock)
{
	bool writable = false;
	int fd;

	util_mutex_unlock(&s->lock);
	fd = c->provider.open(c->provider.ctx, f->key, &writable);
	util_yield();
	util_mutex_lock(&s->lock);
	util_cond_broadcast(&s->cond);
	if (fd < 0) {
		g_hash_table_remove(s->files, &f->key);
		util_rcu_call(&f->rcu, file_free);
		return fd;
	}
	f->fd = fd;
	f->writable = writable;
	f->state = DM_FILE_OPEN;
	dm_count(c, DM_C_files_open, 1);
	return 0;
}

static void take_past_locked(struct dm_file_stripe *s, struct dm_file *f) UTIL_REQUIRES(s->lock)
{
	guint i = key_hash(&f->key) % DM_FILE_PAST;

	if (dm_file_key_equal(s->past[i].key, f->key))
		f->counts = s->past[i].counts;
}

static void keep_past_locked(struct dm_file_stripe *s, const struct dm_file *f)
	UTIL_REQUIRES(s->lock)
{
	guint i = key_hash(&f->key) % DM_FILE_PAST;

	s->past[i].key = f->key;
	s->past[i].counts = f->counts;
}

int dm_file_get(struct dm_core *c, struct dm_file_key key, struct dm_file **out)
{
	struct dm_file_stripe *s = dm_file_stripe(c, key);
	struct dm_file *f;
	int err = 0;

	util_mutex_lock(&s->lock);
	while ((f = g_hash_table_lookup(s->files, &key)) && f->state != DM_FILE_OPEN)
		util_cond_wait(&s->cond, &s->lock);
	if (f) {
		f->refs++;
	} else {
		f = g_new0(struct dm_file, 1);
		f->key = key;
		f->fd = -1;
		f->refs = 1;
		take_past_locked(s, f);
		CDS_INIT_LIST_HEAD(&f->ranges);
		g_hash_table_insert(s->files, &f->key, f);
		err = file_open_locked(c, s, f);
	}
	util_mutex_unlock(&s->lock);
	*out = err ? NULL : f;
	return err;
}

void dm_file_ref(struct dm_core *c, struct dm_file *f)
{
	struct dm_file_stripe *s = dm_file_stripe(c, f->key);

	util_mutex_lock(&s->lock);
	g_assert(f->refs > 0 && f->state == DM_FILE_OPEN);
	f->refs++;
	util_mutex_unlock(&s->lock);
}

void dm_file_put(struct dm_core *c, struct dm_file *f)
{
	struct dm_file_stripe *s = dm_file_stripe(c, f->key);

	util_mutex_lock(&s->lock);
	g_assert(f->refs > 0 && f->state == DM_FILE_OPEN);
	if (--f->refs > 0) {
		util_mutex_unlock(&s->lock);
		return;
	}
	g_assert(cds_list_empty(&f->ranges));
	f->state = DM_FILE_CLOSING;
	util_mutex_unlock(&s->lock);

	c->provider.close(c->provider.ctx, f->key, f->fd);
	dm_count(c, DM_C_files_open, (uint64_t)-1);

	util_mutex_lock(&s->lock);
	keep_past_locked(s, f);
	g_hash_table_remove(s->files, &f->key);
	util_cond_broadcast(&s->cond);
	util_mutex_unlock(&s->lock);
	util_rcu_call(&f->rcu, file_free);
}

void dm_file_collect(struct dm_core *c, struct dm_file_key key, struct dm_vec *out)
{
	struct dm_file_stripe *s = dm_file_stripe(c, key);
	struct dm_file *f;
	struct cds_list_head *pos;

	util_mutex_lock(&s->lock);
	f = g_hash_table_lookup(s->files, &key);
	if (f) {
		/* By node: the head is in no range, whose alignment it does not have. */
		cds_list_for_each(pos, &f->ranges)
		{
			struct dm_range *r = caa_container_of(pos, struct dm_range, in_file);

			dm_range_ref(r);
			dm_vec_add(out, r);
		}
	}
	util_mutex_unlock(&s->lock);
}
