/* SPDX-License-Identifier: Apache-2.0 */
/* Which CPUs the threads of a queue run on. */
#ifndef DAXMAP_DAEMON_CPUS_H
#define DAXMAP_DAEMON_CPUS_H

#include <stdbool.h>

/** daemon_cpus_valid() - is @lists "auto", or lists of CPUs joined by ':'? */
bool daemon_cpus_valid(const char *lists);

/**
 * daemon_cpus_bind() - binds the calling thread to the CPUs of queue @queue
 * @lists: checked; NULL = nothing is bound
 *
 * List i serves the queues i, i + n, ...; "auto" deals out the CPUs we may use one by one.
 * A thread that cannot be bound (no such CPU) stays where it is: false.
 */
bool daemon_cpus_bind(const char *lists, unsigned int queue);

/** daemon_cpus_unbind() - for a thread that serves all queues: it inherited the CPUs of the one
 * that made it, and gets back all that we may use. */
void daemon_cpus_unbind(const char *lists);

#endif
