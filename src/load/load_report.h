/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_LOAD_REPORT_H
#define DAXMAP_LOAD_REPORT_H

#include "load_dax.h"
#include "load_run.h"

/** struct load_result - what came out; CPU time in ns, -1 unknown */
struct load_result {
	double seconds;
	uint64_t ops;
	uint64_t bytes;
	uint64_t by_read;
	uint64_t verify_errors;
	uint64_t violations;
	char *violation; /* the first */
	char *fault;	 /* malformed reply */
	int64_t daemon_cpu;
	int64_t load_cpu;
	struct load_hist hist;
	struct load_dax_counts dax;
};

void load_report_json(const struct load_run *run, const struct load_result *r);
void load_report_text(const struct load_run *run, const struct load_result *r);

#endif
