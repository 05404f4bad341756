/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded cursors: the only code that touches the bytes of a FUSE message in guest memory.
 * A reader copies out, once; what it copied is then validated. A writer copies in.
 * Segments may be split anywhere and may be empty. A segment in the DAX window has no address
 * here: a cursor that meets one says -EFAULT (only the data of READ and WRITE may lie there,
 * see fuse_window.h).
 */
#ifndef DAXMAP_FUSE_CURSOR_H
#define DAXMAP_FUSE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "util_gvec.h"

/** struct fuse_cursor - a place in a guest buffer, and how many bytes from there on are ours */
struct fuse_cursor {
	const struct util_gvec *v;
	unsigned int seg;
	size_t off;  /* in that segment */
	size_t left; /* bytes */
};

void fuse_cursor_init(struct fuse_cursor *c, const struct util_gvec *v);
/** fuse_cursor_skip() - false, and the cursor at its end, when fewer than @n bytes are left. */
bool fuse_cursor_skip(struct fuse_cursor *c, size_t n);

/** fuse_cursor_read() - copies @n bytes out. 0, -EINVAL (not that many), -EFAULT (window). */
int fuse_cursor_read(struct fuse_cursor *c, void *dst, size_t n);

/**
 * fuse_cursor_read_string() - copies a string and the NUL that must end it
 * @cap: size of @dst; a string that does not fit with its NUL is -ENAMETOOLONG
 *
 * Returns its length, -EINVAL when no NUL comes before the end of the message, -EFAULT.
 */
ssize_t fuse_cursor_read_string(struct fuse_cursor *c, char *dst, size_t cap);

/** fuse_cursor_write() - copies @n bytes in. 0, -EINVAL (no room; nothing written), -EFAULT. */
int fuse_cursor_write(struct fuse_cursor *c, const void *src, size_t n);
/** fuse_cursor_zero() - as fuse_cursor_write() with zeros. */
int fuse_cursor_zero(struct fuse_cursor *c, size_t n);

/** fuse_cursor_is_ram() - do the first @n bytes of @v exist and lie in RAM? */
bool fuse_cursor_is_ram(const struct util_gvec *v, size_t n);

#define FUSE_SLICE_INLINE 264 /* 1 MiB of pages, and the odd header */

/**
 * struct fuse_slice - part of a guest buffer as a list of its own
 * @v: what to pass on; its segments live in this structure or on the heap
 * @in_window: some segment lies in the window
 *
 * Large: for the stack of the function that does the I/O. Do not copy.
 */
struct fuse_slice {
	struct util_gvec v;
	bool in_window;
	struct iovec *heap_iov;
	uint64_t *heap_window;
	struct iovec iov[FUSE_SLICE_INLINE];
	uint64_t window[FUSE_SLICE_INLINE];
};

/** fuse_slice_init() - @len bytes from byte @skip of @from on, which must hold them (-EINVAL
 * otherwise). Fini it in any case. */
int fuse_slice_init(struct fuse_slice *s, const struct util_gvec *from, size_t skip, size_t len);
void fuse_slice_fini(struct fuse_slice *s);

#endif
