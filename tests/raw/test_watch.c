// SPDX-License-Identifier: Apache-2.0
/*
 * Files truncated on the host under a guest's mappings, the death of the size shim's helper, and
 * the death of the VMM. The window lies in this process: a byte behind the end of a file that is
 * not replaced in time kills the test, as it would kill a VMM.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw_util.h"

#define MAP_RW (FUSE_SETUPMAPPING_FLAG_READ | FUSE_SETUPMAPPING_FLAG_WRITE)
#define ROOT 1u
#define PAGE 4096u

static const struct guest_config fs_map = {
	.window = {.mode = GUEST_WINDOW_FS_MAP, .size = 64ull << 20},
};

static struct raw *start(const struct guest_config *c, const char *args)
{
	struct raw *r = raw_start(args);

	raw_connect(r, c);
	g_assert_nonnull(guest_window_base(r->window));
	return r;
}

static uint8_t byte_at(struct raw *r, uint64_t moffset)
{
	return *((volatile uint8_t *)guest_window_base(r->window) + moffset);
}

static int setup(struct raw *r, uint64_t node, uint64_t slot, uint64_t mslot)
{
	return guest_fuse_setupmapping(r->fuse, node, slot * RAW_SLOT, RAW_SLOT, MAP_RW,
				       mslot * RAW_SLOT);
}

static void resize(struct raw *r, const char *name, uint64_t size)
{
	g_autofree char *path = raw_path(r, name);

	g_assert_cmpint(truncate(path, (off_t)size), ==, 0);
}

static void host_write(struct raw *r, const char *name, uint64_t at, char byte)
{
	g_autofree char *path = raw_path(r, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	g_assert_cmpint(pwrite(fd, &byte, 1, (off_t)at), ==, 1);
	close(fd);
}

static bool marked(struct raw *r, uint64_t node)
{
	struct fuse_attr a;

	raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	return a.flags & FUSE_ATTR_DAX;
}

static bool looked_up_marked(struct raw *r, const char *name)
{
	struct fuse_entry_out e;

	raw_assert_ok(guest_fuse_lookup(r->fuse, ROOT, name, &e));
	return e.attr.flags & FUSE_ATTR_DAX;
}

/* What a guest has been told is there can be read through the window. */
static void wait_size(struct raw *r, uint64_t node, uint64_t want)
{
	struct fuse_attr a;

	do
		raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	while (a.size < want);
	g_assert_cmpuint(a.size, ==, want);
}

static bool has_fanotify(struct raw *r)
{
	if (raw_stat(r, "watch.marked") > 0)
		return true;
	g_test_message("no fanotify here: sizes are checked at requests");
	return false;
}

/* A VMM without overlay: whole slots are replaced; nothing that the file still has goes. */
static void test_truncated(void)
{
	struct raw *r = start(NULL, NULL);
	uint8_t *buf = guest_mem_alloc(r->mem, PAGE);
	uint64_t node, fh;

	raw_make_file(r, "f", 4 * RAW_SLOT, 7);
	node = raw_node(r, "f");
	g_assert_true(marked(r, node));
	for (unsigned int i = 0; i < 4; i++)
		raw_assert_ok(setup(r, node, i, 5 - i));
	resize(r, "f", 5000);
	if (!has_fanotify(r))
		marked(r, node);
	g_assert_cmpint(raw_wait_stat(r, "watch.blanked", 3), ==, 3);
	g_assert_cmpint(raw_stat(r, "watch.truncations"), ==, 1);
	g_assert_cmpint(raw_stat(r, "watch.left"), ==, 1);
	g_assert_true(guest_window_wait_idle(r->window, RAW_TIMEOUT));
	for (unsigned int i = 1; i < 4; i++) {
		g_assert_cmpuint(byte_at(r, (5 - i) * RAW_SLOT), ==, 0);
		g_assert_cmpuint(byte_at(r, (6 - i) * RAW_SLOT - 1), ==, 0);
		/* The guest's stores there are lost, and hurt nobody. */
		memset((uint8_t *)guest_window_base(r->window) + (5 - i) * RAW_SLOT, 'x', PAGE);
	}
	g_assert_true(raw_check_bytes((uint8_t *)guest_window_base(r->window) + 5 * RAW_SLOT, 0,
				      5000, 7));
	/* No mark, in whatever reply; reads and writes go on. */
	g_assert_false(marked(r, node));
	g_assert_false(looked_up_marked(r, "f"));
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR, &fh));
	g_assert_cmpint(guest_fuse_read(r->fuse, node, fh, PAGE, buf, PAGE), ==, 5000 - PAGE);
	memcpy(buf, "hello", 5);
	g_assert_cmpint(guest_fuse_write(r->fuse, node, fh, 5000, buf, 5), ==, 5);
	g_assert_cmpuint(byte_at(r, 5 * RAW_SLOT + 5004), ==, 'o');
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
	g_assert_cmpuint(raw_log_lines(r, "was truncated on the host"), ==, 1);
	/* The mark is back once it is not mapped. */
	resize(r, "f", RAW_SLOT);
	wait_size(r, node, RAW_SLOT);
	raw_assert_ok(guest_fuse_destroy(r->fuse));
	raw_assert_ok(guest_fuse_init(r->fuse, 0, NULL));
	g_assert_true(marked(r, raw_node(r, "f")));
	g_assert_cmpint(raw_stat(r, "watch.truncated_files"), ==, 0);
	g_assert_cmpint(raw_stat(r, "watch.files"), ==, 0);
	raw_stop(r);
}

static pid_t helper_of(struct raw *r)
{
	DIR *proc = opendir("/proc");
	pid_t found = 0;

	for (struct dirent *e; !found && (e = readdir(proc));) {
		g_autofree char *path = g_strdup_printf("/proc/%s/stat", e->d_name);
		g_autofree char *text = NULL;
		const char *rest;
		int parent;

		if (!g_ascii_isdigit(e->d_name[0]) ||
		    !g_file_get_contents(path, &text, NULL, NULL) ||
		    !strstr(text, "(daxmapd-shim)"))
			continue;
		rest = strrchr(text, ')');
		if (sscanf(rest + 1, " %*c %d", &parent) == 1 && parent == r->pid)
			found = atoi(e->d_name);
	}
	closedir(proc);
	return found;
}

/* The file grows again: for a guest that has been told so, its bytes are there. */
static void grows_again(const struct guest_config *c, const char *args)
{
	struct raw *r = start(c, args);
	uint64_t node;

	raw_make_file(r, "f", 3 * RAW_SLOT, 7);
	node = raw_node(r, "f");
	for (unsigned int i = 0; i < 3; i++)
		raw_assert_ok(setup(r, node, i, i));
	for (unsigned int i = 0; i < 30; i++) {
		uint64_t size = (i % 2 ? 2 : 1) * RAW_SLOT + i * PAGE + i;
		int64_t blanked = raw_stat(r, "watch.blanked");

		resize(r, "f", 100 + i);
		wait_size(r, node, 100 + i);
		for (unsigned int k = 0; k < 2000 && raw_stat(r, "watch.blanked") == blanked; k++)
			g_usleep(1000);
		g_assert_cmpint(raw_stat(r, "watch.blanked"), >, blanked);
		host_write(r, "f", size, 'g');
		wait_size(r, node, size + 1);
		g_assert_cmpuint(byte_at(r, size), ==, 'g');
	}
	g_assert_cmpint(raw_stat(r, "watch.failed"), ==, 0);
	g_assert_cmpint(raw_stat(r, "watch.restored"), >=, 30);
	g_assert_cmpuint(raw_log_lines(r, "was truncated on the host"), ==, 1);
	raw_stop(r);
}

static void test_grows_again(void)
{
	struct raw *r = start(NULL, NULL);
	bool shim = helper_of(r);

	raw_stop(r);
	/* Without the shim the range with the end of the file in it cannot be mapped again: the
	 * file stays short for the guest. */
	if (shim)
		grows_again(NULL, NULL);
	else
		g_test_message("no size shim: the shmem dialect is left out");
	grows_again(&fs_map, "--window-dialect=fs_map");
}

/* As the guest makes it grow, before it is answered; a VMM that overlays replaces to the page. */
static void test_guest_grows_it(void)
{
	struct raw *r = start(&fs_map, "--window-dialect=fs_map");
	uint8_t *buf = guest_mem_alloc(r->mem, PAGE);
	uint64_t node, fh;

	raw_make_file(r, "f", 2 * RAW_SLOT, 7);
	node = raw_node(r, "f");
	raw_assert_ok(setup(r, node, 0, 0));
	raw_assert_ok(setup(r, node, 1, 1));
	resize(r, "f", 5000);
	marked(r, node);
	g_assert_cmpint(raw_wait_stat(r, "watch.blanked", 2), ==, 2);
	g_assert_cmpint(raw_stat(r, "watch.left"), ==, 0);
	g_assert_cmpuint(byte_at(r, 2 * PAGE), ==, 0);
	g_assert_cmpuint(byte_at(r, RAW_SLOT - 1), ==, 0);
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR, &fh));
	for (unsigned int i = 0; i < 20; i++) {
		uint64_t pos = 3 * PAGE + i * 17 * PAGE;

		buf[0] = (uint8_t)(i + 1);
		g_assert_cmpint(guest_fuse_write(r->fuse, node, fh, pos, buf, 1), ==, 1);
		g_assert_cmpuint(byte_at(r, pos), ==, i + 1);
		g_assert_cmpuint(byte_at(r, pos + PAGE), ==, 0);
	}
	raw_assert_ok(guest_fuse_truncate(r->fuse, node, RAW_SLOT));
	host_write(r, "f", RAW_SLOT - 1, 'h');
	g_assert_cmpuint(byte_at(r, RAW_SLOT - 1), ==, 'h');
	raw_assert_ok(guest_fuse_fallocate(r->fuse, node, fh, 0, 2 * RAW_SLOT, 0));
	host_write(r, "f", 2 * RAW_SLOT - 1, 'i');
	g_assert_cmpuint(byte_at(r, 2 * RAW_SLOT - 1), ==, 'i');
	raw_stop(r);
}

/* A guest that truncates has let go of what lies behind. */
static void test_guest_truncates(void)
{
	struct raw *r = start(NULL, NULL);
	uint64_t node, fh;

	raw_make_file(r, "f", 2 * RAW_SLOT, 7);
	node = raw_node(r, "f");
	raw_assert_ok(setup(r, node, 0, 0));
	raw_assert_ok(setup(r, node, 1, 1));
	for (unsigned int i = 0; i < 20; i++) {
		raw_assert_ok(guest_fuse_truncate(r->fuse, node, 1000 + i));
		raw_assert_ok(guest_fuse_truncate(r->fuse, node, 2 * RAW_SLOT));
		g_assert_cmpuint(byte_at(r, 2 * RAW_SLOT - 1), ==, 0);
	}
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR | O_TRUNC, &fh));
	raw_assert_ok(guest_fuse_truncate(r->fuse, node, 2 * RAW_SLOT));
	g_assert_true(marked(r, node));
	g_assert_cmpint(raw_stat(r, "watch.truncations"), ==, 0);
	g_assert_cmpint(raw_stat(r, "watch.blanked"), ==, 0);
	raw_stop(r);
}

/* What does not exist is not mapped: touching it would kill the VMM. */
static void test_behind_the_end(void)
{
	struct raw *r = start(&fs_map, "--window-dialect=fs_map");
	uint64_t node, empty;

	raw_make_file(r, "f", RAW_SLOT + 5, 7);
	raw_make_file(r, "empty", 0, 7);
	node = raw_node(r, "f");
	empty = raw_node(r, "empty");
	raw_assert_err(setup(r, empty, 0, 0), EIO);
	raw_assert_err(setup(r, node, 2, 0), EIO);
	raw_assert_ok(setup(r, node, 1, 0));
	/* It is the request that is wrong, not the file. */
	g_assert_true(marked(r, node));
	g_assert_cmpint(raw_stat(r, "table.live"), ==, 1);
	raw_stop(r);
}

/* --- the helper of the size shim --- */

static void test_helper_dies(void)
{
	struct raw *r = start(NULL, "--dax-shim=auto");
	uint8_t *buf = guest_mem_alloc(r->mem, PAGE);
	uint64_t odd, other, whole, fh;
	pid_t helper = helper_of(r);

	if (!helper) {
		g_test_skip("no size shim here");
		raw_stop(r);
		return;
	}
	raw_make_file(r, "odd", RAW_SLOT + 5000, 3);
	raw_make_file(r, "other", RAW_SLOT + 5000, 4);
	raw_make_file(r, "whole", RAW_SLOT, 5);
	odd = raw_node(r, "odd");
	other = raw_node(r, "other");
	whole = raw_node(r, "whole");
	g_assert_true(marked(r, odd));
	raw_assert_ok(setup(r, odd, 1, 0));
	g_assert_cmpint(kill(helper, SIGKILL), ==, 0);
	/* Nobody asks for anything meanwhile. */
	g_assert_true(raw_wait_log(r, "helper has died", 1));
	g_assert_false(marked(r, odd));
	g_assert_false(looked_up_marked(r, "other"));
	g_assert_true(marked(r, whole));
	/* What is mapped stays; files are read; what cannot be mapped is refused; the rest can. */
	g_assert_true(raw_check_bytes(guest_window_base(r->window), RAW_SLOT, 5000, 3));
	g_assert_cmpint(setup(r, other, 1, 1), <, 0);
	raw_assert_ok(setup(r, whole, 0, 2));
	raw_assert_ok(guest_fuse_open(r->fuse, other, O_RDONLY, &fh));
	g_assert_cmpint(guest_fuse_read(r->fuse, other, fh, RAW_SLOT, buf, PAGE), ==, PAGE);
	g_assert_true(raw_check_bytes(buf, RAW_SLOT, PAGE, 4));
	g_assert_cmpuint(raw_log_lines(r, "helper has died"), ==, 1);
	raw_stop(r);
}

/* --- the VMM --- */

/* Plays a VMM whose guest touches what could not be replaced. */
static void be_killed(struct raw *r)
{
	const struct rlimit no_core = {0};
	uint64_t node;

	setrlimit(RLIMIT_CORE, &no_core);
	signal(SIGBUS, SIG_DFL);
	raw_connect(r, NULL);
	raw_make_file(r, "f", 2 * RAW_SLOT, 7);
	node = raw_node(r, "f");
	raw_assert_ok(setup(r, node, 0, 0));
	raw_assert_ok(setup(r, node, 1, 1));
	resize(r, "f", 100);
	byte_at(r, PAGE);
	_exit(0);
}

static void test_vmm_killed(void)
{
	struct raw *r = raw_start("--persistent");

	for (unsigned int i = 0; i < 5; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0)
			be_killed(r);
		g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
		g_assert_true(WIFSIGNALED(status));
		g_assert_cmpint(WTERMSIG(status), ==, SIGBUS);
		g_assert_true(raw_wait_log(r, "the VMM has gone", i + 1));
		g_assert_cmpint(raw_stat(r, "table.mapped"), ==, 0);
		g_assert_cmpint(raw_stat(r, "watch.files"), ==, 0);
		g_assert_cmpint(raw_stat(r, "watch.truncated_files"), ==, 0);
	}
	raw_connect(r, NULL);
	raw_make_file(r, "g", RAW_SLOT, 9);
	raw_assert_ok(setup(r, raw_node(r, "g"), 0, 0));
	g_assert_true(raw_check_bytes(guest_window_base(r->window), 0, RAW_SLOT, 9));
	raw_stop(r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/watch/truncated", test_truncated);
	g_test_add_func("/watch/grows-again", test_grows_again);
	g_test_add_func("/watch/guest-grows-it", test_guest_grows_it);
	g_test_add_func("/watch/guest-truncates", test_guest_truncates);
	g_test_add_func("/watch/behind-the-end", test_behind_the_end);
	g_test_add_func("/watch/helper-dies", test_helper_dies);
	g_test_add_func("/watch/vmm-killed", test_vmm_killed);
	return g_test_run();
}
