// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * Only entering a slot at its first byte is looked at, once in a slot for who goes in order. Each
 * entry of the table is a slot that would make a stream longer. Who enters one moves it on; who
 * enters another takes a place, first that of one that was never moved on. Passing over a stream
 * ages it by one, so what has ended goes in time.
 *
 * Loads and stores are plain: two threads at one entry may lose a step, and a stream is seen one
 * slot later.
 */
#include <glib.h>

#include "guest_stream.h"

#define LENGTH 0xffu

static uint64_t get(struct guest_streams *t, unsigned int i)
{
	return __atomic_load_n(&t->s[i], __ATOMIC_RELAXED);
}

static void set(struct guest_streams *t, unsigned int i, uint64_t next, unsigned int length)
{
	__atomic_store_n(&t->s[i], next << 8 | length, __ATOMIC_RELAXED);
}

unsigned int guest_stream_enter(struct guest_streams *t, uint64_t slot)
{
	uint32_t hand = __atomic_load_n(&t->hand, __ATOMIC_RELAXED);

	for (unsigned int i = 0; i < GUEST_STREAMS; i++) {
		unsigned int length = get(t, i) & LENGTH;

		if (!length || get(t, i) >> 8 != slot)
			continue;
		length = MIN(length + 1, LENGTH);
		set(t, i, slot + 1, length);
		return length;
	}
	for (unsigned int i = 0; i < GUEST_STREAMS; i++) {
		unsigned int at = hand++ % GUEST_STREAMS;
		unsigned int length = get(t, at) & LENGTH;

		if (length > 1 && i < GUEST_STREAMS - 1) {
			set(t, at, get(t, at) >> 8, length - 1);
			continue;
		}
		set(t, at, slot + 1, 1);
		break;
	}
	__atomic_store_n(&t->hand, hand, __ATOMIC_RELAXED);
	return 1;
}

bool guest_stream_in(struct guest_streams *t, uint64_t slot, unsigned int length)
{
	for (unsigned int i = 0; i < GUEST_STREAMS; i++)
		if ((get(t, i) & LENGTH) >= length && get(t, i) >> 8 == slot + 1)
			return true;
	return false;
}
