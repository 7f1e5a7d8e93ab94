/* SPDX-License-Identifier: Apache-2.0 */
/* The allocations of one process: sampled births by site, and which of them were seen freed. Both
 * give the share of a site's allocations that is still in use.
 *
 * Probes are open for a small part of the time, so most frees are not seen. The deaths that are
 * seen give a hazard: deaths among the sampled addresses of an age, divided by the time that
 * sampled addresses of that age spent under observation. The product of the survival of all ages
 * is the share of a birth's bytes that is still there. A site whose objects never die has no
 * deaths, and everything it allocated counts: leaks have no bias. If the probes stay attached,
 * every death is seen and the estimate is exact except for sampling.
 *
 * An address may turn out to have been freed unseen (handed out again, or free by the allocator's
 * own headers). It leaves the observation without a death: deaths inside windows represent those
 * outside.
 *
 * The births of a window stand for its whole period, so the mean survival over the period counts.
 * The survival at the window's own age would be one draw of something that may change a
 * thousandfold (blocks that live for a tenth of a second, periods of four). Pure. */
#ifndef PROFD_COLLECT_ALLOC_HEAP_H
#define PROFD_COLLECT_ALLOC_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define ALLOC_SITES_KNOWN_MAX                                                                      \
	16384u /* sites of a process; beyond, births are counted and dropped */
#define ALLOC_TRACKED_HEAP_MAX 5000u /* addresses followed at once */
#define ALLOC_OLD_NS	      30000000000ull
#define ALLOC_COHORTS_MAX     48u    /* births of a site by time; the closest are joined beyond */

struct alloc_heap;

struct alloc_heap *alloc_heap_create(void);
void alloc_heap_destroy(struct alloc_heap *heap);
CLEANUP_DEFINE(alloc_heap, struct alloc_heap *, alloc_heap_destroy);

/* A window of the probes: opened at @open_ns, closed at @close_ns, which stands for @weight times
 * itself when dilated (see alloc_pace.h: @dilation): for the period that began at @begin_ns and
 * ended at @end_ns. */
struct alloc_window {
	uint64_t begin_ns, end_ns;
	uint64_t open_ns, close_ns;
	double weight;
	double dilation;
	bool blind; /* frees were not probed: nobody was seen to die in it */
};

/* A sampled allocation of the window under way: @stack identifies the site. @address 0 = not known.
 * -ENOSPC: there are too many sites; -ENOMEM. */
struct alloc_birth {
	uint64_t stack;
	uint64_t time_ns;
	uint64_t bytes;
	uint64_t gap_bytes;
	uint64_t address;
};
int alloc_heap_birth(struct alloc_heap *heap, const struct alloc_birth *birth) must_use;
/* The block of @birth is there and was not sampled: it counts as itself, and is followed from now
 * on. Between two windows. -ENOSPC, -ENOMEM. */
int alloc_heap_adopt(struct alloc_heap *heap, const struct alloc_birth *birth) must_use;
/* A followed address was freed at @time_ns (seen), or is found then to be free (not seen): if the
 * window under way is open by then nobody could have seen it end there. False: not followed. */
bool alloc_heap_gone(struct alloc_heap *heap, uint64_t address, uint64_t time_ns, bool seen);
/* Tells the hash of the first words of @address at @time_ns. The first call comes soon after the
 * window in which the block was born, because later another block may be there. */
void alloc_heap_looked(struct alloc_heap *heap, uint64_t address, uint64_t content,
		       uint64_t time_ns);
/* The window is over and its weight known: births since the last call become its. */
void alloc_heap_close(struct alloc_heap *heap, const struct alloc_window *window);

/* Between two windows: follows about @max addresses at most from now on. Sites that have many lose
 * most, which of theirs is left to chance, so that the rest says the same. @dropped is called for
 * each that is followed no more. */
void alloc_heap_thin(struct alloc_heap *heap, size_t max,
		     void (*dropped)(void *ctx, uint64_t address), void *ctx);

size_t alloc_heap_tracked(const struct alloc_heap *heap);
/* An address that is followed, and what was asked for there. */
struct alloc_followed {
	uint64_t address;
	uint64_t bytes;
};
/* In any order: at most @max; returns the number. */
size_t alloc_heap_followed(const struct alloc_heap *heap, struct alloc_followed *ret, size_t max);

/* How much of what one site allocated around one time is still in use. */
struct alloc_live {
	uint64_t stack;
	uint64_t time_ns; /* of the births: the middle of their time, the same for all sites of a period */
	double bytes, objects;
	double error; /* standard error of the whole site's bytes, relative: of samples and of deaths */
	uint32_t least_bytes, most_bytes; /* that one allocation of the site asked for; 0 = too few
					     were seen to know */
	uint32_t deaths; /* of the whole site; 1 as well where none was seen, but ends are the rule */
	uint32_t old; /* followed addresses of the site older than ALLOC_OLD_NS, where blocks end at
		       * times those that are surely its own; 0 where such ones end or are used
		       * again */
	bool unsure;  /* none of the site was seen to end, but some may have: its addresses may have
			 been freed and used again unseen */
	bool few;     /* none ended or changed, but they are too few, or too young, to tell by
			 themselves that they stay */
};
typedef int alloc_live_fn(void *ctx, const struct alloc_live *live);
/* Calls @visit for every site and cohort with something in use at the end of the last period; what
 * is old is so at
 * @now_ns. Stops at its first error. */
int alloc_heap_each_live(const struct alloc_heap *heap, uint64_t now_ns, alloc_live_fn *visit,
			 void *ctx) must_use;

/* 1 - exp(-bytes/gap): the probability with which an allocation is sampled. */
double alloc_inclusion(uint64_t bytes, uint64_t gap_bytes);

#endif
