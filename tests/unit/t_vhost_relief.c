// SPDX-License-Identifier: Apache-2.0
/*
 * A queue's thread that blocks in what it said may block (vhost_elem_may_block()): another goes on.
 * What a request does is the first byte that it carries. A test whose queue stood still would
 * hang in fe_used().
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "count_tasks.h"
#include "util_lock.h"
#include "vhost_fe.h"

enum what {
	ANSWER,
	BLOCK,	    /* until its slot is released */
	BLOCK_PARK, /* the same, then parks, and waits until everything is released */
	UNTIL_NEXT, /* until one more request has been seen */
	NAP,	    /* about as long as it takes to be relieved */
};

static struct {
	struct util_mutex lock;
	struct util_cond cond;
	unsigned int seen, blocked, refused, parked, batch_ends, threads;
	unsigned int released; /* a bit for each slot */
	bool all_released;
} o;

static const struct vhost_config config = {.num_queues = 2, .mem_slots = true, .stand_ins = 2};

static void finish(struct vhost_elem *e, uint8_t byte)
{
	memset(e->in.iov[0].iov_base, byte, e->in.iov[0].iov_len);
	vhost_elem_done(e, e->in.len);
}

static void block(enum what what, unsigned int slot) UTIL_REQUIRES(o.lock)
{
	unsigned int seen = o.seen;

	o.blocked++;
	util_cond_broadcast(&o.cond);
	while (what == UNTIL_NEXT ? o.seen == seen : !(o.released & 1u << slot))
		util_cond_wait(&o.cond, &o.lock);
	o.blocked--;
}

static void on_request(void *ctx, struct vhost_elem *e)
{
	const uint8_t *out = e->out.iov[0].iov_base;
	enum what what = (enum what)out[0];
	unsigned int slot = out[1];

	if (what != ANSWER && !vhost_elem_may_block(e)) {
		util_mutex_lock(&o.lock);
		o.refused++;
		util_mutex_unlock(&o.lock);
		what = ANSWER;
	}
	util_mutex_lock(&o.lock);
	o.seen++;
	util_cond_broadcast(&o.cond);
	if (what == BLOCK || what == UNTIL_NEXT || what == BLOCK_PARK)
		block(what, slot);
	util_mutex_unlock(&o.lock);
	if (what == BLOCK_PARK) {
		vhost_elem_parked(e, true);
		util_mutex_lock(&o.lock);
		o.parked++;
		util_cond_broadcast(&o.cond);
		while (!o.all_released)
			util_cond_wait(&o.cond, &o.lock);
		util_mutex_unlock(&o.lock);
		vhost_elem_parked(e, false);
	}
	if (what == NAP)
		usleep(2000u + 300u * slot);
	finish(e, (uint8_t)(0x40 + slot));
}

static void on_batch_end(void *ctx, struct vhost_queue *q)
{
	util_mutex_lock(&o.lock);
	o.batch_ends++;
	util_mutex_unlock(&o.lock);
}

static void on_thread(void *ctx, unsigned int queue)
{
	util_mutex_lock(&o.lock);
	o.threads++;
	util_mutex_unlock(&o.lock);
}

static const struct vhost_ops ops = {
	.request = on_request, .batch_end = on_batch_end, .thread_start = on_thread};

static struct fe *begin(uint64_t features)
{
	struct fe *fe;

	o.seen = o.blocked = o.refused = o.parked = o.batch_ends = o.threads = o.released = 0;
	o.all_released = false;
	fe = fe_new(&config, &ops, NULL);
	fe_start(fe, FE_FEATURES | features);
	return fe;
}

static uint8_t *buf_at(struct fe *fe, unsigned int slot)
{
	return fe->mem + FE_BUFS + 0x80000 + slot * 0x4000;
}

static void post(struct fe *fe, unsigned int slot, enum what what)
{
	buf_at(fe, slot)[0] = (uint8_t)what;
	buf_at(fe, slot)[1] = (uint8_t)slot;
	buf_at(fe, slot)[0x2000] = 0;
	fe_echo(fe, 1, slot, 16);
}

static void expect(struct fe *fe, unsigned int slot)
{
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 2 * slot);
	g_assert_cmpuint(buf_at(fe, slot)[0x2000], ==, 0x40 + slot);
}

static void wait_for(const unsigned int *count, unsigned int n)
{
	util_mutex_lock(&o.lock);
	while (*count != n)
		util_cond_wait(&o.cond, &o.lock);
	util_mutex_unlock(&o.lock);
}

static void release(unsigned int slot)
{
	util_mutex_lock(&o.lock);
	o.released |= 1u << slot;
	util_cond_broadcast(&o.cond);
	util_mutex_unlock(&o.lock);
}

static unsigned int count(const unsigned int *what)
{
	unsigned int n;

	util_mutex_lock(&o.lock);
	n = *what;
	util_mutex_unlock(&o.lock);
	return n;
}

/* The one that blocked answers when it can, and is at hand for the next time. */
static void test_queue_goes_on(void)
{
	struct fe *fe = begin(0);

	for (unsigned int round = 0; round < 3; round++) {
		post(fe, 0, BLOCK);
		wait_for(&o.blocked, 1);
		for (unsigned int slot = 1; slot < 8; slot++) {
			post(fe, slot, ANSWER);
			expect(fe, slot);
		}
		release(0);
		expect(fe, 0);
		util_mutex_lock(&o.lock);
		o.released = 0;
		util_mutex_unlock(&o.lock);
	}
	g_assert_cmpuint(count(&o.threads), ==, 3); /* two queues' and one more */
	g_assert_cmpuint(count(&o.refused), ==, 0);
	fe_free(fe);
}

/* What was answered before, in the same batch, does not wait for the one that blocks. */
static void test_answers_before_are_published(void)
{
	struct fe *fe = begin(0);

	for (unsigned int slot = 0; slot < 3; slot++) {
		uint64_t at = FE_GPA + FE_BUFS + 0x80000u + slot * 0x4000u;

		buf_at(fe, slot)[0] = slot == 2 ? BLOCK : ANSWER;
		buf_at(fe, slot)[1] = (uint8_t)slot;
		fe_desc(fe, 1, 2 * slot, at, 16, VRING_DESC_F_NEXT, (uint16_t)(2 * slot + 1));
		fe_desc(fe, 1, 2 * slot + 1, at + 0x2000, 16, VRING_DESC_F_WRITE, 0);
		fe_avail(fe, 1, (uint16_t)(2 * slot));
	}
	fe_kick(fe, 1);
	expect(fe, 0);
	expect(fe, 1);
	g_assert_cmpuint(fe_used_count(fe, 1), ==, 0);
	release(2);
	expect(fe, 2);
	fe_free(fe);
}

/* As many as stand in for others; the next is told not to. */
static void test_no_more_than_stand_in(void)
{
	struct fe *fe = begin(0);

	post(fe, 0, BLOCK);
	wait_for(&o.blocked, 1);
	post(fe, 1, BLOCK);
	wait_for(&o.blocked, 2);
	post(fe, 2, BLOCK);
	expect(fe, 2);
	g_assert_cmpuint(count(&o.refused), ==, 1);
	release(0);
	expect(fe, 0);
	release(1);
	expect(fe, 1);
	fe_free(fe);
}

/* What quiesces the queue does not wait for the one that blocks; a stop does, as for any
 * request in a pool. */
static void test_stop_while_blocked(void)
{
	struct vhost_vring_state state = {.index = 1}, base;
	struct fe *fe = begin(0);

	post(fe, 0, BLOCK);
	wait_for(&o.blocked, 1);
	fe_ring_enable(fe, 1, false);
	fe_get(fe, VHOST_GET_FEATURES); /* answers come in order */
	fe_ring_enable(fe, 1, true);
	post(fe, 1, ANSWER);
	expect(fe, 1);
	fe_send(fe, VHOST_GET_VRING_BASE, 0, &state, sizeof(state), NULL, 0);
	release(0);
	g_assert_cmpint(fe_recv(fe, VHOST_GET_VRING_BASE, &base, sizeof(base)), ==, sizeof(base));
	g_assert_cmpuint(base.num, ==, 2);
	g_assert_cmpuint(fe_used_count(fe, 1), ==, 1);
	expect(fe, 0);
	fe_ring_start(fe, 1, 2);
	fe_ring_enable(fe, 1, true);
	post(fe, 2, ANSWER);
	expect(fe, 2);
	fe_free(fe);
}

/* A request that blocked and then waits for what may never come holds neither stop nor reset, and
 * its answer does not reach the next driver. */
static void test_reset_while_parked_after_blocking(void)
{
	struct fe *fe = begin(0);

	post(fe, 0, BLOCK_PARK);
	wait_for(&o.blocked, 1);
	post(fe, 1, ANSWER); /* by another thread */
	expect(fe, 1);
	release(0);
	wait_for(&o.parked, 1);
	g_assert_cmpuint(fe_ack(fe, VHOST_RESET_DEVICE, NULL, 0, -1), ==, 0);
	fe_ring_zero(fe, 0);
	fe_ring_zero(fe, 1);
	for (unsigned int i = 0; i < 2; i++) {
		fe_ring_start(fe, i, 0);
		fe_ring_enable(fe, i, true);
	}
	memset(buf_at(fe, 0) + 0x2000, 0x77, 16);
	util_mutex_lock(&o.lock);
	o.all_released = true;
	util_cond_broadcast(&o.cond);
	util_mutex_unlock(&o.lock);
	post(fe, 2, ANSWER);
	expect(fe, 2);
	g_assert_cmpint(fe_hangup(fe), ==, 0); /* all have ended */
	g_assert_cmpuint(buf_at(fe, 0)[0x2000], ==, 0x77);
	fe_free(fe);
}

/* The session ends while one blocks, another has just taken over, and more is in the ring. */
static void test_end_while_blocked(void)
{
	unsigned int threads = 0;

	for (unsigned int round = 0; round < 20; round++) {
		struct fe *fe = begin(0);

		post(fe, 0, ANSWER);
		expect(fe, 0);
		post(fe, 1, BLOCK);
		wait_for(&o.blocked, 1);
		post(fe, 2, ANSWER);
		if (round % 2)
			expect(fe, 2);
		shutdown(fe->sock, SHUT_RDWR);
		release(1);
		g_assert_cmpint(fe_wait_end(fe), ==, 0);
		fe_reconnect(fe);
		fe_start(fe, FE_FEATURES);
		post(fe, 3, ANSWER);
		expect(fe, 3);
		fe_free(fe);
		if (!threads)
			threads = count_tasks(0);
		g_assert_cmpuint(count_tasks(threads), <=, threads);
	}
}

static void run_mix(struct fe *fe, unsigned int total, bool naps)
{
	unsigned int posted = 0, got = 0, busy = 0;
	GRand *rand = g_rand_new_with_seed(1);

	/* Each waits for the next, so the last must not. */
	while (got < total) {
		unsigned int slot;

		while (posted < total && busy != 0xff) {
			enum what what = ANSWER;

			slot = (unsigned int)g_bit_nth_lsf(~busy, -1);
			if (posted < total - 1 && g_rand_int_range(rand, 0, 8) == 0)
				what = naps ? NAP : UNTIL_NEXT;
			busy |= 1u << slot;
			post(fe, slot, what);
			posted++;
		}
		slot = fe_used(fe, 1).id / 2;
		g_assert_cmpuint(buf_at(fe, slot)[0x2000], ==, 0x40 + slot);
		__atomic_store_n(&fe->ring[1].avail->ring[FE_RING_SIZE], fe->ring[1].seen,
				 __ATOMIC_SEQ_CST);
		busy &= ~(1u << slot);
		got++;
	}
	g_rand_free(rand);
}

/* Again and again one blocks until another thread has gone on: the first comes back while the
 * second runs. */
static void test_back_while_another_runs(void)
{
	struct fe *fe = begin(VHOST_BIT(VIRTIO_F_BIT_EVENT_IDX));

	run_mix(fe, 1500, false);
	fe_free(fe);
}

/* Ends about when it would be relieved. */
static void test_ends_at_the_tick(void)
{
	struct fe *fe = begin(VHOST_BIT(VIRTIO_F_BIT_EVENT_IDX));
	uint16_t base;

	run_mix(fe, 1000, true);
	base = fe_ring_stop(fe, 1);
	fe_ring_start(fe, 1, base);
	fe_ring_enable(fe, 1, true);
	run_mix(fe, 1000, true);
	fe_free(fe);
}

int main(int argc, char **argv)
{
	util_mutex_init(&o.lock);
	util_cond_init(&o.cond);
	g_test_init(&argc, &argv, NULL);
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
	g_test_add_func("/vhost/relief/goes-on", test_queue_goes_on);
	g_test_add_func("/vhost/relief/answers-before", test_answers_before_are_published);
	g_test_add_func("/vhost/relief/stand-ins", test_no_more_than_stand_in);
	g_test_add_func("/vhost/relief/stop", test_stop_while_blocked);
	g_test_add_func("/vhost/relief/reset", test_reset_while_parked_after_blocking);
	g_test_add_func("/vhost/relief/end", test_end_while_blocked);
	g_test_add_func("/vhost/relief/back", test_back_while_another_runs);
	g_test_add_func("/vhost/relief/tick", test_ends_at_the_tick);
	return g_test_run();
}
