// SPDX-License-Identifier: Apache-2.0
/*
 * The null back-end: the daemon's own transport with nothing behind it. What remains of a
 * measurement against it is the generator, the rings and the two wake-ups.
 */
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include <linux/fuse.h>

#include "load_null.h"
#include "vhost.h"

struct null_reply {
	struct fuse_out_header h;
	union {
		struct fuse_init_out init;
		struct fuse_attr_out attr;
		struct fuse_open_out open;
		struct fuse_write_out write;
		struct {
			struct fuse_entry_out entry;
			struct fuse_open_out open;
		} create;
	};
};

struct null_request {
	struct fuse_in_header h;
	union {
		struct fuse_read_in read;
		struct fuse_write_in write;
	};
};

static void fill_attr(uint64_t file_size, uint64_t node, struct fuse_attr *a)
{
	a->ino = node;
	a->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
	a->nlink = 1;
	a->size = file_size;
}

static void gather(const struct util_gvec *v, void *to, size_t len)
{
	for (unsigned int i = 0; i < v->n && len; i++) {
		size_t n = v->iov[i].iov_len < len ? v->iov[i].iov_len : len;

		memcpy(to, v->iov[i].iov_base, n);
		to = (char *)to + n;
		len -= n;
	}
}

static void scatter(const struct util_gvec *v, const void *from, size_t len)
{
	for (unsigned int i = 0; i < v->n && len; i++) {
		size_t n = v->iov[i].iov_len < len ? v->iov[i].iov_len : len;

		memcpy(v->iov[i].iov_base, from, n);
		from = (const char *)from + n;
		len -= n;
	}
}

/* Length of the arguments of the reply, which are filled in; negative: no reply. */
static int answer(uint64_t size, const struct null_request *q, struct null_reply *r)
{
	switch (q->h.opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		return -1;
	case FUSE_INIT:
		r->init.major = FUSE_KERNEL_VERSION;
		r->init.minor = FUSE_KERNEL_MINOR_VERSION;
		r->init.max_write = 1u << 20;
		return sizeof(r->init);
	case FUSE_LOOKUP:
	case FUSE_CREATE:
	case FUSE_MKDIR:
		r->create.entry.nodeid = 2;
		fill_attr(size, 2, &r->create.entry.attr);
		return q->h.opcode == FUSE_CREATE ? sizeof(r->create) : sizeof(r->create.entry);
	case FUSE_GETATTR:
	case FUSE_SETATTR:
		fill_attr(size, q->h.nodeid, &r->attr.attr);
		return sizeof(r->attr);
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		return sizeof(r->open);
	case FUSE_WRITE:
		r->write.size = q->write.size;
		return sizeof(r->write);
	default:
		return 0;
	}
}

static void on_request(void *ctx, struct vhost_elem *e)
{
	struct null_request q = {0};
	struct null_reply r = {0};
	size_t len;
	int n;

	gather(&e->out, &q, sizeof(q));
	n = answer(*(const uint64_t *)ctx, &q, &r);
	if (n < 0) {
		vhost_elem_done(e, 0);
		return;
	}
	len = sizeof(r.h) + (size_t)n;
	r.h.unique = q.h.unique;
	scatter(&e->in, &r, len);
	if (q.h.opcode == FUSE_READ) {
		/* The data is whatever lies there. */
		len += q.read.size;
	}
	r.h.len = (uint32_t)len;
	scatter(&e->in, &r, sizeof(r.h));
	vhost_elem_done(e, len);
}

static int on_config(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	uint8_t space[44] = "null";

	space[36] = VHOST_MAX_QUEUES - 1;
	memset(buf, 0, len);
	if (offset < sizeof(space))
		memcpy(buf, space + offset, MIN(len, sizeof(space) - offset));
	return 0;
}

static const struct vhost_ops ops = {.request = on_request, .config_read = on_config};

int load_null_start(uint64_t file_size, int *pid)
{
	struct vhost_config config = {.num_queues = VHOST_MAX_QUEUES, .mem_slots = true};
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	*pid = fork();
	if (*pid < 0) {
		int err = -errno;

		close(pair[0]);
		close(pair[1]);
		return err;
	}
	if (*pid) {
		close(pair[1]);
		return pair[0];
	}
	close(pair[0]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	_exit(vhost_dev_serve(vhost_dev_new(&config, &ops, &file_size), pair[1]) ? 1 : 0);
}
