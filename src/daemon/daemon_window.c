// SPDX-License-Identifier: Apache-2.0
#include "daemon_window.h"

#include "window_fs_map.h"
#include "window_shmem.h"

static bool is_shmem(const struct daemon_config *c)
{
	return c->dialect == DAEMON_DIALECT_SHMEM;
}

bool daemon_window_offered(const struct daemon_config *c)
{
	/* QEMU maps writable whatever we ask for; daemon_options_warnings() has said it. */
	return c->cache_size && !(c->readonly && is_shmem(c));
}

struct dm_window *daemon_window_new(const struct daemon_config *c)
{
	const struct window_shmem_config shmem = {
		.size = c->cache_size,
		.max_mappings = (uint32_t)c->max_mappings,
		.ack_slots = c->slots == DAEMON_SLOTS_ACK,
	};

	if (!daemon_window_offered(c))
		return NULL;
	return is_shmem(c) ? window_shmem_new(&shmem) : window_fs_map_new(c->cache_size);
}

enum vhost_region_verdict daemon_window_region(const struct daemon_config *c, struct dm_window *w,
					       struct vhost_dev *d,
					       const struct vhost_region_info *r)
{
	return w && is_shmem(c) ? window_shmem_region(w, d, r) : VHOST_REGION_RAM;
}

void daemon_window_running(const struct daemon_config *c, struct dm_window *w, bool running)
{
	if (!w)
		return;
	if (is_shmem(c))
		window_shmem_running(w, running);
	else
		window_fs_map_running(w, running);
}

void daemon_window_reset(const struct daemon_config *c, struct dm_window *w)
{
	if (!w)
		return;
	if (is_shmem(c))
		window_shmem_reset(w);
	else
		window_fs_map_reset(w);
}

void daemon_window_channel(const struct daemon_config *c, struct dm_window *w,
			   struct vhost_backend *b)
{
	if (!w)
		return;
	if (is_shmem(c))
		window_shmem_channel(w, b);
	else
		window_fs_map_channel(w, b);
}

uint64_t daemon_window_to_forget(const struct daemon_config *c, struct dm_window *w)
{
	if (!w)
		return 0;
	return is_shmem(c) ? window_shmem_to_forget(w) : window_fs_map_to_forget(w);
}

void daemon_window_forgotten(const struct daemon_config *c, struct dm_window *w, uint64_t n)
{
	if (!w)
		return;
	if (is_shmem(c))
		window_shmem_forgotten(w, n);
	else
		window_fs_map_forgotten(w, n);
}
