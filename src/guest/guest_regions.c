// SPDX-License-Identifier: Apache-2.0
/*
 * What memory the device should know of, what the back-end was told, and how the difference is
 * told. Follows QEMU (hw/virtio/vhost-user.c): with CONFIGURE_MEM_SLOTS removals go first, then
 * additions by guest address, and the first refusal ends the round: what was refused is tried
 * again, first, in every later round. So in a back-end that refuses its window's regions the
 * region announced after a map need not be the one just mapped.
 */
#include <errno.h>
#include <string.h>

#include "guest_internal.h"

void guest_regions_init(struct guest_regions *g)
{
	util_mutex_init(&g->lock);
	g->all = g_array_new(FALSE, TRUE, sizeof(struct guest_region));
	g->shadow = g_array_new(FALSE, TRUE, sizeof(struct guest_msg_region));
}

void guest_regions_destroy(struct guest_regions *g)
{
	g_array_free(g->all, TRUE);
	g_array_free(g->shadow, TRUE);
	util_mutex_destroy(&g->lock);
}

void guest_regions_forget(struct guest_regions *g)
{
	util_mutex_lock(&g->lock);
	g_array_set_size(g->shadow, 0);
	g->dirty = true;
	util_mutex_unlock(&g->lock);
}

void guest_regions_add(struct guest_regions *g, const struct guest_msg_region *r, int fd)
{
	struct guest_region n = {.r = *r, .fd = fd};
	unsigned int i = 0;

	util_mutex_lock(&g->lock);
	while (i < g->all->len &&
	       g_array_index(g->all, struct guest_region, i).r.guest_addr < r->guest_addr)
		i++;
	g_array_insert_val(g->all, i, n);
	g->dirty = true;
	util_mutex_unlock(&g->lock);
}

bool guest_regions_remove(struct guest_regions *g, uint64_t guest_addr)
{
	bool found = false;

	util_mutex_lock(&g->lock);
	for (unsigned int i = 0; i < g->all->len && !found; i++) {
		if (g_array_index(g->all, struct guest_region, i).r.guest_addr != guest_addr)
			continue;
		g_array_remove_index(g->all, i);
		g->dirty = true;
		found = true;
	}
	util_mutex_unlock(&g->lock);
	return found;
}

static bool same(const struct guest_msg_region *a, const struct guest_msg_region *b)
{
	return a->guest_addr == b->guest_addr && a->size == b->size && a->user_addr == b->user_addr;
}

static bool in_all_locked(struct guest_regions *g, const struct guest_msg_region *r)
{
	for (unsigned int i = 0; i < g->all->len; i++)
		if (same(&g_array_index(g->all, struct guest_region, i).r, r))
			return true;
	return false;
}

static bool in_shadow_locked(struct guest_regions *g, const struct guest_msg_region *r)
{
	for (unsigned int i = 0; i < g->shadow->len; i++)
		if (same(&g_array_index(g->shadow, struct guest_msg_region, i), r))
			return true;
	return false;
}

static void count(struct guest_frontend *f, bool add, int err)
{
	struct guest_window *w = &f->window;

	util_mutex_lock(&w->lock);
	if (!add)
		w->stats.removed++;
	else if (err)
		w->stats.add_refused++;
	else
		w->stats.added++;
	util_mutex_unlock(&w->lock);
}

static int sync_slots_locked(struct guest_frontend *f)
{
	struct guest_regions *g = &f->regions;
	struct guest_msg_single_region msg = {0};

	for (unsigned int i = 0; i < g->shadow->len;) {
		int err;

		msg.region = g_array_index(g->shadow, struct guest_msg_region, i);
		if (in_all_locked(g, &msg.region)) {
			i++;
			continue;
		}
		err = guest_frontend_set_msg(f, GUEST_REM_MEM_REG, &msg, sizeof(msg), -1);
		count(f, false, err);
		if (err)
			return err;
		g_array_remove_index(g->shadow, i);
	}
	for (unsigned int i = 0; i < g->all->len; i++) {
		struct guest_region *r = &g_array_index(g->all, struct guest_region, i);
		int err;

		if (in_shadow_locked(g, &r->r))
			continue;
		msg.region = r->r;
		err = guest_frontend_set_msg(f, GUEST_ADD_MEM_REG, &msg, sizeof(msg), r->fd);
		if (r->r.guest_addr >= GUEST_WINDOW_BASE)
			count(f, true, err);
		if (err)
			return err;
		g_array_append_val(g->shadow, r->r);
	}
	return 0;
}

static int sync_table_locked(struct guest_frontend *f)
{
	struct guest_regions *g = &f->regions;
	struct guest_msg_table t = {.nregions = g->all->len};
	int fds[GUEST_TABLE_REGIONS];
	uint32_t size = 8 + g->all->len * (uint32_t)sizeof(t.regions[0]);
	struct guest_msg reply;
	int err;

	if (g->all->len > GUEST_TABLE_REGIONS)
		return -E2BIG;
	for (unsigned int i = 0; i < g->all->len; i++) {
		t.regions[i] = g_array_index(g->all, struct guest_region, i).r;
		fds[i] = g_array_index(g->all, struct guest_region, i).fd;
	}
	if (!(f->protocol & GUEST_PF_REPLY_ACK))
		return guest_frontend_message(f, GUEST_SET_MEM_TABLE, 0, &t, size, fds, g->all->len,
					      NULL);
	err = guest_frontend_message(f, GUEST_SET_MEM_TABLE, GUEST_MSG_NEED_REPLY, &t, size, fds,
				     g->all->len, &reply);
	if (err)
		return err;
	guest_msg_close_fds(&reply);
	return reply.payload[0] ? -EIO : 0;
}

int guest_regions_sync(struct guest_frontend *f)
{
	struct guest_regions *g = &f->regions;
	int err = 0;

	util_mutex_lock(&g->lock);
	if (f->protocol & GUEST_PF_CONFIGURE_MEM_SLOTS)
		err = sync_slots_locked(f);
	else if (g->dirty)
		err = sync_table_locked(f);
	if (!err)
		g->dirty = false;
	util_mutex_unlock(&g->lock);
	return err;
}
