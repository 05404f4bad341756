// SPDX-License-Identifier: Apache-2.0
#include "ctl_client.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "util_fd.h"
#include "util_sock.h"

#define ANSWER_MAX (16u << 20)
#define PATIENCE_S 10

G_DEFINE_QUARK(ctl - error, ctl_error)

struct ctl_client {
	int fd;
	char *path;
	GString *in;
};

static const char *hint(int err)
{
	switch (err) {
	case ENOENT:
		return " (is this the daemon's --control-path?)";
	case ECONNREFUSED:
		return " (a socket without a daemon: it has ended)";
	case EACCES:
	case EPERM:
		return " (only who may open the socket file may ask)";
	default:
		return "";
	}
}

struct ctl_client *ctl_client_connect(const char *path, GError **error)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = PATIENCE_S};
	util_autofd fd = -1;
	struct ctl_client *c;

	if (!*path || strlen(path) >= sizeof(a.sun_path)) {
		g_set_error(error, CTL_ERROR, ENAMETOOLONG,
			    "--control-path: \"%s\" is not a path of 1 to %zu bytes", path,
			    sizeof(a.sun_path) - 1);
		return NULL;
	}
	g_strlcpy(a.sun_path, path, sizeof(a.sun_path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
		g_set_error(error, CTL_ERROR, errno, "cannot reach a daemon at %s: %s%s", path,
			    g_strerror(errno), hint(errno));
		return NULL;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	c = g_new0(struct ctl_client, 1);
	c->fd = util_steal_fd(&fd);
	c->path = g_strdup(path);
	c->in = g_string_new(NULL);
	return c;
}

void ctl_client_free(struct ctl_client *c)
{
	if (!c)
		return;
	util_close(&c->fd);
	g_free(c->path);
	g_string_free(c->in, TRUE);
	g_free(c);
}

static gboolean broken(struct ctl_client *c, GError **error, const char *what)
{
	g_set_error(error, CTL_ERROR, EIO, "the daemon at %s %s", c->path, what);
	return FALSE;
}

/* The descriptor, if any, goes with the first piece. */
static gboolean send_all(struct ctl_client *c, const char *text, int fd, GError **error)
{
	size_t len = strlen(text);

	while (len > 0) {
		ssize_t n = util_sock_send(c->fd, text, len, fd, 0);

		if (n <= 0)
			return broken(c, error, "has hung up");
		text += n;
		len -= (size_t)n;
		fd = -1;
	}
	return TRUE;
}

/* The next line, without its end, in c->in. */
static gboolean receive_line(struct ctl_client *c, GError **error)
{
	char buf[8192];

	g_string_truncate(c->in, 0);
	for (;;) {
		ssize_t n = recv(c->fd, buf, sizeof(buf), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return broken(c, error, "does not answer");
		if (n == 0)
			return broken(c, error, "hung up in the middle of its answer");
		g_string_append_len(c->in, buf, n);
		if (c->in->str[c->in->len - 1] == '\n')
			return TRUE;
		if (c->in->len > ANSWER_MAX)
			return broken(c, error, "answers without end");
	}
}

static JsonNode *read_answer(struct ctl_client *c, GError **error)
{
	g_autoptr(JsonParser) parser = json_parser_new();
	JsonNode *root;
	JsonObject *o;

	if (!json_parser_load_from_data(parser, c->in->str, (gssize)c->in->len, NULL) ||
	    !(root = json_parser_get_root(parser)) || !JSON_NODE_HOLDS_OBJECT(root)) {
		broken(c, error, "speaks another language: this is no control socket of daxmapd");
		return NULL;
	}
	o = json_node_get_object(root);
	if (!json_object_get_boolean_member_with_default(o, "ok", FALSE)) {
		g_set_error(
			error, CTL_ERROR, EREMOTEIO, "the daemon refuses: %s",
			json_object_get_string_member_with_default(o, "error", "no reason given"));
		return NULL;
	}
	if (!json_object_has_member(o, "result")) {
		broken(c, error, "answered without a result");
		return NULL;
	}
	return json_node_copy(json_object_get_member(o, "result"));
}

JsonNode *ctl_client_request(struct ctl_client *c, JsonObject *request, int fd, GError **error)
{
	g_autoptr(JsonNode) root = json_node_new(JSON_NODE_OBJECT);
	g_autofree char *text = NULL;
	g_autofree char *line = NULL;

	json_node_set_object(root, request);
	text = json_to_string(root, FALSE);
	line = g_strdup_printf("%s\n", text);
	if (!send_all(c, line, fd, error) || !receive_line(c, error))
		return NULL;
	return read_answer(c, error);
}

JsonNode *ctl_client_call(struct ctl_client *c, const char *command, GError **error)
{
	g_autoptr(JsonObject) request = json_object_new();

	json_object_set_string_member(request, "command", command);
	return ctl_client_request(c, request, -1, error);
}
