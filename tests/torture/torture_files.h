/* SPDX-License-Identifier: Apache-2.0 */
/* Files whose pages carry their file's number and their own, and a provider that sees to it that
 * each is open once at most. */
#ifndef DAXMAP_TESTS_TORTURE_FILES_H
#define DAXMAP_TESTS_TORTURE_FILES_H

#include <daxmap/file.h>
#include <glib.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util_yield.h"

#define TORTURE_PAGE 4096u
#define TORTURE_FILES 8

struct torture_stamp {
	uint64_t file;
	uint64_t page;
	uint64_t writes; /* for the test to count in */
};

struct torture_files {
	int fds[TORTURE_FILES];
	int open[TORTURE_FILES];
};

static inline int torture_file_open(void *ctx, struct dm_file_key key, bool *writable)
{
	struct torture_files *f = ctx;

	g_assert_cmpint(g_atomic_int_add(&f->open[key.lo], 1), ==, 0);
	util_yield();
	*writable = true;
	return f->fds[key.lo];
}

static inline void torture_file_close(void *ctx, struct dm_file_key key, int fd)
{
	struct torture_files *f = ctx;

	util_yield();
	g_assert_cmpint(fd, ==, f->fds[key.lo]);
	g_assert_cmpint(g_atomic_int_add(&f->open[key.lo], -1), ==, 1);
}

static inline struct dm_file_provider torture_provider(struct torture_files *f)
{
	return (struct dm_file_provider){
		.ctx = f, .open = torture_file_open, .close = torture_file_close};
}

/** torture_file_new() - a file of @pages stamped pages. */
static inline int torture_file_new(uint64_t file, uint64_t pages)
{
	int fd = memfd_create("torture", MFD_CLOEXEC);

	g_assert_cmpint(fd, >=, 0);
	g_assert_cmpint(ftruncate(fd, (off_t)(pages * TORTURE_PAGE)), ==, 0);
	for (uint64_t page = 0; page < pages; page++) {
		struct torture_stamp s = {file, page, 0};

		g_assert_cmpint(pwrite(fd, &s, sizeof(s), (off_t)(page * TORTURE_PAGE)), ==,
				sizeof(s));
	}
	return fd;
}

#endif
