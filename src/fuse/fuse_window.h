/* SPDX-License-Identifier: Apache-2.0 */
/* Guest buffers that lie in the DAX window, made addressable for one I/O. */
#ifndef DAXMAP_FUSE_WINDOW_H
#define DAXMAP_FUSE_WINDOW_H

#include <stdbool.h>

#include <glib.h>

#include "daxmap/table.h"
#include "util_gvec.h"

/**
 * struct fuse_window_io - a guest buffer with every segment addressable
 * @v: the segments; valid until fuse_window_release()
 */
struct fuse_window_io {
	struct util_gvec v;
	struct dm_table *table;
	GArray *iov;
	GArray *pieces;
};

/**
 * fuse_window_resolve() - pins and maps the parts of @from that lie in the window
 * @table: may be NULL: then every window segment is -EFAULT
 * @store: the I/O writes to the guest's buffer
 *
 * Returns 0, or -EFAULT where nothing is mapped, or what is mapped may not be written;
 * fuse_window_release() in any case. Touch the bytes only with system calls: behind the file's
 * end they answer EFAULT, where a load would be SIGBUS.
 */
int fuse_window_resolve(struct fuse_window_io *io, struct dm_table *table,
			const struct util_gvec *from, bool store);
void fuse_window_release(struct fuse_window_io *io);

#endif
