/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's side and the helper's side of the shim share. Not for other folders. */
#ifndef DAXMAP_SHIM_INTERNAL_H
#define DAXMAP_SHIM_INTERNAL_H

#include <linux/fuse.h>
#include <sys/ioctl.h>

#include "shim.h"

/*
 * linux/fuse.h of 7.40 and newer, in case the build machine's is older. Own names, so that both
 * kinds of header compile. Source: include/uapi/linux/fuse.h, fs/fuse/passthrough.c.
 */
#define SHIM_FUSE_MINOR 40
#define SHIM_FUSE_PASSTHROUGH (UINT64_C(1) << 37)
#define SHIM_FOPEN_DIRECT_IO (1u << 0)
#define SHIM_FOPEN_NOFLUSH (1u << 5)
#define SHIM_FOPEN_PASSTHROUGH (1u << 7)

struct shim_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define SHIM_BACKING_OPEN _IOW(229, 1, struct shim_backing_map)
#define SHIM_BACKING_CLOSE _IOW(229, 2, uint32_t)

struct shim_init_out {
	uint32_t major;
	uint32_t minor;
	uint32_t max_readahead;
	uint32_t flags;
	uint16_t max_background;
	uint16_t congestion_threshold;
	uint32_t max_write;
	uint32_t time_gran;
	uint16_t max_pages;
	uint16_t map_alignment;
	uint32_t flags2;
	uint32_t max_stack_depth;
	uint32_t unused[6];
};
_Static_assert(sizeof(struct shim_init_out) == sizeof(struct fuse_init_out), "fuse_init_out");

struct shim_open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};
_Static_assert(sizeof(struct shim_open_out) == sizeof(struct fuse_open_out), "fuse_open_out");

/* The largest READ (128 KiB: no FUSE_MAX_PAGES) and WRITE that the kernel may send. */
#define SHIM_MAX_READ (128u << 10)
#define SHIM_MAX_WRITE (64u << 10)

/** enum shim_op - daemon to helper; there is no answer but the one of open(2) on the mount */
enum shim_op {
	SHIM_OP_ADD = 1, /* carries one descriptor: a look-up of name @seq will follow */
	SHIM_OP_CANCEL,	 /* the look-up of @seq will not come, or has been */
};

struct shim_msg {
	uint32_t op;
	uint32_t writable;
	uint64_t seq;
	uint64_t key_hi;
	uint64_t key_lo;
	uint64_t dev;
	uint64_t ino;
};

/** SHIM_NAME - how the daemon names the file of one shim_open() on the mount */
#define SHIM_NAME "%016" G_GINT64_MODIFIER "x"
#define SHIM_NAME_LEN 16

/**
 * struct shim_mount - a mounted shim without a server
 * @fuse: /dev/fuse, non-blocking, FUSE_INIT answered
 * @mnt: the root directory of the mount, which is in no mount namespace
 * @minor: FUSE protocol of the kernel
 * @passthrough: the kernel takes backing files from us
 */
struct shim_mount {
	int fuse;
	int mnt;
	uint32_t minor;
	bool passthrough;
};

bool shim_mount_open(struct shim_mount *m, int share_fd, bool readonly, GError **error);
void shim_mount_close(struct shim_mount *m);

/** shim_may_write() - 0 when @fd may become a writable node: O_RDWR, not append-only, not sealed;
 * else a negative errno. Both sides ask it: the helper does not trust the daemon. */
int shim_may_write(int fd);
/** shim_may_read() - 0 when @fd may become a read-only node: O_RDONLY exactly. */
int shim_may_read(int fd);

/** shim_mnt_fd() - the mount's root; for tests. */
int shim_mnt_fd(const struct shim *shim);

/** shim_helper_main() - serves @fuse and @sock until @sock's other end is closed. Takes over the
 * whole process. */
void shim_helper_main(int fuse, int sock, pid_t parent, enum sandbox_seccomp_mode seccomp)
	__attribute__((noreturn));

/** shim_jail_caps() - keeps CAP_SYS_ADMIN alone, for ever. Before threads are made. */
int shim_jail_caps(void);
/** shim_jail_seccomp() - allows what the helper declares, on all threads of the process. */
int shim_jail_seccomp(int fuse, enum sandbox_seccomp_mode mode);

#endif
