// SPDX-License-Identifier: Apache-2.0
/* A program that counts its own allocations, by the function that makes them.
 *
 *   heap PAIRS_PER_SECOND [THREADS [LEAKS_PER_SECOND]]     0 pairs: as many as it can
 *
 * Most allocations are freed at once (churn). Others are kept for a while (cache), grown by realloc
 * and freed (grow), aligned or zeroed and freed at the next turn, or never freed (leak: 1 % of the
 * pairs, at most 10,000 objects of 100 bytes a second). Four times a second a block with a mapping
 * of its own is kept (large, the first 2,048). A line on stdin asks for the counters: a JSON object
 * {function: [bytes allocated, objects allocated, bytes in use, objects in use]}. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SITE	    __attribute__((noinline, noipa))
#define CACHE_SLOTS 4096
#define TICK_NS	    1000000
#define LEAK_BYTES  100
#define LEAKS_MAX   10000 /* a second */
#define LARGE_BYTES 200000
#define LARGE_MAX   2048
#define LARGE_NS    250000000

enum { CHURN, LEAK, CACHE, GROW, ALIGNED, ZEROED, LARGE, SITES };
static const char *const names[SITES] = { "churn", "leak", "cache", "grow", "aligned", "zeroed",
					 "large" };

struct count {
	atomic_ullong bytes, objects, freed_bytes, freed_objects;
};
static struct count counts[SITES];

struct worker {
	uint64_t random;
	uint64_t pairs;
	void *slots[CACHE_SLOTS];
	size_t sizes[CACHE_SLOTS];
	void *aligned, *zeroed;
	size_t zeroed_bytes;
	double leaks_due;
	int first; /* of the workers: it keeps the large blocks */
	unsigned large;
};

static double pairs_per_s, leaks_per_s; /* 0 leaks: 1 % of the pairs */
static unsigned threads = 1;
void *volatile sink;

static uint64_t draw(struct worker *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

static void made(int site, size_t bytes)
{
	atomic_fetch_add_explicit(&counts[site].bytes, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&counts[site].objects, 1, memory_order_relaxed);
}

static void freed(int site, size_t bytes)
{
	atomic_fetch_add_explicit(&counts[site].freed_bytes, bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&counts[site].freed_objects, 1, memory_order_relaxed);
}

SITE void churn(struct worker *w)
{
	size_t bytes = 64 + draw(w) % 64;
	void *p = malloc(bytes);

	sink = p;
	made(CHURN, bytes);
	free(p);
	freed(CHURN, bytes);
}

SITE void leak(void)
{
	sink = malloc(LEAK_BYTES);
	made(LEAK, LEAK_BYTES);
}

SITE void large(void)
{
	sink = malloc(LARGE_BYTES);
	made(LARGE, LARGE_BYTES);
}

SITE void cache(struct worker *w)
{
	size_t slot = draw(w) % CACHE_SLOTS, bytes = 400 + draw(w) % 200;

	if (w->slots[slot]) {
		free(w->slots[slot]);
		freed(CACHE, w->sizes[slot]);
	}
	w->slots[slot] = malloc(bytes);
	w->sizes[slot] = bytes;
	made(CACHE, bytes);
}

SITE void grow(struct worker *w)
{
	char *p = NULL;
	size_t bytes = 0;

	for (int i = 0; i < 4; i++) {
		size_t more = bytes + 256;
		char *q = realloc(p, more);

		if (bytes)
			freed(GROW, bytes);
		made(GROW, more);
		p = q;
		bytes = more;
		sink = p;
	}
	free(p);
	freed(GROW, bytes);
}

SITE void aligned(struct worker *w)
{
	if (w->aligned) {
		free(w->aligned);
		freed(ALIGNED, 512);
	}
	if (posix_memalign(&w->aligned, 64, 512))
		abort();
	made(ALIGNED, 512);
}

SITE void zeroed(struct worker *w)
{
	if (w->zeroed) {
		free(w->zeroed);
		freed(ZEROED, w->zeroed_bytes);
	}
	w->zeroed_bytes = 10 * (16 + draw(w) % 16);
	w->zeroed = calloc(10, w->zeroed_bytes / 10);
	made(ZEROED, w->zeroed_bytes);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void pair(struct worker *w)
{
	unsigned which = draw(w) % 100;

	w->pairs++;
	if (which < 85)
		churn(w);
	else if (which < 94)
		cache(w);
	else if (which < 96)
		grow(w);
	else if (which < 98)
		aligned(w);
	else
		zeroed(w);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t begin_ns = now_ns(), last_ns = begin_ns;
	double share = pairs_per_s ? pairs_per_s / threads : 0, done = 0;
	double leaks = share && share / 100 < LEAKS_MAX / threads ? share / 100 : LEAKS_MAX / threads;

	if (leaks_per_s)
		leaks = leaks_per_s / threads;
	for (;;) {
		uint64_t t = now_ns();
		double due = share ? share * (double)(t - begin_ns) / 1e9 : done + 1000;

		/* As fast as it can: one in a thousand, whatever slows it down. */
		w->leaks_due += share || leaks_per_s ? leaks * (double)(t - last_ns) / 1e9 : 1;
		last_ns = t;
		for (; done < due; done++)
			pair(w);
		for (; w->first && w->large < LARGE_MAX &&
		       (double)(t - begin_ns) > (double)w->large * LARGE_NS;
		     w->large++)
			large();
		for (; w->leaks_due >= 1; w->leaks_due--)
			leak();
		if (share) {
			struct timespec tick = { 0, TICK_NS };

			nanosleep(&tick, NULL);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	char line[16];

	pairs_per_s = argc > 1 ? atof(argv[1]) : 10000;
	threads = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
	leaks_per_s = argc > 3 ? atof(argv[3]) : 0;
	for (unsigned i = 0; i < threads; i++) {
		struct worker *w = calloc(1, sizeof(*w));
		pthread_t thread;

		w->random = 88172645463325252ull + i * 7919;
		w->first = i == 0;
		if (pthread_create(&thread, NULL, work, w))
			return 1;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < SITES; i++) {
			unsigned long long fb = counts[i].freed_bytes, fo = counts[i].freed_objects,
					   b = counts[i].bytes, o = counts[i].objects;

			printf("%s\"%s\": [%llu, %llu, %llu, %llu]", i ? ", " : "{", names[i], b, o, b - fb,
			       o - fo);
		}
		puts("}");
		fflush(stdout);
	}
	return 0;
}
