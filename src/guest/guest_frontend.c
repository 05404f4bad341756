// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Messages are sent in QEMU's order: negotiation and the call eventfds at connect; features,
 * memory and rings at start; GET_VRING_BASE at stop. A stop keeps rings and mappings, a reset
 * empties them.
 *
 * The main channel is used by whoever has something to say, one exchange at a time. A monitor
 * thread waits for the back-end to hang up, and then ends everything in flight; so does an
 * exchange that fails. Without `polled` one thread a ring takes completions.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "guest_internal.h"

#define WANT_FEATURES (GUEST_F_VERSION_1 | GUEST_F_INDIRECT | GUEST_F_EVENT_IDX | GUEST_F_PROTOCOL)
#define WANT_PROTOCOL                                                                              \
	(GUEST_PF_MQ | GUEST_PF_REPLY_ACK | GUEST_PF_BACKEND_REQ | GUEST_PF_CONFIG |               \
	 GUEST_PF_BACKEND_SEND_FD | GUEST_PF_RESET_DEVICE | GUEST_PF_CONFIGURE_MEM_SLOTS)

/* --- exchanges on the main channel --- */

int guest_frontend_message(struct guest_frontend *f, uint32_t request, uint32_t flags,
			   const void *payload, uint32_t size, const int *fds, unsigned int nfds,
			   struct guest_msg *reply)
{
	int err;

	util_mutex_lock(&f->chan);
	if (!guest_frontend_alive(f)) {
		util_mutex_unlock(&f->chan);
		return -ENOTCONN;
	}
	err = guest_chan_send(f->sock, request, flags, payload, size, fds, nfds);
	if (!err && reply) {
		err = guest_chan_recv(f->sock, reply, f->config.timeout_ms);
		if (!err && reply->hdr.request != request) {
			g_warning("back-end answered %u to message %u", reply->hdr.request,
				  request);
			guest_msg_close_fds(reply);
			err = -EPROTO;
		}
	}
	util_mutex_unlock(&f->chan);
	if (err == -EPIPE)
		err = -ENOTCONN;
	if (err)
		guest_frontend_mark_dead(f);
	return err;
}

static uint64_t reply_u64(const struct guest_msg *m)
{
	uint64_t v = 0;

	memcpy(&v, m->payload, MIN(sizeof(v), m->hdr.size));
	return v;
}

int guest_frontend_get_u64(struct guest_frontend *f, uint32_t request, uint64_t *v)
{
	struct guest_msg m;
	int err = guest_frontend_message(f, request, 0, NULL, 0, NULL, 0, &m);

	if (err)
		return err;
	guest_msg_close_fds(&m);
	*v = reply_u64(&m);
	return m.hdr.size == sizeof(*v) ? 0 : -EPROTO;
}

int guest_frontend_set_msg(struct guest_frontend *f, uint32_t request, const void *payload,
			   uint32_t size, int fd)
{
	unsigned int nfds = fd >= 0 ? 1 : 0;
	struct guest_msg m;
	int err;

	if (!(f->protocol & GUEST_PF_REPLY_ACK))
		return guest_frontend_message(f, request, 0, payload, size, &fd, nfds, NULL);
	err = guest_frontend_message(f, request, GUEST_MSG_NEED_REPLY, payload, size, &fd, nfds,
				     &m);
	if (err)
		return err;
	guest_msg_close_fds(&m);
	return reply_u64(&m) ? -EIO : 0;
}

static int set_u64(struct guest_frontend *f, uint32_t request, uint64_t v)
{
	return guest_frontend_set_msg(f, request, &v, sizeof(v), -1);
}

static int set_vring(struct guest_frontend *f, uint32_t request, uint32_t index, uint32_t num)
{
	struct guest_msg_vring_state s = {.index = index, .num = num};

	return guest_frontend_set_msg(f, request, &s, sizeof(s), -1);
}

static int set_vring_fd(struct guest_frontend *f, uint32_t request, uint64_t index, int fd)
{
	return guest_frontend_set_msg(f, request, &index, sizeof(index), fd);
}

int guest_frontend_get_config(struct guest_frontend *f, uint32_t offset, void *buf, uint32_t size)
{
	struct guest_msg_config c = {.offset = offset, .size = size};
	uint32_t head = sizeof(c) - sizeof(c.bytes);
	struct guest_msg m;
	int err;

	if (size > GUEST_CONFIG_MAX)
		return -EINVAL;
	err = guest_frontend_message(f, GUEST_GET_CONFIG, 0, &c, head + size, NULL, 0, &m);
	if (err)
		return err;
	guest_msg_close_fds(&m);
	if (m.hdr.size != head + size)
		return -EPROTO;
	memcpy(buf, m.payload + head, size);
	return 0;
}

/* --- death --- */

void guest_frontend_mark_dead(struct guest_frontend *f)
{
	bool first;

	util_mutex_lock(&f->state);
	first = !f->dead;
	f->dead = true;
	util_cond_broadcast(&f->state_cond);
	util_mutex_unlock(&f->state);
	if (!first)
		return;
	for (unsigned int i = 0; i < f->nrings; i++)
		if (f->rings[i])
			guest_ring_fail(f->rings[i], -ENOTCONN);
}

static gpointer monitor_thread(gpointer data)
{
	struct guest_frontend *f = data;
	struct pollfd p[2] = {
		{.fd = f->stop, .events = POLLIN},
		{.fd = f->sock, .events = POLLRDHUP},
	};

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (!p[0].revents)
		guest_frontend_mark_dead(f);
	return NULL;
}

static gpointer ring_thread(gpointer data)
{
	struct guest_ring *r = data;
	struct guest_frontend *f = guest_ring_owner(r);

	while (!__atomic_load_n(&f->closing, __ATOMIC_ACQUIRE))
		guest_ring_wait(r, -1);
	return NULL;
}

/* --- connect --- */

static int negotiate_features(struct guest_frontend *f)
{
	uint64_t want = WANT_PROTOCOL;
	int err;

	f->features = f->protocol = f->offered_protocol = 0;
	err = guest_frontend_get_u64(f, GUEST_GET_FEATURES, &f->offered);
	if (err)
		return err;
	f->features = f->offered & WANT_FEATURES & ~f->config.hide_features;
	if (!(f->features & GUEST_F_PROTOCOL))
		return 0;
	err = guest_frontend_get_u64(f, GUEST_GET_PROTOCOL_FEATURES, &f->offered_protocol);
	if (err)
		return err;
	if (f->config.window.mode == GUEST_WINDOW_STRICT ||
	    f->config.window.mode == GUEST_WINDOW_OVERLAY)
		want |= GUEST_PF_SHMEM;
	want &= f->offered_protocol & ~f->config.hide_protocol;
	err = set_u64(f, GUEST_SET_PROTOCOL_FEATURES, want);
	f->protocol = want;
	return err;
}

static int read_config(struct guest_frontend *f)
{
	uint64_t n = 2;
	unsigned int request_queues;
	int err = 0;

	memset(&f->space, 0, sizeof(f->space));
	f->queue_max = 0;
	f->slots = GUEST_TABLE_REGIONS;
	if (f->protocol & GUEST_PF_MQ)
		err = guest_frontend_get_u64(f, GUEST_GET_QUEUE_NUM, &f->queue_max);
	if (!err && (f->protocol & GUEST_PF_CONFIGURE_MEM_SLOTS))
		err = guest_frontend_get_u64(f, GUEST_GET_MAX_MEM_SLOTS, &f->slots);
	if (!err && (f->protocol & GUEST_PF_CONFIG))
		err = guest_frontend_get_config(f, 0, &f->space, sizeof(f->space));
	if (err)
		return err;
	memcpy(f->tag, f->space.tag, sizeof(f->space.tag));
	request_queues = f->space.num_request_queues ? f->space.num_request_queues : 1;
	if (f->config.num_queues)
		request_queues = f->space.num_request_queues
					 ? MIN(f->config.num_queues, request_queues)
					 : f->config.num_queues;
	if (f->queue_max)
		n = f->queue_max;
	if (n >= 2)
		request_queues = (unsigned int)MIN(request_queues, n - 1);
	f->nrings = MIN(request_queues + 1, GUEST_MAX_QUEUES);
	return 0;
}

static int connect_window(struct guest_frontend *f)
{
	enum guest_window_mode mode = f->config.window.mode;
	uint64_t need = GUEST_PF_BACKEND_REQ | GUEST_PF_BACKEND_SEND_FD;
	struct guest_msg_shmem_config sc = {0};
	uint64_t size = 0;
	int pair[2];
	int err;

	if (mode == GUEST_WINDOW_FS_MAP) {
		size = f->config.window.size;
	} else if (f->protocol & GUEST_PF_SHMEM) {
		struct guest_msg m;

		err = guest_frontend_message(f, GUEST_GET_SHMEM_CONFIG, 0, NULL, 0, NULL, 0, &m);
		if (err)
			return err;
		guest_msg_close_fds(&m);
		memcpy(&sc, m.payload, MIN(sizeof(sc), m.hdr.size));
		size = sc.nregions ? sc.sizes[0] : 0;
		if (size & (size - 1) || size % 4096) {
			guest_window_violate(&f->window,
					     "window size 0x%" G_GINT64_MODIFIER
					     "x is no power of two: would have aborted QEMU",
					     size);
			return -EPROTO;
		}
	}
	if ((f->protocol & need) != need)
		size = 0;
	err = guest_window_set_size(&f->window, size);
	if (err || !(f->protocol & GUEST_PF_BACKEND_REQ))
		return err;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	guest_window_serve(&f->window, pair[0]);
	err = guest_frontend_set_msg(f, GUEST_SET_BACKEND_REQ_FD, NULL, 0, pair[1]);
	util_close(&pair[1]);
	return err;
}

static int prepare_rings(struct guest_frontend *f)
{
	unsigned int flags = (f->features & GUEST_F_EVENT_IDX ? GUEST_RING_EVENT_IDX : 0) |
			     (f->features & GUEST_F_INDIRECT ? GUEST_RING_INDIRECT : 0);

	for (unsigned int i = 0; i < f->nrings; i++) {
		if (!f->rings[i]) {
			f->rings[i] = guest_ring_new(f->mem, f->config.queue_size, flags, f->done);
			if (!f->rings[i])
				return -ENOMEM;
			guest_ring_set_owner(f->rings[i], f);
		}
		guest_ring_reset(f->rings[i]);
		guest_ring_set_flags(f->rings[i], flags);
		f->bases[i] = 0;
		if (!f->config.polled)
			f->threads[i] = g_thread_new("guest-ring", ring_thread, f->rings[i]);
	}
	return 0;
}

static int negotiate(struct guest_frontend *f)
{
	int err = negotiate_features(f);

	if (!err)
		err = guest_frontend_message(f, GUEST_SET_OWNER, 0, NULL, 0, NULL, 0, NULL);
	if (!err)
		err = read_config(f);
	if (!err)
		err = connect_window(f);
	if (!err)
		err = prepare_rings(f);
	for (unsigned int i = 0; !err && i < f->nrings; i++)
		err = set_vring_fd(f, GUEST_SET_VRING_CALL, i, guest_ring_call_fd(f->rings[i]));
	return err;
}

static void note_peer(struct guest_frontend *f)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	if (getsockopt(f->sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		cred.pid = 0;
	f->peer_pid = cred.pid;
}

int guest_frontend_connect_fd(struct guest_frontend *f, int fd, GError **error)
{
	int err;

	guest_frontend_disconnect(f);
	f->sock = fd;
	note_peer(f);
	guest_regions_forget(&f->regions);
	f->nrings = 0;
	__atomic_store_n(&f->closing, false, __ATOMIC_RELEASE);
	util_mutex_lock(&f->state);
	f->dead = false;
	util_mutex_unlock(&f->state);
	err = negotiate(f);
	if (err) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(-err),
			    "negotiation with the back-end failed: %s", g_strerror(-err));
		guest_frontend_disconnect(f);
		return err;
	}
	f->monitor = g_thread_new("guest-monitor", monitor_thread, f);
	return 0;
}

int guest_frontend_connect(struct guest_frontend *f, GError **error)
{
	int fd = guest_chan_connect(f->path);

	if (fd < 0) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(-fd),
			    "cannot connect to %s: %s", f->path, g_strerror(-fd));
		return fd;
	}
	return guest_frontend_connect_fd(f, fd, error);
}

void guest_frontend_disconnect(struct guest_frontend *f)
{
	uint64_t one = 1;
	ssize_t n;

	if (f->sock < 0)
		return;
	shutdown(f->sock, SHUT_RDWR);
	guest_frontend_mark_dead(f);
	util_mutex_lock(&f->state);
	f->running = false;
	util_mutex_unlock(&f->state);
	n = write(f->stop, &one, sizeof(one));
	if (f->monitor)
		g_thread_join(g_steal_pointer(&f->monitor));
	n = read(f->stop, &one, sizeof(one));
	(void)n;
	guest_window_close(&f->window);
	__atomic_store_n(&f->closing, true, __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < GUEST_MAX_QUEUES; i++) {
		if (!f->threads[i])
			continue;
		guest_ring_wake(f->rings[i]);
		g_thread_join(g_steal_pointer(&f->threads[i]));
	}
	guest_window_set_running(&f->window, false);
	util_close(&f->sock);
}

/* --- start and stop --- */

static int start_ring(struct guest_frontend *f, unsigned int i)
{
	struct guest_ring *r = f->rings[i];
	struct guest_msg_vring_addr addr = {.index = i};
	int err;

	guest_ring_addr(r, &addr);
	err = set_vring(f, GUEST_SET_VRING_NUM, i, guest_ring_num(r));
	if (!err)
		err = set_vring(f, GUEST_SET_VRING_BASE, i, f->bases[i]);
	if (!err)
		err = guest_frontend_set_msg(f, GUEST_SET_VRING_ADDR, &addr, sizeof(addr), -1);
	if (!err)
		err = set_vring_fd(f, GUEST_SET_VRING_KICK, i, guest_ring_kick_fd(r));
	if (!err)
		err = set_vring_fd(f, GUEST_SET_VRING_CALL, i, guest_ring_call_fd(r));
	return err;
}

static int enable_rings(struct guest_frontend *f, unsigned int on)
{
	int err = 0;

	if (!(f->features & GUEST_F_PROTOCOL))
		return 0;
	for (unsigned int i = 0; !err && i < f->nrings; i++)
		err = set_vring(f, GUEST_SET_VRING_ENABLE, i, on);
	return err;
}

static void set_running(struct guest_frontend *f, bool running)
{
	util_mutex_lock(&f->state);
	f->running = running;
	util_mutex_unlock(&f->state);
	guest_window_set_running(&f->window, running);
}

int guest_frontend_start(struct guest_frontend *f, GError **error)
{
	int err;

	util_mutex_lock(&f->big);
	err = set_u64(f, GUEST_SET_FEATURES, f->features);
	if (!err) {
		f->regions.dirty = true;
		err = guest_regions_sync(f);
	}
	for (unsigned int i = 0; !err && i < f->nrings; i++)
		err = start_ring(f, i);
	if (!err) {
		/* What is enabled may map at once. */
		set_running(f, true);
		err = enable_rings(f, 1);
	}
	util_mutex_unlock(&f->big);
	for (unsigned int i = 0; !err && i < f->nrings; i++)
		guest_ring_kick(f->rings[i]);
	if (err)
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(-err),
			    "cannot start the device: %s",
			    err == -E2BIG ? "more memory regions than the back-end takes"
					  : g_strerror(-err));
	return err;
}

static int stop_locked(struct guest_frontend *f)
{
	int err = enable_rings(f, 0);

	for (unsigned int i = 0; !err && i < f->nrings; i++) {
		struct guest_msg_vring_state s = {.index = i};
		struct guest_msg m;

		err = guest_frontend_message(f, GUEST_GET_VRING_BASE, 0, &s, sizeof(s), NULL, 0,
					     &m);
		if (err)
			break;
		guest_msg_close_fds(&m);
		memcpy(&s, m.payload, sizeof(s));
		if (m.hdr.size != sizeof(s) || s.index != i)
			err = -EPROTO;
		f->bases[i] = (uint16_t)s.num;
	}
	set_running(f, false);
	return err;
}

int guest_frontend_stop(struct guest_frontend *f, GError **error)
{
	int err;

	util_mutex_lock(&f->big);
	err = stop_locked(f);
	util_mutex_unlock(&f->big);
	if (err)
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(-err),
			    "cannot stop the device: %s", g_strerror(-err));
	return err;
}

int guest_frontend_reset(struct guest_frontend *f, GError **error)
{
	int err = 0;

	util_mutex_lock(&f->big);
	if (guest_frontend_running(f))
		err = stop_locked(f);
	if (!err && (f->protocol & GUEST_PF_RESET_DEVICE))
		err = guest_frontend_set_msg(f, GUEST_RESET_DEVICE, NULL, 0, -1);
	guest_window_drop(&f->window);
	for (unsigned int i = 0; !err && i < f->nrings; i++) {
		guest_ring_reset(f->rings[i]);
		f->bases[i] = 0;
	}
	util_mutex_unlock(&f->big);
	if (err)
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(-err),
			    "cannot reset the device: %s", g_strerror(-err));
	return err;
}

/* --- memory --- */

int guest_frontend_add_mem(struct guest_frontend *f, uint64_t guest_addr, uint64_t size, void *user,
			   int fd, uint64_t offset)
{
	struct guest_msg_region r = {
		.guest_addr = guest_addr,
		.size = size,
		.user_addr = (uintptr_t)user,
		.mmap_offset = offset,
	};

	if (!(f->protocol & GUEST_PF_CONFIGURE_MEM_SLOTS))
		return -EOPNOTSUPP;
	guest_regions_add(&f->regions, &r, fd);
	return guest_regions_sync(f);
}

int guest_frontend_rem_mem(struct guest_frontend *f, uint64_t guest_addr, uint64_t size, void *user)
{
	if (!(f->protocol & GUEST_PF_CONFIGURE_MEM_SLOTS))
		return -EOPNOTSUPP;
	if (!guest_regions_remove(&f->regions, guest_addr))
		return -ENOENT;
	return guest_regions_sync(f);
}

/* --- making and looking --- */

static void fill_defaults(struct guest_config *c)
{
	if (!c->mem_size)
		c->mem_size = 64ull << 20;
	if (!c->queue_size)
		c->queue_size = 128;
	if (!c->timeout_ms)
		c->timeout_ms = 10000;
}

static void ignore_done(void *token, int status, uint32_t written)
{
}

struct guest_frontend *guest_frontend_new(const struct guest_config *config, GError **error)
{
	struct guest_frontend *f = g_new0(struct guest_frontend, 1);
	struct guest_msg_region ram;
	int fd;

	f->config = *config;
	fill_defaults(&f->config);
	f->path = g_strdup(config->socket_path);
	f->config.socket_path = f->path;
	f->done = ignore_done;
	f->sock = -1;
	f->dead = true;
	f->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	util_mutex_init(&f->big);
	util_mutex_init(&f->chan);
	util_mutex_init(&f->state);
	util_cond_init(&f->state_cond);
	guest_regions_init(&f->regions);
	f->mem = guest_mem_new(f->config.mem_size);
	if (guest_window_open(&f->window, f) || f->stop < 0 || !f->mem) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
			    "cannot allocate guest memory: %s", g_strerror(errno));
		guest_frontend_free(f);
		return NULL;
	}
	guest_mem_region(f->mem, &ram, &fd);
	guest_regions_add(&f->regions, &ram, fd);
	return f;
}

void guest_frontend_free(struct guest_frontend *f)
{
	if (!f)
		return;
	guest_frontend_disconnect(f);
	guest_window_destroy(&f->window);
	for (unsigned int i = 0; i < GUEST_MAX_QUEUES; i++)
		guest_ring_free(f->rings[i]);
	guest_mem_free(f->mem);
	guest_regions_destroy(&f->regions);
	util_close(&f->stop);
	util_cond_destroy(&f->state_cond);
	util_mutex_destroy(&f->state);
	util_mutex_destroy(&f->chan);
	util_mutex_destroy(&f->big);
	g_free(f->path);
	g_free(f);
}

bool guest_frontend_alive(struct guest_frontend *f)
{
	bool alive;

	util_mutex_lock(&f->state);
	alive = !f->dead;
	util_mutex_unlock(&f->state);
	return alive;
}

bool guest_frontend_running(struct guest_frontend *f)
{
	bool running;

	util_mutex_lock(&f->state);
	running = f->running;
	util_mutex_unlock(&f->state);
	return running;
}

bool guest_frontend_wait_dead(struct guest_frontend *f, int timeout_ms)
{
	uint64_t until = util_now_ns() + (uint64_t)timeout_ms * 1000000;
	bool dead;

	util_mutex_lock(&f->state);
	while (!f->dead && util_cond_wait_until(&f->state_cond, &f->state, until))
		;
	dead = f->dead;
	util_mutex_unlock(&f->state);
	return dead;
}

uint64_t guest_frontend_features(struct guest_frontend *f)
{
	return f->features;
}

uint64_t guest_frontend_protocol(struct guest_frontend *f)
{
	return f->protocol;
}

uint64_t guest_frontend_offered(struct guest_frontend *f)
{
	return f->offered;
}

uint64_t guest_frontend_offered_protocol(struct guest_frontend *f)
{
	return f->offered_protocol;
}

const char *guest_frontend_tag(struct guest_frontend *f)
{
	return f->tag;
}

unsigned int guest_frontend_num_queues(struct guest_frontend *f)
{
	return f->nrings ? f->nrings - 1 : 0;
}

int guest_frontend_peer_pid(struct guest_frontend *f)
{
	return f->peer_pid;
}

struct guest_mem *guest_frontend_mem(struct guest_frontend *f)
{
	return f->mem;
}

struct guest_ring *guest_frontend_ring(struct guest_frontend *f, unsigned int i)
{
	return i < f->nrings ? f->rings[i] : NULL;
}

struct guest_window *guest_frontend_window(struct guest_frontend *f)
{
	return &f->window;
}

void guest_frontend_set_done(struct guest_frontend *f, guest_ring_done done)
{
	f->done = done;
}

int guest_frontend_socket(struct guest_frontend *f)
{
	return f->sock;
}
