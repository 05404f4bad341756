// SPDX-License-Identifier: Apache-2.0
/*
 * Extended attributes. The calls by path follow the link in /proc/self/fd to the inode that the
 * node's O_PATH descriptor pins, and stop there, also when it is a symbolic link, a FIFO or a
 * device; nothing is opened. The path is a bare number, as the thread stands in /proc/self/fd.
 */
#include <string.h>
#include <sys/xattr.h>

#include "fs_int.h"

static int xattr_enter(struct fs *fs, uint64_t id, const char *name, bool change,
		       struct fs_node **node)
{
	int err;

	if (!fs->config.xattr)
		return -ENOSYS;
	if (change && fs->config.readonly)
		return -EROFS;
	if (name) {
		if (name[0] == '\0' || strnlen(name, XATTR_NAME_MAX + 1) > XATTR_NAME_MAX)
			return -ERANGE;
		/* A guest that does not know of ACLs must not half-use them. */
		if (!fs->config.posix_acl && g_str_has_prefix(name, "system.posix_acl_"))
			return -EOPNOTSUPP;
	}
	err = fs_cred_enter_proc(fs);
	if (err < 0)
		return err;
	*node = fs_node_get(fs, id);
	return *node ? 0 : -ESTALE;
}

/* syscalls: setxattr */
int fs_setxattr(struct fs *fs, uint64_t id, const char *name, const void *value, size_t size,
		int flags)
{
	char buf[FS_PROC_NAME];
	struct fs_node *node;
	int err = xattr_enter(fs, id, name, true, &node);

	if (err < 0)
		return err;
	fs_cred_fsetid(!(flags & FS_XATTR_ACL_KILL_SGID));
	if (setxattr(fs_proc_name(buf, node->fd), name, value, size,
		     flags & ~FS_XATTR_ACL_KILL_SGID) < 0)
		err = -errno;
	fs_node_put(fs, node);
	return err;
}

/* syscalls: getxattr */
ssize_t fs_getxattr(struct fs *fs, uint64_t id, const char *name, void *value, size_t size)
{
	char buf[FS_PROC_NAME];
	struct fs_node *node;
	ssize_t n = xattr_enter(fs, id, name, false, &node);

	if (n < 0)
		return n;
	n = getxattr(fs_proc_name(buf, node->fd), name, value, size);
	if (n < 0)
		n = -errno;
	fs_node_put(fs, node);
	return n;
}

/* syscalls: listxattr */
ssize_t fs_listxattr(struct fs *fs, uint64_t id, char *list, size_t size)
{
	char buf[FS_PROC_NAME];
	struct fs_node *node;
	ssize_t n = xattr_enter(fs, id, NULL, false, &node);

	if (n < 0)
		return n;
	n = listxattr(fs_proc_name(buf, node->fd), list, size);
	if (n < 0)
		n = -errno;
	fs_node_put(fs, node);
	return n;
}

/* syscalls: removexattr */
int fs_removexattr(struct fs *fs, uint64_t id, const char *name)
{
	char buf[FS_PROC_NAME];
	struct fs_node *node;
	int err = xattr_enter(fs, id, name, true, &node);

	if (err < 0)
		return err;
	if (removexattr(fs_proc_name(buf, node->fd), name) < 0)
		err = -errno;
	fs_node_put(fs, node);
	return err;
}
