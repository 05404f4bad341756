// SPDX-License-Identifier: Apache-2.0
/* The life of sessions: broken messages, one VMM after another, nothing left behind. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "raw_util.h"
#include "util_fd.h"
#include "util_lock.h"

/* --- broken messages --- */

struct talk {
	struct raw *r;
	int sock;
	int mem;  /* memfd of 1 MiB */
	int kick; /* eventfd */
};

static int ask_u64(struct talk *t, uint32_t request, uint64_t *v)
{
	struct guest_msg m;
	int err = guest_chan_send(t->sock, request, 0, NULL, 0, NULL, 0);

	if (!err)
		err = guest_chan_recv(t->sock, &m, RAW_TIMEOUT);
	if (err)
		return err;
	guest_msg_close_fds(&m);
	memcpy(v, m.payload, sizeof(*v));
	return 0;
}

/* A session on which everything is negotiated and memory is there. */
static void talk_begin(struct talk *t)
{
	struct guest_msg_single_region reg = {
		.region = {.guest_addr = 0x1000000, .size = 1 << 20, .user_addr = 0x2000000},
	};
	uint64_t v;

	t->sock = guest_chan_connect(t->r->socket);
	g_assert_cmpint(t->sock, >=, 0);
	raw_assert_ok(ask_u64(t, GUEST_GET_FEATURES, &v));
	raw_assert_ok(ask_u64(t, GUEST_GET_PROTOCOL_FEATURES, &v));
	v &= GUEST_PF_MQ | GUEST_PF_REPLY_ACK | GUEST_PF_BACKEND_REQ | GUEST_PF_CONFIG |
	     GUEST_PF_BACKEND_SEND_FD | GUEST_PF_CONFIGURE_MEM_SLOTS | GUEST_PF_SHMEM;
	guest_chan_send(t->sock, GUEST_SET_PROTOCOL_FEATURES, 0, &v, 8, NULL, 0);
	guest_chan_send(t->sock, GUEST_SET_OWNER, 0, NULL, 0, NULL, 0);
	v = GUEST_F_VERSION_1 | GUEST_F_PROTOCOL;
	guest_chan_send(t->sock, GUEST_SET_FEATURES, 0, &v, 8, NULL, 0);
	guest_chan_send(t->sock, GUEST_ADD_MEM_REG, 0, &reg, sizeof(reg), &t->mem, 1);
	raw_assert_ok(ask_u64(t, GUEST_GET_FEATURES, &v));
}

/* True when the daemon has hung up. */
static bool talk_ended(struct talk *t)
{
	uint64_t v;

	return ask_u64(t, GUEST_GET_FEATURES, &v) != 0;
}

static void send_msg(struct talk *t, uint32_t request, const void *p, uint32_t size, int fd)
{
	guest_chan_send(t->sock, request, 0, p, size, &fd, fd >= 0);
}

static void send_state(struct talk *t, uint32_t request, uint32_t index, uint32_t num)
{
	struct guest_msg_vring_state s = {index, num};

	send_msg(t, request, &s, sizeof(s), -1);
}

static void send_u64(struct talk *t, uint32_t request, uint64_t v, int fd)
{
	send_msg(t, request, &v, sizeof(v), fd);
}

static void send_hdr(struct talk *t, uint32_t request, uint32_t flags, uint32_t size)
{
	struct guest_msg_hdr h = {request, flags, size};

	guest_chan_send_raw(t->sock, &h, sizeof(h), NULL, 0);
}

static void send_region(struct talk *t, uint64_t gpa, uint64_t size, uint64_t off, int fd)
{
	struct guest_msg_single_region reg = {
		.region = {gpa, size, 0x7000000, off},
	};

	send_msg(t, GUEST_ADD_MEM_REG, &reg, sizeof(reg), fd);
}

static void send_table(struct talk *t, uint32_t nregions, uint64_t gpa, uint64_t size,
		       unsigned int nfds)
{
	struct guest_msg_table tab = {.nregions = nregions};
	int fds[8];

	for (unsigned int i = 0; i < 8; i++) {
		tab.regions[i] = (struct guest_msg_region){gpa + i * size, size, i << 28, 0};
		fds[i] = t->mem;
	}
	guest_chan_send(t->sock, GUEST_SET_MEM_TABLE, 0, &tab,
			8 + MIN(nregions, 8) * (uint32_t)sizeof(tab.regions[0]), fds, nfds);
}

static void send_addr(struct talk *t, uint32_t index, uint64_t desc)
{
	struct guest_msg_vring_addr a = {.index = index, .desc = desc, .used = desc, .avail = desc};

	send_msg(t, GUEST_SET_VRING_ADDR, &a, sizeof(a), -1);
}

static void broken(struct talk *t, unsigned int i)
{
	struct guest_msg_config c = {.size = 300};
	int fds[8] = {t->mem, t->mem, t->mem, t->mem, t->mem, t->mem, t->mem, t->mem};

	switch (i) {
	case 0:
		send_hdr(t, GUEST_GET_FEATURES, 0, 0); /* no version */
		break;
	case 1:
		send_hdr(t, GUEST_GET_FEATURES, 2, 0);
		break;
	case 2:
		send_hdr(t, GUEST_SET_FEATURES, 1, 0xffffffff);
		break;
	case 3:
		send_hdr(t, GUEST_SET_FEATURES, 1, 0);
		break;
	case 4:
		send_hdr(t, GUEST_SET_VRING_NUM, 1, 0);
		break;
	case 5:
		send_table(t, 9, 0x1000000, 4096, 8);
		break;
	case 6:
		send_table(t, 2, 0x1000000, 4096, 1);
		break;
	case 7:
		send_table(t, 1, UINT64_MAX - 100, 4096, 1);
		break;
	case 8:
		send_table(t, 1, 0x1000000, 0, 1);
		break;
	case 9:
		send_state(t, GUEST_SET_VRING_NUM, 99, 128);
		break;
	case 10:
		send_state(t, GUEST_SET_VRING_NUM, 0, 3);
		break;
	case 11:
		send_state(t, GUEST_SET_VRING_NUM, 0, 0);
		break;
	case 12:
		send_state(t, GUEST_SET_VRING_NUM, 0, 65536);
		break;
	case 13:
		send_state(t, GUEST_SET_VRING_BASE, 0xffffffff, 0);
		break;
	case 14:
		send_state(t, GUEST_GET_VRING_BASE, 70, 0);
		break;
	case 15:
		send_state(t, GUEST_SET_VRING_ENABLE, 70, 1);
		break;
	case 16:
		send_u64(t, GUEST_SET_VRING_KICK, 0, -1);
		break;
	case 17:
		send_u64(t, GUEST_SET_VRING_CALL, 77, t->kick);
		break;
	case 18:
		send_addr(t, 0, 0x99);
		send_state(t, GUEST_SET_VRING_NUM, 0, 128);
		send_u64(t, GUEST_SET_VRING_KICK, 0, t->kick);
		break;
	case 19:
		send_u64(t, GUEST_SET_FEATURES, UINT64_MAX, -1);
		break;
	case 20:
		send_u64(t, GUEST_SET_PROTOCOL_FEATURES, UINT64_MAX, -1);
		break;
	case 21:
		send_msg(t, GUEST_GET_CONFIG, &c, 12, -1);
		break;
	case 22:
		send_msg(t, GUEST_SET_BACKEND_REQ_FD, NULL, 0, -1);
		break;
	case 23:
		send_region(t, 0x9000000, 4096, 0, -1);
		break;
	case 24: /* a truncated message */
		send_hdr(t, GUEST_SET_FEATURES, 1, 8);
		shutdown(t->sock, SHUT_WR);
		break;
	default: /* descriptors that nobody asked for */
		guest_chan_send(t->sock, GUEST_SET_OWNER, 0, NULL, 0, fds, 8);
		break;
	}
}

#define BROKEN 26u

/* Where carrying on is as good as ending: a refusal of what was asked suffices. */
static bool may_go_on(unsigned int i)
{
	return i == 21 || i == 23 || i == 25;
}

static unsigned int complaints(struct raw *r)
{
	return raw_log_lines(r, ": warn: ") + raw_log_lines(r, ": error: ") +
	       raw_log_lines(r, ": critical: ");
}

static void test_broken_messages(void)
{
	struct talk t = {.r = raw_start("--persistent")};
	unsigned int fds = 0;
	unsigned int threads = 0;

	t.mem = memfd_create("mem", MFD_CLOEXEC);
	t.kick = eventfd(0, EFD_CLOEXEC);
	g_assert_cmpint(ftruncate(t.mem, 1 << 20), ==, 0);
	for (unsigned int i = 0; i < BROKEN; i++) {
		unsigned int before;
		bool ended;

		talk_begin(&t);
		before = complaints(t.r);
		broken(&t, i);
		ended = talk_ended(&t);
		g_test_message("message %u: session %s", i, ended ? "ended" : "goes on");
		if (!may_go_on(i))
			g_assert_true(ended);
		close(t.sock);
		/* The next one is served: the line of the last has been written by then. */
		talk_begin(&t);
		if (ended && complaints(t.r) - before != 1) {
			char *text = raw_log_text(t.r);

			g_test_message("daemon's log:\n%s", text);
			g_free(text);
		}
		if (ended)
			g_assert_cmpuint(complaints(t.r) - before, ==, 1);
		close(t.sock);
		talk_begin(&t);
		if (!i) {
			fds = raw_count_fds(t.r);
			threads = raw_count_threads(t.r);
		}
		g_assert_cmpuint(raw_count_fds(t.r), ==, fds);
		g_assert_cmpuint(raw_count_threads(t.r), ==, threads);
		close(t.sock);
	}
	close(t.mem);
	close(t.kick);
	raw_connect(t.r, NULL);
	raw_stop(t.r);
}

/* --- one after another --- */

static void test_persistent(void)
{
	struct raw *r = raw_start("--persistent");
	unsigned int fds = 0;
	unsigned int threads = 0;

	raw_make_file(r, "f", 4 * RAW_SLOT, 1);
	for (unsigned int i = 0; i < 10; i++) {
		struct fuse_entry_out e;
		struct guest_req *q;
		uint64_t node;
		uint64_t fh;

		raw_connect(r, NULL);
		node = raw_node(r, "f");
		if (i == 1) {
			fds = raw_count_fds(r);
			threads = raw_count_threads(r);
		}
		if (i > 1) {
			g_assert_cmpuint(raw_wait_fds(r, fds), <=, fds);
			g_assert_cmpuint(raw_count_threads(r), <=, threads + 2);
		}
		for (unsigned int k = 0; k < 8; k++)
			raw_assert_ok(guest_fuse_setupmapping(r->fuse, node, (k % 4) * RAW_SLOT,
							      RAW_SLOT, 3, k * RAW_SLOT));
		raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR, &fh));
		raw_assert_ok(guest_fuse_lookup(r->fuse, 1, "f", &e));
		/* It leaves with everything open and a request under way. */
		q = guest_req_get(r->fuse);
		guest_prep_setupmapping(q, node, 0, RAW_SLOT, 3, 20 * RAW_SLOT);
		raw_assert_ok(guest_req_submit(q));
		guest_frontend_disconnect(r->fe);
		g_assert_cmpint(guest_req_wait_for(q, RAW_TIMEOUT), <=, 0);
		guest_req_put(q);
	}
	raw_stop(r);
}

static void test_second_connection(void)
{
	struct raw *r = raw_start("--persistent");
	struct talk t = {.r = r};
	struct pollfd p;
	struct fuse_attr a;
	struct guest_msg m;

	raw_connect(r, NULL);
	t.sock = guest_chan_connect(r->socket);
	g_assert_cmpint(t.sock, >=, 0);
	raw_assert_ok(guest_chan_send(t.sock, GUEST_GET_FEATURES, 0, NULL, 0, NULL, 0));
	for (unsigned int i = 0; i < 200; i++)
		raw_assert_ok(guest_fuse_getattr(r->fuse, 1, &a));
	p = (struct pollfd){.fd = t.sock, .events = POLLIN};
	g_assert_cmpint(poll(&p, 1, 0), ==, 0);
	raw_leave(r);
	raw_assert_ok(guest_chan_recv(t.sock, &m, RAW_TIMEOUT));
	guest_msg_close_fds(&m);
	close(t.sock);
	raw_stop(r);
}

/* Memory that comes and goes while requests use it. */
static void test_memory_comes_and_goes(void)
{
	struct raw *r = raw_start(NULL);
	int fd = memfd_create("more", MFD_CLOEXEC);
	uint8_t *mem;
	uint8_t *scratch;
	struct fuse_in_header h = {.opcode = FUSE_READ, .unique = 9, .len = sizeof(h) + 40};
	struct fuse_read_in in = {.size = 4096};
	uint64_t gpa;

	raw_connect(r, NULL);
	r->lenient = true;
	g_assert_cmpint(ftruncate(fd, 1 << 20), ==, 0);
	mem = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	scratch = guest_mem_alloc(r->mem, 8192);
	gpa = raw_gpa(r, scratch);
	raw_make_file(r, "f", 8192, 6);
	h.nodeid = raw_node(r, "f");
	raw_assert_ok(guest_fuse_open(r->fuse, h.nodeid, O_RDONLY, &in.fh));
	memcpy(scratch, &h, sizeof(h));
	memcpy(scratch + sizeof(h), &in, sizeof(in));
	for (unsigned int i = 0; i < 300; i++) {
		uint64_t far = 1ull << 34;
		struct guest_desc d[] = {
			{gpa, h.len, GUEST_DESC_NEXT, 1},
			{gpa + 4096, 16, GUEST_DESC_NEXT | GUEST_DESC_WRITE, 2},
			{far + (i % 200) * 4096, 4096, GUEST_DESC_WRITE, 0},
		};
		struct guest_req *q[4];

		raw_assert_ok(guest_frontend_add_mem(r->fe, far, 1 << 20, mem, fd, 0));
		g_assert_cmpint(raw_chain(r, 1, d, 3), ==, 16 + 4096);
		g_assert_true(raw_check_bytes(mem + (i % 200) * 4096, 0, 4096, 6));
		for (unsigned int k = 0; k < 4; k++) {
			q[k] = guest_req_get(r->fuse);
			guest_req_start(q[k], FUSE_FORGET, 0);
			q[k]->finished = false;
			raw_assert_ok(guest_ring_raw(guest_frontend_ring(r->fe, 1), d, 3, q[k]));
		}
		raw_assert_ok(guest_frontend_rem_mem(r->fe, far, 1 << 20, mem));
		for (unsigned int k = 0; k < 4; k++) {
			g_assert_cmpint(guest_req_wait_for(q[k], RAW_TIMEOUT), !=, -ETIMEDOUT);
			guest_req_put(q[k]);
		}
		g_assert_cmpint(raw_chain(r, 1, d, 3), ==, 16);
	}
	munmap(mem, 1 << 20);
	close(fd);
	guest_mem_release(r->mem, scratch, 8192);
	raw_stop(r);
}

/* Stopped and started again and again under load. */
static void count_down(struct guest_req *q)
{
	g_assert_cmpint(q->error, ==, 0);
	__atomic_sub_fetch((unsigned int *)q->user, 1, __ATOMIC_RELEASE);
	guest_req_put(q);
}

static void test_stop_cont(void)
{
	struct raw *r = raw_start(NULL);
	unsigned int left = 0;
	uint8_t *buf;
	uint64_t node;
	uint64_t fh;

	raw_connect(r, NULL);
	buf = guest_mem_alloc(r->mem, 65536);
	raw_make_file(r, "f", 65536, 1);
	node = raw_node(r, "f");
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY, &fh));
	for (unsigned int i = 0; i < 100; i++) {
		for (unsigned int k = 0; k < 40; k++) {
			struct guest_req *q = guest_req_get(r->fuse);

			if (!q)
				break;
			guest_prep_read(q, node, fh, 0, buf, 65536);
			q->done = count_down;
			q->user = &left;
			__atomic_add_fetch(&left, 1, __ATOMIC_RELEASE);
			raw_assert_ok(guest_req_submit(q));
		}
		raw_assert_ok(guest_frontend_stop(r->fe, NULL));
		raw_assert_ok(guest_frontend_start(r->fe, NULL));
	}
	while (__atomic_load_n(&left, __ATOMIC_ACQUIRE)) {
		struct fuse_attr a;

		raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	}
	g_assert_true(raw_check_bytes(buf, 0, 65536, 1));
	guest_mem_release(r->mem, buf, 65536);
	raw_stop(r);
}

/* The daemon dies: everything in flight ends with an error. */
static void test_daemon_dies(void)
{
	struct raw *r = raw_start(NULL);
	struct guest_req *q[8];
	struct fuse_attr a;
	int status;

	raw_connect(r, NULL);
	raw_assert_ok(guest_frontend_stop(r->fe, NULL));
	for (unsigned int i = 0; i < 8; i++) {
		q[i] = guest_req_get(r->fuse);
		guest_prep_getattr(q[i], 1);
		raw_assert_ok(guest_req_submit(q[i]));
	}
	kill(raw_daemon_pid(r), SIGKILL);
	for (unsigned int i = 0; i < 8; i++) {
		g_assert_cmpint(guest_req_wait_for(q[i], RAW_TIMEOUT), ==, -ENOTCONN);
		guest_req_put(q[i]);
	}
	raw_assert_err(guest_fuse_getattr(r->fuse, 1, &a), ENOTCONN);
	g_assert_false(guest_frontend_alive(r->fe));
	status = raw_wait_exit(r);
	g_assert_cmpint(status, !=, 0);
	raw_stop(r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/session/broken-messages", test_broken_messages);
	g_test_add_func("/session/persistent", test_persistent);
	g_test_add_func("/session/second-connection", test_second_connection);
	g_test_add_func("/session/memory-comes-and-goes", test_memory_comes_and_goes);
	g_test_add_func("/session/stop-cont", test_stop_cont);
	g_test_add_func("/session/daemon-dies", test_daemon_dies);
	return g_test_run();
}
