// SPDX-License-Identifier: Apache-2.0
// A program that compiles its own code: two functions in one mapping without a file, one with twice
// the turns of the other, named in /tmp/perf-PID.map as runtimes do. With MAP = "late" the map is
// written one second after the code has begun to run, with "jitdump" it is a jitdump in the working
// directory, with "none" there is nothing; with "dotnet" code and map are as .NET has them.
//
// usage: jit SECONDS MAP
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef void (*spin_fn)(uint64_t turns);

// push rbp; mov rbp, rsp; 1: dec rdi; jnz 1b; pop rbp; ret
static const uint8_t spin_code[] = { 0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf,
				     0x75, 0xfb, 0x5d, 0xc3 };

#define SECOND_AT 2048

// With @twice the memory is mapped twice, to be written and to be executed, as .NET does it.
static uint8_t *make_code(bool twice)
{
	int fd = twice ? memfd_create("doublemapper", MFD_CLOEXEC) : -1;
	int flags = twice ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *code, *writable;

	if (twice && (fd < 0 || ftruncate(fd, 4096) < 0))
		exit(1);
	code = writable = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (writable == MAP_FAILED)
		exit(1);
	memcpy(writable, spin_code, sizeof(spin_code));
	memcpy(writable + SECOND_AT, spin_code, sizeof(spin_code));
	if (twice)
		code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, flags, fd, 0);
	else if (mprotect(code, 4096, PROT_READ | PROT_EXEC) < 0)
		exit(1);
	if (code == MAP_FAILED)
		exit(1);
	return code;
}

static void write_map(const uint8_t *code, const char *heavy, const char *light)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	file = fopen(path, "w");
	if (!file)
		exit(1);
	fprintf(file, "%p %x %s\n", (void *)(uintptr_t)code, (unsigned)sizeof(spin_code), heavy);
	fprintf(file, "%p %x %s\n", (void *)(uintptr_t)(code + SECOND_AT),
		(unsigned)sizeof(spin_code), light);
	fclose(file);
}

struct load {
	uint32_t id, total_size;
	uint64_t timestamp;
	uint32_t pid, tid;
	uint64_t vma, code_va, code_bytes, code_index;
};

static void write_load(FILE *file, const uint8_t *code, const char *name)
{
	struct load load = { .total_size = (uint32_t)(sizeof(load) + strlen(name) + 1 + sizeof(spin_code)),
			     .pid = (uint32_t)getpid(),
			     .vma = (uint64_t)code,
			     .code_va = (uint64_t)code,
			     .code_bytes = sizeof(spin_code) };

	fwrite(&load, sizeof(load), 1, file);
	fwrite(name, strlen(name) + 1, 1, file);
	fwrite(spin_code, sizeof(spin_code), 1, file);
}

static void write_jitdump(const uint8_t *code)
{
	struct {
		uint32_t magic, version, total_size, machine, padding, pid;
		uint64_t timestamp, flags;
	} header = { 0x4a695444, 1, sizeof(header), 62, 0, (uint32_t)getpid(), 0, 0 };
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "jit-%d.dump", getpid());
	file = fopen(path, "w+");
	if (!file)
		exit(1);
	fwrite(&header, sizeof(header), 1, file);
	write_load(file, code, "jitted heavy");
	write_load(file, code + SECOND_AT, "jitted light");
	fflush(file);
	// how a profiler gets to know of it: kept mapped until the end
	if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0) == MAP_FAILED)
		exit(1);
}

// Rounds of random length: equal ones fall into step with the sampling.
static __attribute__((noinline)) void run_jitted(const uint8_t *code)
{
	for (int i = 0; i < 1000; i++) {
		uint64_t turns = 1000 + (uint64_t)rand() % 18000;

		((spin_fn)(uintptr_t)code)(2 * turns);
		((spin_fn)(uintptr_t)(code + SECOND_AT))(turns);
	}
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 5;
	const char *map = argc > 2 ? argv[2] : "now";
	bool dotnet = strcmp(map, "dotnet") == 0, late = strcmp(map, "late") == 0;
	const uint8_t *code = make_code(dotnet);
	time_t start = time(NULL);

	if (strcmp(map, "now") == 0)
		write_map(code, "jitted heavy", "jitted light");
	else if (dotnet)
		write_map(code, "void [app] Shop.Cart`1[System.__Canon]::Heavy(!0, int32)[OptimizedTier1]",
			  "int32 [app] Shop.Cart::Light(int32[])[QuickJitted]");
	else if (strcmp(map, "jitdump") == 0)
		write_jitdump(code);
	printf("ready\n");
	fflush(stdout);
	while (difftime(time(NULL), start) < seconds) {
		run_jitted(code);
		if (late && difftime(time(NULL), start) >= 2) {
			write_map(code, "jitted heavy", "jitted light");
			late = false;
		}
	}
	return 0;
}
