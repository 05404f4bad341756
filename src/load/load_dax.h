/* SPDX-License-Identifier: Apache-2.0 */
/* Files through the DAX window. */
#ifndef DAXMAP_LOAD_DAX_H
#define DAXMAP_LOAD_DAX_H

#include "load_run.h"

/** struct load_dax_counts - what the window did */
struct load_dax_counts {
	uint64_t hits;
	uint64_t maps;
	uint64_t removes;
	uint64_t elided;
	uint64_t reclaimed;
};

/** load_dax_new() - over the window of the connected and initialised @run; NULL with *@why (to be
 * freed) */
struct load_dax *load_dax_new(struct load_run *run, char **why);
void load_dax_free(struct load_dax *d);

/** load_dax_key() - what a trace knows @file by */
struct dm_file_key load_dax_key(const struct load_dax *d, unsigned int file);

/**
 * load_dax_io() - @len bytes at @offset of @file to or from @buf
 *
 * 0; -EAGAIN: to be done by a request; other errno.
 */
int load_dax_io(struct load_dax *d, unsigned int file, uint64_t offset, void *buf, uint64_t len,
		bool write);
/** load_dax_note_read() - a READ or WRITE begun at @start_ns has been answered, one of @in_flight */
void load_dax_note_read(struct load_dax *d, uint64_t start_ns, unsigned int in_flight);
/** load_dax_admission() - what @c says, or stands for */
enum guest_admission load_dax_admission(const struct load_config *c);
/** load_dax_files() - a window and its table alone; NULL with *@why (to be freed) */
struct guest_files *load_dax_files(struct load_run *run, char **why);
struct guest_files *load_dax_of(struct load_dax *d);
void load_dax_counts(struct guest_files *fs, struct load_dax_counts *out);

#endif
