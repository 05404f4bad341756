/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A FUSE client over a guest_frontend: typed calls, asynchronous requests, and raw ones.
 *
 * Synchronous calls return 0 (or a count) or a negative errno: the server's, -ENOTCONN when the
 * back-end has gone, -ECANCELED when the device was reset, -EPROTO when the reply is malformed
 * (wrong size, wrong unique: written down, see guest_fuse_fault()). Any thread.
 *
 * Data buffers are guest memory (guest_mem_alloc()) or the DAX window: no copy is made.
 */
#ifndef DAXMAP_GUEST_FUSE_H
#define DAXMAP_GUEST_FUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/fuse.h>

#include "guest_frontend.h"
#include "util_lock.h"

struct guest_fuse;

#define GUEST_REQ_OUT 8192 /* room for header and arguments of a request */
#define GUEST_REQ_IN 4096  /* room for header and arguments of a reply */
#define GUEST_REQ_SEGS 62  /* data segments each way */

/**
 * struct guest_req - one request
 * @done: called when it is finished, in the thread that took the completion; the request is the
 *        caller's again. NULL: guest_req_wait() is used.
 * @user: the caller's
 * @queue: 0 = chosen here (hiprio for FORGET and INTERRUPT), else 1.. a request queue
 * @hiprio: force the hiprio queue
 * @error: result, 0 or negative errno
 * @written: bytes that the device wrote, FUSE header included
 * @len: bytes behind the FUSE header in the reply
 *
 * The rest is private.
 */
struct guest_req {
	void (*done)(struct guest_req *r);
	void *user;
	unsigned int queue;
	bool hiprio;
	int error;
	uint32_t written;
	uint32_t len;
	/* private */
	struct guest_fuse *fuse;
	struct guest_ring *ring; /* where it was put */
	struct guest_req *next;
	struct util_mutex lock;
	struct util_cond cond;
	uint8_t *out_buf;
	uint8_t *in_buf;
	uint32_t arg_len;
	uint32_t reply_len;
	uint32_t reply_min;
	bool no_reply;
	bool finished; /* atomic */
	unsigned int nout;
	unsigned int nin;
	struct guest_seg out[GUEST_REQ_SEGS + 2];
	struct guest_seg in[GUEST_REQ_SEGS + 2];
};

/**
 * struct guest_fuse_config - zero means the default
 * @requests: how many may be in flight at once; 256
 * @spin_ns: polled mode: how long who waits looks at the ring before sleeping; 0 = not at all
 * @uid, @gid, @pid: what goes into the headers (guest_fuse_set_cred() changes it)
 */
struct guest_fuse_config {
	unsigned int requests;
	uint64_t spin_ns;
	uint32_t uid;
	uint32_t gid;
	uint32_t pid;
};

/** guest_fuse_new() - @fe not yet connected, or at least idle; borrowed. NULL when its memory
 * does not suffice. */
struct guest_fuse *guest_fuse_new(struct guest_frontend *fe, const struct guest_fuse_config *c);
/** guest_fuse_free() - nothing may be in flight. */
void guest_fuse_free(struct guest_fuse *f);
struct guest_frontend *guest_fuse_frontend(struct guest_fuse *f);
/** guest_fuse_set_cred() - of requests prepared from now on */
void guest_fuse_set_cred(struct guest_fuse *f, uint32_t uid, uint32_t gid);

/** guest_fuse_fault() - the first malformed reply seen (to be freed), or NULL */
char *guest_fuse_fault(struct guest_fuse *f);

/* --- requests in parts; all but submit and wait touch only the request --- */

/** guest_req_get() - a request from the pool; NULL when all are in use */
struct guest_req *guest_req_get(struct guest_fuse *f);
/** guest_fuse_take() - as guest_req_get(), but waits for one; whoever holds some must not */
struct guest_req *guest_fuse_take(struct guest_fuse *f);
/** guest_req_put() - back to the pool; not while in flight */
void guest_req_put(struct guest_req *r);
/** guest_req_start() - a fresh request of @opcode on @nodeid: header only */
void guest_req_start(struct guest_req *r, uint32_t opcode, uint64_t nodeid);
/** guest_req_arg() - appends @size zeroed bytes of arguments; where they are */
void *guest_req_arg(struct guest_req *r, uint32_t size);
/** guest_req_str() - appends a name with its NUL */
void guest_req_str(struct guest_req *r, const char *s);
/** guest_req_bytes() - appends a copy of @len bytes */
void guest_req_bytes(struct guest_req *r, const void *p, uint32_t len);
/** guest_req_out_data() - appends data for the device to read, not copied; after all arguments */
void guest_req_out_data(struct guest_req *r, void *p, uint32_t len);
/** guest_req_reply() - expects @size bytes of reply arguments; where they will be */
void *guest_req_reply(struct guest_req *r, uint32_t size);
/** guest_req_reply_upto() - the same where the reply may be shorter */
void *guest_req_reply_upto(struct guest_req *r, uint32_t size);
/** guest_req_in_data() - room for reply data, written in place; after guest_req_reply() */
void guest_req_in_data(struct guest_req *r, void *p, uint32_t len);
/** guest_req_header() - the request's header, to be falsified */
struct fuse_in_header *guest_req_header(struct guest_req *r);
/** guest_req_reply_header() - the reply's header, once finished */
const struct fuse_out_header *guest_req_reply_header(struct guest_req *r);

/** guest_req_submit() - sends it; waits for room in the ring. 0 or negative errno (then @done is
 * not called). */
int guest_req_submit(struct guest_req *r);
/** guest_req_try_submit() - as submit, but -EAGAIN where the ring is full */
int guest_req_try_submit(struct guest_req *r);
/** guest_req_queue() - as try_submit, but the device is not told: guest_ring_kick() on the ring
 * of @queue tells it of all that were queued */
int guest_req_queue(struct guest_req *r);
/** guest_req_wait() - waits for a submitted request without @done; r->error. In polled mode
 * those who wait take completions meanwhile (guest_ring_attend()). */
int guest_req_wait(struct guest_req *r);
/** guest_req_wait_for() - as wait, but -ETIMEDOUT after @timeout_ms: it stays in flight */
int guest_req_wait_for(struct guest_req *r, int timeout_ms);
/** guest_req_finished() - has it been answered? */
bool guest_req_finished(struct guest_req *r);
/** guest_req_call() - submit and wait */
int guest_req_call(struct guest_req *r);

/** guest_fuse_raw() - sends @out_len arbitrary bytes with room for @in_len, waits; bytes written
 * by the device, which are copied to @in; negative errno where nothing came back */
ssize_t guest_fuse_raw(struct guest_fuse *f, unsigned int queue, const void *out, uint32_t out_len,
		       void *in, uint32_t in_len);

/* --- the hot ones in two halves: prep on a request (which clears @done, @user and @queue), then
 * submit --- */
void guest_prep_read(struct guest_req *r, uint64_t node, uint64_t fh, uint64_t off, void *buf,
		     uint32_t size);
void guest_prep_write(struct guest_req *r, uint64_t node, uint64_t fh, uint64_t off, void *buf,
		      uint32_t size);
void guest_prep_lookup(struct guest_req *r, uint64_t parent, const char *name);
void guest_prep_getattr(struct guest_req *r, uint64_t node);
void guest_prep_create(struct guest_req *r, uint64_t parent, const char *name, uint32_t mode,
		       uint32_t flags);
void guest_prep_open(struct guest_req *r, uint64_t node, uint32_t flags);
void guest_prep_release(struct guest_req *r, uint64_t node, uint64_t fh);
void guest_prep_forget(struct guest_req *r, uint64_t node, uint64_t nlookup);
void guest_prep_setupmapping(struct guest_req *r, uint64_t node, uint64_t foffset, uint64_t len,
			     uint64_t flags, uint64_t moffset);
/** guest_prep_removemapping() - up to 255 ranges */
void guest_prep_removemapping(struct guest_req *r, uint64_t node,
			      const struct fuse_removemapping_one *m, unsigned int n);
/** guest_req_entry()/attr()/open() - the reply of lookup, mknod...; getattr; open. For create the
 * open part follows the entry. */
const struct fuse_entry_out *guest_req_entry(struct guest_req *r);
const struct fuse_attr_out *guest_req_attr(struct guest_req *r);
const struct fuse_open_out *guest_req_open(struct guest_req *r);
const struct fuse_open_out *guest_req_create_open(struct guest_req *r);
/** guest_req_write_size() - the reply of write, copy_file_range */
uint32_t guest_req_write_size(struct guest_req *r);

/* --- session --- */

/** GUEST_FUSE_INIT_FLAGS - what is offered when guest_fuse_init() is given 0 */
#define GUEST_FUSE_INIT_FLAGS                                                                      \
	(FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ATOMIC_O_TRUNC | FUSE_DO_READDIRPLUS |           \
	 FUSE_READDIRPLUS_AUTO | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |          \
	 FUSE_INIT_EXT | FUSE_HANDLE_KILLPRIV_V2 | FUSE_SUBMOUNTS)

/** guest_fuse_init() - INIT with @flags (0 = the default set, plus the DAX ones where there is a
 * window); @out may be NULL */
int guest_fuse_init(struct guest_fuse *f, uint64_t flags, struct fuse_init_out *out);
/** guest_fuse_flags() - 64 bits of flags as answered by the last INIT */
uint64_t guest_fuse_flags(struct guest_fuse *f);
/** guest_fuse_map_alignment() - bytes, as answered by the last INIT with FUSE_MAP_ALIGNMENT */
uint32_t guest_fuse_map_alignment(struct guest_fuse *f);
/** guest_fuse_max_write() - bytes in one WRITE, as answered by the last INIT */
uint32_t guest_fuse_max_write(struct guest_fuse *f);
int guest_fuse_destroy(struct guest_fuse *f);

/* --- names --- */
int guest_fuse_lookup(struct guest_fuse *f, uint64_t parent, const char *name,
		      struct fuse_entry_out *e);
/** guest_fuse_path() - walks @path from the root; forgets all but the last node; "" is the root */
int guest_fuse_path(struct guest_fuse *f, const char *path, struct fuse_entry_out *e);
int guest_fuse_forget(struct guest_fuse *f, uint64_t node, uint64_t nlookup);
int guest_fuse_batch_forget(struct guest_fuse *f, const struct fuse_forget_one *one,
			    unsigned int n);
int guest_fuse_mkdir(struct guest_fuse *f, uint64_t parent, const char *name, uint32_t mode,
		     struct fuse_entry_out *e);
int guest_fuse_mknod(struct guest_fuse *f, uint64_t parent, const char *name, uint32_t mode,
		     uint32_t rdev, struct fuse_entry_out *e);
int guest_fuse_symlink(struct guest_fuse *f, uint64_t parent, const char *name, const char *target,
		       struct fuse_entry_out *e);
int guest_fuse_link(struct guest_fuse *f, uint64_t node, uint64_t newparent, const char *name,
		    struct fuse_entry_out *e);
/** guest_fuse_readlink() - length of the target, copied to @buf and terminated */
ssize_t guest_fuse_readlink(struct guest_fuse *f, uint64_t node, char *buf, size_t size);
int guest_fuse_unlink(struct guest_fuse *f, uint64_t parent, const char *name);
int guest_fuse_rmdir(struct guest_fuse *f, uint64_t parent, const char *name);
int guest_fuse_rename(struct guest_fuse *f, uint64_t parent, const char *name, uint64_t newparent,
		      const char *newname);
int guest_fuse_rename2(struct guest_fuse *f, uint64_t parent, const char *name, uint64_t newparent,
		       const char *newname, uint32_t flags);
int guest_fuse_getattr(struct guest_fuse *f, uint64_t node, struct fuse_attr *a);
int guest_fuse_getattr_fh(struct guest_fuse *f, uint64_t node, uint64_t fh, struct fuse_attr *a);
int guest_fuse_setattr(struct guest_fuse *f, uint64_t node, const struct fuse_setattr_in *in,
		       struct fuse_attr *a);
int guest_fuse_truncate(struct guest_fuse *f, uint64_t node, uint64_t size);
int guest_fuse_statfs(struct guest_fuse *f, uint64_t node, struct fuse_kstatfs *st);
int guest_fuse_access(struct guest_fuse *f, uint64_t node, uint32_t mask);

/* --- files --- */
int guest_fuse_open(struct guest_fuse *f, uint64_t node, uint32_t flags, uint64_t *fh);
int guest_fuse_create(struct guest_fuse *f, uint64_t parent, const char *name, uint32_t mode,
		      uint32_t flags, struct fuse_entry_out *e, uint64_t *fh);
int guest_fuse_tmpfile(struct guest_fuse *f, uint64_t parent, uint32_t mode, uint32_t flags,
		       struct fuse_entry_out *e, uint64_t *fh);
int guest_fuse_release(struct guest_fuse *f, uint64_t node, uint64_t fh);
int guest_fuse_flush(struct guest_fuse *f, uint64_t node, uint64_t fh);
int guest_fuse_fsync(struct guest_fuse *f, uint64_t node, uint64_t fh, bool datasync);
ssize_t guest_fuse_read(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off, void *buf,
			uint32_t size);
ssize_t guest_fuse_write(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off, void *buf,
			 uint32_t size);
int guest_fuse_fallocate(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off,
			 uint64_t len, uint32_t mode);
int64_t guest_fuse_lseek(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off,
			 uint32_t whence);
ssize_t guest_fuse_copy_file_range(struct guest_fuse *f, uint64_t node_in, uint64_t fh_in,
				   uint64_t off_in, uint64_t node_out, uint64_t fh_out,
				   uint64_t off_out, uint64_t len);
int guest_fuse_syncfs(struct guest_fuse *f, uint64_t node);
int guest_fuse_interrupt(struct guest_fuse *f, uint64_t unique);

/* --- extended attributes --- */
int guest_fuse_setxattr(struct guest_fuse *f, uint64_t node, const char *name, const void *value,
			uint32_t size, uint32_t flags);
ssize_t guest_fuse_getxattr(struct guest_fuse *f, uint64_t node, const char *name, void *value,
			    uint32_t size);
ssize_t guest_fuse_listxattr(struct guest_fuse *f, uint64_t node, char *list, uint32_t size);
int guest_fuse_removexattr(struct guest_fuse *f, uint64_t node, const char *name);

/* --- directories --- */
int guest_fuse_opendir(struct guest_fuse *f, uint64_t node, uint64_t *fh);
int guest_fuse_releasedir(struct guest_fuse *f, uint64_t node, uint64_t fh);
int guest_fuse_fsyncdir(struct guest_fuse *f, uint64_t node, uint64_t fh, bool datasync);

/**
 * guest_fuse_dir_fn - one name of a listing; false ends the listing
 * @entry: with readdirplus, the node (nodeid 0: none); its lookup count is the caller's; else NULL
 */
typedef bool (*guest_fuse_dir_fn)(void *ctx, const struct fuse_dirent *d,
				  const struct fuse_entry_out *entry);

/** guest_fuse_list() - reads an open directory from @off to its end, @bufsize bytes (at most
 * 64 KiB) a request; count of names, or negative errno */
ssize_t guest_fuse_list(struct guest_fuse *f, uint64_t node, uint64_t fh, uint64_t off,
			uint32_t bufsize, bool plus, guest_fuse_dir_fn fn, void *ctx);

/* --- DAX --- */
int guest_fuse_setupmapping(struct guest_fuse *f, uint64_t node, uint64_t foffset, uint64_t len,
			    uint64_t flags, uint64_t moffset);
int guest_fuse_removemapping(struct guest_fuse *f, uint64_t node, uint64_t moffset, uint64_t len);
int guest_fuse_removemappings(struct guest_fuse *f, uint64_t node,
			      const struct fuse_removemapping_one *m, unsigned int n);

#endif
