// SPDX-License-Identifier: Apache-2.0
/* Input: bits of the memory (tests/support/hotspot_image.h), the offset of a pc in the compiled
 * method, then changes of the memory (fake_memory.h). Properties: a layout that is believed has
 * heaps with an end behind their begin; one entry a place, whole and in bounds; errors are those
 * that are documented. */
#include "agent/reader/hotspot_check.h"
#include "agent/reader/hotspot_names.h"
#include "tests/fuzz/fake_memory.h"
#include "tests/support/hotspot_image.h"

#define HEAD 2u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_documented(int rc)
{
	return rc == -EAGAIN || rc == -EOPNOTSUPP;
}

static void check_runtime(const struct script_hotspot *h)
{
	for (unsigned i = 0; i < SCRIPT_HOTSPOT_HEAPS; i++)
		if (h->heaps[i].end && h->heaps[i].end <= h->heaps[i].start)
			abort();
	if (h->interpreter_end < h->interpreter || h->version < 8)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t memory[HOTSPOT_IMAGE_BYTES];
	cleanup_script_names struct script_names names = { .count = 0 };
	struct script_runtime runtime = { .kind = SCRIPT_HOTSPOT };
	struct target target = TARGET_NONE;
	bool is_new;
	int rc;

	if (size < HEAD || size > HEAD + FAKE_CHANGES_MAX * FAKE_CHANGE)
		return 0;
	is_new = data[0] & 1;
	runtime.hotspot = hotspot_image_build(memory, FAKE_BASE, is_new);
	const struct control_script_place places[] = {
		hotspot_image_compiled(FAKE_BASE, is_new, SCRIPT_HOTSPOT_COMPILED, data[1]),
		hotspot_image_compiled(FAKE_BASE, is_new, SCRIPT_HOTSPOT_INNERMOST, data[1]),
		hotspot_image_interpreted(memory, FAKE_BASE, data[1]),
		hotspot_image_stub(FAKE_BASE + HOTSPOT_IMAGE_CODE + 0x100),
		hotspot_image_stub(FAKE_BASE + HOTSPOT_IMAGE_INTERPRETER + 0x60),
		hotspot_image_stub(FAKE_BASE + HOTSPOT_IMAGE_CODE + data[1]),
		hotspot_image_stub(FAKE_BASE + HOTSPOT_IMAGE_CODE_END - data[1]),
	};
	fake.bytes = memory;
	fake.count = sizeof(memory);
	fake.pointer_bits = 0;
	fake.end = data + size;
	/* Some change what the process says of itself, others what follows. */
	fake.changes = data[0] & 2 ? data + HEAD : fake.end;
	fake.reads = 0;
	rc = hotspot_check(&target, &runtime, UINT64_MAX);
	if (rc)
		return is_documented(rc) ? 0 : (abort(), 0);
	check_runtime(&runtime.hotspot);
	fake.changes = data[0] & 2 ? fake.changes : data + HEAD;
	fake.reads = 0;
	if (hotspot_names_read(&target, &runtime.hotspot, places, ARRAY_SIZE(places), &names,
			       UINT64_MAX) != 0)
		abort();
	fake_check_names(&names, ARRAY_SIZE(places));
	return 0;
}
