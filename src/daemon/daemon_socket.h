/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets in the file system: ours alone, and gone when we are. */
#ifndef DAXMAP_DAEMON_SOCKET_H
#define DAXMAP_DAEMON_SOCKET_H

#include <stdbool.h>

#include <glib.h>

/**
 * struct daemon_socket - a listening UNIX socket
 * @fd: -1 when it is not open
 * @path: absolute; NULL for an inherited one
 * @lock_path, @lock_fd: held locked for as long as the daemon lives
 */
struct daemon_socket {
	int fd;
	char *path;
	char *lock_path;
	int lock_fd;
};

#define DAEMON_SOCKET_ERROR (daemon_socket_error_quark())
GQuark daemon_socket_error_quark(void);

void daemon_socket_init(struct daemon_socket *s);

/**
 * daemon_socket_listen() - makes and locks a socket at @path
 * @group: NULL = mode 0600; else the socket is of this group, mode 0660
 *
 * A socket file that nobody serves is replaced; one that is served is an error. Never connects
 * to find out: the daemon there would take us for its VMM. Changes the umask for a moment:
 * before there are threads.
 */
bool daemon_socket_listen(struct daemon_socket *s, const char *path, const char *group,
			  GError **error);

/** daemon_socket_adopt() - takes over an inherited listening socket. */
bool daemon_socket_adopt(struct daemon_socket *s, int fd, GError **error);

/** daemon_socket_remove() - removes the files; outside the sandbox. */
void daemon_socket_remove(const struct daemon_socket *s);

/** daemon_socket_close() - closes and frees; the files stay. */
void daemon_socket_close(struct daemon_socket *s);

#endif
