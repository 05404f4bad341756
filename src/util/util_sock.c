// SPDX-License-Identifier: Apache-2.0
#include "util_sock.h"

#include <errno.h>
#include <string.h>

#include "util_fd.h"

#define FDS_MAX 4

/* syscalls: sendmsg */
ssize_t util_sock_send(int sock, const void *buf, size_t len, int fd, int flags)
{
	struct iovec iov = {(void *)buf, len};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c;

		mh.msg_control = control.buf;
		mh.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do
		n = sendmsg(sock, &mh, MSG_NOSIGNAL | flags);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void take(struct msghdr *mh, int *fd, pid_t *pid)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && pid) {
			struct ucred from;

			memcpy(&from, CMSG_DATA(c), sizeof(from));
			*pid = from.pid;
		}
		for (size_t i = 0; c->cmsg_type == SCM_RIGHTS && i < n; i++) {
			util_close(fd);
			memcpy(fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		}
	}
}

/* syscalls: recvmsg close */
ssize_t util_sock_recv(int sock, void *buf, size_t len, int *fd, pid_t *pid)
{
	struct iovec iov = {buf, len};
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf)};
	ssize_t n;

	*fd = -1;
	do
		n = recvmsg(sock, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	take(&mh, fd, pid);
	return n;
}
