/* SPDX-License-Identifier: Apache-2.0 */
/* The device, as the files of this folder see it. */
#ifndef DAXMAP_VHOST_PRIV_H
#define DAXMAP_VHOST_PRIV_H

#include "vhost.h"
#include "vhost_backend.h"
#include "vhost_mem.h"
#include "vhost_queue.h"
#include "vhost_relief.h"

/* A window region that the owner accepted: only remembered, to answer REM_MEM_REG. */
struct vhost_accepted {
	struct vhost_region_msg msg;
};

struct vhost_dev {
	struct vhost_config config;
	struct vhost_ops ops;
	void *ctx;
	struct vhost_mem *mem; /* RCU: replaced by the main thread */
	struct vhost_backend *backend;
	int stop_fd;
	struct vhost_relief relief;

	/* of the session; main thread */
	int sock;
	bool owned;
	uint64_t features;
	uint64_t protocol;
	bool starting;
	bool running;
	uint64_t stop_gen; /* counts the times that the last ready ring stopped */
	GArray *accepted;  /* struct vhost_accepted */
	uint64_t window_base;
	bool window_known;

	struct vhost_queue queues[VHOST_MAX_QUEUES];
};

/** vhost_session_run() - the main channel until it ends; as vhost_dev_serve(). */
int vhost_session_run(struct vhost_dev *d);
/** vhost_session_publish() - replaces the snapshot of guest memory. */
void vhost_session_publish(struct vhost_dev *d, struct vhost_mem *mem);
/** vhost_session_running() - tells the owner when that changes. */
void vhost_session_running(struct vhost_dev *d, bool running);

#endif
