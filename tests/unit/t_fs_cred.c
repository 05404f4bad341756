// SPDX-License-Identifier: Apache-2.0
/* Who owns what is made, and what becomes of setuid bits. */
#include <grp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "t_fs_common.h"

static bool need_root(void)
{
	if (geteuid() == 0)
		return true;
	g_test_skip("needs root to act as other users");
	return false;
}

static void assert_still_root(void)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	g_assert_cmpint(getresuid(&r, &e, &s), ==, 0);
	g_assert_cmpint(getresgid(&rg, &eg, &sg), ==, 0);
	g_assert_cmpuint(r | e | s, ==, 0);
	g_assert_cmpuint(rg | eg | sg, ==, 0);
	/* umask and the effective capabilities are back too: this would fail without them. */
	g_assert_cmpint(umask(0), ==, 0);
	g_assert_cmpint(chown("/proc/self/no-such-file", 1, 1), ==, -1);
	g_assert_cmpint(errno, ==, ENOENT);
}

static void make_all_as(struct share *s, const struct fs_cred *c, mode_t mask, uid_t uid, gid_t gid)
{
	struct fs_attr a;
	uint64_t h;

	g_assert_cmpint(fs_mkdir(s->fs, c, FS_ROOT_ID, "d", 0777, &a), ==, 0);
	g_assert_cmpuint(a.st.st_uid, ==, uid);
	g_assert_cmpuint(a.st.st_gid, ==, gid);
	g_assert_cmpuint(a.st.st_mode & 0777, ==, 0777 & ~mask);
	g_assert_cmpint(fs_mknod(s->fs, c, FS_ROOT_ID, "n", S_IFREG | 0666, 0, &a), ==, 0);
	g_assert_cmpuint(a.st.st_uid, ==, uid);
	g_assert_cmpuint(a.st.st_mode & 0777, ==, 0666 & ~mask);
	g_assert_cmpint(fs_symlink(s->fs, c, FS_ROOT_ID, "l", "x", &a), ==, 0);
	g_assert_cmpuint(a.st.st_uid, ==, uid);
	g_assert_cmpint(fs_create(s->fs, c, FS_ROOT_ID, "c", 0666, O_RDWR, false, &a, &h), ==, 0);
	g_assert_cmpuint(a.st.st_uid, ==, uid);
	g_assert_cmpuint(a.st.st_gid, ==, gid);
	g_assert_cmpuint(a.st.st_mode & 0777, ==, 0666 & ~mask);
	fs_release(s->fs, h);
	if (fs_tmpfile(s->fs, c, FS_ROOT_ID, 0666, O_RDWR, &a, &h) == 0) {
		g_assert_cmpuint(a.st.st_uid, ==, uid);
		g_assert_cmpuint(a.st.st_mode & 0777, ==, 0666 & ~mask);
		fs_release(s->fs, h);
	}
	fs_rmdir(s->fs, FS_ROOT_ID, "d");
	fs_unlink(s->fs, FS_ROOT_ID, "n");
	fs_unlink(s->fs, FS_ROOT_ID, "l");
	fs_unlink(s->fs, FS_ROOT_ID, "c");
}

static void made_files_belong_to_the_requester(struct share *s, gconstpointer d)
{
	const struct fs_cred user = {.uid = 1000, .gid = 1001};
	const struct fs_cred masked = {.uid = 1000, .gid = 1001, .umask = 0027};
	const struct fs_cred group = {.uid = 0, .gid = 5};
	const struct fs_cred root_masked = {.umask = 0077};
	const struct fs_cred nobody = {.uid = (uid_t)-1, .gid = 0};
	struct fs_attr a;

	if (!need_root())
		return;
	g_chmod(s->root, 0777);
	make_all_as(s, &user, 0, 1000, 1001);
	assert_still_root();
	make_all_as(s, &masked, 0027, 1000, 1001);
	assert_still_root();
	make_all_as(s, &group, 0, 0, 5);
	make_all_as(s, &root_masked, 0077, 0, 0);
	make_all_as(s, &me, 0, 0, 0);
	assert_still_root();
	g_assert_cmpint(fs_mkdir(s->fs, &nobody, FS_ROOT_ID, "d", 0777, &a), ==, -EINVAL);
	g_assert_cmpint(fs_mkdir(s->fs, &user, FS_ROOT_ID, "d", 0777, &a), ==, 0);
	g_assert_cmpint(fs_mkdir(s->fs, &user, FS_ROOT_ID, "d", 0777, &a), ==, -EEXIST);
	assert_still_root();
}

/* A directory that the user may enter by a group that only the guest knows. */
static void groups_unknown_to_us(struct share *s, gconstpointer d)
{
	struct fs_cred user = {.uid = 1000, .gid = 1000};
	struct fs_attr a;

	if (!need_root())
		return;
	g_assert_cmpint(chown(s->root, 0, 50), ==, 0);
	g_chmod(s->root, 02770);
	g_assert_cmpint(fs_mkdir(s->fs, &user, FS_ROOT_ID, "d", 0770, &a), ==, 0);
	g_assert_cmpuint(a.st.st_uid, ==, 1000);
	g_assert_cmpuint(a.st.st_gid, ==, 50);
	assert_still_root();
	/* A guest that names its group is taken at its word. */
	user.has_sup_group = true;
	user.sup_gid = 51;
	g_assert_cmpint(fs_mkdir(s->fs, &user, FS_ROOT_ID, "e", 0770, &a), ==, -EACCES);
	user.sup_gid = 50;
	g_assert_cmpint(fs_mkdir(s->fs, &user, FS_ROOT_ID, "e", 0770, &a), ==, 0);
	g_assert_cmpuint(a.st.st_gid, ==, 50);
	assert_still_root();
	g_assert_cmpint(getgroups(0, NULL), ==, 0);
}

/* Outside of its group a user may not make a setgid file; a member may. */
static void setgid_at_creation(struct share *s, gconstpointer d)
{
	struct fs_cred user = {.uid = 1000, .gid = 1000};
	struct fs_attr a;
	uint64_t h;

	if (!need_root())
		return;
	g_assert_cmpint(chown(s->root, 0, 50), ==, 0);
	g_chmod(s->root, 02777);
	g_assert_cmpint(fs_create(s->fs, &user, FS_ROOT_ID, "f", 02775, O_RDWR, false, &a, &h), ==,
			0);
	g_assert_cmpuint(a.st.st_mode & 07777, ==, 0775);
	fs_release(s->fs, h);
	user.has_sup_group = true;
	user.sup_gid = 50;
	g_assert_cmpint(fs_create(s->fs, &user, FS_ROOT_ID, "g", 02775, O_RDWR, false, &a, &h), ==,
			0);
	g_assert_cmpuint(a.st.st_mode & 07777, ==, 02775);
	fs_release(s->fs, h);
	g_assert_cmpint(fs_create(s->fs, &me, FS_ROOT_ID, "r", 02775, O_RDWR, false, &a, &h), ==,
			0);
	g_assert_cmpuint(a.st.st_mode & 07777, ==, 02775);
	fs_release(s->fs, h);
}

static uid_t euid_now(void)
{
	return geteuid();
}

static gint stop;
static gpointer watch_euid(gpointer data)
{
	while (!g_atomic_int_get(&stop)) {
		g_assert_cmpuint(euid_now(), ==, 0);
		g_thread_yield();
	}
	return NULL;
}

static void other_threads_stay_who_they_are(struct share *s, gconstpointer d)
{
	const struct fs_cred user = {.uid = 1000, .gid = 1000};
	GThread *t;

	if (!need_root())
		return;
	g_chmod(s->root, 0777);
	g_atomic_int_set(&stop, 0);
	t = g_thread_new("watch", watch_euid, NULL);
	for (int i = 0; i < 100; i++) {
		struct fs_attr a;

		g_assert_cmpint(fs_mkdir(s->fs, &user, FS_ROOT_ID, "d", 0700, &a), ==, 0);
		g_assert_cmpint(fs_rmdir(s->fs, FS_ROOT_ID, "d"), ==, 0);
		fs_forget(s->fs, a.node, 1);
	}
	g_atomic_int_set(&stop, 1);
	g_thread_join(t);
}

static mode_t mode_of(struct share *s, uint64_t f)
{
	struct fs_attr a;

	g_assert_cmpint(fs_getattr(s->fs, f, false, 0, &a), ==, 0);
	return a.st.st_mode & 07777;
}

static void set_mode(struct share *s, uint64_t f, mode_t mode)
{
	const struct fs_setattr set = {.valid = FS_SET_MODE, .mode = mode};
	struct fs_attr a;

	g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
	g_assert_cmpuint(a.st.st_mode & 07777, ==, mode);
}

static void suid_goes_when_asked_and_only_then(struct share *s, gconstpointer d)
{
	struct fs_setattr set = {.valid = FS_SET_SIZE, .size = 1};
	struct fs_attr a;
	uint64_t h;
	uint64_t h2;
	uint64_t f = t_create(s, "f", &h);

	if (!need_root())
		return;
	for (int round = 0; round < 3; round++) {
		set_mode(s, f, 06755);
		g_assert_cmpint(t_pwrite(s, f, h, "xy", 2, 0, 0), ==, 2);
		g_assert_cmpuint(mode_of(s, f), ==, 06755);
		g_assert_cmpint(t_pwrite(s, f, h, "xy", 2, 0, FS_IO_KILL_SUIDGID), ==, 2);
		g_assert_cmpuint(mode_of(s, f), ==, 0755);
		/* setgid without group execution means something else, and stays. */
		set_mode(s, f, 06745);
		g_assert_cmpint(t_pwrite(s, f, h, "xy", 2, 0, FS_IO_KILL_SUIDGID), ==, 2);
		g_assert_cmpuint(mode_of(s, f), ==, 02745);

		set_mode(s, f, 06755);
		set.valid = FS_SET_SIZE;
		g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
		g_assert_cmpuint(mode_of(s, f), ==, 06755);
		set.valid = FS_SET_SIZE | FS_SET_KILL_SUIDGID;
		g_assert_cmpint(fs_setattr(s->fs, f, &set, &a), ==, 0);
		g_assert_cmpuint(mode_of(s, f), ==, 0755);

		set_mode(s, f, 06755);
		g_assert_cmpint(fs_open(s->fs, f, O_WRONLY | O_TRUNC, false, &h2), ==, 0);
		fs_release(s->fs, h2);
		g_assert_cmpuint(mode_of(s, f), ==, 06755);
		g_assert_cmpint(fs_open(s->fs, f, O_WRONLY | O_TRUNC, true, &h2), ==, 0);
		fs_release(s->fs, h2);
		g_assert_cmpuint(mode_of(s, f), ==, 0755);

		set_mode(s, f, 06755);
		g_assert_cmpint(fs_create(s->fs, &me, FS_ROOT_ID, "f", 0, O_WRONLY | O_TRUNC, true,
					  &a, &h2),
				==, 0);
		fs_release(s->fs, h2);
		g_assert_cmpuint(mode_of(s, f), ==, 0755);
	}
	fs_release(s->fs, h);
}

static void file_capabilities_go_with_a_write(struct share *s, gconstpointer d)
{
	/* struct vfs_cap_data, revision 2: CAP_NET_RAW */
	const uint32_t cap[5] = {0x02000001, 1u << 13, 0, 0, 0};
	g_autofree char *p = t_path(s, "f");
	uint64_t h;
	uint64_t f = t_create(s, "f", &h);

	if (!need_root())
		return;
	if (setxattr(p, "security.capability", cap, sizeof(cap), 0) < 0) {
		g_test_skip("no file capabilities here");
		return;
	}
	g_assert_cmpint(fs_getxattr(s->fs, f, "security.capability", NULL, 0), ==, sizeof(cap));
	g_assert_cmpint(t_pwrite(s, f, h, "x", 1, 0, FS_IO_KILL_SUIDGID), ==, 1);
	g_assert_cmpint(fs_getxattr(s->fs, f, "security.capability", NULL, 0), ==, -ENODATA);
	fs_release(s->fs, h);
}

/* Without the right to change credentials: files are made, and belong to the daemon's user. */
static void unprivileged_in_child(struct share *s)
{
	const struct fs_cred user = {.uid = 4321, .gid = 4321};
	struct fs_attr a;
	uint64_t h;

	g_assert_cmpint(setgroups(0, NULL), ==, 0);
	g_assert_cmpint(setresgid(1000, 1000, 1000), ==, 0);
	g_assert_cmpint(setresuid(1000, 1000, 1000), ==, 0);
	g_assert_cmpint(fs_create(s->fs, &user, FS_ROOT_ID, "f", 04755, O_RDWR, false, &a, &h), ==,
			0);
	g_assert_cmpuint(a.st.st_uid, ==, 1000);
	g_assert_cmpint(t_pwrite(s, a.node, h, "x", 1, 0, 0), ==, 1);
	g_assert_cmpuint(mode_of(s, a.node), ==, 0755);
	g_assert_cmpint(fs_mkdir(s->fs, &user, FS_ROOT_ID, "d", 0700, &a), ==, 0);
	g_assert_cmpuint(a.st.st_gid, ==, 1000);
}

static void unprivileged_daemon_creates_as_itself(struct share *s, gconstpointer d)
{
	if (!need_root())
		return;
	if (g_test_subprocess()) {
		g_log_set_always_fatal(G_LOG_FATAL_MASK);
		g_chmod(s->root, 0777);
		g_chmod(s->base, 0777);
		unprivileged_in_child(s);
		_exit(0);
	}
	/* What the child may not remove goes with our own folder. */
	g_setenv("TMPDIR", s->base, TRUE);
	g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
	g_test_trap_assert_passed();
	g_test_trap_assert_stderr("*may not act as uid 4321*");
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	T_FS("/fs/cred/owner", NULL, made_files_belong_to_the_requester);
	T_FS("/fs/cred/groups", NULL, groups_unknown_to_us);
	T_FS("/fs/cred/setgid", NULL, setgid_at_creation);
	T_FS("/fs/cred/threads", NULL, other_threads_stay_who_they_are);
	T_FS("/fs/cred/suid", NULL, suid_goes_when_asked_and_only_then);
	T_FS("/fs/cred/file-caps", NULL, file_capabilities_go_with_a_write);
	T_FS("/fs/cred/unprivileged", NULL, unprivileged_daemon_creates_as_itself);
	return g_test_run();
}
