/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest buffer: a list of segments, each either in memory that this process has mapped, or in
 * the DAX window, which it has not.
 */
#ifndef DAXMAP_UTIL_GVEC_H
#define DAXMAP_UTIL_GVEC_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define UTIL_GVEC_RAM UINT64_MAX

/**
 * struct util_gvec - a scatter list of guest memory
 * @iov: @n segments; iov_base is valid unless the segment lies in the window
 * @window: NULL when no segment lies in the window (the common case); else @n entries, each the
 *          segment's byte offset in the window, or UTIL_GVEC_RAM for one that has an iov_base
 * @n: number of segments
 * @len: sum of all iov_len, bytes
 *
 * The bytes belong to the guest and change under the reader: copy once, then validate the copy.
 */
struct util_gvec {
	struct iovec *iov;
	uint64_t *window;
	unsigned int n;
	size_t len;
};

#endif
