// SPDX-License-Identifier: Apache-2.0
/*
 * Each block stands at the time of its last use on a line of marks, and its distance is the number
 * of marks from there to the end. The line is a bitmap with a Fenwick tree over its words, so that
 * the tree of a million blocks still lies in a CPU's cache. When the line is full its marks are
 * pushed together; the line is at least twice as long as there are blocks, so that costs a constant
 * an access.
 */
#include "size_stack.h"

#include <string.h>

#include <glib.h>

#define WORD 64u
#define FIRST_LENGTH 4096u

struct size_stack {
	uint32_t *when; /* by block: its place on the line */
	uint32_t n;	/* blocks known */
	uint32_t room;	/* of when */
	uint64_t *marks;
	uint32_t *tree;
	uint32_t *who; /* by place */
	uint32_t length;
	uint32_t now;
	uint64_t *hist; /* by distance - 1; room entries */
	uint64_t total;
};

static void make_line(struct size_stack *s, uint32_t length)
{
	s->length = length;
	s->marks = g_new0(uint64_t, length / WORD);
	s->tree = g_new0(uint32_t, length / WORD + 1);
	s->who = g_new(uint32_t, length);
	s->now = 0;
}

struct size_stack *size_stack_new(void)
{
	struct size_stack *s = g_new0(struct size_stack, 1);

	make_line(s, FIRST_LENGTH);
	return s;
}

static void drop_line(struct size_stack *s)
{
	g_free(s->marks);
	g_free(s->tree);
	g_free(s->who);
}

void size_stack_free(struct size_stack *s)
{
	if (!s)
		return;
	drop_line(s);
	g_free(s->when);
	g_free(s->hist);
	g_free(s);
}

static void tree_add(struct size_stack *s, uint32_t word, uint32_t by)
{
	uint32_t words = s->length / WORD;

	for (uint32_t i = word + 1; i <= words; i += i & -i)
		s->tree[i] += by;
}

/* Marks in words before @word. */
static uint32_t tree_sum(const struct size_stack *s, uint32_t word)
{
	uint32_t sum = 0;

	for (uint32_t i = word; i; i &= i - 1)
		sum += s->tree[i];
	return sum;
}

static void mark(struct size_stack *s, uint32_t id)
{
	s->when[id] = s->now;
	s->who[s->now] = id;
	s->marks[s->now / WORD] |= UINT64_C(1) << s->now % WORD;
	tree_add(s, s->now / WORD, 1);
	s->now++;
}

static void unmark(struct size_stack *s, uint32_t at)
{
	s->marks[at / WORD] &= ~(UINT64_C(1) << at % WORD);
	tree_add(s, at / WORD, (uint32_t)-1);
}

static void push_together(struct size_stack *s)
{
	struct size_stack old = *s;
	uint32_t length = s->length;

	while (length < 4 * s->n)
		length *= 2;
	make_line(s, length);
	for (uint32_t w = 0; w < old.length / WORD; w++) {
		for (uint64_t m = old.marks[w]; m; m &= m - 1)
			mark(s, old.who[w * WORD + (uint32_t)__builtin_ctzll(m)]);
	}
	drop_line(&old);
}

static void make_room(struct size_stack *s, uint32_t id)
{
	uint32_t room = MAX(s->room, 1024u);

	while (room <= id)
		room *= 2;
	s->when = g_renew(uint32_t, s->when, room);
	s->hist = g_renew(uint64_t, s->hist, room);
	memset(s->hist + s->room, 0, (room - s->room) * sizeof(*s->hist));
	s->room = room;
}

uint32_t size_stack_access(struct size_stack *s, uint32_t id)
{
	uint32_t distance = 0;

	if (id >= s->room)
		make_room(s, id);
	if (s->now == s->length)
		push_together(s);
	s->total++;
	if (id >= s->n) {
		g_assert(id == s->n); /* numbered in the order of first use */
		s->n++;
	} else {
		uint32_t at = s->when[id];
		uint64_t below = s->marks[at / WORD] & ((UINT64_C(1) << at % WORD) - 1);

		distance = s->n - tree_sum(s, at / WORD) - (uint32_t)__builtin_popcountll(below);
		unmark(s, at);
		s->hist[distance - 1]++;
	}
	mark(s, id);
	return distance;
}

uint64_t size_stack_misses(const struct size_stack *s, uint32_t blocks)
{
	uint64_t hits = 0;

	for (uint32_t d = 0; d < MIN(blocks, s->n); d++)
		hits += s->hist[d];
	return s->total - hits;
}

uint64_t size_stack_total(const struct size_stack *s)
{
	return s->total;
}

uint32_t size_stack_blocks(const struct size_stack *s)
{
	return s->n;
}
