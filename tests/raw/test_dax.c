// SPDX-License-Identifier: Apache-2.0
/*
 * DAX against a VMM that is strict to the letter. Two checks run in every test: no rule of the
 * window may be broken (raw_leave()), and no SETUPMAPPING may be answered before its mapping is
 * committed (guest_req.c). Where nothing is mapped, touching the window kills the test.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raw_util.h"
#include "util_lock.h"

#define MAP_R FUSE_SETUPMAPPING_FLAG_READ
#define MAP_RW (FUSE_SETUPMAPPING_FLAG_READ | FUSE_SETUPMAPPING_FLAG_WRITE)
#define WINDOW (64ull << 20)
#define SLOTS (WINDOW / RAW_SLOT)

static struct raw *start(const struct guest_config *c, const char *args)
{
	struct raw *r = raw_start(args);

	raw_connect(r, c);
	g_assert_nonnull(guest_window_base(r->window));
	g_assert_cmpuint(guest_window_size(r->window), ==, WINDOW);
	return r;
}

static uint8_t *at(struct raw *r, uint64_t moffset)
{
	return (uint8_t *)guest_window_base(r->window) + moffset;
}

static int setup(struct raw *r, uint64_t node, uint64_t slot, uint64_t mslot, uint64_t flags)
{
	return guest_fuse_setupmapping(r->fuse, node, slot * RAW_SLOT, RAW_SLOT, flags,
				       mslot * RAW_SLOT);
}

static unsigned int live(struct raw *r)
{
	return guest_window_list(r->window, NULL, 0);
}

static struct guest_window_stats window_stats(struct raw *r)
{
	struct guest_window_stats st;

	guest_window_stats(r->window, &st);
	return st;
}

/* Maps, looks at every byte, writes through both sides. */
static void check_data(struct raw *r)
{
	uint8_t *buf = guest_mem_alloc(r->mem, 4096);
	char *path = raw_path(r, "f");
	uint64_t node;
	uint64_t fh;
	int fd;

	raw_make_file(r, "f", 3 * RAW_SLOT, 11);
	node = raw_node(r, "f");
	fd = open(path, O_RDWR | O_CLOEXEC);
	for (unsigned int i = 0; i < 3; i++) {
		raw_assert_ok(setup(r, node, i, 17 - 5 * i, MAP_RW));
		g_assert_true(raw_check_bytes(at(r, (17 - 5 * i) * RAW_SLOT), i * RAW_SLOT,
					      RAW_SLOT, 11));
	}
	g_assert_cmpuint(live(r), ==, 3);
	/* The host writes, the guest sees. */
	g_assert_cmpint(pwrite(fd, "from the host", 13, RAW_SLOT + 77), ==, 13);
	g_assert_cmpmem(at(r, 12 * RAW_SLOT + 77), 13, "from the host", 13);
	/* The guest writes, the host sees, and so does a FUSE_READ. */
	memcpy(at(r, 7 * RAW_SLOT + 4090), "from the guest", 14);
	g_assert_cmpint(pread(fd, buf, 14, 2 * RAW_SLOT + 4090), ==, 14);
	g_assert_cmpmem(buf, 14, "from the guest", 14);
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY, &fh));
	g_assert_cmpint(guest_fuse_read(r->fuse, node, fh, 2 * RAW_SLOT + 4090, buf, 14), ==, 14);
	g_assert_cmpmem(buf, 14, "from the guest", 14);
	raw_assert_ok(guest_fuse_removemapping(r->fuse, node, 17 * RAW_SLOT, RAW_SLOT));
	close(fd);
	g_free(path);
	guest_mem_release(r->mem, buf, 4096);
}

static void test_data(void)
{
	static const struct {
		const char *args;
		uint64_t hide;
	} modes[] = {
		{"--shmem-slots refuse", 0},
		{"--shmem-slots ack", 0},
		{NULL, GUEST_PF_CONFIGURE_MEM_SLOTS},
	};

	for (unsigned int i = 0; i < G_N_ELEMENTS(modes); i++) {
		struct guest_config c = {
			.window = {.mode = GUEST_WINDOW_STRICT, .commit_delay_us = 2000},
			.hide_protocol = modes[i].hide,
		};
		struct raw *r = start(&c, modes[i].args);

		g_test_message("mode %u", i);
		check_data(r);
		raw_stop(r);
	}
}

/* While a commit is held back nobody may answer the map, and everything else must go on. */
static void check_barrier(struct raw *r)
{
	struct guest_req *q = guest_req_get(r->fuse);
	struct guest_fs_config cfg;
	struct fuse_attr a;
	int fd = memfd_create("more", MFD_CLOEXEC);
	uint64_t node;
	int err;

	raw_make_file(r, "f", 4 * RAW_SLOT, 2);
	node = raw_node(r, "f");
	/* One is mapped already: with refused regions it is the one announced again. */
	raw_assert_ok(setup(r, node, 0, 3, MAP_R));
	g_assert_true(guest_window_wait_idle(r->window, RAW_TIMEOUT));
	g_assert_cmpint(ftruncate(fd, 1 << 20), ==, 0);
	for (unsigned int i = 1; i < 4; i++) {
		guest_window_hold(r->window, true);
		guest_prep_setupmapping(q, node, i * RAW_SLOT, RAW_SLOT, MAP_RW, 9 * i * RAW_SLOT);
		raw_assert_ok(guest_req_submit(q));
		g_assert_true(guest_window_wait_pending(r->window, 1, RAW_TIMEOUT));
		for (unsigned int j = 0; j < 20; j++) {
			raw_assert_ok(guest_frontend_get_config(r->fe, 0, &cfg, sizeof(cfg)));
			raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
		}
		err = guest_frontend_add_mem(r->fe, 1ull << 34, 1 << 20, NULL, fd, 0);
		if (err != -EOPNOTSUPP)
			guest_frontend_rem_mem(r->fe, 1ull << 34, 1 << 20, NULL);
		g_assert_false(guest_req_finished(q));
		g_assert_false(guest_window_mapped(r->window, 9 * i * RAW_SLOT, 1));
		guest_window_hold(r->window, false);
		raw_assert_ok(guest_req_wait_for(q, RAW_TIMEOUT));
		g_assert_true(raw_check_bytes(at(r, 9 * i * RAW_SLOT), i * RAW_SLOT, RAW_SLOT, 2));
	}
	guest_req_put(q);
	close(fd);
}

static void test_barrier_refuse(void)
{
	struct raw *r = start(NULL, "--shmem-slots refuse");

	check_barrier(r);
	raw_stop(r);
}

static void test_barrier_ack(void)
{
	struct raw *r = start(NULL, "--shmem-slots ack");

	check_barrier(r);
	g_assert_cmpuint(window_stats(r).added, >=, 4);
	raw_stop(r);
}

static void test_barrier_table(void)
{
	struct guest_config c = {
		.window.mode = GUEST_WINDOW_STRICT,
		.hide_protocol = GUEST_PF_CONFIGURE_MEM_SLOTS,
	};
	struct raw *r = start(&c, NULL);

	check_barrier(r);
	raw_stop(r);
}

/* A table of memory while a map is pending. */
static void test_mem_table_while_pending(void)
{
	struct guest_config c = {
		.window.mode = GUEST_WINDOW_STRICT,
		.hide_protocol = GUEST_PF_CONFIGURE_MEM_SLOTS,
	};
	struct raw *r = start(&c, NULL);
	struct guest_req *q = guest_req_get(r->fuse);
	struct guest_msg_table t = {.nregions = 1};
	struct guest_msg m;
	struct fuse_attr a;
	uint64_t node;
	int fd;

	raw_make_file(r, "f", RAW_SLOT, 2);
	node = raw_node(r, "f");
	guest_window_hold(r->window, true);
	guest_prep_setupmapping(q, node, 0, RAW_SLOT, MAP_RW, 0);
	raw_assert_ok(guest_req_submit(q));
	g_assert_true(guest_window_wait_pending(r->window, 1, RAW_TIMEOUT));
	guest_mem_region(r->mem, &t.regions[0], &fd);
	for (unsigned int i = 0; i < 50; i++) {
		raw_assert_ok(guest_frontend_message(r->fe, GUEST_SET_MEM_TABLE,
						     GUEST_MSG_NEED_REPLY, &t,
						     8 + sizeof(t.regions[0]), &fd, 1, &m));
		g_assert_cmpuint(m.payload[0], ==, 0);
		raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	}
	g_assert_false(guest_req_finished(q));
	guest_window_hold(r->window, false);
	raw_assert_ok(guest_req_wait_for(q, RAW_TIMEOUT));
	guest_req_put(q);
	raw_stop(r);
}

static void test_upgrade(void)
{
	struct raw *r = start(NULL, NULL);
	uint64_t node;
	char c = 0;
	char *path = raw_path(r, "f");
	int fd;

	raw_make_file(r, "f", RAW_SLOT, 4);
	node = raw_node(r, "f");
	raw_assert_ok(setup(r, node, 0, 5, MAP_R));
	raw_assert_ok(setup(r, node, 0, 5, MAP_RW));
	raw_assert_ok(setup(r, node, 0, 5, MAP_RW));
	g_assert_cmpuint(window_stats(r).maps, ==, 1);
	g_assert_cmpuint(window_stats(r).unmaps, ==, 0);
	at(r, 5 * RAW_SLOT)[100] = 'u';
	fd = open(path, O_RDONLY | O_CLOEXEC);
	g_assert_cmpint(pread(fd, &c, 1, 100), ==, 1);
	g_assert_cmpint(c, ==, 'u');
	close(fd);
	g_free(path);
	raw_stop(r);
}

static void test_over_live(void)
{
	struct raw *r = start(NULL, NULL);
	uint64_t a;
	uint64_t b;

	raw_make_file(r, "a", 2 * RAW_SLOT, 1);
	raw_make_file(r, "b", 2 * RAW_SLOT, 2);
	a = raw_node(r, "a");
	b = raw_node(r, "b");
	raw_assert_ok(setup(r, a, 0, 5, MAP_RW));
	raw_assert_ok(setup(r, b, 1, 5, MAP_RW));
	g_assert_true(raw_check_bytes(at(r, 5 * RAW_SLOT), RAW_SLOT, RAW_SLOT, 2));
	raw_assert_ok(setup(r, a, 1, 5, MAP_R));
	g_assert_true(raw_check_bytes(at(r, 5 * RAW_SLOT), RAW_SLOT, RAW_SLOT, 1));
	/* Over two, whole. */
	raw_assert_ok(setup(r, b, 0, 6, MAP_R));
	raw_assert_ok(guest_fuse_setupmapping(r->fuse, b, 0, 2 * RAW_SLOT, MAP_RW, 5 * RAW_SLOT));
	g_assert_true(raw_check_bytes(at(r, 5 * RAW_SLOT), 0, 2 * RAW_SLOT, 2));
	raw_stop(r);
}

static void test_odd_setups(void)
{
	struct raw *r = start(NULL, "--dax-shim off");
	uint64_t node;
	uint64_t dir;
	uint64_t odd;
	char *path = raw_path(r, "d");

	mkdir(path, 0755);
	raw_make_file(r, "f", 2 * RAW_SLOT, 1);
	raw_make_file(r, "odd", RAW_SLOT + 5000, 1);
	raw_make_file(r, "empty", 0, 1);
	node = raw_node(r, "f");
	odd = raw_node(r, "odd");
	dir = raw_node(r, "d");
#define SETUP(n, off, len, fl, m) guest_fuse_setupmapping(r->fuse, n, off, len, fl, m)
	g_assert_cmpint(SETUP(node, 0, 0, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(node, 0, RAW_SLOT, MAP_R, 1), <, 0);
	g_assert_cmpint(SETUP(node, 1, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(node, 0, RAW_SLOT - 1, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(node, 0, RAW_SLOT, MAP_R, WINDOW), <, 0);
	g_assert_cmpint(SETUP(node, 0, RAW_SLOT, MAP_R, WINDOW - 4096), <, 0);
	g_assert_cmpint(SETUP(node, 0, RAW_SLOT, MAP_R, UINT64_MAX - 4095), <, 0);
	g_assert_cmpint(SETUP(node, UINT64_MAX - 4095, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(node, 0, UINT64_MAX - 4095, MAP_R, 4096), <, 0);
	g_assert_cmpint(SETUP(node, INT64_MAX - 4095, 8192, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(node, 2 * RAW_SLOT, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(node, RAW_SLOT, 2 * RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(node, 0, RAW_SLOT, 0xff00, 0), <, 0);
	g_assert_cmpint(SETUP(odd, RAW_SLOT, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(odd, RAW_SLOT, 8192, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(raw_node(r, "empty"), 0, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(dir, 0, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(1, 0, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(0x123456789, 0, RAW_SLOT, MAP_R, 0), <, 0);
	g_assert_cmpint(SETUP(0, 0, RAW_SLOT, MAP_R, 0), <, 0);
	/* Nothing was mapped, not even half of it. */
	g_assert_cmpuint(live(r), ==, 0);
	g_assert_cmpuint(window_stats(r).maps, ==, 0);
	/* Small and large ranges are fine, as is a file's odd tail but for its last page. */
	raw_assert_ok(SETUP(node, 4096, 4096, MAP_R, 3 * 4096));
	g_assert_true(raw_check_bytes(at(r, 3 * 4096), 4096, 4096, 1));
	raw_assert_ok(SETUP(node, 0, 2 * RAW_SLOT, MAP_RW, 4 * RAW_SLOT));
	g_assert_true(raw_check_bytes(at(r, 4 * RAW_SLOT), 0, 2 * RAW_SLOT, 1));
	raw_assert_ok(SETUP(odd, RAW_SLOT, 4096, MAP_R, 8 * RAW_SLOT));
	g_assert_true(raw_check_bytes(at(r, 8 * RAW_SLOT), RAW_SLOT, 4096, 1));
#undef SETUP
	g_free(path);
	raw_stop(r);
}

/* With the size shim, where there is one, a slot may reach beyond the end of its file. */
static void test_tail(void)
{
	struct raw *r = start(NULL, "--dax-shim auto");
	uint64_t node;

	raw_make_file(r, "odd", RAW_SLOT + 5000, 1);
	node = raw_node(r, "odd");
	if (setup(r, node, 1, 3, MAP_RW)) {
		g_assert_cmpuint(live(r), ==, 0);
		g_test_skip("no size shim here: the slot was refused whole");
	} else {
		g_assert_true(raw_check_bytes(at(r, 3 * RAW_SLOT), RAW_SLOT, 5000, 1));
		g_assert_cmpuint(at(r, 3 * RAW_SLOT)[5000], ==, 0);
		at(r, 3 * RAW_SLOT)[4999] = 'z';
		raw_assert_ok(guest_fuse_removemapping(r->fuse, node, 3 * RAW_SLOT, RAW_SLOT));
	}
	raw_stop(r);
}

static void test_odd_removes(void)
{
	struct raw *r = start(NULL, NULL);
	struct fuse_removemapping_one many[255];
	struct guest_req *q = guest_req_get(r->fuse);
	struct fuse_removemapping_in *in;
	uint64_t node;

	raw_make_file(r, "f", 2 * RAW_SLOT, 1);
	node = raw_node(r, "f");
#define REMOVE(m, len) guest_fuse_removemapping(r->fuse, node, m, len)
	/* Of nothing. */
	REMOVE(0, RAW_SLOT);
	REMOVE(0, WINDOW);
	REMOVE(0, UINT64_MAX);
	g_assert_cmpint(REMOVE(WINDOW, RAW_SLOT), <=, 0);
	g_assert_cmpint(REMOVE(UINT64_MAX - 4095, RAW_SLOT), <=, 0);
	g_assert_cmpint(REMOVE(4096, UINT64_MAX), <=, 0);
	g_assert_cmpint(REMOVE(0, 0), <=, 0);
	g_assert_cmpint(REMOVE(1, 5), <=, 0);
	/* Of a part: the rest stays readable. */
	raw_assert_ok(setup(r, node, 0, 2, MAP_R));
	g_assert_cmpint(REMOVE(2 * RAW_SLOT, 4096), <=, 0);
	g_assert_true(raw_check_bytes(at(r, 2 * RAW_SLOT + 4096), 4096, RAW_SLOT - 4096, 1));
	g_assert_cmpint(REMOVE(2 * RAW_SLOT + 8192, 4096), <=, 0);
	g_assert_true(raw_check_bytes(at(r, 2 * RAW_SLOT + 12288), 12288, RAW_SLOT - 12288, 1));
	/* The whole slot again, then used anew. */
	REMOVE(2 * RAW_SLOT, RAW_SLOT);
	raw_assert_ok(setup(r, node, 1, 2, MAP_RW));
	g_assert_true(raw_check_bytes(at(r, 2 * RAW_SLOT), RAW_SLOT, RAW_SLOT, 1));
	/* Many at once, most of them of nothing, some twice. */
	for (unsigned int i = 0; i < 255; i++)
		many[i] = (struct fuse_removemapping_one){(i % SLOTS) * RAW_SLOT, RAW_SLOT};
	g_assert_cmpint(guest_fuse_removemappings(r->fuse, node, many, 255), <=, 0);
	/* Across two mappings, and everything. */
	for (unsigned int i = 0; i < SLOTS; i++)
		raw_assert_ok(setup(r, node, i % 2, i, MAP_RW));
	raw_assert_ok(REMOVE(0, 2 * RAW_SLOT));
	REMOVE(RAW_SLOT, UINT64_MAX);
	REMOVE(0, UINT64_MAX);
	raw_assert_ok(REMOVE(0, WINDOW));
	if (raw_stat(r, "table.live") >= 0)
		g_assert_cmpint(raw_stat(r, "table.live"), ==, 0);
	/* A count that lies. */
	guest_req_start(q, FUSE_REMOVEMAPPING, node);
	in = guest_req_arg(q, sizeof(*in));
	in->count = 0xffffffff;
	g_assert_cmpint(guest_req_call(q), <, 0);
	guest_req_start(q, FUSE_REMOVEMAPPING, node);
	in = guest_req_arg(q, sizeof(*in));
	in->count = 2;
	guest_req_bytes(q, many, sizeof(many[0]));
	g_assert_cmpint(guest_req_call(q), <, 0);
#undef REMOVE
	guest_req_put(q);
	raw_stop(r);
}

static void test_budget(void)
{
	struct raw *r = start(NULL, NULL);
	unsigned int ok = 0;
	uint64_t node;

	raw_make_file(r, "f", RAW_SLOT, 1);
	node = raw_node(r, "f");
	for (unsigned int i = 0; i < 600; i++) {
		int err = guest_fuse_setupmapping(r->fuse, node, (i % 512) * 4096, 4096, MAP_R,
						  i * 8192);

		if (!err) {
			g_assert_true(raw_check_bytes(at(r, i * 8192), (i % 512) * 4096, 4096, 1));
			ok++;
			continue;
		}
		g_assert_cmpint(err, ==, -EIO);
	}
	g_assert_cmpuint(ok, ==, 480);
	/* Room comes back. */
	for (unsigned int i = 0; i < 10; i++)
		raw_assert_ok(guest_fuse_removemapping(r->fuse, node, i * 8192, 4096));
	for (unsigned int i = 0; i < 10; i++)
		raw_assert_ok(
			guest_fuse_setupmapping(r->fuse, node, 0, 4096, MAP_RW, (2000 + i) * 8192));
	g_assert_cmpuint(window_stats(r).peak, <=, 480);
	raw_stop(r);
}

static void test_destroy(void)
{
	struct raw *r = start(NULL, NULL);
	unsigned int fds = 0;
	unsigned int threads = 0;

	raw_make_file(r, "f", 4 * RAW_SLOT, 1);
	for (unsigned int round = 0; round < 3; round++) {
		uint64_t node = raw_node(r, "f");

		for (unsigned int i = 0; i < SLOTS; i++)
			raw_assert_ok(setup(r, node, i % 4, i, MAP_RW));
		raw_assert_ok(guest_fuse_removemapping(r->fuse, node, 0, RAW_SLOT));
		raw_assert_ok(guest_fuse_destroy(r->fuse));
		/* Asked for before the reply; the VMM commits the last a moment later. */
		g_assert_cmpuint(window_stats(r).live, <=, 1);
		g_assert_true(guest_window_wait_idle(r->window, RAW_TIMEOUT));
		g_assert_cmpuint(window_stats(r).live, ==, 0);
		if (raw_stat(r, "table.mapped") >= 0) {
			g_assert_cmpint(raw_stat(r, "table.mapped"), ==, 0);
			g_assert_cmpint(raw_stat(r, "table.files_open"), ==, 0);
			g_assert_cmpint(raw_stat(r, "fs.handles"), ==, 0);
			g_assert_cmpint(raw_stat(r, "fs.nodes"), <=, 1);
		}
		if (!round) {
			fds = raw_count_fds(r);
			threads = raw_count_threads(r);
		} else {
			g_assert_cmpuint(raw_wait_fds(r, fds), <=, fds);
			g_assert_cmpuint(raw_count_threads(r), <=, threads + 1);
		}
		raw_assert_ok(guest_fuse_init(r->fuse, 0, NULL));
	}
	raw_stop(r);
}

/* INIT again without DESTROY: a guest that crashed and came back. */
static void test_repeated_init(void)
{
	struct raw *r = start(NULL, NULL);
	uint64_t node;

	raw_make_file(r, "f", RAW_SLOT, 1);
	node = raw_node(r, "f");
	for (unsigned int i = 0; i < 5; i++)
		raw_assert_ok(setup(r, node, 0, i, MAP_RW));
	raw_assert_ok(guest_fuse_init(r->fuse, 0, NULL));
	g_assert_true(guest_window_wait_idle(r->window, RAW_TIMEOUT));
	g_assert_cmpuint(window_stats(r).live, ==, 0);
	node = raw_node(r, "f");
	raw_assert_ok(setup(r, node, 0, 3, MAP_RW));
	raw_stop(r);
}

/* A stopped device: requests wait in the ring, and nothing is said to the VMM. */
static void test_stop(void)
{
	struct raw *r = start(NULL, NULL);
	struct guest_req *q[3];
	struct guest_window_stats before;
	struct guest_fs_config cfg;
	uint64_t node;

	raw_make_file(r, "f", 4 * RAW_SLOT, 1);
	node = raw_node(r, "f");
	for (unsigned int i = 0; i < 3; i++)
		raw_assert_ok(setup(r, node, i, i, MAP_RW));
	raw_assert_ok(guest_fuse_removemapping(r->fuse, node, 2 * RAW_SLOT, RAW_SLOT));
	/* What was given back goes in the daemon's own time: have it over before we count. */
	while (window_stats(r).unmaps == 0)
		raw_assert_ok(guest_frontend_get_config(r->fe, 0, &cfg, sizeof(cfg)));
	raw_assert_ok(guest_frontend_stop(r->fe, NULL));
	before = window_stats(r);
	for (unsigned int i = 0; i < 3; i++)
		q[i] = guest_req_get(r->fuse);
	guest_prep_setupmapping(q[0], node, 3 * RAW_SLOT, RAW_SLOT, MAP_RW, 5 * RAW_SLOT);
	guest_prep_removemapping(q[1], node, &(struct fuse_removemapping_one){RAW_SLOT, RAW_SLOT},
				 1);
	guest_prep_getattr(q[2], node);
	for (unsigned int i = 0; i < 3; i++)
		raw_assert_ok(guest_req_submit(q[i]));
	for (unsigned int i = 0; i < 50; i++)
		raw_assert_ok(guest_frontend_get_config(r->fe, 0, &cfg, sizeof(cfg)));
	for (unsigned int i = 0; i < 3; i++)
		g_assert_false(guest_req_finished(q[i]));
	g_assert_cmpuint(window_stats(r).maps, ==, before.maps);
	g_assert_cmpuint(window_stats(r).unmaps, ==, before.unmaps);
	/* What is mapped stays mapped. */
	g_assert_true(raw_check_bytes(at(r, 0), 0, RAW_SLOT, 1));
	raw_assert_ok(guest_frontend_start(r->fe, NULL));
	for (unsigned int i = 0; i < 3; i++) {
		raw_assert_ok(guest_req_wait_for(q[i], RAW_TIMEOUT));
		guest_req_put(q[i]);
	}
	g_assert_true(raw_check_bytes(at(r, 5 * RAW_SLOT), 3 * RAW_SLOT, RAW_SLOT, 1));
	raw_stop(r);
}

/* stop and cont with maps under way. */
static void test_stop_storm(void)
{
	struct raw *r = start(NULL, NULL);
	GRand *rand = g_rand_new_with_seed(7);
	struct guest_req *q[8];
	uint64_t node;

	raw_make_file(r, "f", 4 * RAW_SLOT, 1);
	node = raw_node(r, "f");
	for (unsigned int i = 0; i < 8; i++)
		q[i] = guest_req_get(r->fuse);
	for (unsigned int round = 0; round < 100; round++) {
		for (unsigned int i = 0; i < 8; i++) {
			uint64_t m = (uint64_t)(i * 4 + g_rand_int_range(rand, 0, 4)) * RAW_SLOT;
			struct fuse_removemapping_one one = {m, RAW_SLOT};

			if (g_rand_boolean(rand))
				guest_prep_setupmapping(q[i], node, (i % 4) * RAW_SLOT, RAW_SLOT,
							MAP_RW, m);
			else
				guest_prep_removemapping(q[i], node, &one, 1);
			raw_assert_ok(guest_req_submit(q[i]));
		}
		raw_assert_ok(guest_frontend_stop(r->fe, NULL));
		raw_assert_ok(guest_frontend_start(r->fe, NULL));
		for (unsigned int i = 0; i < 8; i++)
			g_assert_cmpint(guest_req_wait_for(q[i], RAW_TIMEOUT), <=, 0);
	}
	for (unsigned int i = 0; i < 8; i++)
		guest_req_put(q[i]);
	g_rand_free(rand);
	raw_stop(r);
}

static void test_reset(void)
{
	struct raw *r = start(NULL, NULL);

	raw_make_file(r, "f", 4 * RAW_SLOT, 1);
	for (unsigned int round = 0; round < 5; round++) {
		uint64_t node = raw_node(r, "f");

		for (unsigned int i = 0; i < 10; i++)
			raw_assert_ok(setup(r, node, i % 4, i, MAP_RW));
		raw_assert_ok(guest_frontend_reset(r->fe, NULL));
		g_assert_cmpuint(live(r), ==, 0);
		raw_assert_ok(guest_frontend_start(r->fe, NULL));
		raw_assert_ok(guest_fuse_init(r->fuse, 0, NULL));
		if (raw_stat(r, "table.mapped") >= 0) {
			g_assert_cmpint(raw_stat(r, "table.mapped"), ==, 0);
			g_assert_cmpint(raw_stat(r, "fs.nodes"), <=, 1);
		}
	}
	raw_stop(r);
}

/* A file that is gone must not be kept open by what the table lets linger. */
static void test_unlink(void)
{
	struct raw *r = start(NULL, NULL);
	uint64_t node;

	raw_make_file(r, "f", 2 * RAW_SLOT, 1);
	node = raw_node(r, "f");
	raw_assert_ok(setup(r, node, 0, 1, MAP_RW));
	raw_assert_ok(setup(r, node, 1, 2, MAP_RW));
	raw_assert_ok(guest_fuse_removemapping(r->fuse, node, RAW_SLOT, RAW_SLOT));
	raw_assert_ok(guest_fuse_unlink(r->fuse, 1, "f"));
	/* Still mapped and still right. */
	g_assert_true(raw_check_bytes(at(r, 2 * RAW_SLOT), RAW_SLOT, RAW_SLOT, 1));
	raw_assert_ok(guest_fuse_removemapping(r->fuse, node, 2 * RAW_SLOT, RAW_SLOT));
	raw_assert_ok(guest_fuse_forget(r->fuse, node, 1));
	if (raw_stat(r, "table.files_open") >= 0) {
		g_assert_cmpint(raw_wait_stat(r, "table.files_open", 0), ==, 0);
		g_assert_cmpint(raw_wait_stat(r, "table.mapped", 0), ==, 0);
	}
	raw_stop(r);
}

static void test_readonly(void)
{
	struct raw *r = raw_start("--readonly");

	raw_connect(r, NULL);
	g_assert_cmpuint(guest_frontend_offered_protocol(r->fe) & GUEST_PF_SHMEM, ==, 0);
	g_assert_null(guest_window_base(r->window));
	g_assert_cmpuint(guest_fuse_flags(r->fuse) & FUSE_MAP_ALIGNMENT, ==, 0);
	raw_make_file(r, "f", RAW_SLOT, 1);
	g_assert_cmpint(setup(r, raw_node(r, "f"), 0, 0, MAP_R), <, 0);
	raw_stop(r);
}

static void test_attr_flag(void)
{
	struct raw *r = start(NULL, "--dax inode");
	struct fuse_entry_out e;
	struct fuse_init_out o;
	struct fuse_attr a;

	raw_assert_ok(guest_fuse_init(r->fuse, 0, &o));
	g_assert_true(guest_fuse_flags(r->fuse) & FUSE_MAP_ALIGNMENT);
	g_assert_cmpuint(o.map_alignment, ==, 12);
	g_assert_true(guest_fuse_flags(r->fuse) & FUSE_HAS_INODE_DAX);
	raw_make_file(r, "whole", 2 * RAW_SLOT, 1);
	raw_make_file(r, "odd", RAW_SLOT + 1, 1);
	raw_assert_ok(guest_fuse_lookup(r->fuse, 1, "whole", &e));
	g_assert_true(e.attr.flags & FUSE_ATTR_DAX);
	raw_assert_ok(guest_fuse_getattr(r->fuse, e.nodeid, &a));
	g_assert_true(a.flags & FUSE_ATTR_DAX);
	raw_assert_ok(guest_fuse_getattr(r->fuse, 1, &a));
	g_assert_false(a.flags & FUSE_ATTR_DAX);
	raw_stop(r);
}

/* Descriptors that point into the window: right bytes, or an error; never a stuck queue. */
static void test_window_descriptors(void)
{
	struct raw *r = start(NULL, NULL);
	struct fuse_attr attr;
	uint64_t a;
	uint64_t b;
	uint64_t fh;
	ssize_t n;

	raw_make_file(r, "a", RAW_SLOT, 1);
	raw_make_file(r, "b", RAW_SLOT, 2);
	a = raw_node(r, "a");
	b = raw_node(r, "b");
	raw_assert_ok(setup(r, b, 0, 3, MAP_RW));
	raw_assert_ok(guest_fuse_open(r->fuse, a, O_RDWR, &fh));
	n = guest_fuse_read(r->fuse, a, fh, 4096, at(r, 3 * RAW_SLOT + 8192), 4096);
	if (n == 4096)
		g_assert_true(raw_check_bytes(at(r, 3 * RAW_SLOT + 8192), 4096, 4096, 1));
	else
		g_assert_cmpint(n, ==, -EFAULT);
	n = guest_fuse_write(r->fuse, a, fh, 0, at(r, 3 * RAW_SLOT), 4096);
	g_assert_true(n == 4096 || n == -EFAULT);
	/* A hole of the window. */
	g_assert_cmpint(guest_fuse_read(r->fuse, a, fh, 0, at(r, 9 * RAW_SLOT), 4096), ==, -EFAULT);
	g_assert_cmpint(guest_fuse_write(r->fuse, a, fh, 0, at(r, 9 * RAW_SLOT), 4096), ==,
			-EFAULT);
	raw_assert_ok(guest_fuse_getattr(r->fuse, a, &attr));
	raw_stop(r);
}

struct worker {
	struct raw *r;
	uint64_t nodes[3];
	unsigned int first; /* slot of the window */
	unsigned int rounds;
	bool faults;
	GThread *thread;
};

static gpointer work(gpointer data)
{
	struct worker *w = data;
	GRand *rand = g_rand_new_with_seed(w->first);

	for (unsigned int i = 0; i < w->rounds; i++) {
		unsigned int file = (unsigned int)g_rand_int_range(rand, 0, 3);
		unsigned int slot = (unsigned int)g_rand_int_range(rand, 0, 4);
		uint64_t m = w->first + (uint64_t)g_rand_int_range(rand, 0, 8);
		int err = setup(w->r, w->nodes[file], slot, m, MAP_RW);

		if (!w->faults)
			raw_assert_ok(err);
		for (unsigned int k = 0; !err && k < 4; k++) {
			uint64_t off = (uint64_t)g_rand_int_range(rand, 0, 511) * 4096;

			g_assert_true(raw_check_bytes(at(w->r, m * RAW_SLOT + off),
						      slot * RAW_SLOT + off, 4096, file));
		}
		if (g_rand_boolean(rand))
			err = guest_fuse_removemapping(w->r->fuse, w->nodes[file], m * RAW_SLOT,
						       RAW_SLOT);
		if (!w->faults)
			raw_assert_ok(err);
	}
	g_rand_free(rand);
	return NULL;
}

static void storm(struct raw *r, unsigned int rounds, bool faults)
{
	struct worker w[4];

	for (unsigned int i = 0; i < 3; i++) {
		char *name = g_strdup_printf("f%u", i);

		raw_make_file(r, name, 4 * RAW_SLOT, i);
		for (unsigned int k = 0; k < 4; k++)
			w[k].nodes[i] = raw_node(r, name);
		g_free(name);
	}
	for (unsigned int i = 0; i < 4; i++) {
		w[i].r = r;
		w[i].first = i * 8;
		w[i].rounds = rounds;
		w[i].faults = faults;
		w[i].thread = g_thread_new("storm", work, &w[i]);
	}
	for (unsigned int i = 0; i < 4; i++)
		g_thread_join(w[i].thread);
}

static void test_storm(void)
{
	struct guest_config c = {
		.window = {.mode = GUEST_WINDOW_STRICT, .commit_delay_us = 300},
	};
	struct raw *r = start(&c, NULL);

	storm(r, 150, false);
	raw_stop(r);
}

static void test_storm_faults(void)
{
	struct guest_config c = {
		.window = {.mode = GUEST_WINDOW_STRICT, .fail_nth = 5},
	};
	struct raw *r = start(&c, NULL);

	storm(r, 150, true);
	raw_stop(r);
}

/* A VMM that overlays: the daemon need not know. */
static void test_overlay(void)
{
	struct guest_config c = {.window.mode = GUEST_WINDOW_OVERLAY};
	struct raw *r = start(&c, NULL);

	check_data(r);
	raw_stop(r);
}

/* The VMM goes while maps are pending; the daemon ends by itself. */
static void test_leave_pending(void)
{
	struct raw *r = start(NULL, NULL);
	struct guest_req *q = guest_req_get(r->fuse);
	uint64_t node;
	int err;

	raw_make_file(r, "f", 2 * RAW_SLOT, 1);
	node = raw_node(r, "f");
	raw_assert_ok(setup(r, node, 1, 1, MAP_RW));
	guest_window_hold(r->window, true);
	guest_prep_setupmapping(q, node, 0, RAW_SLOT, MAP_RW, 0);
	raw_assert_ok(guest_req_submit(q));
	g_assert_true(guest_window_wait_pending(r->window, 1, RAW_TIMEOUT));
	guest_frontend_disconnect(r->fe);
	/* that the map has failed may still be answered before the rings stop: never a success */
	err = guest_req_wait_for(q, RAW_TIMEOUT);
	if (err != -EIO)
		g_assert_cmpint(err, ==, -ENOTCONN);
	guest_req_put(q);
	raw_stop(r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/dax/data", test_data);
	g_test_add_func("/dax/barrier/refuse", test_barrier_refuse);
	g_test_add_func("/dax/barrier/ack", test_barrier_ack);
	g_test_add_func("/dax/barrier/table", test_barrier_table);
	g_test_add_func("/dax/barrier/mem-table-while-pending", test_mem_table_while_pending);
	g_test_add_func("/dax/upgrade", test_upgrade);
	g_test_add_func("/dax/over-live", test_over_live);
	g_test_add_func("/dax/odd-setups", test_odd_setups);
	g_test_add_func("/dax/tail", test_tail);
	g_test_add_func("/dax/odd-removes", test_odd_removes);
	g_test_add_func("/dax/budget", test_budget);
	g_test_add_func("/dax/destroy", test_destroy);
	g_test_add_func("/dax/repeated-init", test_repeated_init);
	g_test_add_func("/dax/stop", test_stop);
	g_test_add_func("/dax/stop-storm", test_stop_storm);
	g_test_add_func("/dax/reset", test_reset);
	g_test_add_func("/dax/unlink", test_unlink);
	g_test_add_func("/dax/readonly", test_readonly);
	g_test_add_func("/dax/attr-flag", test_attr_flag);
	g_test_add_func("/dax/window-descriptors", test_window_descriptors);
	g_test_add_func("/dax/storm", test_storm);
	g_test_add_func("/dax/storm-faults", test_storm_faults);
	g_test_add_func("/dax/overlay", test_overlay);
	g_test_add_func("/dax/leave-pending", test_leave_pending);
	return g_test_run();
}
