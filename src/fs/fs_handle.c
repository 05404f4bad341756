// SPDX-License-Identifier: Apache-2.0
/*
 * Handles: open files and directories, found by id under RCU. The table has one reference, each
 * operation under way another; the last one closes. So a release beside a read is harmless.
 */
#include <fcntl.h>

#include "fs_int.h"

static int match_id(struct cds_lfht_node *n, const void *key)
{
	return caa_container_of(n, struct fs_handle, by_id)->id == *(const uint64_t *)key;
}

static void free_handle(struct util_rcu_head *head)
{
	g_free(caa_container_of(head, struct fs_handle, rcu));
}

void fs_handles_init(struct fs *fs)
{
	fs->handles = util_lfht_new(64);
	fs->next_handle = 1;
}

static void count_open(struct fs_handle *h, uint32_t by)
{
	if (h->kind == FS_HANDLE_FILE || h->kind == FS_HANDLE_SYNC)
		__atomic_fetch_add(&h->node->buffered, by, __ATOMIC_RELAXED);
	else if (h->kind == FS_HANDLE_DIRECT)
		__atomic_fetch_add(&h->node->direct, by, __ATOMIC_RELAXED);
}

int fs_handle_new(struct fs *fs, struct fs_node *node, int fd, enum fs_handle_kind kind,
		  uint64_t *id)
{
	struct fs_handle *h = g_try_new0(struct fs_handle, 1);

	if (!h) {
		fs_fd_close(fs, &fd);
		fs_node_put(fs, node);
		return -ENOMEM;
	}
	h->id = __atomic_fetch_add(&fs->next_handle, 1, __ATOMIC_RELAXED);
	h->node = node;
	h->fd = fd;
	h->refs = 1;
	h->kind = kind;
	count_open(h, 1);
	if (kind == FS_HANDLE_DIR)
		h->dir = fs_dir_new();
	*id = h->id;
	__atomic_fetch_add(&fs->handle_count, 1, __ATOMIC_RELAXED);
	util_rcu_read_lock();
	util_lfht_add(fs->handles, util_hash_u64(h->id), &h->by_id);
	util_rcu_read_unlock();
	return 0;
}

static bool try_ref(struct fs_handle *h)
{
	unsigned int old = __atomic_load_n(&h->refs, __ATOMIC_RELAXED);

	do {
		if (old == 0 || old == UINT32_MAX)
			return false;
	} while (!__atomic_compare_exchange_n(&h->refs, &old, old + 1, true, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
	return true;
}

struct fs_handle *fs_handle_get(struct fs *fs, uint64_t node, uint64_t id, bool dir)
{
	struct cds_lfht_node *n;
	struct fs_handle *h = NULL;

	util_rcu_read_lock();
	n = util_lfht_lookup(fs->handles, util_hash_u64(id), match_id, &id);
	if (n) {
		h = caa_container_of(n, struct fs_handle, by_id);
		if (!try_ref(h))
			h = NULL;
	}
	util_rcu_read_unlock();
	if (h && ((h->dir != NULL) != dir || (node && h->node->id != node))) {
		fs_handle_put(fs, h);
		h = NULL;
	}
	return h;
}

void fs_handle_put(struct fs *fs, struct fs_handle *h)
{
	if (__atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL) != 0)
		return;
	fs_fd_close(fs, &h->fd);
	count_open(h, -1u);
	fs_node_put(fs, h->node);
	if (h->dir)
		fs_dir_free(h->dir);
	__atomic_fetch_sub(&fs->handle_count, 1, __ATOMIC_RELAXED);
	util_rcu_call(&h->rcu, free_handle);
}

int fs_handle_close(struct fs *fs, uint64_t id, bool dir)
{
	struct fs_handle *h = fs_handle_get(fs, 0, id, dir);
	bool mine;

	if (!h)
		return -EBADF;
	util_rcu_read_lock();
	mine = util_lfht_del(fs->handles, &h->by_id);
	util_rcu_read_unlock();
	if (mine)
		fs_handle_put(fs, h); /* the table's */
	fs_handle_put(fs, h);
	return mine ? 0 : -EBADF;
}

#define FS_RESET_BATCH 256
void fs_handles_reset(struct fs *fs)
{
	uint64_t batch[FS_RESET_BATCH];
	bool dir[FS_RESET_BATCH];
	struct cds_lfht_iter it;
	struct cds_lfht_node *n;
	unsigned int count;
	unsigned int i;

	do {
		count = 0;
		util_rcu_read_lock();
		for (n = util_lfht_first(fs->handles, &it); n && count < FS_RESET_BATCH;
		     n = util_lfht_next(fs->handles, &it)) {
			struct fs_handle *h = caa_container_of(n, struct fs_handle, by_id);

			batch[count] = h->id;
			dir[count++] = h->dir != NULL;
		}
		util_rcu_read_unlock();
		for (i = 0; i < count; i++)
			fs_handle_close(fs, batch[i], dir[i]);
	} while (count > 0);
}

void fs_handles_free(struct fs *fs)
{
	util_rcu_barrier();
	util_lfht_destroy(fs->handles);
}

int fs_node_of_handle(struct fs *fs, uint64_t handle, uint64_t *node)
{
	struct fs_handle *h = fs_handle_get(fs, 0, handle, false);

	if (!h)
		return -EBADF;
	*node = h->node->id;
	fs_handle_put(fs, h);
	return 0;
}

/* syscalls: fcntl */
int fs_handle_dup(struct fs *fs, uint64_t node, uint64_t handle)
{
	struct fs_handle *h = fs_handle_get(fs, node, handle, false);
	int fd;

	if (!h)
		return -EBADF;
	fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		fd = -errno;
	fs_handle_put(fs, h);
	return fd;
}
