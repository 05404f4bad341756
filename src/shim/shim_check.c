// SPDX-License-Identifier: Apache-2.0
/*
 * What a descriptor may be turned into.
 *
 * The kernel opens a backing file itself, by path and with the helper's credentials, in the
 * access mode of the shim's file: it does not ask how the descriptor given to BACKING_OPEN was
 * opened, and an mmap that passes through skips the checks that mmap(2) makes on the file it was
 * called on (append-only, seals). So a read-only or O_PATH descriptor would come back writable.
 * These checks close that: the shim gives nobody a right that the descriptor did not give.
 */
#include "shim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>

/* syscalls: fcntl */
/* shim-syscalls: fcntl */
int shim_may_write(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	int seals;

	if (flags < 0)
		return -errno;
	if ((flags & O_PATH) || (flags & O_ACCMODE) != O_RDWR)
		return -EACCES;
	if (flags & O_APPEND)
		return -EPERM;
	seals = fcntl(fd, F_GET_SEALS); /* EINVAL where the file system knows none */
	if (seals >= 0 && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return -EPERM;
	return 0;
}

int shim_may_read(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	return (flags & O_PATH) || (flags & O_ACCMODE) != O_RDONLY ? -EACCES : 0;
}
