/* SPDX-License-Identifier: Apache-2.0 */
/* The window driver for embedders: the window is a piece of this process's address space. */
#ifndef DAXMAP_LOCAL_H
#define DAXMAP_LOCAL_H

#include <glib.h>

#include <daxmap/window.h>

/**
 * dm_window_local_new() - reserves @size bytes of address space as a window
 * @size: bytes, a multiple of the page size
 * @max_mappings: at most so many live mappings; 0 = what vm.max_map_count leaves room for
 * @error: set on failure
 *
 * Maps overlay, unmaps take any part, read-only maps are read-only, submit() may run in several
 * threads. What is not mapped is inaccessible (SIGSEGV); what is mapped beyond a file's end is
 * SIGBUS. Free with dm_window_destroy(), which drops the address space.
 *
 * Returns the window, or NULL.
 */
struct dm_window *dm_window_local_new(uint64_t size, uint32_t max_mappings, GError **error);

#endif
