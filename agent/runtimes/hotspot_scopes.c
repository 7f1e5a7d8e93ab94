// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/hotspot_scopes.h"

#include <errno.h>
#include <string.h>

#define BCI_MAX 65536u

int hotspot_scopes_begin(const void *table, size_t len, uint32_t pc, uint32_t *ret)
{
	const uint8_t *at = table;

	for (size_t i = 0; i + HOTSPOT_PC_DESC_BYTES <= len; i += HOTSPOT_PC_DESC_BYTES) {
		int32_t words[2]; /* pc, begin of the scopes */

		memcpy(words, at + i, sizeof(words));
		if (words[0] < 0 || (uint32_t)words[0] < pc)
			continue;
		/* 0 is no scope: the entry, handlers, and the guard behind the last. */
		if (words[1] <= 0)
			return -ENODATA;
		*ret = (uint32_t)words[1];
		return 0;
	}
	return -ENODATA;
}

int hotspot_scopes_read(const void *data, size_t len, enum hotspot_packing packing, uint32_t begin,
			struct hotspot_scope ret[HOTSPOT_SCOPES_MAX])
{
	unsigned count = 0;

	while (begin && count < HOTSPOT_SCOPES_MAX) {
		struct bytes in = bytes_of(data, len);
		uint32_t sender, bci;

		(void)bytes_take(&in, begin);
		sender = hotspot_unsigned(&in, packing);
		ret[count].method = hotspot_unsigned(&in, packing);
		bci = hotspot_unsigned(&in, packing); /* one more than the bytecode's index */
		/* A caller is described before what is inlined in it. */
		if (in.failed || !ret[count].method || sender >= begin)
			return -EINVAL;
		ret[count++].bci = bci && bci <= BCI_MAX ? bci - 1 : HOTSPOT_BCI_NONE;
		begin = sender;
	}
	return (int)count;
}
