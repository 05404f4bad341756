/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the policy library.
 *
 * Locks: policy_guard.stripes, one for each of GUARD_STRIPES parts of the file table. A leaf: no
 * other lock is taken and nothing is called under it.
 */
#ifndef DAXMAP_POLICY_INT_H
#define DAXMAP_POLICY_INT_H

#include "policy.h"
#include "util_lock.h"

#define load(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define store(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)

#define SECOND 1000000000ull

/* --- policy_ghost.c: ranges lately given back --- */

#define GHOST_WAYS 4u
#define GHOST_SETS 4096u /* with the ways 16384 ranges: 32 GiB of them in 128 KiB */

/**
 * struct ghost - a set-associative table of tags with the time they came
 * @words: upper 40 bits of the tag, then 24 bits of time in ticks of 2^26 ns; 0: free. Atomic.
 */
struct ghost {
	uint64_t words[GHOST_SETS][GHOST_WAYS];
};

/** ghost_add() - remembers @tag; displaces the oldest of its set */
void ghost_add(struct ghost *g, uint64_t tag, uint64_t now_ns);
/** ghost_take() - true if @tag is there; it is not any more, and *@age_ns says for how long it was
 */
bool ghost_take(struct ghost *g, uint64_t tag, uint64_t now_ns, uint64_t *age_ns);

/* --- policy_guard.c --- */

#define GUARD_WAYS 8u
#define GUARD_SETS 256u
#define GUARD_STRIPES 16u

/* A range counts as refaulted when it comes back so soon. */
#define GUARD_SOON_NS (60 * SECOND)
/* A file's score halves in this time; so a steady r refaults a second make a score near 8 r. */
#define GUARD_HALF_NS (4 * SECOND)
#define GUARD_ON 64u  /* 8 a second, or 64 at once */
#define GUARD_OFF 16u /* below it a file without its mark counts as having calmed down */
/* A file whose last setup is older does not press on the window any more. */
#define GUARD_ACTIVE_NS (2 * GUARD_HALF_NS)
#define GUARD_COOL_NS (30 * SECOND)
#define GUARD_STRIKES_MAX 6u /* the longest cool-down: 16 min */
#define GUARD_PROBATION 4u   /* cool-downs that a file must behave for to be trusted anew */
#define GUARD_FAILED_NS (60 * SECOND)

enum file_flags {
	FILE_THRASH = 1u << 0, /* no mark until @until_ns */
	FILE_FAILED = 1u << 1, /* no mark until @until_ns */
	FILE_DIRECT = 1u << 2,
};

/**
 * struct file_entry - what is remembered of one file. Written under the stripe's lock with atomic
 * stores; @key, @flags, @until_ns, @last_ns, @fresh are read without it.
 * @key: of the file; 0: free
 * @last_ns: when it was last touched
 * @score_ns: up to when @score has decayed
 * @next: file offset where its last setup ended
 * @ahead: up to where prefetch was asked for
 * @fresh: ranges that were mapped and are no refaults: how much of the file is in use
 * @run: setups in a row that went on where the last one ended
 * @strikes: how often the guard has acted
 */
struct file_entry {
	uint64_t key;
	uint64_t until_ns;
	uint64_t last_ns;
	uint64_t score_ns;
	uint64_t next;
	uint64_t ahead;
	uint32_t fresh;
	uint32_t score;
	uint32_t run;
	uint16_t flags;
	uint16_t strikes;
};

/**
 * struct guard - all files, all slots of the window
 * @file_refaults: of each entry, never halved; written as the entries are
 * @slots: what each granule of the window holds: a tag, 0: nothing. Atomic.
 * @special: entries with flags; atomic
 */
struct guard {
	struct file_entry files[GUARD_SETS][GUARD_WAYS];
	uint32_t file_refaults[GUARD_SETS][GUARD_WAYS];
	struct util_mutex stripes[GUARD_STRIPES];
	struct ghost ghost;
	uint64_t *slots;
	uint64_t num_slots;
	uint64_t granule;
	uint32_t special;
	uint32_t direct;
	bool acts;
	uint64_t refaults;
	uint64_t events;
	uint64_t sequential;
};

/** guard_init() - one that does not act; .acts may be stored at any time */
void guard_init(struct guard *g, uint64_t window_size, uint64_t granule);
void guard_clear(struct guard *g);

/**
 * struct guard_seen - what one setup showed
 * @new_slots: how many granules of it were not mapped so already
 * @run: setups in a row, this one included, that went on where the one before ended; 0: it did not
 * @ahead: up to where prefetch was asked for in this run; 0: not yet
 */
struct guard_seen {
	uint32_t new_slots;
	uint32_t run;
	uint64_t ahead;
};
void guard_setup(struct guard *g, uint64_t key, uint64_t offset, uint64_t len, uint64_t file_offset,
		 uint64_t now, struct guard_seen *seen);
/** guard_ahead() - prefetch has been asked for up to @end */
void guard_ahead(struct guard *g, uint64_t key, uint64_t end);
void guard_refused(struct guard *g, uint64_t key, uint64_t offset, uint64_t len, bool fault,
		   uint64_t now);
void guard_remove(struct guard *g, uint64_t offset, uint64_t len, uint64_t now);
void guard_reset(struct guard *g);
void guard_direct(struct guard *g, uint64_t key, bool direct, uint64_t now);
/** guard_verdict() - POLICY_MARKED where it has nothing against the file */
enum policy_verdict guard_verdict(const struct guard *g, uint64_t key, uint64_t now);
/** guard_refaults() - of a file, since it is remembered */
uint64_t guard_refaults(const struct guard *g, uint64_t key);
/** guard_thrashing() - files under a cool-down now */
uint64_t guard_thrashing(const struct guard *g, uint64_t now);

/** guard_key() - never 0 */
uint64_t guard_key(struct policy_file f);

#endif
