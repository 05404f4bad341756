/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front-end for tests: one socketpair, guest memory in a memfd mapped a second time here,
 * and rings that the test drives by hand. The back-end serves in a thread of its own.
 */
#ifndef DAXMAP_TEST_VHOST_FE_H
#define DAXMAP_TEST_VHOST_FE_H

#include <linux/virtio_ring.h>
#include <pthread.h>

#include "vhost.h"
#include "vhost_proto.h"

#define FE_MEM_SIZE (4u << 20)
#define FE_GPA 0x10000000ull
#define FE_UVA 0x7f0000000000ull
#define FE_RING_SIZE 16u

/* Layout of guest memory: 64 KiB for each ring, buffers from FE_BUFS on. */
#define FE_RING_AT(i) ((i)*0x10000u)
#define FE_BUFS 0x100000u

struct fe_ring {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	int kick, call;
	uint16_t seen; /* used entries looked at */
};

struct fe {
	struct vhost_dev *d;
	pthread_t thread;
	int result; /* of vhost_dev_serve() */
	int sock;
	int backend; /* our end of the back-end channel, or -1 */
	int memfd;
	uint8_t *mem;
	struct fe_ring ring[2];
};

struct fe *fe_new(const struct vhost_config *config, const struct vhost_ops *ops, void *ctx);
/** fe_reconnect() - serves again, after fe_hangup(). */
void fe_reconnect(struct fe *fe);
/** fe_hangup() - closes our end and returns what serve() did. */
int fe_hangup(struct fe *fe);
/** fe_wait_end() - the back-end ends the session; returns what serve() did. */
int fe_wait_end(struct fe *fe);
void fe_free(struct fe *fe);

/** fe_send() - one message as given. */
void fe_send(struct fe *fe, uint32_t request, uint32_t flags, const void *payload, uint32_t size,
	     const int *fds, unsigned int nfds);
/** fe_recv() - the reply to @request; returns its payload size, or -1 when the channel closed. */
int fe_recv(struct fe *fe, uint32_t request, void *payload, uint32_t max);
/** fe_ack() - sends with NEED_REPLY, returns the status. */
uint64_t fe_ack(struct fe *fe, uint32_t request, const void *payload, uint32_t size, int fd);
uint64_t fe_get(struct fe *fe, uint32_t request);

/** fe_negotiate() - features, protocol features, owner, back-end channel. */
void fe_negotiate(struct fe *fe, uint64_t features, uint64_t protocol);
#define FE_FEATURES                                                                                \
	(VHOST_BIT(VIRTIO_F_BIT_VERSION_1) | VHOST_BIT(VHOST_F_BIT_PROTOCOL_FEATURES) |            \
	 VHOST_BIT(VIRTIO_F_BIT_INDIRECT_DESC))
#define FE_PROTOCOL                                                                                \
	(VHOST_BIT(VHOST_PF_MQ) | VHOST_BIT(VHOST_PF_REPLY_ACK) |                                  \
	 VHOST_BIT(VHOST_PF_BACKEND_REQ) | VHOST_BIT(VHOST_PF_CONFIG) |                            \
	 VHOST_BIT(VHOST_PF_BACKEND_SEND_FD) | VHOST_BIT(VHOST_PF_RESET_DEVICE) |                  \
	 VHOST_BIT(VHOST_PF_CONFIGURE_MEM_SLOTS))
/** fe_add_ram() - announces guest memory [@offset, @offset + @size) of the memfd. */
uint64_t fe_add_ram(struct fe *fe, uint64_t offset, uint64_t size);
uint64_t fe_rem_ram(struct fe *fe, uint64_t offset, uint64_t size);
/** fe_ring_zero() - what a driver that starts anew does. */
void fe_ring_zero(struct fe *fe, unsigned int i);
void fe_ring_start(struct fe *fe, unsigned int i, uint16_t base);
void fe_ring_enable(struct fe *fe, unsigned int i, bool on);
uint16_t fe_ring_stop(struct fe *fe, unsigned int i);
/** fe_start() - negotiate, all memory, both rings, enabled. */
void fe_start(struct fe *fe, uint64_t features);

void fe_desc(struct fe *fe, unsigned int ring, unsigned int i, uint64_t addr, uint32_t len,
	     uint16_t flags, uint16_t next);
/** fe_post() - makes @head available, kicks. */
void fe_post(struct fe *fe, unsigned int ring, uint16_t head);
/** fe_avail() - makes @head available without a kick. */
void fe_avail(struct fe *fe, unsigned int ring, uint16_t head);
void fe_kick(struct fe *fe, unsigned int ring);
/** fe_used() - waits for the next used entry (by the call descriptor). */
struct vring_used_elem fe_used(struct fe *fe, unsigned int ring);
/** fe_used_count() - entries published and not yet looked at. */
unsigned int fe_used_count(struct fe *fe, unsigned int ring);
/** fe_echo() - desc 0 (out, @len bytes) and 1 (in) at @slot; posts head 2 * slot. */
void fe_echo(struct fe *fe, unsigned int ring, unsigned int slot, uint32_t len);

#endif
