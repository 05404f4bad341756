// SPDX-License-Identifier: Apache-2.0
/*
 * The configuration that the daemon was started with is constant, and read by every thread. What
 * can change lives in the parts as atomics; here is a copy of what was set last, which only the
 * control thread sees. A set parses into the copy and, if all is well, has the parts take it over.
 */
#include "daemon_settings.h"

#include <errno.h>
#include <string.h>

#include "daemon_control.h"
#include "util_json.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "settings"

/**
 * struct daemon_settings - see above
 * @now: its texts are those of the configuration given: none of them can change
 */
struct daemon_settings {
	struct daemon_config now;
	struct daemon_device *device;
};

/* Without a reason: it can change. The others have the last row's. */
static const struct {
	const char *name;
	const char *why;
} rules[] = {
	{"dax-min-size", NULL},
	{"dax-max-share", NULL},
	{"dax-guard", NULL},
	{"dax-prefetch", NULL},
	{"dax-reclaim", NULL},
	{"dax-high-water", NULL},
	{"dax-low-water", NULL},
	{"dax-linger", NULL},
	{"log-level", NULL},
	{"cache-size",
	 "the window is part of the guest's device, which has its size from its start"},
	{"tag", "the guest reads it from its device when it starts"},
	{"num-request-queues", "the guest reads it from its device when it starts"},
	{"max-mappings", "the window's driver has room for so many from the start"},
	{"window-dialect", "it is agreed with the VMM when it connects"},
	{"shmem-slots", "it is agreed with the VMM when it connects"},
	{"dax-shim", "its helper is started before the sandbox closes"},
	{"dax-include", "names of files are kept from the start, or not at all"},
	{"dax-exclude", "names of files are kept from the start, or not at all"},
	{"dax-manager", "the table is made for one or the other"},
	{"dax", "it is agreed with the guest when it mounts"},
	{"cache", "it is agreed with the guest when it mounts"},
	{"writeback", "it is agreed with the guest when it mounts"},
	{"allow-mmap", "it is agreed with the guest when it mounts"},
	{"allow-direct-io", "it is agreed with the guest when it mounts"},
	{"xattr", "it is agreed with the guest when it mounts"},
	{"posix-acl", "it is agreed with the guest when it mounts"},
	{"announce-submounts", "it is agreed with the guest when it mounts"},
	{"no-killpriv-v2", "it is agreed with the guest when it mounts"},
	{"no-readdirplus", "it is agreed with the guest when it mounts"},
	{"flock", "it is agreed with the guest when it mounts"},
	{"readonly", "whether there is a window depends on it, and the guest has seen it"},
	{"thread-pool-size", "the queues' threads are made with it"},
	{"queue-cpus", "the queues' threads are made with it"},
	{"poll-us", "the queues' threads are made with it"},
	{"shared-dir", "the sandbox was built around it, and cannot be left"},
	{"sandbox", "a sandbox cannot be left"},
	{"seccomp", "a sandbox cannot be left"},
	{"modcaps", "a sandbox cannot be left"},
	{"rlimit-nofile", "a sandbox cannot be left"},
	{NULL, "it is used at the start only, before the sandbox closes"},
};

static const char *why_not(const char *name)
{
	size_t i = 0;

	while (rules[i].name && strcmp(rules[i].name, name) != 0)
		i++;
	return rules[i].why;
}

struct daemon_settings *daemon_settings_new(const struct daemon_config *given,
					    struct daemon_device *device)
{
	struct daemon_settings *s = g_new0(struct daemon_settings, 1);

	s->now = *given;
	s->device = device;
	return s;
}

void daemon_settings_free(struct daemon_settings *s)
{
	g_free(s);
}

static void add_text(JsonBuilder *b, const char *name, const char *v)
{
	g_autofree char *valid = g_utf8_make_valid(v, -1);

	util_json_string(b, name, valid);
}

static void add_setting(void *ctx, const char *name, const char *value, const char *allowed)
{
	const char *why = why_not(name);
	JsonBuilder *b = ctx;

	json_builder_begin_object(b);
	add_text(b, "name", name);
	add_text(b, "value", value);
	add_text(b, "allowed", allowed);
	util_json_bool(b, "changeable", !why);
	if (why)
		add_text(b, "why", why);
	json_builder_end_object(b);
}

JsonNode *daemon_settings_list(struct daemon_settings *s)
{
	g_autoptr(JsonBuilder) b = json_builder_new();

	json_builder_begin_array(b);
	daemon_options_foreach(&s->now, add_setting, b);
	json_builder_end_array(b);
	return json_builder_get_root(b);
}

struct find {
	const char *name;
	char *value;
};

static void take_value(void *ctx, const char *name, const char *value, const char *allowed)
{
	struct find *f = ctx;

	if (strcmp(name, f->name) == 0)
		f->value = g_strdup(value);
}

static char *value_of(const struct daemon_settings *s, const char *name)
{
	struct find f = {.name = name};

	daemon_options_foreach(&s->now, take_value, &f);
	return f.value;
}

static bool may_change(const struct daemon_settings *s, const char *name, GError **error)
{
	g_autofree char *value = value_of(s, name);
	const char *why = value ? why_not(name) : NULL;

	if (!value)
		g_set_error(error, DAEMON_CONTROL_ERROR, ENOENT,
			    "\"%s\" is not a setting; daxmapctl set --list shows them", name);
	else if (why)
		g_set_error(error, DAEMON_CONTROL_ERROR, EPERM,
			    "--%s cannot change while the daemon runs: %s", name, why);
	else if (g_str_has_prefix(name, "dax-") && !s->device->table)
		g_set_error(error, DAEMON_CONTROL_ERROR, ENODEV,
			    "--%s changes nothing: this daemon offers no DAX window", name);
	else
		return true;
	return false;
}

static const char *text_member(JsonObject *o, const char *name)
{
	JsonNode *n = json_object_get_member(o, name);

	return n && json_node_get_value_type(n) == G_TYPE_STRING ? json_node_get_string(n) : NULL;
}

static JsonNode *changed(const char *name, const char *old, const char *new)
{
	g_autoptr(JsonBuilder) b = json_builder_new();

	json_builder_begin_object(b);
	add_text(b, "name", name);
	add_text(b, "old", old);
	add_text(b, "new", new);
	json_builder_end_object(b);
	return json_builder_get_root(b);
}

JsonNode *daemon_settings_set(struct daemon_settings *s, JsonObject *request, GError **error)
{
	const char *name = text_member(request, "name"), *value = text_member(request, "value");
	g_autofree char *old = NULL, *new = NULL;
	int level = s->now.log_level;

	if (!name || !value) {
		g_set_error(error, DAEMON_CONTROL_ERROR, EINVAL,
			    "\"set\" needs \"name\" and \"value\", two strings");
		return NULL;
	}
	if (g_str_has_prefix(name, "--"))
		name += 2;
	if (!may_change(s, name, error))
		return NULL;
	old = value_of(s, name);
	if (!daemon_options_set(&s->now, name, value, error))
		return NULL;
	new = value_of(s, name);
	daemon_device_tune(s->device, &s->now);
	/* A change of the level itself is told in whichever level tells more. */
	daemon_log_set_level((enum daemon_log_level)MAX(level, s->now.log_level));
	g_message("--%s: %s, was %s (asked for on the control socket)", name, new, old);
	daemon_log_set_level((enum daemon_log_level)s->now.log_level);
	return changed(name, old, new);
}
