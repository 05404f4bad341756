/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share. */
#ifndef DAXMAP_FUSE_INTERNAL_H
#define DAXMAP_FUSE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "fuse_batch.h"
#include "fuse_cursor.h"
#include "fuse_lane.h"
#include "fuse_ops.h"
#include "fuse_policy.h"
#include "fuse_pool.h"
#include "fuse_proto.h"
#include "fuse_session.h"
#include "util_lock.h"
#include "util_rcu.h"

/*
 * Locks of this library, in order of declaration; none is held while another library is called.
 *   fuse_session.lock    who runs alone, and who is held meanwhile
 *   fuse_session.locks.m requests that wait for a file lock
 *   fuse_lanes.lock      jobs that wait for their turn on one object
 *   fuse_pool.lock       jobs and workers of one pool
 * Edges: none. fuse_session.lock is dropped before a held request is pushed
 * (fuse_exclusive_end), locks.m before one is finished (lock_thread).
 */

#define FUSE_CACHE_LINE 64
/* What a handler returns when ctx.nowait and it would have to wait. No errno. */
#define FUSE_AGAIN (-100000)
#define FUSE_ARGS_MAX 88 /* the largest argument structure: fuse_setattr_in */

/**
 * struct fuse_state - lies in fuse_request.priv
 * @job: when in a pool or held
 * @op, @h, @args: decoded once
 * @offloaded: has been in a pool
 * @parked: the transport knows that it waits for more than a file system
 * @interrupted: an INTERRUPT named it; under fuse_lock_waits.m
 */
struct __attribute__((may_alias)) fuse_state {
	struct fuse_job job;
	const struct fuse_op *op;
	struct fuse_in_header h;
	unsigned char args[FUSE_ARGS_MAX] __attribute__((aligned(8)));
	bool offloaded;
	bool parked;
	bool interrupted;
};

_Static_assert(sizeof(struct fuse_state) <= sizeof(((struct fuse_request *)0)->priv),
	       "fuse_request.priv is too small");

static inline struct fuse_state *fuse_state(struct fuse_request *r)
{
	return (struct fuse_state *)r->priv;
}

static inline struct fuse_request *fuse_request_of_job(struct fuse_job *job)
{
	char *state = (char *)job - offsetof(struct fuse_state, job);

	return (struct fuse_request *)(void *)(state - offsetof(struct fuse_request, priv));
}

struct fuse_op_count {
	uint64_t count;
	uint64_t errors;
	uint64_t offloaded;
};

/**
 * struct fuse_queue - what belongs to one virtqueue, away from the others' cache lines
 * @active: requests of this queue under way: the epoch that INIT and DESTROY wait for
 */
struct fuse_queue {
	uint64_t active __attribute__((aligned(FUSE_CACHE_LINE)));
	struct fuse_pool *pool; /* NULL: everything inline */
	struct fuse_policy policy;
	struct fuse_lanes lanes;
	struct fuse_batch *batch; /* NULL: each read by itself; the queue's thread */
	struct fuse_op_count counts[FUSE_NUM_OPS];
};

/* A table that requests may hold on to (fuse_table_get()). */
struct fuse_table {
	struct dm_table *t;
	uint64_t refs;
	struct util_rcu_head rcu;
};

/* Requests that wait for a file lock; see fuse_lock.c. */
struct fuse_lock_waits {
	struct util_mutex m;
	struct util_cond wake;
	struct fuse_job *head; /* under m */
	bool thread_runs;      /* under m */
	bool cancel;	       /* under m */
	uint64_t events;       /* under m: how often @wake was signalled */
	struct fuse_job thread_job;
};

struct fuse_session {
	struct fuse_config cfg;
	struct fuse_queue *queues;

	/* Set by INIT and DESTROY, alone; constant while anything else runs. */
	bool initialised;
	uint32_t minor;
	uint64_t flags;		      /* as answered, flags2 in the upper half */
	bool dax;		      /* the guest may map */
	enum fuse_dax_mode guest_dax; /* atomic: for showing */
	double attr_timeout;
	double entry_timeout;

	struct fuse_pool *control; /* INIT, DESTROY: one thread */
	struct fuse_pool *map;	   /* what waits for the VMM */
	struct fuse_pool *locker;  /* one thread, while a lock is waited for */
	struct fuse_lock_waits locks;

	struct fuse_table *table; /* RCU */

	struct util_mutex lock;
	struct util_cond changed;    /* exclusive, or an active count at 0, or table refs at 0 */
	bool exclusive;		     /* written under lock, read anywhere */
	unsigned int table_waiters;  /* written under lock, read anywhere */
	struct fuse_job *held;	     /* under lock */
	struct fuse_job **held_tail; /* under lock */
};

/**
 * struct fuse_ctx - one run of a handler
 * @in: behind the arguments, up to the extensions
 * @ext: the extensions
 * @out: behind the out header
 * @nowait: return FUSE_AGAIN instead of waiting
 * @local: return FUSE_AGAIN instead of waiting for anybody but the local kernel: a server, the
 *         holder of a lease
 */
struct fuse_ctx {
	struct fuse_session *s;
	struct fuse_queue *q;
	struct fuse_request *r;
	struct fuse_state *st;
	struct fuse_cursor in;
	struct fuse_cursor ext;
	struct fuse_cursor out;
	bool nowait;
	bool local;
};

/* --- fuse_session.c --- */

/** fuse_finish() - writes the out header for @ret (as a handler returns it) and gives @r back. */
void fuse_finish(struct fuse_session *s, struct fuse_request *r, ssize_t ret);

/** fuse_table_get() - the table, held until fuse_table_put(); NULL when there is none */
struct fuse_table *fuse_table_get(struct fuse_session *s);
void fuse_table_put(struct fuse_session *s, struct fuse_table *t);

/** fuse_park() - tells the transport, when that is news */
void fuse_park(struct fuse_request *r, bool parked);

/* --- fuse_init.c; called alone --- */
ssize_t fuse_op_init(struct fuse_ctx *c);
ssize_t fuse_op_destroy(struct fuse_ctx *c);
/** fuse_teardown() - forgets everything; @talk: the VMM may be told to unmap */
void fuse_teardown(struct fuse_session *s, bool talk);

/* --- fuse_meta.c: helpers --- */
#define fuse_args(c, type) ((const type *)(const void *)(c)->st->args)

/** fuse_reply() - appends to the payload; its size, or a negative errno */
ssize_t fuse_reply(struct fuse_ctx *c, const void *data, size_t n);
/** fuse_read_name() - a file name into @buf (NAME_MAX + 1 bytes); 0 or a negative errno */
int fuse_read_name(struct fuse_ctx *c, char *buf);
/** fuse_cred() - who asks; decodes FUSE_CREATE_SUPP_GROUP */
int fuse_cred(struct fuse_ctx *c, uint32_t umask, struct fs_cred *out);
/** fuse_fill_attr() - the only place where attributes for the guest are made */
void fuse_fill_attr(struct fuse_session *s, const struct fs_attr *a, struct fuse_attr *out);
void fuse_fill_entry(struct fuse_session *s, const struct fs_attr *a, struct fuse_entry_out *out);
/** fuse_entry_size() - of struct fuse_entry_out, as the guest knows it */
size_t fuse_entry_size(const struct fuse_session *s);
/** fuse_open_flags() - FOPEN_* for an answer to open or opendir */
uint32_t fuse_open_flags(struct fuse_session *s, int flags, bool dir);

ssize_t fuse_op_lookup(struct fuse_ctx *c);
ssize_t fuse_op_forget(struct fuse_ctx *c);
ssize_t fuse_op_batch_forget(struct fuse_ctx *c);
ssize_t fuse_op_getattr(struct fuse_ctx *c);
ssize_t fuse_op_setattr(struct fuse_ctx *c);
ssize_t fuse_op_readlink(struct fuse_ctx *c);
ssize_t fuse_op_symlink(struct fuse_ctx *c);
ssize_t fuse_op_mknod(struct fuse_ctx *c);
ssize_t fuse_op_mkdir(struct fuse_ctx *c);
ssize_t fuse_op_unlink(struct fuse_ctx *c);
ssize_t fuse_op_rmdir(struct fuse_ctx *c);
ssize_t fuse_op_rename(struct fuse_ctx *c);
ssize_t fuse_op_rename2(struct fuse_ctx *c);
ssize_t fuse_op_link(struct fuse_ctx *c);
ssize_t fuse_op_statfs(struct fuse_ctx *c);
ssize_t fuse_op_access(struct fuse_ctx *c);
ssize_t fuse_op_syncfs(struct fuse_ctx *c);

/* --- fuse_xattr.c --- */
ssize_t fuse_op_setxattr(struct fuse_ctx *c);
ssize_t fuse_op_getxattr(struct fuse_ctx *c);
ssize_t fuse_op_listxattr(struct fuse_ctx *c);
ssize_t fuse_op_removexattr(struct fuse_ctx *c);

/* --- fuse_data.c --- */
ssize_t fuse_op_open(struct fuse_ctx *c);
ssize_t fuse_op_create(struct fuse_ctx *c);
ssize_t fuse_op_tmpfile(struct fuse_ctx *c);
ssize_t fuse_op_read(struct fuse_ctx *c);
ssize_t fuse_op_write(struct fuse_ctx *c);
ssize_t fuse_op_release(struct fuse_ctx *c);
ssize_t fuse_op_flush(struct fuse_ctx *c);
ssize_t fuse_op_fsync(struct fuse_ctx *c);
ssize_t fuse_op_fallocate(struct fuse_ctx *c);
ssize_t fuse_op_lseek(struct fuse_ctx *c);
ssize_t fuse_op_copy_file_range(struct fuse_ctx *c);

/* --- fuse_dir.c --- */
ssize_t fuse_op_opendir(struct fuse_ctx *c);
ssize_t fuse_op_readdir(struct fuse_ctx *c);
ssize_t fuse_op_readdirplus(struct fuse_ctx *c);
ssize_t fuse_op_releasedir(struct fuse_ctx *c);
ssize_t fuse_op_fsyncdir(struct fuse_ctx *c);

/* --- fuse_dax.c --- */
ssize_t fuse_op_setupmapping(struct fuse_ctx *c);
ssize_t fuse_op_removemapping(struct fuse_ctx *c);

/** fuse_dax_hook() - calls one of the optional cfg.dax_ops, for a guest that may map */
#define fuse_dax_hook(s, name, ...)                                                                \
	do {                                                                                       \
		if ((s)->dax && (s)->cfg.dax_ops && (s)->cfg.dax_ops->name)                        \
			(s)->cfg.dax_ops->name((s)->cfg.dax_ctx, ##__VA_ARGS__);                   \
	} while (0)

/** fuse_dax_truncating() - the guest is about to set a file's size; fuse_dax_truncated() once it
 * has, or has failed to */
void *fuse_dax_truncating(struct fuse_ctx *c, uint64_t node);
void fuse_dax_truncated(struct fuse_ctx *c, void *what);
/**
 * fuse_dax_grown() - what the guest asked for may have made the file longer
 *
 * Before the first byte of the reply, and where nothing was taken from @c->out yet. May park the
 * request and wait for the VMM, in a queue's thread too; that is rare.
 */
void fuse_dax_grown(struct fuse_ctx *c, uint64_t node);

/* --- fuse_lock.c --- */
/* What a handler returns when it has taken the request away: someone else finishes it. */
#define FUSE_TAKEN (-100001)
void fuse_lock_setup(struct fuse_session *s);
void fuse_lock_cleanup(struct fuse_session *s);
/** fuse_lock_cancel() - every waiting request answers EINTR, new ones too, until it is lifted */
void fuse_lock_cancel(struct fuse_session *s, bool cancel);
/** fuse_lock_released() - a lock may have become free: those who wait try again */
void fuse_lock_released(struct fuse_session *s);
ssize_t fuse_op_getlk(struct fuse_ctx *c);
ssize_t fuse_op_setlk(struct fuse_ctx *c);
ssize_t fuse_op_setlkw(struct fuse_ctx *c);
ssize_t fuse_op_interrupt(struct fuse_ctx *c);

#endif
