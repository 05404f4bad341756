/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a JSON object, one call each. For those who link json-glib. */
#ifndef DAXMAP_UTIL_JSON_H
#define DAXMAP_UTIL_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <json-glib/json-glib.h>

/** util_json_u64() - JSON's integers end at INT64_MAX, and so does what is put for @v. */
static inline void util_json_u64(JsonBuilder *b, const char *name, uint64_t v)
{
	json_builder_set_member_name(b, name);
	json_builder_add_int_value(b, (gint64)MIN(v, (uint64_t)INT64_MAX));
}

static inline void util_json_double(JsonBuilder *b, const char *name, double v)
{
	json_builder_set_member_name(b, name);
	json_builder_add_double_value(b, v);
}

static inline void util_json_bool(JsonBuilder *b, const char *name, bool v)
{
	json_builder_set_member_name(b, name);
	json_builder_add_boolean_value(b, v);
}

/** util_json_begin() - a member that is an object: json_builder_end_object() ends it */
static inline void util_json_begin(JsonBuilder *b, const char *name)
{
	json_builder_set_member_name(b, name);
	json_builder_begin_object(b);
}

/** util_json_string() - @v NULL: null */
static inline void util_json_string(JsonBuilder *b, const char *name, const char *v)
{
	json_builder_set_member_name(b, name);
	if (v)
		json_builder_add_string_value(b, v);
	else
		json_builder_add_null_value(b);
}

#endif
