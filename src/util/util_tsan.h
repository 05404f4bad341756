/* SPDX-License-Identifier: Apache-2.0 */
/* Where ThreadSanitizer has to be told that a race is meant. */
#ifndef DAXMAP_UTIL_TSAN_H
#define DAXMAP_UTIL_TSAN_H

#ifdef DAXMAPD_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

/**
 * util_tsan_file_bytes_begin() - until util_tsan_file_bytes_end() this thread reads and writes
 * bytes of a mapped file, which others may change at any time and need not ask.
 */
static inline void util_tsan_file_bytes_begin(void)
{
#ifdef DAXMAPD_TSAN
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
}

static inline void util_tsan_file_bytes_end(void)
{
#ifdef DAXMAPD_TSAN
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
}

#endif
