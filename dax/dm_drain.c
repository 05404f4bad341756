// SPDX-License-Identifier: Apache-2.0
/* The glue between the table and reclaim: ranges as candidates, evictions in batches. */
#include "dm_core.h"

#include "dm_probe.h"

static struct dm_range *range_of(struct rc_node *n)
{
	return caa_container_of(n, struct dm_range, rc);
}

static void hold(void *ctx, struct rc_node *n)
{
	dm_range_ref(range_of(n));
}

static void drop(void *ctx, struct rc_node *n)
{
	dm_range_unref(range_of(n));
}

static enum rc_verdict claim(void *ctx, void *batch, struct rc_node *n)
{
	struct dm_core *c = ctx;

	if (c->seat && c->seat->gate && !c->seat->gate(c, range_of(n)))
		return RC_BUSY;
	switch (dm_evict_try(c, batch, range_of(n))) {
	case 0:
		return RC_TAKEN;
	case -EBUSY:
		return RC_BUSY;
	default:
		return RC_GONE;
	}
}

static const struct rc_ops set_ops = {.hold = hold, .claim = claim, .drop = drop};

static void load(void *ctx, struct rc_load *l)
{
	struct dm_core *c = ctx;
	const struct dm_budget *b = &c->budget;

	l->idle = rc_count(c->lingering);
	l->mapped = __atomic_load_n(&b->mapped, __ATOMIC_RELAXED);
	l->budget = b->limit == UINT32_MAX ? 0 : b->limit;
	l->bytes = __atomic_load_n(&b->bytes, __ATOMIC_RELAXED);
	/* a full window is no reason where a map simply replaces what lingers */
	l->window = dm_can(c, DM_WINDOW_OVERLAY) ? 0 : c->caps.size;
	l->dearer = rc_cost_dearer(&c->cost, (uint32_t)l->mapped);
	l->overlay = dm_can(c, DM_WINDOW_OVERLAY);
}

static bool oldest(void *ctx, uint64_t *stamp)
{
	struct dm_core *c = ctx;

	return rc_oldest(c->lingering, stamp);
}

/* Where unmaps stand in the way of maps: one, unless they have fallen behind. */
static size_t batch_now(struct dm_core *c)
{
	size_t owed;

	if (dm_can(c, DM_WINDOW_OVERLAY))
		return c->caps.batch;
	owed = dm_chan_owed(c);
	return owed > 1 && rc_count(c->lingering) > DM_PATIENT_MAX ? DM_PATIENT_MAX : owed;
}

/* Evicts up to @want that linger since before @before_ns, until the driver refuses one; *@ok: it
 * did not. Returns how many went. */
static size_t evict(struct dm_core *c, size_t want, uint64_t before_ns, bool *ok)
{
	bool overlay = dm_can(c, DM_WINDOW_OVERLAY);
	size_t busy = 0, n, done = 0;
	struct dm_evict e;

	/* where unmaps stand in the way of maps: as few as will do, each in its moment */
	dm_evict_init(&e, overlay ? c->caps.batch : DM_PATIENT_MAX, true);
	e.req.patient = !overlay;
	while (done < want && *ok) {
		n = dm_evict_oldest(c, &e, MIN(batch_now(c), want - done), before_ns, &busy);
		if (n == 0)
			break;
		DM_PROBE2(reclaim, n, rc_count(c->lingering));
		*ok = dm_evict_run(c, &e, DM_C_deferred_unmaps) == 0;
		if (*ok)
			done += n;
	}
	dm_evict_destroy(&e);
	dm_count(c, DM_C_reclaim_skipped, busy);
	return done;
}

static enum rc_drained drain(void *ctx, size_t want, uint64_t before_ns)
{
	struct dm_core *c = ctx;
	bool ok = true;
	size_t n = 0, aged = 0;

	if (dm_core_broken(c))
		return RC_REFUSED;
	if (want)
		n = evict(c, want, UINT64_MAX, &ok);
	if (ok && before_ns)
		aged = evict(c, SIZE_MAX, before_ns, &ok);
	if (!ok) /* after some progress it is worth another try soon */
		return n + aged ? RC_IN_USE : RC_REFUSED;
	return n < want ? RC_IN_USE : RC_DRAINED;
}

static const struct rc_worker_ops worker_ops = {.load = load, .drain = drain, .oldest = oldest};

static enum rc_policy policy_of(const struct dm_table_config *config)
{
	return config->policy == DM_POLICY_CLOCK ? RC_CLOCK : RC_FIFO;
}

static struct rc_marks marks_of(const struct dm_table_config *config)
{
	return (struct rc_marks){
		.high = config->high_watermark ? config->high_watermark : DM_HIGH_WATERMARK,
		.low = config->low_watermark ? config->low_watermark : DM_LOW_WATERMARK,
		.linger_ns = config->linger_ms * UINT64_C(1000000),
	};
}

void dm_drain_init(struct dm_core *c, const struct dm_table_config *config)
{
	c->lingering = rc_set_new(policy_of(config), &set_ops, c);
	c->marks = marks_of(config);
	if (!config->no_worker && !c->forward)
		c->worker = rc_worker_new(&c->marks, &worker_ops, c);
}

void dm_drain_kick(struct dm_core *c)
{
	struct rc_marks marks = rc_marks_load(&c->marks);
	struct rc_load l = {0};

	if (!c->worker || rc_count(c->lingering) == 0)
		return;
	load(c, &l);
	rc_worker_kick(c->worker, rc_above_high(&l, &marks));
}

void dm_drain_tune(struct dm_core *c, const struct dm_table_config *config)
{
	struct rc_marks marks = marks_of(config);

	rc_set_set_policy(c->lingering, policy_of(config));
	rc_marks_store(&c->marks, &marks);
	rc_worker_look(c->worker);
}

void dm_drain_destroy(struct dm_core *c)
{
	rc_worker_free(c->worker);
	c->worker = NULL;
}
