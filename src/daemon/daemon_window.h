/* SPDX-License-Identifier: Apache-2.0 */
/* The window driver that --window-dialect names, behind one set of calls. */
#ifndef DAXMAP_DAEMON_WINDOW_H
#define DAXMAP_DAEMON_WINDOW_H

#include <stdbool.h>

#include <daxmap/window.h>

#include "daemon_options.h"
#include "vhost.h"

/** daemon_window_offered() - no: it is off, or the share is read-only and the dialect cannot
 * write-protect. */
bool daemon_window_offered(const struct daemon_config *c);

/** daemon_window_new() - NULL where none is to be offered. */
struct dm_window *daemon_window_new(const struct daemon_config *c);

/* Main thread; none waits. @w may be NULL. */
enum vhost_region_verdict daemon_window_region(const struct daemon_config *c, struct dm_window *w,
					       struct vhost_dev *d,
					       const struct vhost_region_info *r);
void daemon_window_running(const struct daemon_config *c, struct dm_window *w, bool running);
void daemon_window_reset(const struct daemon_config *c, struct dm_window *w);
void daemon_window_channel(const struct daemon_config *c, struct dm_window *w,
			   struct vhost_backend *b);

/* Any thread; see window_shmem_forgotten(). */
uint64_t daemon_window_to_forget(const struct daemon_config *c, struct dm_window *w);
void daemon_window_forgotten(const struct daemon_config *c, struct dm_window *w, uint64_t n);

#endif
