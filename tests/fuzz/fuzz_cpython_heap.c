// SPDX-License-Identifier: Apache-2.0
/* Input: version (3.8 to 3.14), flags, number of places, four bytes for each (code object in units
 * of 8 bytes, position in code units), then a part of a Python process's memory, which begins with
 * _PyRuntime. The memory is mapped here, and the reader reads this process as it reads any other.
 * Properties: names are whole and printable, or empty; a refused runtime stays as it was, an
 * accepted one has a place for the threads' states; the walk in BPF ends in words of frames. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "agent/reader/cpython_check.h"
#include "agent/reader/cpython_names.h"
#include "agent/runtimes/cpython_layout.h"

#define MEMORY_VA    0x10000000ull
#define MEMORY_BYTES 65536u
#define HEAD	     3u
#define PLACES_MAX   16u
#define CHECK_NS     (5 * NS_PER_MS)
#define NAMES_NS     NS_PER_S
#define TURNS_MAX    512

#define FLAG_FREE_THREADED 1u
#define FLAG_CODE_TYPE	   2u
#define FLAG_GOT	   4u

static int read_memory(void *to, size_t bytes, uint64_t va)
{
	if (va < MEMORY_VA || va - MEMORY_VA > MEMORY_BYTES - bytes)
		return -1;
	memcpy(to, (const void *)(uintptr_t)va, bytes);
	return 0;
}

#define UNWIND_READ(dst, bytes, va) read_memory(dst, bytes, va)
#define UNWIND_ELEMENT(table, index)                                                               \
	((const uint32_t *)(const void *)((const char *)(table) +                                  \
					  UNWIND_ELEMENT_BYTES * (size_t)(index)))
#include "bpf/profiler.h"
#include "bpf/python.bpf.h"

static struct target target = TARGET_NONE;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void begin(void)
{
	if (target.proc_fd >= 0)
		return;
	if (target_open((uint32_t)getpid(), 0, &target) < 0 ||
	    mmap((void *)(uintptr_t)MEMORY_VA, MEMORY_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
		abort();
}

static bool load_layout(unsigned minor, unsigned flags, struct script_python *ret)
{
	if (minor <= 12 ? cpython_layout_of_version(minor, ret) < 0
			: cpython_layout_of_runtime((const void *)(uintptr_t)MEMORY_VA,
						    CPYTHON_DEBUG_OFFSETS_BYTES, ret) < 0)
		return false;
	if (flags & FLAG_FREE_THREADED)
		ret->flags |= SCRIPT_PYTHON_FREE_THREADED;
	ret->runtime = MEMORY_VA;
	ret->code_type = flags & FLAG_CODE_TYPE ? MEMORY_VA + 16 : 0;
	ret->tls_got = flags & FLAG_GOT ? MEMORY_VA + 24 : 0;
	return true;
}

static void check_text(const char *text)
{
	size_t len = strnlen(text, SCRIPT_NAME_MAX + 1);

	if (len > SCRIPT_NAME_MAX || !parse_is_utf8(text, len))
		abort();
	for (size_t i = 0; i < len; i++)
		if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
			abort();
}

/* The cookie is what the walk would have read. */
static struct control_script_place place_of(const struct script_python *python, const uint8_t *data)
{
	uint64_t code = MEMORY_VA + 8ull * (data[0] | (uint32_t)data[1] << 8);
	uint64_t position = data[2] | (uint32_t)data[3] << 8, words[SCRIPT_COOKIE_WORDS];

	if (position == 0xffff)
		position = SCRIPT_POSITION_NONE;
	if (read_memory(words, sizeof(words), code + python->cookie_at))
		memset(words, 0, sizeof(words));
	return (struct control_script_place){ code, position << SCRIPT_POSITION_SHIFT |
							    script_cookie(words, python->cookie_words) };
}

static void check_names(const struct script_python *python, const uint8_t *data, size_t count)
{
	static struct cpython_name names[PLACES_MAX];
	struct control_script_place places[PLACES_MAX];

	for (size_t i = 0; i < count; i++)
		places[i] = place_of(python, data + 4 * i);
	memset(names, 0xff, sizeof(names));
	if (cpython_names_read(&target, python, places, count, names,
			       clock_monotonic_ns() + NAMES_NS) < 0)
		return;
	for (size_t i = 0; i < count; i++) {
		check_text(names[i].function);
		check_text(names[i].file);
		if (!names[i].is_known && (names[i].function[0] || names[i].file[0] || names[i].line))
			abort();
	}
}

static void check_check(const struct script_python *python)
{
	struct script_runtime runtime = { .kind = SCRIPT_CPYTHON, .python = *python }, before;

	memcpy(&before, &runtime, sizeof(before));
	if (cpython_check(&target, &runtime, clock_monotonic_ns() + CHECK_NS) == 0) {
		if (!runtime.python.tls_at && !runtime.python.tss_at)
			abort();
	} else if (memcmp(&before, &runtime, sizeof(before))) {
		abort();
	}
}

/* Three C frames of the loop, as the walk meets them; their stack is in the memory, too. */
static void check_walk(const struct script_python *python, uint64_t thread_pointer,
		       enum script_place place)
{
	struct script_walk walk = { .python = *python };
	unsigned frames = 0;

	walk.python.tls_at = -8;
	walk.python.tss_at = 0x318;
	if (!script_python_begin(&walk, thread_pointer))
		return;
	for (uint64_t low = MEMORY_VA; low < MEMORY_VA + MEMORY_BYTES; low += MEMORY_BYTES / 4) {
		script_python_enter(&walk, low, low + MEMORY_BYTES / 4, place, walk.frame);
		while (walk.on && frames < TURNS_MAX) {
			uint64_t words[2] = { 0 };
			enum script_step step = script_python_step(&walk, words);

			if (step == SCRIPT_STEP_UNREAD || step == SCRIPT_STEP_DESYNC)
				return;
			frames++;
			if (step == SCRIPT_STEP_FRAME &&
			    (words[0] >> SCRIPT_WORD_KIND_SHIFT != PROF_FRAME_SCRIPT ||
			     words[1] >> SCRIPT_WORD_KIND_SHIFT != PROF_FRAME_SCRIPT_AT ||
			     script_word_runtime(words[0]) != SCRIPT_CPYTHON ||
			     script_word_pointer(words[0]) >= ARCH_USER_END))
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script_python python;
	size_t count;

	begin();
	if (size < HEAD)
		return 0;
	count = data[2] % (PLACES_MAX + 1);
	if (size < HEAD + 4 * count || size - HEAD - 4 * count > MEMORY_BYTES)
		return 0;
	memset((void *)(uintptr_t)MEMORY_VA, 0, MEMORY_BYTES);
	memcpy((void *)(uintptr_t)MEMORY_VA, data + HEAD + 4 * count, size - HEAD - 4 * count);
	if (!load_layout(8 + data[0] % 7, data[1], &python))
		return 0;
	check_names(&python, data + HEAD, count);
	check_check(&python);
	check_walk(&python, MEMORY_VA + 16ull * data[1], SCRIPT_PLACE_CALL);
	check_walk(&python, MEMORY_VA + 16ull * data[1], SCRIPT_PLACE_PC);
	check_walk(&python, MEMORY_VA + 16ull * data[1], SCRIPT_PLACE_BEGIN);
	return 0;
}
