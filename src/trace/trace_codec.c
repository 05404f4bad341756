// SPDX-License-Identifier: Apache-2.0
#include "trace_codec.h"

#define PAGES_MAX (1ull << (63 - TRACE_PAGE_SHIFT))

/* --- CRC-32C, reflected: polynomial 0x82f63b78 --- */

uint32_t trace_crc32c_portable(uint32_t crc, const void *p, size_t len)
{
	static uint32_t table[256];
	static gsize made;
	const uint8_t *b = p;

	if (g_once_init_enter(&made)) {
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t c = i;

			for (int bit = 0; bit < 8; bit++)
				c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
			table[i] = c;
		}
		g_once_init_leave(&made, 1);
	}
	crc = ~crc;
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *b++) & 0xff];
	return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse(uint32_t crc, const uint8_t *b,
							  size_t len)
{
	uint64_t c = ~crc;

	for (; len >= 8; len -= 8, b += 8) {
		uint64_t v;

		memcpy(&v, b, 8);
		c = __builtin_ia32_crc32di(c, v);
	}
	while (len--)
		c = __builtin_ia32_crc32qi((uint32_t)c, *b++);
	return ~(uint32_t)c;
}

uint32_t trace_crc32c(uint32_t crc, const void *p, size_t len)
{
	if (__builtin_cpu_supports("sse4.2"))
		return crc_sse(crc, p, len);
	return trace_crc32c_portable(crc, p, len);
}
#else
uint32_t trace_crc32c(uint32_t crc, const void *p, size_t len)
{
	return trace_crc32c_portable(crc, p, len);
}
#endif

/* --- encoding --- */

static uint8_t *put_name(uint8_t *p, const char *name)
{
	size_t n = MIN(strlen(name), TRACE_NAME_MAX);

	p = trace_put_varint(p, n);
	memcpy(p, name, n);
	return p + n;
}

uint8_t *trace_encode(struct trace_context *x, uint8_t *p, const struct trace_event *e)
{
	unsigned int fields = trace_kind_fields(e->kind);
	unsigned int kind = e->kind | (e->write ? TRACE_WRITE : 0);
	uint64_t page, pages = trace_pages(e->file_offset, e->len, &page);
	uint64_t at = e->offset >> TRACE_PAGE_SHIFT;

	p = trace_put_common(x, p, kind, fields, e->time_ns, e->file, page, pages);
	if (fields & TRACE_F_WINDOW) {
		p = trace_put_delta(p, at, x->window_end);
		x->window_end = at + pages;
	}
	if (fields & TRACE_F_COST)
		p = trace_put_varint(p, e->ns);
	if (fields & TRACE_F_MAPPED)
		p = trace_put_varint(p, e->mapped);
	if (fields & TRACE_F_VALUE)
		p = trace_put_varint(p, e->value);
	if (fields & TRACE_F_NAME)
		p = put_name(p, e->name);
	return p;
}

/* --- decoding --- */

struct cursor {
	const uint8_t *p;
	const uint8_t *end;
	bool bad;
};

static inline uint64_t get_varint(struct cursor *c)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; c->p < c->end; shift += 7) {
		uint8_t b = *c->p++;

		if (shift == 63 && b > 1)
			break;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	c->bad = true;
	return 0;
}

static inline uint64_t get_delta(struct cursor *c, uint64_t last)
{
	uint64_t z = get_varint(c);

	return last + (z >> 1 ^ (0 - (z & 1)));
}

static void get_place(struct trace_context *x, struct cursor *c, unsigned int head,
		      struct trace_event *e)
{
	uint64_t page = get_delta(c, x->place_end);

	if (!(head & TRACE_SAME_LEN))
		x->pages = get_varint(c);
	if (page >= PAGES_MAX || x->pages >= PAGES_MAX || page + x->pages > PAGES_MAX) {
		c->bad = true;
		return;
	}
	x->place_end = page + x->pages;
	e->file_offset = page << TRACE_PAGE_SHIFT;
	e->len = x->pages << TRACE_PAGE_SHIFT;
}

static void get_window(struct trace_context *x, struct cursor *c, struct trace_event *e)
{
	uint64_t page = get_delta(c, x->window_end);

	if (page >= PAGES_MAX || page + x->pages > PAGES_MAX) {
		c->bad = true;
		return;
	}
	x->window_end = page + x->pages;
	e->offset = page << TRACE_PAGE_SHIFT;
}

static void get_name(struct cursor *c, struct trace_event *e, char *name)
{
	uint64_t n = get_varint(c);

	if (c->bad || !n || n > TRACE_NAME_MAX || n > (uint64_t)(c->end - c->p) ||
	    memchr(c->p, 0, n)) {
		c->bad = true;
		return;
	}
	memcpy(name, c->p, n);
	name[n] = '\0';
	c->p += n;
	e->name = name;
}

const uint8_t *trace_decode(struct trace_context *x, const uint8_t *p, const uint8_t *end,
			    struct trace_event *e, char *name)
{
	struct cursor c = {p, end, false};
	unsigned int head, fields;

	memset(e, 0, sizeof(*e));
	if (c.p >= c.end)
		return NULL;
	head = *c.p++;
	e->kind = head & TRACE_KIND_MASK;
	e->write = head & TRACE_WRITE;
	if (!trace_kind_name(e->kind))
		return NULL;
	fields = trace_kind_fields(e->kind);
	x->time_ns += get_varint(&c);
	e->time_ns = x->time_ns;
	if (fields & TRACE_F_FILE && !(head & TRACE_SAME_FILE)) {
		x->file.hi = get_delta(&c, x->file.hi);
		x->file.lo = get_delta(&c, x->file.lo);
	}
	if (fields & TRACE_F_FILE)
		e->file = x->file;
	if (fields & TRACE_F_PLACE)
		get_place(x, &c, head, e);
	if (fields & TRACE_F_WINDOW)
		get_window(x, &c, e);
	if (fields & TRACE_F_COST)
		e->ns = get_varint(&c);
	if (fields & TRACE_F_MAPPED)
		e->mapped = (uint32_t)get_varint(&c);
	if (fields & TRACE_F_VALUE)
		e->value = get_varint(&c);
	if (fields & TRACE_F_NAME)
		get_name(&c, e, name);
	return c.bad ? NULL : c.p;
}

bool trace_check_block(const uint8_t *data, uint32_t used, uint32_t events)
{
	struct trace_context x = {0};
	const uint8_t *p = data, *end = data + used;
	struct trace_event e;
	char name[TRACE_NAME_MAX + 1];

	for (; events && p; events--)
		p = trace_decode(&x, p, end, &e, name);
	return p == end;
}
