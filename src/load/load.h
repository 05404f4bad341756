/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daxmap-load: what is measured, and how it is put together.
 *
 *   load_options   the command line
 *   load_page      stamped pages: every page says which file, which place, which generation
 *   load_layout    the files on the share
 *   load_hist      latencies
 *   load_cpu       CPU time of the back-end's processes, and ours
 *   load_worker    a thread: keeps its operations in flight, takes completions
 *   load_io        read, write, and their mixes; by FUSE or through the DAX window
 *   load_meta      lookup, getattr, create, readdir, untar
 *   load_beside    a read that is under way meanwhile
 *   load_sum       MD5 of files that are there
 *   load_null      a back-end that does nothing, to measure ourselves with
 *   load_report    JSON and text
 *   load_run       all of it in order
 */
#ifndef DAXMAP_LOAD_H
#define DAXMAP_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <glib.h>

#include "guest.h"

enum load_rw {
	LOAD_READ,
	LOAD_WRITE,
	LOAD_RANDREAD,
	LOAD_RANDWRITE,
	LOAD_RANDRW,
	LOAD_LOOKUP,
	LOAD_GETATTR,
	LOAD_CREATE,
	LOAD_READDIR,
	LOAD_UNTAR,
};

enum load_engine {
	LOAD_ENGINE_READ, /* FUSE requests */
	LOAD_ENGINE_DAX,  /* everything through the window */
	LOAD_ENGINE_AUTO, /* admission chooses */
};

enum load_reclaim {
	LOAD_RECLAIM_FINE,
	LOAD_RECLAIM_VANILLA,
};

/** struct load_config - the command line; see load_options.c for what each means */
struct load_config {
	char *socket_path;
	char *dir;
	char *trace;
	char **sums;
	char *beside;
	enum load_rw rw;
	enum load_engine engine;
	enum load_reclaim reclaim;
	enum guest_window_mode window_mode;
	int admission; /* enum guest_admission; -1 = as the engine says */
	uint64_t bs;
	uint64_t size;
	uint64_t window;
	uint64_t slot;
	uint64_t seed;
	uint64_t ops;
	unsigned int iodepth;
	unsigned int jobs;
	unsigned int files;
	unsigned int queues;
	unsigned int rwmixread;
	unsigned int poll_us;
	unsigned int timeout;
	double zipf;
	double runtime;
	double ramp;
	int daemon_pid;
	gboolean verify;
	gboolean mmap_like;
	gboolean json;
	gboolean null;
	gboolean connect_only;
	gboolean layout_only;
	gboolean bind;
	gboolean progress;
	gboolean help;
};

static inline bool load_is_io(enum load_rw rw)
{
	return rw <= LOAD_RANDRW;
}

static inline bool load_is_random(enum load_rw rw)
{
	return rw >= LOAD_RANDREAD && rw <= LOAD_RANDRW;
}

static inline bool load_writes(enum load_rw rw)
{
	return rw == LOAD_WRITE || rw == LOAD_RANDWRITE || rw == LOAD_RANDRW;
}

#endif
