// SPDX-License-Identifier: Apache-2.0
/*
 * Locks of whole files, held by the handle's open file description on the host: they end with it.
 * Never waits: a guest that wants to wait asks again.
 */
#include <sys/file.h>

#include "fs_int.h"

/* syscalls: flock */
int fs_flock(struct fs *fs, uint64_t handle, int op)
{
	struct fs_handle *h;
	int kind = op & ~LOCK_NB;
	int err = 0;

	if (!fs->config.flock)
		return -ENOSYS;
	if (kind != LOCK_SH && kind != LOCK_EX && kind != LOCK_UN)
		return -EINVAL;
	h = fs_handle_get(fs, 0, handle, false);
	if (!h)
		h = fs_handle_get(fs, 0, handle, true);
	if (!h)
		return -EBADF;
	if (flock(h->fd, kind | LOCK_NB) < 0)
		err = -errno;
	fs_handle_put(fs, h);
	return err;
}
