// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation: the thrash guard
 *
 * A guest whose working set outgrows its window maps the same ranges again and again; each time
 * costs a round trip to the VMM, where a FUSE read would have cost less. Such a file had better not
 * be mapped. The daemon cannot take a range away, nor refuse one (the guest has no way back from an
 * error), but it can stop marking the file: a dax=inode guest then reads it by FUSE from the next
 * time that it instantiates the inode.
 *
 * What is seen. Each slot of the window has a word that says what it holds (a tag: a hash of file
 * and offset). When it is given back, or another range is put there, the tag goes to the ghost
 * table. A setup that finds its tag among the ghosts, not older than GUARD_SOON_NS, is a refault;
 * any other is fresh. A guest's upgrade or repeat of what its slot holds is neither.
 *
 * When it acts. A file has a score: refaults, halved every GUARD_HALF_NS. At GUARD_ON the file is
 * suspected. It is guilty only if
 *   - the files that are active need more than the window can hold (their fresh ranges together).
 *     Else the guest has given ranges back of its own will: inodes evicted, files truncated; and
 *   - it is itself too large for the window, or no other active file has more fresh ranges. A small
 *     hot file beside a large cold one refaults as fast as that one does, for the guest reclaims
 *     from both alike; it is the large one that has to go, and then the small one fits.
 * A file that is read once never refaults, whatever its size.
 *
 * Hysteresis. The mark stays away for a cool-down, which starts anew while the guest, which may
 * hold the file open, goes on refaulting above GUARD_OFF. When it comes back the file is on
 * probation for some cool-downs: half the score is enough then, and each strike doubles the
 * cool-down.
 *
 * Memory is fixed: 2048 files, 16384 ghosts. What is displaced is forgotten, which at worst gives a
 * mark back early.
 *
 * Not seen: many small files that together thrash, each below GUARD_ON.
 */
#include "policy_int.h"

#include <glib.h>

#include "util_rcu.h"

G_STATIC_ASSERT(sizeof(struct file_entry) == 64);

uint64_t guard_key(struct policy_file f)
{
	uint64_t key = util_hash_u64(f.ino ^ util_hash_u64(f.dev));

	return key ? key : 1;
}

static uint64_t tag_of(uint64_t key, uint64_t file_slot)
{
	uint64_t tag = util_hash_u64(key + file_slot * 0x9e3779b97f4a7c15ull);

	return tag ? tag : 1;
}

void guard_init(struct guard *g, uint64_t window_size, uint64_t granule)
{
	for (unsigned int i = 0; i < GUARD_STRIPES; i++)
		util_mutex_init(&g->stripes[i]);
	g->num_slots = window_size / granule;
	g->slots = g_new0(uint64_t, g->num_slots);
	g->granule = granule;
}

void guard_clear(struct guard *g)
{
	for (unsigned int i = 0; i < GUARD_STRIPES; i++)
		util_mutex_destroy(&g->stripes[i]);
	g_free(g->slots);
}

/* --- the file table --- */

static struct util_mutex *stripe(struct guard *g, uint64_t key)
{
	return &g->stripes[key % GUARD_SETS % GUARD_STRIPES];
}

static const struct file_entry *find(const struct guard *g, uint64_t key)
{
	const struct file_entry *set = g->files[key % GUARD_SETS];

	for (unsigned int i = 0; i < GUARD_WAYS; i++)
		if (load(set[i].key) == key)
			return &set[i];
	return NULL;
}

static uint32_t *refaults_of(struct guard *g, const struct file_entry *e)
{
	size_t n = (size_t)(e - g->files[0]);

	return &g->file_refaults[n / GUARD_WAYS][n % GUARD_WAYS];
}

static void set_flags(struct guard *g, struct file_entry *e, uint16_t flags)
{
	uint16_t old = e->flags;

	if (!old != !flags)
		__atomic_fetch_add(&g->special, flags ? 1 : -1u, __ATOMIC_RELAXED);
	if ((old ^ flags) & FILE_DIRECT)
		__atomic_fetch_add(&g->direct, flags & FILE_DIRECT ? 1 : -1u, __ATOMIC_RELAXED);
	store(e->flags, flags);
}

/* How willingly an entry is given up: the flagged ones last, then by age. */
static uint64_t worth(const struct file_entry *e, uint64_t now)
{
	uint64_t age = now - MIN(e->last_ns, now);

	return (e->flags && e->until_ns > now ? UINT64_MAX / 2 : 0) + (UINT64_MAX / 2 - age);
}

/* The entry of a file, made if need be. The stripe is locked. */
static struct file_entry *get_locked(struct guard *g, uint64_t key, uint64_t now)
{
	struct file_entry *set = g->files[key % GUARD_SETS];
	struct file_entry *victim = &set[0];

	for (unsigned int i = 0; i < GUARD_WAYS; i++) {
		if (set[i].key == key)
			return &set[i];
		if (victim->key && (!set[i].key || worth(&set[i], now) < worth(victim, now)))
			victim = &set[i];
	}
	store(victim->key, 0);
	set_flags(g, victim, 0);
	store(victim->until_ns, 0);
	store(victim->fresh, 0);
	store(victim->last_ns, now);
	store(*refaults_of(g, victim), 0);
	victim->score = victim->run = 0;
	victim->strikes = 0;
	victim->next = victim->ahead = 0;
	victim->score_ns = now;
	store(victim->key, key);
	return victim;
}

static void age_locked(struct file_entry *e, uint64_t now)
{
	uint64_t halves = now > e->score_ns ? (now - e->score_ns) / GUARD_HALF_NS : 0;

	e->score = halves < 32 ? e->score >> halves : 0;
	e->score_ns += halves * GUARD_HALF_NS;
	if (now > e->last_ns + GUARD_SOON_NS) {
		store(e->fresh, 0);
		e->run = 0;
		e->ahead = 0;
	}
}

/* --- the verdict --- */

/* What a guest can really use: Linux reclaims below 20 % free. */
static uint64_t usable_slots(const struct guard *g)
{
	return g->num_slots - g->num_slots / 5;
}

static bool is_guilty(const struct guard *g, const struct file_entry *e, uint64_t now)
{
	uint64_t total = 0, largest = 0;

	for (unsigned int s = 0; s < GUARD_SETS; s++) {
		for (unsigned int i = 0; i < GUARD_WAYS; i++) {
			const struct file_entry *f = &g->files[s][i];
			uint64_t fresh = load(f->fresh);

			if (!load(f->key) || load(f->last_ns) + GUARD_ACTIVE_NS < now)
				continue;
			total += fresh;
			largest = MAX(largest, fresh);
		}
	}
	return total > usable_slots(g) && (e->fresh > usable_slots(g) || e->fresh >= largest);
}

static uint64_t cool_down(const struct file_entry *e)
{
	return GUARD_COOL_NS << (MAX(e->strikes, 1) - 1);
}

static void convict_locked(struct guard *g, struct file_entry *e, uint64_t now)
{
	e->strikes = (uint16_t)MIN(e->strikes + 1u, GUARD_STRIKES_MAX);
	store(e->until_ns, now + cool_down(e));
	set_flags(g, e, e->flags | FILE_THRASH);
	__atomic_fetch_add(&g->events, 1, __ATOMIC_RELAXED);
}

static void judge_locked(struct guard *g, struct file_entry *e, uint64_t now)
{
	bool probation = e->strikes && now < e->until_ns + GUARD_PROBATION * cool_down(e);

	if (e->flags & FILE_THRASH && now < e->until_ns) {
		/* The guest has not noticed yet. */
		if (e->score >= GUARD_OFF)
			store(e->until_ns, MAX(e->until_ns, now + cool_down(e)));
		return;
	}
	if (e->flags & (FILE_THRASH | FILE_FAILED) && now >= e->until_ns)
		set_flags(g, e, e->flags & ~(FILE_THRASH | FILE_FAILED));
	if (e->strikes && !probation)
		e->strikes = 0;
	if (e->score >= (probation ? GUARD_ON / 2 : GUARD_ON) && is_guilty(g, e, now))
		convict_locked(g, e, now);
}

/* --- what happens --- */

/* The slots of the window that [offset, offset + len) touches: from *first, as many as returned. */
static uint64_t touched(const struct guard *g, uint64_t offset, uint64_t len, uint64_t *first)
{
	uint64_t size = g->num_slots * g->granule;

	*first = offset / g->granule;
	if (!len || offset >= size)
		return 0;
	len = MIN(len, size - offset);
	return (offset + len - 1) / g->granule - *first + 1;
}

struct count {
	uint32_t fresh;
	uint32_t refaults;
};

static struct count put_tags(struct guard *g, uint64_t key, uint64_t offset, uint64_t len,
			     uint64_t file_offset, uint64_t now)
{
	struct count c = {0};
	uint64_t first, age;
	uint64_t n = touched(g, offset, len, &first);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t tag = tag_of(key, file_offset / g->granule + i);
		uint64_t old = __atomic_exchange_n(&g->slots[first + i], tag, __ATOMIC_RELAXED);

		if (old == tag)
			continue;
		if (old)
			ghost_add(&g->ghost, old, now);
		if (ghost_take(&g->ghost, tag, now, &age) && age <= GUARD_SOON_NS)
			c.refaults++;
		else
			c.fresh++;
	}
	return c;
}

void guard_setup(struct guard *g, uint64_t key, uint64_t offset, uint64_t len, uint64_t file_offset,
		 uint64_t now, struct guard_seen *seen)
{
	struct count c = put_tags(g, key, offset, len, file_offset, now);
	struct util_mutex *lock = stripe(g, key);
	struct file_entry *e;

	*seen = (struct guard_seen){.new_slots = c.fresh + c.refaults};
	if (!seen->new_slots)
		return;
	__atomic_fetch_add(&g->refaults, c.refaults, __ATOMIC_RELAXED);
	util_mutex_lock(lock);
	e = get_locked(g, key, now);
	age_locked(e, now);
	store(e->fresh, e->fresh + c.fresh);
	if (c.refaults)
		store(*refaults_of(g, e), *refaults_of(g, e) + c.refaults);
	e->score += c.refaults;
	store(e->last_ns, now);
	e->run = e->next && e->next == file_offset ? e->run + 1 : 0;
	if (!e->run)
		e->ahead = 0;
	e->next = file_offset + len;
	*seen = (struct guard_seen){seen->new_slots, e->run, e->ahead};
	if (load(g->acts) && c.refaults)
		judge_locked(g, e, now);
	util_mutex_unlock(lock);
	if (seen->run)
		__atomic_fetch_add(&g->sequential, 1, __ATOMIC_RELAXED);
}

void guard_ahead(struct guard *g, uint64_t key, uint64_t end)
{
	struct util_mutex *lock = stripe(g, key);
	struct file_entry *e;

	util_mutex_lock(lock);
	e = (struct file_entry *)find(g, key);
	if (e)
		e->ahead = MAX(e->ahead, end);
	util_mutex_unlock(lock);
}

void guard_refused(struct guard *g, uint64_t key, uint64_t offset, uint64_t len, bool fault,
		   uint64_t now)
{
	struct util_mutex *lock = stripe(g, key);
	struct file_entry *e;
	uint64_t first;
	uint64_t n = touched(g, offset, len, &first);

	for (uint64_t i = 0; i < n; i++)
		store(g->slots[first + i], 0);
	if (!fault)
		return;
	util_mutex_lock(lock);
	e = get_locked(g, key, now);
	store(e->last_ns, now);
	store(e->until_ns, MAX(e->until_ns, now + GUARD_FAILED_NS));
	set_flags(g, e, e->flags | FILE_FAILED);
	util_mutex_unlock(lock);
}

void guard_remove(struct guard *g, uint64_t offset, uint64_t len, uint64_t now)
{
	uint64_t first;
	uint64_t n = touched(g, offset, len, &first);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t old = load(g->slots[first + i]);

		if (old && __atomic_compare_exchange_n(&g->slots[first + i], &old, 0, false,
						       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			ghost_add(&g->ghost, old, now);
	}
}

void guard_reset(struct guard *g)
{
	for (uint64_t i = 0; i < g->num_slots; i++)
		store(g->slots[i], 0);
}

void guard_direct(struct guard *g, uint64_t key, bool direct, uint64_t now)
{
	struct util_mutex *lock = stripe(g, key);
	struct file_entry *e;

	util_mutex_lock(lock);
	e = direct ? get_locked(g, key, now) : (struct file_entry *)find(g, key);
	if (e) {
		store(e->last_ns, now);
		set_flags(g, e, direct ? e->flags | FILE_DIRECT : e->flags & ~FILE_DIRECT);
	}
	util_mutex_unlock(lock);
}

enum policy_verdict guard_verdict(const struct guard *g, uint64_t key, uint64_t now)
{
	const struct file_entry *e = load(g->special) ? find(g, key) : NULL;
	uint16_t flags = e ? load(e->flags) : 0;
	bool cooling = flags && load(e->until_ns) > now;

	/* An entry that was given to another file meanwhile says nothing of this one. */
	if (!flags || load(e->key) != key)
		return POLICY_MARKED;
	if (flags & FILE_FAILED && cooling)
		return POLICY_FAILED;
	if (flags & FILE_THRASH && cooling && load(g->acts))
		return POLICY_THRASH;
	return flags & FILE_DIRECT ? POLICY_DIRECT : POLICY_MARKED;
}

uint64_t guard_refaults(const struct guard *g, uint64_t key)
{
	const struct file_entry *e = find(g, key);

	return e ? load(*refaults_of((struct guard *)g, e)) : 0;
}

uint64_t guard_thrashing(const struct guard *g, uint64_t now)
{
	uint64_t n = 0;

	for (unsigned int s = 0; s < GUARD_SETS && load(g->special) && load(g->acts); s++)
		for (unsigned int i = 0; i < GUARD_WAYS; i++)
			n += load(g->files[s][i].flags) & FILE_THRASH &&
			     load(g->files[s][i].until_ns) > now;
	return n;
}
