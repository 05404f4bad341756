// SPDX-License-Identifier: Apache-2.0
#include "daemon_stats.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <daxmap/table.h>

#include "daemon_policy.h"
#include "util_fd.h"
#include "util_json.h"
#include "util_lock.h"

/* syscalls: openat getdents64 getpid */

uint64_t daemon_stats_entries(int dirfd, unsigned int own)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t n = 0;
	DIR *dir;

	if (fd < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		util_close(&fd);
		return 0;
	}
	for (struct dirent *e = readdir(dir); e; e = readdir(dir))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n - MIN(n, own);
}

static void add_process(JsonBuilder *b, int proc_self_fd, int proc_task_fd)
{
	util_json_begin(b, "process");
	util_json_u64(b, "pid", (uint64_t)getpid());
	if (proc_self_fd >= 0)
		util_json_u64(b, "fds", daemon_stats_entries(proc_self_fd, 1));
	if (proc_task_fd >= 0)
		util_json_u64(b, "threads", daemon_stats_entries(proc_task_fd, 0));
	json_builder_end_object(b);
}

static void add_session(JsonBuilder *b, const struct daemon_device *d)
{
	util_json_begin(b, "session");
	util_json_bool(b, "connected", __atomic_load_n(&d->connected, __ATOMIC_RELAXED));
	util_json_bool(b, "running", __atomic_load_n(&d->running, __ATOMIC_RELAXED));
	util_json_bool(b, "channel", __atomic_load_n(&d->channel, __ATOMIC_RELAXED));
	util_json_u64(b, "sessions", __atomic_load_n(&d->sessions, __ATOMIC_RELAXED));
	util_json_u64(b, "resets", __atomic_load_n(&d->resets, __ATOMIC_RELAXED));
	util_json_u64(b, "window_size", d->window_size);
	util_json_u64(b, "max_mappings", d->table ? (uint64_t)d->config->max_mappings : 0);
	json_builder_end_object(b);
}

static void add_table(JsonBuilder *b, struct dm_table *t)
{
	struct dm_stats s;

	dm_table_stats(t, &s);
	util_json_begin(b, "table");
#define X(name, kind, help) util_json_u64(b, #name, s.name);
	DM_STATS(X)
#undef X
	util_json_bool(b, "broken", dm_host_broken(t));
	json_builder_end_object(b);

	json_builder_set_member_name(b, "map_latency_log2_ns");
	json_builder_begin_array(b);
	for (int i = 0; i < DM_HIST_BUCKETS; i++)
		json_builder_add_int_value(b, (gint64)s.map_latency[i]);
	json_builder_end_array(b);
}

static void add_mapping(void *ctx, const struct dm_range_info *r)
{
	JsonBuilder *b = ctx;

	json_builder_begin_object(b);
	util_json_u64(b, "offset", r->offset);
	util_json_u64(b, "len", r->len);
	util_json_u64(b, "node", r->file.lo);
	util_json_u64(b, "file_offset", r->file_offset);
	util_json_u64(b, "pins", r->pins);
	util_json_string(b, "state", r->state);
	util_json_bool(b, "blank", r->blank);
	json_builder_end_object(b);
}

static void add_fs(JsonBuilder *b, struct fs *fs)
{
	struct fs_stats s;

	fs_get_stats(fs, &s);
	util_json_begin(b, "fs");
	util_json_u64(b, "nodes", s.nodes);
	util_json_u64(b, "handles", s.handles);
	util_json_u64(b, "fds", s.fds);
	json_builder_end_object(b);
}

static void add_shim(JsonBuilder *b, struct shim *shim)
{
	struct shim_stats s;
	bool alive = shim && shim_check(shim) && shim_get_stats(shim, &s) == 0;

	util_json_begin(b, "shim");
	util_json_bool(b, "active", alive);
	if (alive) {
		util_json_u64(b, "nodes", s.nodes);
		util_json_u64(b, "backings", s.backings);
		util_json_u64(b, "fds", s.fds);
		util_json_u64(b, "refused", s.refused);
	}
	json_builder_end_object(b);
}

static void add_policy(JsonBuilder *b, struct daemon_policy *policy)
{
	struct policy_prefetch_stats prefetch;
	struct policy_stats s;

	daemon_policy_get_stats(policy, &s, &prefetch);
	util_json_begin(b, "policy");
#define X(name, help) util_json_u64(b, #name, s.name);
	POLICY_STATS(X)
#undef X
	util_json_u64(b, "prefetch_ranges", prefetch.ranges);
	util_json_u64(b, "prefetch_bytes", prefetch.bytes);
	util_json_u64(b, "prefetch_dropped", prefetch.dropped);
	json_builder_end_object(b);
}

static void add_watch(JsonBuilder *b, const struct watch *watch)
{
	struct watch_stats s;

	watch_get_stats(watch, &s);
	util_json_begin(b, "watch");
#define X(name, help) util_json_u64(b, #name, s.name);
	WATCH_STATS(X)
#undef X
	json_builder_end_object(b);
}

static void add_fuse(JsonBuilder *b, struct fuse_session *session)
{
	struct fuse_op_stats s;

	util_json_begin(b, "fuse");
	for (unsigned int i = 0; fuse_session_op_stats(session, i, &s); i++) {
		if (!s.name || !s.count)
			continue;
		util_json_begin(b, s.name);
		util_json_u64(b, "count", s.count);
		util_json_u64(b, "errors", s.errors);
		util_json_u64(b, "offloaded", s.offloaded);
		json_builder_end_object(b);
	}
	json_builder_end_object(b);
}

JsonNode *daemon_stats_json(const struct daemon_device *d, int proc_self_fd, int proc_task_fd,
			    bool mappings)
{
	g_autoptr(JsonBuilder) b = json_builder_new();
	g_autofree char *tag = g_utf8_make_valid(d->config->tag, -1);

	json_builder_begin_object(b);
	util_json_string(b, "version", DAXMAPD_VERSION);
	util_json_string(b, "tag", tag);
	util_json_u64(b, "uptime_ms", (util_now_ns() - d->started_ns) / 1000000u);
	add_process(b, proc_self_fd, proc_task_fd);
	add_session(b, d);
	if (d->table)
		add_table(b, d->table);
	if (d->policy)
		add_policy(b, d->policy);
	if (d->watch)
		add_watch(b, d->watch);
	add_shim(b, d->shim);
	add_fs(b, d->fs);
	add_fuse(b, d->session);
	if (mappings) {
		json_builder_set_member_name(b, "mappings");
		json_builder_begin_array(b);
		if (d->table)
			dm_table_foreach(d->table, add_mapping, b);
		json_builder_end_array(b);
	}
	json_builder_end_object(b);
	return json_builder_get_root(b);
}
