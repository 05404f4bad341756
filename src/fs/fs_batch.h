/* SPDX-License-Identifier: Apache-2.0 */
/* Several reads with one system call; see fs_batch.c. */
#ifndef DAXMAP_FS_BATCH_H
#define DAXMAP_FS_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs.h"

#define FS_BATCH_MAX 8

struct fs_batch;

/** fs_batch_new() - NULL where the kernel offers no io_uring, or not to us. Any thread may use it,
 * one at a time. To be made before system calls are filtered: later only io_uring_enter is needed.
 */
struct fs_batch *fs_batch_new(void);
void fs_batch_free(struct fs_batch *b);

/**
 * fs_batch_read() - takes a read to be run by fs_batch_run()
 * @buf: has to stay until then, as what it points to
 * @slot: out: which of the FS_BATCH_MAX it is
 *
 * False when it is not one for us, or the batch is full: call fs_read() with FS_IO_NOWAIT.
 */
bool fs_batch_read(struct fs_batch *b, struct fs *fs, uint64_t node, uint64_t handle,
		   const struct util_gvec *buf, uint64_t offset, unsigned int *slot);

/**
 * fs_batch_run() - runs all that was taken, without waiting for a disk
 * @results: out, by slot: the bytes, all that were asked for; or -EAGAIN: ask fs_read()
 *
 * Returns how many there were; the batch is empty then.
 */
unsigned int fs_batch_run(struct fs_batch *b, struct fs *fs, ssize_t results[FS_BATCH_MAX]);

#endif
