// SPDX-License-Identifier: Apache-2.0
/*
 * The main channel. One table says for each request what it may carry; what does not fit, comes
 * out of order, or names what is not there ends the session with one line in the log. What
 * the front-end can be told (NEED_REPLY, or a reply of its own) and live with is refused instead.
 * What a guest alone can provoke never ends the session.
 *
 * When does a ring run? The specification starts it at the first kick; here it starts when its
 * addresses and its kick descriptor are known and runs while enabled: a driver that has not
 * kicked yet has put nothing into it. GET_VRING_BASE, RESET_DEVICE and RESET_OWNER stop it.
 *
 * No handler waits for the back-end channel (see vhost_queue.c on stops).
 */
#define G_LOG_DOMAIN "vhost"
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <string.h>
#include <sys/stat.h>

#include "util_fd.h"
#include "util_log.h"
#include "util_overflow.h"
#include "vhost_msg.h"
#include "vhost_priv.h"

/* syscalls: fcntl fstat */

/* How a handler ends. */
enum verdict {
	DONE,	/* answer 0 if an answer is wanted */
	REPLY,	/* @m holds the reply */
	REFUSE, /* answer 1; without NEED_REPLY the session ends */
	IGNORE, /* answer 1 if an answer is wanted; go on in any case */
	FATAL,	/* the session ends */
};

static enum verdict say(const char **why, enum verdict v, const char *text)
{
	*why = text;
	return v;
}

static enum verdict reply_u64(struct vhost_msg *m, uint64_t v)
{
	m->hdr.size = sizeof(v);
	m->p.u64 = v;
	return REPLY;
}

static bool has_protocol(const struct vhost_dev *d, unsigned int bit)
{
	return d->protocol & VHOST_BIT(bit);
}

/* --- features --- */

#define FEATURES                                                                                   \
	(VHOST_BIT(VIRTIO_F_BIT_VERSION_1) | VHOST_BIT(VIRTIO_F_BIT_INDIRECT_DESC) |               \
	 VHOST_BIT(VIRTIO_F_BIT_EVENT_IDX) | VHOST_BIT(VHOST_F_BIT_PROTOCOL_FEATURES))
/* Passed on from the guest by front-ends that offer them themselves; they ask nothing of us. */
#define FEATURES_TOLERATED                                                                         \
	(VHOST_BIT(VIRTIO_F_BIT_NOTIFY_ON_EMPTY) | VHOST_BIT(VIRTIO_F_BIT_ANY_LAYOUT) |            \
	 VHOST_BIT(VIRTIO_F_BIT_ORDER_PLATFORM) | VHOST_BIT(VIRTIO_F_BIT_RING_RESET))

static enum verdict get_features(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	return reply_u64(m, FEATURES);
}

static enum verdict set_features(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	if (m->p.u64 & ~(FEATURES | FEATURES_TOLERATED))
		return say(why, FATAL, "features that were not offered");
	d->features = m->p.u64;
	d->starting = true;
	for (unsigned int i = 0; i < d->config.num_queues; i++) {
		struct vhost_queue *q = &d->queues[i];

		vhost_queue_quiesce(q);
		util_mutex_lock(&q->lock);
		q->ring.event_idx = d->features & VHOST_BIT(VIRTIO_F_BIT_EVENT_IDX);
		q->ring.indirect = d->features & VHOST_BIT(VIRTIO_F_BIT_INDIRECT_DESC);
		util_mutex_unlock(&q->lock);
		vhost_queue_resume(q);
	}
	return DONE;
}

static uint64_t protocol_offer(const struct vhost_dev *d)
{
	uint64_t f = VHOST_BIT(VHOST_PF_MQ) | VHOST_BIT(VHOST_PF_REPLY_ACK) |
		     VHOST_BIT(VHOST_PF_BACKEND_REQ) | VHOST_BIT(VHOST_PF_CONFIG) |
		     VHOST_BIT(VHOST_PF_BACKEND_SEND_FD) | VHOST_BIT(VHOST_PF_RESET_DEVICE);

	if (d->config.mem_slots)
		f |= VHOST_BIT(VHOST_PF_CONFIGURE_MEM_SLOTS);
	if (d->config.window_size)
		f |= VHOST_BIT(VHOST_PF_SHMEM);
	return f;
}

static enum verdict get_protocol_features(struct vhost_dev *d, struct vhost_msg *m,
					  const char **why)
{
	return reply_u64(m, protocol_offer(d));
}

static enum verdict set_protocol_features(struct vhost_dev *d, struct vhost_msg *m,
					  const char **why)
{
	if (m->p.u64 & ~protocol_offer(d))
		return say(why, FATAL, "protocol features that were not offered");
	d->protocol = m->p.u64;
	return DONE;
}

static enum verdict get_queue_num(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	return reply_u64(m, d->config.num_queues);
}

static enum verdict get_max_mem_slots(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	return reply_u64(m, VHOST_MAX_MEM_SLOTS);
}

static enum verdict set_owner(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	d->owned = true;
	return DONE;
}

/* --- config space and window --- */

static enum verdict get_config(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	struct vhost_config_msg *c = &m->p.config;

	if (c->size > VHOST_CONFIG_MAX || m->hdr.size != VHOST_CONFIG_HDR + c->size ||
	    !util_range_inside(c->offset, c->size, VHOST_CONFIG_MAX))
		return say(why, FATAL, "config range out of bounds");
	memset(c->data, 0, sizeof(c->data));
	/* The specification's way to say no is an empty payload. */
	if (!d->ops.config_read || d->ops.config_read(d->ctx, c->offset, c->data, c->size) < 0)
		m->hdr.size = 0;
	return REPLY;
}

static enum verdict set_config(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	return say(why, IGNORE, "the config space is read-only");
}

static enum verdict get_shmem_config(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	if (!d->config.window_size)
		return say(why, FATAL, "shared memory was not offered");
	memset(&m->p.shmem, 0, sizeof(m->p.shmem));
	m->p.shmem.nregions = 1;
	m->p.shmem.size[0] = d->config.window_size;
	m->hdr.size = sizeof(m->p.shmem);
	return REPLY;
}

static enum verdict set_backend_req_fd(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	vhost_backend_close(d->backend);
	if (d->ops.channel)
		d->ops.channel(d->ctx, NULL);
	if (vhost_backend_open(d->backend, vhost_msg_take_fd(m, 0)))
		return say(why, FATAL, "the back-end channel is no unix stream socket");
	if (d->ops.channel)
		d->ops.channel(d->ctx, d->backend);
	return DONE;
}

/* --- memory --- */

static enum vhost_region_verdict ask_region(struct vhost_dev *d, const struct vhost_region_msg *r,
					    int fd)
{
	struct stat st = {0};
	struct vhost_region_info info = {
		.guest_addr = r->guest_addr,
		.size = r->size,
		.user_addr = r->user_addr,
		.mmap_offset = r->mmap_offset,
		.fd = fd,
		.starting = d->starting,
	};

	if (!d->ops.region || fstat(fd, &st) < 0)
		return VHOST_REGION_RAM;
	info.dev = st.st_dev;
	info.ino = st.st_ino;
	return d->ops.region(d->ctx, &info);
}

static void accept_region(struct vhost_dev *d, const struct vhost_region_msg *r)
{
	struct vhost_accepted a = {*r};

	g_array_append_val(d->accepted, a);
}

static enum verdict add_failed(int err, const char **why)
{
	if (err == -EEXIST)
		return say(why, REFUSE, "memory region overlaps another");
	if (err == -EINVAL)
		return say(why, REFUSE, "memory region empty, overflowing or beyond its file");
	return say(why, REFUSE, "memory region cannot be mapped");
}

static enum verdict set_mem_table(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	const struct vhost_mem_table *t = &m->p.table;
	struct vhost_mem *mem = vhost_mem_new(), *next;

	if (t->n > VHOST_MEM_TABLE_MAX || t->n != m->nfds ||
	    m->hdr.size < 8 + t->n * sizeof(t->regions[0])) {
		vhost_mem_put(mem);
		return say(why, FATAL, "memory table's count, size and descriptors differ");
	}
	g_array_set_size(d->accepted, 0);
	for (unsigned int i = 0; i < t->n; i++) {
		int err;

		/* One of many cannot be refused: it is left out. */
		if (ask_region(d, &t->regions[i], m->fds[i]) != VHOST_REGION_RAM) {
			accept_region(d, &t->regions[i]);
			continue;
		}
		err = vhost_mem_add(mem, &t->regions[i], m->fds[i], &next);
		vhost_mem_put(mem);
		if (err)
			return add_failed(err, why);
		mem = next;
	}
	if (d->window_known) {
		next = vhost_mem_move_window(mem, d->window_base, d->config.window_size);
		vhost_mem_put(mem);
		mem = next;
	}
	vhost_session_publish(d, mem);
	return DONE;
}

static enum verdict add_mem_reg(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	const struct vhost_region_msg *r = &m->p.reg.region;
	struct vhost_mem *mem;
	int err;

	switch (ask_region(d, r, m->fds[0])) {
	case VHOST_REGION_ACCEPT:
		accept_region(d, r);
		return DONE;
	case VHOST_REGION_REFUSE:
		return say(why, IGNORE, NULL);
	case VHOST_REGION_RAM:
		break;
	}
	if (d->mem->n >= VHOST_MAX_MEM_SLOTS)
		return say(why, REFUSE, "too many memory regions");
	err = vhost_mem_add(d->mem, r, m->fds[0], &mem);
	if (err)
		return add_failed(err, why);
	vhost_session_publish(d, mem);
	return DONE;
}

static enum verdict rem_mem_reg(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	const struct vhost_region_msg *r = &m->p.reg.region;
	struct vhost_mem *mem;

	for (unsigned int i = 0; i < d->accepted->len; i++) {
		const struct vhost_region_msg *a =
			&g_array_index(d->accepted, struct vhost_accepted, i).msg;

		if (a->guest_addr == r->guest_addr && a->size == r->size &&
		    a->user_addr == r->user_addr) {
			g_array_remove_index_fast(d->accepted, i);
			return DONE;
		}
	}
	if (vhost_mem_remove(d->mem, r, &mem))
		return say(why, IGNORE, "no such memory region");
	vhost_session_publish(d, mem);
	return DONE;
}

/* --- device life --- */

static bool any_ready(const struct vhost_dev *d)
{
	for (unsigned int i = 0; i < d->config.num_queues; i++) {
		if (d->queues[i].ready)
			return true;
	}
	return false;
}

static void tell_reset(struct vhost_dev *d)
{
	for (unsigned int i = 0; i < d->config.num_queues; i++) {
		if (!d->queues[i].ready)
			vhost_queue_forget(&d->queues[i]);
	}
	if (d->ops.reset)
		d->ops.reset(d->ctx);
}

/* A ring was started or enabled: does the device run now? */
static void check_running(struct vhost_dev *d)
{
	bool ready = false;

	for (unsigned int i = 0; i < d->config.num_queues; i++) {
		if (d->queues[i].ready && !d->queues[i].enabled)
			return;
		ready |= d->queues[i].ready;
	}
	if (!ready)
		return;
	d->starting = false;
	vhost_session_running(d, true);
}

static uint16_t stop_ring(struct vhost_dev *d, struct vhost_queue *q)
{
	bool was = q->ready;
	uint16_t base;

	if (was)
		vhost_session_running(d, false);
	base = vhost_queue_stop(q);
	q->kick_set = false;
	if (was && !any_ready(d))
		d->stop_gen++;
	return base;
}

static void stop_all(struct vhost_dev *d)
{
	for (unsigned int i = 0; i < d->config.num_queues; i++) {
		stop_ring(d, &d->queues[i]);
		vhost_queue_enable(&d->queues[i], false);
	}
	tell_reset(d);
}

static enum verdict reset_device(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	if (!has_protocol(d, VHOST_PF_RESET_DEVICE))
		return say(why, FATAL, "not negotiated");
	stop_all(d);
	return DONE;
}

/* Long deprecated; some front-ends send it where they mean RESET_DEVICE. */
static enum verdict reset_owner(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	stop_all(d);
	return DONE;
}

/* --- rings --- */

static struct vhost_queue *queue_at(struct vhost_dev *d, uint64_t index, const char **why)
{
	if (index < d->config.num_queues)
		return &d->queues[index];
	*why = "ring index out of range";
	return NULL;
}

/* Starts @q if all it needs is there. Quiesced. */
static enum verdict start_ring(struct vhost_dev *d, struct vhost_queue *q, const char **why)
{
	int how;

	if (q->ready || !q->kick_set || !vhost_ring_mapped(&q->ring))
		return DONE;
	if (!(d->features & VHOST_BIT(VHOST_F_BIT_PROTOCOL_FEATURES)))
		q->enabled = true;
	how = vhost_queue_start(q);
	if (how < 0)
		return say(why, FATAL, "no thread for a ring");
	if (how == VHOST_START_RESET)
		tell_reset(d);
	return DONE;
}

static enum verdict set_vring_num(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	const struct vhost_vring_state *s = &m->p.state;
	struct vhost_queue *q = queue_at(d, s->index, why);

	if (!q)
		return FATAL;
	if (q->ready)
		return say(why, FATAL, "the ring is running");
	if (!util_is_pow2(s->num) || s->num > VHOST_RING_MAX)
		return say(why, FATAL, "ring size is no power of two, or too large");
	vhost_queue_quiesce(q);
	vhost_ring_unmap(&q->ring);
	q->ring.num = s->num;
	vhost_queue_resume(q);
	return DONE;
}

static enum verdict set_vring_addr(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	const struct vhost_vring_addr *a = &m->p.addr;
	struct vhost_queue *q = queue_at(d, a->index, why);
	enum verdict v = DONE;
	int err;

	if (!q)
		return FATAL;
	if (a->flags & ~1u)
		return say(why, FATAL, "unknown ring address flags");
	if (!q->ring.num)
		return say(why, FATAL, "ring addresses before its size");
	vhost_queue_quiesce(q);
	util_mutex_lock(&q->lock); /* completions are published meanwhile */
	q->addr = (struct vhost_ring_addr){a->desc, a->avail, a->used};
	err = vhost_ring_map(&q->ring, d->mem, &q->addr);
	util_mutex_unlock(&q->lock);
	if (err == -EINVAL)
		v = say(why, FATAL, "ring addresses are not aligned");
	else if (err)
		v = say(why, FATAL, "ring addresses in no shared memory");
	else
		v = start_ring(d, q, why);
	vhost_queue_resume(q);
	if (v == DONE)
		check_running(d);
	return v;
}

static enum verdict set_vring_base(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	const struct vhost_vring_state *s = &m->p.state;
	struct vhost_queue *q = queue_at(d, s->index, why);

	if (!q)
		return FATAL;
	if (q->ready)
		return say(why, FATAL, "the ring is running");
	if (s->num > UINT16_MAX)
		return say(why, FATAL, "ring base out of range");
	vhost_queue_quiesce(q);
	q->ring.next_avail = (uint16_t)s->num;
	vhost_queue_resume(q);
	return DONE;
}

static enum verdict get_vring_base(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	struct vhost_queue *q = queue_at(d, m->p.state.index, why);

	if (!q)
		return FATAL;
	m->p.state.num = stop_ring(d, q);
	m->hdr.size = sizeof(m->p.state);
	return REPLY;
}

static enum verdict set_vring_enable(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	const struct vhost_vring_state *s = &m->p.state;
	struct vhost_queue *q = queue_at(d, s->index, why);

	if (!q)
		return FATAL;
	if (s->num > 1)
		return say(why, FATAL, "neither enable nor disable");
	if (!(d->features & VHOST_BIT(VHOST_F_BIT_PROTOCOL_FEATURES)))
		return say(why, FATAL, "VHOST_USER_F_PROTOCOL_FEATURES was not negotiated");
	if (q->ready && !s->num)
		vhost_session_running(d, false);
	vhost_queue_enable(q, s->num);
	if (s->num)
		check_running(d);
	return DONE;
}

/* The one descriptor of KICK, CALL or ERR; -1 when the message says there is none. */
static struct vhost_queue *vring_fd(struct vhost_dev *d, struct vhost_msg *m, int *fd,
				    const char **why)
{
	struct vhost_queue *q = queue_at(d, m->p.u64 & VHOST_VRING_INDEX_MASK, why);
	bool nofd = m->p.u64 & VHOST_VRING_NOFD;
	int flags;

	*fd = -1;
	if (!q)
		return NULL;
	if (m->p.u64 & ~(VHOST_VRING_INDEX_MASK | VHOST_VRING_NOFD)) {
		*why = "unknown bits in a ring's descriptor message";
		return NULL;
	}
	if (m->nfds != (nofd ? 0 : 1)) {
		*why = "ring descriptor missing, or unexpected";
		return NULL;
	}
	if (!nofd) {
		*fd = vhost_msg_take_fd(m, 0);
		/* A full or empty one must not stop a thread for ever. */
		flags = fcntl(*fd, F_GETFL);
		if (flags >= 0 && !(flags & O_NONBLOCK))
			fcntl(*fd, F_SETFL, flags | O_NONBLOCK);
	}
	return q;
}

static enum verdict set_vring_kick(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	int fd;
	struct vhost_queue *q = vring_fd(d, m, &fd, why);
	enum verdict v;

	if (!q)
		return FATAL;
	vhost_queue_quiesce(q);
	vhost_queue_set_kick(q, fd);
	v = start_ring(d, q, why);
	vhost_queue_resume(q);
	if (v == DONE)
		check_running(d);
	return v;
}

static enum verdict set_vring_call(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	int fd;
	struct vhost_queue *q = vring_fd(d, m, &fd, why);

	if (!q)
		return FATAL;
	vhost_queue_set_call(q, fd);
	return DONE;
}

static enum verdict set_vring_err(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	int fd;
	struct vhost_queue *q = vring_fd(d, m, &fd, why);

	if (!q)
		return FATAL;
	vhost_queue_set_err(q, fd);
	return DONE;
}

/* Dirty logging is not offered, so nothing is ever logged; but the question is answered. */
static enum verdict set_log_base(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	return reply_u64(m, 0);
}

static enum verdict set_log_fd(struct vhost_dev *d, struct vhost_msg *m, const char **why)
{
	return DONE;
}

/* --- the table --- */

struct request {
	const char *name;
	enum verdict (*handle)(struct vhost_dev *d, struct vhost_msg *m, const char **why);
	uint32_t min, max; /* payload, bytes */
	uint8_t fd_min, fd_max;
	bool owner;	  /* only after SET_OWNER */
	uint8_t protocol; /* 1 + protocol feature that must be negotiated; 0: none */
};

#define NEEDS(feature) ((uint8_t)(1 + VHOST_PF_##feature))
#define STATE sizeof(struct vhost_vring_state), sizeof(struct vhost_vring_state)

/* clang-format off */
static const struct request requests[VHOST_REQUEST_COUNT] = {
	[VHOST_GET_FEATURES] = {"GET_FEATURES", get_features},
	[VHOST_SET_FEATURES] = {"SET_FEATURES", set_features, 8, 8},
	[VHOST_SET_OWNER] = {"SET_OWNER", set_owner},
	[VHOST_RESET_OWNER] = {"RESET_OWNER", reset_owner},
	[VHOST_SET_MEM_TABLE] = {"SET_MEM_TABLE", set_mem_table, 8, sizeof(struct vhost_mem_table),
				 .fd_max = VHOST_MEM_TABLE_MAX, .owner = true},
	[VHOST_SET_LOG_BASE] = {"SET_LOG_BASE", set_log_base, 8, 16, .fd_max = 1},
	[VHOST_SET_LOG_FD] = {"SET_LOG_FD", set_log_fd, 0, 8, .fd_max = 1},
	[VHOST_SET_VRING_NUM] = {"SET_VRING_NUM", set_vring_num, STATE, .owner = true},
	[VHOST_SET_VRING_ADDR] = {"SET_VRING_ADDR", set_vring_addr, 40, 40, .owner = true},
	[VHOST_SET_VRING_BASE] = {"SET_VRING_BASE", set_vring_base, STATE, .owner = true},
	[VHOST_GET_VRING_BASE] = {"GET_VRING_BASE", get_vring_base, STATE, .owner = true},
	[VHOST_SET_VRING_KICK] = {"SET_VRING_KICK", set_vring_kick, 8, 8, .fd_max = 1,
				  .owner = true},
	[VHOST_SET_VRING_CALL] = {"SET_VRING_CALL", set_vring_call, 8, 8, .fd_max = 1},
	[VHOST_SET_VRING_ERR] = {"SET_VRING_ERR", set_vring_err, 8, 8, .fd_max = 1},
	[VHOST_GET_PROTOCOL_FEATURES] = {"GET_PROTOCOL_FEATURES", get_protocol_features},
	[VHOST_SET_PROTOCOL_FEATURES] = {"SET_PROTOCOL_FEATURES", set_protocol_features, 8, 8},
	[VHOST_GET_QUEUE_NUM] = {"GET_QUEUE_NUM", get_queue_num, .protocol = NEEDS(MQ)},
	[VHOST_SET_VRING_ENABLE] = {"SET_VRING_ENABLE", set_vring_enable, STATE, .owner = true},
	[VHOST_SET_BACKEND_REQ_FD] = {"SET_BACKEND_REQ_FD", set_backend_req_fd, 0, 8, 1, 1,
				      .protocol = NEEDS(BACKEND_REQ)},
	[VHOST_GET_CONFIG] = {"GET_CONFIG", get_config, VHOST_CONFIG_HDR,
			      sizeof(struct vhost_config_msg), .protocol = NEEDS(CONFIG)},
	[VHOST_SET_CONFIG] = {"SET_CONFIG", set_config, VHOST_CONFIG_HDR,
			      sizeof(struct vhost_config_msg), .protocol = NEEDS(CONFIG)},
	[VHOST_RESET_DEVICE] = {"RESET_DEVICE", reset_device, .protocol = NEEDS(RESET_DEVICE)},
	[VHOST_GET_MAX_MEM_SLOTS] = {"GET_MAX_MEM_SLOTS", get_max_mem_slots,
				     .protocol = NEEDS(CONFIGURE_MEM_SLOTS)},
	[VHOST_ADD_MEM_REG] = {"ADD_MEM_REG", add_mem_reg, 40, 40, 1, 1, .owner = true,
			       .protocol = NEEDS(CONFIGURE_MEM_SLOTS)},
	[VHOST_REM_MEM_REG] = {"REM_MEM_REG", rem_mem_reg, 40, 40, .fd_max = 1, .owner = true,
			       .protocol = NEEDS(CONFIGURE_MEM_SLOTS)},
	[VHOST_GET_SHMEM_CONFIG] = {"GET_SHMEM_CONFIG", get_shmem_config, 0,
				    sizeof(struct vhost_shmem_config), .protocol = NEEDS(SHMEM)},
};
/* clang-format on */

/* Checks @m against the table. Returns a reason, or NULL. */
static const char *check(const struct vhost_dev *d, const struct request *rq,
			 const struct vhost_msg *m)
{
	if (!rq->handle)
		return "unknown request";
	if (m->hdr.flags & VHOST_FLAG_REPLY)
		return "a reply to nothing";
	if (m->hdr.size < rq->min || m->hdr.size > rq->max)
		return "payload size out of bounds";
	if (m->fds_excess || m->nfds > rq->fd_max || (m->nfds < rq->fd_min && !m->fds_lost))
		return "unexpected number of descriptors";
	if (rq->owner && !d->owned)
		return "before SET_OWNER";
	if (rq->protocol && !has_protocol(d, rq->protocol - 1u))
		return "needs a protocol feature that was not negotiated";
	return NULL;
}

static void log_request(const struct request *rq, const struct vhost_msg *m, const char *what,
			const char *why)
{
	g_warning("%s: request %u (%s), flags 0x%x, %u bytes, %u descriptors: %s", what,
		  m->hdr.request, rq->name ? rq->name : "?", m->hdr.flags, m->hdr.size, m->nfds,
		  why);
}

/* One message. Returns 0 to go on, or what the session ends with. */
static int dispatch(struct vhost_dev *d, struct vhost_msg *m)
{
	static const struct request none;
	const struct request *rq =
		m->hdr.request < VHOST_REQUEST_COUNT ? &requests[m->hdr.request] : &none;
	bool need_reply =
		(m->hdr.flags & VHOST_FLAG_NEED_REPLY) && has_protocol(d, VHOST_PF_REPLY_ACK);
	const char *why = check(d, rq, m);
	enum verdict v = FATAL;

	if (!why && m->fds_lost)
		v = say(&why, REFUSE, "out of file descriptors: those sent with it were lost");
	else if (!why)
		v = rq->handle(d, m, &why);
	if (v == FATAL || (v == REFUSE && !need_reply)) {
		log_request(rq, m, "session ended", why);
		return -EPROTO;
	}
	if (v == REFUSE)
		log_request(rq, m, "refused", why);
	else if (v == IGNORE && why)
		util_log_once("ignored: %s: %s", rq->name, why);
	if (v == REPLY || need_reply) {
		if (v != REPLY)
			reply_u64(m, v == DONE ? 0 : 1);
		m->hdr.flags = VHOST_FLAG_VERSION | VHOST_FLAG_REPLY;
		return vhost_msg_send(d->sock, d->stop_fd, m, -1);
	}
	return 0;
}

int vhost_session_run(struct vhost_dev *d)
{
	struct vhost_msg m;
	const char *why;
	int r;

	for (;;) {
		r = vhost_msg_recv(d->sock, d->stop_fd, &m, &why);
		if (r != 1)
			break;
		g_debug("%s, %u bytes, %u descriptors",
			m.hdr.request < VHOST_REQUEST_COUNT && requests[m.hdr.request].name
				? requests[m.hdr.request].name
				: "?",
			m.hdr.size, m.nfds);
		r = dispatch(d, &m);
		vhost_msg_clear(&m);
		if (r)
			break;
	}
	if (r == -EPROTO && why[0])
		g_warning("session ended: %s (request %u, flags 0x%x, %u bytes)", why,
			  m.hdr.request, m.hdr.flags, m.hdr.size);
	else if (r == -EPIPE)
		r = 0;
	else if (r < 0 && r != -EPROTO && r != -ECANCELED)
		g_warning("session ended: socket: %s", g_strerror(-r));
	return r;
}
