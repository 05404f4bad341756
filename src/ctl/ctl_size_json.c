// SPDX-License-Identifier: Apache-2.0
#include <json-glib/json-glib.h>

#include "ctl_size.h"
#include "util_json.h"

static void put_strings(JsonBuilder *b, const char *name, const GPtrArray *a)
{
	json_builder_set_member_name(b, name);
	json_builder_begin_array(b);
	for (guint i = 0; i < a->len; i++)
		json_builder_add_string_value(b, g_ptr_array_index(a, i));
	json_builder_end_array(b);
}

static void put_trace(JsonBuilder *b, const struct size_report *r)
{
	const struct size_totals *t = &r->totals;

	util_json_begin(b, "trace");
	util_json_string(b, "seat", r->guest_seat ? "guest" : "host");
	util_json_u64(b, "events", t->events);
	util_json_double(b, "seconds", (double)(t->last_ns - t->first_ns) / 1e9);
	util_json_u64(b, "window", r->window);
	util_json_u64(b, "granule", r->granule);
	util_json_u64(b, "budget", r->budget);
	util_json_u64(b, "accesses", t->accesses);
	util_json_u64(b, "misses", t->misses);
	util_json_u64(b, "maps", t->maps);
	util_json_u64(b, "unmaps", t->unmaps);
	util_json_u64(b, "ranges", t->distinct);
	util_json_u64(b, "files", t->files);
	util_json_u64(b, "one_range_in", UINT64_C(1) << t->shift);
	json_builder_end_object(b);
}

static const char *source_name(enum size_cost_source s)
{
	static const char *const names[] = {"none", "fitted", "assumed", "given"};

	return names[s];
}

static void put_costs(JsonBuilder *b, const struct size_report *r)
{
	util_json_begin(b, "costs");
	util_json_string(b, "map_source", source_name(r->map.source));
	util_json_double(b, "map_us", r->map.base / 1000);
	util_json_double(b, "map_us_per_live", r->map.slope / 1000);
	util_json_double(b, "map_us_per_live_error", r->map.slope_error / 1000);
	util_json_double(b, "setup_extra_us", r->extra_ns / 1000);
	util_json_double(b, "maps_per_miss", r->maps_a_miss);
	util_json_double(b, "hit_us", r->hit_ns / 1000);
	util_json_bool(b, "hit_given", r->hit_given);
	util_json_double(b, "read_us", r->read_ns / 1000);
	util_json_bool(b, "read_given", r->read_given);
	json_builder_end_object(b);
}

static void put_row(JsonBuilder *b, const struct size_report *r, const struct size_row *row)
{
	double all = (double)MAX(r->totals.accesses, 1);

	json_builder_begin_object(b);
	util_json_u64(b, "window", row->bytes);
	util_json_bool(b, "recorded", row->recorded);
	util_json_double(b, "live", row->live);
	util_json_double(b, "misses", row->misses);
	util_json_double(b, "least", row->least);
	if (row->open)
		util_json_string(b, "most", NULL);
	else
		util_json_double(b, "most", row->most);
	util_json_double(b, "miss_ratio", row->misses / all);
	if (r->exact == SIZE_EXACT) {
		util_json_double(b, "lru_ratio", row->lru / all);
		util_json_double(b, "clock_ratio", row->family[SIZE_CLOCK] / all);
		util_json_double(b, "fifo_ratio", row->family[SIZE_FIFO] / all);
		util_json_double(b, "linux_ratio", row->family[SIZE_LINUX] / all);
	}
	util_json_double(b, "miss_us", row->miss_ns / 1000);
	util_json_double(b, "us", row->cost_ns / all / 1000);
	util_json_u64(b, "guest_page_bytes", row->pages);
	util_json_string(b, "not_allowed", row->not_allowed);
	json_builder_end_object(b);
}

static void put_files(JsonBuilder *b, const struct size_report *r)
{
	json_builder_set_member_name(b, "files");
	json_builder_begin_array(b);
	for (unsigned int i = 0; i < r->n_files; i++) {
		const struct size_file *f = &r->files[i];

		json_builder_begin_object(b);
		util_json_string(b, "name", f->name);
		util_json_u64(b, "key_hi", f->hi);
		util_json_u64(b, "key_lo", f->lo);
		util_json_u64(b, "accesses", f->accesses);
		util_json_u64(b, "ranges", f->blocks);
		util_json_double(b, "misses", f->misses);
		if (r->exact == SIZE_EXACT) {
			util_json_double(b, "dax_us",
					 f->dax_ns / (double)MAX(f->accesses, 1) / 1000);
			util_json_double(b, "read_us",
					 f->read_ns / (double)MAX(f->accesses, 1) / 1000);
		}
		util_json_bool(b, "better_off_without_dax", f->better_off);
		json_builder_end_object(b);
	}
	json_builder_end_array(b);
}

static void put_answer(JsonBuilder *b, const struct size_report *r)
{
	int row = r->recommend;

	util_json_begin(b, "recommended");
	util_json_u64(b, "window", row >= 0 ? r->rows[row].bytes : 0);
	util_json_u64(b, "window_with_all_files", r->choice >= 0 ? r->rows[r->choice].bytes : 0);
	put_strings(b, "exclude", r->exclude);
	put_strings(b, "reasons", r->reasons);
	json_builder_end_object(b);
}

char *ctl_size_json(const struct size_report *r)
{
	g_autoptr(JsonBuilder) b = json_builder_new();
	g_autoptr(JsonNode) root = NULL;
	g_autofree char *text = NULL;

	json_builder_begin_object(b);
	util_json_string(b, "misses_are", r->exact == SIZE_EXACT ? "exact" : "bounds");
	util_json_string(b, "policy", size_policies[r->family].name);
	put_trace(b, r);
	if (r->check_predicted >= 0 && r->totals.accesses)
		util_json_double(b, "check_miss_ratio",
				 r->check_predicted / (double)r->totals.accesses);
	put_costs(b, r);
	json_builder_set_member_name(b, "windows");
	json_builder_begin_array(b);
	for (unsigned int i = 0; i < r->n_rows; i++)
		put_row(b, r, &r->rows[i]);
	json_builder_end_array(b);
	put_answer(b, r);
	put_files(b, r);
	put_strings(b, "notes", r->notes);
	json_builder_end_object(b);
	root = json_builder_get_root(b);
	text = json_to_string(root, FALSE);
	return g_strdup_printf("%s\n", text);
}
