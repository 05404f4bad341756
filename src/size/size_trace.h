/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_SIZE_TRACE_H
#define DAXMAP_SIZE_TRACE_H

#include "size.h"
#include "trace_reader.h"

/** size_trace_open() - a trace file as a source; @flags as for trace_reader_open(). False with
 * @error, which names the path. Ended by size_trace_close(). */
bool size_trace_open(struct size_source *s, const char *path, unsigned int flags, GError **error);
void size_trace_close(struct size_source *s);
/** size_trace_reader() - the reader behind @s, for what the file says of itself */
const struct trace_reader *size_trace_reader(const struct size_source *s);

#endif
