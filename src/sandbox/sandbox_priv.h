/* SPDX-License-Identifier: Apache-2.0 */
/* Not for other folders. */
#ifndef DAXMAP_SANDBOX_PRIV_H
#define DAXMAP_SANDBOX_PRIV_H

#include "sandbox.h"

/** sandbox_seccomp_action() - libseccomp's for what is not allowed; @mode is not NONE. */
uint32_t sandbox_seccomp_action(enum sandbox_seccomp_mode mode);

#endif
