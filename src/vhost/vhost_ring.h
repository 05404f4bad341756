/* SPDX-License-Identifier: Apache-2.0 */
/* Split virtqueues (virtio 1.2, 2.7), device side. The only code that touches ring memory. */
#ifndef DAXMAP_VHOST_RING_H
#define DAXMAP_VHOST_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util_gvec.h"
#include "vhost_mem.h"

/** struct vhost_ring_addr - where the front-end says the parts are (its own addresses) */
struct vhost_ring_addr {
	uint64_t desc;
	uint64_t avail;
	uint64_t used;
};

/**
 * struct vhost_ring - one ring
 *
 * The available side (@next_avail, @seen_avail, @hint) belongs to who pops, the used side
 * (@next_used, @signalled_*) to who pushes; both may run at the same time. All else changes only
 * while nobody does either.
 */
struct vhost_ring {
	unsigned int num;
	bool event_idx;
	bool indirect;
	struct vhost_mem *mem; /* a reference: keeps the ring mapped */
	const struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;

	uint16_t next_avail;
	uint16_t seen_avail;
	unsigned int hint;

	uint16_t next_used;
	uint16_t signalled_used;
	bool signalled_valid;
	uint32_t last_id, last_len; /* what stands in the last used entry that we wrote */
};

/** struct vhost_segs - a growing list of segments; out first, then in */
struct vhost_segs {
	struct iovec *iov;
	uint64_t *window; /* NULL until a segment lies in the window */
	unsigned int n, cap;
	unsigned int n_out;
	size_t out_len, in_len;
};

/** vhost_ring_map() - finds the parts in @mem and takes a reference to it. @r->num is set.
 * Returns 0, -EINVAL (alignment), -EFAULT (not wholly inside one region). */
int vhost_ring_map(struct vhost_ring *r, struct vhost_mem *mem, const struct vhost_ring_addr *a);
/** vhost_ring_unmap() - forgets the addresses, drops the reference. */
void vhost_ring_unmap(struct vhost_ring *r);

static inline bool vhost_ring_mapped(const struct vhost_ring *r)
{
	return r->desc != NULL;
}

/** vhost_ring_used_idx() - the used index that stands in guest memory. */
uint16_t vhost_ring_used_idx(const struct vhost_ring *r);
/** vhost_ring_last_matches() - does the entry before next_used hold what we last wrote there? */
bool vhost_ring_last_matches(const struct vhost_ring *r);

/** vhost_ring_peek() - is there something to pop? 1, 0, or -EINVAL (the index is impossible). */
int vhost_ring_peek(struct vhost_ring *r);

/**
 * vhost_ring_pop() - takes the next chain
 * @mem: where its buffers are looked up
 * @segs: out: reset and filled
 * @head: out: to give back
 * @error: out: 0, -EFAULT, -EINVAL: see struct vhost_elem
 *
 * Returns 1; 0 when empty; -EINVAL when the index is impossible: the ring is broken;
 * -EAGAIN when a head index was impossible and was skipped.
 */
int vhost_ring_pop(struct vhost_ring *r, const struct vhost_mem *mem, struct vhost_segs *segs,
		   uint16_t *head, int *error);

/** vhost_ring_notify_on() - asks the driver to kick; true when something came meanwhile. */
bool vhost_ring_notify_on(struct vhost_ring *r);
/** vhost_ring_notify_off() - kicks are not needed for now. */
void vhost_ring_notify_off(struct vhost_ring *r);

/** vhost_ring_push() - writes a used entry, not yet visible. */
void vhost_ring_push(struct vhost_ring *r, uint16_t head, uint32_t len);
/** vhost_ring_publish() - makes what was pushed visible; true when the driver wants a signal. */
bool vhost_ring_publish(struct vhost_ring *r);

#endif
