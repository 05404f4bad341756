// SPDX-License-Identifier: Apache-2.0
/*
 * Tries to change a file that must not change, as root of the guest. What counts is what the host
 * finds afterwards: some of these ways succeed by changing a copy of the guest's own; they are
 * named. With a PCI resource it also stores to every page of the DAX window while the file
 * is mapped in it, past all that the guest's kernel would say.
 *
 *   breakin FILE [RESOURCE]
 *
 * Exit status 0, unless the file cannot even be read.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name;
static size_t size;
static char junk[4096];

static unsigned refused;

static void report(const char *what, bool done)
{
	refused += !done;
	if (done)
		printf("# done, which may be right: %s\n", what);
}

static void *map(int prot, int flags, int open_flags)
{
	int fd = open(name, open_flags);
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, size, prot, flags, fd, 0);
	int why = errno;

	if (fd >= 0)
		close(fd);
	errno = why;
	return p;
}

/* A mapping whose first page is in place */
static volatile char *mapped(int flags)
{
	volatile char *p = map(PROT_READ, flags, O_RDONLY);

	if (p == MAP_FAILED)
		err(1, "%s", name);
	(void)p[0];
	return p;
}

static void try_open(const char *what, int flags)
{
	int fd = open(name, flags);

	report(what, fd >= 0 && pwrite(fd, junk, sizeof(junk), 0) > 0);
	if (fd >= 0)
		close(fd);
}

static void try_calls(void)
{
	char self[64];
	int fd = open(name, O_RDONLY), fd2;

	try_open("write", O_WRONLY);
	try_open("write, O_DIRECT", O_WRONLY | O_DIRECT);
	try_open("append", O_WRONLY | O_APPEND);
	try_open("truncate at open", O_WRONLY | O_TRUNC);
	report("truncate", truncate(name, 1) == 0);
	report("ftruncate, read only", ftruncate(fd, 1) == 0);
	report("punch, read only",
	       fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0);
	report("pwrite, read only", pwrite(fd, junk, sizeof(junk), 0) > 0);
	report("copy_file_range onto itself",
	       copy_file_range(fd, &(off_t){0}, fd, &(off_t){8192}, 4096, 0) > 0);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	fd2 = open(self, O_RDWR);
	report("open anew through /proc", fd2 >= 0 && pwrite(fd2, junk, sizeof(junk), 0) > 0);
	report("chmod", fchmod(fd, 0666) == 0);
	report("chown", fchown(fd, 0, 0) == 0);
	try_open("write after chmod and chown", O_RDWR);
}

/* A pipe's buffers that are the file's pages must not be written into */
static void try_pipe(void)
{
	int fd = open(name, O_RDONLY), p[2];
	off_t at = 100;

	if (pipe(p) < 0)
		err(1, "pipe");
	for (int i = 0; i < 16; i++) {
		(void)!write(p[1], junk, sizeof(junk));
		(void)!read(p[0], junk, sizeof(junk));
	}
	report("splice, then write to the pipe",
	       splice(fd, &at, p[1], NULL, 1, 0) == 1 && write(p[1], junk, 100) == 100);
	close(p[0]);
	close(p[1]);
	close(fd);
}

static void try_store(const char *what, volatile char *p)
{
	bool may = mprotect((void *)p, size, PROT_READ | PROT_WRITE) == 0;

	report(what, may);
	for (size_t i = 0; may && i < size; i += 4096)
		p[i] = (char)~p[i];
	if (may)
		msync((void *)p, size, MS_SYNC);
}

static void try_mem(const char *what, volatile char *p)
{
	struct iovec here = {junk, sizeof(junk)}, there = {(void *)p, sizeof(junk)};
	int fd = open("/proc/self/mem", O_RDWR);
	char text[64];

	report(what, pwrite(fd, junk, sizeof(junk), (off_t)(uintptr_t)p) > 0);
	close(fd);
	snprintf(text, sizeof(text), "process_vm_writev, %s", what);
	report(text, process_vm_writev(getpid(), &here, 1, &there, 1, 0) > 0);
}

static void try_ptrace(const char *what, volatile char *p)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		err(1, "fork");
	report(what, ptrace(PTRACE_POKEDATA, pid, (void *)p, (void *)0x4141414141414141) == 0);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

static void try_mappings(void)
{
	volatile char *shared = mapped(MAP_SHARED), *private = mapped(MAP_PRIVATE), *p;

	p = map(PROT_READ | PROT_WRITE, MAP_SHARED, O_RDONLY);
	report("shared writable mapping, read only descriptor", p != MAP_FAILED);
	p = map(PROT_READ | PROT_WRITE, MAP_SHARED, O_RDWR);
	report("shared writable mapping", p != MAP_FAILED);
	if (p != MAP_FAILED)
		memset((void *)p, 0x42, size);
	try_mem("/proc/self/mem, shared", shared);
	try_mem("/proc/self/mem, private", private);
	try_ptrace("ptrace, shared", shared);
	try_ptrace("ptrace, private", private);
	report("MADV_REMOVE", madvise((void *)shared, size, MADV_REMOVE) == 0);
	report("MADV_POPULATE_WRITE", madvise((void *)shared, size, 23) == 0);
	try_store("mprotect and store, shared", shared);
	try_store("mprotect and store, private", private);
}

/* While every page of the file is mapped, all of the window is overwritten */
static void try_window(const char *resource)
{
	volatile char *file = mapped(MAP_SHARED), *window;
	volatile char sum = 0;
	struct stat st;
	int fd = open(resource, O_RDWR);

	for (size_t i = 0; i < size; i += 4096)
		sum = (char)(sum + file[i]);
	if (fd < 0 || fstat(fd, &st) < 0) {
		report("the window itself", false);
		return;
	}
	window = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	report("the window itself", window != MAP_FAILED);
	if (window == MAP_FAILED)
		return;
	for (size_t i = 0; i < (size_t)st.st_size; i += 4096)
		window[i + 8] = 0x43;
	printf("# of %zu pages of the file %s shows the stores\n", size / 4096,
	       file[8] == 0x43 ? "the first" : "not even the first");
}

int main(int argc, char **argv)
{
	struct stat st;

	if (argc < 2 || stat(argv[1], &st) < 0 || !st.st_size)
		err(1, "breakin FILE [RESOURCE]");
	name = argv[1];
	size = (size_t)st.st_size;
	memset(junk, 0x41, sizeof(junk));
	try_calls();
	try_pipe();
	try_mappings();
	if (argc > 2)
		try_window(argv[2]);
	printf("# refused: %u ways\n", refused);
	return 0;
}
