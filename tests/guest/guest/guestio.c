// SPDX-License-Identifier: Apache-2.0
/*
 * What the guest tests need and no packaged program does: I/O through a mapping that stays
 * while something else happens, sparse touches that count errors, storms of namespace calls.
 * Built statically by the tests and sent into the guest; see usage() for the commands.
 *
 * Exit status: 0 as expected; 1 not, with the reason on stderr; 2 bad usage; for the commands
 * that run CMD, CMD's status when it is not 0.
 */
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STORM_NAMES = 12 };

static void usage(void)
{
	fputs("Usage: guestio COMMAND\n"
	      "  write FILE OFF LEN BYTE [CMD...]  fill through a mapping, msync, run CMD\n"
	      "  check FILE OFF LEN BYTE           the bytes are there, through a mapping\n"
	      "  watch FILE OFF LEN BYTE CMD...    map and read, run CMD, see the bytes appear\n"
	      "  hold FILE... -- CMD...            read whole files through mappings, run CMD\n"
	      "  touch FILE STRIDE                 read a byte every STRIDE through a mapping\n"
	      "  pread FILE STRIDE                 read a page every STRIDE\n"
	      "  storm DIR WORKERS ROUNDS          rename, link, unlink... on shared names\n",
	      stderr);
	exit(2);
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t value = strtoull(text, &end, 0);

	if (*end == 'K')
		value <<= 10;
	else if (*end == 'M')
		value <<= 20;
	return value;
}

static unsigned char *map_file(const char *name, int prot, size_t *size)
{
	int fd = open(name, prot & PROT_WRITE ? O_RDWR : O_RDONLY);
	struct stat st;
	unsigned char *map;

	if (fd < 0 || fstat(fd, &st) < 0)
		err(1, "%s", name);
	*size = (size_t)st.st_size;
	map = mmap(NULL, *size, prot, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		err(1, "mmap %s", name);
	close(fd);
	return map;
}

static int run_command(char **argv)
{
	int status;
	pid_t pid;

	if (!*argv)
		return 0;
	pid = fork();
	if (pid == 0) {
		execvp(argv[0], argv);
		err(127, "%s", argv[0]);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		err(1, "fork");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int expect_bytes(const unsigned char *p, size_t len, int byte)
{
	for (size_t i = 0; i < len; i++) {
		if (p[i] != byte) {
			warnx("at %zu of %zu: 0x%02x, not 0x%02x", i, len, p[i], byte);
			return 1;
		}
	}
	return 0;
}

static int do_range(const char *what, char **argv)
{
	size_t size, off = number(argv[1]), len = number(argv[2]);
	int byte = (int)number(argv[3]), status;
	int prot = strcmp(what, "write") == 0 ? PROT_READ | PROT_WRITE : PROT_READ;
	unsigned char *map = map_file(argv[0], prot, &size);
	volatile unsigned sum = 0;

	if (off + len > size)
		errx(1, "%s has %zu bytes", argv[0], size);
	if (strcmp(what, "check") == 0)
		return expect_bytes(map + off, len, byte);
	if (strcmp(what, "write") == 0) {
		memset(map + off, byte, len);
		if (msync(map, size, MS_SYNC) < 0)
			err(1, "msync");
		return run_command(argv + 4);
	}
	for (size_t i = 0; i < len; i++)
		sum += map[off + i];
	status = run_command(argv + 4);
	return status ? status : expect_bytes(map + off, len, byte);
}

static int do_hold(char **argv)
{
	volatile unsigned sum = 0;
	size_t size;

	for (; *argv && strcmp(*argv, "--") != 0; argv++) {
		unsigned char *map = map_file(*argv, PROT_READ, &size);

		for (size_t i = 0; i < size; i += 4096)
			sum += map[i];
	}
	return *argv ? run_command(argv + 1) : 0;
}

static sigjmp_buf bus;

static void on_bus(int sig)
{
	siglongjmp(bus, sig);
}

static int do_touch(const char *name, size_t stride)
{
	struct sigaction sa = {.sa_handler = on_bus, .sa_flags = SA_NODEFER};
	volatile unsigned good = 0, bad = 0, sum = 0;
	volatile size_t at;
	size_t size;
	unsigned char *map = map_file(name, PROT_READ, &size);

	sigaction(SIGBUS, &sa, NULL);
	for (at = 0; at < size; at += stride) {
		if (sigsetjmp(bus, 1)) {
			bad++;
			continue;
		}
		sum += map[at];
		good++;
	}
	printf("read %u errors %u\n", good, bad);
	return 0;
}

static int do_pread(const char *name, size_t stride)
{
	unsigned good = 0, bad = 0;
	int fd = open(name, O_RDONLY), last = 0;
	char page[4096];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		err(1, "%s", name);
	for (off_t at = 0; at < st.st_size; at += (off_t)stride) {
		if (pread(fd, page, sizeof(page), at) > 0) {
			good++;
		} else {
			bad++;
			last = errno;
		}
	}
	printf("read %u errors %u%s%s\n", good, bad, bad ? " " : "", bad ? strerror(last) : "");
	return 0;
}

/* --- storm --------------------------------------------------------------------------------- */

static unsigned next(unsigned *state)
{
	*state = *state * 1103515245u + 12345u;
	return *state >> 16;
}

static void may_fail(const char *what, int result)
{
	if (result < 0 && errno != ENOENT && errno != EEXIST && errno != ENOTEMPTY &&
	    errno != EISDIR && errno != ENOTDIR)
		err(1, "%s", what);
}

/* A file of one record that names its writer; it appears under a shared name by rename only. */
static void write_record(const char *name, unsigned worker, unsigned round)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "worker %u round %u end\n", worker, round);
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);

	if (fd < 0 || write(fd, text, (size_t)n) != n || close(fd) < 0)
		err(1, "write %s", name);
}

static void check_record(const char *name)
{
	char text[64] = "";
	unsigned worker, round;
	int fd = open(name, O_RDONLY), end = 0;
	ssize_t n;

	if (fd < 0) {
		may_fail("open", fd);
		return;
	}
	n = read(fd, text, sizeof(text) - 1);
	if (n <= 0 || sscanf(text, "worker %u round %u end%n", &worker, &round, &end) != 2 || !end)
		errx(1, "%s holds '%s'", name, text);
	close(fd);
}

static void storm_worker(unsigned worker, unsigned rounds)
{
	unsigned state = worker * 7919u + 1;
	char mine[32], a[32], b[32], d[32];

	for (unsigned i = 0; i < rounds; i++) {
		snprintf(mine, sizeof(mine), "tmp.%u", worker);
		snprintf(a, sizeof(a), "f.%u", next(&state) % STORM_NAMES);
		snprintf(b, sizeof(b), "f.%u", next(&state) % STORM_NAMES);
		snprintf(d, sizeof(d), "d.%u", next(&state) % 3);
		write_record(mine, worker, i);
		if (rename(mine, a) < 0)
			err(1, "rename %s %s", mine, a);
		check_record(b);
		switch (next(&state) % 5) {
		case 0:
			may_fail("rename", rename(a, b));
			break;
		case 1:
			may_fail("link", link(a, b));
			break;
		case 2:
			may_fail("unlink", unlink(a));
			break;
		case 3:
			may_fail("mkdir", mkdir(d, 0755));
			break;
		default:
			may_fail("rmdir", rmdir(d));
		}
	}
	exit(0);
}

static int check_names(const char *dir)
{
	unsigned names = 0;
	struct dirent *e;
	DIR *d = opendir(".");
	struct stat st;

	if (!d)
		err(1, "%s", dir);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		names++;
		if (strncmp(e->d_name, "tmp.", 4) == 0)
			errx(1, "%s is left", e->d_name);
		if (lstat(e->d_name, &st) < 0)
			err(1, "listed, but: %s", e->d_name);
		if (S_ISREG(st.st_mode))
			check_record(e->d_name);
	}
	closedir(d);
	return names > STORM_NAMES + 3;
}

static int do_storm(const char *dir, unsigned workers, unsigned rounds)
{
	int status, bad = 0;

	if (chdir(dir) < 0)
		err(1, "%s", dir);
	for (unsigned i = 0; i < workers; i++) {
		pid_t pid = fork();

		if (pid < 0)
			err(1, "fork");
		if (pid == 0)
			storm_worker(i, rounds);
	}
	while (wait(&status) > 0)
		bad |= status != 0;
	return bad || check_names(dir);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if ((strcmp(what, "write") == 0 || strcmp(what, "watch") == 0) && argc >= 6)
		return do_range(what, argv + 2);
	if (strcmp(what, "check") == 0 && argc == 6)
		return do_range(what, argv + 2);
	if (strcmp(what, "hold") == 0 && argc >= 3)
		return do_hold(argv + 2);
	if (strcmp(what, "touch") == 0 && argc == 4)
		return do_touch(argv[2], number(argv[3]));
	if (strcmp(what, "pread") == 0 && argc == 4)
		return do_pread(argv[2], number(argv[3]));
	if (strcmp(what, "storm") == 0 && argc == 5)
		return do_storm(argv[2], (unsigned)number(argv[3]), (unsigned)number(argv[4]));
	usage();
}
