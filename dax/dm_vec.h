/* SPDX-License-Identifier: Apache-2.0 */
/* A growing list of ranges that needs no allocation in the usual case. */
#ifndef DAXMAP_DM_VEC_H
#define DAXMAP_DM_VEC_H

#include <glib.h>
#include <stddef.h>

struct dm_range;

#define DM_VEC_INLINE 8

/** struct dm_vec - borrowed pointers unless the filler says otherwise */
struct dm_vec {
	struct dm_range **v;
	size_t n;
	size_t max;
	struct dm_range *few[DM_VEC_INLINE];
};

static inline void dm_vec_init(struct dm_vec *vec)
{
	vec->v = vec->few;
	vec->n = 0;
	vec->max = DM_VEC_INLINE;
}

static inline void dm_vec_clear(struct dm_vec *vec)
{
	if (vec->v != vec->few)
		g_free(vec->v);
	dm_vec_init(vec);
}

static inline void dm_vec_add(struct dm_vec *vec, struct dm_range *r)
{
	if (vec->n == vec->max) {
		struct dm_range **more = g_new(struct dm_range *, vec->max * 2);

		for (size_t i = 0; i < vec->n; i++)
			more[i] = vec->v[i];
		if (vec->v != vec->few)
			g_free(vec->v);
		vec->v = more;
		vec->max *= 2;
	}
	vec->v[vec->n++] = r;
}

#endif
