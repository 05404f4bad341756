// SPDX-License-Identifier: Apache-2.0
/*
 * Bounded access to guest buffers. The list of segments is the transport's own and constant; the
 * bytes behind it are the guest's and change at any moment, so each is fetched once and only the
 * copy is looked at.
 */
#include "fuse_cursor.h"

#include <errno.h>
#include <glib.h>
#include <string.h>

void fuse_cursor_init(struct fuse_cursor *c, const struct util_gvec *v)
{
	*c = (struct fuse_cursor){.v = v, .left = v->len};
}

static bool segment_is_window(const struct util_gvec *v, unsigned int seg)
{
	return v->window && v->window[seg] != UTIL_GVEC_RAM;
}

/* The next piece of at most @max bytes, in one segment; 0 only at the end of the list. */
static size_t next_piece(struct fuse_cursor *c, size_t max, unsigned int *seg, size_t *off)
{
	size_t n;

	while (c->seg < c->v->n && c->off >= c->v->iov[c->seg].iov_len) {
		c->seg++;
		c->off = 0;
	}
	if (c->seg >= c->v->n)
		return 0;
	n = MIN(MIN(max, c->left), c->v->iov[c->seg].iov_len - c->off);
	*seg = c->seg;
	*off = c->off;
	c->off += n;
	c->left -= n;
	return n;
}

bool fuse_cursor_skip(struct fuse_cursor *c, size_t n)
{
	unsigned int seg;
	size_t off;

	while (n) {
		size_t got = next_piece(c, n, &seg, &off);

		if (!got) {
			c->left = 0;
			return false;
		}
		n -= got;
	}
	return true;
}

enum copy_dir {
	COPY_OUT,
	COPY_IN,
	COPY_ZERO,
};

static int copy(struct fuse_cursor *c, void *buf, size_t n, enum copy_dir dir)
{
	unsigned char *host = buf;

	if (n > c->left)
		return -EINVAL;
	while (n) {
		unsigned int seg;
		size_t off;
		size_t got = next_piece(c, n, &seg, &off);
		unsigned char *guest;

		if (!got)
			return -EINVAL;
		if (segment_is_window(c->v, seg))
			return -EFAULT;
		guest = (unsigned char *)c->v->iov[seg].iov_base + off;
		switch (dir) {
		case COPY_OUT:
			memcpy(host, guest, got);
			host += got;
			break;
		case COPY_IN:
			memcpy(guest, host, got);
			host += got;
			break;
		case COPY_ZERO:
			memset(guest, 0, got);
			break;
		}
		n -= got;
	}
	return 0;
}

int fuse_cursor_read(struct fuse_cursor *c, void *dst, size_t n)
{
	return copy(c, dst, n, COPY_OUT);
}

int fuse_cursor_write(struct fuse_cursor *c, const void *src, size_t n)
{
	return copy(c, (void *)src, n, COPY_IN);
}

int fuse_cursor_zero(struct fuse_cursor *c, size_t n)
{
	return copy(c, NULL, n, COPY_ZERO);
}

ssize_t fuse_cursor_read_string(struct fuse_cursor *c, char *dst, size_t cap)
{
	struct fuse_cursor ahead = *c;
	size_t have = MIN(c->left, cap);
	const char *nul;
	int err;

	err = fuse_cursor_read(&ahead, dst, have);
	if (err)
		return err;
	nul = memchr(dst, 0, have);
	if (!nul)
		return c->left > cap ? -ENAMETOOLONG : -EINVAL;
	fuse_cursor_skip(c, (size_t)(nul - dst) + 1);
	return nul - dst;
}

bool fuse_cursor_is_ram(const struct util_gvec *v, size_t n)
{
	if (n > v->len)
		return false;
	if (!v->window)
		return true;
	for (unsigned int i = 0; i < v->n && n; i++) {
		if (v->iov[i].iov_len && v->window[i] != UTIL_GVEC_RAM)
			return false;
		n -= MIN(n, v->iov[i].iov_len);
	}
	return n == 0;
}

int fuse_slice_init(struct fuse_slice *s, const struct util_gvec *from, size_t skip, size_t len)
{
	struct fuse_cursor c;
	unsigned int seg;
	size_t off;

	s->v = (struct util_gvec){.iov = s->iov};
	s->in_window = false;
	s->heap_iov = NULL;
	s->heap_window = NULL;
	fuse_cursor_init(&c, from);
	if (!fuse_cursor_skip(&c, skip) || c.left < len)
		return -EINVAL;
	if (from->n > FUSE_SLICE_INLINE) {
		s->v.iov = s->heap_iov = g_new(struct iovec, from->n);
		if (from->window)
			s->heap_window = g_new(uint64_t, from->n);
	}
	if (from->window)
		s->v.window = s->heap_window ? s->heap_window : s->window;
	while (s->v.len < len) {
		size_t got = next_piece(&c, len - s->v.len, &seg, &off);
		unsigned int i = s->v.n;

		if (!got)
			return -EINVAL;
		if (segment_is_window(from, seg)) {
			s->in_window = true;
			s->v.window[i] = from->window[seg] + off;
			s->v.iov[i].iov_base = NULL;
		} else {
			if (s->v.window)
				s->v.window[i] = UTIL_GVEC_RAM;
			s->v.iov[i].iov_base = (char *)from->iov[seg].iov_base + off;
		}
		s->v.iov[i].iov_len = got;
		s->v.n++;
		s->v.len += got;
	}
	if (!s->in_window)
		s->v.window = NULL;
	return 0;
}

void fuse_slice_fini(struct fuse_slice *s)
{
	g_free(s->heap_iov);
	g_free(s->heap_window);
}
