/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target: one function that takes any bytes and returns, in a process that stays whole.
 *
 * Built either with libFuzzer (meson -Dlibfuzzer=true, clang) or with fuzz_main.c, which mutates
 * the target's own seeds with a seeded generator: a bounded test that finds the same on every
 * machine. Both run a file that is named on the command line as one input.
 */
#ifndef DAXMAP_FUZZ_H
#define DAXMAP_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** LLVMFuzzerTestOneInput() - runs one input; by libFuzzer's contract returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/**
 * fuzz_seed() - the target's valid input number @i, to start from
 * @buf: out: the input
 * @cap: size of @buf
 *
 * Returns its length; 0 when there is no such seed.
 */
size_t fuzz_seed(unsigned int i, uint8_t *buf, size_t cap);

#endif
