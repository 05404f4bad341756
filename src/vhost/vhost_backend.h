/* SPDX-License-Identifier: Apache-2.0 */
/* The back-end channel, as the session sees it. All functions: main thread. */
#ifndef DAXMAP_VHOST_BACKEND_H
#define DAXMAP_VHOST_BACKEND_H

#include "vhost.h"

struct vhost_backend *vhost_backend_new(void);
/** vhost_backend_free() - no call may be under way. */
void vhost_backend_free(struct vhost_backend *b);
/** vhost_backend_open() - takes @fd over; -EINVAL (and @fd closed) when it is no stream socket. */
int vhost_backend_open(struct vhost_backend *b, int fd);
/** vhost_backend_close() - calls under way return -EPIPE at once. Does not wait for them. */
void vhost_backend_close(struct vhost_backend *b);

#endif
