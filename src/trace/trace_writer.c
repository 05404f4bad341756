// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * A recorder holds a stream for the time of one event: one of its own, or one of a few shared ones,
 * taken by an exchange that never waits (who finds one taken tries the next). A stream fills a
 * block. How far it is filled is one word, stored with release after the bytes: so the writer
 * thread can look into a block that is being filled, and put what is there into the file. A full
 * block leaves the stream, then goes to the writer on a list (push by compare-and-swap, taken as a
 * whole); the writer alone puts blocks back to the free ones. So a block that the writer has found
 * in a stream stays that block while it looks.
 *
 * The writer gives a block its place in the file when it writes it first: the file has no holes,
 * and what is behind the last good block is cut off when a write fails. A block that was written
 * before it was full is written again in the same place.
 *
 * The first full file or failed write ends the recording: the header then says why and how much was
 * lost, and the daemon goes on.
 */
#include "trace_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "trace_codec.h"
#include "util_fd.h"
#include "util_lock.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "trace"

/* syscalls: pwritev ftruncate futex fcntl fstat newfstatat close rt_sigprocmask */

#define SHARED 16u
#define STREAMS (SHARED + 128u)
#define BLOCKS_DEFAULT 128u
#define BLOCKS_MIN 2u
#define FLUSH_MS_DEFAULT 1000u
#define UNPLACED UINT64_MAX
#define NS_PER_S 1000000000ull

/* How far a block is filled: bytes low, events high. */
#define FILL(bytes, events) ((uint64_t)(events) << 32 | (bytes))
#define FILL_BYTES(f) ((uint32_t)(f))
#define FILL_EVENTS(f) ((uint32_t)((f) >> 32))

struct block {
	struct block *next;
	uint64_t fill; /* by the stream, release */
	/* by the stream before the block is seen by anybody */
	uint32_t stream;
	uint32_t stream_seq;
	uint64_t lost;
	uint64_t first_ns;
	/* the writer's */
	uint64_t index;
	uint64_t written; /* fill as of the last write */
	uint8_t data[TRACE_BLOCK_DATA];
};

struct trace_stream {
	bool taken;	     /* atomic: somebody records here, or has it for good */
	struct block *block; /* by who has it, release; the writer looks */
	struct trace_context x;
	struct trace_writer *w;
	uint32_t id;
	uint32_t next_seq;
	uint64_t lost_since; /* not yet in a block's header */
	uint64_t events;     /* the last two: atomic, for statistics */
	uint64_t lost;
} __attribute__((aligned(64)));

struct trace_writer {
	uint32_t ending; /* atomic: enum trace_ending; TRACE_OPEN = recording */
	uint32_t n_free;
	struct block **free; /* each slot atomic; NULL = none */
	struct block *full;  /* atomic: head of the list */
	uint64_t start_ns;
	uint64_t lost; /* atomic: no stream was to be had */
	struct trace_stream *streams;
	sem_t wake;
	bool stop; /* atomic */
	GThread *thread;
	/* the writer thread's */
	int fd;
	int error; /* atomic: read by stats */
	unsigned int flush_ms;
	uint64_t max_blocks;
	uint64_t blocks;	 /* atomic: read by stats */
	uint64_t events_written; /* atomic: read by stats */
	uint64_t torn;
	struct trace_file_header header;
};

static uint32_t ending_of(const struct trace_writer *w)
{
	return __atomic_load_n(&w->ending, __ATOMIC_RELAXED);
}

/* --- recording --- */

/* The one that came back last, or nearly: its bytes are in the cache, and all the blocks in turn
 * would push out what the recorded work has there. */
static struct block *take_free(struct trace_writer *w)
{
	for (uint32_t i = 0; i < w->n_free; i++) {
		struct block **slot = &w->free[i];
		struct block *b;

		if (!__atomic_load_n(slot, __ATOMIC_RELAXED))
			continue;
		b = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQUIRE);
		if (b)
			return b;
	}
	return NULL;
}

/* Takes the stream's block away from it, before the writer may have it. */
static void hand_over(struct trace_stream *s)
{
	struct trace_writer *w = s->w;
	struct block *b = s->block;

	if (!b)
		return;
	__atomic_store_n(&s->block, NULL, __ATOMIC_RELEASE);
	b->next = __atomic_load_n(&w->full, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&w->full, &b->next, b, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	sem_post(&w->wake);
}

static struct block *new_block(struct trace_stream *s, uint64_t time_ns)
{
	struct block *b;

	hand_over(s);
	b = take_free(s->w);
	if (!b)
		return NULL;
	b->fill = 0;
	b->stream = s->id;
	b->stream_seq = s->next_seq++;
	b->lost = s->lost_since;
	b->first_ns = MAX(time_ns, s->x.time_ns);
	b->index = UNPLACED;
	b->written = 0;
	s->lost_since = 0;
	s->x = (struct trace_context){.time_ns = b->first_ns};
	__atomic_store_n(&s->block, b, __ATOMIC_RELEASE);
	return b;
}

static void lose(struct trace_stream *s)
{
	s->lost_since++;
	__atomic_store_n(&s->lost, s->lost + 1, __ATOMIC_RELAXED);
}

/* A place for an event of at most @need bytes; NULL: it is lost. */
static inline uint8_t *reserve(struct trace_stream *s, uint64_t time_ns, uint32_t need)
{
	struct block *b = s->block;

	if (G_UNLIKELY(ending_of(s->w) != TRACE_OPEN)) {
		lose(s);
		return NULL;
	}
	if (G_UNLIKELY(!b || TRACE_BLOCK_DATA - FILL_BYTES(b->fill) < need)) {
		b = new_block(s, time_ns);
		if (!b) {
			lose(s);
			return NULL;
		}
	}
	return b->data + FILL_BYTES(b->fill);
}

static inline void commit(struct trace_stream *s, const uint8_t *end)
{
	struct block *b = s->block;

	__atomic_store_n(&b->fill, FILL((uint32_t)(end - b->data), FILL_EVENTS(b->fill) + 1),
			 __ATOMIC_RELEASE);
	__atomic_store_n(&s->events, s->events + 1, __ATOMIC_RELAXED);
}

static void record_in(struct trace_stream *s, const struct trace_event *e)
{
	uint32_t need = TRACE_EVENT_MAX + (e->name ? TRACE_NAME_MAX : 0);
	uint8_t *p = reserve(s, e->time_ns, need);

	if (p)
		commit(s, trace_encode(&s->x, p, e));
}

static struct trace_stream *take_shared(struct trace_writer *w)
{
	static uint32_t threads;
	static __thread uint32_t mine;

	if (!mine)
		mine = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED) | 1u << 31;
	for (uint32_t i = 0; i < 4 * SHARED; i++) {
		struct trace_stream *s = &w->streams[mine % SHARED];

		if (!__atomic_load_n(&s->taken, __ATOMIC_RELAXED) &&
		    !__atomic_exchange_n(&s->taken, true, __ATOMIC_ACQUIRE))
			return s;
		mine = (mine + 1) | 1u << 31;
	}
	return NULL;
}

void trace_record(struct trace_writer *w, const struct trace_event *e)
{
	struct trace_event now;
	struct trace_stream *s;

	g_return_if_fail(trace_kind_name(e->kind) && !e->name == (e->kind != TRACE_NAME));
	if (!e->time_ns) {
		now = *e;
		now.time_ns = trace_writer_now(w);
		e = &now;
	}
	s = take_shared(w);
	if (!s) {
		__atomic_add_fetch(&w->lost, 1, __ATOMIC_RELAXED);
		return;
	}
	record_in(s, e);
	__atomic_store_n(&s->taken, false, __ATOMIC_RELEASE);
}

static uint8_t kind_of(enum dm_trace_kind kind)
{
	switch (kind) {
	case DM_TRACE_SETUP:
		return TRACE_SETUP;
	case DM_TRACE_REMOVE:
		return TRACE_REMOVE;
	case DM_TRACE_REVIVE:
		return TRACE_REVIVE;
	case DM_TRACE_OVERLAY:
		return TRACE_OVERLAY;
	case DM_TRACE_CANCEL:
		return TRACE_CANCEL;
	case DM_TRACE_MAP:
		return TRACE_MAP;
	case DM_TRACE_UNMAP:
		return TRACE_UNMAP;
	case DM_TRACE_PIN:
		return TRACE_PIN;
	}
	return 0;
}

void trace_writer_tap(void *ctx, const struct dm_trace_event *d)
{
	const struct trace_event e = {
		.kind = kind_of(d->kind),
		.mapped = d->mapped,
		.offset = d->offset,
		.len = d->len,
		.file = d->file,
		.file_offset = d->file_offset,
		.ns = d->ns,
	};

	trace_record(ctx, &e);
}

uint64_t trace_writer_now(const struct trace_writer *w)
{
	return util_now_ns() - w->start_ns;
}

/* --- streams of one's own --- */

struct trace_stream *trace_stream_new(struct trace_writer *w)
{
	for (uint32_t i = SHARED; i < STREAMS; i++)
		if (!__atomic_exchange_n(&w->streams[i].taken, true, __ATOMIC_ACQUIRE))
			return &w->streams[i];
	return NULL;
}

void trace_stream_free(struct trace_stream *s)
{
	if (!s)
		return;
	hand_over(s);
	__atomic_store_n(&s->taken, false, __ATOMIC_RELEASE);
}

void trace_stream_access(struct trace_stream *s, uint64_t now_ns, struct dm_file_key file,
			 uint64_t offset, uint64_t len, bool write)
{
	uint64_t time_ns = now_ns > s->w->start_ns ? now_ns - s->w->start_ns : 0;
	uint8_t *p = reserve(s, time_ns, TRACE_EVENT_MAX);
	uint64_t page, pages;

	if (!p)
		return;
	pages = trace_pages(offset, len, &page);
	p = trace_put_common(&s->x, p, TRACE_ACCESS | (write ? TRACE_WRITE : 0),
			     TRACE_F_FILE | TRACE_F_PLACE, time_ns, file, page, pages);
	commit(s, p);
}

/* --- the file --- */

static int write_all(int fd, struct iovec *iov, int n, uint64_t at)
{
	while (n) {
		ssize_t done = pwritev(fd, iov, n, (off_t)at);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? errno : ENOSPC;
		at += (uint64_t)done;
		while (n && (size_t)done >= iov->iov_len) {
			done -= (ssize_t)iov->iov_len;
			iov++;
			n--;
		}
		if (n) {
			iov->iov_base = (char *)iov->iov_base + done;
			iov->iov_len -= (size_t)done;
		}
	}
	return 0;
}

static uint64_t place_of(uint64_t index)
{
	return TRACE_HEADER_SIZE + index * TRACE_BLOCK_SIZE;
}

/* Events that came in, whether they got into the file or not. */
static uint64_t count_events(struct trace_writer *w, uint64_t *lost)
{
	uint64_t events = 0;

	*lost = __atomic_load_n(&w->lost, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < STREAMS; i++) {
		events += __atomic_load_n(&w->streams[i].events, __ATOMIC_RELAXED);
		*lost += __atomic_load_n(&w->streams[i].lost, __ATOMIC_RELAXED);
	}
	return events;
}

static int write_header(struct trace_writer *w)
{
	uint8_t page[TRACE_HEADER_SIZE] = {0};
	struct iovec iov = {page, sizeof(page)};

	w->header.crc = 0;
	memcpy(page, &w->header, sizeof(w->header));
	w->header.crc = trace_crc32c(0, page, sizeof(page));
	memcpy(page, &w->header, sizeof(w->header));
	return write_all(w->fd, &iov, 1, 0);
}

static void close_header(struct trace_writer *w)
{
	uint64_t lost, events = count_events(w, &lost);
	uint32_t ending = ending_of(w);

	w->header.ending = ending == TRACE_OPEN ? TRACE_STOPPED : ending;
	w->header.end_ns = trace_writer_now(w);
	w->header.blocks = w->blocks;
	w->header.events = w->events_written;
	w->header.lost = lost + events - w->events_written;
	w->header.torn_block = w->torn;
	w->header.error = (uint32_t)w->error;
	if (write_header(w))
		g_warning("the header of the trace cannot be written: it stays unfinished");
}

/* Recording is over before it was asked to be. */
static void give_up(struct trace_writer *w, enum trace_ending why, int error)
{
	if (ending_of(w) != TRACE_OPEN)
		return;
	__atomic_store_n(&w->error, error, __ATOMIC_RELAXED);
	__atomic_store_n(&w->ending, why, __ATOMIC_RELEASE);
	if (why == TRACE_FULL)
		g_warning("the trace has reached its size cap and stops");
	else
		g_warning("the trace stops: %s", g_strerror(error));
}

static void write_failed(struct trace_writer *w, struct block *b, int error)
{
	if (b->index == UNPLACED) {
		if (ftruncate(w->fd, (off_t)place_of(w->blocks)) < 0)
			g_warning("the trace cannot be cut: %s", g_strerror(errno));
	} else {
		w->torn = b->index;
		__atomic_store_n(&w->events_written, w->events_written - FILL_EVENTS(b->written),
				 __ATOMIC_RELAXED);
		b->written = 0;
	}
	give_up(w, TRACE_ERROR, error);
}

static void write_block(struct trace_writer *w, struct block *b)
{
	static const uint8_t zeros[TRACE_BLOCK_DATA];
	uint64_t fill = __atomic_load_n(&b->fill, __ATOMIC_ACQUIRE);
	uint32_t used = FILL_BYTES(fill);
	struct trace_block_header h = {
		.magic = TRACE_BLOCK_MAGIC,
		.index = b->index == UNPLACED ? w->blocks : b->index,
		.stream = b->stream,
		.stream_seq = b->stream_seq,
		.used = used,
		.events = FILL_EVENTS(fill),
		.lost = b->lost,
		.first_ns = b->first_ns,
	};
	struct iovec iov[3] = {
		{&h, sizeof(h)}, {b->data, used}, {(void *)zeros, TRACE_BLOCK_DATA - used}};
	int err;

	if (fill == b->written || __atomic_load_n(&w->error, __ATOMIC_RELAXED))
		return;
	if (b->index == UNPLACED && w->blocks >= w->max_blocks) {
		give_up(w, TRACE_FULL, 0);
		return;
	}
	h.crc = trace_crc32c(trace_crc32c(0, &h, sizeof(h)), b->data, used);
	err = write_all(w->fd, iov, 3, place_of(h.index));
	if (err) {
		write_failed(w, b, err);
		return;
	}
	__atomic_store_n(&w->events_written,
			 w->events_written + FILL_EVENTS(fill) - FILL_EVENTS(b->written),
			 __ATOMIC_RELAXED);
	b->written = fill;
	if (b->index == UNPLACED) {
		b->index = w->blocks;
		__atomic_store_n(&w->blocks, w->blocks + 1, __ATOMIC_RELAXED);
	}
}

/* --- the writer thread --- */

static void put_free(struct trace_writer *w, struct block *b)
{
	for (uint32_t i = 0;; i = (i + 1) % w->n_free) {
		struct block *none = NULL;

		if (__atomic_compare_exchange_n(&w->free[i], &none, b, false, __ATOMIC_RELEASE,
						__ATOMIC_RELAXED))
			return;
	}
}

static void write_full(struct trace_writer *w)
{
	struct block *b = __atomic_exchange_n(&w->full, NULL, __ATOMIC_ACQUIRE), *first = NULL;

	while (b) {
		struct block *next = b->next;

		b->next = first;
		first = b;
		b = next;
	}
	while (first) {
		b = first;
		first = b->next;
		write_block(w, b);
		put_free(w, b);
	}
}

static void write_open(struct trace_writer *w)
{
	for (uint32_t i = 0; i < STREAMS; i++) {
		struct block *b = __atomic_load_n(&w->streams[i].block, __ATOMIC_ACQUIRE);

		if (b)
			write_block(w, b);
	}
}

static bool sleep_until(struct trace_writer *w, uint64_t deadline_ns)
{
	struct timespec t = {
		.tv_sec = (time_t)(deadline_ns / NS_PER_S),
		.tv_nsec = (long)(deadline_ns % NS_PER_S),
	};

	while (sem_clockwait(&w->wake, CLOCK_MONOTONIC, &t) < 0)
		if (errno != EINTR)
			return false;
	return true;
}

static void *run(void *arg)
{
	struct trace_writer *w = arg;
	uint64_t next = util_now_ns() + w->flush_ms * 1000000ull;
	bool closed = false;
	sigset_t too_big;

	/* Beyond RLIMIT_FSIZE a write is to fail, not to kill. */
	sigemptyset(&too_big);
	sigaddset(&too_big, SIGXFSZ);
	pthread_sigmask(SIG_BLOCK, &too_big, NULL);
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		if (closed) /* nothing is recorded any more */
			sem_wait(&w->wake);
		else if (!sleep_until(w, next) || util_now_ns() >= next) {
			write_open(w);
			next = util_now_ns() + w->flush_ms * 1000000ull;
		}
		write_full(w);
		if (!closed && ending_of(w) != TRACE_OPEN) {
			write_open(w);
			close_header(w);
			closed = true;
		}
	}
	write_full(w);
	write_open(w);
	close_header(w);
	return NULL;
}

/* --- making and unmaking --- */

static bool check_fd(int fd, GError **error)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, &st) < 0) {
		g_set_error(error, TRACE_ERROR_DOMAIN, TRACE_E_IO, "the trace's descriptor: %s",
			    g_strerror(errno));
		return false;
	}
	if (!S_ISREG(st.st_mode) || (flags & O_ACCMODE) == O_RDONLY ||
	    flags & (O_APPEND | O_PATH)) {
		g_set_error(error, TRACE_ERROR_DOMAIN, TRACE_E_IO,
			    "a trace needs a regular file that is open for writing, and not for "
			    "appending");
		return false;
	}
	return true;
}

static void fill_header(struct trace_writer *w, const struct trace_info *info)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	w->start_ns = util_now_ns();
	w->header = (struct trace_file_header){
		.version = TRACE_VERSION,
		.header_size = TRACE_HEADER_SIZE,
		.block_size = TRACE_BLOCK_SIZE,
		.seat = info->seat,
		.window_size = info->window_size,
		.granule = info->granule,
		.slot_size = info->slot_size,
		.budget = info->budget,
		.caps = info->caps,
		.batch = info->batch,
		.start_real_ns = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec,
		.torn_block = UINT64_MAX,
	};
	memcpy(w->header.magic, TRACE_MAGIC, sizeof(w->header.magic));
	memcpy(w->header.driver, info->driver, strnlen(info->driver, sizeof(w->header.driver)));
	g_strlcpy(w->header.producer, "daxmapd " DAXMAPD_VERSION, sizeof(w->header.producer));
}

static void make_blocks(struct trace_writer *w, unsigned int n)
{
	w->n_free = n;
	w->free = g_new0(struct block *, n);
	for (unsigned int i = 0; i < n; i++)
		w->free[i] = g_new0(struct block, 1);
}

static void free_memory(struct trace_writer *w)
{
	for (uint32_t i = 0; i < STREAMS; i++)
		g_free(w->streams[i].block);
	for (uint32_t i = 0; i < w->n_free; i++)
		g_free(w->free[i]);
	g_free(w->free);
	free(w->streams);
	sem_destroy(&w->wake);
	util_close(&w->fd);
	g_free(w);
}

struct trace_writer *trace_writer_new(int fd, const struct trace_writer_config *config,
				      GError **error)
{
	uint64_t max = config->max_bytes ? config->max_bytes : TRACE_MAX_BYTES_DEFAULT;
	struct trace_writer *w;
	int err;

	if (!check_fd(fd, error)) {
		util_close(&fd);
		return NULL;
	}
	w = g_new0(struct trace_writer, 1);
	w->fd = fd;
	w->torn = UINT64_MAX;
	w->flush_ms = config->flush_ms ? config->flush_ms : FLUSH_MS_DEFAULT;
	w->max_blocks = (MAX(max, TRACE_MAX_BYTES_MIN) - TRACE_HEADER_SIZE) / TRACE_BLOCK_SIZE;
	sem_init(&w->wake, 0, 0);
	w->streams = aligned_alloc(64, STREAMS * sizeof(*w->streams));
	g_assert(w->streams);
	memset(w->streams, 0, STREAMS * sizeof(*w->streams));
	for (uint32_t i = 0; i < STREAMS; i++) {
		w->streams[i].id = i;
		w->streams[i].w = w;
	}
	make_blocks(w, MAX(config->blocks ? config->blocks : BLOCKS_DEFAULT, BLOCKS_MIN));
	fill_header(w, &config->info);
	err = ftruncate(fd, 0) < 0 ? errno : write_header(w);
	if (err) {
		g_set_error(error, TRACE_ERROR_DOMAIN, TRACE_E_IO,
			    "the trace's header cannot be written: %s", g_strerror(err));
		free_memory(w);
		return NULL;
	}
	w->thread = g_thread_new("trace", run, w);
	return w;
}

void trace_writer_free(struct trace_writer *w, struct trace_writer_stats *stats)
{
	if (!w)
		return;
	__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
	sem_post(&w->wake);
	g_thread_join(w->thread);
	if (stats) {
		trace_writer_stats(w, stats);
		stats->ending = w->header.ending;
		stats->events = w->header.events;
		stats->lost = w->header.lost;
	}
	free_memory(w);
}

void trace_writer_stats(struct trace_writer *w, struct trace_writer_stats *out)
{
	uint64_t lost, events = count_events(w, &lost);

	*out = (struct trace_writer_stats){
		.ending = ending_of(w),
		.error = __atomic_load_n(&w->error, __ATOMIC_RELAXED),
		.events = events,
		.lost = lost,
		.bytes = place_of(__atomic_load_n(&w->blocks, __ATOMIC_RELAXED)),
		.max_bytes = place_of(w->max_blocks),
		.time_ns = trace_writer_now(w),
	};
	/* What was in memory when it ended is not in the file. */
	if (out->ending != TRACE_OPEN) {
		out->events = MIN(events, __atomic_load_n(&w->events_written, __ATOMIC_RELAXED));
		out->lost = lost + events - out->events;
	}
}

/* --- the name --- */

static bool may_be_replaced(int fd, const char *path, GError **error)
{
	char magic[sizeof(((struct trace_file_header *)0)->magic)];
	struct stat st;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		g_set_error(error, TRACE_ERROR_DOMAIN, TRACE_E_IO, "%s: not a regular file", path);
		return false;
	}
	if (st.st_size && (pread(fd, magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) ||
			   memcmp(magic, TRACE_MAGIC, sizeof(magic)) != 0)) {
		g_set_error(error, TRACE_ERROR_DOMAIN, TRACE_E_FOREIGN,
			    "%s: is there and is no trace: left alone", path);
		return false;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		g_set_error(error, TRACE_ERROR_DOMAIN, TRACE_E_IO, "%s: %s", path,
			    errno == EWOULDBLOCK ? "another recorder writes there"
						 : g_strerror(errno));
		return false;
	}
	return true;
}

int trace_file_create(const char *path, GError **error)
{
	util_autofd fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);

	if (fd < 0) {
		g_set_error(error, TRACE_ERROR_DOMAIN, TRACE_E_IO, "%s: %s", path,
			    g_strerror(errno));
		return -1;
	}
	if (!may_be_replaced(fd, path, error))
		return -1;
	return util_steal_fd(&fd);
}
