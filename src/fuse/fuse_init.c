// SPDX-License-Identifier: Apache-2.0
/*
 * INIT and DESTROY: what is agreed with the guest. Both run alone.
 *
 * How the guest wants its DAX shows in what it offers (fs/fuse/virtio_fs.c, inode.c): with
 * FUSE_MAP_ALIGNMENT it has found a window; with FUSE_HAS_INODE_DAX too it asks per inode (also
 * without a mount option), without it it was mounted dax=always and will send SETUPMAPPING
 * whatever is answered. Where not every file can be mapped, that mount has to fail here.
 */
#include <errno.h>
#include <string.h>

#include "daxmap/table.h"
#include "fuse_internal.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "fuse"

#define PAGE 4096u
#define OLD_MAX_WRITE (32u * PAGE) /* of a guest without FUSE_MAX_PAGES */

static uint64_t wanted_flags(const struct fuse_config *cfg)
{
	uint64_t want = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES | FUSE_ASYNC_DIO |
			FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_SETXATTR_EXT | FUSE_INIT_EXT |
			FUSE_BIT_CREATE_SUPP_GROUP;

	/* 'always' promises that nobody changes files behind the guest's back. */
	want |= cfg->cache == FS_CACHE_ALWAYS ? FUSE_CACHE_SYMLINKS : FUSE_AUTO_INVAL_DATA;
	if (cfg->readdirplus)
		want |= FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO;
	if (cfg->writeback)
		want |= FUSE_WRITEBACK_CACHE;
	if (cfg->killpriv_v2)
		want |= FUSE_HANDLE_KILLPRIV_V2;
	if (cfg->flock)
		want |= FUSE_FLOCK_LOCKS;
	if (cfg->posix_acl)
		want |= FUSE_POSIX_ACL | FUSE_DONT_MASK;
	if (cfg->announce_submounts)
		want |= FUSE_SUBMOUNTS;
	if (cfg->allow_mmap)
		want |= FUSE_BIT_DIRECT_IO_ALLOW_MMAP;
	if (cfg->dax != FUSE_DAX_NONE)
		want |= FUSE_MAP_ALIGNMENT | FUSE_HAS_INODE_DAX;
	return want;
}

static uint64_t offered_flags(const struct fuse_init_in *in)
{
	uint64_t offered = in->flags;

	if (offered & FUSE_INIT_EXT)
		offered |= (uint64_t)in->flags2 << 32;
	return offered;
}

static enum fuse_dax_mode guest_dax_mode(uint64_t offered)
{
	if (!(offered & FUSE_MAP_ALIGNMENT))
		return FUSE_DAX_NONE;
	return offered & FUSE_HAS_INODE_DAX ? FUSE_DAX_INODE : FUSE_DAX_ALWAYS;
}

static int agree_on_dax(struct fuse_session *s, uint64_t offered)
{
	enum fuse_dax_mode guest = guest_dax_mode(offered);
	const struct fuse_dax_ops *ops = s->cfg.dax_ops;
	bool always_ok = s->cfg.dax != FUSE_DAX_NONE && ops && ops->any_size &&
			 ops->any_size(s->cfg.dax_ctx);

	if (guest == FUSE_DAX_ALWAYS && !always_ok) {
		g_warning("the guest mounts with dax=always, but %s: mount refused; use dax=inode "
			  "or no dax option",
			  s->cfg.dax == FUSE_DAX_NONE ? "this daemon has no DAX window"
						      : "not every file can be mapped here");
		return -EOPNOTSUPP;
	}
	s->dax = guest != FUSE_DAX_NONE && s->cfg.dax != FUSE_DAX_NONE;
	__atomic_store_n(&s->guest_dax, guest, __ATOMIC_RELAXED);
	return 0;
}

static double timeout_or_default(double configured, enum fs_cache_mode cache)
{
	if (configured >= 0)
		return configured;
	switch (cache) {
	case FS_CACHE_NEVER:
		return 0;
	case FS_CACHE_AUTO:
		return 1;
	case FS_CACHE_METADATA:
	case FS_CACHE_ALWAYS:
		break;
	}
	return 86400;
}

static size_t init_out_size(uint32_t minor)
{
	if (minor < 5)
		return FUSE_COMPAT_INIT_OUT_SIZE;
	if (minor < 23)
		return FUSE_COMPAT_22_INIT_OUT_SIZE;
	return sizeof(struct fuse_init_out);
}

static void fill_init_out(struct fuse_session *s, const struct fuse_init_in *in,
			  struct fuse_init_out *out)
{
	uint32_t max_write = MAX(s->cfg.max_write, PAGE);

	if (!(s->flags & FUSE_MAX_PAGES))
		max_write = MIN(max_write, OLD_MAX_WRITE);
	max_write = MIN(max_write, (uint32_t)UINT16_MAX * PAGE);
	*out = (struct fuse_init_out){
		.major = FUSE_KERNEL_VERSION,
		.minor = s->minor,
		.max_readahead = in->max_readahead,
		.flags = (uint32_t)s->flags,
		.flags2 = (uint32_t)(s->flags >> 32),
		/* Without it the guest keeps no more than 12 asynchronous requests under way. */
		.max_background = UINT16_MAX,
		.congestion_threshold = UINT16_MAX / 4 * 3,
		.max_write = max_write,
		.time_gran = 1,
	};
	if (s->flags & FUSE_MAX_PAGES)
		out->max_pages = (uint16_t)((max_write + PAGE - 1) / PAGE);
	if (s->flags & FUSE_MAP_ALIGNMENT)
		out->map_alignment = FUSE_MAP_ALIGN_LOG2;
}

void fuse_teardown(struct fuse_session *s, bool talk)
{
	struct fuse_table *t = fuse_table_get(s);

	fuse_dax_hook(s, quiesce);
	s->initialised = false;
	s->dax = false;
	s->flags = 0;
	s->minor = FUSE_OUR_MINOR;
	__atomic_store_n(&s->guest_dax, FUSE_DAX_NONE, __ATOMIC_RELAXED);
	if (t && talk) {
		int err = dm_host_flush(t->t);

		if (err)
			g_warning("could not unmap the DAX window: %s", g_strerror(-err));
	} else if (t) {
		dm_host_forget(t->t);
	}
	fuse_table_put(s, t);
	fs_reset(s->cfg.fs);
}

ssize_t fuse_op_init(struct fuse_ctx *c)
{
	struct fuse_session *s = c->s;
	const struct fuse_init_in *in = fuse_args(c, struct fuse_init_in);
	struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_OUR_MINOR};
	uint64_t offered = offered_flags(in);
	size_t size;
	int err;

	if (s->initialised)
		fuse_teardown(s, true);
	fuse_park(c->r, false); /* before the first byte of the reply */
	if (in->major < FUSE_KERNEL_VERSION) {
		g_warning("the guest speaks FUSE %u.%u, too old", in->major, in->minor);
		return -EPROTO;
	}
	/* A newer guest takes our major from this and asks again. */
	if (in->major > FUSE_KERNEL_VERSION)
		return fuse_reply(c, &out, MIN(sizeof(out), c->out.left));
	size = init_out_size(in->minor);
	if (c->out.left < size)
		return -EINVAL;
	err = agree_on_dax(s, offered);
	if (err)
		return err;
	s->minor = MIN(in->minor, FUSE_OUR_MINOR);
	s->flags = offered & wanted_flags(&s->cfg);
	s->attr_timeout = timeout_or_default(s->cfg.attr_timeout, s->cfg.cache);
	s->entry_timeout = timeout_or_default(s->cfg.entry_timeout, s->cfg.cache);
	fill_init_out(s, in, &out);
	s->initialised = true;
	g_debug("INIT 7.%u, flags %#" G_GINT64_MODIFIER "x of %#" G_GINT64_MODIFIER "x", s->minor,
		s->flags, offered);
	return fuse_reply(c, &out, size);
}

ssize_t fuse_op_destroy(struct fuse_ctx *c)
{
	fuse_teardown(c->s, true);
	return 0;
}

enum fuse_dax_mode fuse_session_guest_dax(struct fuse_session *s)
{
	return __atomic_load_n(&s->guest_dax, __ATOMIC_RELAXED);
}
