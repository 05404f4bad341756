// SPDX-License-Identifier: Apache-2.0
/*
 * The size shim, the daemon's side. Theory of operation.
 *
 * A private FUSE file system, mounted but attached nowhere, has one regular file (a node) for
 * each real file that is to be mapped. A helper process answers it. A node reports SHIM_SIZE
 * bytes whatever the file's size is, and its mmap is, in the kernel, an mmap of the real file
 * (FUSE passthrough): one page cache, nothing copied, growth visible by itself.
 *
 *     daemon                         helper                        kernel
 *     sendmsg(ADD seq, key, fd) -->  (queued)
 *     openat(mnt, seq) ----------------------------------------->  LOOKUP seq
 *                                    drains its socket: node for key,
 *                                    BACKING_OPEN(fd)         <--
 *                                    entry                    -->  OPEN node
 *                                    PASSTHROUGH, backing id  -->  opens the real file
 *     <- descriptor of the shim's file ---------------------------
 *
 * The socket carries no answers: the message is in the helper's queue before openat() can send
 * the look-up, so the helper reads its socket before it answers any look-up, and what went
 * wrong with the message is the look-up's error. So the daemon keeps no table and takes no lock,
 * any number of opens run at once, and no descriptor travels back.
 *
 * Names are used once, and the helper has the kernel unhash each after its look-up: so the dentry
 * goes with the last descriptor and mapping, the kernel forgets the inode, and the helper its
 * node.
 *
 * The helper's death closes /dev/fuse, which aborts the file system: openat() fails at once, and
 * the socket hangs up. Mappings that exist are mappings of the real file and stay.
 */
#include "shim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_sock.h"

struct shim {
	int sock;
	int mnt;
	bool can_write;
	dev_t dev;
	pid_t owner;  /* who called shim_start() */
	pid_t helper; /* a child of @owner */
	void (*died)(void *ctx);
	void *ctx;
	_Atomic uint64_t seq;
	atomic_bool dead;
};

static bool start_failed(GError **error, const char *what)
{
	int saved = errno;

	g_set_error(error, SHIM_ERROR, SHIM_ERROR_FAILED, "%s: %s", what, g_strerror(saved));
	return false;
}

static bool fork_helper(struct shim *s, const struct shim_mount *m,
			enum sandbox_seccomp_mode seccomp, GError **error)
{
	pid_t parent = getpid();
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return start_failed(error, "socketpair");
	s->owner = parent;
	s->helper = fork();
	if (s->helper < 0) {
		start_failed(error, "fork");
		close(pair[0]);
		close(pair[1]);
		return false;
	}
	if (s->helper == 0)
		shim_helper_main(m->fuse, pair[1], parent, seccomp);
	close(pair[1]);
	s->sock = pair[0];
	return true;
}

struct shim *shim_start(const struct shim_config *config, GError **error)
{
	struct shim_mount m;
	struct shim *s;
	struct stat st;
	bool ok;

	if (!shim_mount_open(&m, config->share_fd, config->readonly, error))
		return NULL;
	s = g_new0(struct shim, 1);
	s->sock = -1;
	s->can_write = m.passthrough && !config->readonly;
	s->died = config->died;
	s->ctx = config->ctx;
	ok = fork_helper(s, &m, config->seccomp, error);
	util_close(&m.fuse);
	s->mnt = util_steal_fd(&m.mnt);
	/* The first answer: the helper has shut itself in and serves. */
	if (ok && fstat(s->mnt, &st) < 0)
		ok = start_failed(error, "the shim's helper does not answer");
	if (!ok) {
		shim_free(s);
		return NULL;
	}
	s->dev = st.st_dev;
	return s;
}

struct shim *shim_choose(enum shim_want want, const struct shim_config *config, char **line,
			 GError **error)
{
	g_autoptr(GError) why = NULL;
	struct shim *s = want == SHIM_OFF ? NULL : shim_start(config, &why);

	if (s)
		*line = g_strdup_printf("DAX size shim: on (%s)",
					s->can_write ? "FUSE passthrough"
						     : "read-only files, copied");
	else
		*line = g_strdup_printf("DAX size shim: off (%s)", why ? why->message : "as asked");
	if (why && want == SHIM_ON)
		g_propagate_prefixed_error(error, g_steal_pointer(&why), "DAX size shim: ");
	return s;
}

/* syscalls: close wait4 getpid */
void shim_free(struct shim *s)
{
	if (!s)
		return;
	util_close(&s->sock);
	util_close(&s->mnt);
	if (s->helper > 0 && s->owner == getpid())
		while (waitpid(s->helper, NULL, 0) < 0 && errno == EINTR)
			continue;
	g_free(s);
}

static void note_death(struct shim *s)
{
	if (!atomic_exchange(&s->dead, true) && s->died)
		s->died(s->ctx);
}

/* syscalls: recvfrom */
bool shim_check(struct shim *s)
{
	char byte;
	ssize_t n;

	if (atomic_load(&s->dead))
		return false;
	n = recv(s->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	note_death(s);
	return false;
}

static bool means_death(int err)
{
	return err == EPIPE || err == ECONNRESET || err == ENOTCONN || err == ECONNABORTED;
}

static int send_msg(struct shim *s, const struct shim_msg *msg, int fd)
{
	ssize_t n = util_sock_send(s->sock, msg, sizeof(*msg), fd, 0);

	return n < 0 ? (int)n : 0;
}

/* Can @fd be served at all? Fills the file's identity. */
/* syscalls: statx */
static int check_real(int fd, bool writable, struct shim_msg *msg)
{
	struct statx stx;
	int r = writable ? shim_may_write(fd) : shim_may_read(fd);

	if (r < 0)
		return r;
	if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_SIZE, &stx) < 0)
		return -errno;
	if (!S_ISREG(stx.stx_mode))
		return -EINVAL;
	if (stx.stx_size > SHIM_SIZE)
		return -EFBIG;
	if (writable && (stx.stx_attributes & (STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)))
		return -EPERM;
	msg->dev = (uint64_t)stx.stx_dev_major << 32 | stx.stx_dev_minor;
	msg->ino = stx.stx_ino;
	return 0;
}

/* syscalls: openat */
static int open_once(struct shim *s, struct shim_msg *msg, int real_fd)
{
	char name[SHIM_NAME_LEN + 1];
	int r, fd;

	msg->op = SHIM_OP_ADD;
	msg->seq = atomic_fetch_add_explicit(&s->seq, 1, memory_order_relaxed);
	r = send_msg(s, msg, real_fd);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), SHIM_NAME, msg->seq);
	fd = openat(s->mnt, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		return fd;
	r = -errno;
	msg->op = SHIM_OP_CANCEL;
	send_msg(s, msg, -1);
	return r;
}

int shim_open(struct shim *s, int real_fd, uint64_t key_hi, uint64_t key_lo, bool writable)
{
	struct shim_msg msg = {.writable = writable, .key_hi = key_hi, .key_lo = key_lo};
	int r;

	if (atomic_load(&s->dead))
		return -ENOTCONN;
	if (writable && !s->can_write)
		return -EROFS;
	r = check_real(real_fd, writable, &msg);
	if (r < 0)
		return r;
	do
		r = open_once(s, &msg, real_fd);
	while (r == -EINTR);
	if (r < 0 && means_death(-r)) {
		note_death(s);
		return -ENOTCONN;
	}
	return r;
}

bool shim_alive(const struct shim *s)
{
	return !atomic_load_explicit(&s->dead, memory_order_relaxed);
}

int shim_event_fd(const struct shim *s)
{
	return s->sock;
}

int shim_mnt_fd(const struct shim *s)
{
	return s->mnt;
}

dev_t shim_dev(const struct shim *s)
{
	return s->dev;
}

bool shim_can_write(const struct shim *s)
{
	return s->can_write;
}

pid_t shim_helper_pid(const struct shim *s)
{
	return s->helper;
}

/* The helper answers statfs with its gauges (shim_helper.c). */
/* syscalls: fstatfs */
int shim_get_stats(struct shim *s, struct shim_stats *out)
{
	struct statfs sf;

	if (fstatfs(s->mnt, &sf) < 0)
		return -errno;
	*out = (struct shim_stats){
		.nodes = sf.f_blocks,
		.backings = sf.f_bfree,
		.fds = sf.f_bavail,
		.pending = sf.f_files,
		.refused = sf.f_ffree,
	};
	return 0;
}
