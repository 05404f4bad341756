/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vhost-user wire, as far as this back-end speaks it: numbers and layouts of QEMU's
 * docs/interop/vhost-user.rst (little structures in host byte order), of its VIRTIO shared
 * memory extension, and of the FS_MAP dialect of older forks.
 */
#ifndef DAXMAP_VHOST_PROTO_H
#define DAXMAP_VHOST_PROTO_H

#include <assert.h>
#include <stdint.h>

/* Header flags. */
#define VHOST_FLAG_VERSION_MASK 0x3u
#define VHOST_FLAG_VERSION 0x1u
#define VHOST_FLAG_REPLY (1u << 2)
#define VHOST_FLAG_NEED_REPLY (1u << 3)

enum vhost_request {
	VHOST_GET_FEATURES = 1,
	VHOST_SET_FEATURES = 2,
	VHOST_SET_OWNER = 3,
	VHOST_RESET_OWNER = 4,
	VHOST_SET_MEM_TABLE = 5,
	VHOST_SET_LOG_BASE = 6,
	VHOST_SET_LOG_FD = 7,
	VHOST_SET_VRING_NUM = 8,
	VHOST_SET_VRING_ADDR = 9,
	VHOST_SET_VRING_BASE = 10,
	VHOST_GET_VRING_BASE = 11,
	VHOST_SET_VRING_KICK = 12,
	VHOST_SET_VRING_CALL = 13,
	VHOST_SET_VRING_ERR = 14,
	VHOST_GET_PROTOCOL_FEATURES = 15,
	VHOST_SET_PROTOCOL_FEATURES = 16,
	VHOST_GET_QUEUE_NUM = 17,
	VHOST_SET_VRING_ENABLE = 18,
	VHOST_SET_BACKEND_REQ_FD = 21,
	VHOST_GET_CONFIG = 24,
	VHOST_SET_CONFIG = 25,
	VHOST_RESET_DEVICE = 34,
	VHOST_GET_MAX_MEM_SLOTS = 36,
	VHOST_ADD_MEM_REG = 37,
	VHOST_REM_MEM_REG = 38,
	VHOST_GET_SHMEM_CONFIG = 44,
	VHOST_REQUEST_COUNT,
};

/* Requests of the back-end. 6..8 mean something else in the FS_MAP dialect. */
enum vhost_backend_request {
	VHOST_BE_SHARED_OBJECT_REMOVE = 7,
	VHOST_BE_SHMEM_MAP = 9,
	VHOST_BE_SHMEM_UNMAP = 10,
	VHOST_BE_FS_MAP = 6,
	VHOST_BE_FS_UNMAP = 7,
};

enum vhost_protocol_feature {
	VHOST_PF_MQ = 0,
	VHOST_PF_REPLY_ACK = 3,
	VHOST_PF_BACKEND_REQ = 5,
	VHOST_PF_CONFIG = 9,
	VHOST_PF_BACKEND_SEND_FD = 10,
	VHOST_PF_RESET_DEVICE = 13,
	VHOST_PF_CONFIGURE_MEM_SLOTS = 15,
	VHOST_PF_SHMEM = 22,
};

enum virtio_feature {
	VIRTIO_F_BIT_NOTIFY_ON_EMPTY = 24,
	VIRTIO_F_BIT_ANY_LAYOUT = 27,
	VIRTIO_F_BIT_INDIRECT_DESC = 28,
	VIRTIO_F_BIT_EVENT_IDX = 29,
	VHOST_F_BIT_PROTOCOL_FEATURES = 30,
	VIRTIO_F_BIT_VERSION_1 = 32,
	VIRTIO_F_BIT_ORDER_PLATFORM = 36,
	VIRTIO_F_BIT_RING_RESET = 40,
};

#define VHOST_BIT(n) (UINT64_C(1) << (n))

/* SET_VRING_KICK, CALL, ERR: the number's low byte is the ring, this bit says "no descriptor". */
#define VHOST_VRING_INDEX_MASK UINT64_C(0xff)
#define VHOST_VRING_NOFD (UINT64_C(1) << 8)

#define VHOST_MEM_TABLE_MAX 8
#define VHOST_MAX_MEM_SLOTS 512
#define VHOST_CONFIG_MAX 256
#define VHOST_SHMEM_REGIONS 256
#define VHOST_RING_MAX 32768u

struct vhost_hdr {
	uint32_t request;
	uint32_t flags;
	uint32_t size;
};

struct vhost_vring_state {
	uint32_t index;
	uint32_t num;
};

struct vhost_vring_addr {
	uint32_t index;
	uint32_t flags;
	uint64_t desc;
	uint64_t used;
	uint64_t avail;
	uint64_t log;
};

struct vhost_region_msg {
	uint64_t guest_addr;
	uint64_t size;
	uint64_t user_addr;
	uint64_t mmap_offset;
};

struct vhost_mem_table {
	uint32_t n;
	uint32_t pad;
	struct vhost_region_msg regions[VHOST_MEM_TABLE_MAX];
};

struct vhost_mem_reg {
	uint64_t pad;
	struct vhost_region_msg region;
};

struct vhost_config_msg {
	uint32_t offset;
	uint32_t size;
	uint32_t flags;
	uint8_t data[VHOST_CONFIG_MAX];
};
#define VHOST_CONFIG_HDR 12u

struct vhost_shmem_config {
	uint32_t nregions;
	uint32_t pad;
	uint64_t size[VHOST_SHMEM_REGIONS];
};

/* SHMEM_MAP and SHMEM_UNMAP. */
struct vhost_shmem_map {
	uint8_t shmid;
	uint8_t pad[7];
	uint64_t fd_offset;
	uint64_t shm_offset;
	uint64_t len;
	uint64_t flags;
};
#define VHOST_SHMEM_MAP_RW UINT64_C(1)

#define VHOST_FS_ENTRIES 8
struct vhost_fs_map {
	uint64_t fd_offset[VHOST_FS_ENTRIES];
	uint64_t c_offset[VHOST_FS_ENTRIES];
	uint64_t len[VHOST_FS_ENTRIES];
	uint64_t flags[VHOST_FS_ENTRIES];
};
#define VHOST_FS_MAP_R UINT64_C(1)
#define VHOST_FS_MAP_W UINT64_C(2)

static_assert(sizeof(struct vhost_hdr) == 12, "wire layout");
static_assert(sizeof(struct vhost_vring_addr) == 40, "wire layout");
static_assert(sizeof(struct vhost_mem_table) == 264, "wire layout");
static_assert(sizeof(struct vhost_mem_reg) == 40, "wire layout");
static_assert(sizeof(struct vhost_config_msg) == 268, "wire layout");
static_assert(sizeof(struct vhost_shmem_config) == 2056, "wire layout");
static_assert(sizeof(struct vhost_shmem_map) == 40, "wire layout");
static_assert(sizeof(struct vhost_fs_map) == 256, "wire layout");

#endif
