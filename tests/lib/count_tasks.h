/* SPDX-License-Identifier: Apache-2.0 */
/* Counts, for tests that show that nothing is left behind. */
#ifndef DAXMAP_TESTS_COUNT_TASKS_H
#define DAXMAP_TESTS_COUNT_TASKS_H

#include <glib.h>

/** count_entries() - entries of the folder @path, which must exist; not "." and "..". */
static inline unsigned int count_entries(const char *path)
{
	GDir *d = g_dir_open(path, 0, NULL);
	unsigned int n = 0;

	g_assert_nonnull(d);
	while (g_dir_read_name(d))
		n++;
	g_dir_close(d);
	return n;
}

/** count_fds() - open descriptors of this process. */
static inline unsigned int count_fds(void)
{
	return count_entries("/proc/self/fd") - 1; /* the folder's own */
}

/**
 * count_tasks() - threads of this process, as soon as no more than @at_most are left, and after
 *	10 s in any case; 0 is at once.
 *
 * A thread that has been joined can still be listed: Linux wakes pthread_join() as the thread
 * gives up its memory, and takes its task away after that (exit_mm() and exit_notify() of
 * do_exit(), kernel/exit.c). A first count may be too high by that: compare with "no more than",
 * over rounds enough for a leak to show.
 */
static inline unsigned int count_tasks(unsigned int at_most)
{
	unsigned int n = count_entries("/proc/self/task");

	for (unsigned int i = 0; at_most && n > at_most && i < 10000; i++) {
		g_usleep(1000);
		n = count_entries("/proc/self/task");
	}
	return n;
}

#endif
