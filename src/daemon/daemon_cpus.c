// SPDX-License-Identifier: Apache-2.0
#include "daemon_cpus.h"

#include <sched.h>
#include <string.h>

#include <glib.h>

#include "util_cpus.h"

/* syscalls: sched_setaffinity */

static bool parse_range(const char *text, cpu_set_t *set)
{
	g_auto(GStrv) ends = g_strsplit(text, "-", 2);
	guint64 first, last;

	if (!ends[0] || !g_ascii_string_to_unsigned(ends[0], 10, 0, CPU_SETSIZE - 1, &first, NULL))
		return false;
	last = first;
	if (ends[1] &&
	    !g_ascii_string_to_unsigned(ends[1], 10, first, CPU_SETSIZE - 1, &last, NULL))
		return false;
	for (guint64 cpu = first; cpu <= last; cpu++)
		CPU_SET(cpu, set);
	return true;
}

static bool parse_list(const char *text, cpu_set_t *set)
{
	g_auto(GStrv) ranges = g_strsplit(text, ",", -1);

	CPU_ZERO(set);
	for (char **r = ranges; *r; r++)
		if (!parse_range(*r, set))
			return false;
	return ranges[0] != NULL;
}

bool daemon_cpus_valid(const char *lists)
{
	g_auto(GStrv) parts = NULL;
	cpu_set_t set;

	if (strcmp(lists, "auto") == 0)
		return true;
	parts = g_strsplit(lists, ":", -1);
	for (char **p = parts; *p; p++)
		if (!parse_list(*p, &set))
			return false;
	return parts[0] != NULL;
}

/*
 * The CPUs that this process may use. A thread inherits those of its maker, which may be bound; but
 * only this file binds threads, so the first to ask here is not.
 */
static const cpu_set_t *our_cpus(void)
{
	static gsize once;
	static cpu_set_t ours;

	if (g_once_init_enter(&once)) {
		if (sched_getaffinity(0, sizeof(ours), &ours) < 0)
			CPU_ZERO(&ours);
		g_once_init_leave(&once, 1);
	}
	return &ours;
}

/* The @n-th of them, counting round. */
static bool nth_cpu(unsigned int n, cpu_set_t *out)
{
	int cpu = util_cpus_nth(our_cpus(), n);

	if (cpu < 0)
		return false;
	CPU_ZERO(out);
	CPU_SET(cpu, out);
	return true;
}

bool daemon_cpus_bind(const char *lists, unsigned int queue)
{
	g_auto(GStrv) parts = NULL;
	cpu_set_t set;

	if (!lists)
		return true;
	our_cpus();
	if (strcmp(lists, "auto") == 0) {
		if (!nth_cpu(queue, &set))
			return false;
	} else {
		parts = g_strsplit(lists, ":", -1);
		if (!parse_list(parts[queue % g_strv_length(parts)], &set))
			return false;
	}
	return sched_setaffinity(0, sizeof(set), &set) == 0;
}

void daemon_cpus_unbind(const char *lists)
{
	const cpu_set_t *ours = our_cpus();

	if (lists && CPU_COUNT(ours) > 0)
		sched_setaffinity(0, sizeof(*ours), ours);
}
