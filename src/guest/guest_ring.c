// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Descriptor table, avail and used ring lie in guest memory, as does one indirect table for each
 * descriptor. What must survive a lying device is kept outside: the free list, how many
 * descriptors each head owns, its token. The device gets to choose only which live head is done
 * and how many bytes it claims; a number that is no live head is written down and skipped.
 *
 * A submit fills descriptors and publishes the avail index under the mutex; the kick follows
 * where avail_event (or the used ring's flag) asks for it. Completions are taken in groups under
 * the mutex and handed out without it, so a callback may submit again.
 *
 * Sleeping: used_event is set to the next index expected, then the used index is looked at once
 * more, then the call eventfd is waited for. Pollers leave used_event behind, so a device that
 * honours it sends them no interrupts.
 *
 * A thread that sleeps waits for its own completion, and anybody may take that one: also who polls
 * in passing, before the sleeper has asked for an interrupt, so that none will ever come. So each
 * sleeper counts itself before it looks for the last time, and whoever has taken something looks at
 * that count and wakes them, be it on the eventfd or on the seat.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include <glib.h>

#include "guest_ring.h"
#include "util_fd.h"
#include "util_lock.h"
#include "util_overflow.h"
#include "util_yield.h"

#define MAX_NUM 1024u
#define GROUP 64u
#define NAPPING (1u << 31)

struct used_elem {
	uint32_t id;
	uint32_t len;
};

/* What a head in flight stands for. */
struct inflight {
	void *token;
	uint16_t ndesc;
	bool busy;
};

struct guest_ring {
	struct guest_mem *mem;
	unsigned int num;
	unsigned int flags;
	guest_ring_done done;
	void *owner;
	int kick;
	int call;
	void *block; /* all of it, in guest memory */
	size_t block_size;

	struct guest_desc *desc;
	uint16_t *avail;	     /* flags, idx, ring[num], used_event */
	uint16_t *used;		     /* flags, idx, then elements */
	struct used_elem *used_ring; /* [num], then avail_event */
	struct guest_desc *tables;   /* num indirect tables of GUEST_RING_SEGS */

	/* guest_ring_attend(); the lock is taken before @lock */
	struct util_mutex seat;
	struct util_cond seat_cond;
	bool attended;
	unsigned int sleepers; /* atomic: those on @seat_cond, and NAPPING: who sleeps on @call */

	struct util_mutex lock; /* everything below */
	struct inflight *inflight;
	uint16_t *next_free;
	uint16_t free_head;
	unsigned int num_free;
	unsigned int in_flight;
	uint16_t avail_idx;
	uint16_t kicked_idx;
	uint16_t last_used;
	bool dead;
	const char *error;
};

static uint16_t *avail_event(struct guest_ring *r)
{
	return (uint16_t *)&r->used_ring[r->num];
}

static uint16_t *used_event(struct guest_ring *r)
{
	return &r->avail[2 + r->num];
}

static void ring_clear_locked(struct guest_ring *r) UTIL_REQUIRES(&r->lock)
{
	memset(r->block, 0, r->block_size);
	for (unsigned int i = 0; i < r->num; i++) {
		r->next_free[i] = (uint16_t)(i + 1);
		r->inflight[i] = (struct inflight){0};
	}
	r->free_head = 0;
	r->num_free = r->num;
	r->in_flight = 0;
	r->avail_idx = r->kicked_idx = r->last_used = 0;
}

struct guest_ring *guest_ring_new(struct guest_mem *mem, unsigned int num, unsigned int flags,
				  guest_ring_done done)
{
	struct guest_ring *r;
	size_t desc = sizeof(struct guest_desc) * num;
	size_t avail = (6 + 2 * (size_t)num + 63) & ~63u;
	size_t used = (6 + sizeof(struct used_elem) * num + 63) & ~63u;
	size_t tables = desc * GUEST_RING_SEGS;

	if (!util_is_pow2(num) || num > MAX_NUM) {
		errno = EINVAL;
		return NULL;
	}
	r = g_new0(struct guest_ring, 1);
	r->mem = mem;
	r->num = num;
	r->flags = flags;
	r->done = done;
	r->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r->block_size = tables + desc + avail + used;
	r->block = guest_mem_alloc(mem, r->block_size);
	r->inflight = g_new0(struct inflight, num);
	r->next_free = g_new0(uint16_t, num);
	util_mutex_init(&r->lock);
	util_mutex_init(&r->seat);
	util_cond_init(&r->seat_cond);
	if (!r->block || r->kick < 0 || r->call < 0) {
		guest_ring_free(r);
		errno = ENOMEM;
		return NULL;
	}
	r->tables = r->block;
	r->desc = (void *)((uint8_t *)r->block + tables);
	r->avail = (void *)((uint8_t *)r->desc + desc);
	r->used = (void *)((uint8_t *)r->avail + avail);
	r->used_ring = (void *)(r->used + 2);
	util_mutex_lock(&r->lock);
	ring_clear_locked(r);
	util_mutex_unlock(&r->lock);
	return r;
}

void guest_ring_free(struct guest_ring *r)
{
	if (!r)
		return;
	guest_mem_release(r->mem, r->block, r->block_size);
	util_close(&r->kick);
	util_close(&r->call);
	util_mutex_destroy(&r->lock);
	util_cond_destroy(&r->seat_cond);
	util_mutex_destroy(&r->seat);
	g_free(r->inflight);
	g_free(r->next_free);
	g_free(r);
}

void guest_ring_set_flags(struct guest_ring *r, unsigned int flags)
{
	r->flags = flags;
}

/* --- submitting --- */

static uint16_t desc_take_locked(struct guest_ring *r) UTIL_REQUIRES(&r->lock)
{
	uint16_t i = r->free_head;

	g_assert(r->num_free);
	r->free_head = r->next_free[i];
	r->num_free--;
	return i;
}

static void make_available_locked(struct guest_ring *r, uint16_t head) UTIL_REQUIRES(&r->lock)
{
	r->avail[2 + (r->avail_idx & (r->num - 1))] = head;
	r->avail_idx++;
	/* Ordered before the read of avail_event in guest_ring_kick(). */
	__atomic_store_n(&r->avail[1], r->avail_idx, __ATOMIC_SEQ_CST);
}

static void chain_begin_locked(struct guest_ring *r, uint16_t head, unsigned int n, void *token)
	UTIL_REQUIRES(&r->lock)
{
	r->inflight[head] = (struct inflight){
		.token = token,
		.ndesc = (uint16_t)n,
		.busy = true,
	};
	r->in_flight++;
}

/* Takes @n descriptors off the free list into @idx; they stay linked through next_free. */
static void chain_take_locked(struct guest_ring *r, uint16_t *idx, unsigned int n)
	UTIL_REQUIRES(&r->lock)
{
	for (unsigned int i = 0; i < n; i++)
		idx[i] = desc_take_locked(r);
	for (unsigned int i = 0; i + 1 < n; i++)
		r->next_free[idx[i]] = idx[i + 1];
}

static bool fill_desc(struct guest_ring *r, struct guest_desc *d, const struct guest_seg *s,
		      bool write)
{
	d->len = s->len;
	d->flags = write ? GUEST_DESC_WRITE : 0;
	d->next = 0;
	return guest_mem_gpa(r->mem, s->p, s->len, &d->addr);
}

static int build_chain(struct guest_ring *r, struct guest_desc *d, const struct guest_seg *out,
		       unsigned int nout, const struct guest_seg *in, unsigned int nin)
{
	unsigned int n = nout + nin;

	for (unsigned int i = 0; i < n; i++) {
		bool write = i >= nout;

		if (!fill_desc(r, &d[i], write ? &in[i - nout] : &out[i], write))
			return -EFAULT;
		if (i + 1 < n) {
			d[i].flags |= GUEST_DESC_NEXT;
			d[i].next = (uint16_t)(i + 1);
		}
	}
	return 0;
}

static void put_indirect_locked(struct guest_ring *r, const struct guest_desc *d, unsigned int n,
				void *token) UTIL_REQUIRES(&r->lock)
{
	uint16_t head = desc_take_locked(r);
	struct guest_desc *table = r->tables + (size_t)head * GUEST_RING_SEGS;

	memcpy(table, d, n * sizeof(*d));
	r->desc[head].len = (uint32_t)(n * sizeof(*d));
	r->desc[head].flags = GUEST_DESC_INDIRECT;
	r->desc[head].next = 0;
	guest_mem_gpa(r->mem, table, r->desc[head].len, &r->desc[head].addr);
	chain_begin_locked(r, head, 1, token);
	make_available_locked(r, head);
}

/* A next below @n names an entry of @d. */
static void put_direct_locked(struct guest_ring *r, const struct guest_desc *d, unsigned int n,
			      void *token) UTIL_REQUIRES(&r->lock)
{
	uint16_t idx[MAX_NUM];

	chain_take_locked(r, idx, n);
	for (unsigned int i = 0; i < n; i++) {
		r->desc[idx[i]] = d[i];
		if (d[i].next < n)
			r->desc[idx[i]].next = idx[d[i].next];
	}
	chain_begin_locked(r, idx[0], n, token);
	make_available_locked(r, idx[0]);
}

int guest_ring_queue(struct guest_ring *r, const struct guest_seg *out, unsigned int nout,
		     const struct guest_seg *in, unsigned int nin, void *token)
{
	struct guest_desc d[GUEST_RING_SEGS];
	unsigned int n = nout + nin;
	bool indirect;
	int err;

	if (!n || n > GUEST_RING_SEGS || n > r->num)
		return -E2BIG;
	err = build_chain(r, d, out, nout, in, nin);
	if (err)
		return err;
	util_mutex_lock(&r->lock);
	indirect = n > 1 && (r->flags & GUEST_RING_INDIRECT);
	if (r->dead)
		err = -ENOTCONN;
	else if (r->num_free < (indirect ? 1 : n))
		err = -EAGAIN;
	else if (indirect)
		put_indirect_locked(r, d, n, token);
	else
		put_direct_locked(r, d, n, token);
	util_mutex_unlock(&r->lock);
	return err;
}

static void signal_fd(int fd)
{
	uint64_t one = 1;
	/* A full counter (EAGAIN) is a signal too. */
	ssize_t n = write(fd, &one, sizeof(one));

	(void)n;
}

void guest_ring_kick(struct guest_ring *r)
{
	bool need;

	util_mutex_lock(&r->lock);
	if (r->flags & GUEST_RING_EVENT_IDX) {
		uint16_t event = __atomic_load_n(avail_event(r), __ATOMIC_SEQ_CST);

		need = (uint16_t)(r->avail_idx - event - 1) <
		       (uint16_t)(r->avail_idx - r->kicked_idx);
	} else {
		need = r->avail_idx != r->kicked_idx &&
		       !(__atomic_load_n(&r->used[0], __ATOMIC_SEQ_CST) & 1);
	}
	r->kicked_idx = r->avail_idx;
	util_mutex_unlock(&r->lock);
	if (need)
		signal_fd(r->kick);
}

int guest_ring_submit(struct guest_ring *r, const struct guest_seg *out, unsigned int nout,
		      const struct guest_seg *in, unsigned int nin, void *token)
{
	int err = guest_ring_queue(r, out, nout, in, nin, token);

	if (!err)
		guest_ring_kick(r);
	return err;
}

/* --- completing --- */

struct finished {
	void *token;
	uint32_t len;
};

static void *chain_end_locked(struct guest_ring *r, uint16_t head) UTIL_REQUIRES(&r->lock)
{
	struct inflight *f = &r->inflight[head];
	uint16_t last = head;

	for (unsigned int i = 1; i < f->ndesc; i++)
		last = r->next_free[last];
	r->next_free[last] = r->free_head;
	r->free_head = head;
	r->num_free += f->ndesc;
	r->in_flight--;
	f->busy = false;
	return f->token;
}

static unsigned int take_group(struct guest_ring *r, struct finished *f)
{
	unsigned int n = 0;

	util_mutex_lock(&r->lock);
	while (n < GROUP) {
		uint16_t idx = __atomic_load_n(&r->used[1], __ATOMIC_SEQ_CST);
		struct used_elem e;

		if (idx == r->last_used)
			break;
		if ((uint16_t)(idx - r->last_used) > r->num) {
			r->error = "used index ran ahead of the ring";
			break;
		}
		e = r->used_ring[r->last_used & (r->num - 1)];
		__atomic_store_n(&r->last_used, (uint16_t)(r->last_used + 1), __ATOMIC_RELAXED);
		if (e.id >= r->num || !r->inflight[e.id].busy) {
			r->error = "used element is no request in flight";
			continue;
		}
		f[n].token = chain_end_locked(r, (uint16_t)e.id);
		f[n++].len = e.len;
	}
	util_mutex_unlock(&r->lock);
	return n;
}

/* Takes what is finished, and tells nobody. */
static unsigned int take_all(struct guest_ring *r)
{
	struct finished f[GROUP];
	unsigned int total = 0;
	unsigned int n;

	do {
		n = take_group(r, f);
		for (unsigned int i = 0; i < n; i++)
			if (f[i].token)
				r->done(f[i].token, 0, f[i].len);
		total += n;
	} while (n == GROUP);
	return total;
}

/* Tells the others that something was taken: perhaps theirs. An exchange, not a load: one of the
 * two comes first, and either we see the sleeper or it sees what we took. */
void guest_ring_rouse(struct guest_ring *r)
{
	unsigned int sleepers = __atomic_fetch_add(&r->sleepers, 0, __ATOMIC_SEQ_CST);

	if (sleepers & NAPPING)
		guest_ring_wake(r);
	if (!(sleepers & ~NAPPING))
		return;
	util_mutex_lock(&r->seat);
	util_cond_broadcast(&r->seat_cond);
	util_mutex_unlock(&r->seat);
}

unsigned int guest_ring_poll(struct guest_ring *r)
{
	unsigned int n = take_all(r);

	if (n)
		guest_ring_rouse(r);
	return n;
}

static void call_asked_locked(struct guest_ring *r) UTIL_REQUIRES(&r->lock)
{
	/* Ordered before the read of the used index in take_group(). */
	__atomic_store_n(used_event(r), r->last_used, __ATOMIC_SEQ_CST);
}

static void sleep_on_call(struct guest_ring *r, int timeout_ms)
{
	struct pollfd pfd = {.fd = r->call, .events = POLLIN};
	uint64_t count;
	ssize_t got;

	poll(&pfd, 1, timeout_ms);
	got = read(r->call, &count, sizeof(count));
	(void)got;
}

unsigned int guest_ring_wait(struct guest_ring *r, int timeout_ms)
{
	unsigned int n = guest_ring_poll(r);

	if (n)
		return n;
	util_mutex_lock(&r->lock);
	call_asked_locked(r);
	util_mutex_unlock(&r->lock);
	n = guest_ring_poll(r);
	if (n)
		return n;
	sleep_on_call(r, timeout_ms);
	return guest_ring_poll(r);
}

void guest_ring_wake(struct guest_ring *r)
{
	signal_fd(r->call);
}

/* --- attending --- */

bool guest_ring_looks_ready(const struct guest_ring *r)
{
	return __atomic_load_n(&r->used[1], __ATOMIC_ACQUIRE) !=
	       __atomic_load_n(&r->last_used, __ATOMIC_RELAXED);
}

static bool spin(struct guest_ring *r, uint64_t spin_ns)
{
	uint64_t until = util_now_ns() + spin_ns;

	do {
		for (unsigned int i = 0; i < 64; i++) {
			if (guest_ring_looks_ready(r))
				return true;
#if defined(__x86_64__)
			__builtin_ia32_pause();
#endif
		}
	} while (util_now_ns() < until);
	return false;
}

/* Sleeps until the device calls, or somebody has taken what may be ours. */
static unsigned int nap(struct guest_ring *r, bool (*ready)(void *ctx), void *ctx, int timeout_ms)
{
	unsigned int n;

	util_yield();
	__atomic_fetch_or(&r->sleepers, NAPPING, __ATOMIC_SEQ_CST);
	util_mutex_lock(&r->lock);
	call_asked_locked(r);
	util_mutex_unlock(&r->lock);
	n = take_all(r);
	if (!n && !ready(ctx)) {
		util_yield();
		sleep_on_call(r, timeout_ms);
		n = take_all(r);
	}
	__atomic_fetch_and(&r->sleepers, ~NAPPING, __ATOMIC_SEQ_CST);
	return n;
}

static bool attend_alone(struct guest_ring *r, bool (*ready)(void *ctx), void *ctx,
			 uint64_t spin_ns, uint64_t deadline_ns)
{
	while (!ready(ctx)) {
		uint64_t now = util_now_ns();
		unsigned int n;

		if (now >= deadline_ns)
			return false;
		if (guest_ring_looks_ready(r) || (spin_ns && spin(r, spin_ns)))
			n = take_all(r);
		else
			n = nap(r, ready, ctx,
				(int)MIN((deadline_ns - now) / 1000000 + 1, INT_MAX));
		if (n)
			guest_ring_rouse(r);
	}
	return true;
}

bool guest_ring_attend(struct guest_ring *r, bool (*ready)(void *ctx), void *ctx, uint64_t spin_ns,
		       uint64_t deadline_ns)
{
	bool in_time = true;

	if (ready(ctx))
		return true;
	util_mutex_lock(&r->seat);
	__atomic_add_fetch(&r->sleepers, 1, __ATOMIC_SEQ_CST);
	while (in_time && !ready(ctx) && r->attended)
		in_time = util_cond_wait_until(&r->seat_cond, &r->seat, deadline_ns);
	__atomic_sub_fetch(&r->sleepers, 1, __ATOMIC_SEQ_CST);
	if (!in_time || ready(ctx)) {
		util_mutex_unlock(&r->seat);
		return in_time || ready(ctx);
	}
	r->attended = true;
	util_mutex_unlock(&r->seat);
	in_time = attend_alone(r, ready, ctx, spin_ns, deadline_ns);
	util_mutex_lock(&r->seat);
	r->attended = false;
	if (__atomic_load_n(&r->sleepers, __ATOMIC_SEQ_CST))
		util_cond_broadcast(&r->seat_cond);
	util_mutex_unlock(&r->seat);
	return in_time;
}

unsigned int guest_ring_in_flight(struct guest_ring *r)
{
	unsigned int n;

	util_mutex_lock(&r->lock);
	n = r->in_flight;
	util_mutex_unlock(&r->lock);
	return n;
}

void guest_ring_fail(struct guest_ring *r, int status)
{
	void **tokens = g_new(void *, r->num);
	unsigned int n = 0;

	util_mutex_lock(&r->lock);
	for (unsigned int i = 0; i < r->num; i++) {
		if (!r->inflight[i].busy)
			continue;
		tokens[n++] = chain_end_locked(r, (uint16_t)i);
	}
	if (status == -ENOTCONN)
		r->dead = true;
	util_mutex_unlock(&r->lock);
	for (unsigned int i = 0; i < n; i++)
		if (tokens[i])
			r->done(tokens[i], status, 0);
	g_free(tokens);
	guest_ring_wake(r);
	guest_ring_rouse(r);
}

void guest_ring_reset(struct guest_ring *r)
{
	guest_ring_fail(r, -ECANCELED);
	util_mutex_lock(&r->lock);
	ring_clear_locked(r);
	r->dead = false;
	r->error = NULL;
	util_mutex_unlock(&r->lock);
}

/* --- for the front-end --- */

void guest_ring_set_owner(struct guest_ring *r, void *owner)
{
	r->owner = owner;
}

void *guest_ring_owner(const struct guest_ring *r)
{
	return r->owner;
}

unsigned int guest_ring_num(const struct guest_ring *r)
{
	return r->num;
}

int guest_ring_kick_fd(const struct guest_ring *r)
{
	return r->kick;
}

int guest_ring_call_fd(const struct guest_ring *r)
{
	return r->call;
}

void guest_ring_addr(const struct guest_ring *r, struct guest_msg_vring_addr *a)
{
	a->desc = (uintptr_t)r->desc;
	a->avail = (uintptr_t)r->avail;
	a->used = (uintptr_t)r->used;
}

/* --- raw access --- */

int guest_ring_raw(struct guest_ring *r, const struct guest_desc *d, unsigned int n, void *token)
{
	int err = 0;

	if (!n || n > r->num)
		return -E2BIG;
	util_mutex_lock(&r->lock);
	if (r->dead)
		err = -ENOTCONN;
	else if (r->num_free < n)
		err = -EAGAIN;
	else
		put_direct_locked(r, d, n, token);
	util_mutex_unlock(&r->lock);
	if (!err)
		guest_ring_kick(r);
	return err;
}

void guest_ring_raw_head(struct guest_ring *r, uint16_t head)
{
	util_mutex_lock(&r->lock);
	make_available_locked(r, head);
	util_mutex_unlock(&r->lock);
	signal_fd(r->kick);
}

void guest_ring_raw_jump(struct guest_ring *r, uint16_t by)
{
	util_mutex_lock(&r->lock);
	r->avail_idx = (uint16_t)(r->avail_idx + by);
	__atomic_store_n(&r->avail[1], r->avail_idx, __ATOMIC_RELEASE);
	util_mutex_unlock(&r->lock);
	signal_fd(r->kick);
}

const char *guest_ring_error(struct guest_ring *r)
{
	const char *error;

	util_mutex_lock(&r->lock);
	error = r->error;
	util_mutex_unlock(&r->lock);
	return error;
}
