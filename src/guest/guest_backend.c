// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * One thread serves the back-end channel, one request at a time, in order, as QEMU's main loop
 * does. STRICT answers a map or unmap once it is judged, and performs it only then: it waits as
 * long as the test holds commits back (or commit_delay_us), maps the file, and tells the back-end
 * of the new region on the main channel, waiting for its answer. From judging to the end of that
 * the big lock is held, so the device cannot start or stop in between, and nothing more is read
 * from the channel.
 *
 * OVERLAY and FS_MAP perform first and answer then.
 *
 * What a VMM would refuse is refused, and written down as a violation, since a good back-end
 * keeps to the rules by itself. What would have killed a VMM is written down with "would have".
 *
 * Rules: QEMU 11.1 hw/virtio/vhost-user.c and virtio-pci, as measured.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <fcntl.h>

#include "guest_internal.h"
#include "util_overflow.h"

#define PAGE 4096u
#define MAX_MAPPINGS 509u

void guest_window_violate(struct guest_window *w, const char *fmt, ...)
{
	va_list ap;
	char *s;

	va_start(ap, fmt);
	s = g_strdup_vprintf(fmt, ap);
	va_end(ap);
	g_debug("rule broken: %s", s);
	util_mutex_lock(&w->lock);
	g_ptr_array_add(w->violations, s);
	util_mutex_unlock(&w->lock);
}

/* --- the address range --- */

static void unmap_range(struct guest_window *w, uint64_t offset, uint64_t len)
{
	void *p = mmap(w->base + offset, len, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	g_assert(p != MAP_FAILED);
}

static int map_range(struct guest_window *w, const struct guest_mapping *m, int fd)
{
	int prot = PROT_READ | (m->write || w->config.mode == GUEST_WINDOW_STRICT ? PROT_WRITE : 0);

	if (mmap(w->base + m->offset, m->len, prot, MAP_SHARED | MAP_FIXED, fd,
		 (off_t)m->fd_offset) == MAP_FAILED)
		return -errno;
	return 0;
}

int guest_window_set_size(struct guest_window *w, uint64_t size)
{
	if (w->base)
		munmap(w->base, w->size);
	w->base = NULL;
	w->size = 0;
	if (size) {
		void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			       -1, 0);

		if (p == MAP_FAILED)
			return -errno;
		w->base = p;
		w->size = size;
	}
	guest_mem_set_window(w->fe->mem, w->base, w->size);
	return 0;
}

/* --- the list of live mappings --- */

static struct guest_live *live_at(struct guest_window *w, unsigned int i)
{
	return &g_array_index(w->live, struct guest_live, i);
}

/* First mapping that reaches beyond @offset; live->len if none. */
static unsigned int live_find_locked(struct guest_window *w, uint64_t offset)
{
	unsigned int i = 0;

	while (i < w->live->len && live_at(w, i)->m.offset + live_at(w, i)->m.len <= offset)
		i++;
	return i;
}

static void live_insert_locked(struct guest_window *w, const struct guest_live *l)
{
	g_array_insert_val(w->live, live_find_locked(w, l->m.offset), *l);
	w->stats.live = w->live->len;
	w->stats.peak = MAX(w->stats.peak, w->stats.live);
}

/* Cuts [offset, offset + len) out of the list, splitting what reaches beyond it. */
static void live_cut_locked(struct guest_window *w, uint64_t offset, uint64_t len)
{
	uint64_t end = offset + len;
	unsigned int i = live_find_locked(w, offset);

	while (i < w->live->len && live_at(w, i)->m.offset < end) {
		struct guest_live old = *live_at(w, i);
		uint64_t old_end = old.m.offset + old.m.len;

		g_array_remove_index(w->live, i);
		if (old.m.offset < offset) {
			struct guest_live head = old;

			head.m.len = offset - old.m.offset;
			g_array_insert_val(w->live, i++, head);
		}
		if (old_end > end) {
			struct guest_live tail = old;

			tail.m.offset = end;
			tail.m.len = old_end - end;
			tail.m.fd_offset += end - old.m.offset;
			g_array_insert_val(w->live, i++, tail);
		}
	}
	w->stats.live = w->live->len;
}

/* --- judging, STRICT --- */

static bool overlaps_locked(struct guest_window *w, const struct guest_msg_shmem *m,
			    struct guest_live *with)
{
	unsigned int i = live_find_locked(w, m->shm_offset);

	if (i == w->live->len || live_at(w, i)->m.offset >= m->shm_offset + m->len)
		return false;
	*with = *live_at(w, i);
	return true;
}

#define RANGE "[0x%" PRIx64 " +0x%" PRIx64 "]"

static bool judge_range(struct guest_window *w, const char *what, const struct guest_msg_shmem *m)
{
	const char *why = NULL;

	if (m->shmid != 0)
		why = "no such shmid";
	else if (!m->len)
		why = "length 0";
	else if (!util_range_inside(m->shm_offset, m->len, w->size))
		why = "outside the region";
	else if ((m->shm_offset | m->len) % PAGE)
		why = "not page aligned (QEMU takes it, the guest cannot)";
	if (why)
		guest_window_violate(w, "%s " RANGE " shmid %u: %s", what, m->shm_offset, m->len,
				     m->shmid, why);
	return !why;
}

static bool judge_file(struct guest_window *w, const struct guest_msg_shmem *m, int fd,
		       struct stat *st)
{
	const char *why = NULL;

	if (fd < 0 || fstat(fd, st) < 0)
		why = "no descriptor";
	else if (m->fd_offset % PAGE)
		why = "fd_offset not page aligned";
	else if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		why = "descriptor not open for reading and writing";
	else if (!st->st_size)
		why = "empty file: would have been extended";
	else if (!util_range_inside(m->fd_offset, m->len, (uint64_t)st->st_size))
		why = "reaches beyond the end of the file";
	if (why)
		guest_window_violate(w, "MAP " RANGE " of file offset 0x%" PRIx64 ": %s",
				     m->shm_offset, m->len, m->fd_offset, why);
	return !why;
}

static bool judge_map(struct guest_window *w, const struct guest_msg_shmem *m, int fd,
		      struct stat *st)
{
	struct guest_live with = {0};
	unsigned int max = w->config.max_mappings ? w->config.max_mappings : MAX_MAPPINGS;
	bool overlap;
	unsigned int live;

	if (!judge_range(w, "MAP", m) || !judge_file(w, m, fd, st))
		return false;
	util_mutex_lock(&w->lock);
	overlap = overlaps_locked(w, m, &with);
	live = w->live->len;
	util_mutex_unlock(&w->lock);
	/* A map sent right behind an unmap that a fault refused is no fault of the back-end's. */
	if (overlap && !with.kept_by_fault)
		guest_window_violate(w, "MAP " RANGE ": overlaps " RANGE, m->shm_offset, m->len,
				     with.m.offset, with.m.len);
	if (live >= max)
		guest_window_violate(w, "MAP " RANGE " with %u live: would have aborted QEMU",
				     m->shm_offset, m->len, live);
	return !overlap && live < max;
}

static bool judge_unmap(struct guest_window *w, const struct guest_msg_shmem *m)
{
	bool exact = false;
	unsigned int i;

	if (!judge_range(w, "UNMAP", m))
		return false;
	util_mutex_lock(&w->lock);
	i = live_find_locked(w, m->shm_offset);
	if (i < w->live->len) {
		struct guest_live *l = live_at(w, i);

		exact = l->m.offset == m->shm_offset && l->m.len == m->len;
	}
	util_mutex_unlock(&w->lock);
	if (!exact)
		guest_window_violate(w, "UNMAP " RANGE ": is not exactly one mapping",
				     m->shm_offset, m->len);
	return exact;
}

/* A fault by order: true for every n-th good request. */
static bool faulted(struct guest_window *w)
{
	return w->config.fail_nth && ++w->served % w->config.fail_nth == 0;
}

/* --- answering --- */

static void answer(struct guest_window *w, const struct guest_msg *msg, uint64_t status)
{
	util_mutex_lock(&w->lock);
	if (status)
		w->stats.refused++;
	util_mutex_unlock(&w->lock);
	if (msg->hdr.flags & GUEST_MSG_NEED_REPLY)
		guest_chan_send(w->sock, msg->hdr.request, GUEST_MSG_REPLY, &status, sizeof(status),
				NULL, 0);
}

static void fill_mapping(struct guest_mapping *m, uint64_t offset, uint64_t len, uint64_t fd_offset,
			 bool write, const struct stat *st)
{
	m->offset = offset;
	m->len = len;
	m->fd_offset = fd_offset;
	m->write = write;
	m->dev = st->st_dev;
	m->ino = st->st_ino;
}

/* --- STRICT --- */

/* The time between reply and commit. Under the big lock, as in QEMU. */
static void wait_commit(struct guest_window *w)
{
	util_mutex_lock(&w->lock);
	w->stats.pending++;
	util_cond_broadcast(&w->cond);
	if (w->config.commit_delay_us) {
		uint64_t until = util_now_ns() + w->config.commit_delay_us * 1000ull;

		while (!w->stopping && util_cond_wait_until(&w->cond, &w->lock, until))
			;
	}
	while (w->hold && !w->stopping)
		util_cond_wait(&w->cond, &w->lock);
	util_mutex_unlock(&w->lock);
}

static void end_commit(struct guest_window *w)
{
	util_mutex_lock(&w->lock);
	w->stats.pending--;
	w->stats.commits++;
	w->busy = false;
	util_cond_broadcast(&w->cond);
	util_mutex_unlock(&w->lock);
}

static bool device_running(struct guest_window *w, const char *what)
{
	bool raced = false;
	bool running;

	util_mutex_lock(&w->lock);
	running = w->running;
	if (!running && w->stats.raced) {
		w->stats.raced--;
		raced = true;
	}
	util_mutex_unlock(&w->lock);
	if (!running && !raced)
		guest_window_violate(w, "%s while the device is stopped: would have crashed QEMU",
				     what);
	return running;
}

static struct guest_msg_region window_region(struct guest_window *w, const struct guest_mapping *m)
{
	struct guest_msg_region r = {
		.guest_addr = GUEST_WINDOW_BASE + m->offset,
		.size = m->len,
		.user_addr = (uintptr_t)(w->base + m->offset),
		.mmap_offset = m->fd_offset,
	};

	return r;
}

static void commit_map(struct guest_window *w, const struct guest_mapping *m, bool running)
{
	struct guest_msg_region r = window_region(w, m);
	struct guest_live *l;
	int err;
	int fd;

	util_mutex_lock(&w->lock);
	l = live_at(w, live_find_locked(w, m->offset));
	fd = l->fd;
	err = map_range(w, m, fd);
	l->committed = !err;
	util_mutex_unlock(&w->lock);
	if (err)
		g_warning("mmap of the window: %s", g_strerror(-err));
	guest_regions_add(&w->fe->regions, &r, fd);
	if (running)
		guest_regions_sync(w->fe);
}

static void commit_unmap(struct guest_window *w, uint64_t offset, uint64_t len, bool running)
{
	int fd = -1;
	unsigned int i;

	util_mutex_lock(&w->lock);
	i = live_find_locked(w, offset);
	fd = live_at(w, i)->fd;
	g_array_remove_index(w->live, i);
	w->stats.live = w->live->len;
	unmap_range(w, offset, len);
	util_mutex_unlock(&w->lock);
	guest_regions_remove(&w->fe->regions, GUEST_WINDOW_BASE + offset);
	if (running)
		guest_regions_sync(w->fe);
	util_close(&fd);
}

static void strict_map(struct guest_window *w, struct guest_msg *msg)
{
	struct guest_msg_shmem m;
	struct guest_live l = {.fd = -1};
	struct stat st;
	bool running;

	memcpy(&m, msg->payload, sizeof(m));
	running = device_running(w, "MAP");
	if (!judge_map(w, &m, msg->nfds ? msg->fds[0] : -1, &st) || faulted(w)) {
		answer(w, msg, 1);
		return;
	}
	fill_mapping(&l.m, m.shm_offset, m.len, m.fd_offset, m.flags & GUEST_SHMEM_RW, &st);
	l.fd = guest_msg_take_fd(msg, 0);
	util_mutex_lock(&w->lock);
	live_insert_locked(w, &l);
	w->stats.maps++;
	w->busy = true;
	util_mutex_unlock(&w->lock);
	answer(w, msg, 0);
	wait_commit(w);
	commit_map(w, &l.m, running);
	end_commit(w);
}

static void strict_unmap(struct guest_window *w, struct guest_msg *msg)
{
	struct guest_msg_shmem m;
	bool running;

	memcpy(&m, msg->payload, sizeof(m));
	running = device_running(w, "UNMAP");
	if (!judge_unmap(w, &m)) {
		answer(w, msg, 1);
		return;
	}
	if (faulted(w)) {
		util_mutex_lock(&w->lock);
		live_at(w, live_find_locked(w, m.shm_offset))->kept_by_fault = true;
		util_mutex_unlock(&w->lock);
		answer(w, msg, 1);
		return;
	}
	util_mutex_lock(&w->lock);
	w->stats.unmaps++;
	w->busy = true;
	util_mutex_unlock(&w->lock);
	answer(w, msg, 0);
	wait_commit(w);
	commit_unmap(w, m.shm_offset, m.len, running);
	end_commit(w);
}

/* --- OVERLAY and FS_MAP --- */

static int overlay_map(struct guest_window *w, const struct guest_mapping *m, int fd)
{
	struct guest_live l = {.m = *m, .fd = -1, .committed = true};
	int err = 0;

	if (!m->len || (m->offset | m->len | m->fd_offset) % PAGE ||
	    !util_range_inside(m->offset, m->len, w->size) || fd < 0) {
		guest_window_violate(w, "map " RANGE " is no range of the window", m->offset,
				     m->len);
		return -EINVAL;
	}
	if (faulted(w))
		return -EIO;
	util_mutex_lock(&w->lock);
	err = map_range(w, m, fd);
	if (!err) {
		live_cut_locked(w, m->offset, m->len);
		live_insert_locked(w, &l);
		w->stats.maps++;
		w->stats.commits++;
	}
	util_mutex_unlock(&w->lock);
	if (err)
		guest_window_violate(w, "map " RANGE ": %s", m->offset, m->len, g_strerror(-err));
	return err;
}

static int overlay_unmap(struct guest_window *w, uint64_t offset, uint64_t len)
{
	if (!len || (offset | len) % PAGE || !util_range_inside(offset, len, w->size)) {
		guest_window_violate(w, "unmap " RANGE " is no range of the window", offset, len);
		return -EINVAL;
	}
	if (faulted(w))
		return -EIO;
	util_mutex_lock(&w->lock);
	live_cut_locked(w, offset, len);
	unmap_range(w, offset, len);
	w->stats.unmaps++;
	w->stats.commits++;
	util_mutex_unlock(&w->lock);
	return 0;
}

static void overlay_shmem(struct guest_window *w, struct guest_msg *msg, bool map)
{
	struct guest_msg_shmem m;
	struct guest_mapping gm;
	struct stat st = {0};
	int fd = msg->nfds ? msg->fds[0] : -1;
	int err = 0;

	memcpy(&m, msg->payload, sizeof(m));
	if (m.shmid) {
		guest_window_violate(w, "shmid %u does not exist", m.shmid);
		err = -EINVAL;
	} else if (map) {
		if (fd >= 0)
			fstat(fd, &st);
		fill_mapping(&gm, m.shm_offset, m.len, m.fd_offset, m.flags & GUEST_SHMEM_RW, &st);
		err = overlay_map(w, &gm, fd);
	} else {
		err = overlay_unmap(w, m.shm_offset, m.len);
	}
	answer(w, msg, (uint64_t)(int64_t)err);
}

static void fs_map(struct guest_window *w, struct guest_msg *msg, bool map)
{
	struct guest_msg_fs_map m;
	struct guest_mapping gm;
	struct stat st = {0};
	int fd = msg->nfds ? msg->fds[0] : -1;
	int err = 0;

	memcpy(&m, msg->payload, sizeof(m));
	if (map && fd >= 0)
		fstat(fd, &st);
	for (unsigned int i = 0; i < GUEST_FS_ENTRIES && !err; i++) {
		if (!m.len[i])
			continue;
		if (!map && m.len[i] == UINT64_MAX) {
			err = overlay_unmap(w, 0, w->size);
		} else if (map) {
			fill_mapping(&gm, m.c_offset[i], m.len[i], m.fd_offset[i],
				     m.flags[i] & GUEST_FS_WRITE, &st);
			err = overlay_map(w, &gm, fd);
		} else {
			err = overlay_unmap(w, m.c_offset[i], m.len[i]);
		}
	}
	answer(w, msg, (uint64_t)(int64_t)err);
}

/* --- the channel --- */

static void fence(struct guest_window *w, struct guest_msg *msg)
{
	util_mutex_lock(&w->lock);
	w->stats.fences++;
	util_mutex_unlock(&w->lock);
	answer(w, msg, 0);
}

static void handle(struct guest_window *w, struct guest_msg *msg)
{
	bool strict = w->config.mode == GUEST_WINDOW_STRICT;
	bool old = w->config.mode == GUEST_WINDOW_FS_MAP;
	uint32_t want = old ? sizeof(struct guest_msg_fs_map) : sizeof(struct guest_msg_shmem);
	uint32_t request = msg->hdr.request;
	bool map = request == GUEST_BE_SHMEM_MAP || (old && request == GUEST_BE_FS_MAP);
	bool unmap = request == GUEST_BE_SHMEM_UNMAP || (old && request == GUEST_BE_FS_UNMAP);

	if (!old && request == GUEST_BE_SHARED_OBJECT_REMOVE) {
		fence(w, msg);
	} else if ((!map && !unmap) || !w->base) {
		guest_window_violate(w, "back-end request %u is not known", request);
		answer(w, msg, 1);
	} else if (msg->hdr.size != want) {
		guest_window_violate(w, "back-end request %u has %u bytes, not %u", request,
				     msg->hdr.size, want);
		answer(w, msg, 1);
	} else if (old) {
		fs_map(w, msg, map);
	} else if (!strict) {
		overlay_shmem(w, msg, map);
	} else if (map) {
		strict_map(w, msg);
	} else {
		strict_unmap(w, msg);
	}
}

static bool wait_message(struct guest_window *w)
{
	struct pollfd p[2] = {
		{.fd = w->stop, .events = POLLIN},
		{.fd = w->sock, .events = POLLIN},
	};

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	return !p[0].revents;
}

static gpointer channel_thread(gpointer data)
{
	struct guest_window *w = data;
	struct guest_msg msg;

	while (wait_message(w)) {
		int err;

		util_mutex_lock(&w->fe->big);
		err = guest_chan_recv(w->sock, &msg, w->fe->config.timeout_ms);
		if (!err && msg.hdr.size > GUEST_BE_PAYLOAD_MAX)
			err = -EPROTO;
		if (!err)
			handle(w, &msg);
		util_mutex_unlock(&w->fe->big);
		if (err) {
			if (err != -ENOTCONN)
				guest_window_violate(w, "back-end channel broken: %s",
						     g_strerror(-err));
			shutdown(w->sock, SHUT_RDWR);
			break;
		}
		guest_msg_close_fds(&msg);
	}
	return NULL;
}

/* --- life --- */

int guest_window_open(struct guest_window *w, struct guest_frontend *f)
{
	w->fe = f;
	w->config = f->config.window;
	w->sock = -1;
	util_mutex_init(&w->lock);
	util_cond_init(&w->cond);
	w->live = g_array_new(FALSE, TRUE, sizeof(struct guest_live));
	w->violations = g_ptr_array_new_with_free_func(g_free);
	w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return w->stop < 0 ? -errno : 0;
}

int guest_window_serve(struct guest_window *w, int sock)
{
	w->sock = sock;
	util_mutex_lock(&w->lock);
	w->stopping = false;
	w->stats = (struct guest_window_stats){0};
	util_mutex_unlock(&w->lock);
	w->thread = g_thread_new("guest-window", channel_thread, w);
	return 0;
}

void guest_window_close(struct guest_window *w)
{
	uint64_t one = 1;
	ssize_t n;

	if (w->thread) {
		util_mutex_lock(&w->lock);
		w->stopping = true;
		util_cond_broadcast(&w->cond);
		util_mutex_unlock(&w->lock);
		n = write(w->stop, &one, sizeof(one));
		shutdown(w->sock, SHUT_RDWR);
		g_thread_join(w->thread);
		w->thread = NULL;
		n = read(w->stop, &one, sizeof(one));
		(void)n;
	}
	util_close(&w->sock);
	guest_window_drop(w);
}

void guest_window_destroy(struct guest_window *w)
{
	guest_window_close(w);
	if (w->base)
		munmap(w->base, w->size);
	util_close(&w->stop);
	g_array_free(w->live, TRUE);
	g_ptr_array_free(w->violations, TRUE);
	util_cond_destroy(&w->cond);
	util_mutex_destroy(&w->lock);
}

void guest_window_set_running(struct guest_window *w, bool running)
{
	int bytes = 0;

	if (!running && w->sock >= 0 && ioctl(w->sock, FIONREAD, &bytes) < 0)
		bytes = 0;
	util_mutex_lock(&w->lock);
	w->running = running;
	w->stats.raced = (unsigned int)bytes /
			 (sizeof(struct guest_msg_hdr) + sizeof(struct guest_msg_shmem));
	util_mutex_unlock(&w->lock);
}

void guest_window_drop(struct guest_window *w)
{
	GArray *old;

	util_mutex_lock(&w->lock);
	if (w->size)
		unmap_range(w, 0, w->size);
	old = w->live;
	w->live = g_array_new(FALSE, TRUE, sizeof(struct guest_live));
	w->stats.live = 0;
	util_mutex_unlock(&w->lock);
	for (unsigned int i = 0; i < old->len; i++) {
		struct guest_live *l = &g_array_index(old, struct guest_live, i);

		guest_regions_remove(&w->fe->regions, GUEST_WINDOW_BASE + l->m.offset);
		util_close(&l->fd);
	}
	g_array_free(old, TRUE);
}

/* --- looking --- */

void *guest_window_base(struct guest_window *w)
{
	return w->base;
}

uint64_t guest_window_size(struct guest_window *w)
{
	return w->size;
}

void guest_window_stats(struct guest_window *w, struct guest_window_stats *out)
{
	util_mutex_lock(&w->lock);
	*out = w->stats;
	util_mutex_unlock(&w->lock);
}

bool guest_window_mapped(struct guest_window *w, uint64_t offset, uint64_t len)
{
	uint64_t end;
	unsigned int i;

	if (!util_add_u64(offset, len, &end))
		return false;
	util_mutex_lock(&w->lock);
	for (i = live_find_locked(w, offset); offset < end && i < w->live->len; i++) {
		struct guest_live *l = live_at(w, i);

		if (l->m.offset > offset || !l->committed)
			break;
		offset = l->m.offset + l->m.len;
	}
	util_mutex_unlock(&w->lock);
	return offset >= end;
}

unsigned int guest_window_list(struct guest_window *w, struct guest_mapping *out, unsigned int max)
{
	unsigned int n = 0;

	util_mutex_lock(&w->lock);
	for (unsigned int i = 0; i < w->live->len; i++) {
		if (!live_at(w, i)->committed)
			continue;
		if (n < max)
			out[n] = live_at(w, i)->m;
		n++;
	}
	util_mutex_unlock(&w->lock);
	return n;
}

void guest_window_hold(struct guest_window *w, bool hold)
{
	util_mutex_lock(&w->lock);
	w->hold = hold;
	util_cond_broadcast(&w->cond);
	util_mutex_unlock(&w->lock);
}

static bool wait_count(struct guest_window *w, unsigned int n, bool idle, int timeout_ms)
{
	uint64_t until = util_now_ns() + (uint64_t)timeout_ms * 1000000;
	bool ok;

	util_mutex_lock(&w->lock);
	for (;;) {
		ok = idle ? !w->busy : w->stats.pending >= n;
		if (ok || !util_cond_wait_until(&w->cond, &w->lock, until))
			break;
	}
	util_mutex_unlock(&w->lock);
	return ok;
}

bool guest_window_wait_pending(struct guest_window *w, unsigned int n, int timeout_ms)
{
	return wait_count(w, n, false, timeout_ms);
}

bool guest_window_wait_idle(struct guest_window *w, int timeout_ms)
{
	return wait_count(w, 0, true, timeout_ms);
}

unsigned int guest_window_violations(struct guest_window *w)
{
	unsigned int n;

	util_mutex_lock(&w->lock);
	n = w->violations->len;
	util_mutex_unlock(&w->lock);
	return n;
}

char *guest_window_violation(struct guest_window *w, unsigned int i)
{
	char *s = NULL;

	util_mutex_lock(&w->lock);
	if (i < w->violations->len)
		s = g_strdup(g_ptr_array_index(w->violations, i));
	util_mutex_unlock(&w->lock);
	return s;
}

void guest_window_clear_violations(struct guest_window *w)
{
	util_mutex_lock(&w->lock);
	g_ptr_array_set_size(w->violations, 0);
	util_mutex_unlock(&w->lock);
}
