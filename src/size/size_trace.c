// SPDX-License-Identifier: Apache-2.0
#include "size_trace.h"

#include "util_overflow.h"

#define GRANULE_USUAL (UINT64_C(2) << 20)

static bool from_start(void *ctx, GError **error)
{
	trace_reader_rewind(ctx);
	return true;
}

static enum size_kind kind_of(const struct trace_event *t)
{
	switch ((enum trace_kind)t->kind) {
	case TRACE_ACCESS:
		return SIZE_ACCESS;
	case TRACE_SETUP:
		return SIZE_SETUP;
	case TRACE_REVIVE:
	case TRACE_CANCEL:
		return SIZE_REVIVE;
	case TRACE_REMOVE:
		return SIZE_REMOVE;
	case TRACE_MAP:
		return SIZE_MAP;
	case TRACE_UNMAP:
		return SIZE_UNMAP;
	case TRACE_OVERLAY:
		return SIZE_OVERLAY;
	case TRACE_PRESENT:
		return t->value == TRACE_PRESENT_LIVE ? SIZE_PRESENT : SIZE_OTHER;
	case TRACE_BEGIN:
		return SIZE_BEGIN;
	default:
		return SIZE_OTHER;
	}
}

static gssize next(void *ctx, struct size_event *e, size_t n, GError **error)
{
	struct trace_event t;
	gssize got = 0;
	int rc = 1;

	while ((size_t)got < n && (rc = trace_reader_next(ctx, &t, error)) > 0)
		e[got++] = (struct size_event){
			.kind = kind_of(&t),
			.mapped = t.mapped,
			.at_ns = t.time_ns,
			.ns = t.ns,
			.file_hi = t.file.hi,
			.file_lo = t.file.lo,
			.file_offset = t.file_offset,
			.len = t.len,
		};
	return rc < 0 ? -1 : got;
}

/* The last name that its key had. */
static char *name_of(void *ctx, uint64_t hi, uint64_t lo)
{
	const char *name = NULL;

	for (uint32_t i = 0; i < trace_reader_files(ctx); i++) {
		const struct trace_file *f = trace_reader_file(ctx, i);

		if (f->key.hi == hi && f->key.lo == lo && f->name)
			name = f->name;
	}
	return g_strdup(name);
}

/* What a guest asks for at a time; where the file does not say, what Linux does. */
static uint64_t granule_of(const struct trace_info *info)
{
	return util_is_pow2(info->slot_size) && info->slot_size >= 1u << TRACE_PAGE_SHIFT
		       ? info->slot_size
		       : GRANULE_USUAL;
}

bool size_trace_open(struct size_source *s, const char *path, unsigned int flags, GError **error)
{
	struct trace_reader *r = trace_reader_open(path, flags, error);
	const struct trace_info *info;

	if (!r)
		return false;
	info = trace_reader_info(r);
	*s = (struct size_source){
		.rewind = from_start,
		.next = next,
		.name = name_of,
		.ctx = r,
		.window = info->window_size,
		.granule = granule_of(info),
		.budget = info->budget,
		.guest_seat = info->seat == TRACE_SEAT_GUEST,
	};
	return true;
}

void size_trace_close(struct size_source *s)
{
	trace_reader_free(s->ctx);
	s->ctx = NULL;
}

const struct trace_reader *size_trace_reader(const struct size_source *s)
{
	return s->ctx;
}
