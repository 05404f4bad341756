// SPDX-License-Identifier: Apache-2.0
#include "daemon_files.h"

#include <limits.h>

#include <daxmap/table.h>

#include "daemon_policy.h"

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

static void add(JsonBuilder *b, const char *name, uint64_t v)
{
	json_builder_set_member_name(b, name);
	json_builder_add_int_value(b, (gint64)MIN(v, (uint64_t)G_MAXINT64));
}

static void add_path(JsonBuilder *b, const struct daemon_device *d, uint64_t node)
{
	g_autofree char *valid = NULL;
	char path[PATH_MAX];

	if (fs_where(d->fs, node, path, sizeof(path)) < 0)
		return;
	valid = g_utf8_make_valid(path, -1);
	json_builder_set_member_name(b, "path");
	json_builder_add_string_value(b, valid);
}

static void add_file(JsonBuilder *b, const struct daemon_device *d, const struct dm_file_info *f)
{
	struct policy_file_stats s;
	struct policy_file id;

	json_builder_begin_object(b);
	add(b, "node", f->file.lo);
	add_path(b, d, f->file.lo);
	add(b, "ranges", f->ranges);
	add(b, "bytes", f->bytes);
	add(b, "live_bytes", f->live_bytes);
	add(b, "pins", f->pins);
	add(b, "setups", f->counts.setups);
	add(b, "revived", f->counts.revived);
	add(b, "removed", f->counts.removed);
	add(b, "maps", f->counts.maps);
	add(b, "map_ns", f->counts.map_ns);
	if (daemon_policy_file_stats(d->policy, f->file.lo, &id, &s)) {
		add(b, "dev", id.dev);
		add(b, "ino", id.ino);
		add(b, "refaults", s.refaults);
		json_builder_set_member_name(b, "thrash");
		json_builder_add_boolean_value(b, s.thrash);
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
	add(b, "total", files->len);
	json_builder_set_member_name(b, "files");
	json_builder_begin_array(b);
	for (guint i = 0; i < n; i++)
		add_file(b, d, &g_array_index(files, struct dm_file_info, i));
	json_builder_end_array(b);
	json_builder_end_object(b);
	return json_builder_get_root(b);
}
