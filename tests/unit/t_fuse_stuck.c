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

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/stuck/lease", test_lease);
	g_test_add_func("/fuse/stuck/server", test_mute_server);
	return g_test_run();
}
