// SPDX-License-Identifier: Apache-2.0
/*
 * The window under the load. A strict VMM bears about 500 mappings; the table is told so, for it
 * could learn it only by being refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "load_dax.h"
#include "load_layout.h"
#include "trace_writer.h"

#define STRICT_MAPPINGS 480u
#define LINE 64u
#define NOTE_EACH 8u /* reads; an average needs no more */

struct load_dax {
	struct guest_files *fs;
	struct guest_file **files;
	unsigned int nfiles;
	bool mmap_like;
	struct trace_writer *trace;
	struct dm_trace tap;
};

enum guest_admission load_dax_admission(const struct load_config *c)
{
	if (c->admission >= 0)
		return (enum guest_admission)c->admission;
	if (c->engine == LOAD_ENGINE_AUTO)
		return GUEST_ADMIT_ADAPTIVE;
	/* Who wants a pointer waits for it, and so does the baseline. */
	return c->mmap_like || c->reclaim == LOAD_RECLAIM_VANILLA ? GUEST_ADMIT_ALWAYS
								  : GUEST_ADMIT_EAGER;
}

struct guest_files *load_dax_files(struct load_run *run, char **why)
{
	const struct load_config *c = run->config;
	g_autoptr(GError) error = NULL;
	struct guest_files_config fc = {
		.admission = load_dax_admission(c),
		.window = c->window,
		.max_mappings = c->window_mode == GUEST_WINDOW_STRICT ? STRICT_MAPPINGS : 0,
		.cache.slot_size = c->slot,
		.cache.wait_ms = c->timeout * 1000,
		.cache.vanilla = c->reclaim == LOAD_RECLAIM_VANILLA,
	};
	struct guest_files *fs = guest_files_new(run->fuse, &fc, &error);

	if (!fs)
		*why = g_strdup(error->message);
	return fs;
}

static bool start_trace(struct load_dax *d, struct load_run *run, char **why)
{
	struct guest_window *w = guest_frontend_window(run->fe);
	const struct load_config *c = run->config;
	const uint64_t have = guest_window_size(w);
	const struct trace_writer_config tc = {
		.info = {.seat = TRACE_SEAT_GUEST,
			 .window_size = c->window ? MIN(c->window, have) : have,
			 .granule = 4096,
			 .slot_size = c->slot,
			 .budget = c->window_mode == GUEST_WINDOW_STRICT ? STRICT_MAPPINGS : 0,
			 .caps = DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT | DM_WINDOW_BEYOND_EOF,
			 .batch = 255,
			 .driver = "fuse"},
	};
	const struct trace_event begin = {
		.kind = TRACE_BEGIN,
		.value = tc.info.window_size >> TRACE_PAGE_SHIFT,
	};
	g_autoptr(GError) error = NULL;
	int fd = trace_file_create(c->trace, &error);

	d->trace = fd >= 0 ? trace_writer_new(fd, &tc, &error) : NULL;
	if (!d->trace) {
		*why = g_strdup_printf("--dax-trace: %s", error->message);
		return false;
	}
	trace_record(d->trace, &begin);
	for (unsigned int i = 0; i < c->files; i++) {
		g_autofree char *name = load_layout_name(run, i);
		g_autofree char *path = g_strdup_printf("%s/%s", c->dir, name);
		const struct trace_event e = {
			.kind = TRACE_NAME,
			.file = guest_file_key(d->files[i]),
			.name = path,
		};

		trace_record(d->trace, &e);
	}
	d->tap = (struct dm_trace){.fn = trace_writer_tap, .ctx = d->trace};
	guest_files_set_trace(d->fs, &d->tap);
	run->trace = d->trace;
	return true;
}

struct load_dax *load_dax_new(struct load_run *run, char **why)
{
	const struct load_config *c = run->config;
	struct load_dax *d = g_new0(struct load_dax, 1);

	d->mmap_like = c->mmap_like;
	d->fs = load_dax_files(run, why);
	if (d->fs && !guest_files_has_window(d->fs))
		*why = g_strdup("the back-end offers no window");
	for (unsigned int i = 0; !*why && i < c->files; i++) {
		const struct load_file *f = &run->files[i];
		struct fuse_entry_out e = {.nodeid = f->node, .attr.size = run->per_file};

		if (!i)
			d->files = g_new0(struct guest_file *, c->files);
		e.attr.mode = S_IFREG;
		e.attr.flags = f->dax ? FUSE_ATTR_DAX : 0;
		d->files[d->nfiles++] = guest_file_adopt(d->fs, &e, f->fh, O_RDWR);
		if (!guest_file_can_map(d->files[i]))
			*why = g_strdup_printf("the back-end says that files of %" G_GUINT64_FORMAT
					       " bytes cannot be mapped",
					       run->per_file);
	}
	if (!*why && c->trace)
		start_trace(d, run, why);
	if (*why) {
		load_dax_free(d);
		return NULL;
	}
	return d;
}

struct guest_files *load_dax_of(struct load_dax *d)
{
	return d->fs;
}

void load_dax_free(struct load_dax *d)
{
	if (!d)
		return;
	if (d->trace)
		guest_files_set_trace(d->fs, NULL);
	trace_writer_free(d->trace, NULL);
	for (unsigned int i = 0; i < d->nfiles; i++)
		guest_file_close(d->files[i]);
	guest_files_free(d->fs);
	g_free(d->files);
	g_free(d);
}

struct dm_file_key load_dax_key(const struct load_dax *d, unsigned int file)
{
	return guest_file_key(d->files[file]);
}

/* As a program that has the file mapped: every cache line, in place. */
static void touch(void *p, const void *buf, uint64_t len, bool write)
{
	volatile uint64_t *w = p;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < len / 8; i += LINE / 8) {
		if (write)
			w[i] = ((const uint64_t *)buf)[i];
		else
			sum += w[i];
	}
	(void)sum;
}

int load_dax_io(struct load_dax *d, unsigned int file, uint64_t offset, void *buf, uint64_t len,
		bool write)
{
	struct guest_file *f = d->files[file];

	while (len) {
		struct dm_ref ref;
		uint64_t n;
		int err = guest_file_admit(f, offset, len, write, &ref);

		if (err)
			return err;
		n = ref.len;
		if (d->mmap_like)
			touch(ref.addr, buf, n, write);
		else
			memcpy(write ? ref.addr : buf, write ? buf : ref.addr, n);
		guest_file_put(f, &ref);
		buf = (char *)buf + n;
		offset += n;
		len -= n;
	}
	return 0;
}

void load_dax_note_read(struct load_dax *d, uint64_t start_ns, unsigned int in_flight)
{
	static __thread unsigned int n;

	if (n++ % NOTE_EACH)
		return;
	guest_files_note_read(d->fs, util_now_ns() - start_ns, in_flight);
}

void load_dax_counts(struct guest_files *fs, struct load_dax_counts *out)
{
	struct dm_stats s;

	guest_files_stats(fs, &s);
	*out = (struct load_dax_counts){
		.hits = s.hits,
		.maps = s.maps,
		.removes = s.unmaps,
		.elided = s.elided_revived + s.elided_overlaid + s.elided_cancelled,
		.reclaimed = s.reclaimed + s.reclaim_inline,
	};
}
