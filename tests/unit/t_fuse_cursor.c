// SPDX-License-Identifier: Apache-2.0
/* Guest buffers split anywhere read, write and slice as if they were not. */
#include <errno.h>
#include <glib.h>
#include <string.h>

#include "fuse_cursor.h"

#define MAX_SEGS 64

struct buf {
	char bytes[64];
	struct iovec iov[MAX_SEGS];
	uint64_t window[MAX_SEGS];
	struct util_gvec v;
};

/* Splits @len bytes into pieces of @piece, an empty segment between each two. */
static void split(struct buf *b, size_t len, size_t piece)
{
	b->v = (struct util_gvec){.iov = b->iov, .len = len};
	for (size_t at = 0; at < len; at += piece) {
		b->iov[b->v.n++] = (struct iovec){b->bytes + at, MIN(piece, len - at)};
		if (b->v.n < MAX_SEGS - 1)
			b->iov[b->v.n++] = (struct iovec){NULL, 0};
	}
}

static void test_read_across_any_split(void)
{
	for (size_t piece = 1; piece <= 20; piece++) {
		struct buf b;
		struct fuse_cursor c;
		char out[21] = "";

		memcpy(b.bytes, "abcdefghijklmnopqrst", 20);
		split(&b, 20, piece);
		fuse_cursor_init(&c, &b.v);
		g_assert_cmpint(fuse_cursor_read(&c, out, 7), ==, 0);
		g_assert_true(fuse_cursor_skip(&c, 3));
		g_assert_cmpint(fuse_cursor_read(&c, out + 7, 10), ==, 0);
		g_assert_cmpstr(out, ==, "abcdefgklmnopqrst");
		g_assert_cmpuint(c.left, ==, 0);
		g_assert_cmpint(fuse_cursor_read(&c, out, 1), ==, -EINVAL);
		g_assert_cmpint(fuse_cursor_read(&c, out, 0), ==, 0);
		g_assert_false(fuse_cursor_skip(&c, 1));
	}
}

static void test_write_across_any_split(void)
{
	for (size_t piece = 1; piece <= 12; piece++) {
		struct buf b;
		struct fuse_cursor c;

		memset(b.bytes, '.', sizeof(b.bytes));
		split(&b, 12, piece);
		fuse_cursor_init(&c, &b.v);
		g_assert_cmpint(fuse_cursor_write(&c, "hello", 5), ==, 0);
		g_assert_cmpint(fuse_cursor_zero(&c, 2), ==, 0);
		g_assert_cmpint(fuse_cursor_write(&c, "toolong", 7), ==, -EINVAL);
		g_assert_cmpint(fuse_cursor_write(&c, "world", 5), ==, 0);
		g_assert_cmpmem(b.bytes, 13, "hello\0\0world.", 13);
	}
}

static void test_strings_must_end_inside(void)
{
	struct buf b;
	struct fuse_cursor c;
	char s[8];

	memcpy(b.bytes, "one\0seven77\0\0x", 14);
	for (size_t piece = 1; piece <= 14; piece++) {
		split(&b, 14, piece);
		fuse_cursor_init(&c, &b.v);
		g_assert_cmpint(fuse_cursor_read_string(&c, s, sizeof(s)), ==, 3);
		g_assert_cmpstr(s, ==, "one");
		g_assert_cmpint(c.left, ==, 10);
		g_assert_cmpint(fuse_cursor_read_string(&c, s, 7), ==, -ENAMETOOLONG);
		g_assert_cmpint(fuse_cursor_read_string(&c, s, 8), ==, 7);
		g_assert_cmpint(fuse_cursor_read_string(&c, s, sizeof(s)), ==, 0);
		g_assert_cmpint(fuse_cursor_read_string(&c, s, sizeof(s)), ==, -EINVAL);
		g_assert_cmpint(fuse_cursor_read_string(&c, s, 1), ==, -EINVAL);
		g_assert_cmpint(c.left, ==, 1);
	}
}

static void test_window_segments_have_no_bytes(void)
{
	struct buf b;
	struct fuse_cursor c;
	struct fuse_slice s;
	char out[16];

	split(&b, 16, 4); /* 0, 2, 4, 6 have bytes */
	for (unsigned int i = 0; i < MAX_SEGS; i++)
		b.window[i] = UTIL_GVEC_RAM;
	b.window[2] = 4096;
	b.v.window = b.window;
	fuse_cursor_init(&c, &b.v);
	g_assert_cmpint(fuse_cursor_read(&c, out, 4), ==, 0);
	g_assert_cmpint(fuse_cursor_read(&c, out, 1), ==, -EFAULT);
	g_assert_true(fuse_cursor_is_ram(&b.v, 4));
	g_assert_false(fuse_cursor_is_ram(&b.v, 5));
	g_assert_false(fuse_cursor_is_ram(&b.v, 17));

	g_assert_cmpint(fuse_slice_init(&s, &b.v, 5, 8), ==, 0);
	g_assert_true(s.in_window);
	g_assert_cmpuint(s.v.n, ==, 3);
	g_assert_cmpuint(s.v.len, ==, 8);
	g_assert_cmpuint(s.v.window[0], ==, 4097);
	g_assert_cmpuint(s.v.iov[0].iov_len, ==, 3);
	g_assert_cmpuint(s.v.window[1], ==, UTIL_GVEC_RAM);
	g_assert_true(s.v.iov[1].iov_base == b.bytes + 8);
	fuse_slice_fini(&s);

	g_assert_cmpint(fuse_slice_init(&s, &b.v, 8, 8), ==, 0);
	g_assert_false(s.in_window);
	g_assert_null(s.v.window);
	fuse_slice_fini(&s);
}

static void test_slice_keeps_to_its_bytes(void)
{
	for (size_t piece = 1; piece <= 30; piece++) {
		for (size_t skip = 0; skip <= 30; skip++) {
			struct buf b;
			struct fuse_slice s;
			size_t len = 30 - skip, sum = 0;

			split(&b, 30, piece);
			g_assert_cmpint(fuse_slice_init(&s, &b.v, skip, len), ==, 0);
			g_assert_cmpuint(s.v.len, ==, len);
			for (unsigned int i = 0; i < s.v.n; i++) {
				g_assert_true(s.v.iov[i].iov_base == b.bytes + skip + sum);
				sum += s.v.iov[i].iov_len;
			}
			g_assert_cmpuint(sum, ==, len);
			fuse_slice_fini(&s);
			g_assert_cmpint(fuse_slice_init(&s, &b.v, skip, len + 1), ==, -EINVAL);
			fuse_slice_fini(&s);
		}
	}
}

static void test_slice_of_many_segments(void)
{
	enum { N = 3 * FUSE_SLICE_INLINE };
	struct iovec *iov = g_new(struct iovec, N);
	uint64_t *window = g_new(uint64_t, N);
	struct util_gvec v = {.iov = iov, .window = window, .n = N, .len = N};
	struct fuse_slice s;
	char byte;

	for (unsigned int i = 0; i < N; i++) {
		iov[i] = (struct iovec){&byte, 1};
		window[i] = i % 2 ? UTIL_GVEC_RAM : i;
	}
	g_assert_cmpint(fuse_slice_init(&s, &v, 1, N - 1), ==, 0);
	g_assert_cmpuint(s.v.n, ==, N - 1);
	g_assert_cmpuint(s.v.window[1], ==, 2);
	fuse_slice_fini(&s);
	g_free(iov);
	g_free(window);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/cursor/read", test_read_across_any_split);
	g_test_add_func("/fuse/cursor/write", test_write_across_any_split);
	g_test_add_func("/fuse/cursor/string", test_strings_must_end_inside);
	g_test_add_func("/fuse/cursor/window", test_window_segments_have_no_bytes);
	g_test_add_func("/fuse/cursor/slice", test_slice_keeps_to_its_bytes);
	g_test_add_func("/fuse/cursor/slice-many", test_slice_of_many_segments);
	return g_test_run();
}
