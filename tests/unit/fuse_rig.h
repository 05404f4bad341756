/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest for the FUSE session's tests: builds requests by hand, splits them over segments, and
 * waits for their end. The share is a fresh directory; the DAX window is a driver that keeps a
 * list of what is mapped and can be told to hold or fail.
 */
#ifndef DAXMAP_FUSE_RIG_H
#define DAXMAP_FUSE_RIG_H

#include <glib.h>

#include "daxmap/table.h"
#include "fuse_internal.h"

#define RIG_WINDOW (64ull << 20)
#define RIG_SLOT (2ull << 20)

struct rig_window {
	struct dm_window w;
	struct util_mutex m;
	struct util_cond c;
	bool hold;	      /* maps wait */
	int fail;	      /* what maps answer */
	unsigned int waiting; /* maps that wait */
	unsigned int maps;
	unsigned int unmaps;
};

struct rig {
	char *dir;
	struct fs *fs;
	struct rig_window window;
	struct dm_table *table;
	struct fuse_config cfg;
	struct fuse_session *s;
	size_t piece; /* bytes a segment; 0: one segment */
	uint64_t unique;
};

/* A request. What it points to is malloc'ed to size, so that a sanitizer sees every byte. */
struct rig_req {
	struct fuse_request r; /* first */
	struct rig *rig;
	unsigned char *out;
	unsigned char *in;
	size_t in_size;
	struct util_mutex m;
	struct util_cond c;
	unsigned int done;
	unsigned int parks;
	bool parked;
	size_t len; /* as done() said */
	/* decoded by rig_wait(): */
	int error;
	size_t payload_len;
	unsigned char *payload;
};

/* Warnings of the session do not end the test: rig_saw_warning() says whether one that matches came
 * since the last call. */
bool rig_saw_warning(const char *pattern);

struct rig *rig_new(void (*adjust)(struct fuse_config *cfg));
void rig_free(struct rig *g);

struct rig_req *rig_prepare(struct rig *g, uint32_t opcode, uint64_t node, const void *args,
			    size_t args_len, const void *data, size_t data_len, size_t in_size);
void rig_send(struct rig_req *q, unsigned int queue);
bool rig_is_done(struct rig_req *q);
/* Waits, checks the out header, returns the errno (0 or negative). */
int rig_wait(struct rig_req *q);
void rig_req_free(struct rig_req *q);

/* One request on queue 1; its answer's first @out_len bytes go to @out. */
int rig_call(struct rig *g, uint32_t opcode, uint64_t node, const void *args, size_t args_len,
	     const void *data, size_t data_len, void *out, size_t out_len);
int rig_init(struct rig *g);
int rig_init_flags(struct rig *g, uint64_t flags, struct fuse_init_out *out);
int rig_destroy(struct rig *g);
int rig_lookup(struct rig *g, uint64_t parent, const char *name, struct fuse_entry_out *e);
int rig_create(struct rig *g, uint64_t parent, const char *name, uint64_t *node, uint64_t *fh);
ssize_t rig_write(struct rig *g, uint64_t node, uint64_t fh, uint64_t off, const void *data,
		  size_t n);
ssize_t rig_read(struct rig *g, uint64_t node, uint64_t fh, uint64_t off, void *data, size_t n);
int rig_setup(struct rig *g, uint64_t node, uint64_t foffset, uint64_t moffset, uint64_t flags);
int rig_remove(struct rig *g, uint64_t moffset, uint64_t len);
uint64_t rig_count(struct rig *g, const char *op);

#endif
