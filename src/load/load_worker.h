/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine room. A worker is a thread; its operations are requests, or short trains of them,
 * of one of the kinds in load_io.c and load_meta.c.
 */
#ifndef DAXMAP_LOAD_WORKER_H
#define DAXMAP_LOAD_WORKER_H

#include "load.h"
#include "load_hist.h"
#include "util_lock.h"

struct load_run;
struct trace_stream;
struct load_worker;

#define LOAD_FORGETS 64u
#define LOAD_NAME 64u

/** struct load_job - one stream of operations; used by one worker */
struct load_job {
	unsigned int index;
	uint64_t rng;
	uint64_t left;		 /* operations still to start */
	uint64_t first, end, at; /* sequential: blocks */
	uint64_t sample;	 /* zipf: place in the table */
	uint64_t serial;	 /* metadata: names made so far */
	uint64_t dir;		 /* untar: node of the directory at work; create: of the job's */
};

/**
 * struct load_op - one operation
 * @step: requests of it finished so far
 * @w: who runs it now; counts it
 * @home: who takes its completions
 * @start: ns
 * @bytes: what it moved, once finished
 */
struct load_op {
	struct load_worker *w;
	struct load_worker *home;
	struct load_job *job;
	struct guest_req *r;
	void *buf;
	struct load_op *next;
	unsigned int step;
	uint64_t start;
	uint64_t bytes;
	bool write;
	bool given_back; /* by a hot thread, with nothing begun */
	/* I/O */
	uint64_t block;
	unsigned int file;
	uint64_t offset;
	/* metadata */
	uint64_t node;
	uint64_t fh;
	uint64_t cookie;
	uint32_t size;
	char name[LOAD_NAME];
};

enum load_begun {
	LOAD_SEND,   /* op->r is prepared */
	LOAD_SERVED, /* done already */
	LOAD_FAILED, /* load_run_fail() was told */
};

/**
 * struct load_kind - what an operation is
 * @begin: chooses what to do next and begins it
 * @next: op->r was answered with op->r->error: prepare the next request of this operation (true),
 *        or it is finished (false)
 */
struct load_kind {
	enum load_begun (*begin)(struct load_op *op);
	bool (*next)(struct load_op *op);
};

/** struct load_hot - jobs that the window serves, on their way to threads of their own */
struct load_hot {
	struct util_mutex lock;
	struct util_cond cond;
	struct load_op *ops;
	bool stop;
};

/** struct load_worker - a thread and what it counts */
struct load_worker {
	struct load_run *run;
	GThread *thread;
	int cpu;	    /* where it stays; -1: anywhere */
	unsigned int queue; /* 1.. */
	struct guest_ring *ring;
	struct load_op *ops;
	unsigned int nops;
	unsigned int in_flight; /* requests, and operations lent */
	unsigned int lent;	/* atomic: with hot threads */
	bool unkicked;
	struct trace_stream *trace; /* NULL unless --dax-trace */
	struct load_op *finished;   /* atomic stack: pushed by whoever takes the completion */
	struct load_op *idle;

	struct guest_req *forget_reqs[4];
	bool forget_sent[4];
	struct fuse_forget_one forgets[LOAD_FORGETS];
	unsigned int nforgets;

	uint64_t done; /* atomic, as is the next */
	uint64_t bytes;
	uint64_t by_read; /* reads that the window did not serve */
	uint64_t verify_errors;
	struct load_hist hist;
};

/** load_worker_start() - the thread; its operations and buffers must be there. Without a ring it is
 * a hot one. */
void load_worker_start(struct load_worker *w);
void load_worker_join(struct load_worker *w);
/** load_forget() - gives a lookup count back, together with others */
void load_forget(struct load_worker *w, uint64_t node);

__extension__ typedef unsigned __int128 load_u128;

/** load_rand() - xorshift64* */
static inline uint64_t load_rand(struct load_job *j)
{
	j->rng ^= j->rng >> 12;
	j->rng ^= j->rng << 25;
	j->rng ^= j->rng >> 27;
	return j->rng * 0x2545f4914f6cdd1dull;
}

/** load_below() - uniform in [0, n) */
static inline uint64_t load_below(struct load_job *j, uint64_t n)
{
	return (uint64_t)(((load_u128)load_rand(j) * n) >> 64);
}

#endif
