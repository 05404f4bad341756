/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fanotify as an ordinary user has it: FAN_MODIFY of single inodes, named by file handles. Nothing
 * here needs a path, a capability or /proc, so it works in any sandbox. fanotify(7).
 */
#ifndef DAXMAP_WATCH_FAN_H
#define DAXMAP_WATCH_FAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WATCH_ID_MAX 160

/** struct watch_id - how an event names its file: file system, handle type and handle */
struct watch_id {
	uint32_t len;
	unsigned char bytes[WATCH_ID_MAX];
};

/** watch_fan_open() - a descriptor to poll and read, non-blocking; or a negative errno */
int watch_fan_open(void);

/**
 * watch_fan_add() - from now on changes of the size or the bytes of @fd's file are told
 * @id: out: what its events carry
 *
 * A store through a mapping is no such change. 0; -ENOSPC (as many marks as the user may have);
 * -EOPNOTSUPP, -ENODEV, -EXDEV (not on this file system); other errno.
 */
int watch_fan_add(int fan, int fd, struct watch_id *id);
/** watch_fan_remove() - until then the kernel keeps the inode, even of a deleted file */
void watch_fan_remove(int fan, int fd);

bool watch_id_equal(const struct watch_id *a, const struct watch_id *b);

/**
 * watch_fan_read() - takes what is queued
 * @changed: called for each event; @id NULL: events were lost, any file may have changed
 *
 * Returns how many events there were, 0 when there are none.
 */
unsigned int watch_fan_read(int fan, void (*changed)(void *ctx, const struct watch_id *id),
			    void *ctx);
/** watch_fan_parse() - of one read(2); for watch_fan_read() and for tests */
unsigned int watch_fan_parse(const void *buf, size_t len,
			     void (*changed)(void *ctx, const struct watch_id *id), void *ctx);

#endif
