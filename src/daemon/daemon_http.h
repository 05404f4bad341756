/* SPDX-License-Identifier: Apache-2.0 */
/* Just enough of HTTP/1.0 to be scraped: one request, one answer, then the connection ends. */
#ifndef DAXMAP_DAEMON_HTTP_H
#define DAXMAP_DAEMON_HTTP_H

#include <stdbool.h>

#include <glib.h>

#define DAEMON_HTTP_HEAD_MAX 8192

/**
 * daemon_http_answer() - answers the request that @in begins with, if all of its head is there
 * @in: what was received; whatever bytes
 * @out: gets the answer
 * @page: makes the text of /metrics (owned by the caller)
 *
 * True when there is an answer, be it a refusal; false while more has to come. More than
 * DAEMON_HTTP_HEAD_MAX bytes are always answered.
 */
bool daemon_http_answer(const GString *in, GString *out, char *(*page)(void *ctx), void *ctx);

#endif
