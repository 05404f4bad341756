/* SPDX-License-Identifier: Apache-2.0 */
/* What the shim's tests share. */
#ifndef DAXMAP_T_SHIM_KIT_H
#define DAXMAP_T_SHIM_KIT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shim.h"

#define SLOT (UINT64_C(2) << 20)

/** kit_shim() - a shim for @dir's file system, or NULL after g_test_skip() with the reason. */
struct shim *kit_shim(const char *dir, bool readonly);
/** kit_dir() - a fresh directory below @base; the caller frees the name. */
char *kit_dir(const char *base);
void kit_rmdir(const char *dir);
/** kit_file() - a file of @size bytes, each its offset's hash; returns an O_RDWR descriptor. */
int kit_file(const char *dir, const char *name, uint64_t size);
uint8_t kit_byte(uint64_t offset);
/** kit_reopen() - the same file by another open(2). */
int kit_reopen(int fd, int flags);
/** kit_map() - one slot, shared, read-write; never fails. */
uint8_t *kit_map(int fd, uint64_t offset);
/** kit_touch() - the byte at @p, or -1 where a load would raise SIGBUS. */
int kit_touch(const volatile void *p);
/** kit_settle() - waits until the helper's gauges are @nodes nodes with @fds
 * descriptors, and nothing in flight. */
void kit_settle(struct shim *s, uint64_t nodes, uint64_t fds);
unsigned int kit_count_fds(pid_t pid);

#endif
