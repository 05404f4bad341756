// SPDX-License-Identifier: Apache-2.0
/* Opening, reading, writing; what may never be opened. */
#include <limits.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <signal.h>

#include "fs_batch.h"
#include "t_fs_common.h"

static void read_write_and_ends(struct share *s, gconstpointer d)
{
	char buf[64];
	uint64_t h;
	uint64_t f = t_create(s, "f", &h);
	uint64_t node;
	int fd;

	g_assert_cmpint(t_pwrite(s, f, h, "hello world", 11, 0, 0), ==, 11);
	g_assert_cmpint(t_pread(s, f, h, buf, 64, 6), ==, 5);
	g_assert_cmpmem(buf, 5, "world", 5);
	g_assert_cmpint(t_pread(s, f, h, buf, 64, 11), ==, 0);
	g_assert_cmpint(t_pread(s, f, h, buf, 64, 1 << 30), ==, 0);
	g_assert_cmpint(t_pread(s, f, h, buf, 64, INT64_MAX), ==, -EINVAL);
	g_assert_cmpint(t_pread(s, f, h, buf, 64, UINT64_MAX), ==, -EINVAL);
	g_assert_cmpint(t_pwrite(s, f, h, "x", 1, UINT64_MAX, 0), ==, -EFBIG);
	g_assert_cmpint(t_pread(s, f, h + 99, buf, 64, 0), ==, -EBADF);
	g_assert_cmpint(t_pread(s, f + 99, h, buf, 64, 0), ==, -EBADF);
	g_assert_cmpint(t_pread(s, f, h, buf, 0, 0), ==, 0);
	g_assert_cmpint(fs_node_of_handle(s->fs, h, &node), ==, 0);
	g_assert_cmpuint(node, ==, f);
	fd = fs_handle_dup(s->fs, f, h);
	g_assert_cmpint(pread(fd, buf, 5, 0), ==, 5);
	close(fd);
	g_assert_cmpint(fs_flush(s->fs, f, h), ==, 0);
	g_assert_cmpint(fs_fsync(s->fs, f, h, true), ==, 0);
	g_assert_cmpint(fs_releasedir(s->fs, h), ==, -EBADF);
	g_assert_cmpint(fs_release(s->fs, h), ==, 0);
	g_assert_cmpint(fs_release(s->fs, h), ==, -EBADF);
	g_assert_cmpint(fs_fsync(s->fs, f, h, false), ==, -EBADF);
}

/* More segments than one system call takes, some of them empty. */
static void many_segments(struct share *s, gconstpointer d)
{
	const guint n = 3 * IOV_MAX + 17;
	g_autofree struct iovec *iov = g_new(struct iovec, n);
	g_autofree guint8 *out = g_malloc(n * 7);
	g_autofree guint8 *in = g_malloc0(n * 7);
	struct util_gvec v = {.iov = iov, .n = n};
	uint64_t h;
	uint64_t f = t_create(s, "f", &h);

	for (guint i = 0; i < n; i++) {
		iov[i] = (struct iovec){out + v.len, i % 8};
		v.len += i % 8;
	}
	for (gsize i = 0; i < v.len; i++)
		out[i] = (guint8)(i * 131 >> 3);
	g_assert_cmpint(fs_write(s->fs, f, h, &v, 5, 0), ==, (gssize)v.len);
	for (guint i = 0; i < n; i++)
		iov[i].iov_base = in + ((guint8 *)iov[i].iov_base - out);
	g_assert_cmpint(fs_read(s->fs, f, h, &v, 5, 0), ==, (gssize)v.len);
	g_assert_cmpmem(in, v.len, out, v.len);
	/* The end of the file in the middle of a segment. */
	memset(in, 0, v.len);
	g_assert_cmpint(fs_read(s->fs, f, h, &v, 5 + 1001, 0), ==, (gssize)v.len - 1001);
	g_assert_cmpmem(in, v.len - 1001, out + 1001, v.len - 1001);
}

static void append_goes_where_the_guest_says(struct share *s, gconstpointer d)
{
	char buf[8] = "";
	struct fs_attr a;
	uint64_t h;

	g_assert_cmpint(
		fs_create(s->fs, &me, FS_ROOT_ID, "f", 0644, O_RDWR | O_APPEND, false, &a, &h), ==,
		0);
	g_assert_cmpint(t_pwrite(s, a.node, h, "aaaa", 4, 0, 0), ==, 4);
	g_assert_cmpint(t_pwrite(s, a.node, h, "b", 1, 1, 0), ==, 1);
	g_assert_cmpint(fs_release(s->fs, h), ==, 0);
	g_assert_cmpint(fs_open(s->fs, a.node, O_RDWR | O_APPEND, false, &h), ==, 0);
	g_assert_cmpint(t_pwrite(s, a.node, h, "c", 1, 2, 0), ==, 1);
	g_assert_cmpint(t_pread(s, a.node, h, buf, 8, 0), ==, 4);
	g_assert_cmpstr(buf, ==, "abca");
}

static void nowait_gives_all_or_eagain(struct share *s, gconstpointer d)
{
	char buf[16384];
	struct iovec iov;
	struct util_gvec v = t_gvec(&iov, buf, sizeof(buf));
	uint64_t h;
	uint64_t f = t_create(s, "f", &h);
	ssize_t n;

	memset(buf, 'x', sizeof(buf));
	g_assert_cmpint(t_pwrite(s, f, h, buf, 10000, 0, 0), ==, 10000);
	n = fs_read(s->fs, f, h, &v, 0, FS_IO_NOWAIT);
	g_assert_true(n == 10000 || n == -EAGAIN);
	g_assert_true(n != -EAGAIN || !fs_nowait_useful(s->fs, f, false) ||
		      fs_read(s->fs, f, h, &v, 0, 0) == 10000);
	n = fs_write(s->fs, f, h, &v, 0, FS_IO_NOWAIT);
	g_assert_true(n == sizeof(buf) || n == -EAGAIN);
	if (n == -EAGAIN && !fs_nowait_useful(s->fs, f, true))
		g_assert_cmpint(fs_write(s->fs, f, h, &v, 0, FS_IO_NOWAIT), ==, -EAGAIN);
	g_assert_cmpint(fs_write(s->fs, f, h, &v, 0, 0), ==, sizeof(buf));
}

/* @n reads of 4 KiB each at random blocks of a file of 64: right, or to be asked again. */
static void batch_round(struct share *s, struct fs_batch *b, uint64_t f, uint64_t h, guint n,
			guint *whole)
{
	static guint8 buf[FS_BATCH_MAX][4096];
	struct iovec iov[FS_BATCH_MAX][2];
	struct util_gvec v[FS_BATCH_MAX];
	guint8 block[FS_BATCH_MAX];
	ssize_t results[FS_BATCH_MAX];
	unsigned int slot;

	for (guint i = 0; i < n; i++) {
		block[i] = (guint8)g_test_rand_int_range(0, 64);
		memset(buf[i], 0xff, sizeof(buf[i]));
		iov[i][0] = (struct iovec){buf[i], 1000};
		iov[i][1] = (struct iovec){buf[i] + 1000, 3096};
		v[i] = (struct util_gvec){.iov = iov[i], .n = 2, .len = 4096};
		if (i % 2)
			v[i] = t_gvec(iov[i], buf[i], 4096);
		g_assert_true(fs_batch_read(b, s->fs, f, h, &v[i], block[i] * 4096u, &slot));
		g_assert_cmpuint(slot, ==, i);
	}
	if (n == FS_BATCH_MAX)
		g_assert_false(fs_batch_read(b, s->fs, f, h, &v[0], 0, &slot));
	g_assert_cmpuint(fs_batch_run(b, s->fs, results), ==, n);
	for (guint i = 0; i < n; i++) {
		if (results[i] == -EAGAIN)
			continue;
		g_assert_cmpint(results[i], ==, 4096);
		for (guint k = 0; k < 4096; k++)
			g_assert_cmpuint(buf[i][k], ==, block[i]);
		++*whole;
	}
}

static void batched_reads_are_whole_or_refused(struct share *s, gconstpointer d)
{
	struct fs_batch *b = fs_batch_new();
	static char buf[64 * 4096];
	uint64_t direct, h, f = t_create(s, "f", &h);
	struct iovec iov;
	struct util_gvec v = t_gvec(&iov, buf, 4096);
	ssize_t results[FS_BATCH_MAX];
	unsigned int slot;
	guint whole = 0;

	if (!b) {
		g_test_skip("no io_uring for us");
		return;
	}
	for (guint i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(i / 4096);
	g_assert_cmpint(t_pwrite(s, f, h, buf, sizeof(buf), 0, 0), ==, sizeof(buf));
	/* Often enough for the rings to wrap at every place. */
	for (guint round = 0; round < 200; round++)
		batch_round(s, b, f, h, round % (FS_BATCH_MAX + 1), &whole);
	g_assert_true(whole || !fs_nowait_useful(s->fs, f, false));
	/* What is short, at the end of the file, is left to fs_read(). */
	for (guint i = 0; i < 2; i++)
		g_assert_true(fs_batch_read(b, s->fs, f, h, &v, sizeof(buf) - 100, &slot));
	g_assert_cmpuint(fs_batch_run(b, s->fs, results), ==, 2);
	g_assert_cmpint(results[0], ==, -EAGAIN);
	g_assert_cmpint(results[1], ==, -EAGAIN);
	/* Not for us: direct I/O, nothing, no such handle, past the largest offset. */
	g_assert_cmpint(fs_open(s->fs, f, O_RDONLY | O_DIRECT, false, &direct), ==, 0);
	g_assert_true(!s->config.allow_direct_io ||
		      !fs_batch_read(b, s->fs, f, direct, &v, 0, &slot));
	g_assert_false(fs_batch_read(b, s->fs, f, 12345, &v, 0, &slot));
	g_assert_false(fs_batch_read(b, s->fs, f, h, &v, INT64_MAX, &slot));
	v.len = 0;
	g_assert_false(fs_batch_read(b, s->fs, f, h, &v, 0, &slot));
	g_assert_cmpuint(fs_batch_run(b, s->fs, results), ==, 0);
	fs_batch_free(b);
}

static void full_disk_gives_part_then_error(struct share *s, gconstpointer d)
{
	const struct rlimit small = {6000, RLIM_INFINITY};
	struct rlimit old;
	char buf[4096] = "";
	uint64_t h;
	uint64_t f = t_create(s, "f", &h);

	/* A bound on file size ends a write like a full disk does: part, then an error. */
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	setrlimit(RLIMIT_FSIZE, &small);
	g_assert_cmpint(t_pwrite(s, f, h, buf, 4096, 4096, 0), ==, 6000 - 4096);
	g_assert_cmpint(t_pwrite(s, f, h, buf, 4096, 6000, 0), ==, -EFBIG);
	setrlimit(RLIMIT_FSIZE, &old);
}

static void unlinked_open_file_works(struct share *s, gconstpointer d)
{
	struct fs_setattr set = {.valid = FS_SET_SIZE | FS_SET_MODE, .size = 2, .mode = 0600};
	struct fs_attr a;
	char buf[8];
	uint64_t h;
	uint64_t h2;
	uint64_t f = t_create(s, "f", &h);

	g_assert_cmpint(fs_unlink(s->fs, FS_ROOT_ID, "f"), ==, 0);
	g_assert_cmpint(t_pwrite(s, f, h, "abc", 3, 0, 0), ==, 3);
	g_assert_cmpint(fs_getattr(s->fs, f, false, 0, &a), ==, 0);
	g_assert_cmpint(a.st.st_size, ==, 3);
	g_assert_cmpuint(a.st.st_nlink, ==, 0);
	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
	g_assert_cmpint(a.st.st_size, ==, 2);
	g_assert_cmpint(fs_open(s->fs, f, O_RDONLY, false, &h2), ==, 0);
	g_assert_cmpint(t_pread(s, f, h2, buf, 8, 0), ==, 2);
	/* Forgotten too: the handle keeps it. */
	fs_forget(s->fs, f, 1);
	g_assert_cmpint(fs_getattr(s->fs, f, true, h, &a), ==, 0);
	g_assert_cmpint(t_pread(s, f, h, buf, 8, 0), ==, 2);
	fs_release(s->fs, h);
	fs_release(s->fs, h2);
	g_assert_cmpint(fs_getattr(s->fs, f, true, h, &a), ==, -ESTALE);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
}

/* A FIFO without a writer would block an open for ever; so would some devices; a socket fails. */
static void special_files_are_never_opened(struct share *s, gconstpointer d)
{
	const char *kind[] = {"p", "s", "c", "l"};
	struct fs_attr a;
	bool writable;
	uint64_t h;

	g_assert_cmpint(fs_mknod(s->fs, &me, FS_ROOT_ID, "p", S_IFIFO | 0666, 0, &a), ==, 0);
	g_assert_cmpint(fs_mknod(s->fs, &me, FS_ROOT_ID, "s", S_IFSOCK | 0666, 0, &a), ==, 0);
	g_assert_cmpint(fs_symlink(s->fs, &me, FS_ROOT_ID, "l", "/etc/passwd", &a), ==, 0);
	fs_mknod(s->fs, &me, FS_ROOT_ID, "c", S_IFCHR | 0666, makedev(1, 3), &a);
	for (guint i = 0; i < G_N_ELEMENTS(kind); i++) {
		struct fs_setattr set = {.valid = FS_SET_SIZE, .size = 0};

		if (fs_lookup(s->fs, FS_ROOT_ID, kind[i], &a) == -ENOENT)
			continue; /* may not make devices */
		g_assert_cmpint(fs_open(s->fs, a.node, O_RDONLY, false, &h), <, 0);
		g_assert_cmpint(fs_open(s->fs, a.node, O_RDWR, false, &h), <, 0);
		g_assert_cmpint(fs_opendir(s->fs, a.node, &h), ==, -ENOTDIR);
		g_assert_cmpint(fs_syncfs(s->fs, a.node), ==, -ENXIO);
		g_assert_cmpint(fs_open_for_map(s->fs, a.node, &writable), ==, -EINVAL);
		g_assert_cmpint(fs_setattr(s->fs, a.node, &set, &a), ==, -EINVAL);
		g_assert_cmpint(
			fs_create(s->fs, &me, FS_ROOT_ID, kind[i], 0600, O_WRONLY, false, &a, &h),
			<, 0);
		g_assert_cmpint(fs_create(s->fs, &me, FS_ROOT_ID, kind[i], 0600, O_WRONLY | O_EXCL,
					  false, &a, &h),
				==, -EEXIST);
	}
	g_assert_cmpint(fs_open(s->fs, FS_ROOT_ID, O_RDONLY, false, &h), ==, -EISDIR);
	g_assert_cmpint(fs_open_for_map(s->fs, FS_ROOT_ID, &writable), ==, -EISDIR);
	g_assert_cmpuint(t_stats(s).handles, ==, 0);
}

static void create_existing_file_opens_it(struct share *s, gconstpointer d)
{
	struct fs_attr a;
	struct fs_attr b;
	uint64_t h;

	t_write(s, "f", "text");
	g_assert_cmpint(fs_create(s->fs, &me, FS_ROOT_ID, "f", 0600, O_RDWR, false, &a, &h), ==, 0);
	g_assert_cmpint(a.st.st_size, ==, 4);
	fs_release(s->fs, h);
	g_assert_cmpint(
		fs_create(s->fs, &me, FS_ROOT_ID, "f", 0600, O_RDWR | O_TRUNC, false, &b, &h), ==,
		0);
	g_assert_cmpuint(a.node, ==, b.node);
	g_assert_cmpint(b.st.st_size, ==, 0);
	fs_release(s->fs, h);
	g_assert_cmpint(
		fs_create(s->fs, &me, FS_ROOT_ID, "f", 0600, O_RDWR | O_EXCL, false, &b, &h), ==,
		-EEXIST);
	g_assert_cmpint(fs_create(s->fs, &me, FS_ROOT_ID, "g", 0600, O_ACCMODE, false, &b, &h), ==,
			-EINVAL);
	fs_forget(s->fs, a.node, 2);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
}

static void holes_fallocate_copy(struct share *s, gconstpointer d)
{
	char buf[4096];
	uint64_t h;
	uint64_t h2;
	struct fs_attr a;
	uint64_t f = t_create(s, "f", &h);
	uint64_t g = t_create(s, "g", &h2);
	int err;

	memset(buf, 'd', sizeof(buf));
	g_assert_cmpint(t_pwrite(s, f, h, buf, 4096, 1 << 20, 0), ==, 4096);
	g_assert_cmpint(fs_lseek(s->fs, f, h, 0, SEEK_DATA), ==, 1 << 20);
	g_assert_cmpint(fs_lseek(s->fs, f, h, 0, SEEK_HOLE), ==, 0);
	g_assert_cmpint(fs_lseek(s->fs, f, h, 2 << 20, SEEK_DATA), ==, -ENXIO);
	g_assert_cmpint(fs_lseek(s->fs, f, h, 0, SEEK_SET), ==, -EINVAL);
	err = fs_fallocate(s->fs, f, h, 0, 0, 4 << 20);
	if (err != -EOPNOTSUPP) {
		g_assert_cmpint(err, ==, 0);
		g_assert_cmpint(fs_getattr(s->fs, f, false, 0, &a), ==, 0);
		g_assert_cmpint(a.st.st_size, ==, 4 << 20);
		g_assert_cmpint(fs_fallocate(s->fs, f, h, 0, UINT64_MAX, 2), ==, -EFBIG);
		g_assert_cmpint(fs_fallocate(s->fs, f, h, 3, 1 << 20, 4096), ==, 0); /* punch */
		g_assert_cmpint(t_pread(s, f, h, buf, 1, 1 << 20), ==, 1);
		g_assert_cmpint(buf[0], ==, 0);
	}
	g_assert_cmpint(t_pwrite(s, f, h, "copied", 6, 0, 0), ==, 6);
	g_assert_cmpint(fs_copy_file_range(s->fs, f, h, 0, g, h2, 100, 6, 0), ==, 6);
	g_assert_cmpint(t_pread(s, g, h2, buf, 200, 100), ==, 6);
	g_assert_cmpmem(buf, 6, "copied", 6);
	g_assert_cmpint(fs_copy_file_range(s->fs, f, h, 0, g, h2 + 9, 0, 6, 0), ==, -EBADF);
}

static void flock_excludes(struct share *s, gconstpointer d)
{
	uint64_t h;
	uint64_t h2;
	uint64_t f = t_create(s, "f", &h);

	g_assert_cmpint(fs_flock(s->fs, h, LOCK_EX), ==, -ENOSYS);
	t_share_stop(s);
	s->config.flock = true;
	t_share_start(s);
	f = t_lookup(s, FS_ROOT_ID, "f");
	g_assert_cmpint(fs_open(s->fs, f, O_RDWR, false, &h), ==, 0);
	g_assert_cmpint(fs_open(s->fs, f, O_RDWR, false, &h2), ==, 0);
	g_assert_cmpint(fs_flock(s->fs, h, LOCK_EX), ==, 0);
	g_assert_cmpint(fs_flock(s->fs, h2, LOCK_SH), ==, -EAGAIN);
	g_assert_cmpint(fs_flock(s->fs, h2, 77), ==, -EINVAL);
	fs_release(s->fs, h);
	g_assert_cmpint(fs_flock(s->fs, h2, LOCK_SH), ==, 0);
}

static void writeback_can_read_what_it_writes(struct share *s, gconstpointer d)
{
	char c;
	uint64_t h;
	uint64_t f;

	t_write(s, "f", "x");
	f = t_lookup(s, FS_ROOT_ID, "f");
	g_assert_cmpint(fs_open(s->fs, f, O_WRONLY, false, &h), ==, 0);
	g_assert_cmpint(t_pread(s, f, h, &c, 1, 0), ==, -EBADF);
	t_share_stop(s);
	s->config.writeback = true;
	t_share_start(s);
	f = t_lookup(s, FS_ROOT_ID, "f");
	g_assert_cmpint(fs_open(s->fs, f, O_WRONLY, false, &h), ==, 0);
	g_assert_cmpint(t_pread(s, f, h, &c, 1, 0), ==, 1);
}

static uint64_t gone_id;
static int gone_unlinked = -1;
static void on_gone(void *ctx, uint64_t node, bool unlinked)
{
	gone_id = node;
	gone_unlinked = unlinked;
}

static void node_gone_tells_of_unlinked_maps(struct share *s, gconstpointer d)
{
	bool writable;
	uint64_t h;
	uint64_t f;
	int fd;

	t_share_stop(s);
	s->hooks.node_gone = on_gone;
	t_share_start(s);
	f = t_create(s, "f", &h);
	fd = fs_open_for_map(s->fs, f, &writable);
	g_assert_cmpint(fd, >=, 0);
	g_assert_true(writable);
	close(fd);
	fs_release(s->fs, h);
	fs_unlink(s->fs, FS_ROOT_ID, "f");
	g_assert_cmpint(gone_unlinked, ==, -1);
	fs_forget(s->fs, f, 1);
	g_assert_cmpuint(gone_id, ==, f);
	g_assert_cmpint(gone_unlinked, ==, 1);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	T_FS("/fs/data/batched-reads", NULL, batched_reads_are_whole_or_refused);
	T_FS("/fs/read-write", NULL, read_write_and_ends);
	T_FS("/fs/many-segments", NULL, many_segments);
	T_FS("/fs/append", NULL, append_goes_where_the_guest_says);
	T_FS("/fs/nowait", NULL, nowait_gives_all_or_eagain);
	T_FS("/fs/full-disk", NULL, full_disk_gives_part_then_error);
	T_FS("/fs/unlinked", NULL, unlinked_open_file_works);
	T_FS("/fs/special", NULL, special_files_are_never_opened);
	T_FS("/fs/create-existing", NULL, create_existing_file_opens_it);
	T_FS("/fs/holes", NULL, holes_fallocate_copy);
	T_FS("/fs/flock", NULL, flock_excludes);
	T_FS("/fs/writeback", NULL, writeback_can_read_what_it_writes);
	T_FS("/fs/node-gone", NULL, node_gone_tells_of_unlinked_maps);
	return g_test_run();
}
