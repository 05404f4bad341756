/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_CTL_REPLAY_H
#define DAXMAP_CTL_REPLAY_H

#include "sim_replay.h"

/**
 * struct ctl_replay_live - a replay against a daemon
 * @socket_path: its vhost-user socket
 * @window: use only so many bytes of its window; 0 = all
 * @overlay: play a VMM that overlays; else one that refuses overlaps, as QEMU
 * @fifo: guest's seat: victims first-in first-out
 * @make_files: make the files under this directory of the share, instead of finding them by name
 */
struct ctl_replay_live {
	const char *socket_path;
	uint64_t window;
	bool overlay;
	bool fifo;
	const char *make_files;
};

/**
 * struct ctl_replay_outcome - what it did
 * @counts: .hits, .misses, .unmaps where they are known here: in the guest's seat
 * @seconds: of the requests alone
 * @slowest_ns: the longest of them
 * @refused, @first_error: requests that the daemon answered with an error, the first of them
 */
struct ctl_replay_outcome {
	struct sim_counts counts;
	double seconds;
	uint64_t slowest_ns;
	uint64_t refused;
	int first_error;
};

/** ctl_replay_live() - replays @r, surveyed and rewound, against a daemon. False with @error. */
bool ctl_replay_live(struct trace_reader *r, const struct sim_survey *survey,
		     const struct ctl_replay_live *live, struct ctl_replay_outcome *out,
		     GError **error);

#endif
