/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_BESIDE_H
#define DAXMAP_LOAD_BESIDE_H

#include "load_run.h"

/** load_beside_start() - opens config.beside and sends a read of it; NULL without one, or after
 * load_run_fail() */
struct load_beside *load_beside_start(struct load_run *run);
/** load_beside_end() - waits for its answer */
void load_beside_end(struct load_beside *b);

#endif
