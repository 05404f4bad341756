// SPDX-License-Identifier: Apache-2.0
/*
 * daxmapctl metrics: what daemons tell Prometheus, on stdout or in a file for node_exporter's
 * textfile collector. The format wants all samples of a family in one place, so the texts of
 * several daemons are taken apart and put together by family.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <json-glib/json-glib.h>

#include "ctl_client.h"
#include "ctl_common.h"

struct family {
	char *head; /* HELP and TYPE */
	GString *samples;
};

struct merge {
	GPtrArray *order; /* of struct family, in the order of coming */
	GHashTable *by_name;
	GHashTable *daemons; /* labels seen */
};

static void family_free(void *p)
{
	struct family *f = p;

	g_free(f->head);
	g_string_free(f->samples, TRUE);
	g_free(f);
}

static struct family *get_family(struct merge *m, const char *help_line, const char *type_line)
{
	const char *name = help_line + strlen("# HELP ");
	g_autofree char *key = g_strndup(name, strcspn(name, " "));
	struct family *f = g_hash_table_lookup(m->by_name, key);

	if (f)
		return f;
	f = g_new0(struct family, 1);
	f->head = g_strdup_printf("%s\n%s\n", help_line, type_line);
	f->samples = g_string_new(NULL);
	g_ptr_array_add(m->order, f);
	g_hash_table_insert(m->by_name, g_steal_pointer(&key), f);
	return f;
}

/* FALSE when it is not what a daemon writes. */
static gboolean add_text(struct merge *m, const char *text)
{
	g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
	struct family *f = NULL;

	for (char **l = lines; *l; l++) {
		if (g_str_has_prefix(*l, "# HELP ")) {
			if (!l[1] || !g_str_has_prefix(l[1], "# TYPE "))
				return FALSE;
			f = get_family(m, l[0], l[1]);
			l++;
		} else if (**l) {
			if (!f || **l == '#')
				return FALSE;
			g_string_append_printf(f->samples, "%s\n", *l);
		}
	}
	return f != NULL;
}

/* The first sample's labels name the daemon; FALSE when another one is called so. */
static gboolean is_new(struct merge *m, const char *text)
{
	const char *from = strchr(text, '{'), *to = from ? strstr(from, ",version=") : NULL;

	return to && g_hash_table_add(m->daemons, g_strndup(from, (gsize)(to - from)));
}

static int fetch(struct merge *m, const char *path)
{
	g_autoptr(GError) error = NULL;
	g_autoptr(JsonNode) answer = NULL;
	struct ctl_client *c = ctl_client_connect(path, &error);
	const char *text;

	if (!c)
		return ctl_complain("%s", error->message);
	answer = ctl_client_call(c, "metrics", &error);
	ctl_client_free(c);
	if (!answer)
		return ctl_complain("metrics: %s: %s", path, error->message);
	text = json_node_get_value_type(answer) == G_TYPE_STRING ? json_node_get_string(answer)
								 : "";
	if (!is_new(m, text) || !add_text(m, text))
		return ctl_complain("metrics: %s: %s", path,
				    *text ? "this daemon was given before: their samples could not "
					    "be told apart"
					  : "the daemon's answer is no text");
	return CTL_EXIT_OK;
}

static int put(const GString *text, const char *output)
{
	g_autoptr(GError) error = NULL;

	if (!output) {
		fputs(text->str, stdout);
		return ctl_flush();
	}
	/* Written beside it, under a name that no collector takes up, and renamed. */
	if (!g_file_set_contents_full(output, text->str, (gssize)text->len,
				      G_FILE_SET_CONTENTS_CONSISTENT, 0644, &error))
		return ctl_complain("metrics: --output: %s", error->message);
	return CTL_EXIT_OK;
}

static int collect(char **paths, const char *output)
{
	struct merge m = {
		.order = g_ptr_array_new_with_free_func(family_free),
		.by_name = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
		.daemons = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
	};
	g_autoptr(GString) text = g_string_new(NULL);
	int status = CTL_EXIT_OK;

	for (char **p = paths; *p && status == CTL_EXIT_OK; p++)
		status = fetch(&m, *p);
	for (guint i = 0; i < m.order->len; i++) {
		const struct family *f = m.order->pdata[i];

		g_string_append_printf(text, "%s%s", f->head, f->samples->str);
	}
	if (status == CTL_EXIT_OK)
		status = put(text, output);
	g_hash_table_destroy(m.daemons);
	g_hash_table_destroy(m.by_name);
	g_ptr_array_unref(m.order);
	return status;
}

static int metrics_main(int argc, char **argv)
{
	g_auto(GStrv) paths = NULL;
	g_autofree char *output = NULL;
	const GOptionEntry entries[] = {
		{"control-path", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &paths,
		 "a daemon's control socket (required); may be given again", "PATH"},
		{"output", 0, 0, G_OPTION_ARG_FILENAME, &output,
		 "write to this file, whole or not at all (default: stdout)", "FILE"},
		{0},
	};
	int status;

	if (!ctl_parse("metrics", "- show daemons' counters in Prometheus' text format", entries,
		       &argc, &argv, 0, &status))
		return status;
	if (!paths)
		return ctl_complain("metrics: --control-path is required");
	return collect(paths, output);
}

const struct ctl_command ctl_metrics_command = {
	"metrics",
	"show daemons' counters in Prometheus' text format",
	metrics_main,
};
