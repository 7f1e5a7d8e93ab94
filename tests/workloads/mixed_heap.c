// SPDX-License-Identifier: Apache-2.0
/* A program that counts its own allocations by the function that makes them, and of which a seed
 * draws all that it does: sizes, rates, how many threads work, what each keeps.
 *
 *   mixed_heap SEED
 *
 * Sites: churn (freed at once), parts (three of four freed at once, the fourth kept), queue (freed
 * in the order of birth), shuffle (one of its slots is replaced), vector (grows by realloc, then
 * freed), leak_small, leak_big (kept), and naps: of a thread that sleeps nearly all the time
 * (nap_churn, nap_keep). A line on stdin asks for the counters: a JSON object {function: [bytes
 * allocated, bytes kept for ever, bytes in use]}. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SITE	    __attribute__((noinline, noipa))
#define QUEUE_MOST  20000u
#define WORKERS_MAX 3u
#define TICK_NS	    1000000.0

enum { CHURN, PARTS, QUEUE, SHUFFLE, VECTOR, LEAK_SMALL, LEAK_BIG, NAP_CHURN, NAP_KEEP, SITES };
static const char *const names[SITES] = { "churn",	"parts",    "queue",	 "shuffle", "vector",
					  "leak_small", "leak_big", "nap_churn", "nap_keep" };

static struct {
	atomic_ullong bytes, kept, freed;
} counts[SITES];

struct plan {
	size_t least, most;	/* bytes of an allocation */
	double hz;		/* of a worker; of naps: of a nap */
	unsigned slots;		/* of queue and shuffle */
};

struct worker {
	uint64_t random;
	void *queue[QUEUE_MOST], *slots[QUEUE_MOST];
	size_t queue_bytes[QUEUE_MOST], slot_bytes[QUEUE_MOST];
	unsigned at;
};

static struct plan plans[SITES];
static unsigned workers, vector_steps;
static int doubles;
static double nap_ns;
void *volatile sink;

static uint64_t draw(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

static double uniform(uint64_t *random)
{
	return (double)(draw(random) >> 11) * 0x1p-53;
}

/* Between @low and @high, each order of magnitude as likely. */
static double scale(uint64_t *random, double low, double high)
{
	return low * pow(high / low, uniform(random));
}

static size_t bytes_of(int site, uint64_t *random)
{
	return plans[site].least + draw(random) % (plans[site].most - plans[site].least + 1);
}

static void *made(int site, void *p, size_t bytes)
{
	atomic_fetch_add_explicit(&counts[site].bytes, bytes, memory_order_relaxed);
	sink = p;
	return p;
}

static void keep(int site, size_t bytes)
{
	atomic_fetch_add_explicit(&counts[site].kept, bytes, memory_order_relaxed);
}

static void drop(int site, void *p, size_t bytes)
{
	free(p);
	if (p)
		atomic_fetch_add_explicit(&counts[site].freed, bytes, memory_order_relaxed);
}

SITE void churn(struct worker *w)
{
	size_t bytes = bytes_of(CHURN, &w->random);

	drop(CHURN, made(CHURN, malloc(bytes), bytes), bytes);
}

SITE void parts(struct worker *w)
{
	size_t bytes = bytes_of(PARTS, &w->random);
	void *p = made(PARTS, malloc(bytes), bytes);

	if (draw(&w->random) % 4)
		drop(PARTS, p, bytes);
	else
		keep(PARTS, bytes);
}

SITE void queue(struct worker *w)
{
	unsigned at = w->at++ % plans[QUEUE].slots;

	drop(QUEUE, w->queue[at], w->queue_bytes[at]);
	w->queue_bytes[at] = bytes_of(QUEUE, &w->random);
	w->queue[at] = made(QUEUE, malloc(w->queue_bytes[at]), w->queue_bytes[at]);
}

SITE void shuffle(struct worker *w)
{
	unsigned at = (unsigned)(draw(&w->random) % plans[SHUFFLE].slots);

	drop(SHUFFLE, w->slots[at], w->slot_bytes[at]);
	w->slot_bytes[at] = bytes_of(SHUFFLE, &w->random);
	w->slots[at] = made(SHUFFLE, calloc(1, w->slot_bytes[at]), w->slot_bytes[at]);
}

SITE void vector(struct worker *w)
{
	size_t bytes = bytes_of(VECTOR, &w->random), first = bytes;
	void *p = made(VECTOR, malloc(bytes), bytes);

	for (unsigned i = 1; i < vector_steps; i++) {
		size_t more = doubles ? 2 * bytes : bytes + first;

		p = made(VECTOR, realloc(p, more), more);
		atomic_fetch_add_explicit(&counts[VECTOR].freed, bytes, memory_order_relaxed);
		bytes = more;
	}
	drop(VECTOR, p, bytes);
}

SITE void leak_small(struct worker *w)
{
	size_t bytes = bytes_of(LEAK_SMALL, &w->random);

	(void)made(LEAK_SMALL, malloc(bytes), bytes);
	keep(LEAK_SMALL, bytes);
}

SITE void leak_big(struct worker *w)
{
	size_t bytes = bytes_of(LEAK_BIG, &w->random);

	(void)made(LEAK_BIG, malloc(bytes), bytes);
	keep(LEAK_BIG, bytes);
}

SITE void nap_churn(uint64_t *random)
{
	size_t bytes = bytes_of(NAP_CHURN, random);

	drop(NAP_CHURN, made(NAP_CHURN, malloc(bytes), bytes), bytes);
}

SITE void nap_keep(uint64_t *random)
{
	size_t bytes = bytes_of(NAP_KEEP, random);

	(void)made(NAP_KEEP, malloc(bytes), bytes);
	keep(NAP_KEEP, bytes);
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void sleep_ns(double ns)
{
	struct timespec t = { (time_t)(ns / 1e9), (long)(ns - 1e9 * (double)(time_t)(ns / 1e9)) };

	nanosleep(&t, NULL);
}

/* Each site as often as its rate says by the wall's clock. */
static void *work(void *arg)
{
	static void (*const sites[])(struct worker *) = { churn,  parts,      queue,   shuffle,
							  vector, leak_small, leak_big };
	struct worker *w = arg;
	double begin_ns = now_ns(), done[LEAK_BIG + 1] = { 0 };

	for (;;) {
		double s = (now_ns() - begin_ns) / 1e9;

		for (int i = 0; i <= LEAK_BIG; i++)
			for (; done[i] < s * plans[i].hz; done[i]++)
				sites[i](w);
		sleep_ns(TICK_NS);
	}
	return NULL;
}

static void *nap(void *arg)
{
	uint64_t random = *(uint64_t *)arg;

	for (;;) {
		for (double i = 0; i < plans[NAP_CHURN].hz; i++)
			nap_churn(&random);
		for (double i = 0; i < plans[NAP_KEEP].hz; i++)
			nap_keep(&random);
		sleep_ns(nap_ns);
	}
	return NULL;
}

static void plan(int site, uint64_t *random, double least, double most, double hz_low,
		 double hz_high)
{
	plans[site].least = (size_t)scale(random, least, most);
	plans[site].most = plans[site].least + (size_t)(uniform(random) * (double)plans[site].least);
	plans[site].hz = scale(random, hz_low, hz_high);
	/* A slot is filled again within seconds: what lived before a session began is soon gone. */
	plans[site].slots =
		(unsigned)scale(random, 100, fmin(QUEUE_MOST, fmax(5 * plans[site].hz, 200)));
}

static void draw_plans(uint64_t *random)
{
	for (int i = 0; i < 20; i++)
		(void)draw(random);
	plan(CHURN, random, 16, 2000, 10e3, 200e3);
	plan(PARTS, random, 16, 1000, 500, 10e3);
	plan(QUEUE, random, 16, 2000, 1e3, 50e3);
	plan(SHUFFLE, random, 16, 2000, 1e3, 50e3);
	plan(VECTOR, random, 16, 200, 100, 5e3);
	plan(LEAK_SMALL, random, 16, 300, 200, 10e3);
	plan(LEAK_BIG, random, 1000, 20000, 5, 100);
	plan(NAP_CHURN, random, 16, 2000, 10, 1000);
	plan(NAP_KEEP, random, 16, 2000, 1, 50);
	workers = 1 + (unsigned)(draw(random) % WORKERS_MAX);
	vector_steps = 2 + (unsigned)(draw(random) % 6);
	doubles = (int)(draw(random) % 2);
	nap_ns = scale(random, 20e6, 500e6);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	uint64_t random = 88172645463325252ull + seed * 7919, seeds[WORKERS_MAX + 1];
	pthread_t thread;
	char line[16];

	draw_plans(&random);
	for (unsigned i = 0; i <= workers; i++) {
		struct worker *w = i < workers ? calloc(1, sizeof(*w)) : NULL;

		seeds[i] = draw(&random);
		if (w)
			w->random = seeds[i];
		if (pthread_create(&thread, NULL, w ? work : nap, w ? (void *)w : &seeds[i]))
			return 1;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < SITES; i++) {
			unsigned long long freed = counts[i].freed, bytes = counts[i].bytes, kept = counts[i].kept;

			printf("%s\"%s\": [%llu, %llu, %llu]", i ? ", " : "{", names[i], bytes, kept, bytes - freed);
		}
		puts("}");
		fflush(stdout);
	}
	return 0;
}
