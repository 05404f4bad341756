// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * A worker puts all its idle operations into the ring, tells the device once, and waits for
 * completions; what has come is handed to the operation's kind, and goes out again as the next
 * request of its train or as a new operation. So at any depth one kick and one wait carry as
 * many requests as there are.
 *
 * Completions are taken by whoever attends the ring (guest_ring_attend()): mostly the worker
 * itself, but with more workers than rings, or while the table's worker thread maps, somebody
 * else. They push the operation onto its worker's stack; only the worker takes from it, all at
 * once.
 *
 * A job whose operations the window serves needs no ring, but a CPU to copy with. So where there
 * are fewer rings than jobs, an operation that was served BURST times in a row is lent to a hot
 * thread. That one goes on with it until something has to be sent, sends that, and the completion
 * comes to the operation's worker as ever.
 *
 * A latency is from the moment before the operation is put into the ring to the moment after its
 * last completion was taken. Operations finished together share one look at the clock.
 */
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>

#include "load_run.h"
#include "load_worker.h"
#include "util_lock.h"

#define BURST 32u

static void push(struct load_op *op)
{
	struct load_worker *w = op->home;

	op->next = __atomic_load_n(&w->finished, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&w->finished, &op->next, op, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
}

static void push_finished(struct guest_req *r)
{
	push(r->user);
}

static bool any_finished(void *ctx)
{
	struct load_worker *w = ctx;

	return __atomic_load_n(&w->finished, __ATOMIC_ACQUIRE) != NULL;
}

static void make_idle(struct load_worker *w, struct load_op *op)
{
	op->next = w->idle;
	w->idle = op;
}

/* False when it cannot be sent: the back-end has gone. On true it may be finished already. */
static bool queue_op(struct load_worker *w, struct load_op *op)
{
	int err;

	op->w = w;
	op->r->done = push_finished;
	op->r->user = op;
	op->r->queue = w->queue;
	err = guest_req_queue(op->r);
	if (err == -EAGAIN) {
		guest_ring_kick(w->ring);
		err = guest_req_submit(op->r);
	}
	if (err) {
		load_run_fail(w->run, err, "cannot send a request");
		return false;
	}
	return true;
}

static bool send_op(struct load_worker *w, struct load_op *op)
{
	if (!queue_op(w, op))
		return false;
	w->in_flight++;
	w->unkicked = true;
	return true;
}

static void kick(struct load_worker *w)
{
	if (w->unkicked)
		guest_ring_kick(w->ring);
	w->unkicked = false;
}

static void count(struct load_worker *w, struct load_op *op, uint64_t now)
{
	if (!load_op_counts(op))
		return;
	/* Also read by who shows progress. */
	__atomic_store_n(&w->done, w->done + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&w->bytes, w->bytes + op->bytes, __ATOMIC_RELAXED);
	load_hist_add(&w->hist, now - op->start);
}

static bool may_start(struct load_worker *w, const struct load_job *j)
{
	return j->left && !load_run_stopped(w->run);
}

static enum load_begun begin(struct load_worker *w, struct load_op *op, uint64_t *now)
{
	enum load_begun begun;

	op->job->left--;
	op->step = 0;
	op->bytes = 0;
	op->start = *now;
	begun = w->run->kind->begin(op);
	if (begun == LOAD_SERVED) {
		*now = util_now_ns();
		count(w, op, *now);
		if (*now >= w->run->end_ns)
			load_run_stop(w->run);
	}
	return begun;
}

static bool lend(struct load_worker *w, struct load_op *op)
{
	struct load_hot *hot = w->run->hot;

	if (!hot)
		return false;
	__atomic_add_fetch(&w->lent, 1, __ATOMIC_RELAXED);
	w->in_flight++;
	util_mutex_lock(&hot->lock);
	op->next = hot->ops;
	hot->ops = op;
	util_cond_signal(&hot->cond);
	util_mutex_unlock(&hot->lock);
	return true;
}

static bool should_poll(struct load_worker *w)
{
	return any_finished(w) || (w->in_flight && guest_ring_looks_ready(w->ring));
}

/* Begins @op, again and again while it is served on the spot: for a while, then it is the others'
 * turn. */
static void start(struct load_worker *w, struct load_op *op, uint64_t *now)
{
	for (unsigned int n = 0; may_start(w, op->job); n++) {
		enum load_begun begun;

		if (n == BURST && lend(w, op))
			return;
		if (n == BURST || should_poll(w)) {
			/* Not to let what is in flight wait. */
			make_idle(w, op);
			return;
		}
		begun = begin(w, op, now);
		if (begun == LOAD_SEND)
			send_op(w, op);
		if (begun != LOAD_SERVED)
			return;
		kick(w); /* what the others have queued */
	}
}

static void start_idle(struct load_worker *w)
{
	struct load_op *list = w->idle;
	uint64_t now = util_now_ns();

	w->idle = NULL;
	if (now >= w->run->end_ns)
		load_run_stop(w->run);
	while (list) {
		struct load_op *op = list;

		list = op->next;
		start(w, op, &now);
	}
	kick(w);
}

static void take_finished(struct load_worker *w)
{
	struct load_op *list = __atomic_exchange_n(&w->finished, NULL, __ATOMIC_ACQUIRE);
	uint64_t now = util_now_ns();

	while (list) {
		struct load_op *op = list;

		list = op->next;
		w->in_flight--;
		if (op->given_back) {
			op->given_back = false;
			make_idle(w, op);
			continue;
		}
		op->step++;
		if (op->r->error == -ENOTCONN)
			load_run_fail(w->run, -ENOTCONN, "the back-end has gone");
		else if (w->run->kind->next(op) && send_op(w, op))
			continue;
		count(w, op, now);
		make_idle(w, op);
	}
}

static bool poll_ready(struct load_worker *w)
{
	const struct load_config *c = w->run->config;

	return guest_ring_attend(w->ring, any_finished, w, c->poll_us * 1000ull,
				 util_now_ns() + c->timeout * 1000000000ull);
}

/* --- forgetting --- */

static void forget_done(struct guest_req *r)
{
	bool *sent = r->user;

	__atomic_store_n(sent, false, __ATOMIC_RELEASE);
}

static bool forget_free(void *ctx)
{
	struct load_worker *w = ctx;

	for (unsigned int i = 0; i < G_N_ELEMENTS(w->forget_sent); i++)
		if (!__atomic_load_n(&w->forget_sent[i], __ATOMIC_ACQUIRE))
			return true;
	return false;
}

static bool forget_all_free(void *ctx)
{
	struct load_worker *w = ctx;

	for (unsigned int i = 0; i < G_N_ELEMENTS(w->forget_sent); i++)
		if (__atomic_load_n(&w->forget_sent[i], __ATOMIC_ACQUIRE))
			return false;
	return true;
}

static void forget_flush(struct load_worker *w)
{
	struct guest_ring *hiprio = guest_frontend_ring(w->run->fe, 0);
	struct fuse_batch_forget_in *in;
	unsigned int i = 0;
	struct guest_req *r;

	if (!w->nforgets || !hiprio)
		return;
	guest_ring_poll(hiprio);
	if (!guest_ring_attend(hiprio, forget_free, w, 0, util_now_ns() + 30000000000ull))
		return;
	while (__atomic_load_n(&w->forget_sent[i], __ATOMIC_ACQUIRE))
		i++;
	r = w->forget_reqs[i];
	guest_req_start(r, FUSE_BATCH_FORGET, 0);
	in = guest_req_arg(r, sizeof(*in));
	in->count = w->nforgets;
	guest_req_bytes(r, w->forgets, w->nforgets * (uint32_t)sizeof(w->forgets[0]));
	r->done = forget_done;
	r->user = &w->forget_sent[i];
	w->nforgets = 0;
	__atomic_store_n(&w->forget_sent[i], true, __ATOMIC_RELEASE);
	if (guest_req_submit(r))
		__atomic_store_n(&w->forget_sent[i], false, __ATOMIC_RELEASE);
}

void load_forget(struct load_worker *w, uint64_t node)
{
	w->forgets[w->nforgets++] = (struct fuse_forget_one){.nodeid = node, .nlookup = 1};
	if (w->nforgets == LOAD_FORGETS)
		forget_flush(w);
}

/* First thing in a thread. */
static void stay(const struct load_worker *w)
{
	cpu_set_t set;

	if (w->cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(w->cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		load_run_fail(w->run, -errno, "option --bind: CPU %d", w->cpu);
}

/* --- lent operations --- */

static void run_hot(struct load_worker *w, struct load_op *op)
{
	struct load_worker *home = op->home;
	uint64_t now = util_now_ns();
	enum load_begun begun = LOAD_SERVED;

	op->w = w;
	while (begun == LOAD_SERVED && may_start(w, op->job))
		begun = begin(w, op, &now);
	if (begun == LOAD_SEND && queue_op(home, op)) {
		__atomic_sub_fetch(&home->lent, 1, __ATOMIC_RELAXED);
		guest_ring_kick(home->ring);
		return;
	}
	op->w = home;
	op->given_back = true;
	__atomic_sub_fetch(&home->lent, 1, __ATOMIC_RELAXED);
	push(op);
	guest_ring_rouse(home->ring);
}

static gpointer hot_thread(gpointer data)
{
	struct load_worker *w = data;
	struct load_hot *hot = w->run->hot;
	struct load_op *op;

	stay(w);
	for (;;) {
		util_mutex_lock(&hot->lock);
		while (!hot->ops && !hot->stop)
			util_cond_wait(&hot->cond, &hot->lock);
		op = hot->ops;
		if (op)
			hot->ops = op->next;
		util_mutex_unlock(&hot->lock);
		if (!op)
			return NULL;
		run_hot(w, op);
	}
}

/* --- the thread --- */

static gpointer worker_thread(gpointer data)
{
	struct load_worker *w = data;
	struct guest_ring *hiprio = guest_frontend_ring(w->run->fe, 0);

	stay(w);
	load_run_wait_go(w->run);
	for (;;) {
		start_idle(w);
		if (!w->in_flight && !w->idle)
			break;
		if (w->idle) {
			guest_ring_poll(w->ring);
		} else if (!poll_ready(w) && !__atomic_load_n(&w->lent, __ATOMIC_RELAXED)) {
			load_run_fail(w->run, -ETIMEDOUT, "the back-end does not answer");
			/* Ends what is in flight. */
			shutdown(guest_frontend_socket(w->run->fe), SHUT_RDWR);
		}
		take_finished(w);
	}
	forget_flush(w);
	if (hiprio)
		guest_ring_attend(hiprio, forget_all_free, w, 0, util_now_ns() + 30000000000ull);
	return NULL;
}

void load_worker_start(struct load_worker *w)
{
	for (unsigned int i = 0; i < w->nops; i++)
		make_idle(w, &w->ops[i]);
	w->thread = g_thread_new("load", w->ring ? worker_thread : hot_thread, w);
}

void load_worker_join(struct load_worker *w)
{
	g_thread_join(g_steal_pointer(&w->thread));
}
