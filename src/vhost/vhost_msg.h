/* SPDX-License-Identifier: Apache-2.0 */
/* Framing of vhost-user messages: the only reader and writer of the two channels. */
#ifndef DAXMAP_VHOST_MSG_H
#define DAXMAP_VHOST_MSG_H

#include <stdbool.h>

#include "vhost_proto.h"

#define VHOST_MSG_PAYLOAD 4096u
#define VHOST_MSG_FDS 8u

/**
 * struct vhost_msg - one message
 * @hdr: as on the wire; hdr.size bytes of the payload are valid, the rest is zero
 * @nfds: descriptors in @fds, owned by the message: taken with vhost_msg_take_fd(), the others
 *        closed by vhost_msg_clear()
 * @fds_lost: some descriptors did not arrive because this process has no free ones
 * @fds_excess: more came than any message may carry
 */
struct vhost_msg {
	struct vhost_hdr hdr;
	union {
		uint8_t bytes[VHOST_MSG_PAYLOAD];
		uint64_t u64;
		struct vhost_vring_state state;
		struct vhost_vring_addr addr;
		struct vhost_mem_table table;
		struct vhost_mem_reg reg;
		struct vhost_config_msg config;
		struct vhost_shmem_config shmem;
		struct vhost_shmem_map map;
		struct vhost_fs_map fs_map;
	} p;
	int fds[VHOST_MSG_FDS];
	unsigned int nfds;
	bool fds_lost;
	bool fds_excess;
};

/**
 * vhost_msg_recv() - waits for one whole message
 * @sock: connected stream socket
 * @stop: a descriptor that becomes readable when the wait shall end; -1 = none
 * @m: out; on error holds nothing
 * @why: out: what was wrong, a literal, when -EPROTO is returned
 *
 * Returns 1, 0 (the peer closed between two messages), -ECANCELED (@stop), -EPROTO (closed
 * inside a message, bad version, oversize), or a negative errno of the socket.
 */
int vhost_msg_recv(int sock, int stop, struct vhost_msg *m, const char **why);

/** vhost_msg_send() - sends @m whole, with @fd unless it is -1. Returns 0, -ECANCELED, or a
 * negative errno (-EPIPE when the peer has gone). */
int vhost_msg_send(int sock, int stop, const struct vhost_msg *m, int fd);

/** vhost_msg_take_fd() - the caller owns descriptor @i now. */
int vhost_msg_take_fd(struct vhost_msg *m, unsigned int i);

/** vhost_msg_clear() - closes what was not taken. */
void vhost_msg_clear(struct vhost_msg *m);

#endif
