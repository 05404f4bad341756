// SPDX-License-Identifier: Apache-2.0
/*
 * The model test: random operations of one guest against the table, the strict fake VMM, and a
 * plain reference: for each granule of the window, which byte of which file the guest believes
 * to have there. After every step:
 *  - what the guest believes to have, the VMM shows, with the right access;
 *  - the table's ranges and the VMM's mappings are the same granules, and do not overlap;
 *  - what it shows as zeros lies behind the end of its file;
 *  - pinned bytes stand still;
 *  - an answer was the one due: what needs no driver call makes none, and each refusal has its
 *    reason;
 *  - no rule of the VMM was broken, the budget was kept, the counters balance, and the files open
 *    are the files mapped.
 *
 * DM_MODEL_OPS: operations over all configurations (1200000). DM_MODEL_SEED: instead of a fresh
 * seed a run. A failure prints configuration, seed and step.
 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test_random.h"
#include "dm_core.h"
#include "window_fake.h"
#include "window_faulty.h"

#ifdef DM_MUTATION_RUNTIME
int dm_mutation;
#endif

#define PAGES 96
#define ENDLESS 1000 /* granules; longer than any mapping reaches */
#define FILES 5
#define READ_ONLY_FILE 4
#define MAX_PINS 3

struct page {
	uint64_t file; /* 0 = the guest has nothing there */
	uint64_t fg;   /* granule of the file */
};

struct model {
	const char *name;
	uint64_t seed;
	uint64_t rng;
	uint64_t step;
	uint64_t granule;
	uint32_t flags;
	uint32_t limit;	 /* what the VMM survives */
	uint32_t budget; /* what the table may use of it */
	bool forward;
	bool faults;
	bool faults_now;
	bool refused_unmap; /* in this session: then an overlap may be refused later */
	struct dm_window *fake;
	struct dm_window *window;
	struct dm_table *t;
	struct page guest[PAGES];
	uint64_t size[FILES]; /* granules, as the table was told last */
	bool stale[FILES];    /* a file has grown, and not all of it could be put back */
	int null_fd;
	int open[FILES];
	struct {
		struct dm_pin pin;
		uint64_t g;
		struct page bytes;
		bool blank;
	} pins[MAX_PINS];
	unsigned int n_pins;
	struct window_fake_page before[PAGES];
	uint64_t outcome[8];
	bool asked[PAGES]; /* the guest has asked to write there */
	uint64_t torn;
	char what[160];
};

static struct model *now;

#define CHECK(m, cond)                                                                             \
	do {                                                                                       \
		if (!(cond))                                                                       \
			fail(m, __LINE__, #cond);                                                  \
	} while (0)

static void show_range(void *ctx, const struct dm_range_info *r)
{
	struct model *m = ctx;

	fprintf(stderr,
		"#   %s %" G_GUINT64_FORMAT "+%" G_GUINT64_FORMAT " file %" G_GUINT64_FORMAT
		"@%" G_GUINT64_FORMAT " pins %u\n",
		r->state, r->offset / m->granule, r->len / m->granule, r->file.lo,
		r->file_offset / m->granule, r->pins);
}

static void G_GNUC_NORETURN fail(struct model *m, int line, const char *cond)
{
	fprintf(stderr,
		"# %s: seed %" G_GUINT64_FORMAT ", step %" G_GUINT64_FORMAT ": %s: line %d: %s\n",
		m->name, m->seed, m->step, m->what, line, cond);
	fprintf(stderr, "# budget %u of %u; pins held: %u\n", m->budget, m->limit, m->n_pins);
	dm_table_foreach(m->t, show_range, m);
	_exit(1);
}

static void on_abort(int sig)
{
	if (now)
		fprintf(stderr,
			"# signal %d: %s: seed %" G_GUINT64_FORMAT ", step %" G_GUINT64_FORMAT
			": %s\n",
			sig, now->name, now->seed, now->step, now->what);
	_exit(1);
}

static uint64_t rnd(struct model *m, uint64_t n)
{
	return test_rnd(&m->rng, n);
}

/* Files */

static int file_open(void *ctx, struct dm_file_key key, bool *writable)
{
	struct model *m = ctx;

	CHECK(m, m->open[key.lo] == 0);
	m->open[key.lo] = 1;
	*writable = key.lo != READ_ONLY_FILE;
	return 100 + (int)key.lo;
}

static void file_close(void *ctx, struct dm_file_key key, int fd)
{
	struct model *m = ctx;

	CHECK(m, m->open[key.lo] == 1 && fd == 100 + (int)key.lo);
	m->open[key.lo] = 0;
}

static int file_zeros(void *ctx, uint64_t len)
{
	struct model *m = ctx;

	CHECK(m, len > 0 && len % m->granule == 0);
	if (m->faults_now && rnd(m, 8) == 0)
		return -ENFILE;
	return dup(m->null_fd);
}

/* Checks */

static bool shows(const struct model *m, const struct window_fake_page *p, struct page want)
{
	return p->mapping && p->key_lo == want.file && p->file_offset == want.fg * m->granule;
}

static bool is_blank(const struct window_fake_page *p)
{
	return p->mapping && p->flags & DM_MAP_BLANK;
}

/* As shows(), or zeros where the file has nothing. */
static bool fits(const struct model *m, const struct window_fake_page *p, struct page want)
{
	if (is_blank(p))
		return want.fg >= m->size[want.file] || m->stale[want.file];
	return shows(m, p, want);
}

static void check_guest(struct model *m, const struct window_fake_page *vmm)
{
	for (unsigned int g = 0; g < PAGES; g++) {
		if (!m->guest[g].file)
			continue;
		CHECK(m, fits(m, &vmm[g], m->guest[g]));
		CHECK(m, (vmm[g].flags & ~(uint32_t)DM_MAP_BLANK) ==
				 (m->guest[g].file == READ_ONLY_FILE ? 0 : DM_MAP_WRITE));
	}
	for (unsigned int i = 0; i < m->n_pins; i++) {
		const struct window_fake_page *p = &vmm[m->pins[i].g];

		CHECK(m, is_blank(p) == m->pins[i].blank);
		CHECK(m, m->pins[i].blank || shows(m, p, m->pins[i].bytes));
	}
}

struct walk {
	struct model *m;
	const struct window_fake_page *vmm;
	uint64_t pos;
	uint64_t ranges;
	uint64_t granules;
	uint64_t live;
	bool mapped[FILES];
};

static void walk_range(void *ctx, const struct dm_range_info *r)
{
	struct walk *w = ctx;
	struct model *m = w->m;
	uint64_t lo = r->offset / m->granule, hi = (r->offset + r->len) / m->granule;

	CHECK(m, r->offset >= w->pos && r->len > 0);
	w->pos = r->offset + r->len;
	w->ranges++;
	w->granules += hi - lo;
	w->live += strcmp(r->state, "live") == 0;
	w->mapped[r->file.lo] = true;
	for (uint64_t g = lo; g < hi; g++) {
		struct page want = {r->file.lo, r->file_offset / m->granule + (g - lo)};

		CHECK(m, r->blank == is_blank(&w->vmm[g]));
		CHECK(m, r->blank || shows(m, &w->vmm[g], want));
		CHECK(m, (m->flags & DM_WINDOW_SPLIT) || w->vmm[g].mapping == w->vmm[lo].mapping);
	}
}

static void check_union(struct model *m, const struct window_fake_page *vmm)
{
	struct walk w = {.m = m, .vmm = vmm};
	struct window_fake_counts counts;
	struct dm_stats s;
	uint64_t mapped = 0;

	dm_table_foreach(m->t, walk_range, &w);
	for (unsigned int g = 0; g < PAGES; g++)
		mapped += vmm[g].mapping != 0;
	CHECK(m, mapped == w.granules);
	for (unsigned int f = 0; f < FILES; f++)
		CHECK(m, m->open[f] == w.mapped[f]);

	window_fake_counts(m->fake, &counts);
	dm_table_stats(m->t, &s);
	CHECK(m, window_fake_violation(m->fake) == NULL);
	CHECK(m, m->refused_unmap || counts.overlap_refused == 0);
	CHECK(m, s.mapped == w.ranges && s.live == w.live);
	CHECK(m, !m->limit || counts.peak <= m->limit);
	CHECK(m, counts.live <= s.mapped);
	CHECK(m, (m->flags & DM_WINDOW_SPLIT) || counts.live == s.mapped);
	CHECK(m, s.mapped_bytes == w.granules * m->granule);
	CHECK(m, s.removed_ranges == dm_stats_accounted(&s));
}

static void check_pinnable(struct model *m, unsigned int g)
{
	struct dm_pin pin;
	int err = dm_host_pin(m->t, g * m->granule, m->granule, &pin);

	CHECK(m, err == (m->guest[g].file ? 0 : -EFAULT));
	if (err)
		return;
	CHECK(m, pin.file_offset == m->guest[g].fg * m->granule && pin.len == m->granule);
	CHECK(m, pin.fd == 100 + (int)m->guest[g].file);
	dm_host_unpin(m->t, &pin);
}

static void check(struct model *m)
{
	const struct window_fake_page *vmm = window_fake_pages(m->fake);

	if (dm_host_broken(m->t))
		return;
	check_guest(m, vmm);
	check_union(m, vmm);
	check_pinnable(m, (unsigned int)rnd(m, PAGES));
	if (m->step % 16 == 0) {
		for (unsigned int g = 0; g < PAGES; g++)
			check_pinnable(m, g);
		dm_core_check(dm_table_core(m->t));
	}
}

/* Operations */

static uint64_t submits(struct model *m)
{
	struct window_fake_counts counts;

	window_fake_counts(m->fake, &counts);
	return counts.submits;
}

static void drop_pins(struct model *m)
{
	while (m->n_pins)
		dm_host_unpin(m->t, &m->pins[--m->n_pins].pin);
}

/* An extent: mostly an aligned slot of 8, as Linux asks; else anything. */
static void pick_extent(struct model *m, uint64_t *g, uint64_t *n)
{
	if (rnd(m, 3)) {
		*n = 8;
		*g = rnd(m, PAGES / 8) * 8;
		return;
	}
	*g = rnd(m, PAGES);
	*n = 1 + rnd(m, rnd(m, 8) ? MIN(12, PAGES - *g) : PAGES - *g);
}

/* Has the guest bytes, outside [g, g + n), of a mapping that is in the way inside of it? */
static bool hole_threatens(const struct model *m, uint64_t g, uint64_t n, struct page want)
{
	for (uint64_t i = g; i < g + n; i++) {
		struct page here = {want.file, want.fg + (i - g)};

		if (!m->before[i].mapping || shows(m, &m->before[i], here))
			continue;
		for (uint64_t j = 0; j < PAGES; j++)
			if ((j < g || j >= g + n) && m->guest[j].file &&
			    m->before[j].mapping == m->before[i].mapping)
				return true;
	}
	return false;
}

/* Is something pinned of a mapping that is in the way? On a splitting VMM neighbours may share a
 * mapping, so this may say yes too often. */
static bool pin_in_the_way(const struct model *m, uint64_t g, uint64_t n, struct page want)
{
	for (uint64_t i = g; i < g + n; i++) {
		struct page here = {want.file, want.fg + (i - g)};

		if (!m->before[i].mapping || shows(m, &m->before[i], here))
			continue;
		for (unsigned int k = 0; k < m->n_pins; k++)
			if (m->before[m->pins[k].g].mapping == m->before[i].mapping ||
			    m->pins[k].pin.range)
				return true;
	}
	return false;
}

static void check_refusal(struct model *m, int err, uint64_t g, uint64_t n, struct page want,
			  uint64_t live)
{
	switch (-err) {
	case EBUSY:
		CHECK(m, (!(m->flags & DM_WINDOW_SPLIT) && hole_threatens(m, g, n, want)) ||
				 pin_in_the_way(m, g, n, want));
		break;
	case ENOMEM:
		/* the ranges asked for may be many, and a pin holds all that was cut
		 * from its range */
		CHECK(m, m->limit && (live + n + 3 > m->budget || m->n_pins || m->faults_now));
		break;
	case EIO:
		CHECK(m, m->faults_now);
		break;
	case EEXIST:
		CHECK(m, m->refused_unmap);
		break;
	case EPIPE:
		CHECK(m, dm_host_broken(m->t));
		break;
	default:
		fail(m, __LINE__, "unexpected refusal");
	}
}

static bool all_there(const struct model *m, uint64_t g, uint64_t n, struct page want)
{
	for (uint64_t i = 0; i < n; i++)
		if (!shows(m, &m->before[g + i], (struct page){want.file, want.fg + i}))
			return false;
	return true;
}

static bool pinnable(struct model *m, uint64_t g)
{
	struct dm_pin pin;

	if (dm_host_pin(m->t, g * m->granule, 1, &pin) != 0)
		return false;
	dm_host_unpin(m->t, &pin);
	return true;
}

/*
 * An error leaves the guest what it had. But once the driver has been asked it has let go of what
 * it wanted replaced; and a VMM that overlays and does not split may have been asked for an unmap
 * before a refusal.
 */
static void setup_done(struct model *m, int err, uint64_t g, uint64_t n, struct page want,
		       bool write)
{
	bool asked = err == -EIO || err == -EEXIST;
	bool maybe = err && (m->flags & (DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT)) == DM_WINDOW_OVERLAY;

	for (uint64_t i = 0; i < n; i++) {
		struct page here = {want.file, want.fg + i};
		struct page *p = &m->guest[g + i];
		bool same = p->file == here.file && p->fg == here.fg;

		if (err == 0) {
			m->asked[g + i] = write || (same && m->asked[g + i]);
			*p = here;
		} else if (!same && maybe && p->file && !pinnable(m, g + i))
			*p = (struct page){0};
		else if (!same && asked && !maybe)
			*p = (struct page){0};
	}
}

static void op_setup(struct model *m)
{
	bool write = rnd(m, 2);
	struct page want;
	struct dm_stats s;
	uint64_t g, n, calls = submits(m);
	bool there;
	int err;

	pick_extent(m, &g, &n);
	want.file = 1 + rnd(m, FILES - 1);
	/* often the same distance between window and file, so that ranges meet their neighbours */
	want.fg = rnd(m, 2) ? g : rnd(m, 40);
	snprintf(m->what, sizeof(m->what),
		 "setup %" G_GUINT64_FORMAT "+%" G_GUINT64_FORMAT " file %" G_GUINT64_FORMAT
		 "@%" G_GUINT64_FORMAT " w%d",
		 g, n, want.file, want.fg, write);
	dm_table_stats(m->t, &s);
	there = all_there(m, g, n, want);
	err = dm_host_setup(m->t, g * m->granule, n * m->granule,
			    (struct dm_file_key){0, want.file}, want.fg * m->granule, write);
	if (write && want.file == READ_ONLY_FILE) {
		CHECK(m, err == -EACCES);
		return;
	}
	if (there)
		CHECK(m, err == 0 && submits(m) == calls);
	if (err)
		check_refusal(m, err, g, n, want, s.live);
	setup_done(m, err, g, n, want, write);
	m->outcome[err == 0 ? 0 : err == -EBUSY ? 1 : err == -ENOMEM ? 2 : 3]++;
}

static void op_bad_setup(struct model *m)
{
	static const struct {
		uint64_t offset, len, file_offset; /* in granules, + 1 byte where odd */
		int err;
	} bad[] = {
		{PAGES, 1, 0, -ERANGE},
		{0, PAGES + 1, 0, -ERANGE},
		{0, 0, 0, -EINVAL},
		{PAGES - 1, 2, 3, -ERANGE},
	};
	uint64_t i = rnd(m, G_N_ELEMENTS(bad)), calls = submits(m);

	snprintf(m->what, sizeof(m->what), "bad setup");
	CHECK(m, dm_host_setup(m->t, bad[i].offset * m->granule, bad[i].len * m->granule,
			       (struct dm_file_key){0, 1}, bad[i].file_offset,
			       false) == (bad[i].file_offset ? -EINVAL : bad[i].err));
	CHECK(m, submits(m) == calls);
}

static void op_remove(struct model *m)
{
	uint64_t g, n, calls = submits(m);

	pick_extent(m, &g, &n);
	if (rnd(m, 200) == 0) {
		g = 0;
		n = PAGES;
	}
	if (m->forward)
		drop_pins(m);
	snprintf(m->what, sizeof(m->what), "remove %" G_GUINT64_FORMAT "+%" G_GUINT64_FORMAT, g, n);
	if (dm_host_remove(m->t, g * m->granule, n == PAGES ? UINT64_MAX : n * m->granule) != 0) {
		CHECK(m, dm_host_broken(m->t));
		return;
	}
	CHECK(m, m->forward || submits(m) == calls);
	for (uint64_t i = g; i < MIN(g + n, PAGES); i++)
		m->guest[i] = (struct page){0};
}

static void op_pin(struct model *m)
{
	uint64_t g = rnd(m, PAGES);
	struct dm_pin pin;

	snprintf(m->what, sizeof(m->what), "pin %" G_GUINT64_FORMAT, g);
	if (m->n_pins == MAX_PINS || rnd(m, 3) == 0) {
		drop_pins(m);
		return;
	}
	if (dm_host_pin(m->t, g * m->granule, 1, &pin) != 0)
		return;
	m->pins[m->n_pins].pin = pin;
	m->pins[m->n_pins].blank = is_blank(&window_fake_pages(m->fake)[g]);
	m->pins[m->n_pins].g = g;
	m->pins[m->n_pins++].bytes = m->guest[g];
}

struct left {
	uint64_t file;
	bool lingering;
};

static void find_lingering(void *ctx, const struct dm_range_info *r)
{
	struct left *l = ctx;

	l->lingering |= r->file.lo == l->file && strcmp(r->state, "lingering") == 0;
}

static void op_flush_file(struct model *m)
{
	struct dm_file_key key = {0, 1 + rnd(m, FILES - 1)};
	struct left left = {.file = key.lo};
	bool live = rnd(m, 4) == 0;
	int err;

	drop_pins(m);
	snprintf(m->what, sizeof(m->what), "flush file %" G_GUINT64_FORMAT " live %d", key.lo,
		 live);
	err = dm_host_flush_file(m->t, key, live);
	CHECK(m, err == 0 || m->faults_now || dm_host_broken(m->t));
	for (unsigned int g = 0; live && g < PAGES; g++)
		if (m->guest[g].file == key.lo)
			m->guest[g] = (struct page){0};
	if (err)
		return;
	dm_table_foreach(m->t, find_lingering, &left);
	CHECK(m, !left.lingering);
	for (unsigned int g = 0; live && g < PAGES; g++)
		CHECK(m, !window_fake_pages(m->fake)[g].mapping ||
				 window_fake_pages(m->fake)[g].key_lo != key.lo);
}

/* The table has done all that it was asked, or says so. */
static void check_fit(struct model *m, uint64_t file, bool blank, const struct dm_fitted *out)
{
	const struct window_fake_page *vmm = window_fake_pages(m->fake);

	for (unsigned int g = 0; g < PAGES; g++) {
		struct page *p = &m->guest[g];
		bool behind = p->fg >= m->size[file];

		if (p->file != file)
			continue;
		if (!vmm[g].mapping && out->holes) {
			*p = (struct page){0};
			continue;
		}
		if (is_blank(&vmm[g]))
			CHECK(m, p->fg * m->granule >= out->blank_from);
		if (behind && blank && !out->left)
			CHECK(m, is_blank(&vmm[g]));
		if (!behind && !out->failed)
			CHECK(m, shows(m, &vmm[g], *p));
	}
}

/* What the guest may be storing to has not been away. */
static void check_not_torn(struct model *m)
{
	const struct window_fake_page *vmm = window_fake_pages(m->fake);

	for (unsigned int g = 0; g < PAGES; g++)
		if (m->guest[g].file && m->asked[g] && shows(m, &m->before[g], m->guest[g]) &&
		    shows(m, &vmm[g], m->guest[g]))
			CHECK(m, vmm[g].mapping == m->before[g].mapping);
}

/* The file has become shorter or longer. */
static void op_fit(struct model *m)
{
	uint64_t file = 1 + rnd(m, FILES - 1), size = rnd(m, 3) ? rnd(m, PAGES) : ENDLESS;
	bool blank = rnd(m, 4) != 0, tear = blank && rnd(m, 2);
	struct dm_fitted out;
	int err;

	snprintf(m->what, sizeof(m->what),
		 "fit file %" G_GUINT64_FORMAT " to %" G_GUINT64_FORMAT ", blank %d tear %d", file,
		 size, blank, tear);
	m->size[file] = size;
	err = dm_host_fit(m->t, (struct dm_file_key){0, file},
			  size * m->granule - (size && rnd(m, 2) ? 1 : 0),
			  (blank ? DM_FIT_BLANK : 0) | (tear ? DM_FIT_TEAR : 0), &out);
	if (err == -EPIPE)
		return;
	CHECK(m, !err == !out.err);
	CHECK(m, !err || m->faults_now || m->refused_unmap || (err == -EBUSY && m->n_pins));
	CHECK(m, !out.failed || err);
	CHECK(m, !out.holes || m->faults_now || m->refused_unmap);
	CHECK(m, !out.torn || (tear && !(m->flags & (DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT))));
	m->torn += out.torn;
	check_not_torn(m);
	m->stale[file] = out.failed > 0;
	check_fit(m, file, blank, &out);
}

static void op_flush(struct model *m)
{
	struct window_fake_counts counts;
	int err;

	drop_pins(m);
	snprintf(m->what, sizeof(m->what), "flush");
	err = dm_host_flush(m->t);
	CHECK(m, err == 0 || m->faults_now);
	memset(m->guest, 0, sizeof(m->guest));
	window_fake_counts(m->fake, &counts);
	CHECK(m, err || counts.live == 0);
}

static void op_forget(struct model *m)
{
	drop_pins(m);
	snprintf(m->what, sizeof(m->what), "forget");
	window_faulty_reconnect(m->window);
	window_fake_reset(m->fake);
	dm_host_forget(m->t);
	memset(m->guest, 0, sizeof(m->guest));
	m->refused_unmap = m->faults_now;
}

static void op_reclaim(struct model *m)
{
	struct dm_core *c = dm_table_core(m->t);
	struct dm_evict e;

	snprintf(m->what, sizeof(m->what), "reclaim");
	dm_evict_init(&e, 1 + rnd(m, 8), true);
	dm_evict_oldest(c, &e, e.max, UINT64_MAX, NULL);
	dm_evict_run(c, &e, DM_C_deferred_unmaps);
	dm_evict_destroy(&e);
}

static void step(struct model *m)
{
	uint64_t r = rnd(m, 1000);

	if (m->faults && m->step % 64 == 0) {
		m->faults_now = rnd(m, 2);
		window_faulty_set_rates(m->window, m->faults_now ? 8000 : 0,
					m->faults_now ? 8000 : 0, m->faults_now ? 60 : 0);
		m->refused_unmap |= m->faults_now;
	}
	memcpy(m->before, window_fake_pages(m->fake), sizeof(m->before));
	if (r < 480)
		op_setup(m);
	else if (r < 820)
		op_remove(m);
	else if (r < 900)
		op_pin(m);
	else if (r < 960)
		op_reclaim(m);
	else if (r < 980)
		op_flush_file(m);
	else if (r < 990)
		op_bad_setup(m);
	else if (r < 994)
		op_flush(m);
	else if (r < 997)
		op_forget(m);
	if (r % 16 == 3)
		op_fit(m);
	if (dm_host_broken(m->t))
		op_forget(m);
	check(m);
}

static void run(struct model *m, uint64_t steps)
{
	struct window_fake_config fc = {
		.caps = {.flags = m->flags,
			 .size = PAGES * m->granule,
			 .granule = m->granule,
			 .max_mappings = m->limit,
			 .batch = 1 + (uint32_t)rnd(m, 16)},
	};
	struct dm_table_config config = {
		.manager = m->forward ? DM_MANAGER_FORWARD : DM_MANAGER_FULL,
		.max_mappings = m->budget,
		.policy = rnd(m, 2) ? DM_POLICY_CLOCK : DM_POLICY_FIFO,
		.no_worker = true,
	};
	struct dm_file_provider provider = {
		.ctx = m, .open = file_open, .close = file_close, .zeros = file_zeros};

	now = m;
	for (unsigned int f = 0; f < FILES; f++)
		m->size[f] = ENDLESS;
	m->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	m->fake = window_fake_new(&fc);
	m->window = window_faulty_new(m->fake, rnd(m, UINT32_MAX));
	m->t = dm_table_new(m->window, &provider, &config);
	dm_table_core(m->t)->pin_wait_ns = 1; /* one thread: nobody will unpin meanwhile */
	for (m->step = 0; m->step < steps; m->step++)
		step(m);
	drop_pins(m);
	dm_table_free(m->t);
	for (unsigned int f = 0; f < FILES; f++)
		CHECK(m, m->open[f] == 0);
	dm_window_destroy(m->window);
	close(m->null_fd);
	now = NULL;
}

static const struct {
	const char *name;
	uint32_t flags;
} drivers[] = {
	{"shmem", 0},
	{"overlay", DM_WINDOW_OVERLAY},
	{"split", DM_WINDOW_SPLIT},
	{"overlay+split", DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT},
	{"protect", DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT | DM_WINDOW_PROTECT | DM_WINDOW_CONCURRENT},
};
static const uint64_t sizes[] = {4096, 65536, UINT64_C(2) << 20, UINT64_C(8) << 20};

int main(int argc, char **argv)
{
	uint64_t ops = test_env_number("DM_MODEL_OPS", 1200000);
	uint64_t seed = test_env_number("DM_MODEL_SEED", (uint64_t)g_get_real_time());
	unsigned int n = 0, runs = G_N_ELEMENTS(drivers) * G_N_ELEMENTS(sizes) * 3;

#ifdef DM_MUTATION_RUNTIME
	dm_mutation = (int)test_env_number("DM_MUTATION", 0);
	alarm(120); /* a bug may also hang */
#endif
	signal(SIGABRT, on_abort);
	signal(SIGSEGV, on_abort);
	printf("1..%u\n# DM_MODEL_SEED=%" G_GUINT64_FORMAT " DM_MODEL_OPS=%" G_GUINT64_FORMAT "\n",
	       runs, seed, ops);
	for (unsigned int i = 0; i < runs; i++) {
		struct model m = {
			.name = drivers[i % G_N_ELEMENTS(drivers)].name,
			.flags = drivers[i % G_N_ELEMENTS(drivers)].flags,
			.granule = sizes[i / G_N_ELEMENTS(drivers) % G_N_ELEMENTS(sizes)],
			.faults = i % 3 == 2,
			.seed = seed,
		};

		m.rng = (seed + i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
		for (int k = 0; k < 8; k++)
			rnd(&m, 2);
		m.limit = (uint32_t)(rnd(&m, 2) ? 0 : 5 + rnd(&m, 20));
		m.budget = m.limit && rnd(&m, 2) ? m.limit - 2 : m.limit;
		m.forward = rnd(&m, 8) == 0;
		run(&m, ops / runs);
		printf("ok %u %s, granule %" G_GUINT64_FORMAT "%s%s, budget %u # %" G_GUINT64_FORMAT
		       " set up, %" G_GUINT64_FORMAT " busy, %" G_GUINT64_FORMAT
		       " over budget, %" G_GUINT64_FORMAT " refused, %" G_GUINT64_FORMAT " torn\n",
		       ++n, m.name, m.granule, m.forward ? ", forward" : "",
		       m.faults ? ", faults" : "", m.limit, m.outcome[0], m.outcome[1],
		       m.outcome[2], m.outcome[3], m.torn);
	}
	(void)argc;
	(void)argv;
	return 0;
}
