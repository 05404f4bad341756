// SPDX-License-Identifier: Apache-2.0
/*
 * The main channel with any messages after a good start: the session goes on or ends, the next
 * one is served, no descriptor leaks.
 *
 * Input: a list of struct item, each followed by its payload.
 */
#include "fuzz.h"

#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <glib.h>

#include "count_tasks.h"
#include "vhost_fe.h"

#define ITEMS_MAX 8u

struct item {
	uint32_t request;
	uint32_t flags;
	uint32_t size;	/* in the header */
	uint8_t follow; /* payload bytes that really come, if fewer */
	uint8_t fds;	/* 0 to 3: none, an eventfd, the guest's memory, both */
	uint16_t pad;
};

static void on_request(void *ctx, struct vhost_elem *e)
{
	vhost_elem_done(e, 0);
}

static int on_config(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	memset(buf, 0, len);
	return 0;
}

static const struct vhost_ops ops = {.request = on_request, .config_read = on_config};
static const struct vhost_config config = {
	.num_queues = 2,
	.window_size = 16u << 20,
	.mem_slots = true,
};

static GLogWriterOutput quiet(GLogLevelFlags level, const GLogField *fields, gsize n, gpointer data)
{
	if (level <= G_LOG_LEVEL_CRITICAL)
		return g_log_writer_default(level, fields, n, data);
	return G_LOG_WRITER_HANDLED;
}

/* What the back-end says is thrown away, or it would stop to read. */
static void *drain(void *p)
{
	uint8_t buf[512];

	while (recv(*(int *)p, buf, sizeof(buf), 0) > 0)
		;
	return NULL;
}

static void send_item(struct fe *fe, const struct item *it, const uint8_t *payload, size_t len)
{
	struct vhost_hdr h = {it->request, it->flags, it->size};
	struct iovec iov[] = {{&h, sizeof(h)}, {(void *)payload, len}};
	int fds[2], n = 0, event = eventfd(0, EFD_CLOEXEC);
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(fds))];
	} control;
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};

	if (it->fds & 1)
		fds[n++] = event;
	if (it->fds & 2)
		fds[n++] = fe->memfd;
	if (n) {
		struct cmsghdr *c;

		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
	}
	/* EPIPE when an earlier item has ended the session */
	(void)!sendmsg(fe->sock, &m, MSG_NOSIGNAL);
	close(event);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned int fds_before;
	unsigned int fds;
	struct fe *fe;
	pthread_t reader;

	if (!fds_before)
		g_log_set_writer_func(quiet, NULL, NULL);
	fe = fe_new(&config, &ops, NULL);
	fe_start(fe, FE_FEATURES);
	g_assert_cmpint(pthread_create(&reader, NULL, drain, &fe->sock), ==, 0);
	for (unsigned int i = 0; i < ITEMS_MAX && size >= sizeof(struct item); i++) {
		struct item it;
		size_t len;

		memcpy(&it, data, sizeof(it));
		data += sizeof(it);
		size -= sizeof(it);
		len = MIN(size, MIN(it.size, it.follow));
		send_item(fe, &it, data, len);
		data += len;
		size -= len;
	}
	shutdown(fe->sock, SHUT_WR);
	g_assert_cmpint(pthread_join(reader, NULL), ==, 0);
	fe_hangup(fe);
	fe_free(fe);
	fds = count_fds();
	if (fds_before)
		g_assert_cmpuint(fds, ==, fds_before);
	fds_before = fds;
	return 0;
}

struct seed {
	struct item it;
	uint64_t words[5];
};

#define SEED(req, bytes, fds, ...)                                                                 \
	{                                                                                          \
		{VHOST_##req, VHOST_FLAG_VERSION, bytes, bytes, fds, 0},                           \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct seed seeds[] = {
	SEED(GET_FEATURES, 0, 0, 0),
	SEED(SET_FEATURES, 8, 0, 1ull << 32 | 1ull << 30),
	SEED(SET_OWNER, 0, 0, 0),
	SEED(SET_VRING_NUM, 8, 0, 16ull << 32),
	SEED(SET_VRING_BASE, 8, 0, 3ull << 32),
	SEED(GET_VRING_BASE, 8, 0, 0),
	SEED(SET_VRING_ADDR, 40, 0, 0, FE_UVA, FE_UVA + 0x2000, FE_UVA + 0x1000),
	SEED(SET_VRING_KICK, 8, 1, 0),
	SEED(SET_VRING_CALL, 8, 1, 1),
	SEED(SET_VRING_ERR, 8, 1, 0),
	SEED(SET_VRING_ENABLE, 8, 0, 1ull << 32),
	SEED(GET_PROTOCOL_FEATURES, 0, 0, 0),
	SEED(SET_PROTOCOL_FEATURES, 8, 0, 0x2a29),
	SEED(GET_QUEUE_NUM, 0, 0, 0),
	SEED(ADD_MEM_REG, 40, 2, 0, FE_GPA + 0x1000000, 0x100000, FE_UVA + 0x1000000, 0x100000),
	SEED(REM_MEM_REG, 40, 0, 0, FE_GPA, FE_MEM_SIZE, FE_UVA),
	SEED(SET_MEM_TABLE, 40, 2, 1, FE_GPA, FE_MEM_SIZE, FE_UVA),
	SEED(GET_CONFIG, 12, 0, 0x2c),
	SEED(GET_SHMEM_CONFIG, 0, 0, 0),
	SEED(RESET_DEVICE, 0, 0, 0),
};

size_t fuzz_seed(unsigned int i, uint8_t *buf, size_t cap)
{
	size_t at = 0;

	if (i >= G_N_ELEMENTS(seeds))
		return 0;
	for (unsigned int k = 0; k < 3; k++) {
		const struct seed *s = &seeds[(i + k * 7) % G_N_ELEMENTS(seeds)];

		g_assert_cmpuint(at + sizeof(*s), <=, cap);
		memcpy(buf + at, &s->it, sizeof(s->it));
		memcpy(buf + at + sizeof(s->it), s->words, s->it.size);
		at += sizeof(s->it) + s->it.size;
	}
	return at;
}
