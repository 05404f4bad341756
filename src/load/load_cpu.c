// SPDX-License-Identifier: Apache-2.0
/* A process's CPU clock has nanoseconds and counts threads that have ended, unlike /proc. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <glib.h>

#include "load_cpu.h"

static uint64_t clock_ns(clockid_t id)
{
	struct timespec t;

	if (clock_gettime(id, &t) < 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t process_ns(int pid)
{
	clockid_t id;

	return clock_getcpuclockid(pid, &id) ? 0 : clock_ns(id);
}

static int parent_of(int pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/stat", pid);
	g_autofree char *text = NULL;
	const char *after;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return 0;
	after = g_strrstr(text, ")");
	return after && sscanf(after, ") %*c %d", &pid) == 1 ? pid : 0;
}

bool load_cpu_known(int pid)
{
	if (pid <= 0)
		return false;
	for (int p = getpid(); p > 0; p = parent_of(p))
		if (p == pid)
			return false;
	return process_ns(pid) > 0;
}

static uint64_t tree_ns(int pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/task", pid);
	GDir *d = g_dir_open(path, 0, NULL);
	uint64_t sum = process_ns(pid);
	const char *tid;

	while (d && (tid = g_dir_read_name(d))) {
		g_autofree char *name = g_strdup_printf("%s/%s/children", path, tid);
		g_autofree char *text = NULL;

		if (!g_file_get_contents(name, &text, NULL, NULL))
			continue;
		for (char *s = text, *end;; s = end) {
			int child = (int)strtol(s, &end, 10);

			if (end == s)
				break;
			sum += tree_ns(child);
		}
	}
	if (d)
		g_dir_close(d);
	return sum;
}

uint64_t load_cpu_tree(int pid)
{
	return load_cpu_known(pid) ? tree_ns(pid) : 0;
}

uint64_t load_cpu_self(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}
