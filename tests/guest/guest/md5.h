/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MD5 (RFC 1321), so that one program in the guest can look at thousands of files; a process a file
 * costs more than the file where every instruction is emulated.
 */
#ifndef DAXMAP_GUEST_MD5_H
#define DAXMAP_GUEST_MD5_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct md5 {
	uint32_t state[4];
	uint64_t len; /* bytes so far */
	unsigned char rest[64];
};

static inline void md5_init(struct md5 *m)
{
	*m = (struct md5){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}};
}

/* Step i: which word of the block, how far to rotate; the constant is |sin(i + 1)| * 2^32 */
static inline uint32_t md5_mix(int i, uint32_t b, uint32_t c, uint32_t d, int *word)
{
	switch (i / 16) {
	case 0:
		*word = i;
		return (b & c) | (~b & d);
	case 1:
		*word = (5 * i + 1) % 16;
		return (d & b) | (~d & c);
	case 2:
		*word = (3 * i + 5) % 16;
		return b ^ c ^ d;
	default:
		*word = 7 * i % 16;
		return c ^ (b | ~d);
	}
}

static inline void md5_block(struct md5 *m, const unsigned char *p)
{
	static const unsigned char turn[4][4] = {
		{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
	static uint32_t sines[64];
	uint32_t a = m->state[0], b = m->state[1], c = m->state[2], d = m->state[3], x[16];

	for (int i = 0; !sines[63] && i < 64; i++)
		sines[i] = (uint32_t)(fabs(sin(i + 1)) * 4294967296.0);
	memcpy(x, p, sizeof(x)); /* little endian, as every guest of ours */
#pragma GCC unroll 64
	for (int i = 0; i < 64; i++) {
		int word, by = turn[i / 16][i % 4];
		uint32_t f = md5_mix(i, b, c, d, &word) + a + sines[i] + x[word];

		a = d;
		d = c;
		c = b;
		b += f << by | f >> (32 - by);
	}
	m->state[0] += a;
	m->state[1] += b;
	m->state[2] += c;
	m->state[3] += d;
}

static inline void md5_add(struct md5 *m, const unsigned char *p, size_t len)
{
	size_t have = m->len % 64, take;

	m->len += len;
	if (have) {
		take = len < 64 - have ? len : 64 - have;
		memcpy(m->rest + have, p, take);
		if (have + take < 64)
			return;
		md5_block(m, m->rest);
		p += take;
		len -= take;
	}
	for (; len >= 64; p += 64, len -= 64)
		md5_block(m, p);
	memcpy(m->rest, p, len);
}

static inline void md5_end(struct md5 *m, unsigned char sum[16])
{
	static const unsigned char pad[64] = {0x80};
	uint64_t bits = m->len * 8;

	md5_add(m, pad, 1 + (119 - m->len % 64) % 64);
	md5_add(m, (const unsigned char *)&bits, sizeof(bits));
	memcpy(sum, m->state, 16);
}

static inline void md5_of(const unsigned char *p, size_t len, unsigned char sum[16])
{
	struct md5 m;

	md5_init(&m);
	if (len)
		md5_add(&m, p, len);
	md5_end(&m, sum);
}

/* Good until the next call */
static inline const char *md5_text(const unsigned char sum[16])
{
	static char text[33];

	for (int i = 0; i < 16; i++)
		sprintf(text + 2 * i, "%02x", sum[i]);
	return text;
}

#endif
