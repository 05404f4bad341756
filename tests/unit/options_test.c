// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <string.h>

#include <glib.h>

#include "daemon_cpus.h"
#include "daemon_options.h"

static bool parse(struct daemon_config *c, const char *args, GError **error)
{
	g_auto(GStrv) argv = NULL;
	g_autofree char *line = g_strdup_printf("daxmapd\n%s", args);

	daemon_config_init(c);
	argv = g_strsplit(*args ? line : "daxmapd", "\n", -1);
	return daemon_options_parse(c, (int)g_strv_length(argv), argv, error);
}

#define OK "--shared-dir=/tmp\n--socket-path=/tmp/s"

/* Each is refused, and the message holds all the words. */
static const struct {
	const char *args;
	const char *words[4];
} bad[] = {
	{"", {"--shared-dir", "required"}},
	{"--shared-dir=/tmp", {"--socket-path", "--fd", "required"}},
	{OK "\n--fd=3", {"--socket-path", "--fd", "exclude"}},
	{OK "\n--no-such-thing", {"--no-such-thing"}},
	{OK "\n--no-such-thing=4", {"--no-such-thing"}},
	{OK "\nstray", {"\"stray\"", "--help"}},
	{OK "\n--tag=", {"--tag", "1 to 36"}},
	{OK "\n--tag=0123456789012345678901234567890123456", {"--tag", "1 to 36"}},
	{OK "\n--tag=\xff", {"--tag"}},
	{OK "\n--cache=sometimes", {"--cache", "sometimes", "never, metadata, auto, always"}},
	{OK "\n--cache", {"--cache"}},
	{OK "\n--dax=maybe", {"--dax", "maybe", "inode, always, never"}},
	{OK "\n--dax-trace-size=1K", {"--dax-trace-size", "1K", "1M or more"}},
	{OK "\n--dax-min-size=big", {"--dax-min-size", "big", "number of bytes"}},
	{OK "\n--dax-min-size=-1", {"--dax-min-size", "-1", "number of bytes"}},
	{OK "\n--dax-min-size=", {"--dax-min-size", "number of bytes"}},
	{OK "\n--dax-max-share=-1", {"--dax-max-share", "-1", "0 to 1000000"}},
	{OK "\n--dax-max-share=50%", {"--dax-max-share", "50%", "0 to 1000000"}},
	{OK "\n--dax-include=", {"--dax-include", "\"\"", "glob"}},
	{OK "\n--dax-include=*\n--dax-include=[a", {"--dax-include", "[a", "glob"}},
	{OK "\n--dax-exclude=a\\", {"--dax-exclude", "a\\", "glob"}},
	{OK "\n--dax-guard=maybe", {"--dax-guard", "maybe", "on, off"}},
	{OK "\n--dax-prefetch=maybe", {"--dax-prefetch", "maybe", "auto, on, off"}},
	{OK "\n--dax=always\n--dax-min-size=64K", {"--dax=always", "--dax-min-size"}},
	{OK "\n--dax=always\n--dax-max-share=10", {"--dax=always", "--dax-max-share"}},
	{OK "\n--dax-reclaim=lru", {"--dax-reclaim", "lru", "fifo, clock"}},
	{OK "\n--dax-high-water=101", {"--dax-high-water", "101", "1 to 100"}},
	{OK "\n--dax-low-water=0", {"--dax-low-water", "\"0\"", "1 to 100"}},
	{OK "\n--dax-low-water=81", {"--dax-low-water (81)", "--dax-high-water (80)"}},
	{OK "\n--dax-linger=-1", {"--dax-linger", "-1", "0 to 3600000"}},
	{OK "\n--metrics-socket=", {"--metrics-socket", "1", "107"}},
	{OK "\n--metrics-socket=/tmp/s", {"--metrics-socket", "--socket-path", "same"}},
	{OK "\n--window-dialect=x", {"--window-dialect", "x", "shmem, fs_map"}},
	{OK "\n--shmem-slots=x", {"--shmem-slots", "x", "refuse, ack"}},
	{OK "\n--dax-manager=x", {"--dax-manager", "x", "full, forward"}},
	{OK "\n--sandbox=x", {"--sandbox", "x", "namespace, chroot, none"}},
	{OK "\n--seccomp=x", {"--seccomp", "x", "kill, log, trap, none"}},
	{OK "\n--log-level=x", {"--log-level", "x", "error, warn, info, debug"}},
	{OK "\n--cache-size=3M", {"--cache-size", "3M", "power of two", "2M"}},
	{OK "\n--cache-size=1M", {"--cache-size", "1M", "power of two", "2M"}},
	{OK "\n--cache-size=-2M", {"--cache-size", "-2M", "power of two"}},
	{OK "\n--cache-size=2X", {"--cache-size", "2X", "K, M or G"}},
	{OK "\n--cache-size=2MB", {"--cache-size", "2MB", "K, M or G"}},
	{OK "\n--cache-size=", {"--cache-size", "power of two"}},
	{OK "\n--cache-size=99999999999999999999", {"--cache-size", "power of two"}},
	{OK "\n--cache-size=9000000000G", {"--cache-size", "power of two"}},
	{OK "\n--num-request-queues=0", {"--num-request-queues", "0", "1 to 64"}},
	{OK "\n--num-request-queues=65", {"--num-request-queues", "65", "1 to 64"}},
	{OK "\n--num-request-queues=two", {"--num-request-queues", "two", "1 to 64"}},
	{OK "\n--num-request-queues=1 ", {"--num-request-queues", "1 to 64"}},
	{OK "\n--thread-pool-size=-1", {"--thread-pool-size", "-1", "0 to 1024"}},
	{OK "\n--max-mappings=0", {"--max-mappings", "0", "1 to"}},
	{OK "\n--poll-us=1000001", {"--poll-us", "1000001", "0 to 1000000"}},
	{OK "\n--rlimit-nofile=-4", {"--rlimit-nofile", "-4", "0 to"}},
	{OK "\n--queue-cpus=", {"--queue-cpus", "auto"}},
	{OK "\n--queue-cpus=3-1", {"--queue-cpus", "3-1", "auto"}},
	{OK "\n--queue-cpus=0:", {"--queue-cpus", "0:", "auto"}},
	{OK "\n--queue-cpus=0,x", {"--queue-cpus", "0,x", "auto"}},
	{OK "\n--queue-cpus=99999", {"--queue-cpus", "99999", "auto"}},
	{OK "\n--modcaps=sys_admin", {"--modcaps", "sys_admin", "+sys_admin:-mknod"}},
	{OK "\n--modcaps=+bogus", {"--modcaps", "+bogus"}},
	{OK "\n--control-path=/tmp/s", {"--control-path", "--socket-path", "same"}},
	{OK "\n--control-path=", {"--control-path", "107"}},
	{OK "\n--cache=never\n--writeback", {"--writeback", "--cache=never"}},
	{"--shared-dir=/tmp\n--fd=x", {"--fd", "x", "0 to"}},
	{"--shared-dir=/tmp\n--fd=3\n--socket-group=g", {"--socket-group", "--socket-path"}},
	{OK "\n--readonly=yes", {"--readonly"}},
};

static void every_bad_value_is_named(void)
{
	for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
		g_autoptr(GError) error = NULL;
		struct daemon_config c;

		if (parse(&c, bad[i].args, &error))
			g_error("case %zu passes: %s", i, bad[i].args);
		g_assert_nonnull(error);
		for (size_t w = 0; w < 4 && bad[i].words[w]; w++)
			if (!strstr(error->message, bad[i].words[w]))
				g_error("case %zu: \"%s\" does not say \"%s\"", i, error->message,
					bad[i].words[w]);
		daemon_config_clear(&c);
	}
}

static void policy_options_are_read(void)
{
	struct daemon_config c;
	GError *error = NULL;

	g_assert_true(parse(&c,
			    OK "\n--dax-min-size=1M\n--dax-max-share=50\n--dax-include=*.so\n"
			       "--dax-include=bin/\n--dax-exclude=*.log\n--dax-guard=off\n"
			       "--dax-prefetch=on",
			    &error));
	g_assert_no_error(error);
	g_assert_cmpuint(c.dax_min_size, ==, 1 << 20);
	g_assert_cmpint(c.dax_max_share, ==, 50);
	g_assert_cmpuint(g_strv_length(c.dax_include), ==, 2);
	g_assert_cmpstr(c.dax_include[0], ==, "*.so");
	g_assert_cmpstr(c.dax_include[1], ==, "bin/");
	g_assert_cmpstr(c.dax_exclude[0], ==, "*.log");
	g_assert_cmpint(c.dax_guard, ==, DAEMON_GUARD_OFF);
	g_assert_cmpint(c.dax_prefetch, ==, POLICY_PREFETCH_ON);
	daemon_config_clear(&c);
	g_assert_true(parse(&c, OK "\n--dax=always\n--dax-exclude=*.log", &error));
	g_assert_no_error(error);
	daemon_config_clear(&c);
}

static void long_socket_path_is_refused(void)
{
	g_autofree char *name = g_strnfill(108, 'x');
	g_autofree char *args = g_strdup_printf("--shared-dir=/tmp\n--socket-path=%s", name);
	g_autoptr(GError) error = NULL;
	struct daemon_config c;

	g_assert_false(parse(&c, args, &error));
	g_assert_nonnull(strstr(error->message, "107"));
	daemon_config_clear(&c);
}

static void defaults_are_as_documented(void)
{
	struct daemon_config c;
	GError *error = NULL;

	g_assert_true(parse(&c, OK, &error));
	g_assert_no_error(error);
	g_assert_cmpint(c.cache, ==, FS_CACHE_AUTO);
	g_assert_cmpuint(c.cache_size, ==, 0);
	g_assert_cmpint(c.dax, ==, DAEMON_DAX_INODE);
	g_assert_cmpuint(c.dax_min_size, ==, 256 << 10);
	g_assert_cmpint(c.dax_max_share, ==, 0);
	g_assert_null(c.dax_include);
	g_assert_null(c.dax_exclude);
	g_assert_cmpint(c.dax_guard, ==, DAEMON_GUARD_ON);
	g_assert_cmpint(c.dax_prefetch, ==, POLICY_PREFETCH_AUTO);
	g_assert_cmpint(c.slots, ==, DAEMON_SLOTS_REFUSE);
	g_assert_cmpint(c.max_mappings, ==, 480);
	g_assert_cmpint(c.manager, ==, DM_MANAGER_FULL);
	g_assert_cmpint(c.num_request_queues, ==, 1);
	g_assert_cmpint(c.thread_pool_size, ==, -1);
	g_assert_cmpint(c.sandbox, ==, SANDBOX_NAMESPACE);
	g_assert_cmpint(c.seccomp, ==, SANDBOX_SECCOMP_KILL);
	g_assert_cmpint(c.log_level, ==, DAEMON_LOG_INFO);
	g_assert_cmpstr(c.tag, ==, "daxmap");
	g_assert_true(c.killpriv_v2 && c.readdirplus);
	g_assert_false(c.readonly || c.persistent || c.xattr || c.writeback || c.syslog);
	daemon_config_clear(&c);
}

static void values_arrive(void)
{
	struct daemon_config c;
	GError *error = NULL;

	g_assert_true(parse(&c,
			    OK "\n--cache-size\n512M\n--cache=metadata\n--num-request-queues=64\n"
			       "--dax=always\n--posix-acl\n--no-killpriv-v2\n--no-readdirplus\n"
			       "--thread-pool-size=0\n--shmem-slots=ack\n--dax-manager=forward\n"
			       "--queue-cpus=0-1:2-3,6\n--tag=a b\n--tag=c\n--persistent",
			    &error));
	g_assert_no_error(error);
	g_assert_cmpuint(c.cache_size, ==, 512u << 20);
	g_assert_cmpint(c.cache, ==, FS_CACHE_METADATA);
	g_assert_cmpint(c.num_request_queues, ==, 64);
	g_assert_cmpint(c.dax, ==, DAEMON_DAX_ALWAYS);
	g_assert_true(c.posix_acl && c.xattr && c.persistent);
	g_assert_false(c.killpriv_v2 || c.readdirplus);
	g_assert_cmpint(c.thread_pool_size, ==, 0);
	g_assert_cmpint(c.slots, ==, DAEMON_SLOTS_ACK);
	g_assert_cmpint(c.manager, ==, DM_MANAGER_FORWARD);
	g_assert_cmpstr(c.tag, ==, "c");
	daemon_config_clear(&c);
}

static uint64_t size_of(const char *text)
{
	g_autofree char *args = g_strdup_printf(OK "\n--cache-size=%s", text);
	struct daemon_config c;
	uint64_t size;

	g_assert_true(parse(&c, args, NULL));
	size = c.cache_size;
	daemon_config_clear(&c);
	return size;
}

static void sizes_have_units(void)
{
	g_assert_cmpuint(size_of("0"), ==, 0);
	g_assert_cmpuint(size_of("2097152"), ==, 2u << 20);
	g_assert_cmpuint(size_of("2048K"), ==, 2u << 20);
	g_assert_cmpuint(size_of("2048k"), ==, 2u << 20);
	g_assert_cmpuint(size_of("1G"), ==, 1u << 30);
	g_assert_cmpuint(size_of("1T"), ==, 1ull << 40);
}

static void info_options_require_nothing(void)
{
	static const char *const args[] = {"--help", "-h", "--version", "-V",
					   "--print-capabilities"};

	for (size_t i = 0; i < G_N_ELEMENTS(args); i++) {
		struct daemon_config c;

		g_assert_true(parse(&c, args[i], NULL));
		g_assert_true(c.help || c.version || c.print_capabilities);
		daemon_config_clear(&c);
	}
}

static void help_shows_every_option_in_its_group(void)
{
	static const char *const names[] = {
		"--socket-path",
		"--fd",
		"--socket-group",
		"--persistent",
		"--control-path",
		"--shared-dir",
		"--tag",
		"--cache=",
		"--readonly",
		"--writeback",
		"--allow-mmap",
		"--allow-direct-io",
		"--xattr",
		"--posix-acl",
		"--announce-submounts",
		"--no-killpriv-v2",
		"--no-readdirplus",
		"--flock",
		"--cache-size",
		"--dax=",
		"--window-dialect",
		"--shmem-slots",
		"--max-mappings",
		"--dax-manager",
		"--num-request-queues",
		"--thread-pool-size",
		"--queue-cpus",
		"--io-uring",
		"--poll-us",
		"--sandbox",
		"--seccomp",
		"--modcaps",
		"--rlimit-nofile",
		"--log-level",
		"--syslog",
		"--print-capabilities",
		"--version",
		"--help",
		"Sockets:",
		"The share:",
		"DAX:",
		"Queues and threads:",
		"Sandbox:",
		"Log and information:",
	};
	g_autofree char *help = daemon_options_help();

	for (size_t i = 0; i < G_N_ELEMENTS(names); i++)
		if (!strstr(help, names[i]))
			g_error("--help does not show %s", names[i]);
}

static guint warnings_of(const char *more)
{
	g_autofree char *args = g_strdup_printf(OK "\n%s", more);
	g_auto(GStrv) list = NULL;
	struct daemon_config c;

	g_assert_true(parse(&c, args, NULL));
	list = daemon_options_warnings(&c);
	daemon_config_clear(&c);
	return g_strv_length(list);
}

static void big_windows_warn(void)
{
	g_assert_cmpuint(warnings_of("--cache-size=512M"), ==, 0);
	g_assert_cmpuint(warnings_of("--cache-size=1G"), ==, 1);
	g_assert_cmpuint(warnings_of("--cache-size=1G\n--max-mappings=512"), ==, 1);
	g_assert_cmpuint(warnings_of("--cache-size=1G\n--window-dialect=fs_map"), ==, 0);
	g_assert_cmpuint(warnings_of("--cache-size=64M\n--readonly"), ==, 1);
	g_assert_cmpuint(warnings_of("--cache-size=1G\n--dax=never"), ==, 0);
}

static void cpu_lists_are_checked(void)
{
	g_assert_true(daemon_cpus_valid("auto"));
	g_assert_true(daemon_cpus_valid("0"));
	g_assert_true(daemon_cpus_valid("0-3,7:1"));
	g_assert_false(daemon_cpus_valid("auto:1"));
	g_assert_false(daemon_cpus_valid("1-"));
	g_assert_true(daemon_cpus_bind(NULL, 0));
}

static void *bind_and_unbind(void *arg)
{
	const cpu_set_t *ours = arg;
	cpu_set_t first, second, all;

	g_assert_true(daemon_cpus_bind("auto", 0));
	g_assert_cmpint(sched_getaffinity(0, sizeof(first), &first), ==, 0);
	/* A bound thread makes another that serves the next queue. */
	g_assert_true(daemon_cpus_bind("auto", 1));
	g_assert_cmpint(sched_getaffinity(0, sizeof(second), &second), ==, 0);
	g_assert_cmpint(CPU_COUNT(&first), ==, 1);
	g_assert_cmpint(CPU_COUNT(&second), ==, 1);
	if (CPU_COUNT(ours) > 1)
		g_assert_false(CPU_EQUAL(&first, &second));
	daemon_cpus_unbind("auto");
	g_assert_cmpint(sched_getaffinity(0, sizeof(all), &all), ==, 0);
	g_assert_true(CPU_EQUAL(&all, ours));
	return NULL;
}

static void cpus_do_not_depend_on_who_made_the_thread(void)
{
	cpu_set_t ours;

	g_assert_cmpint(sched_getaffinity(0, sizeof(ours), &ours), ==, 0);
	g_thread_join(g_thread_new("bound", bind_and_unbind, &ours));
}

static void take_option(void *ctx, const char *name, const char *value, const char *allowed)
{
	GHashTable *all = ctx;

	g_assert_cmpuint(strlen(allowed), >, 0);
	g_assert_true(g_hash_table_insert(all, g_strdup(name), g_strdup(value)));
}

static void assert_shown(const struct daemon_config *c, const char *name, const char *value)
{
	GHashTable *all = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);

	daemon_options_foreach(c, take_option, all);
	g_assert_cmpstr(g_hash_table_lookup(all, name), ==, value);
	g_hash_table_destroy(all);
}

/* One at a time, checked as on the command line; refused, nothing has changed. */
static void single_options_change(void)
{
	static const char *const refused[][3] = {
		{"dax-min-size", "1Z", "number of bytes"},
		{"dax-high-water", "59", "must not be above"},
		{"dax-high-water", "", "1 to 100"},
		{"dax-guard", "maybe", "on, off"},
		{"log-level", "INFO", "error, warn, info, debug"},
	};
	GError *error = NULL;
	struct daemon_config c;

	g_assert_true(parse(&c, OK "\n--cache-size=64M\n--dax-include=a\n--dax-include=b", &error));
	assert_shown(&c, "cache-size", "64M");
	assert_shown(&c, "dax-min-size", "256K");
	assert_shown(&c, "dax-include", "a b");
	assert_shown(&c, "fd", "");
	assert_shown(&c, "no-killpriv-v2", "off");
	assert_shown(&c, "help", NULL);
	for (size_t i = 0; i < G_N_ELEMENTS(refused); i++) {
		g_assert_false(daemon_options_set(&c, refused[i][0], refused[i][1], &error));
		g_assert_nonnull(strstr(error->message, refused[i][0]));
		g_assert_nonnull(strstr(error->message, refused[i][2]));
		g_clear_error(&error);
	}
	assert_shown(&c, "dax-high-water", "80");
	g_assert_true(daemon_options_set(&c, "dax-min-size", "3000000", &error));
	g_assert_true(daemon_options_set(&c, "dax-prefetch", "on", &error));
	g_assert_true(daemon_options_set(&c, "dax-low-water", "80", &error));
	assert_shown(&c, "dax-min-size", "3000000");
	assert_shown(&c, "dax-prefetch", "on");
	assert_shown(&c, "dax-low-water", "80");
	daemon_config_clear(&c);
	g_assert_true(parse(&c, OK "\n--dax=always", &error));
	g_assert_false(daemon_options_set(&c, "dax-max-share", "10", &error));
	g_assert_nonnull(strstr(error->message, "--dax=always"));
	g_clear_error(&error);
	daemon_config_clear(&c);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/options/policy", policy_options_are_read);
	g_test_add_func("/options/bad", every_bad_value_is_named);
	g_test_add_func("/options/long-path", long_socket_path_is_refused);
	g_test_add_func("/options/defaults", defaults_are_as_documented);
	g_test_add_func("/options/values", values_arrive);
	g_test_add_func("/options/single", single_options_change);
	g_test_add_func("/options/sizes", sizes_have_units);
	g_test_add_func("/options/info", info_options_require_nothing);
	g_test_add_func("/options/help", help_shows_every_option_in_its_group);
	g_test_add_func("/options/warnings", big_windows_warn);
	g_test_add_func("/options/cpus", cpu_lists_are_checked);
	g_test_add_func("/options/cpus-of-threads", cpus_do_not_depend_on_who_made_the_thread);
	return g_test_run();
}
