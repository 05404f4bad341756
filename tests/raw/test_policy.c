// SPDX-License-Identifier: Apache-2.0
/*
 * Which files are marked for DAX, as a guest sees it: by the attributes of every reply; and what a
 * guest cannot do to files that are not its own to write.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw_util.h"

#define MAP_R FUSE_SETUPMAPPING_FLAG_READ
#define MAP_RW (FUSE_SETUPMAPPING_FLAG_READ | FUSE_SETUPMAPPING_FLAG_WRITE)
#define SLOTS 32u /* of the window */
#define ROOT 1u

static struct raw *start(const char *args)
{
	struct raw *r = raw_start(args);

	raw_connect(r, NULL);
	g_assert_nonnull(guest_window_base(r->window));
	return r;
}

static int setup(struct raw *r, uint64_t node, uint64_t slot, uint64_t mslot, uint64_t flags)
{
	return guest_fuse_setupmapping(r->fuse, node, slot * RAW_SLOT, RAW_SLOT, flags,
				       mslot * RAW_SLOT);
}

/* A file of this size without blocks. */
static void make_sparse(struct raw *r, const char *name, uint64_t size)
{
	g_autofree char *path = raw_path(r, name);
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	g_assert_cmpint(fd, >=, 0);
	g_assert_cmpint(ftruncate(fd, (off_t)size), ==, 0);
	close(fd);
}

static bool look(struct raw *r, uint64_t dir, const char *name, uint64_t *node)
{
	struct fuse_entry_out e;

	raw_assert_ok(guest_fuse_lookup(r->fuse, dir, name, &e));
	if (node)
		*node = e.nodeid;
	return e.attr.flags & FUSE_ATTR_DAX;
}

static bool marked(struct raw *r, const char *name)
{
	return look(r, ROOT, name, NULL);
}

/* --- the same in every reply --- */

struct listed {
	const char *name;
	bool found;
	bool mark;
};

static bool on_name(void *ctx, const struct fuse_dirent *d, const struct fuse_entry_out *e)
{
	struct listed *l = ctx;

	if (e && d->namelen == strlen(l->name) && !memcmp(d->name, l->name, d->namelen)) {
		l->found = true;
		l->mark = e->attr.flags & FUSE_ATTR_DAX;
	}
	return true;
}

static bool listed_mark(struct raw *r, const char *name)
{
	struct listed l = {.name = name};
	uint64_t fh;

	raw_assert_ok(guest_fuse_opendir(r->fuse, ROOT, &fh));
	g_assert_cmpint(guest_fuse_list(r->fuse, ROOT, fh, 0, 32768, true, on_name, &l), >, 0);
	raw_assert_ok(guest_fuse_releasedir(r->fuse, ROOT, fh));
	g_assert_true(l.found);
	return l.mark;
}

static void check_every_reply(struct raw *r, const char *name, bool want)
{
	const struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = 0644};
	g_autofree char *second = g_strconcat(name, ".link", NULL);
	struct fuse_entry_out e;
	struct fuse_attr a;
	uint64_t node, fh;

	g_test_message("%s", name);
	g_assert_cmpint(look(r, ROOT, name, &node), ==, want);
	raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	g_assert_cmpint(!!(a.flags & FUSE_ATTR_DAX), ==, want);
	raw_assert_ok(guest_fuse_setattr(r->fuse, node, &mode, &a));
	g_assert_cmpint(!!(a.flags & FUSE_ATTR_DAX), ==, want);
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR, &fh));
	raw_assert_ok(guest_fuse_getattr_fh(r->fuse, node, fh, &a));
	g_assert_cmpint(!!(a.flags & FUSE_ATTR_DAX), ==, want);
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
	raw_assert_ok(guest_fuse_link(r->fuse, node, ROOT, second, &e));
	g_assert_cmpint(!!(e.attr.flags & FUSE_ATTR_DAX), ==, want);
	raw_assert_ok(guest_fuse_unlink(r->fuse, ROOT, second));
	raw_assert_ok(guest_fuse_create(r->fuse, ROOT, name, 0644, O_RDWR, &e, &fh));
	g_assert_cmpint(!!(e.attr.flags & FUSE_ATTR_DAX), ==, want);
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
	g_assert_cmpint(listed_mark(r, name), ==, want);
}

static void test_every_reply(void)
{
	struct raw *r = start("--dax-shim=off");
	struct fuse_entry_out e;
	struct fuse_attr a;
	uint64_t node, fh;

	make_sparse(r, "two", 2 * RAW_SLOT);
	make_sparse(r, "a-byte-less", 2 * RAW_SLOT - 1);
	make_sparse(r, "a-page-less", 2 * RAW_SLOT - 4096);
	make_sparse(r, "one-more", 2 * RAW_SLOT + 1);
	make_sparse(r, "empty", 0);
	check_every_reply(r, "two", true);
	check_every_reply(r, "a-byte-less", false);
	check_every_reply(r, "a-page-less", false);
	check_every_reply(r, "one-more", false);
	check_every_reply(r, "empty", false);
	/* What makes files makes them empty; the reply that changes a size judges the new one. */
	raw_assert_ok(guest_fuse_mknod(r->fuse, ROOT, "node", S_IFREG | 0644, 0, &e));
	g_assert_false(e.attr.flags & FUSE_ATTR_DAX);
	raw_assert_ok(guest_fuse_mkdir(r->fuse, ROOT, "dir", 0755, &e));
	g_assert_false(e.attr.flags & FUSE_ATTR_DAX);
	raw_assert_ok(guest_fuse_create(r->fuse, ROOT, "new", 0644, O_RDWR, &e, &fh));
	g_assert_false(e.attr.flags & FUSE_ATTR_DAX);
	node = e.nodeid;
	raw_assert_ok(guest_fuse_truncate(r->fuse, node, RAW_SLOT));
	g_assert_true(marked(r, "new"));
	for (unsigned int i = 0; i < 4; i++) {
		const struct fuse_setattr_in set = {.valid = FATTR_SIZE,
						    .size = RAW_SLOT + (i % 2 ? 0 : 5)};

		raw_assert_ok(guest_fuse_setattr(r->fuse, node, &set, &a));
		g_assert_cmpint(!!(a.flags & FUSE_ATTR_DAX), ==, i % 2);
	}
	/* By a write. */
	g_assert_cmpint(
		guest_fuse_write(r->fuse, node, fh, RAW_SLOT, guest_mem_alloc(r->mem, 4096), 10),
		==, 10);
	raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	g_assert_false(a.flags & FUSE_ATTR_DAX);
	raw_stop(r);
}

/* --- size, names --- */

static void test_min_size(void)
{
	struct raw *r = start("--dax-shim=off --dax-min-size=4M --dax-max-share=25");

	make_sparse(r, "2m", RAW_SLOT);
	make_sparse(r, "4m", 2 * RAW_SLOT);
	make_sparse(r, "16m", 8 * RAW_SLOT);
	make_sparse(r, "18m", 9 * RAW_SLOT);
	g_assert_false(marked(r, "2m"));
	g_assert_true(marked(r, "4m"));
	g_assert_true(marked(r, "16m"));
	g_assert_false(marked(r, "18m"));
	g_assert_cmpint(raw_stat(r, "policy.unmarked_small"), ==, 1);
	g_assert_cmpint(raw_stat(r, "policy.unmarked_share"), ==, 1);
	g_assert_cmpint(raw_stat(r, "policy.marks"), ==, 2);
	raw_stop(r);
}

/* A guest maps what is marked, and of small files nothing is. */
static void test_small_files(void)
{
	struct raw *r = start(NULL);

	for (unsigned int i = 0; i < 2000; i++) {
		g_autofree char *name = g_strdup_printf("small%u", i);

		make_sparse(r, name, 8192);
		if (marked(r, name))
			setup(r, raw_node(r, name), 0, i % SLOTS, MAP_R);
	}
	g_assert_false(listed_mark(r, "small1999"));
	g_assert_cmpint(raw_stat(r, "table.setups"), ==, 0);
	g_assert_cmpint(raw_stat(r, "policy.marks"), ==, 0);
	g_assert_cmpint(raw_stat(r, "policy.unmarked_small"), >=, 4000);
	raw_stop(r);
}

static void test_globs(void)
{
	struct raw *r = start("--dax-shim=off --dax-include=*.so* --dax-include=bin/ "
			      "--dax-exclude=bin/tmp/ --dax-exclude=*.log");
	g_autofree char *bin = raw_path(r, "bin"), *tmp = raw_path(r, "bin/tmp");
	uint64_t dir, sub, node;
	struct fuse_attr a;

	g_assert_cmpint(mkdir(bin, 0755), ==, 0);
	g_assert_cmpint(mkdir(tmp, 0755), ==, 0);
	make_sparse(r, "a.so.1", RAW_SLOT);
	make_sparse(r, "other", RAW_SLOT);
	make_sparse(r, "bin/tool", RAW_SLOT);
	make_sparse(r, "bin/x.log", RAW_SLOT);
	make_sparse(r, "bin/tmp/b.so", RAW_SLOT);
	g_assert_true(marked(r, "a.so.1"));
	g_assert_false(marked(r, "other"));
	look(r, ROOT, "bin", &dir);
	g_assert_true(look(r, dir, "tool", &node));
	g_assert_false(look(r, dir, "x.log", NULL));
	look(r, dir, "tmp", &sub);
	g_assert_false(look(r, sub, "b.so", NULL));
	/* It moves, and its next attributes say so, though nobody looks it up again. */
	raw_assert_ok(guest_fuse_rename(r->fuse, dir, "tool", ROOT, "tool"));
	raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	g_assert_false(a.flags & FUSE_ATTR_DAX);
	raw_assert_ok(guest_fuse_rename(r->fuse, ROOT, "tool", sub, "tool"));
	raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	g_assert_false(a.flags & FUSE_ATTR_DAX);
	raw_assert_ok(guest_fuse_rename(r->fuse, dir, "tmp", dir, "more"));
	raw_assert_ok(guest_fuse_getattr(r->fuse, node, &a));
	g_assert_true(a.flags & FUSE_ATTR_DAX);
	raw_stop(r);
}

/* --- history --- */

static void test_direct_only(void)
{
	struct raw *r = start("--dax-shim=off");
	uint64_t node, direct, buffered;

	make_sparse(r, "f", RAW_SLOT);
	g_assert_true(look(r, ROOT, "f", &node));
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY | O_DIRECT, &direct));
	g_assert_false(marked(r, "f"));
	raw_assert_ok(guest_fuse_release(r->fuse, node, direct));
	/* It stays so, also for a new node, until somebody opens it otherwise. */
	raw_assert_ok(guest_fuse_forget(r->fuse, node, 2));
	g_assert_false(look(r, ROOT, "f", &node));
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY, &buffered));
	g_assert_true(marked(r, "f"));
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY | O_DIRECT, &direct));
	g_assert_true(marked(r, "f"));
	raw_stop(r);
}

/* A loop over twice the window, in the order in which Linux reuses slots; beside it a file that is
 * always in use. */
static void test_thrash(void)
{
	struct raw *r = start("--dax-shim=off");
	uint64_t big, hot, at = 0;

	make_sparse(r, "big", 2 * SLOTS * RAW_SLOT);
	make_sparse(r, "hot", 4 * RAW_SLOT);
	g_assert_true(look(r, ROOT, "big", &big));
	g_assert_true(look(r, ROOT, "hot", &hot));
	for (unsigned int i = 0; i < 4; i++)
		raw_assert_ok(setup(r, hot, i, SLOTS - 4 + i, MAP_R));
	for (unsigned int i = 0; i < 400 && marked(r, "big"); i++) {
		uint64_t mslot = at++ % (SLOTS - 4);

		if (at > SLOTS - 4)
			raw_assert_ok(
				guest_fuse_removemapping(r->fuse, big, mslot * RAW_SLOT, RAW_SLOT));
		raw_assert_ok(setup(r, big, i % (2 * SLOTS), mslot, MAP_R));
		g_assert_true(marked(r, "hot"));
	}
	g_assert_false(marked(r, "big"));
	g_assert_true(marked(r, "hot"));
	/* What it has mapped stays mapped, and more can be: it need not notice at once. */
	raw_assert_ok(setup(r, big, 1, at % (SLOTS - 4), MAP_R));
	g_assert_cmpint(raw_stat(r, "policy.thrash_files"), ==, 1);
	g_assert_cmpint(raw_stat(r, "policy.thrash_events"), ==, 1);
	g_assert_cmpint(raw_stat(r, "policy.refaults"), >=, 64);
	g_assert_cmpint(raw_stat(r, "policy.unmarked_thrash"), >, 0);
	/* It is the file that is remembered, not what the guest calls it. */
	raw_assert_ok(guest_fuse_forget(r->fuse, big, 1000000));
	g_assert_false(marked(r, "big"));
	raw_stop(r);
}

static void test_no_guard(void)
{
	struct raw *r = start("--dax-shim=off --dax-guard=off");
	uint64_t big;

	make_sparse(r, "big", 2 * SLOTS * RAW_SLOT);
	g_assert_true(look(r, ROOT, "big", &big));
	for (unsigned int i = 0; i < 5 * SLOTS; i++) {
		raw_assert_ok(guest_fuse_removemapping(r->fuse, big, 0, UINT64_MAX));
		raw_assert_ok(setup(r, big, i % (2 * SLOTS), 0, MAP_R));
	}
	g_assert_true(marked(r, "big"));
	g_assert_cmpint(raw_stat(r, "policy.thrash_events"), ==, 0);
	raw_stop(r);
}

/* A program of the share that runs on the host: it cannot be opened for writing. */
static pid_t run_program(struct raw *r, const char *name)
{
	g_autofree char *path = raw_path(r, name);
	g_autofree char *copy =
		g_strdup_printf("cp /bin/sleep %s && truncate -s 2M %s", path, path);
	int ready[2];
	char byte;
	pid_t pid;

	g_assert_cmpint(system(copy), ==, 0);
	g_assert_cmpint(pipe2(ready, O_CLOEXEC), ==, 0);
	pid = fork();
	if (pid == 0) {
		execl(path, "sleep", "1000", NULL);
		_exit(127);
	}
	close(ready[1]);
	/* The exec closes the other end. */
	g_assert_cmpint(read(ready[0], &byte, 1), ==, 0);
	close(ready[0]);
	return pid;
}

/* No attribute tells that it runs. */
static void test_refused_file(void)
{
	struct raw *r = start("--dax-shim=off");
	pid_t pid = run_program(r, "program");
	uint64_t node;

	g_assert_true(look(r, ROOT, "program", &node));
	g_assert_cmpint(setup(r, node, 0, 0, MAP_R), <, 0);
	g_assert_false(marked(r, "program"));
	g_assert_cmpint(raw_stat(r, "policy.unmarked_failed"), ==, 1);
	g_assert_cmpint(raw_stat(r, "table.mapped"), ==, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	raw_stop(r);
}

/* --- what must not be written --- */

static bool chattr(const char *path, int flags)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int now = 0;
	bool done = ioctl(fd, FS_IOC_GETFLAGS, &now) == 0;

	now = (now & ~(FS_IMMUTABLE_FL | FS_APPEND_FL)) | flags;
	done = done && ioctl(fd, FS_IOC_SETFLAGS, &now) == 0;

	close(fd);
	return done;
}

/* Tries to write through whatever mapping it can get; not a byte may change on the host. */
static void attack(struct raw *r, const char *name)
{
	g_autofree char *path = raw_path(r, name), *before = NULL, *after = NULL;
	static const uint64_t flags[] = {MAP_RW, MAP_R, FUSE_SETUPMAPPING_FLAG_WRITE, MAP_RW};
	uint8_t *window = guest_window_base(r->window);
	gsize n, m;
	uint64_t node;
	int err;

	g_assert_true(g_file_get_contents(path, &before, &n, NULL));
	look(r, ROOT, name, &node);
	for (unsigned int i = 0; window && i < G_N_ELEMENTS(flags); i++) {
		err = setup(r, node, 0, i, flags[i]);
		g_test_message("%s, flags %u: %d", name, (unsigned int)flags[i], err);
		if (err || !guest_window_mapped(r->window, i * RAW_SLOT, RAW_SLOT))
			continue;
		memset(window + i * RAW_SLOT, 0xee, 4096);
		memset(window + i * RAW_SLOT + RAW_SLOT - 4096, 0xee, 4096);
		/* The upgrade of what was mapped for reading. */
		setup(r, node, 0, i, MAP_RW);
		memset(window + i * RAW_SLOT + 4096, 0xdd, 4096);
	}
	guest_fuse_removemapping(r->fuse, node, 0, UINT64_MAX);
	g_assert_true(g_file_get_contents(path, &after, &m, NULL));
	g_assert_cmpmem(before, n, after, m);
}

static void check_protected(const char *args)
{
	static const int kinds[] = {FS_IMMUTABLE_FL, FS_APPEND_FL};
	static const char *const names[] = {"immutable", "append-only"};
	struct raw *r = start(args);
	pid_t pid;

	for (size_t i = 0; i < G_N_ELEMENTS(kinds); i++) {
		g_autofree char *path = raw_path(r, names[i]);

		raw_make_file(r, names[i], RAW_SLOT, 5);
		g_assert_true(marked(r, names[i]));
		if (!chattr(path, kinds[i])) {
			g_test_message("no %s files here", names[i]);
			continue;
		}
		g_assert_false(marked(r, names[i]));
		attack(r, names[i]);
		g_assert_false(marked(r, names[i]));
		g_assert_true(chattr(path, 0));
	}
	pid = run_program(r, "program");
	attack(r, "program");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	raw_stop(r);
}

static void test_protected(void)
{
	check_protected("--dax-shim=off");
	check_protected("--dax-shim=auto");
}

/* Files of somebody else's that only he may write; the daemon is root without root's ways. */
static void check_no_permission(const char *args)
{
	g_autofree char *all = g_strconcat("--modcaps=-dac_override:-fowner ", args, NULL);
	struct raw *r = start(all);
	g_autofree char *path = raw_path(r, "theirs");

	raw_make_file(r, "theirs", RAW_SLOT, 5);
	g_assert_cmpint(chown(path, 65534, 65534), ==, 0);
	g_assert_cmpint(chmod(path, 0644), ==, 0);
	g_assert_false(marked(r, "theirs"));
	attack(r, "theirs");
	g_assert_false(marked(r, "theirs"));
	/* And back. */
	g_assert_cmpint(chown(path, 0, 0), ==, 0);
	g_assert_true(!strstr(args, "off") || marked(r, "theirs") ||
		      raw_stat(r, "policy.unmarked_failed") > 0);
	raw_stop(r);
}

static void test_no_permission(void)
{
	if (geteuid() != 0) {
		g_test_skip("files of somebody else can only be made by root");
		return;
	}
	check_no_permission("--dax-shim=off");
	check_no_permission("--dax-shim=auto");
}

/* <sys/mount.h> and <linux/fs.h> cannot be had together. */
static int mount_(const char *from, const char *to, unsigned long flags)
{
	return (int)syscall(SYS_mount, from, to, NULL, flags, NULL);
}

/* A part of the share that is mounted read-only. */
static void check_readonly_mount(const char *args)
{
	const struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = 0600};
	struct raw *r = start(args);
	g_autofree char *path = raw_path(r, "mounted");
	struct fuse_attr a;
	uint64_t node;

	raw_make_file(r, "mounted", RAW_SLOT, 5);
	g_assert_cmpint(mount_(path, path, MS_BIND), ==, 0);
	g_assert_cmpint(mount_(NULL, path, MS_BIND | MS_REMOUNT | MS_RDONLY), ==, 0);
	look(r, ROOT, "mounted", &node);
	if (guest_fuse_setattr(r->fuse, node, &mode, &a) == -EROFS) {
		g_assert_false(marked(r, "mounted"));
		attack(r, "mounted");
		g_assert_false(marked(r, "mounted"));
	} else {
		g_test_message("the daemon's sandbox does not see mounts made later");
	}
	g_assert_cmpint(syscall(SYS_umount2, path, 2 /* MNT_DETACH */), ==, 0);
	raw_stop(r);
}

static void test_readonly_mount(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount_(NULL, "/", MS_REC | MS_PRIVATE) < 0) {
		g_test_skip("no mounts here");
		return;
	}
	check_readonly_mount("--dax-shim=off");
	check_readonly_mount("--dax-shim=auto");
}

/* A VMM that write-protects: it is told to, and gets no descriptor to write by. */
static void test_readonly_share_protected(void)
{
	const struct guest_config fs_map = {
		.window = {.mode = GUEST_WINDOW_FS_MAP, .size = 64ull << 20},
	};
	struct raw *r = raw_start("--readonly --window-dialect=fs_map");
	struct guest_mapping m[4];
	uint64_t node;

	raw_connect(r, &fs_map);
	raw_make_file(r, "f", RAW_SLOT, 5);
	node = raw_node(r, "f");
	g_assert_true(marked(r, "f"));
	raw_assert_err(setup(r, node, 0, 0, MAP_RW), EROFS);
	raw_assert_err(setup(r, node, 0, 0, FUSE_SETUPMAPPING_FLAG_WRITE), EROFS);
	raw_assert_ok(setup(r, node, 0, 0, MAP_R));
	raw_assert_err(setup(r, node, 0, 0, MAP_RW), EROFS); /* the upgrade */
	g_assert_cmpuint(guest_window_list(r->window, m, G_N_ELEMENTS(m)), ==, 1);
	g_assert_false(m[0].write);
	g_assert_true(raw_check_bytes(guest_window_base(r->window), 0, RAW_SLOT, 5));
	raw_stop(r);
}

static void test_readonly_share(void)
{
	struct raw *r = raw_start("--readonly");

	raw_connect(r, NULL);
	raw_make_file(r, "f", RAW_SLOT, 5);
	/* A guest that thinks that it has a window, and has mounted read-write. */
	guest_fuse_init(r->fuse, GUEST_FUSE_INIT_FLAGS | FUSE_MAP_ALIGNMENT | FUSE_HAS_INODE_DAX,
			NULL);
	g_assert_false(marked(r, "f"));
	raw_assert_err(setup(r, raw_node(r, "f"), 0, 0, MAP_RW), ENOSYS);
	attack(r, "f");
	raw_stop(r);
}

/* --- dax=always --- */

static void check_always(const char *args, bool ok)
{
	struct raw *r = start(args);
	int err = guest_fuse_init(r->fuse, GUEST_FUSE_INIT_FLAGS | FUSE_MAP_ALIGNMENT, NULL);

	if (ok) {
		raw_assert_ok(err);
	} else {
		raw_assert_err(err, EOPNOTSUPP);
		g_assert_true(raw_wait_log(r, "dax=always", 1));
		g_assert_cmpuint(raw_log_lines(r, "mount refused"), ==, 1);
	}
	raw_stop(r);
}

static void test_always(void)
{
	check_always("--dax-shim=off", false);
	check_always("--dax-shim=off --dax=always", false);
}

/* --- prefetch --- */

static void test_prefetch(void)
{
	struct raw *r = start("--dax-shim=off --dax-prefetch=on");
	uint64_t node;

	raw_make_file(r, "f", 4 * RAW_SLOT, 5);
	look(r, ROOT, "f", &node);
	raw_assert_ok(setup(r, node, 3, 0, MAP_R));
	g_assert_cmpint(raw_wait_stat(r, "policy.prefetch_ranges", 1), ==, 1);
	g_assert_cmpint(raw_stat(r, "policy.prefetch_bytes"), ==, (int64_t)RAW_SLOT);
	raw_stop(r);

	r = start("--dax-shim=off");
	raw_make_file(r, "f", 4 * RAW_SLOT, 5);
	look(r, ROOT, "f", &node);
	raw_assert_ok(setup(r, node, 3, 0, MAP_R));
	raw_assert_ok(setup(r, node, 0, 1, MAP_R));
	raw_assert_ok(setup(r, node, 1, 2, MAP_R));
	raw_assert_ok(setup(r, node, 2, 3, MAP_R));
	g_assert_cmpint(raw_wait_stat(r, "policy.prefetch_ranges", 2), ==, 2);
	g_assert_cmpint(raw_stat(r, "policy.prefetch_bytes"), ==, 3 * (int64_t)RAW_SLOT);
	g_assert_cmpint(raw_stat(r, "policy.prefetch_sequential"), ==, 2);
	/* A guest that leaves with reads ahead under way. */
	raw_assert_ok(guest_fuse_destroy(r->fuse));
	raw_stop(r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/policy/every-reply", test_every_reply);
	g_test_add_func("/policy/size", test_min_size);
	g_test_add_func("/policy/small-files", test_small_files);
	g_test_add_func("/policy/globs", test_globs);
	g_test_add_func("/policy/direct-only", test_direct_only);
	g_test_add_func("/policy/thrash", test_thrash);
	g_test_add_func("/policy/no-guard", test_no_guard);
	g_test_add_func("/policy/refused-file", test_refused_file);
	g_test_add_func("/policy/protected", test_protected);
	g_test_add_func("/policy/no-permission", test_no_permission);
	g_test_add_func("/policy/readonly-mount", test_readonly_mount);
	g_test_add_func("/policy/readonly-share", test_readonly_share);
	g_test_add_func("/policy/readonly-share-protected", test_readonly_share_protected);
	g_test_add_func("/policy/always", test_always);
	g_test_add_func("/policy/prefetch", test_prefetch);
	return g_test_run();
}
