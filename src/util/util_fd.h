/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership of file descriptors in the type: GLib 2.74 has no g_autofd. */
#ifndef DAXMAP_UTIL_FD_H
#define DAXMAP_UTIL_FD_H

#include <errno.h>
#include <unistd.h>

/** util_close() - closes *@fd if it is open and forgets it; errno is kept. */
static inline void util_close(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

/** util_autofd - an int that closes itself when it leaves scope. Initialise it, to -1 at least. */
#define util_autofd __attribute__((cleanup(util_close))) int

/** util_steal_fd() - takes the descriptor out of *@fd: the caller owns it now. */
static inline int util_steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

#endif
