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

	for (int i = 0; i <= 2 * ALLOC_KIND_MAX + 1; i++) {
		const uint16_t machine = i % 2 ? EM_AARCH64 : EM_X86_64;
		struct control_alloc_site site = { 0 };

		if (alloc_site_find(machine, data, len, (enum alloc_kind)(i / 2), &site) < 0)
			continue;
		if (site.fo >= len || site.fo >= ALLOC_SITE_SCAN_BYTES)
			abort();
		for (unsigned k = 0; k < 3; k++)
			if (site.argument[k] > 15)
				abort();
		(void)alloc_probes_can_probe(&site);
	}
	memcpy(&chunk, data, len < sizeof(chunk) ? len : sizeof(chunk));
	if (!alloc_chunk_is_free(&chunk))
		(void)alloc_chunk_next(&chunk);
	return 0;
}
