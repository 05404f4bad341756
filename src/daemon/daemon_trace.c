// SPDX-License-Identifier: Apache-2.0
/*
 * One lock is held by whoever starts, stops or asks, and by who names a file: all rare. What is
 * traced does not take it: the table holds the tap, and dm_table_set_trace() waits until nobody is
 * in it any more.
 *
 * What was mapped before the trace began is written down as present, after the tap is in place: a
 * range may be seen twice, none is missed.
 */
#include "daemon_trace.h"

#include <errno.h>
#include <string.h>

#include "daemon_control.h"
#include "trace_writer.h"
#include "util_fd.h"
#include "util_lock.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "trace"

struct daemon_trace {
	struct fs *fs;
	struct dm_table *table;
	struct trace_info info;
	struct util_mutex lock; /* the rest, but reading .recording */
	bool recording;		/* atomic */
	bool names;
	struct trace_writer *writer;
	struct dm_trace tap;
	GHashTable *named; /* node ids whose name the trace has */
};

struct daemon_trace *daemon_trace_new(const struct daemon_config *c, struct fs *fs,
				      struct dm_table *table, const struct dm_window_caps *caps,
				      const char *driver)
{
	struct daemon_trace *t = g_new0(struct daemon_trace, 1);

	t->fs = fs;
	t->table = table;
	t->info = (struct trace_info){
		.seat = TRACE_SEAT_HOST,
		.window_size = caps->size,
		.granule = caps->granule,
		.slot_size = DAEMON_GRANULE,
		.budget = (uint32_t)c->max_mappings,
		.caps = caps->flags,
		.batch = caps->batch,
	};
	g_strlcpy(t->info.driver, driver, sizeof(t->info.driver));
	util_mutex_init(&t->lock);
	return t;
}

static void record(struct daemon_trace *t, const struct trace_event *e)
{
	trace_record(t->writer, e);
}

static void name_file_locked(struct daemon_trace *t, struct dm_file_key key) UTIL_REQUIRES(t->lock)
{
	struct trace_event e = {.kind = TRACE_NAME, .file = key};
	char path[TRACE_NAME_MAX + 1];

	if (!t->writer || !t->names || !g_hash_table_add(t->named, g_memdup2(&key.lo, 8)))
		return;
	/* A file without a name is a number in the trace. */
	if (fs_where(t->fs, key.lo, path, sizeof(path)) <= 0 ||
	    g_str_has_suffix(path, " (deleted)"))
		return;
	e.name = path;
	record(t, &e);
}

/* Called by start_locked(), through the table. */
static void note_present(void *ctx, const struct dm_range_info *r) UTIL_NO_TSA
{
	struct daemon_trace *t = ctx;
	const struct trace_event e = {
		.kind = TRACE_PRESENT,
		.file = r->file,
		.file_offset = r->file_offset,
		.offset = r->offset,
		.len = r->len,
		.value = strcmp(r->state, "LIVE") == 0 ? TRACE_PRESENT_LIVE
						       : TRACE_PRESENT_LINGERING,
	};

	record(t, &e);
	name_file_locked(t, r->file);
}

static bool start_locked(struct daemon_trace *t, int fd, uint64_t max_bytes, bool names,
			 GError **error) UTIL_REQUIRES(t->lock)
{
	const struct trace_writer_config config = {.info = t->info, .max_bytes = max_bytes};
	const struct trace_event begin = {
		.kind = TRACE_BEGIN,
		.value = t->info.window_size >> TRACE_PAGE_SHIFT,
	};

	if (t->writer) {
		util_close(&fd);
		g_set_error(error, DAEMON_CONTROL_ERROR, EBUSY,
			    "a trace is under way; stop it first");
		return false;
	}
	t->writer = trace_writer_new(fd, &config, error);
	if (!t->writer)
		return false;
	t->names = names;
	t->named = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
	record(t, &begin);
	t->tap = (struct dm_trace){.fn = trace_writer_tap, .ctx = t->writer};
	dm_table_set_trace(t->table, &t->tap);
	__atomic_store_n(&t->recording, true, __ATOMIC_RELEASE);
	dm_table_foreach(t->table, note_present, t);
	return true;
}

bool daemon_trace_start(struct daemon_trace *t, int fd, uint64_t max_bytes, bool names,
			GError **error)
{
	bool good;

	util_mutex_lock(&t->lock);
	good = start_locked(t, fd, max_bytes, names, error);
	util_mutex_unlock(&t->lock);
	return good;
}

/* NULL when there is none. */
static struct trace_writer *take_writer_locked(struct daemon_trace *t) UTIL_REQUIRES(t->lock)
{
	struct trace_writer *w = g_steal_pointer(&t->writer);

	if (!w)
		return NULL;
	dm_table_set_trace(t->table, NULL);
	__atomic_store_n(&t->recording, false, __ATOMIC_RELEASE);
	g_clear_pointer(&t->named, g_hash_table_unref);
	return w;
}

void daemon_trace_free(struct daemon_trace *t)
{
	if (!t)
		return;
	util_mutex_lock(&t->lock);
	trace_writer_free(take_writer_locked(t), NULL);
	util_mutex_unlock(&t->lock);
	util_mutex_destroy(&t->lock);
	g_free(t);
}

void daemon_trace_file(struct daemon_trace *t, struct dm_file_key key)
{
	if (!t || !__atomic_load_n(&t->recording, __ATOMIC_ACQUIRE))
		return;
	util_mutex_lock(&t->lock);
	name_file_locked(t, key);
	util_mutex_unlock(&t->lock);
}

void daemon_trace_session(struct daemon_trace *t, bool begins)
{
	struct trace_event e = {.kind = begins ? TRACE_BEGIN : TRACE_END};

	if (!t || !__atomic_load_n(&t->recording, __ATOMIC_ACQUIRE))
		return;
	if (begins)
		e.value = t->info.window_size >> TRACE_PAGE_SHIFT;
	util_mutex_lock(&t->lock);
	if (t->writer) {
		record(t, &e);
		/* The next guest's nodes are other ones. */
		g_hash_table_remove_all(t->named);
	}
	util_mutex_unlock(&t->lock);
}

/* --- the control socket --- */

static void add(JsonObject *o, const char *name, uint64_t v)
{
	json_object_set_int_member(o, name, (gint64)MIN(v, (uint64_t)G_MAXINT64));
}

static JsonNode *stats_node(const struct trace_writer_stats *s, bool recording)
{
	JsonNode *node = json_node_new(JSON_NODE_OBJECT);
	JsonObject *o = json_object_new();

	json_object_set_boolean_member(o, "recording", recording && s->ending == TRACE_OPEN);
	if (s) {
		json_object_set_string_member(
			o, "ending",
			s->ending == TRACE_OPEN ? "recording" : trace_ending_text(s->ending));
		if (s->error)
			json_object_set_string_member(o, "error", g_strerror(s->error));
		add(o, "events", s->events);
		add(o, "lost", s->lost);
		add(o, "bytes", s->bytes);
		add(o, "max_bytes", s->max_bytes);
		add(o, "time_ns", s->time_ns);
	}
	json_node_take_object(node, o);
	return node;
}

static bool no_window(GError **error)
{
	g_set_error(error, DAEMON_CONTROL_ERROR, ENODEV, "there is no DAX window to trace");
	return false;
}

static bool check_request(struct daemon_trace *t, JsonObject *request, int fd, GError **error)
{
	JsonNode *max = json_object_get_member(request, "max_bytes");
	JsonNode *names = json_object_get_member(request, "names");

	if (!t)
		return no_window(error);
	if (fd < 0) {
		g_set_error(error, DAEMON_CONTROL_ERROR, EINVAL,
			    "trace-start needs a descriptor, sent along with the request");
		return false;
	}
	if ((max && (json_node_get_value_type(max) != G_TYPE_INT64 ||
		     json_node_get_int(max) < (gint64)TRACE_MAX_BYTES_MIN)) ||
	    (names && json_node_get_value_type(names) != G_TYPE_BOOLEAN)) {
		g_set_error(error, DAEMON_CONTROL_ERROR, EINVAL,
			    "trace-start takes \"max_bytes\", a number from %u up, and \"names\", "
			    "true or false",
			    (unsigned int)TRACE_MAX_BYTES_MIN);
		return false;
	}
	return true;
}

JsonNode *daemon_trace_run_start(struct daemon_trace *t, JsonObject *request, int *fd,
				 GError **error)
{
	if (!check_request(t, request, *fd, error))
		return NULL;
	if (!daemon_trace_start(
		    t, util_steal_fd(fd),
		    (uint64_t)json_object_get_int_member_with_default(request, "max_bytes", 0),
		    json_object_get_boolean_member_with_default(request, "names", TRUE), error))
		return NULL;
	return daemon_trace_run_status(t);
}

JsonNode *daemon_trace_run_stop(struct daemon_trace *t, GError **error)
{
	struct trace_writer_stats stats;
	struct trace_writer *w;

	if (!t) {
		no_window(error);
		return NULL;
	}
	util_mutex_lock(&t->lock);
	w = take_writer_locked(t);
	util_mutex_unlock(&t->lock);
	if (!w) {
		g_set_error(error, DAEMON_CONTROL_ERROR, ENOENT, "no trace is under way");
		return NULL;
	}
	trace_writer_free(w, &stats);
	return stats_node(&stats, false);
}

JsonNode *daemon_trace_run_status(struct daemon_trace *t)
{
	struct trace_writer_stats stats = {.ending = TRACE_STOPPED};
	bool recording = false;

	if (t) {
		util_mutex_lock(&t->lock);
		recording = t->writer;
		if (recording)
			trace_writer_stats(t->writer, &stats);
		util_mutex_unlock(&t->lock);
	}
	return stats_node(&stats, recording);
}
