/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Framing of vhost-user messages on a socket, with descriptors. No state, no policy: tests send
 * broken messages with it too.
 */
#ifndef DAXMAP_GUEST_CHAN_H
#define DAXMAP_GUEST_CHAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest_proto.h"

#define GUEST_CHAN_FDS 8

/**
 * struct guest_msg - a received message
 * @hdr: as it came
 * @payload: the first @hdr.size bytes are valid
 * @fds: @nfds descriptors, owned by whoever received the message (guest_msg_close_fds())
 */
struct guest_msg {
	struct guest_msg_hdr hdr;
	uint8_t payload[4096];
	int fds[GUEST_CHAN_FDS];
	unsigned int nfds;
};

/** guest_chan_send_raw() - sends @len bytes as they are, with @nfds descriptors (borrowed) on the
 * first. 0, -EPIPE when the peer has gone, or another negative errno. Never raises SIGPIPE. */
int guest_chan_send_raw(int sock, const void *buf, size_t len, const int *fds, unsigned int nfds);

/** guest_chan_send() - sends one message with header. @flags without the version, which is
 * added. As guest_chan_send_raw(). */
int guest_chan_send(int sock, uint32_t request, uint32_t flags, const void *payload, uint32_t size,
		    const int *fds, unsigned int nfds);

/**
 * guest_chan_recv() - receives one message
 * @timeout_ms: -1 = for ever
 *
 * 0; -ENOTCONN when the peer has gone (before or inside a message); -ETIMEDOUT; -EPROTO when its
 * size does not fit.
 */
int guest_chan_recv(int sock, struct guest_msg *msg, int timeout_ms);

/** guest_msg_close_fds() - closes what is left in @msg->fds. */
void guest_msg_close_fds(struct guest_msg *msg);

/** guest_msg_take_fd() - takes descriptor @i out of the message: the caller owns it; -1 = none */
int guest_msg_take_fd(struct guest_msg *msg, unsigned int i);

/** guest_chan_connect() - connects to the unix socket @path; a descriptor or negative errno. */
int guest_chan_connect(const char *path);

#endif
