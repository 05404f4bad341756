/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace file, version 1. docs/trace.md says the same for those who read it with other tools.
 *
 * A file is a header of TRACE_HEADER_SIZE bytes and blocks of TRACE_BLOCK_SIZE bytes, one behind
 * the other; numbers are little-endian. Checksums are CRC-32C (Castagnoli) and are computed with
 * their own field zero.
 *
 * A block belongs to one stream (what one recorder wrote; about one a thread) and can be decoded
 * alone. Within a stream times do not run backwards; across streams the reader merges by time.
 * A block may be written several times over, each time with more events, until it is full.
 *
 * An event is
 *
 *	u8 head		kind (low 5 bits), TRACE_SAME_FILE, TRACE_SAME_LEN, TRACE_WRITE
 *	varint		nanoseconds since the event before it (the first: since block.first_ns)
 *	then, as trace_kind_fields() says of the kind, in this order:
 *	FILE	2 zigzag varints: key.hi and key.lo, each minus that of the last event with a file;
 *		absent with TRACE_SAME_FILE: both are as there
 *	PLACE	zigzag varint: page in the file, minus the page at which the last event with a place
 *		ended; then varint: pages; absent with TRACE_SAME_LEN: as many as there
 *	WINDOW	zigzag varint: page in the window, minus the page at which the last event with one
 *		ended (its length is the place's)
 *	COST	varint: nanoseconds
 *	MAPPED	varint: ranges that the driver has mapped
 *	VALUE	varint: see the kind
 *	NAME	varint: bytes; then so many
 *
 * "Last" is within the block; at its start all is zero. A page is 4096 bytes. A varint holds 7
 * bits a byte, low bits first, the high bit saying that more follow, 10 bytes at most. Zigzag:
 * (v << 1) ^ (v >> 63). Sums and differences wrap at 64 bits.
 */
#ifndef DAXMAP_TRACE_FORMAT_H
#define DAXMAP_TRACE_FORMAT_H

#include <stdint.h>

#define TRACE_MAGIC "DAXTRACE" /* 8 bytes, no NUL */
#define TRACE_VERSION 1u
#define TRACE_HEADER_SIZE 4096u
#define TRACE_BLOCK_MAGIC 0x42545844u /* "DXTB" */
#define TRACE_BLOCK_SIZE 65536u
#define TRACE_PAGE_SHIFT 12
#define TRACE_NAME_MAX 4096u /* bytes of a file's path */

/** enum trace_kind - what happened; the numbers are in files and never change */
enum trace_kind {
	/* the guest asked, the table answered */
	TRACE_SETUP = 1,   /* a mapping was asked for and is usable; ns = time until the answer */
	TRACE_REMOVE = 2,  /* one range was given back */
	TRACE_REVIVE = 3,  /* a given-back range was taken again without a driver call */
	TRACE_OVERLAY = 4, /* a given-back (or victim) range was replaced by a map over it */
	TRACE_CANCEL = 5,  /* its unmap was withdrawn before it was sent, and it was taken again */
	/* the driver did it; ns = time until it was done */
	TRACE_MAP = 6,
	TRACE_UNMAP = 7,
	/* use */
	TRACE_PIN = 8,	  /* host seat: an I/O into the range began */
	TRACE_ACCESS = 9, /* guest seat: bytes were used, mapped already or not; no window offset */
	/* context */
	TRACE_PRESENT = 10, /* mapped already when the trace began; value: enum trace_present */
	TRACE_NAME = 11,    /* the file of this key is called so, relative to the share */
	TRACE_BEGIN = 12,   /* a session begins: nothing is mapped; value: window size, pages */
	TRACE_END = 13,	    /* a session ends: nothing is mapped any more */
	TRACE_POLICY = 14,  /* DAX for this file: value 1 allowed, 0 refused */
	TRACE_KINDS = 15,
};

enum trace_present {
	TRACE_PRESENT_LIVE = 0,
	TRACE_PRESENT_LINGERING = 1,
};

#define TRACE_KIND_MASK 0x1fu
#define TRACE_SAME_FILE 0x20u
#define TRACE_SAME_LEN 0x40u
#define TRACE_WRITE 0x80u

enum trace_field {
	TRACE_F_FILE = 1u << 0,
	TRACE_F_PLACE = 1u << 1,
	TRACE_F_WINDOW = 1u << 2,
	TRACE_F_COST = 1u << 3,
	TRACE_F_MAPPED = 1u << 4,
	TRACE_F_VALUE = 1u << 5,
	TRACE_F_NAME = 1u << 6,
};

/** trace_kind_fields() - enum trace_field of @kind; 0 also of what is no kind */
static inline unsigned int trace_kind_fields(unsigned int kind)
{
	const unsigned int range = TRACE_F_FILE | TRACE_F_PLACE | TRACE_F_WINDOW;

	switch ((enum trace_kind)kind) {
	case TRACE_SETUP:
	case TRACE_OVERLAY:
	case TRACE_MAP:
	case TRACE_UNMAP:
		return range | TRACE_F_COST | TRACE_F_MAPPED;
	case TRACE_REMOVE:
	case TRACE_REVIVE:
	case TRACE_CANCEL:
	case TRACE_PIN:
		return range;
	case TRACE_PRESENT:
		return range | TRACE_F_VALUE;
	case TRACE_ACCESS:
		return TRACE_F_FILE | TRACE_F_PLACE;
	case TRACE_NAME:
		return TRACE_F_FILE | TRACE_F_NAME;
	case TRACE_POLICY:
		return TRACE_F_FILE | TRACE_F_VALUE;
	case TRACE_BEGIN:
		return TRACE_F_VALUE;
	case TRACE_END:
	case TRACE_KINDS:
		break;
	}
	return 0;
}

/** enum trace_seat - who recorded */
enum trace_seat {
	TRACE_SEAT_HOST = 0,  /* the daemon: setups and removes are known, hits are not */
	TRACE_SEAT_GUEST = 1, /* a user-space guest: TRACE_ACCESS for every use */
};

/** enum trace_ending - how the file came to its end */
enum trace_ending {
	TRACE_OPEN = 0,	   /* it did not: being recorded, or the recorder was killed */
	TRACE_STOPPED = 1, /* as asked */
	TRACE_FULL = 2,	   /* the size cap was reached; the rest is counted as lost */
	TRACE_ERROR = 3,   /* a write failed, as on a full disk; the rest is counted as lost */
};

/**
 * struct trace_file_header - the first bytes of the file; the rest of TRACE_HEADER_SIZE is zero
 * @magic: TRACE_MAGIC
 * @version: TRACE_VERSION
 * @header_size: TRACE_HEADER_SIZE
 * @block_size: TRACE_BLOCK_SIZE
 * @crc: of TRACE_HEADER_SIZE bytes
 * @seat: enum trace_seat
 * @ending: enum trace_ending
 * @window_size: bytes; 0 = not known
 * @granule: alignment of what the driver maps, bytes
 * @slot_size: bytes of one slot: what the guest asks for at a time
 * @budget: live mappings that the other side bears; 0 = no limit known
 * @caps: enum dm_window_flags of the driver
 * @batch: operations that one call of the driver takes
 * @start_real_ns: wall clock when it began, since the epoch; event times count from here
 * @end_ns: time of the end, counted as events are; from here on 0 in an open file
 * @blocks: blocks in the file
 * @events: events in them
 * @lost: events that were not recorded
 * @torn_block: index of a block that the failed write may have spoiled; UINT64_MAX = none
 * @error: errno of the failed write
 * @driver: name, NUL-padded
 * @producer: program and version, NUL-padded
 */
struct trace_file_header {
	char magic[8];
	uint32_t version;
	uint32_t header_size;
	uint32_t block_size;
	uint32_t crc;
	uint32_t seat;
	uint32_t ending;
	uint64_t window_size;
	uint64_t granule;
	uint64_t slot_size;
	uint32_t budget;
	uint32_t caps;
	uint32_t batch;
	uint32_t pad0;
	uint64_t start_real_ns;
	uint64_t end_ns;
	uint64_t blocks;
	uint64_t events;
	uint64_t lost;
	uint64_t torn_block;
	uint32_t error;
	uint32_t pad1;
	char driver[16];
	char producer[32];
};

_Static_assert(sizeof(struct trace_file_header) == 176, "a layout on disk");

/**
 * struct trace_block_header - the first bytes of a block
 * @magic: TRACE_BLOCK_MAGIC
 * @crc: of these bytes and the @used behind them
 * @index: place in the file, 0 for the first block
 * @stream: which stream
 * @stream_seq: number within the stream, from 0
 * @used: bytes of events behind this header; what follows them is undefined
 * @events: how many
 * @lost: events that the stream lost between its block before and this one
 * @first_ns: time from which the first event's time counts
 */
struct trace_block_header {
	uint32_t magic;
	uint32_t crc;
	uint64_t index;
	uint32_t stream;
	uint32_t stream_seq;
	uint32_t used;
	uint32_t events;
	uint64_t lost;
	uint64_t first_ns;
	uint64_t pad[2];
};

_Static_assert(sizeof(struct trace_block_header) == 64, "a layout on disk");

#define TRACE_BLOCK_DATA (TRACE_BLOCK_SIZE - sizeof(struct trace_block_header))
/* An event without a name is never longer. */
#define TRACE_EVENT_MAX 96u

#endif
