/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest memory: an immutable snapshot of all regions, replaced as a whole.
 *
 * RCU: the current snapshot is published by the main thread; a reader takes a reference inside
 * a read section (vhost_mem_get()) and may then look things up for as long as it keeps it. The
 * snapshot keeps its regions mapped. Nothing here is written by lookups.
 */
#ifndef DAXMAP_VHOST_MEM_H
#define DAXMAP_VHOST_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "util_rcu.h"
#include "vhost_proto.h"

struct vhost_region {
	uint64_t guest_addr;
	uint64_t size;
	uint64_t user_addr;
	uint8_t *host; /* guest_addr is here */
	void *map;
	size_t map_len;
	unsigned int refs; /* atomic: snapshots that contain it */
};

struct vhost_mem {
	struct util_rcu_head rcu;
	unsigned int refs; /* atomic: the publisher's, queues', rings' */
	uint64_t window_base;
	uint64_t window_size; /* 0: no window, or its place is not known */
	unsigned int n;
	struct vhost_region *regions[]; /* by guest_addr, disjoint */
};

/* --- snapshots: main thread --- */

/** vhost_mem_new() - an empty snapshot with one reference. */
struct vhost_mem *vhost_mem_new(void);
/** vhost_mem_add() - maps @msg from @fd (borrowed) into a copy of @old. Returns 0, -EEXIST
 * (overlap), -EINVAL (impossible numbers, file too small), or what mmap said. */
int vhost_mem_add(const struct vhost_mem *old, const struct vhost_region_msg *msg, int fd,
		  struct vhost_mem **out);
/** vhost_mem_remove() - a copy of @old without @msg's region, or -ENOENT. */
int vhost_mem_remove(const struct vhost_mem *old, const struct vhost_region_msg *msg,
		     struct vhost_mem **out);
/** vhost_mem_move_window() - a copy of @old with the window there. */
struct vhost_mem *vhost_mem_move_window(const struct vhost_mem *old, uint64_t base, uint64_t size);
/** vhost_mem_put_later() - drops the publisher's reference after a grace period. */
void vhost_mem_put_later(struct vhost_mem *m);

/* --- references: any thread --- */

/** vhost_mem_get() - inside a read section on a published snapshot, or with a reference. */
void vhost_mem_get(struct vhost_mem *m);
/** vhost_mem_put() - may unmap. */
void vhost_mem_put(struct vhost_mem *m);

/* --- lookups: with a reference --- */

/** vhost_mem_at() - where @addr is in this process; *@len is cut to what is contiguous there.
 * NULL when no region has it. @hint: index of the last hit, kept by the caller. */
void *vhost_mem_at(const struct vhost_mem *m, uint64_t addr, uint64_t *len, unsigned int *hint);
/** vhost_mem_user() - @len bytes at the front-end's address @addr; NULL unless one region has
 * them all. */
void *vhost_mem_user(const struct vhost_mem *m, uint64_t addr, uint64_t len);
/** vhost_mem_window() - does @addr lie in the window? Then *@offset, and *@len cut to its end. */
bool vhost_mem_window(const struct vhost_mem *m, uint64_t addr, uint64_t *len, uint64_t *offset);

#endif
