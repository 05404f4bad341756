// SPDX-License-Identifier: Apache-2.0
/* Mappings: what is refused, who waits where, and buffers that lie in the window. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse_rig.h"

#define ROOT FUSE_ROOT_ID
#define R FUSE_SETUPMAPPING_FLAG_READ
#define RW (FUSE_SETUPMAPPING_FLAG_READ | FUSE_SETUPMAPPING_FLAG_WRITE)

static void inline_only(struct fuse_config *cfg)
{
	cfg->pool_size = 0;
}

static void readonly(struct fuse_config *cfg)
{
	cfg->readonly = true;
}

static void truncate_to(struct rig *g, const char *name, off_t size)
{
	g_autofree char *path = g_build_filename(g->dir, name, NULL);

	g_assert_cmpint(truncate(path, size), ==, 0);
}

/* A file of @slots slots, each page filled with the number it has in the file. */
static uint64_t make_file(struct rig *g, const char *name, unsigned int slots, uint64_t *fh)
{
	g_autofree char *path = g_build_filename(g->dir, name, NULL);
	uint64_t node;
	int fd;

	g_assert_cmpint(rig_create(g, ROOT, name, &node, fh), ==, 0);
	truncate_to(g, name, (off_t)(slots * RIG_SLOT));
	fd = open(path, O_WRONLY | O_CLOEXEC);
	for (uint64_t off = 0; off < slots * RIG_SLOT; off += 4096) {
		uint64_t page[512];

		for (int i = 0; i < 512; i++)
			page[i] = off / 4096 + 1;
		g_assert_cmpint(pwrite(fd, page, sizeof(page), (off_t)off), ==, sizeof(page));
	}
	close(fd);
	return node;
}

static int setup(struct rig *g, uint64_t node, struct fuse_setupmapping_in in)
{
	return rig_call(g, FUSE_SETUPMAPPING, node, &in, sizeof(in), NULL, 0, NULL, 0);
}

static void test_setup_and_remove(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_setupmapping_in in = {.len = RIG_SLOT, .flags = RW};
	struct dm_stats st;
	uint64_t node, fh;

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 4, &fh);
	g_assert_cmpint(rig_setup(g, node, 0, 0, R), ==, 0);
	g_assert_cmpint(rig_setup(g, node, 0, 0, RW), ==, 0); /* upgrade */
	in.fh = fh;
	in.foffset = in.moffset = RIG_SLOT;
	g_assert_cmpint(setup(g, 0, in), ==, 0); /* by handle, no node */
	g_assert_cmpint(rig_remove(g, 0, RIG_SLOT), ==, 0);
	g_assert_cmpint(rig_remove(g, 0, RIG_SLOT), ==, 0); /* of nothing */
	g_assert_cmpint(rig_remove(g, 0, UINT64_MAX), ==, 0);
	dm_table_stats(g->table, &st);
	g_assert_cmpuint(st.live, ==, 0);
	g_assert_cmpuint(rig_count(g, "setupmapping"), ==, 3);
	g_assert_cmpint(rig_setup(g, node, 0, 0, R), ==, 0);
	g_assert_cmpint(rig_destroy(g), ==, 0);
	dm_table_stats(g->table, &st);
	g_assert_cmpuint(st.mapped, ==, 0);
	g_assert_cmpuint(st.files_open, ==, 0);
	rig_free(g);
}

static void test_impossible_setups(void)
{
	struct rig *g = rig_new(NULL);
	uint64_t node, fh;
	const struct fuse_setupmapping_in bad[] = {
		{.fh = UINT64_MAX, .len = 0, .flags = R},
		{.fh = UINT64_MAX, .len = 4095, .flags = R},
		{.fh = UINT64_MAX, .len = RIG_SLOT, .foffset = 1, .flags = R},
		{.fh = UINT64_MAX, .len = RIG_SLOT, .moffset = 512, .flags = R},
		{.fh = UINT64_MAX, .len = RIG_SLOT, .flags = 4},
		{.fh = UINT64_MAX, .len = RIG_SLOT, .moffset = RIG_WINDOW, .flags = R},
		{.fh = UINT64_MAX, .len = RIG_WINDOW, .moffset = 4096, .flags = R},
		{.fh = UINT64_MAX, .len = RIG_SLOT, .moffset = -RIG_SLOT, .flags = R},
		{.fh = UINT64_MAX, .len = -4096ull, .moffset = 8192, .flags = R},
		{.fh = UINT64_MAX, .len = RIG_SLOT, .foffset = -RIG_SLOT, .flags = R},
		{.fh = UINT64_MAX, .len = RIG_SLOT, .foffset = INT64_MAX & ~4095ull, .flags = R},
	};

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 1, &fh);
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
		g_assert_cmpint(setup(g, node, bad[i]), ==, -EINVAL);
	g_assert_cmpint(setup(g, node, (struct fuse_setupmapping_in){.fh = 4711, .len = 4096}), ==,
			-EBADF);
	g_assert_cmpint(rig_setup(g, 4711, 0, 0, R), <, 0);
	g_assert_cmpint(rig_setup(g, ROOT, 0, 0, R), <, 0);
	g_assert_true(rig_saw_warning("*mapping refused*"));
	g_assert_cmpuint(g->window.maps, ==, 0);
	g->window.fail = -EIO;
	g_assert_cmpint(rig_setup(g, node, 0, 0, R), ==, -EIO);
	g->window.fail = 0;
	g_assert_cmpint(rig_setup(g, node, 0, 0, R), ==, 0);
	rig_free(g);

	g = rig_new(readonly);
	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 1, &fh);
	g_assert_cmpint(rig_setup(g, node, 0, 0, RW), ==, -EROFS);
	g_assert_cmpint(rig_setup(g, node, 0, 0, R), ==, 0);
	rig_free(g);
}

static void test_remove_many(void)
{
	struct rig *g = rig_new(NULL);
	struct {
		struct fuse_removemapping_in head;
		struct fuse_removemapping_one one[3];
	} __attribute__((packed)) in = {
		.head = {.count = 3},
		.one = {{0, RIG_SLOT}, {1, 1}, {RIG_SLOT, RIG_SLOT}},
	};
	struct dm_stats st;
	uint64_t node, fh;

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 2, &fh);
	g_assert_cmpint(rig_setup(g, node, 0, 0, R), ==, 0);
	g_assert_cmpint(rig_setup(g, node, RIG_SLOT, RIG_SLOT, R), ==, 0);
	/* The bad one is the answer, the others are gone all the same. */
	g_assert_cmpint(rig_call(g, FUSE_REMOVEMAPPING, 0, &in, sizeof(in), NULL, 0, NULL, 0), ==,
			-EINVAL);
	dm_table_stats(g->table, &st);
	g_assert_cmpuint(st.live, ==, 0);
	in.head.count = 4;
	g_assert_cmpint(rig_call(g, FUSE_REMOVEMAPPING, 0, &in, sizeof(in), NULL, 0, NULL, 0), ==,
			-EINVAL);
	in.head.count = UINT32_MAX;
	g_assert_cmpint(rig_call(g, FUSE_REMOVEMAPPING, 0, &in, sizeof(in), NULL, 0, NULL, 0), ==,
			-EINVAL);
	in.head.count = 0;
	g_assert_cmpint(rig_call(g, FUSE_REMOVEMAPPING, 0, &in, sizeof(in), NULL, 0, NULL, 0), ==,
			0);
	rig_free(g);
}

static void hold_maps(struct rig *g, bool hold)
{
	util_mutex_lock(&g->window.m);
	g->window.hold = hold;
	util_cond_broadcast(&g->window.c);
	util_mutex_unlock(&g->window.m);
}

static void wait_until_parked(struct rig_req *q)
{
	util_mutex_lock(&q->m);
	while (!q->parked)
		util_cond_wait(&q->c, &q->m);
	util_mutex_unlock(&q->m);
}

/* While the VMM does not answer: mappings are parked, everything else goes on, DESTROY waits. */
static void check_slow_vmm(void (*adjust)(struct fuse_config *))
{
	struct rig *g = rig_new(adjust);
	struct fuse_entry_out e;
	struct rig_req *maps[40], *destroy, *late;
	uint64_t node, fh;
	char byte;

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 1, &fh);
	hold_maps(g, true);
	for (uint64_t i = 0; i < G_N_ELEMENTS(maps); i++) {
		struct fuse_setupmapping_in in = {
			.fh = UINT64_MAX, .len = 4096, .foffset = i * 8192, .moffset = i * 8192};

		maps[i] = rig_prepare(g, FUSE_SETUPMAPPING, node, &in, sizeof(in), NULL, 0, 16);
		rig_send(maps[i], 1);
		g_assert_true(maps[i]->parked);
	}
	util_mutex_lock(&g->window.m);
	while (!g->window.waiting)
		util_cond_wait(&g->window.c, &g->window.m);
	util_mutex_unlock(&g->window.m);
	g_assert_cmpint(rig_lookup(g, ROOT, "f", &e), ==, 0);
	g_assert_cmpint(rig_lookup(g, ROOT, "none", &e), ==, -ENOENT);
	g_assert_cmpint(rig_write(g, node, fh, 5, "z", 1), ==, 1);
	g_assert_cmpint(rig_read(g, node, fh, 5, &byte, 1), ==, 1);
	destroy = rig_prepare(g, FUSE_DESTROY, 0, NULL, 0, NULL, 0, 16);
	rig_send(destroy, 1);
	wait_until_parked(destroy);
	/* DESTROY has come, so this is held or, if its thread is late, still served; either way
	 * nothing blocks this thread. */
	late = rig_prepare(g, FUSE_STATFS, ROOT, NULL, 0, NULL, 0, 256);
	rig_send(late, 2);
	g_assert_false(rig_is_done(destroy));
	hold_maps(g, false);
	for (size_t i = 0; i < G_N_ELEMENTS(maps); i++) {
		g_assert_cmpint(rig_wait(maps[i]), ==, 0);
		g_assert_cmpuint(maps[i]->parks, ==, 1);
		rig_req_free(maps[i]);
	}
	g_assert_cmpint(rig_wait(destroy), ==, 0);
	rig_wait(late);
	rig_req_free(destroy);
	rig_req_free(late);
	rig_free(g);
}

static void test_slow_vmm(void)
{
	check_slow_vmm(NULL);
	check_slow_vmm(inline_only);
}

static void test_attr_dax_everywhere(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_init_out init;
	struct fuse_link_in link_in;
	struct fuse_getattr_in getattr_in = {0};
	struct fuse_mkdir_in mkdir_in = {.mode = 0755};
	struct fuse_setattr_in set = {.valid = FATTR_MODE, .mode = 0600};
	struct fuse_attr_out a;
	struct fuse_entry_out e;
	uint64_t node, fh, odd;

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 1, &fh);
	g_assert_cmpint(rig_create(g, ROOT, "odd", &odd, &fh), ==, 0);
	truncate_to(g, "odd", 5000);
	g_assert_cmpint(rig_lookup(g, ROOT, "f", &e), ==, 0);
	g_assert_true(e.attr.flags & FUSE_ATTR_DAX);
	g_assert_cmpint(rig_lookup(g, ROOT, "odd", &e), ==, 0);
	g_assert_false(e.attr.flags & FUSE_ATTR_DAX);
	link_in.oldnodeid = node;
	g_assert_cmpint(
		rig_call(g, FUSE_LINK, ROOT, &link_in, sizeof(link_in), "l", 2, &e, sizeof(e)), ==,
		0);
	g_assert_true(e.attr.flags & FUSE_ATTR_DAX);
	g_assert_cmpint(
		rig_call(g, FUSE_MKDIR, ROOT, &mkdir_in, sizeof(mkdir_in), "d", 2, &e, sizeof(e)),
		==, 0);
	g_assert_false(e.attr.flags & FUSE_ATTR_DAX);
	g_assert_cmpint(rig_call(g, FUSE_GETATTR, node, &getattr_in, sizeof(getattr_in), NULL, 0,
				 &a, sizeof(a)),
			==, 0);
	g_assert_true(a.attr.flags & FUSE_ATTR_DAX);
	g_assert_cmpint(rig_call(g, FUSE_SETATTR, node, &set, sizeof(set), NULL, 0, &a, sizeof(a)),
			==, 0);
	g_assert_true(a.attr.flags & FUSE_ATTR_DAX);
	/* A guest that knows no DAX is not told. */
	g_assert_cmpint(
		rig_init_flags(g, UINT64_MAX & ~(FUSE_HAS_INODE_DAX | FUSE_MAP_ALIGNMENT), &init),
		==, 0);
	g_assert_cmpint(rig_lookup(g, ROOT, "f", &e), ==, 0);
	g_assert_false(e.attr.flags & FUSE_ATTR_DAX);
	g_assert_cmpint(rig_setup(g, e.nodeid, 0, 0, R), ==, -ENOSYS);
	rig_free(g);
}

/* Puts segment @seg of @v into the window at @offset. */
static void to_window(struct util_gvec *v, unsigned int seg, uint64_t offset)
{
	if (!v->window) {
		v->window = g_new(uint64_t, v->n);
		for (unsigned int i = 0; i < v->n; i++)
			v->window[i] = UTIL_GVEC_RAM;
	}
	v->window[seg] = offset;
	v->iov[seg].iov_base = NULL;
}

static struct rig_req *window_read(struct rig *g, uint64_t node, uint64_t fh, uint64_t off,
				   size_t n, uint64_t at)
{
	struct fuse_read_in in = {.fh = fh, .offset = off, .size = (uint32_t)n};
	struct rig_req *q = rig_prepare(g, FUSE_READ, node, &in, sizeof(in), NULL, 0, 16 + n);

	q->r.in.n = 2;
	q->r.in.iov = g_renew(struct iovec, q->r.in.iov, 2);
	q->r.in.iov[0].iov_len = 16;
	q->r.in.iov[1] = (struct iovec){.iov_len = n};
	to_window(&q->r.in, 1, at);
	rig_send(q, 1);
	return q;
}

static struct rig_req *window_write(struct rig *g, uint64_t node, uint64_t fh, uint64_t off,
				    size_t n, uint64_t at)
{
	struct fuse_write_in in = {.fh = fh, .offset = off, .size = (uint32_t)n};
	g_autofree char *dummy = g_malloc0(n);
	struct rig_req *q = rig_prepare(g, FUSE_WRITE, node, &in, sizeof(in), dummy, n, 64);
	size_t head = sizeof(struct fuse_in_header) + sizeof(in);

	q->r.out.n = 2;
	q->r.out.iov = g_renew(struct iovec, q->r.out.iov, 2);
	q->r.out.iov[0].iov_len = head;
	q->r.out.iov[1] = (struct iovec){.iov_len = n};
	to_window(&q->r.out, 1, at);
	rig_send(q, 1);
	return q;
}

static uint64_t word(struct rig *g, const char *name, uint64_t off)
{
	g_autofree char *path = g_build_filename(g->dir, name, NULL);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t w = 0;

	g_assert_cmpint(pread(fd, &w, sizeof(w), (off_t)off), ==, sizeof(w));
	close(fd);
	return w;
}

static void check_window_buffers(void (*adjust)(struct fuse_config *))
{
	struct rig *g = rig_new(adjust);
	uint64_t a, b, fha, fhb;
	struct dm_stats st;
	struct rig_req *q;

	g_assert_cmpint(rig_init(g), ==, 0);
	a = make_file(g, "a", 2, &fha);
	b = make_file(g, "b", 2, &fhb);
	/* b's first slot at 4M, its second right behind. */
	g_assert_cmpint(rig_setup(g, b, 0, 2 * RIG_SLOT, RW), ==, 0);
	g_assert_cmpint(rig_setup(g, b, RIG_SLOT, 3 * RIG_SLOT, RW), ==, 0);

	/* READ page 7..8 of a into b, over the border of its two ranges. */
	q = window_read(g, a, fha, 7 * 4096, 8192, 3 * RIG_SLOT - 4096);
	g_assert_cmpint(rig_wait(q), ==, 0);
	g_assert_cmpuint(q->payload_len, ==, 8192);
	rig_req_free(q);
	g_assert_cmpuint(word(g, "b", RIG_SLOT - 4096), ==, 8);
	g_assert_cmpuint(word(g, "b", RIG_SLOT), ==, 9);
	g_assert_cmpuint(word(g, "b", RIG_SLOT + 4096), ==, RIG_SLOT / 4096 + 2);

	/* WRITE to a from b, unaligned. */
	q = window_write(g, a, fha, 16, 64, 2 * RIG_SLOT + 3 * 4096 + 8);
	g_assert_cmpint(rig_wait(q), ==, 0);
	rig_req_free(q);
	g_assert_cmpuint(word(g, "a", 8), ==, 1);
	g_assert_cmpuint(word(g, "a", 16), ==, 4);
	g_assert_cmpuint(word(g, "a", 72), ==, 4);
	g_assert_cmpuint(word(g, "a", 80), ==, 1);

	/* Nothing there; partly nothing; given back. */
	q = window_read(g, a, fha, 0, 4096, 0);
	g_assert_cmpint(rig_wait(q), ==, -EFAULT);
	rig_req_free(q);
	q = window_write(g, a, fha, 0, 8192, 4 * RIG_SLOT - 4096);
	g_assert_cmpint(rig_wait(q), ==, -EFAULT);
	rig_req_free(q);
	q = window_read(g, a, fha, 0, 4096, UINT64_MAX - 8);
	g_assert_cmpint(rig_wait(q), ==, -EFAULT);
	rig_req_free(q);
	g_assert_cmpint(rig_remove(g, 2 * RIG_SLOT, RIG_SLOT), ==, 0);
	q = window_read(g, a, fha, 0, 4096, 2 * RIG_SLOT);
	g_assert_cmpint(rig_wait(q), ==, -EFAULT);
	rig_req_free(q);

	/* The file has shrunk below the mapping: an error, and the daemon lives. */
	truncate_to(g, "b", 4096);
	q = window_read(g, a, fha, 0, 4096, 3 * RIG_SLOT);
	g_assert_cmpint(rig_wait(q), ==, -EFAULT);
	rig_req_free(q);
	dm_table_stats(g->table, &st);
	g_assert_cmpuint(st.pins, >=, 4);
	g_assert_cmpint(rig_destroy(g), ==, 0); /* waits for pins: none is left */
	rig_free(g);
}

static void test_window_buffers(void)
{
	check_window_buffers(NULL);
	check_window_buffers(inline_only);
}

/* Header or names in the window: an error, or nothing where not even that can be said. */
static void test_window_headers(void)
{
	struct rig *g = rig_new(NULL);
	struct rig_req *q;
	uint64_t node, fh;

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 1, &fh);
	g_assert_cmpint(rig_setup(g, node, 0, 0, RW), ==, 0);
	q = rig_prepare(g, FUSE_STATFS, ROOT, NULL, 0, NULL, 0, 256);
	to_window(&q->r.out, 0, 0);
	rig_send(q, 1);
	util_mutex_lock(&q->m);
	g_assert_cmpuint(q->len, ==, 16);
	g_assert_cmpint(((struct fuse_out_header *)(void *)q->in)->error, ==, -EFAULT);
	util_mutex_unlock(&q->m);
	rig_req_free(q);
	q = rig_prepare(g, FUSE_STATFS, ROOT, NULL, 0, NULL, 0, 256);
	to_window(&q->r.in, 0, 0);
	rig_send(q, 1);
	rig_wait(q);
	g_assert_cmpuint(q->len, ==, 0);
	rig_req_free(q);
	rig_free(g);
}

/* An unlinked, forgotten file leaves the table by itself. */
static void test_unlinked_file_is_dropped(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_forget_in forget = {.nlookup = 1};
	struct fuse_release_in rel = {0};
	struct dm_stats st;
	uint64_t node;

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 1, &rel.fh);
	g_assert_cmpint(rig_setup(g, node, 0, 0, RW), ==, 0);
	g_assert_cmpint(rig_remove(g, 0, RIG_SLOT), ==, 0);
	g_assert_cmpint(rig_call(g, FUSE_UNLINK, ROOT, NULL, 0, "f", 2, NULL, 0), ==, 0);
	g_assert_cmpint(rig_call(g, FUSE_RELEASE, node, &rel, sizeof(rel), NULL, 0, NULL, 0), ==,
			0);
	rig_call(g, FUSE_FORGET, node, &forget, sizeof(forget), NULL, 0, NULL, 0);
	do {
		g_thread_yield();
		dm_table_stats(g->table, &st);
	} while (st.files_open);
	g_assert_cmpuint(st.mapped, ==, 0);
	rig_free(g);
}

static gpointer set_tables(gpointer data)
{
	struct rig *g = data;

	for (int i = 0; i < 300; i++) {
		fuse_session_set_table(g->s, NULL);
		fuse_session_set_table(g->s, g->table);
	}
	return NULL;
}

/* A table that is taken away is not used any more when set_table() returns. */
static void test_table_comes_and_goes(void)
{
	struct rig *g = rig_new(NULL);
	uint64_t node, fh;
	GThread *t;

	g_assert_cmpint(rig_init(g), ==, 0);
	node = make_file(g, "f", 1, &fh);
	t = g_thread_new("set-table", set_tables, g);
	for (uint64_t i = 0; i < 300; i++) {
		int err = rig_setup(g, node, 0, i % 8 * RIG_SLOT, RW);

		g_assert_true(err == 0 || err == -EIO);
		err = rig_remove(g, i % 8 * RIG_SLOT, RIG_SLOT);
		g_assert_true(err == 0 || err == -EIO);
	}
	g_thread_join(t);
	rig_free(g);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/dax/setup-remove", test_setup_and_remove);
	g_test_add_func("/fuse/dax/impossible", test_impossible_setups);
	g_test_add_func("/fuse/dax/remove-many", test_remove_many);
	g_test_add_func("/fuse/dax/slow-vmm", test_slow_vmm);
	g_test_add_func("/fuse/dax/attr", test_attr_dax_everywhere);
	g_test_add_func("/fuse/dax/window-buffers", test_window_buffers);
	g_test_add_func("/fuse/dax/window-headers", test_window_headers);
	g_test_add_func("/fuse/dax/unlinked", test_unlinked_file_is_dropped);
	g_test_add_func("/fuse/dax/set-table", test_table_comes_and_goes);
	return g_test_run();
}
