/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_META_H
#define DAXMAP_LOAD_META_H

#include "load_run.h"

/** load_meta_kind() - the kind of a metadata load */
const struct load_kind *load_meta_kind(enum load_rw rw);

#endif
