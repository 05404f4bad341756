// SPDX-License-Identifier: Apache-2.0
#include "vhost_fe.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util_fd.h"

static void *serve(void *arg)
{
	struct fe *fe = arg;
	int fd = fe->result;

	fe->result = vhost_dev_serve(fe->d, fd);
	return NULL;
}

/* A test whose peer says nothing fails instead of hanging. */
static void be_patient(int sock)
{
	struct timeval tv = {.tv_sec = 30};

	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
}

static void rings_init(struct fe *fe)
{
	for (unsigned int i = 0; i < 2; i++) {
		uint8_t *at = fe->mem + FE_RING_AT(i);

		fe->ring[i].desc = (void *)at;
		fe->ring[i].avail = (void *)(at + 0x1000);
		fe->ring[i].used = (void *)(at + 0x2000);
		fe->ring[i].seen = 0;
		fe->ring[i].kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		fe->ring[i].call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	}
}

void fe_reconnect(struct fe *fe)
{
	int sv[2];

	g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), ==, 0);
	fe->sock = sv[0];
	be_patient(fe->sock);
	fe->result = sv[1];
	fe->backend = -1;
	rings_init(fe);
	g_assert_cmpint(pthread_create(&fe->thread, NULL, serve, fe), ==, 0);
}

struct fe *fe_new(const struct vhost_config *config, const struct vhost_ops *ops, void *ctx)
{
	struct fe *fe = g_new0(struct fe, 1);

	fe->d = vhost_dev_new(config, ops, ctx);
	fe->memfd = memfd_create("guest", MFD_CLOEXEC);
	g_assert_cmpint(ftruncate(fe->memfd, FE_MEM_SIZE), ==, 0);
	fe->mem = mmap(NULL, FE_MEM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fe->memfd, 0);
	g_assert(fe->mem != MAP_FAILED);
	fe_reconnect(fe);
	return fe;
}

int fe_wait_end(struct fe *fe)
{
	pthread_join(fe->thread, NULL);
	util_close(&fe->sock);
	util_close(&fe->backend);
	for (unsigned int i = 0; i < 2; i++) {
		util_close(&fe->ring[i].kick);
		util_close(&fe->ring[i].call);
	}
	return fe->result;
}

int fe_hangup(struct fe *fe)
{
	shutdown(fe->sock, SHUT_RDWR);
	return fe_wait_end(fe);
}

void fe_free(struct fe *fe)
{
	if (fe->sock >= 0)
		fe_hangup(fe);
	vhost_dev_free(fe->d);
	munmap(fe->mem, FE_MEM_SIZE);
	util_close(&fe->memfd);
	g_free(fe);
}

void fe_send(struct fe *fe, uint32_t request, uint32_t flags, const void *payload, uint32_t size,
	     const int *fds, unsigned int nfds)
{
	struct vhost_hdr h = {request, VHOST_FLAG_VERSION | flags, size};
	struct iovec iov[2] = {{&h, sizeof(h)}, {(void *)(uintptr_t)payload, size}};
	union {
		char buf[CMSG_SPACE(64 * sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr mh = {.msg_iov = iov, .msg_iovlen = 2};

	if (nfds) {
		struct cmsghdr *c;

		mh.msg_control = control.buf;
		mh.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	if (sendmsg(fe->sock, &mh, MSG_NOSIGNAL) < 0)
		g_assert_cmpint(errno, ==, EPIPE);
}

int fe_recv(struct fe *fe, uint32_t request, void *payload, uint32_t max)
{
	struct vhost_hdr h;

	if (recv(fe->sock, &h, sizeof(h), MSG_WAITALL) != (ssize_t)sizeof(h))
		return -1;
	g_assert_cmpuint(h.request, ==, request);
	g_assert_cmphex(h.flags, ==, VHOST_FLAG_VERSION | VHOST_FLAG_REPLY);
	g_assert_cmpuint(h.size, <=, max);
	if (h.size)
		g_assert_cmpint(recv(fe->sock, payload, h.size, MSG_WAITALL), ==, h.size);
	return (int)h.size;
}

uint64_t fe_ack(struct fe *fe, uint32_t request, const void *payload, uint32_t size, int fd)
{
	uint64_t v = 99;

	fe_send(fe, request, VHOST_FLAG_NEED_REPLY, payload, size, &fd, fd >= 0);
	g_assert_cmpint(fe_recv(fe, request, &v, sizeof(v)), ==, sizeof(v));
	return v;
}

uint64_t fe_get(struct fe *fe, uint32_t request)
{
	uint64_t v = 0;

	fe_send(fe, request, 0, NULL, 0, NULL, 0);
	g_assert_cmpint(fe_recv(fe, request, &v, sizeof(v)), ==, sizeof(v));
	return v;
}

void fe_negotiate(struct fe *fe, uint64_t features, uint64_t protocol)
{
	int sv[2];

	fe_get(fe, VHOST_GET_FEATURES);
	protocol &= fe_get(fe, VHOST_GET_PROTOCOL_FEATURES);
	fe_send(fe, VHOST_SET_PROTOCOL_FEATURES, 0, &protocol, 8, NULL, 0);
	fe_send(fe, VHOST_SET_OWNER, 0, NULL, 0, NULL, 0);
	if (protocol & VHOST_BIT(VHOST_PF_BACKEND_REQ)) {
		g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), ==, 0);
		g_assert_cmpuint(fe_ack(fe, VHOST_SET_BACKEND_REQ_FD, NULL, 0, sv[1]), ==, 0);
		close(sv[1]);
		fe->backend = sv[0];
		be_patient(fe->backend);
	}
	fe_send(fe, VHOST_SET_FEATURES, 0, &features, 8, NULL, 0);
}

static struct vhost_mem_reg ram_msg(uint64_t offset, uint64_t size)
{
	struct vhost_mem_reg r = {0, {FE_GPA + offset, size, FE_UVA + offset, offset}};

	return r;
}

uint64_t fe_add_ram(struct fe *fe, uint64_t offset, uint64_t size)
{
	struct vhost_mem_reg r = ram_msg(offset, size);

	return fe_ack(fe, VHOST_ADD_MEM_REG, &r, sizeof(r), fe->memfd);
}

uint64_t fe_rem_ram(struct fe *fe, uint64_t offset, uint64_t size)
{
	struct vhost_mem_reg r = ram_msg(offset, size);

	return fe_ack(fe, VHOST_REM_MEM_REG, &r, sizeof(r), -1);
}

void fe_ring_zero(struct fe *fe, unsigned int i)
{
	memset(fe->mem + FE_RING_AT(i), 0, 0x10000);
	fe->ring[i].seen = 0;
}

void fe_ring_start(struct fe *fe, unsigned int i, uint16_t base)
{
	struct vhost_vring_state num = {i, FE_RING_SIZE}, b = {i, base};
	struct vhost_vring_addr a = {
		.index = i,
		.desc = FE_UVA + FE_RING_AT(i),
		.avail = FE_UVA + FE_RING_AT(i) + 0x1000,
		.used = FE_UVA + FE_RING_AT(i) + 0x2000,
	};
	uint64_t index = i;

	fe_send(fe, VHOST_SET_VRING_NUM, 0, &num, sizeof(num), NULL, 0);
	fe_send(fe, VHOST_SET_VRING_BASE, 0, &b, sizeof(b), NULL, 0);
	fe_send(fe, VHOST_SET_VRING_ADDR, 0, &a, sizeof(a), NULL, 0);
	fe_send(fe, VHOST_SET_VRING_CALL, 0, &index, 8, &fe->ring[i].call, 1);
	g_assert_cmpuint(fe_ack(fe, VHOST_SET_VRING_KICK, &index, 8, fe->ring[i].kick), ==, 0);
}

void fe_ring_enable(struct fe *fe, unsigned int i, bool on)
{
	struct vhost_vring_state s = {i, on};

	g_assert_cmpuint(fe_ack(fe, VHOST_SET_VRING_ENABLE, &s, sizeof(s), -1), ==, 0);
}

uint16_t fe_ring_stop(struct fe *fe, unsigned int i)
{
	struct vhost_vring_state s = {i, 0};

	fe_send(fe, VHOST_GET_VRING_BASE, 0, &s, sizeof(s), NULL, 0);
	g_assert_cmpint(fe_recv(fe, VHOST_GET_VRING_BASE, &s, sizeof(s)), ==, sizeof(s));
	g_assert_cmpuint(s.index, ==, i);
	return (uint16_t)s.num;
}

void fe_start(struct fe *fe, uint64_t features)
{
	fe_negotiate(fe, features, ~0ull);
	g_assert_cmpuint(fe_add_ram(fe, 0, FE_MEM_SIZE), ==, 0);
	for (unsigned int i = 0; i < 2; i++) {
		fe_ring_zero(fe, i);
		fe_ring_start(fe, i, 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		fe_ring_enable(fe, i, true);
}

void fe_desc(struct fe *fe, unsigned int ring, unsigned int i, uint64_t addr, uint32_t len,
	     uint16_t flags, uint16_t next)
{
	fe->ring[ring].desc[i] = (struct vring_desc){addr, len, flags, next};
}

void fe_avail(struct fe *fe, unsigned int ring, uint16_t head)
{
	struct vring_avail *a = fe->ring[ring].avail;
	uint16_t idx = a->idx;

	a->ring[idx % FE_RING_SIZE] = head;
	__atomic_store_n(&a->idx, (uint16_t)(idx + 1), __ATOMIC_RELEASE);
}

void fe_kick(struct fe *fe, unsigned int ring)
{
	uint64_t one = 1;

	g_assert_cmpint(write(fe->ring[ring].kick, &one, sizeof(one)), ==, sizeof(one));
}

void fe_post(struct fe *fe, unsigned int ring, uint16_t head)
{
	fe_avail(fe, ring, head);
	fe_kick(fe, ring);
}

unsigned int fe_used_count(struct fe *fe, unsigned int ring)
{
	struct fe_ring *r = &fe->ring[ring];

	return (uint16_t)(__atomic_load_n(&r->used->idx, __ATOMIC_ACQUIRE) - r->seen);
}

struct vring_used_elem fe_used(struct fe *fe, unsigned int ring)
{
	struct fe_ring *r = &fe->ring[ring];

	while (!fe_used_count(fe, ring)) {
		struct pollfd p = {.fd = r->call, .events = POLLIN};
		uint64_t v;

		g_assert_cmpint(poll(&p, 1, 30000), ==, 1);
		if (read(r->call, &v, sizeof(v)) < 0)
			g_assert_cmpint(errno, ==, EAGAIN);
	}
	return r->used->ring[r->seen++ % FE_RING_SIZE];
}

void fe_echo(struct fe *fe, unsigned int ring, unsigned int slot, uint32_t len)
{
	uint64_t at = FE_GPA + FE_BUFS + ring * 0x80000u + slot * 0x4000u;
	uint16_t head = (uint16_t)(2 * slot);

	fe_desc(fe, ring, head, at, len, VRING_DESC_F_NEXT, (uint16_t)(head + 1));
	fe_desc(fe, ring, head + 1u, at + 0x2000, len, VRING_DESC_F_WRITE, 0);
	fe_post(fe, ring, head);
}

