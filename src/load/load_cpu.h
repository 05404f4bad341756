/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_CPU_H
#define DAXMAP_LOAD_CPU_H

#include <stdbool.h>
#include <stdint.h>

/**
 * load_cpu_tree() - CPU time used so far by process @pid and all that descend from it, ns
 *
 * 0 when there is nobody to ask: no @pid, or it is ourselves or one we descend from (the socket
 * was made by a parent that handed it to the back-end).
 */
uint64_t load_cpu_tree(int pid);
/** load_cpu_known() - would load_cpu_tree() count a back-end? */
bool load_cpu_known(int pid);
/** load_cpu_self() - of this process, ns */
uint64_t load_cpu_self(void);

#endif
