// SPDX-License-Identifier: Apache-2.0
/*
 * A share: its configuration, its budget of descriptors, its mounts.
 *
 * Descriptors. Every node costs one, every handle one, some operations one for a moment. All are
 * booked in one counter before they are opened, against a limit that leaves room for the rest of
 * the process (guest memory, rings, mapped files). Nodes may not use the last part of it, so that
 * what is known can still be opened when nothing new can be looked up; forgetting gives back.
 *
 * Mounts. A file is named by (st_dev, st_ino, mount id). Device and mount id are kept once a
 * mount, and with them what has been learned of its file system.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "fs_int.h"

/* Magic numbers that <linux/magic.h> of all supported releases does not have. */
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif
#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xFF534D42
#endif
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xFE534D42
#endif
#ifndef CEPH_SUPER_MAGIC
#define CEPH_SUPER_MAGIC 0x00c36400
#endif
#define FS_LUSTRE_MAGIC 0x0BD00BD0
#define FS_GPFS_MAGIC 0x47504653
#define FS_OCFS2_MAGIC 0x7461636f
#define FS_GFS2_MAGIC 0x01161970

int fs_fd_take(struct fs *fs, enum fs_fd_use use)
{
	unsigned int limit = use == FS_FD_NODE ? fs->fd_node_limit : fs->fd_limit;

	if (__atomic_fetch_add(&fs->fds, 1, __ATOMIC_RELAXED) < limit)
		return 0;
	__atomic_fetch_sub(&fs->fds, 1, __ATOMIC_RELAXED);
	return -EMFILE;
}

void fs_fd_give(struct fs *fs)
{
	__atomic_fetch_sub(&fs->fds, 1, __ATOMIC_RELAXED);
}

/* syscalls: close */
void fs_fd_close(struct fs *fs, int *fd)
{
	if (*fd < 0)
		return;
	util_close(fd);
	fs_fd_give(fs);
}

static bool magic_is_remote(unsigned long magic)
{
	switch (magic) {
	case NFS_SUPER_MAGIC:
	case FUSE_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case V9FS_MAGIC:
	case CEPH_SUPER_MAGIC:
	case AFS_SUPER_MAGIC:
	case AFS_FS_MAGIC:
	case CODA_SUPER_MAGIC:
	case AUTOFS_SUPER_MAGIC:
	case FS_LUSTRE_MAGIC:
	case FS_GPFS_MAGIC:
	case FS_OCFS2_MAGIC:
	case FS_GFS2_MAGIC:
		return true;
	default:
		return false;
	}
}

struct fs_mount *fs_mount_find(struct fs *fs, uint64_t dev, uint64_t mnt_id)
{
	struct fs_mount *m = util_rcu_deref(fs->mounts);

	while (m && (m->dev != dev || m->mnt_id != mnt_id))
		m = m->next;
	return m;
}

/* syscalls: fstatfs */
static struct fs_mount *mount_new(uint64_t dev, uint64_t mnt_id, int fd)
{
	struct fs_mount *m = g_try_new0(struct fs_mount, 1);
	struct statfs sf;
	unsigned long magic;

	if (!m)
		return NULL;
	m->dev = dev;
	m->mnt_id = mnt_id;
	/* What cannot be asked is taken for the worst. */
	m->remote = true;
	if (fstatfs(fd, &sf) == 0) {
		magic = (unsigned long)sf.f_type & 0xffffffffu;
		m->type = (uint32_t)magic;
		m->remote = magic_is_remote(magic);
		m->in_memory = magic == TMPFS_MAGIC || magic == RAMFS_MAGIC;
	}
	return m;
}

struct fs_mount *fs_mount_of(struct fs *fs, uint64_t dev, uint64_t mnt_id, int fd)
{
	struct fs_mount *m = fs_mount_find(fs, dev, mnt_id);

	if (m)
		return m;
	util_mutex_lock(&fs->mount_lock);
	m = fs_mount_find(fs, dev, mnt_id);
	if (!m) {
		m = mount_new(dev, mnt_id, fd);
		if (m) {
			m->next = fs->mounts;
			util_rcu_publish(fs->mounts, m);
		}
	}
	util_mutex_unlock(&fs->mount_lock);
	return m;
}

int fs_name_check(const char *name)
{
	size_t len = strnlen(name, NAME_MAX + 1);

	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	if (len == 0 || memchr(name, '/', len))
		return -EINVAL;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return -EINVAL;
	return 0;
}

const char *fs_proc_name(char *buf, int fd)
{
	char *p = buf + FS_PROC_NAME;
	unsigned int v = (unsigned int)fd;

	*--p = '\0';
	do {
		*--p = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	return p;
}

/* syscalls: openat2 close */
static bool probe_resolve_cached(int dirfd)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_CACHED,
	};
	long fd = syscall(SYS_openat2, dirfd, ".", &how, sizeof(how));

	if (fd >= 0) {
		close((int)fd);
		return true;
	}
	return errno == EAGAIN;
}

/* The reserve serves guest memory, rings, control connections and the table's mapped files. */
/* syscalls: prlimit64 */
static unsigned int default_fd_limit(void)
{
	struct rlimit rl;
	rlim_t limit = 1024;
	rlim_t reserve;

	if (getrlimit(RLIMIT_NOFILE, &rl) == 0)
		limit = rl.rlim_cur;
	limit = MIN(limit, (rlim_t)INT_MAX);
	reserve = MIN(limit / 4, (rlim_t)2048);
	return (unsigned int)(limit - reserve);
}

struct fs *fs_new(const struct fs_config *config, const struct fs_hooks *hooks, GError **error)
{
	struct fs *fs = g_aligned_alloc0(1, sizeof(*fs), 64);
	struct statfs sf;

	fs->config = *config;
	if (hooks)
		fs->hooks = *hooks;
	util_mutex_init(&fs->mount_lock);
	fs->fd_limit = config->fd_limit ? config->fd_limit : default_fd_limit();
	fs->fd_node_limit = fs->fd_limit - MIN(fs->fd_limit / 2, MAX(fs->fd_limit / 16, 4u));
	fs_handles_init(fs);

	if (fstatfs(config->proc_self_fd, &sf) < 0 || sf.f_type != PROC_SUPER_MAGIC) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "the descriptor for /proc/self/fd is not on procfs");
		goto fail;
	}
	if (fs_nodes_init(fs, error) < 0)
		goto fail;
	fs->resolve_cached = probe_resolve_cached(config->root_fd);
	return fs;
fail:
	fs_free(fs);
	return NULL;
}

void fs_reset(struct fs *fs)
{
	fs_handles_reset(fs);
	fs_nodes_reset(fs);
	util_rcu_barrier();
}

void fs_free(struct fs *fs)
{
	struct fs_mount *m;
	struct fs_mount *next;

	if (!fs)
		return;
	fs_handles_reset(fs);
	if (fs->nodes_by_id)
		fs_nodes_free(fs);
	fs_handles_free(fs);
	for (m = fs->mounts; m; m = next) {
		next = m->next;
		g_free(m);
	}
	util_close(&fs->config.root_fd);
	util_close(&fs->config.proc_self_fd);
	util_mutex_destroy(&fs->mount_lock);
	g_aligned_free(fs);
}

void fs_get_stats(struct fs *fs, struct fs_stats *out)
{
	out->nodes = __atomic_load_n(&fs->node_count, __ATOMIC_RELAXED);
	out->handles = __atomic_load_n(&fs->handle_count, __ATOMIC_RELAXED);
	out->fds = __atomic_load_n(&fs->fds, __ATOMIC_RELAXED);
}
