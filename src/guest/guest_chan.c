// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "guest_chan.h"
#include "util_fd.h"
#include "util_lock.h"

int guest_chan_send_raw(int sock, const void *buf, size_t len, const int *fds, unsigned int nfds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * 64)];
	} ctl;
	const char *p = buf;

	if (nfds > 64)
		return -EINVAL;
	while (len) {
		struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = len};
		struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
		ssize_t n;

		if (nfds) {
			memset(&ctl, 0, sizeof(ctl));
			mh.msg_control = ctl.bytes;
			mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
			ctl.align.cmsg_level = SOL_SOCKET;
			ctl.align.cmsg_type = SCM_RIGHTS;
			ctl.align.cmsg_len = CMSG_LEN(sizeof(int) * nfds);
			memcpy(CMSG_DATA(&ctl.align), fds, sizeof(int) * nfds);
		}
		n = sendmsg(sock, &mh, MSG_NOSIGNAL);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return errno == ECONNRESET ? -EPIPE : -errno;
		}
		nfds = 0;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int guest_chan_send(int sock, uint32_t request, uint32_t flags, const void *payload, uint32_t size,
		    const int *fds, unsigned int nfds)
{
	struct guest_msg_hdr hdr = {
		.request = request,
		.flags = flags | GUEST_MSG_VERSION,
		.size = size,
	};
	uint8_t buf[sizeof(hdr) + 4096];

	if (size > sizeof(buf) - sizeof(hdr))
		return -EMSGSIZE;
	memcpy(buf, &hdr, sizeof(hdr));
	if (size)
		memcpy(buf + sizeof(hdr), payload, size);
	return guest_chan_send_raw(sock, buf, sizeof(hdr) + size, fds, nfds);
}

static void take_fds(struct guest_msg *msg, struct msghdr *mh)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (msg->nfds < GUEST_CHAN_FDS)
				msg->fds[msg->nfds++] = fd;
			else
				close(fd);
		}
	}
}

static int wait_readable(int sock, uint64_t deadline)
{
	struct pollfd pfd = {.fd = sock, .events = POLLIN};

	for (;;) {
		int left = -1;
		int n;

		if (deadline) {
			uint64_t now = util_now_ns();

			left = now >= deadline ? 0 : (int)((deadline - now) / 1000000) + 1;
		}
		n = poll(&pfd, 1, left);
		if (n > 0)
			return 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

static int recv_all(int sock, struct guest_msg *msg, void *buf, size_t len, uint64_t deadline)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * GUEST_CHAN_FDS)];
	} ctl;
	char *p = buf;

	while (len) {
		struct iovec iov = {.iov_base = p, .iov_len = len};
		struct msghdr mh = {
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = ctl.bytes,
			.msg_controllen = sizeof(ctl.bytes),
		};
		ssize_t n;
		int err = wait_readable(sock, deadline);

		if (err)
			return err;
		n = recvmsg(sock, &mh, MSG_CMSG_CLOEXEC);
		if (n < 0) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			return errno == ECONNRESET ? -ENOTCONN : -errno;
		}
		take_fds(msg, &mh);
		if (n == 0)
			return -ENOTCONN;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int guest_chan_recv(int sock, struct guest_msg *msg, int timeout_ms)
{
	uint64_t deadline = timeout_ms < 0 ? 0 : util_now_ns() + (uint64_t)timeout_ms * 1000000;
	int err;

	msg->nfds = 0;
	err = recv_all(sock, msg, &msg->hdr, sizeof(msg->hdr), deadline);
	if (!err && msg->hdr.size > sizeof(msg->payload))
		err = -EPROTO;
	if (!err)
		err = recv_all(sock, msg, msg->payload, msg->hdr.size, deadline);
	if (err)
		guest_msg_close_fds(msg);
	return err;
}

void guest_msg_close_fds(struct guest_msg *msg)
{
	for (unsigned int i = 0; i < msg->nfds; i++)
		util_close(&msg->fds[i]);
	msg->nfds = 0;
}

int guest_msg_take_fd(struct guest_msg *msg, unsigned int i)
{
	return i < msg->nfds ? util_steal_fd(&msg->fds[i]) : -1;
}

int guest_chan_connect(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	util_autofd fd = -1;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	strcpy(sa.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	return util_steal_fd(&fd);
}
