/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window driver of the guest's seat: maps and unmaps by FUSE_SETUPMAPPING and
 * FUSE_REMOVEMAPPING.
 */
#ifndef DAXMAP_GUEST_DAX_H
#define DAXMAP_GUEST_DAX_H

#include <glib.h>

#include <daxmap/window.h>

#include "guest_fuse.h"

/**
 * guest_dax_new() - the DAX window of a connected and initialised session as a driver
 * @fuse: borrowed; must outlive the driver
 * @size: use only so many bytes of it; 0 = all
 * @max_mappings: live mappings that the back-end's VMM is known to bear; 0 = not known
 * @error: set on failure: no window, or the back-end wants coarser pages than ours
 *
 * Maps overlay, unmaps take any part, up to 255 unmaps go in one request, maps are pipelined;
 * submit() may run in several threads. Files are named by node id: dm_window_op.key_lo; the
 * descriptor is not looked at. A file's node must stay known to the back-end while it is mapped.
 *
 * Returns the driver (dm_window_destroy()), or NULL.
 */
struct dm_window *guest_dax_new(struct guest_fuse *fuse, uint64_t size, uint32_t max_mappings,
				GError **error);

#endif
