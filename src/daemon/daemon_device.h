/* SPDX-License-Identifier: Apache-2.0 */
/* The device: transport, protocol, file system, table and window put together. */
#ifndef DAXMAP_DAEMON_DEVICE_H
#define DAXMAP_DAEMON_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

#include "daemon_options.h"
#include "fs.h"
#include "fuse_session.h"
#include "sandbox.h"
#include "hold.h"
#include "shim.h"
#include "vhost.h"

struct daemon_policy;
struct daemon_trace;
struct daemon_worker;
struct watch;

/**
 * struct daemon_device - lives as long as the daemon; serves one front-end after the other
 * @config: borrowed
 * @window, @table, @policy, @watch, @trace: NULL without DAX
 * @shim: borrowed; NULL without one
 * @hold: borrowed; NULL without one
 * @started_ns: CLOCK_MONOTONIC
 * @sessions: front-ends served, the present one included
 * @connected, @running: state of the present one; written by the main thread
 */
struct daemon_device {
	const struct daemon_config *config;
	struct fs *fs;
	struct shim *shim;
	struct hold *hold;
	struct dm_window *window;
	struct dm_table *table;
	struct daemon_policy *policy;
	struct watch *watch;
	struct daemon_trace *trace;
	struct fuse_session *session;
	struct vhost_dev *dev;
	struct daemon_worker *worker;
	uint64_t window_size;
	uint64_t started_ns;
	uint64_t sessions;
	uint64_t resets;
	bool connected;
	bool running;
	bool channel;
};

/** daemon_device_new() - @shim and @hold are borrowed, or NULL. Takes @fds->root_fd and
 * @fds->proc_self_fd over. NULL with @error. */
struct daemon_device *daemon_device_new(const struct daemon_config *config, struct sandbox_fds *fds,
					struct shim *shim, struct hold *hold, GError **error);
void daemon_device_free(struct daemon_device *d);

/** daemon_device_tune() - takes over what @c says otherwise than before and can change in use: see
 * daemon_settings.c. Control thread; nobody waits for it. */
void daemon_device_tune(struct daemon_device *d, const struct daemon_config *c);

/**
 * daemon_device_serve() - serves the front-end connected on @fd (taken over), as
 * vhost_dev_serve(); afterwards nothing of its guest is left.
 */
int daemon_device_serve(struct daemon_device *d, int fd);

/** daemon_device_stop() - async-signal-safe. */
void daemon_device_stop(struct daemon_device *d);

#endif
