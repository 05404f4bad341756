// SPDX-License-Identifier: Apache-2.0
/*
 * syslog(3) reconnects when its socket breaks, with system calls that are forbidden by then. So
 * the one datagram socket is made at the start, and when it fails there is stderr.
 */
#include "daemon_log.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include <glib.h>

#include "util_fd.h"

/* syscalls: sendto write writev getpid */

static int current_level = DAEMON_LOG_INFO;
static int syslog_fd = -1;

static const struct {
	GLogLevelFlags flag;
	enum daemon_log_level level;
	int priority;
	const char *name;
} levels[] = {
	{G_LOG_LEVEL_ERROR, DAEMON_LOG_ERROR, LOG_CRIT, "fatal"},
	{G_LOG_LEVEL_CRITICAL, DAEMON_LOG_ERROR, LOG_ERR, "error"},
	{G_LOG_LEVEL_WARNING, DAEMON_LOG_WARN, LOG_WARNING, "warn"},
	{G_LOG_LEVEL_MESSAGE, DAEMON_LOG_INFO, LOG_NOTICE, "info"},
	{G_LOG_LEVEL_INFO, DAEMON_LOG_INFO, LOG_INFO, "info"},
	{G_LOG_LEVEL_DEBUG, DAEMON_LOG_DEBUG, LOG_DEBUG, "debug"},
};

static const char *field(const GLogField *fields, gsize n, const char *key)
{
	for (gsize i = 0; i < n; i++)
		if (strcmp(fields[i].key, key) == 0 && fields[i].length < 0)
			return fields[i].value;
	return NULL;
}

static bool send_syslog(int priority, const char *text)
{
	g_autofree char *line =
		g_strdup_printf("<%d>daxmapd[%d]: %s", LOG_DAEMON | priority, (int)getpid(), text);

	return send(syslog_fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

static GLogWriterOutput write_log(GLogLevelFlags flags, const GLogField *fields, gsize n,
				  gpointer data)
{
	const char *message = field(fields, n, "MESSAGE");
	const char *domain = field(fields, n, "GLIB_DOMAIN");
	g_autofree char *text = NULL;
	size_t i = 0;

	while (i < G_N_ELEMENTS(levels) - 1 && !(flags & levels[i].flag))
		i++;
	if ((int)levels[i].level > __atomic_load_n(&current_level, __ATOMIC_RELAXED))
		return G_LOG_WRITER_HANDLED;
	text = g_strdup_printf("%s%s%s", domain ? domain : "", domain ? ": " : "",
			       message ? message : "");
	if (syslog_fd >= 0 && send_syslog(levels[i].priority, text))
		return G_LOG_WRITER_HANDLED;
	fprintf(stderr, "daxmapd: %s: %s\n", levels[i].name, text);
	return G_LOG_WRITER_HANDLED;
}

static int open_syslog(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
	util_autofd fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -1;
	return util_steal_fd(&fd);
}

void daemon_log_start(enum daemon_log_level level, bool to_syslog)
{
	daemon_log_set_level(level);
	if (to_syslog && syslog_fd < 0) {
		syslog_fd = open_syslog();
		if (syslog_fd < 0)
			fprintf(stderr, "daxmapd: warn: --syslog: nobody listens at /dev/log; "
					"logging here\n");
	}
	g_log_set_writer_func(write_log, NULL, NULL);
}

void daemon_log_set_level(enum daemon_log_level level)
{
	__atomic_store_n(&current_level, (int)level, __ATOMIC_RELAXED);
}
