// SPDX-License-Identifier: Apache-2.0
/* What a descriptor of the size shim is, on each kind of file system. */
#include <errno.h>
#include <glib/gstdio.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "shim_internal.h"
#include "t_shim_kit.h"
#include "util_fd.h"

/* A directory and a shim for it, or s == NULL and the test skipped. */
struct env {
	char *dir;
	struct shim *s;
};

static struct env setup_on(const char *base, bool readonly)
{
	struct env e = {.dir = kit_dir(base)};

	e.s = kit_shim(e.dir, readonly);
	return e;
}

static struct env setup(bool readonly)
{
	return setup_on(".", readonly);
}

static void teardown(struct env *e)
{
	if (e->s)
		kit_settle(e->s, 0, 0);
	shim_free(e->s);
	kit_rmdir(e->dir);
	g_free(e->dir);
}

/* ---- what a mapping shows ---- */

static void check_size(int fd)
{
	struct stat st;

	g_assert_cmpint(fstat(fd, &st), ==, 0);
	g_assert_true(S_ISREG(st.st_mode));
	g_assert_cmpuint((uint64_t)st.st_size, ==, SHIM_SIZE);
	g_assert_cmpuint((uint64_t)lseek(fd, 0, SEEK_END), ==, SHIM_SIZE);
}

static void check_coherent(struct env *e)
{
	const uint64_t size = 5000;
	util_autofd real = kit_file(e->dir, "f", size);
	util_autofd fd = shim_open(e->s, real, 1, 2, true);
	uint8_t *map, byte;
	struct stat st;

	g_assert_cmpint(fd, >=, 0);
	check_size(fd);
	map = kit_map(fd, 0);
	for (uint64_t i = 0; i < size; i++)
		g_assert_cmpuint(map[i], ==, kit_byte(i));
	/* the rest of the last page is zero, what lies behind it is not there */
	g_assert_cmpint(kit_touch(map + size), ==, 0);
	g_assert_cmpint(kit_touch(map + 8191), ==, 0);
	g_assert_cmpint(kit_touch(map + 8192), ==, -1);

	/* one page cache */
	byte = 201;
	g_assert_cmpint(pwrite(real, &byte, 1, 17), ==, 1);
	g_assert_cmpuint(map[17], ==, 201);
	map[18] = 202;
	g_assert_cmpint(pread(real, &byte, 1, 18), ==, 1);
	g_assert_cmpuint(byte, ==, 202);

	/* growth appears by itself, inside the slot */
	byte = 203;
	g_assert_cmpint(pwrite(real, &byte, 1, 100000), ==, 1);
	g_assert_cmpint(kit_touch(map + 100000), ==, 203);
	g_assert_cmpint(kit_touch(map + 50000), ==, 0);

	/* bytes written behind the end, in the last page, do not make the file longer */
	map[100001] = 204;
	g_assert_cmpint(msync(map, SLOT, MS_SYNC), ==, 0);
	g_assert_cmpint(fstat(real, &st), ==, 0);
	g_assert_cmpint(st.st_size, ==, 100001);
	munmap(map, SLOT);
}

static void test_coherent(gconstpointer base)
{
	struct env e;

	if (access(base, W_OK) < 0) {
		g_test_skip("no such file system here");
		return;
	}
	e = setup_on(base, false);
	if (e.s)
		check_coherent(&e);
	teardown(&e);
}

/* Child: its own mount namespace, overlayfs on overlayfs up to @depth; 77: cannot. */
static int in_overlay(const char *dir, unsigned int depth)
{
	g_autofree char *lower = g_build_filename(dir, "lower", NULL);

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 77;
	g_mkdir(lower, 0755);
	for (unsigned int i = 0; i < depth; i++) {
		g_autofree char *top = g_strdup_printf("%s/%u", dir, i);
		g_autofree char *up = g_strdup_printf("%s.up", top);
		g_autofree char *work = g_strdup_printf("%s.work", top);
		g_autofree char *opt =
			g_strdup_printf("lowerdir=%s,upperdir=%s,workdir=%s", lower, up, work);

		if (g_mkdir(top, 0755) || g_mkdir(up, 0755) || g_mkdir(work, 0755) ||
		    mount("overlay", top, "overlay", 0, opt) < 0)
			return 77;
		g_free(lower);
		lower = g_strdup(top);
	}
	if (depth == 1) {
		struct env e = {.dir = g_strdup(lower), .s = kit_shim(lower, false)};

		if (!e.s) /* it works below the overlay */
			return 1;
		check_coherent(&e);
		kit_settle(e.s, 0, 0);
		shim_free(e.s);
	} else {
		util_autofd share = open(lower, O_PATH | O_CLOEXEC);
		util_autofd real = kit_file(lower, "f", 100);
		struct shim_config config = {.share_fd = share};
		g_autoptr(GError) error = NULL;
		g_autoptr(GError) other = NULL;
		struct shim *s = shim_start(&config, &error);

		g_assert_null(s);
		g_assert_error(error, SHIM_ERROR, SHIM_ERROR_SHARE);
		/* a deep submount inside of a share that is not: the file says so */
		config.share_fd = -1;
		s = shim_start(&config, &other);
		g_assert_no_error(other);
		g_assert_cmpint(shim_open(s, real, 1, 1, true), ==, -ELOOP);
		kit_settle(s, 0, 0);
		shim_free(s);
	}
	return 0;
}

static void test_overlay(gconstpointer depth)
{
	/* upper layers cannot lie on every file system: a tmpfs will do */
	const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ".";
	struct env e = setup_on(base, false);
	pid_t pid;
	int status;

	if (e.s) {
		pid = fork();
		if (pid == 0)
			_exit(in_overlay(e.dir, GPOINTER_TO_UINT(depth)));
		g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			g_test_skip("cannot mount overlayfs here");
		else
			g_assert_cmpint(status, ==, 0);
	}
	teardown(&e);
}

/* ---- what is refused ---- */

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		if ((call) >= 0)                                                                   \
			g_error("not refused: %s", #call);                                         \
	} while (0)

static void refuse_everything(struct env *e, int fd, int mnt)
{
	util_autofd other = kit_file(e->dir, "other", 8192);
	char buf[4096] = {0};
	loff_t in = 0, out = 0;
	off_t off = 0;
	int pipe_fds[2];
	struct timespec times[2] = {{1, 0}, {1, 0}};

	REFUSED(pwrite(fd, buf, 1, 0));
	REFUSED(pwrite(fd, buf, 1, (off_t)SHIM_SIZE - 1));
	REFUSED(ftruncate(fd, 0));
	REFUSED(ftruncate(fd, 10000));
	REFUSED(fallocate(fd, 0, 0, 65536));
	REFUSED(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
	REFUSED(fchmod(fd, 0777));
	REFUSED(fchown(fd, 1, 1));
	REFUSED(futimens(fd, times));
	REFUSED(fsetxattr(fd, "user.a", "b", 1, 0));
	REFUSED(fgetxattr(fd, "user.a", buf, 1));
	REFUSED(copy_file_range(other, &in, fd, &out, 4096, 0));
	REFUSED(sendfile(fd, other, &off, 4096));
	g_assert_cmpint(pipe(pipe_fds), ==, 0);
	g_assert_cmpint(write(pipe_fds[1], "abc", 3), ==, 3);
	REFUSED(splice(pipe_fds[0], NULL, fd, NULL, 3, 0));
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	REFUSED(ioctl(fd, FS_IOC_GETFLAGS, buf));
	REFUSED(kit_touch(NULL)); /* the macro itself can fail */

	REFUSED(openat(mnt, "file", O_RDWR | O_CREAT, 0600));
	REFUSED(openat(mnt, "0000000000000000", O_RDWR));
	REFUSED(openat(mnt, "00000000000000zz", O_RDWR));
	REFUSED(openat(mnt, ".", O_RDONLY | O_DIRECTORY));
	REFUSED(mkdirat(mnt, "d", 0700));
	REFUSED(unlinkat(mnt, "0000000000000000", 0));
	REFUSED(symlinkat("x", mnt, "l"));
	REFUSED(mknodat(mnt, "n", S_IFREG | 0600, 0));
}

static void test_refused(gconstpointer readonly)
{
	struct env e = setup(readonly != NULL);
	struct shim_stats before, after;

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 5000);
		util_autofd ro = kit_reopen(real, O_RDONLY);
		util_autofd fd = shim_open(e.s, readonly ? ro : real, 1, 1, !readonly);
		struct stat st;
		uint8_t got[5000];

		g_assert_cmpint(fd, >=, 0);
		g_assert_cmpint(shim_get_stats(e.s, &before), ==, 0);
		refuse_everything(&e, fd, shim_mnt_fd(e.s));
		if (fcntl(fd, F_SETFL, O_DIRECT) == 0)
			REFUSED(pwrite(fd, kit_map(fd, 0), 4096, 0));
		if (!readonly)
			REFUSED(pread(fd, got, 1, 0));
		g_assert_cmpint(shim_get_stats(e.s, &after), ==, 0);
		g_assert_cmpuint(after.refused, >, before.refused);
		check_size(fd);
		g_assert_cmpint(fstat(real, &st), ==, 0);
		g_assert_cmpint(st.st_size, ==, 5000);
		g_assert_cmpint(pread(real, got, sizeof(got), 0), ==, sizeof(got));
		for (unsigned int i = 0; i < sizeof(got); i++)
			g_assert_cmpuint(got[i], ==, kit_byte(i));
	}
	/* the map of O_DIRECT's buffer stays: the node does too */
	shim_free(e.s);
	e.s = NULL;
	teardown(&e);
}

/* A descriptor never gains a right on its way through the shim. */
static void test_rights(void)
{
	struct env e = setup(false);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 100);
		util_autofd ro = kit_reopen(real, O_RDONLY);
		util_autofd wo = kit_reopen(real, O_WRONLY);
		util_autofd path = kit_reopen(real, O_PATH);
		util_autofd append = kit_reopen(real, O_RDWR | O_APPEND);
		util_autofd dir = open(e.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		g_assert_cmpint(shim_open(e.s, ro, 1, 1, true), ==, -EACCES);
		g_assert_cmpint(shim_open(e.s, wo, 1, 1, true), ==, -EACCES);
		g_assert_cmpint(shim_open(e.s, wo, 1, 1, false), ==, -EACCES);
		g_assert_cmpint(shim_open(e.s, path, 1, 1, true), ==, -EACCES);
		g_assert_cmpint(shim_open(e.s, path, 1, 1, false), ==, -EACCES);
		g_assert_cmpint(shim_open(e.s, append, 1, 1, true), ==, -EPERM);
		g_assert_cmpint(shim_open(e.s, real, 1, 1, false), ==, -EACCES);
		g_assert_cmpint(shim_open(e.s, dir, 1, 1, false), ==, -EINVAL);
		g_assert_cmpint(shim_open(e.s, -1, 1, 1, true), ==, -EBADF);
	}
	teardown(&e);
}

static void test_sealed(void)
{
	static const int seals[] = {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE};
	struct env e = setup(false);

	for (unsigned int i = 0; e.s && i < G_N_ELEMENTS(seals); i++) {
		util_autofd mem = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		util_autofd ro = -1;
		util_autofd fd = -1;

		g_assert_cmpint(write(mem, "sealed", 6), ==, 6);
		g_assert_cmpint(fcntl(mem, F_ADD_SEALS, seals[i]), ==, 0);
		ro = kit_reopen(mem, O_RDONLY);
		g_assert_cmpint(shim_open(e.s, mem, 1, i, true), ==, -EPERM);
		fd = shim_open(e.s, ro, 1, i, false);
		g_assert_cmpint(fd, >=, 0);
	}
	teardown(&e);
}

static bool set_flag(int fd, unsigned int flag)
{
	unsigned int flags;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return false;
	flags = flag ? flags | flag : flags & ~(unsigned int)(FS_IMMUTABLE_FL | FS_APPEND_FL);
	return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
}

static void test_immutable(void)
{
	static const unsigned int flags[] = {FS_IMMUTABLE_FL, FS_APPEND_FL};
	struct env e = setup(false);

	for (unsigned int i = 0; e.s && i < G_N_ELEMENTS(flags); i++) {
		util_autofd real = kit_file(e.dir, "f", 100);

		if (!set_flag(real, flags[i])) {
			g_test_skip("the file system or the privilege lacks chattr +i");
			break;
		}
		g_assert_cmpint(shim_open(e.s, real, 1, i, true), ==, -EPERM);
		g_assert_true(set_flag(real, 0));
	}
	teardown(&e);
}

static void test_too_large(void)
{
	struct env e = setup(false);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 0);

		if (ftruncate(real, (off_t)SHIM_SIZE + 1) < 0)
			g_test_skip("no sparse file of 1 TiB here");
		else
			g_assert_cmpint(shim_open(e.s, real, 1, 1, true), ==, -EFBIG);
	}
	teardown(&e);
}

/* What a guest must know: a file that is open for writing cannot be executed on the host. */
static void test_text_busy(void)
{
	struct env e = setup(false);

	if (e.s) {
		g_autofree char *path = g_build_filename(e.dir, "f", NULL);
		int real = kit_file(e.dir, "f", 100);
		util_autofd fd = shim_open(e.s, real, 1, 1, true);
		char *argv[] = {path, NULL};

		close(real);
		g_assert_cmpint(fd, >=, 0);
		g_assert_cmpint(chmod(path, 0755), ==, 0);
		g_assert_cmpint(execv(path, argv), ==, -1);
		g_assert_cmpint(errno, ==, ETXTBSY);
	}
	teardown(&e);
}

/* ---- read-only nodes ---- */

static void check_readonly(struct env *e)
{
	const uint64_t size = 3 * SLOT / 2 + 123;
	util_autofd real = kit_file(e->dir, "f", size);
	util_autofd ro = kit_reopen(real, O_RDONLY);
	util_autofd fd = shim_open(e->s, ro, 1, 1, false);
	g_autofree uint8_t *got = g_malloc(size);
	struct shim_stats st;
	uint8_t *map[2];

	g_assert_cmpint(fd, >=, 0);
	check_size(fd);
	for (unsigned int i = 0; i < 2; i++)
		map[i] = kit_map(fd, i * SLOT);
	for (uint64_t i = 0; i < size; i += 61)
		g_assert_cmpuint(map[i / SLOT][i % SLOT], ==, kit_byte(i));
	/* beyond the end: zeros, no signal, and the size stays */
	g_assert_cmpint(kit_touch(map[1] + SLOT - 1), ==, 0);
	check_size(fd);
	/* a short file does not become a signal either */
	g_assert_cmpint(ftruncate(real, 0), ==, 0);
	g_assert_cmpint(madvise(map[0], SLOT, MADV_DONTNEED), ==, 0);
	g_assert_cmpint(kit_touch(map[0] + 4096), >=, 0);
	util_close(&real);
	real = kit_file(e->dir, "f", size);

	/* whatever is written to the mapping, no byte of the file changes */
	for (unsigned int i = 0; i < 2; i++)
		memset(map[i], 0, SLOT);
	REFUSED(msync(map[0], SLOT, MS_SYNC));
	REFUSED(msync(map[1], SLOT, MS_SYNC));
	REFUSED(madvise(map[0], SLOT, MADV_REMOVE));
	memset(map[0], 0, SLOT);
	for (unsigned int i = 0; i < 2; i++)
		munmap(map[i], SLOT);
	util_close(&fd);
	kit_settle(e->s, 0, 0);
	g_assert_cmpint(shim_get_stats(e->s, &st), ==, 0);
	g_assert_cmpuint(st.refused, >, 0);
	g_assert_cmpuint(st.fds, ==, 0);
	g_assert_cmpint(pread(real, got, size, 0), ==, (ssize_t)size);
	for (uint64_t i = 0; i < size; i++)
		g_assert_cmpuint(got[i], ==, kit_byte(i));
}

static void test_readonly(void)
{
	struct env e = setup(true);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "w", 10);

		check_readonly(&e);
		g_assert_false(shim_can_write(e.s));
		g_assert_cmpint(shim_open(e.s, real, 1, 1, true), ==, -EROFS);
	}
	teardown(&e);
}

static void test_readonly_beside_writable(void)
{
	struct env e = setup(false);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 100);
		util_autofd ro = kit_reopen(real, O_RDONLY);
		util_autofd a = shim_open(e.s, real, 1, 1, true);
		util_autofd b = shim_open(e.s, ro, 1, 1, false);
		uint8_t *map_a = kit_map(a, 0), *map_b = kit_map(b, 0);
		uint8_t byte;

		g_assert_cmpuint(map_b[5], ==, kit_byte(5));
		map_b[5] = 99;
		g_assert_cmpuint(map_a[5], ==, kit_byte(5));
		map_a[6] = 98;
		g_assert_cmpint(pread(real, &byte, 1, 6), ==, 1);
		g_assert_cmpuint(byte, ==, 98);
		/* a new open starts with fresh pages */
		munmap(map_b, SLOT);
		util_close(&b);
		kit_settle(e.s, 1, 0);
		b = shim_open(e.s, ro, 1, 1, false);
		map_b = kit_map(b, 0);
		g_assert_cmpuint(map_b[5], ==, kit_byte(5));
		g_assert_cmpuint(map_b[6], ==, 98);
		munmap(map_a, SLOT);
		munmap(map_b, SLOT);
	}
	teardown(&e);
}

/* ---- truncation on the host ---- */

static void test_truncated(void)
{
	struct env e = setup(false);

	if (e.s) {
		util_autofd real = kit_file(e.dir, "f", 3 * 4096);
		util_autofd fd = shim_open(e.s, real, 1, 1, true);
		uint8_t *map = kit_map(fd, 0);

		g_assert_cmpint(kit_touch(map + 2 * 4096), ==, kit_byte(UINT64_C(2) * 4096));
		g_assert_cmpint(ftruncate(real, 4096 + 100), ==, 0);
		g_assert_cmpint(kit_touch(map + 2 * 4096), ==, -1);
		g_assert_cmpint(kit_touch(map + 4096 + 99), ==, kit_byte(4096 + 99));
		g_assert_cmpint(kit_touch(map + 4096 + 100), ==, 0);
		g_assert_cmpint(ftruncate(real, 3 * 4096), ==, 0);
		g_assert_cmpint(kit_touch(map + 2 * 4096), ==, 0);
		check_size(fd);
		munmap(map, SLOT);
	}
	teardown(&e);
}

static void test_unlinked(void)
{
	struct env e = setup(false);

	if (e.s) {
		g_autofree char *path = g_build_filename(e.dir, "f", NULL);
		int real = kit_file(e.dir, "f", 5000);
		util_autofd fd = -1;
		uint8_t *map;

		g_assert_cmpint(unlink(path), ==, 0);
		fd = shim_open(e.s, real, 1, 1, true);
		g_assert_cmpint(fd, >=, 0);
		close(real);
		map = kit_map(fd, 0);
		util_close(&fd);
		/* the mapping alone keeps node and file */
		g_assert_cmpuint(map[4999], ==, kit_byte(4999));
		kit_settle(e.s, 1, 0);
		munmap(map, SLOT);
	}
	teardown(&e);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_data_func("/shim/coherent/here", ".", test_coherent);
	g_test_add_data_func("/shim/coherent/tmp", "/tmp", test_coherent);
	g_test_add_data_func("/shim/coherent/tmpfs", "/dev/shm", test_coherent);
	g_test_add_data_func("/shim/overlay/one", GUINT_TO_POINTER(1), test_overlay);
	g_test_add_data_func("/shim/overlay/two-is-too-deep", GUINT_TO_POINTER(2), test_overlay);
	g_test_add_data_func("/shim/refused/writable", NULL, test_refused);
	g_test_add_data_func("/shim/refused/readonly", "", test_refused);
	g_test_add_func("/shim/rights/access-mode", test_rights);
	g_test_add_func("/shim/rights/sealed", test_sealed);
	g_test_add_func("/shim/rights/immutable", test_immutable);
	g_test_add_func("/shim/too-large", test_too_large);
	g_test_add_func("/shim/text-busy", test_text_busy);
	g_test_add_func("/shim/readonly/no-byte-reaches-the-file", test_readonly);
	g_test_add_func("/shim/readonly/beside-writable", test_readonly_beside_writable);
	g_test_add_func("/shim/truncated", test_truncated);
	g_test_add_func("/shim/unlinked", test_unlinked);
	return g_test_run();
}
