/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DAXMAP_UTIL_HELP_H
#define DAXMAP_UTIL_HELP_H

#include <glib.h>

/**
 * util_help_text() - the help of an option context, in ASCII
 * @ctx: the context, all its groups added
 *
 * GLib writes an ellipsis into the usage line, which a plain C locale shows as "?".
 *
 * Return: the text; the caller frees it.
 */
static inline char *util_help_text(GOptionContext *ctx)
{
	g_autofree char *text = g_option_context_get_help(ctx, FALSE, NULL);
	g_auto(GStrv) parts = g_strsplit(text, "\342\200\246", -1);

	return g_strjoinv("...", parts);
}

#endif
