// SPDX-License-Identifier: Apache-2.0
/* The readers of HotSpot's and V8's memory, on memory that the test builds in its own process: from
 * the first page of a mapping on, which nothing precedes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/reader/hotspot_check.h"
#include "agent/reader/hotspot_names.h"
#include "agent/reader/v8_names.h"
#include "tests/support/hotspot_image.h"
#include "tests/support/v8_heap.h"

#define BASE	   0x10000000000ull
#define PAGE_BYTES 4096u
#define BYTES	   (16 * PAGE_BYTES)

_Static_assert(V8_HEAP_BYTES <= BYTES && HOTSPOT_IMAGE_BYTES <= BYTES, "room");

/* Memory at BASE, with nothing in front of it. */
static int map_memory(void **state)
{
	void *at = mmap((void *)(uintptr_t)(BASE - PAGE_BYTES), PAGE_BYTES + BYTES, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at != (void *)(uintptr_t)(BASE - PAGE_BYTES))
		return -1;
	*state = (uint8_t *)at + PAGE_BYTES;
	return mprotect(*state, BYTES, PROT_READ | PROT_WRITE);
}

static int unmap_memory(void **state)
{
	return munmap((uint8_t *)*state - PAGE_BYTES, PAGE_BYTES + BYTES);
}

/* The functions of the only entry are @expected: function:file:line:first line:tier; of each, with
 * ~ where that is approximate. */
static void check_names(const struct script_names *names, const char *expected)
{
	const uint8_t *at = (const uint8_t *)names->payload.data;
	char text[512] = "";
	uint16_t count;

	assert_int_equal(names->count, 1);
	memcpy(&count, at, 2);
	at += 2;
	for (unsigned i = 0; i < count; i++) {
		const char *texts[2];
		uint32_t lines[2];
		uint16_t lens[2];

		memcpy(lines, at, sizeof(lines));
		at += sizeof(lines);
		for (unsigned t = 0; t < 2; t++) {
			memcpy(&lens[t], at, 2);
			texts[t] = (const char *)at + 2;
			at += 2 + lens[t];
		}
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
			       "%.*s:%.*s:%u:%u:%c%s;", lens[0], texts[0], lens[1], texts[1],
			       lines[0], lines[1] & FEED_LINE_MAX,
			       "-ibo"[lines[1] >> FEED_TIER_SHIFT],
			       lines[1] & FEED_APPROXIMATE ? "~" : "");
	}
	assert_string_equal(text, expected);
}

/* ---- V8 -------------------------------------------------------------------------------------- */

static void check_v8(bool is_new, struct control_script_place place, const char *expected)
{
	cleanup_script_names struct script_names names = { .count = 0 };
	cleanup_target struct target target = TARGET_NONE;
	struct script_v8 v8 = v8_heap_facts(BASE, is_new);

	assert_int_equal(target_open((uint32_t)getpid(), 0, &target), 0);
	assert_int_equal(v8_names_read(&target, &v8, &place, 1, &names, UINT64_MAX), 0);
	check_names(&names, expected);
}

/* Calls are recorded at 4 in outer() and at 12 in inner(). */
static void check_v8_innermost(uint8_t *heap, bool is_new, bool is_baseline)
{
	const struct {
		uint32_t at;
		const char *expected;
	} rows[] = {
		{ 2, "outer:a.js:2:1:o~;" },  { 4, "outer:a.js:2:1:o;" },
		{ 7, "outer:a.js:2:1:o~;" },  { 9, "outer:a.js:3:1:o~;" },
		{ 12, is_baseline ? "inner:a.js:0:0:o;outer:a.js:3:1:o;"
				  : "inner:a.js:5:0:o;outer:a.js:3:1:o;" },
		{ 13, "outer:a.js:3:1:o~;" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check_v8(is_new,
			 v8_heap_innermost(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + rows[i].at),
			 rows[i].expected);
	/* A table of all instructions begins at 0. */
	heap[V8_HEAP_CODE_TABLE + 16] = 2;
	check_v8(is_new, v8_heap_innermost(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 7),
		 "outer:a.js:2:1:o;");
}

/* Its table of places is not believed: the functions and lines of a call are those of its
 * translation. */
static void check_v8_maglev(uint8_t *heap, bool is_new)
{
	v8_heap_set_kind(heap, is_new, 12);
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 8),
		 "outer:a.js:1:1:o;");
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 16),
		 "inner:a.js:2:0:o;outer:a.js:1:1:o;");
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 12),
		 "outer:a.js:1:1:o~;"); /* a call that is not recorded */
	/* The code was given up during the second call: the return address is that of its exit. */
	for (uint32_t kind = 12; kind <= 13; kind++) {
		v8_heap_set_kind(heap, is_new, kind);
		check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 84),
			 "inner:a.js:2:0:o;outer:a.js:1:1:o;");
	}
	v8_heap_set_kind(heap, is_new, 12);
	/* A frame of another function cannot be that of the translation. */
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_INNER, V8_HEAP_CODE_AT + 8),
		 "inner:a.js:0:0:o;");
	for (uint32_t at = 4; at < 20; at += 5)
		check_v8(is_new, v8_heap_innermost(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + at),
			 "outer:a.js:1:1:o~;");
}

static void check_v8_baseline(uint8_t *heap, bool is_new)
{
	const struct {
		uint32_t at;
		const char *is_return, *innermost;
	} rows[] = {
		{ 6, "outer:a.js:1:1:b;", "outer:a.js:1:1:b;" },
		{ 14, "outer:a.js:1:1:b;", "outer:a.js:2:1:b;" },
		{ 15, "outer:a.js:2:1:b;", "outer:a.js:2:1:b;" },
		{ 38, "outer:a.js:2:1:b;", "outer:a.js:0:1:b;" }, /* behind the last one */
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t at = V8_HEAP_CODE_AT + rows[i].at;

		check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, at), rows[i].is_return);
		check_v8(is_new, v8_heap_innermost(heap, BASE, V8_HEAP_OUTER, at), rows[i].innermost);
	}
	/* The lengths of bytecodes are those of another version. */
	heap[V8_HEAP_SIZES + 4] = 0;
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 15),
		 "outer:a.js:0:1:b;");
}

static void check_v8_heap(uint8_t *heap, bool is_new, bool is_baseline)
{
	struct control_script_place place;

	v8_heap_build(heap, BASE, is_new, is_baseline);
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, 0), "outer:a.js:2:1:i;");
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_INNER, 0), "inner:a.js:2:0:i;");
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 8),
		 "outer:a.js:2:1:o;");
	check_v8(is_new, v8_heap_place(heap, BASE, V8_HEAP_OUTER, V8_HEAP_CODE_AT + 16),
		 is_baseline ? "inner:a.js:0:0:o;outer:a.js:3:1:o;" : "inner:a.js:5:0:o;outer:a.js:3:1:o;");
	check_v8_maglev(heap, is_new);
	v8_heap_set_kind(heap, is_new, 13);
	check_v8_innermost(heap, is_new, is_baseline);
	v8_heap_set_baseline(heap, BASE, is_new);
	check_v8_baseline(heap, is_new);
	/* Another function is there now. */
	place = v8_heap_place(heap, BASE, V8_HEAP_OUTER, 0);
	v8_heap_word(heap, V8_HEAP_OUTER + 16, BASE + V8_HEAP_STRINGS + 64 * 10 + 1);
	check_v8(is_new, place, "");
}

static void test_v8(void **state)
{
	for (unsigned i = 0; i < 4; i++)
		check_v8_heap(*state, i & 1, i & 2);
}

static void test_v8_others(void **state)
{
	const uint64_t pc = (uint64_t)SCRIPT_V8 << SCRIPT_RUNTIME_SHIFT | BASE;
	struct control_script_place place = { .b = SCRIPT_V8_RETURN };

	place.a = pc | (uint64_t)SCRIPT_V8_WASM << SCRIPT_HOTSPOT_FRAME_SHIFT;
	check_v8(true, place, "[wasm]::0:0:-;");
	place.a = pc | (uint64_t)SCRIPT_V8_REGEXP << SCRIPT_HOTSPOT_FRAME_SHIFT;
	check_v8(true, place, "[regexp]::0:0:-;");
}

/* ---- HotSpot --------------------------------------------------------------------------------- */

static void check_hotspot(struct target *target, const struct script_hotspot *h,
			  struct control_script_place place, const char *expected)
{
	cleanup_script_names struct script_names names = { .count = 0 };

	assert_int_equal(hotspot_names_read(target, h, &place, 1, &names, UINT64_MAX), 0);
	check_names(&names, expected);
}

static void check_hotspot_image(uint8_t *memory, bool is_new)
{
	static const char outer[] = "app.Main.outer:app/Main.java:12:10:o;";
	static const char both[] = "app.Main.inner:app/Main.java:12:10:o;"
				   "app.Main.outer:app/Main.java:12:10:o;";
	struct script_runtime runtime = { .kind = SCRIPT_HOTSPOT,
					  .hotspot = hotspot_image_build(memory, BASE, is_new) };
	static const char approximate[] = "app.Main.inner:app/Main.java:12:10:o~;"
					  "app.Main.outer:app/Main.java:12:10:o~;";
	cleanup_target struct target target = TARGET_NONE;
	const struct script_hotspot *h = &runtime.hotspot;
	struct control_script_place place;

	assert_int_equal(target_open((uint32_t)getpid(), 0, &target), 0);
	assert_int_equal(hotspot_check(&target, &runtime, UINT64_MAX), 0);
	assert_int_equal(h->version, is_new ? 25 : 17);
	assert_int_equal(h->entries_end - h->entries, 2 * 64); /* native methods, too */
	place = hotspot_image_compiled(BASE, is_new, SCRIPT_HOTSPOT_COMPILED, 8);
	check_hotspot(&target, h, place, outer);
	check_hotspot(&target, h, hotspot_image_compiled(BASE, is_new, SCRIPT_HOTSPOT_COMPILED, 16),
		      both);
	check_hotspot(&target, h, hotspot_image_compiled(BASE, is_new, SCRIPT_HOTSPOT_INNERMOST, 8),
		      approximate);
	check_hotspot(&target, h, hotspot_image_interpreted(memory, BASE, 3),
		      "app.Main.inner:app/Main.java:10:10:i;");
	check_hotspot(&target, h, hotspot_image_stub(BASE + HOTSPOT_IMAGE_CODE + 0x80),
		      "[java stub: StubRoutines (1)]::0:0:-;");
	memory[HOTSPOT_IMAGE_METHOD + (is_new ? 8 : 16) + HOTSPOT_IMAGE_LEVEL_AT] = 3;
	check_hotspot(&target, h, place, "app.Main.outer:app/Main.java:12:10:b;");
	/* The class is unloaded; the memory of its methods may be another's. */
	hotspot_image_free(memory, is_new, true);
	check_hotspot(&target, h, place, "");
	hotspot_image_free(memory, is_new, false);
	/* Another method was compiled there meanwhile. */
	place.b++;
	check_hotspot(&target, h, place, "");
	place = hotspot_image_interpreted(memory, BASE, 3);
	memory[HOTSPOT_IMAGE_INNER + 0x80 + 24]++;
	check_hotspot(&target, h, place, "");
}

static void test_hotspot(void **state)
{
	check_hotspot_image(*state, false);
	check_hotspot_image(*state, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_v8),
		cmocka_unit_test(test_v8_others),
		cmocka_unit_test(test_hotspot),
	};

	return cmocka_run_group_tests(tests, map_memory, unmap_memory);
}
