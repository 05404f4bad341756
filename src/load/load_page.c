// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "load_page.h"

#define MAGIC 0x64617861u

struct stamp {
	uint32_t magic;
	uint32_t file;
	uint64_t offset;
	uint32_t unit;
	uint32_t gen;
};

static uint64_t seed_of(const struct stamp *s)
{
	uint64_t v = s->offset ^ ((uint64_t)s->file << 40) ^ ((uint64_t)s->gen << 20);

	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdull;
	v ^= v >> 33;
	return v | 1;
}

void load_page_fill(void *p, uint32_t unit, uint32_t file, uint64_t offset, uint32_t gen)
{
	struct stamp s = {
		.magic = MAGIC,
		.file = file,
		.offset = offset,
		.unit = unit,
		.gen = gen,
	};
	uint64_t *w = p;
	uint64_t seed = seed_of(&s);

	memcpy(p, &s, sizeof(s));
	for (uint32_t i = sizeof(s) / 8; i < unit / 8; i++)
		w[i] = seed * i;
}

bool load_page_check(const void *p, uint32_t unit, uint32_t file, uint64_t offset, uint32_t *gen)
{
	const uint64_t *w = p;
	uint64_t wrong = 0;
	struct stamp s;
	uint64_t seed;

	memcpy(&s, p, sizeof(s));
	if (s.magic != MAGIC || s.file != file || s.offset != offset || s.unit != unit || !s.gen)
		return false;
	if (*gen && *gen != s.gen)
		return false;
	*gen = s.gen;
	seed = seed_of(&s);
	for (uint32_t i = sizeof(s) / 8; i < unit / 8; i++)
		wrong |= w[i] ^ seed * i;
	return !wrong;
}
