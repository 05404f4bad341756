// SPDX-License-Identifier: Apache-2.0
#include "util_log.h"

#include "util_lock.h"

#define INTERVAL_NS (60ull * 1000000000u)

bool util_log_allowed(struct util_once *o, uint64_t *dropped)
{
	uint64_t now = util_now_ns();
	uint64_t next = __atomic_load_n(&o->next_ns, __ATOMIC_RELAXED);

	if (now < next || !__atomic_compare_exchange_n(&o->next_ns, &next, now + INTERVAL_NS, false,
						       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		__atomic_add_fetch(&o->dropped, 1, __ATOMIC_RELAXED);
		return false;
	}
	*dropped = __atomic_exchange_n(&o->dropped, 0, __ATOMIC_RELAXED);
	return true;
}
