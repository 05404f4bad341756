// SPDX-License-Identifier: Apache-2.0
/* The rules: size, share, names, file systems, history; what is counted; what is read ahead. */
#include <errno.h>
#include <string.h>

#include <glib.h>

#include "policy.h"
#include "policy_prefetch.h"
#include "util_lock.h"

#define M (1ull << 20)
#define SLOT (2 * M)
#define EXT4 0xef53
#define NFS 0x6969
#define SECOND 1000000000ull

struct world {
	struct policy *p;
	struct policy_query q;
	uint32_t type;
	bool can_write;
	const char *path;
	bool whole;
	unsigned int asked; /* how many facts it took */
};

static bool fs_type(void *ctx, uint32_t *type)
{
	struct world *w = ctx;

	w->asked++;
	*type = w->type;
	return w->type != 0;
}

static bool can_write(void *ctx)
{
	struct world *w = ctx;

	w->asked++;
	return w->can_write;
}

static ssize_t path(void *ctx, char *buf, size_t size, bool *whole)
{
	struct world *w = ctx;

	w->asked++;
	*whole = w->whole;
	return w->path ? (ssize_t)g_strlcpy(buf, w->path, size) : -ESTALE;
}

static struct world *world_new(const struct policy_config *c)
{
	struct policy_config config = *c;
	struct world *w = g_new0(struct world, 1);

	config.window_size = 64 * M;
	config.granule = SLOT;
	w->p = policy_new(&config);
	w->type = EXT4;
	w->can_write = true;
	w->path = "dir/name.so";
	w->whole = true;
	w->q = (struct policy_query){
		.file = {1, 2},
		.size = SLOT,
		.any_size = true,
		.ctx = w,
		.fs_type = fs_type,
		.can_write = can_write,
		.path = path,
	};
	return w;
}

static void world_free(struct world *w)
{
	policy_free(w->p);
	g_free(w);
}

static void expect(struct world *w, enum policy_verdict want)
{
	enum policy_verdict v = policy_mark(w->p, &w->q, SECOND);

	g_assert_cmpstr(policy_verdict_name(v), ==, policy_verdict_name(want));
}

static void expect_size(struct world *w, uint64_t size, enum policy_verdict want)
{
	w->q.size = size;
	expect(w, want);
}

static void size_decides_first(void)
{
	struct world *w = world_new(&(struct policy_config){.min_size = 64 << 10, .max_share = 50});

	expect_size(w, 0, POLICY_SMALL);
	expect_size(w, (64 << 10) - 1, POLICY_SMALL);
	g_assert_cmpuint(w->asked, ==, 0); /* a tree of small files costs nothing */
	expect_size(w, 64 << 10, POLICY_MARKED);
	expect_size(w, 32 * M, POLICY_MARKED);
	expect_size(w, 32 * M + 1, POLICY_SHARE);
	world_free(w);

	w = world_new(&(struct policy_config){.max_share = 200});
	expect_size(w, 0, POLICY_MARKED);
	expect_size(w, 128 * M, POLICY_MARKED);
	expect_size(w, 128 * M + 1, POLICY_SHARE);
	world_free(w);

	w = world_new(&(struct policy_config){.max_share = 0});
	expect_size(w, 1ull << 40, POLICY_MARKED);
	world_free(w);
}

static void only_whole_files_without_shim(void)
{
	struct world *w = world_new(&(struct policy_config){0});

	w->q.any_size = false;
	expect_size(w, 0, POLICY_PARTIAL);
	expect_size(w, SLOT - 4096, POLICY_PARTIAL);
	expect_size(w, SLOT - 1, POLICY_PARTIAL);
	expect_size(w, SLOT, POLICY_MARKED);
	expect_size(w, SLOT + 1, POLICY_PARTIAL);
	expect_size(w, 3 * SLOT - 1, POLICY_PARTIAL);
	expect_size(w, 3 * SLOT, POLICY_MARKED);
	expect_size(w, UINT64_MAX, POLICY_PARTIAL);
	world_free(w);
}

static void always_asks_only_what_can_be(void)
{
	struct world *w = world_new(
		&(struct policy_config){.all = true, .min_size = 64 << 10, .max_share = 1});

	expect_size(w, 0, POLICY_MARKED);
	expect_size(w, 1, POLICY_MARKED);
	expect_size(w, 1ull << 40, POLICY_MARKED);
	policy_opened(w->p, w->q.file, true, 0);
	expect(w, POLICY_MARKED);
	w->can_write = false;
	expect(w, POLICY_READONLY);
	w->can_write = true;
	w->type = NFS;
	expect(w, POLICY_FSTYPE);
	world_free(w);
}

static void file_system_and_permission(void)
{
	struct world *w = world_new(&(struct policy_config){0});

	w->can_write = false;
	expect(w, POLICY_READONLY);
	w->type = NFS;
	expect(w, POLICY_FSTYPE);
	w->type = 0;
	expect(w, POLICY_FSTYPE);
	world_free(w);

	w = world_new(&(struct policy_config){.can_protect = true});
	w->can_write = false;
	expect(w, POLICY_MARKED);
	world_free(w);
	/* 9p, FUSE, NFS, SMB2, proc, hugetlbfs, something new */
	for (size_t i = 0; i < 7; i++)
		g_assert_null(policy_fstype_name(
			((const uint32_t[]){0x01021997, 0x65735546, 0x6969, 0xfe534d42, 0x9fa0,
					    0x958458f6, 0x12345678})[i]));
	g_assert_cmpstr(policy_fstype_name(0x01021994), ==, "tmpfs");
	g_assert_cmpstr(policy_fstype_name(0x58465342), ==, "xfs");
}

static const struct {
	const char *glob;
	const char *path;
	bool partial; /* only the end of the path is known */
	bool want;
} globs[] = {
	{"*.so", "a/b/c.so", false, true},
	{"*.so", "c.so", false, true},
	{"*.so", "c.so.1", false, false},
	{"*.so*", "c.so.1", true, true},
	{"c", "c/d", false, false},
	{"?.[a-c]", "x.b", false, true},
	{"?.[!a-c]", "x.b", false, false},
	{"[]x]", "]", false, true},
	{"[a\\]]", "]", false, true},
	{"\\*", "*", false, true},
	{"\\*", "x", false, false},
	{"a/*", "a/b", false, true},
	{"a/*", "a/b/c", false, false},
	{"/a/*", "a/b", false, true},
	{"a/*", "x/a/b", false, false},
	{"a/**", "a/b/c", false, true},
	{"a/", "a/b/c", false, true},
	{"a/", "ab/c", false, false},
	{"/", "x", false, true},
	{"**/log/*.txt", "log/x.txt", false, true},
	{"**/log/*.txt", "a/b/log/x.txt", false, true},
	{"**/log/*.txt", "blog/x.txt", false, false},
	{"a/**/z", "a/z", false, true},
	{"a/**/z", "a/b/c/z", false, true},
	{"a/**/z", "a/bz", false, false},
	{"a/*", "a/b", true, false},
	{"**/b/*", "b/c", true, true},
	{"*", "", false, false},
	{"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false,
	 false},
	{"x", "xx", false, false},
	{"?", "/", false, false},
};

static void globs_match_as_documented(void)
{
	for (size_t i = 0; i < G_N_ELEMENTS(globs); i++)
		if (policy_glob_match(globs[i].glob, globs[i].path, !globs[i].partial) !=
		    globs[i].want)
			g_error("\"%s\" against \"%s\" should be %d", globs[i].glob, globs[i].path,
				globs[i].want);
	g_assert_true(policy_glob_valid("a[b-c]*"));
	g_assert_false(policy_glob_valid(""));
	g_assert_false(policy_glob_valid("a[b"));
	g_assert_false(policy_glob_valid("a\\"));
}

/* The whole name against itself, quoted: no byte is lost or special. */
static void globs_survive_any_bytes(void)
{
	GRand *r = g_rand_new_with_seed(7);

	for (unsigned int round = 0; round < 20000; round++) {
		char glob[24], text[24];

		for (unsigned int i = 0; i < 23; i++) {
			glob[i] = "ab*?[]!-\\/"[g_rand_int_range(r, 0, 10)];
			text[i] = "ab[]/"[g_rand_int_range(r, 0, 5)];
		}
		glob[g_rand_int_range(r, 0, 23)] = '\0';
		text[g_rand_int_range(r, 0, 23)] = '\0';
		glob[23] = text[23] = '\0';
		policy_glob_valid(glob);
		policy_glob_match(glob, text, true);
		policy_glob_match(glob, text, false);
	}
	g_rand_free(r);
}

static void names_decide(void)
{
	const char *include[] = {"*.so", "bin/", NULL};
	const char *exclude[] = {"bin/tmp/", NULL};
	struct world *w =
		world_new(&(struct policy_config){.include = include, .exclude = exclude});

	g_assert_true(policy_wants_paths(w->p));
	expect(w, POLICY_MARKED);
	w->path = "dir/name.txt";
	expect(w, POLICY_GLOB);
	w->path = "bin/sh";
	expect(w, POLICY_MARKED);
	w->path = "bin/tmp/x.so";
	expect(w, POLICY_GLOB);
	/* Where its directory is not known, only its name counts. */
	w->path = "sh";
	w->whole = false;
	expect(w, POLICY_GLOB);
	w->path = "x.so";
	expect(w, POLICY_MARKED);
	w->path = NULL;
	expect(w, POLICY_GLOB);
	world_free(w);

	w = world_new(&(struct policy_config){.exclude = exclude});
	w->path = NULL;
	expect(w, POLICY_MARKED);
	world_free(w);
	w = world_new(&(struct policy_config){0});
	g_assert_false(policy_wants_paths(w->p));
	world_free(w);
}

static void direct_only_until_opened_otherwise(void)
{
	struct world *w = world_new(&(struct policy_config){0});

	g_assert_false(policy_any_direct(w->p));
	policy_opened(w->p, w->q.file, false, 0);
	expect(w, POLICY_MARKED);
	policy_opened(w->p, w->q.file, true, 0);
	policy_opened(w->p, w->q.file, true, 0);
	g_assert_true(policy_any_direct(w->p));
	expect(w, POLICY_DIRECT);
	w->q.file.ino = 3;
	expect(w, POLICY_MARKED);
	w->q.file.ino = 2;
	policy_opened(w->p, w->q.file, false, 0);
	g_assert_false(policy_any_direct(w->p));
	expect(w, POLICY_MARKED);
	world_free(w);
}

static void refused_files_lose_their_mark(void)
{
	struct world *w = world_new(&(struct policy_config){0});

	/* Not the file's fault. */
	policy_refused(w->p, w->q.file, 0, SLOT, -ENOMEM, 0);
	policy_refused(w->p, w->q.file, 0, SLOT, -EPIPE, 0);
	expect(w, POLICY_MARKED);
	policy_refused(w->p, w->q.file, 0, SLOT, -EACCES, 0);
	expect(w, POLICY_FAILED);
	g_assert_cmpint(policy_mark(w->p, &w->q, 59 * SECOND), ==, POLICY_FAILED);
	g_assert_cmpint(policy_mark(w->p, &w->q, 61 * SECOND), ==, POLICY_MARKED);
	world_free(w);
}

static void answers_are_counted(void)
{
	struct world *w = world_new(&(struct policy_config){.min_size = 100});
	struct policy_stats s;

	expect_size(w, 100, POLICY_MARKED);
	expect_size(w, 100, POLICY_MARKED);
	expect_size(w, 99, POLICY_SMALL);
	w->can_write = false;
	expect_size(w, 100, POLICY_READONLY);
	policy_get_stats(w->p, 0, &s);
	g_assert_cmpuint(s.marks, ==, 2);
	g_assert_cmpuint(s.unmarked_small, ==, 1);
	g_assert_cmpuint(s.unmarked_readonly, ==, 1);
	g_assert_cmpuint(s.unmarked_thrash + s.unmarked_glob + s.unmarked_share, ==, 0);
	world_free(w);
}

/* --- prefetch --- */

static struct policy_prefetch_wish map(struct world *w, uint64_t slot, uint64_t file_slot)
{
	struct policy_prefetch_wish wish;

	policy_setup(w->p, w->q.file, slot * SLOT, SLOT, file_slot * SLOT, SECOND, &wish);
	return wish;
}

static void assert_wish(struct policy_prefetch_wish wish, uint64_t from, uint64_t slots)
{
	g_assert_cmpuint(wish.len, ==, slots * SLOT);
	if (slots)
		g_assert_cmpuint(wish.offset, ==, from * SLOT);
}

static void auto_reads_sequences_ahead(void)
{
	struct world *w = world_new(&(struct policy_config){.prefetch = POLICY_PREFETCH_AUTO});
	struct policy_stats s;

	assert_wish(map(w, 0, 7), 0, 0);
	assert_wish(map(w, 1, 3), 0, 0);
	/* Now it goes on: this range and the next; then only what was not asked for yet. */
	assert_wish(map(w, 2, 4), 4, 2);
	assert_wish(map(w, 3, 5), 6, 1);
	/* The guest asks again for what it has (an upgrade): nothing new. */
	assert_wish(map(w, 3, 5), 0, 0);
	assert_wish(map(w, 4, 6), 7, 1);
	/* It jumps. */
	assert_wish(map(w, 5, 20), 0, 0);
	assert_wish(map(w, 6, 21), 21, 2);
	policy_get_stats(w->p, 0, &s);
	g_assert_cmpuint(s.prefetch_wishes, ==, 4);
	g_assert_cmpuint(s.prefetch_sequential, ==, 4);
	world_free(w);
}

static void on_reads_all_off_reads_none(void)
{
	struct world *w = world_new(&(struct policy_config){.prefetch = POLICY_PREFETCH_ON});

	assert_wish(map(w, 0, 7), 7, 1);
	assert_wish(map(w, 1, 3), 3, 1);
	assert_wish(map(w, 2, 4), 4, 2);
	world_free(w);
	w = world_new(&(struct policy_config){.prefetch = POLICY_PREFETCH_OFF});
	assert_wish(map(w, 0, 7), 0, 0);
	assert_wish(map(w, 1, 8), 0, 0);
	assert_wish(map(w, 2, 9), 0, 0);
	world_free(w);
}

struct gate {
	struct util_mutex m;
	struct util_cond c;
	bool open;
	unsigned int inside;
	unsigned int calls;
	uint64_t last;
};

static void gated_read(void *ctx, uint64_t node, uint64_t offset, uint64_t len)
{
	struct gate *g = ctx;

	util_mutex_lock(&g->m);
	g->inside++;
	g->calls++;
	g->last = node;
	util_cond_broadcast(&g->c);
	while (!g->open)
		util_cond_wait(&g->c, &g->m);
	g->inside--;
	util_mutex_unlock(&g->m);
}

static void gate_set(struct gate *g, bool open)
{
	util_mutex_lock(&g->m);
	g->open = open;
	util_cond_broadcast(&g->c);
	util_mutex_unlock(&g->m);
}

static void *quiesce(void *pp)
{
	policy_prefetch_quiesce(pp);
	return NULL;
}

static void a_slow_disk_drops_and_delays_nobody(void)
{
	uint64_t deadline = util_now_ns() + 20 * SECOND, before = 0;
	struct gate g = {.open = false};
	struct policy_prefetch_stats s;
	struct policy_prefetch *pp;
	GThread *quiescer;

	util_mutex_init(&g.m);
	util_cond_init(&g.c);
	pp = policy_prefetch_new(gated_read, &g);
	policy_prefetch_push(pp, 1, 0, 10);
	util_mutex_lock(&g.m);
	while (!g.inside)
		util_cond_wait(&g.c, &g.m);
	util_mutex_unlock(&g.m);
	/* It hangs in the first: the queue takes so many, the rest is dropped, no push waits. */
	for (uint64_t i = 0; i < POLICY_PREFETCH_DEPTH + 5; i++)
		policy_prefetch_push(pp, 2 + i, 0, 10);
	policy_prefetch_get_stats(pp, &s);
	g_assert_cmpuint(s.dropped, ==, 5);
	g_assert_cmpuint(s.ranges, ==, 0);
	/* Whatever has not begun when it is quiesced never does: the queue has room again, which
	 * shows while the one read still hangs. */
	quiescer = g_thread_new("quiescer", quiesce, pp);
	while (s.dropped != before) {
		g_assert_cmpuint(util_now_ns(), <, deadline);
		before = s.dropped;
		policy_prefetch_push(pp, 99, 0, 10);
		policy_prefetch_get_stats(pp, &s);
	}
	gate_set(&g, true);
	g_thread_join(quiescer);
	policy_prefetch_free(pp);
	g_assert_cmpuint(g.calls, <=, 2); /* the first, and the last push */
	util_cond_destroy(&g.c);
	util_mutex_destroy(&g.m);
}

/* --- while in use --- */

static void rules_change_while_in_use(void)
{
	struct world *w = world_new(&(struct policy_config){.prefetch = POLICY_PREFETCH_OFF});

	expect_size(w, 4096, POLICY_MARKED);
	expect_size(w, 48 * M, POLICY_MARKED);
	g_assert_cmpuint(map(w, 0, 0).len, ==, 0);
	policy_tune(w->p, &(struct policy_config){
				  .min_size = M, .max_share = 50, .prefetch = POLICY_PREFETCH_ON});
	expect_size(w, M - 1, POLICY_SMALL);
	expect_size(w, 32 * M, POLICY_MARKED);
	expect_size(w, 32 * M + 1, POLICY_SHARE);
	g_assert_cmpuint(map(w, 1, 9).len, ==, SLOT);
	policy_tune(w->p, &(struct policy_config){0});
	expect_size(w, 0, POLICY_MARKED);
	expect_size(w, 1000 * M, POLICY_MARKED);
	world_free(w);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/policy/size", size_decides_first);
	g_test_add_func("/policy/whole", only_whole_files_without_shim);
	g_test_add_func("/policy/always", always_asks_only_what_can_be);
	g_test_add_func("/policy/fs-and-permission", file_system_and_permission);
	g_test_add_func("/policy/globs", globs_match_as_documented);
	g_test_add_func("/policy/globs-any-bytes", globs_survive_any_bytes);
	g_test_add_func("/policy/names", names_decide);
	g_test_add_func("/policy/direct", direct_only_until_opened_otherwise);
	g_test_add_func("/policy/refused", refused_files_lose_their_mark);
	g_test_add_func("/policy/counted", answers_are_counted);
	g_test_add_func("/policy/prefetch/auto", auto_reads_sequences_ahead);
	g_test_add_func("/policy/prefetch/on-off", on_reads_all_off_reads_none);
	g_test_add_func("/policy/tune", rules_change_while_in_use);
	g_test_add_func("/policy/prefetch/queue", a_slow_disk_drops_and_delays_nobody);
	return g_test_run();
}
