// SPDX-License-Identifier: Apache-2.0
/*
 * Files that are there already, as one who maps them sees them: what can be mapped is summed up
 * where it is mapped, the rest is read by request.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "load_dax.h"
#include "load_sum.h"

#define CHUNK (1u << 20)

struct sum {
	struct load_run *run;
	struct guest_files *fs;
	GChecksum *md5;
	char *buf;
	uint64_t mapped; /* bytes that came through the window */
	uint64_t read;	 /* by request */
	unsigned int files;
};

/* Some bytes at @at, or a negative errno; 0 at the end. */
static ssize_t step(struct sum *s, struct guest_file *f, uint64_t at)
{
	uint64_t size = guest_file_size(f);
	struct dm_ref ref;
	ssize_t n;

	if (at < size && guest_file_get(f, at, size - at, false, &ref) == 0) {
		g_checksum_update(s->md5, ref.addr, (gssize)ref.len);
		n = (ssize_t)ref.len;
		guest_file_put(f, &ref);
		s->mapped += (uint64_t)n;
		return n;
	}
	n = guest_file_read(f, s->buf, CHUNK, at);
	if (n > 0) {
		g_checksum_update(s->md5, (const guchar *)s->buf, n);
		s->read += (uint64_t)n;
	}
	return n;
}

static int one(struct sum *s, const char *path)
{
	int err;
	struct guest_file *f = guest_file_open(s->fs, path, O_RDONLY, &err);
	uint64_t at = 0;
	ssize_t n = 1;

	if (!f) {
		load_run_fail(s->run, err, "cannot open '%s'", path);
		return err;
	}
	g_checksum_reset(s->md5);
	while (n > 0) {
		n = step(s, f, at);
		at += n > 0 ? (uint64_t)n : 0;
	}
	guest_file_close(f);
	if (n < 0) {
		load_run_fail(s->run, (int)n, "cannot read '%s'", path);
		return (int)n;
	}
	s->files++;
	printf("%s  %s\n", g_checksum_get_string(s->md5), path);
	return 0;
}

int load_sum(struct load_run *run)
{
	g_autoptr(GChecksum) md5 = g_checksum_new(G_CHECKSUM_MD5);
	g_autofree char *buf = g_malloc(CHUNK);
	g_autofree char *why = NULL;
	struct sum s = {.run = run, .md5 = md5, .buf = buf};
	struct load_dax_counts counts;
	int err = 0;

	s.fs = load_dax_files(run, &why);
	if (!s.fs) {
		load_run_fail(run, -ENODEV, "no DAX: %s", why);
		return -ENODEV;
	}
	for (char **p = run->config->sums; *p && !err; p++)
		err = one(&s, *p);
	load_dax_counts(s.fs, &counts);
	guest_files_free(s.fs);
	fflush(stdout);
	if (!err)
		fprintf(stderr,
			"%u files, %.1f MiB through the window in %" G_GUINT64_FORMAT
			" maps, %.1f MiB by request\n",
			s.files, (double)s.mapped / 1048576, counts.maps, (double)s.read / 1048576);
	return err;
}
