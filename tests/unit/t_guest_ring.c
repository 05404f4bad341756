// SPDX-License-Identifier: Apache-2.0
/*
 * Waiting for a ring that others look at, too: a completion may be taken by anybody, so whoever it
 * belongs to must be woken by who took it. The device is played here, and never calls: as one that
 * honours EVENT_IDX does not while used_event lies behind, which is where pollers leave it. So a
 * wake-up that is forgotten is a test that hangs.
 */
#include <string.h>

#include "guest_mem.h"
#include "guest_ring.h"
#include "util_lock.h"

#define NUM 16u
#define ROUNDS 3000u
#define NEVER_NS (3600ull * 1000000000)

struct request {
	bool finished;
};

struct fixture {
	struct guest_mem *mem;
	struct guest_ring *ring;
	void *buf;
	struct guest_msg_vring_addr addr;
	uint16_t used;

	unsigned int waiters;
	struct util_mutex lock; /* all below */
	struct util_cond cond;
	unsigned int round;
	unsigned int sent;
	unsigned int had;
};

static void on_done(void *token, int status, uint32_t written)
{
	struct request *r = token;

	g_assert_cmpint(status, ==, 0);
	__atomic_store_n(&r->finished, true, __ATOMIC_RELEASE);
}

static bool is_finished(void *ctx)
{
	const struct request *r = ctx;

	return __atomic_load_n(&r->finished, __ATOMIC_ACQUIRE);
}

static void setup(struct fixture *f)
{
	memset(f, 0, sizeof(*f));
	f->mem = guest_mem_new(1 << 20);
	g_assert_nonnull(f->mem);
	f->ring = guest_ring_new(f->mem, NUM, GUEST_RING_EVENT_IDX, on_done);
	g_assert_nonnull(f->ring);
	f->buf = guest_mem_alloc(f->mem, 4096);
	guest_ring_addr(f->ring, &f->addr);
	util_mutex_init(&f->lock);
	util_cond_init(&f->cond);
}

static void teardown(struct fixture *f)
{
	guest_mem_release(f->mem, f->buf, 4096);
	guest_ring_free(f->ring);
	guest_mem_free(f->mem);
	util_cond_destroy(&f->cond);
	util_mutex_destroy(&f->lock);
}

/* What is available and not used yet is used, without a call. */
static unsigned int device_serves(struct fixture *f)
{
	const uint16_t *avail = (const uint16_t *)(uintptr_t)f->addr.avail;
	uint16_t *used = (uint16_t *)(uintptr_t)f->addr.used;
	uint16_t end = __atomic_load_n(&avail[1], __ATOMIC_SEQ_CST);
	unsigned int n = 0;

	for (; f->used != end; f->used++, n++) {
		uint32_t elem[2] = {avail[2 + f->used % NUM], 0};

		memcpy(used + 2 + 4 * (f->used % NUM), elem, sizeof(elem));
	}
	__atomic_store_n(&used[1], end, __ATOMIC_SEQ_CST);
	return n;
}

static void send(struct fixture *f, struct request *r)
{
	const struct guest_seg out = {.p = f->buf, .len = 64};

	__atomic_store_n(&r->finished, false, __ATOMIC_RELAXED);
	g_assert_cmpint(guest_ring_submit(f->ring, &out, 1, NULL, 0, r), ==, 0);
}

static void add_and_tell(struct fixture *f, unsigned int *count)
{
	util_mutex_lock(&f->lock);
	(*count)++;
	util_cond_broadcast(&f->cond);
	util_mutex_unlock(&f->lock);
}

static void wait_count(struct fixture *f, const unsigned int *count, unsigned int want)
{
	util_mutex_lock(&f->lock);
	while (*count < want)
		util_cond_wait(&f->cond, &f->lock);
	util_mutex_unlock(&f->lock);
}

static gpointer waiter_thread(gpointer data)
{
	struct fixture *f = data;
	struct request r;

	for (unsigned int i = 1; i <= ROUNDS; i++) {
		wait_count(f, &f->round, i);
		send(f, &r);
		add_and_tell(f, &f->sent);
		g_assert_true(
			guest_ring_attend(f->ring, is_finished, &r, 0, util_now_ns() + NEVER_NS));
		add_and_tell(f, &f->had);
	}
	return NULL;
}

/* Others wait; we take what is theirs, at whatever point of going to sleep they are. */
static void poller_wakes(unsigned int waiters)
{
	struct fixture f;
	GThread *threads[4];

	setup(&f);
	for (unsigned int i = 0; i < waiters; i++)
		threads[i] = g_thread_new("waiter", waiter_thread, &f);
	for (unsigned int i = 1; i <= ROUNDS; i++) {
		unsigned int served = 0;

		add_and_tell(&f, &f.round);
		wait_count(&f, &f.sent, i * waiters);
		for (unsigned int k = 0; k < i % 8 * 100; k++)
			guest_ring_poll(f.ring);
		served += device_serves(&f);
		g_assert_cmpuint(served, ==, waiters);
		while (guest_ring_in_flight(f.ring))
			guest_ring_poll(f.ring);
		wait_count(&f, &f.had, i * waiters);
	}
	for (unsigned int i = 0; i < waiters; i++)
		g_thread_join(threads[i]);
	teardown(&f);
}

static void test_poller_wakes_who_naps(void)
{
	poller_wakes(1);
}

static void test_poller_wakes_who_waits_for_the_seat(void)
{
	poller_wakes(3);
}

static void test_what_is_finished_is_taken_without_a_call(void)
{
	struct fixture f;
	struct request r;

	setup(&f);
	for (unsigned int i = 0; i < 3 * NUM; i++) {
		send(&f, &r);
		g_assert_cmpuint(device_serves(&f), ==, 1);
		g_assert_true(
			guest_ring_attend(f.ring, is_finished, &r, 0, util_now_ns() + NEVER_NS));
	}
	g_assert_null(guest_ring_error(f.ring));
	teardown(&f);
}

static void test_a_deadline_ends_the_wait(void)
{
	struct fixture f;
	struct request r;

	setup(&f);
	send(&f, &r);
	g_assert_false(guest_ring_attend(f.ring, is_finished, &r, 0, util_now_ns() + 1000000));
	device_serves(&f);
	g_assert_cmpuint(guest_ring_poll(f.ring), ==, 1);
	g_assert_true(is_finished(&r));
	teardown(&f);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/guest/ring/taken-without-a-call",
			test_what_is_finished_is_taken_without_a_call);
	g_test_add_func("/guest/ring/deadline", test_a_deadline_ends_the_wait);
	g_test_add_func("/guest/ring/poller-wakes-who-naps", test_poller_wakes_who_naps);
	g_test_add_func("/guest/ring/poller-wakes-who-waits-for-the-seat",
			test_poller_wakes_who_waits_for_the_seat);
	return g_test_run();
}
