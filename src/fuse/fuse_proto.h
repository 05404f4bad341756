/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The FUSE protocol: <linux/fuse.h>, plus what a header of 7.36 lacks. Values as in
 * include/uapi/linux/fuse.h of Linux 6.6.
 */
#ifndef DAXMAP_FUSE_PROTO_H
#define DAXMAP_FUSE_PROTO_H

#include <linux/fuse.h>
#include <stdint.h>

/* What this side speaks; the guest's smaller minor wins. */
#define FUSE_OUR_MINOR 38u

/* Bits of fuse_init_in.flags | flags2 << 32 that an older header does not name. */
#define FUSE_BIT_CREATE_SUPP_GROUP (1ull << 34)
#define FUSE_BIT_DIRECT_IO_ALLOW_MMAP (1ull << 36)

/* A supplementary group follows a creation (struct fuse_ext_header, then this). */
#define FUSE_TYPE_EXT_GROUPS 32u

struct fuse_supp_group_list {
	uint32_t nr_groups;
	uint32_t groups[];
};

/* fuse_init_out.map_alignment: log2 of what SETUPMAPPING offsets are multiples of. */
#define FUSE_MAP_ALIGN_LOG2 12u

#endif
