// SPDX-License-Identifier: Apache-2.0
/* When the daemon wants the size shim, and what it does where there is none. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon_shim.h"
#include "t_shim_kit.h"
#include "util_fd.h"

static struct shim *start_with(int want, uint64_t window, int dialect, bool readonly)
{
	struct daemon_config c;
	g_autoptr(GError) error = NULL;
	struct shim *s = NULL;

	daemon_config_init(&c);
	c.shared_dir = g_strdup(".");
	c.dax_shim = want;
	c.cache_size = window;
	c.dialect = dialect;
	c.readonly = readonly;
	g_assert_true(daemon_shim_start(&c, &s, &error));
	g_assert_no_error(error);
	daemon_config_clear(&c);
	return s;
}

static void test_not_wanted(void)
{
	g_assert_null(start_with(SHIM_OFF, SLOT, DAEMON_DIALECT_SHMEM, false));
	g_assert_null(start_with(SHIM_ON, 0, DAEMON_DIALECT_SHMEM, false));
	g_assert_null(start_with(SHIM_ON, SLOT, DAEMON_DIALECT_FS_MAP, false));
	g_assert_null(start_with(SHIM_ON, SLOT, DAEMON_DIALECT_SHMEM, true));
	g_assert_false(daemon_shim_any_size(NULL));
}

static uint64_t size_of(int fd)
{
	struct stat st;

	g_assert_cmpint(fstat(fd, &st), ==, 0);
	return (uint64_t)st.st_size;
}

static void test_wrap(void)
{
	g_autofree char *dir = kit_dir(".");
	const struct dm_file_key key = {1, 2}, other = {1, 3}, third = {1, 4};
	struct shim *s = start_with(SHIM_AUTO, SLOT, DAEMON_DIALECT_SHMEM, false);
	util_autofd fd = -1;
	uint8_t *map;

	/* without a shim the descriptor itself */
	fd = daemon_shim_wrap(NULL, key, kit_file(dir, "f", 5000), true);
	g_assert_cmpuint(size_of(fd), ==, 5000);
	if (!s) {
		g_test_skip("no shim here");
		kit_rmdir(dir);
		return;
	}
	g_assert_true(daemon_shim_any_size(s));
	fd = daemon_shim_wrap(s, key, util_steal_fd(&fd), true);
	g_assert_cmpuint(size_of(fd), ==, SHIM_SIZE);
	util_close(&fd);

	/* a file that cannot be written is served as a copy that stays apart */
	fd = kit_file(dir, "g", 5000);
	{
		int ro = kit_reopen(fd, O_RDONLY);
		util_autofd copy = daemon_shim_wrap(s, other, ro, false);

		g_assert_cmpint(fcntl(copy, F_GETFL) & O_ACCMODE, ==, O_RDWR);
		map = kit_map(copy, 0);
		g_assert_cmpuint(map[4999], ==, kit_byte(4999));
		munmap(map, SLOT);
	}

	/* what the shim refuses, and what comes after its death, is the descriptor itself */
	fd = daemon_shim_wrap(s, third, util_steal_fd(&fd), false);
	g_assert_cmpuint(size_of(fd), ==, 5000);
	g_assert_true(daemon_shim_any_size(s));
	kill(shim_helper_pid(s), SIGKILL);
	g_assert_cmpint(waitpid(shim_helper_pid(s), NULL, 0), ==, shim_helper_pid(s));
	fd = daemon_shim_wrap(s, third, util_steal_fd(&fd), true);
	g_assert_cmpuint(size_of(fd), ==, 5000);
	g_assert_false(daemon_shim_any_size(s));
	shim_free(s);
	kit_rmdir(dir);
}

int main(int argc, char **argv)
{
	g_test_init(&argc, &argv, NULL);
	/* the log lines of refusals and deaths are what is tested here */
	g_log_set_always_fatal(G_LOG_LEVEL_ERROR | G_LOG_LEVEL_CRITICAL);
	g_test_add_func("/daemon-shim/not-wanted", test_not_wanted);
	g_test_add_func("/daemon-shim/wrap", test_wrap);
	return g_test_run();
}
