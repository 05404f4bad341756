// SPDX-License-Identifier: Apache-2.0
/* What must be refused: names, kinds of files, a read-only share, chains that lead nowhere. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "raw_util.h"

static const char *const bad_names[] = {"..", "../x", "a/b", "/", "/etc", "dir/..", "", NULL};

static void test_names(void)
{
	struct raw *r = raw_start(NULL);
	struct fuse_entry_out e;
	char *path = raw_path(r, "dir");
	uint64_t node;
	uint64_t dir;
	uint64_t fh;

	raw_connect(r, NULL);
	mkdir(path, 0755);
	raw_make_file(r, "f", 10, 1);
	node = raw_node(r, "f");
	dir = raw_node(r, "dir");
	for (const char *const *n = bad_names; *n; n++) {
		struct guest_fuse *f = r->fuse;

		g_assert_cmpint(guest_fuse_lookup(f, 1, *n, &e), <, 0);
		g_assert_cmpint(guest_fuse_lookup(f, dir, *n, &e), <, 0);
		g_assert_cmpint(guest_fuse_mkdir(f, dir, *n, 0700, &e), <, 0);
		g_assert_cmpint(guest_fuse_mknod(f, dir, *n, S_IFREG | 0600, 0, &e), <, 0);
		g_assert_cmpint(guest_fuse_symlink(f, dir, *n, "x", &e), <, 0);
		g_assert_cmpint(guest_fuse_link(f, node, dir, *n, &e), <, 0);
		g_assert_cmpint(guest_fuse_create(f, dir, *n, 0600, O_RDWR, &e, &fh), <, 0);
		g_assert_cmpint(guest_fuse_unlink(f, dir, *n), <, 0);
		g_assert_cmpint(guest_fuse_rmdir(f, dir, *n), <, 0);
		g_assert_cmpint(guest_fuse_rename(f, 1, "f", dir, *n), <, 0);
		g_assert_cmpint(guest_fuse_rename(f, dir, *n, 1, "g"), <, 0);
		g_assert_cmpint(guest_fuse_rename2(f, dir, *n, dir, *n, 2), <, 0);
	}
	/* Nothing has changed. */
	raw_assert_ok(guest_fuse_lookup(r->fuse, 1, "f", &e));
	g_assert_cmpuint(e.attr.nlink, ==, 1);
	g_free(path);
	raw_stop(r);
}

/* Names that do not end, or are too long, or come alone where two are due. */
static void test_name_bytes(void)
{
	struct raw *r = raw_start(NULL);
	struct guest_req *q;
	char name[300];

	raw_connect(r, NULL);
	q = guest_req_get(r->fuse);
	memset(name, 'n', sizeof(name));
	name[256] = 0;
	guest_prep_lookup(q, 1, name);
	raw_assert_err(guest_req_call(q), ENAMETOOLONG);
	name[255] = 0;
	guest_prep_lookup(q, 1, name);
	raw_assert_err(guest_req_call(q), ENOENT);
	guest_req_start(q, FUSE_LOOKUP, 1);
	guest_req_bytes(q, "abc", 3);
	guest_req_reply(q, sizeof(struct fuse_entry_out));
	raw_assert_err(guest_req_call(q), EINVAL);
	guest_req_start(q, FUSE_RENAME, 1);
	guest_req_arg(q, sizeof(struct fuse_rename_in));
	guest_req_str(q, "only-one");
	raw_assert_err(guest_req_call(q), EINVAL);
	guest_req_start(q, FUSE_SYMLINK, 1);
	guest_req_str(q, "only-one");
	guest_req_reply(q, sizeof(struct fuse_entry_out));
	raw_assert_err(guest_req_call(q), EINVAL);
	guest_req_put(q);
	raw_stop(r);
}

static void test_special_files(void)
{
	struct raw *r = raw_start(NULL);
	char *fifo = raw_path(r, "fifo");
	char *link = raw_path(r, "link");
	char *null = raw_path(r, "null");
	struct fuse_entry_out e;
	uint64_t fh;
	bool device;

	raw_connect(r, NULL);
	g_assert_cmpint(mkfifo(fifo, 0666), ==, 0);
	g_assert_cmpint(symlink("/etc", link), ==, 0);
	device = mknod(null, S_IFCHR | 0666, makedev(1, 3)) == 0;
	g_assert_cmpint(guest_fuse_open(r->fuse, raw_node(r, "fifo"), O_RDONLY, &fh), <, 0);
	g_assert_cmpint(guest_fuse_open(r->fuse, raw_node(r, "fifo"), O_WRONLY, &fh), <, 0);
	g_assert_cmpint(guest_fuse_open(r->fuse, raw_node(r, "link"), O_RDONLY, &fh), <, 0);
	g_assert_cmpint(guest_fuse_opendir(r->fuse, raw_node(r, "link"), &fh), <, 0);
	g_assert_cmpint(guest_fuse_lookup(r->fuse, raw_node(r, "link"), "passwd", &e), <, 0);
	g_assert_cmpint(guest_fuse_truncate(r->fuse, raw_node(r, "link"), 0), <, 0);
	g_assert_cmpint(guest_fuse_truncate(r->fuse, raw_node(r, "fifo"), 0), <, 0);
	if (device)
		g_assert_cmpint(guest_fuse_open(r->fuse, raw_node(r, "null"), O_RDWR, &fh), <, 0);
	g_assert_cmpint(guest_fuse_create(r->fuse, 1, "fifo", 0600, O_RDWR, &e, &fh), <, 0);
	g_assert_cmpint(guest_fuse_create(r->fuse, 1, "link", 0600, O_RDWR, &e, &fh), <, 0);
	g_free(fifo);
	g_free(link);
	g_free(null);
	raw_stop(r);
}

static void test_bad_handles(void)
{
	struct raw *r = raw_start(NULL);
	uint8_t *buf;
	struct fuse_attr a;
	uint64_t node;

	raw_connect(r, NULL);
	buf = guest_mem_alloc(r->mem, 4096);
	raw_make_file(r, "f", 10, 1);
	node = raw_node(r, "f");
	for (unsigned int i = 0; i < 40; i++) {
		uint64_t fh = i < 20 ? i + 1000 : ~0ull >> i;

		g_assert_cmpint(guest_fuse_read(r->fuse, node, fh, 0, buf, 4096), <, 0);
		g_assert_cmpint(guest_fuse_write(r->fuse, node, fh, 0, buf, 4096), <, 0);
		g_assert_cmpint(guest_fuse_release(r->fuse, node, fh), <, 0);
		g_assert_cmpint(guest_fuse_releasedir(r->fuse, 1, fh), <, 0);
		g_assert_cmpint(guest_fuse_list(r->fuse, 1, fh, 0, 4096, false, NULL, NULL), <, 0);
		g_assert_cmpint(guest_fuse_getattr(r->fuse, fh, &a), <, 0);
	}
	raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	g_assert_cmpuint(a.size, ==, 10);
	guest_mem_release(r->mem, buf, 4096);
	raw_stop(r);
}

static void test_readonly(void)
{
	struct raw *r = raw_start("--readonly");
	struct fuse_setattr_in sa = {.valid = FATTR_MODE, .mode = 0777};
	struct guest_fuse *f;
	struct fuse_entry_out e;
	uint8_t *buf;
	uint64_t node;
	uint64_t fh;

	raw_connect(r, NULL);
	f = r->fuse;
	buf = guest_mem_alloc(r->mem, 4096);
	raw_make_file(r, "f", 5000, 1);
	node = raw_node(r, "f");
	raw_assert_err(guest_fuse_mkdir(f, 1, "d", 0700, &e), EROFS);
	raw_assert_err(guest_fuse_mknod(f, 1, "n", S_IFREG | 0600, 0, &e), EROFS);
	raw_assert_err(guest_fuse_symlink(f, 1, "s", "x", &e), EROFS);
	raw_assert_err(guest_fuse_link(f, node, 1, "l", &e), EROFS);
	raw_assert_err(guest_fuse_create(f, 1, "c", 0600, O_RDWR, &e, &fh), EROFS);
	raw_assert_err(guest_fuse_unlink(f, 1, "f"), EROFS);
	raw_assert_err(guest_fuse_rename(f, 1, "f", 1, "g"), EROFS);
	raw_assert_err(guest_fuse_rename2(f, 1, "f", 1, "g", 1), EROFS);
	raw_assert_err(guest_fuse_truncate(f, node, 0), EROFS);
	raw_assert_err(guest_fuse_setattr(f, node, &sa, NULL), EROFS);
	raw_assert_err(guest_fuse_open(f, node, O_RDWR, &fh), EROFS);
	raw_assert_err(guest_fuse_open(f, node, O_WRONLY | O_TRUNC, &fh), EROFS);
	raw_assert_ok(guest_fuse_open(f, node, O_RDONLY, &fh));
	g_assert_cmpint(guest_fuse_write(f, node, fh, 0, buf, 100), <, 0);
	g_assert_cmpint(guest_fuse_fallocate(f, node, fh, 0, 100, 0), <, 0);
	g_assert_cmpint(guest_fuse_read(f, node, fh, 0, buf, 4096), ==, 4096);
	g_assert_true(raw_check_bytes(buf, 0, 4096, 1));
	raw_assert_ok(guest_fuse_release(f, node, fh));
	guest_mem_release(r->mem, buf, 4096);
	raw_stop(r);
}

/* --- chains --- */

struct chain_test {
	struct raw *r;
	uint8_t *mem; /* scratch: request at 0, reply at 4096, table at 8192 */
	uint64_t gpa;
};

static void chain_begin(struct chain_test *t)
{
	t->r = raw_start(NULL);
	raw_connect(t->r, NULL);
	t->r->lenient = true;
	t->mem = guest_mem_alloc(t->r->mem, 1 << 20);
	t->gpa = raw_gpa(t->r, t->mem);
}

static void chain_end(struct chain_test *t)
{
	struct fuse_attr a;

	for (unsigned int i = 0; i < 8; i++)
		raw_assert_ok(guest_fuse_getattr(t->r->fuse, 1, &a));
	for (unsigned int i = 0; i < 3; i++)
		g_assert_null(guest_ring_error(guest_frontend_ring(t->r->fe, i)));
	guest_mem_release(t->r->mem, t->mem, 1 << 20);
	raw_stop(t->r);
}

/* A good GETATTR at the start of the scratch memory; its length. */
static uint32_t put_getattr(struct chain_test *t)
{
	struct fuse_in_header h = {
		.len = sizeof(h) + sizeof(struct fuse_getattr_in),
		.opcode = FUSE_GETATTR,
		.unique = 77,
		.nodeid = 1,
	};

	memset(t->mem, 0, 8192);
	memcpy(t->mem, &h, sizeof(h));
	return h.len;
}

static int reply_error(struct chain_test *t)
{
	struct fuse_out_header h;

	memcpy(&h, t->mem + 4096, sizeof(h));
	return h.error;
}

/* Sends a chain; then the same queue must still answer. */
static ssize_t try_chain(struct chain_test *t, const struct guest_desc *d, unsigned int n)
{
	struct guest_desc good[2];
	uint32_t len;
	ssize_t got = raw_chain(t->r, 1, d, n);

	g_assert_cmpint(got, !=, -ETIMEDOUT);
	len = put_getattr(t);
	good[0] = (struct guest_desc){t->gpa, len, GUEST_DESC_NEXT, 1};
	good[1] = (struct guest_desc){t->gpa + 4096, 4096, GUEST_DESC_WRITE, 0};
	g_assert_cmpint(raw_chain(t->r, 1, good, 2), ==,
			sizeof(struct fuse_out_header) + sizeof(struct fuse_attr_out));
	g_assert_cmpint(reply_error(t), ==, 0);
	return got;
}

#define NEXT GUEST_DESC_NEXT
#define WRITE GUEST_DESC_WRITE
#define INDIRECT GUEST_DESC_INDIRECT

static void test_chain_shapes(void)
{
	struct chain_test t;
	uint32_t len;
	uint64_t g;
	uint64_t end;

	chain_begin(&t);
	len = put_getattr(&t);
	g = t.gpa;
	end = GUEST_RAM_BASE + guest_mem_size(t.r->mem);
#define TRY(...)                                                                                   \
	do {                                                                                       \
		const struct guest_desc d_[] = {__VA_ARGS__};                                      \
		put_getattr(&t);                                                                   \
		try_chain(&t, d_, G_N_ELEMENTS(d_));                                               \
	} while (0)
	/* Too short, empty, one-sided, the wrong way round. */
	TRY({g, 39, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g, 0, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, 0, 0});
	TRY({g, 0, 0, 0});
	TRY({g + 4096, 4096, WRITE, 0});
	TRY({g + 4096, 4096, NEXT | WRITE, 1}, {g, len, 0, 0});
	TRY({g, len, NEXT, 1}, {g + 4096, 15, WRITE, 0});
	TRY({g, len, NEXT, 1}, {g + 4096, 17, WRITE, 0});
	TRY({g, len, NEXT, 1}, {g + 4096, 0, WRITE, 0});
	/* Nowhere, across the end, around the end of the world. */
	TRY({0x10, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT, 1}, {0x10, 4096, WRITE, 0});
	TRY({end - 8, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT, 1}, {end - 8, 4096, WRITE, 0});
	TRY({UINT64_MAX - 7, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT, 1}, {UINT64_MAX - 7, 4096, WRITE, 0});
	TRY({g, 0xffffffff, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT, 1}, {g + 4096, 0xffffffff, WRITE, 0});
	TRY({GUEST_WINDOW_BASE, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT, 1}, {GUEST_WINDOW_BASE + 4096, 4096, WRITE, 0});
	/* Loops and broken links. */
	TRY({g, len, NEXT, 0});
	TRY({g, len, NEXT, 1}, {g + 4096, 4096, WRITE | NEXT, 0});
	TRY({g, len, NEXT, 1}, {g + 4096, 4096, WRITE | NEXT, 1});
	TRY({g, len, NEXT, 0x4000}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT, 0xffff}, {g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT | 0xff00, 1}, {g + 4096, 4096, WRITE | 0xff00, 0});
#undef TRY
	chain_end(&t);
}

static void put_table(struct chain_test *t, const struct guest_desc *d, unsigned int n)
{
	put_getattr(t);
	memset(t->mem + 8192, 0, 65536);
	memcpy(t->mem + 8192, d, n * sizeof(*d));
}

static void test_indirect(void)
{
	struct chain_test t;
	uint32_t len;
	uint64_t g;

	chain_begin(&t);
	len = put_getattr(&t);
	g = t.gpa;
#define TABLE(...)                                                                                 \
	do {                                                                                       \
		const struct guest_desc d_[] = {__VA_ARGS__};                                      \
		put_table(&t, d_, G_N_ELEMENTS(d_));                                               \
	} while (0)
#define TRY(...)                                                                                   \
	do {                                                                                       \
		const struct guest_desc d_[] = {__VA_ARGS__};                                      \
		try_chain(&t, d_, G_N_ELEMENTS(d_));                                               \
	} while (0)
	TABLE({g, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 33, INDIRECT, 0});
	TABLE({g, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 15, INDIRECT, 0});
	TRY({g + 8192, 0, INDIRECT, 0});
	TRY({0x1000, 32, INDIRECT, 0});
	TRY({UINT64_MAX - 15, 32, INDIRECT, 0});
	TABLE({g, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 0xfffffff0, INDIRECT, 0});
	TABLE({g, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 32, INDIRECT | NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TABLE({g, len, NEXT, 1}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 32, INDIRECT | WRITE, 0});
	TABLE({g, len, NEXT, 2}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 32, INDIRECT, 0});
	TABLE({g, len, NEXT, 0}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 32, INDIRECT, 0});
	TABLE({g + 8192, 32, INDIRECT, 0}, {g + 4096, 4096, WRITE, 0});
	TRY({g + 8192, 32, INDIRECT, 0});
	TABLE({g, len, NEXT, 1}, {g + 8192, 32, INDIRECT | WRITE, 0});
	TRY({g + 8192, 32, INDIRECT, 0});
	/* As long as the table is: 4096 descriptors, each a byte. */
	for (unsigned int i = 0; i < 4096; i++) {
		struct guest_desc d = {g + 65536 + 8192 + i, 1, NEXT, (uint16_t)(i + 1)};

		memcpy(t.mem + 8192 + i * sizeof(d), &d, sizeof(d));
	}
	TRY({g + 8192, 65536, INDIRECT, 0});
	/* A good one behind a direct one. */
	TABLE({g + 4096, 4096, WRITE, 0});
	TRY({g, len, NEXT, 1}, {g + 8192, 16, INDIRECT, 0});
#undef TRY
#undef TABLE
	chain_end(&t);
}

/* Numbers in the avail ring that are no descriptors: nothing comes back, the queue goes on. */
static void test_heads(void)
{
	struct chain_test t;
	struct guest_desc d[2];
	uint32_t len;

	chain_begin(&t);
	len = put_getattr(&t);
	d[0] = (struct guest_desc){t.gpa, len, NEXT, 1};
	d[1] = (struct guest_desc){t.gpa + 4096, 4096, WRITE, 0};
	for (unsigned int i = 0; i < 20; i++) {
		guest_ring_raw_head(guest_frontend_ring(t.r->fe, 1), (uint16_t)(1000 + i * 3000));
		try_chain(&t, d, 2);
	}
	chain_end(&t);
}

/* Lengths in the header that are not those of the chain, and opcodes that do not exist. */
static void test_headers(void)
{
	struct chain_test t;
	static const uint32_t opcodes[] = {0,  7,  19,	 51,	52,	    53,
					   60, 99, 4096, 65536, 0x80000000, 0xffffffff};
	uint32_t len;
	struct guest_desc d[2];

	chain_begin(&t);
	len = put_getattr(&t);
	d[0] = (struct guest_desc){t.gpa, len, NEXT, 1};
	d[1] = (struct guest_desc){t.gpa + 4096, 4096, WRITE, 0};
	for (unsigned int i = 0; i < G_N_ELEMENTS(opcodes); i++) {
		put_getattr(&t);
		memcpy(t.mem + 4, &opcodes[i], 4);
		g_assert_cmpint(raw_chain(t.r, 1, d, 2), ==, sizeof(struct fuse_out_header));
		g_assert_cmpint(reply_error(&t), <, 0);
	}
	for (unsigned int i = 0; i < 6; i++) {
		const uint32_t lens[] = {0, 39, len - 1, len + 1, 0x7fffffff, 0xffffffff};

		put_getattr(&t);
		memcpy(t.mem, &lens[i], 4);
		g_assert_cmpint(raw_chain(t.r, 1, d, 2), ==, sizeof(struct fuse_out_header));
		g_assert_cmpint(reply_error(&t), <, 0);
		try_chain(&t, d, 2);
	}
	chain_end(&t);
}

/* Data where no memory is: EFAULT, and not a byte of the file changed. */
static void test_data_nowhere(void)
{
	struct chain_test t;
	struct fuse_in_header h = {.opcode = FUSE_READ, .unique = 5};
	struct fuse_read_in in = {.size = 4096};
	struct guest_desc d[3];
	struct fuse_attr a;

	chain_begin(&t);
	raw_make_file(t.r, "f", 8192, 1);
	h.nodeid = raw_node(t.r, "f");
	raw_assert_ok(guest_fuse_open(t.r->fuse, h.nodeid, O_RDWR, &in.fh));
	h.len = sizeof(h) + sizeof(in);
	memcpy(t.mem, &h, sizeof(h));
	memcpy(t.mem + sizeof(h), &in, sizeof(in));
	d[0] = (struct guest_desc){t.gpa, h.len, NEXT, 1};
	d[1] = (struct guest_desc){t.gpa + 4096, 16, NEXT | WRITE, 2};
	d[2] = (struct guest_desc){0x1000, 4096, WRITE, 0};
	g_assert_cmpint(raw_chain(t.r, 1, d, 3), ==, 16);
	g_assert_cmpint(reply_error(&t), ==, -EFAULT);
	h.opcode = FUSE_WRITE;
	h.len = sizeof(h) + sizeof(struct fuse_write_in) + 4096;
	memcpy(t.mem, &h, sizeof(h));
	d[0] = (struct guest_desc){t.gpa, sizeof(h) + sizeof(struct fuse_write_in), NEXT, 1};
	d[1] = (struct guest_desc){0x1000, 4096, NEXT, 2};
	d[2] = (struct guest_desc){t.gpa + 4096, 24, WRITE, 0};
	g_assert_cmpint(raw_chain(t.r, 1, d, 3), ==, 16);
	g_assert_cmpint(reply_error(&t), ==, -EFAULT);
	raw_assert_ok(guest_fuse_getattr(t.r->fuse, h.nodeid, &a));
	g_assert_cmpuint(a.size, ==, 8192);
	g_assert_cmpint(guest_fuse_read(t.r->fuse, h.nodeid, in.fh, 0, t.mem, 8192), ==, 8192);
	g_assert_true(raw_check_bytes(t.mem, 0, 8192, 1));
	chain_end(&t);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/refusals/names", test_names);
	g_test_add_func("/refusals/name-bytes", test_name_bytes);
	g_test_add_func("/refusals/special-files", test_special_files);
	g_test_add_func("/refusals/bad-handles", test_bad_handles);
	g_test_add_func("/refusals/readonly", test_readonly);
	g_test_add_func("/refusals/chain-shapes", test_chain_shapes);
	g_test_add_func("/refusals/indirect", test_indirect);
	g_test_add_func("/refusals/heads", test_heads);
	g_test_add_func("/refusals/headers", test_headers);
	g_test_add_func("/refusals/data-nowhere", test_data_nowhere);
	return g_test_run();
}
