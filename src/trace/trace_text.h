/* SPDX-License-Identifier: Apache-2.0 */
/* Events as lines: for people, and as CSV. */
#ifndef DAXMAP_TRACE_TEXT_H
#define DAXMAP_TRACE_TEXT_H

#include "trace.h"

/** trace_text_csv_header() - the first line, without its end */
const char *trace_text_csv_header(void);
/**
 * trace_text_csv() - appends @e as one CSV line, with its end
 * @name: of its file, or NULL
 */
void trace_text_csv(GString *out, const struct trace_event *e, const char *name);
/** trace_text_line() - the same for people */
void trace_text_line(GString *out, const struct trace_event *e, const char *name);
/** trace_text_info() - appends what the trace says of itself, a line each, @indent spaces in */
void trace_text_info(GString *out, const struct trace_info *info, unsigned int indent);

#endif
