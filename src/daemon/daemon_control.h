/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets that tell about the daemon, served by one thread.
 *
 * The control socket: JSON lines. A request is one object on one line,
 *     {"command": "stats"}
 * and so is its answer: {"ok": true, "result": ...} or {"ok": false, "error": "..."}.
 *
 * The metrics socket: HTTP/1.0, GET /metrics (daemon_http.h).
 *
 * Who may open a socket may ask; the file's permission is the only check.
 */
#ifndef DAXMAP_DAEMON_CONTROL_H
#define DAXMAP_DAEMON_CONTROL_H

#include <stddef.h>

#include <glib.h>
#include <json-glib/json-glib.h>

#define DAEMON_CONTROL_LINE_MAX 4096
#define DAEMON_CONTROL_CLIENTS_MAX 16 /* of each socket */
#define DAEMON_CONTROL_HTTP_S 10      /* a scrape may take so long */

struct daemon_control;

/**
 * struct daemon_control_command - one thing that can be asked
 * @name: as in the request
 * @run: returns the result (owned by the caller), or NULL with @error. On the control thread.
 * @run_fd: instead of @run, for what takes a descriptor: *@fd is what came with the request
 *          (SCM_RIGHTS), -1 = none; it is closed afterwards unless it was stolen
 */
struct daemon_control_command {
	const char *name;
	JsonNode *(*run)(void *ctx, JsonObject *request, GError **error);
	JsonNode *(*run_fd)(void *ctx, JsonObject *request, int *fd, GError **error);
};

#define DAEMON_CONTROL_ERROR (daemon_control_error_quark())
GQuark daemon_control_error_quark(void);

/**
 * struct daemon_control_config - what is served
 * @control_fd: the listening control socket, non-blocking, borrowed; -1 = none
 * @commands: @n_commands of them
 * @metrics_fd: the listening metrics socket, as @control_fd
 * @metrics: makes the text of /metrics (owned by the caller); on the control thread
 * @ctx: passed to both
 */
struct daemon_control_config {
	int control_fd;
	const struct daemon_control_command *commands;
	size_t n_commands;
	int metrics_fd;
	char *(*metrics)(void *ctx);
	void *ctx;
};

/** daemon_control_start() - serves on a thread of its own; @config is copied, what it points to
 * must outlive the server. */
struct daemon_control *daemon_control_start(const struct daemon_control_config *config);

/** daemon_control_stop() - ends the thread and closes every client. NULL is fine. */
void daemon_control_stop(struct daemon_control *c);

#endif
