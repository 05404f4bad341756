// SPDX-License-Identifier: Apache-2.0
#include "t_shim_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "count_tasks.h"
#include "util_fd.h"
#include "util_lock.h"

struct shim *kit_shim(const char *dir, bool readonly)
{
	util_autofd share = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct shim_config config = {.share_fd = share, .readonly = readonly};
	g_autoptr(GError) error = NULL;
	struct shim *s = shim_start(&config, &error);

	if (!s)
		g_test_skip(error->message);
	return s;
}

char *kit_dir(const char *base)
{
	char *dir = g_strdup_printf("%s/t_shim.XXXXXX", base);

	if (!g_mkdtemp(dir))
		g_error("%s: %s", dir, g_strerror(errno));
	return dir;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	return remove(path);
}

void kit_rmdir(const char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

uint8_t kit_byte(uint64_t offset)
{
	uint64_t v = offset * UINT64_C(0x9e3779b97f4a7c15);

	return (uint8_t)((v >> 32) | 1); /* never 0: a hole is no data */
}

int kit_file(const char *dir, const char *name, uint64_t size)
{
	g_autofree char *path = g_build_filename(dir, name, NULL);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	g_autofree uint8_t *buf = g_malloc(size + 1);

	g_assert_cmpint(fd, >=, 0);
	for (uint64_t i = 0; i < size; i++)
		buf[i] = kit_byte(i);
	g_assert_cmpint(pwrite(fd, buf, size, 0), ==, (ssize_t)size);
	return fd;
}

int kit_reopen(int fd, int flags)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	g_assert_cmpint(again, >=, 0);
	return again;
}

uint8_t *kit_map(int fd, uint64_t offset)
{
	void *p = mmap(NULL, SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	g_assert_true(p != MAP_FAILED);
	return p;
}

/* The kernel's own access answers EFAULT where ours would get a signal. */
int kit_touch(const volatile void *p)
{
	static int pipe_fds[2] = {-1, -1};
	uint8_t byte;

	if (pipe_fds[0] < 0 && pipe2(pipe_fds, O_CLOEXEC) < 0)
		g_error("pipe2");
	if (write(pipe_fds[1], (const void *)p, 1) != 1) {
		g_assert_cmpint(errno, ==, EFAULT);
		return -1;
	}
	g_assert_cmpint(read(pipe_fds[0], &byte, 1), ==, 1);
	return byte;
}

void kit_settle(struct shim *s, uint64_t nodes, uint64_t fds)
{
	uint64_t deadline = util_now_ns() + UINT64_C(10000000000);
	struct shim_stats st;

	do {
		g_assert_cmpint(shim_get_stats(s, &st), ==, 0);
		if (st.nodes == nodes && st.backings <= nodes && st.fds == fds && st.pending == 0)
			return;
	} while (util_now_ns() < deadline);
	g_error("the helper has %" G_GUINT64_FORMAT " nodes, %" G_GUINT64_FORMAT
		" backing files, %" G_GUINT64_FORMAT " descriptors, %" G_GUINT64_FORMAT
		" pending; %" G_GUINT64_FORMAT " nodes expected",
		st.nodes, st.backings, st.fds, st.pending, nodes);
}

unsigned int kit_count_fds(pid_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/fd", (int)pid);

	return count_entries(path);
}
