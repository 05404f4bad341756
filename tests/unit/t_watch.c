// SPDX-License-Identifier: Apache-2.0
/* Files truncated on the host under their mappings: a real table over a window in this process, so
 * that a byte which is not replaced in time is SIGBUS here. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sched.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <daxmap/local.h>
#include <daxmap/table.h>

#include "watch.h"
#include "watch_fan.h"
#include "window_fake.h"

#define SLOT (UINT64_C(2) << 20)
#define SLOTS 8
#define PAGE UINT64_C(4096)
#define FILES 3

struct rig {
	char *dir;
	struct dm_window *w;
	struct dm_table *t;
	struct watch *watch;
	unsigned int others;
};

static char *path_of(const struct rig *g, uint64_t n)
{
	return g_strdup_printf("%s/f%u", g->dir, (unsigned int)n);
}

static struct dm_file_key key_of(uint64_t n)
{
	return (struct dm_file_key){.lo = n};
}

static int provide(void *ctx, struct dm_file_key key, bool *writable)
{
	struct rig *g = ctx;
	g_autofree char *path = path_of(g, key.lo);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	g_assert_cmpint(fd, >=, 0);
	*writable = true;
	watch_open(g->watch, key, fd);
	return fd;
}

static void give_back(void *ctx, struct dm_file_key key, int fd)
{
	watch_close(((struct rig *)ctx)->watch, key);
	close(fd);
}

static int zeros(void *ctx, uint64_t len)
{
	return watch_zeros(len);
}

static void make_file(const struct rig *g, uint64_t n, uint64_t size)
{
	g_autofree char *path = path_of(g, n);
	g_autofree char *bytes = g_malloc(size);

	memset(bytes, 'a' + (int)n, size);
	g_assert_true(g_file_set_contents(path, bytes, (gssize)size, NULL));
}

static void resize(const struct rig *g, uint64_t n, uint64_t size)
{
	g_autofree char *path = path_of(g, n);

	g_assert_cmpint(truncate(path, (off_t)size), ==, 0);
}

static void put_byte(const struct rig *g, uint64_t n, uint64_t at, char byte)
{
	g_autofree char *path = path_of(g, n);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	g_assert_cmpint(pwrite(fd, &byte, 1, (off_t)at), ==, 1);
	close(fd);
}

static struct rig *rig_new(struct dm_window *w, bool size_checks_only)
{
	const struct watch_config config = {.size_checks_only = size_checks_only, .other_fd = -1};
	struct dm_file_provider provider = {.open = provide, .close = give_back, .zeros = zeros};
	const struct dm_table_config tc = {.no_worker = true};
	struct rig *g = g_new0(struct rig, 1);

	g->dir = g_dir_make_tmp("t_watch-XXXXXX", NULL);
	g->w = w ? w : dm_window_local_new(SLOTS * SLOT, 0, NULL);
	provider.ctx = g;
	g->watch = watch_new(&config);
	g->t = dm_table_new(g->w, &provider, &tc);
	watch_start(g->watch, g->t);
	for (uint64_t n = 0; n < FILES; n++)
		make_file(g, n, 2 * SLOT);
	return g;
}

static struct watch_stats stats(const struct rig *g)
{
	struct watch_stats s;

	watch_get_stats(g->watch, &s);
	return s;
}

static void rig_free(struct rig *g)
{
	struct watch_stats s;

	dm_host_flush(g->t);
	s = stats(g);
	g_assert_cmpuint(s.files, ==, 0);
	g_assert_cmpuint(s.marked, ==, 0);
	g_assert_cmpuint(s.truncated_files, ==, 0);
	watch_stop(g->watch);
	dm_table_free(g->t);
	watch_free(g->watch);
	dm_window_destroy(g->w);
	for (uint64_t n = 0; n < FILES; n++) {
		g_autofree char *path = path_of(g, n);

		unlink(path);
	}
	rmdir(g->dir);
	g_free(g->dir);
	g_free(g);
}

static void map(struct rig *g, uint64_t n, uint64_t file_offset, uint64_t offset)
{
	g_assert_cmpint(dm_host_setup(g->t, offset, SLOT, key_of(n), file_offset, true), ==, 0);
	watch_mapped(g->watch, key_of(n), file_offset, SLOT);
}

static char byte_at(const struct rig *g, uint64_t offset)
{
	const volatile char *base = dm_window_base(g->w);

	if (!base)
		g_error("no window in this process");
	return base[offset];
}

#define WAIT_FOR(cond)                                                                             \
	do {                                                                                       \
		for (int i_ = 0; i_ < 10000 && !(cond); i_++)                                      \
			g_usleep(1000);                                                            \
		g_assert_true(cond);                                                               \
	} while (0)

/* --- what the kernel tells us --- */

static bool needs_fanotify(void)
{
	int fan = watch_fan_open();
	char name[] = "/tmp/t_watch-XXXXXX";
	struct watch_id id;
	int fd = mkstemp(name), err = fan;

	unlink(name);
	if (fan >= 0)
		err = watch_fan_add(fan, fd, &id);
	close(fd);
	if (fan >= 0)
		close(fan);
	if (err >= 0)
		return true;
	g_test_skip("no fanotify on the file system of temporary files");
	return false;
}

static void test_truncated(void)
{
	struct rig *g;

	if (!needs_fanotify())
		return;
	g = rig_new(NULL, false);
	map(g, 0, 0, 0);
	map(g, 0, SLOT, SLOT);
	g_assert_cmpint(byte_at(g, 2 * SLOT - 1), ==, 'a');
	g_assert_cmpuint(stats(g).marked, ==, 1);
	resize(g, 0, 5000);
	WAIT_FOR(stats(g).blanked == 2);
	g_assert_cmpint(byte_at(g, 4999), ==, 'a');
	g_assert_cmpint(byte_at(g, 2 * PAGE - 1), ==, 0);
	g_assert_cmpint(byte_at(g, 2 * PAGE), ==, 0);
	g_assert_cmpint(byte_at(g, 2 * SLOT - 1), ==, 0);
	g_assert_cmpuint(stats(g).truncations, ==, 1);
	g_assert_cmpuint(stats(g).left, ==, 0);
	g_assert_true(watch_is_truncated(g->watch, key_of(0)));
	g_assert_false(watch_is_truncated(g->watch, key_of(1)));
	/* The mark is back once it is not mapped. */
	dm_host_flush_file(g->t, key_of(0), true);
	g_assert_false(watch_is_truncated(g->watch, key_of(0)));
	map(g, 0, 0, 0);
	g_assert_false(watch_is_truncated(g->watch, key_of(0)));
	rig_free(g);
}

/* It grows again: no reply shows more of it than can be read through the window. */
static void test_grows_again(void)
{
	struct rig *g;
	uint64_t told;

	if (!needs_fanotify())
		return;
	g = rig_new(NULL, false);
	map(g, 0, 0, 0);
	map(g, 0, SLOT, SLOT);
	resize(g, 0, 100);
	WAIT_FOR(stats(g).blanked == 2);
	for (unsigned int i = 0; i < 50; i++) {
		uint64_t size = (i % 2 ? SLOT : SLOT / 2) + 10 * PAGE + i;

		resize(g, 0, 100);
		WAIT_FOR(watch_must_settle(g->watch, key_of(0)));
		put_byte(g, 0, size - 1, 'z');
		do {
			told = watch_size(g->watch, key_of(0), size);
			if (told == size) /* as a guest that has been told */
				g_assert_cmpint(byte_at(g, size - 1), ==, 'z');
			g_assert_cmpuint(told, >=, PAGE);
		} while (told != size);
	}
	g_assert_cmpuint(stats(g).failed, ==, 0);
	rig_free(g);
}

/* A guest makes it longer: settled before the answer. */
static void test_settle(void)
{
	struct rig *g = rig_new(NULL, true);

	map(g, 0, SLOT, SLOT);
	g_assert_false(watch_must_settle(g->watch, key_of(0)));
	resize(g, 0, 100);
	watch_size(g->watch, key_of(0), 100);
	WAIT_FOR(stats(g).blanked == 1);
	put_byte(g, 0, SLOT + 7, 'q');
	g_assert_true(watch_must_settle(g->watch, key_of(0)));
	g_assert_false(watch_must_settle(g->watch, key_of(1)));
	watch_settle(g->watch, key_of(0));
	g_assert_cmpint(byte_at(g, SLOT + 7), ==, 'q');
	g_assert_cmpint(byte_at(g, SLOT + PAGE), ==, 0); /* and the rest is still no SIGBUS */
	resize(g, 0, 2 * SLOT);
	watch_settle(g->watch, key_of(0));
	g_assert_false(watch_must_settle(g->watch, key_of(0)));
	g_assert_cmpint(byte_at(g, 2 * SLOT - 1), ==, 0);
	put_byte(g, 0, 2 * SLOT - 1, 'r');
	g_assert_cmpint(byte_at(g, 2 * SLOT - 1), ==, 'r');
	rig_free(g);
}

/* A guest makes it shorter: its own affair. */
static void test_guest_truncates(void)
{
	struct watch_file *f;
	struct rig *g;

	if (!needs_fanotify())
		return;
	g = rig_new(NULL, false);
	map(g, 0, SLOT, 0);
	f = watch_truncating(g->watch, key_of(0));
	g_assert_nonnull(f);
	resize(g, 0, 100);
	WAIT_FOR(stats(g).events > 0 && stats(g).checks >= 2);
	watch_truncated(g->watch, f);
	resize(g, 0, 101);
	WAIT_FOR(stats(g).events > 1 && stats(g).checks >= 4);
	g_assert_false(watch_is_truncated(g->watch, key_of(0)));
	g_assert_cmpuint(stats(g).truncations, ==, 0);
	g_assert_cmpuint(stats(g).blanked, ==, 0);
	/* And then somebody else does. */
	resize(g, 0, 99);
	WAIT_FOR(stats(g).blanked == 1);
	g_assert_cmpint(byte_at(g, 0), ==, 0);
	g_assert_null(watch_truncating(g->watch, key_of(1)));
	rig_free(g);
}

/* Mapped while it is being truncated: what the guest saw is not there. */
static void test_mapped_too_late(void)
{
	struct rig *g = rig_new(NULL, true);

	resize(g, 0, 100);
	map(g, 0, SLOT, 0);
	g_assert_cmpint(byte_at(g, 5), ==, 0);
	g_assert_cmpuint(stats(g).blanked, ==, 1);
	g_assert_false(watch_is_truncated(g->watch, key_of(0)));
	resize(g, 0, 99);
	watch_size(g->watch, key_of(0), 99);
	WAIT_FOR(watch_is_truncated(g->watch, key_of(0)));
	map(g, 0, 0, SLOT); /* reaches behind the end of one that is known for it */
	g_assert_cmpint(byte_at(g, 2 * SLOT - 1), ==, 0);
	g_assert_cmpint(byte_at(g, SLOT), ==, 'a');
	rig_free(g);
}

static void test_size_checks(void)
{
	struct rig *g = rig_new(NULL, true);

	map(g, 0, SLOT, 0);
	map(g, 1, SLOT, SLOT);
	g_assert_cmpuint(stats(g).mark_errors, ==, 2);
	resize(g, 0, 100);
	resize(g, 1, 100);
	watch_touched(g->watch, key_of(0)); /* a READ */
	WAIT_FOR(stats(g).blanked == 1);
	g_assert_cmpint(byte_at(g, 0), ==, 0);
	watch_size(g->watch, key_of(1), 100); /* a GETATTR */
	WAIT_FOR(stats(g).blanked == 2);
	g_assert_cmpint(byte_at(g, SLOT), ==, 0);
	rig_free(g);
}

/* Where nothing can be cut, the slot with the new end stays, and is counted. */
static void test_what_is_left(void)
{
	const struct window_fake_config fc = {
		.caps = {.size = SLOTS * SLOT, .granule = PAGE, .max_mappings = 8, .batch = 4},
	};
	struct rig *g = rig_new(window_fake_new(&fc), true);
	const struct window_fake_page *pages = window_fake_pages(g->w);

	map(g, 0, 0, 0);
	map(g, 0, SLOT, SLOT);
	resize(g, 0, 5000);
	watch_size(g->watch, key_of(0), 5000);
	WAIT_FOR(stats(g).blanked == 1);
	g_assert_cmpuint(stats(g).left, ==, 1);
	g_assert_cmpuint(pages[SLOT / PAGE].flags, ==, DM_MAP_WRITE | DM_MAP_BLANK);
	g_assert_cmpuint(pages[0].flags, ==, DM_MAP_WRITE);
	g_assert_null(window_fake_violation(g->w));
	rig_free(g);
}

/* --- limits --- */

static void test_too_many_marks(void)
{
	struct rig *g;

	if (!g_test_subprocess()) {
		g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_INHERIT_STDERR);
		g_test_trap_assert_passed();
		return;
	}
	/* A user namespace has a limit of its own. */
	if (unshare(CLONE_NEWUSER) < 0 ||
	    !g_file_set_contents_full("/proc/sys/user/max_fanotify_marks", "1", 1,
				      G_FILE_SET_CONTENTS_NONE, 0644, NULL))
		_exit(0);
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
	g = rig_new(NULL, false);
	map(g, 0, SLOT, 0);
	map(g, 1, SLOT, SLOT);
	g_assert_cmpuint(stats(g).marked, <=, 1);
	g_assert_cmpuint(stats(g).mark_errors, >=, 1);
	resize(g, 1, 100);
	watch_touched(g->watch, key_of(1));
	WAIT_FOR(stats(g).blanked == 1);
	g_assert_cmpint(byte_at(g, SLOT), ==, 0);
	rig_free(g);
	_exit(0);
}

static void test_no_descriptors(void)
{
	struct rlimit limit;
	struct rig *g;
	int fd;

	if (!g_test_subprocess()) {
		g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_INHERIT_STDERR);
		g_test_trap_assert_passed();
		return;
	}
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR);
	g = rig_new(NULL, false);
	fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)fd + 1;
	setrlimit(RLIMIT_NOFILE, &limit);
	watch_open(g->watch, key_of(9), fd);
	g_assert_cmpuint(stats(g).mark_errors, ==, 1);
	g_assert_cmpuint(watch_size(g->watch, key_of(9), 17), ==, 17);
	watch_touched(g->watch, key_of(9));
	watch_mapped(g->watch, key_of(9), 0, SLOT);
	watch_truncated(g->watch, watch_truncating(g->watch, key_of(9)));
	g_assert_cmpint(watch_zeros(SLOT), ==, -EMFILE);
	watch_close(g->watch, key_of(9));
	close(fd);
	rig_free(g);
	_exit(0);
}

static unsigned int seen_ids, seen_lost;

static void count_event(void *ctx, const struct watch_id *id)
{
	if (id)
		seen_ids++;
	else
		seen_lost++;
}

/* Events that say that others were lost, that are of an unknown kind, or cut off. */
static void test_lost_events(void)
{
	struct fanotify_event_metadata m = {
		.event_len = sizeof(m),
		.metadata_len = sizeof(m),
		.vers = FANOTIFY_METADATA_VERSION,
		.mask = FAN_Q_OVERFLOW,
		.fd = FAN_NOFD,
	};
	unsigned char buf[3 * sizeof(m)];

	seen_ids = seen_lost = 0;
	memcpy(buf, &m, sizeof(m));
	m.mask = FAN_MODIFY; /* and no file */
	memcpy(buf + sizeof(m), &m, sizeof(m));
	m.vers++;
	memcpy(buf + 2 * sizeof(m), &m, sizeof(m));
	g_assert_cmpuint(watch_fan_parse(buf, sizeof(buf), count_event, NULL), ==, 3);
	g_assert_cmpuint(seen_lost, ==, 3);
	g_assert_cmpuint(watch_fan_parse(buf, sizeof(buf) - 1, count_event, NULL), ==, 2);
	m.event_len = 5;
	memcpy(buf, &m, sizeof(m));
	g_assert_cmpuint(watch_fan_parse(buf, sizeof(buf), count_event, NULL), ==, 0);
	g_assert_cmpuint(seen_ids, ==, 0);
}

/* Two names of one file that is mapped under both: a mark is the inode's, and goes with the last.
 */
static void test_two_entries(void)
{
	g_autofree char *path = NULL, *other = NULL;
	struct rig *g;

	if (!needs_fanotify())
		return;
	g = rig_new(NULL, false);
	path = path_of(g, 0);
	other = path_of(g, 1);
	g_assert_cmpint(unlink(other), ==, 0);
	g_assert_cmpint(link(path, other), ==, 0);
	map(g, 0, SLOT, 0);
	map(g, 1, SLOT, SLOT);
	dm_host_flush_file(g->t, key_of(1), true);
	resize(g, 0, 100);
	WAIT_FOR(stats(g).blanked == 1);
	g_assert_cmpint(byte_at(g, 0), ==, 0);
	rig_free(g);
}

static void test_unprivileged(void)
{
	char name[] = "/tmp/t_watch-XXXXXX";
	struct watch_id id;
	int fd, fan;

	if (!g_test_subprocess()) {
		if (!needs_fanotify())
			return;
		g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_INHERIT_STDERR);
		g_test_trap_assert_passed();
		return;
	}
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
		_exit(0);
	fd = mkstemp(name);
	fan = watch_fan_open();
	g_assert_cmpint(fan, >=, 0);
	g_assert_cmpint(watch_fan_add(fan, fd, &id), ==, 0);
	unlink(name);
	g_assert_cmpint(ftruncate(fd, 5), ==, 0);
	seen_ids = seen_lost = 0;
	g_assert_cmpuint(watch_fan_read(fan, count_event, NULL), ==, 1);
	g_assert_cmpuint(seen_ids, ==, 1);
	watch_fan_remove(fan, fd);
	g_assert_cmpint(ftruncate(fd, 4), ==, 0);
	g_assert_cmpuint(watch_fan_read(fan, count_event, NULL), ==, 0);
	_exit(0);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL);
	g_test_add_func("/watch/truncated", test_truncated);
	g_test_add_func("/watch/grows-again", test_grows_again);
	g_test_add_func("/watch/settle", test_settle);
	g_test_add_func("/watch/guest-truncates", test_guest_truncates);
	g_test_add_func("/watch/mapped-too-late", test_mapped_too_late);
	g_test_add_func("/watch/size-checks", test_size_checks);
	g_test_add_func("/watch/what-is-left", test_what_is_left);
	g_test_add_func("/watch/two-entries", test_two_entries);
	g_test_add_func("/watch/limits/marks", test_too_many_marks);
	g_test_add_func("/watch/limits/descriptors", test_no_descriptors);
	g_test_add_func("/watch/limits/events", test_lost_events);
	g_test_add_func("/watch/unprivileged", test_unprivileged);
	return g_test_run();
}
