// SPDX-License-Identifier: Apache-2.0
/*
 * A window in this process: a reservation of PROT_NONE address space, maps by MAP_FIXED into it.
 * An unmap puts the reservation back, so no other mmap of the process can ever slip in between.
 *
 * The kernel counts areas (vm.max_map_count): a mapping can be one, and the reservation beside it
 * another.
 */
#include <daxmap/local.h>

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* syscalls: mmap munmap */
#define AREAS_FOR_OTHERS 4096

struct window_local {
	struct dm_window w;
	char *base;
};

static struct window_local *local_of(struct dm_window *w)
{
	return (struct window_local *)w;
}

static int do_op(struct window_local *l, const struct dm_window_op *op)
{
	char *at = l->base + op->offset;
	int prot = PROT_READ;
	void *p;

	if (op->kind == DM_OP_UNMAP) {
		p = mmap(at, op->len, PROT_NONE,
			 MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	} else {
		if (op->flags & DM_MAP_WRITE)
			prot |= PROT_WRITE;
		p = mmap(at, op->len, prot, MAP_FIXED | MAP_SHARED, op->fd, (off_t)op->fd_offset);
	}
	return p == MAP_FAILED ? -errno : 0;
}

static int local_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ops[i].result = do_op(local_of(w), &ops[i]);
	return 0;
}

static void *local_base(struct dm_window *w)
{
	return local_of(w)->base;
}

static void local_destroy(struct dm_window *w)
{
	munmap(local_of(w)->base, w->caps.size);
	g_free(w);
}

static const struct dm_window_ops local_ops = {
	.name = "local",
	.submit = local_submit,
	.base = local_base,
	.destroy = local_destroy,
};

static uint32_t default_max_mappings(void)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	unsigned int areas = 65530;

	if (f) {
		if (fscanf(f, "%u", &areas) != 1)
			areas = 65530;
		fclose(f);
	}
	return areas > 2 * AREAS_FOR_OTHERS ? (areas - AREAS_FOR_OTHERS) / 2 : areas / 4;
}

struct dm_window *dm_window_local_new(uint64_t size, uint32_t max_mappings, GError **error)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct window_local *l;
	void *base;

	if (size == 0 || size % page) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "window size must be a multiple of %" G_GUINT64_FORMAT " bytes", page);
		return NULL;
	}
	base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
			    "cannot reserve a window of %" G_GUINT64_FORMAT " bytes: %s", size,
			    g_strerror(errno));
		return NULL;
	}
	l = g_new0(struct window_local, 1);
	l->base = base;
	l->w.ops = &local_ops;
	l->w.caps = (struct dm_window_caps){
		.flags = DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT | DM_WINDOW_PROTECT |
			 DM_WINDOW_BEYOND_EOF | DM_WINDOW_CONCURRENT,
		.size = size,
		.granule = page,
		.max_mappings = max_mappings ? max_mappings : default_max_mappings(),
		.batch = 64,
	};
	return &l->w;
}
