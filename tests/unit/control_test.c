// SPDX-License-Identifier: Apache-2.0
/* The control socket against clients of every kind, and the socket files themselves. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <glib.h>
#include <glib/gstdio.h>

#include "ctl_client.h"
#include "daemon_control.h"
#include "daemon_socket.h"

struct fixture {
	char *dir;
	char *path;
	struct daemon_socket socket;
	char *metrics_path;
	struct daemon_socket metrics;
	struct daemon_control *control;
};

static JsonNode *run_echo(void *ctx, JsonObject *request, GError **error)
{
	JsonNode *n = json_node_new(JSON_NODE_VALUE);

	json_node_set_int(n, 42);
	return n;
}

static JsonNode *run_fail(void *ctx, JsonObject *request, GError **error)
{
	g_set_error(error, DAEMON_CONTROL_ERROR, 1, "not today");
	return NULL;
}

static JsonNode *run_big(void *ctx, JsonObject *request, GError **error)
{
	JsonNode *n = json_node_new(JSON_NODE_VALUE);
	g_autofree char *text = g_strnfill(4 << 20, 'x');

	json_node_set_string(n, text);
	return n;
}

static const struct daemon_control_command commands[] = {
	{"echo", run_echo},
	{"fail", run_fail},
	{"big", run_big},
};

static char *page(void *ctx)
{
	return g_strdup("answer 42\n");
}

static void set_up(struct fixture *f, gconstpointer data)
{
	GError *error = NULL;

	f->dir = g_dir_make_tmp("control-XXXXXX", NULL);
	f->path = g_build_filename(f->dir, "c", NULL);
	daemon_socket_init(&f->socket);
	daemon_socket_listen(&f->socket, f->path, NULL, &error);
	g_assert_no_error(error);
	f->metrics_path = g_build_filename(f->dir, "m", NULL);
	daemon_socket_init(&f->metrics);
	daemon_socket_listen(&f->metrics, f->metrics_path, NULL, &error);
	g_assert_no_error(error);
	f->control = daemon_control_start(&(struct daemon_control_config){
		.control_fd = f->socket.fd,
		.commands = commands,
		.n_commands = G_N_ELEMENTS(commands),
		.metrics_fd = f->metrics.fd,
		.metrics = page,
	});
}

static void tear_down(struct fixture *f, gconstpointer data)
{
	daemon_control_stop(f->control);
	daemon_socket_remove(&f->socket);
	daemon_socket_close(&f->socket);
	daemon_socket_remove(&f->metrics);
	daemon_socket_close(&f->metrics);
	g_free(f->metrics_path);
	g_assert_cmpint(g_rmdir(f->dir), ==, 0);
	g_free(f->path);
	g_free(f->dir);
}

static int connect_to(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	g_strlcpy(a.sun_path, path, sizeof(a.sun_path));
	g_assert_cmpint(connect(fd, (struct sockaddr *)&a, sizeof(a)), ==, 0);
	return fd;
}

static void say(int fd, const char *text, size_t len)
{
	g_assert_cmpint(send(fd, text, len, MSG_NOSIGNAL), ==, (int)len);
}

/* One line; NULL when the other side has closed. */
static char *hear(int fd)
{
	GString *s = g_string_new(NULL);
	char c;

	for (;;) {
		ssize_t n = read(fd, &c, 1);

		if (n <= 0) {
			g_string_free(s, TRUE);
			return NULL;
		}
		if (c == '\n')
			return g_string_free(s, FALSE);
		g_string_append_c(s, c);
	}
}

static void expect(int fd, const char *request, const char *words)
{
	g_autofree char *line = NULL;

	say(fd, request, strlen(request));
	line = hear(fd);
	g_assert_nonnull(line);
	if (!strstr(line, words))
		g_error("\"%s\" does not say \"%s\"", line, words);
}

/* User and system time that this process has used, in microseconds. */
static uint64_t cpu_us(void)
{
	struct rusage u;

	g_assert_cmpint(getrusage(RUSAGE_SELF, &u), ==, 0);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000u +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Who cannot be accepted for want of descriptors waits, and so does the thread. */
static void out_of_descriptors_for_a_while(struct fixture *f, gconstpointer data)
{
	struct rlimit before, now;
	int fd = connect_to(f->path);
	uint64_t used;

	expect(fd, "{\"command\":\"echo\"}\n", "42");
	close(fd);
	g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &before), ==, 0);
	now = before;
	fd = dup(0); /* the lowest that is free, and none above it is */
	now.rlim_cur = (rlim_t)fd + 1;
	close(fd);
	g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &now), ==, 0);
	fd = connect_to(f->path);
	say(fd, "{\"command\":\"echo\"}\n", 19);
	used = cpu_us();
	g_usleep(300000);
	g_assert_cmpuint(cpu_us() - used, <, 30000);
	g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &before), ==, 0);
	expect(fd, "{\"command\":\"echo\"}\n", "42");
	close(fd);
}

static void garbage_gets_an_error(struct fixture *f, gconstpointer data)
{
	static const char *const garbage[] = {
		"hello\n",
		"{\n",
		"[]\n",
		"null\n",
		"42\n",
		"\"stats\"\n",
		"{\"command\":1}\n",
		"{}\n",
		"\xff\xfe\n",
		"{\"command\":\n",
		"{\"a\":{}}\n",
		"[[[[[[[[[[[[[[\n",
		"{\"command\":{}}\n",
		" \n",
	};
	int fd = connect_to(f->path);

	for (size_t i = 0; i < G_N_ELEMENTS(garbage); i++)
		expect(fd, garbage[i], "\"ok\":false");
	expect(fd, "{\"command\":\"nope\"}\n", "echo, fail, big");
	expect(fd, "{\"command\":\"fail\"}\n", "not today");
	expect(fd, "\n\n{\"command\":\"echo\"}\n", "42");
	close(fd);
}

static void endless_line_is_cut_off(struct fixture *f, gconstpointer data)
{
	int fd = connect_to(f->path), other;
	char chunk[512];

	memset(chunk, 'x', sizeof(chunk));
	for (int i = 0; i < 100; i++)
		if (send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL) < 0)
			break;
	g_assert_null(hear(fd));
	close(fd);
	other = connect_to(f->path);
	expect(other, "{\"command\":\"echo\"}\n", "42");
	close(other);
}

static void request_in_pieces_and_in_a_heap(struct fixture *f, gconstpointer data)
{
	const char *request = "{\"command\":\"echo\"}\n";
	g_autoptr(GString) heap = g_string_new(NULL);
	int fd = connect_to(f->path);

	for (size_t i = 0; request[i]; i++)
		say(fd, request + i, 1);
	g_free(hear(fd));
	for (int i = 0; i < 50; i++)
		g_string_append(heap, request);
	say(fd, heap->str, heap->len);
	for (int i = 0; i < 50; i++) {
		g_autofree char *line = hear(fd);

		g_assert_cmpstr(line, ==, "{\"ok\":true,\"result\":42}");
	}
	close(fd);
}

static void client_that_never_reads_blocks_nobody(struct fixture *f, gconstpointer data)
{
	const char *big = "{\"command\":\"big\"}\n";
	int lazy[DAEMON_CONTROL_CLIENTS_MAX], fd;

	for (size_t i = 0; i < G_N_ELEMENTS(lazy); i++) {
		lazy[i] = connect_to(f->path);
		say(lazy[i], big, strlen(big));
	}
	fd = connect_to(f->path);
	expect(fd, "{\"command\":\"echo\"}\n", "42");
	close(fd);
	for (size_t i = 0; i < G_N_ELEMENTS(lazy); i++)
		close(lazy[i]);
}

static void many_clients_come_and_go(struct fixture *f, gconstpointer data)
{
	for (int i = 0; i < 500; i++) {
		int fd = connect_to(f->path);

		if (i % 3 == 0)
			expect(fd, "{\"command\":\"echo\"}\n", "42");
		else if (i % 3 == 1)
			say(fd, "{\"comm", 7);
		close(fd);
	}
}

static void big_answer_arrives_whole(struct fixture *f, gconstpointer data)
{
	GError *error = NULL;
	struct ctl_client *c = ctl_client_connect(f->path, &error);
	JsonNode *n;

	g_assert_no_error(error);
	n = ctl_client_call(c, "big", &error);
	g_assert_no_error(error);
	g_assert_cmpuint(strlen(json_node_get_string(n)), ==, 4 << 20);
	json_node_unref(n);
	g_assert_null(ctl_client_call(c, "fail", &error));
	g_assert_nonnull(strstr(error->message, "not today"));
	g_clear_error(&error);
	ctl_client_free(c);
}

/* --- HTTP --- */

/* All that comes until the other side closes. */
static char *hear_all(int fd)
{
	GString *s = g_string_new(NULL);
	char buf[4096];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0)
		g_string_append_len(s, buf, n);
	close(fd);
	return g_string_free(s, FALSE);
}

static char *scrape(const char *path, const char *request, size_t len)
{
	int fd = connect_to(path);

	say(fd, request, len);
	return hear_all(fd);
}

#define SMALL "HTTP/1.0 200 OK\r\n"

static void scrapers_get_the_page(struct fixture *f, gconstpointer data)
{
	static const char *const good[] = {
		"GET /metrics HTTP/1.0\r\n\r\n",
		"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: a\r\n b\r\n\r\n",
		"GET /metrics?x=1 HTTP/1.0\n\n",
		"GET http://any.where:9100/metrics HTTP/1.1\r\n\r\n",
		"GET /metrics HTTP/1.0\r\n\r\nGET /metrics HTTP/1.0\r\n\r\n",
	};

	for (size_t i = 0; i < G_N_ELEMENTS(good); i++) {
		g_autofree char *text = scrape(f->metrics_path, good[i], strlen(good[i]));

		g_assert_true(g_str_has_prefix(text, SMALL));
		g_assert_nonnull(strstr(text, "\r\nContent-Length: 10\r\n"));
		g_assert_nonnull(strstr(text, "version=0.0.4"));
		g_assert_true(g_str_has_suffix(text, "\r\n\r\nanswer 42\n"));
	}
}

static void odd_scrapers_are_told_so(struct fixture *f, gconstpointer data)
{
	static const struct {
		const char *request;
		const char *status;
	} odd[] = {
		{"GET / HTTP/1.0\r\n\r\n", "404"},
		{"GET /metricsx HTTP/1.0\r\n\r\n", "404"},
		{"POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "405"},
		{"get /metrics HTTP/1.0\r\n\r\n", "405"},
		{"GET /metrics\r\n\r\n", "400"},
		{"GET  /metrics HTTP/1.0\r\n\r\n", "400"},
		{"GET /metrics SPDY/3\r\n\r\n", "400"},
		{"\r\n\r\n", "400"},
		{"\n\n", "400"},
		{"{\"command\":\"echo\"}\n\n", "400"},
	};
	g_autofree char *head = NULL, *zero = NULL, *longest = g_strnfill(20000, 'x'),
			*long_ = NULL;

	for (size_t i = 0; i < G_N_ELEMENTS(odd); i++) {
		g_autofree char *text =
			scrape(f->metrics_path, odd[i].request, strlen(odd[i].request));

		g_assert_true(g_str_has_prefix(text, "HTTP/1.0 "));
		if (!g_str_has_prefix(text + 9, odd[i].status))
			g_error("\"%s\" gets \"%s\"", odd[i].request, text);
	}
	head = scrape(f->metrics_path, "HEAD /metrics HTTP/1.0\r\n\r\n", 27);
	g_assert_nonnull(strstr(head, "Content-Length: 10"));
	g_assert_null(strstr(head, "answer"));
	zero = scrape(f->metrics_path, "GET /met\0ics HTTP/1.0\r\n\r\n", 26);
	g_assert_nonnull(strstr(zero, " 400 "));
	long_ = scrape(f->metrics_path, longest, 20000);
	g_assert_nonnull(strstr(long_, " 431 "));
}

/* Byte by byte, half closed, and never ending; meanwhile the others are served. */
static void slow_scrapers_block_nobody(struct fixture *f, gconstpointer data)
{
	const char *request = "GET /metrics HTTP/1.0\r\n\r\n";
	int mute[2 * DAEMON_CONTROL_CLIENTS_MAX], fd;
	g_autofree char *text = NULL, *again = NULL;

	for (size_t i = 0; i < G_N_ELEMENTS(mute); i++) {
		mute[i] = connect_to(f->metrics_path);
		if (i % 2)
			say(mute[i], "GET /met", 8);
	}
	fd = connect_to(f->metrics_path);
	for (size_t i = 0; request[i]; i++)
		say(fd, request + i, 1);
	g_assert_cmpint(shutdown(fd, SHUT_WR), ==, 0);
	text = hear_all(fd);
	g_assert_true(g_str_has_suffix(text, "answer 42\n"));
	fd = connect_to(f->path); /* has places of its own */
	expect(fd, "{\"command\":\"echo\"}\n", "42");
	close(fd);
	for (size_t i = 0; i < G_N_ELEMENTS(mute); i++)
		close(mute[i]);
	again = scrape(f->metrics_path, request, strlen(request));
	g_assert_true(g_str_has_prefix(again, SMALL));
}

static void client_names_what_is_wrong(struct fixture *f, gconstpointer data)
{
	g_autofree char *gone = g_build_filename(f->dir, "gone", NULL);
	g_autoptr(GError) e1 = NULL, e2 = NULL;

	g_assert_null(ctl_client_connect(gone, &e1));
	g_assert_nonnull(strstr(e1->message, gone));
	g_assert_null(ctl_client_connect("", &e2));
	g_assert_nonnull(strstr(e2->message, "--control-path"));
}

static void socket_is_ours_alone(struct fixture *f, gconstpointer data)
{
	struct stat st;

	g_assert_cmpint(stat(f->path, &st), ==, 0);
	g_assert_cmpuint(st.st_mode & 07777, ==, 0600);
}

static void live_socket_is_refused_undisturbed(struct fixture *f, gconstpointer data)
{
	int fd = connect_to(f->path);
	pid_t pid;
	int status;

	/* From another process: flock knows owners by open file, but so it is in real life. */
	pid = fork();
	if (pid == 0) {
		struct daemon_socket s;
		GError *error = NULL;

		daemon_socket_init(&s);
		if (daemon_socket_listen(&s, f->path, NULL, &error))
			_exit(1);
		_exit(strstr(error->message, "another daemon") ? 0 : 2);
	}
	g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
	g_assert_cmpint(status, ==, 0);
	expect(fd, "{\"command\":\"echo\"}\n", "42");
	close(fd);
	fd = connect_to(f->path);
	expect(fd, "{\"command\":\"echo\"}\n", "42");
	close(fd);
}

static void foreign_live_socket_is_refused(struct fixture *f, gconstpointer data)
{
	g_autofree char *path = g_build_filename(f->dir, "foreign", NULL);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct daemon_socket s;
	GError *error = NULL;

	g_strlcpy(a.sun_path, path, sizeof(a.sun_path));
	g_assert_cmpint(bind(fd, (struct sockaddr *)&a, sizeof(a)), ==, 0);
	g_assert_cmpint(listen(fd, 1), ==, 0);
	daemon_socket_init(&s);
	g_assert_false(daemon_socket_listen(&s, path, NULL, &error));
	g_assert_nonnull(strstr(error->message, "another daemon"));
	g_clear_error(&error);
	close(fd);
	/* Now it is stale. */
	g_assert_true(daemon_socket_listen(&s, path, NULL, &error));
	g_assert_no_error(error);
	daemon_socket_remove(&s);
	daemon_socket_close(&s);
}

static void file_in_the_way_is_kept(struct fixture *f, gconstpointer data)
{
	g_autofree char *path = g_build_filename(f->dir, "file", NULL);
	struct daemon_socket s;
	GError *error = NULL;

	g_assert_true(g_file_set_contents(path, "mine", 4, NULL));
	daemon_socket_init(&s);
	g_assert_false(daemon_socket_listen(&s, path, NULL, &error));
	g_assert_nonnull(strstr(error->message, "not a socket"));
	g_clear_error(&error);
	g_assert_true(g_file_test(path, G_FILE_TEST_EXISTS));
	g_unlink(path);
}

static void group_gets_the_socket(struct fixture *f, gconstpointer data)
{
	g_autofree char *path = g_build_filename(f->dir, "g", NULL);
	g_autofree char *gid = g_strdup_printf("%u", (unsigned int)getegid());
	struct daemon_socket s;
	GError *error = NULL;
	struct stat st;

	daemon_socket_init(&s);
	g_assert_false(daemon_socket_listen(&s, path, "no-such-group-here", &error));
	g_assert_nonnull(strstr(error->message, "--socket-group"));
	g_clear_error(&error);
	g_assert_false(g_file_test(path, G_FILE_TEST_EXISTS));
	g_assert_true(daemon_socket_listen(&s, path, gid, &error));
	g_assert_cmpint(stat(path, &st), ==, 0);
	g_assert_cmpuint(st.st_mode & 07777, ==, 0660);
	daemon_socket_remove(&s);
	daemon_socket_close(&s);
}

static void adopted_socket_must_listen(struct fixture *f, gconstpointer data)
{
	struct daemon_socket s;
	GError *error = NULL;

	daemon_socket_init(&s);
	g_assert_false(daemon_socket_adopt(&s, STDIN_FILENO, &error));
	g_assert_nonnull(strstr(error->message, "--fd"));
	g_clear_error(&error);
	g_assert_true(daemon_socket_adopt(&s, dup(f->socket.fd), &error));
	daemon_socket_remove(&s);
	daemon_socket_close(&s);
	g_assert_true(g_file_test(f->path, G_FILE_TEST_EXISTS));
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
#define ADD(path, fn) g_test_add(path, struct fixture, NULL, set_up, fn, tear_down)
	ADD("/control/garbage", garbage_gets_an_error);
	ADD("/control/out-of-descriptors", out_of_descriptors_for_a_while);
	ADD("/control/endless-line", endless_line_is_cut_off);
	ADD("/control/pieces", request_in_pieces_and_in_a_heap);
	ADD("/control/never-reads", client_that_never_reads_blocks_nobody);
	ADD("/control/many", many_clients_come_and_go);
	ADD("/control/big", big_answer_arrives_whole);
	ADD("/control/http", scrapers_get_the_page);
	ADD("/control/http-odd", odd_scrapers_are_told_so);
	ADD("/control/http-slow", slow_scrapers_block_nobody);
	ADD("/control/client-errors", client_names_what_is_wrong);
	ADD("/socket/mode", socket_is_ours_alone);
	ADD("/socket/live", live_socket_is_refused_undisturbed);
	ADD("/socket/foreign", foreign_live_socket_is_refused);
	ADD("/socket/file", file_in_the_way_is_kept);
	ADD("/socket/group", group_gets_the_socket);
	ADD("/socket/adopt", adopted_socket_must_listen);
	return g_test_run();
}
