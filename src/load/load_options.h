/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_OPTIONS_H
#define DAXMAP_LOAD_OPTIONS_H

#include "load.h"

/**
 * load_options_parse() - the command line into @c
 *
 * False with @error, which names option, value and what is allowed. --help prints and exits.
 */
bool load_options_parse(struct load_config *c, int argc, char **argv, GError **error);
void load_options_clear(struct load_config *c);
const char *load_rw_name(enum load_rw rw);
const char *load_engine_name(enum load_engine e);

#endif
