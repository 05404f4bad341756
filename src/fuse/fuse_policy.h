/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inline or offload, learned per queue. For each kind of operation (and, where one object may be
 * slow and the next not, per object) it remembers what a blocking run took lately.
 */
#ifndef DAXMAP_FUSE_POLICY_H
#define DAXMAP_FUSE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define FUSE_POLICY_KINDS 53
#define FUSE_POLICY_SLOTS 64

/* Words are read and written with relaxed atomics: a lost update costs nothing. */
struct fuse_policy_kind {
	uint32_t avg_ns;
	uint32_t pad;
	uint64_t slow_until_ns;
};

struct fuse_policy_slot {
	uint64_t key;
	uint32_t avg_ns;
	uint32_t fast_runs;
};

struct fuse_policy {
	struct fuse_policy_kind kinds[FUSE_POLICY_KINDS];
	struct fuse_policy_slot slots[FUSE_POLICY_SLOTS];
};

/** fuse_policy_is_fast() - may an operation of @kind run where waiting would hurt? */
bool fuse_policy_is_fast(const struct fuse_policy *p, unsigned int kind, uint64_t now_ns);
/** fuse_policy_note() - a run that was free to block took @ns and ended at @now_ns */
void fuse_policy_note(struct fuse_policy *p, unsigned int kind, uint64_t ns, uint64_t now_ns);

/** fuse_policy_trusts() - has @kind on @object been run often, and fast each time? */
bool fuse_policy_trusts(const struct fuse_policy *p, unsigned int kind, uint64_t object);
void fuse_policy_note_object(struct fuse_policy *p, unsigned int kind, uint64_t object,
			     uint64_t ns);

#endif
