// SPDX-License-Identifier: Apache-2.0
/*
 * Malformed requests by the thousand, and INIT, DESTROY and reset beside everything else. Under
 * AddressSanitizer the first says that no byte outside the segments is touched; under
 * ThreadSanitizer the second says that those three really run alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "fuse_rig.h"

#define ROOT FUSE_ROOT_ID
#define FUZZ_REQUESTS 10000

static uint64_t interesting(GRand *rand)
{
	static const uint64_t values[] = {0,	     1,		 2,	    3,		7,
					  4095,	     4096,	 RIG_SLOT,  RIG_WINDOW, INT32_MAX,
					  INT64_MAX, UINT32_MAX, UINT64_MAX};

	if (g_rand_int_range(rand, 0, 4) == 0)
		return (uint64_t)g_rand_int(rand) << 32 | g_rand_int(rand);
	return values[g_rand_int_range(rand, 0, G_N_ELEMENTS(values))];
}

static size_t fill(GRand *rand, unsigned char *buf, size_t len)
{
	for (size_t i = 0; i + 8 <= len; i += 8) {
		uint64_t v = interesting(rand);

		memcpy(buf + i, &v, 8);
	}
	for (size_t i = len & ~(size_t)7; i < len; i++)
		buf[i] = (unsigned char)g_rand_int_range(rand, 0, 3);
	return len;
}

/* Sets fields of the header wrong now and then, and moves segments into the window. */
static void corrupt(GRand *rand, struct rig_req *q)
{
	struct fuse_in_header h;
	struct util_gvec *v = g_rand_boolean(rand) ? &q->r.out : &q->r.in;

	memcpy(&h, q->out, sizeof(h));
	if (g_rand_int_range(rand, 0, 20) == 0)
		h.len = g_rand_int(rand);
	if (g_rand_int_range(rand, 0, 20) == 0)
		h.total_extlen = (uint16_t)g_rand_int_range(rand, 0, 40);
	if (g_rand_int_range(rand, 0, 20) == 0)
		h.opcode = g_rand_int(rand);
	memcpy(q->out, &h, sizeof(h));
	if (g_rand_int_range(rand, 0, 20) == 0 && v->n) {
		v->window = g_new(uint64_t, v->n);
		for (unsigned int i = 0; i < v->n; i++)
			v->window[i] = g_rand_boolean(rand) ? UTIL_GVEC_RAM : interesting(rand);
	}
}

static void fuzz_one(GRand *rand, struct rig *g)
{
	unsigned char args[FUSE_ARGS_MAX + 64], data[600];
	uint32_t op = (uint32_t)g_rand_int_range(rand, 0, FUSE_NUM_OPS + 2);
	size_t args_len = op < FUSE_NUM_OPS ? fuse_ops[op].args : 0;
	size_t in_size = (size_t)g_rand_int_range(rand, 0, 400);
	struct rig_req *q;

	/* What would end the session is tried by the other tests. */
	if (op == FUSE_DESTROY || (op == FUSE_INIT && g_rand_int_range(rand, 0, 8)))
		op = FUSE_LOOKUP;
	if (g_rand_int_range(rand, 0, 8) == 0)
		args_len = (size_t)g_rand_int_range(rand, 0, (gint32)sizeof(args));
	fill(rand, args, args_len);
	g->piece = (size_t)g_rand_int_range(rand, 0, 20);
	q = rig_prepare(g, op, g_rand_int_range(rand, 0, 4) ? ROOT : interesting(rand), args,
			args_len, data,
			fill(rand, data, (size_t)g_rand_int_range(rand, 0, sizeof(data))), in_size);
	corrupt(rand, q);
	rig_send(q, (unsigned int)g_rand_int_range(rand, 0, 4));
	util_mutex_lock(&q->m);
	while (!q->done)
		util_cond_wait(&q->c, &q->m);
	util_mutex_unlock(&q->m);
	g_assert_cmpuint(q->done, ==, 1);
	g_assert_false(q->parked);
	g_assert_cmpuint(q->len, <=, in_size);
	if (q->len) {
		struct fuse_out_header oh;

		g_assert_cmpuint(q->len, >=, sizeof(oh));
		memcpy(&oh, q->in, sizeof(oh));
		g_assert_cmpuint(oh.len, ==, q->len);
		g_assert_cmpint(oh.error, <=, 0);
		g_assert_cmpint(oh.error, >, -512);
	}
	rig_req_free(q);
}

static void test_fuzz(void)
{
	guint32 seed = (guint32)g_test_rand_int();
	GRand *rand = g_rand_new_with_seed(seed);
	struct rig *g = rig_new(NULL);
	struct fuse_init_out init;

	g_test_message("seed %u", seed);
	g_assert_cmpint(rig_init(g), ==, 0);
	for (int i = 0; i < FUZZ_REQUESTS; i++) {
		fuzz_one(rand, g);
		if (i % 500 == 499) {
			g->piece = 0;
			g_assert_cmpint(rig_init_flags(g, UINT64_MAX, &init), ==, 0);
		}
	}
	g->piece = 0;
	rig_free(g);
	g_rand_free(rand);
}

/* --- INIT, DESTROY and reset beside everything else --- */

struct storm {
	struct rig *g;
	unsigned int queue;
	int stop;
	uint64_t calls;
};

static int storm_call(struct storm *s, uint32_t op, uint64_t node, const void *args,
		      size_t args_len, const void *data, size_t data_len, void *out, size_t out_len)
{
	struct rig_req *q =
		rig_prepare(s->g, op, node, args, args_len, data, data_len, 16 + out_len);
	int err;

	rig_send(q, s->queue);
	err = rig_wait(q);
	if (!err && q->payload_len)
		memcpy(out, q->payload, q->payload_len);
	rig_req_free(q);
	s->calls++;
	return err;
}

static void storm_round(struct storm *s)
{
	struct fuse_create_in create = {.flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0600};
	struct {
		struct fuse_entry_out e;
		struct fuse_open_out o;
	} made;
	struct fuse_write_in write = {.size = 5};
	struct fuse_write_out written;
	struct fuse_read_in read = {.size = 5};
	struct fuse_release_in rel;
	struct fuse_setupmapping_in map = {
		.fh = UINT64_MAX, .len = 4096, .flags = 3, .moffset = s->queue * 4096u};
	struct {
		struct fuse_removemapping_in head;
		struct fuse_removemapping_one one;
	} __attribute__((packed)) unmap = {{1}, {s->queue * 4096u, 4096}};
	struct fuse_lk_in lk = {.lk = {.type = F_WRLCK}, .lk_flags = FUSE_LK_FLOCK};
	char name[8] = "file-0";
	char back[5];

	name[5] = (char)('0' + s->queue % 2); /* two queues share a file */
	if (storm_call(s, FUSE_CREATE, ROOT, &create, sizeof(create), name, 7, &made, sizeof(made)))
		return;
	write.fh = read.fh = rel.fh = lk.fh = made.o.fh;
	storm_call(s, FUSE_SETLKW, made.e.nodeid, &lk, sizeof(lk), NULL, 0, NULL, 0);
	storm_call(s, FUSE_WRITE, made.e.nodeid, &write, sizeof(write), "hello", 5, &written,
		   sizeof(written));
	if (!storm_call(s, FUSE_READ, made.e.nodeid, &read, sizeof(read), NULL, 0, back, 5))
		g_assert_cmpmem(back, 5, "hello", 5);
	storm_call(s, FUSE_SETUPMAPPING, made.e.nodeid, &map, sizeof(map), NULL, 0, NULL, 0);
	storm_call(s, FUSE_REMOVEMAPPING, 0, &unmap, sizeof(unmap), NULL, 0, NULL, 0);
	storm_call(s, FUSE_RELEASE, made.e.nodeid, &rel, sizeof(rel), NULL, 0, NULL, 0);
}

static gpointer storm_thread(gpointer data)
{
	struct storm *s = data;

	while (!__atomic_load_n(&s->stop, __ATOMIC_RELAXED))
		storm_round(s);
	return NULL;
}

static void check_storm(void (*adjust)(struct fuse_config *), int rounds)
{
	struct rig *g = rig_new(adjust);
	struct storm storms[3];
	GThread *threads[3];
	struct fs_stats st;
	struct dm_stats ds;

	g_assert_cmpint(rig_init(g), ==, 0);
	for (unsigned int i = 0; i < 3; i++) {
		storms[i] = (struct storm){.g = g, .queue = i == 0 ? 3 : i};
		threads[i] = g_thread_new("storm", storm_thread, &storms[i]);
	}
	for (int i = 0; i < rounds; i++) {
		if (i % 3 == 0)
			rig_destroy(g);
		else if (i % 3 == 1)
			fuse_session_reset(g->s);
		g_assert_cmpint(rig_init(g), ==, 0);
		g_thread_yield();
	}
	for (unsigned int i = 0; i < 3; i++)
		__atomic_store_n(&storms[i].stop, 1, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < 3; i++)
		g_thread_join(threads[i]);
	g_assert_cmpint(rig_destroy(g), ==, 0);
	fs_get_stats(g->fs, &st);
	g_assert_cmpuint(st.handles, ==, 0);
	g_assert_cmpuint(st.nodes, ==, 1);
	dm_table_stats(g->table, &ds);
	g_assert_cmpuint(ds.mapped, ==, 0);
	g_assert_cmpuint(ds.files_open, ==, 0);
	rig_free(g);
}

static void inline_only(struct fuse_config *cfg)
{
	cfg->pool_size = 0;
}

static void two_workers(struct fuse_config *cfg)
{
	cfg->pool_size = 2;
	cfg->remove_blocks = true;
}

static void test_init_and_destroy_run_alone(void)
{
	int rounds = g_test_slow() ? 4000 : 30; /* -m slow */

	check_storm(NULL, rounds);
	check_storm(inline_only, rounds);
	check_storm(two_workers, rounds);
}

/* Many requests of one queue at once, more than it may have workers: all are answered. */
static void test_deep_queue(void)
{
	struct rig *g = rig_new(two_workers);
	struct rig_req *reqs[500];
	struct fuse_fsync_in sync = {0};
	uint64_t node;

	g_assert_cmpint(rig_init(g), ==, 0);
	g_assert_cmpint(rig_create(g, ROOT, "f", &node, &sync.fh), ==, 0);
	for (size_t i = 0; i < G_N_ELEMENTS(reqs); i++) {
		reqs[i] =
			i % 2 ? rig_prepare(g, FUSE_LOOKUP, ROOT, NULL, 0, "nothing", 8, 200)
			      : rig_prepare(g, FUSE_FSYNC, node, &sync, sizeof(sync), NULL, 0, 16);
		rig_send(reqs[i], 1);
	}
	for (size_t i = 0; i < G_N_ELEMENTS(reqs); i++) {
		g_assert_cmpint(rig_wait(reqs[i]), ==, i % 2 ? -ENOENT : 0);
		rig_req_free(reqs[i]);
	}
	g_assert_cmpuint(fuse_session_threads(g->s), <=, 2 + 1 + 1);
	g_assert_cmpuint(rig_count(g, "fsync"), ==, 250);
	rig_free(g);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_test_add_func("/fuse/stress/fuzz", test_fuzz);
	g_test_add_func("/fuse/stress/alone", test_init_and_destroy_run_alone);
	g_test_add_func("/fuse/stress/deep-queue", test_deep_queue);
	return g_test_run();
}
