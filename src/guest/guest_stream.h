/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who goes through a file in order? Policy alone. Theory of operation: guest_stream.c.
 * Threads: any; no locks; all zero is a good start.
 */
#ifndef DAXMAP_GUEST_STREAM_H
#define DAXMAP_GUEST_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#define GUEST_STREAMS 16u

struct guest_streams {
	uint64_t s[GUEST_STREAMS]; /* atomic: the slot to come << 8 | slots so far */
	uint32_t hand;		   /* atomic */
};

/** guest_stream_enter() - slot number @slot (below 2^48) of the file was used from its first byte
 * on. How many slots in a row, with this one, that makes: 1 is no stream yet; at most 255. */
unsigned int guest_stream_enter(struct guest_streams *streams, uint64_t slot);
/** guest_stream_in() - is slot number @slot the last one so far of a stream of at least @length? */
bool guest_stream_in(struct guest_streams *streams, uint64_t slot, unsigned int length);

#endif
