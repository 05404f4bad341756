// SPDX-License-Identifier: Apache-2.0
/* One file, or one server, that does not answer holds nobody who does not ask for it: not its
 * queue's thread either. Each test would stand still in rig_send() if it did. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse_rig.h"
#include "util_fd.h"

#define ROOT 1u

/* A file that somebody has a lease on: opening it for writing waits until it is given back. */
static int lease_file(struct rig *g, const char *name)
{
	g_autofree char *path = g_build_filename(g->dir, name, NULL);
	util_autofd fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

	g_assert_cmpint(fd, >=, 0);
	if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0) {
		g_test_skip("no leases on this file system");
		return -1;
	}
	return util_steal_fd(&fd);
}

static void expect_answered_beside(struct rig *g, struct rig_req *stuck, int lease)
{
	struct fuse_getattr_in in = {0};
	struct fuse_attr_out a;

	g_assert_false(rig_is_done(stuck));
	g_assert_cmpint(rig_call(g, FUSE_GETATTR, ROOT, &in, sizeof(in), NULL, 0, &a, sizeof(a)),
			==, 0);
	g_assert_false(rig_is_done(stuck));
	g_assert_cmpint(fcntl(lease, F_SETLEASE, F_UNLCK), ==, 0);
	g_assert_cmpint(rig_wait(stuck), ==, 0);
	rig_req_free(stuck);
}

static void test_lease(void)
{
	struct rig *g = rig_new(NULL);
	util_autofd lease = lease_file(g, "leased");
	struct fuse_open_in open_in = {.flags = O_RDWR};
	struct fuse_create_in create_in = {.flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0600};
	struct fuse_setattr_in size_in = {.valid = FATTR_SIZE};
	struct fuse_entry_out e;
	struct rig_req *q;

	if (lease < 0) {
		rig_free(g);
		return;
	}
	signal(SIGIO, SIG_IGN);
	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_lookup(g, ROOT, "leased", &e), ==, 0);
	q = rig_prepare(g, FUSE_OPEN, e.nodeid, &open_in, sizeof(open_in), NULL, 0, 512);
	rig_send(q, 1);
	expect_answered_beside(g, q, lease);
	g_assert_cmpint(rig_destroy(g), ==, 0); /* nobody has it open for writing now */

	g_assert_cmpint(fcntl(lease, F_SETLEASE, F_RDLCK), ==, 0);
	g_assert_cmpint(rig_init(g), ==, 0);
	q = rig_prepare(g, FUSE_CREATE, ROOT, &create_in, sizeof(create_in), "leased", 7, 512);
	rig_send(q, 1);
	expect_answered_beside(g, q, lease);
	g_assert_cmpint(rig_destroy(g), ==, 0);

	g_assert_cmpint(fcntl(lease, F_SETLEASE, F_RDLCK), ==, 0);
	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_lookup(g, ROOT, "leased", &e), ==, 0);
	q = rig_prepare(g, FUSE_SETATTR, e.nodeid, &size_in, sizeof(size_in), NULL, 0, 512);
	rig_send(q, 1);
	expect_answered_beside(g, q, lease);
	rig_free(g);
}

/* Mounts a FUSE file system whose server never answers at @dir; the server's end, or -1. */
static int mount_mute(const char *dir)
{
	util_autofd dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[80];

	if (dev < 0)
		return -1;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", dev);
	if (mount("mute", dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		return -1;
	return util_steal_fd(&dev);
}

static void *mute_server(void *arg)
{
	bool own_mounts =
		unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	struct rig *g = rig_new(NULL);
	g_autofree char *dir = g_build_filename(g->dir, "mute", NULL);
	struct fuse_read_in in = {.size = 4096};
	struct fuse_open_in open_in = {0};
	struct fuse_open_out o;
	struct fuse_entry_out e;
	struct rig_req *q;
	int dev;

	g_assert_cmpint(mkdir(dir, 0700), ==, 0);
	dev = own_mounts ? mount_mute(dir) : -1;
	if (dev < 0) {
		g_test_skip("cannot mount a FUSE file system here");
		rig_free(g);
		return NULL;
	}
	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(
		rig_call(g, FUSE_OPENDIR, ROOT, &open_in, sizeof(open_in), NULL, 0, &o, sizeof(o)),
		==, 0);
	/* Its name is listed, without attributes. */
	in.fh = o.fh;
	q = rig_prepare(g, FUSE_READDIRPLUS, ROOT, &in, sizeof(in), NULL, 0, 4096 + 16);
	rig_send(q, 1);
	g_assert_cmpint(rig_wait(q), ==, 0);
	g_assert_cmpuint(q->payload_len, >, 3 * sizeof(struct fuse_direntplus));
	rig_req_free(q);
	/* To look it up waits for the server; others do not wait for that. Many lookups of other
	 * names first, so that the directory is trusted. */
	for (int i = 0; i < 64; i++)
		g_assert_cmpint(rig_lookup(g, ROOT, "none", &e), ==, -ENOENT);
	q = rig_prepare(g, FUSE_LOOKUP, ROOT, NULL, 0, "mute", 5, 512);
	rig_send(q, 1);
	g_assert_false(rig_is_done(q));
	g_assert_cmpint(rig_lookup(g, ROOT, "none", &e), ==, -ENOENT);
	close(dev); /* the server dies */
	rig_wait(q);
	rig_req_free(q);
	g_assert_cmpint(umount2(dir, MNT_DETACH), ==, 0);
	rig_free(g);
	return NULL;
}

/* In a thread of its own: the mount namespace is the thread's. */
static void test_mute_server(void)
{
	pthread_t t;

	g_assert_cmpint(pthread_create(&t, NULL, mute_server, NULL), ==, 0);
	pthread_join(t, NULL);
}

static struct {
	unsigned int asked;
	bool answer;
} transport;

static bool may_block(struct fuse_request *r)
{
	transport.asked++;
	return transport.answer;
}

/* Sends @q with a transport that gives @answer; was it run in place? */
static bool runs_here(struct rig_req *q, bool answer)
{
	bool here;

	transport.answer = answer;
	transport.asked = 0;
	q->r.may_block = may_block;
	rig_send(q, 1);
	g_assert_cmpint(rig_wait(q), ==, 0);
	here = !fuse_state(&q->r)->offloaded;
	rig_req_free(q);
	return here;
}

static struct rig_req *prepare_create(struct rig *g, const char *name)
{
	struct fuse_create_in in = {.flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0600};

	return rig_prepare(g, FUSE_CREATE, ROOT, &in, sizeof(in), name, strlen(name) + 1, 512);
}

/* What may block asks first, once, and goes to the pool where nobody would take the queue over. */
static void test_asks_before_it_may_block(void)
{
	struct rig *g = rig_new(NULL);

	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_true(runs_here(prepare_create(g, "yes"), true));
	g_assert_cmpuint(transport.asked, ==, 1);
	g_assert_false(runs_here(prepare_create(g, "no"), false));
	g_assert_cmpuint(transport.asked, ==, 1);
	rig_free(g);
}

/* A write to a new file. */
static struct rig_req *prepare_write(struct rig *g, const char *name, uint64_t *node)
{
	struct fuse_write_in in = {.size = 5};
	struct rig_req *q = prepare_create(g, name);
	struct fuse_entry_out e;
	struct fuse_open_out o;

	rig_send(q, 1);
	g_assert_cmpint(rig_wait(q), ==, 0);
	memcpy(&e, q->payload, sizeof(e));
	memcpy(&o, q->payload + sizeof(e), sizeof(o));
	rig_req_free(q);
	in.fh = o.fh;
	*node = e.nodeid;
	return rig_prepare(g, FUSE_WRITE, e.nodeid, &in, sizeof(in), "hello", 5, 512);
}

/* A file of which nothing is known, on a file system that cannot say whether a write would wait. */
static void test_writes_ask(void)
{
	struct rig *g = rig_new(NULL);
	uint64_t node;
	bool blind;

	g_assert_cmpint(rig_init(g), ==, 0);
	runs_here(prepare_write(g, "first", &node), true);
	blind = !fs_nowait_useful(g->fs, node, true);
	if (blind) {
		g_assert_false(runs_here(prepare_write(g, "second", &node), false));
		g_assert_true(runs_here(prepare_write(g, "third", &node), true));
		g_assert_cmpuint(transport.asked, ==, 1);
	}
	rig_free(g);
	if (!blind)
		g_test_skip("RWF_NOWAIT for writes here");
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/stuck/lease", test_lease);
	g_test_add_func("/fuse/stuck/server", test_mute_server);
	g_test_add_func("/fuse/stuck/asks", test_asks_before_it_may_block);
	g_test_add_func("/fuse/stuck/writes-ask", test_writes_ask);
	return g_test_run();
}
