// SPDX-License-Identifier: Apache-2.0
/*
 * A tree of files whose right bytes are known on both sides of a share.
 *
 * The host makes a tree and a copy of it outside of the share. A plan is a list of changes, each a
 * line whose bytes follow from a seed. Guest or host carries it out on the share, the host also on
 * the copy; so a write that is lost, doubled or misplaced shows, which a mere comparison of the two
 * sides of the share would not. Built statically; the same program runs in the guest and outside.
 *
 * Exit status: 0 as expected; 1 not, with the reason on stderr; 2 bad usage; for hold, CMD's
 * status when it is not 0.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "md5.h"

#ifndef STATX_ATTR_DAX
#define STATX_ATTR_DAX 0x00200000
#endif

enum {
	MIB = 1 << 20,
	GRANULE = 2 * MIB,
	BUF = 256 << 10,
	PER_DIR = 50,
	NAME_LEN = 64,
	HELD = 24, /* files that hold maps */
};

static void usage(void)
{
	fputs("Usage: treeio COMMAND\n"
	      "  make DIR COUNT MAX TOTAL SEED    files of random sizes, 1 byte to MAX MiB, TOTAL "
	      "MiB in all\n"
	      "  plan DIR SEED COUNT guest|host   print changes; host: those safe while files are "
	      "held\n"
	      "  ops DIR LIST                     carry them out\n"
	      "  md5 DIR                          of each file, by read and through a mapping\n"
	      "  hold DIR CMD...                  map files, run CMD, print what the mappings "
	      "show\n"
	      "  prefix DIR LIST                  files of DIR begin with what hold has printed\n"
	      "  dax DIR                          how many files are DAX\n"
	      "  slurp DIR                        list and read all once, with the time\n",
	      stderr);
	exit(2);
}

/* --- random numbers and bytes -------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

static uint64_t seeded(uint64_t seed)
{
	return seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

/* below(n): 0 .. n-1 */
static uint64_t below(uint64_t *state, uint64_t n)
{
	return n ? next(state) % n : 0;
}

static void fill(unsigned char *p, size_t len, uint64_t seed)
{
	uint64_t state = seeded(seed), word;

	for (size_t i = 0; i < len; i += sizeof(word)) {
		word = next(&state);
		memcpy(p + i, &word, len - i < sizeof(word) ? len - i : sizeof(word));
	}
}

static unsigned char *filled(size_t len, uint64_t seed)
{
	unsigned char *p = malloc(len ? len : 1);

	if (!p)
		err(1, "malloc");
	fill(p, len, seed);
	return p;
}

/* --- lists of files ------------------------------------------------------------------------ */

struct file {
	char *name;
	uint64_t size;
};

static struct file *files;
static size_t n_files;
static size_t skip_prefix;

static int note_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type != FTW_F)
		return 0;
	files = reallocarray(files, n_files + 1, sizeof(*files));
	if (!files)
		err(1, "malloc");
	files[n_files].name = strdup(path + skip_prefix);
	files[n_files++].size = (uint64_t)st->st_size;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

/* Afterwards names are relative, and DIR is the current folder. */
static void list_files(const char *dir)
{
	skip_prefix = strlen("./");
	if (chdir(dir) < 0 || nftw(".", note_file, 20, FTW_PHYS) != 0)
		err(1, "%s", dir);
	qsort(files, n_files, sizeof(*files), by_name);
}

/* The files that hold maps: neither small enough to go unmarked nor large enough to fill a window
 */
static bool can_hold(const struct file *f)
{
	return f->size >= 64 << 10 && f->size < GRANULE;
}

/* --- make ---------------------------------------------------------------------------------- */

static void make_file(const char *name, uint64_t size, uint64_t seed)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	unsigned char *p = filled(size < MIB ? size : MIB, seed);
	uint64_t done = 0;

	if (fd < 0)
		err(1, "%s", name);
	while (done < size) {
		size_t len = size - done < MIB ? size - done : MIB;

		/* each MiB is another one */
		memcpy(p, &done, len < sizeof(done) ? len : sizeof(done));
		if (write(fd, p, len) != (ssize_t)len)
			err(1, "%s", name);
		done += len;
	}
	free(p);
	if (close(fd) < 0)
		err(1, "%s", name);
}

/*
 * Few near the largest, one in 20 whole granules, every second of them but for part of a page, the
 * others spread over all orders of magnitude, most of them below 3 MiB, and the larger ones thinned
 * out until the sum fits.
 */
static uint64_t pick_size(uint64_t *state, size_t i, uint64_t max, double power)
{
	double u = (double)(next(state) >> 11) / (double)(UINT64_C(1) << 53);
	uint64_t most = i % 100 == 3 || max < 3 * MIB ? max : 3 * MIB;

	if (i < 3)
		return max - below(state, MIB);
	if (i % 20 == 7)
		return GRANULE * (1 + below(state, 2)) - (i % 40 == 7 ? 0 : below(state, 2048));
	return (uint64_t)exp(log((double)most) * pow(u, power)) + below(state, 2);
}

static void do_make(const char *dir, size_t count, uint64_t max, uint64_t total, uint64_t seed)
{
	uint64_t *sizes = calloc(count, sizeof(*sizes)), sum = UINT64_MAX, state = seeded(seed);
	char name[NAME_LEN];

	if (!sizes || chdir(dir) < 0)
		err(1, "%s", dir);
	for (double power = 1; sum > total && power < 20; power *= 1.05) {
		state = seeded(seed);
		sum = 0;
		for (size_t i = 0; i < count; i++)
			sum += sizes[i] = pick_size(&state, i, max, power);
	}
	for (size_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "d%03zu", i / PER_DIR);
		if (i % PER_DIR == 0 && mkdir(name, 0755) < 0)
			err(1, "%s", name);
		snprintf(name, sizeof(name), "d%03zu/f%05zu", i / PER_DIR, i);
		make_file(name, sizes[i], next(&state));
	}
	printf("files %zu MiB %" PRIu64 "\n", count, sum / MIB);
}

/* --- plan ---------------------------------------------------------------------------------- */

/* A length for a change: mostly small, sometimes more than a granule */
static uint64_t pick_len(uint64_t *state)
{
	return 1 + below(state, below(state, 8) ? 20000 : 3 * MIB);
}

static void plan_in_place(const struct file *f, const char *how, uint64_t *state)
{
	uint64_t off = below(state, f->size), len = pick_len(state);

	if (!f->size)
		return;
	if (len > f->size - off)
		len = f->size - off;
	printf("%s %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", how, f->name, off, len,
	       next(state) >> 8);
}

static void plan_append(const struct file *f, uint64_t *state)
{
	printf("append %s %" PRIu64 " %" PRIu64 "\n", f->name, pick_len(state), next(state) >> 8);
}

static void plan_create(const struct file *f, uint64_t seed, uint64_t *state)
{
	printf("create %s.n%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", f->name, seed, pick_len(state),
	       next(state) >> 8);
}

/* A change to a file; new names come of its name and @seed, so that no two meet */
static void plan_one(const struct file *f, uint64_t seed, uint64_t *state, bool held)
{
	switch (below(state, held ? 3 : 9)) {
	case 0:
		plan_append(f, state);
		break;
	case 1:
		plan_in_place(f, "pwrite", state);
		break;
	case 2:
		plan_in_place(f, "mwrite", state);
		break;
	case 3:
		printf("cut %s %" PRIu64 "\n", f->name, below(state, f->size));
		break;
	case 4:
		printf("grow %s %" PRIu64 "\n", f->name, f->size + pick_len(state));
		break;
	case 5:
		printf("rename %s %s.r%" PRIu64 "\n", f->name, f->name, seed);
		break;
	case 6:
		printf("unlink %s\n", f->name);
		break;
	case 7:
		plan_create(f, seed, state);
		printf("over %s.n%" PRIu64 " %s\n", f->name, seed, f->name);
		break;
	default:
		plan_create(f, seed, state);
		plan_in_place(f, "mwrite", state);
		plan_append(f, state);
	}
}

static int do_plan(const char *dir, uint64_t seed, size_t count, bool host)
{
	uint64_t state = seeded(seed);
	size_t held = 0;

	list_files(dir);
	for (size_t i = 0; i < n_files; i++) {
		/* while the guest holds files, all of them change, but none loses bytes */
		if (host && can_hold(&files[i]) && held < HELD) {
			held++;
			plan_one(&files[i], seed, &state, true);
		} else if (below(&state, n_files) < count) {
			plan_one(&files[i], seed, &state, false);
		}
	}
	return 0;
}

/* --- changes ------------------------------------------------------------------------------- */

static int open_or_die(const char *name, int flags)
{
	int fd = open(name, flags, 0644);

	if (fd < 0)
		err(1, "%s", name);
	return fd;
}

static uint64_t size_of(int fd, const char *name)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		err(1, "%s", name);
	return (uint64_t)st.st_size;
}

static unsigned char *map(const char *name, int fd, size_t size, int prot)
{
	unsigned char *p = mmap(NULL, size, prot, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		err(1, "mmap %s", name);
	return p;
}

static void write_at(const char *name, off_t off, size_t len, uint64_t seed)
{
	int fd = open_or_die(name, off < 0 ? O_WRONLY | O_APPEND : O_WRONLY);
	unsigned char *p = filled(len, seed);
	ssize_t n = off < 0 ? write(fd, p, len) : pwrite(fd, p, len, off);

	if (n != (ssize_t)len)
		err(1, "write %s: %zd of %zu", name, n, len);
	free(p);
	if (close(fd) < 0)
		err(1, "close %s", name);
}

/* Through a mapping; the bytes must be right for read at once, whoever caches what */
static void write_mapped(const char *name, size_t off, size_t len, uint64_t seed)
{
	int fd = open_or_die(name, O_RDWR);
	size_t size = size_of(fd, name);
	unsigned char *p, *back = malloc(len);

	if (off + len > size)
		errx(1, "%s has %zu bytes, not %zu", name, size, off + len);
	p = map(name, fd, size, PROT_READ | PROT_WRITE);
	fill(p + off, len, seed);
	if (seed & 1 && msync(p, size, MS_SYNC) < 0)
		err(1, "msync %s", name);
	if (pread(fd, back, len, (off_t)off) != (ssize_t)len || memcmp(back, p + off, len) != 0)
		errx(1, "%s: read does not see what was stored", name);
	free(back);
	munmap(p, size);
	if (close(fd) < 0)
		err(1, "close %s", name);
}

/* While mapped: what stays is right; made longer again it is zeros */
static void cut(const char *name, size_t size)
{
	int fd = open_or_die(name, O_RDWR);
	size_t old = size_of(fd, name), after = size + 5000;
	unsigned char sum[2][16], *p = old ? map(name, fd, old, PROT_READ) : NULL;
	char page[5000], zero[5000] = "";

	if (p)
		md5_of(p, size, sum[0]);
	if (ftruncate(fd, (off_t)size) < 0)
		err(1, "ftruncate %s", name);
	if (p)
		md5_of(p, size, sum[1]);
	if (p && memcmp(sum[0], sum[1], 16) != 0)
		errx(1, "%s: truncated, the bytes before the end changed", name);
	if (ftruncate(fd, (off_t)after) < 0 ||
	    pread(fd, page, sizeof(page), (off_t)size) != sizeof(page))
		err(1, "%s", name);
	if (memcmp(page, zero, sizeof(page)) != 0)
		errx(1, "%s: old bytes behind the end came back", name);
	if (ftruncate(fd, (off_t)size) < 0)
		err(1, "ftruncate %s", name);
	if (p)
		munmap(p, old);
	close(fd);
}

/*
 * unlink, or rename another file over it, while it is mapped: the mapping keeps its bytes and
 * takes new ones
 */
static void displace(const char *name, const char *by)
{
	int fd = open_or_die(name, O_RDWR);
	size_t size = size_of(fd, name);
	unsigned char sum[2][16], *p = size ? map(name, fd, size, PROT_READ | PROT_WRITE) : NULL;
	char c = 0;

	if (p)
		md5_of(p, size, sum[0]);
	if (by ? rename(by, name) < 0 : unlink(name) < 0)
		err(1, "%s", name);
	if (p) {
		md5_of(p, size, sum[1]);
		if (memcmp(sum[0], sum[1], 16) != 0)
			errx(1, "%s: has no name any more, and other bytes", name);
		p[size / 2] ^= 0x5a;
		if (pread(fd, &c, 1, (off_t)(size / 2)) != 1 || (unsigned char)c != p[size / 2])
			errx(1, "%s: has no name any more, and a store is lost", name);
		munmap(p, size);
	}
	close(fd);
}

static void change(char *line)
{
	char what[16], a[NAME_LEN], b[NAME_LEN];
	uint64_t n[3] = {0};

	if (sscanf(line, "%15s %63s", what, a) != 2)
		errx(1, "not a change: %s", line);
	(void)!sscanf(line, "%*s %*s %" SCNu64 " %" SCNu64 " %" SCNu64, &n[0], &n[1], &n[2]);
	(void)!sscanf(line, "%*s %*s %63s", b);
	if (strcmp(what, "append") == 0)
		write_at(a, -1, n[0], n[1]);
	else if (strcmp(what, "pwrite") == 0)
		write_at(a, (off_t)n[0], n[1], n[2]);
	else if (strcmp(what, "mwrite") == 0)
		write_mapped(a, n[0], n[1], n[2]);
	else if (strcmp(what, "cut") == 0)
		cut(a, n[0]);
	else if (strcmp(what, "grow") == 0 && truncate(a, (off_t)n[0]) < 0)
		err(1, "%s", a);
	else if (strcmp(what, "rename") == 0 && rename(a, b) < 0)
		err(1, "%s", a);
	else if (strcmp(what, "unlink") == 0)
		displace(a, NULL);
	else if (strcmp(what, "over") == 0)
		displace(b, a);
	else if (strcmp(what, "create") == 0)
		make_file(a, n[0], n[1]);
}

static int do_ops(const char *dir, const char *list)
{
	FILE *f = fopen(list, "re");
	char line[256];
	unsigned n = 0;

	if (!f || chdir(dir) < 0)
		err(1, "%s", list);
	for (; fgets(line, sizeof(line), f); n++)
		change(line);
	fclose(f);
	fprintf(stderr, "changes %u\n", n);
	return 0;
}

/* --- reading ------------------------------------------------------------------------------- */

static void md5_read(const char *name, unsigned char *sum, bool keep)
{
	static unsigned char buf[BUF];
	int fd = open_or_die(name, O_RDONLY);
	struct md5 m;
	ssize_t n;

	md5_init(&m);
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		if (keep)
			md5_add(&m, buf, (size_t)n);
	}
	if (n < 0)
		err(1, "read %s", name);
	md5_end(&m, sum);
	close(fd);
}

static void md5_mapped(const char *name, unsigned char *sum)
{
	int fd = open_or_die(name, O_RDONLY);
	size_t size = size_of(fd, name);
	unsigned char *p = size ? map(name, fd, size, PROT_READ) : NULL;

	md5_of(p, size, sum);
	if (p)
		munmap(p, size);
	close(fd);
}

/* Either way first, so that a mapping's first touch and read's both meet a fresh range */
static int do_md5(const char *dir)
{
	unsigned char sum[2][16];
	int bad = 0;

	list_files(dir);
	for (size_t i = 0; i < n_files; i++) {
		const char *name = files[i].name;

		if (i % 2)
			md5_mapped(name, sum[1]);
		md5_read(name, sum[0], true);
		if (!(i % 2))
			md5_mapped(name, sum[1]);
		if (memcmp(sum[0], sum[1], 16) != 0) {
			warnx("%s: read and mapping differ", name);
			bad = 1;
		}
		printf("%s %s\n", md5_text(sum[0]), name);
	}
	return bad;
}

static int run_command(char **argv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		execvp(argv[0], argv);
		err(127, "%s", argv[0]);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		err(1, "fork");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bool is_dax(const char *name)
{
	struct statx sx;

	if (statx(AT_FDCWD, name, 0, STATX_TYPE, &sx) < 0)
		err(1, "%s", name);
	return sx.stx_attributes & STATX_ATTR_DAX;
}

/* Only DAX promises that a mapping shows what the host writes meanwhile */
static int do_hold(const char *dir, char **argv)
{
	unsigned char **maps, sum[16];
	volatile unsigned char touched;
	size_t n = 0;
	int status;

	list_files(dir);
	maps = calloc(n_files, sizeof(*maps));
	for (size_t i = 0; i < n_files && n < HELD; i++) {
		int fd;

		if (!can_hold(&files[i]))
			continue;
		n++;
		if (!is_dax(files[i].name))
			continue;
		fd = open_or_die(files[i].name, O_RDONLY);
		maps[i] = map(files[i].name, fd, files[i].size, PROT_READ);
		for (size_t at = 0; at < files[i].size; at += 4096)
			touched = maps[i][at];
		close(fd);
	}
	(void)touched;
	status = run_command(argv);
	for (size_t i = 0; i < n_files; i++) {
		if (!maps[i])
			continue;
		md5_of(maps[i], files[i].size, sum);
		printf("%s %" PRIu64 " %s\n", md5_text(sum), files[i].size, files[i].name);
	}
	return status;
}

static int do_prefix(const char *dir, const char *list)
{
	char want[33], name[NAME_LEN];
	FILE *f = fopen(list, "re");
	unsigned char sum[16];
	unsigned n = 0, bad = 0;
	uint64_t len;

	if (!f || chdir(dir) < 0)
		err(1, "%s", list);
	for (; fscanf(f, "%32s %" SCNu64 " %63s", want, &len, name) == 3; n++) {
		int fd = open_or_die(name, O_RDONLY);
		unsigned char *p = map(name, fd, len, PROT_READ);

		md5_of(p, len, sum);
		munmap(p, len);
		close(fd);
		if (strcmp(md5_text(sum), want) != 0) {
			warnx("%s: the mapping showed other bytes", name);
			bad++;
		}
	}
	fclose(f);
	printf("held %u wrong %u\n", n, bad);
	return bad || !n;
}

static int do_dax(const char *dir)
{
	unsigned dax = 0;

	list_files(dir);
	for (size_t i = 0; i < n_files; i++)
		dax += is_dax(files[i].name);
	printf("dax %u of %zu\n", dax, n_files);
	return 0;
}

/* Names, attributes and bytes, as a search would */
static int do_slurp(const char *dir)
{
	struct timespec from, to;
	unsigned char sum[16];

	clock_gettime(CLOCK_MONOTONIC, &from);
	list_files(dir);
	for (size_t i = 0; i < n_files; i++)
		md5_read(files[i].name, sum, false);
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("read %zu us %lld\n", n_files,
	       (long long)(to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000);
	return 0;
}

static uint64_t number(const char *text)
{
	return strtoull(text, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	if (strcmp(what, "make") == 0 && argc == 7) {
		do_make(argv[2], number(argv[3]), number(argv[4]) * MIB, number(argv[5]) * MIB,
			number(argv[6]));
		return 0;
	}
	if (strcmp(what, "plan") == 0 && argc == 6)
		return do_plan(argv[2], number(argv[3]), number(argv[4]),
			       strcmp(argv[5], "host") == 0);
	if (strcmp(what, "ops") == 0 && argc == 4)
		return do_ops(argv[2], argv[3]);
	if (strcmp(what, "md5") == 0 && argc == 3)
		return do_md5(argv[2]);
	if (strcmp(what, "hold") == 0 && argc >= 4)
		return do_hold(argv[2], argv + 3);
	if (strcmp(what, "prefix") == 0 && argc == 4)
		return do_prefix(argv[2], argv[3]);
	if (strcmp(what, "dax") == 0 && argc == 3)
		return do_dax(argv[2]);
	if (strcmp(what, "slurp") == 0 && argc == 3)
		return do_slurp(argv[2]);
	usage();
}
