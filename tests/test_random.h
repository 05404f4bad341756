/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations: a small generator with its state in the caller's hands, and numbers from the
 * environment, so that a run can be repeated. */
#ifndef DAXMAP_TESTS_TEST_RANDOM_H
#define DAXMAP_TESTS_TEST_RANDOM_H

#include <glib.h>
#include <stdint.h>

/** test_rnd() - 0 to @n - 1; *@state is never 0. */
static inline uint64_t test_rnd(uint64_t *state, uint64_t n)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (*state >> 11) % n;
}

/** test_env_number() - of the environment variable @name, or @otherwise. */
static inline uint64_t test_env_number(const char *name, uint64_t otherwise)
{
	const char *s = g_getenv(name);

	return s ? g_ascii_strtoull(s, NULL, 0) : otherwise;
}

#endif
