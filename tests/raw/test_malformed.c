// SPDX-License-Identifier: Apache-2.0
/*
 * Ten thousand malformed requests. Each must come back, the daemon must stay up, keep to the
 * rules of the window, and end well. RAW_SEED repeats a run.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "raw_util.h"
#include "util_lock.h"

#define SCRATCH (256u << 10)
#define ROUNDS 10000u

struct fuzz {
	struct raw *r;
	GRand *rand;
	uint8_t *mem;
	uint64_t gpa;
	uint64_t nodes[4];
	unsigned int out;
};

static uint32_t below(struct fuzz *f, uint32_t n)
{
	return (uint32_t)g_rand_int_range(f->rand, 0, (gint32)n);
}

static uint64_t odd_u64(struct fuzz *f)
{
	static const uint64_t corners[] = {0,	       1,	  4096,	      2 << 20,
					   UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 4095,
					   64 << 20};

	switch (below(f, 3)) {
	case 0:
		return corners[below(f, G_N_ELEMENTS(corners))];
	case 1:
		return below(f, 64);
	default:
		return (uint64_t)g_rand_int(f->rand) << 32 | g_rand_int(f->rand);
	}
}

/* Some opcodes with big numbers in them would really do the work; keep those small. */
static void tame(const struct fuse_in_header *h, uint8_t *args)
{
	uint64_t len = 4096;

	if (h->opcode == FUSE_FALLOCATE)
		memcpy(args + offsetof(struct fuse_fallocate_in, length), &len, sizeof(len));
	if (h->opcode == FUSE_COPY_FILE_RANGE)
		memcpy(args + offsetof(struct fuse_copy_file_range_in, len), &len, sizeof(len));
}

/* Writes a request of random kind at @p; how many bytes it has. */
static uint32_t make_request(struct fuzz *f, uint8_t *p)
{
	struct fuse_in_header h = {.unique = g_rand_int(f->rand)};
	uint32_t body = below(f, 3) ? below(f, 128) : below(f, 3000);

	h.opcode = below(f, 20) ? below(f, 53) : g_rand_int(f->rand);
	h.nodeid = below(f, 4) ? f->nodes[below(f, 4)] : odd_u64(f);
	if (h.opcode == FUSE_DESTROY && below(f, 8))
		h.opcode = FUSE_LOOKUP;
	memset(p, 0, sizeof(h) + 3072);
	for (uint32_t i = 0; i + 8 <= body; i += 8) {
		uint64_t v = odd_u64(f);

		memcpy(p + sizeof(h) + i, &v, sizeof(v));
	}
	if (!below(f, 3))
		memcpy(p + sizeof(h) + below(f, 64), "f1\0../x", 8);
	tame(&h, p + sizeof(h));
	h.len = (uint32_t)sizeof(h) + body;
	if (!below(f, 8))
		h.len = (uint32_t)odd_u64(f);
	memcpy(p, &h, sizeof(h));
	return (uint32_t)sizeof(h) + body;
}

static uint64_t some_address(struct fuzz *f)
{
	uint64_t end = GUEST_RAM_BASE + guest_mem_size(f->r->mem);

	switch (below(f, 8)) {
	case 0:
		return odd_u64(f) & 0xffff; /* below all memory */
	case 1:
		return end + below(f, 4096);
	case 2:
		return GUEST_WINDOW_BASE + (odd_u64(f) & ((64 << 20) - 1));
	case 3:
		return UINT64_MAX - below(f, 8192);
	default:
		return f->gpa + SCRATCH / 2 + below(f, SCRATCH / 4);
	}
}

static void finished(struct guest_req *q)
{
	__atomic_sub_fetch((unsigned int *)q->user, 1, __ATOMIC_RELEASE);
	guest_req_put(q);
}

/* A request of ours, its chain made of random pieces. */
static unsigned int make_chain(struct fuzz *f, struct guest_desc *d, unsigned int slot)
{
	uint8_t *p = f->mem + slot * 4096;
	uint32_t len = make_request(f, p);
	unsigned int n = 1;

	d[0] = (struct guest_desc){f->gpa + slot * 4096, len, GUEST_DESC_NEXT, 1};
	if (below(f, 3)) { /* well-shaped */
		d[1] = (struct guest_desc){f->gpa + SCRATCH / 2 + below(f, 4096), below(f, 8192),
					   GUEST_DESC_WRITE, 0};
		return 2;
	}
	n += below(f, 6);
	for (unsigned int i = 1; i < n; i++) {
		d[i].addr = some_address(f);
		d[i].len = below(f, 6) ? below(f, 8192) : g_rand_int(f->rand);
		d[i].flags = (uint16_t)(GUEST_DESC_NEXT | (below(f, 4) ? GUEST_DESC_WRITE : 0) |
					(below(f, 12) ? 0 : GUEST_DESC_INDIRECT));
		d[i].next = (uint16_t)(below(f, 30) ? i + 1 : below(f, 8));
	}
	if (below(f, 20))
		d[n - 1].flags &= (uint16_t)~GUEST_DESC_NEXT;
	return n;
}

/* Waits until everything is back. */
static void settle(struct fuzz *f)
{
	uint64_t until = util_now_ns() + RAW_TIMEOUT * 1000000ull;

	while (__atomic_load_n(&f->out, __ATOMIC_ACQUIRE)) {
		if (util_now_ns() > until || !guest_frontend_alive(f->r->fe)) {
			g_test_message("%u requests have not come back", f->out);
			g_assert_true(guest_frontend_alive(f->r->fe));
			g_assert_not_reached();
		}
		g_usleep(500);
	}
}

static void get_nodes(struct fuzz *f)
{
	raw_assert_ok(guest_fuse_init(f->r->fuse, 0, NULL));
	f->nodes[0] = 1;
	for (unsigned int i = 1; i < 4; i++) {
		char *name = g_strdup_printf("f%u", i);
		char *path = raw_path(f->r, name);
		struct stat st;

		if (stat(path, &st) < 0)
			raw_make_file(f->r, name, 2 * RAW_SLOT, i);
		f->nodes[i] = raw_node(f->r, name);
		g_free(path);
		g_free(name);
	}
}

static void shoot(struct fuzz *f, unsigned int slot)
{
	struct guest_desc d[8];
	struct guest_req *q = guest_req_get(f->r->fuse);
	unsigned int n = make_chain(f, d, slot);
	unsigned int queue = below(f, 8) ? 1 + below(f, guest_frontend_num_queues(f->r->fe)) : 0;

	g_assert_nonnull(q);
	guest_req_start(q, FUSE_FORGET, 0);
	q->done = finished;
	q->user = &f->out;
	__atomic_add_fetch(&f->out, 1, __ATOMIC_RELEASE);
	raw_assert_ok(guest_ring_raw(guest_frontend_ring(f->r->fe, queue), d, n, q));
}

static void test_requests(void)
{
	const char *seed = g_getenv("RAW_SEED");
	struct fuzz f = {0};
	uint32_t s = seed ? (uint32_t)strtoul(seed, NULL, 0) : g_random_int();
	struct fuse_attr a;

	g_test_message("RAW_SEED=%u", s);
	f.rand = g_rand_new_with_seed(s);
	f.r = raw_start(NULL);
	f.r->lenient = true;
	raw_connect(f.r, NULL);
	f.mem = guest_mem_alloc(f.r->mem, SCRATCH);
	f.gpa = raw_gpa(f.r, f.mem);
	get_nodes(&f);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		shoot(&f, i % 8);
		if (i % 8 == 7)
			settle(&f);
		if (i % 1000 == 999)
			get_nodes(&f);
	}
	settle(&f);
	get_nodes(&f);
	raw_assert_ok(guest_fuse_getattr(f.r->fuse, 1, &a));
	for (unsigned int i = 0; i <= guest_frontend_num_queues(f.r->fe); i++)
		g_assert_null(guest_ring_error(guest_frontend_ring(f.r->fe, i)));
	guest_mem_release(f.r->mem, f.mem, SCRATCH);
	g_rand_free(f.rand);
	raw_stop(f.r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/malformed/requests", test_requests);
	return g_test_run();
}
