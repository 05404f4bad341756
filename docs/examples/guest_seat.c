// SPDX-License-Identifier: Apache-2.0
/*
 * libdaxmap in the guest seat: a window of four slots over a file of any size. Sums up every byte
 * of the file through the window, twice; the table maps, keeps and replaces slots by itself.
 *
 *	cc guest_seat.c $(pkg-config --cflags --libs daxmap) && ./a.out FILE
 */
#include <daxmap/cache.h>
#include <daxmap/local.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOT (UINT64_C(4) << 10)

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

static int sum_up(struct dm_cache *cache, uint64_t size, uint64_t *sum)
{
	struct dm_file_key file = {0, 1};
	struct dm_ref ref;

	for (uint64_t at = 0; at < size;) {
		int err = dm_cache_get(cache, file, at, size - at, false, &ref);

		if (err)
			return err;
		for (uint64_t i = 0; i < ref.len; i++)
			*sum += ((const unsigned char *)ref.addr)[i];
		at += ref.len;
		dm_cache_put(cache, &ref); /* from here on the slot may go to others */
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct dm_file_provider files = {.open = open_file, .close = close_file};
	struct dm_cache_config config = {.slot_size = SLOT};
	struct dm_window *window;
	struct dm_cache *cache;
	GError *error = NULL;
	struct dm_stats stats;
	uint64_t sum = 0;
	struct stat st;
	int err;

	if (argc != 2 || stat(argv[1], &st) != 0) {
		fprintf(stderr, "usage: guest_seat FILE\n");
		return 2;
	}
	files.ctx = argv[1];
	window = dm_window_local_new(4 * SLOT, 0, &error);
	if (!window) {
		fprintf(stderr, "%s\n", error->message);
		return 1;
	}
	cache = dm_cache_new(window, &files, &config);

	err = sum_up(cache, (uint64_t)st.st_size, &sum);
	if (!err)
		err = sum_up(cache, (uint64_t)st.st_size, &sum);
	if (err)
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
	dm_cache_stats(cache, &stats);
	printf("sum %" PRIu64 ", hits %" PRIu64 ", misses %" PRIu64 ", mapped over %" PRIu64 "\n",
	       sum, stats.hits, stats.misses, stats.elided_overlaid);
	dm_cache_free(cache);
	dm_window_destroy(window);
	return err != 0;
}
