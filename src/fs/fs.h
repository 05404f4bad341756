/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File operations on one shared directory. Values in, values out: no FUSE structure, no guest
 * memory but the buffers of a read or write.
 *
 * Inodes are named by 64-bit node ids that this side makes; 1 is the root. A node lives while
 * its lookup count is not zero or an operation holds it. Handles are 64-bit too. Both are looked
 * up under RCU (util_rcu.h), with a reference per object: no operation takes a lock that an
 * operation on another file takes.
 *
 * Every function returns 0 (or a count) or a negative errno. Any thread. A node id that names
 * nothing is -ESTALE, a handle that names nothing, another kind or another node -EBADF.
 *
 * What depends on the thread (credentials, umask, CAP_FSETID, working directory) is changed for
 * the calling thread only and, but for the last two, restored before returning. A thread that
 * calls in here must not rely on relative paths.
 */
#ifndef DAXMAP_FS_H
#define DAXMAP_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <glib.h>

#include "util_gvec.h"

#define FS_ROOT_ID 1u

struct fs;

enum fs_cache_mode {
	FS_CACHE_NEVER,
	FS_CACHE_METADATA,
	FS_CACHE_AUTO,
	FS_CACHE_ALWAYS,
};

/**
 * struct fs_config - how a share is served
 * @root_fd: O_PATH (or O_RDONLY) descriptor of the shared directory; taken over
 * @proc_self_fd: descriptor of /proc/self/fd; taken over
 * @readonly: every operation that changes something answers EROFS
 * @xattr: serve extended attributes (off: ENOSYS at the FUSE layer)
 * @allow_direct_io: honour the guest's O_DIRECT
 * @writeback: the guest caches writes: O_APPEND and O_WRONLY are adjusted as it needs
 * @posix_acl, @flock: feature switches; locks are per open handle
 * @announce_submounts: report mount boundaries
 * @keep_names: remember by which name each node was last looked up, for fs_path()
 * @fd_limit: how many descriptors may be used in all; 0 = RLIMIT_NOFILE less a reserve
 */
struct fs_config {
	int root_fd;
	int proc_self_fd;
	bool readonly;
	bool xattr;
	bool allow_direct_io;
	bool writeback;
	bool posix_acl;
	bool flock;
	bool announce_submounts;
	bool keep_names;
	enum fs_cache_mode cache;
	unsigned int fd_limit;
};

/**
 * struct fs_cred - who asks
 * @uid, @gid: of the guest's process
 * @has_sup_group: @sup_gid is a supplementary group to create with (FUSE_CREATE_SUPP_GROUP)
 * @umask: to apply at creation (0 when the guest has applied it)
 */
struct fs_cred {
	uid_t uid;
	gid_t gid;
	bool has_sup_group;
	gid_t sup_gid;
	mode_t umask;
};

/** struct fs_attr - attributes of a node, as of one statx */
struct fs_attr {
	struct stat st;
	uint64_t node;
	bool submount;
};

enum fs_setattr_valid {
	FS_SET_MODE = 1u << 0,
	FS_SET_UID = 1u << 1,
	FS_SET_GID = 1u << 2,
	FS_SET_SIZE = 1u << 3,
	FS_SET_ATIME = 1u << 4,
	FS_SET_MTIME = 1u << 5,
	FS_SET_ATIME_NOW = 1u << 6,
	FS_SET_MTIME_NOW = 1u << 7,
	FS_SET_KILL_SUIDGID = 1u << 8,
};

struct fs_setattr {
	uint32_t valid;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	uint64_t size;
	struct timespec atime;
	struct timespec mtime;
	bool has_handle;
	uint64_t handle;
	bool nowait; /* -EAGAIN where somebody's lease would be waited for: set it all again */
};

/**
 * struct fs_hooks - what the owner wants to know; any may be NULL
 * @node_gone: the last reference of a node has gone. @unlinked: it had no link left (best
 *             effort). May be called from any thread; no lock held.
 * @resized: a node's size was set through this share (truncate, O_TRUNC, fallocate) to @size; not
 *           called for writes.
 */
struct fs_hooks {
	void *ctx;
	void (*node_gone)(void *ctx, uint64_t node, bool unlinked);
	void (*resized)(void *ctx, uint64_t node, uint64_t size);
};

/** fs_new() - the descriptors of @config are taken over, also on failure (NULL, @error set) */
struct fs *fs_new(const struct fs_config *config, const struct fs_hooks *hooks, GError **error);
/** fs_free() - no operation may be under way. */
void fs_free(struct fs *fs);
/** fs_reset() - forgets every node but the root and closes every handle (FUSE_DESTROY); no
 * other operation may be under way. */
void fs_reset(struct fs *fs);

/* nodes; each fs_attr answered by lookup, create, mknod, ... carries one lookup count */
int fs_lookup(struct fs *fs, uint64_t parent, const char *name, struct fs_attr *out);
/** fs_lookup_cached() - as fs_lookup, but -EAGAIN where it could block (openat2 RESOLVE_CACHED) */
int fs_lookup_cached(struct fs *fs, uint64_t parent, const char *name, struct fs_attr *out);
/** fs_lookup_local() - as fs_lookup, but -EAGAIN where another process or machine would be asked */
int fs_lookup_local(struct fs *fs, uint64_t parent, const char *name, struct fs_attr *out);
/** fs_is_remote() - is @node on a file system that asks another process or machine? Takes no
 * reference; false for what is no node. */
bool fs_is_remote(struct fs *fs, uint64_t node);
void fs_forget(struct fs *fs, uint64_t node, uint64_t nlookup);
int fs_getattr(struct fs *fs, uint64_t node, bool has_handle, uint64_t handle, struct fs_attr *out);
/** fs_getattr_cached() - as fs_getattr without a handle, but -EAGAIN where it could block (a file
 * system that asks another process or machine) */
int fs_getattr_cached(struct fs *fs, uint64_t node, struct fs_attr *out);
int fs_setattr(struct fs *fs, uint64_t node, const struct fs_setattr *set, struct fs_attr *out);
/** fs_readlink() - length of the target written to @buf (not terminated) */
ssize_t fs_readlink(struct fs *fs, uint64_t node, char *buf, size_t size);
int fs_symlink(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name,
	       const char *target, struct fs_attr *out);
int fs_mknod(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name, mode_t mode,
	     dev_t rdev, struct fs_attr *out);
int fs_mkdir(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name, mode_t mode,
	     struct fs_attr *out);
int fs_unlink(struct fs *fs, uint64_t parent, const char *name);
int fs_rmdir(struct fs *fs, uint64_t parent, const char *name);
int fs_rename(struct fs *fs, uint64_t parent, const char *name, uint64_t newparent,
	      const char *newname, unsigned int flags);
int fs_link(struct fs *fs, uint64_t node, uint64_t newparent, const char *newname,
	    struct fs_attr *out);
int fs_statfs(struct fs *fs, uint64_t node, struct statvfs *out);
int fs_access(struct fs *fs, const struct fs_cred *c, uint64_t node, int mask);
int fs_syncfs(struct fs *fs, uint64_t node);

/* xattr; the calling thread's working directory becomes its own, in /proc/self/fd */
/** FS_XATTR_ACL_KILL_SGID - in the @flags of fs_setxattr(): FUSE_SETXATTR_ACL_KILL_SGID */
#define FS_XATTR_ACL_KILL_SGID (1 << 16)
int fs_setxattr(struct fs *fs, uint64_t node, const char *name, const void *value, size_t size,
		int flags);
ssize_t fs_getxattr(struct fs *fs, uint64_t node, const char *name, void *value, size_t size);
ssize_t fs_listxattr(struct fs *fs, uint64_t node, char *list, size_t size);
int fs_removexattr(struct fs *fs, uint64_t node, const char *name);

/* files. @flags: open(2) flags as the guest sent them; sanitised here, but for O_NONBLOCK, which is
 * the caller's: -EAGAIN where somebody's lease would be waited for. */
int fs_open(struct fs *fs, uint64_t node, int flags, bool kill_suidgid, uint64_t *handle);
int fs_create(struct fs *fs, const struct fs_cred *c, uint64_t parent, const char *name,
	      mode_t mode, int flags, bool kill_suidgid, struct fs_attr *out, uint64_t *handle);
int fs_tmpfile(struct fs *fs, const struct fs_cred *c, uint64_t parent, mode_t mode, int flags,
	       struct fs_attr *out, uint64_t *handle);
int fs_release(struct fs *fs, uint64_t handle);
int fs_flush(struct fs *fs, uint64_t node, uint64_t handle);
int fs_fsync(struct fs *fs, uint64_t node, uint64_t handle, bool datasync);

/** enum fs_io_flags - for reads and writes */
enum fs_io_flags {
	FS_IO_NOWAIT = 1u << 0,	      /* -EAGAIN instead of blocking */
	FS_IO_KILL_SUIDGID = 1u << 1, /* clear suid/sgid as for an unprivileged writer */
	FS_IO_CACHE = 1u << 2,	      /* a page of the guest's write-back cache */
};

/**
 * fs_read() - into @buf (all segments in RAM); bytes read; short only at end of file
 *
 * With FS_IO_NOWAIT: the whole answer without blocking, or -EAGAIN (part of @buf may have been
 * written then). The kernel's bound on segments is handled. An error after a part is an error.
 */
ssize_t fs_read(struct fs *fs, uint64_t node, uint64_t handle, const struct util_gvec *buf,
		uint64_t offset, uint32_t flags);
/** fs_write() - bytes written; short only when the rest met an error (a full disk), which the next
 * write will answer. FS_IO_NOWAIT as for fs_read(): on -EAGAIN write it all again. */
ssize_t fs_write(struct fs *fs, uint64_t node, uint64_t handle, const struct util_gvec *buf,
		 uint64_t offset, uint32_t flags);
/** fs_writes_exclude() - do two writes through @handle wait for each other all the time? So do
 * buffered ones on a local file system (i_rwsem); direct ones may overlap, and synchronous ones
 * wait for the disk together. */
bool fs_writes_exclude(struct fs *fs, uint64_t node, uint64_t handle);
/** fs_nowait_useful() - false once it is known that FS_IO_NOWAIT always answers -EAGAIN for this
 * file system (for writes, ext4) */
bool fs_nowait_useful(struct fs *fs, uint64_t node, bool write);
/** fs_write_is_blind() - does a write through @handle go to the page cache of a local file system
 * that is known not to be able to say whether it would wait? */
bool fs_write_is_blind(struct fs *fs, uint64_t node, uint64_t handle);
int fs_fallocate(struct fs *fs, uint64_t node, uint64_t handle, int mode, uint64_t offset,
		 uint64_t len);
off_t fs_lseek(struct fs *fs, uint64_t node, uint64_t handle, uint64_t offset, int whence);
ssize_t fs_copy_file_range(struct fs *fs, uint64_t node_in, uint64_t handle_in, uint64_t off_in,
			   uint64_t node_out, uint64_t handle_out, uint64_t off_out, size_t len,
			   unsigned int flags);

/* locks (only when switched on) */
int fs_flock(struct fs *fs, uint64_t handle, int op);

/* directories */
int fs_opendir(struct fs *fs, uint64_t node, uint64_t *handle);
int fs_releasedir(struct fs *fs, uint64_t handle);
int fs_fsyncdir(struct fs *fs, uint64_t node, uint64_t handle, bool datasync);

/**
 * struct fs_dirent - one name
 * @next: cookie to resume behind it
 * @has_attr: @attr is valid and carries one lookup count (readdirplus; never for . and ..)
 */
struct fs_dirent {
	const char *name;
	size_t namelen;
	uint64_t ino;
	uint64_t next;
	unsigned char type; /* DT_* */
	bool has_attr;
	struct fs_attr attr;
};

/**
 * fs_readdir() - lists names from @cookie (0 = start) on
 * @plus: also look each name up
 * @emit: called for each; returns false when its buffer is full: that name is not consumed, its
 *        lookup count is given back, and the listing ends
 *
 * No name is lost: where a name cannot be looked up for want of descriptors, it is emitted with
 * has_attr false.
 */
int fs_readdir(struct fs *fs, uint64_t node, uint64_t handle, uint64_t cookie, bool plus,
	       bool (*emit)(void *ctx, const struct fs_dirent *d), void *ctx);

/* for mapping */
/** fs_open_for_map() - a new descriptor of the regular file @node (caller closes), read-write
 * where possible. -EISDIR, -EINVAL (not a regular file), -EROFS never: read-only is tried. */
int fs_open_for_map(struct fs *fs, uint64_t node, bool *writable);
/** fs_node_of_handle() - the node a file handle is open on; -EBADF */
int fs_node_of_handle(struct fs *fs, uint64_t handle, uint64_t *node);
/** fs_handle_fd() - a new descriptor (dup) of a file handle, for I/O from elsewhere. */
int fs_handle_dup(struct fs *fs, uint64_t node, uint64_t handle);

/** fs_identity() - which file a node is: unlike its id the same after it was forgotten and looked
 * up again. false: no such node. */
bool fs_identity(struct fs *fs, uint64_t node, uint64_t *dev, uint64_t *ino);
/** fs_type() - f_type of the file system it lies on, as statfs(2) says; false: no such node, or
 * it could not be asked */
bool fs_type(struct fs *fs, uint64_t node, uint32_t *type);
/** fs_can_write() - would fs_open_for_map() get it read-write? @st: its attributes. Looked up
 * anew when its ctime has changed; what leaves no trace there (a remount, a program that is being
 * executed from it) is not seen. */
bool fs_can_write(struct fs *fs, uint64_t node, const struct stat *st);
/** fs_direct_only() - are all open handles of it (at least one) opened with O_DIRECT? */
bool fs_direct_only(struct fs *fs, uint64_t node);
/**
 * fs_path() - by which path a node was last seen, relative to the root, as "dir/name"
 * @whole: out; false: only the end of it is known
 *
 * Only with fs_config.keep_names. One name of a file with several links; what was renamed on the
 * host is known by its old name until it is looked up. Its length; 0: nothing is known;
 * -ESTALE, -ENAMETOOLONG.
 */
ssize_t fs_path(struct fs *fs, uint64_t node, char *buf, size_t size, bool *whole);
/** fs_readahead() - starts reading a part of a file into the page cache; may block. What cannot be
 * read ahead is left. */
void fs_readahead(struct fs *fs, uint64_t node, uint64_t offset, uint64_t len);

/**
 * fs_where() - where the file lies now, as the kernel knows it: "dir/name" below the root of the
 * share; with a " (deleted)" behind it when it has no name any more
 *
 * Some system calls: for showing. Length (cut at @size - 1, always terminated), or a negative
 * errno.
 */
ssize_t fs_where(struct fs *fs, uint64_t node, char *buf, size_t size);

/** struct fs_stats - gauges for tests and the control socket */
struct fs_stats {
	uint64_t nodes;
	uint64_t handles;
	uint64_t fds;
};
void fs_get_stats(struct fs *fs, struct fs_stats *out);

#endif
