// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc_heap.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"

#define AGE_BINS	40u /* powers of two from 1 us on */
#define AGE_FIRST_NS	1024.0
#define DEATHS_PER_BIN	4.0 /* bins of age are joined until they hold as many */
#define ENDED_PER_OLD	20u
#define ENDING_SHARE	10u /* a place of which a tenth ends frees what it allocates */
#define DEAD_SHARE	1e-9 /* of a cohort: not worth keeping */

/* Births of one site around one time. */
struct cohort {
	double time_ns; /* mean */
	double bytes, objects;
	uint32_t samples;
};

struct site {
	uint64_t stack;
	struct cohort *cohorts; /* owned, ascending time */
	uint32_t cohort_count, cohort_capacity;
	uint32_t deaths;
	uint32_t ended_old; /* followed ones that ended old, seen or not */
	uint32_t followed, ended; /* addresses so far; of them freed unseen */
	/* By age: how often an address was observed at it, for how long (seconds; one that died, for as long
	 * as it would have been), and how often it died. */
	float observed[AGE_BINS];
	float at_risk[AGE_BINS];
	float died[AGE_BINS];
};

struct tracked {
	uint64_t address;
	uint64_t birth_ns;
	uint64_t gone_ns; /* in the window under way; 0 = still followed */
	uint32_t site;
	bool seen; /* its death was */
};

struct pending {
	struct alloc_birth birth;
	uint32_t site;
};

VEC_DEFINE(sites, struct site);
VEC_DEFINE(tracked, struct tracked);
VEC_DEFINE(pending, struct pending);

struct alloc_heap {
	struct sites_vec sites;
	struct u64map site_at; /* stack -> index of sites */
	struct tracked_vec tracked;
	struct u64map tracked_at; /* address -> index of tracked */
	struct pending_vec pending;
};

struct alloc_heap *alloc_heap_create(void)
{
	return calloc(1, sizeof(struct alloc_heap));
}

void alloc_heap_destroy(struct alloc_heap *heap)
{
	if (!heap)
		return;
	for (size_t i = 0; i < heap->sites.count; i++)
		free(heap->sites.data[i].cohorts);
	sites_vec_deinit(&heap->sites);
	tracked_vec_deinit(&heap->tracked);
	pending_vec_deinit(&heap->pending);
	u64map_deinit(&heap->site_at);
	u64map_deinit(&heap->tracked_at);
	free(heap);
}

double alloc_inclusion(uint64_t bytes, uint64_t gap_bytes)
{
	return gap_bytes ? -expm1(-(double)bytes / (double)gap_bytes) : 1;
}

/* ---- births and deaths ------------------------------------------------------------------------- */

static int find_site(struct alloc_heap *heap, uint64_t stack, uint32_t *ret)
{
	struct site site = { .stack = stack };
	uint64_t at;
	int rc;

	if (u64map_get(&heap->site_at, stack, &at)) {
		*ret = (uint32_t)at;
		return 0;
	}
	if (heap->sites.count >= ALLOC_SITES_KNOWN_MAX)
		return -ENOSPC;
	rc = u64map_put(&heap->site_at, stack, heap->sites.count);
	if (rc == 0)
		rc = sites_vec_push(&heap->sites, site);
	if (rc == 0)
		*ret = (uint32_t)heap->sites.count - 1;
	return rc;
}

int alloc_heap_birth(struct alloc_heap *heap, const struct alloc_birth *birth)
{
	struct tracked tracked = { .address = birth->address, .birth_ns = birth->time_ns };
	struct pending pending = { .birth = *birth };
	int rc = find_site(heap, birth->stack, &pending.site);

	if (rc == 0)
		rc = pending_vec_push(&heap->pending, pending);
	if (rc < 0 || !birth->address || heap->tracked.count >= ALLOC_TRACKED_HEAP_MAX)
		return rc;
	/* Born where another one still is: that one's end was missed. */
	(void)alloc_heap_gone(heap, birth->address, birth->time_ns, false);
	tracked.site = pending.site;
	heap->sites.data[pending.site].followed++;
	rc = u64map_put(&heap->tracked_at, birth->address, heap->tracked.count);
	return rc < 0 ? rc : tracked_vec_push(&heap->tracked, tracked);
}

bool alloc_heap_gone(struct alloc_heap *heap, uint64_t address, uint64_t time_ns, bool seen)
{
	struct tracked *tracked;
	uint64_t at;

	if (!u64map_get(&heap->tracked_at, address, &at))
		return false;
	tracked = &heap->tracked.data[at];
	tracked->gone_ns = time_ns > tracked->birth_ns ? time_ns : tracked->birth_ns;
	tracked->seen = seen;
	(void)u64map_remove(&heap->tracked_at, address);
	return true;
}

size_t alloc_heap_tracked(const struct alloc_heap *heap)
{
	return heap->tracked_at.count;
}

size_t alloc_heap_addresses(const struct alloc_heap *heap, uint64_t *ret, size_t max)
{
	size_t count = 0;

	for (size_t i = 0; i < heap->tracked.count && count < max; i++)
		if (!heap->tracked.data[i].gone_ns)
			ret[count++] = heap->tracked.data[i].address;
	return count;
}

/* ---- the end of a window ------------------------------------------------------------------------- */

/* Bin b holds ages from AGE_FIRST_NS * 2^(b-1) (bin 0: from 0) to AGE_FIRST_NS * 2^b. */
static double bin_end_ns(unsigned bin)
{
	return ldexp(AGE_FIRST_NS, (int)bin);
}

static unsigned bin_of(double age_ns)
{
	int exponent;

	if (age_ns < AGE_FIRST_NS)
		return 0;
	(void)frexp(age_ns / AGE_FIRST_NS, &exponent);
	return (unsigned)exponent < AGE_BINS ? (unsigned)exponent : AGE_BINS - 1;
}

/* Spreads the time observed from age @from to age @to over the bins. */
static void add_risk(struct site *site, double from_ns, double to_ns, double scale)
{
	for (unsigned bin = bin_of(from_ns); bin < AGE_BINS && from_ns < to_ns; bin++) {
		double end_ns = bin + 1 < AGE_BINS && bin_end_ns(bin) < to_ns ? bin_end_ns(bin) : to_ns;

		if (end_ns > from_ns) {
			site->observed[bin] += 1;
			site->at_risk[bin] += (float)((end_ns - from_ns) * 1e-9 * scale);
		}
		from_ns = end_ns > from_ns ? end_ns : from_ns;
	}
}

/* One that died counts as observed for the rest of its bin, as far as the window went: that is what those
 * who did not die in it are compared with. */
static uint64_t observed_until(const struct tracked *tracked, const struct alloc_window *window)
{
	double age_ns = (double)(tracked->gone_ns - tracked->birth_ns), end_ns;

	if (!tracked->gone_ns)
		return window->close_ns;
	end_ns = (double)tracked->gone_ns;
	if (tracked->seen)
		end_ns = (double)tracked->birth_ns + bin_end_ns(bin_of(age_ns));
	return end_ns < (double)window->close_ns ? (uint64_t)end_ns : window->close_ns;
}

/* The time that followed addresses spent in the window, and those of them that died. */
static void observe(struct alloc_heap *heap, const struct alloc_window *window)
{
	for (size_t i = 0; i < heap->tracked.count; i++) {
		const struct tracked *tracked = &heap->tracked.data[i];
		struct site *site = &heap->sites.data[tracked->site];
		uint64_t from_ns = tracked->birth_ns > window->open_ns ? tracked->birth_ns : window->open_ns;
		uint64_t to_ns = observed_until(tracked, window);

		if (from_ns < to_ns && !window->blind)
			add_risk(site, (double)(from_ns - tracked->birth_ns),
				 (double)(to_ns - tracked->birth_ns), window->dilation);
		if (tracked->gone_ns && tracked->seen) {
			site->died[bin_of((double)(tracked->gone_ns - tracked->birth_ns))] += 1;
			site->deaths++;
		}
		site->ended += tracked->gone_ns && !tracked->seen;
		if (tracked->gone_ns)
			site->ended_old += to_ns - tracked->birth_ns > ALLOC_OLD_NS / 2;
	}
}

static void forget_gone(struct alloc_heap *heap)
{
	size_t kept = 0;

	u64map_clear(&heap->tracked_at);
	for (size_t i = 0; i < heap->tracked.count; i++) {
		struct tracked tracked = heap->tracked.data[i];

		if (tracked.gone_ns || u64map_put(&heap->tracked_at, tracked.address, kept) < 0)
			continue;
		heap->tracked.data[kept++] = tracked;
	}
	heap->tracked.count = kept;
}

static void join(struct cohort *to, const struct cohort *from)
{
	double bytes = to->bytes + from->bytes;

	if (bytes > 0)
		to->time_ns = (to->time_ns * to->bytes + from->time_ns * from->bytes) / bytes;
	to->bytes = bytes;
	to->objects += from->objects;
	to->samples += from->samples;
}

/* Joins the two neighbours whose ages are most alike. */
static void make_room(struct site *site, double now_ns)
{
	uint32_t best = 0;
	double best_ratio = INFINITY;

	for (uint32_t i = 0; i + 1 < site->cohort_count; i++) {
		double ratio = (now_ns - site->cohorts[i].time_ns + 1e6) /
			       (now_ns - site->cohorts[i + 1].time_ns + 1e6);

		if (ratio < best_ratio) {
			best_ratio = ratio;
			best = i;
		}
	}
	join(&site->cohorts[best], &site->cohorts[best + 1]);
	site->cohort_count--;
	memmove(&site->cohorts[best + 1], &site->cohorts[best + 2],
		(site->cohort_count - best - 1) * sizeof(*site->cohorts));
}

static bool has_room(struct site *site)
{
	uint32_t capacity = site->cohort_capacity ? site->cohort_capacity * 2 : 4;
	struct cohort *grown;

	if (site->cohort_count < site->cohort_capacity)
		return true;
	if (capacity > ALLOC_COHORTS_MAX)
		capacity = ALLOC_COHORTS_MAX;
	if (capacity <= site->cohort_capacity)
		return false;
	grown = realloc(site->cohorts, capacity * sizeof(*grown));
	if (!grown)
		return false;
	site->cohorts = grown;
	site->cohort_capacity = capacity;
	return true;
}

static void add_cohort(struct site *site, const struct cohort *cohort, const struct alloc_window *window)
{
	struct cohort *last = site->cohort_count ? &site->cohorts[site->cohort_count - 1] : NULL;

	if (last && last->time_ns >= (double)window->open_ns) {
		join(last, cohort);
		return;
	}
	if (!has_room(site)) {
		if (site->cohort_count < 2)
			return;
		make_room(site, (double)window->close_ns);
	}
	site->cohorts[site->cohort_count++] = *cohort;
}

void alloc_heap_close(struct alloc_heap *heap, const struct alloc_window *window)
{
	observe(heap, window);
	forget_gone(heap);
	for (size_t i = 0; i < heap->pending.count; i++) {
		const struct pending *pending = &heap->pending.data[i];
		const struct alloc_birth *birth = &pending->birth;
		double objects = window->weight / alloc_inclusion(birth->bytes, birth->gap_bytes);
		struct cohort cohort = { .time_ns = (double)birth->time_ns,
					 .bytes = (double)birth->bytes * objects,
					 .objects = objects,
					 .samples = 1 };

		add_cohort(&heap->sites.data[pending->site], &cohort, window);
	}
	heap->pending.count = 0;
}

/* ---- what is in use --------------------------------------------------------------------------- */

/* Hazard by age: neighbouring bins share theirs until they hold enough deaths; what follows the last
 * deaths has its own, so that survivors of an early death count as survivors. */
struct hazard {
	unsigned count;
	double end_ns[AGE_BINS];
	double per_s[AGE_BINS];
};

/* Deaths of a bin as a hazard counts them: where many of those observed die, each is worth more than one
 * (of n that die all, no survivor is left). */
static double weighted_deaths(const struct site *site, unsigned bin)
{
	double observed = site->observed[bin], died = site->died[bin], left;

	if (observed <= 0 || died <= 0)
		return died;
	left = 1 - died / observed;
	if (left < 0.5 / observed)
		left = 0.5 / observed;
	return left < 1 ? -log(left) * observed : died;
}

static void hazard_of(const struct site *site, struct hazard *ret)
{
	double deaths = 0, risk = 0;

	ret->count = 0;
	for (unsigned bin = 0; bin < AGE_BINS; bin++) {
		deaths += weighted_deaths(site, bin);
		risk += site->at_risk[bin];
		if (deaths < DEATHS_PER_BIN && bin + 1 < AGE_BINS)
			continue;
		ret->end_ns[ret->count] = bin + 1 < AGE_BINS ? bin_end_ns(bin) : INFINITY;
		ret->per_s[ret->count++] = risk > 0 ? deaths / risk : 0;
		deaths = risk = 0;
	}
}

static double survival(const struct hazard *hazard, double age_ns)
{
	double from_ns = 0, sum = 0;

	for (unsigned i = 0; i < hazard->count && from_ns < age_ns; i++) {
		double to_ns = hazard->end_ns[i] < age_ns ? hazard->end_ns[i] : age_ns;

		sum += hazard->per_s[i] * (to_ns - from_ns) * 1e-9;
		from_ns = to_ns;
	}
	return exp(-sum);
}

/* Addresses by site that have been followed for long; the caller's. */
static uint32_t *count_old(const struct alloc_heap *heap, uint64_t now_ns)
{
	uint32_t *old = calloc(heap->sites.count + 1, sizeof(*old));

	for (size_t i = 0; old && i < heap->tracked.count; i++) {
		const struct tracked *tracked = &heap->tracked.data[i];

		old[tracked->site] += !tracked->gone_ns && tracked->birth_ns + ALLOC_OLD_NS < now_ns;
	}
	/* An odd one may be taken for free that is not: data can look like a free list's link. */
	for (size_t i = 0; old && i < heap->sites.count; i++)
		if (heap->sites.data[i].ended_old * ENDED_PER_OLD > old[i])
			old[i] = 0;
	return old;
}

int alloc_heap_each_live(const struct alloc_heap *heap, uint64_t now_ns, alloc_live_fn *visit, void *ctx)
{
	cleanup_free uint32_t *old = count_old(heap, now_ns);

	if (!old)
		return -ENOMEM;
	for (size_t i = 0; i < heap->sites.count; i++) {
		const struct site *site = &heap->sites.data[i];
		const bool ends = site->ended * ENDING_SHARE > site->followed;
		struct hazard hazard;

		hazard_of(site, &hazard);
		for (uint32_t k = 0; k < site->cohort_count; k++) {
			const struct cohort *cohort = &site->cohorts[k];
			double age_ns = (double)now_ns - cohort->time_ns;
			double share = site->deaths ? survival(&hazard, age_ns) : 1;
			struct alloc_live live = { .stack = site->stack,
						   .time_ns = (uint64_t)cohort->time_ns,
						   .bytes = cohort->bytes * share,
						   .objects = cohort->objects * share,
						   .samples = cohort->samples,
						   .deaths = !site->deaths && ends ? 1 : site->deaths,
						   .old = old[i] };
			int rc = share > DEAD_SHARE ? visit(ctx, &live) : 0;

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}
