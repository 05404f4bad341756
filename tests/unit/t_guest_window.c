// SPDX-License-Identifier: Apache-2.0
/* The window as a VMM keeps it: each rule of QEMU's, broken once. The back-end is played here. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest.h"
#include "util_fd.h"
#include "util_lock.h"

#define WINDOW (64ull << 20)
#define SLOT (2ull << 20)

/* The back-end's main channel, answered by a thread. */
struct fake {
	GThread *thread;
	int sock;
	struct util_mutex lock; /* all below */
	struct util_cond cond;
	int channel;
	bool refuse;	    /* refuse the window's regions */
	bool hold_add;	    /* do not answer ADD_MEM_REG yet */
	bool window_offset; /* offer a crooked window */
	unsigned int adds;
	unsigned int removes;
	uint64_t last_add;
};

static void answer(struct fake *f, const struct guest_msg *m, const void *p, uint32_t size)
{
	guest_chan_send(f->sock, m->hdr.request, GUEST_MSG_REPLY, p, size, NULL, 0);
}

static void answer_u64(struct fake *f, const struct guest_msg *m, uint64_t v)
{
	answer(f, m, &v, sizeof(v));
}

static uint64_t on_add(struct fake *f, const struct guest_msg *m)
{
	struct guest_msg_single_region r;
	uint64_t status = 0;

	memcpy(&r, m->payload, sizeof(r));
	util_mutex_lock(&f->lock);
	if (r.region.guest_addr >= GUEST_WINDOW_BASE) {
		f->adds++;
		f->last_add = r.region.guest_addr - GUEST_WINDOW_BASE;
		status = f->refuse;
		util_cond_broadcast(&f->cond);
	}
	while (f->hold_add)
		util_cond_wait(&f->cond, &f->lock);
	util_mutex_unlock(&f->lock);
	return status;
}

static void on_message(struct fake *f, struct guest_msg *m)
{
	struct guest_msg_shmem_config sc = {.nregions = 1, .sizes = {WINDOW}};
	struct guest_msg_vring_state vs = {0};
	uint64_t status = 0;

	switch (m->hdr.request) {
	case GUEST_GET_FEATURES:
		answer_u64(f, m, GUEST_F_VERSION_1 | GUEST_F_PROTOCOL);
		return;
	case GUEST_GET_PROTOCOL_FEATURES:
		answer_u64(f, m,
			   GUEST_PF_MQ | GUEST_PF_REPLY_ACK | GUEST_PF_BACKEND_REQ |
				   GUEST_PF_BACKEND_SEND_FD | GUEST_PF_CONFIGURE_MEM_SLOTS |
				   GUEST_PF_SHMEM);
		return;
	case GUEST_GET_QUEUE_NUM:
	case GUEST_GET_MAX_MEM_SLOTS:
		answer_u64(f, m, 2);
		return;
	case GUEST_GET_SHMEM_CONFIG:
		if (f->window_offset)
			sc.sizes[0] += 4096;
		answer(f, m, &sc, sizeof(sc));
		return;
	case GUEST_GET_VRING_BASE:
		memcpy(&vs, m->payload, sizeof(vs));
		vs.num = 0;
		answer(f, m, &vs, sizeof(vs));
		return;
	case GUEST_SET_BACKEND_REQ_FD:
		util_mutex_lock(&f->lock);
		f->channel = guest_msg_take_fd(m, 0);
		util_mutex_unlock(&f->lock);
		break;
	case GUEST_ADD_MEM_REG:
		status = on_add(f, m);
		break;
	case GUEST_REM_MEM_REG:
		util_mutex_lock(&f->lock);
		f->removes++;
		util_mutex_unlock(&f->lock);
		break;
	default:
		break;
	}
	if (m->hdr.flags & GUEST_MSG_NEED_REPLY)
		answer_u64(f, m, status);
}

static gpointer fake_thread(gpointer data)
{
	struct fake *f = data;
	struct guest_msg m;

	while (!guest_chan_recv(f->sock, &m, -1)) {
		on_message(f, &m);
		guest_msg_close_fds(&m);
	}
	return NULL;
}

struct fixture {
	struct fake fake;
	struct guest_frontend *fe;
	struct guest_window *w;
	int file; /* 8 MiB and 5000 bytes */
};

static int connect_fake(struct fixture *x, GError **error)
{
	int pair[2];

	g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
	x->fake.sock = pair[1];
	x->fake.channel = -1;
	x->fake.thread = g_thread_new("fake", fake_thread, &x->fake);
	return guest_frontend_connect_fd(x->fe, pair[0], error);
}

static void set_up(struct fixture *x, const struct guest_window_config *wc)
{
	struct guest_config c = {.mem_size = 8 << 20, .window = *wc};

	memset(x, 0, sizeof(*x));
	util_mutex_init(&x->fake.lock);
	util_cond_init(&x->fake.cond);
	x->fe = guest_frontend_new(&c, NULL);
	g_assert_nonnull(x->fe);
	x->w = guest_frontend_window(x->fe);
	x->file = memfd_create("file", MFD_CLOEXEC);
	g_assert_cmpint(ftruncate(x->file, (8 << 20) + 5000), ==, 0);
}

static void start(struct fixture *x, enum guest_window_mode mode)
{
	struct guest_window_config wc = {.mode = mode, .size = WINDOW};
	GError *error = NULL;

	set_up(x, &wc);
	connect_fake(x, &error);
	g_assert_no_error(error);
	guest_frontend_start(x->fe, &error);
	g_assert_no_error(error);
}

static void drop_fake(struct fixture *x)
{
	guest_frontend_disconnect(x->fe);
	if (x->fake.thread)
		g_thread_join(x->fake.thread);
	util_close(&x->fake.sock);
	util_close(&x->fake.channel);
}

static void end(struct fixture *x)
{
	drop_fake(x);
	guest_frontend_free(x->fe);
	util_close(&x->file);
	util_cond_destroy(&x->fake.cond);
	util_mutex_destroy(&x->fake.lock);
}

static void send_req(struct fixture *x, uint32_t request, uint64_t fd_offset, uint64_t offset,
		     uint64_t len, int fd)
{
	struct guest_msg_shmem m = {
		.fd_offset = fd_offset,
		.shm_offset = offset,
		.len = len,
		.flags = GUEST_SHMEM_RW,
	};

	g_assert_cmpint(guest_chan_send(x->fake.channel, request, GUEST_MSG_NEED_REPLY, &m,
					sizeof(m), &fd, fd >= 0),
			==, 0);
}

static int64_t get_status(struct fixture *x)
{
	struct guest_msg m;
	int64_t v;

	g_assert_cmpint(guest_chan_recv(x->fake.channel, &m, 10000), ==, 0);
	g_assert_cmpuint(m.hdr.size, ==, sizeof(v));
	memcpy(&v, m.payload, sizeof(v));
	return v;
}

static int64_t do_map(struct fixture *x, uint64_t fd_offset, uint64_t offset, uint64_t len)
{
	send_req(x, GUEST_BE_SHMEM_MAP, fd_offset, offset, len, x->file);
	return get_status(x);
}

static int64_t do_unmap(struct fixture *x, uint64_t offset, uint64_t len)
{
	send_req(x, GUEST_BE_SHMEM_UNMAP, 0, offset, len, -1);
	return get_status(x);
}

/* One rule must have been broken since the last time; its text contains @what. */
static void expect_violation(struct fixture *x, const char *what)
{
	char *s = guest_window_violation(x->w, 0);

	g_assert_cmpuint(guest_window_violations(x->w), ==, 1);
	if (!strstr(s, what))
		g_error("\"%s\" does not speak of \"%s\"", s, what);
	g_free(s);
	guest_window_clear_violations(x->w);
}

static void expect_refused(struct fixture *x, int64_t status, const char *what)
{
	g_assert_cmpint(status, ==, 1);
	expect_violation(x, what);
}

static void test_strict_good(void)
{
	struct fixture x;
	struct guest_window_stats st;
	uint8_t *base;

	start(&x, GUEST_WINDOW_STRICT);
	base = guest_window_base(x.w);
	g_assert_cmpuint(guest_window_size(x.w), ==, WINDOW);
	g_assert_cmpint(pwrite(x.file, "hello", 5, SLOT), ==, 5);
	g_assert_cmpint(do_map(&x, SLOT, 3 * SLOT, SLOT), ==, 0);
	g_assert_true(guest_window_wait_idle(x.w, 10000));
	g_assert_true(guest_window_mapped(x.w, 3 * SLOT, SLOT));
	g_assert_false(guest_window_mapped(x.w, 3 * SLOT, SLOT + 1));
	g_assert_cmpmem(base + 3 * SLOT, 5, "hello", 5);
	base[3 * SLOT] = 'j';
	{
		char c;

		g_assert_cmpint(pread(x.file, &c, 1, SLOT), ==, 1);
		g_assert_cmpint(c, ==, 'j');
	}
	/* Up to the last byte of the file, not to the end of its page. */
	expect_refused(&x, do_map(&x, 8 << 20, 5 * SLOT, 8192), "beyond the end");
	g_assert_cmpint(do_map(&x, 8 << 20, 5 * SLOT, 4096), ==, 0);
	g_assert_cmpint(do_unmap(&x, 3 * SLOT, SLOT), ==, 0);
	g_assert_true(guest_window_wait_idle(x.w, 10000));
	g_assert_false(guest_window_mapped(x.w, 3 * SLOT, 1));
	guest_window_stats(x.w, &st);
	g_assert_cmpuint(st.maps, ==, 2);
	g_assert_cmpuint(st.unmaps, ==, 1);
	g_assert_cmpuint(st.live, ==, 1);
	g_assert_cmpuint(st.added, ==, 2);
	g_assert_cmpuint(st.removed, ==, 1);
	g_assert_cmpuint(guest_window_violations(x.w), ==, 0);
	end(&x);
}

static void test_strict_refusals(void)
{
	struct fixture x;
	char path[64];
	int ro;

	start(&x, GUEST_WINDOW_STRICT);
	g_assert_cmpint(do_map(&x, 0, SLOT, SLOT), ==, 0);
	expect_refused(&x, do_map(&x, 0, SLOT, SLOT), "overlaps");
	expect_refused(&x, do_map(&x, 0, 2 * SLOT - 4096, SLOT), "overlaps");
	expect_refused(&x, do_map(&x, 0, 0, 2 * SLOT), "overlaps");
	expect_refused(&x, do_map(&x, 0, 4 * SLOT, 0), "length 0");
	expect_refused(&x, do_map(&x, 0, WINDOW - 4096, 8192), "outside");
	expect_refused(&x, do_map(&x, 0, UINT64_MAX - 4095, 8192), "outside");
	expect_refused(&x, do_map(&x, 100, 4 * SLOT, SLOT), "fd_offset not page");
	expect_refused(&x, do_map(&x, 0, 4 * SLOT + 1, SLOT), "not page aligned");
	expect_refused(&x, do_map(&x, 8 << 20, 4 * SLOT, SLOT), "beyond the end");
	expect_refused(&x, do_map(&x, UINT64_MAX - 4095, 4 * SLOT, SLOT), "beyond the end");
	expect_refused(&x, do_unmap(&x, SLOT, 4096), "exactly");
	expect_refused(&x, do_unmap(&x, SLOT + 4096, SLOT - 4096), "exactly");
	expect_refused(&x, do_unmap(&x, 0, WINDOW), "exactly");
	expect_refused(&x, do_unmap(&x, 8 * SLOT, SLOT), "exactly");
	g_snprintf(path, sizeof(path), "/proc/self/fd/%d", x.file);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	send_req(&x, GUEST_BE_SHMEM_MAP, 0, 4 * SLOT, SLOT, ro);
	expect_refused(&x, get_status(&x), "reading and writing");
	send_req(&x, GUEST_BE_SHMEM_MAP, 0, 4 * SLOT, SLOT, -1);
	expect_refused(&x, get_status(&x), "no descriptor");
	g_assert_cmpint(ftruncate(x.file, 0), ==, 0);
	expect_refused(&x, do_map(&x, 0, 4 * SLOT, SLOT), "empty");
	/* The channel has stayed open. */
	g_assert_cmpint(do_unmap(&x, SLOT, SLOT), ==, 0);
	close(ro);
	end(&x);
}

static void test_strict_reply_first(void)
{
	struct fixture x;
	struct guest_window_stats st;

	start(&x, GUEST_WINDOW_STRICT);
	guest_window_hold(x.w, true);
	g_assert_cmpint(do_map(&x, 0, SLOT, SLOT), ==, 0);
	g_assert_true(guest_window_wait_pending(x.w, 1, 10000));
	g_assert_false(guest_window_mapped(x.w, SLOT, 1));
	/* While it is held, nothing else on the channel is answered. */
	send_req(&x, GUEST_BE_SHMEM_MAP, 0, 4 * SLOT, SLOT, x.file);
	guest_window_stats(x.w, &st);
	g_assert_cmpuint(st.maps, ==, 1);
	util_mutex_lock(&x.fake.lock);
	g_assert_cmpuint(x.fake.adds, ==, 0);
	x.fake.hold_add = true;
	util_mutex_unlock(&x.fake.lock);
	guest_window_hold(x.w, false);
	util_mutex_lock(&x.fake.lock);
	while (!x.fake.adds)
		util_cond_wait(&x.fake.cond, &x.fake.lock);
	util_mutex_unlock(&x.fake.lock);
	/* Committed, and the second one still unread: ADD_MEM_REG waits for its answer. */
	g_assert_true(guest_window_mapped(x.w, SLOT, SLOT));
	guest_window_stats(x.w, &st);
	g_assert_cmpuint(st.maps, ==, 1);
	util_mutex_lock(&x.fake.lock);
	x.fake.hold_add = false;
	util_cond_broadcast(&x.fake.cond);
	util_mutex_unlock(&x.fake.lock);
	g_assert_cmpint(get_status(&x), ==, 0);
	g_assert_true(guest_window_wait_idle(x.w, 10000));
	g_assert_cmpuint(guest_window_violations(x.w), ==, 0);
	end(&x);
}

static void test_strict_refused_regions(void)
{
	struct fixture x;

	start(&x, GUEST_WINDOW_STRICT);
	x.fake.refuse = true;
	g_assert_cmpint(do_map(&x, 0, 4 * SLOT, SLOT), ==, 0);
	g_assert_true(guest_window_wait_idle(x.w, 10000));
	g_assert_cmpuint(x.fake.last_add, ==, 4 * SLOT);
	/* The next round begins with the refused one, and ends there. */
	g_assert_cmpint(do_map(&x, 0, 6 * SLOT, SLOT), ==, 0);
	g_assert_true(guest_window_wait_idle(x.w, 10000));
	g_assert_cmpuint(x.fake.adds, ==, 2);
	g_assert_cmpuint(x.fake.last_add, ==, 4 * SLOT);
	/* At the next start both are told again. */
	g_assert_cmpint(guest_frontend_stop(x.fe, NULL), ==, 0);
	x.fake.refuse = false;
	g_assert_cmpint(guest_frontend_start(x.fe, NULL), ==, 0);
	g_assert_cmpuint(x.fake.adds, ==, 4);
	g_assert_cmpuint(x.fake.last_add, ==, 6 * SLOT);
	end(&x);
}

static void test_strict_fatal(void)
{
	struct fixture x;
	uint64_t i;

	start(&x, GUEST_WINDOW_STRICT);
	for (i = 0; i < 509; i++)
		g_assert_cmpint(do_map(&x, 0, i * 8192, 4096), ==, 0);
	expect_refused(&x, do_map(&x, 0, i * 8192, 4096), "would have aborted");
	g_assert_cmpint(guest_frontend_stop(x.fe, NULL), ==, 0);
	g_assert_cmpint(do_unmap(&x, 0, 4096), ==, 0);
	expect_violation(&x, "would have crashed");
	end(&x);
}

static void test_strict_channel(void)
{
	struct fixture x;
	struct guest_msg m;
	uint8_t big[3000] = {0};

	start(&x, GUEST_WINDOW_STRICT);
	/* A fence is answered after what stands before it. */
	guest_chan_send(x.fake.channel, GUEST_BE_SHARED_OBJECT_REMOVE, GUEST_MSG_NEED_REPLY, big,
			16, NULL, 0);
	g_assert_cmpint(get_status(&x), ==, 0);
	guest_chan_send(x.fake.channel, 99, GUEST_MSG_NEED_REPLY, big, 16, NULL, 0);
	expect_refused(&x, get_status(&x), "not known");
	guest_chan_send(x.fake.channel, GUEST_BE_SHMEM_MAP, GUEST_MSG_NEED_REPLY, big, 16, NULL, 0);
	expect_refused(&x, get_status(&x), "has 16 bytes");
	/* Too long a payload closes the channel for good. */
	guest_chan_send(x.fake.channel, GUEST_BE_SHMEM_MAP, GUEST_MSG_NEED_REPLY, big, 3000, NULL,
			0);
	g_assert_cmpint(guest_chan_recv(x.fake.channel, &m, 10000), ==, -ENOTCONN);
	expect_violation(&x, "channel broken");
	end(&x);
}

static void test_reset_drops(void)
{
	struct fixture x;

	start(&x, GUEST_WINDOW_STRICT);
	g_assert_cmpint(do_map(&x, 0, SLOT, SLOT), ==, 0);
	g_assert_true(guest_window_wait_idle(x.w, 10000));
	g_assert_cmpint(guest_frontend_reset(x.fe, NULL), ==, 0);
	g_assert_false(guest_window_mapped(x.w, SLOT, 1));
	g_assert_cmpuint(x.fake.removes, ==, 0);
	/* Told at the next start only. */
	g_assert_cmpint(guest_frontend_start(x.fe, NULL), ==, 0);
	g_assert_cmpuint(x.fake.removes, ==, 1);
	g_assert_cmpint(do_map(&x, 0, SLOT, SLOT), ==, 0);
	end(&x);
}

static void test_overlay(void)
{
	struct fixture x;
	struct guest_mapping m[4];

	start(&x, GUEST_WINDOW_OVERLAY);
	g_assert_cmpint(do_map(&x, 0, SLOT, 3 * SLOT), ==, 0);
	g_assert_true(guest_window_mapped(x.w, SLOT, 3 * SLOT));
	g_assert_cmpint(do_map(&x, SLOT, 2 * SLOT, SLOT), ==, 0);
	g_assert_cmpuint(guest_window_list(x.w, m, 4), ==, 3);
	g_assert_cmpuint(m[2].offset, ==, 3 * SLOT);
	g_assert_cmpuint(m[2].fd_offset, ==, 2 * SLOT);
	g_assert_cmpint(do_unmap(&x, SLOT + 4096, 2 * SLOT), ==, 0);
	g_assert_cmpuint(guest_window_list(x.w, m, 4), ==, 2);
	g_assert_cmpuint(m[0].len, ==, 4096);
	g_assert_cmpuint(m[1].offset, ==, 3 * SLOT + 4096);
	g_assert_cmpuint(guest_window_violations(x.w), ==, 0);
	g_assert_cmpint(do_map(&x, 0, WINDOW, SLOT), ==, -EINVAL);
	expect_violation(&x, "no range");
	end(&x);
}

static int64_t fs_request(struct fixture *x, uint32_t request, const struct guest_msg_fs_map *m)
{
	bool map = request == GUEST_BE_FS_MAP;

	guest_chan_send(x->fake.channel, request, GUEST_MSG_NEED_REPLY, m, sizeof(*m), &x->file,
			map);
	return get_status(x);
}

static void test_fs_map(void)
{
	struct fixture x;
	struct guest_msg_fs_map m = {
		.fd_offset = {0, SLOT},
		.c_offset = {4 * SLOT, 6 * SLOT},
		.len = {SLOT, SLOT},
		.flags = {GUEST_FS_READ, GUEST_FS_READ | GUEST_FS_WRITE},
	};
	struct guest_msg_fs_map all = {.len = {UINT64_MAX}};

	start(&x, GUEST_WINDOW_FS_MAP);
	g_assert_cmpint(fs_request(&x, GUEST_BE_FS_MAP, &m), ==, 0);
	g_assert_true(guest_window_mapped(x.w, 4 * SLOT, SLOT));
	g_assert_true(guest_window_mapped(x.w, 6 * SLOT, SLOT));
	g_assert_cmpint(fs_request(&x, GUEST_BE_FS_UNMAP, &all), ==, 0);
	g_assert_cmpuint(guest_window_list(x.w, NULL, 0), ==, 0);
	g_assert_cmpuint(guest_window_violations(x.w), ==, 0);
	end(&x);
}

static void test_crooked_window(void)
{
	struct guest_window_config wc = {.mode = GUEST_WINDOW_STRICT};
	struct fixture x;

	set_up(&x, &wc);
	x.fake.window_offset = true;
	g_assert_cmpint(connect_fake(&x, NULL), <, 0);
	expect_violation(&x, "power of two");
	end(&x);
}

static void count_status(void *token, int status, uint32_t written)
{
	int *got = token;

	__atomic_store_n(got, status, __ATOMIC_RELEASE);
}

/* The back-end dies: what was in flight ends, what comes after is refused, then it is back. */
static void test_death(void)
{
	struct guest_window_config wc = {.mode = GUEST_WINDOW_STRICT};
	struct fixture x;
	struct guest_seg seg;
	int status = 1;
	GError *error = NULL;

	set_up(&x, &wc);
	guest_frontend_set_done(x.fe, count_status);
	connect_fake(&x, &error);
	g_assert_no_error(error);
	guest_frontend_start(x.fe, &error);
	g_assert_no_error(error);
	seg = (struct guest_seg){guest_mem_alloc(guest_frontend_mem(x.fe), 4096), 4096};
	g_assert_cmpint(guest_ring_submit(guest_frontend_ring(x.fe, 1), &seg, 1, &seg, 1, &status),
			==, 0);
	g_assert_cmpuint(guest_ring_in_flight(guest_frontend_ring(x.fe, 1)), ==, 1);
	shutdown(x.fake.sock, SHUT_RDWR);
	g_assert_true(guest_frontend_wait_dead(x.fe, 10000));
	while (__atomic_load_n(&status, __ATOMIC_ACQUIRE) == 1)
		g_thread_yield();
	g_assert_cmpint(status, ==, -ENOTCONN);
	g_assert_cmpint(guest_ring_submit(guest_frontend_ring(x.fe, 1), &seg, 1, &seg, 1, &status),
			==, -ENOTCONN);
	g_assert_cmpint(guest_frontend_stop(x.fe, NULL), ==, -ENOTCONN);
	drop_fake(&x);
	connect_fake(&x, &error);
	g_assert_no_error(error);
	guest_frontend_start(x.fe, &error);
	g_assert_no_error(error);
	g_assert_cmpint(do_map(&x, 0, SLOT, SLOT), ==, 0);
	end(&x);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/guest-window/strict/good", test_strict_good);
	g_test_add_func("/guest-window/strict/refusals", test_strict_refusals);
	g_test_add_func("/guest-window/strict/reply-first", test_strict_reply_first);
	g_test_add_func("/guest-window/strict/refused-regions", test_strict_refused_regions);
	g_test_add_func("/guest-window/strict/fatal", test_strict_fatal);
	g_test_add_func("/guest-window/strict/channel", test_strict_channel);
	g_test_add_func("/guest-window/reset-drops", test_reset_drops);
	g_test_add_func("/guest-window/overlay", test_overlay);
	g_test_add_func("/guest-window/fs-map", test_fs_map);
	g_test_add_func("/guest-window/crooked-window", test_crooked_window);
	g_test_add_func("/guest-window/death", test_death);
	return g_test_run();
}
