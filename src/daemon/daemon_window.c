// SPDX-License-Identifier: Apache-2.0
#include "daemon_window.h"

struct dm_window *daemon_window_new(const struct daemon_config *c)
{
	return NULL;
}

enum vhost_region_verdict daemon_window_region(struct dm_window *w,
					       const struct vhost_region_info *r)
{
	return VHOST_REGION_RAM;
}

void daemon_window_running(struct dm_window *w, bool running)
{
}

void daemon_window_channel(struct dm_window *w, struct vhost_backend *b)
{
}
