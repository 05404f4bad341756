// SPDX-License-Identifier: Apache-2.0
/*
 * An application in the guest may read or write (O_DIRECT) with a buffer that is itself a DAX
 * mapping of some file. Its descriptor then points into the window, which this process has not
 * mapped. The range is pinned in the table, so that it stays what it is for the I/O, and its file
 * is mapped here for as long: the same page cache, so what the I/O stores there is what the guest
 * sees. A mapping, not pread/pwrite on the pinned file: storing to a mapping never makes the file
 * longer, and the kernel answers EFAULT for what lies behind its end, as for the guest's own
 * access.
 *
 * syscalls: mmap munmap
 *
 * mmap and munmap cost some microseconds; this is a rare path and is never run in a queue's
 * thread, as faults on the mapping may read from a disk.
 */
#include "fuse_window.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

struct piece {
	struct dm_pin pin;
	void *map; /* NULL: the driver had an address */
	size_t map_len;
};

static void append(struct fuse_window_io *io, void *base, size_t len)
{
	struct iovec iov = {.iov_base = base, .iov_len = len};

	g_array_append_val(io->iov, iov);
	io->v.len += len;
}

/* Makes the pinned bytes addressable; @len of them. */
static void *piece_map(struct piece *p, size_t len, bool store)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t in_page = p->pin.file_offset & (page - 1);

	if (p->pin.addr)
		return p->pin.addr;
	p->map_len = len + (size_t)in_page;
	p->map = mmap(NULL, p->map_len, store ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
		      p->pin.fd, (off_t)(p->pin.file_offset - in_page));
	if (p->map == MAP_FAILED) {
		p->map = NULL;
		return NULL;
	}
	return (char *)p->map + in_page;
}

static int resolve_one(struct fuse_window_io *io, uint64_t offset, size_t len, bool store)
{
	while (len) {
		struct piece p = {0};
		void *base;
		size_t n;
		int err = dm_host_pin(io->table, offset, len, &p.pin);

		if (err)
			return err;
		n = (size_t)MIN(p.pin.len, len);
		base = n && (p.pin.writable || !store) ? piece_map(&p, n, store) : NULL;
		g_array_append_val(io->pieces, p);
		if (!base)
			return -EFAULT;
		append(io, base, n);
		offset += n;
		len -= n;
	}
	return 0;
}

int fuse_window_resolve(struct fuse_window_io *io, struct dm_table *table,
			const struct util_gvec *from, bool store)
{
	*io = (struct fuse_window_io){
		.table = table,
		.iov = g_array_sized_new(FALSE, FALSE, sizeof(struct iovec), from->n),
		.pieces = g_array_new(FALSE, FALSE, sizeof(struct piece)),
	};
	for (unsigned int i = 0; i < from->n; i++) {
		int err;

		if (!from->window || from->window[i] == UTIL_GVEC_RAM) {
			append(io, from->iov[i].iov_base, from->iov[i].iov_len);
			continue;
		}
		err = table ? resolve_one(io, from->window[i], from->iov[i].iov_len, store)
			    : -EFAULT;
		if (err)
			return err;
	}
	io->v.iov = (struct iovec *)(void *)io->iov->data;
	io->v.n = io->iov->len;
	return 0;
}

void fuse_window_release(struct fuse_window_io *io)
{
	for (unsigned int i = 0; i < io->pieces->len; i++) {
		struct piece *p = &g_array_index(io->pieces, struct piece, i);

		if (p->map)
			munmap(p->map, p->map_len);
		dm_host_unpin(io->table, &p->pin);
	}
	g_array_unref(io->iov);
	g_array_unref(io->pieces);
}
