// SPDX-License-Identifier: Apache-2.0
#include "agent/base/vec.h"

int vec_grow(void **data, size_t *capacity, size_t need, size_t size, size_t max)
{
	size_t grown = *capacity ? *capacity : 8, bytes;
	void *more;

	if (need <= *capacity)
		return 0;
	if (max && need > max)
		return -E2BIG;
	while (grown < need)
		if (__builtin_mul_overflow(grown, 2u, &grown))
			return -ENOMEM;
	if (max && grown > max)
		grown = max;
	if (__builtin_mul_overflow(grown, size, &bytes))
		return -ENOMEM;
	more = realloc(*data, bytes);
	if (!more)
		return -ENOMEM;
	*data = more;
	*capacity = grown;
	return 0;
}
