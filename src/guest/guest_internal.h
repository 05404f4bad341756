/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the parts of the front-end.
 *
 * Locks, in the order in which they are taken:
 *   big      plays QEMU's big lock: held while the device starts or stops, and by the back-end
 *            channel's thread from a request to the end of its commit
 *   regions  what memory the device should know, and what the back-end was told of it
 *            (guest_regions_sync())
 *   chan     one exchange on the main channel (guest_frontend_message())
 *   window.lock, state: leaves
 */
#ifndef DAXMAP_GUEST_INTERNAL_H
#define DAXMAP_GUEST_INTERNAL_H

#include <glib.h>

#include "guest_frontend.h"
#include "util_fd.h"
#include "util_lock.h"

/** struct guest_region - a piece of guest memory; @fd is owned by whoever added it */
struct guest_region {
	struct guest_msg_region r;
	int fd;
};

/** struct guest_regions - all of guest memory, by guest address, and what the back-end has */
struct guest_regions {
	struct util_mutex lock;
	GArray *all;	/* struct guest_region */
	GArray *shadow; /* struct guest_msg_region */
	bool dirty;	/* no slots: the table was changed and not sent */
};

/** struct guest_live - one mapping of the window; @fd is kept for STRICT only */
struct guest_live {
	struct guest_mapping m;
	int fd;
	bool committed;
	bool kept_by_fault; /* its unmap was refused by order (fail_nth) */
};

struct guest_window {
	struct guest_frontend *fe;
	struct guest_window_config config;
	uint8_t *base;
	uint64_t size;

	/* The thread of the back-end channel. */
	GThread *thread;
	int sock;
	int stop; /* eventfd */
	unsigned int served;

	struct util_mutex lock; /* all below */
	struct util_cond cond;
	GArray *live; /* struct guest_live, by offset */
	struct guest_window_stats stats;
	GPtrArray *violations;
	bool hold;
	bool busy; /* accepted and not committed */
	bool stopping;
	bool running; /* the device */
};

struct guest_frontend {
	struct guest_config config;
	char *path;
	struct guest_mem *mem;
	struct guest_ring *rings[GUEST_MAX_QUEUES];
	uint16_t bases[GUEST_MAX_QUEUES];
	GThread *threads[GUEST_MAX_QUEUES];
	unsigned int nrings; /* hiprio included */
	guest_ring_done done;

	uint64_t offered;
	uint64_t features;
	uint64_t offered_protocol;
	uint64_t protocol;
	uint64_t queue_max;
	uint64_t slots;
	struct guest_fs_config space;
	char tag[37];
	int peer_pid;

	struct util_mutex big;
	struct guest_regions regions;
	struct util_mutex chan;
	int sock;

	GThread *monitor;
	int stop;		 /* eventfd for the monitor */
	struct util_mutex state; /* the two below */
	struct util_cond state_cond;
	bool dead;
	bool running;
	bool closing; /* atomic: completion threads end */
	struct guest_window window;
};

/** guest_frontend_set_msg() - a message without an answer of its own; asks for an
 * acknowledgement where REPLY_ACK allows. 0, -EIO when the back-end refused, or as
 * guest_frontend_message(). */
int guest_frontend_set_msg(struct guest_frontend *f, uint32_t request, const void *payload,
			   uint32_t size, int fd);
/** guest_frontend_get_u64() - a message answered by a number */
int guest_frontend_get_u64(struct guest_frontend *f, uint32_t request, uint64_t *v);
/** guest_frontend_mark_dead() - the back-end has gone: everything in flight fails. Any thread. */
void guest_frontend_mark_dead(struct guest_frontend *f);

void guest_regions_init(struct guest_regions *g);
void guest_regions_destroy(struct guest_regions *g);
/** guest_regions_forget() - the back-end knows nothing any more (it is another one). */
void guest_regions_forget(struct guest_regions *g);
void guest_regions_add(struct guest_regions *g, const struct guest_msg_region *r, int fd);
/** guest_regions_remove() - by guest address; false when not there */
bool guest_regions_remove(struct guest_regions *g, uint64_t guest_addr);
/** guest_regions_sync() - tells a running (or starting) back-end what has changed, as QEMU does:
 * first removals, then additions by address, ending at the first refusal. 0; -EIO refused; -E2BIG
 * more regions than SET_MEM_TABLE takes. Takes the regions lock across the exchange. */
int guest_regions_sync(struct guest_frontend *f);

int guest_window_open(struct guest_window *w, struct guest_frontend *f);
/** guest_window_set_size() - reserves the address range; before the channel is served */
int guest_window_set_size(struct guest_window *w, uint64_t size);
/** guest_window_serve() - starts the thread on @sock (taken over) */
int guest_window_serve(struct guest_window *w, int sock);
/** guest_window_close() - ends the thread; nothing stays mapped. */
void guest_window_close(struct guest_window *w);
void guest_window_destroy(struct guest_window *w);
/** guest_window_set_running() - tells of start and stop; under the big lock */
void guest_window_set_running(struct guest_window *w, bool running);
/** guest_window_drop() - drops every mapping without a word, as a reset of the VM does; under the
 * big lock */
void guest_window_drop(struct guest_window *w);
/** guest_window_violate() - writes a broken rule down */
void guest_window_violate(struct guest_window *w, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

#endif
