/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of a daemon: --dax-trace, and what daxmapctl trace asks for. */
#ifndef DAXMAP_DAEMON_TRACE_H
#define DAXMAP_DAEMON_TRACE_H

#include <glib.h>
#include <json-glib/json-glib.h>

#include <daxmap/table.h>

#include "daemon_options.h"
#include "fs.h"

struct daemon_trace;

/**
 * daemon_trace_new() - makes it, idle
 * @table: to be traced; borrowed until daemon_trace_free()
 * @caps: of its window; borrowed
 * @driver: its name
 */
struct daemon_trace *daemon_trace_new(const struct daemon_config *c, struct fs *fs,
				      struct dm_table *table, const struct dm_window_caps *caps,
				      const char *driver);
/** daemon_trace_free() - stops the trace. NULL is fine. */
void daemon_trace_free(struct daemon_trace *t);

/**
 * daemon_trace_start() - records into @fd (taken over, also on failure)
 * @max_bytes: 0 = default
 * @names: record the paths of files
 */
bool daemon_trace_start(struct daemon_trace *t, int fd, uint64_t max_bytes, bool names,
			GError **error);

/** daemon_trace_file() - @key is about to be mapped: the trace may want its name. @t may be NULL.
 * Any thread; not inside an RCU read section. */
void daemon_trace_file(struct daemon_trace *t, struct dm_file_key key);
/** daemon_trace_session() - a guest begins, or all that it had mapped has gone. @t may be NULL. */
void daemon_trace_session(struct daemon_trace *t, bool begins);

/** daemon_trace_run_start() and the others: commands of the control socket; @t may be NULL. */
JsonNode *daemon_trace_run_start(struct daemon_trace *t, JsonObject *request, int *fd,
				 GError **error);
JsonNode *daemon_trace_run_stop(struct daemon_trace *t, GError **error);
JsonNode *daemon_trace_run_status(struct daemon_trace *t);

#endif
