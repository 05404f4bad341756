/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vhost-user back-end: one device on one socket. Frames messages, keeps guest memory, runs a
 * thread for the main channel and one for each virtqueue, and hands each request up as two
 * guest buffers. Knows nothing of FUSE.
 *
 * Threads of a session:
 *   main     serves the vhost-user main channel. Never waits for the back-end channel, nor for
 *            any lock that is held across a wait for it: QEMU answers a map only after the
 *            main channel has answered its ADD_MEM_REG.
 *   queue i  pops virtqueue i, calls vhost_ops.request for each element.
 *            Where it blocks (vhost_elem_may_block()), another thread becomes queue i's.
 *   relief   looks whether one of these has blocked. Sleeps while none is about to.
 *   others   (the owner's pools) call vhost_elem_done() when a request is finished.
 */
#ifndef DAXMAP_VHOST_H
#define DAXMAP_VHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <glib.h>

#include "util_gvec.h"

#define VHOST_MAX_QUEUES 65 /* hiprio + 64 */

struct vhost_dev;
struct vhost_queue;
struct vhost_backend;

/**
 * struct vhost_elem - one request taken from a virtqueue
 * @out: what the driver wrote for us (device-readable)
 * @in: where we answer (device-writable)
 * @queue: where it came from
 * @error: 0, or what was wrong with the descriptors: -EFAULT (one points nowhere: @out or @in
 *         end before it), -EINVAL (loop, too long, out of order, nested...: what was gathered
 *         up to there). Answer the errno if the header is there and a reply fits, else give the
 *         element back with 0 bytes.
 *
 * Owned by whoever got it from vhost_ops.request, until vhost_elem_done(). Keeps the guest
 * memory behind @out and @in mapped for as long. @ops.elem_priv bytes of the owner's follow:
 * vhost_elem_priv().
 */
struct vhost_elem {
	struct util_gvec out;
	struct util_gvec in;
	struct vhost_queue *queue;
	int error;
};

/** vhost_elem_priv() - the owner's bytes (vhost_config.elem_priv of them), aligned for anything;
 * not cleared. */
void *vhost_elem_priv(struct vhost_elem *e);

/**
 * vhost_elem_done() - gives the element back to the guest with @len bytes written to @in
 *
 * Once for each element; any thread. Frees it. Completions of the queue's own thread are
 * published and signalled in groups, at the latest at the end of the batch. When the ring is
 * stopped meanwhile the completion waits for the ring to go on, and is dropped if the device was
 * reset.
 */
void vhost_elem_done(struct vhost_elem *e, size_t len);

/**
 * vhost_elem_parked() - says that the request now waits for the back-end channel
 *
 * Between parked(true) and parked(false) GET_VRING_BASE does not wait for this element: the
 * answer it waits for can only come after the main channel has answered. The same goes for
 * whatever else may never come. If the ring was stopped
 * meanwhile, parked(false) puts other memory behind e->in: what is written there reaches the guest
 * when the ring goes on, and never after a reset. So build no cursor over e->in before
 * parked(false) that has copied segment addresses. Same segments, same lengths, but what
 * lies beyond 4 MiB becomes segments of length 0 (e->in.len stays: expect to run out of room).
 */
void vhost_elem_parked(struct vhost_elem *e, bool parked);

/**
 * vhost_elem_may_block() - what follows is fast as a rule, but the host's kernel may make it wait
 *
 * From a queue's thread, inside vhost_ops.request: up to vhost_elem_done(), vhost_elem_parked() or
 * the return of vhost_ops.request. If that takes longer than one or two ticks of the relief
 * thread (2 ms each), another thread goes on with the queue, calling vhost_ops.batch_end first;
 * this one is then a thread like any other, which is for nobody but the owner's state of the
 * queue's thread to know: have none in use here. Costs two atomic operations.
 *
 * False: the queue would wait, as vhost_config.stand_ins threads block already: let another
 * thread do it. From any other thread: true.
 */
bool vhost_elem_may_block(struct vhost_elem *e);

/** enum vhost_region_verdict - what to do with a memory region that the front-end announces */
enum vhost_region_verdict {
	VHOST_REGION_RAM,    /* guest memory: mmap it */
	VHOST_REGION_ACCEPT, /* part of our window: keep the place, do not mmap it, answer 0 */
	VHOST_REGION_REFUSE, /* part of our window: answer failure */
};

/** struct vhost_region_info - a region as announced by ADD_MEM_REG or SET_MEM_TABLE */
struct vhost_region_info {
	uint64_t guest_addr;
	uint64_t size;
	uint64_t user_addr;
	uint64_t mmap_offset;
	int fd; /* borrowed */
	dev_t dev;
	ino_t ino;
	bool starting; /* between SET_FEATURES and the ring set-up */
};

/**
 * struct vhost_ops - what the owner of a device provides; @ctx is the owner's
 * @config_read: fills @len bytes of the config space at @offset (queried up to 256 bytes;
 *               what lies beyond the owner's is zero). Main thread.
 * @request: a request; the queue's thread. Must not block on the back-end channel without
 *           vhost_elem_parked(); should not block at all.
 * @batch_end: the queue's thread has handed up all that was there; may be NULL.
 * @thread_start: called first in each queue thread, also those that take over (naming, CPU
 * binding); may be NULL.
 * @region: classifies a memory region; NULL = all RAM. Main thread; must not block. Called for
 *          each announcement, so it is also how the window driver learns that a map is committed.
 * @running: may requests be sent on the back-end channel? True when every ring that was set up is
 *           enabled; false as soon as one of them is disabled or stopped, for that is how a
 *           front-end begins to stop the device (its requests may still be under way). Main thread.
 * @reset: the device was reset: what the guest had is gone. Main thread; must not block: set a
 *         flag, or hand it to another thread.
 * @channel: the back-end channel has come (@b; valid until the call with NULL), or gone (NULL).
 * @closed: the session has ended; all elements are done or dropped; may be NULL.
 */
struct vhost_ops {
	int (*config_read)(void *ctx, uint32_t offset, void *buf, uint32_t len);
	void (*request)(void *ctx, struct vhost_elem *e);
	void (*batch_end)(void *ctx, struct vhost_queue *q);
	void (*thread_start)(void *ctx, unsigned int queue);
	enum vhost_region_verdict (*region)(void *ctx, const struct vhost_region_info *r);
	void (*running)(void *ctx, bool running);
	void (*reset)(void *ctx);
	void (*channel)(void *ctx, struct vhost_backend *b);
	void (*closed)(void *ctx);
};

/**
 * struct vhost_config - constant for a device
 * @num_queues: hiprio + request queues, 1..VHOST_MAX_QUEUES
 * @elem_priv: bytes of the owner's in each element
 * @window_size: bytes of the DAX window (shmem region 0); 0 = none, SHMEM is then not offered
 * @mem_slots: offer CONFIGURE_MEM_SLOTS
 * @poll_us: the longest that a queue thread polls before it sleeps (vhost_wait.c); 0 = not at all
 * @stand_ins: so many threads of a queue may block at a time while another goes on with it
 */
struct vhost_config {
	unsigned int num_queues;
	size_t elem_priv;
	uint64_t window_size;
	bool mem_slots;
	unsigned int poll_us;
	unsigned int stand_ins;
};

struct vhost_dev *vhost_dev_new(const struct vhost_config *config, const struct vhost_ops *ops,
				void *ctx);
void vhost_dev_free(struct vhost_dev *d);

/**
 * vhost_dev_serve() - serves one front-end on the connected socket @fd (taken over)
 *
 * Runs the main channel in the calling thread; returns when the front-end has gone (0), broke
 * the protocol (-EPROTO, one log line said how), or vhost_dev_stop() was called (-ECANCELED).
 * All threads and all descriptors of the session are gone by then. May be called again.
 */
int vhost_dev_serve(struct vhost_dev *d, int fd);

/** vhost_dev_stop() - makes vhost_dev_serve() return; any thread, async-signal-safe. */
void vhost_dev_stop(struct vhost_dev *d);

/**
 * vhost_dev_set_window() - tells where the window lies in guest memory
 * @guest_base: guest-physical address of window offset 0
 *
 * Only from vhost_ops.region (main thread), which knows it: the announced guest address less the
 * offset at which the driver had the mapping placed. Descriptors in [base, base + window_size)
 * become window segments from then on; before that they get -EFAULT. Where guest memory and window
 * claim the same address, memory wins. Forgotten at the end of the session.
 */
void vhost_dev_set_window(struct vhost_dev *d, uint64_t guest_base);

/** vhost_queue_index() - 0 is hiprio, 1.. are request queues. */
unsigned int vhost_queue_index(const struct vhost_queue *q);

/* --- back-end channel: our requests to the front-end --- */

enum vhost_backend_kind {
	VHOST_BACKEND_SHMEM_MAP,
	VHOST_BACKEND_SHMEM_UNMAP,
	VHOST_BACKEND_FENCE,  /* SHARED_OBJECT_REMOVE of an unknown UUID: answered after commits */
	VHOST_BACKEND_FS_MAP, /* older dialect */
	VHOST_BACKEND_FS_UNMAP,
};

/**
 * struct vhost_backend_req - one request on the back-end channel
 * @kind: what; @fd: MAP only, borrowed; @result: out, 0 or negative errno
 * @fd_offset, @offset, @len: bytes; @write: map flag
 */
struct vhost_backend_req {
	enum vhost_backend_kind kind;
	int fd;
	int result;
	uint64_t fd_offset;
	uint64_t offset;
	uint64_t len;
	bool write;
};

/**
 * vhost_backend_call() - sends @n requests pipelined, in order, and waits for their replies
 *
 * One caller at a time (the caller serialises). Returns 0 with every result set, or -EPIPE when
 * the channel is closed or broke (results of what was not answered: -EPIPE). When the session
 * ends while it waits, it returns -EPIPE at once.
 */
int vhost_backend_call(struct vhost_backend *b, struct vhost_backend_req *reqs, size_t n);

#endif
