// SPDX-License-Identifier: Apache-2.0
/* Storms: made for ThreadSanitizer, and for counts that must come out even. */
#include <stdio.h>
#include <sys/syscall.h>

#include "t_fs_common.h"
#include "util_yield.h"

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

#define THREADS 4
#define NAMES 4

static struct share *sh;
static gint go;
static gint stop;
static guint rounds;

static void run(GThreadFunc fn)
{
	GThread *t[THREADS];

	g_atomic_int_set(&go, 0);
	for (guint i = 0; i < THREADS; i++)
		t[i] = g_thread_new("storm", fn, GUINT_TO_POINTER(i));
	for (guint i = 0; i < THREADS; i++)
		g_thread_join(t[i]);
}

/* All threads pass together: the point is to meet. */
static void meet(guint round)
{
	g_atomic_int_inc(&go);
	while (g_atomic_int_get(&go) < (gint)(THREADS * (round + 1)))
		g_thread_yield();
}

static uint64_t met[THREADS];

static gpointer lookup_new_together(gpointer data)
{
	guint me_ = GPOINTER_TO_UINT(data);

	util_yield_seed(me_ + 1);
	for (guint i = 0; i < rounds; i++) {
		struct fs_attr a;

		meet(3 * i);
		g_assert_cmpint(fs_lookup(sh->fs, FS_ROOT_ID, "f0", &a), ==, 0);
		__atomic_store_n(&met[me_], a.node, __ATOMIC_RELEASE);
		meet(3 * i + 1);
		for (guint k = 0; k < THREADS; k++)
			g_assert_cmpuint(__atomic_load_n(&met[k], __ATOMIC_ACQUIRE), ==, a.node);
		meet(3 * i + 2);
		fs_forget(sh->fs, a.node, 1);
	}
	return NULL;
}

/* While all hold their lookup count, all have one id. */
static void one_file_one_node(struct share *s, gconstpointer d)
{
	sh = s;
	rounds = 300;
	t_write(s, "f0", "x");
	run(lookup_new_together);
	g_assert_cmpuint(t_stats(s).nodes, ==, 1);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
}

static void touch_node(uint64_t node, GRand *r)
{
	struct fs_attr a;
	uint64_t h;
	char c = 'y';

	/* It has a lookup count of ours: it must be there, whatever the others forget. */
	g_assert_cmpint(fs_getattr(sh->fs, node, false, 0, &a), ==, 0);
	g_assert_cmpuint(a.node, ==, node);
	if (g_rand_int_range(r, 0, 4) == 0) {
		g_assert_cmpint(fs_open(sh->fs, node, O_RDWR, false, &h), ==, 0);
		g_assert_cmpint(t_pwrite(sh, node, h, &c, 1, 0, 0), ==, 1);
		g_assert_cmpint(t_pread(sh, node, h, &c, 1, 0), ==, 1);
		g_assert_cmpint(fs_release(sh->fs, h), ==, 0);
	}
}

static gpointer storm(gpointer data)
{
	g_autoptr(GRand) r = g_rand_new_with_seed(GPOINTER_TO_UINT(data) + 7);

	util_yield_seed(GPOINTER_TO_UINT(data) + 1);
	for (guint i = 0; i < rounds; i++) {
		char name[8];
		char to[8];
		struct fs_attr a;
		int err;

		snprintf(name, sizeof(name), "f%d", g_rand_int_range(r, 0, NAMES));
		snprintf(to, sizeof(to), "f%d", g_rand_int_range(r, 0, NAMES));
		switch (g_rand_int_range(r, 0, 8)) {
		case 0:
			fs_rename(sh->fs, FS_ROOT_ID, name, FS_ROOT_ID, to, RENAME_EXCHANGE);
			break;
		case 1:
			fs_unlink(sh->fs, FS_ROOT_ID, name);
			break;
		case 2: {
			uint64_t h;

			err = fs_create(sh->fs, &me, FS_ROOT_ID, name, 0644, O_RDWR, false, &a, &h);
			if (err < 0) {
				g_assert_true(err == -ENOENT); /* gone between the two tries */
				break;
			}
			fs_release(sh->fs, h);
			fs_forget(sh->fs, a.node, 1);
			break;
		}
		default:
			err = i % 3 ? fs_lookup(sh->fs, FS_ROOT_ID, name, &a)
				    : fs_lookup_cached(sh->fs, FS_ROOT_ID, name, &a);
			if (err < 0) {
				g_assert_true(err == -ENOENT || err == -EAGAIN);
				break;
			}
			touch_node(a.node, r);
			fs_forget(sh->fs, a.node, 1);
		}
	}
	return NULL;
}

static void counts_come_out_even(struct share *s, gconstpointer d)
{
	sh = s;
	rounds = 2500;
	for (guint i = 0; i < NAMES; i++) {
		g_autofree char *n = g_strdup_printf("f%u", i);

		t_write(s, n, "x");
	}
	run(storm);
	g_assert_cmpuint(t_stats(s).nodes, ==, 1);
	g_assert_cmpuint(t_stats(s).handles, ==, 0);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
}

static uint64_t handles[NAMES];

static gpointer handle_storm(gpointer data)
{
	g_autoptr(GRand) r = g_rand_new_with_seed(GPOINTER_TO_UINT(data) + 70);
	uint64_t node = met[0];

	for (guint i = 0; i < rounds; i++) {
		uint64_t *slot = &handles[g_rand_int_range(r, 0, NAMES)];
		uint64_t h = __atomic_load_n(slot, __ATOMIC_RELAXED);
		uint64_t mine;
		char c;
		ssize_t n;

		if (g_rand_int_range(r, 0, 4) == 0) {
			g_assert_cmpint(fs_open(sh->fs, node, O_RDONLY, false, &mine), ==, 0);
			h = __atomic_exchange_n(slot, mine, __ATOMIC_RELAXED);
			if (h)
				g_assert_cmpint(fs_release(sh->fs, h), ==, 0);
		} else if (h) {
			/* Another thread may release it at any time; never another file's byte. */
			n = t_pread(sh, node, h, &c, 1, 0);
			g_assert_true((n == 1 && c == 'x') || n == -EBADF);
		}
	}
	return NULL;
}

static void release_beside_read(struct share *s, gconstpointer d)
{
	sh = s;
	rounds = 4000;
	t_write(s, "f0", "x");
	met[0] = t_lookup(s, FS_ROOT_ID, "f0");
	memset(handles, 0, sizeof(handles));
	run(handle_storm);
	for (guint i = 0; i < NAMES; i++)
		if (handles[i])
			g_assert_cmpint(fs_release(s->fs, handles[i]), ==, 0);
	fs_forget(s->fs, met[0], 1);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
}

static gpointer swap_dir_and_link(gpointer data)
{
	g_autofree char *a = t_path(sh, "d");
	g_autofree char *b = t_path(sh, "l");

	while (!g_atomic_int_get(&stop))
		syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
	return NULL;
}

static void try_below(uint64_t dir)
{
	struct fs_attr a;
	uint64_t h;

	g_assert_cmpint(fs_lookup(sh->fs, dir, "secret", &a), <, 0);
	g_assert_cmpint(fs_lookup_cached(sh->fs, dir, "secret", &a), <, 0);
	if (fs_create(sh->fs, &me, dir, "made", 0644, O_RDWR, false, &a, &h) == 0) {
		fs_release(sh->fs, h);
		fs_forget(sh->fs, a.node, 1);
	}
	fs_unlink(sh->fs, dir, "secret");
	fs_rename(sh->fs, dir, "secret", FS_ROOT_ID, "stolen", 0);
}

static gpointer try_to_escape(gpointer data)
{
	const char *name = GPOINTER_TO_UINT(data) % 2 ? "d" : "l";

	for (guint i = 0; i < rounds; i++) {
		struct fs_attr a;
		uint64_t h;

		if (fs_lookup(sh->fs, FS_ROOT_ID, name, &a) < 0)
			continue;
		try_below(a.node);
		if (fs_opendir(sh->fs, a.node, &h) == 0)
			fs_releasedir(sh->fs, h);
		else
			g_assert_true(S_ISLNK(a.st.st_mode));
		fs_forget(sh->fs, a.node, 1);
	}
	return NULL;
}

/* A directory that becomes a symbolic link between any two steps leads nowhere outside. */
static void swapped_directory_never_escapes(struct share *s, gconstpointer d)
{
	g_autofree char *outside = g_build_filename(s->base, "outside", NULL);
	g_autofree char *secret = g_build_filename(outside, "secret", NULL);
	g_autofree char *made = g_build_filename(outside, "made", NULL);
	g_autofree char *dir = t_path(s, "d");
	g_autofree char *link = t_path(s, "l");
	GThread *t;

	sh = s;
	rounds = 700;
	g_assert_cmpint(g_mkdir(outside, 0777), ==, 0);
	g_assert_true(g_file_set_contents(secret, "s", 1, NULL));
	g_assert_cmpint(g_mkdir(dir, 0777), ==, 0);
	g_assert_cmpint(symlink("../outside", link), ==, 0);
	g_atomic_int_set(&stop, 0);
	t = g_thread_new("swap", swap_dir_and_link, NULL);
	run(try_to_escape);
	g_atomic_int_set(&stop, 1);
	g_thread_join(t);
	g_assert_true(g_file_test(secret, G_FILE_TEST_EXISTS));
	g_assert_false(g_file_test(made, G_FILE_TEST_EXISTS));
	g_assert_cmpuint(t_stats(s).nodes, ==, 1);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	T_FS("/fs/race/one-node", NULL, one_file_one_node);
	T_FS("/fs/race/storm", NULL, counts_come_out_even);
	T_FS("/fs/race/release", NULL, release_beside_read);
	T_FS("/fs/race/symlink", NULL, swapped_directory_never_escapes);
	return g_test_run();
}
