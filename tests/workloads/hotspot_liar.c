// SPDX-License-Identifier: Apache-2.0
/* A program that is a HotSpot from outside (tests/support/hotspot_image.h): it describes itself,
 * has a code heap with a call stub and a compiled method that loops, and executes that. "honest":
 * all of it is true for ever. Other arguments: forged from the beginning ("tables", "codelets",
 * "heap"), or after a line of input ("segments", "symbols", "parts"). */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/hotspot_image.h"

#define EXPORT __attribute__((visibility("default")))
#define SPARE  (1u << 20) /* behind the image: tables without an end */
#define CODE   (HOTSPOT_IMAGE_METHOD + 16 + HOTSPOT_IMAGE_CODE_AT)

EXPORT uint64_t gHotSpotVMStructs, gHotSpotVMTypes;
EXPORT int JNI_GetCreatedJavaVMs; /* that of a virtual machine is a function */
EXPORT const char native_name[] = "native nmethod";

/* push %rbp; mov %rsp, %rbp; call *%rsi; pop %rbp; ret: the call returns to CALL_RETURN. */
static const uint8_t call_stub[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3 };
#define CALL_RETURN 6u
/* push %rbp; sub $16, %rsp; 3 * nop; dec %rdi; jnz to that; add $16, %rsp; pop %rbp; ret */
static const uint8_t method[] = { 0x55, 0x48, 0x83, 0xec, 0x10, 0x90, 0x90, 0x90, 0x48, 0xff, 0xcf,
				  0x75, 0xfb, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3 };
#define FRAME_COMPLETE 5u

static uint8_t *memory;
static struct hotspot_image image;

static void build(void)
{
	uint64_t base = (uint64_t)(uintptr_t)memory;
	uint32_t blob = HOTSPOT_IMAGE_METHOD + 16;

	(void)hotspot_image_build(memory, base, false);
	gHotSpotVMStructs = base + HOTSPOT_IMAGE_FIELD_TABLE;
	gHotSpotVMTypes = base + HOTSPOT_IMAGE_TYPE_TABLE;
	image = (struct hotspot_image){ .bytes = memory, .base = base };
	hotspot_put(&image, blob + 8, (uint64_t)(uintptr_t)(native_name + strlen("native ")), 8);
	hotspot_put(&image, blob + 28, FRAME_COMPLETE, 4);
	memcpy(memory + CODE, method, sizeof(method));
	memcpy(memory + HOTSPOT_IMAGE_CODE + 0x100 - CALL_RETURN, call_stub, sizeof(call_stub));
}

__attribute__((noinline)) void run_java(uint64_t count)
{
	void (*call)(uint64_t, void *) =
		(void (*)(uint64_t, void *))(void *)(memory + HOTSPOT_IMAGE_CODE + 0x100 - CALL_RETURN);

	call(count, memory + CODE);
	__asm__ volatile("" ::: "memory"); /* this frame stays */
}

static void lie(const char *how)
{
	uint32_t blob = HOTSPOT_IMAGE_METHOD + 16;

	if (!strcmp(how, "tables")) { /* no entry is the last one, and each names the next text */
		for (uint32_t at = HOTSPOT_IMAGE_BYTES; at + 48 <= SPARE; at += 48)
			memcpy(memory + at, memory + HOTSPOT_IMAGE_FIELD_TABLE + at % 480, 48);
		gHotSpotVMStructs = gHotSpotVMTypes = image.base + HOTSPOT_IMAGE_BYTES;
	} else if (!strcmp(how, "codelets")) { /* each is followed by itself */
		memset(memory + HOTSPOT_IMAGE_INTERPRETER + 0x50, 0, 0x300);
	} else if (!strcmp(how, "heap")) { /* blocks of 2^31 segments in a heap of 2^46 bytes */
		hotspot_put(&image, HOTSPOT_IMAGE_HEAP + 16, 1ull << 46, 8);
		hotspot_put(&image, HOTSPOT_IMAGE_CODE, 1ull << 31, 8);
		hotspot_put(&image, HOTSPOT_IMAGE_HEAP + 0x58, image.base + SPARE, 8);
	} else if (!strcmp(how, "segments")) { /* each leads back, none to a block */
		memset(memory + HOTSPOT_IMAGE_SEGMAP - 64, 1, 128);
	} else if (!strcmp(how, "symbols")) { /* 65,535 bytes, of which most are not there */
		uint64_t last = image.base + SPARE - 16;

		hotspot_put(&image, SPARE - 12, 0xffff, 2);
		for (uint32_t i = 0; i < 8; i++)
			hotspot_put(&image, HOTSPOT_IMAGE_POOL + 32 + 8 * i, last, 8);
		hotspot_put(&image, HOTSPOT_IMAGE_CLASS + 24, last, 8);
	} else if (!strcmp(how, "parts")) { /* tables of 2^31 bytes, scopes that lead to themselves */
		hotspot_put(&image, blob + 92, INT32_MAX, 4);
		memset(memory + blob + 0x1c0, 1, 64);
		hotspot_put(&image, blob + 64, image.base + SPARE, 8);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "honest";
	int from_begin = !strcmp(how, "tables") || !strcmp(how, "codelets") || !strcmp(how, "heap");
	char line[8];

	memory = mmap(NULL, SPARE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	build();
	if (from_begin)
		lie(how);
	if (puts("ready") < 0 || fflush(stdout))
		return 1;
	for (;;) {
		struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

		run_java(10000000);
		if (poll(&input, 1, 0) != 1 || !fgets(line, sizeof(line), stdin))
			continue;
		lie(how);
		if (puts("lying") < 0 || fflush(stdout))
			return 1;
	}
}
