/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A FUSE session: decodes requests, dispatches them to the file system or to the DAX table, and
 * writes the replies. Protocol: linux/fuse.h, up to 7.38 and what the guest offers.
 */
#ifndef DAXMAP_FUSE_SESSION_H
#define DAXMAP_FUSE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daxmap/file.h"
#include "fs.h"
#include "util_gvec.h"

struct dm_table;
struct fuse_session;

/**
 * struct fuse_request - one request, embedded in memory that the transport keeps until @done
 * @out: what the guest sent; @in: where the reply goes
 * @queue: index of the queue it came by (0 is hiprio)
 * @error: 0, or what the transport found wrong with the buffers, a negative errno: @out or @in are
 *         then not whole, and this is the answer
 * @more: the transport's queue thread will call fuse_session_flush() before it waits for anything:
 *        until then the request may be kept, to be run together with others
 * @done: called exactly once, from any thread, when the reply is written; @len is its size, 0
 *        where FUSE sends none (FORGET)
 * @parked: tells the transport that the request waits for the VMM's back-end channel, or for
 *          something else that may never come (a file lock)
 * @may_block: says that what comes next may block, though it should not; false: better not here.
 *             Called in the thread that called fuse_session_handle(), if at all, and inside that.
 *             From there to @done or @parked or the return another thread may call
 *             fuse_session_handle() and fuse_session_flush() for the same queue. NULL: nobody would
 *             go on with the queue.
 *
 * The rest of the structure is the session's own.
 */
struct fuse_request {
	struct util_gvec out;
	struct util_gvec in;
	unsigned int queue;
	int error;
	bool more;
	void (*done)(struct fuse_request *r, size_t len);
	void (*parked)(struct fuse_request *r, bool parked);
	bool (*may_block)(struct fuse_request *r);
	/* private */
	struct fuse_session *session;
	uint64_t priv[24];
};

/** enum fuse_dax_mode - who decides which files the guest maps */
enum fuse_dax_mode {
	FUSE_DAX_NONE,	/* no window: nothing is offered */
	FUSE_DAX_INODE, /* per file, by FUSE_ATTR_DAX */
	FUSE_DAX_ALWAYS,
};

/**
 * struct fuse_dax_ops - the policy: which files are marked, and what it has to know for that
 * @mark: is the file to be mapped by a dax=inode guest (FUSE_ATTR_DAX)? Asked for each reply that
 *        carries attributes of a regular file, with the attributes of that reply
 * @any_size: can every file be mapped, whatever its size? If not, a guest that mounts with
 *            dax=always is refused
 * @setup: a mapping is about to be asked of the table
 * @refused: and has failed with @err, a negative errno
 * @remove: the guest gives a part of the window back; the numbers are as it sent them
 * @opened: a file was opened or created, with the guest's open(2) @flags
 * @quiesce: no request is under way and all nodes are about to go: use none from here on
 * @size: the size to be told of a regular file, for each reply that carries attributes
 * @touched: the guest has read or written a file
 * @truncating: it is about to set a file's size. What is returned goes to @truncated, once it has
 * @must_settle: a file may have grown by what the guest asked for. True: call @settle before the
 *               answer
 * @settle: waits for the VMM
 * @mapped: a mapping was made; waits for the VMM
 *
 * Any but @mark may be NULL, @truncating and @must_settle only with their twins. Any thread; must
 * not block but for the file system, unless it says that it waits for the VMM.
 */
struct fuse_dax_ops {
	bool (*mark)(void *ctx, const struct fs_attr *attr);
	bool (*any_size)(void *ctx);
	void (*setup)(void *ctx, uint64_t node, uint64_t offset, uint64_t len,
		      uint64_t file_offset);
	void (*refused)(void *ctx, uint64_t node, uint64_t offset, uint64_t len, int err);
	void (*remove)(void *ctx, uint64_t offset, uint64_t len);
	void (*opened)(void *ctx, uint64_t node, int flags);
	void (*quiesce)(void *ctx);
	uint64_t (*size)(void *ctx, const struct fs_attr *attr);
	void (*touched)(void *ctx, uint64_t node);
	void *(*truncating)(void *ctx, uint64_t node);
	void (*truncated)(void *ctx, void *what);
	bool (*must_settle)(void *ctx, uint64_t node);
	void (*settle)(void *ctx, uint64_t node);
	void (*mapped)(void *ctx, uint64_t node, uint64_t file_offset, uint64_t len);
};

/**
 * struct fuse_config - constant for the life of a session
 * @fs: the share; borrowed
 * @table: the DAX table, or NULL when there is no window; borrowed
 * @num_queues: hiprio + request queues
 * @pool_size: threads per queue at most; 0 = everything in the queue's thread; -1 = automatic
 * @dax_ops: NULL: no file is marked, and nobody wants to know
 * @remove_blocks: dm_host_remove() waits for the driver (DM_MANAGER_FORWARD)
 * @attr_timeout, @entry_timeout: seconds; negative: by @cache (0, 1 or 86400)
 * @pool_thread_start: first thing in each pool thread; @queue is num_queues for the threads that
 *                     serve all queues (INIT and DESTROY, maps, lock waits)
 */
struct fuse_config {
	struct fs *fs;
	struct dm_table *table;
	unsigned int num_queues;
	int pool_size;
	enum fuse_dax_mode dax;
	uint64_t window_size;
	bool remove_blocks;
	const struct fuse_dax_ops *dax_ops;
	void *dax_ctx;
	double attr_timeout;
	double entry_timeout;
	enum fs_cache_mode cache;
	bool readonly;
	bool writeback;
	bool allow_mmap;
	bool xattr;
	bool posix_acl;
	bool flock;
	bool killpriv_v2;
	bool readdirplus;
	bool announce_submounts;
	uint32_t max_write; /* bytes; default 1 MiB */
	bool batch_reads;   /* with io_uring, where the kernel has it */
	void (*pool_thread_start)(void *ctx, unsigned int queue);
	void *pool_ctx;
};

struct fuse_session *fuse_session_new(const struct fuse_config *config);
/** fuse_session_free() - no request may be under way. */
void fuse_session_free(struct fuse_session *s);

/**
 * fuse_session_handle() - takes a request over; r->done will be called
 *
 * In the queue's thread. Runs what will not block right here; the rest goes to the queue's pool.
 */
void fuse_session_handle(struct fuse_session *s, struct fuse_request *r);

/** fuse_session_flush() - runs what fuse_session_handle() has kept of @queue. The thread that hands
 * that queue's requests with @more in, and no other. */
void fuse_session_flush(struct fuse_session *s, unsigned int queue);

/** fuse_session_reset() - the guest has gone (reset, disconnect): as DESTROY, without a reply, and
 * without a word to the VMM (dm_host_forget()). Waits for requests under way; not from a queue or
 * main thread that they wait for. */
void fuse_session_reset(struct fuse_session *s);

/**
 * fuse_session_set_table() - publishes another table (NULL: DAX has ended)
 *
 * Returns when no request uses the old one any more, which is the caller's to free. Not from a
 * thread that such a request may wait for (the vhost main channel), nor in an RCU read section.
 */
void fuse_session_set_table(struct fuse_session *s, struct dm_table *table);

/** fuse_file_key() - how the table names the file of a node: what dm_file_provider.open gets */
static inline struct dm_file_key fuse_file_key(uint64_t node)
{
	return (struct dm_file_key){.lo = node};
}

/**
 * fuse_session_file_gone() - a node has gone and was unlinked: its lingering ranges go too
 *
 * For fs_hooks.node_gone, which must not block: the table is asked in a thread of the session.
 */
void fuse_session_file_gone(struct fuse_session *s, uint64_t node);

/** fuse_session_guest_dax() - how the guest mounted, as its INIT showed; NONE before INIT */
enum fuse_dax_mode fuse_session_guest_dax(struct fuse_session *s);

/** fuse_session_stand_ins() - so many threads of a queue may block at a time
 * (fuse_request.may_block) while others go on with it; 0: none, everything runs in the one. */
unsigned int fuse_session_stand_ins(struct fuse_session *s);

/** fuse_session_threads() - threads in all pools now; those that idle leave after 5 s */
unsigned int fuse_session_threads(struct fuse_session *s);

/** struct fuse_op_stats - what one opcode did */
struct fuse_op_stats {
	const char *name;
	uint64_t count;
	uint64_t errors;
	uint64_t offloaded;
};
/** fuse_session_op_stats() - row @i of the opcode table; false beyond the last. */
bool fuse_session_op_stats(struct fuse_session *s, unsigned int i, struct fuse_op_stats *out);

#endif
