/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw client's ground: a share in a temporary directory, a daemon serving it, a user-space
 * guest connected to it.
 *
 * Environment: DAXMAPD the daemon's path; RAW_ARGS options for every daemon started, beside those
 * that a test gives; RAW_PEER a virtiofsd (C) to run instead, by hand.
 */
#ifndef DAXMAP_RAW_UTIL_H
#define DAXMAP_RAW_UTIL_H

#include <glib.h>

#include "guest.h"

#define RAW_SLOT (2ull << 20)
#define RAW_TIMEOUT 30000

/**
 * struct raw - one daemon, its share, and a guest
 * @base: temporary directory; @share: what is served; @log: file with the daemon's stderr
 */
struct raw {
	char *base;
	char *share;
	char *log;
	char *socket;
	char *control;
	int listen;
	int pid;
	struct guest_frontend *fe;
	struct guest_fuse *fuse;
	struct guest_mem *mem;
	struct guest_window *window;
	bool persistent;
	bool lenient; /* malformed requests are sent: replies are not judged */
};

/** raw_start() - makes the share and starts a daemon with @args (space separated; may be NULL)
 * beside RAW_ARGS. Nobody is connected. */
struct raw *raw_start(const char *args);
/** raw_connect() - connects a guest made of @c (NULL: defaults, window strict), starts the device,
 * INITs. */
void raw_connect(struct raw *r, const struct guest_config *c);
/** raw_connect_only() - the same without start and INIT */
void raw_connect_only(struct raw *r, const struct guest_config *c);
/** raw_leave() - the guest goes away; no rule of the window may have been broken, no reply been
 * malformed. */
void raw_leave(struct raw *r);
/** raw_stop() - leaves, expects the daemon to exit 0 (one with --persistent is sent SIGTERM), that
 * its log shows no sanitizer report, and removes everything. */
void raw_stop(struct raw *r);
/** raw_wait_exit() - waits for the daemon's exit; the wait status */
int raw_wait_exit(struct raw *r);

/** raw_peer() - true when a virtiofsd is run by hand: tests of our own rules are skipped */
bool raw_peer(void);
/** raw_path() - path of @name in the share; to be freed */
char *raw_path(struct raw *r, const char *name);
/** raw_make_file() - a file of @size bytes, each 8 bytes holding file seed and offset */
void raw_make_file(struct raw *r, const char *name, uint64_t size, uint64_t seed);
/** raw_check_bytes() - compares @len bytes at @p with what raw_make_file() put at @off */
bool raw_check_bytes(const void *p, uint64_t off, uint64_t len, uint64_t seed);
/** raw_node() - looks @path up; the node id */
uint64_t raw_node(struct raw *r, const char *path);
/** raw_daemon_pid() - the process that serves: the daemon or a child of its (the one with most
 * threads) */
int raw_daemon_pid(struct raw *r);
/** raw_count_fds()/threads() - of the serving process, by /proc */
unsigned int raw_count_fds(struct raw *r);
unsigned int raw_count_threads(struct raw *r);
/** raw_wait_fds() - waits until the serving process has @n descriptors (it may still be closing
 * some after a session); the number then */
unsigned int raw_wait_fds(struct raw *r, unsigned int n);
/** raw_stat() - a counter from the daemon's control socket, as "table.live"; -1 where there is
 * none */
int64_t raw_stat(struct raw *r, const char *path);
/** raw_wait_stat() - waits until a counter is @want; what it is in the end */
int64_t raw_wait_stat(struct raw *r, const char *path, int64_t want);
/** raw_log_text() - what the daemon logged so far; to be freed */
char *raw_log_text(struct raw *r);
/** raw_log_lines() - how many of its lines contain @what */
unsigned int raw_log_lines(struct raw *r, const char *what);
/** raw_wait_log() - waits until a line contains @what, @n times in all */
bool raw_wait_log(struct raw *r, const char *what, unsigned int n);

/** raw_chain() - submits descriptors as they are to ring @queue and waits for the chain to come
 * back; bytes written by the device, or -ETIMEDOUT: it stays in flight */
ssize_t raw_chain(struct raw *r, unsigned int queue, const struct guest_desc *d, unsigned int n);
/** raw_gpa() - guest-physical address of a pointer into guest memory */
uint64_t raw_gpa(struct raw *r, const void *p);

#define raw_assert_err(call, err) g_assert_cmpint((int)(call), ==, -(err))
#define raw_assert_ok(call) g_assert_cmpint((int)(call), ==, 0)

#endif
