/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_DAEMON_RUN_H
#define DAXMAP_DAEMON_RUN_H

#include "daemon_options.h"

#define DAEMON_EXIT_OK 0
#define DAEMON_EXIT_FAILED 1 /* could not start, or the VMM broke the protocol */
#define DAEMON_EXIT_USAGE 2

/** daemon_run() - the whole life of the daemon; exit status. Before there are threads. */
int daemon_run(const struct daemon_config *config);

#endif
