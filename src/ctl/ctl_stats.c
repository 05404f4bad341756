// SPDX-License-Identifier: Apache-2.0
/* daxmapctl stats: the daemon's counters, as text for people or as the JSON that they came in. */
#include <stdio.h>
#include <unistd.h>

#include <glib.h>
#include <json-glib/json-glib.h>

#include "ctl_client.h"
#include "ctl_common.h"

static void print_value(const char *name, JsonNode *v, int indent);

static void print_member(JsonObject *o, const gchar *name, JsonNode *v, gpointer data)
{
	print_value(name, v, GPOINTER_TO_INT(data));
}

static void print_array(const char *name, JsonArray *a, int indent)
{
	printf("%*s%s (%u)\n", indent, "", name, json_array_get_length(a));
	for (guint i = 0; i < json_array_get_length(a); i++) {
		g_autofree char *text = json_to_string(json_array_get_element(a, i), FALSE);

		printf("%*s%s\n", indent + 2, "", text);
	}
}

static void print_value(const char *name, JsonNode *v, int indent)
{
	g_autofree char *text = NULL;

	switch (json_node_get_node_type(v)) {
	case JSON_NODE_OBJECT:
		printf("%*s%s\n", indent, "", name);
		json_object_foreach_member(json_node_get_object(v), print_member,
					   GINT_TO_POINTER(indent + 2));
		return;
	case JSON_NODE_ARRAY:
		print_array(name, json_node_get_array(v), indent);
		return;
	default:
		text = json_to_string(v, FALSE);
		printf("%*s%-*s %s\n", indent, "", 28 - indent, name, text);
	}
}

static int show(JsonNode *stats, gboolean json)
{
	g_autofree char *text = NULL;

	if (json) {
		text = json_to_string(stats, FALSE);
		printf("%s\n", text);
	} else if (JSON_NODE_HOLDS_OBJECT(stats)) {
		json_object_foreach_member(json_node_get_object(stats), print_member,
					   GINT_TO_POINTER(0));
	}
	return ctl_flush();
}

static int ask(const char *path, gboolean json, int watch_s)
{
	g_autoptr(GError) error = NULL;
	struct ctl_client *c = ctl_client_connect(path, &error);
	int status = CTL_EXIT_OK;

	if (!c)
		return ctl_complain("%s", error->message);
	do {
		JsonNode *stats = ctl_client_call(c, "stats", &error);

		if (!stats) {
			status = ctl_complain("%s", error->message);
			break;
		}
		if (watch_s && !json && isatty(STDOUT_FILENO))
			printf("\033[H\033[J");
		status = show(stats, json);
		json_node_unref(stats);
		if (watch_s)
			sleep((unsigned int)watch_s);
	} while (watch_s && status == CTL_EXIT_OK);
	ctl_client_free(c);
	return status;
}

static int stats_main(int argc, char **argv)
{
	g_autofree char *path = NULL;
	gboolean json = FALSE, watch = FALSE;
	gint interval = 1;
	const GOptionEntry entries[] = {
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME, &path,
		 "the daemon's control socket (required)", "PATH"},
		{"json", 0, 0, G_OPTION_ARG_NONE, &json, "one JSON object a line", NULL},
		{"watch", 0, 0, G_OPTION_ARG_NONE, &watch, "again and again until interrupted",
		 NULL},
		{"interval", 0, 0, G_OPTION_ARG_INT, &interval,
		 "seconds between two looks, 1..3600 (default: 1)", "S"},
		{0},
	};
	int status;

	if (!ctl_parse("stats", "- show a daemon's counters", entries, &argc, &argv, 0, &status))
		return status;
	if (!path)
		return ctl_complain("stats: --control-path is required");
	if (interval < 1 || interval > 3600)
		return ctl_complain(
			"stats: option --interval: %d is not allowed; it takes 1 to 3600",
			interval);
	return ask(path, json, watch ? interval : 0);
}

const struct ctl_command ctl_stats_command = {"stats", "show a daemon's counters", stats_main};
