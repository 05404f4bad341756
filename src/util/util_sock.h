/* SPDX-License-Identifier: Apache-2.0 */
/* One descriptor with a message: sockets of the AF_UNIX family. */
#ifndef DAXMAP_UTIL_SOCK_H
#define DAXMAP_UTIL_SOCK_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

/**
 * util_sock_send() - sendmsg(2) of @len bytes, and of @fd unless it is -1 (borrowed)
 * @flags: beside MSG_NOSIGNAL
 *
 * Return: bytes sent (a stream may take fewer; then @fd went with them), or a negative errno.
 */
ssize_t util_sock_send(int sock, const void *buf, size_t len, int fd, int flags);

/**
 * util_sock_recv() - recvmsg(2) of at most @len bytes, without waiting
 * @fd: out: the descriptor that came along, the caller's now, or -1: none, or none is left to be
 *      had. Of several it is the last one; the others are closed
 * @pid: NULL, or out: the sender's, where SO_PASSCRED is set; else left alone
 *
 * Return: bytes, 0 at the end of a stream, or a negative errno.
 */
ssize_t util_sock_recv(int sock, void *buf, size_t len, int *fd, pid_t *pid);

#endif
