/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of what happens to a DAX window.
 *
 *   trace_format.h  the file, byte by byte
 *   trace_writer.h  records
 *   trace_reader.h  reads back
 *   trace_text.h    events as text and CSV
 *
 * This header: what both ends share.
 */
#ifndef DAXMAP_TRACE_COMMON_H
#define DAXMAP_TRACE_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

#include <daxmap/file.h>

#include "trace_format.h"

/**
 * struct trace_event - one event, in memory; fields that its kind lacks are 0
 * @kind: enum trace_kind
 * @write: the access writes
 * @stream: who recorded it
 * @time_ns: since the trace began
 * @offset: in the window, bytes
 * @len: bytes
 * @file: key
 * @file_offset: bytes; offsets and lengths are whole pages
 * @ns: cost
 * @mapped: ranges that the driver has mapped
 * @file_id: reader only: small number of the file, see trace_reader_file()
 * @value: see the kind
 * @name: TRACE_NAME: NUL-terminated
 */
struct trace_event {
	uint8_t kind;
	bool write;
	uint16_t stream;
	uint32_t mapped;
	uint64_t time_ns;
	uint64_t offset;
	uint64_t len;
	struct dm_file_key file;
	uint64_t file_offset;
	uint64_t ns;
	uint64_t value;
	const char *name;
	uint32_t file_id;
};

/** struct trace_info - what the file says of itself; fields as in struct trace_file_header */
struct trace_info {
	enum trace_seat seat;
	enum trace_ending ending;
	uint64_t window_size;
	uint64_t granule;
	uint64_t slot_size;
	uint32_t budget;
	uint32_t caps;
	uint32_t batch;
	int error;
	uint64_t start_real_ns;
	uint64_t end_ns;
	uint64_t blocks;
	uint64_t events;
	uint64_t lost;
	char driver[17];
	char producer[33];
};

/** trace_kind_name() - "setup", ...; NULL for what is no kind */
const char *trace_kind_name(unsigned int kind);
/** trace_ending_text() - for people */
const char *trace_ending_text(enum trace_ending ending);

#define TRACE_ERROR_DOMAIN (trace_error_quark())
GQuark trace_error_quark(void);

/** enum trace_error - codes of TRACE_ERROR_DOMAIN, for what reading and writing can find */
enum trace_error {
	TRACE_E_IO,	    /* the file cannot be opened, read, written, locked */
	TRACE_E_FOREIGN,    /* not a trace */
	TRACE_E_VERSION,    /* of a newer version */
	TRACE_E_UNFINISHED, /* never closed: being recorded, or the recorder was killed */
	TRACE_E_TRUNCATED,  /* shorter than it says */
	TRACE_E_CORRUPT,    /* a checksum or an event is wrong */
};

#endif
