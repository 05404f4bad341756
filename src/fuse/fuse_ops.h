/* SPDX-License-Identifier: Apache-2.0 */
/* The opcode table: the one source of handlers, names, lengths, and of who runs where. */
#ifndef DAXMAP_FUSE_OPS_H
#define DAXMAP_FUSE_OPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fuse_ctx;

/** enum fuse_op_class - in which thread an operation runs (see fuse_session.c for the reasons) */
enum fuse_op_class {
	FUSE_RUN_INLINE, /* never blocks: in the queue's thread */
	FUSE_RUN_TRY,	 /* first without waiting (ctx.nowait); what would wait goes to the pool */
	FUSE_RUN_ADAPT,	 /* inline while its kind has been fast, else in the pool */
	FUSE_RUN_POOL,	 /* always in the pool */
	FUSE_RUN_VMM,	 /* waits for the VMM: in the session's map pool, parked */
	FUSE_RUN_ALONE,	 /* alone in the session, in its control thread */
};

enum fuse_op_flags {
	FUSE_OP_NO_REPLY = 1u << 0,
	FUSE_OP_ARGS_MAY_END_EARLY = 1u << 1, /* what did not arrive of the arguments is zero */
	FUSE_OP_TRUST = 1u << 2,	      /* RUN_TRY: -EAGAIN may mean 'unsupported', so block
					       * inline where that has been fast */
	FUSE_OP_IN_DIR = 1u << 3, /* all it may wait for is the lock of the directory that
				   * the header names (so not CREATE: leases) */
};

/**
 * struct fuse_op - one opcode
 * @name: as in counters and traces
 * @run: the handler: bytes of payload it wrote behind the out header, a negative errno, or
 *       FUSE_AGAIN where ctx.nowait; NULL: ENOSYS
 * @args: size of its argument structure, copied before @run; names and data follow
 * @args_old: its size before protocol minor @old_minor (0: never changed)
 * @reply: payload that the reply needs room for; what the guest gave less for is not begun
 */
struct fuse_op {
	const char *name;
	ssize_t (*run)(struct fuse_ctx *c);
	uint16_t args;
	uint16_t args_old;
	uint16_t old_minor;
	uint16_t reply;
	uint8_t class;
	uint8_t flags;
};

#define FUSE_NUM_OPS 53 /* one beyond the highest opcode; row 0 counts the unknown */

extern const struct fuse_op fuse_ops[FUSE_NUM_OPS];

/** fuse_op_find() - the row of @opcode; row 0 when there is none */
static inline const struct fuse_op *fuse_op_find(uint32_t opcode)
{
	return opcode < FUSE_NUM_OPS && fuse_ops[opcode].name ? &fuse_ops[opcode] : &fuse_ops[0];
}

#endif
