// SPDX-License-Identifier: Apache-2.0
/*
 * Theory of operation
 *
 * One thread, one poll loop, nothing that blocks. A client whose answer is not yet read is not
 * read from, so no client makes us keep more than one line and one answer of his. When all places
 * are taken the one that was silent longest loses his to the newcomer: clients that sit there
 * cannot lock others out. Each socket has places of its own.
 *
 * Who comes by HTTP gets one answer. Then we say that there is no more and read on, to nowhere,
 * until he closes: closing first, with something of his unread, could cost him the answer. He has
 * DAEMON_CONTROL_HTTP_S for all of it.
 */
#include "daemon_control.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon_http.h"
#include "util_fd.h"
#include "util_lock.h"
#include "util_sock.h"

#define DEAF_MS 500

/* syscalls: accept4 recvmsg sendto shutdown poll eventfd2 read write close */

G_DEFINE_QUARK(daemon - control - error, daemon_control_error)

enum listener { LISTEN_CONTROL, LISTEN_METRICS, LISTENERS };

struct client {
	int fd;
	enum listener by;
	bool answered; /* by HTTP: nothing of his counts any more */
	int sent_fd;   /* the last descriptor that came, for the request it came with; -1 */
	uint64_t active_ns;
	uint64_t deadline_ns; /* UINT64_MAX: none */
	GString *in;
	GString *out;
	size_t sent;
};

struct daemon_control {
	struct daemon_control_config config;
	int listen_fd[LISTENERS];
	int stop_fd;
	GPtrArray *clients; /* of struct client; this thread's alone */
	bool deaf;	    /* nobody could be accepted: not looked at for a while */
	GThread *thread;
};

static void client_free(void *p)
{
	struct client *cl = p;

	util_close(&cl->fd);
	util_close(&cl->sent_fd);
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

static JsonNode *run_row(struct daemon_control *c, const struct daemon_control_command *row,
			 JsonObject *request, int *fd, GError **error)
{
	return row->run_fd ? row->run_fd(c->config.ctx, request, fd, error)
			   : row->run(c->config.ctx, request, error);
}

static JsonNode *run_command(struct daemon_control *c, JsonObject *request, int *fd, GError **error)
{
	JsonNode *name = json_object_get_member(request, "command");
	g_autoptr(GString) known = NULL;

	if (!name || json_node_get_value_type(name) != G_TYPE_STRING) {
		g_set_error(error, DAEMON_CONTROL_ERROR, EINVAL,
			    "a request needs \"command\", a string");
		return NULL;
	}
	for (size_t i = 0; i < c->config.n_commands; i++)
		if (strcmp(json_node_get_string(name), c->config.commands[i].name) == 0)
			return run_row(c, &c->config.commands[i], request, fd, error);
	known = g_string_new(NULL);
	for (size_t i = 0; i < c->config.n_commands; i++)
		g_string_append_printf(known, "%s%s", i ? ", " : "", c->config.commands[i].name);
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
		result = run_command(c, json_node_get_object(root), &cl->sent_fd, &error);
	else
		g_set_error(&error, DAEMON_CONTROL_ERROR, EINVAL,
			    "a request is one JSON object on one line");
	util_close(&cl->sent_fd);
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

/* Handles what is there of a scrape. */
static void take_request(struct daemon_control *c, struct client *cl)
{
	if (cl->answered) {
		g_string_truncate(cl->in, 0);
		return;
	}
	cl->answered = daemon_http_answer(cl->in, cl->out, c->config.metrics, c->config.ctx);
}

static bool client_read(struct daemon_control *c, struct client *cl)
{
	char buf[1024];
	int fd;
	ssize_t n = util_sock_recv(cl->fd, buf, sizeof(buf), &fd, NULL);

	if (fd >= 0) { /* of several the last one counts */
		util_close(&cl->sent_fd);
		cl->sent_fd = fd;
	}
	if (n < 0)
		return n == -EAGAIN;
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

static bool scrape_step(struct daemon_control *c, struct client *cl, short revents)
{
	/* He may have closed his side and wait: what he said before counts. */
	if (revents & (POLLIN | POLLHUP | POLLERR) && !client_read(c, cl))
		return false;
	take_request(c, cl);
	if (cl->out->len == 0)
		return true;
	if (!client_write(cl))
		return false;
	if (cl->out->len == 0)
		shutdown(cl->fd, SHUT_WR);
	return true;
}

/* One step of a client; false when it is over. */
static bool client_step(struct daemon_control *c, struct client *cl, short revents)
{
	if (cl->by == LISTEN_METRICS)
		return scrape_step(c, cl, revents);
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

/* Makes a place for one more at this socket. */
static void make_place(struct daemon_control *c, enum listener by)
{
	guint n = 0, oldest = 0;
	uint64_t since = UINT64_MAX;

	for (guint i = 0; i < c->clients->len; i++) {
		const struct client *cl = c->clients->pdata[i];

		if (cl->by != by)
			continue;
		n++;
		if (cl->active_ns < since) {
			since = cl->active_ns;
			oldest = i;
		}
	}
	if (n >= DAEMON_CONTROL_CLIENTS_MAX)
		g_ptr_array_remove_index(c->clients, oldest);
}

static void accept_client(struct daemon_control *c, enum listener by)
{
	int fd = accept4(c->listen_fd[by], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct client *cl;

	/* Without a descriptor he stays in the backlog, and poll() would not sleep any more. */
	c->deaf |= fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
	if (fd < 0)
		return;
	make_place(c, by);
	cl = g_new0(struct client, 1);
	cl->fd = fd;
	cl->by = by;
	cl->sent_fd = -1;
	cl->active_ns = util_now_ns();
	cl->deadline_ns = by == LISTEN_METRICS
				  ? cl->active_ns + DAEMON_CONTROL_HTTP_S * UINT64_C(1000000000)
				  : UINT64_MAX;
	cl->in = g_string_new(NULL);
	cl->out = g_string_new(NULL);
	g_ptr_array_add(c->clients, cl);
}

/* Until when poll() may sleep, in its milliseconds. */
static int patience_ms(const struct daemon_control *c)
{
	uint64_t first = UINT64_MAX, now = util_now_ns();
	int ms = c->deaf ? DEAF_MS : -1;

	for (guint i = 0; i < c->clients->len; i++)
		first = MIN(first, ((struct client *)c->clients->pdata[i])->deadline_ns);
	if (first == UINT64_MAX)
		return ms;
	first = first > now ? (first - now) / 1000000u + 1 : 0;
	return c->deaf ? MIN(ms, (int)first) : (int)first;
}

#define FIRST_CLIENT (LISTENERS + 1)

static nfds_t fill_poll(const struct daemon_control *c, struct pollfd *p)
{
	guint n = c->clients->len;

	for (guint i = 0; i < LISTENERS; i++)
		p[i] = (struct pollfd){.fd = c->deaf ? -1 : c->listen_fd[i], .events = POLLIN};
	p[LISTENERS] = (struct pollfd){.fd = c->stop_fd, .events = POLLIN};
	for (guint i = 0; i < n; i++) {
		const struct client *cl = c->clients->pdata[i];

		p[i + FIRST_CLIENT] = (struct pollfd){
			.fd = cl->fd,
			.events = cl->out->len ? POLLOUT : POLLIN,
		};
	}
	return n + FIRST_CLIENT;
}

static void *serve(void *arg)
{
	struct pollfd p[LISTENERS * DAEMON_CONTROL_CLIENTS_MAX + FIRST_CLIENT];
	struct daemon_control *c = arg;

	for (;;) {
		nfds_t n = fill_poll(c, p);
		uint64_t now;

		if (poll(p, n, patience_ms(c)) < 0) {
			if (errno != EINTR)
				break;
			continue;
		}
		c->deaf = false;
		if (p[LISTENERS].revents)
			break;
		now = util_now_ns();
		for (guint i = (guint)(n - FIRST_CLIENT); i-- > 0;) {
			struct client *cl = c->clients->pdata[i];
			short revents = p[i + FIRST_CLIENT].revents;

			if (now >= cl->deadline_ns || (revents && !client_step(c, cl, revents)))
				g_ptr_array_remove_index(c->clients, i);
		}
		for (guint i = 0; i < LISTENERS; i++)
			if (p[i].revents & POLLIN)
				accept_client(c, (enum listener)i);
	}
	return NULL;
}

struct daemon_control *daemon_control_start(const struct daemon_control_config *config)
{
	struct daemon_control *c = g_new0(struct daemon_control, 1);

	c->config = *config;
	c->listen_fd[LISTEN_CONTROL] = config->control_fd;
	c->listen_fd[LISTEN_METRICS] = config->metrics_fd;
	c->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (c->stop_fd < 0)
		g_error("eventfd: %s", g_strerror(errno));
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
