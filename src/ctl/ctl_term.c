// SPDX-License-Identifier: Apache-2.0
/*
 * Whatever ends the program (q, a signal, a crash, exit()) has to give the terminal back, so the
 * fatal signals have a handler that does, with calls that are safe in one, and then die of the
 * signal. SIGWINCH, SIGTSTP and SIGCONT are let in only while ppoll() sleeps, so that none can slip
 * in between a look and the sleep.
 */
#include "ctl_term.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* Another screen, no cursor, no wrapping; and back. */
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[H\033[J"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"

static const int fatal[] = {SIGINT,  SIGTERM, SIGHUP, SIGQUIT, SIGPIPE,
			    SIGABRT, SIGSEGV, SIGBUS, SIGFPE,  SIGILL};
static const int noticed[] = {SIGWINCH, SIGTSTP, SIGCONT};

static struct termios before;
static gboolean can_type;
static volatile sig_atomic_t is_open;
static volatile sig_atomic_t changed;
static volatile sig_atomic_t to_stop;
static volatile sig_atomic_t resumed;

static gboolean put(const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, text, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return FALSE;
		text += n;
		len -= (size_t)n;
	}
	return TRUE;
}

static void enter(void)
{
	struct termios raw = before;

	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	if (can_type)
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	is_open = 1;
	put(ENTER, strlen(ENTER));
}

/* Safe in a signal handler. */
static void leave(void)
{
	if (!is_open)
		return;
	is_open = 0;
	put(LEAVE, strlen(LEAVE));
	if (can_type)
		tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void on_fatal(int sig)
{
	leave();
	raise(sig); /* SA_RESETHAND: it does its work now */
}

static void on_noticed(int sig)
{
	if (sig == SIGTSTP)
		to_stop = 1;
	if (sig == SIGCONT)
		resumed = 1;
	changed = 1;
}

static void catch (void)
{
	struct sigaction die = {.sa_handler = on_fatal, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
	struct sigaction note = {.sa_handler = on_noticed};
	struct sigaction old;
	sigset_t set;

	for (size_t i = 0; i < G_N_ELEMENTS(fatal); i++)
		if (sigaction(fatal[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(fatal[i], &die, NULL);
	sigemptyset(&set);
	for (size_t i = 0; i < G_N_ELEMENTS(noticed); i++) {
		sigaction(noticed[i], &note, NULL);
		sigaddset(&set, noticed[i]);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
}

gboolean ctl_term_open(void)
{
	if (!isatty(STDOUT_FILENO))
		return FALSE;
	can_type = tcgetattr(STDIN_FILENO, &before) == 0;
	catch ();
	atexit(leave);
	enter();
	return TRUE;
}

void ctl_term_close(void)
{
	leave();
}

void ctl_term_size(guint *rows, guint *columns)
{
	struct winsize w = {0};

	*rows = 24;
	*columns = 80;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row && w.ws_col) {
		*rows = w.ws_row;
		*columns = w.ws_col;
	}
}

gboolean ctl_term_draw(const GPtrArray *lines)
{
	g_autoptr(GString) s = g_string_new("\033[H");
	guint rows, columns;

	ctl_term_size(&rows, &columns);
	for (guint i = 0; i < MIN(lines->len, rows); i++)
		g_string_append_printf(s, "%s%s\033[0m\033[K", i ? "\r\n" : "",
				       (const char *)lines->pdata[i]);
	g_string_append(s, "\033[J");
	return put(s->str, s->len);
}

static void stop_for_a_while(void)
{
	to_stop = 0;
	leave();
	raise(SIGSTOP);
}

enum ctl_term_event ctl_term_wait(gint64 until_us, char *key)
{
	struct pollfd p = {.fd = can_type ? STDIN_FILENO : -1, .events = POLLIN};
	gint64 left = MAX(0, until_us - g_get_monotonic_time());
	struct timespec ts = {.tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000};
	sigset_t all;
	int n;

	sigemptyset(&all);
	n = ppoll(&p, 1, &ts, &all);
	if (changed) {
		changed = 0;
		if (to_stop)
			stop_for_a_while();
		/* Whoever had the terminal meanwhile has set it up for himself. */
		if (resumed || !is_open)
			enter();
		resumed = 0;
		return CTL_TERM_REDRAW;
	}
	if (n <= 0)
		return CTL_TERM_TIMEOUT;
	return read(STDIN_FILENO, key, 1) == 1 ? CTL_TERM_KEY : CTL_TERM_GONE;
}
