// SPDX-License-Identifier: Apache-2.0
/* Listings, and the budget of descriptors. */
#include "t_fs_common.h"

struct listing {
	GHashTable *names; /* name -> times seen */
	guint room;	   /* entries until the buffer is full */
	guint emitted;
	guint with_attr;
	uint64_t last;
	struct fs *fs;
	bool forget;
};

static bool take(void *ctx, const struct fs_dirent *e)
{
	struct listing *l = ctx;
	guint seen;

	if (l->room == 0)
		return false;
	l->room--;
	l->emitted++;
	g_assert_cmpuint(strlen(e->name), ==, e->namelen);
	seen = GPOINTER_TO_UINT(g_hash_table_lookup(l->names, e->name));
	g_hash_table_insert(l->names, g_strdup(e->name), GUINT_TO_POINTER(seen + 1));
	l->last = e->next;
	if (e->has_attr) {
		g_assert_cmpstr(e->name, !=, ".");
		g_assert_cmpstr(e->name, !=, "..");
		l->with_attr++;
		if (l->forget)
			fs_forget(l->fs, e->attr.node, 1);
	}
	return true;
}

static void listing_init(struct listing *l, struct share *s)
{
	*l = (struct listing){
		.names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
		.fs = s->fs,
		.forget = true,
	};
}

static void list_all(struct share *s, uint64_t dir, uint64_t h, bool plus, guint room,
		     struct listing *l)
{
	do {
		l->emitted = 0;
		l->room = room;
		g_assert_cmpint(fs_readdir(s->fs, dir, h, l->last, plus, take, l), ==, 0);
	} while (l->emitted > 0);
}

static void make_files(struct share *s, guint n)
{
	for (guint i = 0; i < n; i++) {
		g_autofree char *name = g_strdup_printf("file-number-%u", i);

		t_write(s, name, "x");
	}
}

static void assert_complete(const struct listing *l, guint n)
{
	GHashTableIter it;
	gpointer seen;

	g_assert_cmpuint(g_hash_table_size(l->names), ==, n + 2);
	g_hash_table_iter_init(&it, l->names);
	while (g_hash_table_iter_next(&it, NULL, &seen))
		g_assert_cmpuint(GPOINTER_TO_UINT(seen), ==, 1);
}

static void every_name_once_in_any_buffer(struct share *s, gconstpointer d)
{
	const guint rooms[] = {1, 2, 7, 1000, 100000};
	const guint n = 1500; /* more than one getdents64 */

	make_files(s, n);
	for (guint plus = 0; plus < 2; plus++) {
		for (guint i = 0; i < G_N_ELEMENTS(rooms); i++) {
			struct listing l;
			uint64_t h;

			listing_init(&l, s);
			g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &h), ==, 0);
			list_all(s, FS_ROOT_ID, h, plus, rooms[i], &l);
			assert_complete(&l, n);
			g_assert_cmpuint(l.with_attr, ==, plus ? n : 0);
			g_assert_cmpint(fs_fsyncdir(s->fs, FS_ROOT_ID, h, false), ==, 0);
			g_assert_cmpint(fs_release(s->fs, h), ==, -EBADF);
			g_assert_cmpint(fs_releasedir(s->fs, h), ==, 0);
			g_hash_table_unref(l.names);
			/* What was not consumed was given back. */
			g_assert_cmpuint(t_stats(s).nodes, ==, 1);
			g_assert_cmpuint(t_stats(s).fds, ==, 1);
		}
	}
}

static void cookies_resume_anywhere(struct share *s, gconstpointer d)
{
	g_autoptr(GArray) cookies = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	struct listing l;
	uint64_t zero = 0;
	uint64_t h;

	make_files(s, 300);
	listing_init(&l, s);
	g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &h), ==, 0);
	g_array_append_val(cookies, zero);
	for (;;) {
		l.room = 1;
		l.emitted = 0;
		g_assert_cmpint(fs_readdir(s->fs, FS_ROOT_ID, h, l.last, false, take, &l), ==, 0);
		if (!l.emitted)
			break;
		g_array_append_val(cookies, l.last);
	}
	g_assert_cmpuint(cookies->len, ==, 303);
	/* From each place, backwards, the number of names that are left. */
	for (guint i = cookies->len; i-- > 0;) {
		g_hash_table_remove_all(l.names);
		l.last = g_array_index(cookies, uint64_t, i);
		list_all(s, FS_ROOT_ID, h, false, 50, &l);
		g_assert_cmpuint(g_hash_table_size(l.names), ==, 302 - i);
	}
	g_assert_cmpint(fs_readdir(s->fs, FS_ROOT_ID, h, UINT64_MAX, false, take, &l), ==, -EINVAL);
	fs_releasedir(s->fs, h);
	g_hash_table_unref(l.names);
}

static void rewind_shows_what_changed(struct share *s, gconstpointer d)
{
	struct listing l;
	uint64_t h;

	make_files(s, 3);
	listing_init(&l, s);
	g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &h), ==, 0);
	/* Read, but nothing taken: the place is still the start. */
	l.room = 0;
	g_assert_cmpint(fs_readdir(s->fs, FS_ROOT_ID, h, 0, true, take, &l), ==, 0);
	t_write(s, "new", "");
	g_assert_cmpint(fs_unlink(s->fs, FS_ROOT_ID, "file-number-1"), ==, 0);
	g_hash_table_remove_all(l.names);
	l.last = 0;
	list_all(s, FS_ROOT_ID, h, true, 100, &l);
	g_assert_true(g_hash_table_contains(l.names, "new"));
	g_assert_false(g_hash_table_contains(l.names, "file-number-1"));
	assert_complete(&l, 3);
	g_hash_table_unref(l.names);
	fs_releasedir(s->fs, h);
}

/* Names stay while the directory is emptied and filled around them. */
static void stable_names_survive_changes(struct share *s, gconstpointer d)
{
	struct listing l;
	uint64_t h;
	guint step = 0;

	make_files(s, 400);
	listing_init(&l, s);
	g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &h), ==, 0);
	do {
		g_autofree char *add = g_strdup_printf("added-%u", step);
		g_autofree char *del = g_strdup_printf("file-number-%u", 2 * step + 1);

		l.emitted = 0;
		l.room = 5;
		g_assert_cmpint(fs_readdir(s->fs, FS_ROOT_ID, h, l.last, true, take, &l), ==, 0);
		t_write(s, add, "");
		if (2 * step + 1 < 400)
			g_assert_cmpint(fs_unlink(s->fs, FS_ROOT_ID, del), ==, 0);
		step++;
	} while (l.emitted > 0 && step < 5000);
	for (guint i = 0; i < 400; i += 2) {
		g_autofree char *name = g_strdup_printf("file-number-%u", i);

		g_assert_cmpuint(GPOINTER_TO_UINT(g_hash_table_lookup(l.names, name)), ==, 1);
	}
	g_hash_table_unref(l.names);
	fs_releasedir(s->fs, h);
}

static const struct fs_config few_fds = {.fd_limit = 24};

static void at_the_limit_names_are_listed_and_it_recovers(struct share *s, gconstpointer d)
{
	g_autoptr(GArray) nodes = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	struct listing l;
	struct fs_attr a;
	uint64_t h;
	uint64_t fh;
	guint i;
	int err = 0;

	make_files(s, 100);
	for (i = 0; i < 100; i++) {
		g_autofree char *name = g_strdup_printf("file-number-%u", i);

		err = fs_lookup(s->fs, FS_ROOT_ID, name, &a);
		if (err < 0)
			break;
		g_array_append_val(nodes, a.node);
	}
	g_assert_cmpint(err, ==, -EMFILE);
	g_assert_cmpuint(i, ==, 24 - 4 - 1);
	g_assert_cmpuint(t_stats(s).fds, ==, 20);

	/* What is known can be looked up, opened, linked; nothing is made that has no place. */
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "file-number-3", &a), ==, 0);
	fs_forget(s->fs, a.node, 1);
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "none", &a), ==, -ENOENT);
	g_assert_cmpint(fs_open(s->fs, g_array_index(nodes, uint64_t, 0), O_RDWR, false, &fh), ==,
			0);
	g_assert_cmpint(fs_mkdir(s->fs, &me, FS_ROOT_ID, "d", 0755, &a), ==, -EMFILE);
	g_assert_cmpint(fs_create(s->fs, &me, FS_ROOT_ID, "c", 0644, O_RDWR, false, &a, &h), ==,
			-EMFILE);
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "d", &a), ==, -ENOENT);
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "c", &a), ==, -ENOENT);
	g_assert_cmpint(fs_link(s->fs, g_array_index(nodes, uint64_t, 1), FS_ROOT_ID, "linked", &a),
			==, 0);
	g_assert_cmpint(fs_unlink(s->fs, FS_ROOT_ID, "linked"), ==, 0);
	fs_forget(s->fs, a.node, 1);

	listing_init(&l, s);
	g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &h), ==, 0);
	list_all(s, FS_ROOT_ID, h, true, 10, &l);
	assert_complete(&l, 100);
	g_assert_cmpuint(l.with_attr, ==, nodes->len);
	g_hash_table_unref(l.names);

	for (i = 0; i < nodes->len; i++)
		fs_forget(s->fs, g_array_index(nodes, uint64_t, i), 1);
	g_assert_cmpint(fs_mkdir(s->fs, &me, FS_ROOT_ID, "d", 0755, &a), ==, 0);
	fs_forget(s->fs, a.node, 1);
	listing_init(&l, s);
	list_all(s, FS_ROOT_ID, h, true, 10, &l);
	g_assert_cmpuint(l.with_attr, ==, 101);
	g_hash_table_unref(l.names);
	fs_releasedir(s->fs, h);
	fs_release(s->fs, fh);
	g_assert_cmpuint(t_stats(s).fds, ==, 1);
}

static void handles_have_a_limit_too(struct share *s, gconstpointer d)
{
	uint64_t h[64];
	uint64_t f;
	int n = 0;
	int err;

	t_write(s, "f", "");
	f = t_lookup(s, FS_ROOT_ID, "f");
	while ((err = fs_open(s->fs, f, O_RDONLY, false, &h[n])) == 0)
		n++;
	g_assert_cmpint(err, ==, -EMFILE);
	g_assert_cmpint(n, ==, 22);
	g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &h[n]), ==, -EMFILE);
	while (n-- > 0)
		g_assert_cmpint(fs_release(s->fs, h[n]), ==, 0);
	g_assert_cmpuint(t_stats(s).fds, ==, 2);
}

static struct share *shared;
static uint64_t shared_handle;

static gpointer list_in_thread(gpointer seen)
{
	for (int i = 0; i < 20; i++) {
		struct listing l;

		listing_init(&l, shared);
		list_all(shared, FS_ROOT_ID, shared_handle, i % 2, 9, &l);
		assert_complete(&l, 100);
		g_hash_table_unref(l.names);
	}
	return NULL;
}

/* Listings of one handle from many threads: each has its own cookie and misses nothing. */
static void one_handle_many_readers(struct share *s, gconstpointer d)
{
	GThread *t[4];

	make_files(s, 100);
	shared = s;
	g_assert_cmpint(fs_opendir(s->fs, FS_ROOT_ID, &shared_handle), ==, 0);
	for (guint i = 0; i < 4; i++)
		t[i] = g_thread_new("list", list_in_thread, NULL);
	for (guint i = 0; i < 4; i++)
		g_thread_join(t[i]);
	fs_releasedir(s->fs, shared_handle);
	g_assert_cmpuint(t_stats(s).nodes, ==, 1);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	T_FS("/fs/dir/complete", NULL, every_name_once_in_any_buffer);
	T_FS("/fs/dir/cookies", NULL, cookies_resume_anywhere);
	T_FS("/fs/dir/rewind", NULL, rewind_shows_what_changed);
	T_FS("/fs/dir/changes", NULL, stable_names_survive_changes);
	T_FS("/fs/dir/fd-limit", &few_fds, at_the_limit_names_are_listed_and_it_recovers);
	T_FS("/fs/dir/handle-limit", &few_fds, handles_have_a_limit_too);
	T_FS("/fs/dir/many-readers", NULL, one_handle_many_readers);
	return g_test_run();
}
