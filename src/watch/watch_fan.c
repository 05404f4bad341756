// SPDX-License-Identifier: Apache-2.0
#include "watch_fan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util_overflow.h"

/* syscalls: fanotify_mark name_to_handle_at fstatfs read */

#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200 /* Linux 6.5: a handle that need not be good for opening */
#endif

union handle {
	struct file_handle h;
	unsigned char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

int watch_fan_open(void)
{
	int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_CLOEXEC | FAN_NONBLOCK,
			       O_RDONLY);

	return fd < 0 ? -errno : fd;
}

static bool id_put(struct watch_id *id, const void *p, size_t n)
{
	if (n > WATCH_ID_MAX - id->len)
		return false;
	memcpy(id->bytes + id->len, p, n);
	id->len += (uint32_t)n;
	return true;
}

static bool make_id(struct watch_id *id, const void *fsid, int type, const void *handle, size_t n)
{
	id->len = 0;
	return id_put(id, fsid, sizeof(__kernel_fsid_t)) && id_put(id, &type, sizeof(type)) &&
	       id_put(id, handle, n);
}

static int id_of(int fd, struct watch_id *id)
{
	static const int flags[] = {AT_EMPTY_PATH | AT_HANDLE_FID, AT_EMPTY_PATH};
	union handle u;
	struct statfs sf;
	int mount, err = -EOPNOTSUPP;

	if (fstatfs(fd, &sf) < 0)
		return -errno;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		u.h.handle_bytes = MAX_HANDLE_SZ;
		if (name_to_handle_at(fd, "", &u.h, &mount, flags[i]) == 0)
			return make_id(id, &sf.f_fsid, u.h.handle_type, u.h.f_handle,
				       u.h.handle_bytes)
				       ? 0
				       : -EOVERFLOW;
		err = -errno;
	}
	return err;
}

int watch_fan_add(int fan, int fd, struct watch_id *id)
{
	int err = id_of(fd, id);

	if (err)
		return err;
	return fanotify_mark(fan, FAN_MARK_ADD | FAN_MARK_INODE, FAN_MODIFY, fd, NULL) < 0 ? -errno
											   : 0;
}

void watch_fan_remove(int fan, int fd)
{
	fanotify_mark(fan, FAN_MARK_REMOVE | FAN_MARK_INODE, FAN_MODIFY, fd, NULL);
}

bool watch_id_equal(const struct watch_id *a, const struct watch_id *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* The file that an event names; false: none that we understand. @len: of the whole event. */
static bool event_id(const unsigned char *event, size_t len, struct watch_id *id)
{
	struct fanotify_event_info_fid fid;
	struct file_handle h;
	size_t at = sizeof(struct fanotify_event_metadata);
	size_t handle = at + sizeof(fid);

	if (len < handle + sizeof(h))
		return false;
	memcpy(&fid, event + at, sizeof(fid));
	memcpy(&h, event + handle, sizeof(h));
	if (fid.hdr.info_type != FAN_EVENT_INFO_TYPE_FID ||
	    !util_range_inside(handle + sizeof(h), h.handle_bytes, len))
		return false;
	return make_id(id, &fid.fsid, h.handle_type, event + handle + sizeof(h), h.handle_bytes);
}

unsigned int watch_fan_parse(const void *buf, size_t len,
			     void (*changed)(void *ctx, const struct watch_id *id), void *ctx)
{
	const unsigned char *p = buf;
	struct fanotify_event_metadata m;
	struct watch_id id;
	unsigned int n = 0;

	for (; len >= sizeof(m); n++) {
		memcpy(&m, p, sizeof(m));
		if (m.event_len < sizeof(m) || m.event_len > len)
			break;
		if (m.vers == FANOTIFY_METADATA_VERSION && !(m.mask & FAN_Q_OVERFLOW) &&
		    event_id(p, m.event_len, &id))
			changed(ctx, &id);
		else
			changed(ctx, NULL);
		p += m.event_len;
		len -= m.event_len;
	}
	return n;
}

unsigned int watch_fan_read(int fan, void (*changed)(void *ctx, const struct watch_id *id),
			    void *ctx)
{
	_Alignas(struct fanotify_event_metadata) unsigned char buf[4096];
	unsigned int n = 0;
	ssize_t got;

	/* What does not fit into one read is still there: poll says so. */
	got = read(fan, buf, sizeof(buf));
	if (got > 0)
		n = watch_fan_parse(buf, (size_t)got, changed, ctx);
	return n;
}
