// SPDX-License-Identifier: Apache-2.0
/*
 * Guest memory. A change makes a new snapshot that shares the unchanged regions; a region is
 * unmapped when the last snapshot that has it is gone, and a snapshot is gone when it is not
 * published any more, a grace period has passed, and the last queue that has elements in
 * flight on it has dropped its reference. So memory that the front-end takes away stays mapped
 * exactly until the requests that touch it are done.
 *
 * The window is not a region: it is one address range in which nothing is mapped here. What
 * the front-end announces inside it never reaches a snapshot, so mapping and unmapping files
 * costs the queues nothing.
 */
#include "vhost_mem.h"

#include <errno.h>
#include <glib.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util_overflow.h"

/* syscalls: fstat fstatfs madvise mmap munmap close */

static void region_put(struct vhost_region *r)
{
	if (__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL))
		return;
	munmap(r->map, r->map_len);
	g_free(r);
}

static struct vhost_mem *mem_alloc(unsigned int n)
{
	struct vhost_mem *m = g_malloc0(sizeof(*m) + n * sizeof(m->regions[0]));

	m->refs = 1;
	return m;
}

struct vhost_mem *vhost_mem_new(void)
{
	return mem_alloc(0);
}

void vhost_mem_get(struct vhost_mem *m)
{
	__atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
}

void vhost_mem_put(struct vhost_mem *m)
{
	if (!m || __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (unsigned int i = 0; i < m->n; i++)
		region_put(m->regions[i]);
	g_free(m);
}

static void put_rcu(struct util_rcu_head *head)
{
	vhost_mem_put(caa_container_of(head, struct vhost_mem, rcu));
}

void vhost_mem_put_later(struct vhost_mem *m)
{
	if (m)
		util_rcu_call(&m->rcu, put_rcu);
}

/* A copy without region @skip (or @old->n: all), with room for one more. */
static struct vhost_mem *mem_copy(const struct vhost_mem *old, unsigned int skip)
{
	struct vhost_mem *m = mem_alloc(old->n + 1);

	m->window_base = old->window_base;
	m->window_size = old->window_size;
	for (unsigned int i = 0; i < old->n; i++) {
		if (i == skip)
			continue;
		__atomic_add_fetch(&old->regions[i]->refs, 1, __ATOMIC_RELAXED);
		m->regions[m->n++] = old->regions[i];
	}
	return m;
}

/* hugetlbfs wants offsets in its own pages. */
static uint64_t map_granule(int fd)
{
	struct statfs fs;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC &&
	    util_is_pow2((uint64_t)fs.f_bsize))
		return MAX(page, (uint64_t)fs.f_bsize);
	return page;
}

/* A mapping beyond the end of the file would be a SIGBUS in the middle of a request. */
static bool file_holds(int fd, uint64_t end)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return false;
	return !S_ISREG(st.st_mode) || (uint64_t)st.st_size >= end;
}

static int region_map(const struct vhost_region_msg *msg, int fd, struct vhost_region **out)
{
	uint64_t granule = map_granule(fd), end, top, start, len;
	struct vhost_region *r;
	void *map;

	if (msg->size == 0 || !util_add_u64(msg->guest_addr, msg->size, &end) ||
	    !util_add_u64(msg->user_addr, msg->size, &end) ||
	    !util_add_u64(msg->mmap_offset, msg->size, &end) || end > INT64_MAX ||
	    !file_holds(fd, end) || !util_round_up(end, granule, &top))
		return -EINVAL;
	start = msg->mmap_offset & ~(granule - 1);
	len = top - start;
	map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)start);
	if (map == MAP_FAILED)
		return -errno;
	madvise(map, len, MADV_DONTDUMP);
	r = g_new0(struct vhost_region, 1);
	r->guest_addr = msg->guest_addr;
	r->size = msg->size;
	r->user_addr = msg->user_addr;
	r->map = map;
	r->map_len = len;
	r->host = (uint8_t *)map + (msg->mmap_offset - start);
	r->refs = 1;
	*out = r;
	return 0;
}

static bool overlaps(uint64_t a, uint64_t alen, uint64_t b, uint64_t blen)
{
	return a < b + blen && b < a + alen;
}

int vhost_mem_add(const struct vhost_mem *old, const struct vhost_region_msg *msg, int fd,
		  struct vhost_mem **out)
{
	struct vhost_region *r = NULL;
	struct vhost_mem *m;
	unsigned int at;
	int err = region_map(msg, fd, &r);

	if (err)
		return err;
	for (unsigned int i = 0; i < old->n; i++) {
		const struct vhost_region *o = old->regions[i];

		if (overlaps(o->guest_addr, o->size, r->guest_addr, r->size)) {
			region_put(r);
			return -EEXIST;
		}
	}
	m = mem_copy(old, old->n);
	for (at = m->n; at > 0 && m->regions[at - 1]->guest_addr > r->guest_addr; at--)
		m->regions[at] = m->regions[at - 1];
	m->regions[at] = r;
	m->n++;
	*out = m;
	return 0;
}

int vhost_mem_remove(const struct vhost_mem *old, const struct vhost_region_msg *msg,
		     struct vhost_mem **out)
{
	for (unsigned int i = 0; i < old->n; i++) {
		const struct vhost_region *o = old->regions[i];

		if (o->guest_addr == msg->guest_addr && o->size == msg->size &&
		    o->user_addr == msg->user_addr) {
			*out = mem_copy(old, i);
			return 0;
		}
	}
	return -ENOENT;
}

struct vhost_mem *vhost_mem_move_window(const struct vhost_mem *old, uint64_t base, uint64_t size)
{
	struct vhost_mem *m = mem_copy(old, old->n);

	m->window_base = base;
	m->window_size = size;
	return m;
}

void *vhost_mem_at(const struct vhost_mem *m, uint64_t addr, uint64_t *len, unsigned int *hint)
{
	unsigned int lo = 0, hi = m->n;
	const struct vhost_region *r = NULL;

	if (*hint < m->n && addr - m->regions[*hint]->guest_addr < m->regions[*hint]->size) {
		r = m->regions[*hint];
	} else {
		while (lo < hi) {
			unsigned int mid = lo + (hi - lo) / 2;

			if (m->regions[mid]->guest_addr <= addr)
				lo = mid + 1;
			else
				hi = mid;
		}
		if (lo > 0 && addr - m->regions[lo - 1]->guest_addr < m->regions[lo - 1]->size) {
			*hint = lo - 1;
			r = m->regions[lo - 1];
		}
	}
	if (!r)
		return NULL;
	*len = MIN(*len, r->size - (addr - r->guest_addr));
	return r->host + (addr - r->guest_addr);
}

void *vhost_mem_user(const struct vhost_mem *m, uint64_t addr, uint64_t len)
{
	for (unsigned int i = 0; i < m->n; i++) {
		const struct vhost_region *r = m->regions[i];

		if (addr >= r->user_addr && util_range_inside(addr - r->user_addr, len, r->size))
			return r->host + (addr - r->user_addr);
	}
	return NULL;
}

bool vhost_mem_window(const struct vhost_mem *m, uint64_t addr, uint64_t *len, uint64_t *offset)
{
	if (addr - m->window_base >= m->window_size)
		return false;
	*offset = addr - m->window_base;
	*len = MIN(*len, m->window_size - *offset);
	return true;
}
