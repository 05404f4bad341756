/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_IO_H
#define DAXMAP_LOAD_IO_H

#include "load_run.h"

extern const struct load_kind load_io_kind;

/** load_io_prepare() - generations, claims and samples for the run; files are laid out */
void load_io_prepare(struct load_run *run);
void load_io_clear(struct load_run *run);
/** load_io_check() - checks @len bytes at @p, which were read at @offset of @file; counts what is
 * wrong */
void load_io_check(struct load_run *run, uint64_t *counter, const void *p, unsigned int file,
		   uint64_t offset, uint64_t len);

#endif
