/* SPDX-License-Identifier: Apache-2.0 */
/*
 * May a driver send on the back-end channel now? A request sent while the device is stopped
 * crashes QEMU 11.1, and without a channel there is nobody to ask. After a reset nothing is sent
 * until the owner has forgotten what the old guest had: what is still under way for that guest
 * would end up in the window of the next one, where nobody knows of it.
 *
 * The lock here is taken by the vhost-user main thread; it is held for a few instructions only,
 * never across a call on the channel.
 */
#ifndef DAXMAP_WINDOW_GATE_H
#define DAXMAP_WINDOW_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "util_lock.h"
#include "vhost.h"

struct window_gate {
	struct util_mutex lock; /* the driver keeps its own state under it too */
	struct util_cond changed;
	struct vhost_backend *channel;
	bool running;
	uint64_t resets;
	uint64_t to_forget; /* guests that resets have ended */
	uint64_t forgotten; /* of those: nothing is sent while there are others */
};

void window_gate_init(struct window_gate *g);
void window_gate_destroy(struct window_gate *g);

/* From the vhost_ops of the same names. */
void window_gate_running(struct window_gate *g, bool running);
void window_gate_reset_locked(struct window_gate *g) UTIL_REQUIRES(g->lock);
void window_gate_channel(struct window_gate *g, struct vhost_backend *b);

/** window_gate_to_forget() - how many guests resets have ended; any thread. */
uint64_t window_gate_to_forget(struct window_gate *g);
/** window_gate_forgotten() - the first @n of them are forgotten. Any thread. */
void window_gate_forgotten(struct window_gate *g, uint64_t n);

/** window_gate_begin() - a submit begins: how many resets there have been is for
 * window_gate_enter_locked(). 0, or -EPIPE without a channel. */
int window_gate_begin(struct window_gate *g, uint64_t *resets);

/**
 * window_gate_enter_locked() - waits until the device runs
 * @resets: g->resets as it was when the caller's request was made
 * @b: out
 *
 * Drops and retakes the lock. Returns 0, -EPIPE (no channel, or it went), -ECANCELED (a reset
 * came first, or the last one's guest is not forgotten).
 */
int window_gate_enter_locked(struct window_gate *g, uint64_t resets, struct vhost_backend **b)
	UTIL_REQUIRES(g->lock);

#endif
