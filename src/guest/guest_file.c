// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * The table (daxmap/cache.h) keeps what is mapped; its driver is guest_dax. A read first asks it
 * without waiting. On a miss the admission policy decides; what it admits is handed to the mapper,
 * a thread that maps one slot after the other, and the read goes by request meanwhile: nobody but
 * the mapper waits for a map. The mapper's list is short: what does not fit was not worth much,
 * and is asked for again soon if it was.
 *
 * Who goes through a file in order (guest_stream) finds the next slot mapped already: the mapper
 * is told when he enters the one before. A slot of such a stream is used once by each of its
 * operations, so admission only asks whether these are many enough. Where the mapper is late he
 * waits: hundreds of requests cost more than one map, and take the mapper's CPU time.
 *
 * GUEST_ADMIT_EAGER wishes for all it misses. Once the window is full each wish costs another slot
 * its place, so the mapper then rests as long as it works: a half of the time is the readers'. But
 * not before a slot that a stream is on its way to: that one will be used from end to end.
 *
 * A file that is opened for writing is mapped read-write at once, for that needs no second map
 * later. A map that the back-end refuses for good closes the window for its file.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "guest_admit.h"
#include "guest_dax.h"
#include "guest_file.h"
#include "guest_fuse_internal.h"
#include "guest_stream.h"
#include "util_overflow.h"
#include "util_rcu.h"
#include "util_tsan.h"

#define WISHES 64u
#define AHEAD_SLOTS 4u
#define STREAM_MIN 2u
#define REST_MAX_NS 10000000u
#define PINNED_REST 20u
#define KEY_WRITE 1u

struct wish {
	struct guest_file *file;
	uint64_t offset;
	bool streamed;
};

struct guest_files {
	struct guest_fuse *fuse;
	struct dm_window *window;
	struct dm_cache *cache;
	struct guest_admit *admit;
	enum guest_admission admission;
	uint64_t slot;
	bool ahead;	       /* there is room for what may be used next */
	uint64_t pinned_until; /* atomic, ns: no stream waits for a slot before */

	GThread *mapper;
	struct util_mutex lock; /* all below */
	struct util_cond wished;
	struct util_cond mapped;
	struct util_cond stopped;
	struct wish wishes[WISHES]; /* [0] is under way while @busy */
	unsigned int nwishes;	    /* written under the lock, read without */
	bool busy;
	bool stop;
};

struct guest_file {
	struct guest_files *fs;
	struct dm_file_key key;
	uint64_t node;
	uint64_t fh;
	uint64_t size; /* atomic */
	bool mappable; /* atomic */
	bool own;      /* node and handle are ours to give back */
	struct guest_streams streams;
};

/* --- the table's view of files: by node; there are no descriptors here --- */

static int no_open(void *ctx, struct dm_file_key key, bool *writable)
{
	*writable = key.hi & KEY_WRITE;
	return 0;
}

static void no_close(void *ctx, struct dm_file_key key, int fd)
{
}

static const struct dm_file_provider provider = {.open = no_open, .close = no_close};

/* --- the mapper --- */

static uint64_t hash_of(const struct guest_file *f, uint64_t offset)
{
	return util_hash_u64(f->key.lo ^ util_hash_u64(offset / f->fs->slot));
}

/* Not for want of room or of a session, but because this file cannot be mapped. */
static bool is_final(int err)
{
	return err == -ENODEV || err == -EINVAL || err == -EOPNOTSUPP || err == -ENOSYS ||
	       err == -EACCES || err == -EPERM;
}

static void note_refusal(struct guest_file *f, int err)
{
	if (is_final(err))
		__atomic_store_n(&f->mappable, false, __ATOMIC_RELAXED);
}

/* How long it took, or 0. */
static uint64_t grant(struct guest_files *fs, const struct wish *w)
{
	uint64_t start = util_now_ns(), ns;
	struct dm_ref ref;
	int err = dm_cache_try_get(fs->cache, w->file->key, w->offset, 1, false, &ref);

	if (err == -EAGAIN)
		err = dm_cache_get(fs->cache, w->file->key, w->offset, 1, false, &ref);
	else
		start = 0; /* somebody else has mapped it */
	if (err) {
		note_refusal(w->file, err);
		return 0;
	}
	dm_cache_put(fs->cache, &ref);
	if (!start)
		return 0;
	ns = util_now_ns() - start;
	guest_admit_mapped(fs->admit, hash_of(w->file, w->offset), ns);
	return ns;
}

static void rest_locked(struct guest_files *fs, uint64_t ns) UTIL_REQUIRES(fs->lock)
{
	uint64_t until = util_now_ns() + ns;

	while (!fs->stop && util_cond_wait_until(&fs->stopped, &fs->lock, until))
		;
}

static gpointer mapper_thread(gpointer data)
{
	struct guest_files *fs = data;

	util_mutex_lock(&fs->lock);
	while (!fs->stop) {
		struct wish w = fs->wishes[0];
		uint64_t ns;

		if (!fs->nwishes) {
			util_cond_wait(&fs->wished, &fs->lock);
			continue;
		}
		fs->busy = true;
		util_mutex_unlock(&fs->lock);
		ns = grant(fs, &w);
		util_mutex_lock(&fs->lock);
		fs->busy = false;
		__atomic_store_n(&fs->nwishes, fs->nwishes - 1, __ATOMIC_RELAXED);
		memmove(fs->wishes, fs->wishes + 1, fs->nwishes * sizeof(fs->wishes[0]));
		util_cond_broadcast(&fs->mapped);
		if (ns && !w.streamed && fs->admission == GUEST_ADMIT_EAGER &&
		    guest_admit_full(fs->admit))
			rest_locked(fs, MIN(ns, REST_MAX_NS));
	}
	util_mutex_unlock(&fs->lock);
	return NULL;
}

static void make_wish(struct guest_file *f, uint64_t off, bool streamed)
{
	struct guest_files *fs = f->fs;
	uint64_t slot = off & ~(fs->slot - 1);
	unsigned int i = 0;

	util_mutex_lock(&fs->lock);
	while (i < fs->nwishes && (fs->wishes[i].file != f || fs->wishes[i].offset != slot))
		i++;
	if (i == fs->nwishes && i < WISHES) {
		fs->wishes[i] = (struct wish){
			.file = f,
			.offset = slot,
			.streamed = streamed,
		};
		__atomic_store_n(&fs->nwishes, i + 1, __ATOMIC_RELAXED);
		util_cond_signal(&fs->wished);
	}
	util_mutex_unlock(&fs->lock);
}

/* Takes back the wishes for a file that is being closed. */
static void drop_wishes(struct guest_file *f)
{
	struct guest_files *fs = f->fs;
	unsigned int kept;

	util_mutex_lock(&fs->lock);
	kept = fs->busy ? 1 : 0;
	for (unsigned int i = kept; i < fs->nwishes; i++)
		if (fs->wishes[i].file != f)
			fs->wishes[kept++] = fs->wishes[i];
	__atomic_store_n(&fs->nwishes, kept, __ATOMIC_RELAXED);
	while (fs->busy && fs->wishes[0].file == f)
		util_cond_wait(&fs->mapped, &fs->lock);
	util_mutex_unlock(&fs->lock);
}

/* --- making --- */

static bool open_window(struct guest_files *fs, const struct guest_files_config *c, GError **error)
{
	struct guest_window *w = guest_frontend_window(guest_fuse_frontend(fs->fuse));

	if (!guest_window_base(w) || !(guest_fuse_flags(fs->fuse) & FUSE_MAP_ALIGNMENT))
		return true;
	fs->window = guest_dax_new(fs->fuse, c->window, c->max_mappings, error);
	if (!fs->window)
		return false;
	fs->cache = dm_cache_new(fs->window, &provider, &c->cache);
	if (!fs->cache) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "a window of %" G_GUINT64_FORMAT
			    " bytes has no room for slots of %" G_GUINT64_FORMAT,
			    fs->window->caps.size, fs->slot);
		return false;
	}
	fs->admit = guest_admit_new((uint32_t)(fs->window->caps.size / fs->slot));
	fs->ahead = fs->window->caps.size / fs->slot >= AHEAD_SLOTS && !c->cache.vanilla;
	fs->mapper = g_thread_new("guest-mapper", mapper_thread, fs);
	return true;
}

struct guest_files *guest_files_new(struct guest_fuse *fuse, const struct guest_files_config *c,
				    GError **error)
{
	static const struct guest_files_config defaults = {.admission = GUEST_ADMIT_ADAPTIVE};
	struct guest_files *fs = g_new0(struct guest_files, 1);

	if (!c)
		c = &defaults;
	fs->fuse = fuse;
	fs->admission = c->admission;
	fs->slot = c->cache.slot_size ? c->cache.slot_size : 2u << 20;
	util_mutex_init(&fs->lock);
	util_cond_init(&fs->wished);
	util_cond_init(&fs->mapped);
	util_cond_init(&fs->stopped);
	if (!open_window(fs, c, error)) {
		guest_files_free(fs);
		return NULL;
	}
	return fs;
}

void guest_files_free(struct guest_files *fs)
{
	if (!fs)
		return;
	util_mutex_lock(&fs->lock);
	fs->stop = true;
	util_cond_signal(&fs->wished);
	util_cond_signal(&fs->stopped);
	util_mutex_unlock(&fs->lock);
	if (fs->mapper)
		g_thread_join(fs->mapper);
	dm_cache_free(fs->cache);
	dm_window_destroy(fs->window);
	guest_admit_free(fs->admit);
	util_cond_destroy(&fs->stopped);
	util_cond_destroy(&fs->mapped);
	util_cond_destroy(&fs->wished);
	util_mutex_destroy(&fs->lock);
	g_free(fs);
}

bool guest_files_has_window(struct guest_files *fs)
{
	return fs->cache;
}

void guest_files_set_trace(struct guest_files *fs, const struct dm_trace *trace)
{
	if (fs->cache)
		dm_cache_set_trace(fs->cache, trace);
}

struct dm_file_key guest_file_key(const struct guest_file *f)
{
	return f->key;
}

void guest_files_stats(struct guest_files *fs, struct dm_stats *out)
{
	memset(out, 0, sizeof(*out));
	if (fs->cache)
		dm_cache_stats(fs->cache, out);
}

void guest_files_note_read(struct guest_files *fs, uint64_t ns, unsigned int in_flight)
{
	if (fs->admit)
		guest_admit_read(fs->admit, ns, in_flight);
}

/* --- opening --- */

struct guest_file *guest_file_adopt(struct guest_files *fs, const struct fuse_entry_out *entry,
				    uint64_t fh, uint32_t flags)
{
	struct guest_file *f = g_new0(struct guest_file, 1);
	bool marked = entry->attr.flags & FUSE_ATTR_DAX;

	f->fs = fs;
	f->node = entry->nodeid;
	f->fh = fh;
	f->size = entry->attr.size;
	f->key = (struct dm_file_key){
		.hi = (flags & O_ACCMODE) == O_RDONLY ? 0 : KEY_WRITE,
		.lo = entry->nodeid,
	};
	/* Without HAS_INODE_DAX all files are as good as marked. */
	f->mappable = fs->cache && S_ISREG(entry->attr.mode) &&
		      (marked || !(guest_fuse_flags(fs->fuse) & FUSE_HAS_INODE_DAX));
	return f;
}

struct guest_file *guest_file_open(struct guest_files *fs, const char *path, uint32_t flags,
				   int *err)
{
	struct fuse_entry_out e;
	struct guest_file *f;
	uint64_t fh;

	*err = guest_fuse_path(fs->fuse, path, &e);
	if (*err)
		return NULL;
	*err = guest_fuse_open(fs->fuse, e.nodeid, flags, &fh);
	if (*err) {
		guest_fuse_forget(fs->fuse, e.nodeid, 1);
		return NULL;
	}
	f = guest_file_adopt(fs, &e, fh, flags);
	f->own = true;
	return f;
}

void guest_file_close(struct guest_file *f)
{
	if (!f)
		return;
	if (f->fs->cache) {
		drop_wishes(f);
		dm_cache_flush_file(f->fs->cache, f->key);
	}
	if (f->own) {
		guest_fuse_release(f->fs->fuse, f->node, f->fh);
		guest_fuse_forget(f->fs->fuse, f->node, 1);
	}
	g_free(f);
}

uint64_t guest_file_size(struct guest_file *f)
{
	return __atomic_load_n(&f->size, __ATOMIC_RELAXED);
}

bool guest_file_can_map(struct guest_file *f)
{
	return __atomic_load_n(&f->mappable, __ATOMIC_RELAXED);
}

/* --- pins --- */

int guest_file_get(struct guest_file *f, uint64_t off, uint64_t len, bool write, struct dm_ref *ref)
{
	int err;

	if (!guest_file_can_map(f))
		return -ENODEV;
	if (!len || !util_range_inside(off, len, guest_file_size(f)))
		return -ERANGE;
	err = dm_cache_get(f->fs->cache, f->key, off, len, write, ref);
	if (err)
		note_refusal(f, err);
	return err;
}

void guest_file_put(struct guest_file *f, struct dm_ref *ref)
{
	dm_cache_put(f->fs->cache, ref);
}

static bool room_for_wishes(const struct guest_files *fs)
{
	return __atomic_load_n(&fs->nwishes, __ATOMIC_RELAXED) < WISHES;
}

static bool is_worth_streaming(struct guest_files *fs, uint64_t len)
{
	return fs->ahead && fs->admission != GUEST_ADMIT_NEVER &&
	       (fs->admission != GUEST_ADMIT_ADAPTIVE ||
		guest_admit_stream(fs->admit, fs->slot / len));
}

/* So that the mapper is not woken for nothing: where all is mapped, it sleeps. */
static bool is_mapped(struct guest_file *f, uint64_t off)
{
	struct dm_ref ref;
	int err = dm_cache_try_get(f->fs->cache, f->key, off, 1, false, &ref);

	if (!err)
		dm_cache_put(f->fs->cache, &ref);
	return !err;
}

/* The slot after the one that is entered at @off, if somebody is on his way to it. */
static void look_ahead(struct guest_file *f, uint64_t off, uint64_t len)
{
	struct guest_files *fs = f->fs;
	uint64_t start = off & ~(fs->slot - 1), next = start + fs->slot;

	if (off - start >= len || !is_worth_streaming(fs, len))
		return;
	if (guest_stream_enter(&f->streams, start / fs->slot) >= STREAM_MIN &&
	    next < guest_file_size(f) && !is_mapped(f, next))
		make_wish(f, next, true);
}

/* Is @off, which is not mapped, in a slot that is being gone through from end to end? */
static bool is_streamed(struct guest_file *f, uint64_t off, uint64_t len)
{
	return guest_stream_in(&f->streams, off / f->fs->slot, STREAM_MIN) &&
	       is_worth_streaming(f->fs, len);
}

/* Where all slots were pinned a stream waited for nothing, and goes by request for a while. */
static int get_streamed(struct guest_file *f, uint64_t off, uint64_t len, bool write,
			struct dm_ref *ref)
{
	uint64_t start = util_now_ns();
	int err;

	if (start < __atomic_load_n(&f->fs->pinned_until, __ATOMIC_RELAXED))
		return -EAGAIN;
	err = guest_file_get(f, off, len, write, ref);
	if (err == -EBUSY)
		__atomic_store_n(&f->fs->pinned_until,
				 util_now_ns() + PINNED_REST * (util_now_ns() - start),
				 __ATOMIC_RELAXED);
	return err && err != -EPIPE ? -EAGAIN : err;
}

/* Nothing of it is mapped: shall it be? */
static bool is_wished(struct guest_file *f, uint64_t off)
{
	struct guest_files *fs = f->fs;

	if (fs->admission == GUEST_ADMIT_NEVER)
		return false;
	return fs->admission == GUEST_ADMIT_EAGER || guest_admit_miss(fs->admit, hash_of(f, off));
}

int guest_file_admit(struct guest_file *f, uint64_t off, uint64_t len, bool write,
		     struct dm_ref *ref)
{
	struct guest_files *fs = f->fs;
	int err;

	if (fs->admission == GUEST_ADMIT_ALWAYS) {
		err = guest_file_get(f, off, len, write, ref);
		if (!err)
			look_ahead(f, off, len);
		return err;
	}
	if (!guest_file_can_map(f) || !len || !util_range_inside(off, len, guest_file_size(f)))
		return -EAGAIN;
	err = dm_cache_try_get(fs->cache, f->key, off, len, write, ref);
	if (!err && fs->admission == GUEST_ADMIT_ADAPTIVE)
		guest_admit_hit(fs->admit, hash_of(f, off));
	if (!err || err == -EAGAIN)
		look_ahead(f, off, len);
	if (err != -EAGAIN)
		return err;
	if (is_streamed(f, off, len))
		return get_streamed(f, off, len, write, ref);
	if (is_wished(f, off) && room_for_wishes(fs))
		make_wish(f, off, false);
	return -EAGAIN;
}

/* --- reading and writing --- */

static ssize_t by_request(struct guest_file *f, void *buf, size_t len, uint64_t off, bool write)
{
	struct guest_mem *mem = guest_frontend_mem(guest_fuse_frontend(f->fs->fuse));
	uint32_t n = (uint32_t)MIN(len, guest_fuse_max_write(f->fs->fuse));
	void *bounce = guest_mem_alloc(mem, n);
	uint64_t start = util_now_ns();
	ssize_t got;

	if (!bounce)
		return -ENOMEM;
	if (write) {
		memcpy(bounce, buf, n);
		got = guest_fuse_write(f->fs->fuse, f->node, f->fh, off, bounce, n);
	} else {
		got = guest_fuse_read(f->fs->fuse, f->node, f->fh, off, bounce, n);
	}
	guest_files_note_read(f->fs, util_now_ns() - start, 1);
	if (!write && got > 0)
		memcpy(buf, bounce, (size_t)got);
	guest_mem_release(mem, bounce, n);
	return got;
}

static void grow(struct guest_file *f, uint64_t end)
{
	uint64_t size = guest_file_size(f);

	while (size < end && !__atomic_compare_exchange_n(&f->size, &size, end, true,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* One step: through the window as far as the pinned piece goes, or one request. */
static ssize_t step(struct guest_file *f, void *buf, size_t len, uint64_t off, bool write)
{
	uint64_t size = guest_file_size(f);
	struct dm_ref ref;
	ssize_t n;
	int err = -EAGAIN;

	if (off < size)
		err = guest_file_admit(f, off, MIN(len, size - off), write, &ref);
	if (!err) {
		util_tsan_file_bytes_begin();
		memcpy(write ? ref.addr : buf, write ? buf : ref.addr, ref.len);
		util_tsan_file_bytes_end();
		n = (ssize_t)ref.len;
		guest_file_put(f, &ref);
		return n;
	}
	if (err == -EPIPE)
		return err;
	/* The window is a short cut: what it refuses may still be had by request. */
	n = by_request(f, buf, len, off, write);
	if (write && n > 0)
		grow(f, off + (uint64_t)n);
	return n;
}

static ssize_t move(struct guest_file *f, void *buf, size_t len, uint64_t off, bool write)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = step(f, (char *)buf + done, len - done, off + done, write);

		if (n < 0 && !done)
			return n;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t guest_file_read(struct guest_file *f, void *buf, size_t len, uint64_t off)
{
	return move(f, buf, len, off, false);
}

ssize_t guest_file_write(struct guest_file *f, const void *buf, size_t len, uint64_t off)
{
	return move(f, (void *)(uintptr_t)buf, len, off, true);
}
