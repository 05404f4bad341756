/* SPDX-License-Identifier: Apache-2.0 */
/* Window driver for VIRTIO shared memory over vhost-user (SHMEM_MAP, SHMEM_UNMAP). */
#ifndef DAXMAP_WINDOW_SHMEM_H
#define DAXMAP_WINDOW_SHMEM_H

#include <daxmap/window.h>

#include "vhost.h"

#define WINDOW_SHMEM_MAX_MAPPINGS 480u

/**
 * struct window_shmem_config - constant for a driver
 * @size: bytes, a power of two
 * @max_mappings: 0: WINDOW_SHMEM_MAX_MAPPINGS
 * @ack_slots: accept the regions that the front-end announces for our own mappings; else refuse
 *             them while the device runs and accept them while it starts (the safe way on QEMU)
 * @no_fence: the front-end answers a map only when it is usable, and knows no fence (crosvm)
 * @map_fd: may be NULL. Called for each MAP before it is sent, in the submitting thread, without
 *          a lock. Returns 0 (use op->fd, with all checks), 1 (use *@fd, borrowed until the
 *          submit returns; it may be mapped beyond its size), or a negative errno
 * @map_ctx: for @map_fd
 */
struct window_shmem_config {
	uint64_t size;
	uint32_t max_mappings;
	bool ack_slots;
	bool no_fence;
	int (*map_fd)(void *ctx, const struct dm_window_op *op, int *fd);
	void *map_ctx;
};

/**
 * window_shmem_new() - makes a driver
 *
 * submit() answers per operation, beside what the front-end refuses (-EIO):
 * -EINVAL (unaligned, no regular file, unmap that is not one whole mapping), -ERANGE (outside
 * the window), -ENXIO (reaches beyond the file's last page, or the file is empty), -EACCES (the
 * descriptor is not read-write), -EEXIST (a mapping is there), -ENOMEM (max_mappings),
 * -ECANCELED (the device was reset before it was sent, and until
 * window_shmem_forgotten()). Returns -EPIPE without a channel.
 * While the device is stopped it waits; requests that can wait so must be parked.
 */
struct dm_window *window_shmem_new(const struct window_shmem_config *config);

/* From the vhost_ops of the same names; main thread; none of them blocks. */
enum vhost_region_verdict window_shmem_region(struct dm_window *w, struct vhost_dev *d,
					      const struct vhost_region_info *r);
void window_shmem_running(struct dm_window *w, bool running);
void window_shmem_reset(struct dm_window *w);
void window_shmem_channel(struct dm_window *w, struct vhost_backend *b);

/** window_shmem_to_forget() - how many guests resets have ended; any thread. */
uint64_t window_shmem_to_forget(struct dm_window *w);
/** window_shmem_forgotten() - nothing is under way any more for the first @n of them, and nobody
 * counts on their mappings. While there are others submit() cancels everything. Any thread. */
void window_shmem_forgotten(struct dm_window *w, uint64_t n);

#endif
