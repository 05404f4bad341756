// SPDX-License-Identifier: Apache-2.0
#include "daemon_http.h"

#include <string.h>

#define TEXT_FORMAT "text/plain; version=0.0.4; charset=utf-8" /* Prometheus' text format */

struct head {
	char *method;
	char *path; /* without what follows a '?' */
};

/* Where the head ends (behind the empty line); 0: not yet. */
static size_t head_end(const GString *in)
{
	const char *p = in->str, *end = in->str + in->len;

	while ((p = memchr(p, '\n', (size_t)(end - p)))) {
		p++;
		if (p < end && *p == '\n')
			return (size_t)(p + 1 - in->str);
		if (end - p >= 2 && p[0] == '\r' && p[1] == '\n')
			return (size_t)(p + 2 - in->str);
	}
	return 0;
}

/* A proxy sends the whole address. */
static const char *path_of(const char *target)
{
	const char *host = g_str_has_prefix(target, "http://") ? target + 7 : NULL;
	const char *slash = host ? strchr(host, '/') : NULL;

	if (!host)
		return target;
	return slash ? slash : "/";
}

static bool parse(const GString *in, size_t len, struct head *head)
{
	size_t line = (size_t)((const char *)memchr(in->str, '\n', len) - in->str);
	g_auto(GStrv) words = NULL;
	g_autofree char *text = NULL;

	if (memchr(in->str, 0, len))
		return false;
	text = g_strchomp(g_strndup(in->str, line));
	words = g_strsplit(text, " ", 4);
	if (g_strv_length(words) != 3 || !*words[0] || !g_str_has_prefix(words[2], "HTTP/1."))
		return false;
	head->method = g_strdup(words[0]);
	head->path = g_strdup(path_of(words[1]));
	head->path[strcspn(head->path, "?#")] = '\0';
	return true;
}

static void respond(GString *out, const char *status, const char *type, const char *body,
		    bool with_body)
{
	g_string_append_printf(out,
			       "HTTP/1.0 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
			       "Cache-Control: no-store\r\n%sConnection: close\r\n\r\n%s",
			       status, type, strlen(body),
			       g_str_has_prefix(status, "405") ? "Allow: GET, HEAD\r\n" : "",
			       with_body ? body : "");
}

static void refuse(GString *out, const char *status, const char *why)
{
	respond(out, status, "text/plain; charset=utf-8", why, true);
}

bool daemon_http_answer(const GString *in, GString *out, char *(*page)(void *ctx), void *ctx)
{
	size_t len = head_end(in);
	struct head head = {0};

	if (!len && in->len <= DAEMON_HTTP_HEAD_MAX)
		return false;
	if (!len || len > DAEMON_HTTP_HEAD_MAX) {
		refuse(out, "431 Request Header Fields Too Large", "too long\n");
	} else if (!parse(in, len, &head)) {
		refuse(out, "400 Bad Request", "this is no HTTP request\n");
	} else if (strcmp(head.method, "GET") != 0 && strcmp(head.method, "HEAD") != 0) {
		refuse(out, "405 Method Not Allowed", "there is nothing to do but to GET\n");
	} else if (strcmp(head.path, "/metrics") != 0) {
		refuse(out, "404 Not Found", "there is /metrics only\n");
	} else {
		g_autofree char *text = page(ctx);

		respond(out, "200 OK", TEXT_FORMAT, text, strcmp(head.method, "GET") == 0);
	}
	g_free(head.method);
	g_free(head.path);
	return true;
}
