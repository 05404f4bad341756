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

#define STRICT_MAPPINGS 480u
#define LINE 64u

struct load_dax {
	struct guest_files *fs;
	struct guest_file **files;
	unsigned int nfiles;
	bool mmap_like;
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
		.cache.wait_ms = c->timeout * 1000,
		.cache.vanilla = c->reclaim == LOAD_RECLAIM_VANILLA,
	};
	struct guest_files *fs = guest_files_new(run->fuse, &fc, &error);

	if (!fs)
		*why = g_strdup(error->message);
	return fs;
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
	for (unsigned int i = 0; i < d->nfiles; i++)
		guest_file_close(d->files[i]);
	guest_files_free(d->fs);
	g_free(d->files);
	g_free(d);
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
