/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inline or offload, learned per queue. For each kind of operation (and, where one object may be
 * slow and the next not, per object) it remembers whether runs that were free to block did, lately.
 */
#ifndef DAXMAP_FUSE_POLICY_H
#define DAXMAP_FUSE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
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
	uint64_t allowed_ns; /* for copying */
	uint64_t quick_ns;   /* what takes less has not blocked */
	long switches;
	unsigned int kind;
	bool watched;
};

/** enum fuse_policy_where - where a run takes place */
enum fuse_policy_where {
	FUSE_POLICY_POOLED,   /* waiting hurts nobody, so it may be watched at any price */
	FUSE_POLICY_IN_QUEUE, /* the queue waits */
	FUSE_POLICY_RELIEVED, /* the queue waits a little (fuse_request.may_block) */
};

/** enum fuse_policy_how - what is known of a run that took long */
enum fuse_policy_how {
	FUSE_POLICY_UNSEEN,  /* it was not watched */
	FUSE_POLICY_RAN,     /* it did not sleep: it, or who took its CPU from it, computed */
	FUSE_POLICY_BLOCKED, /* it slept */
};

/**
 * fuse_policy_is_fast() - may an operation of @kind run where waiting would hurt?
 * @patient: waiting hurts less: somebody else goes on (fuse_request.may_block)
 */
bool fuse_policy_is_fast(const struct fuse_policy *p, unsigned int kind, bool patient,
			 uint64_t now_ns);

/** enum fuse_policy_trust - what it takes */
enum fuse_policy_trust {
	FUSE_POLICY_PROVEN,  /* many runs, none blocked */
	FUSE_POLICY_UNKNOWN, /* the same, or nothing is known */
	FUSE_POLICY_PATIENT, /* as for a patient fuse_policy_is_fast() */
};

/** fuse_policy_trusts() - the same for @kind on @object. */
bool fuse_policy_trusts(const struct fuse_policy *p, unsigned int kind, uint64_t object,
			enum fuse_policy_trust how);

/**
 * fuse_policy_begin() - this thread is about to run something that is free to block
 * @object: 0: the kind is scored, else only the kind on this object
 * @bytes: so much is to be copied, which is not counted as slowness
 * @where: what waiting there does
 */
void fuse_policy_begin(const struct fuse_policy *p, struct fuse_policy_run *run, unsigned int kind,
		       uint64_t object, size_t bytes, enum fuse_policy_where where);
void fuse_policy_end(struct fuse_policy *p, const struct fuse_policy_run *run);

/** fuse_policy_note() - the second half of fuse_policy_end(): it took @ns and ended at @now_ns */
void fuse_policy_note(struct fuse_policy *p, unsigned int kind, uint64_t object, uint64_t ns,
		      enum fuse_policy_how how, uint64_t now_ns);

#endif
