// SPDX-License-Identifier: Apache-2.0
#include "daemon_metrics.h"

#include <stddef.h>

#include <daxmap/table.h>

#include "daemon_policy.h"
#include "daemon_stats.h"
#include "util_lock.h"
#include "watch.h"

#define NS 1e-9
#define PREFIX "daxmapd_"

/* Smallest bucket shown: 2^10 ns, about 1 us. The last of the table's holds whatever is longer. */
#define FIRST_BUCKET 9

struct writer {
	GString *out;
	char *labels; /* of every sample */
	const char *name;
};

/* A counter or gauge that is a uint64_t of a structure. */
struct row {
	size_t offset;
	const char *name;
	const char *type;
	const char *help;
	double unit; /* 0: as it is */
};

#define COUNTER(s, field, name, help)                                                              \
	{                                                                                          \
		offsetof(struct s, field), name, "counter", help, 0                                \
	}
#define GAUGE(s, field, name, help)                                                                \
	{                                                                                          \
		offsetof(struct s, field), name, "gauge", help, 0                                  \
	}

/* clang-format off */
static const struct row table_rows[] = {
	COUNTER(dm_stats, setups, "dax_setups_total", "Mappings that the guest asked for."),
	COUNTER(dm_stats, removes, "dax_removes_total", "Requests of the guest that give mappings back."),
	COUNTER(dm_stats, removed_ranges, "dax_removed_ranges_total", "Ranges that the guest gave back."),
	COUNTER(dm_stats, maps, "dax_maps_total", "Map operations that the VMM performed."),
	COUNTER(dm_stats, unmaps, "dax_unmaps_total", "Unmap operations that the VMM performed."),
	COUNTER(dm_stats, map_errors, "dax_map_errors_total", "Map operations that the VMM refused."),
	COUNTER(dm_stats, unmap_errors, "dax_unmap_errors_total", "Unmap operations that the VMM refused."),
	COUNTER(dm_stats, elided_revived, "dax_revived_total", "Setups answered by reviving a range that lingered: no call to the VMM."),
	COUNTER(dm_stats, elided_overlaid, "dax_overlaid_total", "Lingering ranges replaced by a map over them: no unmap."),
	COUNTER(dm_stats, elided_cancelled, "dax_cancelled_total", "Unmaps withdrawn before they were sent."),
	COUNTER(dm_stats, upgraded, "dax_upgraded_total", "Setups that asked for writing on a range already mapped so."),
	COUNTER(dm_stats, repeated, "dax_repeated_total", "Setups of bytes that were mapped already."),
	COUNTER(dm_stats, batches, "dax_batches_total", "Calls to the VMM."),
	COUNTER(dm_stats, batched_ops, "dax_batched_operations_total", "Operations in those calls."),
	COUNTER(dm_stats, coalesced, "dax_coalesced_total", "Operations saved by joining neighbours."),
	COUNTER(dm_stats, refused_budget, "dax_refused_budget_total", "Setups refused: the budget of mappings is used up."),
	COUNTER(dm_stats, refused_driver, "dax_refused_driver_total", "Setups refused by the VMM."),
	COUNTER(dm_stats, refused_bad, "dax_refused_bad_total", "Setups and removes with impossible arguments."),
	COUNTER(dm_stats, pins, "dax_pins_total", "Requests of the guest into its window."),
	COUNTER(dm_stats, waits, "dax_waits_total", "Times that a request slept on a range in transition."),
	{offsetof(struct dm_stats, wait_ns), "dax_wait_seconds_total", "counter", "Time slept there.", NS},
	COUNTER(dm_stats, reclaim_passes, "dax_reclaim_passes_total", "Passes of the reclaim worker."),
	COUNTER(dm_stats, reclaim_skipped, "dax_reclaim_skipped_total", "Ranges in use that reclaim passed over."),
	COUNTER(dm_stats, reclaim_inline, "dax_reclaim_inline_total", "Ranges that a setup had to reclaim itself."),
	COUNTER(dm_stats, deferred_unmaps, "dax_deferred_unmaps_total", "Given-back ranges unmapped by the worker."),
	COUNTER(dm_stats, asked_unmaps, "dax_asked_unmaps_total", "Given-back ranges unmapped on a request's path."),
	COUNTER(dm_stats, dropped, "dax_dropped_total", "Ranges that went with their session."),
	GAUGE(dm_stats, live, "dax_live_ranges", "Ranges mapped, and the guest's."),
	GAUGE(dm_stats, lingering, "dax_lingering_ranges", "Ranges mapped, and given back."),
	GAUGE(dm_stats, mapped, "dax_mapped_ranges", "Ranges that the VMM has mapped."),
	GAUGE(dm_stats, mapped_peak, "dax_mapped_ranges_peak", "Most ranges ever mapped at once."),
	GAUGE(dm_stats, mapped_bytes, "dax_mapped_bytes", "Bytes that the VMM has mapped."),
	GAUGE(dm_stats, files_open, "dax_open_files", "Files held open because they have mapped ranges."),
	{0},
};

static const struct row policy_rows[] = {
	COUNTER(policy_stats, refaults, "dax_refaults_total", "Ranges mapped again soon after they were given back."),
	COUNTER(policy_stats, thrash_events, "dax_thrash_events_total", "Times that a file lost its mark to the guard."),
	COUNTER(policy_stats, prefetch_sequential, "dax_sequential_setups_total", "Setups that went on where the file's last one ended."),
	COUNTER(policy_stats, prefetch_wishes, "dax_prefetch_wishes_total", "Ranges that were to be read ahead."),
	GAUGE(policy_stats, thrash_files, "dax_thrash_files", "Files without their mark now, because they thrash."),
	{0},
};

static const struct row prefetch_rows[] = {
	COUNTER(policy_prefetch_stats, ranges, "dax_prefetched_ranges_total", "Ranges read ahead."),
	COUNTER(policy_prefetch_stats, bytes, "dax_prefetched_bytes_total", "Bytes read ahead."),
	COUNTER(policy_prefetch_stats, dropped, "dax_prefetch_dropped_total", "Ranges not read ahead: the disk is behind."),
	{0},
};

static const struct {
	size_t offset;
	const char *verdict;
} mark_rows[] = {
	{offsetof(struct policy_stats, marks), "marked"},
	{offsetof(struct policy_stats, unmarked_small), "small"},
	{offsetof(struct policy_stats, unmarked_partial), "partial"},
	{offsetof(struct policy_stats, unmarked_share), "share"},
	{offsetof(struct policy_stats, unmarked_fstype), "fstype"},
	{offsetof(struct policy_stats, unmarked_readonly), "readonly"},
	{offsetof(struct policy_stats, unmarked_glob), "glob"},
	{offsetof(struct policy_stats, unmarked_direct), "direct"},
	{offsetof(struct policy_stats, unmarked_thrash), "thrash"},
	{offsetof(struct policy_stats, unmarked_failed), "failed"},
	{offsetof(struct policy_stats, unmarked_truncated), "truncated"},
};

static const struct row watch_rows[] = {
	GAUGE(watch_stats, files, "watch_files", "Mapped files whose size is watched."),
	GAUGE(watch_stats, marked, "watch_marked_files", "Watched files whose changes the kernel tells."),
	COUNTER(watch_stats, mark_errors, "watch_mark_errors_total", "Watched files whose changes the kernel does not tell."),
	COUNTER(watch_stats, events, "watch_events_total", "Changes of mapped files that the kernel told."),
	COUNTER(watch_stats, overflows, "watch_overflows_total", "Times that the kernel had lost some of those changes."),
	COUNTER(watch_stats, checks, "watch_checks_total", "Sizes of mapped files looked at."),
	COUNTER(watch_stats, truncations, "watch_truncations_total", "Truncations of mapped files on the host."),
	GAUGE(watch_stats, truncated_files, "watch_truncated_files", "Mapped files that the host has truncated."),
	COUNTER(watch_stats, blanked, "watch_blanked_total", "Ranges behind the end replaced by zeros."),
	COUNTER(watch_stats, restored, "watch_restored_total", "Blanked ranges that show the file again."),
	COUNTER(watch_stats, left, "watch_left_total", "Ranges behind the end that were not replaced: touched, they kill the VMM."),
	GAUGE(watch_stats, guarded, "watch_guarded_files", "Mapped files whose truncations on the host are held until they fit."),
	COUNTER(watch_stats, hold_errors, "watch_hold_errors_total", "Mapped files whose truncations cannot be held."),
	COUNTER(watch_stats, held, "watch_held_total", "Truncations that were held."),
	COUNTER(watch_stats, late, "watch_late_total", "Held truncations that were let go before all was replaced."),
	COUNTER(watch_stats, torn, "watch_torn_total", "Ranges with the end inside that were unmapped for a moment."),
	COUNTER(watch_stats, failed, "watch_failed_total", "Ranges that should show the file again and do not."),
	COUNTER(watch_stats, holes, "watch_holes_total", "Ranges lost by the VMM while they were replaced."),
	{0},
};

static const struct row fs_rows[] = {
	GAUGE(fs_stats, nodes, "fs_nodes", "Inodes that the guest knows."),
	GAUGE(fs_stats, handles, "fs_handles", "Files and directories that the guest has open."),
	GAUGE(fs_stats, fds, "fs_fds", "Descriptors that the file system holds."),
	{0},
};

static const struct row shim_rows[] = {
	GAUGE(shim_stats, nodes, "shim_nodes", "Files that the size shim shows the VMM."),
	GAUGE(shim_stats, backings, "shim_backings", "Backing files registered in the kernel."),
	GAUGE(shim_stats, fds, "shim_fds", "Descriptors that the size shim's helper holds."),
	COUNTER(shim_stats, refused, "shim_refused_total", "Requests that the size shim's helper refused."),
	{0},
};
/* clang-format on */

char *daemon_metrics_label(const char *text)
{
	g_autofree char *valid = g_utf8_make_valid(text, -1);
	GString *s = g_string_new(NULL);

	for (const char *p = valid; *p; p++) {
		if (*p == '\\' || *p == '"')
			g_string_append_c(s, '\\');
		if (*p == '\n')
			g_string_append(s, "\\n");
		else
			g_string_append_c(s, *p);
	}
	return g_string_free(s, FALSE);
}

static void family(struct writer *w, const char *name, const char *type, const char *help)
{
	w->name = name;
	g_string_append_printf(w->out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name,
			       help, name, type);
}

/* @more: further labels, with a comma in front, or "" */
static void sample(struct writer *w, const char *suffix, const char *more, double v)
{
	char number[G_ASCII_DTOSTR_BUF_SIZE];

	/* An integer of any size that a double holds stays one. */
	if (v < 9e15 && v == (double)(int64_t)v)
		g_snprintf(number, sizeof(number), "%" G_GINT64_FORMAT, (gint64)v);
	else
		g_ascii_formatd(number, sizeof(number), "%.9g", v);
	g_string_append_printf(w->out, PREFIX "%s%s{%s%s} %s\n", w->name, suffix, w->labels, more,
			       number);
}

static void gauge(struct writer *w, const char *name, const char *help, double v)
{
	family(w, name, "gauge", help);
	sample(w, "", "", v);
}

static void counter(struct writer *w, const char *name, const char *help, double v)
{
	family(w, name, "counter", help);
	sample(w, "", "", v);
}

static uint64_t field(const void *s, size_t offset)
{
	return *(const uint64_t *)(const void *)((const char *)s + offset);
}

static void rows(struct writer *w, const struct row *r, const void *s)
{
	for (; r->name; r++) {
		uint64_t v = field(s, r->offset);

		family(w, r->name, r->type, r->help);
		sample(w, "", "", r->unit > 0 ? (double)v * r->unit : (double)v);
	}
}

static void histogram(struct writer *w, const struct dm_stats *s)
{
	uint64_t n = 0;

	family(w, "dax_map_duration_seconds", "histogram",
	       "From asking the VMM for a map until the guest may use it.");
	for (unsigned int i = 0; i < DM_HIST_BUCKETS - 1; i++) {
		char le[G_ASCII_DTOSTR_BUF_SIZE];
		g_autofree char *label = NULL;

		n += s->map_latency[i];
		if (i < FIRST_BUCKET)
			continue;
		g_ascii_formatd(le, sizeof(le), "%.10g", (double)(2ull << i) * NS);
		label = g_strdup_printf(",le=\"%s\"", le);
		sample(w, "_bucket", label, (double)n);
	}
	n += s->map_latency[DM_HIST_BUCKETS - 1];
	sample(w, "_bucket", ",le=\"+Inf\"", (double)n);
	sample(w, "_sum", "", (double)s->map_ns * NS);
	sample(w, "_count", "", (double)n);
}

static void add_table(struct writer *w, const struct daemon_device *d)
{
	struct dm_stats s;

	dm_table_stats(d->table, &s);
	gauge(w, "dax_window_bytes", "Size of the DAX window.", (double)d->window_size);
	gauge(w, "dax_mapped_ranges_limit", "Ranges that may be mapped at once.",
	      (double)d->config->max_mappings);
	gauge(w, "dax_broken", "1 when the channel to the VMM has broken.",
	      dm_host_broken(d->table));
	rows(w, table_rows, &s);
	histogram(w, &s);
}

static void add_policy(struct writer *w, struct daemon_policy *policy)
{
	struct policy_prefetch_stats prefetch;
	struct policy_stats s;

	daemon_policy_get_stats(policy, &s, &prefetch);
	family(w, "dax_marks_total", "counter",
	       "Replies that marked a file for DAX, or why they did not.");
	for (size_t i = 0; i < G_N_ELEMENTS(mark_rows); i++) {
		g_autofree char *label = g_strdup_printf(",verdict=\"%s\"", mark_rows[i].verdict);

		sample(w, "", label, (double)field(&s, mark_rows[i].offset));
	}
	rows(w, policy_rows, &s);
	rows(w, prefetch_rows, &prefetch);
}

static void add_fuse(struct writer *w, struct fuse_session *session)
{
	static const struct row op_rows[] = {
		COUNTER(fuse_op_stats, count, "fuse_requests_total", "Requests of the guest."),
		COUNTER(fuse_op_stats, errors, "fuse_errors_total",
			"Requests answered with an error."),
		COUNTER(fuse_op_stats, offloaded, "fuse_offloaded_total",
			"Requests handed to the thread pool."),
	};
	struct fuse_op_stats s;

	for (size_t r = 0; r < G_N_ELEMENTS(op_rows); r++) {
		family(w, op_rows[r].name, op_rows[r].type, op_rows[r].help);
		for (unsigned int i = 0; fuse_session_op_stats(session, i, &s); i++) {
			g_autofree char *label = NULL;

			if (!s.name || !s.count)
				continue;
			label = g_strdup_printf(",op=\"%s\"", s.name);
			sample(w, "", label, (double)field(&s, op_rows[r].offset));
		}
	}
}

static void add_shim(struct writer *w, struct shim *shim)
{
	struct shim_stats s = {0};
	bool alive = shim && shim_check(shim) && shim_get_stats(shim, &s) == 0;

	gauge(w, "shim_active", "1 when files of any size can be mapped.", alive);
	rows(w, shim_rows, &s);
}

static void add_watch(struct writer *w, const struct watch *watch)
{
	struct watch_stats s;

	watch_get_stats(watch, &s);
	rows(w, watch_rows, &s);
}

static void add_session(struct writer *w, const struct daemon_device *d)
{
	gauge(w, "vmm_connected", "1 while a VMM is connected.",
	      __atomic_load_n(&d->connected, __ATOMIC_RELAXED));
	gauge(w, "device_running", "1 while the guest's device runs.",
	      __atomic_load_n(&d->running, __ATOMIC_RELAXED));
	gauge(w, "window_channel", "1 while the VMM takes requests for maps.",
	      __atomic_load_n(&d->channel, __ATOMIC_RELAXED));
	counter(w, "sessions_total", "VMMs served, the present one included.",
		(double)__atomic_load_n(&d->sessions, __ATOMIC_RELAXED));
	counter(w, "device_resets_total", "Resets of the device.",
		(double)__atomic_load_n(&d->resets, __ATOMIC_RELAXED));
}

static char *base_labels(const struct daemon_config *c)
{
	g_autofree char *fd = g_strdup_printf("fd:%d", (int)c->fd);
	const char *where = c->socket_path    ? c->socket_path
			    : c->control_path ? c->control_path
					      : fd;
	g_autofree char *tag = daemon_metrics_label(c->tag), *socket = daemon_metrics_label(where);

	return g_strdup_printf("tag=\"%s\",socket=\"%s\"", tag, socket);
}

char *daemon_metrics_text(const struct daemon_device *d, int proc_self_fd, int proc_task_fd)
{
	struct writer w = {.out = g_string_new(NULL), .labels = base_labels(d->config)};
	struct fs_stats fs;

	family(&w, "build_info", "gauge", "1; its version is in the label.");
	sample(&w, "", ",version=\"" DAXMAPD_VERSION "\"", 1);
	gauge(&w, "uptime_seconds", "Since the daemon started.",
	      (double)((util_now_ns() - d->started_ns) / 1000000u) * 1e-3);
	if (proc_self_fd >= 0)
		gauge(&w, "process_open_fds", "Descriptors of the daemon.",
		      (double)daemon_stats_entries(proc_self_fd, 1));
	if (proc_task_fd >= 0)
		gauge(&w, "process_threads", "Threads of the daemon.",
		      (double)daemon_stats_entries(proc_task_fd, 0));
	add_session(&w, d);
	if (d->table)
		add_table(&w, d);
	if (d->policy)
		add_policy(&w, d->policy);
	if (d->watch)
		add_watch(&w, d->watch);
	add_shim(&w, d->shim);
	fs_get_stats(d->fs, &fs);
	rows(&w, fs_rows, &fs);
	add_fuse(&w, d->session);
	g_free(w.labels);
	return g_string_free(w.out, FALSE);
}
