// SPDX-License-Identifier: Apache-2.0
/*
 * Reads of the page cache in one system call for up to FS_BATCH_MAX of them, by io_uring.
 *
 * Only what is certain to end inside io_uring_enter() is sent: buffered reads with RWF_NOWAIT, on
 * file systems that know it. Such a read finds its pages, or says EAGAIN; nothing is left to an
 * io_uring worker, so there is no asynchrony: the ring is a list of arguments and a list of
 * results. What it did not answer in full is asked again by preadv2(), which tells the end of a
 * file from a page that is not there. Not for writes (ext4 does not know NOWAIT for them, and
 * io_uring would make a thread of its own wait for each), not for O_DIRECT (ends later), not for
 * large reads (the copy is all).
 *
 * The ring is made before system calls are filtered and is restricted to the two read opcodes:
 * io_uring_setup() and io_uring_register() are not in the filter's list, so this way around it is
 * closed.
 *
 * A batch of one is dearer than preadv2(), and is left to it.
 */
#include "fs_batch.h"

#include <limits.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "fs_int.h"
#include "util_overflow.h"

/* syscalls: io_uring_enter mmap munmap */

#define LARGEST 65536u

struct fs_batch {
	int fd;
	unsigned int n;
	struct fs_handle *handles[FS_BATCH_MAX];
	size_t want[FS_BATCH_MAX];
	void *rings;
	size_t rings_size;
	struct io_uring_sqe *sqes;
	/* inside @rings, shared with the kernel: */
	unsigned int *sq_tail, *cq_head, *cq_tail;
	struct io_uring_cqe *cqes;
	unsigned int sq_mask, cq_mask;
};

static bool restrict_ring(int fd)
{
	struct io_uring_restriction r[3] = {
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
		{.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READV},
		{.opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = 0},
	};

	return syscall(SYS_io_uring_register, fd, IORING_REGISTER_RESTRICTIONS, r, 3) == 0 &&
	       syscall(SYS_io_uring_register, fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0;
}

static bool map_ring(struct fs_batch *b, const struct io_uring_params *p)
{
	size_t sq = p->sq_off.array + p->sq_entries * sizeof(unsigned int);
	size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	unsigned int *array;
	char *at;

	b->rings_size = MAX(sq, cq);
	at = mmap(NULL, b->rings_size, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd,
		  IORING_OFF_SQ_RING);
	if (at == MAP_FAILED)
		return false;
	b->rings = at;
	b->sqes = mmap(NULL, p->sq_entries * sizeof(*b->sqes), PROT_READ | PROT_WRITE, MAP_SHARED,
		       b->fd, IORING_OFF_SQES);
	if (b->sqes == MAP_FAILED)
		return false;
	b->sq_tail = (void *)(at + p->sq_off.tail);
	b->cq_head = (void *)(at + p->cq_off.head);
	b->cq_tail = (void *)(at + p->cq_off.tail);
	b->cqes = (void *)(at + p->cq_off.cqes);
	b->sq_mask = p->sq_entries - 1;
	b->cq_mask = p->cq_entries - 1;
	array = (void *)(at + p->sq_off.array);
	for (unsigned int i = 0; i < p->sq_entries; i++)
		array[i] = i;
	return true;
}

struct fs_batch *fs_batch_new(void)
{
	struct io_uring_params p = {.flags = IORING_SETUP_R_DISABLED};
	struct fs_batch *b;
	int fd = (int)syscall(SYS_io_uring_setup, FS_BATCH_MAX, &p);

	if (fd < 0)
		return NULL;
	b = g_new0(struct fs_batch, 1);
	b->fd = fd;
	b->rings = b->sqes = MAP_FAILED;
	if (!(p.features & IORING_FEAT_SINGLE_MMAP) || !map_ring(b, &p) || !restrict_ring(fd)) {
		fs_batch_free(b);
		return NULL;
	}
	return b;
}

void fs_batch_free(struct fs_batch *b)
{
	if (!b)
		return;
	if (b->sqes != MAP_FAILED)
		munmap(b->sqes, (b->sq_mask + 1) * sizeof(*b->sqes));
	if (b->rings != MAP_FAILED)
		munmap(b->rings, b->rings_size);
	util_close(&b->fd);
	g_free(b);
}

static bool suits(const struct fs_handle *h, const struct util_gvec *buf)
{
	const struct fs_mount *m = h->node->mount;

	return h->kind != FS_HANDLE_DIRECT && !m->remote &&
	       !__atomic_load_n(&m->no_nowait_read, __ATOMIC_RELAXED) && buf->len <= LARGEST &&
	       buf->n <= IOV_MAX;
}

bool fs_batch_read(struct fs_batch *b, struct fs *fs, uint64_t node, uint64_t handle,
		   const struct util_gvec *buf, uint64_t offset, unsigned int *slot)
{
	struct io_uring_sqe *sqe;
	struct fs_handle *h;
	uint64_t end;

	if (b->n == FS_BATCH_MAX || buf->window || buf->len == 0 ||
	    !util_add_u64(offset, buf->len, &end) || end > INT64_MAX)
		return false;
	h = fs_handle_get(fs, node, handle, false);
	if (!h)
		return false;
	if (!suits(h, buf)) {
		fs_handle_put(fs, h);
		return false;
	}
	sqe = &b->sqes[(*b->sq_tail + b->n) & b->sq_mask];
	*sqe = (struct io_uring_sqe){
		.opcode = buf->n == 1 ? IORING_OP_READ : IORING_OP_READV,
		.fd = h->fd,
		.off = offset,
		.addr = buf->n == 1 ? (uintptr_t)buf->iov->iov_base : (uintptr_t)buf->iov,
		.len = buf->n == 1 ? (uint32_t)buf->iov->iov_len : buf->n,
		.rw_flags = RWF_NOWAIT,
		.user_data = b->n,
	};
	b->handles[b->n] = h;
	b->want[b->n] = buf->len;
	*slot = b->n++;
	return true;
}

/* Returns how many had ended. */
static unsigned int reap(struct fs_batch *b, ssize_t *results)
{
	unsigned int head = *b->cq_head;
	unsigned int tail = __atomic_load_n(b->cq_tail, __ATOMIC_ACQUIRE);
	unsigned int n = tail - head;

	for (; head != tail; head++) {
		const struct io_uring_cqe *cqe = &b->cqes[head & b->cq_mask];

		if (cqe->res >= 0 && (size_t)cqe->res == b->want[cqe->user_data])
			results[cqe->user_data] = cqe->res;
	}
	__atomic_store_n(b->cq_head, head, __ATOMIC_RELEASE);
	return n;
}

/* Sends and waits: the buffers are about to be given back. */
static void run_all(struct fs_batch *b, ssize_t *results)
{
	unsigned int sent = 0, ended = 0, tail = *b->sq_tail;

	__atomic_store_n(b->sq_tail, tail + b->n, __ATOMIC_RELEASE);
	while (ended < b->n) {
		int got = (int)syscall(SYS_io_uring_enter, b->fd, b->n - sent, b->n - ended,
				       IORING_ENTER_GETEVENTS, NULL, (size_t)0);

		if (got >= 0) {
			sent += (unsigned int)got;
		} else if (sent == 0 && errno != EINTR) {
			/* No memory, perhaps: preadv2() shall do it. */
			__atomic_store_n(b->sq_tail, tail, __ATOMIC_RELEASE);
			return;
		}
		ended += reap(b, results);
	}
}

unsigned int fs_batch_run(struct fs_batch *b, struct fs *fs, ssize_t results[FS_BATCH_MAX])
{
	unsigned int n = b->n;

	for (unsigned int i = 0; i < n; i++)
		results[i] = -EAGAIN;
	if (n > 1)
		run_all(b, results);
	for (unsigned int i = 0; i < n; i++)
		fs_handle_put(fs, b->handles[i]);
	b->n = 0;
	return n;
}
