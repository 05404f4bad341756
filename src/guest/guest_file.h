/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a session, by whichever way is cheaper: through the DAX window, or by request.
 *
 *	struct guest_files *files = guest_files_new(fuse, NULL, &error);
 *	struct guest_file *file = guest_file_open(files, "dir/file", O_RDONLY, &err);
 *	guest_file_read(file, buf, sizeof(buf), 0);
 *	guest_file_get(file, 0, 4096, false, &ref);	(a pointer into the window)
 *	guest_file_put(file, &ref);
 *
 * Threads: any, also on one file; closing a file is its last use.
 */
#ifndef DAXMAP_GUEST_FILE_H
#define DAXMAP_GUEST_FILE_H

#include <sys/types.h>

#include <daxmap/cache.h>

#include "guest_fuse.h"

struct guest_files;
struct guest_file;

/** enum guest_admission - what reads and writes map */
enum guest_admission {
	GUEST_ADMIT_ALWAYS,   /* all: who comes first waits for the map */
	GUEST_ADMIT_NEVER,    /* nothing that guest_file_get() has not mapped */
	GUEST_ADMIT_ADAPTIVE, /* what has proved worth it, while requests serve the meantime */
	GUEST_ADMIT_EAGER,    /* all, while requests serve the meantime */
};

/**
 * struct guest_files_config - zero means the default
 * @admission: see above
 * @window: use only so many bytes of the window
 * @max_mappings: live mappings that the back-end's VMM is known to bear
 * @cache: of the table
 */
struct guest_files_config {
	enum guest_admission admission;
	uint64_t window;
	uint32_t max_mappings;
	struct dm_cache_config cache;
};

/** guest_files_new() - @fuse is initialised, and borrowed. Without a window everything goes by
 * request. NULL with @error where the window is there and cannot be used. */
struct guest_files *guest_files_new(struct guest_fuse *fuse, const struct guest_files_config *c,
				    GError **error);
/** guest_files_free() - all files are closed, no ref is out. */
void guest_files_free(struct guest_files *fs);
/** guest_files_has_window() - can files be mapped at all? */
bool guest_files_has_window(struct guest_files *fs);
/** guest_files_set_trace() - as dm_cache_set_trace(); without a window nothing is traced */
void guest_files_set_trace(struct guest_files *fs, const struct dm_trace *trace);
/** guest_files_stats() - of the table; zeroes without a window */
void guest_files_stats(struct guest_files *fs, struct dm_stats *out);

/** guest_file_open() - opens @path with O_* @flags; NULL with *@err, a negative errno */
struct guest_file *guest_file_open(struct guest_files *fs, const char *path, uint32_t flags,
				   int *err);
/**
 * guest_file_adopt() - a file that the caller has opened
 * @entry: its lookup; @fh: its handle; both stay the caller's, and open until after close
 * @flags: O_* that it was opened with
 */
struct guest_file *guest_file_adopt(struct guest_files *fs, const struct fuse_entry_out *entry,
				    uint64_t fh, uint32_t flags);
/** guest_file_close() - gives back what is mapped of it */
void guest_file_close(struct guest_file *f);
/** guest_file_key() - what the table, and so a trace, knows it by */
struct dm_file_key guest_file_key(const struct guest_file *f);
/** guest_file_size() - bytes, as last known here */
uint64_t guest_file_size(struct guest_file *f);
/** guest_file_can_map() - has the back-end said that it can be mapped, and not refused it? */
bool guest_file_can_map(struct guest_file *f);

/** guest_file_read(), guest_file_write() - up to @len bytes at @off, by window or request; any
 * memory. Bytes moved, or a negative errno. */
ssize_t guest_file_read(struct guest_file *f, void *buf, size_t len, uint64_t off);
ssize_t guest_file_write(struct guest_file *f, const void *buf, size_t len, uint64_t off);

/** guest_file_get() - pins bytes in the window, mapping them if need be; ref->len may be less than
 * asked. As dm_cache_get(); -ENODEV where the file cannot be mapped, -ERANGE beyond its end. */
int guest_file_get(struct guest_file *f, uint64_t off, uint64_t len, bool write,
		   struct dm_ref *ref);
void guest_file_put(struct guest_file *f, struct dm_ref *ref);

/**
 * guest_file_admit() - for those who send their own requests: window or request?
 *
 * 0: the bytes are pinned, as by guest_file_get(). -EAGAIN: send a request; a map may be under
 * way. Waits with GUEST_ADMIT_ALWAYS, and where a file is gone through in order and the next slot
 * is not mapped yet. Other errno: as guest_file_get().
 */
int guest_file_admit(struct guest_file *f, uint64_t off, uint64_t len, bool write,
		     struct dm_ref *ref);
/** guest_files_note_read() - a read or write that guest_file_admit() sent away took @ns; so many
 * were under way, itself included. */
void guest_files_note_read(struct guest_files *fs, uint64_t ns, unsigned int in_flight);

#endif
