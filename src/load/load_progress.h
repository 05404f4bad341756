/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_PROGRESS_H
#define DAXMAP_LOAD_PROGRESS_H

#include "load_run.h"

/** load_progress_start() - a thread that prints a line each second, until told to stop */
struct load_progress *load_progress_start(struct load_run *run);
void load_progress_stop(struct load_progress *p);

#endif
