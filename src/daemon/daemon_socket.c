// SPDX-License-Identifier: Apache-2.0
/*
 * Who serves a path? A lock file beside the socket answers it for daemons of our kind, in any
 * namespace; /proc/net/unix answers it for others. The lock file is removed at the end, so who
 * gets the lock must look whether the file that he locked is still the one with that name.
 */
#include "daemon_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "util_fd.h"

/* syscalls: unlinkat */

#define BACKLOG 16
#define UNIX_LISTENS "00010000" /* __SO_ACCEPTCON in the flags column */

G_DEFINE_QUARK(daemon - socket - error, daemon_socket_error)

void daemon_socket_init(struct daemon_socket *s)
{
	*s = (struct daemon_socket){.fd = -1, .lock_fd = -1};
}

static bool fail(GError **error, const char *path, const char *what)
{
	int err = errno;

	g_set_error(error, DAEMON_SOCKET_ERROR, err, "%s: %s: %s", path, what, g_strerror(err));
	return false;
}

static bool taken(GError **error, const char *path, const char *by)
{
	g_set_error(error, DAEMON_SOCKET_ERROR, EADDRINUSE,
		    "%s: another daemon%s%s is serving this socket; end it, or use another path",
		    path, *by ? ", process " : "", by);
	return false;
}

static bool lock_is_named(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

static bool take_lock(struct daemon_socket *s, GError **error)
{
	char pid[32];

	for (;;) {
		util_autofd fd =
			open(s->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		ssize_t n;

		if (fd < 0)
			return fail(error, s->lock_path, "cannot make the lock file");
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			n = read(fd, pid, sizeof(pid) - 1);
			pid[MAX(n, 0)] = 0;
			return taken(error, s->path, g_strstrip(pid));
		}
		if (!lock_is_named(fd, s->lock_path))
			continue;
		n = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
		if (ftruncate(fd, 0) < 0 || write(fd, pid, (size_t)n) < 0)
			return fail(error, s->lock_path, "cannot write the lock file");
		s->lock_fd = util_steal_fd(&fd);
		return true;
	}
}

/* Lines: "num: refcount protocol flags type state inode path". */
static bool someone_listens(const char *path)
{
	g_autofree char *text = NULL;
	g_auto(GStrv) lines = NULL;

	if (!g_file_get_contents("/proc/net/unix", &text, NULL, NULL))
		return false;
	lines = g_strsplit(text, "\n", -1);
	for (char **l = lines; *l; l++) {
		const char *at = strchr(*l, '/');

		if (at && strcmp(at, path) == 0 && strstr(*l, " " UNIX_LISTENS " "))
			return true;
	}
	return false;
}

static bool clear_path(const struct daemon_socket *s, GError **error)
{
	struct stat st;

	if (lstat(s->path, &st) < 0)
		return errno == ENOENT || fail(error, s->path, "cannot look at it");
	if (!S_ISSOCK(st.st_mode)) {
		g_set_error(error, DAEMON_SOCKET_ERROR, EEXIST,
			    "%s: is there already, and is not a socket", s->path);
		return false;
	}
	if (someone_listens(s->path))
		return taken(error, s->path, "");
	if (unlink(s->path) < 0 && errno != ENOENT)
		return fail(error, s->path, "cannot remove the stale socket");
	return true;
}

static bool bind_path(struct daemon_socket *s, const char *given, GError **error)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	mode_t mask;
	int err;

	if (strlen(given) >= sizeof(a.sun_path)) {
		errno = ENAMETOOLONG;
		return fail(error, given, "cannot listen");
	}
	g_strlcpy(a.sun_path, given, sizeof(a.sun_path));
	s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->fd < 0)
		return fail(error, given, "socket");
	mask = umask(0177);
	err = bind(s->fd, (struct sockaddr *)&a, sizeof(a));
	umask(mask);
	if (err < 0)
		return fail(error, given, "cannot listen");
	return true;
}

static bool give_to_group(const char *path, const char *group, GError **error)
{
	guint64 gid;
	struct group *g = getgrnam(group);

	if (g) {
		gid = g->gr_gid;
	} else if (!g_ascii_string_to_unsigned(group, 10, 0, G_MAXUINT32 - 1, &gid, NULL)) {
		g_set_error(error, DAEMON_SOCKET_ERROR, ENOENT,
			    "option --socket-group: \"%s\" is no group of this machine", group);
		return false;
	}
	if (chown(path, (uid_t)-1, (gid_t)gid) < 0 || chmod(path, 0660) < 0)
		return fail(error, path, "cannot give it to the group of --socket-group");
	return true;
}

bool daemon_socket_listen(struct daemon_socket *s, const char *path, const char *group,
			  GError **error)
{
	bool bound = false;

	s->path = g_canonicalize_filename(path, NULL);
	s->lock_path = g_strconcat(s->path, ".lock", NULL);
	if (take_lock(s, error) && clear_path(s, error) && bind_path(s, path, error)) {
		bound = true;
		if ((!group || give_to_group(s->path, group, error)) &&
		    (listen(s->fd, BACKLOG) == 0 || fail(error, path, "cannot listen")))
			return true;
	}
	if (bound)
		unlink(s->path);
	if (s->lock_fd >= 0)
		unlink(s->lock_path);
	daemon_socket_close(s);
	return false;
}

bool daemon_socket_adopt(struct daemon_socket *s, int fd, GError **error)
{
	int listening = 0;
	socklen_t len = sizeof(listening);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0 || !listening) {
		g_set_error(error, DAEMON_SOCKET_ERROR, EINVAL,
			    "option --fd: %d is not a listening socket that this process inherited",
			    fd);
		return false;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, O_NONBLOCK);
	s->fd = fd;
	return true;
}

void daemon_socket_remove(const struct daemon_socket *s)
{
	if (!s->path)
		return;
	unlinkat(AT_FDCWD, s->path, 0);
	unlinkat(AT_FDCWD, s->lock_path, 0);
}

void daemon_socket_close(struct daemon_socket *s)
{
	util_close(&s->fd);
	util_close(&s->lock_fd);
	g_clear_pointer(&s->path, g_free);
	g_clear_pointer(&s->lock_path, g_free);
}
