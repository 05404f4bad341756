// SPDX-License-Identifier: Apache-2.0
/*
 * A run from its beginning to its end: connect, INIT, lay the files out, start the workers, let
 * them go together, wait, look at the data once more, report.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "load_beside.h"
#include "load_cpu.h"
#include "load_dax.h"
#include "load_io.h"
#include "load_layout.h"
#include "load_meta.h"
#include "load_null.h"
#include "load_progress.h"
#include "load_report.h"
#include "load_run.h"
#include "trace_writer.h"
#include "load_sum.h"
#include "util_cpus.h"
#include "util_rcu.h"

#define SPARE_REQUESTS 64u

/* --- what the parts tell --- */

void load_run_stop(struct load_run *run)
{
	__atomic_store_n(&run->stop, true, __ATOMIC_RELAXED);
}

void load_run_fail(struct load_run *run, int err, const char *fmt, ...)
{
	va_list ap;

	util_mutex_lock(&run->lock);
	run->errors++;
	if (!run->why) {
		g_autofree char *what = NULL;

		va_start(ap, fmt);
		what = g_strdup_vprintf(fmt, ap);
		va_end(ap);
		run->error = err;
		run->why = g_strdup_printf("%s: %s", what, g_strerror(-err));
	}
	util_cond_broadcast(&run->cond);
	util_mutex_unlock(&run->lock);
	load_run_stop(run);
}

void load_run_wrong(struct load_run *run, uint64_t *counter, unsigned int file, uint64_t offset)
{
	(*counter)++;
	util_mutex_lock(&run->lock);
	if (!run->first_wrong)
		run->first_wrong = g_strdup_printf("wrong data in file %u at %" G_GUINT64_FORMAT,
						   file, offset);
	util_mutex_unlock(&run->lock);
}

void load_run_wait_go(struct load_run *run)
{
	util_mutex_lock(&run->lock);
	while (!run->go)
		util_cond_wait(&run->cond, &run->lock);
	util_mutex_unlock(&run->lock);
}

/* --- making --- */

static uint64_t buffer_size(const struct load_config *c)
{
	return load_is_io(c->rw) ? MAX(c->bs, 4096) : 65536;
}

static unsigned int total_ops(const struct load_config *c)
{
	return c->iodepth * c->jobs;
}

static unsigned int ring_size(const struct load_config *c)
{
	unsigned int want = MIN(2 * total_ops(c), 1024);
	unsigned int n = 128;

	while (n < want)
		n *= 2;
	return n;
}

static bool connect_to(struct load_run *run, GError **error)
{
	const struct load_config *c = run->config;
	unsigned int queues = c->queues ? c->queues : MIN(c->jobs, GUEST_MAX_QUEUES - 1);
	uint64_t requests = total_ops(c) + SPARE_REQUESTS + 4ull * c->jobs;
	struct guest_config g = {
		.socket_path = c->socket_path,
		.queue_size = ring_size(c),
		.num_queues = queues,
		.polled = true,
		.timeout_ms = (int)MIN(c->timeout, 1000000) * 1000,
		.window.mode = c->engine == LOAD_ENGINE_READ ? GUEST_WINDOW_NONE : c->window_mode,
	};
	struct guest_fuse_config fc = {
		.requests = (unsigned int)requests,
		.spin_ns = c->poll_us * 1000ull,
	};
	int fd = -1;

	/* Requests, buffers, and for each ring its indirect tables. */
	g.mem_size = requests * (GUEST_REQ_OUT + GUEST_REQ_IN + buffer_size(c)) + (16u << 20) +
		     (queues + 1) * (uint64_t)g.queue_size * 2200;
	if (c->null) {
		fd = load_null_start(run->per_file, &run->peer_pid);
		if (fd < 0) {
			g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(-fd),
				    "no null back-end: %s", g_strerror(-fd));
			return false;
		}
	}
	run->fe = guest_frontend_new(&g, error);
	if (!run->fe)
		return false;
	run->fuse = guest_fuse_new(run->fe, &fc);
	if (fd >= 0 ? guest_frontend_connect_fd(run->fe, fd, error)
		    : guest_frontend_connect(run->fe, error))
		return false;
	return !guest_frontend_start(run->fe, error);
}

static int init_session(struct load_run *run)
{
	const struct load_config *c = run->config;
	int err = guest_fuse_init(run->fuse, 0, NULL);

	if (err) {
		load_run_fail(run, err, "INIT");
		return err;
	}
	if (!run->peer_pid)
		run->peer_pid = c->daemon_pid ? c->daemon_pid : guest_frontend_peer_pid(run->fe);
	if (load_is_io(c->rw) && c->bs > guest_fuse_max_write(run->fuse)) {
		load_run_fail(run, -EINVAL, "the back-end takes only %u bytes at once",
			      guest_fuse_max_write(run->fuse));
		return -EINVAL;
	}
	return 0;
}

static void make_jobs(struct load_run *run)
{
	const struct load_config *c = run->config;

	run->jobs = g_new0(struct load_job, c->jobs);
	for (unsigned int i = 0; i < c->jobs; i++) {
		struct load_job *j = &run->jobs[i];

		j->index = i;
		j->rng = util_hash_u64(c->seed * 1000003 + i) | 1;
		j->left = c->ops ? c->ops : UINT64_MAX;
		j->first = run->blocks * i / c->jobs;
		j->end = run->blocks * (i + 1) / c->jobs;
		j->at = load_is_io(c->rw) ? j->first : 0;
		j->sample = run->nsamples ? load_below(j, run->nsamples) : 0;
	}
}

/* Requests need no more workers than rings; but who waits for maps needs one for each job. */
static unsigned int count_workers(const struct load_run *run)
{
	unsigned int queues = guest_frontend_num_queues(run->fe);

	if (run->dax && load_dax_admission(run->config) == GUEST_ADMIT_ALWAYS)
		return run->config->jobs;
	return MIN(run->config->jobs, queues);
}

static bool make_op(struct load_worker *w, struct load_job *j)
{
	struct load_op *op = &w->ops[w->nops++];
	struct load_run *run = w->run;

	op->w = op->home = w;
	op->job = j;
	op->r = guest_req_get(run->fuse);
	op->buf = guest_mem_alloc(guest_frontend_mem(run->fe), buffer_size(run->config));
	if (!op->r || !op->buf)
		return false;
	memset(op->buf, 0x5a, buffer_size(run->config));
	return true;
}

/* A job's operations are of one thread at a time, so it may have only one. */
static void make_hot(struct load_run *run)
{
	const struct load_config *c = run->config;

	if (!run->dax || c->iodepth > 1 || c->jobs == run->nworkers)
		return;
	run->hot = g_new0(struct load_hot, 1);
	util_mutex_init(&run->hot->lock);
	util_cond_init(&run->hot->cond);
	run->nworkers += c->jobs;
}

static void clear_hot(struct load_run *run)
{
	if (!run->hot)
		return;
	util_cond_destroy(&run->hot->cond);
	util_mutex_destroy(&run->hot->lock);
	g_free(run->hot);
}

/* The n-th worker of either kind, rings' and hot ones, goes to the n-th CPU. */
static bool place_workers(struct load_run *run, unsigned int rings)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (run->config->bind && sched_getaffinity(0, sizeof(set), &set) < 0) {
		load_run_fail(run, -errno, "option --bind: which CPUs are allowed");
		return false;
	}
	for (unsigned int i = 0; i < run->nworkers; i++)
		run->workers[i].cpu = util_cpus_nth(&set, i < rings ? i : i - rings);
	return true;
}

static bool make_workers(struct load_run *run)
{
	const struct load_config *c = run->config;
	unsigned int queues = guest_frontend_num_queues(run->fe);
	unsigned int rings = count_workers(run);

	run->nworkers = rings;
	make_hot(run);
	run->workers = g_new0(struct load_worker, run->nworkers);
	for (unsigned int i = rings; i < run->nworkers; i++) {
		run->workers[i].run = run;
		run->workers[i].trace = run->trace ? trace_stream_new(run->trace) : NULL;
	}
	for (unsigned int i = 0; i < rings; i++) {
		struct load_worker *w = &run->workers[i];

		w->run = run;
		w->queue = 1 + i % queues;
		/* More workers than streams: those are not recorded, and it shows in the numbers.
		 */
		w->trace = run->trace ? trace_stream_new(run->trace) : NULL;
		w->ring = guest_frontend_ring(run->fe, w->queue);
		w->ops = g_new0(struct load_op, total_ops(c));
		for (unsigned int k = 0; k < G_N_ELEMENTS(w->forget_reqs); k++)
			w->forget_reqs[k] = guest_req_get(run->fuse);
		for (unsigned int j = i; j < c->jobs; j += rings)
			for (unsigned int d = 0; d < c->iodepth; d++)
				if (!make_op(w, &run->jobs[j]))
					return false;
	}
	return place_workers(run, rings);
}

static void clear_workers(struct load_run *run)
{
	for (unsigned int i = 0; i < run->nworkers; i++)
		g_free(run->workers[i].ops);
	clear_hot(run);
	g_free(run->workers);
	g_free(run->jobs);
}

/* --- running --- */

static void start_all(struct load_run *run)
{
	const struct load_config *c = run->config;

	for (unsigned int i = 0; i < run->nworkers; i++)
		load_worker_start(&run->workers[i]);
	util_mutex_lock(&run->lock);
	run->start_ns = util_now_ns();
	run->from_ns = run->start_ns + (uint64_t)(c->ramp * 1e9);
	run->end_ns = c->ops ? UINT64_MAX : run->from_ns + (uint64_t)(c->runtime * 1e9);
	run->go = true;
	util_cond_broadcast(&run->cond);
	util_mutex_unlock(&run->lock);
}

static void join_all(struct load_run *run)
{
	for (unsigned int i = 0; i < run->nworkers; i++) {
		if (run->hot && !run->workers[i].ring) {
			util_mutex_lock(&run->hot->lock);
			run->hot->stop = true;
			util_cond_broadcast(&run->hot->cond);
			util_mutex_unlock(&run->hot->lock);
		}
		load_worker_join(&run->workers[i]);
	}
	run->ended_ns = util_now_ns();
}

static void wait_for_ramp(struct load_run *run)
{
	util_mutex_lock(&run->lock);
	while (!run->errors && util_now_ns() < run->from_ns)
		util_cond_wait_until(&run->cond, &run->lock, run->from_ns);
	util_mutex_unlock(&run->lock);
}

static void subtract(struct load_dax_counts *from, const struct load_dax_counts *what)
{
	from->hits -= what->hits;
	from->maps -= what->maps;
	from->removes -= what->removes;
	from->elided -= what->elided;
	from->reclaimed -= what->reclaimed;
}

static void go(struct load_run *run, struct load_result *res)
{
	struct load_progress *progress = NULL;
	struct load_dax_counts before = {0};
	bool known = load_cpu_known(run->peer_pid);
	uint64_t load_cpu, daemon_cpu;

	start_all(run);
	if (run->config->progress)
		progress = load_progress_start(run);
	wait_for_ramp(run);
	load_cpu = load_cpu_self();
	daemon_cpu = load_cpu_tree(run->peer_pid);
	if (run->dax)
		load_dax_counts(load_dax_of(run->dax), &before);
	join_all(run);
	load_progress_stop(progress);
	res->seconds = (double)(run->ended_ns - MIN(run->from_ns, run->ended_ns)) / 1e9;
	res->load_cpu = (int64_t)(load_cpu_self() - load_cpu);
	res->daemon_cpu = known && guest_frontend_alive(run->fe)
				  ? (int64_t)(load_cpu_tree(run->peer_pid) - daemon_cpu)
				  : -1;
	for (unsigned int i = 0; i < run->nworkers; i++) {
		struct load_worker *w = &run->workers[i];

		res->ops += w->done;
		res->bytes += w->bytes;
		res->by_read += w->by_read;
		res->verify_errors += w->verify_errors;
		load_hist_merge(&res->hist, &w->hist);
	}
	if (run->dax)
		load_dax_counts(load_dax_of(run->dax), &res->dax);
	subtract(&res->dax, &before);
}

static bool prepare(struct load_run *run)
{
	const struct load_config *c = run->config;
	char *why = NULL;

	if (load_is_io(c->rw)) {
		run->kind = &load_io_kind;
		load_io_prepare(run);
	} else {
		run->kind = load_meta_kind(c->rw);
	}
	make_jobs(run);
	if (load_layout_make(run))
		return false;
	if (c->engine != LOAD_ENGINE_READ && load_is_io(c->rw)) {
		run->dax = load_dax_new(run, &why);
		if (!run->dax) {
			load_run_fail(run, -ENODEV, "no DAX: %s", why);
			g_free(why);
			return false;
		}
	}
	if (!make_workers(run)) {
		load_run_fail(run, -ENOMEM, "too little guest memory");
		return false;
	}
	return true;
}

static void session(struct load_run *run, struct load_result *res)
{
	struct load_beside *beside;
	struct guest_window *window = guest_frontend_window(run->fe);

	if (init_session(run) || run->config->connect_only)
		return;
	if (run->config->sums) {
		load_sum(run);
	} else if (prepare(run) && !run->config->layout_only) {
		beside = load_beside_start(run);
		if (!run->why)
			go(run, res);
		load_beside_end(beside);
		if (run->gens && load_writes(run->config->rw) && !run->why)
			load_layout_check(run);
	}
	res->verify_errors += run->verify_errors;
	for (unsigned int i = 0; i < run->nworkers; i++)
		trace_stream_free(g_steal_pointer(&run->workers[i].trace));
	load_dax_free(g_steal_pointer(&run->dax));
	load_layout_clear(run);
	res->violations = guest_window_violations(window);
	res->violation = guest_window_violation(window, 0);
	res->fault = guest_fuse_fault(run->fuse);
}

static void say_peer(const struct load_run *run)
{
	printf("tag '%s', %u request queues, DAX window %" G_GUINT64_FORMAT
	       " MiB, max write %u bytes, features 0x%" G_GINT64_MODIFIER "x\n",
	       guest_frontend_tag(run->fe), guest_frontend_num_queues(run->fe),
	       guest_window_size(guest_frontend_window(run->fe)) >> 20,
	       guest_fuse_max_write(run->fuse), guest_fuse_flags(run->fuse));
}

static int report(struct load_run *run, struct load_result *res)
{
	const struct load_config *c = run->config;

	if (run->why)
		fprintf(stderr, "daxmap-load: %s\n", run->why);
	if (run->first_wrong)
		fprintf(stderr, "daxmap-load: %s\n", run->first_wrong);
	if (res->violation)
		fprintf(stderr, "daxmap-load: rule broken by the back-end: %s\n", res->violation);
	if (res->fault)
		fprintf(stderr, "daxmap-load: malformed reply: %s\n", res->fault);
	if (c->connect_only && !run->why)
		say_peer(run);
	else if (c->json && !c->sums)
		load_report_json(run, res);
	else if (!run->why && !c->layout_only && !c->sums)
		load_report_text(run, res);
	return run->why || res->verify_errors || res->violations || res->fault;
}

int load_run_main(const struct load_config *c)
{
	struct load_result *res = g_new0(struct load_result, 1);
	struct load_run run = {.config = c};
	g_autoptr(GError) error = NULL;
	int status = 1;

	util_mutex_init(&run.lock);
	util_cond_init(&run.cond);
	run.unit = (uint32_t)MIN(c->bs, 4096);
	run.per_file = c->size / c->files / c->bs * c->bs;
	run.blocks = run.per_file / c->bs * c->files;
	if (!connect_to(&run, &error)) {
		fprintf(stderr, "daxmap-load: %s\n", error->message);
	} else {
		session(&run, res);
		status = report(&run, res);
	}
	if (run.fe)
		guest_frontend_disconnect(run.fe);
	clear_workers(&run);
	load_io_clear(&run);
	guest_fuse_free(run.fuse);
	guest_frontend_free(run.fe);
	if (c->null && run.peer_pid > 0)
		waitpid(run.peer_pid, NULL, 0);
	g_free(run.why);
	g_free(run.first_wrong);
	g_free(res->violation);
	g_free(res->fault);
	g_free(res);
	util_cond_destroy(&run.cond);
	util_mutex_destroy(&run.lock);
	return status;
}
