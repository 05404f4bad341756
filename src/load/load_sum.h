/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_SUM_H
#define DAXMAP_LOAD_SUM_H

#include "load_run.h"

/** load_sum() - prints the MD5 of each of the files asked for; 0, or load_run_fail() was told */
int load_sum(struct load_run *run);

#endif
