// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a mapped file while the host makes it shorter, and says what it saw.
 *
 *   cutread FILE FROM TO PACE AFTER CMD...
 *
 * Maps FILE, touches every page, runs CMD (which has the host truncate), and reads pages of
 * [FROM, TO) (bytes) in no order, one every PACE microseconds while CMD runs (0: none; -1: as fast as
 * it can, asking for the file's size now and then), then AFTER more. Page n of the file begins with
 * the 8 bytes of want(n). Prints counts: old (its bytes), zeros, mixed (each byte is one or the other:
 * the host is just writing it), other, bus (SIGBUS here; in the VMM it would be the end).
 */
#include <err.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static unsigned old, zeros, mixed, other, bus;
static sigjmp_buf on_bus;

static void bus_error(int sig)
{
	siglongjmp(on_bus, sig);
}

static uint64_t want(size_t page)
{
	return (page + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static int is_mixed(uint64_t v, uint64_t w)
{
	for (; v; v >>= 8, w >>= 8)
		if ((v & 0xff) && (v & 0xff) != (w & 0xff))
			return 0;
	return 1;
}

static void look(const volatile unsigned char *map, size_t page)
{
	uint64_t v;

	if (sigsetjmp(on_bus, 1)) {
		bus++;
		return;
	}
	v = *(const volatile uint64_t *)(map + page * PAGE);
	if (v == want(page)) {
		old++;
	} else if (v == 0) {
		zeros++;
	} else if (is_mixed(v, want(page))) {
		mixed++;
	} else {
		printf("page %zu: %llx\n", page, (unsigned long long)v);
		other++;
	}
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = bus_error, .sa_flags = SA_NODEFER};
	volatile unsigned char *map;
	size_t from, pages;
	unsigned after;
	int pace;
	struct stat st;
	int fd, status = 0;
	pid_t pid;

	if (argc < 7)
		errx(2, "cutread FILE FROM TO PACE AFTER CMD...");
	from = strtoull(argv[2], NULL, 0) / PAGE;
	pages = strtoull(argv[3], NULL, 0) / PAGE - from;
	pace = atoi(argv[4]);
	after = (unsigned)atoi(argv[5]);
	fd = open(argv[1], O_RDONLY);
	if (fd < 0 || fstat(fd, &st) < 0)
		err(1, "%s", argv[1]);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		err(1, "mmap");
	sigaction(SIGBUS, &sa, NULL);
	for (size_t p = 0; p < (size_t)st.st_size / PAGE; p++)
		look(map, p);
	if (old != st.st_size / PAGE)
		errx(1, "%s: %u of %lld pages are right", argv[1], old,
		     (long long)st.st_size / PAGE);
	old = 0;
	pid = fork();
	if (pid == 0) {
		execvp(argv[6], argv + 6);
		err(127, "%s", argv[6]);
	}
	while (pace && waitpid(pid, &status, WNOHANG) == 0) {
		for (int i = 0; i < (pace < 0 ? 500 : 1); i++)
			look(map, from + (size_t)random() % pages);
		if (pace < 0)
			fstat(fd, &st);
		else
			usleep((unsigned)pace);
	}
	if (!pace)
		waitpid(pid, &status, 0);
	for (unsigned i = 0; i < after; i++)
		look(map, from + (size_t)random() % pages);
	printf("old %u zeros %u mixed %u other %u bus %u\n", old, zeros, mixed, other, bus);
	return status != 0 || other != 0;
}
