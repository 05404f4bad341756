// SPDX-License-Identifier: Apache-2.0
/* A device: made once, serves one front-end after the other. */
#define G_LOG_DOMAIN "vhost"
#include <errno.h>
#include <glib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_rcu.h"
#include "vhost_priv.h"

/* syscalls: eventfd2 read write close */

struct vhost_dev *vhost_dev_new(const struct vhost_config *config, const struct vhost_ops *ops,
				void *ctx)
{
	struct vhost_dev *d = g_new0(struct vhost_dev, 1);

	g_assert(config->num_queues >= 1 && config->num_queues <= VHOST_MAX_QUEUES);
	g_assert(ops->request);
	d->config = *config;
	d->ops = *ops;
	d->ctx = ctx;
	d->sock = -1;
	d->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->stop_fd < 0)
		g_error("eventfd: %s", g_strerror(errno));
	d->mem = vhost_mem_new();
	d->backend = vhost_backend_new();
	d->accepted = g_array_new(FALSE, FALSE, sizeof(struct vhost_accepted));
	for (unsigned int i = 0; i < config->num_queues; i++)
		vhost_queue_init(&d->queues[i], d, i);
	vhost_relief_init(&d->relief, d->queues, config->stand_ins ? config->num_queues : 0);
	return d;
}

void vhost_dev_free(struct vhost_dev *d)
{
	if (!d)
		return;
	for (unsigned int i = 0; i < d->config.num_queues; i++)
		vhost_queue_destroy(&d->queues[i]);
	vhost_relief_destroy(&d->relief);
	vhost_backend_free(d->backend);
	util_rcu_barrier();
	vhost_mem_put(d->mem);
	g_array_free(d->accepted, TRUE);
	util_close(&d->stop_fd);
	g_free(d);
}

void vhost_dev_stop(struct vhost_dev *d)
{
	uint64_t one = 1;
	int saved = errno;
	ssize_t n = write(d->stop_fd, &one, sizeof(one));

	(void)n; /* full means that it is set */
	errno = saved;
}

void vhost_session_publish(struct vhost_dev *d, struct vhost_mem *mem)
{
	vhost_mem_put_later(util_rcu_xchg(d->mem, mem));
}

void vhost_session_running(struct vhost_dev *d, bool running)
{
	if (d->running == running)
		return;
	d->running = running;
	if (d->ops.running)
		d->ops.running(d->ctx, running);
}

void vhost_dev_set_window(struct vhost_dev *d, uint64_t guest_base)
{
	uint64_t end;

	if (d->window_known && d->window_base == guest_base)
		return;
	if (__builtin_add_overflow(guest_base, d->config.window_size, &end))
		return;
	d->window_known = true;
	d->window_base = guest_base;
	vhost_session_publish(d, vhost_mem_move_window(d->mem, guest_base, d->config.window_size));
}

/* Ends what the session began. The order matters: the channel goes first, so that requests
 * that wait for it end, and only then are all requests waited for. */
static void session_end(struct vhost_dev *d)
{
	vhost_session_running(d, false);
	vhost_backend_close(d->backend);
	if (d->ops.channel)
		d->ops.channel(d->ctx, NULL);
	for (unsigned int i = 0; i < d->config.num_queues; i++)
		vhost_queue_close(&d->queues[i]);
	vhost_relief_end(&d->relief);
	for (unsigned int i = 0; i < d->config.num_queues; i++)
		vhost_queue_join(&d->queues[i]);
	vhost_session_publish(d, vhost_mem_new());
	util_rcu_barrier();
	util_close(&d->sock);
	g_array_set_size(d->accepted, 0);
	d->owned = d->starting = d->window_known = false;
	d->features = d->protocol = 0;
	if (d->ops.closed)
		d->ops.closed(d->ctx);
}

int vhost_dev_serve(struct vhost_dev *d, int fd)
{
	int r;

	g_assert(d->sock < 0);
	d->sock = fd;
	r = vhost_session_run(d);
	session_end(d);
	if (r == -ECANCELED) {
		uint64_t v;
		ssize_t n = read(d->stop_fd, &v, sizeof(v));

		(void)n;
	}
	return r;
}
