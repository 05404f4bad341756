// SPDX-License-Identifier: Apache-2.0
/*
 * Reads and writes of blocks. With --verify every block read is checked to the last word; where
 * the load writes too, a block is worked on by one operation at a time, so that what must be
 * found there is known.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "load_dax.h"
#include "load_io.h"
#include "load_page.h"
#include "trace_writer.h"

#define SAMPLES (1u << 20)

/* --- places --- */

/*
 * Zipf by rejection-inversion (W. Hoermann, G. Derflinger: Rejection-inversion to generate
 * variates from monotone discrete distributions, 1996).
 */
struct zipf {
	double s, n, h_x1, h_n, c;
};

static double zipf_h(const struct zipf *z, double x)
{
	double l = log(x);

	return fabs(1 - z->s) < 1e-9 ? l : expm1((1 - z->s) * l) / (1 - z->s);
}

static double zipf_h_inv(const struct zipf *z, double y)
{
	return fabs(1 - z->s) < 1e-9 ? exp(y) : exp(log1p(y * (1 - z->s)) / (1 - z->s));
}

static void zipf_init(struct zipf *z, double s, uint64_t n)
{
	z->s = s;
	z->n = (double)n;
	z->h_x1 = zipf_h(z, 1.5) - 1;
	z->h_n = zipf_h(z, z->n + 0.5);
	z->c = 2 - zipf_h_inv(z, zipf_h(z, 2.5) - pow(2, -s));
}

/* 0 is the most frequent */
static uint64_t zipf_next(const struct zipf *z, struct load_job *j)
{
	for (;;) {
		double u = (double)(load_rand(j) >> 11) / (double)(1ull << 53);
		double y = z->h_n + u * (z->h_x1 - z->h_n);
		double x = zipf_h_inv(z, y);
		double k = floor(x + 0.5);

		k = k < 1 ? 1 : k > z->n ? z->n : k;
		if (k - x <= z->c || y >= zipf_h(z, k + 0.5) - pow(k, -z->s))
			return (uint64_t)k - 1;
	}
}

static void make_samples(struct load_run *run)
{
	struct load_job j = {.rng = run->config->seed * 2 + 1};
	struct zipf z;

	zipf_init(&z, run->config->zipf, run->blocks);
	run->nsamples = SAMPLES;
	run->samples = g_new(uint32_t, SAMPLES);
	for (unsigned int i = 0; i < SAMPLES; i++) {
		load_u128 rank = zipf_next(&z, &j);

		/* Scattered: a prime times the rank; a bijection unless it divides the blocks. */
		run->samples[i] = (uint32_t)(rank * 2654435761u % run->blocks);
	}
}

static uint64_t choose(struct load_run *run, struct load_job *j)
{
	if (load_is_random(run->config->rw)) {
		if (!run->samples)
			return load_below(j, run->blocks);
		j->sample = (j->sample + 1) % run->nsamples;
		return run->samples[j->sample];
	}
	if (j->at >= j->end)
		j->at = j->first;
	return j->at++;
}

/* --- generations and claims --- */

static bool claim(struct load_run *run, uint64_t block)
{
	return !run->busy || !__atomic_exchange_n(&run->busy[block], 1, __ATOMIC_ACQUIRE);
}

static void release(struct load_run *run, uint64_t block)
{
	if (run->busy)
		__atomic_store_n(&run->busy[block], 0, __ATOMIC_RELEASE);
}

static uint32_t *gen_of(struct load_run *run, unsigned int file, uint64_t offset)
{
	return &run->gens[(file * run->per_file + offset) / run->unit];
}

void load_io_check(struct load_run *run, uint64_t *counter, const void *p, unsigned int file,
		   uint64_t offset, uint64_t len)
{
	for (uint64_t at = 0; at < len; at += run->unit) {
		uint32_t *known = gen_of(run, file, offset + at);
		uint32_t gen = __atomic_load_n(known, __ATOMIC_RELAXED);

		if (!load_page_check((const char *)p + at, run->unit, file, offset + at, &gen))
			load_run_wrong(run, counter, file, offset + at);
		else
			__atomic_store_n(known, gen, __ATOMIC_RELAXED);
	}
}

static void stamp(struct load_run *run, void *p, unsigned int file, uint64_t offset, uint64_t len)
{
	for (uint64_t at = 0; at < len; at += run->unit) {
		uint32_t *gen = gen_of(run, file, offset + at);

		/* Of a file that was there before it is not known until it is read. */
		*gen = *gen ? *gen + 1 : run->first_gen;
		*gen += !*gen;
		load_page_fill((char *)p + at, run->unit, file, offset + at, *gen);
	}
}

/* --- operations --- */

static void pick(struct load_op *op)
{
	struct load_run *run = op->w->run;
	const struct load_config *c = run->config;
	uint64_t per = run->per_file / c->bs;

	do {
		op->block = choose(run, op->job);
	} while (!claim(run, op->block));
	op->file = (unsigned int)(op->block / per);
	op->offset = op->block % per * c->bs;
	op->write = c->rw == LOAD_WRITE || c->rw == LOAD_RANDWRITE ||
		    (c->rw == LOAD_RANDRW && load_below(op->job, 100) >= c->rwmixread);
}

/* The window's answer for @op: served, or to be sent as a request after all. */
static enum load_begun through_window(struct load_op *op)
{
	struct load_run *run = op->w->run;
	uint64_t bs = run->config->bs;
	int rc;

	if (op->write && run->gens)
		stamp(run, op->buf, op->file, op->offset, bs);
	rc = load_dax_io(run->dax, op->file, op->offset, op->buf, bs, op->write);
	if (rc == -EAGAIN)
		return LOAD_SEND;
	if (rc) {
		load_run_fail(run, rc, "file %u, offset %" G_GUINT64_FORMAT ": cannot be mapped",
			      op->file, op->offset);
		release(run, op->block);
		return LOAD_FAILED;
	}
	if (!op->write && run->gens)
		load_io_check(run, &op->w->verify_errors, op->buf, op->file, op->offset, bs);
	release(run, op->block);
	op->bytes = bs;
	return LOAD_SERVED;
}

static enum load_begun io_begin(struct load_op *op)
{
	struct load_run *run = op->w->run;
	const struct load_file *f;
	uint32_t bs = (uint32_t)run->config->bs;

	pick(op);
	if (op->w->trace)
		trace_stream_access(op->w->trace, op->start, load_dax_key(run->dax, op->file),
				    op->offset, bs, op->write);
	if (run->dax) {
		enum load_begun begun = through_window(op);

		if (begun != LOAD_SEND)
			return begun;
		op->w->by_read += load_op_counts(op);
	} else if (op->write && run->gens) {
		stamp(run, op->buf, op->file, op->offset, bs);
	}
	f = &run->files[op->file];
	if (op->write)
		guest_prep_write(op->r, f->node, f->fh, op->offset, op->buf, bs);
	else
		guest_prep_read(op->r, f->node, f->fh, op->offset, op->buf, bs);
	return LOAD_SEND;
}

static bool io_next(struct load_op *op)
{
	struct load_run *run = op->w->run;
	uint32_t bs = (uint32_t)run->config->bs;
	uint32_t got;

	if (run->dax)
		load_dax_note_read(run->dax, op->start, op->w->in_flight + 1);
	if (op->r->error) {
		load_run_fail(run, op->r->error, "%s of file %u at %" G_GUINT64_FORMAT,
			      op->write ? "WRITE" : "READ", op->file, op->offset);
	} else {
		got = op->write ? guest_req_write_size(op->r) : op->r->len;
		if (got != bs)
			load_run_fail(run, -EIO, "short %s: %u of %u bytes at %" G_GUINT64_FORMAT,
				      op->write ? "WRITE" : "READ", got, bs, op->offset);
		else if (!op->write && run->gens)
			load_io_check(run, &op->w->verify_errors, op->buf, op->file, op->offset,
				      bs);
		op->bytes = got;
	}
	release(run, op->block);
	return false;
}

const struct load_kind load_io_kind = {.begin = io_begin, .next = io_next};

void load_io_prepare(struct load_run *run)
{
	const struct load_config *c = run->config;

	run->first_gen = (uint32_t)(util_now_ns() >> 20) | 1u << 31;
	if (c->verify)
		run->gens = g_new0(uint32_t, run->per_file / run->unit * c->files);
	if (c->verify && load_writes(c->rw))
		run->busy = g_malloc0(run->blocks);
	if (c->zipf > 0 && load_is_random(c->rw))
		make_samples(run);
}

void load_io_clear(struct load_run *run)
{
	g_free(run->gens);
	g_free(run->busy);
	g_free(run->samples);
}
