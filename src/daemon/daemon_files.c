// SPDX-License-Identifier: Apache-2.0
#include "daemon_files.h"

#include <limits.h>

#include <daxmap/table.h>

#include "daemon_policy.h"
#include "util_json.h"

static void take(void *ctx, const struct dm_file_info *f)
{
	g_array_append_val((GArray *)ctx, *f);
}

static gint more_first(gconstpointer a, gconstpointer b)
{
	const struct dm_file_info *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return (x->file.lo > y->file.lo) - (x->file.lo < y->file.lo);
}

static void add_path(JsonBuilder *b, const struct daemon_device *d, uint64_t node)
{
	g_autofree char *valid = NULL;
	char path[PATH_MAX];

	if (fs_where(d->fs, node, path, sizeof(path)) < 0)
		return;
	valid = g_utf8_make_valid(path, -1);
	util_json_string(b, "path", valid);
}

static void add_file(JsonBuilder *b, const struct daemon_device *d, const struct dm_file_info *f)
{
	struct policy_file_stats s;
	struct policy_file id;

	json_builder_begin_object(b);
	util_json_u64(b, "node", f->file.lo);
	add_path(b, d, f->file.lo);
	util_json_u64(b, "ranges", f->ranges);
	util_json_u64(b, "bytes", f->bytes);
	util_json_u64(b, "live_bytes", f->live_bytes);
	util_json_u64(b, "pins", f->pins);
	util_json_u64(b, "setups", f->counts.setups);
	util_json_u64(b, "revived", f->counts.revived);
	util_json_u64(b, "removed", f->counts.removed);
	util_json_u64(b, "maps", f->counts.maps);
	util_json_u64(b, "map_ns", f->counts.map_ns);
	if (daemon_policy_file_stats(d->policy, f->file.lo, &id, &s)) {
		util_json_u64(b, "dev", id.dev);
		util_json_u64(b, "ino", id.ino);
		util_json_u64(b, "refaults", s.refaults);
		util_json_bool(b, "thrash", s.thrash);
	}
	json_builder_end_object(b);
}

JsonNode *daemon_files_json(const struct daemon_device *d, JsonObject *request)
{
	g_autoptr(GArray) files = g_array_new(FALSE, FALSE, sizeof(struct dm_file_info));
	g_autoptr(JsonBuilder) b = json_builder_new();
	gint64 limit = json_object_get_int_member_with_default(request, "limit", DAEMON_FILES_MAX);
	guint n;

	if (d->table)
		dm_table_foreach_file(d->table, take, files);
	g_array_sort(files, more_first);
	n = (guint)MIN((gint64)files->len, CLAMP(limit, 0, DAEMON_FILES_MAX));
	json_builder_begin_object(b);
	util_json_u64(b, "total", files->len);
	json_builder_set_member_name(b, "files");
	json_builder_begin_array(b);
	for (guint i = 0; i < n; i++)
		add_file(b, d, &g_array_index(files, struct dm_file_info, i));
	json_builder_end_array(b);
	json_builder_end_object(b);
	return json_builder_get_root(b);
}
