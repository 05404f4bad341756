/* SPDX-License-Identifier: Apache-2.0 */
/* A trace through windows of other sizes, or through the host's table. */
#ifndef DAXMAP_SIM_REPLAY_H
#define DAXMAP_SIM_REPLAY_H

#include "sim.h"
#include "sim_table.h"
#include "trace_reader.h"

/** struct sim_fit - what maps took, as recorded: a least-squares line over mappings live */
struct sim_fit {
	uint64_t maps;
	uint64_t unmaps;
	struct sim_cost cost; /* .hit is 0 */
};

/**
 * struct sim_survey - one pass over a trace
 * @accesses: it says of every use which bytes; so what other windows do is exact
 * @setups, @removes: requests to the host's table
 * @files: there are so many file ids
 */
struct sim_survey {
	uint64_t accesses;
	uint64_t setups;
	uint64_t removes;
	uint32_t files;
	struct sim_fit fit;
};

/** sim_survey() - reads the trace to its end; then rewind it. False with @error. */
bool sim_survey(struct trace_reader *r, struct sim_survey *out, GError **error);

/**
 * sim_replay_caches() - feeds what was used to @n windows at once
 * @slot_size: bytes of a slot, a power of two
 *
 * What was used: accesses; where the trace has none, setups, that is, what the guest's own window
 * had missed already.
 */
bool sim_replay_caches(struct trace_reader *r, uint64_t slot_size, bool accesses,
		       struct sim_cache *const *caches, size_t n, GError **error);

/** sim_replay_table() - feeds setups and removes to @t */
bool sim_replay_table(struct trace_reader *r, struct sim_table *t, GError **error);

#endif
