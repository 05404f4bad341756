// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Requests flow vhost -> fuse -> { fs | table -> window -> vhost back-end channel }. This file is
 * where the two ends of that chain meet, so it is also where the rule of the main channel is kept:
 * what vhost calls on its main thread (region, running, reset, channel) only sets flags or hands
 * work to the worker; the worker and the queue threads wait.
 *
 * A device reset: the window driver is told at once, and sends nothing from then on; the worker
 * then empties session, file system and table, and the window opens for the next guest. Requests of
 * the next guest wait for that (await_reset()), marked as parked so that the main channel can stop
 * their ring meanwhile.
 *
 * The end of a session is the same, done by the main thread itself, which has nothing to serve
 * any more.
 */
#include "daemon_device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include <daxmap/table.h>

#include "daemon_cpus.h"
#include "daemon_policy.h"
#include "daemon_shim.h"
#include "daemon_trace.h"
#include "daemon_window.h"
#include "daemon_worker.h"
#include "util_fd.h"
#include "util_lock.h"
#include "util_rcu.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "device"

/* syscalls: prctl */

#define ELEM_OF(r) (((struct request *)(void *)(r))->elem)

/* Lives in the element that carries it. */
struct request {
	struct fuse_request fuse; /* first */
	struct vhost_elem *elem;
};

/* le32 on the wire; virtio 1.2, 5.11.4 */
struct fs_config_space {
	char tag[36];
	uint32_t num_request_queues;
	uint32_t notify_buf_size;
};

/* --- up: requests --- */

static void request_done(struct fuse_request *r, size_t len)
{
	vhost_elem_done(ELEM_OF(r), len);
}

static void request_parked(struct fuse_request *r, bool parked)
{
	vhost_elem_parked(ELEM_OF(r), parked);
}

static bool request_may_block(struct fuse_request *r)
{
	return vhost_elem_may_block(ELEM_OF(r));
}

static void on_batch_end(void *ctx, struct vhost_queue *q)
{
	struct daemon_device *d = ctx;

	fuse_session_flush(d->session, vhost_queue_index(q));
}

static void await_reset(struct daemon_device *d, struct vhost_elem *e)
{
	/* The reset waits for what has been kept. */
	fuse_session_flush(d->session, vhost_queue_index(e->queue));
	vhost_elem_parked(e, true);
	daemon_worker_wait(d->worker);
	vhost_elem_parked(e, false);
}

static void on_request(void *ctx, struct vhost_elem *e)
{
	struct daemon_device *d = ctx;
	struct request *r = vhost_elem_priv(e);

	if (G_UNLIKELY(daemon_worker_resetting(d->worker)))
		await_reset(d, e);
	r->elem = e;
	r->fuse.out = e->out;
	r->fuse.in = e->in;
	r->fuse.queue = vhost_queue_index(e->queue);
	r->fuse.error = e->error;
	r->fuse.more = true;
	r->fuse.done = request_done;
	r->fuse.parked = request_parked;
	r->fuse.may_block = request_may_block;
	fuse_session_handle(d->session, &r->fuse);
}

static void name_thread(const char *what, unsigned int queue)
{
	char name[16];

	snprintf(name, sizeof(name), "%s-%u", what, queue);
	prctl(PR_SET_NAME, name, 0, 0, 0);
}

static void bind_thread(const struct daemon_device *d, unsigned int queue)
{
	if (!daemon_cpus_bind(d->config->queue_cpus, queue))
		g_warning("--queue-cpus: queue %u: no such CPU for us; its threads are not bound",
			  queue);
}

static void on_queue_thread(void *ctx, unsigned int queue)
{
	name_thread("queue", queue);
	bind_thread(ctx, queue);
}

static void on_pool_thread(void *ctx, unsigned int queue)
{
	const struct daemon_device *d = ctx;

	name_thread("pool", queue);
	/* Those that serve all queues run anywhere. */
	if (queue <= (unsigned int)d->config->num_request_queues)
		bind_thread(ctx, queue);
	else
		daemon_cpus_unbind(d->config->queue_cpus);
}

/* --- main thread: must not wait --- */

static int on_config_read(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	const struct daemon_device *d = ctx;
	struct fs_config_space space = {
		.num_request_queues = GUINT32_TO_LE((uint32_t)d->config->num_request_queues),
	};

	memcpy(space.tag, d->config->tag, MIN(strlen(d->config->tag), sizeof(space.tag)));
	memset(buf, 0, len);
	if (offset < sizeof(space))
		memcpy(buf, (char *)&space + offset, MIN(len, sizeof(space) - offset));
	return 0;
}

static enum vhost_region_verdict on_region(void *ctx, const struct vhost_region_info *r)
{
	struct daemon_device *d = ctx;

	return daemon_window_region(d->config, d->window, d->dev, r);
}

static void on_running(void *ctx, bool running)
{
	struct daemon_device *d = ctx;

	__atomic_store_n(&d->running, running, __ATOMIC_RELAXED);
	daemon_window_running(d->config, d->window, running);
	g_debug("the device %s", running ? "runs" : "has stopped");
}

static void on_reset(void *ctx)
{
	struct daemon_device *d = ctx;

	__atomic_add_fetch(&d->resets, 1, __ATOMIC_RELAXED);
	g_debug("the device was reset");
	daemon_window_reset(d->config, d->window);
	daemon_worker_reset(d->worker);
}

static void on_channel(void *ctx, struct vhost_backend *b)
{
	struct daemon_device *d = ctx;

	__atomic_store_n(&d->channel, b != NULL, __ATOMIC_RELAXED);
	daemon_window_channel(d->config, d->window, b);
}

static const struct vhost_ops vhost_ops = {
	.config_read = on_config_read,
	.request = on_request,
	.batch_end = on_batch_end,
	.thread_start = on_queue_thread,
	.region = on_region,
	.running = on_running,
	.reset = on_reset,
	.channel = on_channel,
};

/* --- the worker: may wait --- */

static void forget_guest(void *ctx)
{
	struct daemon_device *d = ctx;
	/* Before: a reset that comes meanwhile has the worker come back, and the window shut. */
	uint64_t guests = daemon_window_to_forget(d->config, d->window);

	fuse_session_reset(d->session);
	if (d->table)
		dm_host_forget(d->table);
	daemon_trace_session(d->trace, false);
	daemon_window_forgotten(d->config, d->window, guests);
}

/* --- down: what the parts ask of each other --- */

static void node_gone(void *ctx, uint64_t node, bool unlinked)
{
	struct daemon_device *d = ctx;

	/* The ranges of a deleted file keep its disk space; those of others age away. */
	if (unlinked && d->session)
		fuse_session_file_gone(d->session, node);
}

static int provide_file(void *ctx, struct dm_file_key key, bool *writable)
{
	struct daemon_device *d = ctx;

	int fd = fs_open_for_map(d->fs, key.lo, writable);

	if (fd < 0)
		return fd;
	daemon_trace_file(d->trace, key);
	watch_open(d->watch, key, fd);
	return daemon_shim_wrap(d->shim, key, fd, *writable);
}

static void give_back_file(void *ctx, struct dm_file_key key, int fd)
{
	struct daemon_device *d = ctx;

	watch_close(d->watch, key);
	util_close(&fd);
}

static int provide_zeros(void *ctx, uint64_t len)
{
	return watch_zeros(len);
}

/* In the watch's thread. The shim says it in the log. */
static void shim_event(void *ctx)
{
	struct daemon_device *d = ctx;

	shim_check(d->shim);
}

/* --- making and unmaking --- */

static bool make_fs(struct daemon_device *d, struct sandbox_fds *fds, GError **error)
{
	const struct daemon_config *c = d->config;
	const struct fs_hooks hooks = {.ctx = d, .node_gone = node_gone};
	const struct fs_config config = {
		.root_fd = util_steal_fd(&fds->root_fd),
		.proc_self_fd = util_steal_fd(&fds->proc_self_fd),
		.readonly = c->readonly,
		.xattr = c->xattr,
		.allow_direct_io = c->allow_direct_io,
		.writeback = c->writeback,
		.posix_acl = c->posix_acl,
		.flock = c->flock,
		.announce_submounts = c->announce_submounts,
		.keep_names = c->cache_size && (c->dax_include || c->dax_exclude),
		.cache = (enum fs_cache_mode)c->cache,
	};

	d->fs = fs_new(&config, &hooks, error);
	return d->fs != NULL;
}

static struct dm_table_config table_config(const struct daemon_config *c)
{
	return (struct dm_table_config){
		.manager = (enum dm_manager)c->manager,
		.max_mappings = (uint32_t)c->max_mappings,
		.policy = (enum dm_policy)c->reclaim,
		.high_watermark = (uint32_t)c->high_water,
		.low_watermark = (uint32_t)c->low_water,
		.linger_ms = (uint32_t)c->linger_ms,
	};
}

static void make_table(struct daemon_device *d)
{
	const struct dm_file_provider provider = {d, provide_file, give_back_file, provide_zeros};
	const struct watch_config watch = {
		.hold = d->hold,
		.other_fd = d->shim ? shim_event_fd(d->shim) : -1,
		.other = shim_event,
		.ctx = d,
	};
	const struct dm_table_config config = table_config(d->config);

	d->window = daemon_window_new(d->config);
	if (!d->window)
		return;
	d->window_size = d->config->cache_size;
	d->watch = watch_new(&watch);
	d->table = dm_table_new(d->window, &provider, &config);
	d->trace = daemon_trace_new(d->config, d->fs, d->table, &d->window->caps,
				    d->window->ops->name);
	d->policy = daemon_policy_new(d->config, d->fs, d->shim, d->watch, &d->window->caps);
	watch_start(d->watch, d->table);
}

static enum fuse_dax_mode dax_mode(const struct daemon_device *d)
{
	if (!d->table)
		return FUSE_DAX_NONE;
	return d->config->dax == DAEMON_DAX_ALWAYS ? FUSE_DAX_ALWAYS : FUSE_DAX_INODE;
}

static void make_session(struct daemon_device *d)
{
	const struct daemon_config *c = d->config;
	const struct fuse_config config = {
		.fs = d->fs,
		.table = d->table,
		.num_queues = (unsigned int)c->num_request_queues + 1,
		.pool_size = (int)c->thread_pool_size,
		.dax = dax_mode(d),
		.window_size = d->window_size,
		.remove_blocks = c->manager == DM_MANAGER_FORWARD,
		.dax_ops = d->policy ? &daemon_policy_ops : NULL,
		.dax_ctx = d->policy,
		.attr_timeout = -1, /* as the cache mode says */
		.entry_timeout = -1,
		.cache = (enum fs_cache_mode)c->cache,
		.readonly = c->readonly,
		.writeback = c->writeback,
		.allow_mmap = c->allow_mmap,
		.xattr = c->xattr,
		.posix_acl = c->posix_acl,
		.flock = c->flock,
		.killpriv_v2 = c->killpriv_v2,
		.readdirplus = c->readdirplus,
		.announce_submounts = c->announce_submounts,
		.max_write = 1u << 20,
		.batch_reads = c->io_uring == DAEMON_IO_URING_AUTO,
		.pool_thread_start = on_pool_thread,
		.pool_ctx = d,
	};

	d->session = fuse_session_new(&config);
}

static void make_dev(struct daemon_device *d)
{
	const struct vhost_config config = {
		.num_queues = (unsigned int)d->config->num_request_queues + 1,
		.elem_priv = sizeof(struct request),
		.window_size = d->window_size,
		.mem_slots = true,
		.poll_us = (unsigned int)d->config->poll_us,
		.stand_ins = fuse_session_stand_ins(d->session),
	};

	d->dev = vhost_dev_new(&config, &vhost_ops, d);
}

static void nothing(struct util_rcu_head *head)
{
	g_free(head);
}

/* liburcu makes its thread at the first callback. Made here, the number of threads before the
 * first session is the number after each. */
static void start_rcu_thread(void)
{
	struct util_rcu_head *head = g_new0(struct util_rcu_head, 1);

	util_rcu_call(head, nothing);
	util_rcu_barrier();
}

struct daemon_device *daemon_device_new(const struct daemon_config *config, struct sandbox_fds *fds,
					struct shim *shim, struct hold *hold, GError **error)
{
	struct daemon_device *d = g_new0(struct daemon_device, 1);

	d->config = config;
	d->shim = shim;
	d->hold = hold;
	d->started_ns = util_now_ns();
	start_rcu_thread();
	d->worker = daemon_worker_new(forget_guest, d);
	if (!make_fs(d, fds, error)) {
		daemon_device_free(d);
		return NULL;
	}
	make_table(d);
	make_session(d);
	make_dev(d);
	return d;
}

void daemon_device_tune(struct daemon_device *d, const struct daemon_config *c)
{
	const struct dm_table_config config = table_config(c);

	if (!d->table)
		return;
	dm_table_tune(d->table, &config);
	daemon_policy_tune(d->policy, c);
}

void daemon_device_free(struct daemon_device *d)
{
	if (!d)
		return;
	daemon_worker_free(d->worker);
	if (d->dev)
		vhost_dev_free(d->dev);
	/* Nodes that go after it have nobody to tell (node_gone). */
	fuse_session_free(g_steal_pointer(&d->session));
	daemon_policy_free(d->policy);
	daemon_trace_free(d->trace);
	watch_stop(d->watch);
	if (d->table)
		dm_table_free(d->table);
	watch_free(d->watch);
	dm_window_destroy(d->window);
	if (d->fs)
		fs_free(d->fs);
	g_free(d);
}

int daemon_device_serve(struct daemon_device *d, int fd)
{
	int err;

	__atomic_add_fetch(&d->sessions, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&d->connected, true, __ATOMIC_RELAXED);
	daemon_trace_session(d->trace, true);
	err = vhost_dev_serve(d->dev, fd);
	daemon_worker_wait(d->worker);
	forget_guest(d);
	__atomic_store_n(&d->running, false, __ATOMIC_RELAXED);
	__atomic_store_n(&d->connected, false, __ATOMIC_RELAXED);
	return err;
}

void daemon_device_stop(struct daemon_device *d)
{
	vhost_dev_stop(d->dev);
}
