// SPDX-License-Identifier: Apache-2.0
/*
 * A thread sleeps; when it is not stopped in time, it signals each thread of the process in turn,
 * whose handler prints its own stack.
 */
#include "watchdog.h"

#include <dirent.h>
#include <execinfo.h>
#include <glib.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util_lock.h"

static struct util_mutex lock;
static struct util_cond cond;
static bool stopped;
static int printed;
static GThread *thread;

static void print_stack(int sig)
{
	void *frames[64];
	int n = backtrace(frames, 64);

	(void)sig;
	backtrace_symbols_fd(frames, n, STDERR_FILENO);
	__atomic_store_n(&printed, 1, __ATOMIC_SEQ_CST);
}

static void print_all(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		int tid = atoi(e->d_name);

		if (tid <= 0 || tid == (int)syscall(SYS_gettid))
			continue;
		fprintf(stderr, "# thread %d:\n", tid);
		__atomic_store_n(&printed, 0, __ATOMIC_SEQ_CST);
		syscall(SYS_tgkill, getpid(), tid, SIGUSR2);
		for (int i = 0; i < 100 && !__atomic_load_n(&printed, __ATOMIC_SEQ_CST); i++)
			g_usleep(10000);
	}
	if (d)
		closedir(d);
}

static gpointer watch(gpointer data)
{
	uint64_t deadline = util_now_ns() + GPOINTER_TO_UINT(data) * UINT64_C(1000000000);
	bool in_time = true;

	util_mutex_lock(&lock);
	while (!stopped && in_time)
		in_time = util_cond_wait_until(&cond, &lock, deadline);
	in_time = stopped;
	util_mutex_unlock(&lock);
	if (in_time)
		return NULL;
	fprintf(stderr, "# watchdog: the test hangs; all stacks:\n");
	print_all();
	_exit(1);
}

void watchdog_start(unsigned int seconds)
{
	struct sigaction sa = {.sa_handler = print_stack, .sa_flags = SA_RESTART};

	sigaction(SIGUSR2, &sa, NULL);
	util_mutex_init(&lock);
	util_cond_init(&cond);
	thread = g_thread_new("watchdog", watch, GUINT_TO_POINTER(seconds));
}

void watchdog_stop(void)
{
	util_mutex_lock(&lock);
	stopped = true;
	util_cond_signal(&cond);
	util_mutex_unlock(&lock);
	g_thread_join(thread);
}
