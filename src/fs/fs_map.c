// SPDX-License-Identifier: Apache-2.0
/*
 * What has to be known of a file to decide whether it should be mapped.
 *
 * Names. A node is an inode; names are the directory's. With keep_names each node has the last
 * name that it was looked up by, and the node of that directory: the path is the chain of those. So
 * a renamed directory changes the paths of all that is in it. The chain breaks where the guest has
 * forgotten a directory; Linux keeps it as long as it keeps a name in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fs_int.h"

/* A chain longer than this is a cycle that a rename has made for a moment. */
#define DEPTH_MAX 1024

/* The kernel cuts a longer readahead to its own limit. */
#define READAHEAD_CHUNK (128u << 10)

static void free_name(struct util_rcu_head *head)
{
	g_free(caa_container_of(head, struct fs_name, rcu));
}

void fs_name_note(struct fs *fs, const struct fs_node *dir, struct fs_node *node, const char *name)
{
	struct fs_name *old, *made;
	bool same;
	size_t n;

	if (!fs->config.keep_names)
		return;
	util_rcu_read_lock();
	old = util_rcu_deref(node->name);
	same = old && old->parent == dir->id && strcmp(old->text, name) == 0;
	util_rcu_read_unlock();
	if (same)
		return;
	n = strlen(name) + 1;
	made = g_malloc(sizeof(*made) + n);
	made->parent = dir->id;
	memcpy(made->text, name, n);
	old = util_rcu_xchg(node->name, made);
	if (old)
		util_rcu_call(&old->rcu, free_name);
}

static int match_id(struct cds_lfht_node *n, const void *key)
{
	return caa_container_of(n, struct fs_node, by_id)->id == *(const uint64_t *)key;
}

/* In a read section; the node may be ending. */
static const struct fs_node *peek(struct fs *fs, uint64_t id)
{
	struct cds_lfht_node *n =
		util_lfht_lookup(fs->nodes_by_id, util_hash_u64(id), match_id, &id);

	return n ? caa_container_of(n, struct fs_node, by_id) : NULL;
}

/* In a read section. Writes the path to the end of @buf; where it starts, or a negative errno. */
static ssize_t chain(struct fs *fs, const struct fs_node *node, char *buf, size_t size, bool *whole)
{
	size_t at = size;

	for (unsigned int depth = 0; node && node != fs->root && depth < DEPTH_MAX; depth++) {
		const struct fs_name *name = util_rcu_deref(node->name);
		size_t n = name ? strlen(name->text) : 0;

		if (!n)
			return (ssize_t)at;
		if (at < n + 1)
			return -ENAMETOOLONG;
		if (at < size)
			buf[--at] = '/';
		at -= n;
		memcpy(buf + at, name->text, n);
		node = peek(fs, name->parent);
	}
	*whole = node == fs->root;
	return (ssize_t)at;
}

ssize_t fs_path(struct fs *fs, uint64_t id, char *buf, size_t size, bool *whole)
{
	const struct fs_node *node;
	ssize_t at = -ESTALE;

	*whole = false;
	if (!size)
		return -ENAMETOOLONG;
	util_rcu_read_lock();
	node = peek(fs, id);
	if (node)
		at = chain(fs, node, buf, size - 1, whole);
	util_rcu_read_unlock();
	if (at < 0)
		return at;
	memmove(buf, buf + at, size - 1 - (size_t)at);
	buf[size - 1 - (size_t)at] = '\0';
	return (ssize_t)(size - 1) - at;
}

/* syscalls: readlinkat */
static ssize_t link_of(struct fs *fs, int fd, char *buf, size_t size)
{
	char name[16];
	ssize_t n;

	snprintf(name, sizeof(name), "%d", fd);
	n = readlinkat(fs->config.proc_self_fd, name, buf, size - 1);
	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return n;
}

/* No reference: fs_reset() takes no notice of any. So the descriptor may be closed meanwhile, and
 * its number be another's; then it is not the node's any more. */
static ssize_t node_link(struct fs *fs, uint64_t id, char *buf, size_t size)
{
	const struct fs_node *node;
	ssize_t n = -ESTALE;
	int fd = -1;

	util_rcu_read_lock();
	node = peek(fs, id);
	if (node)
		fd = __atomic_load_n(&node->fd, __ATOMIC_ACQUIRE);
	if (fd >= 0)
		n = link_of(fs, fd, buf, size);
	if (fd >= 0 && __atomic_load_n(&node->fd, __ATOMIC_ACQUIRE) != fd)
		n = -ESTALE;
	util_rcu_read_unlock();
	return n;
}

/* Not in a sandbox the root of the share has a path of its own. */
ssize_t fs_where(struct fs *fs, uint64_t id, char *buf, size_t size)
{
	char root[PATH_MAX];
	ssize_t skip, n = node_link(fs, id, buf, size);

	skip = link_of(fs, fs->root->fd, root, sizeof(root));
	if (n < 0 || skip < 0)
		return MIN(n, skip);
	if (!g_str_has_prefix(buf, root) || (skip > 1 && buf[skip] != '/'))
		return n;
	skip += skip > 1;
	memmove(buf, buf + skip, (size_t)(n - skip) + 1);
	return n - skip;
}

bool fs_identity(struct fs *fs, uint64_t id, uint64_t *dev, uint64_t *ino)
{
	const struct fs_node *node;

	util_rcu_read_lock();
	node = peek(fs, id);
	if (node) {
		*dev = node->mount->dev;
		*ino = node->ino;
	}
	util_rcu_read_unlock();
	return node != NULL;
}

bool fs_type(struct fs *fs, uint64_t id, uint32_t *type)
{
	const struct fs_node *node;

	util_rcu_read_lock();
	node = peek(fs, id);
	*type = node ? node->mount->type : 0;
	util_rcu_read_unlock();
	return *type != 0;
}

bool fs_direct_only(struct fs *fs, uint64_t id)
{
	const struct fs_node *node;
	bool only = false;

	util_rcu_read_lock();
	node = peek(fs, id);
	if (node)
		only = __atomic_load_n(&node->direct, __ATOMIC_RELAXED) &&
		       !__atomic_load_n(&node->buffered, __ATOMIC_RELAXED);
	util_rcu_read_unlock();
	return only;
}

/* Permission, read-only mounts and immutable files show in faccessat2(), append-only ones do not.
 */
/* syscalls: faccessat2 statx */
static bool ask_writable(const struct fs_node *node)
{
	struct statx sx;

	if (syscall(SYS_faccessat2, node->fd, "", R_OK | W_OK, AT_EMPTY_PATH | AT_EACCESS) < 0)
		return false;
	return statx(node->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &sx) == 0 &&
	       !(sx.stx_attributes & (STATX_ATTR_APPEND | STATX_ATTR_IMMUTABLE));
}

bool fs_can_write(struct fs *fs, uint64_t id, const struct stat *st)
{
	uint64_t ctime = (uint64_t)st->st_ctim.tv_sec * 1000000000u + (uint64_t)st->st_ctim.tv_nsec;
	struct fs_node *node;
	uint64_t known;

	if (fs->config.readonly)
		return false;
	node = fs_node_get(fs, id);
	if (!node)
		return false;
	/* One word, so that time and answer belong together; the time's topmost bit gives way. */
	known = __atomic_load_n(&node->writable, __ATOMIC_RELAXED);
	if (known >> 1 != (ctime & INT64_MAX) || !known) {
		known = ctime << 1 | ask_writable(node);
		__atomic_store_n(&node->writable, known, __ATOMIC_RELAXED);
	}
	fs_node_put(fs, node);
	return known & 1;
}

/* syscalls: fstat newfstatat readahead */
static void read_ahead(int fd, uint64_t offset, uint64_t len)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return;
	for (uint64_t end = MIN(offset + len, (uint64_t)st.st_size); offset < end;) {
		uint64_t n = MIN(end - offset, READAHEAD_CHUNK);

		if (readahead(fd, (off_t)offset, n) < 0)
			return;
		offset += n;
	}
}

void fs_readahead(struct fs *fs, uint64_t id, uint64_t offset, uint64_t len)
{
	struct fs_node *node = fs_node_get(fs, id);
	int fd;

	if (!node)
		return;
	if (S_ISREG(node->type) && offset <= INT64_MAX && len <= INT64_MAX &&
	    fs_fd_take(fs, FS_FD_HANDLE) == 0) {
		fd = fs_node_reopen(fs, node, O_RDONLY);
		if (fd >= 0) {
			read_ahead(fd, offset, len);
			fs_fd_close(fs, &fd);
		} else {
			fs_fd_give(fs);
		}
	}
	fs_node_put(fs, node);
}
