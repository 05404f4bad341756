// SPDX-License-Identifier: Apache-2.0
/*
 * Framing. A message is a header of 12 bytes, hdr.size bytes of payload, and descriptors as
 * ancillary data of the first byte. Both channels are stream sockets, so either part may come
 * in pieces. Sockets are never set non-blocking (the flag would be shared with whoever else has
 * the description open): each call passes MSG_DONTWAIT and poll() waits, together with a stop
 * descriptor, so a stop is noticed at any point of a message.
 *
 * When the process is out of descriptors the kernel drops those of the message and sets
 * MSG_CTRUNC. The message is then still framed right: it is handed up marked, and refused.
 */
#include "vhost_msg.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "util_fd.h"

/* syscalls: poll recvmsg sendmsg close */

#define SCM_FDS_MAX 253 /* SCM_MAX_FD of the kernel: more cannot come at once */

static int wait_for(int sock, int stop, short events)
{
	struct pollfd p[2] = {
		{.fd = sock, .events = events},
		{.fd = stop, .events = POLLIN},
	};

	for (;;) {
		int n = poll(p, 2, -1);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && p[1].revents)
			return -ECANCELED;
		if (n > 0 && p[0].revents)
			return 0;
	}
}

static void keep_fds(struct vhost_msg *m, struct msghdr *mh)
{
	unsigned int got = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			got++;
			if (m->nfds < VHOST_MSG_FDS) {
				m->fds[m->nfds++] = fd;
			} else {
				m->fds_excess = true;
				util_close(&fd);
			}
		}
	}
	if ((mh->msg_flags & MSG_CTRUNC) && got < SCM_FDS_MAX)
		m->fds_lost = true;
}

/* Returns bytes, 0 at the end of the stream, or a negative errno. */
static ssize_t recv_some(int sock, int stop, struct vhost_msg *m, void *buf, size_t len)
{
	union {
		char buf[CMSG_SPACE(SCM_FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;

	for (;;) {
		struct iovec iov = {.iov_base = buf, .iov_len = len};
		struct msghdr mh = {
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control.buf,
			.msg_controllen = sizeof(control.buf),
		};
		ssize_t n;
		int err = wait_for(sock, stop, POLLIN);

		if (err)
			return err;
		n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n >= 0) {
			keep_fds(m, &mh);
			return n;
		}
		if (errno == ECONNRESET)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
}

static int recv_all(int sock, int stop, struct vhost_msg *m, void *buf, size_t len, size_t *got)
{
	uint8_t *p = buf;

	for (*got = 0; *got < len;) {
		ssize_t n = recv_some(sock, stop, m, p + *got, len - *got);

		if (n <= 0)
			return (int)n;
		*got += (size_t)n;
	}
	return 1;
}

int vhost_msg_recv(int sock, int stop, struct vhost_msg *m, const char **why)
{
	size_t got;
	int r;

	memset(m, 0, sizeof(*m));
	*why = "";
	r = recv_all(sock, stop, m, &m->hdr, sizeof(m->hdr), &got);
	if (r == 0 && got > 0) {
		*why = "closed inside a message header";
		r = -EPROTO;
	}
	if (r == 1 && (m->hdr.flags & VHOST_FLAG_VERSION_MASK) != VHOST_FLAG_VERSION) {
		*why = "unknown protocol version";
		r = -EPROTO;
	}
	if (r == 1 && m->hdr.size > VHOST_MSG_PAYLOAD) {
		*why = "payload too large";
		r = -EPROTO;
	}
	if (r == 1 && m->hdr.size > 0) {
		r = recv_all(sock, stop, m, m->p.bytes, m->hdr.size, &got);
		if (r == 0) {
			*why = "closed inside a message payload";
			r = -EPROTO;
		}
	}
	if (r != 1)
		vhost_msg_clear(m);
	return r;
}

int vhost_msg_send(int sock, int stop, const struct vhost_msg *m, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	size_t total = sizeof(m->hdr) + m->hdr.size;
	size_t done = 0;

	while (done < total) {
		struct iovec iov[2] = {{0}};
		struct msghdr mh = {.msg_iov = iov};
		ssize_t n;

		if (done < sizeof(m->hdr))
			iov[mh.msg_iovlen++] =
				(struct iovec){(uint8_t *)&m->hdr + done, sizeof(m->hdr) - done};
		if (total > sizeof(m->hdr)) {
			size_t at = done < sizeof(m->hdr) ? 0 : done - sizeof(m->hdr);

			iov[mh.msg_iovlen++] =
				(struct iovec){(uint8_t *)m->p.bytes + at, m->hdr.size - at};
		}
		if (done == 0 && fd >= 0) {
			mh.msg_control = control.buf;
			mh.msg_controllen = sizeof(control.buf);
			struct cmsghdr *c = CMSG_FIRSTHDR(&mh);

			c->cmsg_level = SOL_SOCKET;
			c->cmsg_type = SCM_RIGHTS;
			c->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(c), &fd, sizeof(int));
		}
		n = sendmsg(sock, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			done += (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			int err = wait_for(sock, stop, POLLOUT);

			if (err)
				return err;
		} else if (n < 0 && errno != EINTR) {
			return errno == ECONNRESET ? -EPIPE : -errno;
		}
	}
	return 0;
}

int vhost_msg_take_fd(struct vhost_msg *m, unsigned int i)
{
	return util_steal_fd(&m->fds[i]);
}

void vhost_msg_clear(struct vhost_msg *m)
{
	for (unsigned int i = 0; i < m->nfds; i++)
		util_close(&m->fds[i]);
	m->nfds = 0;
}
