/* SPDX-License-Identifier: Apache-2.0 */
/* Between guest_req.c and guest_fuse.c. */
#ifndef DAXMAP_GUEST_FUSE_INTERNAL_H
#define DAXMAP_GUEST_FUSE_INTERNAL_H

#include "guest_fuse.h"
#include "util_lock.h"

struct guest_fuse {
	struct guest_frontend *fe;
	struct guest_req *reqs;
	unsigned int nreqs;
	uint8_t *block; /* guest memory of all requests */
	size_t block_size;
	uint64_t unique; /* atomic */
	uint32_t uid;	 /* atomic */
	uint32_t gid;	 /* atomic */
	uint32_t pid;
	uint64_t spin_ns;
	unsigned int turn;    /* atomic */
	unsigned int waiting; /* atomic: submitters that wait for room */
	uint64_t flags;
	uint32_t max_write;
	uint32_t map_alignment;

	struct util_mutex lock; /* all below; a leaf, but for the rings' */
	struct util_cond freed;
	struct util_cond room;
	struct guest_req *free;
	char *fault;
};

/** guest_fuse_begin() - a started request; waits until the pool has one */
struct guest_req *guest_fuse_begin(struct guest_fuse *f, uint32_t opcode, uint64_t nodeid);
/** guest_fuse_on_done() - the rings' completion function; the token is the request */
void guest_fuse_on_done(void *token, int status, uint32_t written);

#endif
