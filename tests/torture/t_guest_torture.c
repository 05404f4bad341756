// SPDX-License-Identifier: Apache-2.0
/*
 * The whole guest seat on a real daemon that is killed and started again: eight threads over 10,000
 * ranges of four files, through a window of 16 slots.
 *
 * The first page of each range carries its number and a word that only grows; it is written by one
 * thread alone, through the window or by request. Who reads looks up what had been written before
 * and what could have been by then: a word outside of that, or another number, is wrong data.
 * Everything else must be an error, and only after the daemon was killed. Threads hold up to two
 * refs, close and open their files (which takes their ranges away), read and write.
 *
 * At the end of each round descriptors and threads are counted, here and in the window; the last
 * round ends in peace, and the daemon must say so.
 *
 * GUEST_TORTURE_ROUNDS, GUEST_TORTURE_OPS (a thread and round), GUEST_TORTURE_SEED. argv[1]:
 * daxmapd.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count_tasks.h"
#include "guest.h"
#include "guest_file.h"
#include "util_rcu.h"
#include "watchdog.h"

#define SLOT (64u << 10)
#define SLOTS 16u
#define FILES 4u
#define RANGES 2500u		     /* of each file */
#define FILE_SIZE (79u * (2u << 20)) /* room for all, in steps of 2 MiB */
#define THREADS 8u
#define HOT 24u

struct stamp {
	uint64_t range;
	uint64_t word;
};

struct torture {
	char *dir, *share, *socket;
	const char *daemon;
	GPid pid;
	struct guest_frontend *fe;
	struct guest_fuse *fuse;
	struct guest_files *files;
	uint64_t begun[FILES * RANGES]; /* atomic: a write of this word may have begun */
	uint64_t done[FILES * RANGES];	/* atomic: and this one was there */
	uint64_t ops, left, kill_at;	/* atomic; left: operations of this round */
	bool killed;			/* atomic */
	uint64_t gets, reads, writes, errors, reopens;
};

struct worker {
	struct torture *t;
	unsigned int index;
	uint64_t rng;
	struct guest_file *f[FILES];
};

static const char *daemon_path;

static uint64_t rnd(uint64_t *rng, uint64_t n)
{
	*rng ^= *rng << 13;
	*rng ^= *rng >> 7;
	*rng ^= *rng << 17;
	return (*rng >> 11) % n;
}

static uint64_t env(const char *name, uint64_t otherwise)
{
	const char *v = g_getenv(name);

	return v && *v ? g_ascii_strtoull(v, NULL, 10) : otherwise;
}

static void count(uint64_t *what)
{
	__atomic_add_fetch(what, 1, __ATOMIC_RELAXED);
}

/* --- the daemon, and a session on it --- */

static void start_daemon(struct torture *t)
{
	const char *argv[] = {
		t->daemon, "--socket-path", t->socket, "--shared-dir", t->share, "--cache-size",
		"2M",	   "--sandbox",	    "none",    "--seccomp",    "none",	 "--dax-shim",
		"off",	   "--dax-guard",   "off",     "--log-level",  "error",	 NULL,
	};
	g_autoptr(GError) error = NULL;

	unlink(t->socket);
	g_spawn_async(NULL, (char **)argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &t->pid,
		      &error);
	g_assert_no_error(error);
}

static void connect_to_it(struct torture *t)
{
	struct guest_config g = {
		.socket_path = t->socket,
		.polled = true,
		.num_queues = 1,
		.timeout_ms = 60000,
		.window.mode = GUEST_WINDOW_STRICT,
	};
	struct guest_fuse_config fc = {.requests = 128};
	struct guest_files_config c = {
		.admission = rnd(&t->ops, 2) ? GUEST_ADMIT_EAGER : GUEST_ADMIT_ADAPTIVE,
		.window = (uint64_t)SLOTS * SLOT,
		.cache.slot_size = SLOT,
	};
	g_autoptr(GError) error = NULL;
	int err;

	t->fe = guest_frontend_new(&g, &error);
	g_assert_no_error(error);
	t->fuse = guest_fuse_new(t->fe, &fc);
	/* Not there yet, or not listening. */
	while ((err = guest_frontend_connect(t->fe, &error)) == -ENOENT || err == -ECONNREFUSED) {
		g_assert_cmpint(waitpid(t->pid, NULL, WNOHANG), ==, 0);
		g_clear_error(&error);
		g_usleep(2000);
	}
	g_assert_no_error(error);
	g_assert_cmpint(err, ==, 0);
	g_assert_cmpint(guest_frontend_start(t->fe, &error), ==, 0);
	g_assert_cmpint(guest_fuse_init(t->fuse, 0, NULL), ==, 0);
	t->files = guest_files_new(t->fuse, &c, &error);
	g_assert_no_error(error);
	g_assert_true(guest_files_has_window(t->files));
}

/* With @alive nothing may be left behind: not in the table, nor in the window. */
static void leave(struct torture *t, bool alive)
{
	struct guest_window *w = guest_frontend_window(t->fe);
	struct guest_window_stats ws;
	struct dm_stats s;
	int status;

	guest_files_stats(t->files, &s);
	if (alive) {
		g_assert_cmpuint(s.files_open, ==, 0);
		g_assert_cmpuint(s.live, ==, 0);
		g_assert_cmpuint(s.maps, ==,
				 s.deferred_unmaps + s.asked_unmaps + s.elided_overlaid +
					 s.dropped);
	}
	guest_files_free(t->files);
	if (alive) {
		guest_window_stats(w, &ws);
		g_assert_cmpuint(ws.peak, <=,
				 2 * SLOTS); /* lingering ones with the daemon included */
	}
	g_assert_cmpuint(guest_window_violations(w), ==, 0);
	guest_frontend_disconnect(t->fe);
	guest_fuse_free(t->fuse);
	guest_frontend_free(t->fe);
	g_assert_cmpint(waitpid(t->pid, &status, 0), ==, t->pid);
	if (alive)
		g_assert_cmpint(status, ==, 0);
	else
		g_assert_true(WIFSIGNALED(status));
	g_spawn_close_pid(t->pid);
}

/* --- what the threads do --- */

static void lay_out(struct torture *t)
{
	for (unsigned int i = 0; i < FILES; i++) {
		g_autofree char *path = g_strdup_printf("%s/f%u", t->share, i);
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		g_assert_cmpint(fd, >=, 0);
		g_assert_cmpint(ftruncate(fd, FILE_SIZE), ==, 0);
		for (uint64_t r = 0; r < RANGES; r++) {
			struct stamp s = {.range = i * RANGES + r};

			g_assert_cmpint(pwrite(fd, &s, sizeof(s), (off_t)(r * SLOT)), ==,
					sizeof(s));
		}
		close(fd);
	}
}

/* Only after the kill. */
static void note_error(struct worker *w, int err)
{
	struct torture *t = w->t;

	if (!__atomic_load_n(&t->killed, __ATOMIC_ACQUIRE))
		g_error("errno %d, and the daemon lives", -err);
	count(&t->errors);
}

static void open_files(struct worker *w)
{
	for (unsigned int i = 0; i < FILES; i++) {
		g_autofree char *name = g_strdup_printf("f%u", i);
		int err;

		if (w->f[i])
			continue;
		w->f[i] = guest_file_open(w->t->files, name, O_RDWR, &err);
		if (!w->f[i])
			note_error(w, err);
	}
}

static void check(struct torture *t, uint64_t range, uint64_t low, const struct stamp *s)
{
	uint64_t high = __atomic_load_n(&t->begun[range], __ATOMIC_ACQUIRE);

	if (s->range != range || s->word < low || s->word > high)
		g_error("wrong data: range %" G_GUINT64_FORMAT ", word %" G_GUINT64_FORMAT
			" where range %" G_GUINT64_FORMAT ", %" G_GUINT64_FORMAT
			"..%" G_GUINT64_FORMAT " should be",
			s->range, s->word, range, low, high);
}

static void look(struct torture *t, uint64_t range, uint64_t low, const struct dm_ref *ref)
{
	const struct stamp *p = ref->addr;
	struct stamp s = {
		.range = __atomic_load_n(&p->range, __ATOMIC_RELAXED),
		.word = __atomic_load_n(&p->word, __ATOMIC_ACQUIRE),
	};

	check(t, range, low, &s);
}

static void pinned(struct worker *w, uint64_t range, bool write)
{
	struct torture *t = w->t;
	struct guest_file *f = w->f[range / RANGES];
	uint64_t low = __atomic_load_n(&t->done[range], __ATOMIC_ACQUIRE);
	struct dm_ref ref, second;
	uint64_t other = rnd(&w->rng, FILES * RANGES);
	int err = guest_file_get(f, range % RANGES * SLOT, sizeof(struct stamp), write, &ref);

	if (err) {
		note_error(w, err);
		return;
	}
	count(&t->gets);
	look(t, range, low, &ref);
	if (write) {
		struct stamp *p = ref.addr;

		__atomic_store_n(&t->begun[range], low + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&p->word, low + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&t->done[range], low + 1, __ATOMIC_RELEASE);
	}
	/* Eight threads with two each fill the window: so try only. */
	if (rnd(&w->rng, 4) == 0 && w->f[other / RANGES] &&
	    guest_file_admit(w->f[other / RANGES], other % RANGES * SLOT, 16, false, &second) ==
		    0) {
		look(t, other, 0, &second);
		guest_file_put(w->f[other / RANGES], &second);
	}
	look(t, range, low + write, &ref);
	guest_file_put(f, &ref);
}

static void copied(struct worker *w, uint64_t range, bool write)
{
	struct torture *t = w->t;
	struct guest_file *f = w->f[range / RANGES];
	uint64_t low = __atomic_load_n(&t->done[range], __ATOMIC_ACQUIRE);
	struct stamp s = {.range = range, .word = low + 1};
	ssize_t n;

	if (write) {
		__atomic_store_n(&t->begun[range], low + 1, __ATOMIC_RELEASE);
		n = guest_file_write(f, &s, sizeof(s), range % RANGES * SLOT);
		if (n == sizeof(s))
			__atomic_store_n(&t->done[range], low + 1, __ATOMIC_RELEASE);
		count(&t->writes);
	} else {
		n = guest_file_read(f, &s, sizeof(s), range % RANGES * SLOT);
		if (n == sizeof(s))
			check(t, range, low, &s);
		count(&t->reads);
	}
	if (n != sizeof(s))
		note_error(w, n < 0 ? (int)n : -EIO);
}

static void kill_in_time(struct torture *t)
{
	if (__atomic_add_fetch(&t->left, 1, __ATOMIC_RELAXED) != t->kill_at)
		return;
	__atomic_store_n(&t->killed, true, __ATOMIC_RELEASE);
	kill(t->pid, SIGKILL);
}

static void one(struct worker *w)
{
	uint64_t range = rnd(&w->rng, 3) ? rnd(&w->rng, HOT) * 401 : rnd(&w->rng, FILES * RANGES);
	unsigned int what = (unsigned int)rnd(&w->rng, 100);
	bool write = rnd(&w->rng, 4) == 0;

	if (write) /* its one writer */
		range = range / THREADS * THREADS + w->index;
	if (what == 0) {
		guest_file_close(g_steal_pointer(&w->f[range / RANGES]));
		count(&w->t->reopens);
		open_files(w);
	}
	if (!w->f[range / RANGES])
		return;
	if (what < 50)
		pinned(w, range, write);
	else
		copied(w, range, write);
}

static gpointer worker_thread(gpointer data)
{
	struct worker *w = data;
	struct torture *t = w->t;
	uint64_t ops = t->ops;

	open_files(w);
	for (uint64_t i = 0; i < ops; i++) {
		one(w);
		kill_in_time(t);
		/* A few errors more after the end, then it is enough. */
		if (__atomic_load_n(&t->killed, __ATOMIC_ACQUIRE) && !guest_frontend_alive(t->fe) &&
		    rnd(&w->rng, 8) == 0)
			break;
	}
	for (unsigned int i = 0; i < FILES; i++)
		guest_file_close(g_steal_pointer(&w->f[i]));
	return NULL;
}

static void one_round(struct torture *t, uint64_t ops, bool kill_it, uint64_t *rng)
{
	struct worker w[THREADS];
	GThread *threads[THREADS];

	start_daemon(t);
	t->ops = *rng;
	connect_to_it(t);
	t->ops = ops;
	t->left = 0;
	t->killed = false;
	t->kill_at = kill_it ? 1 + rnd(rng, ops * THREADS * 3 / 4) : UINT64_MAX;
	for (unsigned int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.t = t, .index = i, .rng = rnd(rng, UINT64_MAX) | 1};
		threads[i] = g_thread_new("torture", worker_thread, &w[i]);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		g_thread_join(threads[i]);
	leave(t, !kill_it);
}

static void test_killed_and_started_again(void)
{
	uint64_t rounds = env("GUEST_TORTURE_ROUNDS", 6), ops = env("GUEST_TORTURE_OPS", 300);
	uint64_t seed = env("GUEST_TORTURE_SEED", (uint64_t)g_get_monotonic_time()), rng = seed | 1;
	struct torture *t = g_new0(struct torture, 1);
	unsigned int fds = 0, threads = 0;
	g_autoptr(GError) error = NULL;

	g_test_message("seed %" G_GUINT64_FORMAT, seed);
	t->daemon = daemon_path;
	t->dir = g_dir_make_tmp("daxmapd-torture-XXXXXX", &error);
	g_assert_no_error(error);
	t->share = g_build_filename(t->dir, "share", NULL);
	t->socket = g_build_filename(t->dir, "socket", NULL);
	g_assert_cmpint(mkdir(t->share, 0700), ==, 0);
	lay_out(t);
	for (uint64_t i = 0; i < rounds; i++) {
		one_round(t, ops, i + 1 < rounds, &rng);
		util_rcu_barrier();
		if (i == 0) {
			fds = count_fds();
			threads = count_tasks(0);
		}
		g_assert_cmpuint(count_fds(), ==, fds);
		g_assert_cmpuint(count_tasks(threads), <=, threads);
	}
	g_test_message("%" G_GUINT64_FORMAT " gets, %" G_GUINT64_FORMAT " reads, %" G_GUINT64_FORMAT
		       " writes, %" G_GUINT64_FORMAT " closes, %" G_GUINT64_FORMAT " errors",
		       t->gets, t->reads, t->writes, t->reopens, t->errors);
	for (unsigned int i = 0; i < FILES; i++) {
		g_autofree char *path = g_strdup_printf("%s/f%u", t->share, i);

		unlink(path);
	}
	rmdir(t->share);
	unlink(t->socket);
	rmdir(t->dir);
	g_free(t->dir);
	g_free(t->share);
	g_free(t->socket);
	g_free(t);
}

int main(int argc, char **argv)
{
	int rc;

	signal(SIGPIPE, SIG_IGN);
	g_test_init(&argc, &argv, NULL);
	daemon_path = argc > 1 ? argv[1] : g_getenv("DAXMAPD");
	if (!daemon_path) {
		fprintf(stderr, "usage: t_guest_torture DAXMAPD\n");
		return 2;
	}
	watchdog_start((unsigned int)env("GUEST_TORTURE_SECONDS", 240));
	g_test_add_func("/guest/torture", test_killed_and_started_again);
	rc = g_test_run();
	watchdog_stop();
	return rc;
}
