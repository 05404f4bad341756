/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Window driver for the older dialect: VHOST_USER_BACKEND_FS_MAP and FS_UNMAP of Kata's
 * Dragonball and of old QEMU forks. Its message numbers mean other things today, so it is only
 * used when asked for by name.
 */
#ifndef DAXMAP_WINDOW_FS_MAP_H
#define DAXMAP_WINDOW_FS_MAP_H

#include <daxmap/window.h>

#include "vhost.h"

/**
 * window_fs_map_new() - makes a driver for a window of @size bytes
 *
 * A map replaces what is there, any range can be unmapped, the read and write flags are
 * honoured, and the answer comes when the mapping is usable. One range a message: Dragonball
 * closes the descriptor inside its loop over them. submit() waits while the device is stopped
 * (parked requests only), and returns -EPIPE without a channel.
 */
struct dm_window *window_fs_map_new(uint64_t size);

/* From the vhost_ops of the same names; main thread; none of them blocks. */
void window_fs_map_running(struct dm_window *w, bool running);
void window_fs_map_reset(struct dm_window *w);
void window_fs_map_channel(struct dm_window *w, struct vhost_backend *b);

/** window_fs_map_to_forget() - how many guests resets have ended; any thread. */
uint64_t window_fs_map_to_forget(struct dm_window *w);
/** window_fs_map_forgotten() - nothing is under way any more for the first @n of them, and nobody
 * counts on their mappings. While there are others submit() cancels everything. Any thread. */
void window_fs_map_forgotten(struct dm_window *w, uint64_t n);

#endif
