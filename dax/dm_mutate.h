/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DM_MUTATE(n) is true in a build made to contain deliberate bug n (-DDM_MUTATION=n), and the
 * constant 0 everywhere else. The model test must fail on each: tests/model/mutations.md.
 */
#ifndef DAXMAP_DM_MUTATE_H
#define DAXMAP_DM_MUTATE_H

#ifdef DM_MUTATION
#define DM_MUTATE(n) (DM_MUTATION == (n))
#else
#define DM_MUTATE(n) 0
#endif

#endif
