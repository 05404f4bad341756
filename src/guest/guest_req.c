// SPDX-License-Identifier: Apache-2.0
/*
 * Requests in parts. Each has its own two pieces of guest memory, made once: one for header and
 * arguments, one for the reply's. They go into the chain as the Linux driver lays them out
 * (header, arguments, data; header, arguments, data), which is what back-ends are tuned for.
 *
 * Each reply is checked: its length is what the device says it wrote, its unique is ours, an
 * error comes alone. A SETUPMAPPING that is answered before the window holds its mapping is
 * written down with the window's broken rules.
 */
#include <errno.h>
#include <string.h>

#include "guest_fuse.h"
#include "guest_fuse_internal.h"
#include "guest_internal.h"

#define HDR_OUT ((uint32_t)sizeof(struct fuse_in_header))
#define HDR_IN ((uint32_t)sizeof(struct fuse_out_header))

/* --- the pool --- */

struct guest_req *guest_req_get(struct guest_fuse *f)
{
	struct guest_req *r;

	util_mutex_lock(&f->lock);
	r = f->free;
	if (r)
		f->free = r->next;
	util_mutex_unlock(&f->lock);
	return r;
}

struct guest_req *guest_fuse_take(struct guest_fuse *f)
{
	struct guest_req *r;

	util_mutex_lock(&f->lock);
	while (!f->free)
		util_cond_wait(&f->freed, &f->lock);
	r = f->free;
	f->free = r->next;
	util_mutex_unlock(&f->lock);
	return r;
}

struct guest_req *guest_fuse_begin(struct guest_fuse *f, uint32_t opcode, uint64_t nodeid)
{
	struct guest_req *r = guest_fuse_take(f);

	guest_req_start(r, opcode, nodeid);
	return r;
}

void guest_req_put(struct guest_req *r)
{
	struct guest_fuse *f = r->fuse;

	util_mutex_lock(&f->lock);
	r->next = f->free;
	f->free = r;
	util_cond_signal(&f->freed);
	util_mutex_unlock(&f->lock);
}

/* --- building --- */

struct fuse_in_header *guest_req_header(struct guest_req *r)
{
	return (struct fuse_in_header *)r->out_buf;
}

const struct fuse_out_header *guest_req_reply_header(struct guest_req *r)
{
	return (const struct fuse_out_header *)r->in_buf;
}

void guest_req_start(struct guest_req *r, uint32_t opcode, uint64_t nodeid)
{
	struct guest_fuse *f = r->fuse;
	struct fuse_in_header *h = guest_req_header(r);

	r->done = NULL;
	r->user = NULL;
	r->queue = 0;
	r->hiprio =
		opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
	r->no_reply = opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET;
	r->arg_len = r->reply_len = r->reply_min = 0;
	r->nout = r->nin = 2;
	memset(h, 0, sizeof(*h));
	h->opcode = opcode;
	h->nodeid = nodeid;
	h->unique = __atomic_add_fetch(&f->unique, 2, __ATOMIC_RELAXED);
	h->uid = __atomic_load_n(&f->uid, __ATOMIC_RELAXED);
	h->gid = __atomic_load_n(&f->gid, __ATOMIC_RELAXED);
	h->pid = f->pid;
	h->len = HDR_OUT;
}

void *guest_req_arg(struct guest_req *r, uint32_t size)
{
	void *p = r->out_buf + HDR_OUT + r->arg_len;

	g_assert(r->nout == 2 && HDR_OUT + r->arg_len + size <= GUEST_REQ_OUT);
	memset(p, 0, size);
	r->arg_len += size;
	guest_req_header(r)->len += size;
	return p;
}

void guest_req_bytes(struct guest_req *r, const void *p, uint32_t len)
{
	if (len)
		memcpy(guest_req_arg(r, len), p, len);
}

void guest_req_str(struct guest_req *r, const char *s)
{
	guest_req_bytes(r, s, (uint32_t)strlen(s) + 1);
}

void guest_req_out_data(struct guest_req *r, void *p, uint32_t len)
{
	g_assert(r->nout < G_N_ELEMENTS(r->out));
	r->out[r->nout++] = (struct guest_seg){.p = p, .len = len};
	guest_req_header(r)->len += len;
}

void *guest_req_reply_upto(struct guest_req *r, uint32_t size)
{
	g_assert(HDR_IN + size <= GUEST_REQ_IN);
	r->reply_len = size;
	return r->in_buf + HDR_IN;
}

void *guest_req_reply(struct guest_req *r, uint32_t size)
{
	r->reply_min = size;
	return guest_req_reply_upto(r, size);
}

void guest_req_in_data(struct guest_req *r, void *p, uint32_t len)
{
	g_assert(r->nin < G_N_ELEMENTS(r->in));
	r->in[r->nin++] = (struct guest_seg){.p = p, .len = len};
}

/* --- finishing --- */

static int fault(struct guest_req *r, const char *what)
{
	struct guest_fuse *f = r->fuse;
	char *s = g_strdup_printf("opcode %u unique %" G_GUINT64_FORMAT ": %s",
				  guest_req_header(r)->opcode, guest_req_header(r)->unique, what);

	util_mutex_lock(&f->lock);
	if (!f->fault)
		f->fault = g_steal_pointer(&s);
	util_mutex_unlock(&f->lock);
	g_free(s);
	return -EPROTO;
}

static int check_reply(struct guest_req *r)
{
	const struct fuse_out_header *h = guest_req_reply_header(r);

	r->len = 0;
	if (r->no_reply)
		return r->written ? fault(r, "an answer where FUSE sends none") : 0;
	if (!r->written && guest_req_header(r)->opcode == FUSE_INTERRUPT)
		return 0;
	if (r->written < HDR_IN)
		return fault(r, "no reply header");
	if (h->len != r->written)
		return fault(r, "length in the reply is not what was written");
	if (h->unique != guest_req_header(r)->unique)
		return fault(r, "unique of another request");
	if (h->error > 0 || h->error <= -512)
		return fault(r, "error is no errno");
	if (h->error && h->len != HDR_IN)
		return fault(r, "error with data");
	r->len = r->written - HDR_IN;
	if (!h->error && r->len < r->reply_min)
		return fault(r, "short reply");
	return h->error;
}

static void check_mapping(struct guest_req *r)
{
	const struct fuse_setupmapping_in *m = (const void *)(r->out_buf + HDR_OUT);
	struct guest_window *w = guest_frontend_window(r->fuse->fe);

	if (guest_req_header(r)->opcode != FUSE_SETUPMAPPING || r->arg_len != sizeof(*m))
		return;
	if (guest_window_base(w) && !guest_window_mapped(w, m->moffset, m->len))
		guest_window_violate(w,
				     "SETUPMAPPING [0x%" G_GINT64_MODIFIER
				     "x +0x%" G_GINT64_MODIFIER
				     "x] answered before its mapping was there",
				     (guint64)m->moffset, (guint64)m->len);
}

void guest_fuse_on_done(void *token, int status, uint32_t written)
{
	struct guest_req *r = token;
	struct guest_fuse *f = r->fuse;

	r->written = written;
	r->error = status ? status : check_reply(r);
	if (!r->error)
		check_mapping(r);
	if (__atomic_load_n(&f->waiting, __ATOMIC_SEQ_CST)) {
		util_mutex_lock(&f->lock);
		util_cond_broadcast(&f->room);
		util_mutex_unlock(&f->lock);
	}
	if (r->done) {
		r->done(r);
		return;
	}
	util_mutex_lock(&r->lock);
	__atomic_store_n(&r->finished, true, __ATOMIC_RELEASE);
	util_cond_signal(&r->cond);
	util_mutex_unlock(&r->lock);
}

/* --- sending --- */

static unsigned int ring_of(struct guest_req *r)
{
	struct guest_fuse *f = r->fuse;
	unsigned int n = guest_frontend_num_queues(f->fe);

	if (r->hiprio || !n)
		return 0;
	if (r->queue)
		return MIN(r->queue, n);
	return 1 + __atomic_fetch_add(&f->turn, 1, __ATOMIC_RELAXED) % n;
}

/* Segments as they go into the chain: without the empty ones. */
static void layout(struct guest_req *r, struct guest_seg **out, unsigned int *nout,
		   unsigned int *nin)
{
	r->out[0] = (struct guest_seg){.p = r->out_buf, .len = HDR_OUT};
	r->out[1] = (struct guest_seg){.p = r->out_buf + HDR_OUT, .len = r->arg_len};
	*out = r->out;
	*nout = r->nout;
	if (!r->arg_len) {
		r->out[1] = r->out[0];
		(*out)++;
		(*nout)--;
	}
	r->in[0] = (struct guest_seg){.p = r->in_buf, .len = HDR_IN};
	r->in[1] = (struct guest_seg){.p = r->in_buf + HDR_IN, .len = r->reply_len};
	*nin = r->no_reply ? 0 : r->nin;
}

static int submit_to(struct guest_req *r, struct guest_ring *ring, bool kick)
{
	struct guest_seg *out;
	struct guest_seg *in = r->in;
	unsigned int nout;
	unsigned int nin;

	layout(r, &out, &nout, &nin);
	if (nin && !r->reply_len) {
		r->in[1] = r->in[0];
		in++;
		nin--;
	}
	memset(r->in_buf, 0, HDR_IN);
	r->finished = false;
	r->ring = ring;
	return kick ? guest_ring_submit(ring, out, nout, in, nin, r)
		    : guest_ring_queue(ring, out, nout, in, nin, r);
}

int guest_req_try_submit(struct guest_req *r)
{
	struct guest_ring *ring = guest_frontend_ring(r->fuse->fe, ring_of(r));

	return ring ? submit_to(r, ring, true) : -ENOTCONN;
}

int guest_req_queue(struct guest_req *r)
{
	struct guest_ring *ring = guest_frontend_ring(r->fuse->fe, ring_of(r));

	return ring ? submit_to(r, ring, false) : -ENOTCONN;
}

struct room {
	struct guest_ring *ring;
	unsigned int in_flight;
};

static bool room_ready(void *ctx)
{
	const struct room *room = ctx;

	return guest_ring_in_flight(room->ring) < room->in_flight;
}

static void wait_room_polled(struct guest_fuse *f, struct guest_ring *ring)
{
	struct room room = {.ring = ring, .in_flight = guest_ring_in_flight(ring)};

	/* Others may have filled it up again meanwhile: the caller tries anew. */
	guest_ring_attend(ring, room_ready, &room, f->spin_ns, util_now_ns() + 100000000);
}

int guest_req_submit(struct guest_req *r)
{
	struct guest_fuse *f = r->fuse;
	struct guest_ring *ring = guest_frontend_ring(f->fe, ring_of(r));
	int err;

	if (!ring)
		return -ENOTCONN;
	err = submit_to(r, ring, true);
	while (err == -EAGAIN) {
		if (f->fe->config.polled) {
			wait_room_polled(f, ring);
			err = submit_to(r, ring, true);
			continue;
		}
		util_mutex_lock(&f->lock);
		__atomic_add_fetch(&f->waiting, 1, __ATOMIC_SEQ_CST);
		err = submit_to(r, ring, true);
		if (err == -EAGAIN)
			util_cond_wait(&f->room, &f->lock);
		__atomic_sub_fetch(&f->waiting, 1, __ATOMIC_SEQ_CST);
		util_mutex_unlock(&f->lock);
		if (err == -EAGAIN)
			err = submit_to(r, ring, true);
	}
	return err;
}

bool guest_req_finished(struct guest_req *r)
{
	return __atomic_load_n(&r->finished, __ATOMIC_ACQUIRE);
}

static bool req_ready(void *ctx)
{
	return guest_req_finished(ctx);
}

static int wait_polled(struct guest_req *r, uint64_t deadline)
{
	/* Without a ring any more the session has ended, and the request with it. */
	if (!guest_req_finished(r) &&
	    !guest_ring_attend(r->ring, req_ready, r, r->fuse->spin_ns, deadline))
		return -ETIMEDOUT;
	return r->error;
}

static int wait_until(struct guest_req *r, uint64_t deadline)
{
	bool finished;

	if (r->fuse->fe->config.polled)
		return wait_polled(r, deadline);
	util_mutex_lock(&r->lock);
	while (!r->finished && util_cond_wait_until(&r->cond, &r->lock, deadline))
		;
	finished = r->finished;
	util_mutex_unlock(&r->lock);
	return finished ? r->error : -ETIMEDOUT;
}

int guest_req_wait(struct guest_req *r)
{
	int err;

	do {
		err = wait_until(r, util_now_ns() + 3600ull * 1000000000);
	} while (err == -ETIMEDOUT && !guest_req_finished(r));
	return err;
}

int guest_req_wait_for(struct guest_req *r, int timeout_ms)
{
	return wait_until(r, util_now_ns() + (uint64_t)timeout_ms * 1000000);
}

int guest_req_call(struct guest_req *r)
{
	int err = guest_req_submit(r);

	return err ? err : guest_req_wait(r);
}
