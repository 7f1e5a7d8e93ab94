// SPDX-License-Identifier: Apache-2.0
/* Any bytes as the code of an allocator's functions: the site lies within them and its registers
 * exist. And any words as a chunk of a heap. */
#include <stdlib.h>
#include <string.h>

#include "agent/collect/alloc/alloc_headers.h"
#include "agent/collect/alloc/alloc_probes.h"
#include "symbolize/alloc_sites.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct alloc_chunk chunk = { 0 };

	for (int kind = 0; kind <= ALLOC_KIND_MAX; kind++) {
		struct control_alloc_site site = { 0 };

		if (alloc_site_find(data, len, (enum alloc_kind)kind, &site) < 0)
			continue;
		if (site.fo >= len || site.fo >= ALLOC_SITE_SCAN_BYTES)
			abort();
		for (unsigned i = 0; i < 3; i++)
			if (site.argument[i] > 15)
				abort();
		(void)alloc_probes_can_probe(&site);
	}
	memcpy(&chunk, data, len < sizeof(chunk) ? len : sizeof(chunk));
	if (!alloc_chunk_is_free(&chunk))
		(void)alloc_chunk_next(&chunk);
	return 0;
}
