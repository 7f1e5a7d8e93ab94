// SPDX-License-Identifier: Apache-2.0
/* A C program that says it is a Go program: build information, a note, and a function table that
 * promises more than there is. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

struct build_info {
	char magic[14];
	uint8_t pointer_size, flags;
	uint8_t reserved[16];
	char version[64];
};

/* src/debug/buildinfo: the version is inline where flags has bit 2. */
__attribute__((section(".go.buildinfo"), aligned(16), used)) static struct build_info info = {
	.magic = { '\xff', ' ', 'G', 'o', ' ', 'b', 'u', 'i', 'l', 'd', 'i', 'n', 'f', ':' },
	.pointer_size = 8,
	.flags = 2,
	.version = "\x08go1.26.8\x00",
};

struct table {
	uint32_t magic;
	uint8_t zero[2], quantum, pointer_size;
	uint64_t functions, files, text, names, units, file_names, values, records;
};

__attribute__((section(".gopclntab"), aligned(32), used)) static const struct table table = {
	.magic = 0xfffffff1,
	.quantum = 1,
	.pointer_size = 8,
	.functions = 4999999,
	.files = 1ull << 60,
	.names = 0x48,
	.units = 1ull << 40,
	.file_names = 1ull << 41,
	.values = 1ull << 42,
	.records = 1ull << 43,
};

/* A moduledata whose words point back into the table, as the reader looks for them. */
static uint64_t moduledata[80] = { 0 };

int main(void)
{
	uint64_t at = (uint64_t)(uintptr_t)&table;

	moduledata[0] = at;
	moduledata[1] = at + table.names;
	moduledata[13] = at + table.records;
	moduledata[16] = at + table.records;
	moduledata[17] = moduledata[18] = table.functions + 1;
	moduledata[20] = moduledata[22] = (uint64_t)(uintptr_t)main;
	moduledata[21] = moduledata[23] = moduledata[20] + (1ull << 59);
	for (int i = 24; i < 80; i += 2) {
		moduledata[i] = 8;
		moduledata[i + 1] = 1ull << 62;
	}
	(void)puts("ready");
	(void)fflush(stdout);
	return info.flags == 2 ? pause() : 1;
}
