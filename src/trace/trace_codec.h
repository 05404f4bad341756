/* SPDX-License-Identifier: Apache-2.0 */
/* Events to bytes and back; see trace_format.h. Private to this folder. */
#ifndef DAXMAP_TRACE_CODEC_H
#define DAXMAP_TRACE_CODEC_H

#include <string.h>

#include "trace.h"

/** struct trace_context - what "last" means; zero at the start of a block, but for the time */
struct trace_context {
	uint64_t time_ns;
	struct dm_file_key file;
	uint64_t place_end; /* pages */
	uint64_t window_end;
	uint64_t pages;
};

/** trace_crc32c() - of @len bytes, going on from @crc (0 at the start) */
uint32_t trace_crc32c(uint32_t crc, const void *p, size_t len);
/** trace_crc32c_portable() - the same where the CPU does not help; for tests */
uint32_t trace_crc32c_portable(uint32_t crc, const void *p, size_t len);

static inline uint8_t *trace_put_varint(uint8_t *p, uint64_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

static inline uint8_t *trace_put_delta(uint8_t *p, uint64_t v, uint64_t last)
{
	uint64_t d = v - last;

	return trace_put_varint(p, d << 1 ^ (0 - (d >> 63)));
}

/* The head, the time, the file and the place: what every access has. */
static inline uint8_t *trace_put_common(struct trace_context *x, uint8_t *p, unsigned int kind,
					unsigned int fields, uint64_t time_ns,
					struct dm_file_key file, uint64_t page, uint64_t pages)
{
	uint8_t *head = p++;
	unsigned int flags = 0;
	/* Two threads may come to one stream in another order than they looked at the clock. */
	uint64_t now = time_ns > x->time_ns ? time_ns : x->time_ns;

	p = trace_put_varint(p, now - x->time_ns);
	x->time_ns = now;
	if (fields & TRACE_F_FILE) {
		if (dm_file_key_equal(file, x->file)) {
			flags |= TRACE_SAME_FILE;
		} else {
			p = trace_put_delta(p, file.hi, x->file.hi);
			p = trace_put_delta(p, file.lo, x->file.lo);
			x->file = file;
		}
	}
	if (fields & TRACE_F_PLACE) {
		p = trace_put_delta(p, page, x->place_end);
		if (pages == x->pages)
			flags |= TRACE_SAME_LEN;
		else
			p = trace_put_varint(p, pages);
		x->pages = pages;
		x->place_end = page + pages;
	}
	*head = (uint8_t)(kind | flags);
	return p;
}

/* First page and number of pages that hold the bytes. */
static inline uint64_t trace_pages(uint64_t offset, uint64_t len, uint64_t *page)
{
	const uint64_t mask = (1ull << TRACE_PAGE_SHIFT) - 1;

	*page = offset >> TRACE_PAGE_SHIFT;
	return ((offset & mask) + len + mask) >> TRACE_PAGE_SHIFT;
}

/** trace_encode() - writes @e (its kind must be one) at @p, where TRACE_EVENT_MAX bytes and those
 * of the name are free; the byte behind. A name longer than TRACE_NAME_MAX is cut. */
uint8_t *trace_encode(struct trace_context *x, uint8_t *p, const struct trace_event *e);

/** trace_decode() - reads one event of [@p, @end) into @e; a name goes to @name, of
 * TRACE_NAME_MAX + 1 bytes. The byte behind, or NULL when it is no event. */
const uint8_t *trace_decode(struct trace_context *x, const uint8_t *p, const uint8_t *end,
			    struct trace_event *e, char *name);

/** trace_check_block() - are @used bytes at @data just @events events? */
bool trace_check_block(const uint8_t *data, uint32_t used, uint32_t events);

#endif
