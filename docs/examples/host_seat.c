// SPDX-License-Identifier: Apache-2.0
/*
 * libdaxmap in the host seat, in one process: a "guest" that picks window offsets, a table, and
 * the local driver as the VMM. Maps two pieces of a file, reads through them, gives one back and
 * takes it again without a driver call.
 *
 *	cc host_seat.c $(pkg-config --cflags --libs daxmap) && ./a.out FILE
 */
#include <daxmap/local.h>
#include <daxmap/table.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE (UINT64_C(64) << 10)

/* Keys are ours to choose: here one file, whose path is the context. */
static int open_file(void *ctx, struct dm_file_key key, bool *writable)
{
	(void)key;
	*writable = false;
	return open(ctx, O_RDONLY | O_CLOEXEC);
}

static void close_file(void *ctx, struct dm_file_key key, int fd)
{
	(void)ctx;
	(void)key;
	close(fd);
}

int main(int argc, char **argv)
{
	struct dm_file_provider files = {.open = open_file, .close = close_file};
	struct dm_file_key file = {0, 1};
	GError *error = NULL;
	struct dm_window *window;
	struct dm_table *table;
	struct dm_stats stats;
	struct dm_pin pin;
	int err;

	if (argc != 2) {
		fprintf(stderr, "usage: host_seat FILE\n");
		return 2;
	}
	files.ctx = argv[1];
	window = dm_window_local_new(64 * PIECE, 0, &error);
	if (!window) {
		fprintf(stderr, "%s\n", error->message);
		return 1;
	}
	table = dm_table_new(window, &files, NULL);

	err = dm_host_setup(table, 0, PIECE, file, 0, false);
	if (!err)
		err = dm_host_setup(table, 8 * PIECE, PIECE, file, PIECE, false);
	if (err) {
		fprintf(stderr, "map %s: %s\n", argv[1], strerror(-err));
		return 1;
	}

	/* an I/O into the window: while pinned, the bytes stay */
	if (dm_host_pin(table, 0, 16, &pin) == 0) {
		printf("first byte: 0x%02x\n", *(unsigned char *)pin.addr);
		dm_host_unpin(table, &pin);
	}

	dm_host_remove(table, 0, PIECE);		/* given back: lingers */
	dm_host_setup(table, 0, PIECE, file, 0, false); /* revived: no driver call */

	dm_table_stats(table, &stats);
	printf("setups %" PRIu64 ", maps %" PRIu64 ", revived %" PRIu64 "\n", stats.setups,
	       stats.maps, stats.elided_revived);
	dm_host_flush(table);
	dm_table_free(table);
	dm_window_destroy(window);
	return 0;
}
