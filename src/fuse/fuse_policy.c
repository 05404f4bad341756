// SPDX-License-Identifier: Apache-2.0
/*
 * Handing a request to another thread costs 5 to 10 us (a futex wake, a cold cache) and a second
 * CPU; an open, create or rename on a local file system takes 2 to 30 us. So those run in the
 * queue's thread as long as their kind is fast, and move to the pool when it is not: above
 * SLOW_NS on average the handoff is the smaller part, and a single run above STALL_NS (a disk, a
 * network, a lock) sends the kind to the pool at once and for PENALTY_NS. The pool's runs are
 * timed too, so that a kind comes back when its cause has gone.
 *
 * A kind that has one object stuck may have others that are fine, so operations that were tried
 * without waiting and refused (a write where the file system does not know RWF_NOWAIT, a lookup
 * that is not in the dentry cache) are trusted per object: only after TRUST_RUNS blocking runs of
 * it, each below TRUST_NS. One slow run and the trust is gone.
 *
 * What this cannot do: the first slow run of a kind that was fast holds its queue once, for as long
 * as a local disk takes. Reads never take that risk, and what others than the local kernel have to
 * answer does not get here (fuse_session.c).
 */
#include "fuse_policy.h"

#include "util_rcu.h"

#define SLOW_NS 50000u
#define STALL_NS 1000000u
#define PENALTY_NS 1000000000ull
#define TRUST_NS 20000u
#define TRUST_RUNS 16u
#define WEIGHT 8

#define get(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define set(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)

static uint32_t average(uint32_t avg, uint64_t ns)
{
	int64_t step = (int64_t)(ns < STALL_NS ? ns : STALL_NS) - (int64_t)avg;

	return (uint32_t)((int64_t)avg + step / WEIGHT);
}

bool fuse_policy_is_fast(const struct fuse_policy *p, unsigned int kind, uint64_t now_ns)
{
	const struct fuse_policy_kind *k = &p->kinds[kind];

	return get(k->avg_ns) < SLOW_NS && get(k->slow_until_ns) <= now_ns;
}

void fuse_policy_note(struct fuse_policy *p, unsigned int kind, uint64_t ns, uint64_t now_ns)
{
	struct fuse_policy_kind *k = &p->kinds[kind];

	set(k->avg_ns, average(get(k->avg_ns), ns));
	if (ns >= STALL_NS)
		set(k->slow_until_ns, now_ns + PENALTY_NS);
}

static uint64_t slot_key(unsigned int kind, uint64_t object)
{
	return (object << 6 | kind) + 1;
}

bool fuse_policy_trusts(const struct fuse_policy *p, unsigned int kind, uint64_t object)
{
	uint64_t key = slot_key(kind, object);
	const struct fuse_policy_slot *s = &p->slots[util_hash_u64(key) % FUSE_POLICY_SLOTS];

	return get(s->key) == key && get(s->fast_runs) >= TRUST_RUNS;
}

void fuse_policy_note_object(struct fuse_policy *p, unsigned int kind, uint64_t object, uint64_t ns)
{
	uint64_t key = slot_key(kind, object);
	struct fuse_policy_slot *s = &p->slots[util_hash_u64(key) % FUSE_POLICY_SLOTS];

	if (get(s->key) != key) {
		set(s->fast_runs, 0);
		set(s->key, key);
		set(s->avg_ns, ns < STALL_NS ? (uint32_t)ns : STALL_NS);
		return;
	}
	/* A preempted run (the average stays low) only halves the trust. */
	set(s->avg_ns, average(get(s->avg_ns), ns));
	if (ns >= STALL_NS || get(s->avg_ns) >= TRUST_NS)
		set(s->fast_runs, 0);
	else if (ns >= TRUST_NS)
		set(s->fast_runs, get(s->fast_runs) / 2);
	else if (get(s->fast_runs) < 4 * TRUST_RUNS)
		set(s->fast_runs, get(s->fast_runs) + 1);
}
