/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inline or offload, learned per queue. For each kind of operation (and, where one object may be
 * slow and the next not, per object) it remembers whether runs that were free to block did, lately.
 */
#ifndef DAXMAP_FUSE_POLICY_H
#define DAXMAP_FUSE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#define FUSE_POLICY_KINDS 53
#define FUSE_POLICY_SLOTS 64

/* Words are read and written with relaxed atomics: a lost update costs nothing. */
struct fuse_policy_score {
	uint64_t slow_until_ns;
	uint32_t avg_ns;
	uint16_t fast_runs;
	uint16_t watch; /* so many runs to come are watched */
};

struct fuse_policy_slot {
	uint64_t key;
	struct fuse_policy_score score;
};

struct fuse_policy {
	struct fuse_policy_score kinds[FUSE_POLICY_KINDS];
	struct fuse_policy_slot slots[FUSE_POLICY_SLOTS];
};

/** struct fuse_policy_run - a run under way, on its thread's stack */
struct fuse_policy_run {
	uint64_t object;
	uint64_t begun_ns;
	long switches;
	unsigned int kind;
	bool watched;
};

/** enum fuse_policy_how - what is known of a run that took long */
enum fuse_policy_how {
	FUSE_POLICY_UNSEEN,  /* it was not watched */
	FUSE_POLICY_RAN,     /* it did not sleep: it, or who took its CPU from it, computed */
	FUSE_POLICY_BLOCKED, /* it slept */
};

/** fuse_policy_is_fast() - may an operation of @kind run where waiting would hurt? */
bool fuse_policy_is_fast(const struct fuse_policy *p, unsigned int kind, uint64_t now_ns);
/** fuse_policy_trusts() - has @kind on @object been run often, without blocking? */
bool fuse_policy_trusts(const struct fuse_policy *p, unsigned int kind, uint64_t object);

/**
 * fuse_policy_begin() - this thread is about to run something that is free to block
 * @object: 0: the kind is scored, else only the kind on this object
 * @pooled: it runs where waiting does not hurt, so may be watched at any price
 */
void fuse_policy_begin(const struct fuse_policy *p, struct fuse_policy_run *run, unsigned int kind,
		       uint64_t object, bool pooled);
void fuse_policy_end(struct fuse_policy *p, const struct fuse_policy_run *run);

/** fuse_policy_note() - the second half of fuse_policy_end(): it took @ns and ended at @now_ns */
void fuse_policy_note(struct fuse_policy *p, unsigned int kind, uint64_t object, uint64_t ns,
		      enum fuse_policy_how how, uint64_t now_ns);

#endif
