// SPDX-License-Identifier: Apache-2.0
/*
 * The control socket with any bytes: every line is answered by one line of JSON, or the client
 * is let go.
 */
#include "fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon_control.h"
#include "daemon_socket.h"

static JsonNode *run_echo(void *ctx, JsonObject *request, GError **error)
{
	return json_node_copy(json_object_get_member(request, "command"));
}

static const struct daemon_control_command commands[] = {{"echo", run_echo}};

struct server {
	char *dir, *path;
	struct daemon_socket socket;
	struct daemon_control *control;
};

static struct server server;

static void clean_up(void) __attribute__((destructor));
static void clean_up(void)
{
	if (!server.control)
		return;
	daemon_control_stop(server.control);
	daemon_socket_remove(&server.socket);
	daemon_socket_close(&server.socket);
	rmdir(server.dir);
	g_free(server.path);
	g_free(server.dir);
}

static int connect_to(struct server *s)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (!s->control) {
		GError *error = NULL;

		s->dir = g_dir_make_tmp("fuzz-control-XXXXXX", NULL);
		s->path = g_build_filename(s->dir, "c", NULL);
		daemon_socket_init(&s->socket);
		daemon_socket_listen(&s->socket, s->path, NULL, &error);
		g_assert_no_error(error);
		s->control = daemon_control_start(&(struct daemon_control_config){
			.control_fd = s->socket.fd,
			.commands = commands,
			.n_commands = G_N_ELEMENTS(commands),
			.metrics_fd = -1,
		});
	}
	g_strlcpy(a.sun_path, s->path, sizeof(a.sun_path));
	g_assert_cmpint(connect(fd, (struct sockaddr *)&a, sizeof(a)), ==, 0);
	return fd;
}

static void check_answers(const GString *got)
{
	g_auto(GStrv) lines = g_strsplit(got->str, "\n", -1);
	guint n = g_strv_length(lines);

	g_assert_cmpuint(strlen(got->str), ==, got->len);
	for (guint i = 0; i + 1 < n; i++) {
		g_autoptr(JsonNode) answer = json_from_string(lines[i], NULL);

		g_assert_nonnull(answer);
		g_assert_true(JSON_NODE_HOLDS_OBJECT(answer));
		g_assert_true(json_object_has_member(json_node_get_object(answer), "ok"));
	}
	if (n > 0)
		g_assert_cmpstr(lines[n - 1], ==, "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	g_autoptr(GString) got = g_string_new(NULL);
	int fd = connect_to(&server);
	char buf[512];
	ssize_t n;

	/* EPIPE when it has let go already */
	(void)!send(fd, data, size, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		g_string_append_len(got, buf, n);
	if (n == 0)
		check_answers(got);
	close(fd);
	return 0;
}

size_t fuzz_seed(unsigned int i, uint8_t *buf, size_t cap)
{
	static const char *const seeds[] = {
		"{\"command\": \"echo\"}\n",
		"{\"command\": \"echo\", \"more\": [1, 2.5e300]}\n{\"command\": \"none\"}\n",
		"\n\n{\"command\": 7}\n[]\n",
		"{\"command\": \"\\u0065cho\\n\"}",
	};

	if (i >= G_N_ELEMENTS(seeds))
		return 0;
	g_strlcpy((char *)buf, seeds[i], cap);
	return strlen(seeds[i]);
}
