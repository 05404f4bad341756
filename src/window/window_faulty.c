// SPDX-License-Identifier: Apache-2.0
/*
 * A refused operation never reaches the inner driver; the others do, in their order. A submit
 * that disconnects passes a random first part on, and says nothing about any of it.
 */
#include "window_faulty.h"

#include <errno.h>
#include <glib.h>

#include "util_lock.h"

struct window_faulty {
	struct dm_window w;
	struct dm_window *inner;
	struct util_mutex lock;
	struct util_cond cond;
	uint64_t rng;
	uint32_t refuse[2]; /* by enum dm_op_kind */
	uint32_t disconnect;
	bool broken;
	bool hold;
	unsigned int held;
};

static struct window_faulty *faulty_of(struct dm_window *w)
{
	return (struct window_faulty *)w;
}

static uint32_t roll(struct window_faulty *f)
{
	f->rng ^= f->rng << 13;
	f->rng ^= f->rng >> 7;
	f->rng ^= f->rng << 17;
	return (f->rng >> 20) & 0xffff;
}

static void wait_if_held(struct window_faulty *f) UTIL_REQUIRES(f->lock)
{
	if (!f->hold)
		return;
	f->held++;
	util_cond_broadcast(&f->cond);
	while (f->hold)
		util_cond_wait(&f->cond, &f->lock);
	f->held--;
}

/* Which operations pass; returns how many of @n are considered before the channel breaks. */
static size_t choose(struct window_faulty *f, const struct dm_window_op *ops, size_t n, bool *pass)
	UTIL_REQUIRES(f->lock)
{
	if (!f->broken && roll(f) < f->disconnect) {
		f->broken = true;
		n = roll(f) % (n + 1);
	} else if (f->broken) {
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		pass[i] = roll(f) >= f->refuse[ops[i].kind];
	return n;
}

static int faulty_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	struct window_faulty *f = faulty_of(w);
	struct dm_window_op *passed = g_new(struct dm_window_op, n);
	bool *pass = g_new0(bool, n);
	size_t n_passed = 0, considered, j = 0;
	bool broken;
	int rc = 0;

	util_mutex_lock(&f->lock);
	wait_if_held(f);
	considered = choose(f, ops, n, pass);
	broken = f->broken;
	util_mutex_unlock(&f->lock);

	for (size_t i = 0; i < considered; i++)
		if (pass[i])
			passed[n_passed++] = ops[i];
	if (n_passed)
		rc = dm_window_submit(f->inner, passed, n_passed);
	for (size_t i = 0; i < n; i++)
		ops[i].result = i < considered && pass[i] ? passed[j++].result : -EIO;
	g_free(passed);
	g_free(pass);
	return broken ? -EPIPE : rc;
}

static void *faulty_base(struct dm_window *w)
{
	return dm_window_base(faulty_of(w)->inner);
}

static void faulty_destroy(struct dm_window *w)
{
	struct window_faulty *f = faulty_of(w);

	dm_window_destroy(f->inner);
	util_cond_destroy(&f->cond);
	util_mutex_destroy(&f->lock);
	g_free(f);
}

static const struct dm_window_ops faulty_ops = {
	.name = "faulty",
	.submit = faulty_submit,
	.base = faulty_base,
	.destroy = faulty_destroy,
};

struct dm_window *window_faulty_new(struct dm_window *inner, uint64_t seed)
{
	struct window_faulty *f = g_new0(struct window_faulty, 1);

	f->w.ops = &faulty_ops;
	f->w.caps = inner->caps;
	f->inner = inner;
	f->rng = seed * 2 + 1;
	util_mutex_init(&f->lock);
	util_cond_init(&f->cond);
	return &f->w;
}

void window_faulty_set_rates(struct dm_window *w, uint32_t refuse_map, uint32_t refuse_unmap,
			     uint32_t disconnect)
{
	struct window_faulty *f = faulty_of(w);

	util_mutex_lock(&f->lock);
	f->refuse[DM_OP_MAP] = refuse_map;
	f->refuse[DM_OP_UNMAP] = refuse_unmap;
	f->disconnect = disconnect;
	util_mutex_unlock(&f->lock);
}

static void set_broken(struct dm_window *w, bool broken)
{
	struct window_faulty *f = faulty_of(w);

	util_mutex_lock(&f->lock);
	f->broken = broken;
	util_mutex_unlock(&f->lock);
}

void window_faulty_disconnect(struct dm_window *w)
{
	set_broken(w, true);
}

void window_faulty_reconnect(struct dm_window *w)
{
	set_broken(w, false);
}

bool window_faulty_broken(struct dm_window *w)
{
	struct window_faulty *f = faulty_of(w);
	bool broken;

	util_mutex_lock(&f->lock);
	broken = f->broken;
	util_mutex_unlock(&f->lock);
	return broken;
}

void window_faulty_hold(struct dm_window *w)
{
	struct window_faulty *f = faulty_of(w);

	util_mutex_lock(&f->lock);
	f->hold = true;
	util_mutex_unlock(&f->lock);
}

void window_faulty_wait_held(struct dm_window *w)
{
	struct window_faulty *f = faulty_of(w);

	util_mutex_lock(&f->lock);
	while (f->held == 0)
		util_cond_wait(&f->cond, &f->lock);
	util_mutex_unlock(&f->lock);
}

void window_faulty_let_go(struct dm_window *w)
{
	struct window_faulty *f = faulty_of(w);

	util_mutex_lock(&f->lock);
	f->hold = false;
	util_cond_broadcast(&f->cond);
	util_mutex_unlock(&f->lock);
}
