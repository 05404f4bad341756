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

#endif
