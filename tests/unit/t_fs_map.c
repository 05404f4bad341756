// SPDX-License-Identifier: Apache-2.0
/* What is known of a file for the sake of mapping: names, permission, how it is open. */
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "t_fs_common.h"

static void keep_names(struct share *s)
{
	fs_free(s->fs);
	s->config.keep_names = true;
	t_share_start(s);
}

static void assert_path(struct share *s, uint64_t node, const char *want, bool whole)
{
	char buf[PATH_MAX];
	bool is_whole = !whole;

	g_assert_cmpint(fs_path(s->fs, node, buf, sizeof(buf), &is_whole), ==,
			(ssize_t)strlen(want));
	g_assert_cmpstr(buf, ==, want);
	g_assert_cmpint(is_whole, ==, whole);
}

static void make_dir(struct share *s, const char *name)
{
	g_autofree char *p = t_path(s, name);

	g_assert_cmpint(mkdir(p, 0755), ==, 0);
}

static void paths_follow_renames(struct share *s, gconstpointer data)
{
	uint64_t a, b, f, g, handle;
	struct fs_attr attr;
	char tiny[4];
	bool whole;

	keep_names(s);
	make_dir(s, "a");
	make_dir(s, "a/b");
	t_write(s, "a/b/f", "x");
	t_write(s, "g", "x");
	a = t_lookup(s, FS_ROOT_ID, "a");
	b = t_lookup(s, a, "b");
	f = t_lookup(s, b, "f");
	g = t_lookup(s, FS_ROOT_ID, "g");
	assert_path(s, FS_ROOT_ID, "", true);
	assert_path(s, f, "a/b/f", true);
	g_assert_cmpint(fs_path(s->fs, f, tiny, sizeof(tiny), &whole), ==, -ENAMETOOLONG);
	g_assert_cmpint(fs_path(s->fs, 4711, tiny, sizeof(tiny), &whole), ==, -ESTALE);
	/* A directory takes everything in it along. */
	g_assert_cmpint(fs_rename(s->fs, FS_ROOT_ID, "a", FS_ROOT_ID, "z", 0), ==, 0);
	assert_path(s, f, "z/b/f", true);
	g_assert_cmpint(fs_rename(s->fs, b, "f", a, "f2", 0), ==, 0);
	assert_path(s, f, "z/f2", true);
	g_assert_cmpint(fs_rename(s->fs, a, "f2", FS_ROOT_ID, "g", RENAME_EXCHANGE), ==, 0);
	assert_path(s, f, "g", true);
	assert_path(s, g, "z/f2", true);
	/* Of several links the last seen. */
	g_assert_cmpint(fs_link(s->fs, f, b, "l", &attr), ==, 0);
	assert_path(s, f, "z/b/l", true);
	t_lookup(s, FS_ROOT_ID, "g");
	assert_path(s, f, "g", true);
	g_assert_cmpint(fs_create(s->fs, &me, b, "new", 0644, O_RDWR, false, &attr, &handle), ==,
			0);
	assert_path(s, attr.node, "z/b/new", true);
	/* When the guest forgets the directory, only the end is left. */
	fs_forget(s->fs, b, 1);
	assert_path(s, attr.node, "new", false);
	g_assert_cmpint(fs_release(s->fs, handle), ==, 0);
	g_assert_cmpint(fs_tmpfile(s->fs, &me, a, 0600, O_RDWR, &attr, &handle), ==, 0);
	assert_path(s, attr.node, "", false);
	g_assert_cmpint(fs_release(s->fs, handle), ==, 0);
}

static void no_names_unless_asked_for(struct share *s, gconstpointer data)
{
	t_write(s, "f", "x");
	assert_path(s, t_lookup(s, FS_ROOT_ID, "f"), "", false);
}

static void identity_outlives_the_node(struct share *s, gconstpointer data)
{
	uint64_t dev, ino, dev2, ino2, node;
	uint32_t type;
	struct fs_attr a;

	t_write(s, "f", "x");
	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, "f", &a), ==, 0);
	g_assert_true(fs_identity(s->fs, a.node, &dev, &ino));
	g_assert_cmpuint(dev, ==, a.st.st_dev);
	g_assert_cmpuint(ino, ==, a.st.st_ino);
	fs_forget(s->fs, a.node, 1);
	g_assert_false(fs_identity(s->fs, a.node, &dev, &ino));
	node = t_lookup(s, FS_ROOT_ID, "f");
	g_assert_cmpuint(node, !=, a.node);
	g_assert_true(fs_identity(s->fs, node, &dev2, &ino2));
	g_assert_cmpuint(dev2, ==, dev);
	g_assert_cmpuint(ino2, ==, ino);
	g_assert_true(fs_type(s->fs, node, &type));
	g_assert_cmpuint(type, !=, 0);
	g_assert_false(fs_type(s->fs, 4711, &type));
}

static bool can_write(struct share *s, const char *name)
{
	struct fs_attr a;

	g_assert_cmpint(fs_lookup(s->fs, FS_ROOT_ID, name, &a), ==, 0);
	return fs_can_write(s->fs, a.node, &a.st);
}

/* Sets or clears FS_IMMUTABLE_FL, FS_APPEND_FL; false where that cannot be. */
static bool chattr(struct share *s, const char *name, int flags)
{
	g_autofree char *p = t_path(s, name);
	int fd = open(p, O_RDONLY | O_CLOEXEC);
	int now = 0;
	bool done = fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &now) == 0;

	now = (now & ~(FS_IMMUTABLE_FL | FS_APPEND_FL)) | flags;
	done = done && ioctl(fd, FS_IOC_SETFLAGS, &now) == 0;

	close(fd);
	return done;
}

static void permission_is_what_open_would_say(struct share *s, gconstpointer data)
{
	static const int flags[] = {FS_IMMUTABLE_FL, FS_APPEND_FL};
	uint64_t node;
	bool writable;
	int fd;

	t_write(s, "f", "x");
	g_assert_true(can_write(s, "f"));
	for (size_t i = 0; i < G_N_ELEMENTS(flags); i++) {
		if (!chattr(s, "f", flags[i])) {
			g_test_message("no immutable or append-only files here");
			break;
		}
		g_assert_false(can_write(s, "f"));
		node = t_lookup(s, FS_ROOT_ID, "f");
		fd = fs_open_for_map(s->fs, node, &writable);
		g_assert_cmpint(fd, >=, 0);
		g_assert_false(writable);
		close(fd);
		g_assert_true(chattr(s, "f", 0));
		g_assert_true(can_write(s, "f"));
	}
}

/* As somebody else: in a child, as the change of user is for good. */
static void permission_of_an_ordinary_user(struct share *s, gconstpointer data)
{
	g_autofree char *mine = NULL, *theirs = NULL;
	int status;
	pid_t pid;

	if (geteuid() != 0) {
		g_test_skip("must be root to become somebody else");
		return;
	}
	t_write(s, "theirs", "x");
	t_write(s, "mine", "x");
	t_write(s, "all", "x");
	mine = t_path(s, "mine");
	theirs = t_path(s, "all");
	g_assert_cmpint(chown(mine, 65534, 65534), ==, 0);
	g_assert_cmpint(chmod(theirs, 0666), ==, 0);
	g_assert_cmpint(chmod(s->base, 0755), ==, 0);
	pid = fork();
	if (pid == 0) {
		bool ok =
			setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0;

		ok = ok && !can_write(s, "theirs") && can_write(s, "mine") && can_write(s, "all");
		/* The owner takes it away: seen at the next look, though it was known before. */
		ok = ok && chmod(mine, 0444) == 0 && !can_write(s, "mine");
		_exit(ok ? 0 : 1);
	}
	g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
	g_assert_cmpint(status, ==, 0);
}

/* In a child with mounts of its own. */
static void a_read_only_mount_has_no_writable_file(struct share *s, gconstpointer data)
{
	g_autofree char *dir = t_path(s, "ro"), *file = t_path(s, "ro/f");
	int status;
	pid_t pid;

	if (geteuid() != 0) {
		g_test_skip("must be root to mount");
		return;
	}
	make_dir(s, "ro");
	pid = fork();
	if (pid == 0) {
		struct fs_attr d, f;
		int fd;

		if (unshare(CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("none", dir, "tmpfs", 0, NULL) < 0)
			_exit(77);
		fd = open(file, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
		close(fd);
		if (fd < 0 || mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
			_exit(2);
		t_share_start(s); /* the old one's root is not in this namespace */
		if (fs_lookup(s->fs, FS_ROOT_ID, "ro", &d) || fs_lookup(s->fs, d.node, "f", &f))
			_exit(3);
		_exit(fs_can_write(s->fs, f.node, &f.st) ? 4 : 0);
	}
	g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		g_test_skip("may not mount");
	else
		g_assert_cmpint(status, ==, 0);
}

static void a_read_only_share_has_no_writable_file(struct share *s, gconstpointer data)
{
	fs_free(s->fs);
	s->config.readonly = true;
	t_share_start(s);
	t_write(s, "f", "x");
	g_assert_false(can_write(s, "f"));
}

/* A sealed memfd has no name that a share could show, and none can be given to it. */
static void sealed_files_are_never_in_a_share(struct share *s, gconstpointer data)
{
	g_autofree char *p = t_path(s, "sealed");
	int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	g_autofree char *proc = g_strdup_printf("/proc/self/fd/%d", fd);

	g_assert_cmpint(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), ==, 0);
	g_assert_cmpint(linkat(AT_FDCWD, proc, AT_FDCWD, p, AT_SYMLINK_FOLLOW), <, 0);
	close(fd);
}

static void direct_only_is_counted_by_handles(struct share *s, gconstpointer data)
{
	uint64_t node, d1, d2, b;

	t_write(s, "f", "x");
	node = t_lookup(s, FS_ROOT_ID, "f");
	g_assert_false(fs_direct_only(s->fs, node));
	g_assert_cmpint(fs_open(s->fs, node, O_RDONLY | O_DIRECT, false, &d1), ==, 0);
	g_assert_true(fs_direct_only(s->fs, node));
	g_assert_cmpint(fs_open(s->fs, node, O_RDONLY, false, &b), ==, 0);
	g_assert_false(fs_direct_only(s->fs, node));
	g_assert_cmpint(fs_open(s->fs, node, O_RDONLY | O_DIRECT, false, &d2), ==, 0);
	g_assert_cmpint(fs_release(s->fs, b), ==, 0);
	g_assert_true(fs_direct_only(s->fs, node));
	g_assert_cmpint(fs_release(s->fs, d1), ==, 0);
	g_assert_cmpint(fs_release(s->fs, d2), ==, 0);
	g_assert_false(fs_direct_only(s->fs, node));
}

static void readahead_touches_only_files(struct share *s, gconstpointer data)
{
	struct fs_stats before, after;
	uint64_t node;

	t_write(s, "f", "some bytes");
	node = t_lookup(s, FS_ROOT_ID, "f");
	fs_get_stats(s->fs, &before);
	fs_readahead(s->fs, node, 0, 2 << 20);
	fs_readahead(s->fs, node, 1 << 20, 2 << 20);
	fs_readahead(s->fs, node, UINT64_MAX - 1, UINT64_MAX);
	fs_readahead(s->fs, FS_ROOT_ID, 0, 4096);
	fs_readahead(s->fs, 4711, 0, 4096);
	fs_get_stats(s->fs, &after);
	g_assert_cmpuint(before.fds, ==, after.fds);
}

#define ADD(path, fn) g_test_add(path, struct share, NULL, t_share_setup, fn, t_share_teardown)

static void assert_where(struct share *s, uint64_t node, const char *want)
{
	char buf[PATH_MAX];

	g_assert_cmpint(fs_where(s->fs, node, buf, sizeof(buf)), ==, (ssize_t)strlen(want));
	g_assert_cmpstr(buf, ==, want);
}

static void the_kernel_knows_where_files_are(struct share *s, gconstpointer data)
{
	uint64_t a, f, g;
	char tiny[4];

	make_dir(s, "a");
	t_write(s, "a/f", "x");
	t_write(s, "g", "x");
	a = t_lookup(s, FS_ROOT_ID, "a");
	f = t_lookup(s, a, "f");
	g = t_lookup(s, FS_ROOT_ID, "g");
	assert_where(s, f, "a/f");
	assert_where(s, g, "g");
	g_assert_cmpint(fs_rename(s->fs, a, "f", FS_ROOT_ID, "moved", 0), ==, 0);
	assert_where(s, f, "moved");
	g_assert_cmpint(fs_unlink(s->fs, FS_ROOT_ID, "moved"), ==, 0);
	assert_where(s, f, "moved (deleted)");
	g_assert_cmpint(fs_where(s->fs, 4711, tiny, sizeof(tiny)), ==, -ESTALE);
	g_assert_cmpint(fs_where(s->fs, g, tiny, sizeof(tiny)), <, (ssize_t)sizeof(tiny));
}

struct looker {
	struct share *s;
	uint64_t node;
	bool stop;
};

static void *look_again_and_again(void *arg)
{
	struct looker *l = arg;
	char buf[PATH_MAX];

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		uint64_t node = __atomic_load_n(&l->node, __ATOMIC_ACQUIRE);

		if (fs_where(l->s->fs, node, buf, sizeof(buf)) >= 0)
			g_assert_cmpstr(buf, ==, "g");
	}
	return NULL;
}

/* Whoever watches has no part in the session, and does not keep it from ending. */
static void who_looks_does_not_hold_up_a_reset(struct share *s, gconstpointer data)
{
	struct looker l = {.s = s};
	GThread *t;

	t_write(s, "g", "x");
	t = g_thread_new("look", look_again_and_again, &l);
	for (int i = 0; i < 200; i++) {
		__atomic_store_n(&l.node, t_lookup(s, FS_ROOT_ID, "g"), __ATOMIC_RELEASE);
		g_thread_yield();
		fs_reset(s->fs);
	}
	__atomic_store_n(&l.stop, true, __ATOMIC_RELEASE);
	g_thread_join(t);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	ADD("/fs/map/paths", paths_follow_renames);
	ADD("/fs/map/no-names", no_names_unless_asked_for);
	ADD("/fs/map/identity", identity_outlives_the_node);
	ADD("/fs/map/permission", permission_is_what_open_would_say);
	ADD("/fs/map/ordinary-user", permission_of_an_ordinary_user);
	ADD("/fs/map/read-only-mount", a_read_only_mount_has_no_writable_file);
	ADD("/fs/map/read-only-share", a_read_only_share_has_no_writable_file);
	ADD("/fs/map/sealed", sealed_files_are_never_in_a_share);
	ADD("/fs/map/direct", direct_only_is_counted_by_handles);
	ADD("/fs/map/where", the_kernel_knows_where_files_are);
	ADD("/fs/map/where-reset", who_looks_does_not_hold_up_a_reset);
	ADD("/fs/map/readahead", readahead_touches_only_files);
	return g_test_run();
}
