/* SPDX-License-Identifier: Apache-2.0 */
/* USDT probes (provider "daxmap"), or nothing where sys/sdt.h was not found at build time. */
#ifndef DAXMAP_DM_PROBE_H
#define DAXMAP_DM_PROBE_H

#ifdef DM_HAVE_SDT
#include <sys/sdt.h>
#define DM_PROBE2(name, a, b) DTRACE_PROBE2(daxmap, name, a, b)
#define DM_PROBE3(name, a, b, c) DTRACE_PROBE3(daxmap, name, a, b, c)
#else
#define DM_PROBE2(name, a, b)                                                                      \
	do {                                                                                       \
	} while (0)
#define DM_PROBE3(name, a, b, c)                                                                   \
	do {                                                                                       \
	} while (0)
#endif

#endif
