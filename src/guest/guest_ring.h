/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's side of one split virtqueue (VIRTIO 1.2, 2.7), with EVENT_IDX and indirect
 * descriptors. Knows nothing of sockets: it has two eventfds, and memory.
 *
 * Threads: any; one mutex a ring. guest_ring_poll() runs the completion callbacks in its caller,
 * with no lock held.
 */
#ifndef DAXMAP_GUEST_RING_H
#define DAXMAP_GUEST_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest_mem.h"
#include "guest_proto.h"

struct guest_ring;

/**
 * guest_ring_done - called once for each submitted request
 * @token: as submitted
 * @status: 0, or a negative errno when the request will never be answered (-ENOTCONN: the
 *          back-end has gone; -ECANCELED: the device was reset)
 * @written: what the device says it wrote, bytes
 */
typedef void (*guest_ring_done)(void *token, int status, uint32_t written);

/** struct guest_seg - @len bytes at @p, in guest memory or the window */
struct guest_seg {
	void *p;
	uint32_t len;
};

/* most segments in one chain */
#define GUEST_RING_SEGS 128

enum guest_ring_flags {
	GUEST_RING_EVENT_IDX = 1u << 0,
	GUEST_RING_INDIRECT = 1u << 1, /* use indirect tables for chains of more than one */
};

/** guest_ring_new() - @num entries, a power of two up to 1024; NULL with errno */
struct guest_ring *guest_ring_new(struct guest_mem *mem, unsigned int num, unsigned int flags,
				  guest_ring_done done);
void guest_ring_free(struct guest_ring *r);

/**
 * guest_ring_submit() - puts one request into the ring and kicks where the device asks for it
 * @out: @nout segments for the device to read; @in: @nin for it to write
 *
 * 0; -EAGAIN when the ring is full; -EFAULT when a segment is not guest memory; -E2BIG;
 * -ENOTCONN after guest_ring_fail().
 */
int guest_ring_submit(struct guest_ring *r, const struct guest_seg *out, unsigned int nout,
		      const struct guest_seg *in, unsigned int nin, void *token);
/** guest_ring_queue() - as submit, without the kick; guest_ring_kick() does it for all. */
int guest_ring_queue(struct guest_ring *r, const struct guest_seg *out, unsigned int nout,
		     const struct guest_seg *in, unsigned int nin, void *token);
void guest_ring_kick(struct guest_ring *r);

/** guest_ring_poll() - takes what is finished; returns how many. Never blocks. */
unsigned int guest_ring_poll(struct guest_ring *r);
/** guest_ring_wait() - waits until something is finished (or @timeout_ms passed, or the ring was
 * failed or woken) and takes it; returns how many. One waiter at a time. */
unsigned int guest_ring_wait(struct guest_ring *r, int timeout_ms);
/** guest_ring_looks_ready() - is there something to take? Without a lock, so perhaps no more when
 * one tries. */
bool guest_ring_looks_ready(const struct guest_ring *r);
/** guest_ring_wake() - makes guest_ring_wait() return. */
void guest_ring_wake(struct guest_ring *r);
/** guest_ring_rouse() - makes all in guest_ring_attend() look whether they are ready. */
void guest_ring_rouse(struct guest_ring *r);

/**
 * guest_ring_attend() - waits until @ready(@ctx); any number of threads at once
 * @spin_ns: how long to look at the ring before sleeping on it
 * @deadline_ns: CLOCK_MONOTONIC
 *
 * For rings without a completion thread: one of those who wait takes completions for all, the
 * others sleep until theirs has come or that one leaves. @ready must be safe in any of them, and
 * become true only in a completion callback of this ring, or before guest_ring_rouse(). False when
 * @deadline_ns passed first.
 */
bool guest_ring_attend(struct guest_ring *r, bool (*ready)(void *ctx), void *ctx, uint64_t spin_ns,
		       uint64_t deadline_ns);

/** guest_ring_in_flight() - requests submitted and not yet taken */
unsigned int guest_ring_in_flight(struct guest_ring *r);

/** guest_ring_fail() - completes everything in flight with @status; with -ENOTCONN further
 * submits are refused too, until guest_ring_reset(). */
void guest_ring_fail(struct guest_ring *r, int status);
/** guest_ring_reset() - an empty ring from index 0; what was in flight gets -ECANCELED. The
 * device must not be using the ring. */
void guest_ring_reset(struct guest_ring *r);

/* --- for the front-end --- */

/** guest_ring_set_flags() - what was negotiated; the ring must be empty. */
void guest_ring_set_flags(struct guest_ring *r, unsigned int flags);
/** guest_ring_set_owner() - a pointer kept for guest_ring_owner(). */
void guest_ring_set_owner(struct guest_ring *r, void *owner);
void *guest_ring_owner(const struct guest_ring *r);
unsigned int guest_ring_num(const struct guest_ring *r);
int guest_ring_kick_fd(const struct guest_ring *r);
int guest_ring_call_fd(const struct guest_ring *r);
/** guest_ring_addr() - addresses in this process, as vhost-user wants them */
void guest_ring_addr(const struct guest_ring *r, struct guest_msg_vring_addr *a);

/* --- raw access, for tests that break the rules --- */

/**
 * guest_ring_raw() - submits a chain of descriptors written as they are
 * @d: @n descriptors. A next below @n means the entry of @d; others go in unchanged.
 * @token: for the completion, if the device gives the chain back
 *
 * 0 or -EAGAIN. The descriptors stay taken until the chain comes back or the ring is reset.
 */
int guest_ring_raw(struct guest_ring *r, const struct guest_desc *d, unsigned int n, void *token);
/** guest_ring_raw_head() - makes any number available as a head, and kicks; never completes. */
void guest_ring_raw_head(struct guest_ring *r, uint16_t head);
/** guest_ring_raw_jump() - moves the avail index by @by, without entries, and kicks. */
void guest_ring_raw_jump(struct guest_ring *r, uint16_t by);
/** guest_ring_error() - what the device did wrong so far (a static string), or NULL. */
const char *guest_ring_error(struct guest_ring *r);

#endif
