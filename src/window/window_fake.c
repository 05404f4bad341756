// SPDX-License-Identifier: Apache-2.0
/*
 * The rules, from window.h:
 *  - offsets and lengths are multiples of the granule and inside the window;
 *  - without OVERLAY a map over a mapping is refused; with OVERLAY but not SPLIT it must cover
 *    whole mappings;
 *  - without SPLIT an unmap is exactly one whole mapping; with it, any extent that is all mapped;
 *  - more than max_mappings at any moment kills the VM;
 *  - one submit at a time unless CONCURRENT.
 * Breaking one is a violation, remembered; the operation is refused.
 *
 * A mapping is a run of granules with the same number; one that is cut counts as several.
 */
#include "window_fake.h"

#include <errno.h>
#include <glib.h>

#include "util_lock.h"
#include "util_overflow.h"
#include "util_yield.h"

struct window_fake {
	struct dm_window w;
	struct window_fake_config config;
	struct util_mutex lock;
	struct window_fake_page *pages;
	uint64_t n_pages;
	uint64_t next_mapping;
	struct window_fake_counts counts;
	char *violation;
	int inside;
};

static struct window_fake *fake_of(struct dm_window *w)
{
	return (struct window_fake *)w;
}

static int G_GNUC_PRINTF(3, 4)
	violate(struct window_fake *f, const struct dm_window_op *op, const char *fmt, ...)
{
	va_list ap;

	f->counts.violations++;
	if (!f->violation) {
		g_autofree char *what = NULL;

		va_start(ap, fmt);
		what = g_strdup_vprintf(fmt, ap);
		va_end(ap);
		f->violation = g_strdup_printf(
			"%s [0x%" G_GINT64_MODIFIER "x, +0x%" G_GINT64_MODIFIER "x): %s",
			op->kind == DM_OP_MAP ? "map" : "unmap", op->offset, op->len, what);
	}
	return -EINVAL;
}

static bool can(const struct window_fake *f, uint32_t flag)
{
	return f->w.caps.flags & flag;
}

static uint64_t mapping_at(const struct window_fake *f, uint64_t page)
{
	return page < f->n_pages ? f->pages[page].mapping : 0;
}

/* Does a mapping reach from outside over the edge before @page? */
static bool edge_cuts(const struct window_fake *f, uint64_t page)
{
	return page > 0 && mapping_at(f, page) && mapping_at(f, page) == mapping_at(f, page - 1);
}

static uint32_t starts(const struct window_fake *f, uint64_t lo, uint64_t hi)
{
	uint32_t n = 0;

	for (uint64_t i = lo; i < hi; i++)
		n += mapping_at(f, i) && (i == 0 || mapping_at(f, i - 1) != mapping_at(f, i));
	return n;
}

static int check_map(struct window_fake *f, const struct dm_window_op *op, uint64_t lo, uint64_t hi)
{
	bool over = false;

	if (op->fd < 0)
		return violate(f, op, "no file");
	if (!util_is_aligned(op->fd_offset, f->w.caps.granule))
		return violate(f, op, "unaligned file offset");
	for (uint64_t i = lo; i < hi; i++)
		over |= mapping_at(f, i) != 0;
	if (over && !can(f, DM_WINDOW_OVERLAY)) {
		f->counts.overlap_refused++;
		return -EEXIST;
	}
	if (over && !can(f, DM_WINDOW_SPLIT) && (edge_cuts(f, lo) || edge_cuts(f, hi)))
		return violate(f, op, "overlays a part of a mapping");
	return 0;
}

static int check_unmap(struct window_fake *f, const struct dm_window_op *op, uint64_t lo,
		       uint64_t hi)
{
	for (uint64_t i = lo; i < hi; i++)
		if (!mapping_at(f, i))
			return violate(f, op, "unmaps a hole");
	if (!can(f, DM_WINDOW_SPLIT) &&
	    (edge_cuts(f, lo) || edge_cuts(f, hi) || starts(f, lo, hi) != 1))
		return violate(f, op, "unmaps not exactly one whole mapping");
	return 0;
}

static void put_pages(struct window_fake *f, const struct dm_window_op *op, uint64_t lo,
		      uint64_t hi)
{
	uint64_t mapping = op->kind == DM_OP_MAP ? ++f->next_mapping : 0;
	uint64_t before = starts(f, lo, MIN(hi + 1, f->n_pages));

	for (uint64_t i = lo; i < hi; i++) {
		f->pages[i] = (struct window_fake_page){0};
		if (!mapping)
			continue;
		f->pages[i] = (struct window_fake_page){
			.mapping = mapping,
			.key_hi = op->key_hi,
			.key_lo = op->key_lo,
			.file_offset = op->fd_offset + (i - lo) * f->w.caps.granule,
			.flags = op->flags,
		};
	}
	f->counts.live += starts(f, lo, MIN(hi + 1, f->n_pages)) - (uint32_t)before;
	f->counts.peak = MAX(f->counts.peak, f->counts.live);
	if (f->w.caps.max_mappings && f->counts.live > f->w.caps.max_mappings)
		violate(f, op, "%u live mappings: the VM is dead", f->counts.live);
}

static int do_op(struct window_fake *f, const struct dm_window_op *op)
{
	uint64_t granule = f->w.caps.granule;
	uint64_t lo = op->offset / granule, hi;
	int err;

	f->counts.sim_ns += f->config.cost_ns + f->config.cost_per_live_ns * f->counts.live;
	if (op->len == 0 || !util_is_aligned(op->offset, granule) ||
	    !util_is_aligned(op->len, granule) ||
	    !util_range_inside(op->offset, op->len, f->w.caps.size))
		return violate(f, op, "bad extent");
	hi = lo + op->len / granule;
	err = op->kind == DM_OP_MAP ? check_map(f, op, lo, hi) : check_unmap(f, op, lo, hi);
	if (err)
		return err;
	put_pages(f, op, lo, hi);
	if (op->kind == DM_OP_MAP)
		f->counts.maps++;
	else
		f->counts.unmaps++;
	return 0;
}

static int fake_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	struct window_fake *f = fake_of(w);

	if (__atomic_add_fetch(&f->inside, 1, __ATOMIC_SEQ_CST) > 1 &&
	    !can(f, DM_WINDOW_CONCURRENT)) {
		util_mutex_lock(&f->lock);
		violate(f, ops, "two submits at once");
		util_mutex_unlock(&f->lock);
	}
	if (f->config.between)
		f->config.between(f->config.ctx);
	util_yield();
	util_mutex_lock(&f->lock);
	f->counts.submits++;
	for (size_t i = 0; i < n; i++)
		ops[i].result = do_op(f, &ops[i]);
	util_mutex_unlock(&f->lock);
	util_yield();
	__atomic_sub_fetch(&f->inside, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static void fake_destroy(struct dm_window *w)
{
	struct window_fake *f = fake_of(w);

	util_mutex_destroy(&f->lock);
	g_free(f->pages);
	g_free(f->violation);
	g_free(f);
}

static const struct dm_window_ops fake_ops = {
	.name = "fake",
	.submit = fake_submit,
	.destroy = fake_destroy,
};

struct dm_window *window_fake_new(const struct window_fake_config *config)
{
	struct window_fake *f = g_new0(struct window_fake, 1);

	f->w.ops = &fake_ops;
	f->w.caps = config->caps;
	f->config = *config;
	f->n_pages = config->caps.size / config->caps.granule;
	f->pages = g_new0(struct window_fake_page, f->n_pages);
	util_mutex_init(&f->lock);
	return &f->w;
}

const struct window_fake_page *window_fake_pages(struct dm_window *w)
{
	return fake_of(w)->pages;
}

struct window_fake_page window_fake_page_at(struct dm_window *w, uint64_t granule)
{
	struct window_fake *f = fake_of(w);
	struct window_fake_page page;

	util_mutex_lock(&f->lock);
	page = f->pages[granule];
	util_mutex_unlock(&f->lock);
	return page;
}

void window_fake_counts(struct dm_window *w, struct window_fake_counts *out)
{
	struct window_fake *f = fake_of(w);

	util_mutex_lock(&f->lock);
	*out = f->counts;
	util_mutex_unlock(&f->lock);
}

const char *window_fake_violation(struct dm_window *w)
{
	return fake_of(w)->violation;
}

void window_fake_reset(struct dm_window *w)
{
	struct window_fake *f = fake_of(w);

	util_mutex_lock(&f->lock);
	for (uint64_t i = 0; i < f->n_pages; i++)
		f->pages[i] = (struct window_fake_page){0};
	f->counts.live = 0;
	f->counts.overlap_refused = 0;
	util_mutex_unlock(&f->lock);
}
