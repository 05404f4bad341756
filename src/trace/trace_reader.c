// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Opening reads every block once and checks it; what remains in memory is which block belongs to
 * which stream. Iterating merges the streams by time: each has a cursor with its block and its next
 * event, and a heap has the cursor with the earliest at its top.
 *
 * Files are numbered in the order in which they appear, so another pass gives the same numbers.
 */
#include "trace_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace_codec.h"
#include "util_fd.h"

#define STREAMS_MAX 65536u

struct piece {
	uint32_t stream;
	uint32_t seq;
	uint64_t index;
};

struct cursor {
	uint32_t next, end; /* pieces not yet read */
	uint8_t *block;
	const uint8_t *p;
	uint32_t left; /* events in the block */
	struct trace_context x;
	struct trace_event e;
	char *name; /* TRACE_NAME_MAX + 1 bytes, made when needed */
};

struct trace_reader {
	int fd;
	char *path;
	bool partial;
	struct trace_info info;
	uint64_t torn;
	uint64_t bad;
	GArray *pieces; /* of struct piece, by stream and number */
	struct cursor *cursors;
	uint32_t n_cursors;
	uint32_t *heap;
	uint32_t heap_n;
	bool started; /* the heap's top has been handed out */
	char name[TRACE_NAME_MAX + 1];
	/* files */
	GArray *files;	    /* of struct trace_file */
	GHashTable *by_key; /* struct dm_file_key -> id + 1 */
	uint32_t n_files;   /* of this pass */
	struct dm_file_key last_key;
	uint32_t last_id; /* UINT32_MAX = none */
};

static bool fail(const struct trace_reader *r, GError **error, enum trace_error code,
		 const char *format, ...) G_GNUC_PRINTF(4, 5);

static bool fail(const struct trace_reader *r, GError **error, enum trace_error code,
		 const char *format, ...)
{
	g_autofree char *text = NULL;
	va_list ap;

	va_start(ap, format);
	text = g_strdup_vprintf(format, ap);
	va_end(ap);
	g_set_error(error, TRACE_ERROR_DOMAIN, (int)code, "%s: %s", r->path, text);
	return false;
}

static ssize_t read_at(int fd, void *buf, size_t len, uint64_t at)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(fd, (char *)buf + got, len - got, (off_t)(at + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

/* --- header --- */

static void take_info(struct trace_reader *r, const struct trace_file_header *h)
{
	r->info = (struct trace_info){
		.seat = h->seat == TRACE_SEAT_GUEST ? TRACE_SEAT_GUEST : TRACE_SEAT_HOST,
		.ending = h->ending,
		.window_size = h->window_size,
		.granule = h->granule,
		.slot_size = h->slot_size,
		.budget = h->budget,
		.caps = h->caps,
		.batch = h->batch,
		.error = (int)h->error,
		.start_real_ns = h->start_real_ns,
		.end_ns = h->end_ns,
		.blocks = h->blocks,
		.events = h->events,
		.lost = h->lost,
	};
	memcpy(r->info.driver, h->driver, sizeof(h->driver));
	memcpy(r->info.producer, h->producer, sizeof(h->producer));
	r->torn = h->torn_block;
}

static bool read_header(struct trace_reader *r, GError **error)
{
	uint8_t page[TRACE_HEADER_SIZE] = {0};
	ssize_t n = read_at(r->fd, page, sizeof(page), 0);
	struct trace_file_header h;
	uint32_t crc;

	if (n < 0)
		return fail(r, error, TRACE_E_IO, "%s", g_strerror((int)-n));
	memcpy(&h, page, sizeof(h));
	if (n < (ssize_t)sizeof(h.magic) || memcmp(h.magic, TRACE_MAGIC, sizeof(h.magic)) != 0)
		return fail(r, error, TRACE_E_FOREIGN, "not a trace");
	if (n >= 12 && h.version > TRACE_VERSION)
		return fail(r, error, TRACE_E_VERSION,
			    "a trace of version %u; this program reads up to version %u", h.version,
			    TRACE_VERSION);
	if (n < (ssize_t)sizeof(page))
		return fail(r, error, TRACE_E_TRUNCATED, "truncated: %zd bytes are no whole header",
			    n);
	crc = h.crc;
	memset(page + offsetof(struct trace_file_header, crc), 0, sizeof(crc));
	if (trace_crc32c(0, page, sizeof(page)) != crc || !h.version ||
	    h.header_size != TRACE_HEADER_SIZE || h.block_size != TRACE_BLOCK_SIZE ||
	    h.ending > TRACE_ERROR || h.seat > TRACE_SEAT_GUEST)
		return fail(r, error, TRACE_E_CORRUPT, "damaged: its header is wrong");
	take_info(r, &h);
	return true;
}

/* --- blocks --- */

/* What is wrong with a block, or NULL. */
static const char *check_block(uint8_t *block, uint64_t index, struct trace_block_header *h)
{
	memcpy(h, block, sizeof(*h));
	if (h->magic != TRACE_BLOCK_MAGIC || h->used > TRACE_BLOCK_DATA)
		return "is none";
	memset(block + offsetof(struct trace_block_header, crc), 0, sizeof(h->crc));
	if (trace_crc32c(0, block, sizeof(*h) + h->used) != h->crc)
		return "has a wrong checksum";
	if (h->index != index || h->stream >= STREAMS_MAX)
		return "lies in the wrong place";
	if (!trace_check_block(block + sizeof(*h), h->used, h->events))
		return "has a malformed event";
	return NULL;
}

static bool scan_block(struct trace_reader *r, uint64_t i, uint8_t *block, uint64_t *events,
		       uint64_t *lost, GError **error)
{
	ssize_t n =
		read_at(r->fd, block, TRACE_BLOCK_SIZE, TRACE_HEADER_SIZE + i * TRACE_BLOCK_SIZE);
	struct trace_block_header h;
	const char *wrong = n == TRACE_BLOCK_SIZE ? check_block(block, i, &h) : "ends early";
	struct piece piece;

	if (n < 0)
		return fail(r, error, TRACE_E_IO, "%s", g_strerror((int)-n));
	if (wrong && (r->partial || i == r->torn)) {
		r->bad++;
		return true;
	}
	if (wrong)
		return fail(r, error, TRACE_E_CORRUPT,
			    "damaged: block %" G_GUINT64_FORMAT
			    " %s; --partial passes over what is damaged",
			    i, wrong);
	if (i == r->torn)
		return true;
	piece = (struct piece){h.stream, h.stream_seq, i};
	g_array_append_val(r->pieces, piece);
	*events += h.events;
	*lost += h.lost;
	return true;
}

static bool check_size(struct trace_reader *r, uint64_t size, uint64_t *blocks, GError **error)
{
	uint64_t room = size - TRACE_HEADER_SIZE, have = room / TRACE_BLOCK_SIZE;
	uint64_t told = r->info.blocks;

	*blocks = have;
	if (r->partial) {
		if (r->info.ending != TRACE_OPEN && told > have)
			r->bad = told - have;
		return true;
	}
	if (r->info.ending == TRACE_OPEN)
		return fail(r, error, TRACE_E_UNFINISHED,
			    "unfinished: it is being recorded, or its recorder was killed; "
			    "--partial reads what is there");
	if (told > have)
		return fail(r, error, TRACE_E_TRUNCATED,
			    "truncated: %" G_GUINT64_FORMAT " of %" G_GUINT64_FORMAT
			    " blocks are there; --partial reads them",
			    have, told);
	if (told != have || room % TRACE_BLOCK_SIZE)
		return fail(r, error, TRACE_E_CORRUPT,
			    "damaged: longer than it says; --partial reads what is there");
	return true;
}

static int by_stream(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->stream != y->stream)
		return x->stream < y->stream ? -1 : 1;
	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

static bool scan(struct trace_reader *r, GError **error)
{
	g_autofree uint8_t *block = g_malloc(TRACE_BLOCK_SIZE);
	uint64_t blocks, events = 0, lost = 0;
	struct stat st;

	if (fstat(r->fd, &st) < 0)
		return fail(r, error, TRACE_E_IO, "%s", g_strerror(errno));
	if (!check_size(r, (uint64_t)st.st_size, &blocks, error))
		return false;
	for (uint64_t i = 0; i < blocks; i++)
		if (!scan_block(r, i, block, &events, &lost, error))
			return false;
	if (!r->partial && events != r->info.events)
		return fail(r, error, TRACE_E_CORRUPT,
			    "damaged: %" G_GUINT64_FORMAT
			    " events, the header says %" G_GUINT64_FORMAT,
			    events, r->info.events);
	if (r->partial) {
		r->info.blocks = r->pieces->len;
		r->info.events = events;
		r->info.lost = MAX(lost, r->info.lost);
	}
	g_array_sort(r->pieces, by_stream);
	return true;
}

/* --- cursors --- */

/* Reads the next block of a stream; false when there is none (or, with error, it went bad). */
static bool next_block(struct trace_reader *r, struct cursor *c, GError **error)
{
	const struct piece *piece;
	struct trace_block_header h;
	ssize_t n;

	while (c->next < c->end) {
		piece = &g_array_index(r->pieces, struct piece, c->next++);
		n = read_at(r->fd, c->block, TRACE_BLOCK_SIZE,
			    TRACE_HEADER_SIZE + piece->index * TRACE_BLOCK_SIZE);
		/* Checked before: who changes it now may be the one that records it. */
		if (n != TRACE_BLOCK_SIZE || check_block(c->block, piece->index, &h)) {
			if (!r->partial)
				return fail(r, error, TRACE_E_CORRUPT,
					    "it changed while it was read");
			r->bad++;
			continue;
		}
		c->p = c->block + sizeof(h);
		c->left = h.events;
		c->x = (struct trace_context){.time_ns = h.first_ns};
		if (c->left)
			return true;
	}
	return false;
}

/* The stream's next event; 1, 0 at its end, -1. */
static int advance(struct trace_reader *r, struct cursor *c, GError **error)
{
	const uint8_t *end = c->block + TRACE_BLOCK_SIZE;
	GError *e = NULL;

	if (!c->left && !next_block(r, c, &e)) {
		if (!e)
			return 0;
		g_propagate_error(error, e);
		return -1;
	}
	c->left--;
	c->p = trace_decode(&c->x, c->p, end, &c->e, c->name);
	g_assert(c->p); /* the block was checked */
	return 1;
}

static bool earlier(const struct trace_reader *r, uint32_t a, uint32_t b)
{
	uint64_t x = r->cursors[a].e.time_ns, y = r->cursors[b].e.time_ns;

	return x != y ? x < y : a < b;
}

static void sift_down(struct trace_reader *r, uint32_t i)
{
	uint32_t moving = r->heap[i];

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= r->heap_n)
			break;
		if (child + 1 < r->heap_n && earlier(r, r->heap[child + 1], r->heap[child]))
			child++;
		if (!earlier(r, r->heap[child], moving))
			break;
		r->heap[i] = r->heap[child];
		i = child;
	}
	r->heap[i] = moving;
}

static void make_cursors(struct trace_reader *r)
{
	uint32_t n = 0;

	r->cursors = g_new0(struct cursor, r->pieces->len + 1);
	for (uint32_t i = 0; i < r->pieces->len; i++) {
		const struct piece *p = &g_array_index(r->pieces, struct piece, i);

		if (!i || p[-1].stream != p->stream) {
			r->cursors[n].next = i;
			r->cursors[n].block = g_malloc(TRACE_BLOCK_SIZE);
			r->cursors[n].name = g_malloc(TRACE_NAME_MAX + 1);
			n++;
		}
		r->cursors[n - 1].end = i + 1;
	}
	r->n_cursors = n;
	r->heap = g_new(uint32_t, n + 1);
}

static bool start(struct trace_reader *r, GError **error)
{
	r->heap_n = 0;
	for (uint32_t i = 0; i < r->n_cursors; i++) {
		int got = advance(r, &r->cursors[i], error);

		if (got < 0)
			return false;
		if (got)
			r->heap[r->heap_n++] = i;
	}
	for (uint32_t i = r->heap_n / 2; i-- > 0;)
		sift_down(r, i);
	return true;
}

void trace_reader_rewind(struct trace_reader *r)
{
	for (uint32_t i = 0, at = 0; i < r->n_cursors; i++) {
		r->cursors[i].next = at;
		r->cursors[i].left = 0;
		at = r->cursors[i].end;
	}
	r->started = false;
	r->n_files = 0;
	r->last_id = UINT32_MAX;
	g_hash_table_remove_all(r->by_key);
}

/* --- files --- */

static guint key_hash(gconstpointer p)
{
	const struct dm_file_key *k = p;
	uint64_t h = (k->hi * 0x9e3779b97f4a7c15ull ^ k->lo) * 0xff51afd7ed558ccdull;

	return (guint)(h >> 32);
}

static gboolean key_equal(gconstpointer a, gconstpointer b)
{
	return dm_file_key_equal(*(const struct dm_file_key *)a, *(const struct dm_file_key *)b);
}

static struct trace_file *file_at(const struct trace_reader *r, uint32_t id)
{
	return &g_array_index(r->files, struct trace_file, id);
}

static uint32_t new_file(struct trace_reader *r, struct dm_file_key key)
{
	uint32_t id = r->n_files++;

	if (id == r->files->len) {
		struct trace_file f = {.key = key};

		g_array_append_val(r->files, f);
	}
	g_hash_table_insert(r->by_key, g_memdup2(&key, sizeof(key)), GUINT_TO_POINTER(id + 1));
	return id;
}

static void note_file(struct trace_reader *r, struct trace_event *e)
{
	struct trace_file *f;

	if (r->last_id == UINT32_MAX || !dm_file_key_equal(e->file, r->last_key)) {
		gpointer known = g_hash_table_lookup(r->by_key, &e->file);

		r->last_id = known ? GPOINTER_TO_UINT(known) - 1 : new_file(r, e->file);
		r->last_key = e->file;
	}
	f = file_at(r, r->last_id);
	if (e->kind == TRACE_NAME && f->name && strcmp(f->name, e->name) != 0)
		f = file_at(r, r->last_id = new_file(r, e->file));
	if (e->kind == TRACE_NAME && !f->name)
		f->name = g_strdup(e->name);
	f->end = MAX(f->end, e->file_offset + e->len);
	e->file_id = r->last_id;
}

/* --- iterating --- */

int trace_reader_next(struct trace_reader *r, struct trace_event *e, GError **error)
{
	if (!r->started) {
		if (!start(r, error))
			return -1;
		r->started = true;
	} else if (r->heap_n) {
		int got = advance(r, &r->cursors[r->heap[0]], error);

		if (got < 0)
			return -1;
		if (!got)
			r->heap[0] = r->heap[--r->heap_n];
		if (r->heap_n)
			sift_down(r, 0);
	}
	if (!r->heap_n)
		return 0;
	*e = r->cursors[r->heap[0]].e;
	e->stream = (uint16_t)g_array_index(r->pieces, struct piece, r->cursors[r->heap[0]].end - 1)
			    .stream;
	if (trace_kind_fields(e->kind) & TRACE_F_FILE)
		note_file(r, e);
	return 1;
}

const struct trace_info *trace_reader_info(const struct trace_reader *r)
{
	return &r->info;
}

uint64_t trace_reader_bad_blocks(const struct trace_reader *r)
{
	return r->bad;
}

uint32_t trace_reader_files(const struct trace_reader *r)
{
	return r->n_files;
}

const struct trace_file *trace_reader_file(const struct trace_reader *r, uint32_t id)
{
	return id < r->files->len ? file_at(r, id) : NULL;
}

static void clear_file(void *p)
{
	g_free(((struct trace_file *)p)->name);
}

struct trace_reader *trace_reader_open(const char *path, unsigned int flags, GError **error)
{
	struct trace_reader *r = g_new0(struct trace_reader, 1);
	struct stat st;

	r->path = g_strdup(path);
	r->partial = flags & TRACE_READ_PARTIAL;
	r->last_id = UINT32_MAX;
	r->pieces = g_array_new(FALSE, FALSE, sizeof(struct piece));
	r->files = g_array_new(FALSE, FALSE, sizeof(struct trace_file));
	g_array_set_clear_func(r->files, clear_file);
	r->by_key = g_hash_table_new_full(key_hash, key_equal, g_free, NULL);
	/* Not to wait for the other end of a FIFO. */
	r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (r->fd < 0 || fstat(r->fd, &st) < 0)
		fail(r, error, TRACE_E_IO, "%s", g_strerror(errno));
	else if (!S_ISREG(st.st_mode))
		fail(r, error, TRACE_E_FOREIGN, "not a trace: no regular file");
	else if (read_header(r, error) && scan(r, error)) {
		make_cursors(r);
		return r;
	}
	trace_reader_free(r);
	return NULL;
}

void trace_reader_free(struct trace_reader *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < r->n_cursors; i++) {
		g_free(r->cursors[i].block);
		g_free(r->cursors[i].name);
	}
	g_free(r->cursors);
	g_free(r->heap);
	g_array_unref(r->pieces);
	g_array_unref(r->files);
	g_hash_table_unref(r->by_key);
	g_free(r->path);
	util_close(&r->fd);
	g_free(r);
}
