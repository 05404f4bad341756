// SPDX-License-Identifier: Apache-2.0
/*
 * The channel to the driver: batching by combining.
 *
 * An asker queues its request. If the channel is idle it leads: it takes what is queued, up to
 * what the driver takes profitably in one go, submits it in one call, hands out the results, and
 * passes the lead to one of those that have come meanwhile. So a batch is as large as the driver
 * is slow, nobody waits for a timer, and a lone request goes out at once.
 *
 * Maps go first, as somebody waits for each; then requests whose operations depend on each other
 * (an unmap that makes room for a map), in their own order; then unmaps. All that is under way at
 * one time lies in disjoint claims, so the order between requests means nothing to the outcome.
 *
 * Where a map cannot overlay, each range costs an unmap too, and all that the driver is busy with
 * when a map comes is time on somebody's path. So
 *  - maps and unmaps do not share a round: the maps' askers would wait for the unmaps;
 *  - the reclaim worker's unmaps are patient. They go one by one: one soon after each round of
 *    maps, since who has just been answered is the least likely to ask again at once, and any
 *    number when no map has come for some time. Where maps come too thick for that and overtake
 *    them, a few go at once, as many as there were maps: each map needs an unmap, now or later, and
 *    until then what lingers makes all operations dearer, and may be unmapped on a map's way. Not
 *    right behind the map: QEMU would be busy with the unmap, and hold the lock that the guest's
 *    CPUs need for device registers, while the answer's interrupt is on its way.
 *
 * Where the driver can unmap a part of what it mapped, neighbours are joined into one operation:
 * the table still knows them apart. A joined operation that fails is repeated in its parts, so
 * that each asker gets its own answer.
 *
 * A driver that takes several calls at once is called directly.
 */
#include "dm_core.h"

#include "dm_probe.h"
#include "util_yield.h"

#define UNMAPS_PASSED_OVER 4
#define OWED_URGENT 3u /* so many rounds of maps have overtaken a patient unmap */
#define OWED_MAX 8u
#define SETTLE_MIN_NS UINT64_C(100000)
#define SETTLE_MAX_NS UINT64_C(1000000)
#define QUIET_MIN_NS UINT64_C(2000000)
#define QUIET_MAPS 4 /* no map for as long as so many take: quiet */

/* One submit call being put together. */
struct round {
	struct dm_chan_op **src; /* in the order of sending */
	size_t n_src;
	size_t n_loose; /* the first ones: maps without order */
	size_t n_tail;	/* the last ones: unmaps without order */
};

void dm_chan_init(struct dm_chan *ch)
{
	util_mutex_init(&ch->lock);
	CDS_INIT_LIST_HEAD(&ch->maps);
	CDS_INIT_LIST_HEAD(&ch->unmaps);
	CDS_INIT_LIST_HEAD(&ch->patient);
}

void dm_chan_destroy(struct dm_chan *ch)
{
	g_assert(cds_list_empty(&ch->maps) && cds_list_empty(&ch->unmaps));
	g_assert(cds_list_empty(&ch->patient) && !ch->busy);
	util_mutex_destroy(&ch->lock);
}

static int by_window(const void *a, const void *b)
{
	const struct dm_chan_op *const *x = a, *const *y = b;

	return (*x)->w.offset < (*y)->w.offset ? -1 : (*x)->w.offset > (*y)->w.offset;
}

static bool join(struct dm_window_op *w, const struct dm_window_op *next)
{
	if (w->kind != next->kind || w->offset + w->len != next->offset)
		return false;
	if (w->kind == DM_OP_MAP &&
	    (w->fd != next->fd || w->flags != next->flags || w->key_hi != next->key_hi ||
	     w->key_lo != next->key_lo || w->fd_offset + w->len != next->fd_offset))
		return false;
	w->len += next->len;
	return true;
}

static void count_done(struct dm_core *c, const struct dm_window_op *v, size_t n, uint64_t ns)
{
	uint32_t mapped = __atomic_load_n(&c->budget.mapped, __ATOMIC_RELAXED);

	dm_count(c, DM_C_batches, 1);
	dm_count(c, DM_C_batched_ops, n);
	for (size_t i = 0; i < n; i++) {
		bool map = v[i].kind == DM_OP_MAP;

		if (v[i].result)
			dm_count(c, map ? DM_C_map_errors : DM_C_unmap_errors, 1);
		else
			dm_count(c, map ? DM_C_maps : DM_C_unmaps, 1);
		if (map && !v[i].result) {
			dm_count(c, DM_C_map_ns, ns);
			dm_count_latency(c, ns);
			rc_cost_add(&c->cost, mapped, ns / n);
		}
	}
}

/*
 * Sends src[0..n). @first[i] says where the i-th operation sent begins in src. Returns what the
 * driver said.
 */
static int send_ops(struct dm_core *c, struct round *rd, bool may_join)
{
	struct dm_window_op *v = g_new(struct dm_window_op, rd->n_src);
	size_t *first = g_new(size_t, rd->n_src + 1);
	size_t n = 0, n_again = 0;
	uint64_t start;
	int rc;

	for (size_t i = 0; i < rd->n_src; i++) {
		bool loose = i < rd->n_loose || i >= rd->n_src - rd->n_tail;

		if (may_join && loose && n && join(&v[n - 1], &rd->src[i]->w))
			continue;
		first[n] = i;
		v[n] = rd->src[i]->w;
		v[n++].result = -EIO;
	}
	first[n] = rd->n_src;
	dm_count(c, DM_C_coalesced, rd->n_src - n);
	start = util_now_ns();
	DM_PROBE2(submit, n, rd->n_src);
	rc = dm_window_submit(c->window, v, n);
	count_done(c, v, n, util_now_ns() - start);

	for (size_t i = 0; i < n; i++) {
		bool again = v[i].result && first[i + 1] - first[i] > 1 && rc == 0;

		for (size_t j = first[i]; j < first[i + 1]; j++) {
			rd->src[j]->w.result = rc ? rc : v[i].result;
			if (again)
				rd->src[n_again++] = rd->src[j];
		}
	}
	g_free(v);
	g_free(first);
	rd->n_src = n_again;
	rd->n_loose = n_again;
	rd->n_tail = 0;
	return rc;
}

static void add_ops(struct round *rd, const struct dm_chan_request *req)
{
	for (size_t i = 0; i < req->n; i++)
		if (!req->ops[i].cancelled)
			rd->src[rd->n_src++] = &req->ops[i];
}

/* Three kinds, in this order: loose maps, what has an order of its own, loose unmaps. */
static unsigned int kind_of(const struct dm_chan_request *req)
{
	return req->ordered ? 1 : req->has_map ? 0 : 2;
}

/* @reqs: a list of requests, linked by .link */
static int run_round(struct dm_core *c, struct cds_list_head *reqs)
{
	struct round rd = {0};
	struct dm_chan_request *req;
	bool may_join = dm_can(c, DM_WINDOW_SPLIT) && !c->forward;
	size_t n = 0, mark[4] = {0};
	int rc = 0;

	cds_list_for_each_entry (req, reqs, link)
		n += req->n;
	rd.src = g_new(struct dm_chan_op *, n);
	for (unsigned int k = 0; k < 3; k++) {
		cds_list_for_each_entry (req, reqs, link)
			if (kind_of(req) == k)
				add_ops(&rd, req);
		mark[k + 1] = rd.n_src;
		if (may_join && k != 1)
			qsort(rd.src + mark[k], mark[k + 1] - mark[k], sizeof(rd.src[0]),
			      by_window);
	}
	rd.n_loose = mark[1];
	rd.n_tail = mark[3] - mark[2];

	util_yield();
	if (dm_core_broken(c))
		rc = -EPIPE;
	for (size_t i = 0; rc && i < rd.n_src; i++)
		rd.src[i]->w.result = rc;
	if (!rc && rd.n_src)
		rc = send_ops(c, &rd, may_join);
	if (!rc && rd.n_src)
		rc = send_ops(c, &rd, false);
	if (rc)
		__atomic_store_n(&c->broken, true, __ATOMIC_SEQ_CST);
	g_free(rd.src);
	util_yield();
	return rc;
}

static void take(struct cds_list_head *round, struct dm_chan_request *req, size_t *ops)
{
	cds_list_del(&req->link);
	req->phase = DM_REQ_SENT;
	*ops += req->n;
	cds_list_add_tail(&req->link, round);
}

/* The leader's own request, and what else fits. */
static void fill_round(struct dm_core *c, struct dm_chan_request *own, struct cds_list_head *round)
	UTIL_REQUIRES(c->chan.lock)
{
	struct dm_chan *ch = &c->chan;
	bool mix = dm_can(c, DM_WINDOW_OVERLAY);
	struct dm_chan_request *req, *tmp;
	size_t ops = 0;

	take(round, own, &ops);
	cds_list_for_each_entry_safe (req, tmp, &ch->maps, link) {
		if ((mix || own->has_map) && ops + req->n <= c->caps.batch)
			take(round, req, &ops);
	}
	cds_list_for_each_entry_safe (req, tmp, &ch->unmaps, link) {
		if ((mix || !own->has_map) && !own->patient && ops + req->n <= c->caps.batch)
			take(round, req, &ops);
	}
}

/*
 * From when on a patient request may go: once the last answer has got through, or at once where
 * maps come too thick for that; but where each round of maps has had its unmap, once it is quiet.
 */
static uint64_t patient_from(const struct dm_chan *ch)
{
	if (ch->owed >= OWED_URGENT)
		return ch->map_end_ns;
	if (ch->owed)
		return ch->map_end_ns + CLAMP(ch->map_ns / 4, SETTLE_MIN_NS, SETTLE_MAX_NS);
	return ch->map_end_ns + MAX(QUIET_MIN_NS, QUIET_MAPS * ch->map_ns);
}

/*
 * Who leads the next round. A patient request is only told that the channel is idle: by the time
 * that it runs a map may have come, and is not to wait for it. But not for ever.
 */
static struct cds_list_head *whose_turn(struct dm_chan *ch) UTIL_REQUIRES(ch->lock)
{
	bool unmaps = !cds_list_empty(&ch->unmaps);

	if (cds_list_empty(&ch->maps))
		return unmaps ? &ch->unmaps : NULL;
	if (!unmaps && cds_list_empty(&ch->patient))
		return &ch->maps;
	if (++ch->passed_over < UNMAPS_PASSED_OVER)
		return &ch->maps;
	ch->passed_over = 0;
	return unmaps ? &ch->unmaps : &ch->patient;
}

static void pass_the_lead(struct dm_chan *ch) UTIL_REQUIRES(ch->lock)
{
	struct cds_list_head *from = whose_turn(ch);
	struct dm_chan_request *next;

	ch->busy = from != NULL;
	if (!from && cds_list_empty(&ch->patient))
		return;
	next = cds_list_first_entry(from ? from : &ch->patient, struct dm_chan_request, link);
	next->lead = from != NULL;
	util_cond_signal(&next->cond);
}

static void lead(struct dm_core *c, struct dm_chan_request *own) UTIL_REQUIRES(c->chan.lock)
{
	uint64_t start = util_now_ns(), end;
	struct dm_chan_request *req, *tmp;
	CDS_LIST_HEAD(round);
	int rc;

	fill_round(c, own, &round);
	util_mutex_unlock(&c->chan.lock);
	rc = run_round(c, &round);
	util_mutex_lock(&c->chan.lock);
	end = util_now_ns();
	if (own->has_map) {
		c->chan.map_end_ns = end;
		c->chan.map_ns = end - start;
		if (!cds_list_empty(&c->chan.patient))
			c->chan.owed = MIN(c->chan.owed + 1, OWED_MAX);
	} else if (own->patient) {
		c->chan.owed -= MIN(c->chan.owed, own->n);
	}
	cds_list_for_each_entry_safe (req, tmp, &round, link) {
		req->rc = rc;
		req->ns = end - start;
		req->phase = DM_REQ_DONE;
		if (req != own)
			util_cond_signal(&req->cond);
	}
	pass_the_lead(&c->chan);
}

static struct cds_list_head *queue_of(struct dm_chan *ch, const struct dm_chan_request *req)
{
	return req->has_map ? &ch->maps : req->patient ? &ch->patient : &ch->unmaps;
}

/* Sleeps until @req is done, leads, or may take the lead of an idle channel; then it does. */
static void wait_for_turn(struct dm_chan *ch, struct dm_chan_request *req) UTIL_REQUIRES(ch->lock)
{
	while (req->phase != DM_REQ_DONE && !req->lead) {
		if (ch->busy) {
			util_cond_wait(&req->cond, &ch->lock);
		} else if (!req->patient || util_now_ns() >= patient_from(ch)) {
			ch->busy = true;
			req->lead = true;
		} else {
			util_cond_wait_until(&req->cond, &ch->lock, patient_from(ch));
		}
	}
}

static int submit_queued(struct dm_core *c, struct dm_chan_request *req)
{
	util_cond_init(&req->cond);
	util_mutex_lock(&c->chan.lock);
	req->phase = DM_REQ_QUEUED;
	req->lead = false;
	cds_list_add_tail(&req->link, queue_of(&c->chan, req));
	wait_for_turn(&c->chan, req);
	if (req->phase != DM_REQ_DONE)
		lead(c, req);
	util_mutex_unlock(&c->chan.lock);
	util_cond_destroy(&req->cond);
	return req->rc;
}

static int submit_direct(struct dm_core *c, struct dm_chan_request *req)
{
	uint64_t start = util_now_ns();
	CDS_LIST_HEAD(round);

	cds_list_add(&req->link, &round);
	req->rc = run_round(c, &round);
	req->ns = util_now_ns() - start;
	return req->rc;
}

/* The forwarding manager: one driver call an operation, waiting for each. */
static int submit_forward(struct dm_core *c, struct dm_chan_request *req)
{
	int rc = 0;

	req->ns = 0;
	for (size_t i = 0; i < req->n; i++) {
		struct dm_chan_request one = {
			.ops = &req->ops[i],
			.n = 1,
			.has_map = req->ops[i].w.kind == DM_OP_MAP,
		};
		int err = dm_can(c, DM_WINDOW_CONCURRENT) ? submit_direct(c, &one)
							  : submit_queued(c, &one);

		rc = rc ? rc : err;
		req->ns += one.ns;
	}
	return rc;
}

int dm_submit(struct dm_core *c, struct dm_chan_request *req)
{
	if (c->forward)
		return submit_forward(c, req);
	if (dm_can(c, DM_WINDOW_CONCURRENT))
		return submit_direct(c, req);
	return submit_queued(c, req);
}

size_t dm_chan_owed(struct dm_core *c)
{
	size_t n;

	util_mutex_lock(&c->chan.lock);
	n = CLAMP(c->chan.owed, 1, DM_PATIENT_MAX);
	util_mutex_unlock(&c->chan.lock);
	return n;
}

bool dm_submit_cancel(struct dm_core *c, struct dm_chan_request *req, uint32_t slot)
{
	bool queued;

	util_mutex_lock(&c->chan.lock);
	queued = req->phase == DM_REQ_QUEUED;
	if (queued)
		req->ops[slot].cancelled = true;
	util_mutex_unlock(&c->chan.lock);
	return queued;
}
