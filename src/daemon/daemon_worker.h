/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that may wait, for the one thing that the vhost-user main channel has to start and must
 * not wait for: forgetting a guest at a device reset. */
#ifndef DAXMAP_DAEMON_WORKER_H
#define DAXMAP_DAEMON_WORKER_H

#include <stdbool.h>

struct daemon_worker;

/** daemon_worker_new() - @reset is called on the worker's thread, once for one or more
 * daemon_worker_reset() before it. */
struct daemon_worker *daemon_worker_new(void (*reset)(void *ctx), void *ctx);
/** daemon_worker_free() - does what was asked, then ends. NULL is fine. */
void daemon_worker_free(struct daemon_worker *w);

/** daemon_worker_reset() - asks for a reset; any thread, does not wait. From here until it is
 * done daemon_worker_resetting() is true. */
void daemon_worker_reset(struct daemon_worker *w);

/** daemon_worker_resetting() - cheap: one load. */
bool daemon_worker_resetting(struct daemon_worker *w);

/** daemon_worker_wait() - waits until no reset is asked for or under way; not on the worker. */
void daemon_worker_wait(struct daemon_worker *w);

#endif
