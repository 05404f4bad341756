// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * One thread, one poll loop, nothing that blocks. A client whose answer is not yet read is not
 * read from, so no client makes us keep more than one line and one answer of his. When all places
 * are taken the one that was silent longest loses his to the newcomer: clients that sit there
 * cannot lock others out.
 */
#include "daemon_control.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_lock.h"

#define DEAF_MS 500

/* syscalls: accept4 recvfrom sendto poll eventfd2 read write close */

G_DEFINE_QUARK(daemon - control - error, daemon_control_error)

struct client {
	int fd;
	uint64_t active_ns;
	GString *in;
	GString *out;
	size_t sent;
};

struct daemon_control {
	int listen_fd;
	int stop_fd;
	const struct daemon_control_command *commands;
	size_t n_commands;
	void *ctx;
	GPtrArray *clients; /* of struct client; this thread's alone */
	bool deaf;	    /* nobody could be accepted: not looked at for a while */
	GThread *thread;
};

static void client_free(void *p)
{
	struct client *cl = p;

	util_close(&cl->fd);
	g_string_free(cl->in, TRUE);
	g_string_free(cl->out, TRUE);
	g_free(cl);
}

static void answer(struct client *cl, JsonNode *result, const GError *error)
{
	g_autoptr(JsonNode) root = json_node_new(JSON_NODE_OBJECT);
	g_autoptr(JsonObject) o = json_object_new();
	g_autofree char *text = NULL;

	json_object_set_boolean_member(o, "ok", result != NULL);
	if (result)
		json_object_set_member(o, "result", result);
	else
		json_object_set_string_member(o, "error", error ? error->message : "failed");
	json_node_set_object(root, o);
	text = json_to_string(root, FALSE);
	g_string_append(cl->out, text);
	g_string_append_c(cl->out, '\n');
}

static JsonNode *run_command(struct daemon_control *c, JsonObject *request, GError **error)
{
	JsonNode *name = json_object_get_member(request, "command");
	g_autoptr(GString) known = NULL;

	if (!name || json_node_get_value_type(name) != G_TYPE_STRING) {
		g_set_error(error, DAEMON_CONTROL_ERROR, EINVAL,
			    "a request needs \"command\", a string");
		return NULL;
	}
	for (size_t i = 0; i < c->n_commands; i++)
		if (strcmp(json_node_get_string(name), c->commands[i].name) == 0)
			return c->commands[i].run(c->ctx, request, error);
	known = g_string_new(NULL);
	for (size_t i = 0; i < c->n_commands; i++)
		g_string_append_printf(known, "%s%s", i ? ", " : "", c->commands[i].name);
	g_set_error(error, DAEMON_CONTROL_ERROR, ENOENT, "no such command; there is: %s",
		    known->str);
	return NULL;
}

static void handle_line(struct daemon_control *c, struct client *cl, const char *line, size_t len)
{
	g_autoptr(JsonParser) parser = json_parser_new();
	g_autoptr(GError) error = NULL;
	JsonNode *root = NULL, *result = NULL;

	if (g_utf8_validate(line, (gssize)len, NULL) &&
	    json_parser_load_from_data(parser, line, (gssize)len, NULL))
		root = json_parser_get_root(parser);
	if (root && JSON_NODE_HOLDS_OBJECT(root))
		result = run_command(c, json_node_get_object(root), &error);
	else
		g_set_error(&error, DAEMON_CONTROL_ERROR, EINVAL,
			    "a request is one JSON object on one line");
	answer(cl, result, error);
}

/* Handles one full line, if there is one; false when the client must go. */
static bool take_line(struct daemon_control *c, struct client *cl)
{
	const char *end = memchr(cl->in->str, '\n', cl->in->len);
	size_t len;

	if (!end)
		return cl->in->len < DAEMON_CONTROL_LINE_MAX;
	len = (size_t)(end - cl->in->str);
	if (len > 0)
		handle_line(c, cl, cl->in->str, len);
	g_string_erase(cl->in, 0, (gssize)len + 1);
	return true;
}

static bool client_read(struct daemon_control *c, struct client *cl)
{
	char buf[1024];
	ssize_t n = recv(cl->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (n == 0)
		return false;
	cl->active_ns = util_now_ns();
	g_string_append_len(cl->in, buf, n);
	return true;
}

static bool client_write(struct client *cl)
{
	ssize_t n = send(cl->fd, cl->out->str + cl->sent, cl->out->len - cl->sent,
			 MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	cl->active_ns = util_now_ns();
	cl->sent += (size_t)n;
	if (cl->sent == cl->out->len) {
		g_string_truncate(cl->out, 0);
		cl->sent = 0;
	}
	return true;
}

/* One step of a client; false when it is over. */
static bool client_step(struct daemon_control *c, struct client *cl, short revents)
{
	if (cl->out->len == 0 && (revents & (POLLIN | POLLHUP | POLLERR)) && !client_read(c, cl))
		return false;
	for (;;) {
		size_t before = cl->in->len;

		if (cl->out->len > 0) {
			if (!client_write(cl))
				return false;
			if (cl->out->len > 0)
				return true;
		}
		if (!take_line(c, cl))
			return false;
		if (cl->in->len == before)
			return !(revents & (POLLERR | POLLNVAL));
	}
}

static void accept_client(struct daemon_control *c)
{
	int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *cl;
	guint oldest = 0;

	/* Without a descriptor he stays in the backlog, and poll() would not sleep any more. */
	c->deaf = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
	if (fd < 0)
		return;
	if (c->clients->len >= DAEMON_CONTROL_CLIENTS_MAX) {
		for (guint i = 1; i < c->clients->len; i++) {
			struct client *a = c->clients->pdata[i], *b = c->clients->pdata[oldest];

			if (a->active_ns < b->active_ns)
				oldest = i;
		}
		g_ptr_array_remove_index(c->clients, oldest);
	}
	cl = g_new0(struct client, 1);
	cl->fd = fd;
	cl->active_ns = util_now_ns();
	cl->in = g_string_new(NULL);
	cl->out = g_string_new(NULL);
	g_ptr_array_add(c->clients, cl);
}

static void *serve(void *arg)
{
	struct daemon_control *c = arg;
	struct pollfd p[DAEMON_CONTROL_CLIENTS_MAX + 2];

	for (;;) {
		guint n = c->clients->len;

		p[0] = (struct pollfd){.fd = c->stop_fd, .events = POLLIN};
		p[1] = (struct pollfd){.fd = c->deaf ? -1 : c->listen_fd, .events = POLLIN};
		for (guint i = 0; i < n; i++) {
			struct client *cl = c->clients->pdata[i];

			p[i + 2].fd = cl->fd;
			p[i + 2].events = cl->out->len ? POLLOUT : POLLIN;
			p[i + 2].revents = 0;
		}
		if (poll(p, n + 2, c->deaf ? DEAF_MS : -1) < 0 && errno != EINTR)
			break;
		c->deaf = false;
		if (p[0].revents)
			break;
		for (guint i = n; i-- > 0;)
			if (p[i + 2].revents &&
			    !client_step(c, c->clients->pdata[i], p[i + 2].revents))
				g_ptr_array_remove_index(c->clients, i);
		if (p[1].revents & POLLIN)
			accept_client(c);
	}
	return NULL;
}

struct daemon_control *daemon_control_start(int listen_fd,
					    const struct daemon_control_command *commands, size_t n,
					    void *ctx)
{
	struct daemon_control *c = g_new0(struct daemon_control, 1);

	c->listen_fd = listen_fd;
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (c->stop_fd < 0)
		g_error("eventfd: %s", g_strerror(errno));
	c->commands = commands;
	c->n_commands = n;
	c->ctx = ctx;
	c->clients = g_ptr_array_new_with_free_func(client_free);
	c->thread = g_thread_new("control", serve, c);
	return c;
}

void daemon_control_stop(struct daemon_control *c)
{
	uint64_t one = 1;

	if (!c)
		return;
	if (write(c->stop_fd, &one, sizeof(one)) < 0)
		g_error("eventfd: %s", g_strerror(errno));
	g_thread_join(c->thread);
	g_ptr_array_unref(c->clients);
	util_close(&c->stop_fd);
	g_free(c);
}
