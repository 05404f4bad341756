// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "load_dax.h"
#include "load_progress.h"

#define EACH_NS 1000000000ull

struct load_progress {
	struct load_run *run;
	GThread *thread;
	struct util_mutex lock; /* @stop */
	struct util_cond cond;
	bool stop;
	uint64_t at;
	uint64_t ops;
	uint64_t bytes;
	struct load_dax_counts dax;
};

static void look(struct load_progress *p)
{
	struct load_run *run = p->run;
	uint64_t now = util_now_ns(), ops = 0, bytes = 0;
	double s = (double)(now - p->at) / 1e9;

	for (unsigned int i = 0; i < run->nworkers; i++) {
		ops += __atomic_load_n(&run->workers[i].done, __ATOMIC_RELAXED);
		bytes += __atomic_load_n(&run->workers[i].bytes, __ATOMIC_RELAXED);
	}
	fprintf(stderr, "  %4.0f s: %9.0f operations/s, %7.1f MiB/s",
		(double)(now - run->start_ns) / 1e9, (double)(ops - p->ops) / s,
		(double)(bytes - p->bytes) / s / 1048576);
	if (run->dax) {
		struct load_dax_counts d;

		load_dax_counts(load_dax_of(run->dax), &d);
		fprintf(stderr,
			"; window: %" G_GUINT64_FORMAT " hits, %" G_GUINT64_FORMAT
			" maps, %" G_GUINT64_FORMAT " removes",
			d.hits - p->dax.hits, d.maps - p->dax.maps, d.removes - p->dax.removes);
		p->dax = d;
	}
	fputc('\n', stderr);
	p->at = now;
	p->ops = ops;
	p->bytes = bytes;
}

static gpointer progress_thread(gpointer data)
{
	struct load_progress *p = data;

	util_mutex_lock(&p->lock);
	while (!p->stop) {
		if (util_cond_wait_until(&p->cond, &p->lock, p->at + EACH_NS) || p->stop)
			continue;
		util_mutex_unlock(&p->lock);
		look(p);
		util_mutex_lock(&p->lock);
	}
	util_mutex_unlock(&p->lock);
	return NULL;
}

struct load_progress *load_progress_start(struct load_run *run)
{
	struct load_progress *p = g_new0(struct load_progress, 1);

	p->run = run;
	p->at = run->start_ns;
	util_mutex_init(&p->lock);
	util_cond_init(&p->cond);
	p->thread = g_thread_new("progress", progress_thread, p);
	return p;
}

void load_progress_stop(struct load_progress *p)
{
	if (!p)
		return;
	util_mutex_lock(&p->lock);
	p->stop = true;
	util_cond_broadcast(&p->cond);
	util_mutex_unlock(&p->lock);
	g_thread_join(p->thread);
	util_cond_destroy(&p->cond);
	util_mutex_destroy(&p->lock);
	g_free(p);
}
