// SPDX-License-Identifier: Apache-2.0
/*
 * Reads a mapped file while the host makes it shorter, and says what it saw.
 *
 *   cutread FILE FROM TO PACE AFTER CMD...
 *
 * Maps FILE, touches every page, runs CMD (which has the host truncate), and reads pages of
 * [FROM, TO) (bytes) in no order, one every PACE microseconds while CMD runs (0: none), then AFTER
 * more. Page n of the file begins with n + 1, 8 bytes. Prints counts: old (its bytes), zeros,
 * other, bus (SIGBUS here; in the VMM it would be the end).
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

static unsigned old, zeros, other, bus;
static sigjmp_buf on_bus;

static void bus_error(int sig)
{
	siglongjmp(on_bus, sig);
}

static void look(const volatile unsigned char *map, size_t page)
{
	uint64_t v;

	if (sigsetjmp(on_bus, 1)) {
		bus++;
		return;
	}
	v = *(const volatile uint64_t *)(map + page * PAGE);
	if (v == page + 1)
		old++;
	else if (v == 0)
		zeros++;
	else
		other++;
}

int main(int argc, char **argv)
{
	struct sigaction sa = {.sa_handler = bus_error, .sa_flags = SA_NODEFER};
	volatile unsigned char *map;
	size_t from, pages;
	unsigned pace, after;
	struct stat st;
	int fd, status = 0;
	pid_t pid;

	if (argc < 7)
		errx(2, "cutread FILE FROM TO PACE AFTER CMD...");
	from = strtoull(argv[2], NULL, 0) / PAGE;
	pages = strtoull(argv[3], NULL, 0) / PAGE - from;
	pace = (unsigned)atoi(argv[4]);
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
		look(map, from + (size_t)random() % pages);
		usleep(pace);
	}
	if (!pace)
		waitpid(pid, &status, 0);
	for (unsigned i = 0; i < after; i++)
		look(map, from + (size_t)random() % pages);
	printf("old %u zeros %u other %u bus %u\n", old, zeros, other, bus);
	return status != 0 || other != 0;
}
