// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation.
 *
 * A VMM that touches a mapping behind the end of its file is killed by SIGBUS. So each file with
 * mapped ranges has an entry here, with a descriptor of the real file (not the size shim's), its
 * size as last seen, and a fanotify mark. A change is looked into by check(), in the thread here or
 * in a request that may wait:
 *
 *  - shorter than last seen, and no guest request of ours is about to set the size: the file is
 *    *truncated* until it has no ranges. The table replaces what lies behind the end by zeros
 *    (dm_host_fit()); from the first of them, @blank_from, on, the guest may not see bytes;
 *  - longer, and some are blank: the table puts the file back.
 *
 * Zeros must never hide bytes. A guest learns that a file has grown from attributes, or makes it
 * grow itself. Attributes are kept at @blank_from until the bytes are back, as if the file grew
 * only then: nothing has to wait. A request that makes it grow waits for watch_settle() before it
 * is answered. @blank_from is set before the first range is replaced.
 *
 * Where the kernel asks before a truncation (src/hold), it is *announced*: until it is over the
 * file counts as so short as it is going to be, whatever its size is; what will lie behind is
 * replaced, also where that takes bytes in front of it away for a moment (DM_FIT_TEAR: a VMM that
 * dies is the other choice), and then the truncation may happen. Attributes are kept at the
 * announced end meanwhile, and a request that makes the file grow waits until it is over.
 *
 * A size that a guest sets is its own affair: it has unmapped what lies behind. Taking one for the
 * other does no harm but a mark lost and a line in the log: what is replaced lies behind the end.
 *
 * Locks: watch.lock guards the list of files, and is held over fanotify_mark(2). watch_file.lock,
 * one check of a file at a time, is held while the VMM works: nothing that a VMM may wait for
 * takes it. Neither is taken under the other. Requests find a file under RCU.
 */
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <glib.h>

#include <daxmap/table.h>

#include "hold.h"
#include "util_fd.h"
#include "util_lock.h"
#include "util_log.h"
#include "util_overflow.h"
#include "util_rcu.h"
#include "watch_fan.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "watch"

/* syscalls: fstat fcntl close poll read write memfd_create ftruncate */

#define PAGE 4096u
#define NAP_MS 1    /* a file that is written all the time is not looked at more often */
#define GRACE_MS 20 /* for processors of the VMM that still use an address of what was unmapped */
#define OVER_NS UINT64_C(4000000000)  /* more than src/hold takes until a truncation is over */
#define RETRY_NS UINT64_C(1000000000) /* what the VMM has refused is not asked again before */
#define ROUNDS 8
#define NO_BLANK UINT64_MAX
#define CLOSED (UINT64_MAX - 1) /* of blank_from: final */
#define NOT_ANNOUNCED UINT64_MAX

enum truncated { NEVER, TRUNCATED, GONE /* closed: final */ };

enum why {
	BY_THREAD, /* not right after a failure */
	BY_REQUEST,
	BY_SETUP, /* a guest has mapped what is not there */
	BY_HOLD,  /* about to be truncated */
};

/* One truncation under way. */
struct announced {
	uint64_t id;
	uint64_t length;
};

/**
 * struct watch_file - a mapped file
 * @fd: the real file; -1: none was to be had, and only attributes tell its size
 * @size: last seen; atomic
 * @blank_from: the first byte that zeros may hide; NO_BLANK; CLOSED; atomic
 * @retry_ns: when to try again what the VMM has refused
 * @guest: requests under way that set the size; atomic
 * @guest_seq: grows when one begins or ends
 * @truncated: enum truncated; atomic
 * @kicked: the thread is to look; atomic
 * @dev, @ino: of @fd
 * @hold_asked: truncations are to be held; under watch.lock
 * @held: they are; under watch.lock
 * @announced: struct announced, all under way; under lock, with @over
 * @announced_size: the least of their lengths, or NOT_ANNOUNCED; written under lock, atomic
 */
struct watch_file {
	struct cds_lfht_node node;
	struct util_rcu_head rcu;
	struct dm_file_key key;
	uint32_t refs;
	int fd;
	bool marked;
	struct watch_id id;
	struct util_mutex lock;
	uint64_t size;
	uint64_t blank_from;
	uint64_t retry_ns;
	uint32_t guest;
	uint32_t guest_seq;
	uint32_t truncated;
	bool logged; /* under lock */
	bool kicked;
	uint64_t dev;
	uint64_t ino;
	bool hold_asked;
	bool held;
	GArray *announced;
	struct util_cond over;
	uint64_t announced_size;
};

struct watch {
	struct watch_config config;
	struct dm_table *table;
	int fan;
	int wake;
	bool stop;
	GThread *thread;
	struct cds_lfht *by_key;
	struct util_mutex lock;
	GPtrArray *files; /* under lock */
	uint64_t unmarked;
	uint64_t blank_files;
	struct watch_stats stats;
};

#define get(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)
#define set(x, v) __atomic_store_n(&(x), (v), __ATOMIC_SEQ_CST)
#define add(x, n) __atomic_add_fetch(&(x), (n), __ATOMIC_SEQ_CST)

/* --- files --- */

static void file_free(struct util_rcu_head *head)
{
	struct watch_file *f = caa_container_of(head, struct watch_file, rcu);

	util_cond_destroy(&f->over);
	util_mutex_destroy(&f->lock);
	g_array_unref(f->announced);
	g_free(f);
}

static void unref(struct watch_file *f)
{
	if (add(f->refs, (uint32_t)-1))
		return;
	util_close(&f->fd);
	util_rcu_call(&f->rcu, file_free);
}

static bool try_ref(struct watch_file *f)
{
	uint32_t n = get(f->refs);

	while (n && !__atomic_compare_exchange_n(&f->refs, &n, n + 1, true, __ATOMIC_SEQ_CST,
						 __ATOMIC_SEQ_CST))
		continue;
	return n > 0;
}

static unsigned long hash(struct dm_file_key key)
{
	return util_hash_u64(key.lo ^ util_hash_u64(key.hi));
}

static int match(struct cds_lfht_node *n, const void *key)
{
	return dm_file_key_equal(caa_container_of(n, struct watch_file, node)->key,
				 *(const struct dm_file_key *)key);
}

/* In a read section, and good for as long. */
static struct watch_file *peek(struct watch *w, struct dm_file_key key)
{
	struct cds_lfht_node *n = util_lfht_lookup(w->by_key, hash(key), match, &key);

	return n ? caa_container_of(n, struct watch_file, node) : NULL;
}

static struct watch_file *find(struct watch *w, struct dm_file_key key)
{
	struct watch_file *f;

	if (!get(w->stats.files))
		return NULL;
	util_rcu_read_lock();
	f = peek(w, key);
	if (f && !try_ref(f))
		f = NULL;
	util_rcu_read_unlock();
	return f;
}

static void kick(struct watch *w, struct watch_file *f)
{
	uint64_t one = 1;

	if (get(f->retry_ns) > util_now_ns() ||
	    __atomic_exchange_n(&f->kicked, true, __ATOMIC_SEQ_CST))
		return;
	if (write(w->wake, &one, sizeof(one)) < 0)
		set(f->kicked, false);
}

static void set_blank_from(struct watch *w, struct watch_file *f, uint64_t from)
{
	uint64_t old = get(f->blank_from);

	do {
		if (old == CLOSED)
			return;
	} while (!__atomic_compare_exchange_n(&f->blank_from, &old, from, true, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
	if (old >= CLOSED && from < CLOSED)
		add(w->blank_files, 1);
	else if (old < CLOSED && from >= CLOSED)
		add(w->blank_files, (uint64_t)-1);
}

/* --- looking --- */

/* What is announced has happened already. */
static bool size_of(struct watch *w, const struct watch_file *f, uint64_t *size)
{
	struct stat st;

	if (f->fd < 0 || fstat(f->fd, &st) < 0)
		return false;
	add(w->stats.checks, 1);
	*size = MIN((uint64_t)st.st_size, get(f->announced_size));
	return true;
}

static uint64_t page_end(uint64_t size)
{
	uint64_t end;

	return util_round_up(size, PAGE, &end) ? end : UINT64_MAX;
}

static void note_truncation(struct watch *w, struct watch_file *f)
{
	uint32_t never = NEVER;

	add(w->stats.truncations, 1);
	if (__atomic_compare_exchange_n(&f->truncated, &never, TRUNCATED, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		add(w->stats.truncated_files, 1);
}

static void log_truncation(struct watch_file *f, uint64_t from, uint64_t to,
			   const struct dm_fitted *out)
{
	if (f->logged)
		return;
	f->logged = true;
	g_warning("a file that a guest has mapped was truncated on the host (node %" PRIu64
		  ", %" PRIu64 " -> %" PRIu64
		  " bytes): %u ranges behind the end show zeros now, %u "
		  "could not be replaced%s. It loses its DAX mark until nothing of it is mapped",
		  f->key.lo, from, to, out->blanked, out->left,
		  out->left ? " and kill the VMM if the guest touches them there" : "");
}

/* Under f->lock. Returns false when it has to be tried again later. */
static bool fit(struct watch *w, struct watch_file *f, uint64_t size, unsigned int how,
		struct dm_fitted *out)
{
	struct dm_table *t = get(w->table);
	int err;

	*out = (struct dm_fitted){.blank_from = NO_BLANK};
	if (!t)
		return false;
	if ((how & DM_FIT_BLANK) && page_end(size) < get(f->blank_from))
		set_blank_from(w, f, page_end(size));
	err = dm_host_fit(t, f->key, size, how, out);
	if (err == -EPIPE)
		return false;
	/* Nobody may make it grow before what is announced is over. */
	if (get(f->announced_size) != NOT_ANNOUNCED)
		out->blank_from = MIN(out->blank_from, page_end(get(f->announced_size)));
	set_blank_from(w, f, out->blank_from);
	add(w->stats.blanked, out->blanked);
	add(w->stats.restored, out->restored);
	add(w->stats.left, out->left);
	add(w->stats.torn, out->torn);
	add(w->stats.failed, out->failed);
	add(w->stats.holes, out->holes);
	if (out->failed)
		util_log_once(
			"a file that was truncated on the host has grown again, and cannot be "
			"mapped again (node %" PRIu64 "): for the guest it stays short: %s",
			f->key.lo, g_strerror(-out->err));
	if (out->holes)
		g_critical("the VMM has lost %u ranges of node %" PRIu64 " while they were "
			   "replaced: the guest reads zeros there",
			   out->holes, f->key.lo);
	return !out->failed;
}

/* Under f->lock. One look; true: the table was asked, so look again. */
static bool look(struct watch *w, struct watch_file *f, enum why why)
{
	uint32_t seq = get(f->guest_seq);
	uint64_t old = get(f->size), size;
	struct dm_fitted out;
	bool shrank, ours, must = why == BY_SETUP || why == BY_HOLD;
	unsigned int how = why == BY_HOLD ? DM_FIT_BLANK : 0;

	if (!size_of(w, f, &size))
		return false;
	ours = get(f->guest) || get(f->guest_seq) != seq;
	shrank = size < old && !ours;
	if (size > old || !ours)
		set(f->size, size);
	if (shrank)
		note_truncation(w, f);
	if (!shrank && !must && size <= get(f->blank_from))
		return false;
	if (!shrank && why == BY_THREAD && get(f->retry_ns) > util_now_ns())
		return false;
	if ((get(f->truncated) != NEVER || must) && !ours)
		how |= DM_FIT_BLANK;
	if (get(f->announced_size) != NOT_ANNOUNCED)
		how |= DM_FIT_TEAR;
	if (!fit(w, f, size, how, &out)) {
		set(f->retry_ns, util_now_ns() + RETRY_NS);
		return false;
	}
	if (shrank)
		log_truncation(f, old, size, &out);
	return true;
}

/* Looks at the file's size and has the table follow it. Waits for the VMM. */
static bool check(struct watch *w, struct watch_file *f, enum why why)
{
	int round = 0;

	util_mutex_lock(&f->lock);
	set(f->kicked, false);
	while (round < ROUNDS && look(w, f, why)) {
		why = why == BY_THREAD ? why : BY_REQUEST;
		round++;
	}
	util_mutex_unlock(&f->lock);
	return round > 0;
}

/* --- what requests ask and tell --- */

bool watch_is_truncated(struct watch *w, struct dm_file_key key)
{
	const struct watch_file *f;
	bool yes;

	if (!get(w->stats.truncated_files))
		return false;
	util_rcu_read_lock();
	f = peek(w, key);
	yes = f && get(f->truncated) == TRUNCATED;
	util_rcu_read_unlock();
	return yes;
}

uint64_t watch_size(struct watch *w, struct dm_file_key key, uint64_t size)
{
	struct watch_file *f;

	if (!get(w->stats.files))
		return size;
	util_rcu_read_lock();
	f = peek(w, key);
	if (f) {
		uint64_t known = get(f->size), blank_from = get(f->blank_from);

		if (size < known || size > blank_from || (!f->marked && size != known))
			kick(w, f);
		size = MIN(size, blank_from);
	}
	util_rcu_read_unlock();
	return size;
}

void watch_touched(struct watch *w, struct dm_file_key key)
{
	struct watch_file *f = get(w->unmarked) ? find(w, key) : NULL;
	uint64_t size;

	if (!f)
		return;
	if (!f->marked && size_of(w, f, &size) && size != get(f->size))
		kick(w, f);
	unref(f);
}

struct watch_file *watch_truncating(struct watch *w, struct dm_file_key key)
{
	struct watch_file *f = find(w, key);

	if (f) {
		add(f->guest, 1);
		add(f->guest_seq, 1);
	}
	return f;
}

void watch_truncated(struct watch *w, struct watch_file *f)
{
	uint64_t size;

	if (!f)
		return;
	if (size_of(w, f, &size))
		set(f->size, size);
	add(f->guest_seq, 1);
	add(f->guest, (uint32_t)-1);
	unref(f);
}

bool watch_must_settle(struct watch *w, struct dm_file_key key)
{
	const struct watch_file *f;
	bool yes;

	if (!get(w->blank_files))
		return false;
	util_rcu_read_lock();
	f = peek(w, key);
	yes = f && get(f->blank_from) < CLOSED;
	util_rcu_read_unlock();
	return yes;
}

/* What a truncation under way leaves is not known before it is over. */
static void wait_over(struct watch *w, struct watch_file *f)
{
	uint64_t deadline = util_now_ns() + OVER_NS;
	bool in_time = true;

	util_mutex_lock(&f->lock);
	while (get(f->announced_size) != NOT_ANNOUNCED && !get(w->stop) && in_time)
		in_time = util_cond_wait_until(&f->over, &f->lock, deadline);
	util_mutex_unlock(&f->lock);
}

void watch_settle(struct watch *w, struct dm_file_key key)
{
	struct watch_file *f = find(w, key);

	if (!f)
		return;
	wait_over(w, f);
	check(w, f, BY_REQUEST);
	unref(f);
}

void watch_mapped(struct watch *w, struct dm_file_key key, uint64_t file_offset, uint64_t len)
{
	struct watch_file *f = find(w, key);
	uint64_t size;

	if (!f)
		return;
	if (get(f->blank_from) < CLOSED)
		check(w, f, BY_REQUEST);
	if (size_of(w, f, &size) &&
	    (file_offset >= page_end(size) ||
	     (get(f->truncated) == TRUNCATED && file_offset + len > page_end(size))))
		check(w, f, BY_SETUP);
	unref(f);
}

/* --- the provider's part --- */

static bool is_inode(const struct watch_file *f, uint64_t dev, uint64_t ino)
{
	return f->dev == dev && f->ino == ino;
}

static void hold_refused(struct watch *w, int err)
{
	add(w->stats.hold_errors, 1);
	util_log_once(
		"truncation watch: truncations of a mapped file cannot be held (%s): they are "
		"noticed afterwards",
		g_strerror(-err));
}

static void mark(struct watch *w, struct watch_file *f) UTIL_REQUIRES(w->lock)
{
	int err = -EBADF;

	if (w->fan >= 0 && f->fd >= 0)
		err = watch_fan_add(w->fan, f->fd, &f->id);
	f->marked = !err;
	if (f->marked) {
		add(w->stats.marked, 1);
		return;
	}
	add(w->unmarked, 1);
	add(w->stats.mark_errors, 1);
	if (f->fd < 0)
		util_log_once("truncation watch: no descriptor left for a mapped file: its size is "
			      "looked at when a guest asks for it");
	else if (w->fan >= 0)
		util_log_once("truncation watch: a mapped file cannot be watched (%s%s): its size "
			      "is looked at at each request for it",
			      g_strerror(-err),
			      err == -ENOSPC ? ": fs.fanotify.max_user_marks" : "");
}

static void ask_for_holds(struct watch *w, struct watch_file *f) UTIL_REQUIRES(w->lock)
{
	int err;

	if (!w->config.hold || f->fd < 0)
		return;
	err = hold_watch(w->config.hold, f->fd);
	f->hold_asked = !err;
	if (err)
		hold_refused(w, err);
}

void watch_open(struct watch *w, struct dm_file_key key, int fd)
{
	struct watch_file *f = g_new0(struct watch_file, 1);
	struct stat st;
	uint64_t size;

	f->key = key;
	f->refs = 1;
	f->blank_from = NO_BLANK;
	f->announced_size = NOT_ANNOUNCED;
	f->announced = g_array_new(FALSE, FALSE, sizeof(struct announced));
	util_cond_init(&f->over);
	util_mutex_init(&f->lock);
	f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (f->fd >= 0 && fstat(f->fd, &st) == 0) {
		f->dev = st.st_dev;
		f->ino = st.st_ino;
	}
	util_mutex_lock(&w->lock);
	mark(w, f);
	ask_for_holds(w, f);
	g_ptr_array_add(w->files, f);
	util_mutex_unlock(&w->lock);
	/* After the mark: from this size on nothing is missed. */
	if (size_of(w, f, &size))
		set(f->size, size);
	util_rcu_read_lock();
	util_lfht_add(w->by_key, hash(key), &f->node);
	util_rcu_read_unlock();
	add(w->stats.files, 1);
}

/* A mark is the inode's: another entry, of another name for the same file, may need it. */
static void unmark(struct watch *w, struct watch_file *f) UTIL_REQUIRES(w->lock)
{
	if (!f->marked) {
		add(w->unmarked, (uint64_t)-1);
		return;
	}
	add(w->stats.marked, (uint64_t)-1);
	for (unsigned int i = 0; i < w->files->len; i++) {
		const struct watch_file *other = g_ptr_array_index(w->files, i);

		if (other->marked && watch_id_equal(&other->id, &f->id))
			return;
	}
	watch_fan_remove(w->fan, f->fd);
}

/* As unmark(). */
static void end_holds(struct watch *w, struct watch_file *f) UTIL_REQUIRES(w->lock)
{
	if (!f->hold_asked)
		return;
	if (f->held)
		add(w->stats.guarded, (uint64_t)-1);
	for (unsigned int i = 0; i < w->files->len; i++) {
		const struct watch_file *other = g_ptr_array_index(w->files, i);

		if (other->hold_asked && is_inode(other, f->dev, f->ino))
			return;
	}
	hold_unwatch(w->config.hold, f->fd);
}

void watch_close(struct watch *w, struct dm_file_key key)
{
	struct watch_file *f;

	util_rcu_read_lock();
	f = peek(w, key);
	if (f)
		util_lfht_del(w->by_key, &f->node);
	util_rcu_read_unlock();
	if (!f)
		return;
	add(w->stats.files, (uint64_t)-1);
	util_mutex_lock(&w->lock);
	g_ptr_array_remove_fast(w->files, f);
	unmark(w, f);
	end_holds(w, f);
	util_mutex_unlock(&w->lock);
	/* A check may be under way, even in this thread. */
	if (__atomic_exchange_n(&f->truncated, GONE, __ATOMIC_SEQ_CST) == TRUNCATED)
		add(w->stats.truncated_files, (uint64_t)-1);
	set_blank_from(w, f, CLOSED);
	unref(f);
}

int watch_zeros(uint64_t len)
{
	int fd = memfd_create("daxmapd-zeros", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)len) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* --- truncations that are held; in the thread --- */

struct pick {
	struct watch *w;
	GPtrArray *files; /* with a reference each */
};

static void pick_if(struct pick *p, const struct watch_id *id, bool kicked)
{
	util_mutex_lock(&p->w->lock);
	for (unsigned int i = 0; i < p->w->files->len; i++) {
		struct watch_file *f = g_ptr_array_index(p->w->files, i);

		if (kicked ? !get(f->kicked) : id && !(f->marked && watch_id_equal(&f->id, id)))
			continue;
		if (try_ref(f))
			g_ptr_array_add(p->files, f);
	}
	util_mutex_unlock(&p->w->lock);
}

static void on_change(void *ctx, const struct watch_id *id)
{
	struct pick *p = ctx;

	add(p->w->stats.events, 1);
	if (!id)
		add(p->w->stats.overflows, 1);
	pick_if(p, id, false);
}

static bool check_picked(struct pick *p)
{
	bool did = false;

	for (unsigned int i = 0; i < p->files->len; i++) {
		struct watch_file *f = g_ptr_array_index(p->files, i);

		did |= check(p->w, f, BY_THREAD);
		unref(f);
	}
	g_ptr_array_set_size(p->files, 0);
	return did;
}

/* The guard holds truncations of the file from now on. */
static void set_held(struct watch *w, uint64_t dev, uint64_t ino)
{
	util_mutex_lock(&w->lock);
	for (unsigned int i = 0; i < w->files->len; i++) {
		struct watch_file *f = g_ptr_array_index(w->files, i);

		if (!f->hold_asked || f->held || !is_inode(f, dev, ino))
			continue;
		f->held = true;
		add(w->stats.guarded, 1);
	}
	util_mutex_unlock(&w->lock);
}

static void pick_inode(struct pick *p, uint64_t dev, uint64_t ino)
{
	util_mutex_lock(&p->w->lock);
	for (unsigned int i = 0; i < p->w->files->len; i++) {
		struct watch_file *f = g_ptr_array_index(p->w->files, i);

		if (is_inode(f, dev, ino) && try_ref(f))
			g_ptr_array_add(p->files, f);
	}
	util_mutex_unlock(&p->w->lock);
}

/* Under f->lock. */
static void announce(struct watch_file *f, const struct announced *a)
{
	uint64_t least = NOT_ANNOUNCED;

	if (a)
		g_array_append_val(f->announced, *a);
	for (unsigned int i = 0; i < f->announced->len; i++)
		least = MIN(least, g_array_index(f->announced, struct announced, i).length);
	set(f->announced_size, least);
	if (least == NOT_ANNOUNCED)
		util_cond_broadcast(&f->over);
}

static void on_asked(struct pick *p, const struct hold_event *e)
{
	const struct announced a = {e->id, e->length};
	uint64_t blanked = get(p->w->stats.blanked);

	add(p->w->stats.held, 1);
	pick_inode(p, e->dev, e->ino);
	for (unsigned int i = 0; i < p->files->len; i++) {
		struct watch_file *f = g_ptr_array_index(p->files, i);

		util_mutex_lock(&f->lock);
		announce(f, &a);
		util_mutex_unlock(&f->lock);
		check(p->w, f, BY_HOLD);
		unref(f);
	}
	g_ptr_array_set_size(p->files, 0);
	hold_done(p->w->config.hold, e->id, get(p->w->stats.blanked) == blanked ? 0 : GRACE_MS);
}

/* @id 0: all, of all files that were picked. */
static void forget_announced(struct pick *p, uint64_t id)
{
	for (unsigned int i = 0; i < p->files->len; i++) {
		struct watch_file *f = g_ptr_array_index(p->files, i);

		util_mutex_lock(&f->lock);
		for (unsigned int k = f->announced->len; k-- > 0;)
			if (!id || g_array_index(f->announced, struct announced, k).id == id)
				g_array_remove_index_fast(f->announced, k);
		announce(f, NULL);
		util_mutex_unlock(&f->lock);
	}
}

static void on_guard_death(struct pick *p)
{
	g_warning("the guard of truncations has died: those of mapped files on the host are "
		  "noticed afterwards from now on");
	pick_if(p, NULL, false);
	forget_announced(p, 0);
	util_mutex_lock(&p->w->lock);
	for (unsigned int i = 0; i < p->files->len; i++)
		((struct watch_file *)g_ptr_array_index(p->files, i))->held = false;
	util_mutex_unlock(&p->w->lock);
	set(p->w->stats.guarded, 0);
	check_picked(p);
}

/* False when there will be no more. */
static bool take_holds(struct pick *p)
{
	struct hold_event e;

	while (!get(p->w->stop) && hold_next(p->w->config.hold, &e)) {
		switch (e.kind) {
		case HOLD_WATCHED:
			set_held(p->w, e.dev, e.ino);
			break;
		case HOLD_REFUSED:
			hold_refused(p->w, e.err);
			break;
		case HOLD_ASKED:
			on_asked(p, &e);
			break;
		case HOLD_LATE:
			add(p->w->stats.late, 1);
			util_log_once(
				"a truncation of a mapped file on the host went on before "
				"all its mappings were replaced: it is held for %u ms at most",
				HOLD_BOUND_MS);
			break;
		case HOLD_OVER:
			pick_inode(p, e.dev, e.ino);
			forget_announced(p, e.id);
			check_picked(p);
			break;
		case HOLD_DEAD:
			on_guard_death(p);
			return false;
		}
	}
	return true;
}

/* --- the thread --- */

static void *watch_thread(void *arg)
{
	struct watch *w = arg;
	struct pick p = {w, g_ptr_array_new()};
	struct pollfd fds[] = {
		{.fd = w->wake, .events = POLLIN},
		{.fd = w->config.other_fd, .events = POLLIN},
		{.fd = w->config.hold ? hold_event_fd(w->config.hold) : -1, .events = POLLIN},
		{.fd = w->fan, .events = POLLIN},
	};
	bool nap = false;
	uint64_t n;

	if (w->config.thread_start)
		w->config.thread_start(w->config.ctx);
	while (!get(w->stop)) {
		/* One that is negative is passed over; napping, so is the last. */
		if (poll(fds, nap ? 3 : 4, nap ? NAP_MS : -1) < 0 && errno != EINTR)
			break;
		nap = false;
		if (fds[0].revents && read(w->wake, &n, sizeof(n)) == sizeof(n)) {
			pick_if(&p, NULL, true);
			check_picked(&p);
		}
		if (fds[1].revents) {
			fds[1].fd = -1;
			w->config.other(w->config.ctx);
		}
		if (fds[2].revents && !take_holds(&p))
			fds[2].fd = -1;
		if (fds[3].revents && watch_fan_read(w->fan, on_change, &p))
			nap = !check_picked(&p);
		for (unsigned int i = 0; i < G_N_ELEMENTS(fds); i++)
			fds[i].revents = 0;
	}
	g_ptr_array_unref(p.files);
	return NULL;
}

/* --- life --- */

struct watch *watch_new(const struct watch_config *config)
{
	struct watch *w = g_new0(struct watch, 1);

	w->config = *config;
	w->files = g_ptr_array_new();
	w->by_key = util_lfht_new(64);
	util_mutex_init(&w->lock);
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake < 0)
		g_error("eventfd: %s", g_strerror(errno));
	w->fan = config->size_checks_only ? -ENOSYS : watch_fan_open();
	if (w->fan < 0)
		g_message("truncation watch: no fanotify (%s): sizes of mapped files are looked at "
			  "at each request for them",
			  config->size_checks_only ? "as asked" : g_strerror(-w->fan));
	return w;
}

void watch_start(struct watch *w, struct dm_table *table)
{
	set(w->table, table);
	w->thread = g_thread_new("watch", watch_thread, w);
}

static void wake_waiters(struct watch *w)
{
	struct pick p = {w, g_ptr_array_new()};

	pick_if(&p, NULL, false);
	for (unsigned int i = 0; i < p.files->len; i++) {
		struct watch_file *f = g_ptr_array_index(p.files, i);

		util_mutex_lock(&f->lock);
		util_cond_broadcast(&f->over);
		util_mutex_unlock(&f->lock);
		unref(f);
	}
	g_ptr_array_unref(p.files);
}

void watch_stop(struct watch *w)
{
	uint64_t one = 1;

	if (!w || !w->thread)
		return;
	set(w->stop, true);
	wake_waiters(w);
	while (write(w->wake, &one, sizeof(one)) < 0 && errno == EINTR)
		continue;
	g_thread_join(g_steal_pointer(&w->thread));
	set(w->table, NULL);
}

void watch_free(struct watch *w)
{
	if (!w)
		return;
	watch_stop(w);
	g_assert(w->files->len == 0);
	g_ptr_array_unref(w->files);
	util_rcu_barrier();
	util_lfht_destroy(w->by_key);
	util_mutex_destroy(&w->lock);
	if (w->fan >= 0)
		close(w->fan);
	close(w->wake);
	g_free(w);
}

void watch_get_stats(const struct watch *w, struct watch_stats *out)
{
#define X(name, help) out->name = get(w->stats.name);
	WATCH_STATS(X)
#undef X
}
