// SPDX-License-Identifier: Apache-2.0
/*
 * GOption splits the command line; every value goes through one callback that finds its row in
 * the table and says, when it refuses, what would be right.
 */
#include "daemon_options.h"

#include <stddef.h>
#include <string.h>

#include "daemon_cpus.h"
#include "util_help.h"
#include "util_overflow.h"

#define TAG_MAX 36
#define NO_MAX INT64_MAX
#define DEFAULT_SIZE UINT64_MAX /* not given; no size can be it */

G_DEFINE_QUARK(daemon - option - error, daemon_option_error)

enum kind {
	KIND_FLAG,  /* bool, set */
	KIND_UNSET, /* bool, cleared */
	KIND_TEXT,  /* char * */
	KIND_INT,   /* int64_t in min..max */
	KIND_SIZE,  /* uint64_t bytes */
	KIND_LIST,  /* char **, NULL or terminated by NULL; one more each time */
	KIND_ONE_OF /* int: index in choices */
};

struct option_row {
	const char *name;
	const char *arg;
	const char *help;
	const char *const *choices;
	bool (*check)(const struct daemon_config *c, const char **wanted);
	int64_t min;
	int64_t max;
	size_t offset;
	enum kind kind;
	char letter;
};

static const char *const cache_names[] = {"never", "metadata", "auto", "always", NULL};
static const char *const dax_names[] = {"inode", "always", "never", NULL};
static const char *const guard_names[] = {"on", "off", NULL};
static const char *const prefetch_names[] = {"auto", "on", "off", NULL};
static const char *const shim_names[] = {"off", "auto", "on", NULL};
static const char *const hold_names[] = {"off", "auto", "on", NULL};
static const char *const dialect_names[] = {"shmem", "fs_map", NULL};
static const char *const slots_names[] = {"refuse", "ack", NULL};
static const char *const reclaim_names[] = {"fifo", "clock", NULL};
static const char *const io_uring_names[] = {"auto", "off", NULL};
static const char *const manager_names[] = {"full", "forward", NULL};
static const char *const sandbox_names[] = {"namespace", "chroot", "none", NULL};
static const char *const seccomp_names[] = {"kill", "log", "trap", "none", NULL};
static const char *const level_names[] = {"error", "warn", "info", "debug", NULL};

G_STATIC_ASSERT(FS_CACHE_ALWAYS + 1 == G_N_ELEMENTS(cache_names) - 1);
G_STATIC_ASSERT(DAEMON_DAX_NEVER + 1 == G_N_ELEMENTS(dax_names) - 1);
G_STATIC_ASSERT(DAEMON_GUARD_OFF + 1 == G_N_ELEMENTS(guard_names) - 1);
G_STATIC_ASSERT(POLICY_PREFETCH_OFF + 1 == G_N_ELEMENTS(prefetch_names) - 1);
G_STATIC_ASSERT(SHIM_ON + 1 == G_N_ELEMENTS(shim_names) - 1);
G_STATIC_ASSERT(HOLD_ON + 1 == G_N_ELEMENTS(hold_names) - 1);
G_STATIC_ASSERT(DM_MANAGER_FORWARD + 1 == G_N_ELEMENTS(manager_names) - 1);
G_STATIC_ASSERT(DM_POLICY_CLOCK + 1 == G_N_ELEMENTS(reclaim_names) - 1);
G_STATIC_ASSERT(SANDBOX_NONE + 1 == G_N_ELEMENTS(sandbox_names) - 1);
G_STATIC_ASSERT(SANDBOX_SECCOMP_NONE + 1 == G_N_ELEMENTS(seccomp_names) - 1);
G_STATIC_ASSERT(DAEMON_LOG_DEBUG + 1 == G_N_ELEMENTS(level_names) - 1);

static bool check_tag(const struct daemon_config *c, const char **wanted)
{
	size_t len = strlen(c->tag);

	*wanted = "1 to 36 bytes of UTF-8";
	return len > 0 && len <= TAG_MAX && g_utf8_validate(c->tag, -1, NULL);
}

static bool check_window(const struct daemon_config *c, const char **wanted)
{
	*wanted = "0 (no DAX window) or a power of two of at least 2M, with a suffix K, M or G";
	return c->cache_size == 0 ||
	       (util_is_pow2(c->cache_size) && c->cache_size >= DAEMON_GRANULE);
}

static bool check_min_size(const struct daemon_config *c, const char **wanted)
{
	*wanted = "a number of bytes, with a suffix K, M, G or T";
	return true;
}

static bool check_trace_size(const struct daemon_config *c, const char **wanted)
{
	*wanted = "1M or more, with a suffix K, M, G or T";
	return c->dax_trace_size >= 1u << 20;
}

static bool last_is_valid(char **globs, const char **wanted)
{
	*wanted = "a glob (*, ?, [...], **, \\ before what is meant as it is), as in *.so or "
		  "/var/lib/**";
	return policy_glob_valid(globs[g_strv_length(globs) - 1]);
}

static bool check_include(const struct daemon_config *c, const char **wanted)
{
	return last_is_valid(c->dax_include, wanted);
}

static bool check_exclude(const struct daemon_config *c, const char **wanted)
{
	return last_is_valid(c->dax_exclude, wanted);
}

static bool check_modcaps(const struct daemon_config *c, const char **wanted)
{
	*wanted = "names of capabilities with + or - before each, joined by ':', "
		  "as in +sys_admin:-mknod";
	return sandbox_modcaps_valid(c->modcaps, NULL);
}

static bool check_cpus(const struct daemon_config *c, const char **wanted)
{
	*wanted = "auto, or lists of CPUs joined by ':', one for each queue in turn, "
		  "as in 0-1:2-3,6";
	return daemon_cpus_valid(c->queue_cpus);
}

static bool check_path(const char *path)
{
	return *path && strlen(path) < 108; /* sun_path */
}

static bool check_socket(const struct daemon_config *c, const char **wanted)
{
	*wanted = "a path of at most 107 bytes";
	return check_path(c->socket_path);
}

static bool check_control(const struct daemon_config *c, const char **wanted)
{
	*wanted = "a path of at most 107 bytes";
	return check_path(c->control_path);
}

static bool check_metrics(const struct daemon_config *c, const char **wanted)
{
	*wanted = "a path of at most 107 bytes";
	return check_path(c->metrics_socket);
}

#define AT(field) .offset = offsetof(struct daemon_config, field)
#define FLAG(n, field, h)                                                                          \
	{                                                                                          \
		.name = (n), .kind = KIND_FLAG, .help = (h), AT(field)                             \
	}
#define UNSET(n, field, h)                                                                         \
	{                                                                                          \
		.name = (n), .kind = KIND_UNSET, .help = (h), AT(field)                            \
	}
#define TEXT(n, field, a, h)                                                                       \
	{                                                                                          \
		.name = (n), .kind = KIND_TEXT, .arg = (a), .help = (h), AT(field)                 \
	}
#define NUMBER(n, field, lo, hi, h)                                                                \
	{                                                                                          \
		.name = (n), .kind = KIND_INT, .min = (lo), .max = (hi), .arg = "N", .help = (h),  \
		AT(field)                                                                          \
	}
#define ONE_OF(n, field, names, h)                                                                 \
	{                                                                                          \
		.name = (n), .kind = KIND_ONE_OF, .choices = (names), .help = (h), AT(field)       \
	}

/* clang-format off */
static const struct option_row socket_rows[] = {
	{.name = "socket-path", .kind = KIND_TEXT, .arg = "PATH", .check = check_socket,
	 .help = "listen for the VMM on this vhost-user socket", AT(socket_path)},
	NUMBER("fd", fd, 0, G_MAXINT32, "listen on this inherited socket instead"),
	TEXT("socket-group", socket_group, "GROUP",
	     "give the sockets to this group, mode 0660 (default: 0600)"),
	FLAG("persistent", persistent, "serve the next VMM when one has gone (default: end)"),
	{.name = "control-path", .kind = KIND_TEXT, .arg = "PATH", .check = check_control,
	 .help = "answer daxmapctl on this socket", AT(control_path)},
	{.name = "metrics-socket", .kind = KIND_TEXT, .arg = "PATH", .check = check_metrics,
	 .help = "answer HTTP requests for /metrics (Prometheus) on this socket", AT(metrics_socket)},
	{0},
};

static const struct option_row share_rows[] = {
	TEXT("shared-dir", shared_dir, "DIR", "the directory to share (required)"),
	{.name = "tag", .kind = KIND_TEXT, .arg = "TAG", .check = check_tag,
	 .help = "what the guest mounts it by, where the VMM asks us (default: daxmap)", AT(tag)},
	ONE_OF("cache", cache, cache_names, "what the guest may cache (default: auto)"),
	FLAG("readonly", readonly, "refuse every change"),
	FLAG("writeback", writeback, "let the guest cache writes"),
	FLAG("allow-mmap", allow_mmap, "let the guest mmap files in --cache=never"),
	FLAG("allow-direct-io", allow_direct_io, "honour O_DIRECT of the guest"),
	FLAG("xattr", xattr, "serve extended attributes"),
	FLAG("posix-acl", posix_acl, "serve POSIX ACLs (implies --xattr)"),
	FLAG("announce-submounts", announce_submounts, "show the guest where other mounts begin"),
	UNSET("no-killpriv-v2", killpriv_v2, "leave clearing of suid bits to the guest"),
	UNSET("no-readdirplus", readdirplus, "list directories without attributes"),
	FLAG("flock", flock, "pass BSD locks to the host"),
	{0},
};

static const struct option_row dax_rows[] = {
	{.name = "cache-size", .kind = KIND_SIZE, .arg = "SIZE", .check = check_window,
	 .help = "size of the DAX window: a power of two from 2M up; K, M, G (default: 0, off)",
	 AT(cache_size)},
	ONE_OF("dax", dax, dax_names,
	       "mark files for DAX where it pays (inode), all that can be mapped, or none (default: inode)"),
	{.name = "dax-min-size", .kind = KIND_SIZE, .arg = "SIZE", .check = check_min_size,
	 .help = "do not mark smaller files; K, M, G (default: 256K)", AT(dax_min_size)},
	NUMBER("dax-max-share", dax_max_share, 0, 1000000,
	       "do not mark files larger than N percent of the window; 0: no limit (default: 0)"),
	{.name = "dax-include", .kind = KIND_LIST, .arg = "GLOB", .check = check_include,
	 .help = "mark only files that match; may be given again (default: all)", AT(dax_include)},
	{.name = "dax-exclude", .kind = KIND_LIST, .arg = "GLOB", .check = check_exclude,
	 .help = "do not mark files that match; may be given again", AT(dax_exclude)},
	ONE_OF("dax-guard", dax_guard, guard_names,
	       "take the mark from files that thrash the window (default: on)"),
	ONE_OF("dax-prefetch", dax_prefetch, prefetch_names,
	       "read mapped ranges ahead: in sequence, all, or none (default: auto)"),
	ONE_OF("dax-shim", dax_shim, shim_names,
	       "map files of any size through a FUSE passthrough mount of our own (default: auto)"),
	ONE_OF("dax-hold", dax_hold, hold_names,
	       "hold truncations of mapped files on the host until the VMM is safe (default: auto)"),
	ONE_OF("window-dialect", dialect, dialect_names,
	       "how to ask the VMM for maps (default: shmem)"),
	ONE_OF("shmem-slots", slots, slots_names,
	       "how to answer when the VMM announces our window (default: refuse)"),
	NUMBER("max-mappings", max_mappings, 1, 1 << 20,
	       "live mappings at most; QEMU aborts near 509 (default: 480)"),
	ONE_OF("dax-manager", manager, manager_names,
	       "full, or forward each request, for comparison (default: full)"),
	ONE_OF("dax-reclaim", reclaim, reclaim_names,
	       "which given-back range is unmapped first (default: fifo)"),
	NUMBER("dax-high-water", high_water, 1, 100,
	       "percent of budget or window above which they are unmapped (default: 80)"),
	NUMBER("dax-low-water", low_water, 1, 100, "percent down to which they are (default: 60)"),
	NUMBER("dax-linger", linger_ms, 0, 3600000,
	       "milliseconds after which they are all the same; 0: by cost (default: 0)"),
	TEXT("dax-trace", dax_trace, "FILE", "record what happens to the window, for daxmapctl"),
	{.name = "dax-trace-size", .kind = KIND_SIZE, .arg = "SIZE", .check = check_trace_size,
	 .help = "stop recording when the file has this size; K, M, G (default: 1G)",
	 AT(dax_trace_size)},
	UNSET("no-trace-names", trace_names, "do not record the paths of files"),
	{0},
};

static const struct option_row speed_rows[] = {
	NUMBER("num-request-queues", num_request_queues, 1, 64, "request queues (default: 1)"),
	NUMBER("thread-pool-size", thread_pool_size, 0, 1024,
	       "threads per queue for what blocks; 0: none (default: automatic)"),
	{.name = "queue-cpus", .kind = KIND_TEXT, .arg = "LISTS", .check = check_cpus,
	 .help = "CPUs of each queue's threads, as in 0-1:2-3, or auto (default: not bound)",
	 AT(queue_cpus)},
	ONE_OF("io-uring", io_uring, io_uring_names,
	       "auto: read several blocks with one system call where the kernel lets us (default: auto)"),
	NUMBER("poll-us", poll_us, 0, 1000000,
	       "the most microseconds to poll a queue before sleeping (default: 20)"),
	{0},
};

static const struct option_row safety_rows[] = {
	ONE_OF("sandbox", sandbox, sandbox_names, "where to lock ourselves in (default: namespace)"),
	ONE_OF("seccomp", seccomp, seccomp_names,
	       "what an undeclared system call leads to (default: kill)"),
	{.name = "modcaps", .kind = KIND_TEXT, .arg = "CAPS", .check = check_modcaps,
	 .help = "change the capabilities kept, as in +sys_admin:-mknod", AT(modcaps)},
	NUMBER("rlimit-nofile", rlimit_nofile, 0, 1 << 30,
	       "open files at most; 0: leave the limit (default: up to 1000000)"),
	{0},
};

static const struct option_row info_rows[] = {
	ONE_OF("log-level", log_level, level_names, "how much to say (default: info)"),
	FLAG("syslog", syslog, "say it to the system log"),
	FLAG("print-capabilities", print_capabilities, "print what vhost-user.json asks for, and end"),
	{.name = "version", .letter = 'V', .kind = KIND_FLAG, .help = "print the version, and end",
	 AT(version)},
	{.name = "help", .letter = 'h', .kind = KIND_FLAG, .help = "print this, and end", AT(help)},
	{0},
};
/* clang-format on */

static const struct {
	const char *name;
	const char *title;
	const struct option_row *rows;
} groups[] = {
	{"socket", "Sockets:", socket_rows}, {"share", "The share:", share_rows},
	{"dax", "DAX:", dax_rows},	     {"speed", "Queues and threads:", speed_rows},
	{"safety", "Sandbox:", safety_rows}, {"info", "Log and information:", info_rows},
};

void daemon_config_init(struct daemon_config *c)
{
	*c = (struct daemon_config){
		.fd = -1,
		.cache = FS_CACHE_AUTO,
		.killpriv_v2 = true,
		.readdirplus = true,
		.dax_shim = SHIM_AUTO,
		.dax_hold = HOLD_AUTO,
		.dax_min_size = DEFAULT_SIZE,
		.max_mappings = 480,
		.high_water = DM_HIGH_WATERMARK,
		.low_water = DM_LOW_WATERMARK,
		.num_request_queues = 1,
		.thread_pool_size = -1,
		.poll_us = 20,
		.rlimit_nofile = -1,
		.log_level = DAEMON_LOG_INFO,
		.tag = g_strdup("daxmap"),
		.dax_trace_size = 1ull << 30,
		.trace_names = true,
	};
}

void daemon_config_clear(struct daemon_config *c)
{
	g_clear_pointer(&c->socket_path, g_free);
	g_clear_pointer(&c->socket_group, g_free);
	g_clear_pointer(&c->control_path, g_free);
	g_clear_pointer(&c->metrics_socket, g_free);
	g_clear_pointer(&c->shared_dir, g_free);
	g_clear_pointer(&c->tag, g_free);
	g_clear_pointer(&c->queue_cpus, g_free);
	g_clear_pointer(&c->modcaps, g_free);
	g_clear_pointer(&c->dax_trace, g_free);
	g_clear_pointer(&c->dax_include, g_strfreev);
	g_clear_pointer(&c->dax_exclude, g_strfreev);
}

static const struct option_row *find_row(const char *name)
{
	for (size_t g = 0; g < G_N_ELEMENTS(groups); g++)
		for (const struct option_row *r = groups[g].rows; r->name; r++)
			if (strcmp(r->name, name) == 0)
				return r;
	return NULL;
}

static bool refuse(GError **error, const char *option, const char *value, const char *wanted)
{
	g_set_error(error, DAEMON_OPTION_ERROR, 0,
		    "option --%s: \"%s\" is not allowed; it takes %s", option, value, wanted);
	return false;
}

static bool set_number(const struct option_row *r, int64_t *field, const char *value,
		       GError **error)
{
	g_autofree char *wanted = g_strdup_printf(
		"a number from %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, r->min, r->max);

	if (!g_ascii_string_to_signed(value, 10, r->min, r->max, field, NULL))
		return refuse(error, r->name, value, wanted);
	return true;
}

static bool set_size(const struct option_row *r, uint64_t *field, const char *value)
{
	char *end;
	uint64_t n, unit = 1;

	if (!g_ascii_isdigit(*value))
		return false;
	n = g_ascii_strtoull(value, &end, 10);
	switch (g_ascii_toupper(*end)) {
	case 'K':
		unit = 1ull << 10;
		break;
	case 'M':
		unit = 1ull << 20;
		break;
	case 'G':
		unit = 1ull << 30;
		break;
	case 'T':
		unit = 1ull << 40;
		break;
	case 0:
		break;
	default:
		return false;
	}
	if (unit > 1 && *++end)
		return false;
	return n < UINT64_MAX && util_mul_u64(n, unit, field) && *field <= INT64_MAX;
}

static bool set_one_of(const struct option_row *r, int *field, const char *value, GError **error)
{
	g_autofree char *wanted = NULL, *list = NULL;

	for (int i = 0; r->choices[i]; i++) {
		if (strcmp(r->choices[i], value) == 0) {
			*field = i;
			return true;
		}
	}
	list = g_strjoinv(", ", (char **)r->choices);
	wanted = g_strdup_printf("one of %s", list);
	return refuse(error, r->name, value, wanted);
}

static void append(char ***list, const char *value)
{
	guint n = *list ? g_strv_length(*list) : 0;

	*list = g_renew(char *, *list, n + 2);
	(*list)[n] = g_strdup(value);
	(*list)[n + 1] = NULL;
}

static bool set_row(struct daemon_config *c, const struct option_row *r, const char *value,
		    GError **error)
{
	void *field = (char *)c + r->offset;
	const char *wanted = NULL;

	switch (r->kind) {
	case KIND_FLAG:
		*(bool *)field = true;
		break;
	case KIND_UNSET:
		*(bool *)field = false;
		break;
	case KIND_TEXT:
		g_free(*(char **)field);
		*(char **)field = g_strdup(value);
		break;
	case KIND_LIST:
		append(field, value);
		break;
	case KIND_INT:
		return set_number(r, field, value, error);
	case KIND_ONE_OF:
		return set_one_of(r, field, value, error);
	case KIND_SIZE:
		if (!set_size(r, field, value)) {
			r->check(c, &wanted);
			return refuse(error, r->name, value, wanted);
		}
		break;
	}
	if (r->check && !r->check(c, &wanted))
		return refuse(error, r->name, value, wanted);
	return TRUE;
}

static gboolean set_value(const char *option, const char *value, gpointer data, GError **error)
{
	const struct option_row *r = option[1] == '-' ? find_row(option + 2) : NULL;

	if (!r)
		r = find_row(option[1] == 'V' ? "version" : "help");
	if (!r)
		g_error("option %s has no row", option);
	return set_row(data, r, value, error);
}

/* Kept for the life of the process, as the table is. */
static const char *joined_choices(const struct option_row *r)
{
	g_autofree char *joined = g_strjoinv("|", (char **)r->choices);

	return g_intern_string(joined);
}

static GOptionGroup *make_group(size_t g, struct daemon_config *c)
{
	GOptionGroup *group =
		g_option_group_new(groups[g].name, groups[g].title, groups[g].title, c, NULL);
	g_autoptr(GArray) entries = g_array_new(TRUE, TRUE, sizeof(GOptionEntry));
	GOptionArgFunc fn = set_value;

	for (const struct option_row *r = groups[g].rows; r->name; r++) {
		GOptionEntry e = {
			.long_name = r->name,
			.short_name = r->letter,
			.arg = G_OPTION_ARG_CALLBACK,
			.description = r->help,
		};

		memcpy(&e.arg_data, &fn, sizeof(fn)); /* ISO C has no cast for it */
		if (r->kind == KIND_FLAG || r->kind == KIND_UNSET)
			e.flags = G_OPTION_FLAG_NO_ARG;
		else
			e.flags = G_OPTION_FLAG_FILENAME; /* the bytes as they are */
		e.arg_description = r->choices ? joined_choices(r) : r->arg;
		g_array_append_val(entries, e);
	}
	g_option_group_add_entries(group, (GOptionEntry *)(void *)entries->data);
	return group;
}

static GOptionContext *make_context(struct daemon_config *c)
{
	GOptionContext *ctx = g_option_context_new("- share a directory with a virtual machine");

	g_option_context_set_help_enabled(ctx, FALSE);
	g_option_context_set_main_group(ctx, g_option_group_new("main", "", "", c, NULL));
	for (size_t g = 0; g < G_N_ELEMENTS(groups); g++)
		g_option_context_add_group(ctx, make_group(g, c));
	return ctx;
}

char *daemon_options_help(void)
{
	g_autoptr(GOptionContext) ctx = NULL;
	struct daemon_config c;

	daemon_config_init(&c);
	ctx = make_context(&c);
	daemon_config_clear(&c);
	return util_help_text(ctx);
}

static bool complain(GError **error, const char *text)
{
	g_set_error_literal(error, DAEMON_OPTION_ERROR, 0, text);
	return false;
}

#define SIZES_WITH_ALWAYS                                                                          \
	"--dax=always marks files of every size: not with --dax-min-size or --dax-max-share"

static bool check_water(const struct daemon_config *c, GError **error)
{
	if (c->low_water <= c->high_water)
		return true;
	g_set_error(error, DAEMON_OPTION_ERROR, 0,
		    "--dax-low-water (%" G_GINT64_FORMAT ") must not be above --dax-high-water "
		    "(%" G_GINT64_FORMAT ")",
		    c->low_water, c->high_water);
	return false;
}

static bool check_together(struct daemon_config *c, GError **error)
{
	if (!c->shared_dir || !*c->shared_dir)
		return complain(error, "option --shared-dir is required: the directory to share");
	if (!c->socket_path && c->fd < 0)
		return complain(error, "one of --socket-path and --fd is required: where the VMM "
				       "connects");
	if (c->socket_path && c->fd >= 0)
		return complain(error, "--socket-path and --fd exclude each other");
	if (c->socket_group && !c->socket_path && !c->control_path && !c->metrics_socket)
		return complain(error, "--socket-group needs --socket-path, --control-path or "
				       "--metrics-socket");
	if (c->cache == FS_CACHE_NEVER && c->writeback)
		return complain(error,
				"--writeback needs the guest's cache: not with --cache=never");
	if (c->control_path && c->socket_path && strcmp(c->control_path, c->socket_path) == 0)
		return complain(error, "--control-path and --socket-path must not be the same");
	if (c->metrics_socket && (g_strcmp0(c->metrics_socket, c->socket_path) == 0 ||
				  g_strcmp0(c->metrics_socket, c->control_path) == 0))
		return complain(error, "--metrics-socket must not be the same as --socket-path or "
				       "--control-path");
	if (!check_water(c, error))
		return false;
	if (c->posix_acl)
		c->xattr = true;
	if (c->dax == DAEMON_DAX_ALWAYS && (c->dax_min_size != DEFAULT_SIZE || c->dax_max_share))
		return complain(error, SIZES_WITH_ALWAYS);
	if (c->dax_min_size == DEFAULT_SIZE)
		c->dax_min_size = POLICY_MIN_SIZE;
	if (c->dax == DAEMON_DAX_NEVER)
		c->cache_size = 0;
	return true;
}

/* GOption lets "--flag=value" pass for an option without a value. */
static bool check_flag_values(char **args, GError **error)
{
	for (char **a = args; *a && strcmp(*a, "--") != 0; a++) {
		const char *eq = strchr(*a, '=');
		g_autofree char *name = NULL;
		const struct option_row *r;

		if (!eq || !g_str_has_prefix(*a, "--"))
			continue;
		name = g_strndup(*a + 2, (gsize)(eq - *a - 2));
		r = find_row(name);
		if (r && (r->kind == KIND_FLAG || r->kind == KIND_UNSET))
			return refuse(error, name, eq + 1, "no value");
	}
	return true;
}

bool daemon_options_parse(struct daemon_config *c, int argc, char **argv, GError **error)
{
	g_autoptr(GOptionContext) ctx = make_context(c);
	g_auto(GStrv) args = g_new0(char *, (gsize)argc + 1);

	for (int i = 0; i < argc; i++)
		args[i] = g_strdup(argv[i]);
	if (!check_flag_values(args, error))
		return false;
	if (!g_option_context_parse_strv(ctx, &args, error)) {
		if (error && *error && (*error)->domain == G_OPTION_ERROR)
			g_prefix_error(error, "%s", "command line: ");
		return false;
	}
	if (c->help || c->version || c->print_capabilities)
		return true;
	if (g_strv_length(args) > 1) {
		g_set_error(error, DAEMON_OPTION_ERROR, 0,
			    "\"%s\" is not an option; --help lists them", args[1]);
		return false;
	}
	return check_together(c, error);
}

/* --- one at a time --- */

static bool is_size_option(const char *name)
{
	return strcmp(name, "dax-min-size") == 0 || strcmp(name, "dax-max-share") == 0;
}

bool daemon_options_set(struct daemon_config *c, const char *name, const char *value,
			GError **error)
{
	const struct option_row *r = find_row(name);
	struct daemon_config changed = *c;

	g_assert(r && (r->kind == KIND_INT || r->kind == KIND_SIZE || r->kind == KIND_ONE_OF));
	if (!set_row(&changed, r, value, error) || !check_water(&changed, error))
		return false;
	if (changed.dax == DAEMON_DAX_ALWAYS && is_size_option(name))
		return complain(error, SIZES_WITH_ALWAYS);
	*c = changed;
	return true;
}

static char *size_text(uint64_t bytes)
{
	static const char suffixes[] = "TGMK";

	for (unsigned int i = 0; bytes && suffixes[i]; i++) {
		unsigned int shift = 10 * (4 - i);

		if (!(bytes & ((1ull << shift) - 1)))
			return g_strdup_printf("%" G_GUINT64_FORMAT "%c", bytes >> shift,
					       suffixes[i]);
	}
	return g_strdup_printf("%" G_GUINT64_FORMAT, bytes);
}

static char *value_text(const struct daemon_config *c, const struct option_row *r)
{
	const void *field = (const char *)c + r->offset;
	int64_t n;

	switch (r->kind) {
	case KIND_FLAG:
		return g_strdup(*(const bool *)field ? "on" : "off");
	case KIND_UNSET:
		return g_strdup(*(const bool *)field ? "off" : "on");
	case KIND_TEXT:
		return g_strdup(*(char *const *)field ? *(char *const *)field : "");
	case KIND_LIST:
		return *(char **const *)field ? g_strjoinv(" ", *(char **const *)field)
					      : g_strdup("");
	case KIND_INT:
		n = *(const int64_t *)field;
		return n < r->min ? g_strdup("") : g_strdup_printf("%" G_GINT64_FORMAT, n);
	case KIND_SIZE:
		return size_text(*(const uint64_t *)field);
	case KIND_ONE_OF:
		return g_strdup(r->choices[*(const int *)field]);
	}
	g_assert_not_reached();
}

static char *allowed_text(const struct option_row *r)
{
	switch (r->kind) {
	case KIND_FLAG:
	case KIND_UNSET:
		return g_strdup("on|off");
	case KIND_INT:
		return g_strdup_printf("%" G_GINT64_FORMAT "..%" G_GINT64_FORMAT, r->min, r->max);
	case KIND_ONE_OF:
		return g_strjoinv("|", (char **)r->choices);
	default:
		return g_strdup(r->arg);
	}
}

void daemon_options_foreach(const struct daemon_config *c,
			    void (*fn)(void *ctx, const char *name, const char *value,
				       const char *allowed),
			    void *ctx)
{
	for (size_t g = 0; g < G_N_ELEMENTS(groups); g++) {
		for (const struct option_row *r = groups[g].rows; r->name; r++) {
			g_autofree char *value = value_text(c, r), *allowed = allowed_text(r);

			if (r->offset != offsetof(struct daemon_config, help) &&
			    r->offset != offsetof(struct daemon_config, version) &&
			    r->offset != offsetof(struct daemon_config, print_capabilities))
				fn(ctx, r->name, value, allowed);
		}
	}
}

uint64_t daemon_config_slots(const struct daemon_config *c)
{
	return c->cache_size / DAEMON_GRANULE;
}

GStrv daemon_options_warnings(const struct daemon_config *c)
{
	GPtrArray *list = g_ptr_array_new();

	if (c->cache_size && c->dialect == DAEMON_DIALECT_SHMEM) {
		uint64_t slots = daemon_config_slots(c);

		if (slots > (uint64_t)c->max_mappings)
			g_ptr_array_add(
				list,
				g_strdup_printf("--cache-size=%" G_GUINT64_FORMAT
						"M: the window has %" G_GUINT64_FORMAT
						" slots of 2M, but only %" G_GINT64_FORMAT
						" can be mapped at a time (--max-mappings): at "
						"most %" G_GINT64_FORMAT "M of it can be in use",
						c->cache_size >> 20, slots, c->max_mappings,
						c->max_mappings * 2));
		if (c->max_mappings > 500)
			g_ptr_array_add(list,
					g_strdup_printf("--max-mappings=%" G_GINT64_FORMAT
							": QEMU aborts near 509 mappings of all "
							"vhost-user devices together",
							c->max_mappings));
		if (c->readonly)
			g_ptr_array_add(list, g_strdup("--readonly: no DAX window is offered: QEMU "
						       "does not write-protect mappings"));
	}
	g_ptr_array_add(list, NULL);
	return (GStrv)g_ptr_array_free(list, FALSE);
}
