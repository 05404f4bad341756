/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the fs library: who owns what, and how it is found. Not seen by other folders.
 *
 * Locks, in order of acquisition; none is held while another file's operation could want it:
 *   1. fs_dir.lock    one per open directory; held over getdents64 (and over the lookups and the
 *                     emit callback of one listing): fs_readdir()
 *   2. fs.mount_lock  leaf; taken when a mount is seen for the first time: fs_mount_of()
 * Nodes and handles have none: both are found under RCU and kept by an atomic count.
 */
#ifndef DAXMAP_FS_INT_H
#define DAXMAP_FS_INT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fs.h"
#include "util_fd.h"
#include "util_lock.h"
#include "util_rcu.h"

/**
 * struct fs_mount - what is known of one mounted file system
 * @dev, @mnt_id: identity; together with the inode number they name a file
 * @remote: a request to it may wait for another process or machine: nothing is done inline
 * @in_memory: its pages are always there: a read or write need not be told not to wait
 * @no_nowait_read, @no_nowait_write: RWF_NOWAIT was refused once (atomic)
 * @type: statfs f_type; 0: could not be asked
 *
 * Pushed to a list that only grows; freed with the fs. Read without a lock.
 */
struct fs_mount {
	struct fs_mount *next;
	uint64_t dev;
	uint64_t mnt_id;
	bool remote;
	bool in_memory;
	bool no_nowait_read;
	bool no_nowait_write;
	uint32_t type;
};

/*
 * A node's count holds both counts in one word, so that each change of either is one atomic
 * step and "nobody has it" is one value: bits 0..23 operations and handles, bits 24..63 the
 * guest's lookups. Zero is final.
 */
#define FS_NODE_REF 1ull
#define FS_NODE_LOOKUP (1ull << 24)
#define FS_NODE_REF_MAX (FS_NODE_LOOKUP - 1)
#define FS_NODE_LOOKUP_MAX ((1ull << 40) - 1)

/** struct fs_name - where a node was last seen (fs_config.keep_names) */
struct fs_name {
	struct util_rcu_head rcu;
	uint64_t parent; /* node id */
	char text[];
};

/**
 * struct fs_node - a file, directory or anything else that has an inode
 * @by_id, @by_key: links of the two tables
 * @id: what the guest calls it; never used twice
 * @ino, @mount: the key, constant
 * @count: see FS_NODE_REF; atomic
 * @fd: O_PATH descriptor, owned; pins the inode, so that the key cannot be used again
 * @type: S_IFMT bits, constant
 * @mapped: fs_open_for_map() was called (atomic)
 * @buffered, @direct: open handles without and with O_DIRECT (atomic)
 * @writable: what fs_can_write() last found, and for which ctime (atomic)
 * @name: RCU; NULL: not known, or names are not kept
 *
 * @id, @ino and @mount may be read inside a read section after a lookup; the rest needs a
 * reference.
 */
struct fs_node {
	struct cds_lfht_node by_id;
	struct cds_lfht_node by_key;
	uint64_t id;
	uint64_t ino;
	struct fs_mount *mount;
	uint64_t count;
	int fd;
	uint16_t type;
	bool mapped;
	uint32_t buffered;
	uint32_t direct;
	uint64_t writable;
	struct fs_name *name;
	struct util_rcu_head rcu;
};

/**
 * struct fs_dir - listing state of an open directory
 * @lock: protects the rest and the descriptor's position
 * @buf: what getdents64 gave; NULL between listings
 * @pos, @len: unread part of @buf
 * @cookie: where the next entry to be read (in @buf, then in the descriptor) stands
 */
struct fs_dir {
	struct util_mutex lock;
	char *buf;
	uint32_t pos;
	uint32_t len;
	uint64_t cookie;
};

enum fs_handle_kind {
	FS_HANDLE_FILE,
	FS_HANDLE_SYNC,	  /* a file with O_SYNC or O_DSYNC */
	FS_HANDLE_DIRECT, /* a file that the guest has opened with O_DIRECT, honoured or not */
	FS_HANDLE_DIR,
};

/**
 * struct fs_handle - an open file or directory
 * @refs: one for the table, one for each operation; atomic; zero is final
 * @node: reference held
 * @fd: owned
 * @dir: NULL for a file
 * @kind: constant
 */
struct fs_handle {
	struct cds_lfht_node by_id;
	uint64_t id;
	struct fs_node *node;
	struct fs_dir *dir;
	enum fs_handle_kind kind;
	unsigned int refs;
	int fd;
	struct util_rcu_head rcu;
};

struct fs {
	struct fs_config config;
	struct fs_hooks hooks;
	struct cds_lfht *nodes_by_id;
	struct cds_lfht *nodes_by_key;
	struct cds_lfht *handles;
	struct fs_mount *mounts; /* published; grows only */
	struct util_mutex mount_lock;
	struct fs_node *root;
	unsigned int fd_limit;	    /* for everything */
	unsigned int fd_node_limit; /* for nodes: the rest is kept for opening what is known */
	bool resolve_cached;

	/* Written by every request that makes something: a cache line each. */
	_Alignas(64) uint64_t next_node;
	_Alignas(64) uint64_t next_handle;
	_Alignas(64) unsigned int fds;
	_Alignas(64) uint64_t node_count;
	uint64_t handle_count;
};

/* fs.c */

enum fs_fd_use { FS_FD_NODE, FS_FD_HANDLE };
/** fs_fd_take() - books one descriptor; -EMFILE at the limit. Give back with fs_fd_give(). */
int fs_fd_take(struct fs *fs, enum fs_fd_use use);
void fs_fd_give(struct fs *fs);
/** fs_fd_close() - closes *@fd and gives its booking back. */
void fs_fd_close(struct fs *fs, int *fd);
/** fs_mount_of() - the mount with this identity; @fd is any descriptor on it. NULL: no memory.
 * The result lives as long as @fs. */
struct fs_mount *fs_mount_of(struct fs *fs, uint64_t dev, uint64_t mnt_id, int fd);
/** fs_mount_find() - the same, if it has been seen; asks nobody. */
struct fs_mount *fs_mount_find(struct fs *fs, uint64_t dev, uint64_t mnt_id);
/** fs_name_check() - 0 for a name that may stand in a directory; else -EINVAL, -ENAMETOOLONG. */
int fs_name_check(const char *name);
/** fs_proc_name() - name of @fd inside /proc/self/fd. @buf takes FS_PROC_NAME bytes. */
#define FS_PROC_NAME 16
const char *fs_proc_name(char *buf, int fd);
static inline int fs_writable(const struct fs *fs)
{
	return fs->config.readonly ? -EROFS : 0;
}

/* fs_node.c */

int fs_nodes_init(struct fs *fs, GError **error);
void fs_nodes_reset(struct fs *fs);
void fs_nodes_free(struct fs *fs);
/** fs_node_get() - a reference to the node called @id; NULL if there is none. Any thread. */
struct fs_node *fs_node_get(struct fs *fs, uint64_t id);
/** fs_node_get_dir() - as fs_node_get(), -ESTALE or -ENOTDIR. */
int fs_node_get_dir(struct fs *fs, uint64_t id, struct fs_node **dir);
/** fs_node_put() - may run the node_gone hook; not in a read section. */
void fs_node_put(struct fs *fs, struct fs_node *node);
/** fs_node_ref() - one more reference for a caller that has one. */
void fs_node_ref(struct fs_node *node);
/** fs_node_find() - the node with this key, one lookup count and one reference taken; or NULL. */
struct fs_node *fs_node_find(struct fs *fs, const struct fs_mount *mount, uint64_t ino);
/**
 * fs_node_adopt() - the node of an O_PATH descriptor, made if need be
 * @fd: booked; taken over in every case
 * @st, @mount: of @fd
 *
 * One lookup count and one reference are taken. 0: it is new; 1: it was known; -ENOMEM,
 * -EOVERFLOW (a count is full).
 */
int fs_node_adopt(struct fs *fs, int fd, const struct stat *st, struct fs_mount *mount,
		  struct fs_node **out);
/** fs_node_stat() - statx of @name under @dirfd, or of @dirfd itself when @name is "". @flags: more
 * AT_ flags. */
int fs_node_stat(int dirfd, const char *name, int flags, struct stat *st, uint64_t *mnt_id);

enum fs_lookup_how {
	FS_LOOKUP_ANY,
	FS_LOOKUP_LOCAL,  /* -EAGAIN where another process or machine would be asked */
	FS_LOOKUP_CACHED, /* -EAGAIN where it could block */
};
/**
 * fs_node_lookup() - looks @name up in @parent (the caller has a reference)
 *
 * One lookup count is taken for @out; with @node, also a reference.
 */
int fs_node_lookup(struct fs *fs, struct fs_node *parent, const char *name, enum fs_lookup_how how,
		   struct fs_attr *out, struct fs_node **node);
/** fs_node_lookup_new() - as fs_node_lookup(), for a name just made. The caller has booked a
 * descriptor (FS_FD_NODE) before making it; the booking is taken over. */
int fs_node_lookup_new(struct fs *fs, struct fs_node *parent, const char *name,
		       struct fs_attr *out);
/** fs_node_renamed() - @name in @dir may now be a node that was known by another; when names are
 * kept */
void fs_node_renamed(struct fs *fs, struct fs_node *dir, const char *name);
/** fs_node_of_fd() - the node of @fd, a file just made in @parent, as @name if it has one (else
 * NULL); booked as for fs_node_lookup_new(). One lookup count and one reference are taken. */
int fs_node_of_fd(struct fs *fs, struct fs_node *parent, int fd, const char *name,
		  struct fs_attr *out, struct fs_node **node);
/** fs_node_reopen() - opens a regular file or directory anew; flags as open(2), sanitised by the
 * caller; with O_NONBLOCK -EAGAIN where somebody's lease would be waited for. The descriptor is not
 * booked. Anything else is never opened: -ENXIO. */
int fs_node_reopen(struct fs *fs, const struct fs_node *node, int flags);

/* fs_handle.c */

void fs_handles_init(struct fs *fs);
void fs_handles_reset(struct fs *fs);
void fs_handles_free(struct fs *fs);
/** fs_handle_new() - @fd (booked) and a reference of @node are taken over, also on failure. */
int fs_handle_new(struct fs *fs, struct fs_node *node, int fd, enum fs_handle_kind kind,
		  uint64_t *id);
/** fs_handle_get() - a reference to a handle of the kind asked for, open on @node (0: on any
 * node); NULL if there is no such handle. */
struct fs_handle *fs_handle_get(struct fs *fs, uint64_t node, uint64_t id, bool dir);
void fs_handle_put(struct fs *fs, struct fs_handle *handle);
int fs_handle_close(struct fs *fs, uint64_t id, bool dir);
/** fs_handle_sync() - fsync or fdatasync of an open file, or directory. */
int fs_handle_sync(struct fs *fs, uint64_t node, uint64_t id, bool dir, bool datasync);

/* fs_dir.c */

struct fs_dir *fs_dir_new(void);
void fs_dir_free(struct fs_dir *dir);

/* fs_cred.c */

/** struct fs_cred_scope - what fs_cred_leave() must undo */
struct fs_cred_scope {
	uid_t uid;
	bool uid_changed;
	bool gid_changed;
	bool group_added;
	bool umask_changed;
	bool may_override;
};

/**
 * fs_cred_enter() - lets this thread create as @c says; until fs_cred_leave()
 *
 * 0 or -errno; on failure nothing has changed. Where the process may not change its
 * credentials, it goes on as it is, and says so once.
 */
int fs_cred_enter(struct fs *fs, const struct fs_cred *c, struct fs_cred_scope *scope);
void fs_cred_leave(struct fs_cred_scope *scope);
/** fs_cred_override() - after EACCES: true when another try, with CAP_DAC_OVERRIDE, is due. */
bool fs_cred_override(struct fs_cred_scope *scope);
/** fs_cred_fsetid() - makes this thread act with (@keep) or without CAP_FSETID from here on, so
 * that what follows keeps or clears setuid and setgid bits. To be called before every such
 * operation: the state stays with the thread. */
void fs_cred_fsetid(bool keep);
/** fs_cred_enter_proc() - makes this thread's own working directory /proc/self/fd, so that
 * fs_proc_name() is a path. 0 or -errno. */
int fs_cred_enter_proc(struct fs *fs);

/* fs_map.c */

/** fs_name_note() - @node (the caller has a reference) was seen as @name in @dir; when names are
 * kept */
void fs_name_note(struct fs *fs, const struct fs_node *dir, struct fs_node *node, const char *name);

/* fs_meta.c */

void fs_hook_resized(struct fs *fs, const struct fs_node *node, uint64_t size);

#endif
