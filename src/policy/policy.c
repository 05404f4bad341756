// SPDX-License-Identifier: Apache-2.0
/*
 * The rules, cheapest first: most files of a share are small and end at the first one, which looks
 * at nothing but the size. Whether a file pays and whether it can be mapped are asked in the same
 * row; --dax=always leaves out the first kind.
 *
 * The counters are touched by every reply with attributes, so each thread has its own line of them,
 * or shares it with few.
 */
#include "policy.h"

#include <glib.h>
#include <errno.h>
#include <limits.h>

#include "policy_int.h"
#include "util_overflow.h"

#define SHARDS 16u

struct shard {
	_Alignas(64) uint64_t verdicts[POLICY_VERDICTS];
	uint64_t wishes;
};

struct policy {
	struct policy_config cfg;
	char **include;
	char **exclude;
	uint64_t max_size;
	struct shard shards[SHARDS];
	struct guard guard;
};

static const char *const verdict_names[] = {"marked", "small",	  "partial",  "share",
					    "fstype", "readonly", "glob",     "direct",
					    "thrash", "failed",	  "truncated"};
G_STATIC_ASSERT(G_N_ELEMENTS(verdict_names) == POLICY_VERDICTS);

const char *policy_verdict_name(enum policy_verdict v)
{
	return verdict_names[v];
}

void policy_tune(struct policy *p, const struct policy_config *config)
{
	uint64_t max = UINT64_MAX, times;

	if (config->max_share && util_mul_u64(p->cfg.window_size, config->max_share, &times))
		max = times / 100;
	store(p->max_size, max);
	store(p->cfg.min_size, config->min_size);
	store(p->cfg.prefetch, config->prefetch);
	store(p->guard.acts, config->guard && !p->cfg.all);
}

struct policy *policy_new(const struct policy_config *config)
{
	struct policy *p = g_aligned_alloc0(1, sizeof(*p), 64);

	p->cfg = *config;
	p->cfg.include = p->cfg.exclude = NULL; /* the caller's */
	p->include = g_strdupv((char **)config->include);
	p->exclude = g_strdupv((char **)config->exclude);
	guard_init(&p->guard, config->window_size, config->granule);
	policy_tune(p, config);
	return p;
}

void policy_free(struct policy *p)
{
	if (!p)
		return;
	guard_clear(&p->guard);
	g_strfreev(p->include);
	g_strfreev(p->exclude);
	g_aligned_free(p);
}

bool policy_wants_paths(const struct policy *p)
{
	return p->include || p->exclude;
}

static struct shard *my_shard(struct policy *p)
{
	static unsigned int next;
	static __thread unsigned int mine;

	if (!mine)
		mine = __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED) % SHARDS + SHARDS;
	return &p->shards[mine % SHARDS];
}

/* --- the rules --- */

/* May every granule of the file be mapped whole? To the byte: QEMU does not count the rest of the
 * last page. */
static bool is_whole(const struct policy *p, const struct policy_query *q)
{
	return q->any_size || (q->size && util_is_aligned(q->size, p->cfg.granule));
}

static bool any_match(char **globs, const char *path, bool whole)
{
	for (char **g = globs; g && *g; g++)
		if (policy_glob_match(*g, path, whole))
			return true;
	return false;
}

static bool wanted_by_name(const struct policy *p, const struct policy_query *q)
{
	char path[PATH_MAX];
	bool whole = false;
	ssize_t n;

	if (!policy_wants_paths(p))
		return true;
	n = q->path(q->ctx, path, sizeof(path), &whole);
	if (n < 0)
		n = 0;
	path[n] = '\0';
	if (any_match(p->exclude, path, whole))
		return false;
	return !p->include || any_match(p->include, path, whole);
}

static enum policy_verdict judge(struct policy *p, const struct policy_query *q, uint64_t now)
{
	enum policy_verdict v;
	uint32_t type;

	if (!p->cfg.all && q->size < load(p->cfg.min_size))
		return POLICY_SMALL;
	if (!is_whole(p, q))
		return POLICY_PARTIAL;
	if (q->truncated)
		return POLICY_TRUNCATED;
	if (!p->cfg.all && q->size > load(p->max_size))
		return POLICY_SHARE;
	v = guard_verdict(&p->guard, guard_key(q->file), now);
	/* That a mapping fails and that it does not pay are two things. */
	if (v == POLICY_FAILED || (v != POLICY_MARKED && !p->cfg.all))
		return v;
	if (!q->fs_type(q->ctx, &type) || !policy_fstype_name(type))
		return POLICY_FSTYPE;
	if (!wanted_by_name(p, q))
		return POLICY_GLOB;
	if (!p->cfg.can_protect && !q->can_write(q->ctx))
		return POLICY_READONLY;
	return POLICY_MARKED;
}

enum policy_verdict policy_mark(struct policy *p, const struct policy_query *q, uint64_t now_ns)
{
	enum policy_verdict v = judge(p, q, now_ns);

	__atomic_fetch_add(&my_shard(p)->verdicts[v], 1, __ATOMIC_RELAXED);
	return v;
}

/* --- what happens --- */

/* What to read ahead: in a sequential run this range and the next, but nothing twice. */
static struct policy_prefetch_wish wish_for(const struct policy *p, const struct guard_seen *seen,
					    uint64_t file_offset, uint64_t len)
{
	enum policy_prefetch_mode mode = load(p->cfg.prefetch);
	uint64_t from = file_offset;
	uint64_t end;

	if (!util_add_u64(file_offset, len, &end) || !util_add_u64(end, len, &end))
		return (struct policy_prefetch_wish){0};
	if (mode == POLICY_PREFETCH_OFF || !seen->new_slots)
		return (struct policy_prefetch_wish){0};
	if (!seen->run)
		return (struct policy_prefetch_wish){file_offset,
						     mode == POLICY_PREFETCH_ON ? len : 0};
	from = MAX(from, seen->ahead);
	return (struct policy_prefetch_wish){from, end > from ? end - from : 0};
}

void policy_setup(struct policy *p, struct policy_file file, uint64_t offset, uint64_t len,
		  uint64_t file_offset, uint64_t now_ns, struct policy_prefetch_wish *wish)
{
	uint64_t key = guard_key(file);
	struct guard_seen seen;

	guard_setup(&p->guard, key, offset, len, file_offset, now_ns, &seen);
	*wish = wish_for(p, &seen, file_offset, len);
	if (!wish->len)
		return;
	if (seen.run)
		guard_ahead(&p->guard, key, wish->offset + wish->len);
	__atomic_fetch_add(&my_shard(p)->wishes, 1, __ATOMIC_RELAXED);
}

/* Is it this file that cannot be mapped, rather than the window, the VMM or the request? */
static bool file_at_fault(int err)
{
	switch (err) {
	case -ENOMEM:
	case -EPIPE:
	case -EBUSY:
	case -ECANCELED:
	case -EINVAL:
	case -ERANGE:
	case -EEXIST:
	case -EMFILE:
	case -ENFILE:
	case -ESTALE:
	case -EBADF:
		return false;
	default:
		return true;
	}
}

void policy_refused(struct policy *p, struct policy_file file, uint64_t offset, uint64_t len,
		    int err, uint64_t now_ns)
{
	guard_refused(&p->guard, guard_key(file), offset, len, file_at_fault(err), now_ns);
}

void policy_remove(struct policy *p, uint64_t offset, uint64_t len, uint64_t now_ns)
{
	guard_remove(&p->guard, offset, len, now_ns);
}

void policy_reset(struct policy *p)
{
	guard_reset(&p->guard);
}

void policy_opened(struct policy *p, struct policy_file file, bool direct_only, uint64_t now_ns)
{
	guard_direct(&p->guard, guard_key(file), direct_only, now_ns);
}

bool policy_any_direct(const struct policy *p)
{
	return load(p->guard.direct) > 0;
}

void policy_file_stats(const struct policy *p, struct policy_file file, uint64_t now_ns,
		       struct policy_file_stats *out)
{
	uint64_t key = guard_key(file);

	out->refaults = guard_refaults(&p->guard, key);
	out->thrash = guard_verdict(&p->guard, key, now_ns) == POLICY_THRASH;
}

void policy_get_stats(struct policy *p, uint64_t now_ns, struct policy_stats *out)
{
	uint64_t v[POLICY_VERDICTS] = {0};

	*out = (struct policy_stats){0};
	for (unsigned int s = 0; s < SHARDS; s++) {
		for (unsigned int i = 0; i < POLICY_VERDICTS; i++)
			v[i] += load(p->shards[s].verdicts[i]);
		out->prefetch_wishes += load(p->shards[s].wishes);
	}
	out->marks = v[POLICY_MARKED];
	out->unmarked_small = v[POLICY_SMALL];
	out->unmarked_partial = v[POLICY_PARTIAL];
	out->unmarked_share = v[POLICY_SHARE];
	out->unmarked_fstype = v[POLICY_FSTYPE];
	out->unmarked_readonly = v[POLICY_READONLY];
	out->unmarked_glob = v[POLICY_GLOB];
	out->unmarked_direct = v[POLICY_DIRECT];
	out->unmarked_thrash = v[POLICY_THRASH];
	out->unmarked_failed = v[POLICY_FAILED];
	out->unmarked_truncated = v[POLICY_TRUNCATED];
	out->refaults = load(p->guard.refaults);
	out->thrash_events = load(p->guard.events);
	out->thrash_files = guard_thrashing(&p->guard, now_ns);
	out->prefetch_sequential = load(p->guard.sequential);
}
