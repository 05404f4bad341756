/* SPDX-License-Identifier: Apache-2.0 */
/* A full-screen terminal, as it was again whichever way the program ends or stops. One at a time.
 */
#ifndef DAXMAP_CTL_TERM_H
#define DAXMAP_CTL_TERM_H

#include <glib.h>

enum ctl_term_event {
	CTL_TERM_TIMEOUT,
	CTL_TERM_KEY,
	CTL_TERM_REDRAW, /* another size, or the screen was somebody else's meanwhile */
	CTL_TERM_GONE,	 /* nobody types any more */
};

/** ctl_term_open() - takes the terminal at stdout over; FALSE where there is none */
gboolean ctl_term_open(void);
/** ctl_term_close() - gives it back; fine when it is not open */
void ctl_term_close(void);

/** ctl_term_size() - as it is now */
void ctl_term_size(guint *rows, guint *columns);

/** ctl_term_draw() - @lines, NULL-terminated, each no wider than the terminal but for escape
 * sequences; those beyond its last row are left out. FALSE when it is gone. */
gboolean ctl_term_draw(const GPtrArray *lines);

/** ctl_term_wait() - until @until_us (g_get_monotonic_time()), or something happens; *@key: what
 * was typed */
enum ctl_term_event ctl_term_wait(gint64 until_us, char *key);

#endif
