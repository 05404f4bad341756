// SPDX-License-Identifier: Apache-2.0
/* A read of a file whose server takes its time: does the rest of the queue wait for it? */
#include <errno.h>
#include <fcntl.h>

#include "load_beside.h"

#define LENGTH 4096u

struct load_beside {
	struct load_run *run;
	uint64_t node;
	uint64_t fh;
	struct guest_req *r;
	void *buf;
	bool sent;
};

static int send_read(struct load_beside *b)
{
	struct load_run *run = b->run;
	struct fuse_entry_out e;
	int err = guest_fuse_path(run->fuse, run->config->beside, &e);

	if (err)
		return err;
	b->node = e.nodeid;
	err = guest_fuse_open(run->fuse, b->node, O_RDONLY, &b->fh);
	if (err)
		return err;
	b->buf = guest_mem_alloc(guest_frontend_mem(run->fe), LENGTH);
	b->r = guest_req_get(run->fuse);
	if (!b->buf || !b->r)
		return -ENOMEM;
	b->r->queue = 1;
	guest_prep_read(b->r, b->node, b->fh, 0, b->buf, LENGTH);
	err = guest_req_submit(b->r);
	b->sent = !err;
	return err;
}

struct load_beside *load_beside_start(struct load_run *run)
{
	struct load_beside *b;
	int err;

	if (!run->config->beside)
		return NULL;
	b = g_new0(struct load_beside, 1);
	b->run = run;
	err = send_read(b);
	if (!err)
		return b;
	load_run_fail(run, err, "cannot read '%s' meanwhile", run->config->beside);
	load_beside_end(b);
	return NULL;
}

void load_beside_end(struct load_beside *b)
{
	if (!b)
		return;
	if (b->sent)
		guest_req_wait(b->r);
	if (b->r)
		guest_req_put(b->r);
	if (b->buf)
		guest_mem_release(guest_frontend_mem(b->run->fe), b->buf, LENGTH);
	if (b->node && guest_frontend_alive(b->run->fe))
		guest_fuse_release(b->run->fuse, b->node, b->fh);
	g_free(b);
}
