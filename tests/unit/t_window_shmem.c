// SPDX-License-Identifier: Apache-2.0
/* The shmem and fs_map drivers against a front-end that answers a map before it commits it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util_fd.h"
#include "vhost_fe.h"
#include "window_fs_map.h"
#include "window_shmem.h"

#define WINDOW (16u << 20)
#define SLOT (2u << 20)
#define BASE 0x800000000ull

struct rig {
	struct fe *fe;
	struct dm_window *w;
	bool fs_map;
	int file; /* 8 MiB */
};

static void on_request(void *ctx, struct vhost_elem *e)
{
	vhost_elem_done(e, 0);
}

static enum vhost_region_verdict on_region(void *ctx, const struct vhost_region_info *r)
{
	struct rig *g = ctx;

	return g->fs_map ? VHOST_REGION_RAM : window_shmem_region(g->w, g->fe->d, r);
}

static void on_running(void *ctx, bool running)
{
	struct rig *g = ctx;

	if (g->fs_map)
		window_fs_map_running(g->w, running);
	else
		window_shmem_running(g->w, running);
}

static void on_reset(void *ctx)
{
	struct rig *g = ctx;

	if (g->fs_map)
		window_fs_map_reset(g->w);
	else
		window_shmem_reset(g->w);
}

static void on_channel(void *ctx, struct vhost_backend *b)
{
	struct rig *g = ctx;

	if (g->fs_map)
		window_fs_map_channel(g->w, b);
	else
		window_shmem_channel(g->w, b);
}

static const struct vhost_ops ops = {
	.request = on_request,
	.region = on_region,
	.running = on_running,
	.reset = on_reset,
	.channel = on_channel,
};
static const struct vhost_config vconfig = {
	.num_queues = 2,
	.window_size = WINDOW,
	.mem_slots = true,
};

static void rig_begin(struct rig *g, const struct window_shmem_config *c, bool started)
{
	*g = (struct rig){.fs_map = !c};
	g->w = c ? window_shmem_new(c) : window_fs_map_new(WINDOW);
	g->file = memfd_create("file", MFD_CLOEXEC);
	g_assert_cmpint(ftruncate(g->file, 8 << 20), ==, 0);
	g->fe = fe_new(&vconfig, &ops, g);
	if (started)
		fe_start(g->fe, FE_FEATURES);
	else
		fe_negotiate(g->fe, FE_FEATURES, ~0ull);
}

static void rig_end(struct rig *g)
{
	fe_free(g->fe);
	dm_window_destroy(g->w);
	util_close(&g->file);
}

/* --- the front-end's end of the back-end channel --- */

static struct vhost_hdr be_recv(struct rig *g, void *payload, size_t max)
{
	struct vhost_hdr h;
	char control[CMSG_SPACE(4 * sizeof(int))];
	struct iovec iov = {&h, sizeof(h)};
	struct msghdr mh = {.msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	int fd = -1;

	g_assert_cmpint(recvmsg(g->fe->backend, &mh, MSG_WAITALL), ==, sizeof(h));
	c = CMSG_FIRSTHDR(&mh);
	if (c) {
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		close(fd);
	}
	g_assert_cmpint(fd >= 0, ==,
			h.request == VHOST_BE_SHMEM_MAP || h.request == VHOST_BE_FS_MAP);
	g_assert_cmphex(h.flags, ==, VHOST_FLAG_VERSION | VHOST_FLAG_NEED_REPLY);
	g_assert_cmpuint(h.size, <=, max);
	g_assert_cmpint(recv(g->fe->backend, payload, h.size, MSG_WAITALL), ==, h.size);
	return h;
}

static void be_reply(struct rig *g, uint32_t request, uint64_t status)
{
	struct {
		struct vhost_hdr h;
		uint64_t status;
	} __attribute__((packed))
	m = {{request, VHOST_FLAG_VERSION | VHOST_FLAG_REPLY, sizeof(status)}, status};

	g_assert_cmpint(send(g->fe->backend, &m, sizeof(m), MSG_NOSIGNAL), ==, sizeof(m));
}

static struct vhost_shmem_map be_expect(struct rig *g, uint32_t request)
{
	struct vhost_shmem_map m = {0};

	g_assert_cmpuint(be_recv(g, &m, sizeof(m)).request, ==, request);
	return m;
}

/* --- submit in a thread of its own --- */

struct job {
	pthread_t thread;
	struct rig *g;
	struct dm_window_op *ops;
	size_t n;
	int result;
	int commits;   /* atomic, by the front-end */
	int at_return; /* commits seen when submit() returned */
};

static void *job_main(void *arg)
{
	struct job *j = arg;

	j->result = dm_window_submit(j->g->w, j->ops, j->n);
	j->at_return = __atomic_load_n(&j->commits, __ATOMIC_ACQUIRE);
	return NULL;
}

static void job_begin(struct job *j, struct rig *g, struct dm_window_op *o, size_t n)
{
	*j = (struct job){.g = g, .ops = o, .n = n};
	g_assert_cmpint(pthread_create(&j->thread, NULL, job_main, j), ==, 0);
}

static void job_commit(struct job *j)
{
	__atomic_add_fetch(&j->commits, 1, __ATOMIC_RELEASE);
}

static int job_end(struct job *j)
{
	pthread_join(j->thread, NULL);
	return j->result;
}

static struct dm_window_op map_op(struct rig *g, unsigned int slot, uint64_t fd_offset)
{
	return (struct dm_window_op){
		.kind = DM_OP_MAP,
		.flags = DM_MAP_WRITE,
		.fd = g->file,
		.fd_offset = fd_offset,
		.offset = (uint64_t)slot * SLOT,
		.len = SLOT,
	};
}

static struct dm_window_op unmap_op(unsigned int slot)
{
	return (struct dm_window_op){
		.kind = DM_OP_UNMAP, .fd = -1, .offset = (uint64_t)slot * SLOT, .len = SLOT};
}

/* QEMU announces the new region while it commits. */
static uint64_t announce(struct rig *g, unsigned int slot, uint64_t fd_offset, uint64_t base)
{
	struct vhost_mem_reg r = {
		0, {base + (uint64_t)slot * SLOT, SLOT, 0x7e0000000000 + slot * SLOT, fd_offset}};

	return fe_ack(g->fe, VHOST_ADD_MEM_REG, &r, sizeof(r), g->file);
}

/* Maps @slot with a front-end that plays by the rules. */
static void map_simply(struct rig *g, unsigned int slot, uint64_t fd_offset)
{
	struct dm_window_op o = map_op(g, slot, fd_offset);
	struct job j;

	job_begin(&j, g, &o, 1);
	be_expect(g, VHOST_BE_SHMEM_MAP);
	be_reply(g, VHOST_BE_SHMEM_MAP, 0);
	be_expect(g, VHOST_BE_SHARED_OBJECT_REMOVE);
	be_reply(g, VHOST_BE_SHARED_OBJECT_REMOVE, 1);
	g_assert_cmpint(job_end(&j), ==, 0);
	g_assert_cmpint(o.result, ==, 0);
}

static const struct window_shmem_config refuse = {.size = WINDOW};

static void test_barrier(void)
{
	struct rig g;
	struct dm_window_op o;
	struct vhost_shmem_map m;
	struct job j;

	rig_begin(&g, &refuse, true);
	o = map_op(&g, 3, SLOT);
	job_begin(&j, &g, &o, 1);
	m = be_expect(&g, VHOST_BE_SHMEM_MAP);
	g_assert_cmpuint(m.fd_offset, ==, SLOT);
	g_assert_cmpuint(m.shm_offset, ==, 3 * SLOT);
	g_assert_cmpuint(m.len, ==, SLOT);
	g_assert_cmpuint(m.flags, ==, 1);
	be_reply(&g, VHOST_BE_SHMEM_MAP, 0);
	/* The commit: the main channel must answer although submit() waits; our own region is
	 * refused while the device runs. */
	g_assert_cmpuint(announce(&g, 3, SLOT, BASE), ==, 1);
	fe_get(g.fe, VHOST_GET_FEATURES);
	be_expect(&g, VHOST_BE_SHARED_OBJECT_REMOVE);
	job_commit(&j);
	be_reply(&g, VHOST_BE_SHARED_OBJECT_REMOVE, 1);
	g_assert_cmpint(job_end(&j), ==, 0);
	g_assert_cmpint(o.result, ==, 0);
	g_assert_cmpint(j.at_return, ==, 1);
	rig_end(&g);
}

static void test_pipeline_and_refusals(void)
{
	struct rig g;
	struct dm_window_op o[5];
	struct job j;

	rig_begin(&g, &refuse, true);
	map_simply(&g, 0, 0);
	o[0] = unmap_op(0);
	o[1] = map_op(&g, 0, SLOT);
	o[2] = map_op(&g, 1, 2 * SLOT);
	o[3] = unmap_op(7); /* not there: not sent, done */
	o[4] = map_op(&g, 2, 3 * SLOT);
	job_begin(&j, &g, o, 5);
	/* All are on the way before the first is answered. */
	be_expect(&g, VHOST_BE_SHMEM_UNMAP);
	be_expect(&g, VHOST_BE_SHMEM_MAP);
	be_expect(&g, VHOST_BE_SHMEM_MAP);
	be_expect(&g, VHOST_BE_SHMEM_MAP);
	be_expect(&g, VHOST_BE_SHARED_OBJECT_REMOVE);
	be_reply(&g, VHOST_BE_SHMEM_UNMAP, 0);
	be_reply(&g, VHOST_BE_SHMEM_MAP, 0);
	be_reply(&g, VHOST_BE_SHMEM_MAP, 1);
	be_reply(&g, VHOST_BE_SHMEM_MAP, (uint64_t)-ENOSPC);
	be_reply(&g, VHOST_BE_SHARED_OBJECT_REMOVE, 1);
	g_assert_cmpint(job_end(&j), ==, 0);
	g_assert_cmpint(o[0].result, ==, 0);
	g_assert_cmpint(o[1].result, ==, 0);
	g_assert_cmpint(o[2].result, ==, -EIO);
	g_assert_cmpint(o[3].result, ==, 0);
	g_assert_cmpint(o[4].result, ==, -ENOSPC);
	/* What was refused is free; what was mapped is not. */
	map_simply(&g, 1, 0);
	o[0] = map_op(&g, 0, 0);
	g_assert_cmpint(dm_window_submit(g.w, o, 1), ==, 0);
	g_assert_cmpint(o[0].result, ==, -EEXIST);
	/* Part of a mapping. */
	o[0] = unmap_op(0);
	o[0].len = SLOT / 2;
	g_assert_cmpint(dm_window_submit(g.w, o, 1), ==, 0);
	g_assert_cmpint(o[0].result, ==, -EINVAL);
	rig_end(&g);
}

static int submit1(struct rig *g, struct dm_window_op o)
{
	g_assert_cmpint(dm_window_submit(g->w, &o, 1), ==, 0);
	return o.result;
}

static void test_checked_before_sending(void)
{
	struct window_shmem_config c = {.size = WINDOW, .max_mappings = 1};
	struct rig g;
	struct dm_window_op o;
	util_autofd ro = -1;
	util_autofd app = -1;
	util_autofd empty = memfd_create("empty", MFD_CLOEXEC);
	char path[64];

	rig_begin(&g, &c, true);
	g_snprintf(path, sizeof(path), "/proc/self/fd/%d", g.file);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	app = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
	o = map_op(&g, 0, 0);
	o.offset = 100;
	g_assert_cmpint(submit1(&g, o), ==, -EINVAL);
	o = map_op(&g, 0, 7);
	g_assert_cmpint(submit1(&g, o), ==, -EINVAL);
	o = map_op(&g, 0, 0);
	o.len = 0;
	g_assert_cmpint(submit1(&g, o), ==, -EINVAL);
	g_assert_cmpint(submit1(&g, map_op(&g, 8, 0)), ==, -ERANGE);
	o = map_op(&g, 0, 0);
	o.offset = UINT64_MAX - 4095;
	g_assert_cmpint(submit1(&g, o), ==, -ERANGE);
	o = map_op(&g, 0, UINT64_MAX - 4095);
	g_assert_cmpint(submit1(&g, o), ==, -EINVAL);
	g_assert_cmpint(submit1(&g, map_op(&g, 0, 7u << 20)), ==, -ENXIO);
	o = map_op(&g, 0, 0);
	o.fd = empty;
	g_assert_cmpint(submit1(&g, o), ==, -ENXIO);
	o.fd = ro;
	o.flags = 0;
	g_assert_cmpint(submit1(&g, o), ==, -EACCES);
	o.fd = app;
	g_assert_cmpint(submit1(&g, o), ==, -EINVAL);
	o.fd = -1;
	g_assert_cmpint(submit1(&g, o), ==, -EBADF);
	map_simply(&g, 0, 0);
	g_assert_cmpint(submit1(&g, map_op(&g, 1, 0)), ==, -ENOMEM);
	rig_end(&g);
}

/* QEMU: "backing store size 0x1fffff is too small for 'size' option 0x200000" */
static void test_last_byte_counts(void)
{
	struct rig g;

	rig_begin(&g, &refuse, true);
	g_assert_cmpint(ftruncate(g.file, SLOT - 1), ==, 0);
	g_assert_cmpint(submit1(&g, map_op(&g, 0, 0)), ==, -ENXIO);
	g_assert_cmpint(ftruncate(g.file, SLOT), ==, 0);
	map_simply(&g, 0, 0);
	rig_end(&g);
}

static void start_rings(struct rig *g, bool zero)
{
	for (unsigned int i = 0; i < 2; i++) {
		uint16_t base = 0;

		if (zero)
			fe_ring_zero(g->fe, i);
		else
			base = g->fe->ring[i].used->idx;
		fe_ring_start(g->fe, i, base);
	}
	for (unsigned int i = 0; i < 2; i++)
		fe_ring_enable(g->fe, i, true);
}

static void stop_rings(struct rig *g)
{
	for (unsigned int i = 0; i < 2; i++)
		fe_ring_enable(g->fe, i, false);
	for (unsigned int i = 0; i < 2; i++)
		fe_ring_stop(g->fe, i);
}

static void assert_silent(struct rig *g)
{
	char c;

	g_assert_cmpint(recv(g->fe->backend, &c, 1, MSG_DONTWAIT | MSG_PEEK), ==, -1);
	g_assert_cmpint(errno, ==, EAGAIN);
}

/* Says that a submit has begun: called before anything is sent. */
static int tell(void *ctx, const struct dm_window_op *op, int *fd)
{
	__atomic_add_fetch((int *)ctx, 1, __ATOMIC_RELEASE);
	return 0;
}

static void wait_begun(int *begun, int n)
{
	while (__atomic_load_n(begun, __ATOMIC_ACQUIRE) < n)
		sched_yield();
}

static void test_silent_while_stopped(void)
{
	int begun = 0;
	struct window_shmem_config c = {.size = WINDOW, .map_fd = tell, .map_ctx = &begun};
	struct rig g;
	struct dm_window_op o;
	struct job j;

	rig_begin(&g, &c, true);
	map_simply(&g, 0, 0);
	stop_rings(&g);
	o = map_op(&g, 1, SLOT);
	job_begin(&j, &g, &o, 1);
	wait_begun(&begun, 2);
	fe_get(g.fe, VHOST_GET_FEATURES);
	assert_silent(&g);
	/* cont: what is live is announced again, and accepted, for the device starts */
	uint64_t f = FE_FEATURES;

	fe_ack(g.fe, VHOST_SET_FEATURES, &f, 8, -1);
	g_assert_cmpuint(announce(&g, 0, 0, BASE), ==, 0);
	assert_silent(&g);
	start_rings(&g, false);
	be_expect(&g, VHOST_BE_SHMEM_MAP);
	be_reply(&g, VHOST_BE_SHMEM_MAP, 0);
	be_expect(&g, VHOST_BE_SHARED_OBJECT_REMOVE);
	be_reply(&g, VHOST_BE_SHARED_OBJECT_REMOVE, 1);
	g_assert_cmpint(job_end(&j), ==, 0);
	g_assert_cmpint(o.result, ==, 0);
	/* started: refused again */
	g_assert_cmpuint(announce(&g, 1, SLOT, BASE), ==, 1);
	rig_end(&g);
}

static void test_reset_cancels_and_forgets(void)
{
	int begun = 0;
	struct window_shmem_config c = {.size = WINDOW, .map_fd = tell, .map_ctx = &begun};
	struct rig g;
	struct dm_window_op o[2];
	struct job j;

	rig_begin(&g, &c, true);
	fe_echo(g.fe, 1, 0, 8); /* so that the ring has run */
	fe_used(g.fe, 1);
	map_simply(&g, 0, 0);
	stop_rings(&g);
	o[0] = map_op(&g, 1, SLOT);
	job_begin(&j, &g, o, 1);
	wait_begun(&begun, 2);
	/* A driver that starts anew. */
	start_rings(&g, true);
	g_assert_cmpint(job_end(&j), ==, 0);
	g_assert_cmpint(o[0].result, ==, -ECANCELED);
	/* A latecomer of the old guest does not get into the new one's window. */
	o[0] = map_op(&g, 2, SLOT);
	g_assert_cmpint(submit1(&g, o[0]), ==, -ECANCELED);
	assert_silent(&g);
	window_shmem_forgotten(g.w, window_shmem_to_forget(g.w));
	/* Slot 0 is free now, and unmapping what the reset took sends nothing. */
	o[0] = unmap_op(0);
	g_assert_cmpint(submit1(&g, o[0]), ==, 0);
	assert_silent(&g);
	map_simply(&g, 0, SLOT);
	rig_end(&g);
}

static void test_session_end_frees_waiters(void)
{
	struct rig g;
	struct dm_window_op o;
	struct job j;

	/* while the front-end owes an answer */
	rig_begin(&g, &refuse, true);
	o = map_op(&g, 0, 0);
	job_begin(&j, &g, &o, 1);
	be_expect(&g, VHOST_BE_SHMEM_MAP);
	g_assert_cmpint(fe_hangup(g.fe), ==, 0);
	g_assert_cmpint(job_end(&j), ==, -EPIPE);
	g_assert_cmpint(o.result, ==, -EPIPE);
	/* without a channel */
	g_assert_cmpint(dm_window_submit(g.w, &o, 1), ==, -EPIPE);
	/* the next session works */
	fe_reconnect(g.fe);
	fe_start(g.fe, FE_FEATURES);
	map_simply(&g, 0, 0);
	/* while the device is stopped */
	stop_rings(&g);
	o = map_op(&g, 1, 0);
	job_begin(&j, &g, &o, 1);
	fe_hangup(g.fe);
	g_assert_cmpint(job_end(&j), ==, -EPIPE);
	rig_end(&g);
}

static void test_garbage_breaks_the_channel(void)
{
	static const struct {
		struct vhost_hdr h;
		uint32_t extra;
	} bad[] = {
		{{VHOST_BE_SHMEM_UNMAP, VHOST_FLAG_VERSION | VHOST_FLAG_REPLY, 8}, 8},
		{{VHOST_BE_SHMEM_MAP, VHOST_FLAG_VERSION, 8}, 8},
		{{VHOST_BE_SHMEM_MAP, VHOST_FLAG_VERSION | VHOST_FLAG_REPLY, 4}, 4},
		{{VHOST_BE_SHMEM_MAP, VHOST_FLAG_VERSION | VHOST_FLAG_REPLY, 0xffffffff}, 0},
		{{VHOST_BE_SHMEM_MAP, 2 | VHOST_FLAG_REPLY, 8}, 8},
	};
	struct rig g;
	struct dm_window_op o;
	struct job j;
	uint8_t buf[32];

	for (unsigned int i = 0; i < G_N_ELEMENTS(bad); i++) {
		rig_begin(&g, &refuse, true);
		o = map_op(&g, 0, 0);
		job_begin(&j, &g, &o, 1);
		be_expect(&g, VHOST_BE_SHMEM_MAP);
		memset(buf, 0, sizeof(buf));
		memcpy(buf, &bad[i].h, sizeof(bad[i].h));
		send(g.fe->backend, buf, sizeof(bad[i].h) + bad[i].extra, MSG_NOSIGNAL);
		g_assert_cmpint(job_end(&j), ==, -EPIPE);
		/* the main channel lives */
		fe_get(g.fe, VHOST_GET_FEATURES);
		g_assert_cmpint(dm_window_submit(g.w, &o, 1), ==, -EPIPE);
		rig_end(&g);
	}
}

static int shim(void *ctx, const struct dm_window_op *op, int *fd)
{
	int *v = ctx;

	if (v[0] == 1)
		*fd = v[1];
	return v[0];
}

static void test_substituted_descriptor(void)
{
	util_autofd small = memfd_create("small", MFD_CLOEXEC);
	int v[2] = {1, small};
	struct window_shmem_config c = {.size = WINDOW, .map_fd = shim, .map_ctx = v};
	struct rig g;

	rig_begin(&g, &c, true);
	map_simply(&g, 0, 0); /* beyond the end of the substitute, and of the file */
	v[0] = -EPERM;
	g_assert_cmpint(submit1(&g, map_op(&g, 1, 0)), ==, -EPERM);
	v[0] = 0;
	g_assert_cmpint(submit1(&g, map_op(&g, 1, 7u << 20)), ==, -ENXIO);
	rig_end(&g);
}

static void test_ack_mode(void)
{
	struct window_shmem_config c = {.size = WINDOW, .ack_slots = true};
	struct rig g;

	rig_begin(&g, &c, true);
	map_simply(&g, 0, 0);
	g_assert_cmpuint(announce(&g, 0, 0, BASE), ==, 0);
	struct vhost_mem_reg r = {0, {BASE, SLOT, 0x7e0000000000, 0}};

	g_assert_cmpuint(fe_ack(g.fe, VHOST_REM_MEM_REG, &r, sizeof(r), -1), ==, 0);
	rig_end(&g);
}

static void test_fs_map(void)
{
	struct rig g;
	struct dm_window_op o[2];
	struct vhost_fs_map m;
	struct job j;

	rig_begin(&g, NULL, true);
	o[0] = map_op(&g, 1, SLOT);
	o[0].flags = 0;
	o[1] = unmap_op(0);
	o[1].len = 4096;
	job_begin(&j, &g, o, 2);
	g_assert_cmpuint(be_recv(&g, &m, sizeof(m)).request, ==, VHOST_BE_FS_MAP);
	g_assert_cmpuint(m.fd_offset[0], ==, SLOT);
	g_assert_cmpuint(m.c_offset[0], ==, SLOT);
	g_assert_cmpuint(m.len[0], ==, SLOT);
	g_assert_cmpuint(m.flags[0], ==, VHOST_FS_MAP_R);
	g_assert_cmpuint(m.len[1], ==, 0);
	be_reply(&g, VHOST_BE_FS_MAP, 0);
	/* be_recv() takes 7 for a fence, 6 for a map */
	g_assert_cmpuint(be_recv(&g, &m, sizeof(m)).request, ==, VHOST_BE_FS_UNMAP);
	g_assert_cmpuint(m.len[0], ==, 4096);
	be_reply(&g, VHOST_BE_FS_UNMAP, (uint64_t)-ENOENT);
	g_assert_cmpint(job_end(&j), ==, 0);
	g_assert_cmpint(o[0].result, ==, 0);
	g_assert_cmpint(o[1].result, ==, -ENOENT);
	rig_end(&g);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
	g_test_add_func("/window/shmem/barrier", test_barrier);
	g_test_add_func("/window/shmem/pipeline-and-refusals", test_pipeline_and_refusals);
	g_test_add_func("/window/shmem/checked-before-sending", test_checked_before_sending);
	g_test_add_func("/window/shmem/last-byte-counts", test_last_byte_counts);
	g_test_add_func("/window/shmem/silent-while-stopped", test_silent_while_stopped);
	g_test_add_func("/window/shmem/reset", test_reset_cancels_and_forgets);
	g_test_add_func("/window/shmem/session-end", test_session_end_frees_waiters);
	g_test_add_func("/window/shmem/garbage", test_garbage_breaks_the_channel);
	g_test_add_func("/window/shmem/substituted-descriptor", test_substituted_descriptor);
	g_test_add_func("/window/shmem/ack", test_ack_mode);
	g_test_add_func("/window/fs_map", test_fs_map);
	return g_test_run();
}
