/* SPDX-License-Identifier: Apache-2.0 */
/* A table over the fake VMM under the faulty layer, and files that are only counted. */
#ifndef DAXMAP_TESTS_DM_FIXTURE_H
#define DAXMAP_TESTS_DM_FIXTURE_H

#include <daxmap/table.h>
#include <glib.h>

#include "window_fake.h"
#include "window_faulty.h"

#define FX_GRANULE 4096u
#define FX_SHMEM 0u
#define FX_OVERLAY ((uint32_t)(DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT))

struct dm_fixture {
	struct dm_window *fake;
	struct dm_window *window;
	struct dm_table *t;
	int open_files;
	int opens;
	int open_error; /* what the next opens answer */
	bool read_only;
	int twice; /* files that were opened while open */
	int fd_of[64];
};

static int fx_open(void *ctx, struct dm_file_key key, bool *writable)
{
	struct dm_fixture *fx = ctx;

	if (fx->open_error)
		return fx->open_error;
	*writable = !fx->read_only;
	g_atomic_int_inc(&fx->open_files);
	g_atomic_int_inc(&fx->opens);
	if (g_atomic_int_add(&fx->fd_of[key.lo % 64], 1) != 0)
		g_atomic_int_inc(&fx->twice);
	return 1000 + (int)key.lo;
}

static void fx_close(void *ctx, struct dm_file_key key, int fd)
{
	struct dm_fixture *fx = ctx;

	g_assert_cmpint(fd, ==, 1000 + (int)key.lo);
	g_atomic_int_add(&fx->fd_of[key.lo % 64], -1);
	g_atomic_int_add(&fx->open_files, -1);
}

static inline void fx_begin(struct dm_fixture *fx, uint32_t flags, uint32_t max_mappings,
			    const struct dm_table_config *config)
{
	struct window_fake_config fc = {
		.caps = {.flags = flags,
			 .size = 64 * FX_GRANULE,
			 .granule = FX_GRANULE,
			 .max_mappings = max_mappings,
			 .batch = 8},
	};
	struct dm_table_config lazy = {.no_worker = true};
	struct dm_file_provider provider = {.ctx = fx, .open = fx_open, .close = fx_close};

	*fx = (struct dm_fixture){0};
	fx->fake = window_fake_new(&fc);
	fx->window = window_faulty_new(fx->fake, 1);
	fx->t = dm_table_new(fx->window, &provider, config ? config : &lazy);
}

static inline void fx_end(struct dm_fixture *fx)
{
	dm_table_free(fx->t);
	g_assert_cmpint(fx->open_files, ==, 0);
	g_assert_cmpint(fx->twice, ==, 0);
	g_assert_cmpstr(window_fake_violation(fx->fake), ==, NULL);
	dm_window_destroy(fx->window);
}

/* In granules: file @file's granule @fg on at window granule @g. */
static inline int fx_setup(struct dm_fixture *fx, uint64_t g, uint64_t n, uint64_t file,
			   uint64_t fg)
{
	struct dm_file_key key = {7, file};

	return dm_host_setup(fx->t, g * FX_GRANULE, n * FX_GRANULE, key, fg * FX_GRANULE, false);
}

static inline int fx_remove(struct dm_fixture *fx, uint64_t g, uint64_t n)
{
	return dm_host_remove(fx->t, g * FX_GRANULE, n * FX_GRANULE);
}

static inline bool fx_shows(struct dm_fixture *fx, uint64_t g, uint64_t file, uint64_t fg)
{
	struct window_fake_page p = window_fake_page_at(fx->fake, g);

	return p.mapping && p.key_lo == file && p.file_offset == fg * FX_GRANULE;
}

static inline bool fx_hole(struct dm_fixture *fx, uint64_t g)
{
	return window_fake_page_at(fx->fake, g).mapping == 0;
}

static inline bool fx_owned(struct dm_fixture *fx, uint64_t g)
{
	struct dm_pin pin;

	if (dm_host_pin(fx->t, g * FX_GRANULE, FX_GRANULE, &pin) != 0)
		return false;
	dm_host_unpin(fx->t, &pin);
	return true;
}

static inline struct dm_stats fx_stats(struct dm_fixture *fx)
{
	struct dm_stats s;

	dm_table_stats(fx->t, &s);
	return s;
}

static inline struct window_fake_counts fx_vmm(struct dm_fixture *fx)
{
	struct window_fake_counts counts;

	window_fake_counts(fx->fake, &counts);
	return counts;
}

static inline void fx_assert_balance(struct dm_fixture *fx)
{
	struct dm_stats s = fx_stats(fx);

	g_assert_cmpuint(s.removed_ranges, ==, dm_stats_accounted(&s));
	g_assert_cmpuint(s.mapped, ==, s.live + s.lingering);
}

#endif
