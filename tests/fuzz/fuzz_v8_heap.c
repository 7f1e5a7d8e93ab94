// SPDX-License-Identifier: Apache-2.0
/* Input: bits of the heap (tests/support/v8_heap.h) and the number of places, the offset of a pc in
 * code, then changes of the heap (fake_memory.h). Properties: one entry a place,
 * whole and in bounds, and no error. */
#include "agent/reader/v8_names.h"
#include "tests/fuzz/fake_memory.h"
#include "tests/support/v8_heap.h"

#define HEAD	   2u
#define PLACES_MAX 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t heap[V8_HEAP_BYTES];
	cleanup_script_names struct script_names names = { .count = 0 };
	struct control_script_place places[PLACES_MAX];
	struct target target = TARGET_NONE;
	struct script_v8 v8;
	size_t count;

	if (size < HEAD || size > HEAD + FAKE_CHANGES_MAX * FAKE_CHANGE)
		return 0;
	v8 = v8_heap_facts(FAKE_BASE, data[0] & 1);
	v8_heap_build(heap, FAKE_BASE, data[0] & 1, data[0] & 2);
	if (data[0] & 32)
		v8_heap_set_baseline(heap, FAKE_BASE, data[0] & 1);
	if (data[0] & 64)
		v8_heap_set_kind(heap, data[0] & 1, 12);
	count = 1 + (data[0] >> 2) % PLACES_MAX;
	for (size_t i = 0; i < count; i++) {
		uint32_t shared = i & 1 ? V8_HEAP_INNER : V8_HEAP_OUTER;

		places[i] = i & 4 ? v8_heap_innermost(heap, FAKE_BASE, shared, V8_HEAP_CODE_AT + data[1])
				  : v8_heap_place(heap, FAKE_BASE, shared,
						  i & 2 ? V8_HEAP_CODE_AT + data[1] : 0);
	}
	fake.bytes = heap;
	fake.count = sizeof(heap);
	fake.pointer_bits = 1;
	fake.changes = data + HEAD;
	fake.end = data + size;
	fake.reads = 0;
	if (v8_names_read(&target, &v8, places, count, &names, UINT64_MAX) != 0)
		abort();
	fake_check_names(&names, count);
	return 0;
}
