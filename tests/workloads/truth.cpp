// SPDX-License-Identifier: Apache-2.0
// A program whose CPU shares are known: five leaves, each reached by a chain of its own, take turns by the
// thread's CPU clock. What each really got, measured by the program itself, is printed as one JSON line at
// the end. Built with and without frame pointers.
//
//   leaf_a 44 %  10 frames deep, work inlined from an inline function
//   leaf_b 25 %  50 frames, every second one through a shared library (truth_lib.cpp) and its PLT
//   leaf_c 15 %  recursion, 120 frames
//   leaf_s 10 %  inside a signal handler raised 18 frames deep
//   leaf_t  6 %  called by qsort() of libc, reached by a tail call
//
// usage: truth SECONDS [THREADS]
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

typedef void (*leaf_fn)();
extern "C" void lib_bounce(int depth, void (*down)(int));

static double seconds_to_run;
static uint64_t round_scale = 1;

static uint64_t thread_cpu_ns()
{
	timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return uint64_t(ts.tv_sec) * 1000000000u + uint64_t(ts.tv_nsec);
}

struct tally {
	uint64_t ns[5];
	uint64_t slice_end;
	volatile uint64_t sink;
};
static thread_local tally mine;

static inline __attribute__((always_inline)) void spin(int which)
{
	uint64_t start = thread_cpu_ns(), now = start, x = mine.sink;
	while (now < mine.slice_end) {
		for (int i = 0; i < 20000; i++)
			x = x * 6364136223846793005u + 1442695040888963407u;
		now = thread_cpu_ns();
	}
	mine.sink = x;
	mine.ns[which] += now - start;
}

extern "C" {
NOINLINE void leaf_a() { spin(0); asm volatile(""); }
NOINLINE void leaf_b() { spin(1); asm volatile(""); }
NOINLINE void leaf_c() { spin(2); asm volatile(""); }
NOINLINE void leaf_s() { spin(3); asm volatile(""); }
NOINLINE void leaf_t() { spin(4); asm volatile(""); }

NOINLINE int chain_a(int depth)
{
	volatile char local[48];
	local[0] = char(depth);
	if (depth == 0)
		leaf_a();
	else
		chain_a(depth - 1);
	return local[0];
}

NOINLINE void chain_b(int depth)
{
	volatile int local = depth;
	if (depth == 0)
		leaf_b();
	else
		lib_bounce(depth - 1, chain_b);
	(void)local;
}

NOINLINE int chain_c(int depth)
{
	volatile int local = depth;
	if (depth == 0)
		leaf_c();
	else
		chain_c(depth - 1);
	return local;
}

static void on_signal(int)
{
	leaf_s();
	asm volatile("");
}

NOINLINE int chain_s(int depth)
{
	volatile int local = depth;
	if (depth == 0)
		pthread_kill(pthread_self(), SIGUSR1);
	else
		chain_s(depth - 1);
	return local;
}

static thread_local bool sorted;
NOINLINE int compare_once(const void *, const void *)
{
	if (!sorted) {
		sorted = true;
		leaf_t();
	}
	asm volatile("");
	return 0;
}
NOINLINE int compare_tail(const void *a, const void *b)
{
	return compare_once(a, b); // a jump at -O2: compare_tail is not on the stack
}

NOINLINE void chain_t()
{
	int numbers[2] = { 2, 1 };
	sorted = false;
	qsort(numbers, 2, sizeof(int), compare_tail);
	asm volatile("" : : "r"(numbers) : "memory");
}
}

static void *run(void *total)
{
	static const int share_pct[5] = { 44, 25, 15, 10, 6 };
	uint64_t end = thread_cpu_ns() + uint64_t(seconds_to_run * 1e9);
	auto *sum = static_cast<tally *>(total);
	uint64_t random = 1;

	// Rounds of 10 to 30 ms, so that a profile over any part of the run sees the same shares. Of unequal
	// length, because equal ones fall into step with a sampling period that nearly divides them. A third
	// argument makes them so many times longer: on an emulated CPU a slice ends a part of a millisecond late.
	while (thread_cpu_ns() < end) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint64_t round_ns = round_scale * (10000000u + (random >> 32) % 20000000u);

		for (int which = 0; which < 5; which++) {
			mine.slice_end = thread_cpu_ns() + uint64_t(share_pct[which]) * round_ns / 100;
			switch (which) {
			case 0:
				chain_a(8);
				break;
			case 1:
				chain_b(24);
				break;
			case 2:
				chain_c(117);
				break;
			case 3:
				chain_s(16);
				break;
			default:
				chain_t();
			}
		}
	}
	for (int i = 0; i < 5; i++)
		__atomic_fetch_add(&sum->ns[i], mine.ns[i], __ATOMIC_RELAXED);
	return nullptr;
}

int main(int argc, char **argv)
{
	static tally sum;
	pthread_t threads[64];
	int count = argc > 2 ? atoi(argv[2]) : 1;

	seconds_to_run = argc > 1 ? atof(argv[1]) : 5;
	round_scale = argc > 3 ? strtoull(argv[3], nullptr, 10) : 1;
	signal(SIGUSR1, on_signal);
	printf("ready\n");
	fflush(stdout);
	if (count == 1) {
		run(&sum);
	} else {
		for (int i = 0; i < count && i < 64; i++)
			pthread_create(&threads[i], nullptr, run, &sum);
		for (int i = 0; i < count && i < 64; i++)
			pthread_join(threads[i], nullptr);
	}
	printf("{\"leaf_a\": %llu, \"leaf_b\": %llu, \"leaf_c\": %llu, \"leaf_s\": %llu, \"leaf_t\": %llu}\n",
	       (unsigned long long)sum.ns[0], (unsigned long long)sum.ns[1],
	       (unsigned long long)sum.ns[2], (unsigned long long)sum.ns[3],
	       (unsigned long long)sum.ns[4]);
	return 0;
}
