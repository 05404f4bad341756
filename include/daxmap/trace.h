/* SPDX-License-Identifier: Apache-2.0 */
/* A tap on what a table does: one function, called on the spot. */
#ifndef DAXMAP_TRACE_H
#define DAXMAP_TRACE_H

#include <stdint.h>

#include <daxmap/file.h>

struct dm_table;

enum dm_trace_kind {
	DM_TRACE_SETUP,	  /* answered 0; ns = time until the answer */
	DM_TRACE_REMOVE,  /* one range given back */
	DM_TRACE_REVIVE,  /* a given-back range taken again without a driver call */
	DM_TRACE_OVERLAY, /* a given-back range replaced by a map over it */
	DM_TRACE_CANCEL,  /* its unmap withdrawn before it was sent */
	DM_TRACE_MAP,	  /* mapped by the driver; ns = time until usable */
	DM_TRACE_UNMAP,	  /* unmapped by the driver; ns = time until done */
	DM_TRACE_PIN,	  /* an I/O into the range begins */
};

/**
 * struct dm_trace_event - one event
 * @kind: what happened
 * @mapped: ranges that the driver has now
 * @offset: window, bytes
 * @len: bytes
 * @file: key
 * @file_offset: bytes
 * @ns: cost, see the kinds; else 0
 */
struct dm_trace_event {
	enum dm_trace_kind kind;
	uint32_t mapped;
	uint64_t offset;
	uint64_t len;
	struct dm_file_key file;
	uint64_t file_offset;
	uint64_t ns;
};

/**
 * struct dm_trace - the tap
 * @fn: called from any thread, perhaps under locks of the table and inside an RCU read section:
 *      it must not block, nor call the table
 * @ctx: passed to @fn
 */
struct dm_trace {
	void (*fn)(void *ctx, const struct dm_trace_event *e);
	void *ctx;
};

/**
 * dm_table_set_trace() - installs a tap, or takes it away
 * @t: the table
 * @trace: borrowed until another one or NULL has been set; NULL = none (the default: then a
 *         traced point costs one load)
 *
 * On return the previous tap is not called any more. Any thread, not inside an RCU read section.
 */
void dm_table_set_trace(struct dm_table *t, const struct dm_trace *trace);

#endif
