// SPDX-License-Identifier: Apache-2.0
/*
 * Handing a request to another thread costs 5 to 20 us (a futex wake, a cold cache) and a second
 * CPU; an open, create, rename or cached write on a local file system takes 2 to 50 us. So those
 * run in the queue's thread as long as their kind does not block, and move to the pool when it
 * does.
 *
 * What is blocking? Not what takes long by the clock: on a busy machine any run may be preempted
 * for milliseconds, and handing it to one more thread makes that worse. A run has blocked when it
 * took longer than SLOW_NS and its thread has given up the CPU by itself meanwhile (ru_nvcsw).
 * Asking costs two system calls, so runs are watched in that way only in the pool, and in the
 * queue's thread for WATCH_RUNS runs after one that took long. That one gets the benefit of the
 * doubt; so the first two slow runs of a kind hold its queue, each for as long as a local disk
 * takes.
 *
 * A long run that did not block counts for an eighth, CPU_MAX_NS at most: what computes for half a
 * millisecond on average (a listing of hundreds of names) is worth a second CPU. A single
 * blocked run above STALL_NS (a disk, a lock) sends the kind to the pool at once and for
 * PENALTY_NS. The pool's runs count too, so that a kind comes back when its cause has gone.
 *
 * A kind that has one object stuck may have others that are fine, so operations that were tried
 * without waiting and refused (a write where the file system does not know RWF_NOWAIT, a lookup
 * that is not in the dentry cache) are trusted per object: only after TRUST_RUNS runs of it, none
 * blocked. One that blocks and the trust is gone.
 *
 * Patience. Where another thread takes the queue over from one that blocks (fuse_request.may_block)
 * a blocked run costs the others four milliseconds at most, and much less as a rule, while each
 * handoff costs as much as several runs. So then only the average counts, up to PATIENT_NS: a
 * write that met the journal's commit, a create that slept for a lock, is no reason to hand on the
 * next thousand. That is for operations of which only few block; a lookup that is not
 * in the dentry cache may have to read a disk, and then many wait better in the pool, so of
 * these only what is unknown gets the benefit of the doubt.
 *
 * Copying takes its time, which is not slowness: COPY_BYTES_NS.
 *
 * Reads never take that risk, and what others than the local kernel have to answer does not get
 * here (fuse_session.c).
 */
#include "fuse_policy.h"

#include <sys/resource.h>

#include "util_lock.h"
#include "util_rcu.h"

/* syscalls: getrusage */

#define SLOW_NS 50000u
#define COPY_BYTES_NS 4u /* a slow machine's */
#define PATIENT_NS 250000u
#define STALL_NS 1000000u
#define CPU_MAX_NS 100000u
#define PENALTY_NS 1000000000ull
#define TRUST_RUNS 16u
#define WATCH_RUNS 64u
#define WEIGHT 8

#define get(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define set(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)

static uint64_t slot_key(unsigned int kind, uint64_t object)
{
	return (object << 6 | kind) + 1;
}

/* NULL: nothing is known of it. */
static const struct fuse_policy_score *find(const struct fuse_policy *p, unsigned int kind,
					    uint64_t object)
{
	uint64_t key = slot_key(kind, object);
	const struct fuse_policy_slot *s = &p->slots[util_hash_u64(key) % FUSE_POLICY_SLOTS];

	if (!object)
		return &p->kinds[kind];
	return get(s->key) == key ? &s->score : NULL;
}

/* An object that is new takes the place of whatever was there. */
static struct fuse_policy_score *claim(struct fuse_policy *p, unsigned int kind, uint64_t object)
{
	uint64_t key = slot_key(kind, object);
	struct fuse_policy_slot *s = &p->slots[util_hash_u64(key) % FUSE_POLICY_SLOTS];

	if (!object)
		return &p->kinds[kind];
	if (get(s->key) != key) {
		set(s->score.fast_runs, 0);
		set(s->score.avg_ns, 0);
		set(s->score.watch, 0);
		set(s->key, key);
	}
	return &s->score;
}

bool fuse_policy_is_fast(const struct fuse_policy *p, unsigned int kind, bool patient,
			 uint64_t now_ns)
{
	const struct fuse_policy_score *s = &p->kinds[kind];

	if (patient)
		return get(s->avg_ns) < PATIENT_NS;
	return get(s->avg_ns) < SLOW_NS && get(s->slow_until_ns) <= now_ns;
}

bool fuse_policy_trusts(const struct fuse_policy *p, unsigned int kind, uint64_t object,
			enum fuse_policy_trust how)
{
	const struct fuse_policy_score *s = find(p, kind, object);

	if (!s)
		return how != FUSE_POLICY_PROVEN;
	if (how == FUSE_POLICY_PATIENT)
		return get(s->avg_ns) < PATIENT_NS;
	return get(s->fast_runs) >= TRUST_RUNS && get(s->avg_ns) < SLOW_NS;
}

static long switches(void)
{
	struct rusage r;

	return getrusage(RUSAGE_THREAD, &r) == 0 ? r.ru_nvcsw : 0;
}

void fuse_policy_begin(const struct fuse_policy *p, struct fuse_policy_run *run, unsigned int kind,
		       uint64_t object, size_t bytes, enum fuse_policy_where where)
{
	const struct fuse_policy_score *s = find(p, kind, object);

	run->kind = kind;
	run->object = object;
	run->allowed_ns = bytes / COPY_BYTES_NS;
	run->quick_ns = where == FUSE_POLICY_RELIEVED ? PATIENT_NS : SLOW_NS;
	run->watched = where == FUSE_POLICY_POOLED || (s && get(s->watch));
	run->switches = run->watched ? switches() : 0;
	run->begun_ns = util_now_ns();
}

void fuse_policy_end(struct fuse_policy *p, const struct fuse_policy_run *run)
{
	uint64_t now = util_now_ns();
	uint64_t took = now - run->begun_ns;
	uint64_t ns = took > run->allowed_ns ? took - run->allowed_ns : 0;
	enum fuse_policy_how how = FUSE_POLICY_UNSEEN;

	if (ns < run->quick_ns)
		ns = ns < SLOW_NS ? ns : SLOW_NS - 1;
	else if (run->watched)
		how = switches() == run->switches ? FUSE_POLICY_RAN : FUSE_POLICY_BLOCKED;
	fuse_policy_note(p, run->kind, run->object, ns, how, now);
}

static void average(struct fuse_policy_score *s, uint64_t ns)
{
	int64_t avg = get(s->avg_ns);
	int64_t step = (int64_t)(ns < STALL_NS ? ns : STALL_NS) - avg;

	set(s->avg_ns, (uint32_t)(avg + step / WEIGHT));
}

static void good(struct fuse_policy_score *s, uint64_t ns)
{
	uint16_t runs = get(s->fast_runs), watch = get(s->watch);

	average(s, ns);
	if (runs < TRUST_RUNS)
		set(s->fast_runs, (uint16_t)(runs + 1));
	if (watch)
		set(s->watch, (uint16_t)(watch - 1));
}

void fuse_policy_note(struct fuse_policy *p, unsigned int kind, uint64_t object, uint64_t ns,
		      enum fuse_policy_how how, uint64_t now_ns)
{
	struct fuse_policy_score *s = claim(p, kind, object);

	if (ns < SLOW_NS) {
		good(s, ns);
		return;
	}
	if (how == FUSE_POLICY_RAN) {
		good(s, ns / 8 < CPU_MAX_NS ? ns / 8 : CPU_MAX_NS);
		return;
	}
	set(s->watch, WATCH_RUNS);
	if (how == FUSE_POLICY_UNSEEN)
		return;
	average(s, ns);
	set(s->fast_runs, 0);
	if (ns >= STALL_NS)
		set(s->slow_until_ns, now_ns + PENALTY_NS);
}
