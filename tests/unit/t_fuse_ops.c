// SPDX-License-Identifier: Apache-2.0
/* Every opcode, well-formed, with its bytes split in every way; and every way to be malformed. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse_rig.h"

#define ROOT FUSE_ROOT_ID

static const size_t pieces[] = {0, 1, 3, 41};

static void inline_only(struct fuse_config *cfg)
{
	cfg->pool_size = 0;
}

static void over_splits(void (*body)(struct rig *g))
{
	for (size_t i = 0; i < G_N_ELEMENTS(pieces); i++) {
		for (int with_pool = 0; with_pool < 2; with_pool++) {
			struct rig *g = rig_new(with_pool ? NULL : inline_only);

			g->piece = pieces[i];
			g_assert_cmpint(rig_init(g), ==, 0);
			body(g);
			rig_free(g);
		}
	}
}

static int named(struct rig *g, uint32_t op, uint64_t parent, const void *args, size_t args_len,
		 const char *names, size_t names_len, struct fuse_entry_out *e)
{
	return rig_call(g, op, parent, args, args_len, names, names_len, e, e ? sizeof(*e) : 0);
}

static void body_data(struct rig *g)
{
	struct fuse_fsync_in sync = {0};
	struct fuse_release_in rel = {0};
	struct fuse_flush_in flush = {0};
	struct fuse_lseek_in seek = {.whence = SEEK_DATA};
	struct fuse_lseek_out pos;
	struct fuse_fallocate_in fall = {.length = 20000};
	struct fuse_copy_file_range_in copy = {.len = 9};
	struct fuse_write_out copied;
	struct fuse_attr_out attr;
	struct fuse_setattr_in set = {.valid = FATTR_SIZE | FATTR_FH, .size = 7};
	uint64_t node, fh, node2, fh2;
	char big[9000], back[9000], small[32];

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 7 + i / 256);
	g_assert_cmpint(rig_create(g, ROOT, "data", &node, &fh), ==, 0);
	g_assert_cmpint(rig_write(g, node, fh, 0, big, sizeof(big)), ==, sizeof(big));
	g_assert_cmpint(rig_read(g, node, fh, 0, back, sizeof(back)), ==, sizeof(back));
	g_assert_cmpmem(back, sizeof(back), big, sizeof(big));
	g_assert_cmpint(rig_read(g, node, fh, 8990, small, sizeof(small)), ==, 10);
	g_assert_cmpmem(small, 10, big + 8990, 10);
	g_assert_cmpint(rig_read(g, node, fh, 10000, small, sizeof(small)), ==, 0);
	g_assert_cmpint(rig_read(g, node, fh, INT64_MAX, small, 8), ==, -EINVAL);
	g_assert_cmpint(rig_read(g, node, fh, UINT64_MAX, small, 8), ==, -EINVAL);
	g_assert_cmpint(rig_read(g, node, fh + 99, 0, small, 8), ==, -EBADF);

	seek.fh = fh;
	g_assert_cmpint(
		rig_call(g, FUSE_LSEEK, node, &seek, sizeof(seek), NULL, 0, &pos, sizeof(pos)), ==,
		0);
	g_assert_cmpuint(pos.offset, ==, 0);
	fall.fh = fh;
	g_assert_cmpint(rig_call(g, FUSE_FALLOCATE, node, &fall, sizeof(fall), NULL, 0, NULL, 0),
			==, 0);
	fall.offset = UINT64_MAX;
	g_assert_cmpint(rig_call(g, FUSE_FALLOCATE, node, &fall, sizeof(fall), NULL, 0, NULL, 0),
			==, -EFBIG);
	g_assert_cmpint(rig_create(g, ROOT, "copy", &node2, &fh2), ==, 0);
	copy.fh_in = fh;
	copy.off_in = 1;
	copy.fh_out = fh2;
	copy.nodeid_out = node2;
	g_assert_cmpint(rig_call(g, FUSE_COPY_FILE_RANGE, node, &copy, sizeof(copy), NULL, 0,
				 &copied, sizeof(copied)),
			==, 0);
	g_assert_cmpuint(copied.size, ==, 9);
	g_assert_cmpint(rig_read(g, node2, fh2, 0, small, sizeof(small)), ==, 9);
	g_assert_cmpmem(small, 9, big + 1, 9);

	set.fh = fh;
	g_assert_cmpint(
		rig_call(g, FUSE_SETATTR, node, &set, sizeof(set), NULL, 0, &attr, sizeof(attr)),
		==, 0);
	g_assert_cmpuint(attr.attr.size, ==, 7);
	set.atimensec = 1000000000u;
	g_assert_cmpint(
		rig_call(g, FUSE_SETATTR, node, &set, sizeof(set), NULL, 0, &attr, sizeof(attr)),
		==, -EINVAL);
	sync.fh = fh;
	g_assert_cmpint(rig_call(g, FUSE_FSYNC, node, &sync, sizeof(sync), NULL, 0, NULL, 0), ==,
			0);
	flush.fh = fh;
	g_assert_cmpint(rig_call(g, FUSE_FLUSH, node, &flush, sizeof(flush), NULL, 0, NULL, 0), ==,
			0);
	rel.fh = fh;
	g_assert_cmpint(rig_call(g, FUSE_RELEASE, node, &rel, sizeof(rel), NULL, 0, NULL, 0), ==,
			0);
	g_assert_cmpint(rig_read(g, node, fh, 0, small, 8), ==, -EBADF);
}

static void body_names(struct rig *g)
{
	struct fuse_mkdir_in mkdir_in = {.mode = 0755};
	struct fuse_mknod_in mknod_in = {.mode = S_IFREG | 0600};
	struct fuse_rename_in ren = {0};
	struct fuse_rename2_in ren2 = {.flags = 1 /* NOREPLACE */};
	struct fuse_link_in link_in;
	struct fuse_entry_out d, f, e;
	struct fuse_access_in acc = {.mask = R_OK};
	struct fuse_statfs_out statfs_out;
	struct fuse_syncfs_in syncfs = {0};
	char target[16];
	char longname[300];

	g_assert_cmpint(named(g, FUSE_MKDIR, ROOT, &mkdir_in, sizeof(mkdir_in), "dir", 4, &d), ==,
			0);
	g_assert_true(S_ISDIR(d.attr.mode));
	g_assert_cmpint(named(g, FUSE_MKNOD, d.nodeid, &mknod_in, sizeof(mknod_in), "f", 2, &f), ==,
			0);
	g_assert_cmpint(rig_lookup(g, d.nodeid, "f", &e), ==, 0);
	g_assert_cmpuint(e.nodeid, ==, f.nodeid);
	g_assert_cmpuint(e.attr.ino, ==, f.attr.ino);
	g_assert_cmpint(rig_lookup(g, d.nodeid, "g", &e), ==, -ENOENT);
	g_assert_cmpint(rig_lookup(g, d.nodeid, "..", &e), <, 0);
	g_assert_cmpint(rig_lookup(g, d.nodeid, "a/b", &e), <, 0);
	g_assert_cmpint(rig_lookup(g, d.nodeid, "", &e), ==, -EINVAL);
	g_assert_cmpint(named(g, FUSE_LOOKUP, d.nodeid, NULL, 0, "f", 1, &e), ==, -EINVAL);
	memset(longname, 'x', sizeof(longname));
	longname[299] = 0;
	g_assert_cmpint(rig_lookup(g, d.nodeid, longname, &e), ==, -ENAMETOOLONG);
	longname[255] = 0;
	g_assert_cmpint(rig_lookup(g, d.nodeid, longname, &e), ==, -ENOENT);

	link_in.oldnodeid = f.nodeid;
	g_assert_cmpint(named(g, FUSE_LINK, d.nodeid, &link_in, sizeof(link_in), "hard", 5, &e), ==,
			0);
	g_assert_cmpuint(e.nodeid, ==, f.nodeid);
	g_assert_cmpuint(e.attr.nlink, ==, 2);
	g_assert_cmpint(named(g, FUSE_SYMLINK, d.nodeid, NULL, 0, "soft\0to", 8, &e), ==, 0);
	memset(target, 0, sizeof(target));
	g_assert_cmpint(
		rig_call(g, FUSE_READLINK, e.nodeid, NULL, 0, NULL, 0, target, sizeof(target)), ==,
		0);
	g_assert_cmpstr(target, ==, "to");
	g_assert_cmpint(named(g, FUSE_SYMLINK, d.nodeid, NULL, 0, "soft2\0to", 8, &e), ==, -EINVAL);

	ren.newdir = ROOT;
	g_assert_cmpint(named(g, FUSE_RENAME, d.nodeid, &ren, sizeof(ren), "hard\0moved", 11, NULL),
			==, 0);
	ren2.newdir = d.nodeid;
	g_assert_cmpint(named(g, FUSE_RENAME2, ROOT, &ren2, sizeof(ren2), "moved\0f", 8, NULL), ==,
			-EEXIST);
	g_assert_cmpint(named(g, FUSE_RENAME2, ROOT, &ren2, sizeof(ren2), "moved\0h", 8, NULL), ==,
			0);
	g_assert_cmpint(rig_call(g, FUSE_ACCESS, f.nodeid, &acc, sizeof(acc), NULL, 0, NULL, 0), ==,
			0);
	g_assert_cmpint(
		rig_call(g, FUSE_STATFS, ROOT, NULL, 0, NULL, 0, &statfs_out, sizeof(statfs_out)),
		==, 0);
	g_assert_cmpuint(statfs_out.st.bsize, >, 0);
	g_assert_cmpint(rig_call(g, FUSE_SYNCFS, ROOT, &syncfs, sizeof(syncfs), NULL, 0, NULL, 0),
			==, 0);
	g_assert_cmpint(named(g, FUSE_RMDIR, ROOT, NULL, 0, "dir", 4, NULL), ==, -ENOTEMPTY);
	g_assert_cmpint(named(g, FUSE_UNLINK, d.nodeid, NULL, 0, "f", 2, NULL), ==, 0);
	g_assert_cmpint(named(g, FUSE_UNLINK, d.nodeid, NULL, 0, "h", 2, NULL), ==, 0);
	g_assert_cmpint(named(g, FUSE_UNLINK, d.nodeid, NULL, 0, "soft", 5, NULL), ==, 0);
	g_assert_cmpint(named(g, FUSE_RMDIR, ROOT, NULL, 0, "dir", 4, NULL), ==, 0);
}

/* Lists all of @dir with buffers of @size; returns how many names, . and .. included. */
static unsigned int list_all(struct rig *g, uint64_t dir, uint64_t fh, bool plus, size_t size)
{
	struct fuse_read_in in = {.fh = fh, .size = (uint32_t)size};
	unsigned int names = 0;

	for (;;) {
		struct rig_req *q =
			rig_prepare(g, plus ? FUSE_READDIRPLUS : FUSE_READDIR, dir, &in, sizeof(in),
				    NULL, 0, size + sizeof(struct fuse_out_header));
		size_t at = 0;

		rig_send(q, 1);
		g_assert_cmpint(rig_wait(q), ==, 0);
		if (!q->payload_len) {
			rig_req_free(q);
			return names;
		}
		while (at < q->payload_len) {
			struct fuse_entry_out e;
			struct fuse_dirent d;

			if (plus) {
				memcpy(&e, q->payload + at, sizeof(e));
				at += sizeof(e);
			}
			memcpy(&d, q->payload + at, FUSE_NAME_OFFSET);
			if (plus && q->payload[at + FUSE_NAME_OFFSET] != '.') {
				struct fuse_forget_in forget = {.nlookup = 1};

				g_assert_cmpuint(e.attr.ino, ==, d.ino);
				rig_call(g, FUSE_FORGET, e.nodeid, &forget, sizeof(forget), NULL, 0,
					 NULL, 0);
			}
			at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + d.namelen);
			in.offset = d.off;
			names++;
		}
		g_assert_cmpuint(at, ==, q->payload_len);
		rig_req_free(q);
	}
}

static void body_dirs(struct rig *g)
{
	struct fuse_mknod_in mknod_in = {.mode = S_IFREG | 0600};
	struct fuse_open_in open_in = {0};
	struct fuse_open_out o;
	struct fuse_read_in in = {.size = 40};
	struct fuse_release_in rel = {0};
	struct fuse_fsync_in sync = {0};
	struct fuse_entry_out e;
	struct fs_stats before, after;
	char buf[64];

	for (int i = 0; i < 50; i++) {
		g_autofree char *name = g_strdup_printf("name-%d%s", i, &"xyzxyzxyz"[i % 9]);

		g_assert_cmpint(named(g, FUSE_MKNOD, ROOT, &mknod_in, sizeof(mknod_in), name,
				      strlen(name) + 1, &e),
				==, 0);
	}
	g_assert_cmpint(
		rig_call(g, FUSE_OPENDIR, ROOT, &open_in, sizeof(open_in), NULL, 0, &o, sizeof(o)),
		==, 0);
	fs_get_stats(g->fs, &before);
	for (size_t size = 200; size < 10000; size = size * 3 / 2) {
		g_assert_cmpuint(list_all(g, ROOT, o.fh, false, size), ==, 52);
		g_assert_cmpuint(list_all(g, ROOT, o.fh, true, size), ==, 52);
	}
	fs_get_stats(g->fs, &after);
	g_assert_cmpuint(before.nodes, ==, after.nodes);
	/* No room for one name: an error, not the end of the directory. */
	in.fh = o.fh;
	g_assert_cmpint(
		rig_call(g, FUSE_READDIRPLUS, ROOT, &in, sizeof(in), NULL, 0, buf, sizeof(buf)), ==,
		-EINVAL);
	sync.fh = rel.fh = o.fh;
	g_assert_cmpint(rig_call(g, FUSE_FSYNCDIR, ROOT, &sync, sizeof(sync), NULL, 0, NULL, 0), ==,
			0);
	g_assert_cmpint(rig_call(g, FUSE_RELEASEDIR, ROOT, &rel, sizeof(rel), NULL, 0, NULL, 0), ==,
			0);
}

static void body_xattr(struct rig *g)
{
	struct fuse_setxattr_in set = {.size = 5};
	struct fuse_getxattr_in get = {.size = 64};
	struct fuse_getxattr_out size;
	uint64_t node, fh;
	char buf[64];
	int err;

	g_assert_cmpint(rig_create(g, ROOT, "x", &node, &fh), ==, 0);
	err = named(g, FUSE_SETXATTR, node, &set, sizeof(set), "user.k\0value", 12, NULL);
	if (err == -EOPNOTSUPP) {
		g_test_skip("the temporary directory's file system has no user xattrs");
		return;
	}
	g_assert_cmpint(err, ==, 0);
	memset(buf, 0, sizeof(buf));
	g_assert_cmpint(rig_call(g, FUSE_GETXATTR, node, &get, sizeof(get), "user.k", 7, buf, 64),
			==, 0);
	g_assert_cmpstr(buf, ==, "value");
	get.size = 0;
	g_assert_cmpint(rig_call(g, FUSE_GETXATTR, node, &get, sizeof(get), "user.k", 7, &size,
				 sizeof(size)),
			==, 0);
	g_assert_cmpuint(size.size, ==, 5);
	get.size = 3;
	g_assert_cmpint(rig_call(g, FUSE_GETXATTR, node, &get, sizeof(get), "user.k", 7, buf, 3),
			==, -ERANGE);
	get.size = 64;
	g_assert_cmpint(rig_call(g, FUSE_LISTXATTR, node, &get, sizeof(get), NULL, 0, buf, 64), ==,
			0);
	g_assert_cmpint(named(g, FUSE_REMOVEXATTR, node, NULL, 0, "user.k", 7, NULL), ==, 0);
	g_assert_cmpint(rig_call(g, FUSE_GETXATTR, node, &get, sizeof(get), "user.k", 7, buf, 64),
			==, -ENODATA);
	set.size = 6; /* one more than came */
	g_assert_cmpint(named(g, FUSE_SETXATTR, node, &set, sizeof(set), "user.k\0value", 12, NULL),
			==, -EINVAL);
	set.size = 1 << 20;
	g_assert_cmpint(named(g, FUSE_SETXATTR, node, &set, sizeof(set), "user.k\0value", 12, NULL),
			==, -E2BIG);
}

static void body_tmpfile_and_forget(struct rig *g)
{
	struct fuse_create_in in = {.flags = O_RDWR, .mode = S_IFREG | 0600};
	unsigned char out[sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out)];
	struct fuse_entry_out e, again;
	struct fuse_release_in rel = {0};
	struct fuse_open_out o;
	struct {
		struct fuse_batch_forget_in head;
		struct fuse_forget_one one[2];
	} forget = {.head = {.count = 2}};
	struct fs_stats st;
	char back[5];
	uint64_t node, fh;

	g_assert_cmpint(rig_call(g, FUSE_TMPFILE, ROOT, &in, sizeof(in), "/", 2, out, sizeof(out)),
			==, 0);
	memcpy(&e, out, sizeof(e));
	memcpy(&o, out + sizeof(e), sizeof(o));
	g_assert_cmpuint(e.attr.nlink, ==, 0);
	g_assert_cmpint(rig_write(g, e.nodeid, o.fh, 0, "hello", 5), ==, 5);
	g_assert_cmpint(rig_read(g, e.nodeid, o.fh, 0, back, 5), ==, 5);
	rel.fh = o.fh;
	g_assert_cmpint(rig_call(g, FUSE_RELEASE, e.nodeid, &rel, sizeof(rel), NULL, 0, NULL, 0),
			==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "twice", &node, &fh), ==, 0);
	g_assert_cmpint(rig_lookup(g, ROOT, "twice", &again), ==, 0);
	rel.fh = fh;
	g_assert_cmpint(rig_call(g, FUSE_RELEASE, node, &rel, sizeof(rel), NULL, 0, NULL, 0), ==,
			0);
	forget.one[0] = (struct fuse_forget_one){.nodeid = e.nodeid, .nlookup = 1};
	forget.one[1] = (struct fuse_forget_one){.nodeid = node, .nlookup = 2};
	g_assert_cmpint(
		rig_call(g, FUSE_BATCH_FORGET, 0, &forget, sizeof(forget), NULL, 0, NULL, 0), ==,
		0);
	fs_get_stats(g->fs, &st);
	g_assert_cmpuint(st.nodes, ==, 1);
	g_assert_cmpuint(st.handles, ==, 0);
	/* A count that promises more than came. */
	forget.head.count = UINT32_MAX;
	g_assert_cmpint(
		rig_call(g, FUSE_BATCH_FORGET, 0, &forget, sizeof(forget), NULL, 0, NULL, 0), ==,
		0);
}

static void test_data(void)
{
	over_splits(body_data);
}

static void test_names(void)
{
	over_splits(body_names);
}

static void test_dirs(void)
{
	over_splits(body_dirs);
}

static void test_xattr(void)
{
	over_splits(body_xattr);
}

static void test_tmpfile_and_forget(void)
{
	over_splits(body_tmpfile_and_forget);
}

/* Every opcode, one byte of its arguments, or of the room for its reply, missing. */
static void test_too_short(void)
{
	static const unsigned char zeros[512];
	struct rig *g = rig_new(NULL);

	g_assert_cmpint(rig_init(g), ==, 0);
	for (uint32_t op = 1; op < FUSE_NUM_OPS; op++) {
		const struct fuse_op *row = &fuse_ops[op];
		struct rig_req *q;

		if (!row->name || !row->run || op == FUSE_INIT || op == FUSE_DESTROY)
			continue;
		if (row->args) {
			q = rig_prepare(g, op, ROOT, zeros, row->args - 1u, NULL, 0, 4096);
			rig_send(q, 1);
			g_assert_cmpint(rig_wait(q), ==,
					row->flags & FUSE_OP_NO_REPLY ? 0 : -EINVAL);
			rig_req_free(q);
		}
		if (row->reply) {
			q = rig_prepare(g, op, ROOT, zeros, row->args, "a\0b", 4,
					sizeof(struct fuse_out_header) + row->reply - 1u);
			rig_send(q, 1);
			g_assert_cmpint(rig_wait(q), ==, -EINVAL);
			rig_req_free(q);
		}
		/* No room for a header: it comes back empty. */
		q = rig_prepare(g, op, ROOT, zeros, row->args, "a\0b", 4, 15);
		rig_send(q, 1);
		g_assert_cmpint(rig_wait(q), ==, 0);
		g_assert_cmpuint(q->len, ==, 0);
		rig_req_free(q);
	}
	rig_free(g);
}

static void test_bad_headers(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_in_header *h;
	struct rig_req *q;

	g_assert_cmpint(rig_init(g), ==, 0);
	for (size_t len = 0; len < sizeof(*h); len++) {
		q = rig_prepare(g, FUSE_STATFS, ROOT, NULL, 0, NULL, 0, 256);
		q->r.out.iov[0].iov_len = len;
		q->r.out.len = len;
		rig_send(q, 1);
		while (!rig_is_done(q))
			;
		g_assert_cmpuint(q->len, ==, sizeof(struct fuse_out_header));
		g_assert_cmpint(((struct fuse_out_header *)(void *)q->in)->error, ==, -EINVAL);
		rig_req_free(q);
	}
	for (int delta = -1; delta <= 1; delta += 2) {
		q = rig_prepare(g, FUSE_STATFS, ROOT, NULL, 0, NULL, 0, 256);
		h = (struct fuse_in_header *)(void *)q->out;
		h->len = (uint32_t)((int)h->len + delta);
		rig_send(q, 1);
		g_assert_cmpint(rig_wait(q), ==, -EINVAL);
		rig_req_free(q);
	}
	g_assert_cmpint(rig_call(g, 0, ROOT, NULL, 0, NULL, 0, NULL, 0), ==, -ENOSYS);
	g_assert_cmpint(rig_call(g, 19, ROOT, NULL, 0, NULL, 0, NULL, 0), ==, -ENOSYS);
	g_assert_cmpint(rig_call(g, FUSE_IOCTL, ROOT, NULL, 0, NULL, 0, NULL, 0), ==, -ENOSYS);
	g_assert_cmpint(rig_call(g, FUSE_NUM_OPS, ROOT, NULL, 0, NULL, 0, NULL, 0), ==, -ENOSYS);
	g_assert_cmpint(rig_call(g, UINT32_MAX, ROOT, NULL, 0, NULL, 0, NULL, 0), ==, -ENOSYS);
	g_assert_cmpuint(rig_count(g, "unknown"), >=, 4);
	g_assert_cmpuint(rig_count(g, "ioctl"), ==, 1);
	rig_free(g);
}

static void test_wrong_sizes_of_data(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_write_in w = {.size = 11};
	struct fuse_read_in r = {.size = 5000};
	struct fuse_write_out wo;
	uint64_t node, fh;
	char buf[64];

	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "f", &node, &fh), ==, 0);
	w.fh = r.fh = fh;
	g_assert_cmpint(
		rig_call(g, FUSE_WRITE, node, &w, sizeof(w), "0123456789", 10, &wo, sizeof(wo)), ==,
		-EINVAL);
	w.size = UINT32_MAX;
	g_assert_cmpint(
		rig_call(g, FUSE_WRITE, node, &w, sizeof(w), "0123456789", 10, &wo, sizeof(wo)), ==,
		-EINVAL);
	w.size = 3;
	g_assert_cmpint(
		rig_call(g, FUSE_WRITE, node, &w, sizeof(w), "0123456789", 10, &wo, sizeof(wo)), ==,
		0);
	g_assert_cmpuint(wo.size, ==, 3);
	g_assert_cmpint(rig_call(g, FUSE_READ, node, &r, sizeof(r), NULL, 0, buf, sizeof(buf)), ==,
			-EINVAL);
	r.size = UINT32_MAX;
	g_assert_cmpint(rig_call(g, FUSE_READ, node, &r, sizeof(r), NULL, 0, buf, sizeof(buf)), ==,
			-EINVAL);
	rig_free(g);
}

/* The group that a creation may use comes behind the names, in an extension. */
static void test_supplementary_group(void)
{
	struct rig *g = rig_new(NULL);
	struct {
		char name[8];
		struct fuse_ext_header h;
		uint32_t groups[2];
	} data = {"newdir", {.size = 16, .type = FUSE_TYPE_EXT_GROUPS}, {1, 4711}};
	struct fuse_mkdir_in in = {.mode = 0755};
	struct fuse_entry_out e;
	static const struct {
		uint32_t size, nr, extlen;
		int err;
	} cases[] = {
		{16, 1, 2, 0},	     {16, 2, 2, -EINVAL},     {16, 0, 2, -EINVAL},
		{7, 1, 2, -EINVAL},  {17, 1, 2, -EINVAL},     {UINT32_MAX, 1, 2, -EINVAL},
		{8, 1, 2, -EINVAL},  {16, 1, 1, -EINVAL},     {16, 1, 100, -EINVAL},
		{16, 1, 3, -EINVAL}, {16, 1, 65535, -EINVAL},
	};

	g_assert_cmpint(rig_init(g), ==, 0);
	for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
		struct rig_req *q;

		data.name[5] = (char)('a' + i);
		data.h.size = cases[i].size;
		data.groups[0] = cases[i].nr;
		q = rig_prepare(g, FUSE_MKDIR, ROOT, &in, sizeof(in), &data, sizeof(data),
				16 + sizeof(e));
		((struct fuse_in_header *)(void *)q->out)->total_extlen = (uint16_t)cases[i].extlen;
		rig_send(q, 1);
		g_test_message("case %zu", i);
		g_assert_cmpint(rig_wait(q), ==, cases[i].err);
		rig_req_free(q);
	}
	rig_free(g);
}

/* A lock that another handle holds: SETLK fails, SETLKW waits for it, INTERRUPT ends the wait. */
static int lock_args(struct fuse_lk_in *in, uint64_t fh, uint32_t type)
{
	*in = (struct fuse_lk_in){
		.fh = fh, .lk = {.type = type, .end = INT64_MAX}, .lk_flags = FUSE_LK_FLOCK};
	return 0;
}

static void test_locks(void)
{
	struct rig *g = rig_new(NULL);
	struct fuse_open_in open_in = {.flags = O_RDWR};
	struct fuse_open_out o;
	struct fuse_lk_in lk;
	struct fuse_interrupt_in intr;
	struct rig_req *wait1, *wait2;
	uint64_t node, fh;

	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "f", &node, &fh), ==, 0);
	g_assert_cmpint(
		rig_call(g, FUSE_OPEN, node, &open_in, sizeof(open_in), NULL, 0, &o, sizeof(o)), ==,
		0);
	lock_args(&lk, fh, F_WRLCK);
	g_assert_cmpint(rig_call(g, FUSE_SETLK, node, &lk, sizeof(lk), NULL, 0, NULL, 0), ==, 0);
	lock_args(&lk, o.fh, F_RDLCK);
	g_assert_cmpint(rig_call(g, FUSE_SETLK, node, &lk, sizeof(lk), NULL, 0, NULL, 0), ==,
			-EWOULDBLOCK);
	wait1 = rig_prepare(g, FUSE_SETLKW, node, &lk, sizeof(lk), NULL, 0, 16);
	wait2 = rig_prepare(g, FUSE_SETLKW, node, &lk, sizeof(lk), NULL, 0, 16);
	rig_send(wait1, 1);
	rig_send(wait2, 2);
	g_assert_false(rig_is_done(wait1));
	memcpy(&intr.unique, wait2->out + offsetof(struct fuse_in_header, unique), 8);
	g_assert_cmpint(rig_call(g, FUSE_INTERRUPT, 0, &intr, sizeof(intr), NULL, 0, NULL, 0), ==,
			0);
	g_assert_cmpint(rig_wait(wait2), ==, -EINTR);
	g_assert_false(rig_is_done(wait1));
	lock_args(&lk, fh, F_UNLCK);
	g_assert_cmpint(rig_call(g, FUSE_SETLK, node, &lk, sizeof(lk), NULL, 0, NULL, 0), ==, 0);
	g_assert_cmpint(rig_wait(wait1), ==, 0);
	/* Meanwhile a stop of the device does not wait for them. */
	g_assert_cmpuint(wait1->parks, ==, 1);
	g_assert_cmpuint(wait2->parks, ==, 1);
	rig_req_free(wait1);
	rig_req_free(wait2);

	/* DESTROY waits for nobody who waits for a lock. */
	lock_args(&lk, fh, F_WRLCK);
	wait1 = rig_prepare(g, FUSE_SETLKW, node, &lk, sizeof(lk), NULL, 0, 16);
	rig_send(wait1, 1);
	g_assert_cmpint(rig_destroy(g), ==, 0);
	g_assert_cmpint(rig_wait(wait1), ==, -EINTR);
	rig_req_free(wait1);

	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "f2", &node, &fh), ==, 0);
	lock_args(&lk, fh, 77);
	g_assert_cmpint(rig_call(g, FUSE_SETLK, node, &lk, sizeof(lk), NULL, 0, NULL, 0), ==,
			-EINVAL);
	lk.lk_flags = 0; /* a POSIX lock */
	g_assert_cmpint(rig_call(g, FUSE_SETLK, node, &lk, sizeof(lk), NULL, 0, NULL, 0), ==,
			-ENOSYS);
	rig_free(g);
}

static void batching(struct fuse_config *cfg)
{
	cfg->batch_reads = true;
}

/* Kept until the transport says so, until something else comes, or until there are enough. */
static void test_kept_reads(void)
{
	struct rig *g = rig_new(batching);
	struct fuse_read_in in = {.size = 4096};
	struct rig_req *q[FS_BATCH_MAX];
	char text[4096];
	uint64_t node;
	unsigned int wait;

	memset(text, 'k', sizeof(text));
	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "kept", &node, &in.fh), ==, 0);
	g_assert_cmpint(rig_write(g, node, in.fh, 0, text, sizeof(text)), ==, sizeof(text));
	if (!g->s->queues[1].batch) {
		g_test_skip("no io_uring for us");
		rig_free(g);
		return;
	}
	for (int round = 0; round < 3; round++) {
		unsigned int n = round == 2 ? FS_BATCH_MAX : 3;

		for (unsigned int i = 0; i < n; i++) {
			q[i] = rig_prepare(g, FUSE_READ, node, &in, sizeof(in), NULL, 0, 4096 + 16);
			q[i]->r.more = true;
			rig_send(q[i], 1);
			wait = g->s->queues[1].batch->n;
			/* tmpfs of old kernels knows no NOWAIT: then nothing is kept */
			g_assert_true(wait == i + 1 || wait == 0);
		}
		if (round == 0) {
			fuse_session_flush(g->s, 1);
		} else if (round == 1) {
			struct rig_req *other =
				rig_prepare(g, FUSE_STATFS, ROOT, NULL, 0, NULL, 0, 512);

			other->r.more = true;
			rig_send(other, 1);
			g_assert_cmpint(rig_wait(other), ==, 0);
			rig_req_free(other);
		}
		g_assert_cmpuint(g->s->queues[1].batch->n, ==, 0);
		for (unsigned int i = 0; i < n; i++) {
			g_assert_cmpint(rig_wait(q[i]), ==, 0);
			g_assert_cmpmem(q[i]->payload, q[i]->payload_len, text, sizeof(text));
			rig_req_free(q[i]);
		}
	}
	rig_free(g);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/ops/data", test_data);
	g_test_add_func("/fuse/ops/names", test_names);
	g_test_add_func("/fuse/ops/dirs", test_dirs);
	g_test_add_func("/fuse/ops/xattr", test_xattr);
	g_test_add_func("/fuse/ops/tmpfile-forget", test_tmpfile_and_forget);
	g_test_add_func("/fuse/ops/too-short", test_too_short);
	g_test_add_func("/fuse/ops/bad-headers", test_bad_headers);
	g_test_add_func("/fuse/ops/data-sizes", test_wrong_sizes_of_data);
	g_test_add_func("/fuse/ops/supplementary-group", test_supplementary_group);
	g_test_add_func("/fuse/ops/locks", test_locks);
	g_test_add_func("/fuse/read/kept", test_kept_reads);
	return g_test_run();
}
