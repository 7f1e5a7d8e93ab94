// SPDX-License-Identifier: Apache-2.0
/* Input is a block of an archive that somebody asks to restore. Property: what is accepted has a
 * name that ends, and is written back as a header that is read as the same entry. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tar_entry entry, again;
	char block[TAR_BLOCK] = { 0 };

	memcpy(block, data, size < sizeof(block) ? size : sizeof(block));
	if (tar_decode(block, &entry) != 1)
		return 0;
	if (!memchr(entry.name, '\0', sizeof(entry.name)) || entry.bytes > TAR_BYTES_MAX)
		abort();
	entry.modified_s &= TAR_BYTES_MAX;
	if (tar_encode(&entry, block) < 0 || tar_decode(block, &again) != 1 ||
	    strcmp(entry.name, again.name) != 0 || entry.bytes != again.bytes ||
	    entry.modified_s != again.modified_s)
		abort();
	return 0;
}
