// SPDX-License-Identifier: Apache-2.0
/*
 * The back-end channel. The caller's own thread sends and receives: no change of threads on a
 * guest's path. Requests are pipelined, at most PIPELINE of them unanswered, so neither side
 * can fill the other's socket buffer and stand still; the front-end answers in order.
 *
 * The channel is counted: closing it shuts the socket down, which ends every wait of whoever is
 * in a call, and the descriptor is closed when the last of them has let go. Anything that is
 * not the answer to the oldest request breaks the channel: what is mapped is then unknown.
 */
#define G_LOG_DOMAIN "vhost"
#include "vhost_backend.h"

#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/socket.h>

#include "util_fd.h"
#include "util_lock.h"
#include "util_log.h"
#include "vhost_msg.h"

/* syscalls: getsockopt shutdown */

#define PIPELINE 32u

struct channel {
	int fd;
	unsigned int refs; /* under the lock */
};

struct vhost_backend {
	struct util_mutex lock; /* @channel and its refs */
	struct channel *channel;
	struct util_mutex call; /* one call at a time; taken before @lock */
};

struct vhost_backend *vhost_backend_new(void)
{
	struct vhost_backend *b = g_new0(struct vhost_backend, 1);

	util_mutex_init(&b->lock);
	util_mutex_init(&b->call);
	return b;
}

void vhost_backend_free(struct vhost_backend *b)
{
	vhost_backend_close(b);
	util_mutex_destroy(&b->call);
	util_mutex_destroy(&b->lock);
	g_free(b);
}

static struct channel *channel_get(struct vhost_backend *b)
{
	struct channel *c;

	util_mutex_lock(&b->lock);
	c = b->channel;
	if (c)
		c->refs++;
	util_mutex_unlock(&b->lock);
	return c;
}

static void channel_put_locked(struct channel *c)
{
	if (--c->refs)
		return;
	util_close(&c->fd);
	g_free(c);
}

static void channel_put(struct vhost_backend *b, struct channel *c)
{
	util_mutex_lock(&b->lock);
	channel_put_locked(c);
	util_mutex_unlock(&b->lock);
}

int vhost_backend_open(struct vhost_backend *b, int fd)
{
	int type = 0, domain = 0;
	socklen_t len = sizeof(int);
	struct channel *c;

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM ||
	    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX) {
		util_close(&fd);
		return -EINVAL;
	}
	vhost_backend_close(b);
	c = g_new0(struct channel, 1);
	c->fd = fd;
	c->refs = 1;
	util_mutex_lock(&b->lock);
	b->channel = c;
	util_mutex_unlock(&b->lock);
	return 0;
}

/* Breaks @c, the current channel or not; its users find out. */
static void channel_break(struct vhost_backend *b, struct channel *c)
{
	util_mutex_lock(&b->lock);
	shutdown(c->fd, SHUT_RDWR);
	if (b->channel == c) {
		b->channel = NULL;
		channel_put_locked(c);
	}
	util_mutex_unlock(&b->lock);
}

void vhost_backend_close(struct vhost_backend *b)
{
	struct channel *c = channel_get(b);

	if (!c)
		return;
	channel_break(b, c);
	channel_put(b, c);
}

static void fill_shmem(struct vhost_msg *m, const struct vhost_backend_req *r)
{
	m->hdr.size = sizeof(m->p.map);
	m->p.map.fd_offset = r->fd_offset;
	m->p.map.shm_offset = r->offset;
	m->p.map.len = r->len;
	m->p.map.flags = r->write ? VHOST_SHMEM_MAP_RW : 0;
}

static void fill_fs(struct vhost_msg *m, const struct vhost_backend_req *r)
{
	m->hdr.size = sizeof(m->p.fs_map);
	m->p.fs_map.fd_offset[0] = r->fd_offset;
	m->p.fs_map.c_offset[0] = r->offset;
	m->p.fs_map.len[0] = r->len;
	m->p.fs_map.flags[0] = r->kind != VHOST_BACKEND_FS_MAP
				       ? 0
				       : VHOST_FS_MAP_R | (r->write ? VHOST_FS_MAP_W : 0);
}

/* A UUID that nobody shares: the answer's value means nothing, that it comes is all. */
static void fill_fence(struct vhost_msg *m, const struct vhost_backend_req *r)
{
	m->hdr.size = 16;
	memset(m->p.bytes, 0xda, 16);
}

static const struct {
	uint32_t request;
	bool fd;
	void (*fill)(struct vhost_msg *m, const struct vhost_backend_req *r);
} kinds[] = {
	[VHOST_BACKEND_SHMEM_MAP] = {VHOST_BE_SHMEM_MAP, true, fill_shmem},
	[VHOST_BACKEND_SHMEM_UNMAP] = {VHOST_BE_SHMEM_UNMAP, false, fill_shmem},
	[VHOST_BACKEND_FENCE] = {VHOST_BE_SHARED_OBJECT_REMOVE, false, fill_fence},
	[VHOST_BACKEND_FS_MAP] = {VHOST_BE_FS_MAP, true, fill_fs},
	[VHOST_BACKEND_FS_UNMAP] = {VHOST_BE_FS_UNMAP, false, fill_fs},
};

static int send_one(struct channel *c, const struct vhost_backend_req *r)
{
	struct vhost_msg m;

	memset(&m, 0, offsetof(struct vhost_msg, p) + sizeof(m.p.fs_map));
	m.hdr.request = kinds[r->kind].request;
	m.hdr.flags = VHOST_FLAG_VERSION | VHOST_FLAG_NEED_REPLY;
	kinds[r->kind].fill(&m, r);
	return vhost_msg_send(c->fd, -1, &m, kinds[r->kind].fd ? r->fd : -1);
}

/* crosvm and the FS_MAP dialect answer -errno, QEMU 0 or 1. */
static int status_errno(enum vhost_backend_kind kind, uint64_t status)
{
	int64_t s = (int64_t)status;

	if (kind == VHOST_BACKEND_FENCE || s == 0)
		return 0;
	return s < 0 && s > -4096 ? (int)s : -EIO;
}

static int recv_one(struct channel *c, struct vhost_backend_req *r)
{
	struct vhost_msg m;
	const char *why;
	int got = vhost_msg_recv(c->fd, -1, &m, &why);

	if (got == 0)
		return -EPIPE;
	if (got == 1 && (m.hdr.request != kinds[r->kind].request ||
			 !(m.hdr.flags & VHOST_FLAG_REPLY) || m.hdr.size != sizeof(uint64_t))) {
		why = "not the answer to our request";
		got = -EPROTO;
	}
	if (got == -EPROTO)
		util_log_once("back-end channel broken: %s (request %u, flags 0x%x, size %u)", why,
			      m.hdr.request, m.hdr.flags, m.hdr.size);
	if (got == 1)
		r->result = status_errno(r->kind, m.p.u64);
	vhost_msg_clear(&m);
	return got == 1 ? 0 : -EPIPE;
}

static int call_locked(struct channel *c, struct vhost_backend_req *reqs, size_t n)
{
	size_t sent = 0, answered = 0;

	while (answered < n) {
		while (sent < n && sent - answered < PIPELINE) {
			int err = send_one(c, &reqs[sent]);

			if (err == -EBADF || err == -ETOOMANYREFS) {
				/* Nothing of it was sent. */
				if (sent != answered)
					break;
				reqs[sent].result = err;
				sent++;
				answered++;
				continue;
			}
			if (err)
				return -EPIPE;
			sent++;
		}
		if (answered < sent) {
			if (recv_one(c, &reqs[answered]))
				return -EPIPE;
			answered++;
		}
	}
	return 0;
}

int vhost_backend_call(struct vhost_backend *b, struct vhost_backend_req *reqs, size_t n)
{
	struct channel *c;
	int err;

	for (size_t i = 0; i < n; i++)
		reqs[i].result = -EPIPE;
	util_mutex_lock(&b->call);
	c = channel_get(b);
	err = c ? call_locked(c, reqs, n) : -EPIPE;
	if (c) {
		if (err)
			channel_break(b, c);
		channel_put(b, c);
	}
	util_mutex_unlock(&b->call);
	return err;
}
