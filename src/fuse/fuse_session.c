// SPDX-License-Identifier: Apache-2.0
/*
 * A FUSE session: from a request to the thread that runs it, and back.
 *
 * A request's life
 *   fuse_session_handle() copies the header, finds the opcode's row, enters the epoch of the
 *   request's queue, copies the arguments (once; everything later looks at the copy), checks
 *   lengths and the room for the reply, and then runs the handler here or hands the request on.
 *   Whoever has run it calls fuse_finish(): out header, counters, leave the epoch, r->done().
 *
 * Which thread (enum fuse_op_class)
 *   The queue's thread must never be held by one request, and a handoff to a pool costs as much
 *   as several cached operations. So:
 *   - READ and WRITE start with RWF_NOWAIT, LOOKUP with RESOLVE_CACHED, GETATTR where the file
 *     system answers from memory. What would wait goes to the pool.
 *   - READs that come in one go are kept until there are a few, or no more, and then run with one
 *     system call (fs_batch.h), under the same rule. What is not a READ runs them first.
 *   - Writes and lookups that were refused although nothing was slow (a file system without
 *     RWF_NOWAIT, a name not in the dentry cache) run here unless the same object is known to
 *     block. Never reads: what is not in the page cache waits for a disk.
 *   - Other metadata runs here while its kind is fast, see fuse_policy.c.
 *   - Before any of the last two the transport is told (fuse_request.may_block): if it blocks all
 *     the same, another thread becomes the queue's within milliseconds (vhost_relief.c), and this
 *     one ends the request as a pool's thread would. Where nobody can, writes and lookups have to
 *     be seen fast many times first.
 *   - Neither of these two ever on a file system that asks another process or machine, which may
 *     never answer, nor where somebody else's lease has to be broken: what holds the queue is then
 *     the local kernel at most, and the disk behind it.
 *   - fsync and its like always go to the pool.
 *   - What waits for the VMM goes to a pool of its own, marked as parked from that moment on: a
 *     mapping must not hold a worker that a read needs, as the VMM may be waiting for that read
 *     (GET_VRING_BASE) before it answers the mapping.
 *   With pool size 0 all but the last two lines' worth runs here.
 *
 * Alone
 *   INIT and DESTROY run in the control thread with nothing else under way. Each queue counts
 *   its requests in a cache line of its own; INIT sets @exclusive and waits for the counts to
 *   reach zero; a request that enters sees it (both sides: store, then load, sequentially
 *   consistent), leaves again, and is held until the end. Nobody waits in a queue's thread. All
 *   who wait here are parked, for the same reason as above.
 */
#include "fuse_session.h"

#include <errno.h>
#include <string.h>

#include "daxmap/table.h"
#include "fuse_internal.h"
#include "util_yield.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "fuse"

#define POOL_IDLE_MS 5000
#define MAP_THREADS 32
#define STAND_INS 4 /* what blocks is known, and then goes to the pool, before there are more */
#define OUT_HEADER sizeof(struct fuse_out_header)

enum run_mode {
	MAY_WAIT,
	LOCAL_ONLY, /* in a queue's thread: for nobody but the local kernel (fuse_ctx.local) */
	NO_WAIT,    /* fuse_ctx.nowait */
};

static void run(struct fuse_session *s, struct fuse_request *r, enum run_mode mode);

static struct fuse_queue *queue_of(struct fuse_session *s, const struct fuse_request *r)
{
	return &s->queues[r->queue < s->cfg.num_queues ? r->queue : 0];
}

static void bump(uint64_t *counter)
{
	__atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
}

/* --- the epoch, and running alone --- */

static void leave(struct fuse_session *s, struct fuse_queue *q)
{
	if (__atomic_sub_fetch(&q->active, 1, __ATOMIC_SEQ_CST) ||
	    !__atomic_load_n(&s->exclusive, __ATOMIC_SEQ_CST))
		return;
	util_mutex_lock(&s->lock);
	util_cond_broadcast(&s->changed);
	util_mutex_unlock(&s->lock);
}

/* False: @r is held, and will be dispatched when whoever runs alone is done. */
static bool enter(struct fuse_session *s, struct fuse_request *r)
{
	struct fuse_queue *q = queue_of(s, r);

	for (;;) {
		bool held = false;

		__atomic_add_fetch(&q->active, 1, __ATOMIC_SEQ_CST);
		util_yield();
		if (G_LIKELY(!__atomic_load_n(&s->exclusive, __ATOMIC_SEQ_CST)))
			return true;
		leave(s, q);
		fuse_park(r, true);
		util_mutex_lock(&s->lock);
		if (s->exclusive) {
			struct fuse_job *job = &fuse_state(r)->job;

			job->next = NULL;
			*s->held_tail = job;
			s->held_tail = &job->next;
			held = true;
		}
		util_mutex_unlock(&s->lock);
		if (held)
			return false;
		fuse_park(r, false);
	}
}

static bool all_quiet(struct fuse_session *s)
{
	for (unsigned int i = 0; i < s->cfg.num_queues; i++) {
		if (__atomic_load_n(&s->queues[i].active, __ATOMIC_SEQ_CST))
			return false;
	}
	return true;
}

static void exclusive_begin(struct fuse_session *s)
{
	util_mutex_lock(&s->lock);
	while (s->exclusive)
		util_cond_wait(&s->changed, &s->lock);
	__atomic_store_n(&s->exclusive, true, __ATOMIC_SEQ_CST);
	util_mutex_unlock(&s->lock);
	fuse_lock_cancel(s, true);
	util_mutex_lock(&s->lock);
	while (!all_quiet(s))
		util_cond_wait(&s->changed, &s->lock);
	util_mutex_unlock(&s->lock);
	fuse_lock_cancel(s, false);
}

static void start(struct fuse_session *s, struct fuse_request *r);

static void start_held(struct fuse_job *job)
{
	struct fuse_request *r = fuse_request_of_job(job);

	r->more = false; /* this is not the queue's thread */
	if (enter(r->session, r))
		start(r->session, r);
}

/* Returns what was held meanwhile, for dispatch_held() to start. */
static struct fuse_job *exclusive_end(struct fuse_session *s)
{
	struct fuse_job *held;

	util_mutex_lock(&s->lock);
	held = s->held;
	s->held = NULL;
	s->held_tail = &s->held;
	__atomic_store_n(&s->exclusive, false, __ATOMIC_SEQ_CST);
	util_cond_broadcast(&s->changed);
	util_mutex_unlock(&s->lock);
	return held;
}

/* Their own queue's thread is not at hand, so they start in its pool, or here. */
static void dispatch_held(struct fuse_session *s, struct fuse_job *held)
{
	while (held) {
		struct fuse_job *job = held;
		struct fuse_request *r = fuse_request_of_job(job);
		struct fuse_queue *q = queue_of(s, r);

		held = job->next;
		fuse_park(r, false);
		job->run = start_held;
		if (q->pool)
			fuse_pool_push(q->pool, job);
		else
			start_held(job);
	}
}

/* --- the table --- */

struct fuse_table *fuse_table_get(struct fuse_session *s)
{
	struct fuse_table *t;

	util_rcu_read_lock();
	t = util_rcu_deref(s->table);
	if (t)
		__atomic_add_fetch(&t->refs, 1, __ATOMIC_SEQ_CST);
	util_rcu_read_unlock();
	return t;
}

void fuse_table_put(struct fuse_session *s, struct fuse_table *t)
{
	if (!t)
		return;
	/* After the last ref @t may be gone: the waiter shows itself in the session. */
	if (__atomic_sub_fetch(&t->refs, 1, __ATOMIC_SEQ_CST) ||
	    !__atomic_load_n(&s->table_waiters, __ATOMIC_SEQ_CST))
		return;
	util_mutex_lock(&s->lock);
	util_cond_broadcast(&s->changed);
	util_mutex_unlock(&s->lock);
}

void fuse_session_set_table(struct fuse_session *s, struct dm_table *table)
{
	struct fuse_table *fresh = NULL, *old;

	if (table) {
		fresh = g_new0(struct fuse_table, 1);
		fresh->t = table;
	}
	old = util_rcu_xchg(s->table, fresh);
	if (!old)
		return;
	util_rcu_synchronize();
	util_mutex_lock(&s->lock);
	__atomic_add_fetch(&s->table_waiters, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&old->refs, __ATOMIC_SEQ_CST))
		util_cond_wait(&s->changed, &s->lock);
	__atomic_sub_fetch(&s->table_waiters, 1, __ATOMIC_SEQ_CST);
	util_mutex_unlock(&s->lock);
	g_free(old);
}

/* --- replies --- */

void fuse_park(struct fuse_request *r, bool parked)
{
	struct fuse_state *st = fuse_state(r);

	if (st->parked == parked)
		return;
	st->parked = parked;
	if (r->parked)
		r->parked(r, parked);
}

/* The guest takes an error of -1 .. -511. */
static int wire_error(ssize_t ret)
{
	if (ret == -EPIPE || ret <= -512)
		return -EIO;
	return (int)ret;
}

static size_t write_reply(struct fuse_request *r, uint64_t unique, ssize_t ret)
{
	struct fuse_out_header h = {.unique = unique};
	struct fuse_cursor out;

	if (ret < 0)
		h.error = wire_error(ret);
	h.len = (uint32_t)(OUT_HEADER + (ret > 0 ? (size_t)ret : 0));
	fuse_cursor_init(&out, &r->in);
	if (fuse_cursor_write(&out, &h, sizeof(h)))
		return 0;
	return h.len;
}

static size_t answer(struct fuse_session *s, struct fuse_request *r, ssize_t ret)
{
	struct fuse_state *st = fuse_state(r);
	struct fuse_op_count *n = &queue_of(s, r)->counts[st->op - fuse_ops];
	size_t len = 0;

	/* First: from here on the transport gives other memory where guest memory is not ours. */
	fuse_park(r, false);
	if (!(st->op->flags & FUSE_OP_NO_REPLY))
		len = write_reply(r, st->h.unique, ret);
	if (ret < 0)
		bump(&n->errors);
	bump(&n->count);
	return len;
}

void fuse_finish(struct fuse_session *s, struct fuse_request *r, ssize_t ret)
{
	size_t len = answer(s, r, ret);

	/* After done() neither the request nor, perhaps, the session is there. */
	leave(s, queue_of(s, r));
	r->done(r, len);
}

/* --- decoding --- */

static size_t args_size(const struct fuse_session *s, const struct fuse_op *op)
{
	if (op == &fuse_ops[FUSE_SETXATTR] && !(s->flags & FUSE_SETXATTR_EXT))
		return FUSE_COMPAT_SETXATTR_IN_SIZE;
	return s->minor < op->old_minor ? op->args_old : op->args;
}

/* Extensions end the request; before 7.38 the field was padding. */
static size_t ext_size(const struct fuse_session *s, const struct fuse_ctx *c)
{
	return s->minor < 38 ? 0 : MIN(c->in.left, (size_t)c->st->h.total_extlen * 8);
}

static void make_ctx(struct fuse_session *s, struct fuse_request *r, struct fuse_ctx *c)
{
	*c = (struct fuse_ctx){.s = s, .q = queue_of(s, r), .r = r, .st = fuse_state(r)};
	fuse_cursor_init(&c->in, &r->out);
	fuse_cursor_skip(&c->in, sizeof(struct fuse_in_header) + args_size(s, c->st->op));
	c->ext = c->in;
	fuse_cursor_init(&c->out, &r->in);
	fuse_cursor_skip(&c->out, OUT_HEADER);
	fuse_cursor_skip(&c->ext, c->in.left - ext_size(s, c));
	c->in.left -= c->ext.left;
}

/* Copies the header; what did not arrive is zero. */
static int decode_header(struct fuse_request *r)
{
	struct fuse_state *st = fuse_state(r);
	struct fuse_cursor in;
	size_t have = MIN(r->out.len, sizeof(st->h));

	memset(&st->h, 0, sizeof(st->h));
	st->op = &fuse_ops[0];
	fuse_cursor_init(&in, &r->out);
	if (fuse_cursor_read(&in, &st->h, have))
		return -EFAULT;
	if (have < sizeof(st->h))
		return r->error ? r->error : -EINVAL;
	if (!r->error && st->h.len != r->out.len)
		return -EINVAL;
	st->op = fuse_op_find(st->h.opcode);
	if (r->error)
		return r->error;
	return st->op->run ? 0 : -ENOSYS;
}

/* Copies the arguments; is the rest of the request such that the handler may begin? */
static int decode_args(struct fuse_session *s, struct fuse_request *r)
{
	struct fuse_state *st = fuse_state(r);
	const struct fuse_op *op = st->op;
	size_t size = args_size(s, op);
	struct fuse_cursor in;
	int err;

	memset(st->args, 0, sizeof(st->args));
	fuse_cursor_init(&in, &r->out);
	fuse_cursor_skip(&in, sizeof(st->h));
	if (op->flags & FUSE_OP_ARGS_MAY_END_EARLY)
		size = MIN(size, in.left);
	err = fuse_cursor_read(&in, st->args, size);
	if (err)
		return err;
	if (s->minor >= 38 && (size_t)st->h.total_extlen * 8 > in.left)
		return -EINVAL;
	if (op->flags & FUSE_OP_NO_REPLY)
		return 0;
	if (r->in.len < OUT_HEADER + op->reply)
		return -EINVAL;
	if (!fuse_cursor_is_ram(&r->in, OUT_HEADER + op->reply))
		return -EFAULT;
	return 0;
}

/* --- running --- */

static bool can_offload(const struct fuse_op *op)
{
	return op->class == FUSE_RUN_TRY || op->class == FUSE_RUN_ADAPT ||
	       op->class == FUSE_RUN_POOL;
}

static void run_job(struct fuse_job *job)
{
	struct fuse_request *r = fuse_request_of_job(job);

	run(r->session, r, MAY_WAIT);
}

/* One after the other, here, as long as no other job has to wait for a worker. */
static void run_lane(struct fuse_job *job)
{
	struct fuse_request *r = fuse_request_of_job(job);
	struct fuse_queue *q = queue_of(r->session, r);
	uint64_t node = fuse_state(r)->h.nodeid;

	do {
		run_job(job);
		job = fuse_lane_next(&q->lanes, node);
		if (job && fuse_pool_backlog(q->pool)) {
			job->run = run_lane;
			fuse_pool_push(q->pool, job);
			return;
		}
	} while (job);
}

/* Would @r, in the pool, only wait for others of its kind there? */
static bool wants_lane(struct fuse_session *s, struct fuse_request *r)
{
	const struct fuse_state *st = fuse_state(r);

	if (st->op == &fuse_ops[FUSE_WRITE])
		return fs_writes_exclude(
			s->cfg.fs, st->h.nodeid,
			((const struct fuse_write_in *)(const void *)st->args)->fh);
	return st->op->flags & FUSE_OP_IN_DIR && st->h.nodeid &&
	       !fs_is_remote(s->cfg.fs, st->h.nodeid);
}

static void offload(struct fuse_session *s, struct fuse_request *r, struct fuse_pool *pool)
{
	struct fuse_state *st = fuse_state(r);

	if (!st->offloaded)
		bump(&queue_of(s, r)->counts[st->op - fuse_ops].offloaded);
	st->offloaded = true;
	st->job.run = run_job;
	if (pool != s->map && wants_lane(s, r)) {
		enum fuse_lane_turn turn =
			fuse_lane_enter(&queue_of(s, r)->lanes, st->h.nodeid, &st->job);

		if (turn == FUSE_LANE_WAIT)
			return;
		if (turn == FUSE_LANE_GO)
			st->job.run = run_lane;
	}
	fuse_pool_push(pool, &st->job);
}

/* Others go on meanwhile, and few of its kind block: no disk is read. */
static bool patient(const struct fuse_request *r)
{
	const struct fuse_op *op = ((const struct fuse_state *)(const void *)r->priv)->op;

	return r->may_block && (op->class == FUSE_RUN_ADAPT || op == &fuse_ops[FUSE_WRITE]);
}

/* @r would not run without waiting. Is that likely to mean that it does not block all the same?
 * @blind: a write, and nobody could tell */
static bool likely_fast(struct fuse_session *s, struct fuse_request *r, bool blind)
{
	const struct fuse_state *st = fuse_state(r);
	unsigned int kind = (unsigned int)(st->op - fuse_ops);
	uint64_t node = st->h.nodeid;
	enum fuse_policy_trust how = FUSE_POLICY_PROVEN;

	if (!(st->op->flags & FUSE_OP_TRUST) || (!blind && fs_is_remote(s->cfg.fs, node)))
		return false;
	if (r->may_block && blind)
		how = FUSE_POLICY_PATIENT;
	else if (r->may_block && st->op != &fuse_ops[FUSE_WRITE])
		how = FUSE_POLICY_UNKNOWN;
	return fuse_policy_trusts(&queue_of(s, r)->policy, kind, node, how);
}

/* @r does not run without waiting. */
static void try_again(struct fuse_session *s, struct fuse_request *r, bool blind)
{
	if (likely_fast(s, r, blind))
		run(s, r, LOCAL_ONLY);
	else
		offload(s, r, queue_of(s, r)->pool);
}

/* A write that needs not be tried without waiting. */
static bool is_blind(struct fuse_session *s, const struct fuse_state *st)
{
	const struct fuse_write_in *in = (const struct fuse_write_in *)(const void *)st->args;

	return st->op == &fuse_ops[FUSE_WRITE] &&
	       fs_write_is_blind(s->cfg.fs, st->h.nodeid, in->fh);
}

/* Runs the handler. It may come back to be offloaded, unless it may wait. */
static void run(struct fuse_session *s, struct fuse_request *r, enum run_mode mode)
{
	struct fuse_state *st = fuse_state(r);
	struct fuse_queue *q = queue_of(s, r);
	unsigned int kind = (unsigned int)(st->op - fuse_ops);
	bool scored = mode != NO_WAIT && q->pool &&
		      (st->op->class == FUSE_RUN_ADAPT || st->op->flags & FUSE_OP_TRUST);
	uint64_t node = st->h.nodeid;
	bool trust = st->op->flags & FUSE_OP_TRUST;
	enum fuse_policy_where where = FUSE_POLICY_POOLED;
	struct fuse_policy_run score;
	struct fuse_ctx c;
	ssize_t ret;

	if (mode == NO_WAIT && is_blind(s, st)) {
		try_again(s, r, true);
		return;
	}
	if (mode == LOCAL_ONLY) {
		where = patient(r) ? FUSE_POLICY_RELIEVED : FUSE_POLICY_IN_QUEUE;
		if (r->may_block && !r->may_block(r)) {
			offload(s, r, q->pool);
			return;
		}
	}
	make_ctx(s, r, &c);
	c.nowait = mode == NO_WAIT;
	c.local = mode == LOCAL_ONLY;
	if (scored)
		fuse_policy_begin(&q->policy, &score, kind, trust ? node : 0,
				  st->op == &fuse_ops[FUSE_WRITE] ? r->out.len : 0, where);
	ret = st->op->run(&c);
	if (ret == FUSE_TAKEN)
		return;
	if (ret == FUSE_AGAIN) {
		if (c.nowait)
			try_again(s, r, false);
		else
			offload(s, r, q->pool);
		return;
	}
	if (scored)
		fuse_policy_end(&q->policy, &score);
	fuse_finish(s, r, ret);
}

/* A READ that may be run together with others is kept; true when it was. */
static bool keep(struct fuse_session *s, struct fuse_request *r)
{
	struct fuse_batch *b = queue_of(s, r)->batch;
	struct fuse_ctx c;
	bool kept;

	if (!b || !r->more || fuse_state(r)->op != &fuse_ops[FUSE_READ])
		return false;
	make_ctx(s, r, &c);
	kept = fuse_batch_keep(b, &c);
	if (b->n == FS_BATCH_MAX)
		fuse_session_flush(s, r->queue);
	return kept;
}

void fuse_session_flush(struct fuse_session *s, unsigned int queue)
{
	struct fuse_batch *b = s->queues[queue < s->cfg.num_queues ? queue : 0].batch;
	ssize_t results[FS_BATCH_MAX];
	unsigned int n;

	if (!b || !b->n)
		return;
	n = fs_batch_run(b->ring, s->cfg.fs, results);
	b->n = 0;
	for (unsigned int i = 0; i < n; i++) {
		struct fuse_request *r = b->kept[i].r;

		if (results[i] >= 0)
			fuse_finish(s, r, results[i]);
		else
			run(s, r, NO_WAIT);
	}
}

/* The request is in the epoch. */
static void start(struct fuse_session *s, struct fuse_request *r)
{
	struct fuse_state *st = fuse_state(r);
	struct fuse_queue *q = queue_of(s, r);
	const struct fuse_op *op = st->op;
	int err = s->initialised ? decode_args(s, r) : -EIO;

	if (err) {
		fuse_finish(s, r, err);
		return;
	}
	if (op->class == FUSE_RUN_VMM ||
	    (op == &fuse_ops[FUSE_REMOVEMAPPING] && s->cfg.remove_blocks)) {
		fuse_park(r, true);
		offload(s, r, s->map);
	} else if (!q->pool || !can_offload(op)) {
		run(s, r, MAY_WAIT);
	} else if (op->class == FUSE_RUN_TRY) {
		if (!keep(s, r))
			run(s, r, NO_WAIT);
	} else if (op->class == FUSE_RUN_ADAPT && !fs_is_remote(s->cfg.fs, st->h.nodeid) &&
		   fuse_policy_is_fast(&q->policy, (unsigned int)(op - fuse_ops), patient(r),
				       patient(r) ? 0 : util_now_ns())) {
		run(s, r, LOCAL_ONLY);
	} else {
		offload(s, r, q->pool);
	}
}

/* In the control thread. */
static void run_alone(struct fuse_job *job)
{
	struct fuse_request *r = fuse_request_of_job(job);
	struct fuse_session *s = r->session;
	struct fuse_state *st = fuse_state(r);
	struct fuse_job *held;
	struct fuse_ctx c;
	ssize_t ret;
	size_t len;

	exclusive_begin(s);
	ret = decode_args(s, r);
	if (!ret && !s->initialised && st->op != &fuse_ops[FUSE_INIT])
		ret = -EIO;
	if (!ret) {
		make_ctx(s, r, &c);
		ret = st->op->run(&c);
	}
	len = answer(s, r, ret);
	held = exclusive_end(s);
	r->done(r, len);
	dispatch_held(s, held);
}

void fuse_session_handle(struct fuse_session *s, struct fuse_request *r)
{
	struct fuse_state *st = fuse_state(r);
	int err;

	r->session = s;
	st->offloaded = false;
	st->parked = false;
	st->interrupted = false;
	err = decode_header(r);
	if (err) {
		r->done(r, answer(s, r, err));
		return;
	}
	if (st->op->class == FUSE_RUN_ALONE) {
		fuse_park(r, true);
		st->job.run = run_alone;
		fuse_pool_push(s->control, &st->job);
		return;
	}
	/* What was kept does not wait for what may take longer. */
	if (r->more && st->op != &fuse_ops[FUSE_READ])
		fuse_session_flush(s, r->queue);
	if (enter(s, r))
		start(s, r);
}

/* What was held meanwhile came from the guest that has gone: it must not run for the next one. */
void fuse_session_reset(struct fuse_session *s)
{
	struct fuse_job *held;

	exclusive_begin(s);
	fuse_teardown(s, false);
	held = exclusive_end(s);
	while (held) {
		struct fuse_request *r = fuse_request_of_job(held);

		held = held->next;
		r->done(r, answer(s, r, -EIO));
	}
}

/* --- life --- */

static unsigned int pool_cap(const struct fuse_config *cfg)
{
	if (cfg->pool_size >= 0)
		return (unsigned int)cfg->pool_size;
	/* Deep enough for a disk's queue; the sum over many queues stays bounded. */
	return CLAMP(512 / cfg->num_queues, 8, 64);
}

static void session_threads_start(void *ctx, unsigned int queue)
{
	struct fuse_session *s = ctx;

	if (s->cfg.pool_thread_start)
		s->cfg.pool_thread_start(s->cfg.pool_ctx, queue);
}

struct fuse_session *fuse_session_new(const struct fuse_config *config)
{
	struct fuse_session *s = g_new0(struct fuse_session, 1);
	unsigned int n = MAX(config->num_queues, 1);
	unsigned int cap;

	s->cfg = *config;
	s->cfg.num_queues = n;
	if (!s->cfg.max_write)
		s->cfg.max_write = 1u << 20;
	s->minor = FUSE_OUR_MINOR;
	cap = pool_cap(&s->cfg);
	util_mutex_init(&s->lock);
	util_cond_init(&s->changed);
	s->held_tail = &s->held;
	s->queues = g_aligned_alloc0(n, sizeof(*s->queues), FUSE_CACHE_LINE);
	for (unsigned int i = 0; i < n; i++)
		fuse_lanes_init(&s->queues[i].lanes);
	/* Not for hiprio, which reads nothing. */
	for (unsigned int i = 1; i < n && cap && s->cfg.batch_reads; i++)
		s->queues[i].batch = fuse_batch_new();
	for (unsigned int i = 0; i < n && cap; i++) {
		char name[16];

		g_snprintf(name, sizeof(name), "fuse-pool-%u", i % 1000);
		s->queues[i].pool =
			fuse_pool_new(name, cap, POOL_IDLE_MS, session_threads_start, s, i);
	}
	s->control = fuse_pool_new("fuse-control", 1, POOL_IDLE_MS, session_threads_start, s, n);
	s->map = fuse_pool_new("fuse-map", MAP_THREADS, POOL_IDLE_MS, session_threads_start, s, n);
	s->locker = fuse_pool_new("fuse-lock", 1, POOL_IDLE_MS, session_threads_start, s, n);
	fuse_lock_setup(s);
	fuse_session_set_table(s, config->table);
	return s;
}

void fuse_session_free(struct fuse_session *s)
{
	if (!s)
		return;
	fuse_pool_free(s->control);
	for (unsigned int i = 0; i < s->cfg.num_queues; i++)
		fuse_pool_free(s->queues[i].pool);
	fuse_pool_free(s->map);
	fuse_pool_free(s->locker);
	fuse_lock_cleanup(s);
	fuse_session_set_table(s, NULL);
	for (unsigned int i = 0; i < s->cfg.num_queues; i++) {
		fuse_batch_free(s->queues[i].batch);
		fuse_lanes_destroy(&s->queues[i].lanes);
	}
	g_aligned_free(s->queues);
	util_cond_destroy(&s->changed);
	util_mutex_destroy(&s->lock);
	g_free(s);
}

bool fuse_session_op_stats(struct fuse_session *s, unsigned int i, struct fuse_op_stats *out)
{
	unsigned int op = 0;

	for (; op < FUSE_NUM_OPS; op++) {
		if (fuse_ops[op].name && i-- == 0)
			break;
	}
	if (op == FUSE_NUM_OPS)
		return false;
	*out = (struct fuse_op_stats){.name = fuse_ops[op].name};
	for (unsigned int q = 0; q < s->cfg.num_queues; q++) {
		const struct fuse_op_count *n = &s->queues[q].counts[op];

		out->count += __atomic_load_n(&n->count, __ATOMIC_RELAXED);
		out->errors += __atomic_load_n(&n->errors, __ATOMIC_RELAXED);
		out->offloaded += __atomic_load_n(&n->offloaded, __ATOMIC_RELAXED);
	}
	return true;
}

unsigned int fuse_session_stand_ins(struct fuse_session *s)
{
	return MIN(pool_cap(&s->cfg), STAND_INS);
}

unsigned int fuse_session_threads(struct fuse_session *s)
{
	unsigned int n = fuse_pool_threads(s->control) + fuse_pool_threads(s->map) +
			 fuse_pool_threads(s->locker);

	for (unsigned int i = 0; i < s->cfg.num_queues; i++) {
		if (s->queues[i].pool)
			n += fuse_pool_threads(s->queues[i].pool);
	}
	return n;
}

/* --- files that are gone --- */

struct gone_job {
	struct fuse_job job;
	struct fuse_session *s;
	uint64_t node;
};

static void flush_gone(struct fuse_job *job)
{
	struct gone_job *g = (struct gone_job *)job;
	struct fuse_table *t = fuse_table_get(g->s);

	if (t)
		dm_host_flush_file(t->t, fuse_file_key(g->node), false);
	fuse_table_put(g->s, t);
	g_free(g);
}

void fuse_session_file_gone(struct fuse_session *s, uint64_t node)
{
	struct gone_job *g;

	if (!__atomic_load_n(&s->table, __ATOMIC_RELAXED))
		return;
	g = g_new0(struct gone_job, 1);
	g->s = s;
	g->node = node;
	g->job.run = flush_gone;
	fuse_pool_push(s->map, &g->job);
}
