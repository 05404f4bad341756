// SPDX-License-Identifier: Apache-2.0
/*
 * Runs a fuzz target without libFuzzer: FUZZ_RUNS inputs (default 2000), mutated from the
 * target's seeds by a generator that starts at FUZZ_SEED (default 1). When the process dies,
 * the input is left in the file FUZZ_CRASH (default: fuzz-crash in the current folder); given
 * as an argument it is run again.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>

#define INPUT_MAX 4096u
#define SEEDS_MAX 64u

static uint8_t input[INPUT_MAX];
static size_t input_len;
static const char *crash_path;

static uint64_t number(const char *name, uint64_t fallback)
{
	const char *text = g_getenv(name);

	return text ? g_ascii_strtoull(text, NULL, 0) : fallback;
}

static void save_input(void)
{
	int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, input, input_len) < 0)
		return;
	close(fd);
}

static void on_death(int sig)
{
	save_input();
	signal(sig, SIG_DFL);
	raise(sig);
}

#ifdef DAXMAPD_SANITIZED
void __sanitizer_set_death_callback(void (*fn)(void));
#endif

static void catch_death(void)
{
#ifdef DAXMAPD_SANITIZED
	__sanitizer_set_death_callback(save_input);
#endif
	signal(SIGABRT, on_death);
	signal(SIGSEGV, on_death);
	signal(SIGBUS, on_death);
}

static void mutate_once(GRand *r)
{
	static const uint64_t odd[] = {0,	   1,	      0x7f,	 0x80,	     0xff,
				       0x7fff,	   0x8000,    0xffff,	 0x7fffffff, 0x80000000,
				       0xffffffff, INT64_MAX, INT64_MIN, UINT64_MAX, 4096};
	size_t at = input_len ? g_rand_int(r) % input_len : 0;
	size_t n = MIN(input_len - at, (size_t)1 << (g_rand_int(r) % 4));
	uint64_t value = odd[g_rand_int(r) % G_N_ELEMENTS(odd)];

	switch (g_rand_int(r) % 6) {
	case 0: /* one bit */
		if (input_len)
			input[at] ^= (uint8_t)(1u << (g_rand_int(r) % 8));
		break;
	case 1: /* an odd number */
		memcpy(input + at, &value, n);
		break;
	case 2: /* a random byte */
		if (input_len)
			input[at] = (uint8_t)g_rand_int(r);
		break;
	case 3: /* shorter */
		if (g_rand_int(r) % 4 == 0)
			input_len = at;
		break;
	case 4: /* longer */
		n = MIN(g_rand_int(r) % 64, INPUT_MAX - input_len);
		for (size_t i = 0; i < n; i++)
			input[input_len++] = (uint8_t)g_rand_int(r);
		break;
	default: /* a piece of itself elsewhere */
		if (input_len) {
			size_t to = g_rand_int(r) % input_len;

			memmove(input + to, input + at, MIN(n, input_len - to));
		}
	}
}

static int run_files(int n, char **paths)
{
	for (int i = 0; i < n; i++) {
		g_autofree char *text = NULL;
		gsize len;

		if (!g_file_get_contents(paths[i], &text, &len, NULL)) {
			g_printerr("cannot read %s\n", paths[i]);
			return 2;
		}
		LLVMFuzzerTestOneInput((const uint8_t *)text, len);
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t runs = number("FUZZ_RUNS", 2000), seed = number("FUZZ_SEED", 1);
	g_autoptr(GRand) r = g_rand_new_with_seed((guint32)seed);
	unsigned int seeds = 0;

	if (argc > 1)
		return run_files(argc - 1, argv + 1);
	crash_path = g_getenv("FUZZ_CRASH") ? g_getenv("FUZZ_CRASH") : "fuzz-crash";
	catch_death();
	g_print("# seed %" G_GUINT64_FORMAT "; an input that kills is left in %s\n1..1\n", seed,
		crash_path);
	while (seeds < SEEDS_MAX && (input_len = fuzz_seed(seeds, input, INPUT_MAX)) > 0) {
		LLVMFuzzerTestOneInput(input, input_len);
		seeds++;
	}
	g_assert_cmpuint(seeds, >, 0);
	for (uint64_t i = 0; i < runs; i++) {
		input_len = fuzz_seed(g_rand_int(r) % seeds, input, INPUT_MAX);
		for (unsigned int k = 1 + g_rand_int(r) % 8; k > 0; k--)
			mutate_once(r);
		LLVMFuzzerTestOneInput(input, input_len);
	}
	g_print("ok 1 - %u seeds and %" G_GUINT64_FORMAT " mutated inputs\n", seeds, runs);
	return 0;
}
