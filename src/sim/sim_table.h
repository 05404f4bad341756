/* SPDX-License-Identifier: Apache-2.0 */
/* The host's table, counted: what a daemon asks its driver for a guest's setups and removes. */
#ifndef DAXMAP_SIM_TABLE_H
#define DAXMAP_SIM_TABLE_H

#include "sim.h"

/**
 * struct sim_table_config - zero means the default
 * @budget: live mappings at most; 0 = no limit
 * @linger: how many given-back ranges stay mapped in the hope that they are asked for again; the
 *          oldest goes first. 0 = as many as the budget bears
 * @forward: a remove is an unmap, at once: what every other host side does
 * @overlay: a map over a mapping is one call; else an unmap comes first
 * @cost: of the driver
 */
struct sim_table_config {
	uint64_t budget;
	uint64_t linger;
	bool forward;
	bool overlay;
	struct sim_cost cost;
};

struct sim_table;

struct sim_table *sim_table_new(const struct sim_table_config *config);
void sim_table_free(struct sim_table *t);

/** sim_table_setup() - bytes of @file are asked for at @offset of the window; true when the driver
 * has them there already */
bool sim_table_setup(struct sim_table *t, uint64_t offset, uint64_t len, uint32_t file,
		     uint64_t file_offset);
/** sim_table_remove() - [@offset, @offset + @len) is given back; ranges only partly inside are cut
 */
void sim_table_remove(struct sim_table *t, uint64_t offset, uint64_t len);
/** sim_table_present() - it is mapped already, without a call */
void sim_table_present(struct sim_table *t, uint64_t offset, uint64_t len, uint32_t file,
		       uint64_t file_offset, bool lingering);
/** sim_table_drop() - everything is unmapped without a call, as at a session's end */
void sim_table_drop(struct sim_table *t);
void sim_table_counts(const struct sim_table *t, struct sim_counts *out);

#endif
