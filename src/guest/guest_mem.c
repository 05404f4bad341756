// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <glib.h>

#include "guest_mem.h"
#include "util_fd.h"
#include "util_lock.h"
#include "util_overflow.h"

#define PAGE 4096u
#define HUGE (2u << 20)

struct guest_mem {
	uint8_t *base;
	uint64_t size;
	int fd;
	uint8_t *window;
	uint64_t window_size;
	struct util_mutex lock; /* the two below */
	uint8_t *used;		/* one byte a page */
	size_t hint;		/* where the last allocation ended */
};

struct guest_mem *guest_mem_new(uint64_t size)
{
	struct guest_mem *m;
	util_autofd fd = -1;
	void *base;

	if (!size || !util_round_up(size, HUGE, &size)) {
		errno = EINVAL;
		return NULL;
	}
	fd = memfd_create("guest-ram", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return NULL;
	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return NULL;
	m = g_new0(struct guest_mem, 1);
	m->base = base;
	m->size = size;
	m->fd = util_steal_fd(&fd);
	m->used = g_malloc0(size / PAGE);
	util_mutex_init(&m->lock);
	return m;
}

void guest_mem_free(struct guest_mem *m)
{
	if (!m)
		return;
	munmap(m->base, m->size);
	util_close(&m->fd);
	util_mutex_destroy(&m->lock);
	g_free(m->used);
	g_free(m);
}

/* First fit in pages [from, to); the page behind the find, or 0. */
static size_t find_run(const struct guest_mem *m, size_t from, size_t to, size_t pages)
{
	size_t run = 0;

	for (size_t i = from; i < to; i++) {
		run = m->used[i] ? 0 : run + 1;
		if (run == pages)
			return i + 1;
	}
	return 0;
}

void *guest_mem_alloc(struct guest_mem *m, size_t size)
{
	size_t pages = (size + PAGE - 1) / PAGE;
	size_t total = m->size / PAGE;
	size_t end;

	if (!size || size > m->size)
		return NULL;
	util_mutex_lock(&m->lock);
	end = find_run(m, m->hint, total, pages);
	if (!end)
		end = find_run(m, 0, total, pages);
	if (end) {
		memset(m->used + end - pages, 1, pages);
		m->hint = end == total ? 0 : end;
	}
	util_mutex_unlock(&m->lock);
	return end ? m->base + (end - pages) * PAGE : NULL;
}

void guest_mem_release(struct guest_mem *m, void *p, size_t size)
{
	size_t first;

	if (!p)
		return;
	first = (size_t)((uint8_t *)p - m->base) / PAGE;
	util_mutex_lock(&m->lock);
	memset(m->used + first, 0, (size + PAGE - 1) / PAGE);
	util_mutex_unlock(&m->lock);
}

static bool inside(const uint8_t *base, uint64_t size, const void *p, size_t len, uint64_t *off)
{
	uintptr_t d = (uintptr_t)p - (uintptr_t)base;

	*off = d;
	return base && (uintptr_t)p >= (uintptr_t)base && util_range_inside(d, len, size);
}

bool guest_mem_gpa(const struct guest_mem *m, const void *p, size_t len, uint64_t *gpa)
{
	uint64_t off;

	if (inside(m->base, m->size, p, len, &off)) {
		*gpa = GUEST_RAM_BASE + off;
		return true;
	}
	if (inside(m->window, m->window_size, p, len, &off)) {
		*gpa = GUEST_WINDOW_BASE + off;
		return true;
	}
	return false;
}

void guest_mem_region(const struct guest_mem *m, struct guest_msg_region *r, int *fd)
{
	r->guest_addr = GUEST_RAM_BASE;
	r->size = m->size;
	r->user_addr = (uintptr_t)m->base;
	r->mmap_offset = 0;
	*fd = m->fd;
}

void guest_mem_set_window(struct guest_mem *m, void *base, uint64_t size)
{
	m->window = base;
	m->window_size = size;
}

uint64_t guest_mem_size(const struct guest_mem *m)
{
	return m->size;
}

void *guest_mem_base(const struct guest_mem *m)
{
	return m->base;
}
