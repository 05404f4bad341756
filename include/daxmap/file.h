/* SPDX-License-Identifier: Apache-2.0 */
/* How the table names files and gets at them: an opaque key and a provider of descriptors. */
#ifndef DAXMAP_FILE_H
#define DAXMAP_FILE_H

#include <stdbool.h>
#include <stdint.h>

/** struct dm_file_key - opaque to the table; equal keys are the same file */
struct dm_file_key {
	uint64_t hi;
	uint64_t lo;
};

static inline bool dm_file_key_equal(struct dm_file_key a, struct dm_file_key b)
{
	return a.hi == b.hi && a.lo == b.lo;
}

/**
 * struct dm_file_provider - where the table gets a file's descriptor
 * @ctx: passed to both calls
 * @open: returns a descriptor for the file, read-write where the file and its owner allow it
 *        (then sets *@writable), else read-only; or a negative errno. Called once per file
 *        while it has mapped ranges, from the thread that asks for a mapping, without a lock
 *        of the table held. May block.
 * @close: gives the descriptor back. Called once per successful open, any thread, no lock held.
 * @zeros: returns a new descriptor, read-write, of a file of @len zeros that nobody else has, or a
 *         negative errno; the table closes it. For dm_host_fit(); NULL: not to be had
 */
struct dm_file_provider {
	void *ctx;
	int (*open)(void *ctx, struct dm_file_key key, bool *writable);
	void (*close)(void *ctx, struct dm_file_key key, int fd);
	int (*zeros)(void *ctx, uint64_t len);
};

#endif
