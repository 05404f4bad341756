// SPDX-License-Identifier: Apache-2.0
#include "sim_replay.h"

#define SPAN_MAX (1u << 20)

/* Sums of a least-squares line. */
struct line {
	double n, x, y, xx, xy;
};

static void line_add(struct line *l, double x, double y)
{
	l->n++;
	l->x += x;
	l->y += y;
	l->xx += x * x;
	l->xy += x * y;
}

/* y = *a + *b * x; neither is negative. */
static void line_fit(const struct line *l, double *a, double *b)
{
	double d = l->n * l->xx - l->x * l->x;

	*a = *b = 0;
	if (l->n < 1)
		return;
	if (d > 1e-9 * l->n * l->xx)
		*b = MAX(0, (l->n * l->xy - l->x * l->y) / d);
	*a = (l->y - *b * l->x) / l->n;
	if (*a < 0) {
		*a = 0;
		*b = l->xx > 0 ? l->xy / l->xx : 0;
	}
}

bool sim_survey(struct trace_reader *r, struct sim_survey *out, GError **error)
{
	struct line map = {0}, unmap = {0};
	struct trace_event e;
	int got;

	*out = (struct sim_survey){0};
	while ((got = trace_reader_next(r, &e, error)) > 0) {
		switch (e.kind) {
		case TRACE_ACCESS:
			out->accesses++;
			break;
		case TRACE_SETUP:
			out->setups++;
			break;
		case TRACE_REMOVE:
			out->removes++;
			break;
		case TRACE_MAP:
			/* counted with itself */
			line_add(&map, e.mapped ? e.mapped - 1 : 0, (double)e.ns);
			break;
		case TRACE_UNMAP:
			line_add(&unmap, e.mapped, (double)e.ns);
			break;
		default:
			break;
		}
	}
	out->files = trace_reader_files(r);
	out->fit.maps = (uint64_t)map.n;
	out->fit.unmaps = (uint64_t)unmap.n;
	line_fit(&map, &out->fit.cost.map, &out->fit.cost.map_live);
	line_fit(&unmap, &out->fit.cost.unmap, &out->fit.cost.unmap_live);
	return got == 0;
}

static void feed_caches(const struct trace_event *e, uint64_t slot_size,
			struct sim_cache *const *caches, size_t n)
{
	uint64_t first = e->file_offset / slot_size;
	uint64_t last = e->len ? (e->file_offset + e->len - 1) / slot_size : first;

	/* No real access is that long; a hostile trace must not keep us for ever. */
	last = MIN(last, first + SPAN_MAX);
	for (uint64_t i = first; i <= last; i++)
		for (size_t c = 0; c < n; c++)
			sim_cache_access(caches[c], e->file_id, i);
}

static bool drop_caches(const struct trace_event *e, struct sim_cache *const *caches, size_t n)
{
	if (e->kind != TRACE_BEGIN && e->kind != TRACE_END)
		return false;
	for (size_t c = 0; c < n; c++)
		sim_cache_drop(caches[c]);
	return true;
}

bool sim_replay_caches(struct trace_reader *r, uint64_t slot_size, bool accesses,
		       struct sim_cache *const *caches, size_t n, GError **error)
{
	const uint8_t use = accesses ? TRACE_ACCESS : TRACE_SETUP;
	struct trace_event e;
	int got;

	while ((got = trace_reader_next(r, &e, error)) > 0)
		if (e.kind == use)
			feed_caches(&e, slot_size, caches, n);
		else
			drop_caches(&e, caches, n);
	return got == 0;
}

bool sim_replay_table(struct trace_reader *r, struct sim_table *t, GError **error)
{
	struct trace_event e;
	int got;

	while ((got = trace_reader_next(r, &e, error)) > 0) {
		switch (e.kind) {
		case TRACE_SETUP:
			sim_table_setup(t, e.offset, e.len, e.file_id, e.file_offset);
			break;
		case TRACE_REMOVE:
			sim_table_remove(t, e.offset, e.len);
			break;
		case TRACE_PRESENT:
			sim_table_present(t, e.offset, e.len, e.file_id, e.file_offset,
					  e.value == TRACE_PRESENT_LINGERING);
			break;
		case TRACE_BEGIN:
		case TRACE_END:
			sim_table_drop(t);
			break;
		default:
			break;
		}
	}
	return got == 0;
}
