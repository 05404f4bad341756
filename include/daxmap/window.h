/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window driver: the one thing that really maps and unmaps. A driver states what it can do;
 * the table asks for no more.
 */
#ifndef DAXMAP_WINDOW_H
#define DAXMAP_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dm_window;

/** enum dm_window_flags - what a driver can do */
enum dm_window_flags {
	DM_WINDOW_OVERLAY = 1u << 0,	/* a map over a mapping replaces that part of it */
	DM_WINDOW_SPLIT = 1u << 1,	/* unmap of any range, not only of one whole mapping */
	DM_WINDOW_PROTECT = 1u << 2,	/* a map without DM_MAP_WRITE cannot be written through */
	DM_WINDOW_BEYOND_EOF = 1u << 3, /* a mapping may reach beyond the end of the file */
	DM_WINDOW_CONCURRENT = 1u << 4, /* submit() may run in several threads at once */
};

/**
 * struct dm_window_caps - constant for the life of a driver
 * @flags: enum dm_window_flags
 * @size: window size, bytes
 * @granule: alignment of offsets and lengths, bytes, a power of two, at least the page size
 * @max_mappings: live mappings the other side survives; 0 = no known limit
 * @batch: how many operations one submit() takes profitably; at least 1
 */
struct dm_window_caps {
	uint32_t flags;
	uint64_t size;
	uint64_t granule;
	uint32_t max_mappings;
	uint32_t batch;
};

enum dm_op_kind {
	DM_OP_MAP,
	DM_OP_UNMAP,
};

/**
 * enum dm_map_flags - how to map
 * @DM_MAP_WRITE: writable
 * @DM_MAP_BLANK: fd is a file of zeros, not one of the provider's: the key says nothing
 */
enum dm_map_flags {
	DM_MAP_WRITE = 1u << 0,
	DM_MAP_BLANK = 1u << 1,
};

/**
 * struct dm_window_op - one map or unmap
 * @kind: what to do
 * @flags: enum dm_map_flags; MAP only
 * @fd: MAP only; borrowed for the call
 * @result: out: 0, or a negative errno; -ECANCELED when the operation was not sent
 * @key_hi: MAP only: the file's key, for drivers that name files themselves
 * @key_lo: as @key_hi
 * @fd_offset: byte offset in the file; MAP only
 * @offset: byte offset in the window
 * @len: bytes
 */
struct dm_window_op {
	enum dm_op_kind kind;
	uint32_t flags;
	int fd;
	int result;
	uint64_t key_hi;
	uint64_t key_lo;
	uint64_t fd_offset;
	uint64_t offset;
	uint64_t len;
};

/**
 * struct dm_window_ops - the driver's functions
 * @name: short, for logs
 * @submit: performs @n operations in the order given, pipelined as far as the driver can, and
 *          returns when each is done: a map is usable by the window's user, an unmap is gone, or
 *          the operation failed and changed nothing (@result says which). A failed operation
 *          does not stop those behind it. Blocks as long as the other side takes; never called
 *          under a lock that the vhost-user main channel could need, nor inside an RCU read
 *          section. One call at a time unless DM_WINDOW_CONCURRENT. Returns 0, or -EPIPE when
 *          the channel broke and nothing can be said of what is mapped: the table then declares
 *          the session broken.
 * @base: address of the window in this process; the function or its result may be NULL
 * @destroy: frees the driver; mappings are not undone
 */
struct dm_window_ops {
	const char *name;
	int (*submit)(struct dm_window *w, struct dm_window_op *ops, size_t n);
	void *(*base)(struct dm_window *w);
	void (*destroy)(struct dm_window *w);
};

/** struct dm_window - embedded at the start of each driver's own structure */
struct dm_window {
	const struct dm_window_ops *ops;
	struct dm_window_caps caps;
};

static inline int dm_window_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	return w->ops->submit(w, ops, n);
}

static inline void *dm_window_base(struct dm_window *w)
{
	return w->ops->base ? w->ops->base(w) : NULL;
}

static inline void dm_window_destroy(struct dm_window *w)
{
	if (w)
		w->ops->destroy(w);
}

#endif
