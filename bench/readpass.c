// SPDX-License-Identifier: Apache-2.0
/*
 * Reads files whole, all of them once a pass, and says what one file took: the inside of
 * bench/dax-min-size. Built statically, for a guest without a libc of ours.
 *
 * usage: readpass PASSES FILE...
 * Prints one line: ns a file, for the first pass and for the mean of the others.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (128 << 10)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int read_whole(const char *path, char *buf)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;

	if (fd < 0)
		return -1;
	do
		n = read(fd, buf, CHUNK);
	while (n > 0);
	close(fd);
	return (int)n;
}

int main(int argc, char **argv)
{
	int passes = argc > 2 ? atoi(argv[1]) : 0;
	char *buf = malloc(CHUNK);
	uint64_t first = 0, again = 0, files = (uint64_t)argc - 2;

	if (passes < 2 || !buf)
		return 2;
	for (int pass = 0; pass < passes; pass++) {
		uint64_t start = now_ns();

		for (int i = 2; i < argc; i++) {
			if (read_whole(argv[i], buf)) {
				perror(argv[i]);
				return 1;
			}
		}
		*(pass ? &again : &first) += now_ns() - start;
	}
	printf("%llu %llu\n", (unsigned long long)(first / files),
	       (unsigned long long)(again / files / (uint64_t)(passes - 1)));
	return 0;
}
