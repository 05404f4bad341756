// SPDX-License-Identifier: Apache-2.0
/*
 * The first pass. It says whether hits are known, how many granules there are (hence whether the
 * second pass must sample), what maps cost, and which files matter.
 */
#include "size_int.h"

#include <string.h>

struct scan {
	struct size_scan *out;
	struct size_distinct *distinct;
	struct size_blocks *known; /* granules that have been counted for their file */
	unsigned int shift;	   /* of the source's granule */
	uint64_t setup_ns, map_ns, accesses;
	uint64_t mapped_sum, mapped_n;
	bool full;
};

G_DEFINE_QUARK(size - error, size_error)

uint32_t size_scan_file(const struct size_scan *s, uint64_t hi, uint64_t lo)
{
	uint32_t id;

	return size_blocks_lookup(s->file_ids, size_block_key(hi, lo, 0), &id) ? id : SIZE_NO_FILE;
}

static struct size_seen *file_of(struct size_scan *s, const struct size_event *e)
{
	uint32_t id;
	bool is_new;

	if (!size_blocks_find(s->file_ids, size_block_key(e->file_hi, e->file_lo, 0), &id, &is_new))
		return NULL;
	if (is_new) {
		struct size_seen f = {.hi = e->file_hi, .lo = e->file_lo};

		g_array_append_val(s->files, f);
	}
	return &g_array_index(s->files, struct size_seen, id);
}

static uint64_t granules(const struct scan *s, const struct size_event *e, uint64_t *first)
{
	uint64_t last;

	*first = e->file_offset >> s->shift;
	if (!e->len || __builtin_add_overflow(e->file_offset, e->len - 1, &last))
		return 0;
	return MIN((last >> s->shift) - *first + 1, SIZE_EVENT_GRANULES);
}

static void note_use(struct scan *s, const struct size_event *e, bool present)
{
	struct size_totals *t = &s->out->totals;
	struct size_seen *f = file_of(s->out, e);
	uint64_t first, n = granules(s, e, &first);

	for (uint64_t i = 0; i < n; i++) {
		uint64_t key = size_block_key(e->file_hi, e->file_lo, first + i);
		bool is_new;
		uint32_t id;

		size_distinct_add(s->distinct, key);
		if (size_blocks_find(s->known, key, &id, &is_new) && is_new && f)
			f->blocks++;
	}
	if (present)
		return;
	if (f)
		f->uses += n;
	t->bytes += e->len;
}

static void note_map(struct scan *s, const struct size_event *e)
{
	struct size_scan *o = s->out;

	o->totals.maps++;
	s->map_ns += e->ns;
	size_cost_add(o->map, e->mapped, e->ns);
	if (s->full) {
		s->mapped_sum += e->mapped;
		s->mapped_n++;
	}
}

static void note(struct scan *s, const struct size_event *e, bool guest_seat)
{
	struct size_totals *t = &s->out->totals;
	struct size_seen *f;

	if (!t->events++)
		t->first_ns = e->at_ns;
	t->last_ns = MAX(t->last_ns, e->at_ns);
	t->mapped_max = MAX(t->mapped_max, e->mapped);
	switch (e->kind) {
	case SIZE_ACCESS:
		s->accesses++;
		note_use(s, e, false);
		break;
	case SIZE_SETUP:
		t->setups++;
		s->setup_ns += e->ns;
		if (!guest_seat)
			note_use(s, e, false);
		break;
	case SIZE_REVIVE:
		t->revived++;
		break;
	case SIZE_REMOVE:
		t->removes++;
		break;
	case SIZE_MAP:
		note_map(s, e);
		f = guest_seat ? file_of(s->out, e) : NULL;
		if (f)
			f->misses++;
		break;
	case SIZE_UNMAP:
		t->unmaps++;
		s->full = true;
		size_cost_add(s->out->unmap, e->mapped, e->ns);
		break;
	case SIZE_OVERLAY:
		t->overlays++;
		s->full = true;
		break;
	case SIZE_PRESENT:
		t->present++;
		note_use(s, e, true);
		break;
	case SIZE_BEGIN:
		t->sessions++;
		break;
	case SIZE_OTHER:
		break;
	}
}

static void finish(struct scan *s, bool guest_seat)
{
	struct size_scan *o = s->out;
	struct size_totals *t = &o->totals;

	o->hits_known = guest_seat && s->accesses > 0;
	t->distinct = size_distinct_count(s->distinct);
	t->shift = size_distinct_shift(s->distinct);
	t->files = o->files->len;
	t->misses = guest_seat ? t->maps : t->setups;
	o->maps_a_miss = 1;
	if (!guest_seat && t->setups) {
		o->maps_a_miss = MIN((double)t->maps / (double)t->setups, 1);
		if (s->setup_ns > s->map_ns)
			o->extra_ns = (double)(s->setup_ns - s->map_ns) / (double)t->setups;
	}
	if (s->mapped_n)
		o->mapped_mean = (double)s->mapped_sum / (double)s->mapped_n;
	for (guint i = 0; i < o->files->len && !guest_seat; i++) {
		struct size_seen *f = &g_array_index(o->files, struct size_seen, i);

		f->misses = f->uses;
	}
}

static bool read_all(struct scan *s, struct size_source *source, GError **error)
{
	g_autofree struct size_event *e = g_new(struct size_event, SIZE_BATCH);
	gssize n;

	if (!source->rewind(source->ctx, error))
		return false;
	while ((n = source->next(source->ctx, e, SIZE_BATCH, error)) > 0)
		for (gssize i = 0; i < n; i++)
			note(s, &e[i], source->guest_seat);
	return n == 0;
}

bool size_scan_read(struct size_source *source, struct size_scan *out, GError **error)
{
	struct scan s = {.out = out, .shift = (unsigned int)__builtin_ctzll(source->granule)};
	bool good;

	memset(out, 0, sizeof(*out));
	out->map = size_cost_new();
	out->unmap = size_cost_new();
	out->file_ids = size_blocks_new(0);
	out->files = g_array_new(FALSE, FALSE, sizeof(struct size_seen));
	s.distinct = size_distinct_new();
	s.known = size_blocks_new(0);
	good = read_all(&s, source, error);
	if (good)
		finish(&s, source->guest_seat);
	size_distinct_free(s.distinct);
	size_blocks_free(s.known);
	return good;
}

void size_scan_clear(struct size_scan *s)
{
	size_cost_free(s->map);
	size_cost_free(s->unmap);
	size_blocks_free(s->file_ids);
	if (s->files)
		g_array_unref(s->files);
	memset(s, 0, sizeof(*s));
}
