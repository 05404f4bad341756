// SPDX-License-Identifier: Apache-2.0
/* daxmapctl set: changes what can change in a daemon that serves, and says what cannot. */
#include <stdio.h>
#include <string.h>

#include <json-glib/json-glib.h>

#include "ctl_client.h"
#include "ctl_common.h"

static const char *text(JsonObject *o, const char *name)
{
	return json_object_get_string_member_with_default(o, name, "");
}

static void print_setting(JsonObject *o, int name_width, int value_width, int allowed_width)
{
	const char *value = text(o, "value"), *why = text(o, "why");

	printf("%-*s  %-*s  %-*s  %s\n", name_width, text(o, "name"), value_width,
	       *value ? value : "-", allowed_width, text(o, "allowed"), *why ? why : "yes");
}

static void widen(int *width, const char *what)
{
	*width = MAX(*width, (int)strlen(what));
}

static int show_list(JsonNode *list, gboolean json)
{
	int name = 4, value = 5, allowed = 7;
	JsonArray *a;

	if (json) {
		g_autofree char *out = json_to_string(list, FALSE);

		printf("%s\n", out);
		return ctl_flush();
	}
	if (!JSON_NODE_HOLDS_ARRAY(list))
		return ctl_complain("set: the daemon's answer is no list");
	a = json_node_get_array(list);
	for (guint i = 0; i < json_array_get_length(a); i++) {
		JsonObject *o = json_array_get_object_element(a, i);

		widen(&name, text(o, "name"));
		widen(&value, text(o, "value"));
		widen(&allowed, text(o, "allowed"));
	}
	printf("%-*s  %-*s  %-*s  %s\n", name, "NAME", value, "VALUE", allowed, "ALLOWED",
	       "CHANGEABLE");
	for (int changeable = 1; changeable >= 0; changeable--)
		for (guint i = 0; i < json_array_get_length(a); i++) {
			JsonObject *o = json_array_get_object_element(a, i);

			if (json_object_get_boolean_member_with_default(o, "changeable", FALSE) ==
			    changeable)
				print_setting(o, name, value, allowed);
		}
	return ctl_flush();
}

static int show_change(JsonNode *answer, gboolean json)
{
	JsonObject *o;

	if (json) {
		g_autofree char *out = json_to_string(answer, FALSE);

		printf("%s\n", out);
		return ctl_flush();
	}
	if (!JSON_NODE_HOLDS_OBJECT(answer))
		return ctl_complain("set: the daemon's answer is no object");
	o = json_node_get_object(answer);
	printf("%s: %s (was %s)\n", text(o, "name"), text(o, "new"), text(o, "old"));
	return ctl_flush();
}

static int ask(const char *path, const char *name, const char *value, gboolean json)
{
	g_autoptr(JsonObject) request = json_object_new();
	g_autoptr(JsonNode) answer = NULL;
	g_autoptr(GError) error = NULL;
	struct ctl_client *c = ctl_client_connect(path, &error);

	if (!c)
		return ctl_complain("%s", error->message);
	json_object_set_string_member(request, "command", name ? "set" : "settings");
	if (name) {
		json_object_set_string_member(request, "name", name);
		json_object_set_string_member(request, "value", value);
	}
	answer = ctl_client_request(c, request, -1, &error);
	ctl_client_free(c);
	if (!answer)
		return ctl_complain("set: %s", error->message);
	return name ? show_change(answer, json) : show_list(answer, json);
}

static int set_main(int argc, char **argv)
{
	g_autofree char *path = NULL;
	gboolean list = FALSE, json = FALSE;
	const GOptionEntry entries[] = {
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME, &path,
		 "the daemon's control socket (required)", "PATH"},
		{"list", 0, 0, G_OPTION_ARG_NONE, &list,
		 "show every setting, its value, what is allowed, and whether it can change", NULL},
		{"json", 0, 0, G_OPTION_ARG_NONE, &json, "the answer as JSON", NULL},
		{0},
	};
	int status;

	if (!ctl_parse("set", "[NAME VALUE] - change what a daemon does while it serves", entries,
		       &argc, &argv, 3, &status))
		return status;
	/* Names with their dashes need one of these before them, and GOption leaves it there. */
	if (argc > 1 && strcmp(argv[1], "--") == 0) {
		argv++;
		argc--;
	}
	if (!path)
		return ctl_complain("set: --control-path is required");
	if (list ? argc != 1 : argc != 3)
		return ctl_complain("set: give NAME and VALUE, or --list");
	for (int i = 1; i < argc; i++)
		if (!g_utf8_validate(argv[i], -1, NULL))
			return ctl_complain("set: \"%s\" is not UTF-8", argv[i]);
	return ask(path, list ? NULL : argv[1], list ? NULL : argv[2], json);
}

const struct ctl_command ctl_set_command = {
	"set",
	"change what a daemon does while it serves",
	set_main,
};
