// SPDX-License-Identifier: Apache-2.0
/* A program whose large blocks grow and shrink, and that counts what is in use by the function that
 * asked for it last.
 *
 *   grow [CHURN_PER_SECOND]
 *
 * It begins at the first line on its input, with one thread for each of these:
 *   list    one block that realloc makes 256 KiB larger at a time, up to 57 MB
 *   doubled one that realloc doubles, up to 32 MiB, so that its mapping is a number of huge pages
 *   vector  one that is replaced by one twice as large, up to 24 MB, as std::vector does
 *   shrunk  one of 40 MB that realloc then cuts in half twice, as capacity is given back
 *   parts   eight that realloc makes 64 KiB larger in turn, up to 4 MiB each
 *   buffers sixteen of 1 MiB, of which one is replaced every 5 ms, for ever: what a cache does
 *   churn   small blocks that are freed at once, so many a second
 * Each line on its input asks for the counters: a JSON object
 * {function: [bytes in use, finished]}. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SITE  __attribute__((noinline, noipa))
#define MB    1000000ul
#define STEP  (256ul << 10)
#define HEADER 16 /* of glibc, whose block of 2^n bytes is so much less */
#define PARTS 8
#define BUFFERS	     16
#define BUFFER_BYTES (1ul << 20)

enum { LIST, DOUBLED, VECTOR, SHRUNK, PART, BUFFER, CHURN, SITES };
static const char *const names[SITES] = { "list",  "doubled", "vector", "shrunk",
					 "parts", "buffers", "churn" };
static atomic_ulong in_use[SITES];
static atomic_int finished[SITES];
static unsigned long churn_hz;
void *volatile sink;

static void rest(long us)
{
	nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
}

/* All of a block is written, as a program does that has a use for it. */
static void *resized(int site, void *block, size_t before, size_t bytes)
{
	if (!block)
		abort();
	if (bytes > before)
		memset((char *)block + before, 1, bytes - before);
	atomic_fetch_add(&in_use[site], bytes - before);
	return block;
}

SITE void list(void)
{
	void *block = NULL;

	for (size_t bytes = 0; bytes < 57 * MB; bytes += STEP) {
		block = resized(LIST, realloc(block, bytes + STEP), bytes, bytes + STEP);
		rest(10000);
	}
	sink = block;
}

SITE void doubled(void)
{
	void *block = NULL;

	for (size_t bytes = 0, next = 4096; next <= 32ul << 20; next *= 2) {
		block = resized(DOUBLED, realloc(block, next - HEADER), bytes, next - HEADER);
		bytes = next - HEADER;
		rest(100000);
	}
	sink = block;
}

SITE void vector(void)
{
	void *block = NULL;

	for (size_t bytes = 0, next = 24 * MB >> 12; next <= 24 * MB; bytes = next, next *= 2) {
		void *larger = resized(VECTOR, malloc(next), bytes, next);

		if (block)
			memcpy(larger, block, bytes);
		free(block);
		block = larger;
		rest(100000);
	}
	sink = block;
}

SITE void shrunk(void)
{
	void *block = resized(SHRUNK, malloc(40 * MB), 0, 40 * MB);

	for (size_t bytes = 40 * MB; bytes > 10 * MB; bytes /= 2) {
		rest(500000);
		block = resized(SHRUNK, realloc(block, bytes / 2), bytes, bytes / 2);
	}
	sink = block;
}

SITE void parts(void)
{
	static void *blocks[PARTS];

	for (size_t bytes = 0, more = 64ul << 10; bytes < 4ul << 20; bytes += more) {
		for (int i = 0; i < PARTS; i++)
			blocks[i] = resized(PART, realloc(blocks[i], bytes + more), bytes, bytes + more);
		rest(30000);
	}
}

SITE void buffers(void)
{
	static void *blocks[BUFFERS];

	for (unsigned i = 0;; i++) {
		void **at = &blocks[i % BUFFERS];

		if (*at)
			atomic_fetch_sub(&in_use[BUFFER], BUFFER_BYTES);
		free(*at);
		*at = resized(BUFFER, malloc(BUFFER_BYTES), 0, BUFFER_BYTES);
		finished[BUFFER] = i >= BUFFERS;
		rest(5000);
	}
}

SITE void churn(void)
{
	for (;;) {
		for (unsigned long i = 0; i < churn_hz / 1000; i++) {
			sink = malloc(64 + i % 64);
			free(sink);
		}
		rest(1000);
	}
}

static void *work(void *arg)
{
	static void (*const functions[SITES])(void) = { list,  doubled, vector, shrunk,
						parts, buffers, churn };
	const int site = *(const int *)arg;

	functions[site]();
	finished[site] = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	static int sites[SITES];
	char line[16];
	pthread_t thread;

	churn_hz = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
	puts("ready");
	fflush(stdout);
	for (int begun = 0; fgets(line, sizeof(line), stdin); begun = 1) {
		for (int i = 0; i < SITES && !begun; i++) {
			sites[i] = i;
			if ((i != CHURN || churn_hz) && pthread_create(&thread, NULL, work, &sites[i]))
				return 1;
		}
		for (int i = 0; i < SITES; i++)
			printf("%s\"%s\": [%lu, %d]", i ? ", " : "{", names[i], in_use[i],
			       finished[i] || (i == CHURN));
		puts("}");
		fflush(stdout);
	}
	return 0;
}
