// SPDX-License-Identifier: Apache-2.0
#include "ctl_sample.h"

#include <math.h>
#include <string.h>

static JsonObject *object_of(JsonObject *o, const char *name)
{
	JsonNode *n = json_object_get_member(o, name);

	return n && JSON_NODE_HOLDS_OBJECT(n) ? json_node_get_object(n) : NULL;
}

static guint64 number(JsonObject *o, const char *name)
{
	gint64 v = o ? json_object_get_int_member_with_default(o, name, 0) : 0;

	return v > 0 ? (guint64)v : 0;
}

static gboolean truth(JsonObject *o, const char *name)
{
	return o && json_object_get_boolean_member_with_default(o, name, FALSE);
}

static void add_op(JsonObject *fuse, const gchar *name, JsonNode *op, gpointer data)
{
	struct ctl_sample *s = data;
	guint64 n;

	if (!JSON_NODE_HOLDS_OBJECT(op))
		return;
	n = number(json_node_get_object(op), "count");
	s->requests += n;
	if (strcmp(name, "read") == 0)
		s->reads = n;
	else if (strcmp(name, "write") == 0)
		s->writes = n;
}

static void take_latency(struct ctl_sample *s, JsonObject *stats)
{
	JsonNode *n = json_object_get_member(stats, "map_latency_log2_ns");
	JsonArray *a = n && JSON_NODE_HOLDS_ARRAY(n) ? json_node_get_array(n) : NULL;

	for (guint i = 0; a && i < MIN(json_array_get_length(a), CTL_HIST_BUCKETS); i++)
		s->map_latency[i] = (guint64)json_array_get_int_element(a, i);
}

static void take_stats(struct ctl_sample *s, JsonObject *o)
{
	JsonObject *session = object_of(o, "session"), *fuse = object_of(o, "fuse");

	s->version = g_strdup(json_object_get_string_member_with_default(o, "version", "?"));
	s->tag = g_strdup(json_object_get_string_member_with_default(o, "tag", "?"));
	s->uptime_s = (double)number(o, "uptime_ms") / 1e3;
	s->connected = truth(session, "connected");
	s->running = truth(session, "running");
	s->broken = truth(object_of(o, "table"), "broken");
#define X(field, object, name) s->field = number(object_of(o, object), name);
	CTL_SAMPLE(X)
#undef X
	take_latency(s, o);
	if (fuse)
		json_object_foreach_member(fuse, add_op, s);
}

static JsonNode *ask_stats(struct ctl_client *c, GError **error)
{
	g_autoptr(JsonObject) request = json_object_new();

	json_object_set_string_member(request, "command", "stats");
	json_object_set_boolean_member(request, "mappings", FALSE);
	return ctl_client_request(c, request, -1, error);
}

struct ctl_sample *ctl_sample_take(struct ctl_client *c, GError **error)
{
	g_autoptr(JsonNode) stats = ask_stats(c, error);
	g_autoptr(JsonNode) files = stats ? ctl_client_call(c, "files", error) : NULL;
	struct ctl_sample *s;

	if (!files)
		return NULL;
	if (!JSON_NODE_HOLDS_OBJECT(stats) || !JSON_NODE_HOLDS_OBJECT(files)) {
		g_set_error(error, CTL_ERROR, 1, "the daemon's answer is no object");
		return NULL;
	}
	s = g_new0(struct ctl_sample, 1);
	s->at_us = g_get_monotonic_time();
	take_stats(s, json_node_get_object(stats));
	s->total_files = number(json_node_get_object(files), "total");
	s->files = g_steal_pointer(&files);
	return s;
}

void ctl_sample_free(struct ctl_sample *s)
{
	if (!s)
		return;
	g_free(s->version);
	g_free(s->tag);
	if (s->files)
		json_node_unref(s->files);
	g_free(s);
}

double ctl_rate(guint64 now, guint64 before, double seconds)
{
	if (seconds <= 0)
		return 0;
	return (double)(now >= before ? now - before : now) / seconds;
}

double ctl_percentile(const guint64 now[CTL_HIST_BUCKETS], const guint64 *before, double percent)
{
	guint64 n[CTL_HIST_BUCKETS], total = 0;
	double rank, below = 0;

	for (guint i = 0; i < CTL_HIST_BUCKETS; i++) {
		n[i] = before && now[i] >= before[i] ? now[i] - before[i] : now[i];
		total += n[i];
	}
	if (!total)
		return -1;
	rank = (double)total * percent / 100;
	for (guint i = 0; i < CTL_HIST_BUCKETS; i++) {
		if (n[i] && below + (double)n[i] >= rank)
			return exp2(i + (rank - below) / (double)n[i]);
		below += (double)n[i];
	}
	return exp2(CTL_HIST_BUCKETS);
}
