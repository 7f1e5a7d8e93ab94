// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/chunk_decode.h"

#include "agent/recording/settled.h"
#include "agent/store/store.h"

int chunk_decode(int kind, const void *data, size_t len, const struct chunk_sink *sink)
{
	struct bytes in = bytes_of(data, len);

	switch (kind) {
	case STORE_CHUNK_MODULES:
		return chunk_decode_modules(&in, sink);
	case STORE_CHUNK_PROCESSES:
		return chunk_decode_processes(&in, sink);
	case STORE_CHUNK_STACKS:
		return chunk_decode_stacks(&in, sink);
	case STORE_CHUNK_SAMPLES:
		return chunk_decode_samples(&in, sink);
	case STORE_CHUNK_QUALITY:
		return chunk_decode_quality(&in, sink);
	case STORE_CHUNK_NAMES:
		return name_chunk_decode(&in, sink);
	case STORE_CHUNK_SETTLED:
		return settled_decode(&in, sink);
	}
	return 0;
}
