// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <json-glib/json-glib.h>

#include "raw_util.h"
#include "util_fd.h"
#include "util_lock.h"

bool raw_peer(void)
{
	return g_getenv("RAW_PEER") != NULL;
}

char *raw_path(struct raw *r, const char *name)
{
	return g_build_filename(r->share, name, NULL);
}

/* --- the daemon's process --- */

static int make_listener(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	g_assert_cmpint(fd, >=, 0);
	g_strlcpy(sa.sun_path, path, sizeof(sa.sun_path));
	g_assert_cmpint(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), ==, 0);
	g_assert_cmpint(listen(fd, 4), ==, 0);
	return fd;
}

static void add_words(GPtrArray *argv, const char *words)
{
	char **w = words && *words ? g_strsplit_set(words, " ", -1) : NULL;

	for (char **p = w; w && *p; p++)
		if (**p)
			g_ptr_array_add(argv, g_strdup(*p));
	g_strfreev(w);
}

static GPtrArray *make_argv(struct raw *r, const char *args)
{
	GPtrArray *a = g_ptr_array_new_with_free_func(g_free);
	const char *peer = g_getenv("RAW_PEER");

	if (peer) {
		g_ptr_array_add(a, g_strdup(peer));
		g_ptr_array_add(a, g_strdup_printf("--fd=%d", r->listen));
		add_words(a, "-o cache=auto,xattr,sandbox=chroot,no_posix_lock,no_flock -o");
		g_ptr_array_add(a, g_strdup_printf("source=%s", r->share));
	} else {
		const char *daemon = g_getenv("DAXMAPD");

		g_ptr_array_add(a, g_strdup(daemon ? daemon : "build/daxmapd"));
		g_ptr_array_add(a, g_strdup_printf("--fd=%d", r->listen));
		g_ptr_array_add(a, g_strdup_printf("--shared-dir=%s", r->share));
		g_ptr_array_add(a, g_strdup_printf("--control-path=%s", r->control));
		add_words(a, "--tag raw --log-level debug");
		add_words(a, g_getenv("RAW_ARGS"));
		add_words(a, args);
	}
	g_ptr_array_add(a, NULL);
	return a;
}

static void spawn(struct raw *r, const char *args)
{
	GPtrArray *argv = make_argv(r, args);
	int log = open(r->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

	g_assert_cmpint(log, >=, 0);
	r->pid = fork();
	g_assert_cmpint(r->pid, >=, 0);
	if (!r->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(log, 1);
		dup2(log, 2);
		execv(argv->pdata[0], (char **)argv->pdata);
		dprintf(2, "cannot run %s: %s\n", (char *)argv->pdata[0], strerror(errno));
		_exit(127);
	}
	close(log);
	g_ptr_array_free(argv, TRUE);
}

struct raw *raw_start(const char *args)
{
	struct raw *r = g_new0(struct raw, 1);
	GError *error = NULL;

	r->base = g_dir_make_tmp("daxmapd-raw-XXXXXX", &error);
	g_assert_no_error(error);
	g_assert_cmpint(chmod(r->base, 0755), ==, 0);
	r->share = g_build_filename(r->base, "share", NULL);
	r->log = g_build_filename(r->base, "log", NULL);
	r->socket = g_build_filename(r->base, "socket", NULL);
	r->control = g_build_filename(r->base, "control", NULL);
	g_assert_cmpint(mkdir(r->share, 0755), ==, 0);
	r->persistent = args && strstr(args, "--persistent");
	r->listen = make_listener(r->socket);
	spawn(r, args);
	util_close(&r->listen);
	return r;
}

static int pidfd_open_(int pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

int raw_wait_exit(struct raw *r)
{
	util_autofd pidfd = pidfd_open_(r->pid);
	struct pollfd p = {.fd = pidfd, .events = POLLIN};
	int status = -1;

	if (poll(&p, 1, RAW_TIMEOUT) == 0) {
		char *text = raw_log_text(r);

		g_test_message("the daemon hangs; its log:\n%s", text);
		g_free(text);
		kill(r->pid, SIGABRT);
	}
	waitpid(r->pid, &status, 0);
	r->pid = 0;
	return status;
}

/* --- the guest --- */

void raw_connect_only(struct raw *r, const struct guest_config *config)
{
	struct guest_config c = {.window.mode = GUEST_WINDOW_STRICT};
	GError *error = NULL;

	if (config)
		c = *config;
	c.socket_path = r->socket;
	c.timeout_ms = RAW_TIMEOUT;
	if (!r->fe) {
		r->fe = guest_frontend_new(&c, &error);
		g_assert_no_error(error);
		r->fuse = guest_fuse_new(r->fe, NULL);
		g_assert_nonnull(r->fuse);
		r->mem = guest_frontend_mem(r->fe);
		r->window = guest_frontend_window(r->fe);
	}
	if (guest_frontend_connect(r->fe, &error)) {
		char *text = raw_log_text(r);

		g_test_message("daemon's log:\n%s", text);
		g_free(text);
	}
	g_assert_no_error(error);
}

void raw_connect(struct raw *r, const struct guest_config *config)
{
	GError *error = NULL;

	raw_connect_only(r, config);
	guest_frontend_start(r->fe, &error);
	g_assert_no_error(error);
	raw_assert_ok(guest_fuse_init(r->fuse, 0, NULL));
}

void raw_leave(struct raw *r)
{
	char *s;

	if (!r->fe)
		return;
	guest_frontend_disconnect(r->fe);
	for (unsigned int i = 0; (s = guest_window_violation(r->window, i)); i++) {
		g_test_message("rule broken: %s", s);
		g_free(s);
	}
	g_assert_cmpuint(guest_window_violations(r->window), ==, 0);
	s = guest_fuse_fault(r->fuse);
	if (!r->lenient)
		g_assert_cmpstr(s, ==, NULL);
	g_free(s);
	guest_fuse_free(r->fuse);
	guest_frontend_free(r->fe);
	r->fuse = NULL;
	r->fe = NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

void raw_stop(struct raw *r)
{
	int status = 0;
	char *text;

	raw_leave(r);
	if (r->pid) {
		if (r->persistent)
			kill(r->pid, SIGTERM);
		status = raw_wait_exit(r);
	}
	text = raw_log_text(r);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		g_test_message("daemon's log:\n%s", text);
	g_assert_true(WIFEXITED(status));
	g_assert_cmpint(WEXITSTATUS(status), ==, 0);
	g_assert_null(strstr(text, "Sanitizer"));
	g_assert_null(strstr(text, "runtime error"));
	g_free(text);
	nftw(r->base, remove_one, 32, FTW_DEPTH | FTW_PHYS);
	g_free(r->base);
	g_free(r->share);
	g_free(r->log);
	g_free(r->socket);
	g_free(r->control);
	g_free(r);
}

/* --- files with known bytes --- */

static uint64_t word_at(uint64_t off, uint64_t seed)
{
	return (off / 8) * 0x9e3779b97f4a7c15ull + seed * 0xff51afd7ed558ccdull;
}

void raw_make_file(struct raw *r, const char *name, uint64_t size, uint64_t seed)
{
	char *path = raw_path(r, name);
	FILE *f = fopen(path, "w");

	g_assert_nonnull(f);
	for (uint64_t off = 0; off < size; off += 8) {
		uint64_t w = word_at(off, seed);

		g_assert_cmpuint(fwrite(&w, 1, MIN(8, size - off), f), >, 0);
	}
	g_assert_cmpint(fclose(f), ==, 0);
	g_free(path);
}

bool raw_check_bytes(const void *p, uint64_t off, uint64_t len, uint64_t seed)
{
	const uint8_t *b = p;

	for (uint64_t i = 0; i < len; i++) {
		uint64_t w = word_at((off + i) & ~7ull, seed);

		if (b[i] != (uint8_t)(w >> (8 * ((off + i) % 8)))) {
			g_test_message("byte %" G_GUINT64_FORMAT " is wrong", off + i);
			return false;
		}
	}
	return true;
}

uint64_t raw_node(struct raw *r, const char *path)
{
	struct fuse_entry_out e;

	raw_assert_ok(guest_fuse_path(r->fuse, path, &e));
	g_assert_cmpuint(e.nodeid, !=, 0);
	return e.nodeid;
}

/* --- raw chains --- */

uint64_t raw_gpa(struct raw *r, const void *p)
{
	uint64_t gpa;

	g_assert_true(guest_mem_gpa(r->mem, p, 1, &gpa));
	return gpa;
}

ssize_t raw_chain(struct raw *r, unsigned int queue, const struct guest_desc *d, unsigned int n)
{
	struct guest_req *q = guest_req_get(r->fuse);
	int err;

	g_assert_nonnull(q);
	guest_req_start(q, FUSE_FORGET, 0);
	q->finished = false;
	raw_assert_ok(guest_ring_raw(guest_frontend_ring(r->fe, queue), d, n, q));
	err = guest_req_wait_for(q, RAW_TIMEOUT);
	if (err == -ETIMEDOUT)
		return err;
	n = q->written;
	guest_req_put(q);
	return err == 0 || err == -EPROTO ? (ssize_t)n : err;
}

/* --- /proc --- */

static unsigned int count_entries(int pid, const char *what)
{
	char *path = g_strdup_printf("/proc/%d/%s", pid, what);
	DIR *d = opendir(path);
	unsigned int n = 0;

	g_free(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n < 2 ? 0 : n - 2;
}

/* Of @pid and its descendants the one with the most threads: it serves; helpers have one. */
static int busiest(int pid, unsigned int *threads)
{
	char *path = g_strdup_printf("/proc/%d/task/%d/children", pid, pid);
	char *text = NULL;
	char **children = NULL;
	int best = pid;

	*threads = count_entries(pid, "task");
	if (g_file_get_contents(path, &text, NULL, NULL))
		children = g_strsplit(text, " ", -1);
	for (char **c = children; c && *c; c++) {
		unsigned int n = 0;
		int found = atoi(*c) ? busiest(atoi(*c), &n) : 0;

		if (found && n >= *threads) {
			*threads = n;
			best = found;
		}
	}
	g_strfreev(children);
	g_free(text);
	g_free(path);
	return best;
}

int raw_daemon_pid(struct raw *r)
{
	unsigned int threads;

	return busiest(r->pid, &threads);
}

unsigned int raw_count_fds(struct raw *r)
{
	return count_entries(raw_daemon_pid(r), "fd");
}

unsigned int raw_count_threads(struct raw *r)
{
	return count_entries(raw_daemon_pid(r), "task");
}

unsigned int raw_wait_fds(struct raw *r, unsigned int n)
{
	uint64_t until = util_now_ns() + 5000000000ull;
	unsigned int have;

	while ((have = raw_count_fds(r)) > n && util_now_ns() < until)
		g_usleep(2000);
	return have;
}

/* --- the control socket --- */

static JsonNode *ask_stats(struct raw *r)
{
	static const char request[] = "{\"command\": \"stats\"}\n";
	util_autofd fd = guest_chan_connect(r->control);
	g_autoptr(GString) text = g_string_new(NULL);
	g_autoptr(JsonParser) parser = json_parser_new();
	char buf[4096];
	ssize_t n;

	if (fd < 0 || write(fd, request, sizeof(request) - 1) < 0)
		return NULL;
	while (!strchr(text->str, '\n') && (n = read(fd, buf, sizeof(buf))) > 0)
		g_string_append_len(text, buf, n);
	if (!json_parser_load_from_data(parser, text->str, -1, NULL))
		return NULL;
	return json_parser_steal_root(parser);
}

int64_t raw_stat(struct raw *r, const char *path)
{
	g_autoptr(JsonNode) root = ask_stats(r);
	g_auto(GStrv) parts = g_strsplit(path, ".", -1);
	JsonObject *o = root ? json_node_get_object(root) : NULL;

	o = o && json_object_has_member(o, "result") ? json_object_get_object_member(o, "result")
						     : NULL;
	for (char **p = parts; o && *p; p++) {
		if (!json_object_has_member(o, *p))
			return -1;
		if (!p[1])
			return json_object_get_int_member(o, *p);
		o = json_object_get_object_member(o, *p);
	}
	return -1;
}

int64_t raw_wait_stat(struct raw *r, const char *path, int64_t want)
{
	uint64_t until = util_now_ns() + 5000000000ull;
	int64_t have;

	while ((have = raw_stat(r, path)) != want && util_now_ns() < until)
		g_usleep(2000);
	return have;
}

/* --- the log --- */

char *raw_log_text(struct raw *r)
{
	char *text = NULL;

	if (!g_file_get_contents(r->log, &text, NULL, NULL))
		text = g_strdup("");
	return text;
}

unsigned int raw_log_lines(struct raw *r, const char *what)
{
	char *text = raw_log_text(r);
	char **lines = g_strsplit(text, "\n", -1);
	unsigned int n = 0;

	for (char **l = lines; *l; l++)
		n += strstr(*l, what) != NULL;
	g_strfreev(lines);
	g_free(text);
	return n;
}

bool raw_wait_log(struct raw *r, const char *what, unsigned int n)
{
	uint64_t until = util_now_ns() + 5000000000ull;

	while (raw_log_lines(r, what) < n) {
		if (util_now_ns() > until)
			return false;
		g_usleep(2000);
	}
	return true;
}
