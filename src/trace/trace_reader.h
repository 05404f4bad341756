/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading back. Events come in the order of their times, one after the other, in little memory
 * however long the trace is. Nothing in the file is trusted.
 *
 *	struct trace_reader *r = trace_reader_open(path, 0, &error);
 *	while ((got = trace_reader_next(r, &e, &error)) > 0)
 *		...
 *	if (got < 0) complain(error->message);
 *	trace_reader_free(r);
 */
#ifndef DAXMAP_TRACE_READER_H
#define DAXMAP_TRACE_READER_H

#include "trace.h"

struct trace_reader;

enum trace_reader_flags {
	/* Take what is there of a trace that is unfinished, truncated or damaged: bad blocks are
	 * passed over and counted. */
	TRACE_READ_PARTIAL = 1u << 0,
};

/**
 * struct trace_file - a file that the trace speaks of
 * @key: its key; a key that gets another name is another file
 * @name: relative to the share; NULL when the trace does not say
 * @end: byte behind the last one spoken of
 */
struct trace_file {
	struct dm_file_key key;
	char *name;
	uint64_t end;
};

/**
 * trace_reader_open() - opens and checks @path
 *
 * Without TRACE_READ_PARTIAL the whole file is checked before this returns: every block's
 * checksum, and that all are there. So whoever then iterates is not surprised half-way.
 *
 * Return: the reader, or NULL with @error of TRACE_ERROR_DOMAIN, which names the path.
 */
struct trace_reader *trace_reader_open(const char *path, unsigned int flags, GError **error);
void trace_reader_free(struct trace_reader *r);

/** trace_reader_info() - with TRACE_READ_PARTIAL, .blocks, .events and .lost are those found */
const struct trace_info *trace_reader_info(const struct trace_reader *r);
/** trace_reader_bad_blocks() - how many TRACE_READ_PARTIAL has passed over (or missed) */
uint64_t trace_reader_bad_blocks(const struct trace_reader *r);

/** trace_reader_next() - 1 with @e, 0 at the end, -1 with @error. @e->name is good until the next
 * call. */
int trace_reader_next(struct trace_reader *r, struct trace_event *e, GError **error);
/** trace_reader_rewind() - from the start again; files keep their numbers */
void trace_reader_rewind(struct trace_reader *r);

/** trace_reader_files() - how many files there have been so far: 0 <= file_id < that */
uint32_t trace_reader_files(const struct trace_reader *r);
/** trace_reader_file() - good until the next call of trace_reader_next() */
const struct trace_file *trace_reader_file(const struct trace_reader *r, uint32_t id);

#endif
