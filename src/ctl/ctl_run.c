// SPDX-License-Identifier: Apache-2.0
/* The subcommands of daxmapctl are rows of one table. */
#include "ctl_common.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <glib.h>

#include "ctl_stats.h"

static const struct {
	const char *name;
	const char *help;
	int (*main)(int argc, char **argv);
} subcommands[] = {
	{"stats", "show a daemon's counters", ctl_stats_main},
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

static void usage(FILE *out)
{
	fprintf(out, "Usage: daxmapctl COMMAND [OPTION...]\n\nCommands:\n");
	for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++)
		fprintf(out, "  %-10s %s\n", subcommands[i].name, subcommands[i].help);
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
		return CTL_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("daxmapctl %s\n", DAXMAPD_VERSION);
		return CTL_EXIT_OK;
	}
	for (size_t i = 0; i < G_N_ELEMENTS(subcommands); i++)
		if (strcmp(argv[1], subcommands[i].name) == 0)
			return subcommands[i].main(argc - 1, argv + 1);
	ctl_complain("\"%s\" is not a command", argv[1]);
	usage(stderr);
	return CTL_EXIT_BAD;
}
