/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to a daemon's control socket. */
#ifndef DAXMAP_CTL_CLIENT_H
#define DAXMAP_CTL_CLIENT_H

#include <glib.h>
#include <json-glib/json-glib.h>

struct ctl_client;

#define CTL_ERROR (ctl_error_quark())
GQuark ctl_error_quark(void);

/** ctl_client_connect() - NULL with @error, which names the path and what to look at. */
struct ctl_client *ctl_client_connect(const char *path, GError **error);
void ctl_client_free(struct ctl_client *c);

/**
 * ctl_client_request() - asks what @request says
 * @request: an object with "command" and what that command takes; borrowed
 * @fd: sent along (SCM_RIGHTS) and still the caller's; -1 = none
 *
 * Return: the result (owned by the caller), or NULL with @error.
 */
JsonNode *ctl_client_request(struct ctl_client *c, JsonObject *request, int fd, GError **error);

/** ctl_client_call() - the same for a @command that takes nothing. */
JsonNode *ctl_client_call(struct ctl_client *c, const char *command, GError **error);

#endif
