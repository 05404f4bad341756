/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them. Each fills @buf and returns it. */
#ifndef DAXMAP_CTL_FMT_H
#define DAXMAP_CTL_FMT_H

#include <glib.h>

#define CTL_FMT_SIZE 24

/** ctl_fmt_bytes() - "0", "512", "64K", "1.5G": at most 6 characters */
char *ctl_fmt_bytes(char buf[CTL_FMT_SIZE], guint64 bytes);
/** ctl_fmt_ns() - "850 ns", "12 us", "1.2 ms", "3.4 s"; "-" for nothing known (below 0) */
char *ctl_fmt_ns(char buf[CTL_FMT_SIZE], double ns);
/** ctl_fmt_rate() - "0", "0.3", "12", "1.2k", "34M" */
char *ctl_fmt_rate(char buf[CTL_FMT_SIZE], double per_s);
/** ctl_fmt_span() - a time of seconds to days: "12 s", "3 min 20 s", "2 h 05 min", "4 d 3 h" */
char *ctl_fmt_span(char buf[CTL_FMT_SIZE], double s);

/** ctl_fmt_cut() - @text in at most @width columns, without control characters; what is cut off is
 * the end, or the beginning when @keep_end. The caller frees it. */
char *ctl_fmt_cut(const char *text, guint width, gboolean keep_end);

#endif
