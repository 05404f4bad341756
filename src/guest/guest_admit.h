/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: what is worth a place in the window? Policy alone; knows neither files nor requests.
 * Theory of operation: guest_admit.c. Threads: any; no locks. All times in ns.
 */
#ifndef DAXMAP_GUEST_ADMIT_H
#define DAXMAP_GUEST_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

struct guest_admit;

/** guest_admit_new() - for a window of @slots */
struct guest_admit *guest_admit_new(uint32_t slots);
void guest_admit_free(struct guest_admit *a);

/** guest_admit_hit() - a slot's worth of a file (@hash) that is mapped was used. Cheap: looks at
 * one in a few. */
void guest_admit_hit(struct guest_admit *a, uint64_t hash);
/** guest_admit_miss() - one that is not mapped was used: is it worth being mapped now? */
bool guest_admit_miss(struct guest_admit *a, uint64_t hash);
/** guest_admit_stream() - is a slot worth being mapped that will be used @ops times, once each
 * place, and not again soon? */
bool guest_admit_stream(struct guest_admit *a, uint64_t ops);
/** guest_admit_full() - as much has been mapped as there is room for */
bool guest_admit_full(struct guest_admit *a);
/** guest_admit_mapped() - it has been mapped, in @ns, what it took to make room included */
void guest_admit_mapped(struct guest_admit *a, uint64_t hash, uint64_t ns);
/** guest_admit_read() - a read by request took @ns, while so many were under way, itself included:
 * what it costs is the part of that time that was its own. */
void guest_admit_read(struct guest_admit *a, uint64_t ns, unsigned int in_flight);
/** guest_admit_forget() - nothing is mapped any more */
void guest_admit_forget(struct guest_admit *a);

#endif
