/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: JSON lines. A request is one object on one line,
 *     {"command": "stats"}
 * and so is its answer: {"ok": true, "result": ...} or {"ok": false, "error": "..."}.
 * Who may open the socket may ask; the file's permission is the only check.
 */
#ifndef DAXMAP_DAEMON_CONTROL_H
#define DAXMAP_DAEMON_CONTROL_H

#include <stddef.h>

#include <glib.h>
#include <json-glib/json-glib.h>

#define DAEMON_CONTROL_LINE_MAX 4096
#define DAEMON_CONTROL_CLIENTS_MAX 16

struct daemon_control;

/**
 * struct daemon_control_command - one thing that can be asked
 * @name: as in the request
 * @run: returns the result (owned by the caller), or NULL with @error. On the control thread.
 */
struct daemon_control_command {
	const char *name;
	JsonNode *(*run)(void *ctx, JsonObject *request, GError **error);
};

#define DAEMON_CONTROL_ERROR (daemon_control_error_quark())
GQuark daemon_control_error_quark(void);

/**
 * daemon_control_start() - serves @listen_fd on a thread of its own
 * @listen_fd: non-blocking; borrowed
 * @commands: @n of them; must outlive the server, as must @ctx
 */
struct daemon_control *daemon_control_start(int listen_fd,
					    const struct daemon_control_command *commands, size_t n,
					    void *ctx);

/** daemon_control_stop() - ends the thread and closes every client. NULL is fine. */
void daemon_control_stop(struct daemon_control *c);

#endif
