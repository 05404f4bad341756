// SPDX-License-Identifier: Apache-2.0
/*
 * Globs are the administrator's, paths the guest's: so no backtracking that a long name could
 * make exponential. One row of "the glob up to here matches the path up to j" per glob element.
 */
#include "policy.h"

#include <glib.h>
#include <limits.h>
#include <string.h>

/* One element of a glob; its length, 0 at the end, -1 when broken. */
enum kind { ONE, ANY, STAR, STARSTAR, SET };

/* The end of "[...]" behind @g, or NULL. */
static const char *set_end(const char *g)
{
	const char *p = g + 1;

	if (*p == '!' || *p == '^')
		p++;
	if (*p == ']')
		p++;
	while (*p && *p != ']')
		p += *p == '\\' && p[1] ? 2 : 1;
	return *p ? p + 1 : NULL;
}

static bool in_set(const char *g, const char *end, unsigned char c)
{
	const char *p = g + 1;
	bool negate = *p == '!' || *p == '^';
	bool found = false;
	bool first = true;

	p += negate;
	for (; p < end - 1 && (first || *p != ']'); first = false) {
		unsigned char lo, hi;

		p += *p == '\\' && p + 1 < end - 1;
		lo = (unsigned char)*p++;
		hi = lo;
		if (p[0] == '-' && p + 1 < end - 1) {
			p++;
			p += *p == '\\' && p + 1 < end - 1;
			hi = (unsigned char)*p++;
		}
		found = found || (lo <= c && c <= hi);
	}
	return c != '/' && found != negate;
}

static const char *next_element(const char *g, enum kind *kind)
{
	switch (*g) {
	case '*':
		*kind = g[1] == '*' ? STARSTAR : STAR;
		return g + (g[1] == '*' ? 2 : 1);
	case '?':
		*kind = ANY;
		return g + 1;
	case '[':
		*kind = SET;
		return set_end(g);
	case '\\':
		*kind = ONE;
		return g[1] ? g + 2 : NULL;
	default:
		*kind = ONE;
		return g + 1;
	}
}

static void step_star(const char *path, size_t n, bool deep, bool *row)
{
	for (size_t j = 0; j < n; j++)
		if (row[j] && (deep || path[j] != '/'))
			row[j + 1] = true;
}

static void step_one(const char *g, const char *end, enum kind kind, const char *path, size_t n,
		     bool *row)
{
	char want = *g == '\\' ? g[1] : *g;

	for (size_t j = n; j-- > 0;) {
		bool fits = kind == ANY	  ? path[j] != '/'
			    : kind == SET ? in_set(g, end, (unsigned char)path[j])
					  : path[j] == want;

		row[j + 1] = row[j] && fits;
	}
	row[0] = false;
}

static bool match(const char *glob, const char *path)
{
	size_t n = strlen(path);
	bool row[PATH_MAX + 1] = {true};

	if (n > PATH_MAX)
		return false;
	for (const char *g = glob; *g;) {
		enum kind kind;
		const char *end = next_element(g, &kind);

		if (!end)
			return false;
		if (kind == STARSTAR && *end == '/') {
			/* "**" and its '/' may be nothing at all. */
			bool at_start = g == glob || g[-1] == '/';
			bool before[PATH_MAX + 1];

			memcpy(before, row, n + 1);
			step_star(path, n, true, row);
			step_one(end, end + 1, ONE, path, n, row);
			for (size_t j = 0; at_start && j <= n; j++)
				row[j] = row[j] || before[j];
			end++;
		} else if (kind == STAR || kind == STARSTAR) {
			step_star(path, n, kind == STARSTAR, row);
		} else {
			step_one(g, end, kind, path, n, row);
		}
		g = end;
	}
	return row[n];
}

bool policy_glob_match(const char *glob, const char *path, bool whole)
{
	size_t n = strlen(glob);
	const char *slash = strchr(glob, '/');
	g_autofree char *below = NULL;
	const char *name = strrchr(path, '/');

	if (!*path)
		return false;
	if (!slash)
		return match(glob, name ? name + 1 : path);
	if (!whole && !g_str_has_prefix(glob, "**"))
		return false;
	if (*glob == '/')
		glob++, n--;
	if (!n || glob[n - 1] == '/') {
		below = g_strconcat(glob, "**", NULL);
		glob = below;
	}
	return match(glob, path);
}

bool policy_glob_valid(const char *glob)
{
	enum kind kind;

	if (!*glob)
		return false;
	while (glob && *glob)
		glob = next_element(glob, &kind);
	return glob != NULL;
}
