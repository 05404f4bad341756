// SPDX-License-Identifier: Apache-2.0
/* The commands of daxmapctl are rows of one table. */
#include "ctl_common.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util_help.h"
#include "util_overflow.h"

/* In the order of the alphabet; one a line. */
static const struct ctl_command *const commands[] = {
	&ctl_metrics_command,
	&ctl_replay_command,
	&ctl_set_command,
	&ctl_size_command,
	&ctl_stats_command,
	&ctl_top_command,
	&ctl_trace_command,
};

int ctl_complain(const char *format, ...)
{
	va_list ap;

	fputs("daxmapctl: ", stderr);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	return CTL_EXIT_BAD;
}

int ctl_flush(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return ctl_complain("cannot write the output");
	return CTL_EXIT_OK;
}

gboolean ctl_parse(const char *name, const char *usage, const GOptionEntry *entries, int *argc,
		   char ***argv, int max_args, int *status)
{
	gboolean help = FALSE;
	const GOptionEntry help_entry[] = {
		{"help", 'h', 0, G_OPTION_ARG_NONE, &help, "print this, and end", NULL},
		{0},
	};
	g_autoptr(GOptionContext) ctx = g_option_context_new(usage);
	g_autofree char *prgname = g_strdup_printf("daxmapctl %s", name);
	g_autoptr(GError) error = NULL;

	g_set_prgname(prgname);
	g_option_context_set_help_enabled(ctx, FALSE);
	g_option_context_add_main_entries(ctx, entries, NULL);
	g_option_context_add_main_entries(ctx, help_entry, NULL);
	if (!g_option_context_parse(ctx, argc, argv, &error)) {
		*status = ctl_complain("%s: %s", name, error->message);
		return FALSE;
	}
	if (help) {
		g_autofree char *text = util_help_text(ctx);

		fputs(text, stdout);
		*status = ctl_flush();
		return FALSE;
	}
	if (*argc - 1 > max_args) {
		*status = ctl_complain("%s: \"%s\" is not an option; --help lists them", name,
				       (*argv)[max_args + 1]);
		return FALSE;
	}
	return TRUE;
}

static unsigned int shift_of(char c)
{
	const char *at = c ? strchr("kmgt", g_ascii_tolower(c)) : NULL;

	return at ? 10 * (unsigned int)(at - "kmgt" + 1) : 0;
}

gboolean ctl_parse_size(const char *text, guint64 min, guint64 max, guint64 *out)
{
	char *end = NULL;
	uint64_t v;

	if (!g_ascii_isdigit(*text))
		return FALSE;
	errno = 0;
	v = g_ascii_strtoull(text, &end, 10);
	if (errno)
		return FALSE;
	if (shift_of(*end)) {
		if (!util_mul_u64(v, 1ull << shift_of(*end), &v))
			return FALSE;
		end++;
	}
	if (*end || v < min || v > max)
		return FALSE;
	*out = v;
	return TRUE;
}

static void usage(FILE *out)
{
	fprintf(out, "Usage: daxmapctl COMMAND [OPTION...]\n\nCommands:\n");
	for (size_t i = 0; i < G_N_ELEMENTS(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->help);
	fprintf(out, "\ndaxmapctl COMMAND --help lists a command's options.\n");
}

int ctl_run(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return CTL_EXIT_BAD;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		usage(stdout);
		return ctl_flush();
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("daxmapctl %s\n", DAXMAPD_VERSION);
		return ctl_flush();
	}
	for (size_t i = 0; i < G_N_ELEMENTS(commands); i++)
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->main(argc - 1, argv + 1);
	ctl_complain("\"%s\" is not a command", argv[1]);
	usage(stderr);
	return CTL_EXIT_BAD;
}
