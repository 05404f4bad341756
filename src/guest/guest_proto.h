/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vhost-user as the front-end's side speaks it: numbers and layouts.
 *
 * Source: docs/interop/vhost-user.rst of QEMU (messages, SHMEM as of QEMU 11.1), VIRTIO 1.2
 * section 2.7 (split virtqueues) and 5.11 (file system device). Written apart from src/vhost on
 * purpose: a mistake in one of them shows when they meet.
 */
#ifndef DAXMAP_GUEST_PROTO_H
#define DAXMAP_GUEST_PROTO_H

#include <stdint.h>

#include <glib.h>

enum guest_msg_flags {
	GUEST_MSG_VERSION = 1u,
	GUEST_MSG_VERSION_MASK = 3u,
	GUEST_MSG_REPLY = 1u << 2,
	GUEST_MSG_NEED_REPLY = 1u << 3,
};

enum guest_msg_request {
	GUEST_GET_FEATURES = 1,
	GUEST_SET_FEATURES = 2,
	GUEST_SET_OWNER = 3,
	GUEST_RESET_OWNER = 4,
	GUEST_SET_MEM_TABLE = 5,
	GUEST_SET_LOG_BASE = 6,
	GUEST_SET_LOG_FD = 7,
	GUEST_SET_VRING_NUM = 8,
	GUEST_SET_VRING_ADDR = 9,
	GUEST_SET_VRING_BASE = 10,
	GUEST_GET_VRING_BASE = 11,
	GUEST_SET_VRING_KICK = 12,
	GUEST_SET_VRING_CALL = 13,
	GUEST_SET_VRING_ERR = 14,
	GUEST_GET_PROTOCOL_FEATURES = 15,
	GUEST_SET_PROTOCOL_FEATURES = 16,
	GUEST_GET_QUEUE_NUM = 17,
	GUEST_SET_VRING_ENABLE = 18,
	GUEST_SET_BACKEND_REQ_FD = 21,
	GUEST_GET_CONFIG = 24,
	GUEST_SET_CONFIG = 25,
	GUEST_RESET_DEVICE = 34,
	GUEST_GET_MAX_MEM_SLOTS = 36,
	GUEST_ADD_MEM_REG = 37,
	GUEST_REM_MEM_REG = 38,
	GUEST_SET_STATUS = 39,
	GUEST_GET_STATUS = 40,
	GUEST_GET_SHMEM_CONFIG = 44,
};

enum guest_backend_request {
	GUEST_BE_CONFIG_CHANGE = 2,
	GUEST_BE_FS_MAP = 6, /* the older dialect; today 6..8 are SHARED_OBJECT_* */
	GUEST_BE_FS_UNMAP = 7,
	GUEST_BE_FS_SYNC = 8,
	GUEST_BE_SHARED_OBJECT_ADD = 6,
	GUEST_BE_SHARED_OBJECT_REMOVE = 7,
	GUEST_BE_SHARED_OBJECT_LOOKUP = 8,
	GUEST_BE_SHMEM_MAP = 9,
	GUEST_BE_SHMEM_UNMAP = 10,
};

#define GUEST_F_VERSION_1 (1ull << 32)
#define GUEST_F_RING_RESET (1ull << 40)
#define GUEST_F_INDIRECT (1ull << 28)
#define GUEST_F_EVENT_IDX (1ull << 29)
#define GUEST_F_PROTOCOL (1ull << 30)

#define GUEST_PF_MQ (1ull << 0)
#define GUEST_PF_REPLY_ACK (1ull << 3)
#define GUEST_PF_BACKEND_REQ (1ull << 5)
#define GUEST_PF_CONFIG (1ull << 9)
#define GUEST_PF_BACKEND_SEND_FD (1ull << 10)
#define GUEST_PF_INFLIGHT_SHMFD (1ull << 12)
#define GUEST_PF_RESET_DEVICE (1ull << 13)
#define GUEST_PF_CONFIGURE_MEM_SLOTS (1ull << 15)
#define GUEST_PF_STATUS (1ull << 16)
#define GUEST_PF_DEVICE_STATE (1ull << 19)
#define GUEST_PF_SHMEM (1ull << 22)

/** struct guest_msg_hdr - before each message, both channels, host byte order */
struct guest_msg_hdr {
	uint32_t request;
	uint32_t flags;
	uint32_t size;
} __attribute__((packed));

struct guest_msg_vring_state {
	uint32_t index;
	uint32_t num;
};

struct guest_msg_vring_addr {
	uint32_t index;
	uint32_t flags;
	uint64_t desc;
	uint64_t used;
	uint64_t avail;
	uint64_t log;
};

struct guest_msg_region {
	uint64_t guest_addr;
	uint64_t size;
	uint64_t user_addr;
	uint64_t mmap_offset;
};

/** struct guest_msg_single_region - payload of ADD_MEM_REG and REM_MEM_REG */
struct guest_msg_single_region {
	uint64_t pad;
	struct guest_msg_region region;
};

#define GUEST_TABLE_REGIONS 8

/** struct guest_msg_table - payload of SET_MEM_TABLE; only @nregions entries are sent */
struct guest_msg_table {
	uint32_t nregions;
	uint32_t pad;
	struct guest_msg_region regions[GUEST_TABLE_REGIONS];
};

#define GUEST_CONFIG_MAX 256

struct guest_msg_config {
	uint32_t offset;
	uint32_t size;
	uint32_t flags;
	uint8_t bytes[GUEST_CONFIG_MAX];
} __attribute__((packed));

struct guest_msg_shmem_config {
	uint32_t nregions;
	uint32_t pad;
	uint64_t sizes[256];
};

#define GUEST_SHMEM_RW (1ull << 0)

/** struct guest_msg_shmem - payload of SHMEM_MAP and SHMEM_UNMAP */
struct guest_msg_shmem {
	uint8_t shmid;
	uint8_t pad[7];
	uint64_t fd_offset;
	uint64_t shm_offset;
	uint64_t len;
	uint64_t flags;
};

#define GUEST_FS_ENTRIES 8
#define GUEST_FS_READ (1ull << 0)
#define GUEST_FS_WRITE (1ull << 1)

/** struct guest_msg_fs_map - payload of FS_MAP and FS_UNMAP (Dragonball, old QEMU forks) */
struct guest_msg_fs_map {
	uint64_t fd_offset[GUEST_FS_ENTRIES];
	uint64_t c_offset[GUEST_FS_ENTRIES];
	uint64_t len[GUEST_FS_ENTRIES];
	uint64_t flags[GUEST_FS_ENTRIES];
};

/** struct guest_fs_config - virtio-fs config space (linux/virtio_fs.h) */
struct guest_fs_config {
	char tag[36]; /* padded with NUL, not terminated when full */
	uint32_t num_request_queues;
	uint32_t notify_buf_size;
};

/* QEMU closes the back-end channel on a payload larger than this. */
#define GUEST_BE_PAYLOAD_MAX 2056

enum guest_desc_flags {
	GUEST_DESC_NEXT = 1u,
	GUEST_DESC_WRITE = 2u,
	GUEST_DESC_INDIRECT = 4u,
};

/** struct guest_desc - a virtqueue descriptor, little endian */
struct guest_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};

G_STATIC_ASSERT(sizeof(struct guest_msg_hdr) == 12);
G_STATIC_ASSERT(sizeof(struct guest_msg_single_region) == 40);
G_STATIC_ASSERT(sizeof(struct guest_msg_shmem) == 40);
G_STATIC_ASSERT(sizeof(struct guest_msg_shmem_config) == GUEST_BE_PAYLOAD_MAX);
G_STATIC_ASSERT(sizeof(struct guest_fs_config) == 44);
G_STATIC_ASSERT(sizeof(struct guest_desc) == 16);

#endif
