// SPDX-License-Identifier: Apache-2.0
#include "shim_node.h"

#include <errno.h>

struct shim_name {
	uint64_t seq;
	struct shim_node *node; /* NULL: @err */
	int err;
};

static guint key_hash(gconstpointer p)
{
	const struct shim_node *n = p;
	uint64_t v = n->key_hi * UINT64_C(0x9e3779b97f4a7c15) + n->key_lo;

	return g_int64_hash(&v) + n->writable;
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
	const struct shim_node *x = a, *y = b;

	return x->key_hi == y->key_hi && x->key_lo == y->key_lo && x->writable == y->writable;
}

void shim_nodes_init(struct shim_nodes *t, void (*destroy)(void *ctx, struct shim_node *node),
		     void *ctx)
{
	*t = (struct shim_nodes){
		.by_id = g_hash_table_new(g_int64_hash, g_int64_equal),
		.by_key = g_hash_table_new(key_hash, key_equal),
		.names = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free),
		.next_id = FUSE_ROOT_ID + 1,
		.destroy = destroy,
		.ctx = ctx,
	};
}

struct shim_node *shim_nodes_find(struct shim_nodes *t, uint64_t id)
{
	return g_hash_table_lookup(t->by_id, &id);
}

static struct shim_node *node_new(struct shim_nodes *t, const struct shim_node *key)
{
	struct shim_node *n = g_new0(struct shim_node, 1);

	*n = *key;
	n->id = t->next_id++;
	n->fd = -1;
	atomic_init(&n->refs, 1);
	g_hash_table_add(t->by_key, n);
	g_hash_table_insert(t->by_id, &n->id, n);
	return n;
}

static void drop_if_unused(struct shim_nodes *t, struct shim_node *n)
{
	if (n->nlookup || n->pending)
		return;
	g_hash_table_remove(t->by_key, n);
	g_hash_table_remove(t->by_id, &n->id);
	shim_node_unref(t, n);
}

/* @seq is no name. */
static void name_add(struct shim_nodes *t, uint64_t seq, struct shim_node *node, int err)
{
	struct shim_name *name = g_new0(struct shim_name, 1);

	*name = (struct shim_name){.seq = seq, .node = node, .err = err};
	if (node)
		node->pending++;
	g_hash_table_insert(t->names, &name->seq, name);
}

struct shim_node *shim_nodes_announce(struct shim_nodes *t, const struct shim_msg *msg,
				      bool *created)
{
	struct shim_node key = {
		.key_hi = msg->key_hi,
		.key_lo = msg->key_lo,
		.writable = msg->writable != 0,
		.dev = msg->dev,
		.ino = msg->ino,
	};
	struct shim_node *n;

	/* A name that is announced twice loses its first meaning, and maybe that node its life. */
	shim_nodes_cancel(t, msg->seq);
	n = g_hash_table_lookup(t->by_key, &key);
	*created = !n;
	if (n && (n->dev != msg->dev || n->ino != msg->ino)) {
		shim_nodes_announce_error(t, msg->seq, -EINVAL);
		return NULL;
	}
	if (!n)
		n = node_new(t, &key);
	name_add(t, msg->seq, n, 0);
	return n;
}

void shim_nodes_announce_error(struct shim_nodes *t, uint64_t seq, int err)
{
	shim_nodes_cancel(t, seq);
	name_add(t, seq, NULL, err);
}

void shim_nodes_cancel(struct shim_nodes *t, uint64_t seq)
{
	struct shim_name *name = g_hash_table_lookup(t->names, &seq);
	struct shim_node *n;

	if (!name)
		return;
	n = name->node;
	g_hash_table_remove(t->names, &seq);
	if (!n)
		return;
	n->pending--;
	drop_if_unused(t, n);
}

int shim_nodes_lookup(struct shim_nodes *t, uint64_t seq, struct shim_node **node)
{
	struct shim_name *name = g_hash_table_lookup(t->names, &seq);
	int err;

	if (!name)
		return -ENOENT;
	*node = name->node;
	err = name->err;
	g_hash_table_remove(t->names, &seq);
	if (!*node)
		return err;
	(*node)->pending--;
	(*node)->nlookup++;
	return 0;
}

void shim_nodes_forget(struct shim_nodes *t, uint64_t id, uint64_t nlookup)
{
	struct shim_node *n = shim_nodes_find(t, id);

	if (!n)
		return;
	n->nlookup -= MIN(nlookup, n->nlookup);
	drop_if_unused(t, n);
}

void shim_node_ref(struct shim_node *n)
{
	atomic_fetch_add_explicit(&n->refs, 1, memory_order_relaxed);
}

void shim_node_unref(struct shim_nodes *t, struct shim_node *n)
{
	if (atomic_fetch_sub_explicit(&n->refs, 1, memory_order_acq_rel) != 1)
		return;
	t->destroy(t->ctx, n);
	g_free(n);
}
