// SPDX-License-Identifier: Apache-2.0
/*
 * How many candidates go, and at what age.
 *
 * Lingering is worth something: a candidate may be taken again, or replaced by one map instead of
 * an unmap and a map. And it costs something: each live mapping may make the next map dearer, a
 * slot that must be unmapped before it is mapped again puts that unmap on an asker's path, and
 * file and page cache are held. So:
 *  - where a map simply replaces a candidate, candidates stay until a watermark is passed, or for
 *    long; less long when maps were measured to get dearer;
 *  - where it does not, they go at once, as soon as the channel has a moment (dm_submit.c). The
 *    slots that Linux reuses first are the ones it freed first, and those are unmapped first, so
 *    the unmap has been done when the slot comes round;
 *  - under memory pressure all go.
 */
#include "rc.h"

#include <glib.h>

#define MS UINT64_C(1000000)
#define LONG_NS (10000 * MS)
#define DEAR_NS (1000 * MS)
#define SOON_NS 0
#define DEAR_PERCENT 150

/* Averages by power of two of the live count. */
static unsigned int bin_of(uint32_t live)
{
	return live == 0 ? 0 : MIN(RC_COST_BINS - 1, 32u - (unsigned int)__builtin_clz(live));
}

void rc_cost_add(struct rc_cost *c, uint32_t live, uint64_t ns)
{
	uint64_t *p = &c->ns[bin_of(live)];
	uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);

	ns = MAX(ns, 1);
	__atomic_store_n(p, old ? old - old / 8 + ns / 8 : ns, __ATOMIC_RELAXED);
}

uint32_t rc_cost_dearer(const struct rc_cost *c, uint32_t live)
{
	uint64_t least = 0, now = 0;

	for (unsigned int i = 0; i <= bin_of(live); i++) {
		uint64_t ns = __atomic_load_n(&c->ns[i], __ATOMIC_RELAXED);

		if (ns && !least)
			least = ns;
		if (ns)
			now = ns;
	}
	return least ? (uint32_t)MIN(now * 100 / least, UINT32_MAX) : 100;
}

/* How many must go to bring @used down to @percent of @limit. */
static uint64_t over(uint64_t used, uint64_t limit, uint32_t percent)
{
	uint64_t mark = limit / 100 * percent + limit % 100 * percent / 100;

	return used > mark ? used - mark : 0;
}

bool rc_above_high(const struct rc_load *load, const struct rc_marks *marks)
{
	return (load->budget && over(load->mapped, load->budget, marks->high)) ||
	       (load->window && over(load->bytes, load->window, marks->high));
}

static uint64_t linger_age(const struct rc_load *load, const struct rc_marks *marks)
{
	if (marks->linger_ns)
		return marks->linger_ns;
	if (!load->overlay)
		return SOON_NS;
	return load->dearer >= DEAR_PERCENT ? DEAR_NS : LONG_NS;
}

struct rc_decision rc_decide(const struct rc_load *load, const struct rc_marks *marks,
			     bool pressure)
{
	struct rc_decision d = {0, linger_age(load, marks)};
	uint64_t want = 0;

	if (pressure) {
		d.want = load->idle;
		return d;
	}
	if (!rc_above_high(load, marks))
		return d;
	if (load->budget)
		want = over(load->mapped, load->budget, marks->low);
	if (load->window && load->mapped && load->bytes) {
		uint64_t excess = over(load->bytes, load->window, marks->low);
		uint64_t each = MAX(1, load->bytes / load->mapped);

		want = MAX(want, (excess + each - 1) / each);
	}
	d.want = (size_t)MIN(want, load->idle);
	return d;
}
