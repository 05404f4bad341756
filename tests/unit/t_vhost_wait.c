// SPDX-License-Identifier: Apache-2.0
/* Waiting for a kick: nothing is missed, polling pays or stops. */
#define G_LOG_DOMAIN "t_vhost_wait"
#include <fcntl.h>
#include <glib.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vhost_wait.h"

static void kick(int fd)
{
	uint64_t one = 1;

	g_assert_cmpint(write(fd, &one, sizeof(one)), ==, sizeof(one));
}

/* Each returns though nobody ever reads the eventfd: a lost one would hang. */
static void test_edges(void)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct vhost_wait w;

	vhost_wait_init(&w, 0);
	kick(fd); /* before it is known */
	vhost_wait_set_kick(&w, dup(fd));
	for (int i = 0; i < 100; i++) {
		vhost_wait_sleep(&w);
		kick(fd);
	}
	vhost_wait_sleep(&w);
	vhost_wait_wake(&w);
	vhost_wait_sleep(&w);
	vhost_wait_destroy(&w);
	close(fd);
}

/* A pipe's writer would block for ever if nobody read. */
static void test_pipe(void)
{
	struct vhost_wait w;
	int fds[2];

	g_assert_cmpint(pipe2(fds, O_CLOEXEC), ==, 0);
	vhost_wait_init(&w, 0);
	vhost_wait_set_kick(&w, fds[0]);
	for (int i = 0; i < 20000; i++) {
		kick(fds[1]);
		vhost_wait_sleep(&w);
	}
	close(fds[1]);
	/* Nobody can kick any more: it returns, again and again, for the ring to be looked at. */
	vhost_wait_sleep(&w);
	g_assert_true(w.kick_fails);
	vhost_wait_sleep(&w);
	vhost_wait_destroy(&w);
}

static void *kick_many(void *arg)
{
	for (int i = 0; i < 5000; i++)
		kick(*(int *)arg);
	return NULL;
}

/* The old descriptor lives on elsewhere: its kicks are not ours any more. */
static void test_replaced(void)
{
	int old = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct vhost_wait w;
	pthread_t t;

	vhost_wait_init(&w, 0);
	vhost_wait_set_kick(&w, dup(old));
	vhost_wait_set_kick(&w, dup(fd));
	g_assert_cmpint(pthread_create(&t, NULL, kick_many, &old), ==, 0);
	kick(fd);
	vhost_wait_sleep(&w);
	pthread_join(t, NULL);
	vhost_wait_set_kick(&w, -1);
	vhost_wait_sleep(&w); /* a tick */
	vhost_wait_destroy(&w);
	close(old);
	close(fd);
}

static void test_learn(void)
{
	struct vhost_wait w;

	vhost_wait_init(&w, 20);
	g_assert_cmpuint(w.poll_ns, ==, 0);
	for (int i = 0; i < 10; i++)
		vhost_wait_learn(&w, 5000);
	g_assert_cmpuint(w.poll_ns, ==, 20000);
	/* Idle: gone after a few waits, and so it stays. */
	for (int i = 0; i < 5; i++)
		vhost_wait_learn(&w, 1000000);
	g_assert_cmpuint(w.poll_ns, ==, 0);
	vhost_wait_learn(&w, 20001);
	g_assert_cmpuint(w.poll_ns, ==, 0);
	vhost_wait_learn(&w, 20000);
	g_assert_cmpuint(w.poll_ns, >, 0);
	vhost_wait_destroy(&w);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	g_log_set_always_fatal(G_LOG_FATAL_MASK); /* the unusable kick is warned of */
	g_test_add_func("/vhost/wait/edges", test_edges);
	g_test_add_func("/vhost/wait/pipe", test_pipe);
	g_test_add_func("/vhost/wait/replaced", test_replaced);
	g_test_add_func("/vhost/wait/learn", test_learn);
	return g_test_run();
}
