// SPDX-License-Identifier: Apache-2.0
/* Parsers of the reader, and the server's parser of its answers. The first byte chooses: text of
 * /proc/PID/maps, a function table in memory, a chunk of an answer, or a thread's system-call text.
 * Properties: mappings are ascending and disjoint and are found; names end; values are settled
 * within bounds. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/reader/call_site.h"
#include "agent/reader/go_functions.h"
#include "agent/reader/go_pctab.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/thread_ids.h"
#include "agent/reader/thread_wait.h"
#include "agent/wire/read_stream.h"

#define TABLE_VA  0x400000u
#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *data;
	size_t size;
};

static void fuzz_maps(const struct input *in)
{
	struct target_maps maps;

	if (target_maps_parse((const char *)in->data, in->size, &maps) < 0)
		return;
	for (size_t i = 0; i < maps.count; i++) {
		assert(maps.maps[i].start_va < maps.maps[i].end_va);
		assert(!i || maps.maps[i - 1].end_va <= maps.maps[i].start_va);
		assert(target_maps_find(&maps, maps.maps[i].start_va) == &maps.maps[i]);
		assert(target_maps_find(&maps, maps.maps[i].end_va - 1) == &maps.maps[i]);
		assert(maps.maps[i].module < maps.module_count);
		assert(strlen(target_maps_path(&maps, maps.maps[i].module)) <= in->size);
	}
	target_maps_deinit(&maps);
}

static int input_read(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct input *in = ctx;

	if (va < TABLE_VA || va - TABLE_VA > in->size || in->size - (va - TABLE_VA) < len)
		return -1;
	memcpy(buf, in->data + (va - TABLE_VA), len);
	return 0;
}

static void fuzz_table(struct input *in)
{
	const struct go_mem mem = { input_read, in };
	struct go_table table;

	if (go_table_open(&mem, TABLE_VA, &table) < 0)
		return;
	table.text_va = table.min_va = 0x1000;
	table.gofunc_va = TABLE_VA;
	table.max_va = 0x2000;
	for (uint32_t i = 0; i < 3; i++) {
		struct go_func func;

		if (go_table_at(&table, i, &func) == 0)
			assert(i < table.func_count && func.pcdata_count <= 64);
	}
	for (uint64_t pc = 0x0ff8; pc < 0x2008; pc += 41) {
		char name[GO_NAME_MAX + 1];
		struct go_func func;
		uint64_t at = pc, parent;
		uint32_t inlined;
		int32_t value;

		if (go_table_find(&table, pc, &func) < 0)
			continue;
		assert(pc >= 0x1000 && pc < 0x2000);
		if (go_table_name(&table, func.name, name, sizeof(name)) == 0)
			assert(strlen(name) < sizeof(name));
		(void)!go_table_value(&table, &func, func.pcsp, pc, &value);
		for (unsigned depth = 0; depth < GO_INLINE_MAX; depth++) {
			if (go_table_inlined(&table, &func, at, &inlined, &parent) != 1)
				break;
			at = parent;
		}
	}
}

static void fuzz_chunk(const struct input *in)
{
	cleanup_free void *aligned = malloc(in->size + 1);
	struct read_record record;
	uint64_t sum = 0;
	size_t at = 0;

	memcpy(aligned, in->data, in->size);
	while (read_stream_next(aligned, in->size, &at, &record) == 1) {
		assert(at <= in->size);
		for (unsigned i = 0; record.kind == READ_STACK && i < record.stack->frame_count;
		     i++)
			sum += record.frames[i] + record.frame_flags[i];
		for (unsigned i = 0; record.kind == READ_LABELS && i < record.labels->count; i++)
			sum += record.pairs[2 * i + 1];
		for (unsigned i = 0; record.kind == READ_STRING && i < record.string->len; i++)
			sum += (uint8_t)record.text[i];
	}
	__asm__ volatile("" ::"r"(sum));
}

static void fuzz_texts(const struct input *in)
{
	cleanup_free char *text = malloc(in->size + 1);
	const struct go_range range = { 0, UINT64_MAX };
	struct thread_syscall call;
	uint64_t found[8];

	memcpy(text, in->data, in->size);
	text[in->size] = '\0';
	if (thread_syscall_parse(text, &call) == 0)
		assert(thread_wait_word(&call, thread_file_kind(text), text) != NULL);
	(void)thread_ids_inner(text);
	for (uint16_t machine = 0; machine < 256; machine += 1)
		if (machine == 62 || machine == 183) /* EM_X86_64, EM_AARCH64 */
			assert(go_code_operands(machine, in->data, in->size, 0x1000, &range, found,
						8) <= 8);
	for (size_t i = 0; i + CALL_SITE_BYTES <= in->size && i < 256; i++)
		(void)call_site_before(in->data + i, 0x1000, &found[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data + 1, size - 1 };

	if (!size || size > INPUT_MAX)
		return 0;
	switch (data[0] & 3) {
	case 0:
		fuzz_maps(&in);
		break;
	case 1:
		fuzz_table(&in);
		break;
	case 2:
		fuzz_chunk(&in);
		break;
	default:
		fuzz_texts(&in);
	}
	return 0;
}
