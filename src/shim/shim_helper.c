// SPDX-License-Identifier: Apache-2.0
/*
 * The helper process. Theory of operation.
 *
 * One server thread answers /dev/fuse and takes the daemon's messages. It waits for nothing but
 * those two: QEMU calls fstat, lseek and mmap on our files while it holds its big lock, and the
 * daemon may at that moment wait for QEMU. Its answers come from the node table alone; the ioctl
 * that registers a backing file only takes a reference. What can wait for a disk or a server
 * (reads for read-only files; close, which may flush; giving up a backing file, which may free an
 * unlinked file's blocks) goes to the workers: one for chores, and some for reads alone, so that a
 * dead disk keeps nothing else from being given back.
 *
 * Names are used once, but the kernel keeps a used name cached, and with it the node, until it
 * runs short of memory. So each look-up is followed by a notification that unhashes the name: then
 * the last close or unmap is the end of the node. The notification takes the directory's lock,
 * which a look-up holds while it waits for us: hence never on the server thread.
 *
 * It knows seven requests: LOOKUP, FORGET, BATCH_FORGET, GETATTR, OPEN, RELEASE and STATFS; READ
 * for read-only nodes. All others are refused. A writable node is opened with both
 * FOPEN_PASSTHROUGH and FOPEN_DIRECT_IO: the first makes mmap a mapping of the real file, the
 * second overrides it for read(2) and write(2), which so come here, and are refused.
 *
 * A read-only node has its own page cache, filled by READ. Its descriptor of the real file is
 * O_RDONLY (checked here, not believed), so there is no way from that cache back into the file:
 * pages that somebody dirties come as WRITE, are refused, and are dropped. READ answers as many
 * bytes as asked, zeros beyond the end: a short answer would make the kernel shrink the size.
 *
 * Privilege: CAP_SYS_ADMIN (each BACKING_OPEN asks for it), a seccomp list that names no file,
 * no inherited descriptor but /dev/fuse, the socket, and standard error. The daemon is not
 * trusted: a descriptor's access mode is checked, ids and names are looked up. Death: the socket's
 * end of file, or the parent's death; nothing else ends it, so it outlives no daemon.
 */
#include "shim_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "sandbox_helper.h"
#include "shim_jobs.h"
#include "shim_node.h"
#include "util_fd.h"
#include "util_sock.h"

enum {
	SHIM_FD_FUSE = 3,
	SHIM_FD_SOCK,
	SHIM_FD_FREE,
};

/* How long the kernel may believe what never changes, seconds. */
#define SHIM_ATTR_VALID (UINT64_C(365) * 24 * 3600)

/* Reads of read-only files that may sit on a slow disk at once. */
#define SHIM_READERS 4

struct helper {
	struct shim_nodes nodes;
	struct shim_jobs reads;
	struct shim_jobs chores;
	atomic_uint_fast64_t backings;
	atomic_uint_fast64_t fds;
	uint64_t refused;
};

/* ---- answers ---- */

/* A request that was given up meanwhile answers ENOENT: nobody is there to tell. */
/* shim-syscalls: writev */
static void reply(uint64_t unique, int err, const void *data, size_t size)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + size), .error = err, .unique = unique};
	struct iovec iov[2] = {{&out, sizeof(out)}, {(void *)data, size}};

	while (writev(SHIM_FD_FUSE, iov, size ? 2 : 1) < 0 && errno == EINTR)
		continue;
}

static struct fuse_attr node_attr(uint64_t id)
{
	bool root = id == FUSE_ROOT_ID;

	return (struct fuse_attr){
		.ino = id,
		.size = root ? 0 : SHIM_SIZE,
		.mode = root ? S_IFDIR | 0500 : S_IFREG | 0600,
		.nlink = 1,
		.blksize = 4096,
	};
}

/* ---- workers ---- */

/* shim-syscalls: pread64 */
static void run_read(struct shim_job *job, char *buf)
{
	size_t done = 0;

	while (done < job->size) {
		ssize_t n = pread(job->node->fd, buf + done, job->size - done,
				  (off_t)(job->offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			reply(job->unique, -errno, NULL, 0);
			return;
		}
		if (n == 0)
			break;
		done += (size_t)n;
	}
	memset(buf + done, 0, job->size - done);
	reply(job->unique, 0, buf, job->size);
}

/* Waits for look-ups under way, which hold the directory's lock and wait for the server thread. */
static void run_unhash(uint64_t seq)
{
	char name[SHIM_NAME_LEN + 1];
	struct fuse_notify_inval_entry_out arg = {.parent = FUSE_ROOT_ID, .namelen = SHIM_NAME_LEN};
	struct fuse_out_header out = {.len = sizeof(out) + sizeof(arg) + sizeof(name),
				      .error = FUSE_NOTIFY_INVAL_ENTRY};
	struct iovec iov[3] = {{&out, sizeof(out)}, {&arg, sizeof(arg)}, {name, sizeof(name)}};

	snprintf(name, sizeof(name), SHIM_NAME, seq);
	while (writev(SHIM_FD_FUSE, iov, 3) < 0 && errno == EINTR)
		continue;
}

/* shim-syscalls: close ioctl */
static void run_job(void *ctx, struct shim_job *job, void *buf)
{
	struct helper *h = ctx;

	switch (job->kind) {
	case SHIM_JOB_READ:
		run_read(job, buf);
		shim_node_unref(&h->nodes, job->node);
		break;
	case SHIM_JOB_CLOSE:
		close(job->fd);
		atomic_fetch_sub(&h->fds, 1);
		break;
	case SHIM_JOB_UNHASH:
		run_unhash(job->unique);
		break;
	case SHIM_JOB_UNBACK:
		ioctl(SHIM_FD_FUSE, SHIM_BACKING_CLOSE, &job->backing);
		atomic_fetch_sub(&h->backings, 1);
		break;
	}
}

static void close_later(struct helper *h, int fd)
{
	struct shim_job job = {.kind = SHIM_JOB_CLOSE, .fd = fd};

	shim_jobs_add(&h->chores, &job);
}

static void node_destroy(void *ctx, struct shim_node *node)
{
	struct helper *h = ctx;
	struct shim_job job = {.kind = SHIM_JOB_UNBACK, .backing = node->backing};

	if (node->backing)
		shim_jobs_add(&h->chores, &job);
	if (node->fd >= 0)
		close_later(h, node->fd);
}

/* ---- the daemon's messages ---- */

static int node_attach(struct helper *h, struct shim_node *node, int fd)
{
	struct shim_backing_map map = {.fd = fd};
	int id;

	if (!node->writable) {
		node->fd = fd;
		return 0;
	}
	id = ioctl(SHIM_FD_FUSE, SHIM_BACKING_OPEN, &map);
	if (id < 0)
		return -errno;
	node->backing = (uint32_t)id;
	atomic_fetch_add(&h->backings, 1);
	return 0;
}

/* Takes over @fd, which may be -1: the message came without, or we have no descriptor left. */
static void handle_add(struct helper *h, const struct shim_msg *msg, int fd)
{
	struct shim_node *node;
	bool created;
	int r;

	if (fd < 0) {
		shim_nodes_announce_error(&h->nodes, msg->seq, -EMFILE);
		return;
	}
	atomic_fetch_add(&h->fds, 1);
	r = msg->writable ? shim_may_write(fd) : shim_may_read(fd);
	if (r < 0) {
		shim_nodes_announce_error(&h->nodes, msg->seq, r);
		close_later(h, fd);
		return;
	}
	node = shim_nodes_announce(&h->nodes, msg, &created);
	if (node && created) {
		r = node_attach(h, node, fd);
		if (r < 0) /* drops the node, the name's only reason to be */
			shim_nodes_announce_error(&h->nodes, msg->seq, r);
		else if (node->fd == fd)
			return;
	}
	close_later(h, fd);
}

/* Reads all messages that are there; false at the end of the daemon. */
/* shim-syscalls: recvmsg */
static bool drain_socket(struct helper *h)
{
	for (;;) {
		struct shim_msg msg;
		int fd;
		ssize_t n = util_sock_recv(SHIM_FD_SOCK, &msg, sizeof(msg), &fd, NULL);

		if (n < 0)
			return n == -EAGAIN;
		if (n == 0)
			return false;
		if ((size_t)n == sizeof(msg) && msg.op == SHIM_OP_ADD)
			handle_add(h, &msg, util_steal_fd(&fd));
		util_close(&fd);
		if ((size_t)n == sizeof(msg) && msg.op == SHIM_OP_CANCEL)
			shim_nodes_cancel(&h->nodes, msg.seq);
	}
}

/* ---- the kernel's requests ---- */

struct request {
	const struct fuse_in_header *in;
	const void *arg;
	size_t size;
};

/* @name is @size bytes with the terminator. */
static bool parse_name(const char *name, size_t size, uint64_t *seq)
{
	if (size != SHIM_NAME_LEN + 1 || name[SHIM_NAME_LEN] != '\0')
		return false;
	*seq = 0;
	for (unsigned int i = 0; i < SHIM_NAME_LEN; i++) {
		int digit = g_ascii_xdigit_value(name[i]);

		if (digit < 0)
			return false;
		*seq = *seq << 4 | (unsigned int)digit;
	}
	return true;
}

static void do_lookup(struct helper *h, const struct request *q)
{
	struct fuse_entry_out out = {.attr_valid = SHIM_ATTR_VALID};
	struct shim_job unhash = {.kind = SHIM_JOB_UNHASH};
	struct shim_node *node;
	uint64_t seq;
	int r = -ENOENT;

	drain_socket(h); /* the message that announced this look-up is there */
	if (q->in->nodeid == FUSE_ROOT_ID && parse_name(q->arg, q->size, &seq))
		r = shim_nodes_lookup(&h->nodes, seq, &node);
	if (r < 0) {
		reply(q->in->unique, r, NULL, 0);
		return;
	}
	out.nodeid = node->id;
	out.attr = node_attr(node->id);
	reply(q->in->unique, 0, &out, sizeof(out));
	unhash.unique = seq;
	shim_jobs_add(&h->chores, &unhash);
}

static void do_forget(struct helper *h, const struct request *q)
{
	const struct fuse_forget_in *arg = q->arg;

	if (q->size >= sizeof(*arg))
		shim_nodes_forget(&h->nodes, q->in->nodeid, arg->nlookup);
}

static void do_batch_forget(struct helper *h, const struct request *q)
{
	const struct fuse_batch_forget_in *arg = q->arg;
	const struct fuse_forget_one *one = (const void *)(arg + 1);
	size_t n;

	if (q->size < sizeof(*arg))
		return;
	n = MIN(arg->count, (q->size - sizeof(*arg)) / sizeof(*one));
	for (size_t i = 0; i < n; i++)
		shim_nodes_forget(&h->nodes, one[i].nodeid, one[i].nlookup);
}

static void do_getattr(struct helper *h, const struct request *q)
{
	struct fuse_attr_out out = {.attr_valid = SHIM_ATTR_VALID,
				    .attr = node_attr(q->in->nodeid)};

	reply(q->in->unique, 0, &out, sizeof(out));
}

static void do_open(struct helper *h, const struct request *q)
{
	struct shim_node *node = shim_nodes_find(&h->nodes, q->in->nodeid);
	struct shim_open_out out = {.open_flags = SHIM_FOPEN_NOFLUSH};

	if (!node) {
		reply(q->in->unique, -ENOENT, NULL, 0);
		return;
	}
	if (node->writable) {
		out.open_flags |= SHIM_FOPEN_PASSTHROUGH | SHIM_FOPEN_DIRECT_IO;
		out.backing_id = (int32_t)node->backing;
	}
	reply(q->in->unique, 0, &out, sizeof(out));
}

static void do_release(struct helper *h, const struct request *q)
{
	reply(q->in->unique, 0, NULL, 0);
}

static void do_statfs(struct helper *h, const struct request *q)
{
	struct fuse_statfs_out out = {
		.st.bsize = 4096,
		.st.frsize = 4096,
		.st.namelen = SHIM_NAME_LEN,
		/* gauges, see shim_get_stats() */
		.st.blocks = g_hash_table_size(h->nodes.by_id),
		.st.bfree = atomic_load(&h->backings),
		.st.bavail = atomic_load(&h->fds),
		.st.files = g_hash_table_size(h->nodes.names),
		.st.ffree = h->refused,
	};

	reply(q->in->unique, 0, &out, sizeof(out));
}

static void refuse(struct helper *h, const struct request *q)
{
	h->refused++;
	reply(q->in->unique, -EPERM, NULL, 0);
}

static void do_read(struct helper *h, const struct request *q)
{
	const struct fuse_read_in *arg = q->arg;
	struct shim_node *node = shim_nodes_find(&h->nodes, q->in->nodeid);
	struct shim_job job = {.kind = SHIM_JOB_READ, .node = node, .unique = q->in->unique};

	if (!node || node->writable || q->size < sizeof(*arg) || arg->size > SHIM_MAX_READ) {
		refuse(h, q);
		return;
	}
	job.offset = arg->offset;
	job.size = arg->size;
	shim_node_ref(node);
	shim_jobs_add(&h->reads, &job);
}

/* INTERRUPT wants no answer; ENOSYS means "never ask again, go on without". */
static void do_nothing(struct helper *h, const struct request *q)
{
}

static void do_without(struct helper *h, const struct request *q)
{
	reply(q->in->unique, -ENOSYS, NULL, 0);
}

static void (*const requests[])(struct helper *h, const struct request *q) = {
	[FUSE_LOOKUP] = do_lookup,
	[FUSE_FORGET] = do_forget,
	[FUSE_BATCH_FORGET] = do_batch_forget,
	[FUSE_GETATTR] = do_getattr,
	[FUSE_OPEN] = do_open,
	[FUSE_RELEASE] = do_release,
	[FUSE_STATFS] = do_statfs,
	[FUSE_READ] = do_read,
	[FUSE_INTERRUPT] = do_nothing,
	[FUSE_FLUSH] = do_without,
	[FUSE_ACCESS] = do_without,
};

static void handle_request(struct helper *h, const void *buf, size_t size)
{
	const struct fuse_in_header *in = buf;
	struct request q = {.in = in, .arg = in + 1, .size = size - sizeof(*in)};

	if (in->opcode < G_N_ELEMENTS(requests) && requests[in->opcode])
		requests[in->opcode](h, &q);
	else
		refuse(h, &q);
}

/* Answers all requests that are there; false when the file system is gone. */
/* shim-syscalls: read */
static bool drain_fuse(struct helper *h)
{
	static _Alignas(8) char buf[SHIM_MAX_WRITE + FUSE_MIN_READ_BUFFER];

	for (;;) {
		ssize_t n = read(SHIM_FD_FUSE, buf, sizeof(buf));

		if (n >= (ssize_t)sizeof(struct fuse_in_header)) {
			handle_request(h, buf, (size_t)n);
			continue;
		}
		if (n < 0 && (errno == EINTR || errno == ENOENT)) /* ENOENT: given up meanwhile */
			continue;
		return n < 0 && errno == EAGAIN;
	}
}

/* ---- life ---- */

/* shim-syscalls: ppoll restart_syscall rt_sigreturn */
static int serve(struct helper *h)
{
	struct pollfd fds[2] = {{.fd = SHIM_FD_FUSE, .events = POLLIN},
				{.fd = SHIM_FD_SOCK, .events = POLLIN}};

	for (;;) {
		if (ppoll(fds, 2, NULL, NULL) < 0 && errno != EINTR)
			return 1;
		if (!drain_socket(h))
			return 0;
		if (!drain_fuse(h))
			return 2;
	}
}

static void move_fds(int fuse, int sock)
{
	int f = fcntl(fuse, F_DUPFD_CLOEXEC, SHIM_FD_FREE);
	int s = fcntl(sock, F_DUPFD_CLOEXEC, SHIM_FD_FREE);

	if (f < 0 || s < 0 || dup3(f, SHIM_FD_FUSE, O_CLOEXEC) < 0 ||
	    dup3(s, SHIM_FD_SOCK, O_CLOEXEC) < 0 || close_range(SHIM_FD_FREE, ~0u, 0) < 0)
		_exit(3);
}

/* shim-syscalls: exit_group exit */
/* shim-syscalls: brk mmap mprotect munmap mremap madvise */
void shim_helper_main(int fuse, int sock, pid_t parent, enum sandbox_seccomp_mode seccomp)
{
	static struct helper h;

	move_fds(fuse, sock);
	if (sandbox_helper_settle("daxmapd-shim") < 0 || shim_jail_caps() < 0)
		_exit(4);
	sandbox_helper_tie(parent);
	shim_nodes_init(&h.nodes, node_destroy, &h);
	if (shim_jobs_start(&h.reads, SHIM_READERS, run_job, &h) < 0 ||
	    shim_jobs_start(&h.chores, 1, run_job, &h) < 0)
		_exit(5);
	if (shim_jail_seccomp(SHIM_FD_FUSE, seccomp) < 0)
		_exit(6);
	_exit(serve(&h));
}
