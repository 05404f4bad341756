/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamped pages. Files are filled in units (a page, or the block size where that is smaller);
 * each unit tells its file, its place and how often it was written, and the rest of it follows
 * from those, so that a page of another file, another place or another time is seen, and half of
 * one too.
 */
#ifndef DAXMAP_LOAD_PAGE_H
#define DAXMAP_LOAD_PAGE_H

#include <stdbool.h>
#include <stdint.h>

/** load_page_fill() - stamps @unit bytes at @p as place @offset of @file, generation @gen (> 0) */
void load_page_fill(void *p, uint32_t unit, uint32_t file, uint64_t offset, uint32_t gen);

/**
 * load_page_check() - are these @unit bytes what belongs at @offset of @file?
 * @gen: in: the generation expected, 0 = any; out: the one found
 */
bool load_page_check(const void *p, uint32_t unit, uint32_t file, uint64_t offset, uint32_t *gen);

#endif
