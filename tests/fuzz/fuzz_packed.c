// SPDX-License-Identifier: Apache-2.0
/* Stored blobs: what was packed comes back, what was changed by one byte does not come back as
 * something else, and any other bytes are refused or are what they say. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/cleanup.h"
#include "agent/store/packed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t half(void *ctx, const void *data, size_t len)
{
	return *(const size_t *)ctx / 2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free void *packed = NULL, *again = NULL, *other = NULL, *any = NULL, *part = NULL;
	const uint32_t at[] = { (uint32_t)size / 3, (uint32_t)size / 2 };
	const struct store_ends ends = { at, 2 };
	size_t packed_len = 0, len = 0;

	if (size < 4)
		return 0;
	if (packed_open(NULL, data, size, &any, &len) == 0 && !any)
		abort();
	if (packed_make(data, size, size & 1 ? &ends : NULL, &packed, &packed_len) < 0)
		abort();
	if (packed_open(NULL, packed, packed_len, &again, &len) < 0 || len != size ||
	    memcmp(again, data, size) != 0)
		abort();
	if (packed_open_part(NULL, packed, packed_len, half, &size, &part, &len) < 0 ||
	    len < size / 2 || len > size || memcmp(part, data, len) != 0)
		abort();
	((uint8_t *)packed)[(data[0] | data[1] << 8) % packed_len] ^= (uint8_t)(data[2] | 1);
	if (packed_open(NULL, packed, packed_len, &other, &len) == 0 &&
	    (len != size || memcmp(other, data, size) != 0))
		abort();
	return 0;
}
