/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DM_MUTATE(n) is the constant false, except in the build for the mutation tests, where it is
 * deliberate bug n, chosen at run time. The model test must fail on each: tests/model/mutations.
 */
#ifndef DAXMAP_DM_MUTATE_H
#define DAXMAP_DM_MUTATE_H

#ifdef DM_MUTATION_RUNTIME
extern int dm_mutation;
#define DM_MUTATE(n) (dm_mutation == (n))
#else
#define DM_MUTATE(n) false
#endif

#endif
