// SPDX-License-Identifier: Apache-2.0
/*
 * Probing and mounting.
 *
 * The mount is made by fsopen/fsmount and never attached: it lies in no mount namespace, no path
 * leads to it, and it goes with its last descriptor, open file and mapping. FUSE_INIT is queued
 * by the mount itself, so the exchange runs right here, before there is a helper, and each
 * requirement is tried rather than guessed from version numbers: passthrough by FUSE_INIT's
 * flags, the privilege by registering a memfd as backing file (the kernel asks for CAP_SYS_ADMIN
 * in the initial user namespace), the share's file system by registering an unnamed temporary
 * file on it.
 *
 * The stack depth is 2, the most there is: nothing will ever be stacked on this mount, and it
 * lets the share lie on overlayfs. What is deeper answers ELOOP (fs/fuse/passthrough.c).
 */
#include "shim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util_fd.h"

#define SHIM_STACK_DEPTH 2

G_DEFINE_QUARK(shim - error - quark, shim_error)

static bool fail(GError **error, enum shim_error code, const char *what)
{
	int saved = errno;

	g_set_error(error, SHIM_ERROR, code, "%s: %s", what, g_strerror(saved));
	return false;
}

static int set_string(int fs, const char *key, const char *value)
{
	return fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0);
}

/* Returns the mount's descriptor, or -1 with errno. */
static int mount_fuse(int fuse)
{
	util_autofd fs = fsopen("fuse", FSOPEN_CLOEXEC);
	char number[3][24];

	if (fs < 0)
		return -1;
	snprintf(number[0], sizeof(number[0]), "%d", fuse);
	snprintf(number[1], sizeof(number[1]), "%u", (unsigned int)geteuid());
	snprintf(number[2], sizeof(number[2]), "%u", (unsigned int)getegid());
	if (set_string(fs, "source", "daxmapd-shim") < 0 || set_string(fs, "fd", number[0]) < 0 ||
	    set_string(fs, "rootmode", "40000") < 0 || set_string(fs, "user_id", number[1]) < 0 ||
	    set_string(fs, "group_id", number[2]) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_FLAG, "allow_other", NULL, 0) < 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	return fsmount(fs, FSMOUNT_CLOEXEC,
		       MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

static bool answer_init(struct shim_mount *m, GError **error)
{
	_Alignas(8) char buf[FUSE_MIN_READ_BUFFER];
	const struct fuse_in_header *in = (const void *)buf;
	const struct fuse_init_in *init = (const void *)(in + 1);
	struct shim_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = SHIM_FUSE_MINOR,
		.max_readahead = SHIM_MAX_READ,
		.max_write = SHIM_MAX_WRITE,
		.time_gran = 1,
	};
	struct fuse_out_header head = {.len = sizeof(head) + sizeof(out)};
	struct iovec iov[2] = {{&head, sizeof(head)}, {&out, sizeof(out)}};
	ssize_t n = read(m->fuse, buf, sizeof(buf));
	uint64_t offered;

	if (n < 0)
		return fail(error, SHIM_ERROR_FAILED, "reading FUSE_INIT");
	if ((size_t)n < sizeof(*in) + 16 || in->opcode != FUSE_INIT) {
		errno = EPROTO;
		return fail(error, SHIM_ERROR_FAILED, "FUSE_INIT");
	}
	m->minor = init->minor;
	offered = init->flags;
	if ((size_t)n >= sizeof(*in) + sizeof(*init) && (init->flags & FUSE_INIT_EXT))
		offered |= (uint64_t)init->flags2 << 32;
	m->passthrough = (offered & SHIM_FUSE_PASSTHROUGH) != 0;
	out.flags = FUSE_PARALLEL_DIROPS | FUSE_ASYNC_READ;
	if (m->passthrough) {
		out.flags |= FUSE_INIT_EXT;
		out.flags2 = SHIM_FUSE_PASSTHROUGH >> 32;
		out.max_stack_depth = SHIM_STACK_DEPTH;
	}
	head.unique = in->unique;
	if (writev(m->fuse, iov, 2) < 0)
		return fail(error, SHIM_ERROR_FAILED, "answering FUSE_INIT");
	return true;
}

/* Registers @fd as a backing file and forgets it again; 0 or a negative errno. */
static int try_backing(int fuse, int fd)
{
	struct shim_backing_map map = {.fd = fd};
	int id = ioctl(fuse, SHIM_BACKING_OPEN, &map);
	uint32_t uid;

	if (id < 0)
		return -errno;
	uid = (uint32_t)id;
	ioctl(fuse, SHIM_BACKING_CLOSE, &uid);
	return 0;
}

static bool try_privilege(struct shim_mount *m, GError **error)
{
	util_autofd fd = memfd_create("daxmapd-shim-probe", MFD_CLOEXEC);
	int r;

	if (fd < 0)
		return fail(error, SHIM_ERROR_FAILED, "memfd_create");
	r = try_backing(m->fuse, fd);
	if (r == 0)
		return true;
	errno = -r;
	if (r == -EPERM)
		return fail(error, SHIM_ERROR_PRIVILEGE,
			    "FUSE passthrough needs CAP_SYS_ADMIN in the initial user namespace");
	return fail(error, SHIM_ERROR_KERNEL, "FUSE passthrough to a memfd");
}

/* A share without O_TMPFILE (or read-only) is not probed: its files will say. */
static bool try_share(struct shim_mount *m, int share_fd, GError **error)
{
	util_autofd fd = openat(share_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct statfs sf;
	int r;

	if (fd < 0)
		return true;
	r = try_backing(m->fuse, fd);
	if (r == 0)
		return true;
	if (fstatfs(fd, &sf) < 0)
		sf.f_type = 0;
	g_set_error(error, SHIM_ERROR, SHIM_ERROR_SHARE,
		    "FUSE passthrough to the share's file system (type 0x%lx): %s",
		    (unsigned long)sf.f_type,
		    r == -ELOOP ? "stacked too deep (overlayfs on overlayfs?)" : g_strerror(-r));
	return false;
}

static bool mount_and_probe(struct shim_mount *m, int share_fd, bool readonly, GError **error)
{
	m->fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (m->fuse < 0)
		return fail(error, errno == EACCES ? SHIM_ERROR_PRIVILEGE : SHIM_ERROR_KERNEL,
			    "/dev/fuse");
	m->mnt = mount_fuse(m->fuse);
	if (m->mnt < 0)
		return fail(error, errno == EPERM ? SHIM_ERROR_PRIVILEGE : SHIM_ERROR_KERNEL,
			    errno == EPERM ? "mounting FUSE needs CAP_SYS_ADMIN" : "mounting FUSE");
	if (!answer_init(m, error))
		return false;
	if (readonly)
		return true;
	if (!m->passthrough) {
		g_set_error(error, SHIM_ERROR, SHIM_ERROR_KERNEL,
			    "the kernel's FUSE (7.%u) has no passthrough (Linux 6.9 or newer, "
			    "CONFIG_FUSE_PASSTHROUGH)",
			    m->minor);
		return false;
	}
	return try_privilege(m, error) && (share_fd < 0 || try_share(m, share_fd, error));
}

bool shim_mount_open(struct shim_mount *m, int share_fd, bool readonly, GError **error)
{
	*m = (struct shim_mount){.fuse = -1, .mnt = -1};
	if (mount_and_probe(m, share_fd, readonly, error))
		return true;
	shim_mount_close(m);
	return false;
}

void shim_mount_close(struct shim_mount *m)
{
	util_close(&m->mnt);
	util_close(&m->fuse);
}

bool shim_probe(int share_fd, bool readonly, char **reason)
{
	g_autoptr(GError) error = NULL;
	struct shim_mount m;
	bool ok = shim_mount_open(&m, share_fd, readonly, &error);

	if (reason && ok)
		*reason =
			g_strdup_printf("%s, kernel FUSE 7.%u",
					readonly ? "read-only files" : "FUSE passthrough", m.minor);
	else if (reason)
		*reason = g_strdup(error->message);
	shim_mount_close(&m);
	return ok;
}
