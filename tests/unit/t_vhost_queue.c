// SPDX-License-Identifier: Apache-2.0
/* Queues and their threads: stops with requests under way, restarts, resets, memory that comes
 * and goes, completions from many threads. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#include "util_lock.h"
#include "vhost_fe.h"

enum mode {
	AT_ONCE,
	POOL,	       /* completed by pool threads */
	HOLD,	       /* handed to the test */
	HOLD_IN_PLACE, /* the queue thread itself waits, parked */
	BUSY,	       /* the queue thread itself works until released */
};

/* GLib's locks and thread pool are invisible to ThreadSanitizer: none of them here. */
static struct {
	struct util_mutex lock;
	struct util_cond cond;
	enum mode mode;
	struct vhost_elem *held[8];
	unsigned int n_held, resets, running, stopped, closed;
	bool release;
	struct vhost_elem *todo[64];
	unsigned int n_todo;
	bool pool_end;
	pthread_t pool[4];
	const struct vhost_elem *seen[64]; /* distinct ones, while @n_seen has room */
	unsigned int n_seen;
} o;

static void note_seen(const struct vhost_elem *e)
{
	unsigned int i = 0;

	while (i < o.n_seen && o.seen[i] != e)
		i++;
	if (i == o.n_seen && i < G_N_ELEMENTS(o.seen))
		o.seen[o.n_seen++] = e;
}

static void answer(struct vhost_elem *e, uint8_t byte)
{
	for (unsigned int i = 0; i < e->in.n; i++)
		memset(e->in.iov[i].iov_base, byte, e->in.iov[i].iov_len);
}

static void finish(struct vhost_elem *e)
{
	if (e->error == 0 && e->out.len && e->in.len)
		memcpy(e->in.iov[0].iov_base, e->out.iov[0].iov_base, e->in.iov[0].iov_len);
	vhost_elem_done(e, e->error ? 0 : e->in.len);
}

static void *pool_main(void *arg)
{
	util_mutex_lock(&o.lock);
	while (!o.pool_end || o.n_todo) {
		struct vhost_elem *e;

		if (!o.n_todo) {
			util_cond_wait(&o.cond, &o.lock);
			continue;
		}
		e = o.todo[--o.n_todo];
		util_mutex_unlock(&o.lock);
		finish(e);
		util_mutex_lock(&o.lock);
	}
	util_mutex_unlock(&o.lock);
	return NULL;
}

static void pool_begin(void)
{
	o.pool_end = false;
	for (unsigned int i = 0; i < G_N_ELEMENTS(o.pool); i++)
		g_assert_cmpint(pthread_create(&o.pool[i], NULL, pool_main, NULL), ==, 0);
}

static void pool_finish(void)
{
	util_mutex_lock(&o.lock);
	o.pool_end = true;
	util_cond_broadcast(&o.cond);
	util_mutex_unlock(&o.lock);
	for (unsigned int i = 0; i < G_N_ELEMENTS(o.pool); i++)
		pthread_join(o.pool[i], NULL);
}

static void on_request(void *ctx, struct vhost_elem *e)
{
	enum mode mode;

	util_mutex_lock(&o.lock);
	mode = o.mode;
	note_seen(e);
	util_mutex_unlock(&o.lock);
	if (mode == AT_ONCE) {
		answer(e, 0x11);
		vhost_elem_done(e, e->in.len);
		return;
	}
	if (mode == POOL) {
		util_mutex_lock(&o.lock);
		o.todo[o.n_todo++] = e;
		util_cond_signal(&o.cond);
		util_mutex_unlock(&o.lock);
		return;
	}
	if (mode != BUSY)
		vhost_elem_parked(e, true);
	util_mutex_lock(&o.lock);
	o.held[o.n_held++] = e;
	util_cond_broadcast(&o.cond);
	while (mode != HOLD && !o.release)
		util_cond_wait(&o.cond, &o.lock);
	util_mutex_unlock(&o.lock);
	if (mode != HOLD) {
		vhost_elem_parked(e, false);
		answer(e, 0x22);
		vhost_elem_done(e, e->in.len);
	}
}

static void on_running(void *ctx, bool running)
{
	util_mutex_lock(&o.lock);
	if (running)
		o.running++;
	else
		o.stopped++;
	util_mutex_unlock(&o.lock);
}

static void on_reset(void *ctx)
{
	util_mutex_lock(&o.lock);
	o.resets++;
	util_mutex_unlock(&o.lock);
}

static void on_channel(void *ctx, struct vhost_backend *b)
{
	util_mutex_lock(&o.lock);
	o.closed += b == NULL;
	util_cond_broadcast(&o.cond);
	util_mutex_unlock(&o.lock);
}

static const struct vhost_ops ops = {
	.request = on_request,
	.running = on_running,
	.reset = on_reset,
	.channel = on_channel,
};
static const struct vhost_config config = {.num_queues = 2, .mem_slots = true};

#define GET(field) (util_mutex_lock(&o.lock), get_ = o.field, util_mutex_unlock(&o.lock), get_)
static unsigned int get_;

static struct fe *begin(enum mode mode)
{
	struct fe *fe;

	o.mode = mode;
	o.n_held = o.resets = o.running = o.stopped = o.closed = 0;
	o.n_seen = 0;
	o.release = false;
	fe = fe_new(&config, &ops, NULL);
	fe_start(fe, FE_FEATURES);
	return fe;
}

static void wait_held(unsigned int n)
{
	util_mutex_lock(&o.lock);
	while (o.n_held < n)
		util_cond_wait(&o.cond, &o.lock);
	util_mutex_unlock(&o.lock);
}

static void set_mode(enum mode mode)
{
	util_mutex_lock(&o.lock);
	o.mode = mode;
	util_mutex_unlock(&o.lock);
}

/* Ends a held request as a pool thread would when the back-end channel has answered. */
static void release(unsigned int i, uint8_t byte)
{
	struct vhost_elem *e = o.held[i];

	vhost_elem_parked(e, false);
	answer(e, byte);
	vhost_elem_done(e, e->in.len);
}

static uint8_t *reply_at(struct fe *fe, unsigned int slot)
{
	return fe->mem + FE_BUFS + 0x80000 + slot * 0x4000 + 0x2000;
}

static void stop_all(struct fe *fe, uint16_t base[2])
{
	for (unsigned int i = 0; i < 2; i++)
		fe_ring_enable(fe, i, false);
	for (unsigned int i = 0; i < 2; i++)
		base[i] = fe_ring_stop(fe, i);
}

static void start_all(struct fe *fe, const uint16_t base[2])
{
	for (unsigned int i = 0; i < 2; i++)
		fe_ring_start(fe, i, base[i]);
	for (unsigned int i = 0; i < 2; i++)
		fe_ring_enable(fe, i, true);
}

static void test_stop_cont_with_parked(void)
{
	struct fe *fe = begin(HOLD);
	uint16_t base[2];

	memset(reply_at(fe, 0), 0, 64);
	memset(reply_at(fe, 1), 0, 64);
	fe_echo(fe, 1, 0, 64);
	fe_echo(fe, 1, 1, 64);
	wait_held(2);
	stop_all(fe, base); /* does not wait for them */
	g_assert_cmpuint(base[1], ==, 2);
	g_assert_cmpuint(GET(running), ==, 1);
	g_assert_cmpuint(GET(stopped), ==, 1);
	/* One ends while stopped: nothing of it may be seen yet. */
	release(0, 0x33);
	g_assert_cmpuint(reply_at(fe, 0)[0], ==, 0);
	g_assert_cmpuint(fe_used_count(fe, 1), ==, 0);
	start_all(fe, base);
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 0);
	g_assert_cmpuint(reply_at(fe, 0)[0], ==, 0x33);
	g_assert_cmpuint(reply_at(fe, 0)[63], ==, 0x33);
	/* The other ends after the ring went on. */
	release(1, 0x44);
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 2);
	g_assert_cmpuint(reply_at(fe, 1)[0], ==, 0x44);
	g_assert_cmpuint(GET(resets), ==, 0);
	g_assert_cmpuint(GET(running), ==, 2);
	set_mode(AT_ONCE);
	fe_echo(fe, 1, 2, 64);
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 4);
	fe_free(fe);
}

/* How much memory stands in for the guest's while the ring is stopped is not the guest's choice. */
static void test_parked_answer_is_bounded(void)
{
	struct fe *fe = begin(HOLD);
	struct vhost_elem *e;
	uint16_t base[2];
	size_t room = 0;

	fe_desc(fe, 1, 0, FE_GPA + FE_BUFS, 64, VRING_DESC_F_NEXT, 1);
	for (uint16_t i = 1; i < 8; i++)
		fe_desc(fe, 1, i, FE_GPA + FE_BUFS, 2u << 20,
			VRING_DESC_F_WRITE | (i < 7 ? VRING_DESC_F_NEXT : 0), i + 1u);
	fe_post(fe, 1, 0);
	wait_held(1);
	e = o.held[0];
	g_assert_cmpuint(e->in.len, ==, 14u << 20);
	stop_all(fe, base);
	vhost_elem_parked(e, false);
	for (unsigned int i = 0; i < e->in.n; i++)
		room += e->in.iov[i].iov_len;
	g_assert_cmpuint(room, ==, 4u << 20);
	answer(e, 0x66);
	vhost_elem_done(e, 64);
	start_all(fe, base);
	g_assert_cmpuint(fe_used(fe, 1).len, ==, 64);
	g_assert_cmpuint(fe->mem[FE_BUFS + 63], ==, 0x66);
	g_assert_cmpuint(fe->mem[FE_BUFS + 64], !=, 0x66);
	fe_free(fe);
}

static void echo_unkicked(struct fe *fe, unsigned int slot)
{
	uint64_t at = FE_GPA + FE_BUFS + 0x80000u + slot * 0x4000u;
	uint16_t head = (uint16_t)(2 * slot);

	fe_desc(fe, 1, head, at, 64, VRING_DESC_F_NEXT, (uint16_t)(head + 1));
	fe_desc(fe, 1, head + 1u, at + 0x2000, 64, VRING_DESC_F_WRITE, 0);
	fe_avail(fe, 1, head);
}

/* Batch after batch of eight needs no more elements than the first did (one is for the look that
 * finds the ring empty). */
static void test_elements_are_used_again(void)
{
	struct fe *fe = begin(AT_ONCE);

	for (unsigned int round = 0; round < 50; round++) {
		for (unsigned int i = 0; i < 8; i++)
			echo_unkicked(fe, i);
		fe_kick(fe, 1);
		for (unsigned int i = 0; i < 8; i++)
			fe_used(fe, 1);
	}
	util_mutex_lock(&o.lock);
	g_assert_cmpuint(o.n_seen, >, 0);
	g_assert_cmpuint(o.n_seen, <=, 9);
	util_mutex_unlock(&o.lock);
	fe_free(fe);
}

static void test_reset_drops_parked(void)
{
	static const uint16_t zero[2];
	struct fe *fe = begin(HOLD);
	uint16_t base[2];

	fe_echo(fe, 1, 0, 64);
	fe_echo(fe, 1, 1, 64);
	wait_held(2);
	stop_all(fe, base);
	release(0, 0x33);		   /* held back, then dropped */
	memset(reply_at(fe, 0), 0x77, 64); /* the next kernel's memory */
	memset(reply_at(fe, 1), 0x77, 64);
	fe_ring_zero(fe, 0);
	fe_ring_zero(fe, 1);
	set_mode(AT_ONCE);
	start_all(fe, zero);
	g_assert_cmpuint(GET(resets), ==, 1);
	release(1, 0x44); /* ends long after */
	fe_echo(fe, 1, 2, 64);
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 4);
	g_assert_cmpuint(fe_used_count(fe, 1), ==, 0);
	g_assert_cmpuint(reply_at(fe, 0)[0], ==, 0x77);
	g_assert_cmpuint(reply_at(fe, 1)[0], ==, 0x77);
	fe_free(fe);
}

static void test_reset_device_message(void)
{
	struct fe *fe = begin(HOLD);
	uint16_t zero[2] = {0};

	fe_echo(fe, 1, 0, 64);
	wait_held(1);
	g_assert_cmpuint(fe_ack(fe, VHOST_RESET_DEVICE, NULL, 0, -1), ==, 0);
	g_assert_cmpuint(GET(resets), ==, 1);
	release(0, 0x33);
	fe_ring_zero(fe, 0);
	fe_ring_zero(fe, 1);
	set_mode(AT_ONCE);
	start_all(fe, zero);
	g_assert_cmpuint(GET(resets), ==, 1);
	fe_echo(fe, 1, 1, 64);
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 2);
	fe_free(fe);
}

/* One ring that starts anew while the device goes on is no reset of the device. */
static void test_ring_reset(void)
{
	struct fe *fe = begin(AT_ONCE);

	fe_echo(fe, 1, 0, 64);
	fe_used(fe, 1);
	fe_ring_stop(fe, 1);
	fe_ring_zero(fe, 1);
	fe_ring_start(fe, 1, 0);
	g_assert_cmpuint(GET(resets), ==, 0);
	fe_echo(fe, 1, 0, 64);
	fe_used(fe, 1);
	fe_free(fe);
}

/* A stop after just 65536 requests looks like a fresh ring, and is not. */
static void test_stop_at_wrap_is_no_reset(void)
{
	struct fe *fe = begin(AT_ONCE);
	uint16_t base[2];

	for (unsigned int i = 0; i < 65536 / 8; i++) {
		for (unsigned int k = 0; k < 8; k++) {
			fe_desc(fe, 1, k, FE_GPA + FE_BUFS, 16, VRING_DESC_F_WRITE, 0);
			fe_avail(fe, 1, (uint16_t)k);
		}
		fe_kick(fe, 1);
		for (unsigned int k = 0; k < 8; k++)
			fe_used(fe, 1);
	}
	stop_all(fe, base);
	g_assert_cmpuint(base[1], ==, 0);
	start_all(fe, base);
	g_assert_cmpuint(GET(resets), ==, 0);
	stop_all(fe, base);
	fe_ring_zero(fe, 0);
	fe_ring_zero(fe, 1);
	start_all(fe, base);
	g_assert_cmpuint(GET(resets), ==, 1);
	fe_free(fe);
}

static void test_queue_thread_itself_parked(void)
{
	struct fe *fe = begin(HOLD_IN_PLACE);
	uint16_t base[2];

	fe_echo(fe, 1, 0, 64);
	wait_held(1);
	memset(reply_at(fe, 0), 0, 64);
	fe_echo(fe, 1, 1, 64); /* waits behind */
	stop_all(fe, base);
	g_assert_cmpuint(base[1], ==, 1);
	start_all(fe, base);
	stop_all(fe, base);
	util_mutex_lock(&o.lock);
	o.release = true;
	util_cond_broadcast(&o.cond);
	util_mutex_unlock(&o.lock);
	fe_get(fe, VHOST_GET_FEATURES);
	g_assert_cmpuint(fe_used_count(fe, 1), ==, 0);
	start_all(fe, base);
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 0);
	g_assert_cmpuint(reply_at(fe, 0)[0], ==, 0x22);
	g_assert_cmpuint(fe_used(fe, 1).id, ==, 2);
	fe_free(fe);
}

/* A thread that handed a parked request on is not out for ever: the main channel still waits for
 * the next one that it works on. */
static void test_quiet_after_parked_was_handed_on(void)
{
	struct fe *fe = begin(HOLD);
	struct vhost_vring_state off = {1, 0};
	struct pollfd p = {.fd = fe->sock, .events = POLLIN};
	uint64_t status = 99;

	fe_echo(fe, 1, 0, 64);
	wait_held(1);
	set_mode(BUSY);
	fe_echo(fe, 1, 1, 64);
	wait_held(2);
	release(0, 0x33);
	fe_send(fe, VHOST_SET_VRING_ENABLE, VHOST_FLAG_NEED_REPLY, &off, sizeof(off), NULL, 0);
	g_assert_cmpint(poll(&p, 1, 50), ==, 0);
	util_mutex_lock(&o.lock);
	o.release = true;
	util_cond_broadcast(&o.cond);
	util_mutex_unlock(&o.lock);
	g_assert_cmpint(fe_recv(fe, VHOST_SET_VRING_ENABLE, &status, sizeof(status)), ==, 8);
	g_assert_cmpuint(status, ==, 0);
	fe_free(fe);
}

/* The session ends while requests wait; on_channel(NULL) is what frees them. */
static void test_session_end_with_parked(void)
{
	struct fe *fe = begin(HOLD);

	fe_echo(fe, 1, 0, 64);
	fe_echo(fe, 0, 0, 64);
	wait_held(2);
	util_mutex_lock(&o.lock);
	o.closed = 0;
	util_mutex_unlock(&o.lock);
	shutdown(fe->sock, SHUT_RDWR);
	util_mutex_lock(&o.lock);
	while (!o.closed)
		util_cond_wait(&o.cond, &o.lock);
	util_mutex_unlock(&o.lock);
	release(0, 1);
	release(1, 1);
	g_assert_cmpint(fe_wait_end(fe), ==, 0);
	fe_reconnect(fe);
	set_mode(AT_ONCE);
	fe_start(fe, FE_FEATURES);
	fe_echo(fe, 1, 0, 64);
	fe_used(fe, 1);
	fe_free(fe);
}

static void test_many_threads_complete(gconstpointer features)
{
	struct fe *fe;
	unsigned int posted = 0, got = 0, total = 20000;

	pool_begin();
	o.mode = POOL;
	fe = fe_new(&config, &ops, NULL);
	fe_start(fe, FE_FEATURES | GPOINTER_TO_SIZE(features));
	for (unsigned int i = 0; i < FE_RING_SIZE / 2; i++) {
		fe_echo(fe, 1, i, 32);
		posted++;
	}
	while (got < total) {
		struct vring_used_elem u = fe_used(fe, 1);

		got++;
		g_assert_cmpuint(u.id % 2, ==, 0);
		g_assert_cmpuint(u.len, ==, 32);
		/* what a driver does: ask for a signal at the next one, then look again */
		__atomic_store_n(&fe->ring[1].avail->ring[FE_RING_SIZE], fe->ring[1].seen,
				 __ATOMIC_SEQ_CST);
		if (posted < total) {
			fe_echo(fe, 1, u.id / 2, 32);
			posted++;
		}
	}
	g_assert_cmpint(fe_hangup(fe), ==, 0);
	fe_free(fe);
	pool_finish();
}

/* A region comes and goes while requests use it: each is answered, right or with an error. */
static void test_memory_comes_and_goes(void)
{
	struct fe *fe;
	unsigned int ok = 0, bad = 0;

	pool_begin();
	o.mode = POOL;
	fe = fe_new(&config, &ops, NULL);
	fe_negotiate(fe, FE_FEATURES, ~0ull);
	g_assert_cmpuint(fe_add_ram(fe, 0, 0x300000), ==, 0);
	for (unsigned int i = 0; i < 2; i++) {
		fe_ring_start(fe, i, 0);
		fe_ring_enable(fe, i, true);
	}
	for (unsigned int i = 0; i < 4; i++) {
		fe_desc(fe, 1, 2 * i, FE_GPA + 0x300000 + i * 0x1000, 4096, VRING_DESC_F_NEXT,
			(uint16_t)(2 * i + 1));
		fe_desc(fe, 1, 2 * i + 1, FE_GPA + 0x310000 + i * 0x1000, 4096, VRING_DESC_F_WRITE,
			0);
		fe_post(fe, 1, (uint16_t)(2 * i));
	}
	for (unsigned int i = 0; i < 2000; i++) {
		struct vring_used_elem u = fe_used(fe, 1);

		if (u.len)
			ok++;
		else
			bad++;
		if (i % 10 == 0)
			g_assert_cmpuint(fe_add_ram(fe, 0x300000, 0x100000), ==, 0);
		if (i % 10 == 5)
			g_assert_cmpuint(fe_rem_ram(fe, 0x300000, 0x100000), ==, 0);
		fe_post(fe, 1, (uint16_t)u.id);
	}
	g_test_message("%u with memory, %u without", ok, bad);
	g_assert_cmpuint(ok, >, 0);
	g_assert_cmpuint(bad, >, 0);
	fe_free(fe);
	pool_finish();
}

/* Polling mode: no kick descriptor. */
static void test_no_kick_descriptor(void)
{
	struct fe *fe = begin(AT_ONCE);
	uint64_t none = 1 | VHOST_VRING_NOFD;

	g_assert_cmpuint(fe_ack(fe, VHOST_SET_VRING_KICK, &none, 8, -1), ==, 0);
	fe_desc(fe, 1, 0, FE_GPA + FE_BUFS, 16, VRING_DESC_F_WRITE, 0);
	fe_avail(fe, 1, 0);
	fe_used(fe, 1);
	g_assert_cmpuint(fe_ack(fe, VHOST_SET_VRING_CALL, &none, 8, -1), ==, 0);
	fe_avail(fe, 1, 0);
	while (!fe_used_count(fe, 1))
		sched_yield();
	fe_free(fe);
}

static void test_disabled_ring_waits(void)
{
	struct fe *fe = begin(AT_ONCE);

	fe_ring_enable(fe, 1, false);
	fe_echo(fe, 1, 0, 16);
	fe_echo(fe, 0, 0, 16);
	fe_used(fe, 0);
	g_assert_cmpuint(fe_used_count(fe, 1), ==, 0);
	fe_ring_enable(fe, 1, true);
	fe_used(fe, 1);
	fe_free(fe);
}

int main(int argc, char **argv)
{
	gpointer event_idx = GSIZE_TO_POINTER(VHOST_BIT(VIRTIO_F_BIT_EVENT_IDX));

	util_mutex_init(&o.lock);
	util_cond_init(&o.cond);
	g_test_init(&argc, &argv, NULL);
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
	g_test_add_func("/vhost/queue/stop-cont-parked", test_stop_cont_with_parked);
	g_test_add_func("/vhost/queue/parked-bounded", test_parked_answer_is_bounded);
	g_test_add_func("/vhost/queue/elements", test_elements_are_used_again);
	g_test_add_func("/vhost/queue/reset-parked", test_reset_drops_parked);
	g_test_add_func("/vhost/queue/reset-device", test_reset_device_message);
	g_test_add_func("/vhost/queue/ring-reset", test_ring_reset);
	g_test_add_func("/vhost/queue/stop-at-wrap", test_stop_at_wrap_is_no_reset);
	g_test_add_func("/vhost/queue/thread-parked", test_queue_thread_itself_parked);
	g_test_add_func("/vhost/queue/quiet-after-parked", test_quiet_after_parked_was_handed_on);
	g_test_add_func("/vhost/queue/session-end-parked", test_session_end_with_parked);
	g_test_add_data_func("/vhost/queue/many-threads", NULL, test_many_threads_complete);
	g_test_add_data_func("/vhost/queue/many-threads-event-idx", event_idx,
			     test_many_threads_complete);
	g_test_add_func("/vhost/queue/memory-comes-and-goes", test_memory_comes_and_goes);
	g_test_add_func("/vhost/queue/no-kick-descriptor", test_no_kick_descriptor);
	g_test_add_func("/vhost/queue/disabled", test_disabled_ring_waits);
	return g_test_run();
}
