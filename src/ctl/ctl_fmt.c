// SPDX-License-Identifier: Apache-2.0
#include "ctl_fmt.h"

static char *scaled(char buf[CTL_FMT_SIZE], double v, const char *unit, const char *space)
{
	g_snprintf(buf, CTL_FMT_SIZE, v < 9.95 && *unit ? "%.1f%s%s" : "%.0f%s%s", v, space, unit);
	return buf;
}

char *ctl_fmt_bytes(char buf[CTL_FMT_SIZE], guint64 bytes)
{
	static const char *const units[] = {"", "K", "M", "G", "T", "P", "E"};
	double v = (double)bytes;
	guint i = 0;

	while (v >= 1023.5 && i < G_N_ELEMENTS(units) - 1) {
		v /= 1024;
		i++;
	}
	if (v == (double)(int)v)
		g_snprintf(buf, CTL_FMT_SIZE, "%d%s", (int)v, units[i]);
	else
		scaled(buf, v, units[i], "");
	return buf;
}

char *ctl_fmt_ns(char buf[CTL_FMT_SIZE], double ns)
{
	if (ns < 0)
		g_strlcpy(buf, "-", CTL_FMT_SIZE);
	else if (ns < 1e3)
		g_snprintf(buf, CTL_FMT_SIZE, "%.0f ns", ns);
	else if (ns < 999.5e3)
		scaled(buf, ns / 1e3, "us", " ");
	else if (ns < 999.5e6)
		scaled(buf, ns / 1e6, "ms", " ");
	else
		scaled(buf, ns / 1e9, "s", " ");
	return buf;
}

char *ctl_fmt_rate(char buf[CTL_FMT_SIZE], double per_s)
{
	if (per_s < 0.05)
		g_strlcpy(buf, "0", CTL_FMT_SIZE);
	else if (per_s < 9.95)
		g_snprintf(buf, CTL_FMT_SIZE, "%.1f", per_s);
	else if (per_s < 9999.5)
		g_snprintf(buf, CTL_FMT_SIZE, "%.0f", per_s);
	else if (per_s < 999.5e3)
		scaled(buf, per_s / 1e3, "k", "");
	else
		scaled(buf, per_s / 1e6, "M", "");
	return buf;
}

char *ctl_fmt_span(char buf[CTL_FMT_SIZE], double s)
{
	guint64 n = (guint64)s, min = n / 60, h = min / 60, d = h / 24;

	if (n < 60)
		g_snprintf(buf, CTL_FMT_SIZE, "%d s", (int)n);
	else if (min < 60)
		g_snprintf(buf, CTL_FMT_SIZE, "%d min %02d s", (int)min, (int)(n % 60));
	else if (h < 24)
		g_snprintf(buf, CTL_FMT_SIZE, "%d h %02d min", (int)h, (int)(min % 60));
	else
		g_snprintf(buf, CTL_FMT_SIZE, "%d d %d h", (int)MIN(d, 1000000), (int)(h % 24));
	return buf;
}

static guint columns(gunichar c)
{
	if (g_unichar_iszerowidth(c))
		return 0;
	return g_unichar_iswide(c) ? 2 : 1;
}

static gunichar shown(gunichar c)
{
	return g_unichar_isprint(c) ? c : '?';
}

static guint width_of(const char *text)
{
	guint n = 0;

	for (const char *p = text; *p; p = g_utf8_next_char(p))
		n += columns(shown(g_utf8_get_char(p)));
	return n;
}

char *ctl_fmt_cut(const char *text, guint width, gboolean keep_end)
{
	g_autofree char *valid = g_utf8_make_valid(text, -1);
	guint total = width_of(valid), at = 0, skip = 0;
	GString *s = g_string_new(NULL);

	if (total > width && keep_end && width > 3) {
		g_string_append(s, "...");
		skip = total - width + 3;
		width += skip - 3;
	}
	for (const char *p = valid; *p; p = g_utf8_next_char(p)) {
		gunichar c = shown(g_utf8_get_char(p));

		at += columns(c);
		if (at > width)
			break;
		if (at > skip)
			g_string_append_unichar(s, c);
	}
	return g_string_free(s, FALSE);
}
