// SPDX-License-Identifier: Apache-2.0
/*
 * Metadata loads, one operation each:
 *
 *	lookup	 LOOKUP of a random name; forgotten in batches, as kernels do
 *	getattr	 GETATTR of a random file
 *	create	 CREATE, RELEASE, UNLINK, and the forget
 *	readdir	 OPENDIR, READDIRPLUS until the end, RELEASEDIR, and the forgets
 *	untar	 one file of an archive: CREATE, WRITE of up to 64 KiB, SETATTR of its times,
 *		 FLUSH, RELEASE; a new directory (MKDIR) for each 32
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "load_meta.h"

#define UNTAR_FILES 32u
#define DIR_BUF 32768u

/* The reply was an error: the run ends. False, as a kind's next() says "finished". */
static bool failed(struct load_op *op, const char *what)
{
	load_run_fail(op->w->run, op->r->error, "%s", what);
	return false;
}

/* --- lookup, getattr --- */

static enum load_begun lookup_begin(struct load_op *op)
{
	struct load_run *run = op->w->run;
	uint64_t i = load_below(op->job, run->config->files);

	g_snprintf(op->name, sizeof(op->name), "n%u", (unsigned int)i);
	guest_prep_lookup(op->r, run->names, op->name);
	return LOAD_SEND;
}

static bool lookup_next(struct load_op *op)
{
	if (op->r->error)
		return failed(op, "LOOKUP");
	load_forget(op->w, guest_req_entry(op->r)->nodeid);
	return false;
}

static enum load_begun getattr_begin(struct load_op *op)
{
	struct load_run *run = op->w->run;

	guest_prep_getattr(op->r, run->nodes[load_below(op->job, run->config->files)]);
	return LOAD_SEND;
}

static bool getattr_next(struct load_op *op)
{
	return op->r->error ? failed(op, "GETATTR") : false;
}

/* --- create --- */

static void new_name(struct load_op *op)
{
	g_snprintf(op->name, sizeof(op->name), "f%" G_GUINT64_FORMAT, op->job->serial++);
}

static void prep_unlink(struct guest_req *r, uint64_t parent, const char *name)
{
	guest_req_start(r, FUSE_UNLINK, parent);
	guest_req_str(r, name);
}

static enum load_begun create_begin(struct load_op *op)
{
	new_name(op);
	guest_prep_create(op->r, op->job->dir, op->name, 0644, O_RDWR);
	return LOAD_SEND;
}

static bool create_next(struct load_op *op)
{
	if (op->r->error)
		return failed(op, "CREATE, RELEASE or UNLINK");
	switch (op->step) {
	case 1:
		op->node = guest_req_entry(op->r)->nodeid;
		op->fh = guest_req_create_open(op->r)->fh;
		guest_prep_release(op->r, op->node, op->fh);
		return true;
	case 2:
		prep_unlink(op->r, op->job->dir, op->name);
		return true;
	default:
		load_forget(op->w, op->node);
		return false;
	}
}

/* --- readdir --- */

static enum load_begun readdir_begin(struct load_op *op)
{
	guest_prep_open(op->r, op->w->run->names, 0);
	guest_req_header(op->r)->opcode = FUSE_OPENDIR;
	return LOAD_SEND;
}

static void prep_readdirplus(struct load_op *op)
{
	struct fuse_read_in *in;

	guest_req_start(op->r, FUSE_READDIRPLUS, op->w->run->names);
	in = guest_req_arg(op->r, sizeof(*in));
	in->fh = op->fh;
	in->offset = op->cookie;
	in->size = DIR_BUF;
	guest_req_in_data(op->r, op->buf, DIR_BUF);
}

/* Gives back what the names in the buffer counted; false when it is malformed. */
static bool take_names(struct load_op *op, uint32_t len)
{
	const uint8_t *p = op->buf;

	while (len >= FUSE_NAME_OFFSET_DIRENTPLUS) {
		const struct fuse_direntplus *d = (const void *)p;
		size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + d->dirent.namelen);

		if (size > len)
			return false;
		if (d->entry_out.nodeid)
			load_forget(op->w, d->entry_out.nodeid);
		op->cookie = d->dirent.off;
		p += size;
		len -= (uint32_t)size;
	}
	return !len;
}

static bool readdir_next(struct load_op *op)
{
	if (op->r->error)
		return failed(op, "OPENDIR, READDIRPLUS or RELEASEDIR");
	if (op->step == 1) {
		op->fh = guest_req_open(op->r)->fh;
		op->cookie = 0;
		prep_readdirplus(op);
		return true;
	}
	if (guest_req_header(op->r)->opcode == FUSE_RELEASEDIR)
		return false;
	op->bytes += op->r->len;
	if (!take_names(op, op->r->len)) {
		load_run_fail(op->w->run, -EPROTO, "malformed READDIRPLUS");
		return false;
	}
	if (op->r->len) {
		prep_readdirplus(op);
	} else {
		guest_prep_release(op->r, op->w->run->names, op->fh);
		guest_req_header(op->r)->opcode = FUSE_RELEASEDIR;
	}
	return true;
}

/* --- untar --- */

/*
 * Directories are made on the side, by whichever operation begins the next 32 files; the files
 * of one that is not there yet go into the one before.
 */
static enum load_begun untar_begin(struct load_op *op)
{
	struct load_job *j = op->job;

	new_name(op);
	op->size = (uint32_t)load_below(j, 65536);
	op->node = 0;
	if (j->serial % UNTAR_FILES == 1) {
		struct fuse_mkdir_in *in;

		op->name[0] = 'd';
		guest_req_start(op->r, FUSE_MKDIR, j->dir);
		in = guest_req_arg(op->r, sizeof(*in));
		in->mode = 0755;
		guest_req_str(op->r, op->name);
		guest_req_reply(op->r, sizeof(struct fuse_entry_out));
		return LOAD_SEND;
	}
	op->step = 1;
	guest_prep_create(op->r, j->at ? j->at : j->dir, op->name, 0644, O_RDWR);
	return LOAD_SEND;
}

static void prep_times(struct load_op *op)
{
	struct fuse_setattr_in *in;

	guest_req_start(op->r, FUSE_SETATTR, op->node);
	in = guest_req_arg(op->r, sizeof(*in));
	in->valid = FATTR_MTIME | FATTR_ATIME | FATTR_MODE;
	in->mtime = in->atime = 1000000000;
	in->mode = 0600;
	guest_req_reply(op->r, sizeof(struct fuse_attr_out));
}

static void prep_flush(struct load_op *op)
{
	struct fuse_flush_in *in;

	guest_req_start(op->r, FUSE_FLUSH, op->node);
	in = guest_req_arg(op->r, sizeof(*in));
	in->fh = op->fh;
}

static bool untar_next(struct load_op *op)
{
	struct guest_req *r = op->r;

	/* FLUSH may be unknown: then kernels stop sending it. */
	if (r->error && !(r->error == -ENOSYS && op->step == 5))
		return failed(op, "MKDIR, CREATE, WRITE, SETATTR or RELEASE");
	switch (op->step) {
	case 1:
		op->job->at = guest_req_entry(r)->nodeid;
		op->name[0] = 'f';
		guest_prep_create(r, op->job->at, op->name, 0644, O_RDWR);
		return true;
	case 2:
		op->node = guest_req_entry(r)->nodeid;
		op->fh = guest_req_create_open(r)->fh;
		guest_prep_write(r, op->node, op->fh, 0, op->buf, MAX(op->size, 1));
		return true;
	case 3:
		op->bytes = guest_req_write_size(r);
		prep_times(op);
		return true;
	case 4:
		prep_flush(op);
		return true;
	case 5:
		guest_prep_release(r, op->node, op->fh);
		return true;
	default:
		load_forget(op->w, op->node);
		return false;
	}
}

static const struct load_kind kinds[] = {
	[LOAD_LOOKUP] = {lookup_begin, lookup_next}, [LOAD_GETATTR] = {getattr_begin, getattr_next},
	[LOAD_CREATE] = {create_begin, create_next}, [LOAD_READDIR] = {readdir_begin, readdir_next},
	[LOAD_UNTAR] = {untar_begin, untar_next},
};

const struct load_kind *load_meta_kind(enum load_rw rw)
{
	return &kinds[rw];
}
