/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The VMM's half of the DAX window: serves the back-end channel, maps files into an address range
 * of this process, and tells the back-end of each new region on the main channel, as QEMU does.
 * It is as strict as the VMM it plays, and writes down each rule that the back-end breaks.
 */
#ifndef DAXMAP_GUEST_BACKEND_H
#define DAXMAP_GUEST_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "guest_proto.h"

struct guest_frontend;
struct guest_window;

/** enum guest_window_mode - which VMM is played */
enum guest_window_mode {
	GUEST_WINDOW_NONE,    /* SHMEM is not negotiated */
	GUEST_WINDOW_STRICT,  /* QEMU 11.1: no overlap, exact unmap, reply before commit */
	GUEST_WINDOW_OVERLAY, /* crosvm: a map replaces what is there; any unmap */
	GUEST_WINDOW_FS_MAP,  /* the older FS_MAP dialect, overlay */
};

/**
 * struct guest_window_config - zero means the default
 * @mode: see above
 * @size: bytes; FS_MAP only (else the back-end says it by GET_SHMEM_CONFIG)
 * @commit_delay_us: STRICT: pause between the reply to a map and its commit
 * @max_mappings: live mappings at which QEMU would abort; 509
 * @fail_nth: every n-th otherwise good request is refused (a fault, not a violation); 0 = none
 */
struct guest_window_config {
	enum guest_window_mode mode;
	uint64_t size;
	unsigned int commit_delay_us;
	unsigned int max_mappings;
	unsigned int fail_nth;
};

/** struct guest_mapping - one live mapping, for checks */
struct guest_mapping {
	uint64_t offset;
	uint64_t len;
	uint64_t fd_offset;
	uint64_t ino;
	uint64_t dev;
	bool write;
};

/**
 * struct guest_window_stats - since connect
 * @maps, @unmaps: accepted; @refused: answered with a failure
 * @commits: ended; @added: ADD_MEM_REG accepted by the back-end; @add_refused: refused by it
 * @live: mappings now; @peak: at most
 * @pending: replied to and not yet committed
 * @raced: requests that were on their way when the device was stopped (real QEMU can crash of
 *         them, and no back-end can know)
 */
struct guest_window_stats {
	uint64_t maps;
	uint64_t unmaps;
	uint64_t refused;
	uint64_t fences;
	uint64_t commits;
	uint64_t added;
	uint64_t add_refused;
	uint64_t removed;
	unsigned int live;
	unsigned int peak;
	unsigned int pending;
	unsigned int raced;
};

/** guest_window_base() - start of the window in this process; NULL without one. Where nothing is
 * mapped, access faults. */
void *guest_window_base(struct guest_window *w);
uint64_t guest_window_size(struct guest_window *w);
void guest_window_stats(struct guest_window *w, struct guest_window_stats *out);

/** guest_window_mapped() - is all of [offset, offset + len) committed? */
bool guest_window_mapped(struct guest_window *w, uint64_t offset, uint64_t len);
/** guest_window_list() - copies up to @max live committed mappings, by offset; returns how many
 * there are. */
unsigned int guest_window_list(struct guest_window *w, struct guest_mapping *out, unsigned int max);

/** guest_window_hold() - true: replies go out, commits wait until hold(false). Meanwhile nothing
 * else on the back-end channel is served, as with QEMU. */
void guest_window_hold(struct guest_window *w, bool hold);
/** guest_window_wait_pending() - waits until @n requests stand replied to and uncommitted; false
 * when @timeout_ms passed first. */
bool guest_window_wait_pending(struct guest_window *w, unsigned int n, int timeout_ms);
/** guest_window_wait_idle() - waits until every accepted request is committed. */
bool guest_window_wait_idle(struct guest_window *w, int timeout_ms);

/** guest_window_violations() - how many rules were broken since the window was made (or
 * guest_window_clear_violations()). */
unsigned int guest_window_violations(struct guest_window *w);
/** guest_window_violation() - the @i-th, to be freed by the caller; NULL beyond the last */
char *guest_window_violation(struct guest_window *w, unsigned int i);
void guest_window_clear_violations(struct guest_window *w);

#endif
