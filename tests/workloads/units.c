// SPDX-License-Identifier: Apache-2.0
/* Four functions that do 40, 30, 20 and 10 units of the same work in every round, so that a
 * comparison of two runs has a known answer. FACTOR multiplies the work of one of them. Runs until
 * it is killed. usage: units [FUNCTION FACTOR] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Functions of the same code stay apart. */
#define NOINLINE __attribute__((noinline, noclone, no_icf))

static volatile uint64_t sink;

static inline __attribute__((always_inline)) void work(int units)
{
	uint64_t x = sink;

	for (int i = 0; i < units * 2000; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	sink = x;
}

NOINLINE static void parse_input(int units) { work(units); __asm__ volatile(""); }
NOINLINE static void encode_output(int units) { work(units); __asm__ volatile(""); }
NOINLINE static void hash_record(int units) { work(units); __asm__ volatile(""); }
NOINLINE static void write_log(int units) { work(units); __asm__ volatile(""); }

NOINLINE static void serve(const int *units)
{
	parse_input(units[0]);
	encode_output(units[1]);
	hash_record(units[2]);
	write_log(units[3]);
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	static const char *const names[4] = { "parse_input", "encode_output", "hash_record", "write_log" };
	int units[4] = { 40, 30, 20, 10 };

	for (int i = 0; argc > 2 && i < 4; i++)
		if (strcmp(argv[1], names[i]) == 0)
			units[i] = (int)(units[i] * atof(argv[2]));
	printf("ready\n");
	fflush(stdout);
	for (;;)
		serve(units);
}
