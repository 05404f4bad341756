/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_CTL_SIZE_H
#define DAXMAP_CTL_SIZE_H

#include "size.h"

/** ctl_size_json() - the report as JSON, a line; docs/sizing.md names the members */
char *ctl_size_json(const struct size_report *r);

#endif
