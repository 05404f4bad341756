// SPDX-License-Identifier: Apache-2.0
/* Requests through rings: what a driver may do, and what it must not be able to do. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "util_lock.h"
#include "vhost_fe.h"

/* Guards the owner. GLib's locks are invisible to ThreadSanitizer. */
static struct util_mutex lock = {PTHREAD_MUTEX_INITIALIZER};

struct owner {
	unsigned int requests;
	int last_error;
	size_t last_out, last_in;
	unsigned int last_nout, last_nin;
	uint64_t last_window;
	unsigned int resets;
	uint64_t window_at; /* region() tells it once, 0: not */
	struct fe *fe;
};

/* Copies what came to where it may answer. */
static size_t echo(struct vhost_elem *e)
{
	size_t done = 0, at_in = 0;
	unsigned int k = 0;

	for (unsigned int i = 0; i < e->out.n; i++) {
		size_t at = 0;

		if (e->out.window && e->out.window[i] != UTIL_GVEC_RAM)
			continue;
		while (at < e->out.iov[i].iov_len && k < e->in.n) {
			size_t n = MIN(e->out.iov[i].iov_len - at, e->in.iov[k].iov_len - at_in);

			if (!e->in.window || e->in.window[k] == UTIL_GVEC_RAM)
				memcpy((uint8_t *)e->in.iov[k].iov_base + at_in,
				       (uint8_t *)e->out.iov[i].iov_base + at, n);
			at += n;
			at_in += n;
			done += n;
			if (at_in == e->in.iov[k].iov_len) {
				k++;
				at_in = 0;
			}
		}
	}
	return done;
}

static void on_request(void *ctx, struct vhost_elem *e)
{
	struct owner *o = ctx;

	util_mutex_lock(&lock);
	o->last_error = e->error;
	o->last_out = e->out.len;
	o->last_in = e->in.len;
	o->last_nout = e->out.n;
	o->last_nin = e->in.n;
	o->last_window = e->in.window && e->in.n ? e->in.window[0] : UTIL_GVEC_RAM;
	o->requests++;
	util_mutex_unlock(&lock);
	memset(vhost_elem_priv(e), 0x5a, 24);
	vhost_elem_done(e, e->error ? 0 : echo(e));
}

static enum vhost_region_verdict on_region(void *ctx, const struct vhost_region_info *r)
{
	struct owner *o = ctx;

	if (!o->window_at || r->guest_addr != o->window_at + 0x200000)
		return VHOST_REGION_RAM;
	vhost_dev_set_window(o->fe->d, r->guest_addr - 0x200000);
	return VHOST_REGION_REFUSE;
}

static void on_reset(void *ctx)
{
	struct owner *o = ctx;

	o->resets++;
}

static const struct vhost_ops ops = {
	.request = on_request,
	.region = on_region,
	.reset = on_reset,
};
static const struct vhost_config config = {
	.num_queues = 2,
	.elem_priv = 24,
	.window_size = 16u << 20,
	.mem_slots = true,
};

static struct owner owner;

/* The owner's fields as a queue thread left them. */
static struct owner seen(void)
{
	struct owner o;

	util_mutex_lock(&lock);
	o = owner;
	util_mutex_unlock(&lock);
	return o;
}

static struct fe *begin(uint64_t features)
{
	owner = (struct owner){0};
	owner.fe = fe_new(&config, &ops, &owner);
	fe_start(owner.fe, features);
	return owner.fe;
}

/* The queue is still alive: an ordinary request is answered. */
static void check_alive(struct fe *fe)
{
	uint8_t *out = fe->mem + FE_BUFS + 0x80000 + 7 * 0x4000;

	memset(out, 0xa5, 512);
	memset(out + 0x2000, 0, 512);
	fe_echo(fe, 1, 7, 512);
	for (;;) {
		struct vring_used_elem u = fe_used(fe, 1);

		if (u.id == 14) {
			g_assert_cmpuint(u.len, ==, 512);
			break;
		}
	}
	g_assert_cmpmem(out, 512, out + 0x2000, 512);
}

static void finish(struct fe *fe)
{
	check_alive(fe);
	g_assert_cmpint(fe_hangup(fe), ==, 0);
	fe_free(fe);
}

static void test_echo(gconstpointer features)
{
	struct fe *fe = begin(FE_FEATURES | GPOINTER_TO_SIZE(features));

	for (unsigned int round = 0; round < 1000; round++) {
		unsigned int ring = round % 2;
		uint8_t *out = fe->mem + FE_BUFS + ring * 0x80000 + (round % 4) * 0x4000;

		memset(out, (int)round, 100);
		fe_echo(fe, ring, round % 4, 100);
		struct vring_used_elem u = fe_used(fe, ring);

		g_assert_cmpuint(u.id, ==, 2 * (round % 4));
		g_assert_cmpuint(u.len, ==, 100);
		g_assert_cmpmem(out, 100, out + 0x2000, 100);
		if (GPOINTER_TO_SIZE(features))
			fe->ring[ring].avail->ring[FE_RING_SIZE] = fe->ring[ring].seen;
	}
	g_assert_cmpuint(seen().requests, ==, 1000);
	finish(fe);
}

static void expect_bad(struct fe *fe, uint16_t head, int error)
{
	struct vring_used_elem u;

	fe_post(fe, 1, head);
	u = fe_used(fe, 1);
	g_assert_cmpuint(u.id, ==, head);
	g_assert_cmpuint(u.len, ==, 0);
	g_assert_cmpint(seen().last_error, ==, error);
}

#define BUF (FE_GPA + FE_BUFS)

static void quiet(void)
{
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
}

static void test_bad_chains(void)
{
	struct fe *fe = begin(FE_FEATURES);
	struct vring_desc *table = (void *)(fe->mem + FE_BUFS + 0x10000);
	uint64_t table_at = FE_GPA + FE_BUFS + 0x10000;

	/* a loop */
	fe_desc(fe, 1, 0, BUF, 16, VRING_DESC_F_NEXT, 1);
	fe_desc(fe, 1, 1, BUF, 16, VRING_DESC_F_NEXT, 0);
	expect_bad(fe, 0, -EINVAL);
	/* next outside the ring */
	fe_desc(fe, 1, 0, BUF, 16, VRING_DESC_F_NEXT, FE_RING_SIZE);
	expect_bad(fe, 0, -EINVAL);
	/* readable after writable */
	fe_desc(fe, 1, 0, BUF, 16, VRING_DESC_F_NEXT | VRING_DESC_F_WRITE, 1);
	fe_desc(fe, 1, 1, BUF, 16, 0, 0);
	expect_bad(fe, 0, -EINVAL);
	/* points nowhere; the writable part survives */
	fe_desc(fe, 1, 0, BUF, 16, VRING_DESC_F_NEXT, 1);
	fe_desc(fe, 1, 1, 0x1000, 16, VRING_DESC_F_NEXT, 2);
	fe_desc(fe, 1, 2, BUF, 32, VRING_DESC_F_WRITE, 0);
	expect_bad(fe, 0, -EFAULT);
	g_assert_cmpuint(seen().last_out, ==, 16);
	g_assert_cmpuint(seen().last_in, ==, 32);
	/* address wraps, and runs off the end of memory */
	fe_desc(fe, 1, 0, UINT64_MAX - 8, 16, 0, 0);
	expect_bad(fe, 0, -EFAULT);
	fe_desc(fe, 1, 0, FE_GPA + FE_MEM_SIZE - 8, 16, 0, 0);
	expect_bad(fe, 0, -EFAULT);
	g_assert_cmpuint(seen().last_out, ==, 8);
	/* more than 4 GiB */
	fe_desc(fe, 1, 0, BUF, 0xffffffff, VRING_DESC_F_NEXT, 1);
	fe_desc(fe, 1, 1, BUF, 0xffffffff, 0, 0);
	expect_bad(fe, 0, -EINVAL);
	/* indirect: nested, odd length, empty, with NEXT, out of table, nowhere */
	table[0] = (struct vring_desc){table_at, 16, VRING_DESC_F_INDIRECT, 0};
	fe_desc(fe, 1, 0, table_at, 16, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 0, -EINVAL);
	fe_desc(fe, 1, 0, table_at, 24, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 0, -EINVAL);
	fe_desc(fe, 1, 0, table_at, 0, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 0, -EINVAL);
	fe_desc(fe, 1, 0, table_at, 16, VRING_DESC_F_INDIRECT | VRING_DESC_F_NEXT, 1);
	expect_bad(fe, 0, -EINVAL);
	table[0] = (struct vring_desc){BUF, 16, VRING_DESC_F_NEXT, 1};
	fe_desc(fe, 1, 0, table_at, 16, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 0, -EINVAL);
	fe_desc(fe, 1, 0, 0x1000, 16, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 0, -EFAULT);
	/* an indirect table that loops */
	table[0] = (struct vring_desc){BUF, 16, VRING_DESC_F_NEXT, 0};
	fe_desc(fe, 1, 0, table_at, 16, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 0, -EINVAL);
	/* nothing at all is no error of the ring's */
	fe_desc(fe, 1, 0, 0x1000, 0, 0, 0);
	expect_bad(fe, 0, 0);
	g_assert_cmpuint(seen().last_out, ==, 0);
	finish(fe);
}

static void test_indirect_not_negotiated(void)
{
	struct fe *fe = begin(FE_FEATURES & ~VHOST_BIT(VIRTIO_F_BIT_INDIRECT_DESC));

	fe_desc(fe, 1, 0, BUF, 16, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 0, -EINVAL);
	finish(fe);
}

static void test_head_outside(void)
{
	struct fe *fe = begin(FE_FEATURES);

	fe_post(fe, 1, FE_RING_SIZE);
	fe_post(fe, 1, 0xffff);
	finish(fe);
	g_assert_cmpuint(seen().requests, ==, 1);
}

static void test_index_jump_breaks_the_ring_until_reset(void)
{
	struct fe *fe = begin(FE_FEATURES);
	int err = eventfd(0, EFD_CLOEXEC);
	uint64_t index = 1, v;

	g_assert_cmpuint(fe_ack(fe, VHOST_SET_VRING_ERR, &index, 8, err), ==, 0);
	fe->ring[1].avail->idx = 1000;
	fe_kick(fe, 1);
	g_assert_cmpint(poll(&(struct pollfd){.fd = err, .events = POLLIN}, 1, 30000), ==, 1);
	g_assert_cmpint(read(err, &v, 8), ==, 8);
	close(err);
	/* the other ring goes on */
	fe_echo(fe, 0, 0, 8);
	g_assert_cmpuint(fe_used(fe, 0).len, ==, 8);
	fe_ring_stop(fe, 0);
	fe_ring_stop(fe, 1);
	for (unsigned int i = 0; i < 2; i++) {
		fe_ring_zero(fe, i);
		fe_ring_start(fe, i, 0);
	}
	g_assert_cmpuint(seen().resets, ==, 1);
	finish(fe);
}

static void test_split_at_region_borders(void)
{
	struct fe *fe;
	uint8_t *p;

	owner = (struct owner){0};
	owner.fe = fe = fe_new(&config, &ops, &owner);
	fe_negotiate(fe, FE_FEATURES, ~0ull);
	g_assert_cmpuint(fe_add_ram(fe, 0, 0x200000), ==, 0);
	g_assert_cmpuint(fe_add_ram(fe, 0x200000, 0x200000), ==, 0);
	for (unsigned int i = 0; i < 2; i++) {
		fe_ring_start(fe, i, 0);
		fe_ring_enable(fe, i, true);
	}
	p = fe->mem + 0x200000 - 100;
	memset(p, 0x11, 100);
	memset(p + 100, 0x22, 100);
	fe_desc(fe, 1, 0, FE_GPA + 0x200000 - 100, 200, VRING_DESC_F_NEXT, 1);
	fe_desc(fe, 1, 1, BUF, 200, VRING_DESC_F_WRITE, 0);
	fe_post(fe, 1, 0);
	g_assert_cmpuint(fe_used(fe, 1).len, ==, 200);
	g_assert_cmpmem(p, 200, fe->mem + FE_BUFS, 200);
	g_assert_cmpuint(seen().last_out, ==, 200);
	/* overlap is refused, the session lives; so does removing what is not there */
	g_assert_cmpuint(fe_add_ram(fe, 0x100000, 0x200000), ==, 1);
	g_assert_cmpuint(fe_rem_ram(fe, 0x100000, 0x1000), ==, 1);
	finish(fe);
}

static void test_window_segments(void)
{
	struct fe *fe = begin(FE_FEATURES);
	uint64_t base = 0x800000000ull;
	struct vhost_mem_reg r = {0, {base + 0x200000, 0x200000, 0x7e0000000000, 0}};

	/* not known yet */
	fe_desc(fe, 1, 0, BUF, 64, VRING_DESC_F_NEXT, 1);
	fe_desc(fe, 1, 1, base + 0x201000, 64, VRING_DESC_F_WRITE, 0);
	expect_bad(fe, 0, -EFAULT);
	/* the owner recognises its own region, refuses it, and tells the place */
	owner.window_at = base;
	g_assert_cmpuint(fe_ack(fe, VHOST_ADD_MEM_REG, &r, sizeof(r), fe->memfd), ==, 1);
	fe_post(fe, 1, 0);
	g_assert_cmpuint(fe_used(fe, 1).len, ==, 64);
	g_assert_cmpint(seen().last_error, ==, 0);
	g_assert_cmphex(seen().last_window, ==, 0x201000);
	/* over its end */
	fe_desc(fe, 1, 1, base + (16u << 20) - 10, 64, VRING_DESC_F_WRITE, 0);
	expect_bad(fe, 0, -EFAULT);
	g_assert_cmpuint(seen().last_in, ==, 10);
	finish(fe);
}

static void test_indirect_long(void)
{
	struct fe *fe = begin(FE_FEATURES);
	struct vring_desc *table = (void *)(fe->mem + FE_BUFS + 0x10000);
	uint64_t at = FE_GPA + FE_BUFS + 0x10000;

	/* More than the ring is long, as Linux may; not next to each other in memory. */
	for (unsigned int i = 0; i < 600; i++)
		table[i] = (struct vring_desc){
			BUF + 0x40000 + i * 64,
			32,
			(i < 300 ? 0 : VRING_DESC_F_WRITE) | (i < 599 ? VRING_DESC_F_NEXT : 0),
			(uint16_t)(i + 1),
		};
	fe_desc(fe, 1, 3, at, 600 * 16, VRING_DESC_F_INDIRECT, 0);
	fe_post(fe, 1, 3);
	g_assert_cmpuint(fe_used(fe, 1).len, ==, 300 * 32);
	g_assert_cmpuint(seen().last_nout, ==, 300);
	g_assert_cmpuint(seen().last_nin, ==, 300);
	/* Neighbours are joined. */
	for (unsigned int i = 0; i < 600; i++)
		table[i].addr = BUF + 0x40000 + i * 32;
	fe_post(fe, 1, 3);
	g_assert_cmpuint(fe_used(fe, 1).len, ==, 300 * 32);
	g_assert_cmpuint(seen().last_nout, ==, 1);
	g_assert_cmpuint(seen().last_nin, ==, 1);
	/* Too long. */
	for (unsigned int i = 0; i < 4000; i++)
		table[i] = (struct vring_desc){BUF, 1, VRING_DESC_F_NEXT, (uint16_t)(i + 1)};
	fe_desc(fe, 1, 3, at, 4000 * 16, VRING_DESC_F_INDIRECT, 0);
	expect_bad(fe, 3, -EINVAL);
	finish(fe);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	quiet();
	g_test_add_data_func("/vhost/ring/echo", NULL, test_echo);
	g_test_add_data_func("/vhost/ring/echo-event-idx",
			     GSIZE_TO_POINTER(VHOST_BIT(VIRTIO_F_BIT_EVENT_IDX)), test_echo);
	g_test_add_func("/vhost/ring/bad-chains", test_bad_chains);
	g_test_add_func("/vhost/ring/indirect-not-negotiated", test_indirect_not_negotiated);
	g_test_add_func("/vhost/ring/head-outside", test_head_outside);
	g_test_add_func("/vhost/ring/index-jump", test_index_jump_breaks_the_ring_until_reset);
	g_test_add_func("/vhost/ring/region-borders", test_split_at_region_borders);
	g_test_add_func("/vhost/ring/window-segments", test_window_segments);
	g_test_add_func("/vhost/ring/indirect-long", test_indirect_long);
	return g_test_run();
}
