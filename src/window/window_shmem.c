// SPDX-License-Identifier: Apache-2.0
/*
 * VIRTIO shared memory over vhost-user: theory of operation.
 *
 * The barrier. QEMU answers SHMEM_MAP and only then commits the change to guest memory, so the
 * answer alone says nothing: a guest that is told too early reads a hole. It takes its requests
 * off the channel one by one, each wholly before the next, so the answer to any
 * later request says that the commit is over. In a batch each operation's answer thus vouches
 * for those before it; behind a batch that ends in a map goes a fence, a request that changes
 * nothing, in the same pipeline. The announcement of the region (ADD_MEM_REG) on the main
 * channel, which also comes at the commit, cannot be relied on: with refused regions QEMU tries
 * again, at each commit, only the first that it misses, and without memory slots none comes.
 * The fence always comes, so nothing here can wait for ever.
 *
 * An unmap is answered before it is committed too. Nobody needs to know: a map in the same place
 * is handled behind it, and whoever gave the range back may not look at it.
 *
 * What is mapped is kept here, by window offset: to recognise our own regions among those
 * announced (by file and offset), to learn from them where the window lies in guest memory,
 * to keep overlaps, partial unmaps and unmaps of what a reset took away from being sent,
 * and to count. A region found to be ours is never mapped into this process.
 *
 * Announced regions. Acknowledging them all makes QEMU 11.1 abort above 509 mappings and crash in
 * a reset with live ones; refusing while the device starts makes the start fail. Hence:
 * refused while running, accepted while starting.
 *
 * Nothing is sent while the device is stopped (window_gate.h). A stop that overtakes a request
 * in the socket cannot be helped from here; batches are short so that few are under way.
 */
#define G_LOG_DOMAIN "window"
#include "window_shmem.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "util_log.h"
#include "util_overflow.h"
#include "window_gate.h"

/* syscalls: fcntl fstat */

#define GRANULE 4096u
#define CHUNK 32u /* operations sent before the device's state is looked at again */

/* One mapping: sent and not known to be gone. */
struct mapping {
	uint64_t offset;
	uint64_t len;
	uint64_t fd_offset;
	dev_t dev;
	ino_t ino;
};

struct shmem {
	struct dm_window w;
	struct window_shmem_config config;
	struct window_gate gate;
	GArray *live;	 /* struct mapping by offset; under gate.lock */
	bool base_known; /* under gate.lock */
	uint64_t base;
};

static struct shmem *to_shmem(struct dm_window *w)
{
	return (struct shmem *)w;
}

/* --- what is mapped; under the gate's lock --- */

static struct mapping *live_at(struct shmem *s, unsigned int i)
{
	return &g_array_index(s->live, struct mapping, i);
}

/* The first mapping that ends behind @offset; s->live->len: none. */
static unsigned int live_find(struct shmem *s, uint64_t offset)
{
	unsigned int lo = 0, hi = s->live->len;

	while (lo < hi) {
		unsigned int mid = lo + (hi - lo) / 2;
		const struct mapping *m = live_at(s, mid);

		if (m->offset + m->len <= offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int live_add(struct shmem *s, const struct mapping *m)
{
	unsigned int i = live_find(s, m->offset);

	if (i < s->live->len && live_at(s, i)->offset < m->offset + m->len)
		return -EEXIST;
	if (s->live->len >= s->w.caps.max_mappings)
		return -ENOMEM;
	g_array_insert_val(s->live, i, *m);
	return 0;
}

/* Returns 0 and what was there, -ENOENT (nothing), -EINVAL (not exactly one mapping). */
static int live_remove(struct shmem *s, uint64_t offset, uint64_t len, struct mapping *old)
{
	unsigned int i = live_find(s, offset);

	if (i == s->live->len || live_at(s, i)->offset >= offset + len)
		return -ENOENT;
	if (live_at(s, i)->offset != offset || live_at(s, i)->len != len)
		return -EINVAL;
	*old = *live_at(s, i);
	g_array_remove_index(s->live, i);
	return 0;
}

/* --- before sending --- */

static int check_range(const struct shmem *s, const struct dm_window_op *op)
{
	uint64_t end;

	if (op->len == 0 || !util_is_aligned(op->offset | op->len, GRANULE))
		return -EINVAL;
	if (!util_range_inside(op->offset, op->len, s->config.size))
		return -ERANGE;
	if (op->kind == DM_OP_MAP &&
	    (!util_is_aligned(op->fd_offset, GRANULE) ||
	     !util_add_u64(op->fd_offset, op->len, &end) || end > INT64_MAX))
		return -EINVAL;
	return 0;
}

/* QEMU maps only what the file has, to the byte, extends an empty file, and wants to write whatever
 * the flags say. */
static int check_file(int fd, uint64_t end, bool beyond_eof, struct mapping *m)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (flags < 0 || fstat(fd, &st) < 0)
		return -errno;
	if ((flags & O_ACCMODE) != O_RDWR || (flags & O_PATH)) {
		util_log_once("not mapped: the file is not open read-write, and the front-end "
			      "takes no other");
		return -EACCES;
	}
	if (!S_ISREG(st.st_mode) || (flags & O_APPEND)) {
		util_log_once("not mapped: no regular file, or opened for appending");
		return -EINVAL;
	}
	if (!beyond_eof && (st.st_size <= 0 || end > (uint64_t)st.st_size)) {
		util_log_once("not mapped: the range reaches beyond the end of the file (%" PRIu64
			      " > %" PRIi64 "), and the front-end maps only what is there",
			      end, (int64_t)st.st_size);
		return -ENXIO;
	}
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	return 0;
}

/* One operation on its way. */
struct flight {
	struct dm_window_op *op;
	struct mapping m; /* MAP: what it makes; UNMAP: what was there */
	int fd;
};

static int prepare_map(struct shmem *s, struct dm_window_op *op, struct flight *f)
{
	int sub = 0, err = check_range(s, op);

	f->fd = op->fd;
	if (!err && s->config.map_fd)
		sub = s->config.map_fd(s->config.map_ctx, op, &f->fd);
	if (err || sub < 0)
		return err ? err : sub;
	f->m = (struct mapping){.offset = op->offset, .len = op->len, .fd_offset = op->fd_offset};
	err = check_file(f->fd, op->fd_offset + op->len, sub > 0, &f->m);
	if (err)
		return err;
	util_mutex_lock(&s->gate.lock);
	err = live_add(s, &f->m);
	util_mutex_unlock(&s->gate.lock);
	return err;
}

static int prepare_unmap(struct shmem *s, struct dm_window_op *op, struct flight *f)
{
	int err = check_range(s, op);

	if (err)
		return err;
	util_mutex_lock(&s->gate.lock);
	err = live_remove(s, op->offset, op->len, &f->m);
	util_mutex_unlock(&s->gate.lock);
	return err;
}

static struct vhost_backend_req to_request(const struct flight *f)
{
	bool map = f->op->kind == DM_OP_MAP;

	return (struct vhost_backend_req){
		.kind = map ? VHOST_BACKEND_SHMEM_MAP : VHOST_BACKEND_SHMEM_UNMAP,
		.fd = map ? f->fd : -1,
		.fd_offset = map ? f->op->fd_offset : 0,
		.offset = f->op->offset,
		.len = f->op->len,
		.write = map && (f->op->flags & DM_MAP_WRITE),
	};
}

/* Puts right what preparing assumed, where the front-end said no. */
static void settle(struct shmem *s, const struct flight *f, size_t n, uint64_t resets)
{
	util_mutex_lock(&s->gate.lock);
	for (size_t i = n; i > 0 && s->gate.resets == resets; i--) {
		const struct flight *x = &f[i - 1];
		struct mapping gone;

		if (x->op->result == 0)
			continue;
		if (x->op->kind == DM_OP_MAP)
			live_remove(s, x->m.offset, x->m.len, &gone);
		else
			live_add(s, &x->m);
	}
	util_mutex_unlock(&s->gate.lock);
}

static int send_chunk(struct shmem *s, struct flight *f, size_t n, struct vhost_backend *b)
{
	struct vhost_backend_req reqs[CHUNK + 1];
	size_t total = n;
	int err;

	for (size_t i = 0; i < n; i++)
		reqs[i] = to_request(&f[i]);
	if (f[n - 1].op->kind == DM_OP_MAP && !s->config.no_fence)
		reqs[total++] = (struct vhost_backend_req){.kind = VHOST_BACKEND_FENCE, .fd = -1};
	err = vhost_backend_call(b, reqs, total);
	for (size_t i = 0; i < n; i++)
		f[i].op->result = reqs[i].result;
	return err;
}

/* Sends what is prepared, or cancels it. */
static int run_chunk(struct shmem *s, struct flight *f, size_t n, uint64_t resets)
{
	struct vhost_backend *b = NULL;
	int err;

	if (n == 0)
		return 0;
	util_mutex_lock(&s->gate.lock);
	err = window_gate_enter_locked(&s->gate, resets, &b);
	util_mutex_unlock(&s->gate.lock);
	if (err) {
		for (size_t i = 0; i < n; i++)
			f[i].op->result = err;
	} else {
		err = send_chunk(s, f, n, b);
	}
	settle(s, f, n, resets);
	return err == -ECANCELED ? 0 : err;
}

static int shmem_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	struct shmem *s = to_shmem(w);
	struct flight f[CHUNK];
	uint64_t resets;
	size_t k = 0;
	int err;

	for (size_t i = 0; i < n; i++)
		ops[i].result = -ECANCELED;
	err = window_gate_begin(&s->gate, &resets);
	for (size_t i = 0; i < n && !err; i++) {
		bool map = ops[i].kind == DM_OP_MAP;

		f[k].op = &ops[i];
		ops[i].result =
			map ? prepare_map(s, &ops[i], &f[k]) : prepare_unmap(s, &ops[i], &f[k]);
		if (ops[i].result == 0)
			k++;
		else if (!map && ops[i].result == -ENOENT)
			ops[i].result = 0; /* gone already: a reset took it */
		if (k == CHUNK) {
			err = run_chunk(s, f, k, resets);
			k = 0;
		}
	}
	if (!err)
		err = run_chunk(s, f, k, resets);
	if (err) {
		for (size_t i = 0; i < n; i++) {
			if (ops[i].result == -ECANCELED)
				ops[i].result = -EPIPE;
		}
	}
	return err;
}

/* --- announcements --- */

static bool is_mapping(const struct mapping *m, const struct vhost_region_info *r)
{
	return m->dev == r->dev && m->ino == r->ino && m->fd_offset == r->mmap_offset &&
	       m->len == r->size;
}

/* Which of our mappings is @r? One file may be mapped twice at the same offset: where the window
 * is known, the address decides. */
static const struct mapping *recognise(struct shmem *s, const struct vhost_region_info *r)
{
	if (s->base_known && r->guest_addr - s->base < s->config.size) {
		unsigned int i = live_find(s, r->guest_addr - s->base);

		if (i < s->live->len && live_at(s, i)->offset == r->guest_addr - s->base &&
		    is_mapping(live_at(s, i), r))
			return live_at(s, i);
	}
	for (unsigned int i = s->live->len; i > 0; i--) {
		if (is_mapping(live_at(s, i - 1), r))
			return live_at(s, i - 1);
	}
	return NULL;
}

enum vhost_region_verdict window_shmem_region(struct dm_window *w, struct vhost_dev *d,
					      const struct vhost_region_info *r)
{
	struct shmem *s = to_shmem(w);
	const struct mapping *m;
	uint64_t base = 0;
	bool ours, found;

	util_mutex_lock(&s->gate.lock);
	m = recognise(s, r);
	found = m && r->guest_addr >= m->offset;
	if (found) {
		base = s->base = r->guest_addr - m->offset;
		s->base_known = true;
	}
	/* What lies in the window is ours even when we have just forgotten it. */
	ours = m || (s->base_known && r->guest_addr - s->base < s->config.size);
	util_mutex_unlock(&s->gate.lock);
	if (!ours)
		return VHOST_REGION_RAM;
	if (found)
		vhost_dev_set_window(d, base);
	return s->config.ack_slots || r->starting ? VHOST_REGION_ACCEPT : VHOST_REGION_REFUSE;
}

void window_shmem_running(struct dm_window *w, bool running)
{
	window_gate_running(&to_shmem(w)->gate, running);
}

/* QEMU has dropped every mapping. */
void window_shmem_reset(struct dm_window *w)
{
	struct shmem *s = to_shmem(w);

	util_mutex_lock(&s->gate.lock);
	g_array_set_size(s->live, 0);
	window_gate_reset_locked(&s->gate);
	util_mutex_unlock(&s->gate.lock);
}

uint64_t window_shmem_to_forget(struct dm_window *w)
{
	return window_gate_to_forget(&to_shmem(w)->gate);
}

void window_shmem_forgotten(struct dm_window *w, uint64_t n)
{
	window_gate_forgotten(&to_shmem(w)->gate, n);
}

void window_shmem_channel(struct dm_window *w, struct vhost_backend *b)
{
	struct shmem *s = to_shmem(w);

	window_gate_channel(&s->gate, b);
	if (b)
		return;
	util_mutex_lock(&s->gate.lock);
	g_array_set_size(s->live, 0);
	s->base_known = false;
	s->gate.resets++;
	util_mutex_unlock(&s->gate.lock);
}

static void shmem_destroy(struct dm_window *w)
{
	struct shmem *s = to_shmem(w);

	window_gate_destroy(&s->gate);
	g_array_free(s->live, TRUE);
	g_free(s);
}

static const struct dm_window_ops shmem_ops = {
	.name = "shmem",
	.submit = shmem_submit,
	.destroy = shmem_destroy,
};

struct dm_window *window_shmem_new(const struct window_shmem_config *config)
{
	struct shmem *s = g_new0(struct shmem, 1);

	s->config = *config;
	s->w.ops = &shmem_ops;
	s->w.caps = (struct dm_window_caps){
		.flags = config->map_fd ? DM_WINDOW_BEYOND_EOF : 0,
		.size = config->size,
		.granule = GRANULE,
		.max_mappings =
			config->max_mappings ? config->max_mappings : WINDOW_SHMEM_MAX_MAPPINGS,
		.batch = CHUNK,
	};
	s->live = g_array_new(FALSE, FALSE, sizeof(struct mapping));
	window_gate_init(&s->gate);
	return &s->w;
}
