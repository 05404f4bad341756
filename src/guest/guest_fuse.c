// SPDX-License-Identifier: Apache-2.0
/* The session: making a client, INIT, DESTROY, raw requests, directories, extended attributes. */
#include <errno.h>
#include <string.h>

#include "guest_fuse.h"
#include "guest_fuse_internal.h"

#define DEFAULT_REQUESTS 256u

struct guest_fuse *guest_fuse_new(struct guest_frontend *fe, const struct guest_fuse_config *c)
{
	struct guest_fuse *f = g_new0(struct guest_fuse, 1);

	f->fe = fe;
	f->nreqs = c && c->requests ? c->requests : DEFAULT_REQUESTS;
	f->uid = c ? c->uid : 0;
	f->gid = c ? c->gid : 0;
	f->pid = c ? c->pid : 0;
	f->spin_ns = c ? c->spin_ns : 0;
	f->max_write = 4096;
	f->block_size = (size_t)f->nreqs * (GUEST_REQ_OUT + GUEST_REQ_IN);
	f->block = guest_mem_alloc(guest_frontend_mem(fe), f->block_size);
	if (!f->block) {
		g_free(f);
		return NULL;
	}
	util_mutex_init(&f->lock);
	util_cond_init(&f->freed);
	util_cond_init(&f->room);
	f->reqs = g_new0(struct guest_req, f->nreqs);
	for (unsigned int i = 0; i < f->nreqs; i++) {
		struct guest_req *r = &f->reqs[i];

		r->fuse = f;
		r->out_buf = f->block + (size_t)i * (GUEST_REQ_OUT + GUEST_REQ_IN);
		r->in_buf = r->out_buf + GUEST_REQ_OUT;
		util_mutex_init(&r->lock);
		util_cond_init(&r->cond);
		guest_req_put(r);
	}
	guest_frontend_set_done(fe, guest_fuse_on_done);
	return f;
}

void guest_fuse_free(struct guest_fuse *f)
{
	if (!f)
		return;
	for (unsigned int i = 0; i < f->nreqs; i++) {
		util_cond_destroy(&f->reqs[i].cond);
		util_mutex_destroy(&f->reqs[i].lock);
	}
	guest_mem_release(guest_frontend_mem(f->fe), f->block, f->block_size);
	util_cond_destroy(&f->freed);
	util_cond_destroy(&f->room);
	util_mutex_destroy(&f->lock);
	g_free(f->reqs);
	g_free(f->fault);
	g_free(f);
}

struct guest_frontend *guest_fuse_frontend(struct guest_fuse *f)
{
	return f->fe;
}

void guest_fuse_set_cred(struct guest_fuse *f, uint32_t uid, uint32_t gid)
{
	__atomic_store_n(&f->uid, uid, __ATOMIC_RELAXED);
	__atomic_store_n(&f->gid, gid, __ATOMIC_RELAXED);
}

char *guest_fuse_fault(struct guest_fuse *f)
{
	char *s;

	util_mutex_lock(&f->lock);
	s = g_strdup(f->fault);
	util_mutex_unlock(&f->lock);
	return s;
}

/* --- session --- */

int guest_fuse_init(struct guest_fuse *f, uint64_t flags, struct fuse_init_out *out)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_INIT, 0);
	struct fuse_init_in *in = guest_req_arg(r, sizeof(*in));
	struct fuse_init_out *reply = guest_req_reply_upto(r, sizeof(*reply));
	int err;

	if (!flags) {
		flags = GUEST_FUSE_INIT_FLAGS;
		if (guest_window_base(guest_frontend_window(f->fe)))
			flags |= FUSE_MAP_ALIGNMENT | FUSE_HAS_INODE_DAX;
	}
	in->major = FUSE_KERNEL_VERSION;
	in->minor = FUSE_KERNEL_MINOR_VERSION;
	in->max_readahead = 1u << 20;
	in->flags = (uint32_t)flags;
	in->flags2 = (uint32_t)(flags >> 32);
	memset(reply, 0, sizeof(*reply));
	err = guest_req_call(r);
	if (!err) {
		f->flags = reply->flags;
		if (reply->flags & FUSE_INIT_EXT)
			f->flags |= (uint64_t)reply->flags2 << 32;
		f->max_write = MAX(reply->max_write, 4096);
		f->map_alignment = 1u << MIN(reply->map_alignment, 31);
		if (out)
			*out = *reply;
	}
	guest_req_put(r);
	return err;
}

uint64_t guest_fuse_flags(struct guest_fuse *f)
{
	return f->flags;
}

uint32_t guest_fuse_map_alignment(struct guest_fuse *f)
{
	return f->map_alignment;
}

uint32_t guest_fuse_max_write(struct guest_fuse *f)
{
	return f->max_write;
}

int guest_fuse_destroy(struct guest_fuse *f)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_DESTROY, 0);
	int err = guest_req_call(r);

	guest_req_put(r);
	return err;
}

ssize_t guest_fuse_raw(struct guest_fuse *f, unsigned int queue, const void *out, uint32_t out_len,
		       void *in, uint32_t in_len)
{
	struct guest_req *r = guest_fuse_begin(f, 0, 0);
	struct guest_seg o = {.p = r->out_buf, .len = MIN(out_len, GUEST_REQ_OUT)};
	struct guest_seg i = {.p = r->in_buf, .len = MIN(in_len, GUEST_REQ_IN)};
	struct guest_ring *ring = guest_frontend_ring(f->fe, queue);
	ssize_t n;

	if (o.len)
		memcpy(r->out_buf, out, o.len);
	memset(r->in_buf, 0, GUEST_REQ_IN);
	r->no_reply = true;
	r->finished = false;
	r->ring = ring;
	n = ring ? guest_ring_submit(ring, &o, o.len ? 1 : 0, &i, i.len ? 1 : 0, r) : -ENOTCONN;
	if (!n) {
		n = guest_req_wait(r);
		/* With no_reply the only "fault" is that there was an answer. */
		if (n == -EPROTO || n == 0)
			n = r->written;
		if (in && n > 0)
			memcpy(in, r->in_buf, MIN((size_t)n, i.len));
	}
	guest_req_put(r);
	return n;
}

/* --- extended attributes: values travel through a bounce buffer --- */

static ssize_t xattr_call(struct guest_req *r, uint32_t size, void *value)
{
	struct guest_fuse *f = r->fuse;
	void *bounce = NULL;
	ssize_t n;

	if (size) {
		bounce = guest_mem_alloc(guest_frontend_mem(f->fe), size);
		if (!bounce) {
			guest_req_put(r);
			return -ENOMEM;
		}
		guest_req_in_data(r, bounce, size);
	} else {
		guest_req_reply(r, sizeof(struct fuse_getxattr_out));
	}
	n = guest_req_call(r);
	if (!n && size) {
		n = MIN(r->len, size);
		memcpy(value, bounce, (size_t)n);
	} else if (!n) {
		const struct fuse_getxattr_out *o = (const void *)(guest_req_reply_header(r) + 1);

		n = o->size;
	}
	guest_mem_release(guest_frontend_mem(f->fe), bounce, size);
	guest_req_put(r);
	return n;
}

ssize_t guest_fuse_getxattr(struct guest_fuse *f, uint64_t node, const char *name, void *value,
			    uint32_t size)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_GETXATTR, node);
	struct fuse_getxattr_in *in = guest_req_arg(r, sizeof(*in));

	in->size = size;
	guest_req_str(r, name);
	return xattr_call(r, size, value);
}

ssize_t guest_fuse_listxattr(struct guest_fuse *f, uint64_t node, char *list, uint32_t size)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_LISTXATTR, node);
	struct fuse_getxattr_in *in = guest_req_arg(r, sizeof(*in));

	in->size = size;
	return xattr_call(r, size, list);
}

int guest_fuse_setxattr(struct guest_fuse *f, uint64_t node, const char *name, const void *value,
			uint32_t size, uint32_t flags)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_SETXATTR, node);
	struct fuse_setxattr_in *in;
	int err;

	if (size + strlen(name) > 4096) {
		guest_req_put(r);
		return -E2BIG;
	}
	/* The long form only when FUSE_SETXATTR_EXT was negotiated. */
	in = guest_req_arg(r, guest_fuse_flags(f) & FUSE_SETXATTR_EXT
				      ? sizeof(*in)
				      : FUSE_COMPAT_SETXATTR_IN_SIZE);
	in->size = size;
	in->flags = flags;
	guest_req_str(r, name);
	guest_req_bytes(r, value, size);
	err = guest_req_call(r);
	guest_req_put(r);
	return err;
}

int guest_fuse_removexattr(struct guest_fuse *f, uint64_t node, const char *name)
{
	struct guest_req *r = guest_fuse_begin(f, FUSE_REMOVEXATTR, node);
	int err;

	guest_req_str(r, name);
	err = guest_req_call(r);
	guest_req_put(r);
	return err;
}

/* --- directories --- */

struct listing {
	guest_fuse_dir_fn fn;
	void *ctx;
	bool plus;
	uint64_t off;
	ssize_t count;
	bool ended;
};

/* Hands out the names in @buf; false when it is malformed. */
static bool parse_names(struct listing *l, const uint8_t *buf, size_t len)
{
	size_t head = l->plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;

	while (len && !l->ended) {
		const struct fuse_entry_out *e = NULL;
		const struct fuse_dirent *d = (const void *)buf;
		size_t size;

		if (len < head)
			return false;
		if (l->plus) {
			e = &((const struct fuse_direntplus *)(const void *)buf)->entry_out;
			d = &((const struct fuse_direntplus *)(const void *)buf)->dirent;
		}
		size = FUSE_DIRENT_ALIGN(head + d->namelen);
		if (!d->namelen || d->namelen > 255 || size > len)
			return false;
		l->off = d->off;
		l->count++;
		l->ended = l->fn && !l->fn(l->ctx, d, e);
		buf += size;
		len -= size;
	}
	return true;
}

ssize_t guest_fuse_list(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off,
			uint32_t bufsize, bool plus, guest_fuse_dir_fn fn, void *ctx)
{
	struct listing l = {.fn = fn, .ctx = ctx, .plus = plus, .off = off};
	struct guest_mem *mem = guest_frontend_mem(f->fe);
	uint8_t *buf = guest_mem_alloc(mem, bufsize);
	int err = buf ? 0 : -ENOMEM;

	while (!err && !l.ended) {
		struct guest_req *r =
			guest_fuse_begin(f, plus ? FUSE_READDIRPLUS : FUSE_READDIR, node);
		struct fuse_read_in *in = guest_req_arg(r, sizeof(*in));

		in->fh = fh;
		in->offset = l.off;
		in->size = bufsize;
		guest_req_in_data(r, buf, bufsize);
		err = guest_req_call(r);
		if (!err && !r->len)
			l.ended = true;
		else if (!err && !parse_names(&l, buf, r->len))
			err = -EPROTO;
		guest_req_put(r);
	}
	guest_mem_release(mem, buf, bufsize);
	return err ? err : l.count;
}
