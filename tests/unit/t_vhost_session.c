// SPDX-License-Identifier: Apache-2.0
/* The main channel: what is negotiated, what is refused, what ends a session; nothing leaks. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "count_tasks.h"
#include "util_fd.h"
#include "vhost_fe.h"

static unsigned int closed;

static void on_request(void *ctx, struct vhost_elem *e)
{
	vhost_elem_done(e, 0);
}

static int on_config(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)(offset + i);
	return 0;
}

static void on_closed(void *ctx)
{
	closed++;
}

static const struct vhost_ops ops = {
	.request = on_request,
	.config_read = on_config,
	.closed = on_closed,
};
static const struct vhost_config config = {
	.num_queues = 2,
	.window_size = 16u << 20,
	.mem_slots = true,
};

static void test_negotiation(void)
{
	struct fe *fe = fe_new(&config, &ops, NULL);
	struct vhost_shmem_config sh;
	struct vhost_config_msg c = {.offset = 3, .size = 44};

	g_assert_cmphex(fe_get(fe, VHOST_GET_FEATURES), ==,
			FE_FEATURES | VHOST_BIT(VIRTIO_F_BIT_EVENT_IDX));
	g_assert_cmphex(fe_get(fe, VHOST_GET_PROTOCOL_FEATURES), ==,
			FE_PROTOCOL | VHOST_BIT(VHOST_PF_SHMEM));
	fe_negotiate(fe, FE_FEATURES, ~0ull);
	g_assert_cmpuint(fe_get(fe, VHOST_GET_QUEUE_NUM), ==, 2);
	g_assert_cmpuint(fe_get(fe, VHOST_GET_MAX_MEM_SLOTS), >=, 509);
	fe_send(fe, VHOST_GET_SHMEM_CONFIG, 0, NULL, 0, NULL, 0);
	g_assert_cmpint(fe_recv(fe, VHOST_GET_SHMEM_CONFIG, &sh, sizeof(sh)), ==, sizeof(sh));
	g_assert_cmpuint(sh.nregions, ==, 1);
	g_assert_cmpuint(sh.size[0], ==, 16u << 20);
	g_assert_cmpuint(sh.size[1], ==, 0);
	fe_send(fe, VHOST_GET_CONFIG, 0, &c, VHOST_CONFIG_HDR + 44, NULL, 0);
	g_assert_cmpint(fe_recv(fe, VHOST_GET_CONFIG, &c, sizeof(c)), ==, VHOST_CONFIG_HDR + 44);
	g_assert_cmpuint(c.data[0], ==, 3);
	g_assert_cmpuint(c.data[43], ==, 46);
	/* a guest can write there: refused, but no end */
	g_assert_cmpuint(fe_ack(fe, VHOST_SET_CONFIG, &c, VHOST_CONFIG_HDR + 44, -1), ==, 1);
	fe_send(fe, VHOST_SET_CONFIG, 0, &c, VHOST_CONFIG_HDR + 44, NULL, 0);
	g_assert_cmpuint(fe_ack(fe, VHOST_RESET_DEVICE, NULL, 0, -1), ==, 0);
	g_assert_cmpuint(fe_ack(fe, VHOST_RESET_OWNER, NULL, 0, -1), ==, 0);
	g_assert_cmpint(fe_hangup(fe), ==, 0);
	fe_free(fe);
}

static void test_features_follow_the_config(void)
{
	struct vhost_config c = {.num_queues = 2};
	struct fe *fe = fe_new(&c, &ops, NULL);

	g_assert_cmphex(fe_get(fe, VHOST_GET_PROTOCOL_FEATURES), ==,
			FE_PROTOCOL & ~VHOST_BIT(VHOST_PF_CONFIGURE_MEM_SLOTS));
	fe_free(fe);
}

static void test_message_in_pieces(void)
{
	struct fe *fe = fe_new(&config, &ops, NULL);
	struct {
		struct vhost_hdr h;
		uint64_t v;
	} __attribute__((packed))
	m = {{VHOST_SET_PROTOCOL_FEATURES, VHOST_FLAG_VERSION, 8}, FE_PROTOCOL};

	for (unsigned int i = 0; i < sizeof(m); i++) {
		g_assert_cmpint(send(fe->sock, (uint8_t *)&m + i, 1, 0), ==, 1);
		g_usleep(1); /* lets the other side see a piece; nothing depends on it */
	}
	g_assert_cmpuint(fe_get(fe, VHOST_GET_QUEUE_NUM), ==, 2);
	fe_free(fe);
}

/* One message that ends the session, sent after the negotiation (or before). */
struct bad {
	const char *what;
	uint32_t request, flags, size;
	unsigned int nfds;
	bool before;
	union {
		uint64_t u64[8];
		struct vhost_vring_state state;
		struct vhost_vring_addr addr;
		struct vhost_mem_reg reg;
	} p;
};

static const struct bad bads[] = {
	{"unknown request", 200},
	{"request 0", 0},
	{"not offered: status", 39, .size = 8},
	{"in a gap of the table", 22, .size = 8},
	{"reply to nothing", VHOST_GET_FEATURES, VHOST_FLAG_REPLY},
	{"bad version", VHOST_GET_FEATURES, 2},
	{"payload where none belongs", VHOST_GET_FEATURES, .size = 8},
	{"payload too short", VHOST_SET_FEATURES, .size = 4},
	{"payload too long", VHOST_SET_FEATURES, .size = 16},
	{"payload huge", VHOST_SET_FEATURES, .size = 0x7fffffff},
	{"descriptor where none belongs", VHOST_SET_FEATURES, .size = 8, .nfds = 1},
	{"too many descriptors", VHOST_SET_VRING_KICK, .size = 8, .nfds = 2},
	{"far too many descriptors", VHOST_SET_MEM_TABLE, .size = 8, .nfds = 40},
	{"features not offered", VHOST_SET_FEATURES, .size = 8, .p.u64 = {1ull << 34}},
	{"protocol features not offered", VHOST_SET_PROTOCOL_FEATURES, .size = 8,
	 .p.u64 = {1ull << 21}},
	{"memory before SET_OWNER", VHOST_SET_MEM_TABLE, .size = 8, .before = true},
	{"ring before SET_OWNER", VHOST_SET_VRING_NUM, .size = 8, .before = true,
	 .p.state = {0, 16}},
	{"feature not negotiated", VHOST_GET_QUEUE_NUM, .before = true},
	{"memory region without descriptor", VHOST_ADD_MEM_REG, .size = 40},
	{"memory table without descriptors", VHOST_SET_MEM_TABLE, .size = 40, .p.u64 = {1}},
	{"memory table of nine", VHOST_SET_MEM_TABLE, .size = 40, .p.u64 = {9}, .nfds = 8},
	{"memory table cut short", VHOST_SET_MEM_TABLE, .size = 40, .p.u64 = {2}, .nfds = 2},
	{"region beyond its file", VHOST_ADD_MEM_REG, .size = 40, .nfds = 1,
	 .p.reg = {0, {0, 1ull << 40, 0, 0}}},
	{"region that overflows", VHOST_ADD_MEM_REG, .size = 40, .nfds = 1,
	 .p.reg = {0, {UINT64_MAX, 0x1000, 0, 0}}},
	{"region offset that overflows", VHOST_ADD_MEM_REG, .size = 40, .nfds = 1,
	 .p.reg = {0, {0, 0x1000, 0, UINT64_MAX - 0xfff}}},
	{"empty region", VHOST_ADD_MEM_REG, .size = 40, .nfds = 1},
	{"ring index", VHOST_SET_VRING_NUM, .size = 8, .p.state = {2, 16}},
	{"ring index huge", VHOST_GET_VRING_BASE, .size = 8, .p.state = {0xffffffff, 0}},
	{"ring index of enable", VHOST_SET_VRING_ENABLE, .size = 8, .p.state = {2, 1}},
	{"ring index of kick", VHOST_SET_VRING_KICK, .size = 8, .nfds = 1, .p.u64 = {2}},
	{"ring size 0", VHOST_SET_VRING_NUM, .size = 8, .p.state = {0, 0}},
	{"ring size no power of two", VHOST_SET_VRING_NUM, .size = 8, .p.state = {0, 24}},
	{"ring size too large", VHOST_SET_VRING_NUM, .size = 8, .p.state = {0, 65536}},
	{"ring base too large", VHOST_SET_VRING_BASE, .size = 8, .p.state = {0, 65536}},
	{"ring address before size", VHOST_SET_VRING_ADDR, .size = 40},
	{"enable neither on nor off", VHOST_SET_VRING_ENABLE, .size = 8, .p.state = {0, 2}},
	{"kick without descriptor", VHOST_SET_VRING_KICK, .size = 8, .p.u64 = {0}},
	{"call without descriptor", VHOST_SET_VRING_CALL, .size = 8, .p.u64 = {1}},
	{"kick with descriptor and bit", VHOST_SET_VRING_KICK, .size = 8, .nfds = 1,
	 .p.u64 = {0x100}},
	{"kick with unknown bits", VHOST_SET_VRING_KICK, .size = 8, .nfds = 1, .p.u64 = {0x200}},
	{"back-end channel without descriptor", VHOST_SET_BACKEND_REQ_FD},
	{"back-end channel that is none", VHOST_SET_BACKEND_REQ_FD, .nfds = 1},
	{"config out of range", VHOST_GET_CONFIG, .size = 20, .p.u64 = {250 | 8ull << 32}},
	{"config size differs", VHOST_GET_CONFIG, .size = 20, .p.u64 = {0 | 44ull << 32}},
};

static void test_malformed(void)
{
	int fds[40];
	unsigned int before;

	for (unsigned int i = 0; i < G_N_ELEMENTS(fds); i++)
		fds[i] = memfd_create("any", MFD_CLOEXEC);
	for (unsigned int i = 0; i < G_N_ELEMENTS(bads); i++) {
		const struct bad *b = &bads[i];
		struct fe *fe;

		before = count_fds();
		fe = fe_new(&config, &ops, NULL);
		if (!b->before)
			fe_negotiate(fe, FE_FEATURES, ~0ull);
		g_test_message("%s", b->what);
		closed = 0;
		if (b->flags == 2) { /* fe_send() would make it right */
			struct vhost_hdr h = {b->request, 2, 0};

			send(fe->sock, &h, sizeof(h), 0);
		} else {
			fe_send(fe, b->request, b->flags, &b->p, MIN(b->size, sizeof(b->p)), fds,
				b->nfds);
		}
		if (b->size > sizeof(b->p)) {
			struct vhost_hdr h = {b->request, VHOST_FLAG_VERSION, b->size};

			send(fe->sock, &h, sizeof(h), MSG_NOSIGNAL);
		}
		g_assert_cmpint(fe_wait_end(fe), ==, -EPROTO);
		g_assert_cmpuint(closed, ==, 1);
		fe_free(fe);
		g_assert_cmpuint(count_fds(), ==, before);
	}
	for (unsigned int i = 0; i < G_N_ELEMENTS(fds); i++)
		close(fds[i]);
}

static void test_bad_ring_addresses(void)
{
	static const uint64_t offs[][3] = {
		{8, 0x1000, 0x2000},		      /* alignment */
		{0, 0x1001, 0x2000},		      /* alignment */
		{0, 0x1000, 0x2002},		      /* alignment */
		{FE_MEM_SIZE - 16, 0x1000, 0x2000},   /* off the end */
		{0, FE_MEM_SIZE - 4, 0x2000},	      /* off the end */
		{0, 0x1000, FE_MEM_SIZE - 4},	      /* off the end */
		{0, 0x1000, UINT64_MAX - FE_UVA - 3}, /* wraps */
	};

	for (unsigned int i = 0; i < G_N_ELEMENTS(offs); i++) {
		struct fe *fe = fe_new(&config, &ops, NULL);
		struct vhost_vring_state num = {0, 16};
		struct vhost_vring_addr a = {
			0, 0, FE_UVA + offs[i][0], FE_UVA + offs[i][2], FE_UVA + offs[i][1], 0};

		fe_negotiate(fe, FE_FEATURES, ~0ull);
		g_assert_cmpuint(fe_add_ram(fe, 0, FE_MEM_SIZE), ==, 0);
		fe_send(fe, VHOST_SET_VRING_NUM, 0, &num, sizeof(num), NULL, 0);
		fe_send(fe, VHOST_SET_VRING_ADDR, 0, &a, sizeof(a), NULL, 0);
		g_assert_cmpint(fe_wait_end(fe), ==, -EPROTO);
		fe_free(fe);
	}
}

static void test_reconfiguring_a_running_ring(void)
{
	struct fe *fe = fe_new(&config, &ops, NULL);
	struct vhost_vring_state num = {0, 16};

	fe_start(fe, FE_FEATURES);
	fe_send(fe, VHOST_SET_VRING_NUM, 0, &num, sizeof(num), NULL, 0);
	g_assert_cmpint(fe_wait_end(fe), ==, -EPROTO);
	fe_free(fe);
}

static void test_cut_off(void)
{
	for (unsigned int n = 1; n < 20; n++) {
		struct fe *fe = fe_new(&config, &ops, NULL);
		struct {
			struct vhost_hdr h;
			uint64_t v;
		} __attribute__((packed)) m = {{VHOST_SET_FEATURES, VHOST_FLAG_VERSION, 8}, 0};

		g_assert_cmpint(send(fe->sock, &m, n, 0), ==, n);
		g_assert_cmpint(fe_hangup(fe), ==, -EPROTO);
		fe_free(fe);
	}
}

static void test_stop_in_any_state(void)
{
	struct fe *fe = fe_new(&config, &ops, NULL);
	uint32_t half = VHOST_GET_FEATURES;

	vhost_dev_stop(fe->d);
	g_assert_cmpint(fe_wait_end(fe), ==, -ECANCELED);
	fe_reconnect(fe);
	g_assert_cmpint(send(fe->sock, &half, sizeof(half), 0), ==, sizeof(half));
	vhost_dev_stop(fe->d);
	g_assert_cmpint(fe_wait_end(fe), ==, -ECANCELED);
	fe_reconnect(fe);
	fe_start(fe, FE_FEATURES);
	vhost_dev_stop(fe->d);
	g_assert_cmpint(fe_wait_end(fe), ==, -ECANCELED);
	fe_reconnect(fe);
	fe_start(fe, FE_FEATURES);
	fe_echo(fe, 1, 0, 8);
	fe_used(fe, 1);
	fe_free(fe);
}

/* Out of descriptors: the message is refused, or ends the session; the process goes on. */
static void test_descriptor_table_full(void)
{
	struct fe *fe = fe_new(&config, &ops, NULL);
	struct rlimit old, low;
	int fillers[4096], n = 0;
	int extra = memfd_create("any", MFD_CLOEXEC);
	struct vhost_mem_reg r = {0, {FE_GPA, 0x100000, FE_UVA, 0}};

	fe_negotiate(fe, FE_FEATURES, ~0ull);
	g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &old), ==, 0);
	low = old;
	low.rlim_cur = count_fds() + 64;
	g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &low), ==, 0);
	while (n < 4096 && (fillers[n] = dup(extra)) >= 0)
		n++;
	g_assert_cmpuint(fe_ack(fe, VHOST_ADD_MEM_REG, &r, sizeof(r), extra), ==, 1);
	g_assert_cmpuint(fe_get(fe, VHOST_GET_QUEUE_NUM), ==, 2);
	while (n > 0)
		close(fillers[--n]);
	g_assert_cmpuint(fe_ack(fe, VHOST_ADD_MEM_REG, &r, sizeof(r), fe->memfd), ==, 0);
	g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &old), ==, 0);
	close(extra);
	fe_free(fe);
}

static void test_nothing_leaks(void)
{
	struct fe *fe = fe_new(&config, &ops, NULL);
	unsigned int fds, threads;

	/* What is made once (liburcu's thread, the device's own) is there after one session. */
	fe_start(fe, FE_FEATURES);
	fe_hangup(fe);
	fds = count_fds();
	threads = count_tasks(0);
	for (unsigned int i = 0; i < 20; i++) {
		fe_reconnect(fe);
		fe_start(fe, FE_FEATURES);
		for (unsigned int k = 0; k < 3; k++) {
			fe_echo(fe, k % 2, k, 64);
			fe_used(fe, k % 2);
		}
		if (i % 2) { /* stop and start */
			for (unsigned int k = 0; k < 2; k++)
				fe_ring_start(fe, k, fe_ring_stop(fe, k));
		}
		g_assert_cmpint(fe_hangup(fe), ==, 0);
		g_assert_cmpuint(count_fds(), ==, fds);
		g_assert_cmpuint(count_tasks(threads), <=, threads);
	}
	fe_free(fe);
}

static void test_mem_table(void)
{
	struct fe *fe = fe_new(&config, &ops, NULL);
	struct vhost_mem_table t = {
		.n = 2,
		.regions = {{FE_GPA, 0x200000, FE_UVA, 0},
			    {FE_GPA + 0x200000, 0x200000, FE_UVA + 0x200000, 0x200000}},
	};
	int fds[2] = {fe->memfd, fe->memfd};
	uint64_t status;

	/* as a front-end without memory slots and without acknowledgements of enables does */
	fe_negotiate(fe, FE_FEATURES & ~VHOST_BIT(VHOST_F_BIT_PROTOCOL_FEATURES),
		     VHOST_BIT(VHOST_PF_REPLY_ACK) | VHOST_BIT(VHOST_PF_MQ));
	for (unsigned int i = 0; i < 2; i++) { /* twice: replaced under running rings */
		fe_send(fe, VHOST_SET_MEM_TABLE, VHOST_FLAG_NEED_REPLY, &t, 8 + 2 * 32, fds, 2);
		g_assert_cmpint(fe_recv(fe, VHOST_SET_MEM_TABLE, &status, 8), ==, 8);
		g_assert_cmpuint(status, ==, 0);
		if (i == 0)
			fe_ring_start(fe, 1, 0);
		fe_echo(fe, 1, i, 64);
		fe_used(fe, 1);
	}
	fe_free(fe);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
	g_test_add_func("/vhost/session/negotiation", test_negotiation);
	g_test_add_func("/vhost/session/features-follow-config", test_features_follow_the_config);
	g_test_add_func("/vhost/session/message-in-pieces", test_message_in_pieces);
	g_test_add_func("/vhost/session/malformed", test_malformed);
	g_test_add_func("/vhost/session/bad-ring-addresses", test_bad_ring_addresses);
	g_test_add_func("/vhost/session/running-ring", test_reconfiguring_a_running_ring);
	g_test_add_func("/vhost/session/cut-off", test_cut_off);
	g_test_add_func("/vhost/session/stop-in-any-state", test_stop_in_any_state);
	g_test_add_func("/vhost/session/descriptor-table-full", test_descriptor_table_full);
	g_test_add_func("/vhost/session/nothing-leaks", test_nothing_leaks);
	g_test_add_func("/vhost/session/mem-table", test_mem_table);
	return g_test_run();
}
