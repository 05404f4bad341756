/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording. Whoever records fills a block of memory and never waits: not for the disk, not for a
 * lock, not for another recorder. A thread of the writer puts blocks into the file. When it cannot
 * keep up, or the file is full, events are counted as lost.
 */
#ifndef DAXMAP_TRACE_WRITER_H
#define DAXMAP_TRACE_WRITER_H

#include <daxmap/trace.h>

#include "trace.h"

struct trace_writer;
struct trace_stream;

#define TRACE_MAX_BYTES_DEFAULT (1ull << 30)
#define TRACE_MAX_BYTES_MIN (TRACE_HEADER_SIZE + TRACE_BLOCK_SIZE)

/**
 * struct trace_writer_config - zero means the default
 * @info: what the file is to say: seat, window, granule, slot, budget, caps, batch, driver; the
 *        rest is the writer's
 * @max_bytes: the file grows no further, and recording stops; TRACE_MAX_BYTES_DEFAULT
 * @flush_ms: how often blocks that are not full are written too, so that little is lost with a
 *            killed process; 1000
 * @blocks: blocks of memory, 64 KiB each; 128
 */
struct trace_writer_config {
	struct trace_info info;
	uint64_t max_bytes;
	unsigned int flush_ms;
	unsigned int blocks;
};

/** struct trace_writer_stats - how it goes */
struct trace_writer_stats {
	enum trace_ending ending; /* TRACE_OPEN while it records */
	int error;		  /* errno of a failed write */
	uint64_t events;	  /* recorded, in memory or in the file */
	uint64_t lost;
	uint64_t bytes; /* of the file */
	uint64_t max_bytes;
	uint64_t time_ns; /* since it began */
};

/**
 * trace_file_create() - opens @path for a new trace
 *
 * Makes the file, or takes one that is empty or a trace: any other is left alone. Locks it, so that
 * two recorders cannot meet in it. What is in it stays until trace_writer_new().
 *
 * Return: the descriptor, or -1 with @error.
 */
int trace_file_create(const char *path, GError **error);

/**
 * trace_writer_new() - begins a trace in @fd, from its first byte
 * @fd: taken over, also on failure; a regular file, open for writing, not in append mode
 *
 * The header is written before it returns. Makes one thread.
 *
 * Return: the writer, or NULL with @error.
 */
struct trace_writer *trace_writer_new(int fd, const struct trace_writer_config *config,
				      GError **error);

/** trace_writer_free() - writes what is left and closes the file. Nobody may be recording, all
 * streams are freed. NULL is fine. @stats, if not NULL, gets the last word. */
void trace_writer_free(struct trace_writer *w, struct trace_writer_stats *stats);

void trace_writer_stats(struct trace_writer *w, struct trace_writer_stats *out);

/** trace_writer_now() - the time of an event that happens now */
uint64_t trace_writer_now(const struct trace_writer *w);

/** trace_record() - records @e; @e->time_ns 0 means now. Any thread, never waits. */
void trace_record(struct trace_writer *w, const struct trace_event *e);

/** trace_writer_tap() - a struct dm_trace's fn; its ctx is the writer. */
void trace_writer_tap(void *ctx, const struct dm_trace_event *e);

/**
 * trace_stream_new() - a stream for one thread's own use: cheaper than trace_record()
 *
 * Return: the stream; NULL when there are too many.
 */
struct trace_stream *trace_stream_new(struct trace_writer *w);
/** trace_stream_free() - NULL is fine. */
void trace_stream_free(struct trace_stream *s);

/**
 * trace_stream_access() - TRACE_ACCESS: @len bytes of @file at @offset
 * @now_ns: CLOCK_MONOTONIC; the caller mostly knows it already
 */
void trace_stream_access(struct trace_stream *s, uint64_t now_ns, struct dm_file_key file,
			 uint64_t offset, uint64_t len, bool write);

#endif
