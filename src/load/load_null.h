/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_NULL_H
#define DAXMAP_LOAD_NULL_H

#include <stdint.h>

/**
 * load_null_start() - a back-end in a child process that answers everything and does nothing
 * @file_size: what it says of every file
 * @pid: out
 *
 * A connected socket, or a negative errno. It ends when the socket does. Before any thread.
 */
int load_null_start(uint64_t file_size, int *pid);

#endif
