// SPDX-License-Identifier: Apache-2.0
/*
 * Traces by themselves:
 *  a  nanoseconds to record one event: an access in a stream of one's own, an access and a map in
 *     a shared one. Floor: what the clock takes, for each has a time (the first is given it).
 *  b  the time of a loop that copies 4 KiB from a random page of 64 MiB, as hits in a window are,
 * with each copy recorded, over that without: the two take turns of a millisecond, so that what
 * else the machine does falls on both. The median of all pairs, and that of pairs without a record.
 *  c  a trace of N events, and what reading it back takes
 * Lines that begin with "bench " are for machines.
 *
 * usage: trace_micro FILE [N]	(FILE stays, for daxmapctl)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench_median.h"
#include "trace_reader.h"
#include "trace_writer.h"
#include "util_lock.h"

#define SLOT (UINT64_C(2) << 20)
#define FILE_BYTES (UINT64_C(3) << 29)
#define MISS_EVERY 16

static uint64_t rng = 88172645463325252ull;

static uint64_t next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static struct trace_writer *begin(const char *path)
{
	const struct trace_writer_config c = {
		.info = {.seat = TRACE_SEAT_GUEST,
			 .window_size = 256u << 20,
			 .granule = 4096,
			 .slot_size = SLOT,
			 .driver = "bench"},
		.blocks = 1024,
	};
	g_autoptr(GError) error = NULL;
	int fd = trace_file_create(path, &error);
	struct trace_writer *w = fd < 0 ? NULL : trace_writer_new(fd, &c, &error);

	if (!w) {
		fprintf(stderr, "%s\n", error->message);
		exit(1);
	}
	return w;
}

/* Squared, so that the front is used more: neither uniform nor one place. */
static uint64_t place(void)
{
	uint64_t r = next_random() >> 32;

	return (uint64_t)((double)r * (double)r / 18446744073709551616.0 * FILE_BYTES) & ~4095ull;
}

static void record_map(struct trace_writer *w, uint64_t at)
{
	const struct trace_event e = {
		.kind = TRACE_MAP,
		.file.lo = 2,
		.offset = at % (256u << 20) & ~(SLOT - 1),
		.len = SLOT,
		.file_offset = at & ~(SLOT - 1),
		.ns = 40000 + at % 1000,
		.mapped = (uint32_t)(at >> 21) % 128,
	};

	trace_record(w, &e);
}

enum what { NOTHING, OWN, SHARED, MAP };

static double cost(const char *path, enum what what, uint64_t n)
{
	struct trace_writer *w = begin(path);
	struct trace_stream *s = trace_stream_new(w);
	const struct dm_file_key key = {0, 2};
	struct trace_event e = {.kind = TRACE_ACCESS, .file = key, .len = 4096};
	uint64_t now = util_now_ns(), start = now;
	double ns;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = place();

		switch (what) {
		case NOTHING:
			__asm__ volatile("" ::"r"(at));
			break;
		case OWN:
			trace_stream_access(s, now += 500, key, at, 4096, false);
			break;
		case SHARED:
			e.file_offset = at;
			trace_record(w, &e);
			break;
		case MAP:
			record_map(w, at);
			break;
		}
	}
	ns = (double)(util_now_ns() - start) / (double)n;
	trace_stream_free(s);
	trace_writer_free(w, NULL);
	return ns;
}

static void costs(const char *path)
{
	enum { N = 1000000, ROUNDS = 5 };
	static const char *const names[] = {"nothing", "access own", "access shared", "map shared"};
	double best[4] = {1e9, 1e9, 1e9, 1e9};

	for (int round = 0; round < ROUNDS; round++)
		for (int what = NOTHING; what <= MAP; what++)
			best[what] = MIN(best[what], cost(path, (enum what)what, N));
	for (int what = OWN; what <= MAP; what++) {
		printf("%-14s %6.1f ns an event\n", names[what], best[what] - best[NOTHING]);
		printf("bench trace_record what=%s ns=%.2f\n",
		       what == OWN	? "own"
		       : what == SHARED ? "shared"
					: "map",
		       best[what] - best[NOTHING]);
	}
}

enum { TURN = 2000, TURNS = 2000, PAGE = 4096, HIT_PAGES = 16384 };

/* Nanoseconds of a turn of copies, recorded in @s unless it is NULL. */
static double turn(struct trace_stream *s, const char *from, char *to)
{
	uint64_t begun = util_now_ns();

	for (unsigned int i = 0; i < TURN; i++) {
		uint64_t now = util_now_ns(), at = next_random() % HIT_PAGES * PAGE;

		if (s)
			trace_stream_access(s, now, (struct dm_file_key){0, 2}, at, PAGE, false);
		memcpy(to, from + at, PAGE);
		__asm__ volatile("" ::"r"(to) : "memory");
	}
	return (double)(util_now_ns() - begun);
}

static void hits(const char *path)
{
	struct trace_writer *w = begin(path);
	struct trace_stream *s = trace_stream_new(w);
	g_autofree char *from = g_malloc0((size_t)HIT_PAGES * PAGE), *to = g_malloc0(PAGE);
	g_autofree double *on = g_new(double, TURNS), *off = g_new(double, TURNS);
	double ratio, noise;

	memset(from, 1, (size_t)HIT_PAGES * PAGE);
	for (unsigned int i = 0; i < TURNS; i++) {
		double a = turn(NULL, from, to), b = turn(s, from, to), c = turn(NULL, from, to);

		on[i] = 2 * b / (a + c);
		off[i] = c / a;
	}
	ratio = bench_median(on, TURNS);
	noise = bench_median(off, TURNS);
	printf("hits recorded  %6.4f of the time without, noise %6.4f\n", ratio, noise);
	printf("bench trace_hits ratio=%.4f noise=%.4f\n", ratio, noise);
	trace_stream_free(s);
	trace_writer_free(w, NULL);
}

static void make(const char *path, uint64_t n)
{
	struct trace_writer *w = begin(path);
	struct trace_stream *s[2] = {trace_stream_new(w), trace_stream_new(w)};
	uint64_t now = util_now_ns();
	struct trace_writer_stats stats;

	for (uint64_t i = 0; i < n; i++) {
		uint64_t at = place();

		if (i % MISS_EVERY == 0)
			record_map(w, at);
		else
			trace_stream_access(s[i / 1000 % 2], now += 500, (struct dm_file_key){0, 2},
					    at, 4096, false);
		/* Not faster than the disk takes it. */
		if (i % 65536 == 0)
			g_usleep(1000);
	}
	trace_stream_free(s[0]);
	trace_stream_free(s[1]);
	trace_writer_free(w, &stats);
	printf("%" G_GUINT64_FORMAT " events, %" G_GUINT64_FORMAT
	       " lost, %.1f MB, %.2f bytes each\n",
	       stats.events, stats.lost, (double)stats.bytes / 1e6,
	       (double)stats.bytes / (double)stats.events);
}

static void read_back(const char *path)
{
	g_autoptr(GError) error = NULL;
	uint64_t start = util_now_ns(), n = 0;
	struct trace_reader *r = trace_reader_open(path, 0, &error);
	struct trace_event e;
	double opened = (double)(util_now_ns() - start) / 1e9;

	if (!r) {
		fprintf(stderr, "%s\n", error->message);
		exit(1);
	}
	while (trace_reader_next(r, &e, NULL) > 0)
		n++;
	printf("checked in %.2f s, read in %.2f s, %" G_GUINT64_FORMAT " events\n", opened,
	       (double)(util_now_ns() - start) / 1e9 - opened, n);
	printf("bench trace_read events=%" G_GUINT64_FORMAT " seconds=%.3f\n", n,
	       (double)(util_now_ns() - start) / 1e9);
	trace_reader_free(r);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 2 ? g_ascii_strtoull(argv[2], NULL, 10) : 10000000;

	if (argc < 2 || !n) {
		fprintf(stderr, "usage: trace_micro FILE [EVENTS]\n");
		return 2;
	}
	costs(argv[1]);
	hits(argv[1]);
	make(argv[1], n);
	read_back(argv[1]);
	return 0;
}
