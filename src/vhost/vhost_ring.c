// SPDX-License-Identifier: Apache-2.0
/*
 * Split virtqueues. Ring memory is the guest's and changes under us: every field is read once,
 * with an atomic load, into a local that is then validated and used. Nothing that the guest
 * writes there can make us read outside the ring or its tables, loop without bound, or allocate
 * without bound: a chain is cut at CHAIN_MAX descriptors, indirect tables included, and at
 * 4 GiB - 1 bytes (the used length is 32 bits).
 *
 * Barriers (virtio 1.2, 2.7.13): the available index is loaded with acquire before the ring
 * entries and descriptors are read; used entries are written before the used index is stored with
 * release; between storing the used index and reading used_event/flags, and between storing
 * avail_event/flags and reading the available index again, stands a full barrier.
 *
 * A bad chain still ends as an element, so the driver gets its descriptors back. Only a head
 * index outside the ring cannot be given back: it is skipped. An available index further ahead than
 * the ring is long says that nothing in the ring can be believed: the ring is broken until it
 * restarts.
 */
#include "vhost_ring.h"

#include <errno.h>
#include <glib.h>
#include <linux/virtio_ring.h>
#include <string.h>

#include "util_overflow.h"

#define CHAIN_MAX 2048u

static inline void full_barrier(void)
{
#ifdef DAXMAPD_TSAN
	static int word;

	__atomic_fetch_add(&word, 0, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/*
 * A driver offers a buffer again, on whichever ring, only after it has seen it used. That edge
 * runs through the guest, where ThreadSanitizer cannot see it: it is stated here, once for all
 * rings.
 */
#ifdef DAXMAPD_TSAN
static char through_the_guest;
#endif

static inline void edge_to_driver(void)
{
#ifdef DAXMAPD_TSAN
	__tsan_release(&through_the_guest);
#endif
}

static inline void edge_from_driver(void)
{
#ifdef DAXMAPD_TSAN
	__tsan_acquire(&through_the_guest);
#endif
}

static inline uint16_t load16(const __virtio16 *p)
{
	return GUINT16_FROM_LE(__atomic_load_n(p, __ATOMIC_RELAXED));
}

static inline uint16_t load16_acquire(const __virtio16 *p)
{
	return GUINT16_FROM_LE(__atomic_load_n(p, __ATOMIC_ACQUIRE));
}

static inline void store16(__virtio16 *p, uint16_t v)
{
	__atomic_store_n(p, GUINT16_TO_LE(v), __ATOMIC_RELAXED);
}

static inline __virtio16 *used_event(const struct vhost_ring *r)
{
	return &r->avail->ring[r->num];
}

static inline __virtio16 *avail_event(const struct vhost_ring *r)
{
	return (__virtio16 *)&r->used->ring[r->num];
}

int vhost_ring_map(struct vhost_ring *r, struct vhost_mem *mem, const struct vhost_ring_addr *a)
{
	uint64_t num = r->num;
	void *desc, *avail, *used;

	if (!util_is_aligned(a->desc, VRING_DESC_ALIGN_SIZE) ||
	    !util_is_aligned(a->avail, VRING_AVAIL_ALIGN_SIZE) ||
	    !util_is_aligned(a->used, VRING_USED_ALIGN_SIZE))
		return -EINVAL;
	desc = vhost_mem_user(mem, a->desc, num * sizeof(struct vring_desc));
	avail = vhost_mem_user(mem, a->avail, sizeof(struct vring_avail) + (num + 1) * 2);
	used = vhost_mem_user(mem, a->used,
			      sizeof(struct vring_used) + num * sizeof(struct vring_used_elem) + 2);
	if (!desc || !avail || !used)
		return -EFAULT;
	/* The front-end's alignment is not ours: a region may start anywhere in its file. */
	if (!util_is_aligned((uintptr_t)desc, 8) || !util_is_aligned((uintptr_t)avail, 2) ||
	    !util_is_aligned((uintptr_t)used, 4))
		return -EINVAL;
	vhost_mem_get(mem);
	vhost_mem_put(r->mem);
	r->mem = mem;
	r->desc = desc;
	r->avail = avail;
	r->used = used;
	return 0;
}

void vhost_ring_unmap(struct vhost_ring *r)
{
	vhost_mem_put(r->mem);
	r->mem = NULL;
	r->desc = NULL;
	r->avail = NULL;
	r->used = NULL;
}

uint16_t vhost_ring_used_idx(const struct vhost_ring *r)
{
	return load16(&r->used->idx);
}

bool vhost_ring_last_matches(const struct vhost_ring *r)
{
	const struct vring_used_elem *e =
		&r->used->ring[(uint16_t)(r->next_used - 1) & (r->num - 1)];

	return GUINT32_FROM_LE(__atomic_load_n(&e->id, __ATOMIC_RELAXED)) == r->last_id &&
	       GUINT32_FROM_LE(__atomic_load_n(&e->len, __ATOMIC_RELAXED)) == r->last_len;
}

int vhost_ring_peek(struct vhost_ring *r)
{
	uint16_t ahead;

	if (r->seen_avail == r->next_avail) {
		r->seen_avail = load16_acquire(&r->avail->idx);
		edge_from_driver();
	}
	ahead = (uint16_t)(r->seen_avail - r->next_avail);
	if (ahead > r->num)
		return -EINVAL;
	return ahead > 0;
}

static void segs_push(struct vhost_segs *s, void *base, size_t len, uint64_t window)
{
	struct iovec *last = s->n ? &s->iov[s->n - 1] : NULL;

	/* Neighbours in memory are one segment: fewer entries for preadv2(). */
	if (last && s->n > s->n_out && window == UTIL_GVEC_RAM &&
	    (!s->window || s->window[s->n - 1] == UTIL_GVEC_RAM) &&
	    (uint8_t *)last->iov_base + last->iov_len == base) {
		last->iov_len += len;
		return;
	}
	if (s->n == s->cap) {
		s->cap = s->cap ? s->cap * 2 : 16;
		s->iov = g_renew(struct iovec, s->iov, s->cap);
		if (s->window)
			s->window = g_renew(uint64_t, s->window, s->cap);
	}
	if (window != UTIL_GVEC_RAM && !s->window) {
		s->window = g_new(uint64_t, s->cap);
		for (unsigned int i = 0; i < s->n; i++)
			s->window[i] = UTIL_GVEC_RAM;
	}
	s->iov[s->n] = (struct iovec){base, len};
	if (s->window)
		s->window[s->n] = window;
	s->n++;
}

/* The walk of one chain. */
struct walk {
	struct vhost_ring *r;
	const struct vhost_mem *mem;
	struct vhost_segs *segs;
	unsigned int steps;
	bool writable; /* the first device-writable descriptor has come */
	bool cut_out, cut_in;
	int error;
};

static struct vring_desc desc_load(const struct vring_desc *d)
{
	struct vring_desc c = {
		.addr = GUINT64_FROM_LE(__atomic_load_n(&d->addr, __ATOMIC_RELAXED)),
		.len = GUINT32_FROM_LE(__atomic_load_n(&d->len, __ATOMIC_RELAXED)),
		.flags = load16(&d->flags),
		.next = load16(&d->next),
	};
	return c;
}

/* Adds the bytes of one descriptor, split at the borders of regions. */
static void walk_bytes(struct walk *w, uint64_t addr, uint64_t len, bool in)
{
	bool *cut = in ? &w->cut_in : &w->cut_out;
	size_t *total = in ? &w->segs->in_len : &w->segs->out_len;
	uint64_t end;

	if (*cut || len == 0)
		return;
	if (!util_add_u64(addr, len, &end)) {
		w->error = -EFAULT;
		*cut = true;
		return;
	}
	while (len > 0) {
		uint64_t part = len, offset = UTIL_GVEC_RAM;
		void *base = vhost_mem_at(w->mem, addr, &part, &w->r->hint);

		if (!base && !vhost_mem_window(w->mem, addr, &part, &offset)) {
			w->error = -EFAULT;
			*cut = true;
			return;
		}
		segs_push(w->segs, base, part, offset);
		*total += part;
		addr += part;
		len -= part;
	}
}

/* One descriptor that is a buffer. Returns 0, or -EINVAL: stop here. */
static int walk_buffer(struct walk *w, const struct vring_desc *d)
{
	bool in = d->flags & VRING_DESC_F_WRITE;
	size_t total = w->segs->out_len + w->segs->in_len;

	if (w->writable && !in)
		return -EINVAL;
	if (total + d->len > UINT32_MAX)
		return -EINVAL;
	if (in && !w->writable) {
		w->writable = true;
		w->segs->n_out = w->segs->n;
	}
	walk_bytes(w, d->addr, d->len, in);
	return 0;
}

/* Descriptor @i of an indirect table at guest address @table. */
static int indirect_load(struct walk *w, uint64_t table, unsigned int i, struct vring_desc *d)
{
	uint64_t addr = table + (uint64_t)i * sizeof(*d), len = sizeof(*d);
	uint8_t *from = vhost_mem_at(w->mem, addr, &len, &w->r->hint);

	if (!from)
		return -EFAULT;
	if (len == sizeof(*d) && util_is_aligned((uintptr_t)from, 8)) {
		*d = desc_load((const struct vring_desc *)from);
		return 0;
	}
	/* Odd alignment, or an entry across two regions: byte by byte, still each byte once. */
	for (unsigned int b = 0; b < sizeof(*d); b++) {
		len = 1;
		from = vhost_mem_at(w->mem, addr + b, &len, &w->r->hint);
		if (!from)
			return -EFAULT;
		((uint8_t *)d)[b] = __atomic_load_n(from, __ATOMIC_RELAXED);
	}
	d->addr = GUINT64_FROM_LE(d->addr);
	d->len = GUINT32_FROM_LE(d->len);
	d->flags = GUINT16_FROM_LE(d->flags);
	d->next = GUINT16_FROM_LE(d->next);
	return 0;
}

static int walk_indirect(struct walk *w, const struct vring_desc *ind)
{
	unsigned int n = ind->len / sizeof(struct vring_desc);
	unsigned int i = 0;
	uint64_t end;

	if (!w->r->indirect || ind->len == 0 || ind->len % sizeof(struct vring_desc) ||
	    (ind->flags & VRING_DESC_F_NEXT) || !util_add_u64(ind->addr, ind->len, &end))
		return -EINVAL;
	for (;;) {
		struct vring_desc d;
		int err;

		if (i >= n || ++w->steps > CHAIN_MAX)
			return -EINVAL;
		err = indirect_load(w, ind->addr, i, &d);
		if (err)
			return err;
		if (d.flags & VRING_DESC_F_INDIRECT)
			return -EINVAL;
		err = walk_buffer(w, &d);
		if (err || !(d.flags & VRING_DESC_F_NEXT))
			return err;
		i = d.next;
	}
}

static int walk_chain(struct walk *w, uint16_t head)
{
	unsigned int i = head, direct = 0;

	for (;;) {
		struct vring_desc d;
		int err;

		if (i >= w->r->num || ++direct > w->r->num || ++w->steps > CHAIN_MAX)
			return -EINVAL;
		d = desc_load(&w->r->desc[i]);
		if (d.flags & VRING_DESC_F_INDIRECT)
			return walk_indirect(w, &d);
		err = walk_buffer(w, &d);
		if (err || !(d.flags & VRING_DESC_F_NEXT))
			return err;
		i = d.next;
	}
}

int vhost_ring_pop(struct vhost_ring *r, const struct vhost_mem *mem, struct vhost_segs *segs,
		   uint16_t *head, int *error)
{
	struct walk w = {.r = r, .mem = mem, .segs = segs};
	int err = vhost_ring_peek(r);

	if (err <= 0)
		return err;
	*head = load16(&r->avail->ring[r->next_avail & (r->num - 1)]);
	r->next_avail++;
	if (*head >= r->num)
		return -EAGAIN;
	segs->n = segs->n_out = 0;
	segs->out_len = segs->in_len = 0;
	g_clear_pointer(&segs->window, g_free);
	err = walk_chain(&w, *head);
	if (!w.writable)
		segs->n_out = segs->n;
	*error = err ? err : w.error;
	return 1;
}

bool vhost_ring_notify_on(struct vhost_ring *r)
{
	if (r->event_idx)
		store16(avail_event(r), r->next_avail);
	else
		store16(&r->used->flags, 0);
	full_barrier();
	return load16_acquire(&r->avail->idx) != r->next_avail;
}

void vhost_ring_notify_off(struct vhost_ring *r)
{
	/* With EVENT_IDX an avail_event that is not moved on is enough. */
	if (!r->event_idx)
		store16(&r->used->flags, VRING_USED_F_NO_NOTIFY);
}

void vhost_ring_push(struct vhost_ring *r, uint16_t head, uint32_t len)
{
	struct vring_used_elem *e = &r->used->ring[r->next_used & (r->num - 1)];

	__atomic_store_n(&e->id, GUINT32_TO_LE((uint32_t)head), __ATOMIC_RELAXED);
	__atomic_store_n(&e->len, GUINT32_TO_LE(len), __ATOMIC_RELAXED);
	r->last_id = head;
	r->last_len = len;
	r->next_used++;
}

bool vhost_ring_publish(struct vhost_ring *r)
{
	uint16_t old = r->signalled_used, now = r->next_used;
	bool valid = r->signalled_valid;

	edge_to_driver();
	__atomic_store_n(&r->used->idx, GUINT16_TO_LE(now), __ATOMIC_RELEASE);
	full_barrier();
	if (!r->event_idx)
		return !(load16(&r->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	r->signalled_used = now;
	r->signalled_valid = true;
	return !valid || vring_need_event(load16(used_event(r)), now, old);
}
