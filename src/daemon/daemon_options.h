/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one table is the source of the parser, of --help and of the checks. */
#ifndef DAXMAP_DAEMON_OPTIONS_H
#define DAXMAP_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <glib.h>

#include <daxmap/table.h>

#include "daemon_log.h"
#include "fs.h"
#include "fuse_session.h"
#include "policy.h"
#include "sandbox.h"
#include "hold.h"
#include "shim.h"

#define DAEMON_GRANULE (2ull << 20) /* what a Linux guest maps at a time */

enum daemon_slots {
	DAEMON_SLOTS_REFUSE,
	DAEMON_SLOTS_ACK,
};

enum daemon_dialect {
	DAEMON_DIALECT_SHMEM,
	DAEMON_DIALECT_FS_MAP,
};

/** enum daemon_dax - what --dax says */
enum daemon_dax {
	DAEMON_DAX_INODE,
	DAEMON_DAX_ALWAYS,
	DAEMON_DAX_NEVER,
};

/** enum daemon_io_uring - what --io-uring says */
enum daemon_io_uring {
	DAEMON_IO_URING_AUTO,
	DAEMON_IO_URING_OFF,
};

enum daemon_guard {
	DAEMON_GUARD_ON,
	DAEMON_GUARD_OFF,
};

/**
 * struct daemon_config - the command line, checked
 *
 * Strings are owned. Choices are ints that hold the enum named beside them, for the table's sake.
 */
struct daemon_config {
	char *socket_path;
	int64_t fd; /* listening socket; -1 = none */
	char *socket_group;
	char *control_path;
	char *metrics_socket;
	bool persistent;

	char *shared_dir;
	char *tag;
	int cache; /* enum fs_cache_mode */
	bool readonly;
	bool writeback;
	bool allow_mmap;
	bool allow_direct_io;
	bool xattr;
	bool posix_acl;
	bool announce_submounts;
	bool killpriv_v2;
	bool readdirplus;
	bool flock;

	uint64_t cache_size;   /* bytes; 0 = no window */
	int dax;	       /* enum daemon_dax */
	int dax_shim;	       /* enum shim_want */
	int dax_hold;	       /* enum hold_want */
	uint64_t dax_min_size; /* bytes */
	int64_t dax_max_share; /* percent; 0 = no limit */
	char **dax_include;    /* globs, NULL = all */
	char **dax_exclude;
	int dax_guard;	  /* enum daemon_guard */
	int dax_prefetch; /* enum policy_prefetch_mode */
	int dialect;	  /* enum daemon_dialect */
	int slots;	  /* enum daemon_slots */
	int64_t max_mappings;
	int manager;	    /* enum dm_manager */
	int reclaim;	    /* enum dm_policy */
	int64_t high_water; /* percent */
	int64_t low_water;  /* percent */
	int64_t linger_ms;  /* 0 = by cost */
	char *dax_trace;    /* file; NULL = none */
	uint64_t dax_trace_size;
	bool trace_names;

	int64_t num_request_queues;
	int64_t thread_pool_size; /* -1 = automatic */
	char *queue_cpus;
	int64_t poll_us;
	int io_uring; /* enum daemon_io_uring */

	int sandbox; /* enum sandbox_mode */
	int seccomp; /* enum sandbox_seccomp_mode */
	char *modcaps;
	int64_t rlimit_nofile; /* -1 = as far as allowed */

	int log_level; /* enum daemon_log_level */
	bool syslog;

	bool print_capabilities;
	bool version;
	bool help;
};

#define DAEMON_OPTION_ERROR (daemon_option_error_quark())
GQuark daemon_option_error_quark(void);

void daemon_config_init(struct daemon_config *c);
void daemon_config_clear(struct daemon_config *c);

/**
 * daemon_options_parse() - reads the command line into @c (initialised)
 *
 * False with @error: one sentence with the option, the value and what is allowed. What is
 * required is only checked where none of --help, --version, --print-capabilities is given.
 */
bool daemon_options_parse(struct daemon_config *c, int argc, char **argv, GError **error);

/**
 * daemon_options_set() - changes one option of a configuration that has been parsed
 * @name: without the dashes
 *
 * Parsed and checked as on the command line, alone and together with the others, with the same
 * complaints. Only for numbers, sizes and choices. False with @error, and @c as it was.
 */
bool daemon_options_set(struct daemon_config *c, const char *name, const char *value,
			GError **error);

/**
 * daemon_options_foreach() - calls @fn for each option, in the order of --help, with its value as
 * it would be given, and with what is allowed. Not for those that only print something and end.
 */
void daemon_options_foreach(const struct daemon_config *c,
			    void (*fn)(void *ctx, const char *name, const char *value,
				       const char *allowed),
			    void *ctx);

/** daemon_options_help() - the text of --help; the caller frees it. */
char *daemon_options_help(void);

/** daemon_options_warnings() - what is legal but will disappoint; NULL-terminated, may be
 * empty; the caller frees it. */
GStrv daemon_options_warnings(const struct daemon_config *c);

/** daemon_config_slots() - how many slots of the granule the window has. */
uint64_t daemon_config_slots(const struct daemon_config *c);

#endif
