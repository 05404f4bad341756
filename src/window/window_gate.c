// SPDX-License-Identifier: Apache-2.0
#include "window_gate.h"

#include <errno.h>

void window_gate_init(struct window_gate *g)
{
	util_mutex_init(&g->lock);
	util_cond_init(&g->changed);
	g->channel = NULL;
	g->running = false;
	g->resets = 0;
	g->to_forget = g->forgotten = 0;
}

void window_gate_destroy(struct window_gate *g)
{
	util_cond_destroy(&g->changed);
	util_mutex_destroy(&g->lock);
}

void window_gate_running(struct window_gate *g, bool running)
{
	util_mutex_lock(&g->lock);
	g->running = running;
	util_cond_broadcast(&g->changed);
	util_mutex_unlock(&g->lock);
}

void window_gate_reset_locked(struct window_gate *g)
{
	g->resets++;
	g->to_forget++;
	util_cond_broadcast(&g->changed);
}

void window_gate_channel(struct window_gate *g, struct vhost_backend *b)
{
	util_mutex_lock(&g->lock);
	g->channel = b;
	util_cond_broadcast(&g->changed);
	util_mutex_unlock(&g->lock);
}

uint64_t window_gate_to_forget(struct window_gate *g)
{
	uint64_t n;

	util_mutex_lock(&g->lock);
	n = g->to_forget;
	util_mutex_unlock(&g->lock);
	return n;
}

void window_gate_forgotten(struct window_gate *g, uint64_t n)
{
	util_mutex_lock(&g->lock);
	g->forgotten = n;
	util_mutex_unlock(&g->lock);
}

int window_gate_begin(struct window_gate *g, uint64_t *resets)
{
	int err;

	util_mutex_lock(&g->lock);
	*resets = g->resets;
	err = g->channel ? 0 : -EPIPE;
	util_mutex_unlock(&g->lock);
	return err;
}

static bool may_go_locked(const struct window_gate *g, uint64_t resets) UTIL_REQUIRES(g->lock)
{
	return g->resets == resets && g->to_forget == g->forgotten;
}

int window_gate_enter_locked(struct window_gate *g, uint64_t resets, struct vhost_backend **b)
{
	while (g->channel && !g->running && may_go_locked(g, resets))
		util_cond_wait(&g->changed, &g->lock);
	if (!g->channel)
		return -EPIPE;
	if (!may_go_locked(g, resets))
		return -ECANCELED;
	*b = g->channel;
	return 0;
}
