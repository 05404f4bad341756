// SPDX-License-Identifier: Apache-2.0
#include "daemon_policy.h"

#include <fcntl.h>

#include "daemon_shim.h"
#include "util_lock.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "policy"

#define OVERLAYFS 0x794c7630

struct daemon_policy {
	struct policy *policy;
	struct policy_prefetch *prefetch; /* NULL: never wanted yet; atomic, set once */
	struct fs *fs;
	struct shim *shim;
	struct watch *watch;
	bool beyond_eof;
};

static struct policy_prefetch *prefetch_of(struct daemon_policy *dp)
{
	return __atomic_load_n(&dp->prefetch, __ATOMIC_ACQUIRE);
}

/* --- what the policy may want to know of a file --- */

struct asked {
	const struct daemon_policy *dp;
	const struct fs_attr *attr;
};

static bool ask_fs_type(void *ctx, uint32_t *type)
{
	const struct asked *a = ctx;

	return fs_type(a->dp->fs, a->attr->node, type);
}

static bool ask_can_write(void *ctx)
{
	const struct asked *a = ctx;

	return fs_can_write(a->dp->fs, a->attr->node, &a->attr->st);
}

static ssize_t ask_path(void *ctx, char *buf, size_t size, bool *whole)
{
	const struct asked *a = ctx;

	return fs_path(a->dp->fs, a->attr->node, buf, size, whole);
}

/* --- what the session asks and tells --- */

static bool any_size(void *ctx)
{
	const struct daemon_policy *dp = ctx;

	return dp->beyond_eof || daemon_shim_any_size(dp->shim);
}

static bool mark(void *ctx, const struct fs_attr *attr)
{
	struct daemon_policy *dp = ctx;
	struct asked a = {dp, attr};
	const struct policy_query q = {
		.file = {attr->st.st_dev, attr->st.st_ino},
		.size = (uint64_t)attr->st.st_size,
		.any_size = any_size(dp),
		.truncated = watch_is_truncated(dp->watch, fuse_file_key(attr->node)),
		.ctx = &a,
		.fs_type = ask_fs_type,
		.can_write = ask_can_write,
		.path = ask_path,
	};

	return policy_mark(dp->policy, &q, util_now_ns()) == POLICY_MARKED;
}

static bool identify(const struct daemon_policy *dp, uint64_t node, struct policy_file *file)
{
	return fs_identity(dp->fs, node, &file->dev, &file->ino);
}

static void setup(void *ctx, uint64_t node, uint64_t offset, uint64_t len, uint64_t file_offset)
{
	struct daemon_policy *dp = ctx;
	struct policy_prefetch *prefetch = prefetch_of(dp);
	struct policy_prefetch_wish wish;
	struct policy_file file;

	if (!identify(dp, node, &file))
		return;
	policy_setup(dp->policy, file, offset, len, file_offset, util_now_ns(), &wish);
	if (wish.len && prefetch)
		policy_prefetch_push(prefetch, node, wish.offset, wish.len);
}

static void refused(void *ctx, uint64_t node, uint64_t offset, uint64_t len, int err)
{
	struct daemon_policy *dp = ctx;
	struct policy_file file;

	if (identify(dp, node, &file))
		policy_refused(dp->policy, file, offset, len, err, util_now_ns());
}

static void removed(void *ctx, uint64_t offset, uint64_t len)
{
	struct daemon_policy *dp = ctx;

	policy_remove(dp->policy, offset, len, util_now_ns());
}

static void opened(void *ctx, uint64_t node, int flags)
{
	struct daemon_policy *dp = ctx;
	struct policy_file file;

	/* Most guests never open anything with O_DIRECT. */
	if (!(flags & O_DIRECT) && !policy_any_direct(dp->policy))
		return;
	if (identify(dp, node, &file))
		policy_opened(dp->policy, file, fs_direct_only(dp->fs, node), util_now_ns());
}

static void quiesce(void *ctx)
{
	struct daemon_policy *dp = ctx;

	if (prefetch_of(dp))
		policy_prefetch_quiesce(prefetch_of(dp));
	policy_reset(dp->policy);
}

/* --- the watch's part of it --- */

static uint64_t size(void *ctx, const struct fs_attr *attr)
{
	struct daemon_policy *dp = ctx;

	return watch_size(dp->watch, fuse_file_key(attr->node), (uint64_t)attr->st.st_size);
}

static void touched(void *ctx, uint64_t node)
{
	watch_touched(((struct daemon_policy *)ctx)->watch, fuse_file_key(node));
}

static void *truncating(void *ctx, uint64_t node)
{
	return watch_truncating(((struct daemon_policy *)ctx)->watch, fuse_file_key(node));
}

static void truncated(void *ctx, void *what)
{
	watch_truncated(((struct daemon_policy *)ctx)->watch, what);
}

static bool must_settle(void *ctx, uint64_t node)
{
	return watch_must_settle(((struct daemon_policy *)ctx)->watch, fuse_file_key(node));
}

static void settle(void *ctx, uint64_t node)
{
	watch_settle(((struct daemon_policy *)ctx)->watch, fuse_file_key(node));
}

static void mapped(void *ctx, uint64_t node, uint64_t file_offset, uint64_t len)
{
	watch_mapped(((struct daemon_policy *)ctx)->watch, fuse_file_key(node), file_offset, len);
}

const struct fuse_dax_ops daemon_policy_ops = {
	.mark = mark,
	.any_size = any_size,
	.setup = setup,
	.refused = refused,
	.remove = removed,
	.opened = opened,
	.quiesce = quiesce,
	.size = size,
	.touched = touched,
	.truncating = truncating,
	.truncated = truncated,
	.must_settle = must_settle,
	.settle = settle,
	.mapped = mapped,
};

/* --- life --- */

static void read_ahead(void *ctx, uint64_t node, uint64_t offset, uint64_t len)
{
	fs_readahead(((struct daemon_policy *)ctx)->fs, node, offset, len);
}

static void tell(const struct daemon_policy *dp, const struct daemon_config *c, bool protects)
{
	uint32_t type = 0;

	if (!fs_type(dp->fs, FS_ROOT_ID, &type) || !policy_fstype_name(type))
		g_message("the share lies on a file system (type %#x) whose mappings are not known "
			  "to be coherent: no file of it is marked for DAX",
			  type);
	else if (type == OVERLAYFS && !protects)
		g_message("the share lies on overlayfs: mapping a file of a lower layer copies it "
			  "up; --dax-exclude or --dax=never avoid that");
	if (c->dax == DAEMON_DAX_ALWAYS && !any_size((void *)dp))
		g_warning("--dax=always: files whose size is not a multiple of 2M cannot be mapped "
			  "here, and a guest that mounts with dax=always is refused");
}

static struct policy_config tunable(const struct daemon_config *c)
{
	return (struct policy_config){
		.guard = c->dax_guard == DAEMON_GUARD_ON,
		.min_size = c->dax_min_size,
		.max_share = (uint64_t)c->dax_max_share,
		.prefetch = (enum policy_prefetch_mode)c->dax_prefetch,
	};
}

static void want_prefetch(struct daemon_policy *dp, const struct daemon_config *c)
{
	if (c->dax_prefetch != POLICY_PREFETCH_OFF && !dp->prefetch)
		__atomic_store_n(&dp->prefetch, policy_prefetch_new(read_ahead, dp),
				 __ATOMIC_RELEASE);
}

void daemon_policy_tune(struct daemon_policy *dp, const struct daemon_config *c)
{
	const struct policy_config config = tunable(c);

	want_prefetch(dp, c);
	policy_tune(dp->policy, &config);
}

struct daemon_policy *daemon_policy_new(const struct daemon_config *c, struct fs *fs,
					struct shim *shim, struct watch *watch,
					const struct dm_window_caps *caps)
{
	struct daemon_policy *dp = g_new0(struct daemon_policy, 1);
	struct policy_config config = tunable(c);

	config.window_size = caps->size;
	config.granule = DAEMON_GRANULE;
	config.all = c->dax == DAEMON_DAX_ALWAYS;
	config.can_protect = caps->flags & DM_WINDOW_PROTECT;
	config.include = (const char *const *)c->dax_include;
	config.exclude = (const char *const *)c->dax_exclude;

	dp->fs = fs;
	dp->shim = shim;
	dp->watch = watch;
	dp->beyond_eof = caps->flags & DM_WINDOW_BEYOND_EOF;
	dp->policy = policy_new(&config);
	want_prefetch(dp, c);
	tell(dp, c, config.can_protect);
	return dp;
}

void daemon_policy_free(struct daemon_policy *dp)
{
	if (!dp)
		return;
	policy_prefetch_free(dp->prefetch);
	policy_free(dp->policy);
	g_free(dp);
}

bool daemon_policy_file_stats(struct daemon_policy *dp, uint64_t node, struct policy_file *file,
			      struct policy_file_stats *out)
{
	if (!identify(dp, node, file))
		return false;
	policy_file_stats(dp->policy, *file, util_now_ns(), out);
	return true;
}

void daemon_policy_get_stats(struct daemon_policy *dp, struct policy_stats *policy,
			     struct policy_prefetch_stats *prefetch)
{
	*prefetch = (struct policy_prefetch_stats){0};
	policy_get_stats(dp->policy, util_now_ns(), policy);
	if (prefetch_of(dp))
		policy_prefetch_get_stats(prefetch_of(dp), prefetch);
}
