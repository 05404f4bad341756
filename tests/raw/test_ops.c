// SPDX-License-Identifier: Apache-2.0
/* Every opcode, with right results on both sides. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "raw_util.h"

static struct raw *with_guest(void)
{
	struct raw *r = raw_start(NULL);

	raw_connect(r, NULL);
	return r;
}

static void test_init(void)
{
	struct raw *r = raw_start(NULL);
	struct fuse_init_out o;

	raw_connect_only(r, NULL);
	g_assert_true(guest_frontend_features(r->fe) & GUEST_F_VERSION_1);
	raw_assert_ok(guest_frontend_start(r->fe, NULL));
	raw_assert_ok(guest_fuse_init(r->fuse, 0, &o));
	g_assert_cmpuint(o.major, ==, 7);
	g_assert_cmpuint(o.minor, >=, 31);
	g_assert_cmpuint(o.max_write, >=, 4096);
	if (!raw_peer())
		g_assert_cmpstr(guest_frontend_tag(r->fe), ==, "raw");
	raw_stop(r);
}

static void test_lookup(void)
{
	struct raw *r = with_guest();
	struct fuse_entry_out e;
	struct fuse_attr a;
	char *path = raw_path(r, "dir");
	struct stat st;

	raw_make_file(r, "file", 5000, 1);
	mkdir(path, 0700);
	raw_make_file(r, "dir/inner", 10, 2);
	raw_assert_ok(guest_fuse_lookup(r->fuse, 1, "file", &e));
	g_assert_cmpuint(e.attr.size, ==, 5000);
	g_assert_true(S_ISREG(e.attr.mode));
	g_assert_cmpint(stat(path, &st), ==, 0);
	raw_assert_ok(guest_fuse_lookup(r->fuse, 1, "dir", &e));
	g_assert_true(S_ISDIR(e.attr.mode));
	g_assert_cmpuint(e.attr.ino, ==, st.st_ino);
	raw_assert_ok(guest_fuse_getattr(r->fuse, e.nodeid, &a));
	g_assert_cmpuint(a.mode, ==, st.st_mode);
	raw_assert_ok(guest_fuse_path(r->fuse, "dir/inner", &e));
	g_assert_cmpuint(e.attr.size, ==, 10);
	raw_assert_ok(guest_fuse_forget(r->fuse, e.nodeid, 1));
	raw_assert_err(guest_fuse_lookup(r->fuse, 1, "absent", &e), ENOENT);
	raw_assert_ok(guest_fuse_getattr(r->fuse, 1, &a));
	g_assert_true(S_ISDIR(a.mode));
	g_free(path);
	raw_stop(r);
}

static void test_read_write(void)
{
	struct raw *r = with_guest();
	uint32_t size = 128 << 10;
	uint8_t *buf = guest_mem_alloc(r->mem, size);
	struct fuse_entry_out e;
	struct fuse_attr a;
	uint64_t node;
	uint64_t fh;

	raw_make_file(r, "in", 300000, 7);
	node = raw_node(r, "in");
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY, &fh));
	for (uint64_t off = 0; off < 300000; off += size) {
		ssize_t n = guest_fuse_read(r->fuse, node, fh, off, buf, size);

		g_assert_cmpint(n, ==, MIN(size, 300000 - off));
		g_assert_true(raw_check_bytes(buf, off, (uint64_t)n, 7));
	}
	g_assert_cmpint(guest_fuse_read(r->fuse, node, fh, 300000, buf, size), ==, 0);
	g_assert_cmpint(guest_fuse_read(r->fuse, node, fh, 299999, buf, 100), ==, 1);
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));

	raw_assert_ok(guest_fuse_create(r->fuse, 1, "out", 0640, O_RDWR, &e, &fh));
	g_assert_cmpuint(e.attr.mode, ==, S_IFREG | 0640);
	memset(buf, 'x', size);
	g_assert_cmpint(guest_fuse_write(r->fuse, e.nodeid, fh, 10, buf, size), ==, size);
	raw_assert_ok(guest_fuse_getattr_fh(r->fuse, e.nodeid, fh, &a));
	g_assert_cmpuint(a.size, ==, size + 10);
	raw_assert_ok(guest_fuse_flush(r->fuse, e.nodeid, fh));
	raw_assert_ok(guest_fuse_fsync(r->fuse, e.nodeid, fh, true));
	raw_assert_ok(guest_fuse_fsync(r->fuse, e.nodeid, fh, false));
	raw_assert_ok(guest_fuse_truncate(r->fuse, e.nodeid, 20));
	g_assert_cmpint(guest_fuse_read(r->fuse, e.nodeid, fh, 0, buf, size), ==, 20);
	g_assert_cmpuint(buf[9], ==, 0);
	g_assert_cmpuint(buf[10], ==, 'x');
	raw_assert_ok(guest_fuse_release(r->fuse, e.nodeid, fh));
	raw_assert_err(guest_fuse_create(r->fuse, 1, "out", 0640, O_RDWR | O_EXCL, &e, &fh),
		       EEXIST);
	guest_mem_release(r->mem, buf, size);
	raw_stop(r);
}

static void test_segments(void)
{
	struct raw *r = with_guest();
	struct guest_req *q = guest_req_get(r->fuse);
	uint8_t *buf = guest_mem_alloc(r->mem, 64 << 10);
	struct fuse_read_in *in;
	uint64_t node;
	uint64_t fh;

	/* A read into odd pieces, in a mixed-up order of memory. */
	raw_make_file(r, "f", 64 << 10, 3);
	node = raw_node(r, "f");
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY, &fh));
	guest_req_start(q, FUSE_READ, node);
	in = guest_req_arg(q, sizeof(*in));
	in->fh = fh;
	in->size = 60 * 1001;
	for (unsigned int i = 0; i < 60; i++)
		guest_req_in_data(q, buf + ((59 - i) * 1001), 1001);
	raw_assert_ok(guest_req_call(q));
	g_assert_cmpuint(q->len, ==, 60 * 1001);
	for (unsigned int i = 0; i < 60; i++)
		g_assert_true(raw_check_bytes(buf + ((59 - i) * 1001), i * 1001, 1001, 3));
	guest_req_put(q);
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
	guest_mem_release(r->mem, buf, 64 << 10);
	raw_stop(r);
}

static void test_names(void)
{
	struct raw *r = with_guest();
	struct fuse_entry_out e;
	struct fuse_entry_out d;
	char buf[256];
	char *path;

	raw_assert_ok(guest_fuse_mkdir(r->fuse, 1, "d", 0750, &d));
	g_assert_cmpuint(d.attr.mode, ==, S_IFDIR | 0750);
	raw_assert_err(guest_fuse_mkdir(r->fuse, 1, "d", 0750, &e), EEXIST);
	raw_assert_ok(guest_fuse_mknod(r->fuse, d.nodeid, "n", S_IFREG | 0600, 0, &e));
	raw_assert_ok(guest_fuse_mknod(r->fuse, d.nodeid, "fifo", S_IFIFO | 0600, 0, &e));
	g_assert_true(S_ISFIFO(e.attr.mode));
	raw_assert_ok(guest_fuse_symlink(r->fuse, d.nodeid, "s", "some/target", &e));
	g_assert_true(S_ISLNK(e.attr.mode));
	g_assert_cmpint(guest_fuse_readlink(r->fuse, e.nodeid, buf, sizeof(buf)), ==, 11);
	g_assert_cmpstr(buf, ==, "some/target");
	raw_assert_ok(guest_fuse_lookup(r->fuse, d.nodeid, "n", &e));
	raw_assert_ok(guest_fuse_link(r->fuse, e.nodeid, 1, "hard", &e));
	g_assert_cmpuint(e.attr.nlink, ==, 2);
	raw_assert_ok(guest_fuse_rename(r->fuse, 1, "hard", d.nodeid, "moved"));
	raw_assert_err(guest_fuse_rename2(r->fuse, d.nodeid, "moved", d.nodeid, "n", 1), EEXIST);
	raw_assert_ok(guest_fuse_rename2(r->fuse, d.nodeid, "moved", d.nodeid, "s", 2));
	raw_assert_ok(guest_fuse_lookup(r->fuse, d.nodeid, "moved", &e));
	g_assert_true(S_ISLNK(e.attr.mode));
	raw_assert_err(guest_fuse_rmdir(r->fuse, 1, "d"), ENOTEMPTY);
	raw_assert_err(guest_fuse_unlink(r->fuse, 1, "d"), EISDIR);
	for (const char *const *n = (const char *const[]){"n", "fifo", "s", "moved", NULL}; *n; n++)
		raw_assert_ok(guest_fuse_unlink(r->fuse, d.nodeid, *n));
	raw_assert_ok(guest_fuse_rmdir(r->fuse, 1, "d"));
	path = raw_path(r, "d");
	g_assert_cmpint(access(path, F_OK), ==, -1);
	g_free(path);
	raw_stop(r);
}

static void test_setattr(void)
{
	struct raw *r = with_guest();
	struct fuse_setattr_in in = {.valid = FATTR_MODE, .mode = 0604};
	struct fuse_attr a;
	uint64_t node;

	raw_make_file(r, "f", 100, 1);
	node = raw_node(r, "f");
	raw_assert_ok(guest_fuse_setattr(r->fuse, node, &in, &a));
	g_assert_cmpuint(a.mode, ==, S_IFREG | 0604);
	in = (struct fuse_setattr_in){
		.valid = FATTR_ATIME | FATTR_MTIME,
		.atime = 1000,
		.mtime = 2000,
		.mtimensec = 5,
	};
	raw_assert_ok(guest_fuse_setattr(r->fuse, node, &in, &a));
	g_assert_cmpuint(a.atime, ==, 1000);
	g_assert_cmpuint(a.mtime, ==, 2000);
	g_assert_cmpuint(a.mtimensec, ==, 5);
	in = (struct fuse_setattr_in){.valid = FATTR_MTIME | FATTR_MTIME_NOW};
	raw_assert_ok(guest_fuse_setattr(r->fuse, node, &in, &a));
	g_assert_cmpuint(a.mtime, >, 2000);
	in = (struct fuse_setattr_in){.valid = FATTR_UID | FATTR_GID, .uid = 12, .gid = 34};
	if (geteuid() == 0) {
		raw_assert_ok(guest_fuse_setattr(r->fuse, node, &in, &a));
		g_assert_cmpuint(a.uid, ==, 12);
		g_assert_cmpuint(a.gid, ==, 34);
	}
	if (!raw_peer())
		raw_assert_ok(guest_fuse_access(r->fuse, node, R_OK));
	raw_stop(r);
}

static void test_creds(void)
{
	struct raw *r;
	struct fuse_entry_out e;
	uint64_t fh;

	if (geteuid() != 0) {
		g_test_skip("needs root: files are created as another user");
		return;
	}
	r = with_guest();
	chmod(r->share, 0777);
	guest_fuse_set_cred(r->fuse, 1234, 5678);
	raw_assert_ok(guest_fuse_create(r->fuse, 1, "f", 0600, O_RDWR, &e, &fh));
	g_assert_cmpuint(e.attr.uid, ==, 1234);
	g_assert_cmpuint(e.attr.gid, ==, 5678);
	raw_assert_ok(guest_fuse_release(r->fuse, e.nodeid, fh));
	raw_assert_ok(guest_fuse_mkdir(r->fuse, 1, "d", 0700, &e));
	g_assert_cmpuint(e.attr.uid, ==, 1234);
	raw_assert_ok(guest_fuse_symlink(r->fuse, 1, "s", "x", &e));
	g_assert_cmpuint(e.attr.gid, ==, 5678);
	guest_fuse_set_cred(r->fuse, 0, 0);
	raw_assert_ok(guest_fuse_mkdir(r->fuse, 1, "yes", 0700, &e));
	g_assert_cmpuint(e.attr.uid, ==, 0);
	raw_stop(r);
}

static void test_file_calls(void)
{
	struct raw *r = with_guest();
	struct fuse_entry_out e;
	struct fuse_entry_out e2;
	struct fuse_attr a;
	struct fuse_kstatfs sf;
	uint64_t fh;
	uint64_t fh2;
	uint8_t *buf = guest_mem_alloc(r->mem, 4096);
	int err;

	raw_make_file(r, "src", 10000, 5);
	e.nodeid = raw_node(r, "src");
	raw_assert_ok(guest_fuse_open(r->fuse, e.nodeid, O_RDWR, &fh));
	raw_assert_ok(guest_fuse_create(r->fuse, 1, "dst", 0600, O_RDWR, &e2, &fh2));
	g_assert_cmpint(
		guest_fuse_copy_file_range(r->fuse, e.nodeid, fh, 0, e2.nodeid, fh2, 0, 10000), ==,
		10000);
	g_assert_cmpint(guest_fuse_read(r->fuse, e2.nodeid, fh2, 4096, buf, 4096), ==, 4096);
	g_assert_true(raw_check_bytes(buf, 4096, 4096, 5));
	err = guest_fuse_fallocate(r->fuse, e2.nodeid, fh2, 0, 1 << 20, 0);
	if (err != -EOPNOTSUPP) {
		raw_assert_ok(err);
		raw_assert_ok(guest_fuse_getattr(r->fuse, e2.nodeid, &a));
		g_assert_cmpuint(a.size, ==, 1 << 20);
	}
	g_assert_cmpint(guest_fuse_lseek(r->fuse, e.nodeid, fh, 0, SEEK_DATA), ==, 0);
	g_assert_cmpint(guest_fuse_lseek(r->fuse, e.nodeid, fh, 0, SEEK_HOLE), ==, 10000);
	raw_assert_err(guest_fuse_lseek(r->fuse, e.nodeid, fh, 20000, SEEK_DATA), ENXIO);
	raw_assert_ok(guest_fuse_statfs(r->fuse, 1, &sf));
	g_assert_cmpuint(sf.blocks, >, 0);
	g_assert_cmpuint(sf.namelen, ==, 255);
	/* Unlinked open files keep working. */
	raw_assert_ok(guest_fuse_unlink(r->fuse, 1, "src"));
	g_assert_cmpint(guest_fuse_read(r->fuse, e.nodeid, fh, 0, buf, 4096), ==, 4096);
	g_assert_true(raw_check_bytes(buf, 0, 4096, 5));
	raw_assert_ok(guest_fuse_getattr(r->fuse, e.nodeid, &a));
	g_assert_cmpuint(a.nlink, ==, 0);
	raw_assert_ok(guest_fuse_truncate(r->fuse, e.nodeid, 1));
	raw_assert_ok(guest_fuse_release(r->fuse, e.nodeid, fh));
	raw_assert_ok(guest_fuse_release(r->fuse, e2.nodeid, fh2));
	guest_mem_release(r->mem, buf, 4096);
	raw_stop(r);
}

static void test_tmpfile_syncfs(void)
{
	struct raw *r;
	struct fuse_entry_out e;
	uint8_t *buf;
	uint64_t fh;
	int err;

	if (raw_peer()) {
		g_test_skip("this peer has no TMPFILE");
		return;
	}
	r = with_guest();
	buf = guest_mem_alloc(r->mem, 4096);
	err = guest_fuse_tmpfile(r->fuse, 1, S_IFREG | 0600, O_RDWR, &e, &fh);
	if (err != -EOPNOTSUPP) {
		raw_assert_ok(err);
		memset(buf, 'q', 4096);
		g_assert_cmpint(guest_fuse_write(r->fuse, e.nodeid, fh, 0, buf, 100), ==, 100);
		g_assert_cmpint(guest_fuse_read(r->fuse, e.nodeid, fh, 0, buf, 4096), ==, 100);
		raw_assert_ok(guest_fuse_link(r->fuse, e.nodeid, 1, "linked", &e));
		g_assert_cmpuint(e.attr.size, ==, 100);
		raw_assert_ok(guest_fuse_release(r->fuse, e.nodeid, fh));
	}
	raw_assert_ok(guest_fuse_syncfs(r->fuse, 1));
	raw_assert_ok(guest_fuse_interrupt(r->fuse, 42));
	guest_mem_release(r->mem, buf, 4096);
	raw_stop(r);
}

struct seen {
	GHashTable *names;
	unsigned int limit;
	unsigned int nodes;
	uint64_t last;
};

static bool see(void *ctx, const struct fuse_dirent *d, const struct fuse_entry_out *e)
{
	struct seen *s = ctx;
	char *name = g_strndup(d->name, d->namelen);

	if (e && e->nodeid) {
		s->nodes++;
		g_assert_cmpuint(e->attr.ino, ==, d->ino);
	}
	g_assert_true(g_hash_table_add(s->names, name));
	s->last = d->off;
	return !s->limit || g_hash_table_size(s->names) < s->limit;
}

static void list_all(struct raw *r, bool plus, uint32_t bufsize, unsigned int want)
{
	struct seen s = {.names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL)};
	uint64_t dir = raw_node(r, "many");
	uint64_t fh;

	raw_assert_ok(guest_fuse_opendir(r->fuse, dir, &fh));
	/* In two parts, to prove that an offset resumes. */
	s.limit = want / 2;
	g_assert_cmpint(guest_fuse_list(r->fuse, dir, fh, 0, bufsize, plus, see, &s), ==, want / 2);
	s.limit = 0;
	g_assert_cmpint(guest_fuse_list(r->fuse, dir, fh, s.last, bufsize, plus, see, &s), ==,
			want - want / 2);
	g_assert_cmpuint(g_hash_table_size(s.names), ==, want);
	g_assert_cmpuint(s.nodes, ==, plus ? want - 2 : 0);
	raw_assert_ok(guest_fuse_fsyncdir(r->fuse, dir, fh, false));
	raw_assert_ok(guest_fuse_releasedir(r->fuse, dir, fh));
	g_hash_table_destroy(s.names);
}

static void test_readdir(void)
{
	struct raw *r = with_guest();
	char *path = raw_path(r, "many");

	g_assert_cmpint(mkdir(path, 0755), ==, 0);
	for (unsigned int i = 0; i < 500; i++) {
		char *name = g_strdup_printf("many/name-of-a-file-%u", i);

		raw_make_file(r, name, 1, 1);
		g_free(name);
	}
	list_all(r, false, 4096, 502);
	list_all(r, true, 4096, 502);
	list_all(r, false, 65536, 502);
	list_all(r, true, 65536, 502);
	list_all(r, true, 1000, 502);
	g_free(path);
	raw_stop(r);
}

static void test_xattr(void)
{
	struct raw *r = raw_start(raw_peer() ? NULL : "--xattr");
	char buf[256];
	uint64_t node;
	ssize_t n;

	raw_connect(r, NULL);
	raw_make_file(r, "f", 10, 1);
	node = raw_node(r, "f");
	n = guest_fuse_setxattr(r->fuse, node, "user.one", "value", 5, 0);
	if (n == -EOPNOTSUPP) {
		g_test_skip("no user attributes on this file system");
		raw_stop(r);
		return;
	}
	raw_assert_ok(n);
	g_assert_cmpint(guest_fuse_getxattr(r->fuse, node, "user.one", NULL, 0), ==, 5);
	n = guest_fuse_getxattr(r->fuse, node, "user.one", buf, sizeof(buf));
	g_assert_cmpmem(buf, n, "value", 5);
	raw_assert_err(guest_fuse_getxattr(r->fuse, node, "user.one", buf, 2), ERANGE);
	raw_assert_err(guest_fuse_getxattr(r->fuse, node, "user.two", buf, 2), ENODATA);
	n = guest_fuse_listxattr(r->fuse, node, buf, sizeof(buf));
	g_assert_cmpint(n, >=, 9);
	raw_assert_ok(guest_fuse_removexattr(r->fuse, node, "user.one"));
	raw_assert_err(guest_fuse_getxattr(r->fuse, node, "user.one", buf, 2), ENODATA);
	raw_stop(r);
}

static void test_forget(void)
{
	struct raw *r = with_guest();
	struct fuse_forget_one one[200];
	struct fuse_attr a;

	for (unsigned int i = 0; i < 200; i++) {
		char *name = g_strdup_printf("f%u", i);

		raw_make_file(r, name, 1, 1);
		one[i].nodeid = raw_node(r, name);
		one[i].nlookup = 1;
		g_free(name);
	}
	raw_assert_ok(guest_fuse_batch_forget(r->fuse, one, 200));
	/* Never below zero, never the root (C virtiofsd aborts). */
	if (!raw_peer()) {
		g_assert_cmpint(guest_fuse_getattr(r->fuse, one[17].nodeid, &a), <, 0);
		raw_assert_ok(guest_fuse_forget(r->fuse, one[3].nodeid, 1000));
		raw_assert_ok(guest_fuse_forget(r->fuse, 1, 1000));
	}
	raw_assert_ok(guest_fuse_getattr(r->fuse, 1, &a));
	raw_stop(r);
}

static void finish_one(struct guest_req *q)
{
	unsigned int *left = q->user;

	g_assert_cmpint(q->error, ==, 0);
	g_assert_cmpuint(q->len, ==, 4096);
	__atomic_sub_fetch(left, 1, __ATOMIC_RELEASE);
	guest_req_put(q);
}

static void test_many_in_flight(void)
{
	struct raw *r = with_guest();
	unsigned int total = 5000;
	unsigned int left = total;
	uint8_t *buf = guest_mem_alloc(r->mem, 4096);
	struct fuse_attr a;
	uint64_t node;
	uint64_t fh;

	raw_make_file(r, "f", 4096, 9);
	node = raw_node(r, "f");
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY, &fh));
	for (unsigned int i = 0; i < total; i++) {
		struct guest_req *q = NULL;

		while (!(q = guest_req_get(r->fuse)))
			raw_assert_ok(guest_fuse_getattr(r->fuse, 1, &a));
		guest_prep_read(q, node, fh, 0, buf, 4096);
		q->done = finish_one;
		q->user = &left;
		raw_assert_ok(guest_req_submit(q));
		if (!guest_frontend_alive(r->fe))
			break;
	}
	while (__atomic_load_n(&left, __ATOMIC_ACQUIRE))
		raw_assert_ok(guest_fuse_getattr(r->fuse, 1, &a));
	g_assert_true(raw_check_bytes(buf, 0, 4096, 9));
	guest_mem_release(r->mem, buf, 4096);
	raw_stop(r);
}

static void test_polled(void)
{
	struct guest_config c = {.polled = true, .num_queues = 1};
	struct raw *r = raw_start(NULL);
	uint8_t *buf;
	uint64_t node;
	uint64_t fh;

	raw_connect(r, &c);
	buf = guest_mem_alloc(r->mem, 4096);
	raw_make_file(r, "f", 4096, 9);
	node = raw_node(r, "f");
	raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDONLY, &fh));
	for (unsigned int i = 0; i < 1000; i++)
		g_assert_cmpint(guest_fuse_read(r->fuse, node, fh, 0, buf, 4096), ==, 4096);
	raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
	guest_mem_release(r->mem, buf, 4096);
	raw_stop(r);
}

/* The bare minimum of features, and each optional one alone. */
static void test_feature_subsets(void)
{
	static const struct {
		uint64_t hide;
		uint64_t hide_protocol;
	} sets[] = {
		{GUEST_F_EVENT_IDX, 0},
		{GUEST_F_INDIRECT, 0},
		{GUEST_F_EVENT_IDX | GUEST_F_INDIRECT, GUEST_PF_CONFIGURE_MEM_SLOTS},
		{0, GUEST_PF_REPLY_ACK},
		{0, GUEST_PF_CONFIGURE_MEM_SLOTS},
		{0, GUEST_PF_BACKEND_REQ},
		{0, GUEST_PF_SHMEM},
		{0, ~0ull},
		{GUEST_F_PROTOCOL, 0},
	};

	for (unsigned int i = 0; i < G_N_ELEMENTS(sets); i++) {
		struct guest_config c = {
			.hide_features = sets[i].hide,
			.hide_protocol = sets[i].hide_protocol,
			.window.mode = GUEST_WINDOW_STRICT,
			.queue_size = 64,
		};
		struct raw *r = raw_start(NULL);
		uint8_t *buf;
		uint64_t node;
		uint64_t fh;

		g_test_message("set %u", i);
		raw_connect(r, &c);
		buf = guest_mem_alloc(r->mem, 65536);
		raw_make_file(r, "f", 65536, 9);
		node = raw_node(r, "f");
		raw_assert_ok(guest_fuse_open(r->fuse, node, O_RDWR, &fh));
		for (unsigned int j = 0; j < 300; j++)
			g_assert_cmpint(guest_fuse_read(r->fuse, node, fh, 0, buf, 65536), ==,
					65536);
		g_assert_true(raw_check_bytes(buf, 0, 65536, 9));
		g_assert_cmpint(guest_fuse_write(r->fuse, node, fh, 65536, buf, 4096), ==, 4096);
		raw_assert_ok(guest_fuse_release(r->fuse, node, fh));
		guest_mem_release(r->mem, buf, 65536);
		raw_stop(r);
	}
}

static void test_destroy_init(void)
{
	struct raw *r = with_guest();
	struct fuse_entry_out e;
	uint64_t fh;

	raw_make_file(r, "f", 10, 1);
	e.nodeid = raw_node(r, "f");
	raw_assert_ok(guest_fuse_open(r->fuse, e.nodeid, O_RDONLY, &fh));
	raw_assert_ok(guest_fuse_destroy(r->fuse));
	raw_assert_ok(guest_fuse_init(r->fuse, 0, NULL));
	raw_assert_ok(guest_fuse_lookup(r->fuse, 1, "f", &e));
	raw_assert_ok(guest_fuse_open(r->fuse, e.nodeid, O_RDONLY, &fh));
	raw_stop(r);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/ops/init", test_init);
	g_test_add_func("/ops/lookup", test_lookup);
	g_test_add_func("/ops/read-write", test_read_write);
	g_test_add_func("/ops/segments", test_segments);
	g_test_add_func("/ops/names", test_names);
	g_test_add_func("/ops/setattr", test_setattr);
	g_test_add_func("/ops/creds", test_creds);
	g_test_add_func("/ops/file-calls", test_file_calls);
	g_test_add_func("/ops/tmpfile-syncfs-interrupt", test_tmpfile_syncfs);
	g_test_add_func("/ops/readdir", test_readdir);
	g_test_add_func("/ops/xattr", test_xattr);
	g_test_add_func("/ops/forget", test_forget);
	g_test_add_func("/ops/many-in-flight", test_many_in_flight);
	g_test_add_func("/ops/polled", test_polled);
	g_test_add_func("/ops/feature-subsets", test_feature_subsets);
	g_test_add_func("/ops/destroy-init", test_destroy_init);
	return g_test_run();
}
