/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_LAYOUT_H
#define DAXMAP_LOAD_LAYOUT_H

#include "load_run.h"

/**
 * load_layout_make() - the files that the load needs, made through FUSE
 *
 * Files of the right size whose first and last page are well stamped are taken as they are.
 * Data files stay on the share for the next run; so do names. 0, or a negative errno that
 * load_run_fail() was told of.
 */
int load_layout_make(struct load_run *run);
/** load_layout_name() - of data file @i, in the directory; the caller frees it */
char *load_layout_name(const struct load_run *run, unsigned int i);
/** load_layout_check() - reads everything by FUSE and checks it */
int load_layout_check(struct load_run *run);
/** load_layout_clear() - removes what a create or untar load left, closes the files */
void load_layout_clear(struct load_run *run);

#endif
