/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DAX window that is only counted: what would this sequence of requests have cost with that
 * window? Exact, deterministic, no clock, no thread.
 *
 *   sim_cache   the guest's seat: accesses come in, slots are chosen and reclaimed here
 *   sim_table   the host's seat: setups and removes come in at the places that the guest chose
 *   sim_replay  feeds a trace to either
 */
#ifndef DAXMAP_SIM_H
#define DAXMAP_SIM_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct sim_cost - what things take, nanoseconds; an affine model of a driver
 * @map: a map, with nothing mapped
 * @map_live: more for each live mapping
 * @unmap, @unmap_live: the same of an unmap
 * @hit: an access that finds its bytes mapped, or a request answered without the driver
 */
struct sim_cost {
	double map;
	double map_live;
	double unmap;
	double unmap_live;
	double hit;
};

/**
 * struct sim_counts - what happened
 * @requests: accesses, or setups
 * @hits: accesses that found their bytes mapped; setups answered without a map
 * @misses: the others
 * @maps, @unmaps: calls of the driver; a map over a mapping is one map
 * @elided: unmaps saved: ranges taken again, and ranges mapped over
 * @refused: setups that the budget left no room for
 * @live: mapped now
 * @live_peak: most ever mapped at once
 * @ns: time, by the cost model
 */
struct sim_counts {
	uint64_t requests;
	uint64_t hits;
	uint64_t misses;
	uint64_t maps;
	uint64_t unmaps;
	uint64_t elided;
	uint64_t refused;
	uint64_t live;
	uint64_t live_peak;
	double ns;
};

enum sim_policy {
	SIM_FIFO,  /* oldest first: the Linux guest */
	SIM_CLOCK, /* oldest first, but what was used gets another round: libdaxmap */
	SIM_LRU,   /* least recently used first: the yardstick */
};

/**
 * struct sim_cache_config - zero means the default
 * @slots: of the window; not 0
 * @budget: live mappings at most; 0 = no limit
 * @policy: which slot goes next
 * @reserve: percent of the slots that reclaim keeps free, so that they do not hold anything (the
 *           Linux guest: 20; libdaxmap where victims are unmapped ahead: 10)
 * @overlay: a map over a victim is one call; else an unmap comes first
 * @cost: of the driver
 */
struct sim_cache_config {
	uint64_t slots;
	uint64_t budget;
	enum sim_policy policy;
	uint32_t reserve;
	bool overlay;
	struct sim_cost cost;
};

struct sim_cache;

struct sim_cache *sim_cache_new(const struct sim_cache_config *config);
void sim_cache_free(struct sim_cache *c);
/** sim_cache_access() - slot-sized piece @index of file @file is used; true when it was mapped */
bool sim_cache_access(struct sim_cache *c, uint32_t file, uint64_t index);
/** sim_cache_drop() - everything is unmapped without a call, as at a session's end */
void sim_cache_drop(struct sim_cache *c);
void sim_cache_counts(const struct sim_cache *c, struct sim_counts *out);

#endif
