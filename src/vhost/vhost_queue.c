// SPDX-License-Identifier: Apache-2.0
/*
 * A virtqueue and its thread: theory of operation.
 *
 * The thread pops a batch, calls the owner for each element, publishes what is done in groups of
 * PUBLISH_EVERY and the rest at the end, a group with one index update and at most one signal, and
 * when the ring is empty polls for a while and sleeps (vhost_wait.c). Groups, not the whole batch:
 * the driver can take the first answers and send anew while the others are being worked on. Nor
 * does an answer wait longer than PUBLISH_NS for the next: a driver that polls meanwhile would
 * give up, and then has to be woken for each group.
 * The main thread changes a queue only after vhost_queue_quiesce(), which waits until
 * the thread is idle (waits for @go), or out (inside a request that is parked; when it comes
 * back it looks at everything anew before it touches the ring).
 *
 * Completions. The thread's own go on its private list, published group by group.
 * Others push theirs on @ended and whoever finds it empty publishes for all (elem_combine()):
 * a completion by a pool thread reaches the guest without a change of threads, and
 * threads that complete at the same time neither queue on a lock nor each signal the guest.
 *
 * Blocking. "The thread" is whoever holds that part, and all that is marked [T]. Before what may
 * block it makes @risk odd (vhost_elem_may_block()), afterwards even again (own()). Whoever
 * does the latter goes on as the queue's thread: itself, or, when it takes too long, the relief
 * thread (vhost_queue_relieve()), which has first seen to it that a spare thread waits, and then
 * leaves the part @vacant for that one. The one that comes back too late finds another number
 * in @risk, touches nothing of [T] from then on, completes its element as a pool's thread does,
 * and waits as a spare one for a while. What it had not yet published its successor publishes.
 * To the main thread an element of such a thread is like one in a pool.
 *
 * Memory. The thread keeps a reference to the snapshot in which it resolves descriptors, taken
 * inside an RCU read section, and counts elements in and out (struct vhost_hold): once for a
 * snapshot, not once for an element, and on memory that no other queue touches. A hold ends
 * when it is not current any more, or the thread sleeps, and all its elements are done.
 *
 * Stop. GET_VRING_BASE must not wait for a request that waits for the back-end channel: QEMU
 * serves that channel only after we have answered. The owner marks such requests parked, and
 * the stop waits for the others only. What happens to the parked ones:
 *  - ended before the stop was over: published as usual.
 *  - un-parked while stopped: its in segments get other memory behind them, because what
 *    the guest memory there is used for is not known: after a reset it is somebody else's.
 *  - ended while stopped: kept on @held.
 *  - the ring starts just where it stopped (same base, same used index; QMP stop/cont):
 *    held completions are copied to the guest and published.
 *  - it starts anywhere else: a new epoch; held completions, and those of elements of older
 *    epochs that are yet to end, are dropped.
 *
 * Reset. A driver that starts anew has zeroed rings: base 0 and used index 0 on a ring
 * that has run mean that what used it before is gone. A ring that stopped at just 0/0, after a
 * multiple of 65536 requests, is told apart by its last used entry, which zeroing wipes out.
 */
#define G_LOG_DOMAIN "vhost"
#include "vhost_queue.h"

#include <errno.h>
#include <glib.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_log.h"
#include "util_yield.h"
#include "vhost_priv.h"

/* syscalls: write sched_yield */

#define BATCH_MAX 64
#define PUBLISH_EVERY 4
#define PUBLISH_NS 8000u
/* A thread that was relieved once is at hand for so long. */
#define SPARE_NS 5000000000ull
/* As much of an answer as is kept while a ring is stopped: the largest that FUSE has, and room. */
#define BOUNCE_MAX (4u << 20)

struct elem {
	struct vhost_elem pub;
	struct elem *next;
	struct vhost_hold *hold;
	struct vhost_segs segs; /* owns the arrays behind pub */
	uint8_t *bounce;
	struct iovec *real_in; /* guest segments that bounce stands for */
	size_t len;
	uint32_t epoch;
	uint16_t head;
	bool parked;
};

#define ELEM_SIZE ((sizeof(struct elem) + 15u) & ~(size_t)15)

/* Somebody publishes: stands in @ended for the empty list. */
static struct elem busy_mark;

/* The queue whose thread this is, and what its risk says while this one is in what may block. */
static _Thread_local struct vhost_queue *this_queue;
static _Thread_local uint64_t this_risk;

void *vhost_elem_priv(struct vhost_elem *e)
{
	return (uint8_t *)e + ELEM_SIZE;
}

unsigned int vhost_queue_index(const struct vhost_queue *q)
{
	return q->index;
}

/* --- holds: under the lock --- */

static void hold_try_end(struct vhost_queue *q, struct vhost_hold *h)
{
	if (h == q->hold) {
		if (!q->asleep && !q->idle)
			return;
		if (h->done != h->popped)
			return;
		q->hold = NULL;
	} else if (h->done != h->popped) {
		return;
	}
	vhost_mem_put(h->mem);
	h->mem = NULL;
	h->next = q->hold_free;
	q->hold_free = h;
}

/* Makes the hold current: the thread, before a batch. */
static void hold_refresh(struct vhost_queue *q)
{
	struct vhost_hold *h = q->hold;
	struct vhost_mem *mem;

	util_rcu_read_lock();
	mem = util_rcu_deref(q->d->mem);
	if (h && h->mem == mem) {
		util_rcu_read_unlock();
		return;
	}
	vhost_mem_get(mem);
	util_rcu_read_unlock();
	q->hold = q->hold_free;
	if (q->hold)
		q->hold_free = q->hold->next;
	else
		q->hold = g_new(struct vhost_hold, 1);
	*q->hold = (struct vhost_hold){.mem = mem};
	if (h)
		hold_try_end(q, h);
}

/* --- elements --- */

/* Those that came back are taken as soon as the thread has none: what it keeps at hand does not
 * tell whether more are there (pop() gives one back whenever the ring is empty). */
static struct elem *elem_new(struct vhost_queue *q)
{
	struct elem *e;

	if (!q->own_free) {
		util_mutex_lock(&q->lock);
		q->own_free = q->free;
		q->free = NULL;
		util_mutex_unlock(&q->lock);
	}
	e = q->own_free;
	if (e) {
		q->own_free = e->next;
		return e;
	}
	return g_malloc0(ELEM_SIZE + q->d->config.elem_priv);
}

static void elem_free(struct elem *e)
{
	g_free(e->segs.iov);
	g_free(e->segs.window);
	g_free(e->bounce);
	g_free(e->real_in);
	g_free(e);
}

static void elem_free_list(struct elem **list)
{
	while (*list) {
		struct elem *e = *list;

		*list = e->next;
		elem_free(e);
	}
}

/* Under the lock. */
static void elem_recycle(struct vhost_queue *q, struct elem *e)
{
	g_clear_pointer(&e->bounce, g_free);
	g_clear_pointer(&e->real_in, g_free);
	e->hold->done++;
	hold_try_end(q, e->hold);
	e->hold = NULL;
	e->next = q->free;
	q->free = e;
}

/* Copies what was written to the bounce memory where the guest expects it. */
static void elem_unbounce(struct elem *e)
{
	const struct util_gvec *in = &e->pub.in;
	size_t left = e->len;

	for (unsigned int i = 0; e->bounce && i < in->n && left > 0; i++) {
		size_t n = MIN(left, in->iov[i].iov_len);

		if (e->real_in[i].iov_base)
			memcpy(e->real_in[i].iov_base, in->iov[i].iov_base, n);
		left -= n;
	}
}

/*
 * Under the lock: this element's in segments must not reach guest memory for now. Their sizes
 * are the guest's choice, up to 4 GiB an element: what lies beyond BOUNCE_MAX, or is not to be
 * had, becomes empty.
 */
static void elem_bounce(struct elem *e)
{
	struct util_gvec *in = &e->pub.in;
	size_t room = MIN(in->len, BOUNCE_MAX), at = 0;

	if (e->bounce || in->n == 0)
		return;
	e->bounce = g_try_malloc0(MAX(room, 1));
	if (!e->bounce) {
		room = 0;
		e->bounce = g_malloc0(1);
	}
	e->real_in = g_new(struct iovec, in->n);
	memcpy(e->real_in, in->iov, in->n * sizeof(*in->iov));
	for (unsigned int i = 0; i < in->n; i++) {
		in->iov[i].iov_len = MIN(in->iov[i].iov_len, room - at);
		in->iov[i].iov_base = e->bounce + at;
		if (in->window)
			in->window[i] = UTIL_GVEC_RAM;
		at += in->iov[i].iov_len;
	}
}

/* Under the lock: an element has ended. True when something was pushed. */
static bool elem_end(struct vhost_queue *q, struct elem *e)
{
	q->done++;
	if (e->parked) {
		e->parked = false;
		q->parked--;
	}
	if (e->epoch != q->epoch) {
		elem_recycle(q, e);
		return false;
	}
	if (!q->ready) {
		e->next = NULL;
		*q->held_tail = e;
		q->held_tail = &e->next;
		return false;
	}
	elem_unbounce(e);
	vhost_ring_push(&q->ring, e->head, (uint32_t)e->len);
	elem_recycle(q, e);
	return true;
}

/* Full, or no longer read: the guest will look at the ring anyway, or is gone. */
static void signal_fd(int fd)
{
	uint64_t one = 1;

	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		util_log_once("cannot signal the guest: %s", g_strerror(errno));
}

static void publish_locked(struct vhost_queue *q)
{
	if (vhost_ring_publish(&q->ring))
		signal_fd(q->call);
}

static void publish(struct vhost_queue *q, struct elem *newest)
{
	struct elem *list = NULL;
	bool pushed = false;

	while (newest) { /* oldest first */
		struct elem *e = newest;

		newest = e->next;
		e->next = list;
		list = e;
	}
	util_mutex_lock(&q->lock);
	while (list) {
		struct elem *e = list;

		list = e->next;
		pushed |= elem_end(q, e);
	}
	if (pushed)
		publish_locked(q);
	if (q->pause)
		util_cond_broadcast(&q->changed);
	util_mutex_unlock(&q->lock);
}

/*
 * Adds the chain @first..@last and sees that it gets published. @ended is NULL when nobody
 * publishes; the thread that changes it from NULL publishes all that is there until it can change
 * it from the mark back to NULL.
 */
static void elem_combine(struct vhost_queue *q, struct elem *first, struct elem *last)
{
	struct elem *head = __atomic_load_n(&q->ended, __ATOMIC_RELAXED);
	struct elem *expected;

	do {
		last->next = head == &busy_mark ? NULL : head;
		util_yield();
	} while (!__atomic_compare_exchange_n(&q->ended, &head, first, true, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
	if (head != NULL)
		return;
	do {
		publish(q, __atomic_exchange_n(&q->ended, &busy_mark, __ATOMIC_ACQ_REL));
		util_yield();
		expected = &busy_mark;
	} while (!__atomic_compare_exchange_n(&q->ended, &expected, NULL, false, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
}

/* --- blocking --- */

/* Is this the queue's thread? If it is in what may block, that has ended, or another has taken
 * over meanwhile. */
static bool own(struct vhost_queue *q)
{
	uint64_t risk = this_risk;

	if (this_queue != q)
		return false;
	if (!risk)
		return true;
	this_risk = 0;
	util_yield();
	if (!__atomic_compare_exchange_n(&q->risk, &risk, risk + 1, false, __ATOMIC_RELEASE,
					 __ATOMIC_RELAXED))
		this_queue = NULL;
	return this_queue == q;
}

bool vhost_elem_may_block(struct vhost_elem *pub)
{
	struct vhost_queue *q = pub->queue;

	if (this_queue != q || this_risk)
		return true;
	if (__atomic_load_n(&q->away, __ATOMIC_RELAXED) >= q->d->config.stand_ins)
		return false;
	q->quick = false;
	this_risk = __atomic_load_n(&q->risk, __ATOMIC_RELAXED) + 1;
	__atomic_store_n(&q->risk, this_risk, __ATOMIC_SEQ_CST);
	vhost_relief_attend(&q->d->relief);
	util_yield();
	return true;
}

/* --- the thread's own completions --- */

static void flush(struct vhost_queue *q)
{
	struct elem *first = q->batch, *last = first;

	if (!first)
		return;
	while (last->next)
		last = last->next;
	q->batch = NULL;
	q->batched = 0;
	elem_combine(q, first, last);
}

/* Is it time to publish, more being under way? The clock is looked at once a group as long as
 * whole groups hardly take longer than PUBLISH_NS. */
static bool flush_due(struct vhost_queue *q)
{
	uint64_t now;

	if (q->quick && q->batched < PUBLISH_EVERY)
		return false;
	now = util_now_ns();
	if (q->batched < PUBLISH_EVERY && now - q->flushed_ns < PUBLISH_NS)
		return false;
	q->quick = now - q->flushed_ns < 2 * PUBLISH_NS;
	q->flushed_ns = now;
	return true;
}

void vhost_elem_done(struct vhost_elem *pub, size_t len)
{
	struct elem *e = (struct elem *)pub;
	struct vhost_queue *q = pub->queue;

	e->len = MIN(len, pub->in.len);
	if (own(q)) {
		e->next = q->batch;
		q->batch = e;
		q->batched++;
		if (flush_due(q))
			flush(q);
		return;
	}
	elem_combine(q, e, e);
}

void vhost_elem_parked(struct vhost_elem *pub, bool parked)
{
	struct elem *e = (struct elem *)pub;
	struct vhost_queue *q = pub->queue;
	bool mine = own(q);

	if (mine && parked)
		flush(q);
	util_mutex_lock(&q->lock);
	if (e->parked != parked) {
		e->parked = parked;
		q->parked += parked ? 1 : (uint64_t)-1;
		if (!parked && (!q->ready || e->epoch != q->epoch))
			elem_bounce(e);
		if (mine) {
			q->out = parked;
			q->went_out = true;
		}
		if (q->pause)
			util_cond_broadcast(&q->changed);
	}
	util_mutex_unlock(&q->lock);
}

/* --- the thread --- */

static void ring_broken(struct vhost_queue *q)
{
	util_log_once("queue %u: the available index is impossible; the queue stops until reset",
		      q->index);
	util_mutex_lock(&q->lock);
	q->broken = true;
	signal_fd(q->err);
	util_mutex_unlock(&q->lock);
}

static struct elem *pop(struct vhost_queue *q, int *result)
{
	struct elem *e = elem_new(q);
	struct vhost_segs *s = &e->segs;
	int error = 0;

	*result = vhost_ring_pop(&q->ring, q->hold->mem, s, &e->head, &error);
	if (*result != 1) {
		e->next = q->own_free;
		q->own_free = e;
		return NULL;
	}
	if (error)
		util_log_once("queue %u: bad descriptor chain at head %u: %s", q->index, e->head,
			      error == -EFAULT ? "address in no shared memory"
					       : "malformed or too long");
	e->pub.out = (struct util_gvec){s->iov, s->window, s->n_out, s->out_len};
	e->pub.in = (struct util_gvec){s->iov + s->n_out, s->window ? s->window + s->n_out : NULL,
				       s->n - s->n_out, s->in_len};
	e->pub.queue = q;
	e->pub.error = error;
	e->hold = q->hold;
	e->epoch = q->run_epoch;
	e->parked = false;
	q->hold->popped++;
	q->popped++;
	return e;
}

/*
 * The thread is out only inside the request that it parked: one that was parked and handed to
 * another thread is un-parked there, while this one goes on popping.
 */
static void come_back(struct vhost_queue *q)
{
	util_mutex_lock(&q->lock);
	q->out = false;
	util_mutex_unlock(&q->lock);
}

/*
 * Is something there that may be popped by the snapshot held? 1, 0, or -EINVAL as
 * vhost_ring_peek(). What is next in the ring may have been made available after guest memory was
 * changed, and even be about the change (answers are published within a batch, so the driver may
 * have waited for one, and for the change, before): the snapshot is compared after the available
 * index was seen, and nothing that came later is popped on the strength of it.
 */
static int may_pop(struct vhost_queue *q)
{
	int r = vhost_ring_peek(&q->ring);

	util_yield();
	return r == 1 && util_rcu_deref(q->d->mem) != q->hold->mem ? 0 : r;
}

/* Pops and hands up until the ring is empty, the batch full, guest memory another, or something
 * wants attention. Returns how many. */
static unsigned int run_batch(struct vhost_queue *q)
{
	unsigned int n = 0;
	int r = 1;

	q->went_out = false;
	q->flushed_ns = util_now_ns();
	while (n < BATCH_MAX && !q->went_out && !__atomic_load_n(&q->attention, __ATOMIC_RELAXED)) {
		struct elem *e;

		r = may_pop(q);
		if (r != 1)
			break;
		e = pop(q, &r);
		if (!e && r == -EAGAIN) {
			util_log_once("queue %u: head index outside the ring, skipped", q->index);
			n++;
			continue;
		}
		if (!e)
			break;
		n++;
		q->d->ops.request(q->d->ctx, &e->pub);
		if (!own(q))
			return n;
		if (q->went_out)
			come_back(q);
	}
	if (n && q->d->ops.batch_end)
		q->d->ops.batch_end(q->d->ctx, q);
	flush(q);
	if (r == -EINVAL && !q->went_out)
		ring_broken(q);
	return n;
}

/* Looks at the ring until @until; true when something came. */
static bool spin(struct vhost_queue *q, uint64_t until)
{
	do {
		for (int i = 0; i < 16; i++) {
			if (__atomic_load_n(&q->attention, __ATOMIC_RELAXED) ||
			    vhost_ring_peek(&q->ring))
				return true;
#if defined(__x86_64__) || defined(__i386__)
			__builtin_ia32_pause();
#endif
		}
	} while (util_now_ns() < until);
	return false;
}

static void sleep_for_kick(struct vhost_queue *q)
{
	util_mutex_lock(&q->lock);
	q->asleep = true;
	if (q->hold)
		hold_try_end(q, q->hold);
	util_mutex_unlock(&q->lock);

	vhost_wait_sleep(&q->wait);

	util_mutex_lock(&q->lock);
	q->asleep = false;
	util_mutex_unlock(&q->lock);
}

/* Nothing to pop. */
static void rest(struct vhost_queue *q)
{
	struct vhost_wait *w = &q->wait;
	uint64_t begun = w->max_ns ? util_now_ns() : 0;

	if (!w->poll_ns || !spin(q, begun + w->poll_ns)) {
		if (!vhost_ring_notify_on(&q->ring))
			sleep_for_kick(q);
		vhost_ring_notify_off(&q->ring);
	}
	if (w->max_ns)
		vhost_wait_learn(w, util_now_ns() - begun);
}

/* Under the lock: may the thread pop? Else it waits, idle. */
static bool may_run(struct vhost_queue *q)
{
	__atomic_store_n(&q->attention, false, __ATOMIC_RELAXED);
	return !q->pause && q->ready && q->enabled && !q->broken;
}

/* Under the lock: what the one before has left when it blocked. */
static void inherit(struct vhost_queue *q) UTIL_REQUIRES(q->lock)
{
	util_mutex_unlock(&q->lock);
	if (q->d->ops.batch_end)
		q->d->ops.batch_end(q->d->ctx, q);
	flush(q);
	util_mutex_lock(&q->lock);
}

/* Under the lock: is the queue's thread, until the end or until another took over. */
static void serve(struct vhost_queue *q) UTIL_REQUIRES(q->lock)
{
	this_queue = q;
	inherit(q);
	while (!q->quit) {
		unsigned int n;

		if (!may_run(q)) {
			q->idle = true;
			if (q->hold)
				hold_try_end(q, q->hold);
			util_cond_broadcast(&q->changed);
			util_cond_wait(&q->go, &q->lock);
			q->idle = false;
			continue;
		}
		hold_refresh(q);
		q->run_epoch = q->epoch;
		util_mutex_unlock(&q->lock);
		n = run_batch(q);
		if (this_queue != q) {
			util_mutex_lock(&q->lock);
			__atomic_store_n(&q->away, q->away - 1, __ATOMIC_RELAXED);
			return;
		}
		if (n == 0 && !__atomic_load_n(&q->attention, __ATOMIC_RELAXED))
			rest(q);
		util_mutex_lock(&q->lock);
	}
	this_queue = NULL;
	q->idle = true;
}

/* Under the lock: a spare thread waits until the queue has none. False: it is not needed. */
static bool take_over(struct vhost_queue *q) UTIL_REQUIRES(q->lock)
{
	uint64_t deadline = util_now_ns() + SPARE_NS;

	while (!q->vacant && !q->quit) {
		if (!util_cond_wait_until(&q->relief, &q->lock, deadline))
			break;
	}
	q->spares--;
	if (!q->vacant)
		return false;
	q->vacant = false;
	return true;
}

static void *queue_main(void *arg)
{
	struct vhost_hand *h = arg;
	struct vhost_queue *q = h->q;

	if (q->d->ops.thread_start)
		q->d->ops.thread_start(q->d->ctx, q->index);
	util_mutex_lock(&q->lock);
	while (take_over(q)) {
		serve(q);
		q->spares++;
	}
	h->next = q->left;
	q->left = h;
	q->hands--;
	util_cond_broadcast(&q->changed);
	util_mutex_unlock(&q->lock);
	return NULL;
}

/* Under the lock: one more that is spare. Signals are for the threads
 * that the owner chooses. */
static int hire(struct vhost_queue *q) UTIL_REQUIRES(q->lock)
{
	struct vhost_hand *h = g_new0(struct vhost_hand, 1);
	sigset_t all, old;
	int err;

	h->q = q;
	q->hands++;
	q->spares++;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&h->thread, NULL, queue_main, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		return 0;
	q->hands--;
	q->spares--;
	g_free(h);
	return -err;
}

static void bury(struct vhost_hand *left)
{
	while (left) {
		struct vhost_hand *h = left;

		left = h->next;
		pthread_join(h->thread, NULL);
		g_free(h);
	}
}

void vhost_queue_relieve(struct vhost_queue *q, uint64_t risk)
{
	struct vhost_hand *left;
	int err = 0;

	util_mutex_lock(&q->lock);
	left = q->left;
	q->left = NULL;
	if (!q->quit && !q->spares)
		err = hire(q);
	util_yield();
	if (!q->quit && !err &&
	    __atomic_compare_exchange_n(&q->risk, &risk, risk + 1, false, __ATOMIC_ACQUIRE,
					__ATOMIC_RELAXED)) {
		q->vacant = true;
		__atomic_store_n(&q->away, q->away + 1, __ATOMIC_RELAXED);
		util_cond_signal(&q->relief);
	}
	util_mutex_unlock(&q->lock);
	bury(left);
	if (err)
		util_log_once("queue %u: no thread to stand in: %s", q->index, g_strerror(-err));
}

/* --- main thread --- */

void vhost_queue_init(struct vhost_queue *q, struct vhost_dev *d, unsigned int index)
{
	memset(q, 0, sizeof(*q));
	q->d = d;
	q->index = index;
	q->call = q->err = -1;
	q->held_tail = &q->held;
	vhost_wait_init(&q->wait, d->config.poll_us);
	util_mutex_init(&q->lock);
	util_cond_init(&q->changed);
	util_cond_init(&q->go);
	util_cond_init(&q->relief);
}

void vhost_queue_destroy(struct vhost_queue *q)
{
	elem_free_list(&q->free);
	elem_free_list(&q->own_free);
	while (q->hold_free) {
		struct vhost_hold *h = q->hold_free;

		q->hold_free = h->next;
		g_free(h);
	}
	vhost_wait_destroy(&q->wait);
	util_cond_destroy(&q->relief);
	util_cond_destroy(&q->go);
	util_cond_destroy(&q->changed);
	util_mutex_destroy(&q->lock);
}

static void nudge_locked(struct vhost_queue *q)
{
	__atomic_store_n(&q->attention, true, __ATOMIC_RELAXED);
	vhost_wait_wake(&q->wait);
	util_cond_signal(&q->go);
}

static bool thread_quiet(const struct vhost_queue *q)
{
	return !q->has_thread || q->idle || q->out;
}

void vhost_queue_quiesce(struct vhost_queue *q)
{
	util_mutex_lock(&q->lock);
	q->pause++;
	if (q->has_thread && !q->idle)
		nudge_locked(q);
	while (!thread_quiet(q))
		util_cond_wait(&q->changed, &q->lock);
	util_mutex_unlock(&q->lock);
}

void vhost_queue_resume(struct vhost_queue *q)
{
	util_mutex_lock(&q->lock);
	q->pause--;
	if (q->has_thread && !q->pause)
		nudge_locked(q);
	util_mutex_unlock(&q->lock);
}

static int thread_begin(struct vhost_queue *q)
{
	int err;

	if (q->has_thread)
		return 0;
	err = vhost_relief_begin(&q->d->relief);
	if (err)
		return err;
	util_mutex_lock(&q->lock);
	err = hire(q);
	q->vacant = q->has_thread = !err;
	util_mutex_unlock(&q->lock);
	return err;
}

static void drop_held_locked(struct vhost_queue *q)
{
	while (q->held) {
		struct elem *e = q->held;

		q->held = e->next;
		elem_recycle(q, e);
	}
	q->held_tail = &q->held;
}

static void publish_held_locked(struct vhost_queue *q)
{
	if (!q->held)
		return;
	while (q->held) {
		struct elem *e = q->held;

		q->held = e->next;
		elem_unbounce(e);
		vhost_ring_push(&q->ring, e->head, (uint32_t)e->len);
		elem_recycle(q, e);
	}
	q->held_tail = &q->held;
	q->ring.signalled_valid = false;
	publish_locked(q);
}

void vhost_queue_forget(struct vhost_queue *q)
{
	util_mutex_lock(&q->lock);
	q->epoch++;
	drop_held_locked(q);
	q->fresh_popped = q->popped;
	q->stopped_once = false;
	q->broken = false;
	util_mutex_unlock(&q->lock);
}

static enum vhost_start classify(struct vhost_queue *q, uint16_t used)
{
	uint16_t base = q->ring.next_avail;
	bool same = q->stopped_once && base == q->saved_avail && used == q->saved_used;

	/* Since it stopped, the whole device has: a ring reset by itself is not a device reset. */
	if (base == 0 && used == 0 && q->popped != q->fresh_popped && q->stopped_once &&
	    q->d->stop_gen != q->stop_gen && !(same && vhost_ring_last_matches(&q->ring)))
		return VHOST_START_RESET;
	return same ? VHOST_START_CONT : VHOST_START_FRESH;
}

int vhost_queue_start(struct vhost_queue *q)
{
	uint16_t used = vhost_ring_used_idx(&q->ring);
	enum vhost_start how = classify(q, used);
	int err = thread_begin(q);

	if (err)
		return err;
	if (how != VHOST_START_CONT)
		vhost_queue_forget(q);
	util_mutex_lock(&q->lock);
	q->ring.seen_avail = q->ring.next_avail;
	q->ring.next_used = used;
	q->ring.signalled_valid = false;
	q->broken = false;
	q->ready = true;
	publish_held_locked(q);
	util_mutex_unlock(&q->lock);
	return how;
}

uint16_t vhost_queue_stop(struct vhost_queue *q)
{
	vhost_queue_quiesce(q);
	util_mutex_lock(&q->lock);
	while (!thread_quiet(q) || q->popped - q->done > q->parked)
		util_cond_wait(&q->changed, &q->lock);
	if (q->ready) {
		q->ready = false;
		q->stop_gen = q->d->stop_gen;
		q->stopped_once = true;
		q->saved_avail = q->ring.next_avail;
		q->saved_used = q->ring.next_used;
	}
	util_mutex_unlock(&q->lock);
	vhost_queue_resume(q);
	return q->ring.next_avail;
}

void vhost_queue_enable(struct vhost_queue *q, bool on)
{
	vhost_queue_quiesce(q);
	util_mutex_lock(&q->lock);
	q->enabled = on;
	util_mutex_unlock(&q->lock);
	vhost_queue_resume(q);
}

void vhost_queue_set_kick(struct vhost_queue *q, int fd)
{
	vhost_wait_set_kick(&q->wait, fd);
	q->kick_set = true;
}

void vhost_queue_set_call(struct vhost_queue *q, int fd)
{
	util_mutex_lock(&q->lock);
	util_close(&q->call);
	q->call = fd;
	/* What was published while there was nobody to tell. */
	if (q->ready)
		signal_fd(q->call);
	util_mutex_unlock(&q->lock);
}

void vhost_queue_set_err(struct vhost_queue *q, int fd)
{
	util_mutex_lock(&q->lock);
	util_close(&q->err);
	q->err = fd;
	util_mutex_unlock(&q->lock);
}

void vhost_queue_close(struct vhost_queue *q)
{
	util_mutex_lock(&q->lock);
	q->quit = true;
	q->ready = false;
	q->epoch++;
	if (q->has_thread)
		nudge_locked(q);
	util_cond_broadcast(&q->relief);
	util_mutex_unlock(&q->lock);
}

void vhost_queue_join(struct vhost_queue *q)
{
	struct vhost_hand *left;
	uint32_t epoch;

	util_mutex_lock(&q->lock);
	while (q->hands)
		util_cond_wait(&q->changed, &q->lock);
	left = q->left;
	q->left = NULL;
	q->has_thread = false;
	q->pause++;
	while (q->popped != q->done)
		util_cond_wait(&q->changed, &q->lock);
	q->pause--;
	drop_held_locked(q);
	if (q->hold) {
		q->idle = true;
		hold_try_end(q, q->hold);
	}
	util_mutex_unlock(&q->lock);
	bury(left);
	/* Who published last may still be on its way out. */
	while (__atomic_load_n(&q->ended, __ATOMIC_ACQUIRE))
		sched_yield();
	vhost_ring_unmap(&q->ring);
	util_close(&q->call);
	util_close(&q->err);
	vhost_wait_reset(&q->wait);
	epoch = q->epoch;
	memset(&q->ring, 0, sizeof(q->ring));
	q->addr_set = q->kick_set = q->enabled = q->quit = q->idle = q->out = false;
	q->broken = q->stopped_once = q->asleep = false;
	q->fresh_popped = q->popped;
	q->epoch = epoch + 1;
}
