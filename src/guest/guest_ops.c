// SPDX-License-Identifier: Apache-2.0
/* One typed call an opcode. */
#include <errno.h>
#include <string.h>

#include "guest_fuse.h"
#include "guest_fuse_internal.h"

static const void *reply_of(struct guest_req *r)
{
	return guest_req_reply_header(r) + 1;
}

/* Sends a request whose reply says nothing but yes. */
static int call_plain(struct guest_req *r)
{
	int err = guest_req_call(r);

	guest_req_put(r);
	return err;
}

/* Sends a request answered by @size bytes, which are copied to @out (may be NULL). */
static int call_copy(struct guest_req *r, uint32_t size, void *out)
{
	int err;

	guest_req_reply(r, size);
	err = guest_req_call(r);
	if (!err && out)
		memcpy(out, reply_of(r), size);
	guest_req_put(r);
	return err;
}

static int call_entry(struct guest_req *r, struct fuse_entry_out *e)
{
	return call_copy(r, sizeof(*e), e);
}

static int call_attr(struct guest_req *r, struct fuse_attr *a)
{
	struct fuse_attr_out o;
	int err = call_copy(r, sizeof(o), &o);

	if (!err && a)
		*a = o.attr;
	return err;
}

static int call_name(struct guest_fuse *f, uint32_t opcode, uint64_t parent, const char *name)
{
	struct guest_req *r = guest_fuse_begin(f, opcode, parent);

	guest_req_str(r, name);
	return call_plain(r);
}

/* --- prepared requests --- */

void guest_prep_read(struct guest_req *r, uint64_t node, uint64_t fh, uint64_t off, void *buf,
		     uint32_t size)
{
	struct fuse_read_in *in;

	guest_req_start(r, FUSE_READ, node);
	in = guest_req_arg(r, sizeof(*in));
	in->fh = fh;
	in->offset = off;
	in->size = size;
	guest_req_in_data(r, buf, size);
}

void guest_prep_write(struct guest_req *r, uint64_t node, uint64_t fh, uint64_t off, void *buf,
		      uint32_t size)
{
	struct fuse_write_in *in;

	guest_req_start(r, FUSE_WRITE, node);
	in = guest_req_arg(r, sizeof(*in));
	in->fh = fh;
	in->offset = off;
	in->size = size;
	guest_req_out_data(r, buf, size);
	guest_req_reply(r, sizeof(struct fuse_write_out));
}

void guest_prep_lookup(struct guest_req *r, uint64_t parent, const char *name)
{
	guest_req_start(r, FUSE_LOOKUP, parent);
	guest_req_str(r, name);
	guest_req_reply(r, sizeof(struct fuse_entry_out));
}

void guest_prep_getattr(struct guest_req *r, uint64_t node)
{
	guest_req_start(r, FUSE_GETATTR, node);
	guest_req_arg(r, sizeof(struct fuse_getattr_in));
	guest_req_reply(r, sizeof(struct fuse_attr_out));
}

void guest_prep_create(struct guest_req *r, uint64_t parent, const char *name, uint32_t mode,
		       uint32_t flags)
{
	struct fuse_create_in *in;

	guest_req_start(r, FUSE_CREATE, parent);
	in = guest_req_arg(r, sizeof(*in));
	in->flags = flags;
	in->mode = mode;
	guest_req_str(r, name);
	guest_req_reply(r, sizeof(struct fuse_entry_out) + sizeof(struct fuse_open_out));
}

void guest_prep_open(struct guest_req *r, uint64_t node, uint32_t flags)
{
	struct fuse_open_in *in;

	guest_req_start(r, FUSE_OPEN, node);
	in = guest_req_arg(r, sizeof(*in));
	in->flags = flags;
	guest_req_reply(r, sizeof(struct fuse_open_out));
}

void guest_prep_release(struct guest_req *r, uint64_t node, uint64_t fh)
{
	struct fuse_release_in *in;

	guest_req_start(r, FUSE_RELEASE, node);
	in = guest_req_arg(r, sizeof(*in));
	in->fh = fh;
}

void guest_prep_forget(struct guest_req *r, uint64_t node, uint64_t nlookup)
{
	struct fuse_forget_in *in;

	guest_req_start(r, FUSE_FORGET, node);
	in = guest_req_arg(r, sizeof(*in));
	in->nlookup = nlookup;
}

void guest_prep_setupmapping(struct guest_req *r, uint64_t node, uint64_t foffset, uint64_t len,
			     uint64_t flags, uint64_t moffset)
{
	struct fuse_setupmapping_in *in;

	guest_req_start(r, FUSE_SETUPMAPPING, node);
	in = guest_req_arg(r, sizeof(*in));
	in->fh = UINT64_MAX;
	in->foffset = foffset;
	in->len = len;
	in->flags = flags;
	in->moffset = moffset;
}

void guest_prep_removemapping(struct guest_req *r, uint64_t node,
			      const struct fuse_removemapping_one *m, unsigned int n)
{
	struct fuse_removemapping_in *in;

	guest_req_start(r, FUSE_REMOVEMAPPING, node);
	in = guest_req_arg(r, sizeof(*in));
	in->count = n;
	guest_req_bytes(r, m, n * (uint32_t)sizeof(*m));
}

const struct fuse_entry_out *guest_req_entry(struct guest_req *r)
{
	return reply_of(r);
}

const struct fuse_attr_out *guest_req_attr(struct guest_req *r)
{
	return reply_of(r);
}

const struct fuse_open_out *guest_req_open(struct guest_req *r)
{
	return reply_of(r);
}

const struct fuse_open_out *guest_req_create_open(struct guest_req *r)
{
	return (const void *)(guest_req_entry(r) + 1);
}

uint32_t guest_req_write_size(struct guest_req *r)
{
	return ((const struct fuse_write_out *)reply_of(r))->size;
}

/* --- names --- */

int guest_fuse_lookup(struct guest_fuse *f, uint64_t parent, const char *name,
		      struct fuse_entry_out *e)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_LOOKUP, parent);

	guest_req_str(r, name);
	return call_entry(r, e);
}

int guest_fuse_path(struct guest_fuse *f, const char *path, struct fuse_entry_out *e)
{
	char **parts = g_strsplit(path, "/", -1);
	int err = 0;

	memset(e, 0, sizeof(*e));
	e->nodeid = FUSE_ROOT_ID;
	for (char **p = parts; *p && !err; p++) {
		uint64_t parent = e->nodeid;

		if (!**p)
			continue;
		err = guest_fuse_lookup(f, parent, *p, e);
		if (parent != FUSE_ROOT_ID)
			guest_fuse_forget(f, parent, 1);
	}
	g_strfreev(parts);
	return err;
}

int guest_fuse_forget(struct guest_fuse *f, uint64_t node, uint64_t nlookup)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_FORGET, node);
	struct fuse_forget_in *in = guest_req_arg(r, sizeof(*in));

	in->nlookup = nlookup;
	return call_plain(r);
}

int guest_fuse_batch_forget(struct guest_fuse *f, const struct fuse_forget_one *one, unsigned int n)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_BATCH_FORGET, 0);
	struct fuse_batch_forget_in *in = guest_req_arg(r, sizeof(*in));

	in->count = n;
	guest_req_bytes(r, one, n * (uint32_t)sizeof(*one));
	return call_plain(r);
}

int guest_fuse_mkdir(struct guest_fuse *f, uint64_t parent, const char *name, uint32_t mode,
		     struct fuse_entry_out *e)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_MKDIR, parent);
	struct fuse_mkdir_in *in = guest_req_arg(r, sizeof(*in));

	in->mode = mode;
	guest_req_str(r, name);
	return call_entry(r, e);
}

int guest_fuse_mknod(struct guest_fuse *f, uint64_t parent, const char *name, uint32_t mode,
		     uint32_t rdev, struct fuse_entry_out *e)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_MKNOD, parent);
	struct fuse_mknod_in *in = guest_req_arg(r, sizeof(*in));

	in->mode = mode;
	in->rdev = rdev;
	guest_req_str(r, name);
	return call_entry(r, e);
}

int guest_fuse_symlink(struct guest_fuse *f, uint64_t parent, const char *name, const char *target,
		       struct fuse_entry_out *e)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_SYMLINK, parent);

	guest_req_str(r, name);
	guest_req_str(r, target);
	return call_entry(r, e);
}

int guest_fuse_link(struct guest_fuse *f, uint64_t node, uint64_t newparent, const char *name,
		    struct fuse_entry_out *e)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_LINK, newparent);
	struct fuse_link_in *in = guest_req_arg(r, sizeof(*in));

	in->oldnodeid = node;
	guest_req_str(r, name);
	return call_entry(r, e);
}

ssize_t guest_fuse_readlink(struct guest_fuse *f, uint64_t node, char *buf, size_t size)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_READLINK, node);
	ssize_t n;

	guest_req_reply_upto(r, GUEST_REQ_IN - sizeof(struct fuse_out_header));
	n = guest_req_call(r);
	if (!n) {
		n = r->len;
		memcpy(buf, reply_of(r), MIN((size_t)n, size - 1));
		buf[MIN((size_t)n, size - 1)] = 0;
	}
	guest_req_put(r);
	return n;
}

int guest_fuse_unlink(struct guest_fuse *f, uint64_t parent, const char *name)
{
	return call_name(f, FUSE_UNLINK, parent, name);
}

int guest_fuse_rmdir(struct guest_fuse *f, uint64_t parent, const char *name)
{
	return call_name(f, FUSE_RMDIR, parent, name);
}

int guest_fuse_rename(struct guest_fuse *f, uint64_t parent, const char *name, uint64_t newparent,
		      const char *newname)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_RENAME, parent);
	struct fuse_rename_in *in = guest_req_arg(r, sizeof(*in));

	in->newdir = newparent;
	guest_req_str(r, name);
	guest_req_str(r, newname);
	return call_plain(r);
}

int guest_fuse_rename2(struct guest_fuse *f, uint64_t parent, const char *name, uint64_t newparent,
		       const char *newname, uint32_t flags)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_RENAME2, parent);
	struct fuse_rename2_in *in = guest_req_arg(r, sizeof(*in));

	in->newdir = newparent;
	in->flags = flags;
	guest_req_str(r, name);
	guest_req_str(r, newname);
	return call_plain(r);
}

int guest_fuse_getattr(struct guest_fuse *f, uint64_t node, struct fuse_attr *a)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_GETATTR, node);

	guest_req_arg(r, sizeof(struct fuse_getattr_in));
	return call_attr(r, a);
}

int guest_fuse_getattr_fh(struct guest_fuse *f, uint64_t node, uint64_t fh, struct fuse_attr *a)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_GETATTR, node);
	struct fuse_getattr_in *in = guest_req_arg(r, sizeof(*in));

	in->getattr_flags = FUSE_GETATTR_FH;
	in->fh = fh;
	return call_attr(r, a);
}

int guest_fuse_setattr(struct guest_fuse *f, uint64_t node, const struct fuse_setattr_in *in,
		       struct fuse_attr *a)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_SETATTR, node);

	guest_req_bytes(r, in, sizeof(*in));
	return call_attr(r, a);
}

int guest_fuse_truncate(struct guest_fuse *f, uint64_t node, uint64_t size)
{
	struct fuse_setattr_in in = {.valid = FATTR_SIZE, .size = size};

	return guest_fuse_setattr(f, node, &in, NULL);
}

int guest_fuse_statfs(struct guest_fuse *f, uint64_t node, struct fuse_kstatfs *st)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_STATFS, node);

	return call_copy(r, sizeof(struct fuse_statfs_out), st);
}

int guest_fuse_access(struct guest_fuse *f, uint64_t node, uint32_t mask)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_ACCESS, node);
	struct fuse_access_in *in = guest_req_arg(r, sizeof(*in));

	in->mask = mask;
	return call_plain(r);
}

/* --- files --- */

static int call_open(struct guest_fuse *f, uint32_t opcode, uint64_t node, uint32_t flags,
		     uint64_t *fh)
{
	struct guest_req *r = guest_fuse_begin(f, opcode, node);
	struct fuse_open_in *in = guest_req_arg(r, sizeof(*in));
	struct fuse_open_out o;
	int err;

	in->flags = flags;
	err = call_copy(r, sizeof(o), &o);
	if (!err)
		*fh = o.fh;
	return err;
}

static int call_release(struct guest_fuse *f, uint32_t opcode, uint64_t node, uint64_t fh)
{
	struct guest_req *r = guest_fuse_begin(f, opcode, node);
	struct fuse_release_in *in = guest_req_arg(r, sizeof(*in));

	in->fh = fh;
	return call_plain(r);
}

static int call_fsync(struct guest_fuse *f, uint32_t opcode, uint64_t node, uint64_t fh,
		      bool datasync)
{
	struct guest_req *r = guest_fuse_begin(f, opcode, node);
	struct fuse_fsync_in *in = guest_req_arg(r, sizeof(*in));

	in->fh = fh;
	in->fsync_flags = datasync ? FUSE_FSYNC_FDATASYNC : 0;
	return call_plain(r);
}

static int call_create(struct guest_req *r, struct fuse_entry_out *e, uint64_t *fh)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} o;
	int err = call_copy(r, sizeof(o), &o);

	if (!err) {
		*e = o.entry;
		*fh = o.open.fh;
	}
	return err;
}

int guest_fuse_open(struct guest_fuse *f, uint64_t node, uint32_t flags, uint64_t *fh)
{
	return call_open(f, FUSE_OPEN, node, flags, fh);
}

int guest_fuse_create(struct guest_fuse *f, uint64_t parent, const char *name, uint32_t mode,
		      uint32_t flags, struct fuse_entry_out *e, uint64_t *fh)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_CREATE, parent);
	struct fuse_create_in *in = guest_req_arg(r, sizeof(*in));

	in->flags = flags;
	in->mode = mode;
	guest_req_str(r, name);
	return call_create(r, e, fh);
}

int guest_fuse_tmpfile(struct guest_fuse *f, uint64_t parent, uint32_t mode, uint32_t flags,
		       struct fuse_entry_out *e, uint64_t *fh)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_TMPFILE, parent);
	struct fuse_create_in *in = guest_req_arg(r, sizeof(*in));

	in->flags = flags;
	in->mode = mode;
	guest_req_str(r, "");
	return call_create(r, e, fh);
}

int guest_fuse_release(struct guest_fuse *f, uint64_t node, uint64_t fh)
{
	return call_release(f, FUSE_RELEASE, node, fh);
}

int guest_fuse_flush(struct guest_fuse *f, uint64_t node, uint64_t fh)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_FLUSH, node);
	struct fuse_flush_in *in = guest_req_arg(r, sizeof(*in));

	in->fh = fh;
	return call_plain(r);
}

int guest_fuse_fsync(struct guest_fuse *f, uint64_t node, uint64_t fh, bool datasync)
{
	return call_fsync(f, FUSE_FSYNC, node, fh, datasync);
}

ssize_t guest_fuse_read(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off, void *buf,
			uint32_t size)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_READ, node);
	ssize_t n;

	guest_prep_read(r, node, fh, off, buf, size);
	n = guest_req_call(r);
	if (!n)
		n = r->len;
	guest_req_put(r);
	return n;
}

ssize_t guest_fuse_write(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off, void *buf,
			 uint32_t size)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_WRITE, node);
	ssize_t n;

	guest_prep_write(r, node, fh, off, buf, size);
	n = guest_req_call(r);
	if (!n)
		n = guest_req_write_size(r);
	guest_req_put(r);
	return n;
}

int guest_fuse_fallocate(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off,
			 uint64_t len, uint32_t mode)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_FALLOCATE, node);
	struct fuse_fallocate_in *in = guest_req_arg(r, sizeof(*in));

	in->fh = fh;
	in->offset = off;
	in->length = len;
	in->mode = mode;
	return call_plain(r);
}

int64_t guest_fuse_lseek(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off,
			 uint32_t whence)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_LSEEK, node);
	struct fuse_lseek_in *in = guest_req_arg(r, sizeof(*in));
	struct fuse_lseek_out o;
	int err;

	in->fh = fh;
	in->offset = off;
	in->whence = whence;
	err = call_copy(r, sizeof(o), &o);
	return err ? err : (int64_t)o.offset;
}

ssize_t guest_fuse_copy_file_range(struct guest_fuse *f, uint64_t node_in, uint64_t fh_in,
				   uint64_t off_in, uint64_t node_out, uint64_t fh_out,
				   uint64_t off_out, uint64_t len)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_COPY_FILE_RANGE, node_in);
	struct fuse_copy_file_range_in *in = guest_req_arg(r, sizeof(*in));
	struct fuse_write_out o;
	int err;

	in->fh_in = fh_in;
	in->off_in = off_in;
	in->nodeid_out = node_out;
	in->fh_out = fh_out;
	in->off_out = off_out;
	in->len = len;
	err = call_copy(r, sizeof(o), &o);
	return err ? err : (ssize_t)o.size;
}

int guest_fuse_syncfs(struct guest_fuse *f, uint64_t node)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_SYNCFS, node);

	guest_req_arg(r, sizeof(struct fuse_syncfs_in));
	return call_plain(r);
}

int guest_fuse_interrupt(struct guest_fuse *f, uint64_t unique)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_INTERRUPT, 0);
	struct fuse_interrupt_in *in = guest_req_arg(r, sizeof(*in));

	in->unique = unique;
	return call_plain(r);
}

/* --- directories --- */

int guest_fuse_opendir(struct guest_fuse *f, uint64_t node, uint64_t *fh)
{
	return call_open(f, FUSE_OPENDIR, node, 0, fh);
}

int guest_fuse_releasedir(struct guest_fuse *f, uint64_t node, uint64_t fh)
{
	return call_release(f, FUSE_RELEASEDIR, node, fh);
}

int guest_fuse_fsyncdir(struct guest_fuse *f, uint64_t node, uint64_t fh, bool datasync)
{
	return call_fsync(f, FUSE_FSYNCDIR, node, fh, datasync);
}

/* --- DAX --- */

int guest_fuse_setupmapping(struct guest_fuse *f, uint64_t node, uint64_t foffset, uint64_t len,
			    uint64_t flags, uint64_t moffset)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_SETUPMAPPING, node);

	guest_prep_setupmapping(r, node, foffset, len, flags, moffset);
	return call_plain(r);
}

int guest_fuse_removemappings(struct guest_fuse *f, uint64_t node,
			      const struct fuse_removemapping_one *m, unsigned int n)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_REMOVEMAPPING, node);

	guest_prep_removemapping(r, node, m, n);
	return call_plain(r);
}

int guest_fuse_removemapping(struct guest_fuse *f, uint64_t node, uint64_t moffset, uint64_t len)
{
	struct fuse_removemapping_one one = {.moffset = moffset, .len = len};

	return guest_fuse_removemappings(f, node, &one, 1);
}
