// SPDX-License-Identifier: Apache-2.0
/*
 * Umount and mount again, over and over, beside eight writers on two queues. INIT and DESTROY run
 * alone, so a request meets either the old mount or the new one: it is done, or it is told that its
 * mount has gone; what was written and read back in one mount is the writer's own.
 *
 * RAW_UMOUNT_ROUNDS: how often (default 300).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "raw_util.h"

#define WRITERS 8
#define BLOCK 4096u

struct writer {
	struct raw *r;
	GThread *thread;
	char name[16];
	uint64_t *buf;
	unsigned int id;
	int *stop;
	uint64_t served; /* writes that were read back */
	uint64_t told;	 /* requests that met another mount */
};

/* EIO: between DESTROY and INIT. ESTALE, EBADF: a node, a handle of an earlier mount. */
static bool ok(struct writer *w, ssize_t ret)
{
	if (ret >= 0)
		return true;
	g_assert_true(ret == -EIO || ret == -ESTALE || ret == -EBADF);
	w->told++;
	return false;
}

static void stamp(struct writer *w, uint64_t seq)
{
	for (unsigned int i = 0; i < BLOCK / 8; i++)
		w->buf[i] = seq << 8 | w->id;
}

static void write_and_read(struct writer *w, uint64_t node, uint64_t fh, uint64_t seq)
{
	uint64_t off = seq % 16 * BLOCK;
	ssize_t n;

	stamp(w, seq);
	n = guest_fuse_write(w->r->fuse, node, fh, off, w->buf, BLOCK);
	if (!ok(w, n))
		return;
	g_assert_cmpint(n, ==, BLOCK);
	memset(w->buf, 0, BLOCK);
	n = guest_fuse_read(w->r->fuse, node, fh, off, w->buf, BLOCK);
	if (!ok(w, n))
		return;
	g_assert_cmpint(n, ==, BLOCK);
	for (unsigned int i = 0; i < BLOCK / 8; i++)
		g_assert_cmpuint(w->buf[i], ==, seq << 8 | w->id);
	w->served++;
}

static gpointer write_on(gpointer data)
{
	struct writer *w = data;
	struct guest_fuse *f = w->r->fuse;

	for (uint64_t seq = 1; !__atomic_load_n(w->stop, __ATOMIC_RELAXED);) {
		struct fuse_entry_out e;
		uint64_t fh;

		if (!ok(w, guest_fuse_lookup(f, FUSE_ROOT_ID, w->name, &e)))
			continue;
		if (ok(w, guest_fuse_open(f, e.nodeid, 2 /* O_RDWR */, &fh))) {
			for (int i = 0; i < 4; i++)
				write_and_read(w, e.nodeid, fh, seq++);
			ok(w, guest_fuse_release(f, e.nodeid, fh));
		}
		guest_fuse_forget(f, e.nodeid, 1);
	}
	return NULL;
}

static unsigned int rounds(void)
{
	const char *text = g_getenv("RAW_UMOUNT_ROUNDS");

	return text ? (unsigned int)atoi(text) : 300;
}

static void test_umount(void)
{
	struct raw *r = raw_start(NULL);
	struct writer w[WRITERS];
	uint64_t served = 0, told = 0;
	unsigned int fds;
	int stop = 0;

	raw_connect(r, NULL);
	fds = raw_count_fds(r);
	for (unsigned int i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){.r = r, .id = i, .stop = &stop};
		g_snprintf(w[i].name, sizeof(w[i].name), "w%u", i);
		raw_make_file(r, w[i].name, 16 * BLOCK, i);
		w[i].buf = guest_mem_alloc(r->mem, BLOCK);
		w[i].thread = g_thread_new("writer", write_on, &w[i]);
	}
	for (unsigned int i = 0; i < rounds(); i++) {
		raw_assert_ok(guest_fuse_destroy(r->fuse));
		raw_assert_ok(guest_fuse_init(r->fuse, 0, NULL));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < WRITERS; i++) {
		g_thread_join(w[i].thread);
		served += w[i].served;
		told += w[i].told;
		guest_mem_release(r->mem, w[i].buf, BLOCK);
	}
	g_test_message("%u rounds: %" G_GUINT64_FORMAT
		       " blocks written and read back, %" G_GUINT64_FORMAT
		       " requests met another mount",
		       rounds(), served, told);
	g_assert_cmpuint(served, >, 0);
	g_assert_cmpuint(told, >, 0);
	raw_assert_ok(guest_fuse_destroy(r->fuse));
	/* Nothing of all the mounts is left. */
	g_assert_cmpuint(raw_wait_fds(r, fds), ==, fds);
	raw_stop(r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/umount/beside-writers", test_umount);
	return g_test_run();
}
