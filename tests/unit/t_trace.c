// SPDX-License-Identifier: Apache-2.0
/* Trace files: what is written is read, and what is not a whole trace is never taken for one. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace_codec.h"
#include "trace_reader.h"
#include "trace_text.h"
#include "trace_writer.h"
#include "util_fd.h"
#include "util_lock.h"

#define MIB2 (2ull << 20)

static unsigned int warnings;

static GLogWriterOutput count_warnings(GLogLevelFlags level, const GLogField *fields, gsize n,
				       gpointer data)
{
	if (level & G_LOG_LEVEL_WARNING) {
		__atomic_add_fetch(&warnings, 1, __ATOMIC_RELAXED);
		return G_LOG_WRITER_HANDLED;
	}
	return g_log_writer_default(level, fields, n, data);
}

struct fixture {
	char *dir;
	char *path;
};

static void setup(struct fixture *f, gconstpointer data)
{
	f->dir = g_dir_make_tmp("trace-XXXXXX", NULL);
	f->path = g_build_filename(f->dir, "t", NULL);
}

static void teardown(struct fixture *f, gconstpointer data)
{
	unlink(f->path);
	g_assert_cmpint(rmdir(f->dir), ==, 0);
	g_free(f->dir);
	g_free(f->path);
}

static struct trace_writer *begin(const char *path, uint64_t max, unsigned int flush_ms)
{
	const struct trace_writer_config c = {
		.info = {.seat = TRACE_SEAT_GUEST,
			 .window_size = 64 << 20,
			 .granule = 4096,
			 .slot_size = MIB2,
			 .budget = 480,
			 .caps = 5,
			 .batch = 8,
			 .driver = "fuse"},
		.max_bytes = max,
		.flush_ms = flush_ms,
	};
	g_autoptr(GError) error = NULL;
	int fd = trace_file_create(path, &error);
	struct trace_writer *w;

	g_assert_no_error(error);
	w = trace_writer_new(fd, &c, &error);
	g_assert_no_error(error);
	return w;
}

static void assert_refused(const char *path, unsigned int flags, int code)
{
	g_autoptr(GError) error = NULL;
	struct trace_reader *r = trace_reader_open(path, flags, &error);

	g_assert_null(r);
	g_assert_error(error, TRACE_ERROR_DOMAIN, code);
	g_assert_nonnull(strstr(error->message, path));
}

static uint64_t count(struct trace_reader *r)
{
	g_autoptr(GError) error = NULL;
	struct trace_event e;
	uint64_t n = 0;
	int got;

	while ((got = trace_reader_next(r, &e, &error)) > 0)
		n++;
	g_assert_no_error(error);
	g_assert_cmpint(got, ==, 0);
	return n;
}

static struct trace_reader *open_good(const char *path, unsigned int flags)
{
	g_autoptr(GError) error = NULL;
	struct trace_reader *r = trace_reader_open(path, flags, &error);

	g_assert_no_error(error);
	return r;
}

/* --- contents --- */

static void crc_is_castagnoli(void)
{
	uint8_t buf[300];

	g_assert_cmphex(trace_crc32c(0, "123456789", 9), ==, 0xe3069283);
	g_assert_cmphex(trace_crc32c_portable(0, "123456789", 9), ==, 0xe3069283);
	for (size_t i = 0; i < sizeof(buf); i++) {
		buf[i] = (uint8_t)(i * 7);
		g_assert_cmphex(trace_crc32c(3, buf, i), ==, trace_crc32c_portable(3, buf, i));
	}
	g_assert_cmphex(trace_crc32c(trace_crc32c(0, buf, 100), buf + 100, 200), ==,
			trace_crc32c(0, buf, 300));
}

static uint64_t any_u64(GRand *rand)
{
	uint64_t v = (uint64_t)g_rand_int(rand) << 32 | g_rand_int(rand);

	return v >> g_rand_int_range(rand, 0, 64);
}

/* An event that survives the journey unchanged. */
static void any_event(GRand *rand, struct trace_event *e, const char *name)
{
	const uint64_t page = 1ull << TRACE_PAGE_SHIFT, most = 1ull << 61;
	unsigned int f;

	memset(e, 0, sizeof(*e));
	e->kind = (uint8_t)g_rand_int_range(rand, 1, TRACE_KINDS);
	f = trace_kind_fields(e->kind);
	if (f & TRACE_F_FILE)
		e->file = g_rand_boolean(rand)
				  ? (struct dm_file_key){1, (uint64_t)g_rand_int_range(rand, 0, 9)}
				  : (struct dm_file_key){any_u64(rand), any_u64(rand)};
	if (f & TRACE_F_PLACE) {
		e->file_offset = any_u64(rand) % most & ~(page - 1);
		e->len = g_rand_boolean(rand) ? MIB2 : any_u64(rand) % most & ~(page - 1);
		e->write = g_rand_boolean(rand);
	}
	if (f & TRACE_F_WINDOW)
		e->offset = any_u64(rand) % most & ~(page - 1);
	if (f & TRACE_F_COST)
		e->ns = any_u64(rand);
	if (f & TRACE_F_MAPPED)
		e->mapped = g_rand_int(rand);
	if (f & TRACE_F_VALUE)
		e->value = any_u64(rand);
	if (f & TRACE_F_NAME)
		e->name = name;
}

static void assert_same(const struct trace_event *a, const struct trace_event *b)
{
	g_assert_cmpuint(a->kind, ==, b->kind);
	g_assert_cmpuint(a->time_ns, ==, b->time_ns);
	g_assert_true(a->write == b->write);
	g_assert_cmphex(a->file.hi, ==, b->file.hi);
	g_assert_cmphex(a->file.lo, ==, b->file.lo);
	g_assert_cmphex(a->file_offset, ==, b->file_offset);
	g_assert_cmphex(a->len, ==, b->len);
	g_assert_cmphex(a->offset, ==, b->offset);
	g_assert_cmpuint(a->ns, ==, b->ns);
	g_assert_cmpuint(a->mapped, ==, b->mapped);
	g_assert_cmpuint(a->value, ==, b->value);
	g_assert_cmpstr(a->name, ==, b->name);
}

static void what_is_written_is_read(struct fixture *f, gconstpointer data)
{
	enum { N = 40000 };
	struct trace_writer *w = begin(f->path, 0, 0);
	uint32_t seed = g_test_rand_int();
	g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
	g_autoptr(GRand) again = g_rand_new_with_seed(seed);
	struct trace_writer_stats stats;
	struct trace_reader *r;
	struct trace_event e, want;
	uint64_t time = 0;

	for (int i = 0; i < N; i++) {
		any_event(rand, &e, "a/b c");
		e.time_ns = time += (uint64_t)g_rand_int_range(rand, 1, 1 << 20);
		trace_record(w, &e);
	}
	trace_writer_free(w, &stats);
	g_assert_cmpuint(stats.events + stats.lost, ==, N);
	g_assert_cmpuint(stats.lost, ==, 0);
	g_assert_cmpuint(stats.ending, ==, TRACE_STOPPED);

	r = open_good(f->path, 0);
	g_assert_cmpuint(trace_reader_info(r)->events, ==, N);
	g_assert_cmpuint(trace_reader_info(r)->window_size, ==, 64 << 20);
	g_assert_cmpuint(trace_reader_info(r)->budget, ==, 480);
	g_assert_cmpuint(trace_reader_info(r)->seat, ==, TRACE_SEAT_GUEST);
	g_assert_cmpstr(trace_reader_info(r)->driver, ==, "fuse");
	time = 0;
	for (int i = 0; i < N; i++) {
		any_event(again, &want, "a/b c");
		want.time_ns = time += (uint64_t)g_rand_int_range(again, 1, 1 << 20);
		g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 1);
		assert_same(&e, &want);
	}
	g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 0);
	g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 0);
	trace_reader_free(r);
}

static void bytes_become_the_pages_that_hold_them(struct fixture *f, gconstpointer data)
{
	struct trace_writer *w = begin(f->path, 0, 0);
	struct trace_stream *s = trace_stream_new(w);
	struct trace_reader *r;
	struct trace_event e;

	trace_stream_access(s, util_now_ns(), (struct dm_file_key){0, 5}, 4095, 2, true);
	trace_stream_access(s, 0, (struct dm_file_key){0, 5}, 8192, 1, false);
	trace_stream_free(s);
	trace_writer_free(w, NULL);
	r = open_good(f->path, 0);
	g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 1);
	g_assert_cmpuint(e.file_offset, ==, 0);
	g_assert_cmpuint(e.len, ==, 8192);
	g_assert_true(e.write);
	g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 1);
	g_assert_cmpuint(e.file_offset, ==, 8192);
	g_assert_cmpuint(e.len, ==, 4096);
	g_assert_false(e.write);
	trace_reader_free(r);
}

static void put(struct trace_writer *w, uint8_t kind, uint64_t file, const char *name)
{
	const struct trace_event e = {.kind = kind, .file.lo = file, .len = 4096, .name = name};

	trace_record(w, &e);
}

static void files_get_numbers_and_names(struct fixture *f, gconstpointer data)
{
	struct trace_writer *w = begin(f->path, 0, 0);
	struct trace_reader *r;
	const uint32_t ids[] = {0, 1, 0, 0, 2, 2, 1};

	put(w, TRACE_ACCESS, 70, NULL);
	put(w, TRACE_NAME, 71, "eleven");
	put(w, TRACE_NAME, 70, "ten");
	put(w, TRACE_NAME, 70, "ten");
	put(w, TRACE_NAME, 70, "another");
	put(w, TRACE_ACCESS, 70, NULL);
	put(w, TRACE_ACCESS, 71, NULL);
	trace_writer_free(w, NULL);
	r = open_good(f->path, 0);
	for (int pass = 0; pass < 2; pass++) {
		struct trace_event e;

		for (size_t i = 0; i < G_N_ELEMENTS(ids); i++) {
			g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 1);
			g_assert_cmpuint(e.file_id, ==, ids[i]);
		}
		g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 0);
		g_assert_cmpuint(trace_reader_files(r), ==, 3);
		g_assert_cmpstr(trace_reader_file(r, 0)->name, ==, "ten");
		g_assert_cmpstr(trace_reader_file(r, 1)->name, ==, "eleven");
		g_assert_cmpstr(trace_reader_file(r, 2)->name, ==, "another");
		g_assert_cmpuint(trace_reader_file(r, 2)->end, ==, 4096);
		g_assert_null(trace_reader_file(r, 3));
		trace_reader_rewind(r);
	}
	trace_reader_free(r);
}

static void text_and_csv_name_what_is_there(void)
{
	const struct trace_event e = {.kind = TRACE_MAP,
				      .time_ns = 1500000000,
				      .offset = MIB2,
				      .len = MIB2,
				      .file_id = 3,
				      .ns = 2500,
				      .mapped = 7};
	g_autoptr(GString) s = g_string_new(NULL);

	trace_text_csv(s, &e, "a\"b\n");
	g_assert_cmpstr(s->str, ==,
			"1500000000,map,0,3,0,2097152,2097152,0,2500,7,,\"a\"\"b\\x0a\"\n");
	g_string_truncate(s, 0);
	trace_text_line(s, &e, "a\"\\\033");
	g_assert_cmpstr(
		s->str, ==,
		"     1.500000000 map      window 0x200000 len 0x200000 file 3 at 0 took 2.5 us"
		" mapped 7 \"a\\\"\\\\\\x1b\"\n");
}

/* --- what is no whole trace --- */

static void record_some(const char *path, unsigned int n)
{
	struct trace_writer *w = begin(path, 0, 0);

	for (unsigned int i = 0; i < n; i++) {
		const struct trace_event e = {.kind = TRACE_MAP,
					      .time_ns = i + 1,
					      .file.lo = i * 77u % 13,
					      .offset = i % 32 * MIB2,
					      .len = MIB2,
					      .file_offset = i * MIB2,
					      .ns = i,
					      .mapped = i};

		trace_record(w, &e);
	}
	trace_writer_free(w, NULL);
}

static void rewrite(const char *path, const char *data, gsize len)
{
	util_autofd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	g_assert_cmpint(fd, >=, 0);
	g_assert_cmpint(write(fd, data, len), ==, len);
}

static void every_byte_of_the_header_counts(struct fixture *f, gconstpointer data)
{
	g_autofree char *good = NULL;
	gsize len;

	record_some(f->path, 100);
	g_assert_true(g_file_get_contents(f->path, &good, &len, NULL));
	g_assert_cmpuint(len, ==, TRACE_HEADER_SIZE + TRACE_BLOCK_SIZE);
	for (gsize i = 0; i < TRACE_HEADER_SIZE; i++) {
		g_autoptr(GError) error = NULL;
		util_autofd fd = open(f->path, O_WRONLY);
		char wrong = (char)(good[i] ^ 1 << i % 8);

		g_assert_cmpint(pwrite(fd, &wrong, 1, (off_t)i), ==, 1);
		g_assert_null(trace_reader_open(f->path, TRACE_READ_PARTIAL, &error));
		g_assert_cmpint(error->domain, ==, TRACE_ERROR_DOMAIN);
		if (i < 8)
			g_assert_cmpint(error->code, ==, TRACE_E_FOREIGN);
		else
			g_assert_true(error->code == TRACE_E_CORRUPT ||
				      (i < 12 && error->code == TRACE_E_VERSION));
		g_assert_cmpint(pwrite(fd, &good[i], 1, (off_t)i), ==, 1);
	}
	trace_reader_free(open_good(f->path, 0));
}

static void every_byte_of_a_block_counts(struct fixture *f, gconstpointer data)
{
	g_autofree char *good = NULL;
	struct trace_block_header h;
	gsize len;

	record_some(f->path, 100);
	g_assert_true(g_file_get_contents(f->path, &good, &len, NULL));
	memcpy(&h, good + TRACE_HEADER_SIZE, sizeof(h));
	g_assert_cmpuint(h.used, >, 100);
	for (gsize i = TRACE_HEADER_SIZE; i < TRACE_HEADER_SIZE + sizeof(h) + h.used; i++) {
		util_autofd fd = open(f->path, O_WRONLY);
		char wrong = (char)(good[i] ^ 1 << i % 8);
		struct trace_reader *r;

		g_assert_cmpint(pwrite(fd, &wrong, 1, (off_t)i), ==, 1);
		assert_refused(f->path, 0, TRACE_E_CORRUPT);
		r = open_good(f->path, TRACE_READ_PARTIAL);
		g_assert_cmpuint(trace_reader_bad_blocks(r), ==, 1);
		g_assert_cmpuint(count(r), ==, 0);
		trace_reader_free(r);
		g_assert_cmpint(pwrite(fd, &good[i], 1, (off_t)i), ==, 1);
	}
}

/* Right checksums over wrong events: nothing is trusted because it adds up. */
static void malformed_events_are_found(struct fixture *f, gconstpointer data)
{
	g_autofree char *good = NULL;
	g_autoptr(GRand) rand = g_rand_new_with_seed(g_test_rand_int());
	char *block;
	struct trace_block_header h;
	unsigned int refused = 0;
	gsize len;

	record_some(f->path, 400);
	g_assert_true(g_file_get_contents(f->path, &good, &len, NULL));
	block = good + TRACE_HEADER_SIZE;
	for (int i = 0; i < 3000; i++) {
		g_autofree char *bad = g_memdup2(good, len);
		struct trace_reader *r;

		block = bad + TRACE_HEADER_SIZE;
		memcpy(&h, block, sizeof(h));
		for (int k = g_rand_int_range(rand, 1, 4); k--;)
			block[sizeof(h) + g_rand_int(rand) % h.used] = (char)g_rand_int(rand);
		if (i % 10 == 0)
			h.events += (uint32_t)g_rand_int_range(rand, -3, 3);
		if (i % 10 == 1)
			h.used = (uint32_t)g_rand_int_range(rand, 0, TRACE_BLOCK_DATA + 1);
		h.crc = 0;
		memcpy(block, &h, sizeof(h));
		h.crc = trace_crc32c(0, block, sizeof(h) + h.used);
		memcpy(block, &h, sizeof(h));
		rewrite(f->path, bad, len);
		r = trace_reader_open(f->path, 0, NULL);
		refused += !r;
		if (r)
			count(r);
		trace_reader_free(r);
	}
	g_test_message("%u of 3000 refused", refused);
	g_assert_cmpuint(refused, >, 500);
}

static void every_length_but_the_whole_is_refused(struct fixture *f, gconstpointer data)
{
	gsize len;
	g_autofree char *good = NULL;
	uint64_t events;
	struct trace_reader *r;

	record_some(f->path, 10000);
	g_assert_true(g_file_get_contents(f->path, &good, &len, NULL));
	g_assert_cmpuint(len, >, TRACE_HEADER_SIZE + TRACE_BLOCK_SIZE);
	r = open_good(f->path, 0);
	events = count(r);
	trace_reader_free(r);
	for (gsize n = 0; n < len; n += n < 200 || n > len - 3 ? 1 : 1777) {
		g_assert_cmpint(truncate(f->path, 0), ==, 0);
		rewrite(f->path, good, n);
		assert_refused(f->path, 0, n < 8 ? TRACE_E_FOREIGN : TRACE_E_TRUNCATED);
		if (n < TRACE_HEADER_SIZE)
			continue;
		r = open_good(f->path, TRACE_READ_PARTIAL);
		g_assert_cmpuint(trace_reader_bad_blocks(r), >, 0);
		g_assert_cmpuint(count(r), <, events);
		trace_reader_free(r);
	}
	rewrite(f->path, good, len);
	g_assert_cmpint(truncate(f->path, (off_t)len + 1), ==, 0);
	assert_refused(f->path, 0, TRACE_E_CORRUPT);
}

static void other_things_are_no_traces(struct fixture *f, gconstpointer data)
{
	struct trace_file_header h;
	g_autofree char *good = NULL;
	g_autofree char *fifo = g_build_filename(f->dir, "fifo", NULL);
	gsize len;

	assert_refused(f->path, 0, TRACE_E_IO);
	assert_refused(f->dir, 0, TRACE_E_FOREIGN);
	g_assert_cmpint(mkfifo(fifo, 0600), ==, 0);
	assert_refused(fifo, 0, TRACE_E_FOREIGN);
	unlink(fifo);
	rewrite(f->path, "#!/bin/sh\necho no trace\n", 24);
	assert_refused(f->path, TRACE_READ_PARTIAL, TRACE_E_FOREIGN);

	unlink(f->path);
	record_some(f->path, 10);
	g_assert_true(g_file_get_contents(f->path, &good, &len, NULL));
	memcpy(&h, good, sizeof(h));
	h.version = 2;
	memcpy(good, &h, sizeof(h));
	rewrite(f->path, good, len);
	assert_refused(f->path, TRACE_READ_PARTIAL, TRACE_E_VERSION);
}

/* --- recording --- */

static void a_recorder_takes_only_what_is_its_own(struct fixture *f, gconstpointer data)
{
	g_autoptr(GError) error = NULL;
	struct trace_writer *w = begin(f->path, 0, 0);
	const struct trace_writer_config c = {0};

	g_assert_cmpint(trace_file_create(f->path, &error), ==, -1);
	g_assert_error(error, TRACE_ERROR_DOMAIN, TRACE_E_IO);
	g_assert_nonnull(strstr(error->message, "another recorder"));
	trace_writer_free(w, NULL);
	trace_writer_free(begin(f->path, 0, 0), NULL); /* a trace may be replaced */
	rewrite(f->path, "precious", 8);
	g_clear_error(&error);
	g_assert_cmpint(trace_file_create(f->path, &error), ==, -1);
	g_assert_error(error, TRACE_ERROR_DOMAIN, TRACE_E_FOREIGN);
	g_clear_error(&error);
	g_assert_cmpint(trace_file_create(f->dir, &error), ==, -1);
	g_clear_error(&error);
	g_assert_cmpint(trace_file_create("/dev/null", &error), ==, -1);
	g_clear_error(&error);
	g_assert_null(trace_writer_new(open(f->path, O_RDONLY), &c, &error));
	g_clear_error(&error);
	g_assert_null(trace_writer_new(open(f->path, O_RDWR | O_APPEND), &c, &error));
	g_clear_error(&error);
	g_assert_null(trace_writer_new(-1, &c, &error));
}

static void the_size_cap_stops_the_recording(struct fixture *f, gconstpointer data)
{
	enum { N = 200000, BLOCKS = 3 };
	struct trace_writer *w =
		begin(f->path, TRACE_HEADER_SIZE + BLOCKS * TRACE_BLOCK_SIZE + 5, 0);
	struct trace_writer_stats stats;
	struct trace_reader *r;
	struct stat st;
	uint64_t last = 0;
	struct trace_event e;

	for (unsigned int i = 0; i < N; i++) {
		e = (struct trace_event){.kind = TRACE_MAP, .time_ns = i + 1, .ns = i + 1};
		trace_record(w, &e);
	}
	trace_writer_free(w, &stats);
	g_assert_cmpuint(__atomic_exchange_n(&warnings, 0, __ATOMIC_RELAXED), ==, 1);
	g_assert_cmpuint(stats.ending, ==, TRACE_FULL);
	g_assert_cmpuint(stats.events, >, 0);
	g_assert_cmpuint(stats.events + stats.lost, ==, N);
	g_assert_cmpint(stat(f->path, &st), ==, 0);
	g_assert_cmpint(st.st_size, ==, TRACE_HEADER_SIZE + BLOCKS * TRACE_BLOCK_SIZE);
	r = open_good(f->path, 0);
	g_assert_cmpuint(trace_reader_info(r)->ending, ==, TRACE_FULL);
	g_assert_cmpuint(trace_reader_info(r)->lost, ==, stats.lost);
	for (uint64_t i = 0; i < stats.events; i++) {
		g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 1);
		g_assert_cmpuint(e.ns, >, last);
		last = e.ns;
	}
	g_assert_cmpint(trace_reader_next(r, &e, NULL), ==, 0);
	trace_reader_free(r);
}

struct many {
	struct trace_writer *w;
	uint64_t id;
	bool own;
};

#define PER_THREAD 60000u

static void *record_many(void *arg)
{
	struct many *m = arg;
	struct trace_stream *s = m->own ? trace_stream_new(m->w) : NULL;

	for (uint64_t i = 0; i < PER_THREAD; i++) {
		const struct trace_event e = {.kind = TRACE_ACCESS,
					      .file.lo = m->id,
					      .file_offset = i << 12,
					      .len = 4096};

		if (s)
			trace_stream_access(s, util_now_ns(), e.file, e.file_offset, e.len, false);
		else
			trace_record(m->w, &e);
	}
	trace_stream_free(s);
	return NULL;
}

static void threads_do_not_meet(struct fixture *f, gconstpointer data)
{
	enum { THREADS = 6 };
	struct trace_writer *w = begin(f->path, 0, 1);
	struct trace_writer_stats stats;
	struct many many[THREADS];
	GThread *threads[THREADS];
	uint64_t next[THREADS] = {0}, n = 0, time = 0;
	struct trace_reader *r;
	struct trace_event e;

	for (uint64_t i = 0; i < THREADS; i++) {
		many[i] = (struct many){w, i, i % 2};
		threads[i] = g_thread_new("many", record_many, &many[i]);
	}
	for (int i = 0; i < THREADS; i++)
		g_thread_join(threads[i]);
	trace_writer_free(w, &stats);
	g_assert_cmpuint(stats.events + stats.lost, ==, THREADS * PER_THREAD);
	r = open_good(f->path, 0);
	while (trace_reader_next(r, &e, NULL) > 0) {
		g_assert_cmpuint(e.time_ns, >=, time);
		g_assert_cmpuint(e.file.lo, <, THREADS);
		/* Those of a stream of one's own are in order; shared ones of one time may swap. */
		if (e.file.lo % 2) {
			g_assert_cmpuint(e.file_offset >> 12, >=, next[e.file.lo]);
			next[e.file.lo] = (e.file_offset >> 12) + 1;
		}
		time = e.time_ns;
		n++;
	}
	g_assert_cmpuint(n, ==, stats.events);
	trace_reader_free(r);
}

/* --- in a process of its own --- */

static int child_killed(const char *path)
{
	struct trace_writer *w = begin(path, 0, 1);
	struct trace_writer_stats stats;
	uint64_t ns = 0;

	do {
		for (int i = 0; i < 1000; i++) {
			struct trace_event e = {.kind = TRACE_MAP, .time_ns = ns + 1, .ns = ns + 1};

			ns++;
			trace_record(w, &e);
		}
		trace_writer_stats(w, &stats);
	} while (stats.bytes < TRACE_HEADER_SIZE + 5 * TRACE_BLOCK_SIZE);
	kill(getpid(), SIGKILL);
	return 1;
}

static int child_limited(const char *path)
{
	const struct rlimit limit = {TRACE_HEADER_SIZE + 5 * TRACE_BLOCK_SIZE / 2, RLIM_INFINITY};
	struct trace_writer *w;
	struct trace_writer_stats stats;

	setrlimit(RLIMIT_FSIZE, &limit);
	w = begin(path, 0, 1);
	for (uint64_t i = 1; i <= 100000; i++) {
		struct trace_event e = {.kind = TRACE_MAP, .time_ns = i, .ns = i};

		trace_record(w, &e);
	}
	trace_writer_free(w, &stats);
	return stats.ending == TRACE_ERROR && stats.error == EFBIG &&
			       stats.events + stats.lost == 100000
		       ? 0
		       : 1;
}

static int run_child(const char *what, const char *path)
{
	const char *argv[] = {"/proc/self/exe", what, path, NULL};
	g_autoptr(GError) error = NULL;
	int status = 0;

	g_assert_true(g_spawn_sync(NULL, (char **)argv, NULL,
				   G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL,
				   NULL, NULL, NULL, &status, &error));
	g_assert_no_error(error);
	return status;
}

static void a_killed_recorder_leaves_its_blocks(struct fixture *f, gconstpointer data)
{
	int status = run_child("--killed", f->path);
	struct trace_reader *r;
	struct trace_event e;
	uint64_t last = 0;

	g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_refused(f->path, 0, TRACE_E_UNFINISHED);
	r = open_good(f->path, TRACE_READ_PARTIAL);
	g_assert_cmpuint(trace_reader_info(r)->blocks, >=, 4);
	while (trace_reader_next(r, &e, NULL) > 0) {
		g_assert_cmpuint(e.ns, >, last);
		last = e.ns;
	}
	g_assert_cmpuint(last, >, 10000);
	trace_reader_free(r);
}

static void a_full_disk_ends_the_trace_and_leaves_it_whole(struct fixture *f, gconstpointer data)
{
	int status = run_child("--limited", f->path);
	struct trace_reader *r;

	g_assert_true(WIFEXITED(status));
	g_assert_cmpint(WEXITSTATUS(status), ==, 0);
	r = open_good(f->path, 0);
	g_assert_cmpuint(trace_reader_info(r)->ending, ==, TRACE_ERROR);
	g_assert_cmpint(trace_reader_info(r)->error, ==, EFBIG);
	g_assert_cmpuint(trace_reader_info(r)->blocks, ==, 2);
	g_assert_cmpuint(count(r), ==, trace_reader_info(r)->events);
	trace_reader_free(r);
}

#define ADD(path, fn) g_test_add(path, struct fixture, NULL, setup, fn, teardown)

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--killed"))
		return child_killed(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "--limited"))
		return child_limited(argv[2]);
	g_test_init(&argc, &argv, NULL);
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL);
	g_log_set_writer_func(count_warnings, NULL, NULL);
	g_test_add_func("/trace/crc", crc_is_castagnoli);
	g_test_add_func("/trace/text", text_and_csv_name_what_is_there);
	ADD("/trace/round-trip", what_is_written_is_read);
	ADD("/trace/pages", bytes_become_the_pages_that_hold_them);
	ADD("/trace/files", files_get_numbers_and_names);
	ADD("/trace/header-bytes", every_byte_of_the_header_counts);
	ADD("/trace/block-bytes", every_byte_of_a_block_counts);
	ADD("/trace/malformed", malformed_events_are_found);
	ADD("/trace/lengths", every_length_but_the_whole_is_refused);
	ADD("/trace/foreign", other_things_are_no_traces);
	ADD("/trace/own", a_recorder_takes_only_what_is_its_own);
	ADD("/trace/cap", the_size_cap_stops_the_recording);
	ADD("/trace/threads", threads_do_not_meet);
	ADD("/trace/killed", a_killed_recorder_leaves_its_blocks);
	ADD("/trace/full-disk", a_full_disk_ends_the_trace_and_leaves_it_whole);
	return g_test_run();
}
