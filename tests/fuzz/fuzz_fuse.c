// SPDX-License-Identifier: Apache-2.0
/*
 * Requests with any bytes, in any order, to one FUSE session on a fresh directory: each is
 * answered once, the answer is well formed (rig_wait() checks), nothing outside is touched.
 *
 * Input: a list of struct item, each followed by its argument bytes.
 */
#include "fuzz.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fuse_rig.h"

#define ITEMS_MAX 8u
#define FILE_MAX (1u << 20)

struct item {
	uint16_t opcode;
	uint8_t node;  /* see node_of() */
	uint8_t piece; /* bytes a segment, 0: one segment */
	uint16_t args; /* bytes that follow */
	uint16_t in_size;
};

struct world {
	struct rig *g;
	uint64_t dir, file, fh;
};

static void populate(struct world *w)
{
	struct fuse_mkdir_in md = {.mode = 0755};
	struct fuse_entry_out e;

	g_assert_cmpint(rig_init(w->g), ==, 0);
	if (rig_call(w->g, FUSE_MKDIR, FUSE_ROOT_ID, &md, sizeof(md), "d", 2, &e, sizeof(e)) < 0)
		rig_lookup(w->g, FUSE_ROOT_ID, "d", &e);
	w->dir = e.nodeid;
	rig_create(w->g, FUSE_ROOT_ID, "f", &w->file, &w->fh);
}

static struct world *world(void)
{
	static struct world w;

	if (!w.g) {
		static const struct rlimit small = {FILE_MAX, FILE_MAX};

		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &small);
		w.g = rig_new(NULL);
		populate(&w);
	}
	return &w;
}

static void clean_up(void) __attribute__((destructor));
static void clean_up(void)
{
	if (world()->g)
		rig_free(world()->g);
}

static uint64_t node_of(const struct world *w, uint8_t which)
{
	switch (which % 4) {
	case 0:
		return FUSE_ROOT_ID;
	case 1:
		return w->dir;
	case 2:
		return w->file;
	default:
		return which;
	}
}

static void run(struct world *w, const struct item *it, const uint8_t *args, size_t len)
{
	struct rig_req *q;

	/* a wait for a lock of this same session would have nobody to end it */
	if (it->opcode == FUSE_SETLKW)
		return;
	w->g->piece = it->piece;
	q = rig_prepare(w->g, it->opcode, node_of(w, it->node), args, len, NULL, 0, it->in_size);
	rig_send(q, it->node % 4);
	rig_wait(q);
	rig_req_free(q);
	w->g->piece = 0;
	if (it->opcode == FUSE_DESTROY || it->opcode == FUSE_INIT) {
		rig_destroy(w->g);
		populate(w);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *w = world();

	for (unsigned int i = 0; i < ITEMS_MAX && size >= sizeof(struct item); i++) {
		struct item it;
		size_t len;

		memcpy(&it, data, sizeof(it));
		data += sizeof(it);
		size -= sizeof(it);
		len = MIN(size, it.args % 1024u);
		run(w, &it, data, len);
		data += len;
		size -= len;
	}
	return 0;
}

struct seed {
	uint16_t opcode;
	uint8_t node;
	const char *names; /* after the argument, with its own ends */
	size_t names_len;
	union {
		struct fuse_setattr_in setattr;
		struct fuse_create_in create;
		struct fuse_rename2_in rename2;
		struct fuse_read_in read;
		struct fuse_write_in write;
		struct fuse_setupmapping_in setup;
		uint64_t words[8];
	} a;
	size_t args;
};

#define NAMES(text) .names = (text), .names_len = sizeof(text)
#define WORDS(n) .args = (n) * sizeof(uint64_t)

static const struct seed seeds[] = {
	{FUSE_LOOKUP, 0, NAMES("f")},
	{FUSE_GETATTR, 2, WORDS(2)},
	{FUSE_SETATTR, 2, .a.setattr = {.valid = FATTR_SIZE, .size = 5000}, .args = 88},
	{FUSE_SYMLINK, 1, NAMES("link\0target")},
	{FUSE_READLINK, 2},
	{FUSE_MKNOD, 1, NAMES("node"), .a.words = {0100644}, WORDS(2)},
	{FUSE_MKDIR, 1, NAMES("sub"), .a.words = {0755}, WORDS(1)},
	{FUSE_UNLINK, 1, NAMES("node")},
	{FUSE_RMDIR, 1, NAMES("sub")},
	{FUSE_RENAME2, 0, NAMES("f\0g"), .a.rename2 = {.newdir = 1}, WORDS(2)},
	{FUSE_LINK, 1, NAMES("hard"), .a.words = {2}, WORDS(1)},
	{FUSE_OPEN, 2, .a.words = {2}, WORDS(1)},
	{FUSE_CREATE, 0, NAMES("new"), .a.create = {.flags = 0102, .mode = 0644}, WORDS(2)},
	{FUSE_READ, 2, .a.read = {.size = 512}, .args = sizeof(struct fuse_read_in)},
	{FUSE_WRITE, 2, NAMES("0123456789abcde"), .a.write = {.size = 16},
	 .args = sizeof(struct fuse_write_in)},
	{FUSE_OPENDIR, 0, WORDS(1)},
	{FUSE_READDIR, 0, .a.read = {.size = 512}, .args = sizeof(struct fuse_read_in)},
	{FUSE_READDIRPLUS, 0, .a.read = {.size = 900}, .args = sizeof(struct fuse_read_in)},
	{FUSE_STATFS, 0},
	{FUSE_FALLOCATE, 2, .a.words = {0, 0, 8192}, WORDS(4)},
	{FUSE_LSEEK, 2, .a.words = {0, 0, 3}, WORDS(3)},
	{FUSE_COPY_FILE_RANGE, 2, WORDS(7)},
	{FUSE_SETXATTR, 2, NAMES("user.a\0value"), .a.words = {6}, WORDS(1)},
	{FUSE_GETXATTR, 2, NAMES("user.a"), .a.words = {64}, WORDS(1)},
	{FUSE_LISTXATTR, 2, .a.words = {64}, WORDS(1)},
	{FUSE_SETUPMAPPING, 2, .a.setup = {.len = 2u << 20, .flags = 3},
	 .args = sizeof(struct fuse_setupmapping_in)},
	{FUSE_REMOVEMAPPING, 2, .a.words = {1, 0, 2u << 20}, .args = 20},
	{FUSE_BATCH_FORGET, 0, .a.words = {2, 7, 1, 8, 1}, .args = 40},
	{FUSE_FORGET, 3, .a.words = {1}, WORDS(1)},
	{FUSE_INIT, 0, .a.words = {7 | 38ull << 32, 0x20000}, WORDS(8)},
	{FUSE_DESTROY, 0},
	{FUSE_TMPFILE, 0, NAMES(""), .a.create = {.flags = 0102, .mode = 0644}, WORDS(2)},
	{FUSE_SYNCFS, 0, WORDS(1)},
	{FUSE_RELEASE, 2, .a.words = {1000}, WORDS(3)},
};

/* Three of the seeds in a row, with the handle of the file where one may stand. */
size_t fuzz_seed(unsigned int i, uint8_t *buf, size_t cap)
{
	size_t at = 0;

	if (i >= G_N_ELEMENTS(seeds))
		return 0;
	for (unsigned int k = 0; k < 3; k++) {
		const struct seed *s = &seeds[(i + k * 11) % G_N_ELEMENTS(seeds)];
		struct item it = {s->opcode, s->node, (uint8_t)(k * 7),
				  (uint16_t)(s->args + s->names_len), 1024};
		size_t end = at + sizeof(it) + s->args + s->names_len;

		g_assert_cmpuint(end, <=, cap);
		memcpy(buf + at, &it, sizeof(it));
		memcpy(buf + at + sizeof(it), &s->a, s->args);
		if (s->opcode == FUSE_READ || s->opcode == FUSE_WRITE || s->opcode == FUSE_LSEEK)
			memcpy(buf + at + sizeof(it), &world()->fh, sizeof(uint64_t));
		if (s->names_len)
			memcpy(buf + at + sizeof(it) + s->args, s->names, s->names_len);
		at = end;
	}
	return at;
}
