// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Operations are sent in runs of one kind: requests of a queue may be served in any order, so an
 * unmap must be answered before a map that needs its place is sent. Within a run nothing waits:
 * maps go out together, and unmaps share requests.
 *
 * A refused REMOVEMAPPING does not say which of its ranges it means. It is sent again range by
 * range, for then the answers can be told apart; removing what is not mapped is no error.
 */
#include <errno.h>

#include "guest_dax.h"
#include "util_overflow.h"

#define REMOVE_MAX 255u
#define MAPS_IN_FLIGHT 16u
#define GRANULE 4096u

struct guest_dax {
	struct dm_window window;
	struct guest_fuse *fuse;
};

/* The session is over; nothing can be said of what is mapped. */
static bool is_end(int err)
{
	return err == -ENOTCONN || err == -ECANCELED || err == -EPROTO;
}

static int submit_maps(struct guest_dax *d, struct dm_window_op *ops, size_t n)
{
	struct guest_req *reqs[MAPS_IN_FLIGHT];
	size_t sent = 0;
	bool end = false;

	for (; sent < n; sent++) {
		struct dm_window_op *op = &ops[sent];
		uint64_t flags = FUSE_SETUPMAPPING_FLAG_READ;

		/* Not to wait for a request while others are kept from whoever has them. */
		reqs[sent] = sent ? guest_req_get(d->fuse) : guest_fuse_take(d->fuse);
		if (!reqs[sent])
			break;
		if (op->flags & DM_MAP_WRITE)
			flags |= FUSE_SETUPMAPPING_FLAG_WRITE;
		guest_prep_setupmapping(reqs[sent], op->key_lo, op->fd_offset, op->len, flags,
					op->offset);
		op->result = guest_req_submit(reqs[sent]);
	}
	for (size_t i = 0; i < sent; i++) {
		if (!ops[i].result)
			ops[i].result = guest_req_wait(reqs[i]);
		end |= is_end(ops[i].result);
		guest_req_put(reqs[i]);
	}
	return end ? -EPIPE : (int)sent;
}

static int submit_unmaps(struct guest_dax *d, struct dm_window_op *ops, size_t n)
{
	struct fuse_removemapping_one one[REMOVE_MAX] = {0};
	int err;

	for (size_t i = 0; i < n; i++)
		one[i] = (struct fuse_removemapping_one){
			.moffset = ops[i].offset,
			.len = ops[i].len,
		};
	err = guest_fuse_removemappings(d->fuse, FUSE_ROOT_ID, one, (unsigned int)n);
	if (err && n > 1 && !is_end(err)) {
		for (size_t i = 0; i < n; i++)
			if (submit_unmaps(d, &ops[i], 1) < 0)
				return -EPIPE;
		return (int)n;
	}
	for (size_t i = 0; i < n; i++)
		ops[i].result = err;
	return is_end(err) ? -EPIPE : (int)n;
}

static size_t run_length(const struct dm_window_op *ops, size_t n)
{
	size_t max = ops->kind == DM_OP_MAP ? MAPS_IN_FLIGHT : REMOVE_MAX;
	size_t len = 1;

	while (len < MIN(n, max) && ops[len].kind == ops->kind)
		len++;
	return len;
}

static int dax_submit(struct dm_window *w, struct dm_window_op *ops, size_t n)
{
	struct guest_dax *d = (struct guest_dax *)w;

	while (n) {
		size_t run = run_length(ops, n);
		int done = ops->kind == DM_OP_MAP ? submit_maps(d, ops, run)
						  : submit_unmaps(d, ops, run);

		if (done < 0)
			return done;
		ops += done;
		n -= (size_t)done;
	}
	return 0;
}

static void *dax_base(struct dm_window *w)
{
	struct guest_dax *d = (struct guest_dax *)w;

	return guest_window_base(guest_frontend_window(guest_fuse_frontend(d->fuse)));
}

static void dax_destroy(struct dm_window *w)
{
	g_free(w);
}

static const struct dm_window_ops dax_ops = {
	.name = "fuse",
	.submit = dax_submit,
	.base = dax_base,
	.destroy = dax_destroy,
};

struct dm_window *guest_dax_new(struct guest_fuse *fuse, uint64_t size, uint32_t max_mappings,
				GError **error)
{
	struct guest_window *w = guest_frontend_window(guest_fuse_frontend(fuse));
	uint64_t have = guest_window_base(w) ? guest_window_size(w) : 0;
	struct guest_dax *d;

	if (!have || !(guest_fuse_flags(fuse) & FUSE_MAP_ALIGNMENT)) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_NODEV,
			    "the back-end offers no DAX window");
		return NULL;
	}
	if (guest_fuse_map_alignment(fuse) > GRANULE) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "the back-end maps in steps of %u bytes",
			    guest_fuse_map_alignment(fuse));
		return NULL;
	}
	d = g_new0(struct guest_dax, 1);
	d->fuse = fuse;
	d->window.ops = &dax_ops;
	d->window.caps = (struct dm_window_caps){
		.flags = DM_WINDOW_OVERLAY | DM_WINDOW_SPLIT | DM_WINDOW_BEYOND_EOF |
			 DM_WINDOW_CONCURRENT,
		.size = size ? MIN(size, have) : have,
		.granule = GRANULE,
		.max_mappings = max_mappings,
		.batch = REMOVE_MAX,
	};
	return &d->window;
}
