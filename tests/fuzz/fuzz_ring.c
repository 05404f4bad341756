// SPDX-License-Identifier: Apache-2.0
/*
 * Rings and indirect tables with any content: whatever is popped lies within guest memory or the
 * window, popping ends, and nothing outside the ring's used part is written.
 *
 * Input: struct head, then the bytes of guest memory from its start on.
 */
#include "fuzz.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <glib.h>
#include <linux/virtio_ring.h>

#include "util_fd.h"
#include "vhost_ring.h"

#define GPA 0x100000u
#define MEM 0x4000u
#define WINDOW_GPA 0x40000000u
#define WINDOW 0x400000u
#define POPS 100u

/* where the parts of the ring lie in guest memory */
#define AVAIL_AT 0x400u
#define USED_AT 0x600u
#define TABLE_AT 0xa00u

struct head {
	uint8_t log_num;
	uint8_t event_idx;
	uint8_t indirect;
	uint8_t window;
	uint16_t start;
	uint16_t pad;
};

struct arena {
	struct vhost_mem *mem;
	uint8_t *bytes;
};

static struct arena *arena(void)
{
	static struct arena a;
	struct vhost_region_msg msg = {.guest_addr = GPA, .size = MEM, .user_addr = GPA};
	struct vhost_mem *empty, *with_ram;
	util_autofd fd = -1;

	if (a.mem)
		return &a;
	fd = memfd_create("fuzz-ring", MFD_CLOEXEC);
	g_assert_cmpint(ftruncate(fd, MEM), ==, 0);
	empty = vhost_mem_new();
	g_assert_cmpint(vhost_mem_add(empty, &msg, fd, &with_ram), ==, 0);
	a.mem = vhost_mem_move_window(with_ram, WINDOW_GPA, WINDOW);
	vhost_mem_put(with_ram);
	vhost_mem_put(empty);
	a.bytes = a.mem->regions[0]->host;
	return &a;
}

static void check_segs(const struct arena *a, const struct vhost_segs *s, unsigned int max)
{
	size_t total = 0;

	g_assert_cmpuint(s->n_out, <=, s->n);
	g_assert_cmpuint(s->n, <=, max);
	for (unsigned int i = 0; i < s->n; i++) {
		uint8_t *base = s->iov[i].iov_base;
		size_t len = s->iov[i].iov_len;

		total += len;
		if (s->window && s->window[i] != UTIL_GVEC_RAM) {
			g_assert_cmpuint(s->window[i], <, WINDOW);
			g_assert_cmpuint(len, <=, WINDOW - s->window[i]);
			continue;
		}
		g_assert_true(base >= a->bytes && base <= a->bytes + MEM);
		g_assert_cmpuint(len, <=, (size_t)(a->bytes + MEM - base));
	}
	g_assert_cmpuint(total, ==, s->out_len + s->in_len);
}

static void drive(const struct arena *a, struct vhost_ring *r)
{
	struct vhost_segs segs = {0};

	vhost_ring_notify_off(r);
	for (unsigned int i = 0; i < POPS; i++) {
		uint16_t head = UINT16_MAX;
		int error = 1, got = vhost_ring_pop(r, a->mem, &segs, &head, &error);

		if (got == 0 || got == -EINVAL)
			break;
		if (got == -EAGAIN)
			continue;
		g_assert_cmpint(got, ==, 1);
		g_assert_cmpuint(head, <, r->num);
		g_assert_true(error == 0 || error == -EFAULT || error == -EINVAL);
		check_segs(a, &segs, 65536);
		vhost_ring_push(r, head, (uint32_t)segs.in_len);
		if (i % 3 == 0)
			vhost_ring_publish(r);
	}
	vhost_ring_publish(r);
	vhost_ring_notify_on(r);
	vhost_ring_last_matches(r);
	g_free(segs.iov);
	g_free(segs.window);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct vhost_ring_addr at = {GPA, GPA + AVAIL_AT, GPA + USED_AT};
	struct arena *a = arena();
	struct vhost_ring r = {0};
	g_autofree uint8_t *before = NULL;
	struct head h;
	size_t used;

	if (size < sizeof(h))
		return 0;
	memcpy(&h, data, sizeof(h));
	memset(a->bytes, 0, MEM);
	memcpy(a->bytes, data + sizeof(h), MIN(size - sizeof(h), MEM));
	r.num = 1u << (h.log_num % 7);
	r.event_idx = h.event_idx & 1;
	r.indirect = h.indirect & 1;
	r.next_avail = r.next_used = h.start;
	if (vhost_ring_map(&r, a->mem, &at) < 0)
		return 0;
	before = g_memdup2(a->bytes, MEM);
	drive(a, &r);
	/* flags, idx, the entries, avail_event */
	used = USED_AT + 4 + r.num * sizeof(struct vring_used_elem) + 2;
	g_assert_cmpmem(a->bytes, USED_AT, before, USED_AT);
	g_assert_cmpmem(a->bytes + used, MEM - used, before + used, MEM - used);
	vhost_ring_unmap(&r);
	return 0;
}

/* A ring of 8: one plain chain of two, one indirect, one into the window. */
size_t fuzz_seed(unsigned int i, uint8_t *buf, size_t cap)
{
	struct head h = {.log_num = 3, .event_idx = i & 1, .indirect = i < 4};
	struct vring_desc *d = (struct vring_desc *)(buf + sizeof(h));
	struct vring_avail *avail = (struct vring_avail *)(buf + sizeof(h) + AVAIL_AT);
	struct vring_desc *table = (struct vring_desc *)(buf + sizeof(h) + TABLE_AT);

	if (i >= 6)
		return 0;
	g_assert_cmpuint(cap, >=, 0xc00);
	memset(buf, 0, 0xc00);
	h.start = i >= 2 ? 0xfffe : 0;
	memcpy(buf, &h, sizeof(h));
	d[0] = (struct vring_desc){GPA + 0x2000, 100, VRING_DESC_F_NEXT, 1};
	d[1] = (struct vring_desc){GPA + 0x3000, 0x800, VRING_DESC_F_WRITE, 0};
	d[2] = (struct vring_desc){GPA + TABLE_AT, 3 * sizeof(*d), VRING_DESC_F_INDIRECT, 0};
	d[3] = (struct vring_desc){GPA + 0x2000, 40, VRING_DESC_F_NEXT, 4};
	d[4] = (struct vring_desc){WINDOW_GPA + 0x1000, 4096, VRING_DESC_F_WRITE, 0};
	table[0] = (struct vring_desc){GPA + 0x2000, 40, VRING_DESC_F_NEXT, 1};
	table[1] = (struct vring_desc){GPA + 0x2100, 60, VRING_DESC_F_NEXT, 2};
	table[2] = (struct vring_desc){GPA + 0x3000, 512, VRING_DESC_F_WRITE, 0};
	for (unsigned int k = 0; k < 3; k++)
		avail->ring[(uint16_t)(h.start + k) % 8] = (uint16_t[]){0, 2, 3}[k];
	avail->idx = (uint16_t)(h.start + 3);
	return 0xc00;
}
