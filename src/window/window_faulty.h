/* SPDX-License-Identifier: Apache-2.0 */
/* Faults as a layer: a window driver over another one that refuses, disconnects and holds up. */
#ifndef DAXMAP_WINDOW_FAULTY_H
#define DAXMAP_WINDOW_FAULTY_H

#include <daxmap/window.h>

/** window_faulty_new() - over @inner, which it owns from now on. Passes everything at first. */
struct dm_window *window_faulty_new(struct dm_window *inner, uint64_t seed);

/** window_faulty_set_rates() - chances in 65536, of each operation to be refused (EIO), and of
 * each submit to break the channel half way. */
void window_faulty_set_rates(struct dm_window *w, uint32_t refuse_map, uint32_t refuse_unmap,
			     uint32_t disconnect);

/** window_faulty_disconnect() - the channel is broken: every submit is -EPIPE, until
 * window_faulty_reconnect(). */
void window_faulty_disconnect(struct dm_window *w);
void window_faulty_reconnect(struct dm_window *w);
bool window_faulty_broken(struct dm_window *w);

/** window_faulty_hold() - submits stop before they do anything, until let go. */
void window_faulty_hold(struct dm_window *w);
/** window_faulty_wait_held() - waits until a submit has stopped there. */
void window_faulty_wait_held(struct dm_window *w);
void window_faulty_let_go(struct dm_window *w);

#endif
