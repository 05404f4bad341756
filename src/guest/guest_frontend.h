/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vhost-user-fs front-end without a VMM: connects to any back-end, negotiates, runs its queues.
 *
 * Life: new -> connect -> start -> (stop -> start | reset)* -> disconnect -> connect ... -> free.
 * After the back-end's death every request in flight ends with -ENOTCONN, every call returns
 * -ENOTCONN, and guest_frontend_connect() may be tried again.
 *
 * Threads: life-cycle calls from one thread at a time; everything else from any.
 */
#ifndef DAXMAP_GUEST_FRONTEND_H
#define DAXMAP_GUEST_FRONTEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "guest_backend.h"
#include "guest_chan.h"
#include "guest_mem.h"
#include "guest_ring.h"

#define GUEST_MAX_QUEUES 65

struct guest_frontend;

/**
 * struct guest_config - zero means the default
 * @socket_path: of the back-end; copied
 * @mem_size: guest memory, bytes; 64 MiB
 * @queue_size: entries of each ring; 128
 * @num_queues: request queues to use; 0 = as many as the config space says (1 without CONFIG)
 * @hide_features: feature bits not to accept though offered
 * @hide_protocol: protocol feature bits not to accept though offered
 * @polled: no completion threads: whoever waits takes completions (guest_ring_wait())
 * @window: the DAX window
 * @timeout_ms: for an answer on the main channel; 10000
 */
struct guest_config {
	const char *socket_path;
	uint64_t mem_size;
	unsigned int queue_size;
	unsigned int num_queues;
	uint64_t hide_features;
	uint64_t hide_protocol;
	bool polled;
	struct guest_window_config window;
	int timeout_ms;
};

/** guest_frontend_new() - allocates memory and rings; talks to nobody. NULL with @error. */
struct guest_frontend *guest_frontend_new(const struct guest_config *config, GError **error);
/** guest_frontend_free() - disconnects first. */
void guest_frontend_free(struct guest_frontend *f);

/** guest_frontend_connect() - connects and negotiates (features, config, window, queues); the
 * device is stopped. 0, or negative errno with @error. */
int guest_frontend_connect(struct guest_frontend *f, GError **error);
/** guest_frontend_connect_fd() - the same on a connected socket, which is taken over. */
int guest_frontend_connect_fd(struct guest_frontend *f, int fd, GError **error);
/** guest_frontend_start() - announces memory, sets the rings up, enables them. */
int guest_frontend_start(struct guest_frontend *f, GError **error);
/** guest_frontend_stop() - GET_VRING_BASE on every ring, as a paused VM. Requests in flight stay
 * where they are and are answered after the next start. */
int guest_frontend_stop(struct guest_frontend *f, GError **error);
/** guest_frontend_reset() - stops, resets the device (RESET_DEVICE where negotiated), drops what
 * was in flight (-ECANCELED) and every mapping, as a hard reset of the guest. */
int guest_frontend_reset(struct guest_frontend *f, GError **error);
/** guest_frontend_disconnect() - leaves; requests in flight get -ENOTCONN. */
void guest_frontend_disconnect(struct guest_frontend *f);

/** guest_frontend_alive() - connected, and the back-end has not been seen to go */
bool guest_frontend_alive(struct guest_frontend *f);
/** guest_frontend_running() - started and not stopped */
bool guest_frontend_running(struct guest_frontend *f);
/** guest_frontend_wait_dead() - waits until the back-end has gone; false on timeout */
bool guest_frontend_wait_dead(struct guest_frontend *f, int timeout_ms);

uint64_t guest_frontend_features(struct guest_frontend *f);
uint64_t guest_frontend_protocol(struct guest_frontend *f);
/** guest_frontend_offered()/offered_protocol() - what the back-end offered, unmasked */
uint64_t guest_frontend_offered(struct guest_frontend *f);
uint64_t guest_frontend_offered_protocol(struct guest_frontend *f);
/** guest_frontend_tag() - "" without CONFIG; valid until the next connect */
const char *guest_frontend_tag(struct guest_frontend *f);
/** guest_frontend_num_queues() - request queues in use (without hiprio) */
unsigned int guest_frontend_num_queues(struct guest_frontend *f);
/** guest_frontend_peer_pid() - process id of the back-end, by SO_PEERCRED; 0 unknown */
int guest_frontend_peer_pid(struct guest_frontend *f);

struct guest_mem *guest_frontend_mem(struct guest_frontend *f);
/** guest_frontend_ring() - 0 is hiprio, 1.. are request queues */
struct guest_ring *guest_frontend_ring(struct guest_frontend *f, unsigned int i);
/** guest_frontend_window() - always there; without a window its base is NULL */
struct guest_window *guest_frontend_window(struct guest_frontend *f);

/**
 * guest_frontend_message() - sends any message on the main channel
 * @reply: when not NULL, waits for a message of the same request and stores it (descriptors in it
 *         are the caller's); NULL sends only
 *
 * 0 or negative errno. Serialised against the front-end's own messages.
 */
int guest_frontend_message(struct guest_frontend *f, uint32_t request, uint32_t flags,
			   const void *payload, uint32_t size, const int *fds, unsigned int nfds,
			   struct guest_msg *reply);
/** guest_frontend_get_config() - GET_CONFIG of @size bytes at @offset */
int guest_frontend_get_config(struct guest_frontend *f, uint32_t offset, void *buf, uint32_t size);

/**
 * guest_frontend_add_mem()/rem_mem() - announces, withdraws a further region of guest memory, at
 * @guest_addr: @size bytes of @fd from @offset, mapped here at @user
 *
 * 0, -EOPNOTSUPP without CONFIGURE_MEM_SLOTS, -EIO when the back-end refused.
 */
int guest_frontend_add_mem(struct guest_frontend *f, uint64_t guest_addr, uint64_t size, void *user,
			   int fd, uint64_t offset);
int guest_frontend_rem_mem(struct guest_frontend *f, uint64_t guest_addr, uint64_t size,
			   void *user);

/** guest_frontend_set_done() - who gets completions; before connect. Called as guest_ring_done. */
void guest_frontend_set_done(struct guest_frontend *f, guest_ring_done done);
/** guest_frontend_socket() - the main channel, for tests that break it; borrowed; -1 = none */
int guest_frontend_socket(struct guest_frontend *f);

#endif
