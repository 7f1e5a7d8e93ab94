// SPDX-License-Identifier: Apache-2.0
/* Sites of allocators and what survives: pure parts of memory and alloc. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/collect/alloc/alloc_headers.h"
#include "agent/collect/alloc/alloc_heap.h"
#include "agent/collect/alloc/alloc_look.h"
#include "agent/collect/alloc/alloc_probes.h"
#include "symbolize/alloc_sites.h"
#include "tests/support/libc_sites.h"

#define RDI 7
#define RSI 6
#define RAX 0

/* ---- sites ----------------------------------------------------------------------------------- */

struct site_case {
	const char *what;
	enum alloc_kind kind;
	uint8_t code[24];
	uint8_t len;
	uint8_t fo, first, second, pushed, flags;
};

static void test_site_find(void **state)
{
	static const struct site_case cases[] = {
		{ "push at once", ALLOC_MALLOC, { 0x41, 0x54, 0x55, 0x53 }, 4, 0, RDI, 0, 0, 0 },
		{ "endbr64 is stepped, push after it",
		  ALLOC_MALLOC,
		  { 0xf3, 0x0f, 0x1e, 0xfa, 0x53 },
		  5,
		  4,
		  RDI,
		  0,
		  0,
		  0 },
		{ "test; je",
		  ALLOC_FREE,
		  { 0x48, 0x85, 0xff, 0x74, 0x10, 0x53 },
		  6,
		  3,
		  RDI,
		  0,
		  0,
		  0 },
		{ "the argument moves before it is lost: mov rax,rdi; xor edi,edi; push",
		  ALLOC_MALLOC,
		  { 0x48, 0x89, 0xf8, 0x31, 0xff, 0x53 },
		  6,
		  5,
		  RAX,
		  0,
		  0,
		  0 },
		{ "the argument is lost: xor edi,edi; push",
		  ALLOC_MALLOC,
		  { 0x31, 0xff, 0x53, 0xc3 },
		  4,
		  0,
		  RDI,
		  0,
		  0,
		  ALLOC_SITE_STEPPED },
		{ "half of it is lost: mov edi,edi",
		  ALLOC_MALLOC,
		  { 0x89, 0xff, 0x53, 0xc3 },
		  4,
		  0,
		  RDI,
		  0,
		  0,
		  ALLOC_SITE_STEPPED },
		{ "mul destroys rax and rdx",
		  ALLOC_CALLOC,
		  { 0x48, 0x89, 0xf8, 0x48, 0xf7, 0xe6, 0x70, 0x10 },
		  8,
		  6,
		  RDI,
		  RSI,
		  0,
		  0 },
		{ "jmp to the real one", ALLOC_MALLOC, { 0xe9, 1, 2, 3, 4 }, 5, 0, RDI, 0, 0, 0 },
		{ "sub rsp hides the return address",
		  ALLOC_MALLOC,
		  { 0x48, 0x83, 0xec, 0x18, 0x53 },
		  5,
		  0,
		  RDI,
		  0,
		  0,
		  ALLOC_SITE_STEPPED },
		{ "unknown (vex)",
		  ALLOC_MALLOC,
		  { 0xc5, 0xf8, 0x77, 0x53 },
		  4,
		  0,
		  RDI,
		  0,
		  0,
		  ALLOC_SITE_STEPPED },
		{ "a branch with a 66 prefix is stepped",
		  ALLOC_MALLOC,
		  { 0x66, 0xe9, 1, 2, 3, 4, 0x53 },
		  7,
		  0,
		  RDI,
		  0,
		  0,
		  ALLOC_SITE_STEPPED },
		{ "cut off", ALLOC_MALLOC, { 0x48, 0x8d }, 2, 0, RDI, 0, 0, ALLOC_SITE_STEPPED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct site_case *c = &cases[i];
		struct control_alloc_site site = { 0 };

		assert_int_equal(alloc_site_find(EM_X86_64, c->code, c->len, c->kind, &site), 0);
		if (site.fo != c->fo || site.flags != c->flags || site.argument[0] != c->first ||
		    site.pushed != c->pushed || (c->second && site.argument[1] != c->second))
			fail_msg("%s: at %d, flags %d, register %d", c->what, (int)site.fo, site.flags,
				 site.argument[0]);
	}
	assert_true(alloc_site_find(EM_X86_64, cases[0].code, 0, ALLOC_MALLOC,
				    &(struct control_alloc_site){ 0 }) < 0);
}

/* AArch64: the first instruction, whatever it is. */
static void test_site_find_arm64(void **state)
{
	static const struct {
		uint32_t insn;
		uint8_t flags;
	} cases[] = {
		{ 0xa9bc7bfd, ALLOC_SITE_STEPPED }, /* stp x29, x30, [sp, #-64]! */
		{ 0xd503233f, ALLOC_SITE_STEPPED }, /* paciasp */
		{ 0xd503245f, ALLOC_SITE_STEPPED }, /* bti c */
		{ 0x5800008b, ALLOC_SITE_STEPPED }, /* ldr x11, literal */
		{ 0xb4000880, 0 },		    /* cbz x0, … */
		{ 0xb7f81973, 0 },		    /* tbnz x19, #63, … */
		{ 0x900008b7, 0 },		    /* adrp x23, … */
		{ 0x17fffcef, 0 },		    /* b … */
		{ 0x54000122, 0 },		    /* b.cs … */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct control_alloc_site site = { .fo = 1 };

		assert_int_equal(alloc_site_find(EM_AARCH64, (const uint8_t *)&cases[i].insn, 4,
						 ALLOC_POSIX_MEMALIGN, &site),
				 0);
		assert_int_equal(site.fo, 0);
		assert_int_equal(site.pushed, 0);
		assert_int_equal(site.flags, cases[i].flags);
		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(site.argument[k], k);
	}
	assert_int_equal(alloc_site_find(EM_AARCH64, (const uint8_t *)&cases[0].insn, 3, ALLOC_FREE,
					 &(struct control_alloc_site){ 0 }),
			 -ENODATA);
}

/* Every byte sequence is survived and the site lies within. */
static void test_site_find_any_bytes(void **state)
{
	uint64_t random = 88172645463325252ull;

	for (int i = 0; i < 20000; i++) {
		uint8_t code[ALLOC_SITE_SCAN_BYTES];
		size_t len = 1 + (size_t)i % sizeof(code);
		struct control_alloc_site site;

		for (size_t k = 0; k < sizeof(code); k++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			code[k] = (uint8_t)random;
		}
		assert_int_equal(alloc_site_find(EM_X86_64, code, len, (enum alloc_kind)(1 + i % 6), &site), 0);
		assert_true(site.fo < len);
	}
}

/* The C library that this test runs with. */
static void test_sites_of_libc(void **state)
{
	struct control_alloc_site sites[ALLOC_SITES_MAX];
	enum alloc_family family;
	char path[512];
	unsigned count = libc_sites(path, sites, &family), seen = 0;

	assert_int_equal(family, ALLOC_FAMILY_GLIBC);
	for (unsigned i = 0; i < count; i++) {
		seen |= 1u << sites[i].kind;
		assert_true(alloc_probes_can_probe(&sites[i]));
		assert_int_equal(sites[i].code_len, ALLOC_SITE_CODE_BYTES);
	}
	for (int kind = ALLOC_MALLOC; kind < ALLOC_KIND_MAX; kind++)
		assert_true(seen >> kind & 1);
}

/* ---- what survives --------------------------------------------------------------------------- */

struct sums {
	double bytes[4], objects[4];
	uint32_t deaths[4], old[4];
};

static int add_live(void *ctx, const struct alloc_live *live)
{
	struct sums *sums = ctx;

	assert_true(live->stack < 4);
	sums->bytes[live->stack] += live->bytes;
	sums->objects[live->stack] += live->objects;
	sums->deaths[live->stack] = live->deaths;
	sums->old[live->stack] = live->few ? 0 : live->old;
	return 0;
}

static int add_cache(void *ctx, const struct alloc_live *live)
{
	double **to = ctx;

	*to[0] += live->bytes;
	*to[1] = live->error;
	return 0;
}

static double draw(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return (double)(*random >> 11) * 0x1p-53;
}

#define KEPT 0
#define SOON 1 /* freed after 0.1 ms */
#define LATE 2 /* exponential life of 2 s */
#define LATE_S 2.0

struct object {
	uint64_t address, birth_ns, death_ns;
	uint32_t site;
	bool tracked;
};

#define RUN_S 30

/* Half a minute with windows of 20 ms each 200 ms: births are seen in windows only, and so are
 * deaths. */
static void test_survival(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	const uint64_t step_ns = NS_PER_MS / 10, window_ns = 20 * NS_PER_MS, period_ns = 200 * NS_PER_MS;
	uint64_t random = 88172645463325252ull;
	static struct object objects[400000];
	size_t count = 0, first = 0;
	double kept = 0, late = 0;
	struct sums sums = { 0 };

	assert_non_null(heap);
	for (uint64_t t = 0; t < RUN_S * NS_PER_S; t += step_ns) {
		bool open = t % period_ns < window_ns;

		for (uint32_t site = KEPT; site <= LATE; site++) {
			/* 20 a second kept, 2,000 soon freed, 500 late */
			double p = site == KEPT ? 0.002 : site == SOON ? 0.2 : 0.05;
			double life = site == LATE ? -log(1 - draw(&random)) * LATE_S * 1e9 : 1e5;

			if (draw(&random) >= p || count >= ARRAY_SIZE(objects))
				continue;
			objects[count] = (struct object){ .address = (uint64_t)count + 1,
							  .birth_ns = t,
							  .death_ns = site == KEPT ? UINT64_MAX
										   : t + (uint64_t)life,
							  .site = site,
							  .tracked = open };
			if (open)
				assert_int_equal(alloc_heap_birth(heap, &(struct alloc_birth){
										.stack = site,
										.time_ns = t,
										.bytes = 100,
										.address = objects[count].address }),
						 0);
			count++;
		}
		for (size_t i = first; i < count && open; i++) {
			struct object *o = &objects[i];

			if (o->tracked && o->death_ns <= t + step_ns) {
				o->tracked = false;
				/* seen only if it happens while probes are open */
				(void)alloc_heap_gone(heap, o->address,
						      o->death_ns > t ? o->death_ns : t - t % period_ns,
						      o->death_ns >= t - t % period_ns);
			}
		}
		if ((t + step_ns) % period_ns == window_ns) {
			const struct alloc_window window = { .begin_ns = t + step_ns - window_ns,
							     .end_ns = t + step_ns - window_ns + period_ns,
							     .open_ns = t + step_ns - window_ns,
							     .close_ns = t + step_ns,
							     .weight = (double)period_ns / (double)window_ns,
							     .dilation = 1 };

			alloc_heap_close(heap, &window);
			while (first < count && !objects[first].tracked && objects[first].site != LATE)
				first++;
		}
	}
	for (size_t i = 0; i < count; i++) {
		kept += objects[i].site == KEPT ? 100 : 0;
		late += objects[i].site == LATE && objects[i].death_ns > RUN_S * NS_PER_S ? 100 : 0;
	}
	assert_int_equal(alloc_heap_each_live(heap, RUN_S * NS_PER_S, add_live, &sums), 0);
	assert_int_equal(sums.deaths[KEPT], 0);
	assert_true(sums.bytes[KEPT] > kept * 0.6 && sums.bytes[KEPT] < kept * 1.5);
	assert_true(sums.deaths[SOON] > 1000 && sums.bytes[SOON] < kept * 0.1);
	assert_true(sums.deaths[LATE] > 50);
	assert_true(sums.bytes[LATE] > late * 0.5 && sums.bytes[LATE] < late * 2);
	assert_true(sums.old[KEPT] == 0);
	/* A quarter of a minute later half of what is kept is old; of the rest nothing is. */
	assert_int_equal(alloc_heap_each_live(heap, (RUN_S + 15) * NS_PER_S, add_live, &sums), 0);
	assert_in_range(sums.old[KEPT], 10, 60);
	assert_true(sums.old[SOON] == 0 && sums.old[LATE] == 0);
}

#define SLOTS	   400u
#define TURNOVER_S 0.1 /* of a slot, mean */
#define WINDOW_NS  (6 * NS_PER_MS)
#define WINDOWS	   16u

/* Frees a @share of a cache's blocks between two windows. The heap learns of it when it looks at
 * their addresses. */
static void give_up(struct alloc_heap *heap, double share, uint64_t generations[SLOTS],
		    uint64_t now_ns, uint64_t *random)
{
	for (uint64_t slot = 0; slot < SLOTS; slot++) {
		if (draw(random) >= share)
			continue;
		(void)alloc_heap_gone(heap, 1 + slot + generations[slot] * SLOTS, now_ns, false);
		generations[slot]++;
	}
}

/* A cache of blocks that live much shorter than the time between two windows, whose addresses are
 * reused at once, as an allocator does, but for @given_up of them: what is in use, the stated
 * error. Windows lie anywhere in their periods but for the last, which is opened when somebody
 * asks; in them it does @dilation of its work. */
static double estimate_of_cache(uint64_t random, double given_up, double dilation, double *error)
{
	uint64_t generations[SLOTS] = { 0 };
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	const uint64_t turn_ns = (uint64_t)(TURNOVER_S * 1e9 / SLOTS / dilation);
	double bytes = 0;
	struct alloc_window window = { .end_ns = NS_PER_S, .dilation = 1 };

	for (unsigned i = 1; i <= WINDOWS; i++) {
		const bool last = i == WINDOWS;
		uint64_t t = window.end_ns + (last ? NS_PER_S : (uint64_t)(draw(&random) * 1.9e9));

		window = (struct alloc_window){ .begin_ns = window.end_ns,
						.open_ns = t,
						.close_ns = t + WINDOW_NS,
						.dilation = dilation,
						.blind = i % 2 };
		window.end_ns = last ? window.close_ns : window.begin_ns + 2 * NS_PER_S;
		window.weight = (double)(window.end_ns - window.begin_ns) / WINDOW_NS / dilation;
		give_up(heap, given_up, generations, window.open_ns - 1, &random);
		for (; t < window.close_ns; t += turn_ns) {
			const uint64_t slot = (uint64_t)(draw(&random) * SLOTS);
			const uint64_t address = 1 + slot + generations[slot] * SLOTS;

			(void)alloc_heap_gone(heap, address, t, !window.blind);
			assert_int_equal(alloc_heap_birth(heap, &(struct alloc_birth){
									.time_ns = t, .bytes = 100, .address = address }), 0);
		}
		alloc_heap_close(heap, &window);
	}
	*error = 0;
	assert_int_equal(
		alloc_heap_each_live(heap, window.end_ns, add_cache, (double *[]){ &bytes, error }),
		0);
	return bytes;
}

static void test_cache_of_short_lives(void **state)
{
	static const struct {
		double given_up, dilation;
	} cases[] = { { 0, 1 }, { 0.6, 1 }, { 0, 0.4 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned inside = 0, near = 0;
		double logs = 0;

		for (uint64_t seed = 1; seed <= 200; seed++) {
			double error;
			const double bytes = estimate_of_cache(seed * 0x9e3779b97f4a7c15ull, cases[i].given_up,
							       cases[i].dilation, &error);
			const double factor = bytes / (SLOTS * 100);

			logs += log(factor);
			near += factor > 0.4 && factor < 2.5;
			inside += fabs(log(factor)) < 1.96 * sqrt(log1p(error * error));
		}
		if (near < 185 || inside < 180 || fabs(logs / 200) > 0.2)
			fail_msg(
				"%.1f given up, dilation %.1f: %u of 200 are near, %u inside, mean of the logarithms %.2f",
				cases[i].given_up, cases[i].dilation, near, inside, logs / 200);
	}
}

/* One sample that stands for half of everything leaves more open than a hundred that stand for the
 * rest. */
static void test_unequal_samples(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	const struct alloc_window window = {
		.end_ns = NS_PER_S, .close_ns = NS_PER_S, .weight = 1, .dilation = 1
	};
	double bytes = 0, error;

	for (unsigned i = 0; i < 101; i++) {
		const struct alloc_birth birth = { .bytes = 100, .gap_bytes = i ? 0 : 9950 };

		assert_int_equal(alloc_heap_birth(heap, &birth), 0);
	}
	alloc_heap_close(heap, &window);
	assert_int_equal(
		alloc_heap_each_live(heap, NS_PER_S, add_cache, (double *[]){ &bytes, &error }), 0);
	assert_float_equal(bytes, 20000, 10);
	assert_float_equal(error, 0.5, 0.01);
}

/* Three addresses are as good as five that were followed for less long. */
static void test_few_old(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	const struct alloc_window window = {
		.end_ns = NS_PER_S, .close_ns = NS_PER_S, .weight = 1, .dilation = 1
	};
	struct sums sums = { 0 };

	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(alloc_heap_birth(heap, &(struct alloc_birth){ .bytes = 100, .address = i }), 0);
	alloc_heap_close(heap, &window);
	assert_int_equal(alloc_heap_each_live(heap, 40 * NS_PER_S, add_live, &sums), 0);
	assert_int_equal(sums.old[0], 0);
	assert_int_equal(alloc_heap_each_live(heap, 60 * NS_PER_S, add_live, &sums), 0);
	assert_int_equal(sums.old[0], 3);
}

static int add_first(void *ctx, const struct alloc_live *live)
{
	double *objects = ctx;

	*objects += live->stack == 1 ? live->objects : 0;
	return 0;
}

static void test_heap_bounds(void **state)
{
	double objects = 0;
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	struct alloc_birth birth = { .bytes = 10, .gap_bytes = 1000 };
	struct alloc_followed followed[8];
	size_t refused = 0;

	for (uint64_t i = 0; i < ALLOC_SITES_KNOWN_MAX + 10; i++) {
		birth.stack = i + 1;
		birth.address = (i + 1) * 16;
		birth.time_ns = i;
		refused += alloc_heap_birth(heap, &birth) == -ENOSPC;
	}
	assert_int_equal(refused, 10);
	assert_int_equal(alloc_heap_tracked(heap), ALLOC_TRACKED_HEAP_MAX);
	assert_int_equal(alloc_heap_followed(heap, followed, ARRAY_SIZE(followed)), ARRAY_SIZE(followed));
	assert_int_equal(followed[0].bytes, 10);
	assert_false(alloc_heap_gone(heap, 7, 1, true));
	assert_true(alloc_heap_gone(heap, 32, 1, true));
	assert_false(alloc_heap_gone(heap, 32, 1, true));
	/* many windows of one site keep a bounded history and lose nothing */
	for (uint64_t i = 0; i < 500; i++) {
		const struct alloc_window window = { .begin_ns = i * NS_PER_S,
						     .end_ns = (i + 1) * NS_PER_S,
						     .open_ns = i * NS_PER_S,
						     .close_ns = i * NS_PER_S + 10,
						     .weight = 1,
						     .dilation = 1 };

		birth = (struct alloc_birth){ .stack = 1, .time_ns = i * NS_PER_S + 1, .bytes = 100 };
		assert_int_equal(alloc_heap_birth(heap, &birth), 0);
		alloc_heap_close(heap, &window);
	}
	assert_int_equal(alloc_heap_each_live(heap, 500 * NS_PER_S, add_first, &objects), 0);
	assert_true(objects > 500 && objects < 620); /* and the first one, which stood for 100 */
}

struct dropped {
	uint64_t count;
	uint64_t sum;
};

static void note_dropped(void *ctx, uint64_t address)
{
	struct dropped *dropped = ctx;

	dropped->count++;
	dropped->sum += address;
}

#define MANY 4000u
#define FEW  50u
#define KEEP 1000u

/* A site that has many loses most of them, one of few hardly any, and those that stay say what all
 * of them said. */
static void test_thinned(void **state)
{
	cleanup(alloc_heap) struct alloc_heap *heap = alloc_heap_create();
	const struct alloc_window window = {
		.end_ns = 2 * NS_PER_S, .close_ns = NS_PER_S, .weight = 1, .dilation = 1
	};
	static struct alloc_followed followed[MANY + FEW];
	struct dropped dropped = { 0 };
	struct sums sums = { 0 };
	uint64_t few = 0, sum = 0;
	size_t count;

	for (uint64_t i = 0; i < MANY + FEW; i++) {
		const struct alloc_birth birth = {
			.stack = i < FEW ? 1 : 2, .time_ns = i, .bytes = 100, .address = i + 1
		};

		assert_int_equal(alloc_heap_birth(heap, &birth), 0);
		sum += i + 1;
	}
	alloc_heap_close(heap, &window);
	alloc_heap_thin(heap, MANY + FEW, note_dropped, &dropped);
	assert_int_equal(dropped.count, 0);
	alloc_heap_thin(heap, KEEP, note_dropped, &dropped);
	count = alloc_heap_followed(heap, followed, ARRAY_SIZE(followed));
	assert_int_equal(count, alloc_heap_tracked(heap));
	assert_int_equal(count + dropped.count, MANY + FEW);
	assert_in_range(count, KEEP / 2, KEEP + KEEP / 5);
	for (size_t i = 0; i < count; i++) {
		few += followed[i].address <= FEW;
		sum -= followed[i].address;
	}
	assert_int_equal(few, FEW);
	assert_int_equal(sum, dropped.sum); /* each once */
	/* An allocation that is no longer followed is not counted as ended. */
	assert_int_equal(alloc_heap_each_live(heap, 100 * NS_PER_S, add_live, &sums), 0);
	assert_true(fabs(sums.bytes[2] - MANY * 100.0) < 1 && fabs(sums.bytes[1] - FEW * 100.0) < 1);
	assert_int_equal(sums.deaths[2], 0);
}

/* ---- glibc's headers ------------------------------------------------------------------------- */

static void test_chunks(void **state)
{
	const uint64_t at = 0x55555555a010, key = 0x1122334455667788;
	const struct {
		const char *what;
		struct alloc_chunk chunk;
		bool is_free;
	} cases[] = {
		{ "in use", { at, { 0, 0x71, 1, 2 }, 0x68, 0x71, key }, false },
		{ "as little as there is", { at, { 0, 0x21, 1, 2 }, 1, 0x71, key }, false },
		{ "the rest was too small for another",
		  { at, { 0, 0x81, 1, 2 }, 0x68, 0x71, key },
		  false },
		{ "too small", { at, { 0, 0x71, 1, 2 }, 0x69, 0x71, key }, true },
		{ "too large", { at, { 0, 0xb1, 1, 2 }, 0x68, 0x71, key }, true },
		{ "the one before was freed", { at, { 0, 0x70, 1, 2 }, 0x60, 0x71, key }, false },
		{ "the next says so", { at, { 0, 0x71, 1, 2 }, 0x60, 0x70, key }, true },
		{ "in a thread cache", { at, { 0, 0x71, 1, key }, 0x60, 0x71, key }, true },
		{ "no key known", { at, { 0, 0x71, 1, key }, 0x60, 0x71, 0 }, false },
		{ "end of a fast bin", { at, { 0, 0x71, at >> 12, 2 }, 0x60, 0x71, key }, true },
		{ "linked in a fast bin",
		  { at, { 0, 0x71, at >> 12 ^ (at + 0x1000), 2 }, 0x60, 0x71, key },
		  true },
		{ "from a thread cache, not written yet",
		  { at, { 0, 0x71, at >> 12 ^ (at + 0x1000), 0 }, 0x60, 0x71, key },
		  false },
		{ "a list of the program's own",
		  { at, { 0, 0x71, at + 0x1000, 2 }, 0x60, 0x71, key },
		  false },
		{ "mapped by itself", { at, { 0, 0x41002, 0, 0 }, 0x40000, 0, key }, false },
		{ "no size", { at, { 0, 0, 0, 0 }, 0, 0, key }, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (alloc_chunk_is_free(&cases[i].chunk) != cases[i].is_free)
			fail_msg("%s", cases[i].what);
	assert_int_equal(alloc_chunk_next(&cases[0].chunk), at - 16 + 0x70 + 8);
	assert_int_equal(alloc_chunk_next(&cases[13].chunk), 0);
}

#define ARENA_WORDS (1u << 15)
#define AROUND	    (ALLOC_AROUND_BYTES / 8)

/* Makes chunks of any size from words[@at] to words[@end] on; what lies between their headers stays
 * as it was. */
static void split(uint64_t *words, bool *begins, size_t at, size_t end, uint64_t *random)
{
	while (at < end) {
		size_t size = 4 + 2 * (size_t)(draw(random) * 60);

		if (at + size + 4 > end)
			size = end - at;
		begins[at] = true;
		words[at + 1] = size * 8 + 1;
		at += size;
	}
}

/* A heap whose chunks are joined and split again and again, as glibc does where nothing is written
 * to them: headers of chunks that are no more are told from those that are. */
static void test_chunks_around(void **state)
{
	static uint64_t words[ARENA_WORDS];
	static bool begins[ARENA_WORDS], began[ARENA_WORDS];
	unsigned there = 0, wrong = 0, gone = 0, found = 0;
	uint64_t random = 88172645463325252ull;

	split(words, begins, 0, ARENA_WORDS, &random);
	for (int turn = 0; turn < 20000; turn++) {
		size_t at = (size_t)(draw(&random) * (ARENA_WORDS - 1024)), end;

		while (!begins[at])
			at++;
		end = at;
		for (int joined = 0; joined < 3 && end < ARENA_WORDS; joined++) {
			began[end] = true;
			begins[end] = false;
			end += words[end + 1] / 8;
		}
		split(words, begins, at, end, &random);
	}
	for (size_t at = AROUND; at + AROUND + 2 < ARENA_WORDS; at += 2) {
		const uint64_t size = words[at + 1] / 8;
		bool inside;

		if (!began[at] || size < 4 || at + size > ARENA_WORDS)
			continue;
		inside = alloc_chunk_is_inside(words + at - AROUND, 2 * AROUND + 2, AROUND + 2);
		there += begins[at];
		wrong += begins[at] && inside;
		gone += !begins[at];
		found += !begins[at] && inside;
	}
	assert_true(there > 200 && gone > 200);
	if (wrong * 100 > there || found * 10 < gone * 8)
		fail_msg("%u of %u chunks are taken for none, %u of %u that are none are found",
			 wrong, there, found, gone);
	/* data is no heap */
	memset(words, 0x41, sizeof(words));
	assert_false(alloc_chunk_is_inside(words, 2 * AROUND + 2, AROUND + 2));
	memset(words, 0, sizeof(words));
	assert_false(alloc_chunk_is_inside(words, 2 * AROUND + 2, AROUND + 2));
	assert_false(alloc_chunk_is_inside(words, AROUND + 2, AROUND + 2));
}

/* Chunks of this very process. */
static void test_headers_of_a_process(void **state)
{
	struct alloc_headers headers = { .tgid = (uint32_t)getpid(), .glibc = true };
	struct alloc_header chunks[5] = { 0 };
	void *blocks[5], *volatile keep;

	for (size_t i = 0; i < ARRAY_SIZE(blocks); i++) {
		chunks[i].bytes = 3000 + i * 64;
		blocks[i] = malloc(chunks[i].bytes);
		memset(blocks[i], 1, 3000);
		chunks[i].address = (uintptr_t)blocks[i];
		chunks[i].around = true;
	}
	keep = malloc(64); /* so that the last one does not join the top */
	chunks[4].address = 64; /* not mapped */
	free(blocks[4]);
	assert_int_equal(alloc_headers_read(&headers, chunks, ARRAY_SIZE(chunks)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(chunks); i++)
		assert_int_equal(chunks[i].is_free, i == 4);
	free(blocks[1]); /* the neighbours are in use: it goes to a bin, and the next one's flag says so */
	assert_int_equal(alloc_headers_read(&headers, chunks, 4), 0);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(chunks[i].is_free, i == 1);
	free(keep);
	free(blocks[0]), free(blocks[2]), free(blocks[3]);
}

/* ---- reading a process's memory -------------------------------------------------------------- */

static int look(struct alloc_look *child, uint64_t address, uint64_t now_ns)
{
	const struct alloc_place place = { .tgid = (uint32_t)getpid() };
	struct alloc_headers headers = { .tgid = place.tgid, .glibc = true };
	const struct alloc_followed followed = { address, 3000 };
	const struct alloc_look_request request = {
		.place = &place, .headers = &headers, .followed = &followed, .followed_count = 1
	};
	int rc;

	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0,
		    0); /* a child may not read its parent everywhere */
	assert_int_equal(alloc_look_start(child, &request, now_ns), 0);
	assert_true(poll(&(struct pollfd){ .fd = child->fd, .events = POLLIN }, 1,
			 now_ns ? 60000 : 200) >= 0);
	rc = alloc_look_poll(child, now_ns ? now_ns : UINT64_MAX);
	return rc;
}

static void test_look(void **state)
{
	void *block = malloc(3000), *volatile keep = malloc(3000);
	struct alloc_look child;

	memset(block, 1, 3000);
	assert_int_equal(look(&child, (uintptr_t)block, 1), 0);
	assert_true(child.seen->headers_read && child.seen->header_count == 1);
	assert_false(child.seen->headers[0].is_free);
	alloc_look_stop(&child);
	free(keep);
	free(block);
}

/* A page that a userfaultfd handler never provides: the child is killed, and ends. */
static void test_look_that_never_answers(void **state)
{
	struct uffdio_register wanted = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct alloc_look child;
	void *page;
	pid_t pid;

	if (fd < 0) { /* only for one's own faults, vm.unprivileged_userfaultfd */
		print_message("skipped: userfaultfd for reads by others takes root\n");
		skip();
	}
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	wanted.range = (struct uffdio_range){ (uintptr_t)page, 4096 };
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &wanted), 0);
	assert_int_equal(look(&child, (uintptr_t)page + 64, 0), -ETIMEDOUT);
	pid = child.pid;
	assert_true(pid > 0);
	alloc_look_stop(&child);
	for (int i = 0; i < 6000 && kill(pid, 0) == 0; i++)
		(void)usleep(10000);
	assert_int_equal(kill(pid, 0), -1);
	(void)close(fd);
	(void)munmap(page, 4096);
}

static void test_inclusion(void **state)
{
	assert_float_equal(alloc_inclusion(1000, 1000), 0.632, 0.001);
	assert_float_equal(alloc_inclusion(1, 1000000), 1e-6, 1e-8);
	assert_float_equal(alloc_inclusion(5, 0), 1, 1e-9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_site_find),
		cmocka_unit_test(test_site_find_arm64),
		cmocka_unit_test(test_site_find_any_bytes),
		cmocka_unit_test(test_sites_of_libc),
		cmocka_unit_test(test_survival),
		cmocka_unit_test(test_cache_of_short_lives),
		cmocka_unit_test(test_unequal_samples),
		cmocka_unit_test(test_few_old),
		cmocka_unit_test(test_heap_bounds),
		cmocka_unit_test(test_thinned),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_chunks_around),
		cmocka_unit_test(test_headers_of_a_process),
		cmocka_unit_test(test_look),
		cmocka_unit_test(test_look_that_never_answers),
		cmocka_unit_test(test_inclusion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
