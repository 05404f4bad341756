// SPDX-License-Identifier: Apache-2.0
/* The FS_MAP dialect. It needs no table here: the front-end forgives overlaps and partial
 * unmaps, announces no regions, and knows no budget. */
#define G_LOG_DOMAIN "window"
#include "window_fs_map.h"

#include <errno.h>
#include <glib.h>

#include "util_overflow.h"
#include "window_gate.h"

#define GRANULE 4096u
#define CHUNK 32u

struct fs_map {
	struct dm_window w;
	struct window_gate gate;
};

static struct fs_map *to_fs_map(struct dm_window *w)
{
	return (struct fs_map *)w;
}

static int check(const struct fs_map *s, const struct dm_window_op *op)
{
	uint64_t end;

	if (op->len == 0 || !util_is_aligned(op->offset | op->len, GRANULE))
		return -EINVAL;
	if (!util_range_inside(op->offset, op->len, s->w.caps.size))
		return -ERANGE;
	if (op->kind == DM_OP_MAP && (!util_is_aligned(op->fd_offset, GRANULE) ||
				      !util_add_u64(op->fd_offset, op->len, &end)))
		return -EINVAL;
	return 0;
}

static int run_chunk(struct fs_map *s, struct dm_window_op **ops, size_t n, uint64_t resets)
{
	struct vhost_backend_req reqs[CHUNK];
	struct vhost_backend *b = NULL;
	int err;

	if (n == 0)
		return 0;
	util_mutex_lock(&s->gate.lock);
	err = window_gate_enter_locked(&s->gate, resets, &b);
	util_mutex_unlock(&s->gate.lock);
	for (size_t i = 0; i < n; i++) {
		bool map = ops[i]->kind == DM_OP_MAP;

		reqs[i] = (struct vhost_backend_req){
			.kind = map ? VHOST_BACKEND_FS_MAP : VHOST_BACKEND_FS_UNMAP,
			.fd = map ? ops[i]->fd : -1,
			.result = err,
			.fd_offset = map ? ops[i]->fd_offset : 0,
			.offset = ops[i]->offset,
			.len = ops[i]->len,
			.write = map && (ops[i]->flags & DM_MAP_WRITE),
		};
	}
	if (!err)
		err = vhost_backend_call(b, reqs, n);
	for (size_t i = 0; i < n; i++)
		ops[i]->result = reqs[i].result;
	return err == -ECANCELED ? 0 : err;
}

static int fs_map_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	struct fs_map *s = to_fs_map(w);
	struct dm_window_op *chunk[CHUNK];
	uint64_t resets;
	size_t k = 0;
	int err;

	err = window_gate_begin(&s->gate, &resets);
	for (size_t i = 0; i < n; i++)
		ops[i].result = err ? err : check(s, &ops[i]);
	for (size_t i = 0; i < n && !err; i++) {
		if (ops[i].result)
			continue;
		ops[i].result = -EPIPE;
		chunk[k++] = &ops[i];
		if (k == CHUNK) {
			err = run_chunk(s, chunk, k, resets);
			k = 0;
		}
	}
	if (!err)
		err = run_chunk(s, chunk, k, resets);
	for (size_t i = 0; i < n && err; i++) {
		if (ops[i].result == 0)
			ops[i].result = -EPIPE;
	}
	return err;
}

void window_fs_map_running(struct dm_window *w, bool running)
{
	window_gate_running(&to_fs_map(w)->gate, running);
}

void window_fs_map_reset(struct dm_window *w)
{
	struct fs_map *s = to_fs_map(w);

	util_mutex_lock(&s->gate.lock);
	window_gate_reset_locked(&s->gate);
	util_mutex_unlock(&s->gate.lock);
}

uint64_t window_fs_map_to_forget(struct dm_window *w)
{
	return window_gate_to_forget(&to_fs_map(w)->gate);
}

void window_fs_map_forgotten(struct dm_window *w, uint64_t n)
{
	window_gate_forgotten(&to_fs_map(w)->gate, n);
}

void window_fs_map_channel(struct dm_window *w, struct vhost_backend *b)
{
	window_gate_channel(&to_fs_map(w)->gate, b);
}

static void fs_map_destroy(struct dm_window *w)
{
	window_gate_destroy(&to_fs_map(w)->gate);
	g_free(w);
}

static const struct dm_window_ops fs_map_ops = {
	.name = "fs_map",
	.submit = fs_map_submit,
	.destroy = fs_map_destroy,
};

struct dm_window *window_fs_map_new(uint64_t size)
{
	struct fs_map *s = g_new0(struct fs_map, 1);

	s->w.ops = &fs_map_ops;
	s->w.caps = (struct dm_window_caps){
		.flags = DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT | DM_WINDOW_PROTECT |
			 DM_WINDOW_BEYOND_EOF,
		.size = size,
		.granule = GRANULE,
		.batch = CHUNK,
	};
	window_gate_init(&s->gate);
	return &s->w;
}
