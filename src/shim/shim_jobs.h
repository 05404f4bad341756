/* SPDX-License-Identifier: Apache-2.0 */
/* What can block runs on the helper's workers, never on its server thread. */
#ifndef DAXMAP_SHIM_JOBS_H
#define DAXMAP_SHIM_JOBS_H

#include <stdint.h>

#include "util_lock.h"

struct shim_node;

enum shim_job_kind {
	SHIM_JOB_READ,	 /* @node, @unique, @offset, @size */
	SHIM_JOB_CLOSE,	 /* @fd */
	SHIM_JOB_UNHASH, /* @unique: the name's number */
	SHIM_JOB_UNBACK, /* @backing */
};

struct shim_job {
	struct shim_job *next;
	enum shim_job_kind kind;
	struct shim_node *node;
	uint64_t unique;
	uint64_t offset;
	uint32_t size;
	uint32_t backing;
	int fd;
};

/** struct shim_jobs - a queue, first in first out, and its threads */
struct shim_jobs {
	struct util_mutex lock;
	struct util_cond wake;
	struct shim_job *head; /* under @lock, as @tail */
	struct shim_job **tail;
	unsigned int ready; /* threads that run; under @lock */
	void (*run)(void *ctx, struct shim_job *job, void *buf);
	void *ctx;
};

/** shim_jobs_start() - makes @threads threads, and waits until each runs (what a new thread asks of
 * the kernel need not be in the list); @run gets each job and SHIM_MAX_READ bytes of the thread's
 * own. 0 or a negative errno. */
int shim_jobs_start(struct shim_jobs *j, unsigned int threads,
		    void (*run)(void *ctx, struct shim_job *job, void *buf), void *ctx);
/** shim_jobs_add() - queues a copy of @job. Any thread. */
void shim_jobs_add(struct shim_jobs *j, const struct shim_job *job) UTIL_EXCLUDES(&j->lock);

#endif
