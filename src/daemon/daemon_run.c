// SPDX-License-Identifier: Apache-2.0
/*
 * Start-up in the only order that works: what lies outside the sandbox first (limits, sockets, the
 * guard of truncations and the size shim, whose helper processes stay there),
 * then the sandbox (which forks, so before any thread), then the parts, then seccomp, then the
 * first connection.
 */
#include "daemon_run.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon_control.h"
#include "daemon_device.h"
#include "daemon_files.h"
#include "daemon_metrics.h"
#include "daemon_settings.h"
#include "daemon_hold.h"
#include "daemon_shim.h"
#include "daemon_socket.h"
#include "daemon_stats.h"
#include "daemon_trace.h"
#include "trace_writer.h"
#include "util_fd.h"
#include "util_log.h"

#undef G_LOG_DOMAIN
#define G_LOG_DOMAIN "main"

#define ACCEPT_RETRY_MS 500

/* syscalls: accept4 poll eventfd2 write read close fcntl rt_sigaction */

struct daemon {
	const struct daemon_config *config;
	struct daemon_socket socket;
	struct daemon_socket control_socket;
	struct daemon_socket metrics_socket;
	struct sandbox_fds fds;
	int count_fds; /* of fds.proc_self_fd, which the file system takes */
	int trace_fd;  /* --dax-trace, until the trace has it */
	struct shim *shim;
	struct hold *hold;
	struct daemon_device *device;
	struct daemon_settings *settings;
	struct daemon_control *control;
};

/* What a signal handler reaches. */
static int stop_fd = -1;
static int stop_signal;
static struct daemon_device *stop_device;

static void on_stop(int sig)
{
	int saved = errno;
	uint64_t one = 1;

	__atomic_store_n(&stop_signal, sig, __ATOMIC_RELAXED);
	if (write(stop_fd, &one, sizeof(one)) < 0)
		_exit(DAEMON_EXIT_FAILED);
	if (__atomic_load_n(&stop_device, __ATOMIC_ACQUIRE))
		daemon_device_stop(stop_device);
	errno = saved;
}

static bool catch_signals(GError **error)
{
	struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
	struct sigaction ignore = {.sa_handler = SIG_IGN};

	stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop_fd < 0) {
		g_set_error(error, DAEMON_SOCKET_ERROR, errno, "eventfd: %s", g_strerror(errno));
		return false;
	}
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	sigaction(SIGHUP, &ignore, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
	/* Beyond RLIMIT_FSIZE a write fails, and that is all. */
	sigaction(SIGXFSZ, &ignore, NULL);
	return true;
}

/* --- start --- */

static bool open_sockets(struct daemon *d, GError **error)
{
	const struct daemon_config *c = d->config;

	if (c->fd >= 0) {
		if (!daemon_socket_adopt(&d->socket, (int)c->fd, error))
			return false;
	} else if (!daemon_socket_listen(&d->socket, c->socket_path, c->socket_group, error)) {
		return false;
	}
	if (c->control_path &&
	    !daemon_socket_listen(&d->control_socket, c->control_path, c->socket_group, error))
		return false;
	return !c->metrics_socket ||
	       daemon_socket_listen(&d->metrics_socket, c->metrics_socket, c->socket_group, error);
}

static void remove_sockets(void *ctx)
{
	struct daemon *d = ctx;

	daemon_socket_remove(&d->socket);
	daemon_socket_remove(&d->control_socket);
	daemon_socket_remove(&d->metrics_socket);
}

static bool check_share(const struct daemon_config *c, GError **error)
{
	if (g_file_test(c->shared_dir, G_FILE_TEST_IS_DIR))
		return true;
	g_set_error(error, DAEMON_OPTION_ERROR, 0,
		    "option --shared-dir: \"%s\" is not allowed; it takes a directory that exists",
		    c->shared_dir);
	return false;
}

static bool enter_sandbox(struct daemon *d, GError **error)
{
	g_autofree char *share = g_canonicalize_filename(d->config->shared_dir, NULL);
	const struct sandbox_config sandbox = {
		.mode = (enum sandbox_mode)d->config->sandbox,
		.shared_dir = share,
		.modcaps = d->config->modcaps,
		.parent_exit = remove_sockets,
		.ctx = d,
	};

	if (!sandbox_enter(&sandbox, &d->fds, error))
		return false;
	d->count_fds = fcntl(d->fds.proc_self_fd, F_DUPFD_CLOEXEC, 0);
	return true;
}

static JsonNode *run_stats(void *ctx, JsonObject *request, GError **error)
{
	struct daemon *d = ctx;

	return daemon_stats_json(
		d->device, d->count_fds, d->fds.proc_task_fd,
		json_object_get_boolean_member_with_default(request, "mappings", TRUE));
}

static JsonNode *run_files(void *ctx, JsonObject *request, GError **error)
{
	struct daemon *d = ctx;

	return daemon_files_json(d->device, request);
}

static char *metrics_page(void *ctx)
{
	struct daemon *d = ctx;

	return daemon_metrics_text(d->device, d->count_fds, d->fds.proc_task_fd);
}

static JsonNode *run_metrics(void *ctx, JsonObject *request, GError **error)
{
	g_autofree char *text = metrics_page(ctx);
	JsonNode *n = json_node_new(JSON_NODE_VALUE);

	json_node_set_string(n, text);
	return n;
}

static JsonNode *run_set(void *ctx, JsonObject *request, GError **error)
{
	struct daemon *d = ctx;

	return daemon_settings_set(d->settings, request, error);
}

static JsonNode *run_settings(void *ctx, JsonObject *request, GError **error)
{
	struct daemon *d = ctx;

	return daemon_settings_list(d->settings);
}

static JsonNode *run_trace_start(void *ctx, JsonObject *request, int *fd, GError **error)
{
	struct daemon *d = ctx;

	return daemon_trace_run_start(d->device->trace, request, fd, error);
}

static JsonNode *run_trace_stop(void *ctx, JsonObject *request, GError **error)
{
	struct daemon *d = ctx;

	return daemon_trace_run_stop(d->device->trace, error);
}

static JsonNode *run_trace_status(void *ctx, JsonObject *request, GError **error)
{
	struct daemon *d = ctx;

	return daemon_trace_run_status(d->device->trace);
}

static const struct daemon_control_command commands[] = {
	{"stats", run_stats},		{"files", run_files},
	{"metrics", run_metrics},	{"set", run_set},
	{"settings", run_settings},	{"trace-start", .run_fd = run_trace_start},
	{"trace-stop", run_trace_stop}, {"trace-status", run_trace_status},
};

static void start_control(struct daemon *d)
{
	const struct daemon_control_config control = {
		.control_fd = d->control_socket.fd,
		.commands = commands,
		.n_commands = G_N_ELEMENTS(commands),
		.metrics_fd = d->metrics_socket.fd,
		.metrics = metrics_page,
		.ctx = d,
	};

	if (control.control_fd >= 0 || control.metrics_fd >= 0)
		d->control = daemon_control_start(&control);
}

static bool open_trace(struct daemon *d, GError **error)
{
	const struct daemon_config *c = d->config;
	g_autoptr(GError) why = NULL;

	if (!c->dax_trace)
		return true;
	d->trace_fd = trace_file_create(c->dax_trace, &why);
	if (d->trace_fd >= 0)
		return true;
	g_set_error(error, DAEMON_OPTION_ERROR, 0, "option --dax-trace: %s", why->message);
	return false;
}

static bool start_trace(struct daemon *d, GError **error)
{
	const struct daemon_config *c = d->config;

	if (d->trace_fd < 0)
		return true;
	if (!d->device->trace) {
		g_warning("--dax-trace: there is no DAX window to trace");
		util_close(&d->trace_fd);
		return true;
	}
	return daemon_trace_start(d->device->trace, util_steal_fd(&d->trace_fd), c->dax_trace_size,
				  c->trace_names, error);
}

static bool start(struct daemon *d, GError **error)
{
	int64_t files = sandbox_raise_nofile(d->config->rlimit_nofile, error);

	if (files < 0 || !check_share(d->config, error) || !open_sockets(d, error))
		return false;
	if (!open_trace(d, error))
		return false;
	if (!daemon_hold_start(d->config, &d->hold, error))
		return false;
	if (!daemon_shim_start(d->config, &d->shim, error))
		return false;
	if (!enter_sandbox(d, error) || !catch_signals(error))
		return false;
	d->device = daemon_device_new(d->config, &d->fds, d->shim, d->hold, error);
	if (!d->device)
		return false;
	if (!start_trace(d, error))
		return false;
	if (!sandbox_seccomp((enum sandbox_seccomp_mode)d->config->seccomp, error))
		return false;
	__atomic_store_n(&stop_device, d->device, __ATOMIC_RELEASE);
	d->settings = daemon_settings_new(d->config, d->device);
	start_control(d);
	g_debug("%" G_GINT64_FORMAT " files may be open", files);
	malloc_trim(0); /* what start-up took and gave back, the filter's compiler above all */
	return true;
}

/* --- life --- */

static bool stopping(void)
{
	return __atomic_load_n(&stop_signal, __ATOMIC_RELAXED) != 0;
}

/* The next front-end; -1 when we are to stop or nobody can come any more. */
static int wait_for_frontend(struct daemon *d)
{
	struct pollfd p[2] = {
		{.fd = d->socket.fd, .events = POLLIN},
		{.fd = stop_fd, .events = POLLIN},
	};

	while (!stopping()) {
		int fd;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return -1;
		if (p[0].revents & (POLLERR | POLLHUP | POLLNVAL))
			return -1;
		if (!(p[0].revents & POLLIN))
			continue;
		fd = accept4(d->socket.fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0)
			return fd;
		/* It stays in the backlog; a shortage passes. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			util_log_once("accept: %s; trying again", g_strerror(errno));
			poll(&p[1], 1, ACCEPT_RETRY_MS);
		}
	}
	return -1;
}

static int serve(struct daemon *d)
{
	int err = 0;

	do {
		int fd;

		g_message("waiting for a VMM on %s",
			  d->socket.path ? d->socket.path : "the inherited socket");
		fd = wait_for_frontend(d);
		if (fd < 0) {
			/* Of sessions that are over, only the one we end with counts. */
			err = stopping() ? 0 : -EIO;
			break;
		}
		g_message("a VMM has connected");
		/* One that comes while another is served is refused by nobody: it waits. */
		err = daemon_device_serve(d->device, fd);
		if (err == -ECANCELED)
			err = 0;
		g_message("the VMM has gone%s", err ? ": it broke the protocol" : "");
	} while (d->config->persistent && !stopping());
	return err ? DAEMON_EXIT_FAILED : DAEMON_EXIT_OK;
}

static void finish(struct daemon *d)
{
	daemon_control_stop(d->control);
	daemon_settings_free(d->settings);
	__atomic_store_n(&stop_device, NULL, __ATOMIC_RELEASE);
	daemon_device_free(d->device);
	shim_free(d->shim);
	hold_free(d->hold);
	/* In a sandbox these names mean nothing; the parent removes the files. */
	if (d->config->sandbox == SANDBOX_NONE)
		remove_sockets(d);
	daemon_socket_close(&d->socket);
	daemon_socket_close(&d->control_socket);
	daemon_socket_close(&d->metrics_socket);
	util_close(&d->fds.root_fd);
	util_close(&d->fds.proc_self_fd);
	util_close(&d->fds.proc_task_fd);
	util_close(&d->count_fds);
	util_close(&d->trace_fd);
}

int daemon_run(const struct daemon_config *config)
{
	struct daemon d = {.config = config, .fds = {-1, -1, -1}, .count_fds = -1, .trace_fd = -1};
	g_autoptr(GError) error = NULL;
	g_auto(GStrv) warnings = daemon_options_warnings(config);
	int status = DAEMON_EXIT_FAILED;

	daemon_socket_init(&d.socket);
	daemon_socket_init(&d.control_socket);
	daemon_socket_init(&d.metrics_socket);
	for (char **w = warnings; *w; w++)
		g_warning("%s", *w);
	if (start(&d, &error))
		status = serve(&d);
	else
		g_critical("%s", error->message);
	if (error && error->domain == DAEMON_OPTION_ERROR)
		status = DAEMON_EXIT_USAGE;
	finish(&d);
	return status;
}
