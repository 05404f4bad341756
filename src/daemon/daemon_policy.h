/* SPDX-License-Identifier: Apache-2.0 */
/* src/policy and src/watch put to work: they are told what happens and asked for marks and sizes,
 * and what the policy wishes is read ahead.
 */
#ifndef DAXMAP_DAEMON_POLICY_H
#define DAXMAP_DAEMON_POLICY_H

#include <daxmap/window.h>

#include "daemon_options.h"
#include "fs.h"
#include "fuse_session.h"
#include "policy.h"
#include "policy_prefetch.h"
#include "shim.h"
#include "watch.h"

struct daemon_policy;

/** daemon_policy_ops - for struct fuse_config, with the daemon_policy as context */
extern const struct fuse_dax_ops daemon_policy_ops;

/**
 * daemon_policy_new() - for a daemon with a window
 * @fs, @shim, @watch: borrowed; @shim may be NULL
 * @caps: of the window's driver
 *
 * Starts the prefetch thread unless --dax-prefetch=off. Logs what of the share cannot be mapped.
 */
struct daemon_policy *daemon_policy_new(const struct daemon_config *c, struct fs *fs,
					struct shim *shim, struct watch *watch,
					const struct dm_window_caps *caps);
/** daemon_policy_free() - the session has gone, @fs not yet. NULL is allowed. */
void daemon_policy_free(struct daemon_policy *dp);

/** daemon_policy_tune() - takes over what of @c policy_tune() can; starts the prefetch thread when
 * one is wanted and there is none. One thread at a time. */
void daemon_policy_tune(struct daemon_policy *dp, const struct daemon_config *c);

/** daemon_policy_file_stats() - what the policy knows of the file behind @node, and which file of
 * the host it is; false when the guest does not have it any more */
bool daemon_policy_file_stats(struct daemon_policy *dp, uint64_t node, struct policy_file *file,
			      struct policy_file_stats *out);

/** daemon_policy_get_stats() - @prefetch is zero without a prefetch thread */
void daemon_policy_get_stats(struct daemon_policy *dp, struct policy_stats *policy,
			     struct policy_prefetch_stats *prefetch);

#endif
