/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of daxmapctl share. A command is one file, ctl_NAME.c, that defines
 * ctl_NAME_command; ctl_run.c lists them.
 */
#ifndef DAXMAP_CTL_COMMON_H
#define DAXMAP_CTL_COMMON_H

#include <glib.h>

#define CTL_EXIT_OK 0
#define CTL_EXIT_BAD 2 /* usage, nobody there, or what was given is not what it should be */

/**
 * struct ctl_command - one command
 * @name: as typed
 * @help: one line for the list
 * @main: argv[0] is @name; exit status
 */
struct ctl_command {
	const char *name;
	const char *help;
	int (*main)(int argc, char **argv);
};

extern const struct ctl_command ctl_metrics_command;
extern const struct ctl_command ctl_replay_command;
extern const struct ctl_command ctl_set_command;
extern const struct ctl_command ctl_size_command;
extern const struct ctl_command ctl_stats_command;
extern const struct ctl_command ctl_top_command;
extern const struct ctl_command ctl_trace_command;

/** ctl_complain() - "daxmapctl: ..." on stderr; returns CTL_EXIT_BAD. */
int ctl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** ctl_flush() - ends the output; CTL_EXIT_BAD, with a complaint, when not all could be written. */
int ctl_flush(void);

/**
 * ctl_parse() - a command's options
 * @name: the command, as in "trace show"
 * @usage: what follows the options, and "- what it does"
 * @entries: the options; --help is added
 * @argc: in and out: argv[0] and what is no option remain
 * @argv: as @argc
 * @max_args: how many of those there may be
 * @status: what to exit with when the result is FALSE: the help was printed, or a complaint
 */
gboolean ctl_parse(const char *name, const char *usage, const GOptionEntry *entries, int *argc,
		   char ***argv, int max_args, int *status);

/** ctl_parse_size() - bytes with an optional K, M, G or T; FALSE when it is not that or not in
 * @min..@max. */
gboolean ctl_parse_size(const char *text, guint64 min, guint64 max, guint64 *out);

struct trace_reader;

/** ctl_open_trace() - as trace_reader_open(), with complaints; NULL: CTL_EXIT_BAD is due. */
struct trace_reader *ctl_open_trace(const char *path, gboolean partial);

/** ctl_run() - the whole of daxmapctl: finds the command; exit status. */
int ctl_run(int argc, char **argv);

#endif
