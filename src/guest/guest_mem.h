/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user-space guest's memory: one memfd, mapped here and by the back-end, with an allocator;
 * and the address space of the DAX window behind it. Guest-physical addresses are made up:
 * memory starts at GUEST_RAM_BASE, the window at GUEST_WINDOW_BASE.
 */
#ifndef DAXMAP_GUEST_MEM_H
#define DAXMAP_GUEST_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest_proto.h"

#define GUEST_RAM_BASE 0x40000000ull
#define GUEST_WINDOW_BASE 0x4000000000ull

struct guest_mem;

/** guest_mem_new() - @size bytes, rounded up to 2 MiB; NULL with errno. */
struct guest_mem *guest_mem_new(uint64_t size);
/** guest_mem_free() - pointers into it die. */
void guest_mem_free(struct guest_mem *m);

/** guest_mem_alloc() - @size bytes, page aligned, contents undefined; NULL when there are none
 * left. Any thread. */
void *guest_mem_alloc(struct guest_mem *m, size_t size);
/** guest_mem_release() - gives back what guest_mem_alloc() gave; @size as asked then. */
void guest_mem_release(struct guest_mem *m, void *p, size_t size);

/** guest_mem_gpa() - guest-physical address of @len bytes at @p, in memory or in the window;
 * false when they are in neither. */
bool guest_mem_gpa(const struct guest_mem *m, const void *p, size_t len, uint64_t *gpa);

/** guest_mem_region() - the memory as a region for the back-end; *@fd is borrowed. */
void guest_mem_region(const struct guest_mem *m, struct guest_msg_region *r, int *fd);

/** guest_mem_set_window() - says where the window lies, so that addresses in it translate; NULL
 * and 0: nowhere. No request may be under way. */
void guest_mem_set_window(struct guest_mem *m, void *base, uint64_t size);

uint64_t guest_mem_size(const struct guest_mem *m);
void *guest_mem_base(const struct guest_mem *m);

#endif
