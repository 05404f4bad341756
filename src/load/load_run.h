/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_RUN_H
#define DAXMAP_LOAD_RUN_H

#include "load.h"
#include "load_hist.h"
#include "load_worker.h"
#include "util_lock.h"

struct load_dax;
struct trace_writer;

/** struct load_file - a file laid out on the share */
struct load_file {
	uint64_t node;
	uint64_t fh;
	bool dax; /* the back-end says that it can be mapped */
};

/**
 * struct load_run - everything of one run
 * @per_file: bytes of each file, a multiple of bs; @blocks: of all files
 * @first_gen: of units whose generation is not known; another one each run
 * @unit: bytes of a stamp; @gens: generation of each unit, 0 unknown; NULL without --verify
 * @busy: one byte a block: an operation is under way there; NULL unless checked writes need it
 * @samples: blocks by Zipf's law, or NULL
 * @nodes: of names, for getattr
 */
struct load_run {
	const struct load_config *config;
	const struct load_kind *kind;
	struct guest_frontend *fe;
	struct guest_fuse *fuse;
	struct load_dax *dax;
	struct trace_writer *trace; /* NULL unless --dax-trace */
	int peer_pid;

	struct load_file *files;
	uint64_t per_file;
	uint64_t blocks;
	uint32_t unit;
	uint32_t first_gen;
	uint32_t *gens;
	uint8_t *busy;
	uint32_t *samples;
	uint64_t nsamples;

	uint64_t dir;	/* node of config.dir */
	uint64_t names; /* node of the directory of names */
	uint64_t *nodes;

	struct load_worker *workers;
	unsigned int nworkers;
	struct load_hot *hot; /* NULL: each job has a worker, or none needs one */
	struct load_job *jobs;

	uint64_t start_ns;
	uint64_t from_ns; /* what begins earlier is not counted */
	uint64_t end_ns;  /* when to stop */
	uint64_t ended_ns;
	bool stop;		/* atomic */
	struct util_mutex lock; /* the rest */
	struct util_cond cond;
	bool go;
	int error;
	char *why;
	uint64_t errors;
	uint64_t verify_errors; /* of the passes before and after */
	char *first_wrong;
};

/** load_run_main() - the whole program after its options; the exit status */
int load_run_main(const struct load_config *c);

void load_run_wait_go(struct load_run *run);
void load_run_stop(struct load_run *run);
static inline bool load_run_stopped(struct load_run *run)
{
	return __atomic_load_n(&run->stop, __ATOMIC_RELAXED);
}
/** load_op_counts() - has it begun after the ramp? */
static inline bool load_op_counts(const struct load_op *op)
{
	return op->start >= op->w->run->from_ns;
}
/** load_run_fail() - something went wrong: the run ends, the first reason is kept */
void load_run_fail(struct load_run *run, int err, const char *fmt, ...) G_GNUC_PRINTF(3, 4);
/** load_run_wrong() - a page that is not what it should be */
void load_run_wrong(struct load_run *run, uint64_t *counter, unsigned int file, uint64_t offset);

#endif
