// SPDX-License-Identifier: Apache-2.0
/*
 * Truncations on the host that are held until the VMM shows zeros. The window lies in this
 * process, and threads touch all of it all the time, as the processors of a guest: a page behind
 * the end of its file kills the test. What is unmapped for a moment reads as zeros in a VMM, and
 * as SIGSEGV here: counted.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raw_util.h"

#define ROOT 1u
#define PAGE 4096u
#define SLOTS 4u
#define SIZE (SLOTS * RAW_SLOT)
#define SEED 7u
#define READ_ONLY FUSE_SETUPMAPPING_FLAG_READ
#define MAP_RW (FUSE_SETUPMAPPING_FLAG_READ | FUSE_SETUPMAPPING_FLAG_WRITE)

static const struct guest_config fs_map = {
	.window = {.mode = GUEST_WINDOW_FS_MAP, .size = 64ull << 20},
};

/* NULL: skipped. */
static struct raw *start(const struct guest_config *c, const char *args)
{
	struct raw *r = raw_start(args);

	raw_connect(r, c);
	if (raw_log_lines(r, "on the host: held until"))
		return r;
	g_test_skip("truncations cannot be held here");
	raw_stop(r);
	return NULL;
}

static uint8_t *window(struct raw *r)
{
	return guest_window_base(r->window);
}

static int setup(struct raw *r, uint64_t node, uint64_t slot, uint64_t flags)
{
	return guest_fuse_setupmapping(r->fuse, node, slot * RAW_SLOT, RAW_SLOT, flags,
				       slot * RAW_SLOT);
}

static uint64_t map_all(struct raw *r, uint64_t flags)
{
	uint64_t node;

	raw_make_file(r, "f", SIZE, SEED);
	node = raw_node(r, "f");
	for (unsigned int i = 0; i < SLOTS; i++)
		raw_assert_ok(setup(r, node, i, flags));
	g_assert_cmpint(raw_wait_stat(r, "watch.guarded", 1), ==, 1);
	return node;
}

/* --- a processor --- */

static __thread sigjmp_buf back;
static __thread bool is_cpu;
static struct raw *now;
static unsigned int bus_errors;

static void on_fault(int sig, siginfo_t *si, void *ctx)
{
	const uint8_t *at = si->si_addr;

	if (!is_cpu || at < window(now) || at >= window(now) + SIZE) {
		signal(sig, SIG_DFL);
		return;
	}
	if (sig == SIGBUS)
		__atomic_add_fetch(&bus_errors, 1, __ATOMIC_SEQ_CST);
	siglongjmp(back, 1);
}

struct cpu {
	pthread_t thread;
	struct raw *r;
	bool stop;
	uint64_t old;
	uint64_t zeros;
	uint64_t holes;
	uint64_t foreign;
};

static void look(struct cpu *c, uint64_t at)
{
	uint64_t v;

	if (sigsetjmp(back, 1)) {
		c->holes++;
		return;
	}
	v = *(volatile uint64_t *)(void *)(window(c->r) + at);
	if (v == 0)
		c->zeros++;
	else if (raw_check_bytes(&v, at, sizeof(v), SEED))
		c->old++;
	else
		c->foreign++;
}

static void *run_cpu(void *arg)
{
	struct cpu *c = arg;

	is_cpu = true;
	while (!__atomic_load_n(&c->stop, __ATOMIC_SEQ_CST))
		for (uint64_t at = 0; at < SIZE; at += PAGE)
			look(c, at + 8);
	return NULL;
}

static void start_cpu(struct cpu *c, struct raw *r)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};

	now = r;
	bus_errors = 0;
	sigaction(SIGBUS, &sa, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	*c = (struct cpu){.r = r};
	g_assert_cmpint(pthread_create(&c->thread, NULL, run_cpu, c), ==, 0);
}

/* No byte was one that the file never had. */
static void stop_cpu(struct cpu *c)
{
	__atomic_store_n(&c->stop, true, __ATOMIC_SEQ_CST);
	pthread_join(c->thread, NULL);
	signal(SIGBUS, SIG_DFL);
	signal(SIGSEGV, SIG_DFL);
	g_test_message("a processor saw: the file %" PRIu64 ", zeros %" PRIu64
		       ", nothing for a moment %" PRIu64,
		       c->old, c->zeros, c->holes);
	g_assert_cmpuint(c->foreign, ==, 0);
	g_assert_cmpuint(c->old, >, 0);
}

/* --- truncations --- */

static void shorten(struct raw *r, int fd, unsigned int how, uint64_t to)
{
	g_autofree char *path = raw_path(r, "f");
	int other;

	switch (how % 3) {
	case 0:
		g_assert_cmpint(truncate(path, (off_t)to), ==, 0);
		break;
	case 1:
		g_assert_cmpint(ftruncate(fd, (off_t)to), ==, 0);
		break;
	default:
		other = open(path, O_RDWR | O_TRUNC | O_CLOEXEC);
		g_assert_cmpint(other, >=, 0);
		close(other);
	}
}

/* The host writes the file anew. */
static void refill(int fd, const void *bytes)
{
	g_assert_cmpint(pwrite(fd, bytes, SIZE, 0), ==, SIZE);
}

/* The guest has been told. */
static void wait_told(struct raw *r, uint64_t node)
{
	struct fuse_attr a;

	do
		raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	while (a.size < SIZE);
}

/* Over and over, to lengths of all kinds, by all three calls. */
static void truncate_often(const struct guest_config *c, const char *args, unsigned int times)
{
	static const uint64_t to[] = {
		0,	  PAGE,		5000,	     RAW_SLOT - 1,
		RAW_SLOT, RAW_SLOT + 1, SIZE - PAGE, 2 * RAW_SLOT + 300 * PAGE};
	struct raw *r = start(c, args);
	g_autofree char *path = NULL, *bytes = NULL;
	struct cpu cpu;
	uint64_t node;
	int fd;

	if (!r)
		return;
	node = map_all(r, READ_ONLY);
	path = raw_path(r, "f");
	g_assert_true(g_file_get_contents(path, &bytes, NULL, NULL));
	fd = open(path, O_RDWR | O_CLOEXEC);
	start_cpu(&cpu, r);
	for (unsigned int i = 0; i < times; i++) {
		shorten(r, fd, i, to[i % G_N_ELEMENTS(to)]);
		refill(fd, bytes);
		if (i % 5 < 2) /* else ranges may still show zeros when the next one comes */
			wait_told(r, node);
	}
	wait_told(r, node);
	stop_cpu(&cpu);
	g_assert_true(raw_check_bytes(window(r), 0, SIZE, SEED));
	g_assert_cmpint(raw_stat(r, "watch.held"), ==, times);
	g_assert_cmpint(raw_stat(r, "watch.left"), ==, 0);
	g_assert_cmpint(raw_stat(r, "watch.holes"), ==, 0);
	g_assert_cmpint(raw_stat(r, "watch.failed"), ==, 0);
	if (raw_stat(r, "watch.late"))
		g_test_message("a slow machine: some were let go too early; SIGBUS %u", bus_errors);
	else
		g_assert_cmpuint(bus_errors, ==, 0);
	close(fd);
	raw_stop(r);
}

static void test_often(void)
{
	truncate_often(NULL, NULL, g_test_slow() ? 1000 : 24);
}

/* A VMM that overlays: never a moment without the file's bytes. */
static void test_overlay(void)
{
	truncate_often(&fs_map, "--window-dialect=fs_map", g_test_slow() ? 1000 : 8);
}

/* What the guest may be storing to is not taken away, not for a moment: left, as before. */
static void test_written(void)
{
	struct raw *r = start(NULL, NULL);

	if (!r)
		return;
	map_all(r, MAP_RW);
	shorten(r, -1, 0, RAW_SLOT + 5000);
	g_assert_cmpint(raw_stat(r, "watch.held"), ==, 1);
	g_assert_cmpint(raw_stat(r, "watch.blanked"), ==, 2);
	g_assert_cmpint(raw_stat(r, "watch.left"), ==, 1);
	g_assert_cmpint(raw_stat(r, "watch.torn"), ==, 0);
	g_assert_true(raw_check_bytes(window(r), 0, RAW_SLOT + 5000, SEED));
	raw_stop(r);
}

/* Others read, write, and open it: nothing is held, no byte hidden. The guest truncates: nothing
 * is held either. */
static void test_not_held(void)
{
	struct raw *r = start(NULL, NULL);
	g_autofree char *path = NULL;
	uint64_t node, fh;
	char buf[PAGE];
	int fd;

	if (!r)
		return;
	node = map_all(r, READ_ONLY);
	path = raw_path(r, "f");
	fd = open(path, O_RDWR | O_CLOEXEC);
	for (unsigned int i = 0; i < 50; i++) {
		g_assert_cmpint(pread(fd, buf, 0, 0), ==, 0);
		g_assert_cmpint(pread(fd, buf, PAGE, i * PAGE), ==, PAGE);
		g_assert_cmpint(pwrite(fd, buf, PAGE, i * PAGE), ==, PAGE);
		close(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	}
	g_assert_true(raw_check_bytes(window(r), 0, SIZE, SEED));
	for (unsigned int i = 0; i < SLOTS; i++)
		raw_assert_ok(guest_fuse_removemapping(r->fuse, node, i * RAW_SLOT, RAW_SLOT));
	raw_assert_ok(setup(r, node, 0, READ_ONLY));
	raw_assert_ok(guest_fuse_truncate(r->fuse, node, RAW_SLOT));
	raw_assert_ok(guest_fuse_truncate(r->fuse, node, SIZE));
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR | O_TRUNC, &fh));
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
	g_assert_cmpint(raw_stat(r, "watch.held"), ==, 0);
	g_assert_cmpint(raw_stat(r, "watch.blanked"), ==, 0);
	close(fd);
	raw_stop(r);
}

/* A guest's write makes the file longer while a truncation is under way: it is answered when that
 * is over, and its bytes are there. */
static void test_guest_grows_it(void)
{
	struct raw *r = start(NULL, NULL);
	g_autofree char *path = NULL;
	uint8_t *buf;
	uint64_t node, fh;

	if (!r)
		return;
	node = map_all(r, READ_ONLY);
	path = raw_path(r, "f");
	buf = guest_mem_alloc(r->mem, PAGE);
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR, &fh));
	for (unsigned int i = 0; i < 20; i++) {
		uint64_t at = 3 * RAW_SLOT + i * PAGE;

		buf[0] = (uint8_t)(i + 1);
		g_assert_cmpint(truncate(path, (off_t)(i * 777)), ==, 0);
		g_assert_cmpint(guest_fuse_write(r->fuse, node, fh, at, buf, 1), ==, 1);
		g_assert_cmpuint(window(r)[at], ==, i + 1);
		g_assert_cmpuint(window(r)[RAW_SLOT], ==, 0);
	}
	g_assert_cmpint(raw_stat(r, "watch.held"), ==, 20);
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
	raw_stop(r);
}

/* --- who is stuck or dead --- */

static void *truncate_it(void *arg)
{
	shorten(arg, -1, 0, RAW_SLOT);
	return NULL;
}

/* A truncation that waits for a VMM which does not answer. */
static pthread_t hold_one(struct raw *r)
{
	pthread_t thread;

	map_all(r, READ_ONLY);
	guest_window_hold(r->window, true);
	pthread_create(&thread, NULL, truncate_it, r);
	g_assert_cmpint(raw_wait_stat(r, "watch.held", 1), ==, 1);
	return thread;
}

/* The VMM does not answer: whoever truncates goes on, and the next one is not even held. */
static void test_stuck_vmm(void)
{
	struct raw *r = start(NULL, NULL);

	if (!r)
		return;
	map_all(r, READ_ONLY);
	guest_window_hold(r->window, true);
	shorten(r, -1, 0, RAW_SLOT);
	g_assert_cmpint(raw_stat(r, "watch.held"), ==, 1);
	g_assert_cmpint(raw_stat(r, "watch.blanked"), ==, 0);
	shorten(r, -1, 0, 0);
	guest_window_hold(r->window, false);
	g_assert_cmpint(raw_wait_stat(r, "watch.late", 2), ==, 2);
	g_assert_cmpint(raw_wait_stat(r, "watch.blanked", SLOTS), ==, SLOTS);
	g_assert_true(raw_wait_log(r, "went on before all its mappings were replaced", 1));
	raw_stop(r);
}

static pid_t process_of(struct raw *r, const char *name)
{
	DIR *proc = opendir("/proc");
	pid_t found = 0;

	for (struct dirent *e; !found && (e = readdir(proc));) {
		g_autofree char *path = g_strdup_printf("/proc/%s/stat", e->d_name);
		g_autofree char *text = NULL;
		int parent;

		if (g_ascii_isdigit(e->d_name[0]) && g_file_get_contents(path, &text, NULL, NULL) &&
		    strstr(text, name) && sscanf(strrchr(text, ')') + 1, " %*c %d", &parent) == 1 &&
		    parent == r->pid)
			found = atoi(e->d_name);
	}
	closedir(proc);
	return found;
}

/* The guard is killed while it holds one. From then on truncations are noticed afterwards. */
static void test_guard_dies(void)
{
	struct raw *r = start(NULL, NULL);
	pthread_t thread;

	if (!r)
		return;
	thread = hold_one(r);
	g_assert_cmpint(kill(process_of(r, "(daxmapd-hold)"), SIGKILL), ==, 0);
	pthread_join(thread, NULL);
	guest_window_hold(r->window, false);
	g_assert_true(raw_wait_log(r, "guard of truncations has died", 1));
	g_assert_cmpint(raw_wait_stat(r, "watch.blanked", 3), ==, 3);
	g_assert_cmpint(raw_stat(r, "watch.guarded"), ==, 0);
	shorten(r, -1, 0, 0);
	g_assert_cmpint(raw_wait_stat(r, "watch.blanked", 4), ==, 4);
	g_assert_cmpint(raw_stat(r, "watch.held"), ==, 1);
	raw_stop(r);
}

/* The daemon dies while one is held. */
static void test_daemon_dies(void)
{
	struct raw *r = start(NULL, NULL);
	pthread_t thread;

	if (!r)
		return;
	thread = hold_one(r);
	g_assert_cmpint(kill(raw_daemon_pid(r), SIGKILL), ==, 0);
	pthread_join(thread, NULL);
	guest_window_hold(r->window, false);
	raw_wait_exit(r);
	raw_stop(r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/hold/often", test_often);
	g_test_add_func("/hold/overlay", test_overlay);
	g_test_add_func("/hold/written", test_written);
	g_test_add_func("/hold/not-held", test_not_held);
	g_test_add_func("/hold/guest-grows-it", test_guest_grows_it);
	g_test_add_func("/hold/stuck-vmm", test_stuck_vmm);
	g_test_add_func("/hold/guard-dies", test_guard_dies);
	g_test_add_func("/hold/daemon-dies", test_daemon_dies);
	return g_test_run();
}
