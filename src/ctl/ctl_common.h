/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_CTL_COMMON_H
#define DAXMAP_CTL_COMMON_H

#define CTL_EXIT_OK 0
#define CTL_EXIT_BAD 2 /* usage, or nobody there */

/** ctl_complain() - "daxmapctl: ..." on stderr; returns CTL_EXIT_BAD. */
int ctl_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** ctl_run() - the whole of daxmapctl: finds the subcommand; exit status. */
int ctl_run(int argc, char **argv);

#endif
