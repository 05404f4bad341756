// SPDX-License-Identifier: Apache-2.0
/*
 * Nodes: what the guest may name.
 *
 * A node is an O_PATH descriptor that pins an inode, found by its id (the guest's requests) and by
 * its key, (mount, inode number) (lookups). Both tables are read under RCU.
 *
 * Life. One atomic word counts the guest's lookups and our own references. Whoever brings it to
 * zero ends the node: out of both tables, hook, descriptor closed, memory freed a grace period
 * later. Zero is final: a lookup that finds a node at zero does not revive it, but takes it out of
 * the key table (the deletion is idempotent) and adds a node of its own, with a new id. The inode
 * number cannot have been used again meanwhile, as the old descriptor, if closed at all, was closed
 * after its node had been marked dead, and the new one is open.
 *
 * Two lookups of a new file at once: both open it; the key table keeps one of the two nodes; the
 * loser drops its own. A node is put into the id table first, so an id that another thread got
 * from the key table can be found at once.
 *
 * Looking up. A name costs openat(O_PATH) + statx when its node is new; when the node is known the
 * descriptor is for nothing, and statx by name alone would have done. Which of the two is tried
 * first is decided by what the thread met last: a run of known names costs one system call each, a
 * run of new ones two. At the limit of descriptors only known names can be answered.
 *
 * Nothing is ever opened by name but with O_PATH, which has no side effects on devices, FIFOs and
 * sockets. Files to be read and written are reopened through /proc/self/fd, and only when the
 * descriptor's type, which cannot change, is a regular file or a directory.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "fs_int.h"
#include "util_yield.h"

struct node_key {
	const struct fs_mount *mount;
	uint64_t ino;
};

/* Above zero: names that this thread looks up are mostly known. */
#define FS_BIAS_MAX 8
static __thread int lookup_bias;

static void bias_learn(bool known)
{
	if (known && lookup_bias < FS_BIAS_MAX)
		lookup_bias++;
	else if (!known && lookup_bias > -FS_BIAS_MAX)
		lookup_bias--;
}

static int match_id(struct cds_lfht_node *n, const void *key)
{
	return caa_container_of(n, struct fs_node, by_id)->id == *(const uint64_t *)key;
}

static int match_key(struct cds_lfht_node *n, const void *key)
{
	const struct fs_node *node = caa_container_of(n, struct fs_node, by_key);
	const struct node_key *k = key;

	return node->ino == k->ino && node->mount == k->mount;
}

static unsigned long hash_key(const struct node_key *k)
{
	return util_hash_u64(k->ino ^ util_hash_u64((uint64_t)(uintptr_t)k->mount));
}

static void free_node(struct util_rcu_head *head)
{
	struct fs_node *node = caa_container_of(head, struct fs_node, rcu);

	g_free(node->name);
	g_free(node);
}

/* Adds to a count that is not zero; false when it is, or when it is full. */
static bool count_add(struct fs_node *node, uint64_t add)
{
	uint64_t old = __atomic_load_n(&node->count, __ATOMIC_RELAXED);

	do {
		if (old == 0)
			return false;
		if ((add & FS_NODE_REF_MAX) && (old & FS_NODE_REF_MAX) == FS_NODE_REF_MAX)
			return false;
		if (add >= FS_NODE_LOOKUP && old / FS_NODE_LOOKUP == FS_NODE_LOOKUP_MAX)
			return false;
	} while (!__atomic_compare_exchange_n(&node->count, &old, old + add, true, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
	return true;
}

/* The caller brought the count to zero. */
/* syscalls: fstat newfstatat close */
static void node_end(struct fs *fs, struct fs_node *node)
{
	struct stat st;
	bool unlinked = false;
	int fd = node->fd;

	util_yield();
	util_rcu_read_lock();
	util_lfht_del(fs->nodes_by_key, &node->by_key);
	util_lfht_del(fs->nodes_by_id, &node->by_id);
	util_rcu_read_unlock();

	if (fs->hooks.node_gone) {
		/* Only who has the file mapped cares, and only then is a system call due. */
		if (__atomic_load_n(&node->mapped, __ATOMIC_RELAXED))
			unlinked = fstat(node->fd, &st) == 0 && st.st_nlink == 0;
		fs->hooks.node_gone(fs->hooks.ctx, node->id, unlinked);
	}
	/* fs_where() may look at it until the grace period is over */
	__atomic_store_n(&node->fd, -1, __ATOMIC_RELEASE);
	fs_fd_close(fs, &fd);
	__atomic_fetch_sub(&fs->node_count, 1, __ATOMIC_RELAXED);
	util_rcu_call(&node->rcu, free_node);
}

void fs_node_ref(struct fs_node *node)
{
	__atomic_fetch_add(&node->count, FS_NODE_REF, __ATOMIC_RELAXED);
}

void fs_node_put(struct fs *fs, struct fs_node *node)
{
	if (__atomic_sub_fetch(&node->count, FS_NODE_REF, __ATOMIC_ACQ_REL) == 0)
		node_end(fs, node);
}

struct fs_node *fs_node_get(struct fs *fs, uint64_t id)
{
	struct cds_lfht_node *n;
	struct fs_node *node = NULL;

	util_rcu_read_lock();
	n = util_lfht_lookup(fs->nodes_by_id, util_hash_u64(id), match_id, &id);
	if (n) {
		node = caa_container_of(n, struct fs_node, by_id);
		if (!count_add(node, FS_NODE_REF))
			node = NULL;
	}
	util_rcu_read_unlock();
	return node;
}

int fs_node_get_dir(struct fs *fs, uint64_t id, struct fs_node **dir)
{
	struct fs_node *node = fs_node_get(fs, id);

	if (!node)
		return -ESTALE;
	if (!S_ISDIR(node->type)) {
		fs_node_put(fs, node);
		return -ENOTDIR;
	}
	*dir = node;
	return 0;
}

struct fs_node *fs_node_find(struct fs *fs, const struct fs_mount *mount, uint64_t ino)
{
	const struct node_key key = {mount, ino};
	struct cds_lfht_node *n;
	struct fs_node *node = NULL;

	util_rcu_read_lock();
	n = util_lfht_lookup(fs->nodes_by_key, hash_key(&key), match_key, &key);
	if (n) {
		node = caa_container_of(n, struct fs_node, by_key);
		if (!count_add(node, FS_NODE_LOOKUP + FS_NODE_REF))
			node = NULL;
	}
	util_rcu_read_unlock();
	return node;
}

/* Puts @node into both tables, or returns the living one that has its key already. */
static struct fs_node *node_insert(struct fs *fs, struct fs_node *node)
{
	const struct node_key key = {node->mount, node->ino};
	struct cds_lfht_node *n;
	struct fs_node *other;

	util_rcu_read_lock();
	util_lfht_add(fs->nodes_by_id, util_hash_u64(node->id), &node->by_id);
	for (;;) {
		util_yield();
		n = util_lfht_add_unique(fs->nodes_by_key, hash_key(&key), match_key, &key,
					 &node->by_key);
		if (n == &node->by_key)
			break;
		other = caa_container_of(n, struct fs_node, by_key);
		if (count_add(other, FS_NODE_LOOKUP + FS_NODE_REF)) {
			util_lfht_del(fs->nodes_by_id, &node->by_id);
			util_rcu_read_unlock();
			return other;
		}
		if (__atomic_load_n(&other->count, __ATOMIC_RELAXED) != 0) {
			/* Alive, but full: no second node may have its key. */
			util_lfht_del(fs->nodes_by_id, &node->by_id);
			util_rcu_read_unlock();
			return NULL;
		}
		util_lfht_del(fs->nodes_by_key, &other->by_key);
	}
	util_rcu_read_unlock();
	return node;
}

int fs_node_adopt(struct fs *fs, int fd, const struct stat *st, struct fs_mount *mount,
		  struct fs_node **out)
{
	struct fs_node *node = fs_node_find(fs, mount, st->st_ino);
	struct fs_node *made;

	if (node) {
		fs_fd_close(fs, &fd);
		*out = node;
		return 1;
	}
	made = g_try_new0(struct fs_node, 1);
	if (!made) {
		fs_fd_close(fs, &fd);
		return -ENOMEM;
	}
	made->id = __atomic_fetch_add(&fs->next_node, 1, __ATOMIC_RELAXED);
	made->ino = st->st_ino;
	made->mount = mount;
	made->count = FS_NODE_LOOKUP + FS_NODE_REF;
	made->fd = fd;
	made->type = st->st_mode & S_IFMT;

	/* Counted before anyone can find it, and so end it. */
	__atomic_fetch_add(&fs->node_count, 1, __ATOMIC_RELAXED);
	node = node_insert(fs, made);
	*out = node;
	if (node == made)
		return 0;
	__atomic_fetch_sub(&fs->node_count, 1, __ATOMIC_RELAXED);
	fs_fd_close(fs, &made->fd);
	util_rcu_call(&made->rcu, free_node);
	return node ? 1 : -EOVERFLOW;
}

void fs_forget(struct fs *fs, uint64_t id, uint64_t nlookup)
{
	struct cds_lfht_node *n;
	struct fs_node *node;
	uint64_t old;
	uint64_t left = 1;
	uint64_t take;

	util_rcu_read_lock();
	n = util_lfht_lookup(fs->nodes_by_id, util_hash_u64(id), match_id, &id);
	if (!n) {
		util_rcu_read_unlock();
		return;
	}
	node = caa_container_of(n, struct fs_node, by_id);
	old = __atomic_load_n(&node->count, __ATOMIC_RELAXED);
	do {
		/* A guest that forgets more than it has looked up gets to zero, not below. */
		take = MIN(nlookup, old / FS_NODE_LOOKUP);
		if (take == 0)
			break;
		left = old - take * FS_NODE_LOOKUP;
	} while (!__atomic_compare_exchange_n(&node->count, &old, left, true, __ATOMIC_ACQ_REL,
					      __ATOMIC_RELAXED));
	util_rcu_read_unlock();
	/* At zero the node is ours alone: nobody else ends it. */
	if (take != 0 && left == 0)
		node_end(fs, node);
}

static void stat_from_statx(struct stat *st, const struct statx *sx)
{
	memset(st, 0, sizeof(*st));
	st->st_dev = makedev(sx->stx_dev_major, sx->stx_dev_minor);
	st->st_ino = sx->stx_ino;
	st->st_mode = sx->stx_mode;
	st->st_nlink = sx->stx_nlink;
	st->st_uid = sx->stx_uid;
	st->st_gid = sx->stx_gid;
	st->st_rdev = makedev(sx->stx_rdev_major, sx->stx_rdev_minor);
	st->st_size = (off_t)sx->stx_size;
	st->st_blksize = sx->stx_blksize;
	st->st_blocks = (blkcnt_t)sx->stx_blocks;
	st->st_atim = (struct timespec){sx->stx_atime.tv_sec, sx->stx_atime.tv_nsec};
	st->st_mtim = (struct timespec){sx->stx_mtime.tv_sec, sx->stx_mtime.tv_nsec};
	st->st_ctim = (struct timespec){sx->stx_ctime.tv_sec, sx->stx_ctime.tv_nsec};
}

/* syscalls: statx */
int fs_node_stat(int dirfd, const char *name, int flags, struct stat *st, uint64_t *mnt_id)
{
	struct statx sx;

	if (statx(dirfd, name, flags | AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
		  STATX_BASIC_STATS | STATX_MNT_ID, &sx) < 0)
		return -errno;
	stat_from_statx(st, &sx);
	/* Before Linux 5.8 there is no mount id: bind mounts of one file system look as one. */
	*mnt_id = sx.stx_mask & STATX_MNT_ID ? sx.stx_mnt_id : 0;
	return 0;
}

static void answer(const struct fs *fs, const struct fs_node *parent, const struct fs_node *node,
		   struct fs_attr *out)
{
	out->node = node->id;
	out->submount = fs->config.announce_submounts && S_ISDIR(node->type) &&
			node->mount != parent->mount;
}

/* By statx alone: found only when the node is known. */
static struct fs_node *lookup_known(struct fs *fs, struct fs_node *parent, const char *name,
				    enum fs_lookup_how how, struct stat *st, int *err)
{
	struct fs_mount *mount = parent->mount;
	uint64_t mnt_id;
	struct fs_node *node;

	*err = fs_node_stat(parent->fd, name, how == FS_LOOKUP_ANY ? 0 : AT_STATX_DONT_SYNC, st,
			    &mnt_id);
	if (*err < 0)
		return NULL;
	if (mount->dev != st->st_dev || mount->mnt_id != mnt_id) {
		/* Only of a mount that has been seen: there is no descriptor to learn from. */
		mount = fs_mount_find(fs, st->st_dev, mnt_id);
		if (!mount)
			return NULL;
		if (mount->remote && how != FS_LOOKUP_ANY) {
			*err = -EAGAIN;
			return NULL;
		}
	}
	node = fs_node_find(fs, mount, st->st_ino);
	bias_learn(node != NULL);
	return node;
}

/* syscalls: openat openat2 */
static int open_path(struct fs *fs, struct fs_node *parent, const char *name, bool cached)
{
	struct open_how how = {
		.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_CACHED,
	};
	int fd;

	if (cached)
		fd = (int)syscall(SYS_openat2, parent->fd, name, &how, sizeof(how));
	else
		fd = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Takes over @fd, booked; @st and @mnt_id are its own. */
static int adopt_path(struct fs *fs, struct fs_node *parent, int fd, const struct stat *st,
		      uint64_t mnt_id, struct fs_node **node)
{
	struct fs_mount *mount = parent->mount;

	if (mount->dev != st->st_dev || mount->mnt_id != mnt_id) {
		mount = fs_mount_of(fs, st->st_dev, mnt_id, fd);
		if (!mount) {
			fs_fd_close(fs, &fd);
			return -ENOMEM;
		}
	}
	return fs_node_adopt(fs, fd, st, mount, node);
}

/* Must a lookup that may not go everywhere stop at the border of @parent's mount? What has not been
 * seen yet may be a remote one, whose answer has to be waited for. */
static bool is_border(struct fs *fs, const struct fs_node *parent, const struct stat *st,
		      uint64_t mnt_id, enum fs_lookup_how how)
{
	const struct fs_mount *m;

	if (how == FS_LOOKUP_ANY ||
	    (parent->mount->dev == st->st_dev && parent->mount->mnt_id == mnt_id))
		return false;
	m = fs_mount_find(fs, st->st_dev, mnt_id);
	return !m || m->remote;
}

/* With a booked descriptor, which is used or given back. 0: new, 1: known. */
static int lookup_booked(struct fs *fs, struct fs_node *parent, const char *name,
			 enum fs_lookup_how how, struct fs_attr *out, struct fs_node **node)
{
	int fd = open_path(fs, parent, name, how == FS_LOOKUP_CACHED);
	uint64_t mnt_id;
	int err;

	if (fd < 0) {
		fs_fd_give(fs);
		return fd;
	}
	err = fs_node_stat(fd, "", how == FS_LOOKUP_ANY ? 0 : AT_STATX_DONT_SYNC, &out->st,
			   &mnt_id);
	if (err == 0 && is_border(fs, parent, &out->st, mnt_id, how))
		err = -EAGAIN;
	if (err < 0) {
		fs_fd_close(fs, &fd);
		return err;
	}
	return adopt_path(fs, parent, fd, &out->st, mnt_id, node);
}

static int lookup_any(struct fs *fs, struct fs_node *parent, const char *name,
		      enum fs_lookup_how how, struct fs_attr *out, struct fs_node **node)
{
	bool cached = how == FS_LOOKUP_CACHED;
	int err = 0;

	if (fs_fd_take(fs, FS_FD_NODE) < 0) {
		if (cached)
			return -EAGAIN;
		*node = lookup_known(fs, parent, name, how, &out->st, &err);
		return *node ? 0 : err < 0 ? err : -EMFILE;
	}
	/*
	 * A known node's descriptor keeps the name in the kernel's cache, so asking by name does
	 * not block; only a wrong guess could, and after one this thread has to earn the next.
	 */
	if (lookup_bias > (cached ? FS_BIAS_MAX - 1 : 0)) {
		*node = lookup_known(fs, parent, name, how, &out->st, &err);
		if (cached && !*node)
			lookup_bias = 0;
		if (*node || err < 0) {
			fs_fd_give(fs);
			return err;
		}
	}
	err = lookup_booked(fs, parent, name, how, out, node);
	if (err >= 0)
		bias_learn(err == 1);
	return err;
}

int fs_node_lookup(struct fs *fs, struct fs_node *parent, const char *name, enum fs_lookup_how how,
		   struct fs_attr *out, struct fs_node **ref)
{
	struct fs_node *node = NULL;
	int err = fs_name_check(name);

	if (err == 0)
		err = lookup_any(fs, parent, name, how, out, &node);
	if (err < 0)
		return err;
	fs_name_note(fs, parent, node, name);
	answer(fs, parent, node, out);
	if (ref)
		*ref = node;
	else
		fs_node_put(fs, node);
	return 0;
}

int fs_node_lookup_new(struct fs *fs, struct fs_node *parent, const char *name, struct fs_attr *out)
{
	struct fs_node *node = NULL;
	int err = lookup_booked(fs, parent, name, FS_LOOKUP_ANY, out, &node);

	if (err < 0)
		return err;
	fs_name_note(fs, parent, node, name);
	answer(fs, parent, node, out);
	fs_node_put(fs, node);
	return 0;
}

void fs_node_renamed(struct fs *fs, struct fs_node *dir, const char *name)
{
	struct fs_node *node;
	struct stat st;
	int err;

	if (!fs->config.keep_names)
		return;
	node = lookup_known(fs, dir, name, FS_LOOKUP_ANY, &st, &err);
	if (!node)
		return;
	fs_name_note(fs, dir, node, name);
	fs_forget(fs, node->id, 1);
	fs_node_put(fs, node);
}

/* An O_PATH descriptor of the file that @fd is open on. By name that is half the price of the way
 * through /proc, but another file may stand there by now. */
/* syscalls: openat fstat newfstatat close */
static int path_of_fd(struct fs *fs, const struct fs_node *parent, int fd, const char *name,
		      struct stat *st, uint64_t *mnt_id)
{
	char buf[FS_PROC_NAME];
	struct stat made;
	util_autofd path = -1;
	int err;

	if (name && fstat(fd, &made) == 0) {
		path = openat(parent->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (path >= 0 && fs_node_stat(path, "", 0, st, mnt_id) == 0 &&
		    st->st_ino == made.st_ino && st->st_dev == made.st_dev)
			return util_steal_fd(&path);
		util_close(&path);
	}
	path = openat(fs->config.proc_self_fd, fs_proc_name(buf, fd), O_PATH | O_CLOEXEC);
	if (path < 0)
		return -errno;
	err = fs_node_stat(path, "", 0, st, mnt_id);
	return err < 0 ? err : util_steal_fd(&path);
}

int fs_node_of_fd(struct fs *fs, struct fs_node *parent, int fd, const char *name,
		  struct fs_attr *out, struct fs_node **node)
{
	uint64_t mnt_id;
	int path = path_of_fd(fs, parent, fd, name, &out->st, &mnt_id);
	int err;

	if (path < 0) {
		fs_fd_give(fs);
		return path;
	}
	err = adopt_path(fs, parent, path, &out->st, mnt_id, node);
	if (err < 0)
		return err;
	if (name)
		fs_name_note(fs, parent, *node, name);
	answer(fs, parent, *node, out);
	return 0;
}

/* syscalls: openat */
int fs_node_reopen(struct fs *fs, const struct fs_node *node, int flags)
{
	char buf[FS_PROC_NAME];
	int fd;

	if (!S_ISREG(node->type) && !S_ISDIR(node->type))
		return -ENXIO;
	flags = (flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW | O_NOCTTY)) | O_CLOEXEC;
	/*
	 * The link in /proc must be followed, so no O_NOFOLLOW: what it leads to is the inode that
	 * the O_PATH descriptor pins. O_NONBLOCK says that we do not wait, whatever it is; on a
	 * regular file it can only mean that somebody has a lease, and then waiting is right, if
	 * not here. It stays set: reads and writes of a regular file do not look at it.
	 */
	fd = openat(fs->config.proc_self_fd, fs_proc_name(buf, node->fd), flags | O_NONBLOCK);
	if (fd < 0 && errno == EWOULDBLOCK && !(flags & O_NONBLOCK))
		fd = openat(fs->config.proc_self_fd, fs_proc_name(buf, node->fd),
			    flags & ~O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static int lookup(struct fs *fs, uint64_t parent, const char *name, enum fs_lookup_how how,
		  struct fs_attr *out)
{
	struct fs_node *dir;
	int err = fs_node_get_dir(fs, parent, &dir);

	if (err < 0)
		return err;
	if ((how != FS_LOOKUP_ANY && dir->mount->remote) ||
	    (how == FS_LOOKUP_CACHED && !fs->resolve_cached))
		err = -EAGAIN;
	else
		err = fs_node_lookup(fs, dir, name, how, out, NULL);
	fs_node_put(fs, dir);
	return err;
}

int fs_lookup(struct fs *fs, uint64_t parent, const char *name, struct fs_attr *out)
{
	return lookup(fs, parent, name, FS_LOOKUP_ANY, out);
}

int fs_lookup_cached(struct fs *fs, uint64_t parent, const char *name, struct fs_attr *out)
{
	return lookup(fs, parent, name, FS_LOOKUP_CACHED, out);
}

int fs_lookup_local(struct fs *fs, uint64_t parent, const char *name, struct fs_attr *out)
{
	return lookup(fs, parent, name, FS_LOOKUP_LOCAL, out);
}

bool fs_is_remote(struct fs *fs, uint64_t id)
{
	struct cds_lfht_node *n;
	bool remote;

	util_rcu_read_lock();
	n = util_lfht_lookup(fs->nodes_by_id, util_hash_u64(id), match_id, &id);
	remote = n && caa_container_of(n, struct fs_node, by_id)->mount->remote;
	util_rcu_read_unlock();
	return remote;
}

/* syscalls: openat close */
int fs_nodes_init(struct fs *fs, GError **error)
{
	struct fs_node *root = g_new0(struct fs_node, 1);
	const struct node_key *k;
	struct node_key key;
	struct stat st;
	uint64_t mnt_id;
	int err;

	fs->nodes_by_id = util_lfht_new(64);
	fs->nodes_by_key = util_lfht_new(64);
	fs->next_node = FS_ROOT_ID + 1;
	root->fd = openat(fs->config.root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	err = root->fd < 0 ? -errno : fs_node_stat(root->fd, "", 0, &st, &mnt_id);
	if (err == 0) {
		root->mount = fs_mount_of(fs, st.st_dev, mnt_id, root->fd);
		if (!root->mount)
			err = -ENOMEM;
	}
	if (err < 0) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(-err),
			    "cannot serve the shared directory: %s", g_strerror(-err));
		util_close(&root->fd);
		g_free(root);
		return err;
	}
	root->id = FS_ROOT_ID;
	root->ino = st.st_ino;
	root->type = S_IFDIR;
	root->count = FS_NODE_REF; /* ours: it never ends by a guest's forget */
	key = (struct node_key){root->mount, root->ino};
	k = &key;
	util_rcu_read_lock();
	util_lfht_add(fs->nodes_by_id, util_hash_u64(root->id), &root->by_id);
	util_lfht_add(fs->nodes_by_key, hash_key(k), &root->by_key);
	util_rcu_read_unlock();
	__atomic_fetch_add(&fs->fds, 1, __ATOMIC_RELAXED);
	fs->node_count = 1;
	fs->root = root;
	return 0;
}

/* No other operation is under way: what was collected stays valid outside of the read section. */
#define FS_RESET_BATCH 256
void fs_nodes_reset(struct fs *fs)
{
	struct fs_node *batch[FS_RESET_BATCH];
	struct cds_lfht_iter it;
	struct cds_lfht_node *n;
	unsigned int count;
	unsigned int i;

	do {
		count = 0;
		util_rcu_read_lock();
		for (n = util_lfht_first(fs->nodes_by_id, &it); n && count < FS_RESET_BATCH;
		     n = util_lfht_next(fs->nodes_by_id, &it)) {
			struct fs_node *node = caa_container_of(n, struct fs_node, by_id);

			if (node != fs->root)
				batch[count++] = node;
		}
		util_rcu_read_unlock();
		for (i = 0; i < count; i++) {
			__atomic_store_n(&batch[i]->count, 0, __ATOMIC_RELEASE);
			node_end(fs, batch[i]);
		}
	} while (count > 0);
	if (fs->root)
		__atomic_store_n(&fs->root->count, FS_NODE_REF, __ATOMIC_RELEASE);
}

void fs_nodes_free(struct fs *fs)
{
	const struct fs_hooks none = {0};

	fs_nodes_reset(fs);
	if (fs->root) {
		fs->hooks = none; /* the root going is no news */
		fs_node_put(fs, fs->root);
		fs->root = NULL;
	}
	util_rcu_barrier();
	util_lfht_destroy(fs->nodes_by_id);
	util_lfht_destroy(fs->nodes_by_key);
}
