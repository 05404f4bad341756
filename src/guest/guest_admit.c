// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Uses are counted in a sketch: each slot's worth of a file has a counter in each of four rows,
 * and its estimate is the smallest of them. After PERIOD uses for each slot of the window all
 * counters are halved, so an estimate stands for one to two periods, the newer half weighing more.
 *
 * A map is paid once and earns (uses to come) x (what a read by request costs). Uses to come are
 * taken as the estimate for HORIZON more periods, or ROOMY where it takes nobody's place, and the
 * map must earn itself back twice over.
 *
 * When the window is full a map costs another one its place. Who would go is the table's choice;
 * the coldest of a few residents taken at random stands for it. The newcomer must beat it by more
 * than chance would: by NOISE standard deviations of the difference of two counts. Without that a
 * uniform load would swap equals for ever, each swap a round trip or several; with it the window
 * fills once, keeps what it has, and everything else is read by request.
 *
 * Residents are remembered in the order of admission, as many as there are slots. The table evicts
 * as it likes, so some of them have gone: their counts are then those of a loser, which makes the
 * policy a little more willing.
 *
 * All counters are updated with plain loads and stores, so that a use costs nanoseconds: a lost
 * update is a use not counted.
 */
#include <math.h>

#include <glib.h>

#include "guest_admit.h"

#define ROWS 4u
#define PERIOD 1024u
#define SAMPLE 4u /* one in so many is counted, as so many */
#define HORIZON 2.0
#define ROOMY 8.0
#define MARGIN 2.0
#define NOISE 3.0
#define TRIES 4u
#define MIN_USES 2u
#define FIRST_MAP_NS 200000.0 /* until one was measured */
#define FIRST_READ_NS 10000.0

struct guest_admit {
	uint32_t slots;
	uint32_t width; /* of a row, a power of two */
	uint16_t *rows[ROWS];
	uint64_t *residents;
	uint64_t admitted; /* atomic */
	uint64_t period;
	double map_ns; /* atomic, averages */
	double read_ns;
	uint64_t uses __attribute__((aligned(64))); /* atomic, of this period */
	bool halving;				    /* atomic */
};

struct guest_admit *guest_admit_new(uint32_t slots)
{
	struct guest_admit *a = g_aligned_alloc0(1, sizeof(*a), 64);

	a->slots = MAX(slots, 1);
	a->width = 1024;
	while (a->width < PERIOD / 4 * a->slots && a->width < 1u << 20)
		a->width *= 2;
	for (unsigned int i = 0; i < ROWS; i++)
		a->rows[i] = g_new0(uint16_t, a->width);
	a->residents = g_new0(uint64_t, a->slots);
	a->period = (uint64_t)PERIOD * a->slots;
	a->map_ns = FIRST_MAP_NS;
	a->read_ns = FIRST_READ_NS;
	return a;
}

void guest_admit_free(struct guest_admit *a)
{
	if (!a)
		return;
	for (unsigned int i = 0; i < ROWS; i++)
		g_free(a->rows[i]);
	g_free(a->residents);
	g_aligned_free(a);
}

void guest_admit_forget(struct guest_admit *a)
{
	__atomic_store_n(&a->admitted, 0, __ATOMIC_RELAXED);
}

/* --- the sketch --- */

static uint16_t *cell(struct guest_admit *a, unsigned int row, uint64_t hash)
{
	/* Two independent halves give all rows (Kirsch, Mitzenmacher 2006). */
	uint64_t h = (hash & 0xffffffffu) + row * ((hash >> 32) | 1);

	return &a->rows[row][h & (a->width - 1)];
}

static uint32_t estimate(struct guest_admit *a, uint64_t hash)
{
	uint32_t least = UINT16_MAX;

	for (unsigned int i = 0; i < ROWS; i++)
		least = MIN(least, __atomic_load_n(cell(a, i, hash), __ATOMIC_RELAXED));
	return least;
}

static void halve(struct guest_admit *a)
{
	if (__atomic_exchange_n(&a->halving, true, __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&a->uses, 0, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < ROWS; i++) {
		for (uint32_t k = 0; k < a->width; k++) {
			uint16_t v = __atomic_load_n(&a->rows[i][k], __ATOMIC_RELAXED);

			if (v)
				__atomic_store_n(&a->rows[i][k], v / 2, __ATOMIC_RELAXED);
		}
	}
	__atomic_store_n(&a->halving, false, __ATOMIC_RELEASE);
}

/* Counts @n uses; the estimate with them. */
static uint32_t use(struct guest_admit *a, uint64_t hash, uint32_t n)
{
	uint32_t now = MIN(estimate(a, hash) + n, UINT16_MAX);
	uint64_t uses = __atomic_load_n(&a->uses, __ATOMIC_RELAXED) + n;

	/* Only what is below the new estimate is raised: others that share a cell lose less. */
	for (unsigned int i = 0; i < ROWS; i++) {
		uint16_t *c = cell(a, i, hash);

		if (__atomic_load_n(c, __ATOMIC_RELAXED) < now)
			__atomic_store_n(c, (uint16_t)now, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&a->uses, uses, __ATOMIC_RELAXED);
	if (uses >= a->period)
		halve(a);
	return now;
}

/* --- costs --- */

static double get_avg(const double *avg)
{
	double v;

	__atomic_load(avg, &v, __ATOMIC_RELAXED);
	return v;
}

static void average(double *avg, double ns)
{
	double v = get_avg(avg);

	/* What was preempted for milliseconds says nothing of the cost. */
	v += (MIN(ns, 16 * v) - v) / 16;
	__atomic_store(avg, &v, __ATOMIC_RELAXED);
}

void guest_admit_read(struct guest_admit *a, uint64_t ns, unsigned int in_flight)
{
	average(&a->read_ns, (double)ns / MAX(in_flight, 1));
}

void guest_admit_mapped(struct guest_admit *a, uint64_t hash, uint64_t ns)
{
	uint64_t n = __atomic_fetch_add(&a->admitted, 1, __ATOMIC_RELAXED);

	__atomic_store_n(&a->residents[n % a->slots], hash, __ATOMIC_RELAXED);
	average(&a->map_ns, (double)ns);
}

/* --- deciding --- */

static uint32_t chance(void)
{
	static __thread uint32_t rng = 1;

	rng = rng * 1664525u + 1013904223u;
	return rng >> 8;
}

void guest_admit_hit(struct guest_admit *a, uint64_t hash)
{
	if (chance() % SAMPLE == 0)
		use(a, hash, SAMPLE);
}

static uint32_t coldest(struct guest_admit *a)
{
	uint32_t least = UINT32_MAX;

	for (unsigned int i = 0; i < TRIES; i++)
		least = MIN(least, estimate(a, __atomic_load_n(&a->residents[chance() % a->slots],
							       __ATOMIC_RELAXED)));
	return least;
}

bool guest_admit_stream(struct guest_admit *a, uint64_t ops)
{
	return (double)ops * get_avg(&a->read_ns) > MARGIN * get_avg(&a->map_ns);
}

bool guest_admit_full(struct guest_admit *a)
{
	return __atomic_load_n(&a->admitted, __ATOMIC_RELAXED) >= a->slots;
}

bool guest_admit_miss(struct guest_admit *a, uint64_t hash)
{
	bool full = guest_admit_full(a);
	double mine, other;

	if (full && chance() % SAMPLE)
		return false;
	mine = use(a, hash, full ? SAMPLE : 1);
	if (mine < MIN_USES)
		return false;
	if (!full)
		return mine * ROOMY * get_avg(&a->read_ns) > MARGIN * get_avg(&a->map_ns);
	other = coldest(a);
	if (mine - other < NOISE * sqrt(SAMPLE * (mine + other)))
		return false;
	return (mine - other) * HORIZON * get_avg(&a->read_ns) > MARGIN * get_avg(&a->map_ns);
}
