/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper's table of nodes. Everything runs on the server thread, but shim_node_unref(),
 * which any thread may call.
 */
#ifndef DAXMAP_SHIM_NODE_H
#define DAXMAP_SHIM_NODE_H

#include <stdatomic.h>

#include "shim_internal.h"

/**
 * struct shim_node - one file on the shim
 * @id: FUSE node id (2 and up; never used again)
 * @key_hi: first half of the daemon's key
 * @key_lo: second half of it
 * @dev: the real file's st_dev
 * @ino: the real file's st_ino
 * @writable: passes through (@backing), or is read by the helper (@fd)
 * @backing: backing id, or 0
 * @fd: O_RDONLY descriptor of the real file, or -1
 * @nlookup: look-ups that the kernel has not forgotten
 * @pending: opens announced for it and not yet looked up
 * @refs: one while it is in the table, and one for each READ under way
 *
 * In the table while @nlookup + @pending > 0.
 */
struct shim_node {
	uint64_t id;
	uint64_t key_hi;
	uint64_t key_lo;
	uint64_t dev;
	uint64_t ino;
	bool writable;
	uint32_t backing;
	int fd;
	uint64_t nlookup;
	uint64_t pending;
	atomic_uint refs;
};

struct shim_nodes {
	GHashTable *by_id;
	GHashTable *by_key;
	GHashTable *names; /* seq -> struct shim_name */
	uint64_t next_id;
	void (*destroy)(void *ctx, struct shim_node *node);
	void *ctx;
};

/** shim_nodes_init() - @destroy frees a node's @backing and @fd, not the node; any thread. */
void shim_nodes_init(struct shim_nodes *t, void (*destroy)(void *ctx, struct shim_node *node),
		     void *ctx);
/** shim_nodes_find() - by node id; NULL when there is none. */
struct shim_node *shim_nodes_find(struct shim_nodes *t, uint64_t id);
/**
 * shim_nodes_announce() - a look-up of @msg->seq will come
 * @created: out: the node is new and has neither backing nor fd
 * Return: its node, or NULL when the key names another file.
 */
struct shim_node *shim_nodes_announce(struct shim_nodes *t, const struct shim_msg *msg,
				      bool *created);
/** shim_nodes_announce_error() - the look-up of @seq shall fail with @err (negative). */
void shim_nodes_announce_error(struct shim_nodes *t, uint64_t seq, int err);
/** shim_nodes_cancel() - the look-up of @seq will not come; nothing happens if it has. */
void shim_nodes_cancel(struct shim_nodes *t, uint64_t seq);
/** shim_nodes_lookup() - the look-up of @seq: 0 and @node, which has one more look-up; or a
 * negative errno. */
int shim_nodes_lookup(struct shim_nodes *t, uint64_t seq, struct shim_node **node);
void shim_nodes_forget(struct shim_nodes *t, uint64_t id, uint64_t nlookup);

void shim_node_ref(struct shim_node *node);
void shim_node_unref(struct shim_nodes *t, struct shim_node *node);

#endif
