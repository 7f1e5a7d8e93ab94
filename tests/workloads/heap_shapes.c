// SPDX-License-Identifier: Apache-2.0
/* Heaps of every shape that glibc keeps, and how much of them is in use by the program's own books.
 *
 *   heap_shapes THREADS [busy | liar]
 *
 * The program and each of its threads keep small blocks among freed ones, tens of thousands of
 * freed ones in fast bins, full thread caches and blocks with mappings of their own; some threads
 * end. Prints "ready BYTES BLOCKS MAPPED_BYTES MAPPED_BLOCKS" (what blocks can hold), then how many
 * blocks are of chunks of 32, 48, … 1,040 bytes, and waits; busy: one thread goes on allocating;
 * liar: the size of one block is made up. */
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS	    60000
#define FAST	    50000
#define MAPPED	    6
#define SIZES	    64
#define ENDS_EVERY  3 /* of the threads one in three ends */

struct books {
	uint64_t bytes, blocks, mapped_bytes, mapped_blocks;
	uint64_t of[SIZES];
};

static struct books books;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t filled;
static unsigned threads;
static void *volatile sink;

static uint64_t draw(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

static void count(const void *block)
{
	size_t bytes = malloc_usable_size((void *)block);

	(void)pthread_mutex_lock(&lock);
	if (((const size_t *)block)[-1] & 2) {
		books.mapped_bytes += bytes;
		books.mapped_blocks++;
	} else {
		books.bytes += bytes;
		books.blocks++;
		if (bytes < 24 + SIZES * 16)
			books.of[(bytes - 24) / 16]++;
	}
	(void)pthread_mutex_unlock(&lock);
}

static void fill(uint64_t random)
{
	void **kept = malloc(BLOCKS * sizeof(*kept)), **fast = malloc(FAST * sizeof(*fast));

	for (int i = 0; i < BLOCKS; i++)
		kept[i] = malloc(16 + draw(&random) % 600);
	for (int i = 0; i < FAST; i++)
		fast[i] = malloc(24 + draw(&random) % 64);
	for (int i = 0; i < BLOCKS; i++) {
		if (draw(&random) % 3) {
			free(kept[i]);
			kept[i] = NULL;
		} else if (draw(&random) % 4 == 0) {
			kept[i] = realloc(kept[i], 16 + draw(&random) % 2000);
		}
	}
	for (int i = 0; i < FAST; i++)
		if (i % 5)
			free(fast[i]);
		else
			count(fast[i]);
	for (int i = 0; i < BLOCKS; i++)
		if (kept[i])
			count(kept[i]);
	for (int i = 0; i < MAPPED; i++)
		count(sink = malloc((128 << 10) + (size_t)(draw(&random) % (1 << 20))));
	count(sink = memalign(4096, 5000));
	free(sink = malloc(300));
	count(kept);
	count(fast);
}

static void *work(void *arg)
{
	uintptr_t number = (uintptr_t)arg;

	fill(88172645463325252ull + number * 7919);
	(void)pthread_barrier_wait(&filled);
	while (number % ENDS_EVERY)
		(void)pause();
	return NULL;
}

static void *churn(void *arg)
{
	uint64_t random = 4711;
	void *slots[256] = { 0 };

	for (;;) {
		unsigned slot = (unsigned)(draw(&random) % 256);

		free(slots[slot]);
		slots[slot] = malloc(16 + draw(&random) % 3000);
		(void)arg;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	threads = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	(void)pthread_barrier_init(&filled, NULL, threads + 1);
	for (uintptr_t i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, work, (void *)i))
			return 1;
	fill(362436069);
	(void)pthread_barrier_wait(&filled);
	if (argc > 2 && strcmp(argv[2], "liar") == 0)
		((volatile size_t *)(sink = malloc(1000)))[-1] = ((size_t)1 << 40) + 1;
	else if (argc > 2 && pthread_create(&thread, NULL, churn, NULL))
		return 1;
	(void)usleep(100000); /* threads that end have ended */
	printf("ready %llu %llu %llu %llu", (unsigned long long)books.bytes,
	       (unsigned long long)books.blocks, (unsigned long long)books.mapped_bytes,
	       (unsigned long long)books.mapped_blocks);
	for (int i = 0; i < SIZES; i++)
		printf(" %llu", (unsigned long long)books.of[i]);
	puts("");
	fflush(stdout);
	for (;;)
		(void)pause();
}
