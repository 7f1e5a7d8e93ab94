// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_heap.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/collect/alloc/alloc_hazard.h"

#define ENDED_PER_OLD	20u
#define OLD_MANY	20u
#define OLD_AGES_S                                                                                 \
	150.0 /* together, none having ended: with 95 % they live a third as long on average */
#define DEAD_SHARE	1e-9 /* of a cohort: not worth keeping */
#define TAIL_STEPS	24u /* hazards of the tail that are tried, each e^0.5 times the one before */
#define TAIL_FIRST	(-9.0) /* logarithm of the first, beside the expected one */
#define LOG_ERROR_MAX	2.0
#define BIN_LOG_VARIANCE                                                                           \
	(0.48 / 12) /* ln(2)^2 / 12: blocks of a queue end anywhere in one bin of age */
#define SIZES_SAMPLES                                                                              \
	20u /* as many say what sizes there are: a tenth of a continuous range lies beyond theirs  \
	     */
#define OWN_AGE_NS	1000000000ull
#define OWN_MIN		3u
#define COHORT_SAMPLES                                                                             \
	30u /* as many say how much was allocated at a time, where what is freed rests on it */

/* Births of one site in one period, or in several that were joined. */
struct cohort {
	double from_ns, to_ns;
	double bytes, objects;
	double squares; /* of the bytes that each sample stands for */
};

struct site {
	uint64_t stack;
	struct cohort *cohorts; /* owned, ascending time */
	uint32_t cohort_count, cohort_capacity;
	uint32_t samples;
	uint32_t least_bytes, most_bytes; /* of one of them */
	uint32_t ended_old; /* followed ones that ended old, seen or not */
	uint32_t watched, young_deaths; /* births in windows that see blocks end; ends in the same one */
	struct alloc_ages ages;
};

struct tracked {
	struct alloc_followed at;
	uint64_t birth_ns;
	uint64_t gone_ns; /* in the window under way; 0 = still followed */
	uint64_t content, same_since_ns; /* a hash of its first words, 0 = not known */
	uint32_t site;
	bool seen; /* its death was */
	bool watched; /* born in a window that would have seen it freed */
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
	uint64_t until_ns; /* the end of the last period */
	uint64_t missed_ns; /* of the last in which the probes were not open all the time */
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

/* ---- births and deaths -------------------------------------------------------------------------
 */

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

/* Follows its address, if there is room. */
static int track(struct alloc_heap *heap, const struct alloc_birth *birth, uint32_t site)
{
	const struct tracked tracked = { .at = { birth->address, birth->bytes },
					 .birth_ns = birth->time_ns,
					 .site = site };
	int rc;

	if (!birth->address || heap->tracked.count >= ALLOC_TRACKED_HEAP_MAX)
		return 0;
	/* Born where another one still is: that one's end was missed. */
	(void)alloc_heap_gone(heap, birth->address, birth->time_ns, false);
	heap->sites.data[site].ages.followed++;
	rc = u64map_put(&heap->tracked_at, birth->address, heap->tracked.count);
	return rc < 0 ? rc : tracked_vec_push(&heap->tracked, tracked);
}

int alloc_heap_birth(struct alloc_heap *heap, const struct alloc_birth *birth)
{
	struct pending pending = { .birth = *birth };
	int rc = find_site(heap, birth->stack, &pending.site);

	if (rc == 0)
		rc = pending_vec_push(&heap->pending, pending);
	return rc < 0 ? rc : track(heap, birth, pending.site);
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

void alloc_heap_looked(struct alloc_heap *heap, uint64_t address, uint64_t content,
		       uint64_t time_ns)
{
	struct tracked *tracked;
	uint64_t at;

	if (!u64map_get(&heap->tracked_at, address, &at))
		return;
	tracked = &heap->tracked.data[at];
	if (tracked->content != content)
		tracked->same_since_ns = tracked->content ? time_ns : tracked->birth_ns;
	tracked->content = content;
}

size_t alloc_heap_tracked(const struct alloc_heap *heap)
{
	return heap->tracked_at.count;
}

size_t alloc_heap_followed(const struct alloc_heap *heap, struct alloc_followed *ret, size_t max)
{
	size_t count = 0;

	for (size_t i = 0; i < heap->tracked.count && count < max; i++)
		if (!heap->tracked.data[i].gone_ns)
			ret[count++] = heap->tracked.data[i].at;
	return count;
}

/* ---- the end of a window --------------------------------------------------------------------- */

/* One that died counts as observed for the rest of its bin, as far as the window went: that is what
 * those who did not die in it are compared with. */
static uint64_t observed_until(const struct tracked *tracked, const struct alloc_window *window)
{
	double age_ns = (double)(tracked->gone_ns - tracked->birth_ns), end_ns;

	if (!tracked->gone_ns)
		return window->close_ns;
	end_ns = (double)tracked->gone_ns;
	if (tracked->seen)
		end_ns = (double)tracked->birth_ns + alloc_bin_end_ns(alloc_bin_of(age_ns));
	return end_ns < (double)window->close_ns ? (uint64_t)end_ns : window->close_ns;
}

/* The time that followed addresses spent in the window, and those of them that died. */
static void observe(struct alloc_heap *heap, const struct alloc_window *window)
{
	for (size_t i = 0; i < heap->tracked.count; i++) {
		struct tracked *tracked = &heap->tracked.data[i];
		struct site *site = &heap->sites.data[tracked->site];
		uint64_t from_ns = tracked->birth_ns > window->open_ns ? tracked->birth_ns : window->open_ns;
		uint64_t to_ns = observed_until(tracked, window);

		const bool unseen = tracked->gone_ns && !tracked->seen && tracked->gone_ns < window->close_ns;
		const bool is_new = tracked->birth_ns >= window->open_ns;
		bool doubtful;

		site->watched += is_new && !window->blind;
		site->young_deaths += is_new && tracked->gone_ns && tracked->seen;
		tracked->watched |= is_new && !window->blind;
		/* Where most blocks end at once nobody sees that in a blind window. The address soon is
		 * another block's, perhaps of another place: its end says nothing of this place. */
		doubtful = !tracked->watched && 2 * site->young_deaths > site->watched;
		/* An address that ended unseen was gone when the window opened. Counting it as
		 * watched would make the other addresses seem to live longer. */
		if (from_ns < to_ns && !window->blind && !unseen && !doubtful)
			alloc_ages_watch(&site->ages, (double)(from_ns - tracked->birth_ns),
					 (double)(to_ns - tracked->birth_ns), window->dilation);
		if (tracked->gone_ns && tracked->seen && !doubtful) {
			site->ages.died[alloc_bin_of((double)(tracked->gone_ns - tracked->birth_ns))] += 1;
			site->ages.deaths++;
		}
		site->ages.ended += tracked->gone_ns && (!tracked->seen || doubtful);
		site->ages.followed_s += 1e-9 * fmax(0, (double)window->end_ns -
						       fmax((double)tracked->birth_ns, (double)heap->until_ns));
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

		if (tracked.gone_ns || u64map_put(&heap->tracked_at, tracked.at.address, kept) < 0)
			continue;
		heap->tracked.data[kept++] = tracked;
	}
	heap->tracked.count = kept;
}

/* How many each site may keep, so that all together keep @max. */
static uint32_t share_of_each(const uint32_t *counts, size_t sites, size_t max)
{
	uint32_t share = (uint32_t)max;
	size_t sum;

	do {
		sum = 0;
		for (size_t i = 0; i < sites; i++)
			sum += counts[i] < share ? counts[i] : share;
		share -= sum > max ? (share + 3) / 4 : 0;
	} while (sum > max && share > 1);
	return share;
}

void alloc_heap_thin(struct alloc_heap *heap, size_t max,
		     void (*dropped)(void *ctx, uint64_t address), void *ctx)
{
	cleanup_free uint32_t *counts = NULL;
	uint32_t share;

	if (heap->tracked.count <= max)
		return;
	counts = calloc(heap->sites.count + 1, sizeof(*counts));
	for (size_t i = 0; counts && i < heap->tracked.count; i++)
		counts[heap->tracked.data[i].site]++;
	share = counts ? share_of_each(counts, heap->sites.count, max) : 0;
	for (size_t i = 0; counts && i < heap->tracked.count; i++) {
		struct tracked *tracked = &heap->tracked.data[i];
		const double chance = (double)hash_combine(heap->until_ns, tracked->at.address) * 0x1p-64;

		if (chance * counts[tracked->site] < share)
			continue;
		tracked->gone_ns = heap->until_ns;
		heap->sites.data[tracked->site].ages.followed--;
		dropped(ctx, tracked->at.address);
	}
	forget_gone(heap);
}

static void join(struct cohort *to, const struct cohort *from)
{
	to->from_ns = fmin(to->from_ns, from->from_ns);
	to->to_ns = fmax(to->to_ns, from->to_ns);
	to->bytes += from->bytes;
	to->objects += from->objects;
	to->squares += from->squares;
}

/* How many samples that stand for the same say as much. */
static double samples_in(const struct cohort *cohort)
{
	return cohort->bytes * cohort->bytes / cohort->squares;
}

static double middle_ns(const struct cohort *cohort)
{
	return (cohort->from_ns + cohort->to_ns) / 2;
}

/* Joins the two neighbours whose ages are most alike. */
static void make_room(struct site *site, double now_ns)
{
	uint32_t best = 0;
	double best_ratio = INFINITY;

	for (uint32_t i = 0; i + 1 < site->cohort_count; i++) {
		double ratio = (now_ns - middle_ns(&site->cohorts[i]) + 1e6) /
			       (now_ns - middle_ns(&site->cohorts[i + 1]) + 1e6);

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

static void add_cohort(struct site *site, const struct cohort *cohort,
		       const struct alloc_window *window)
{
	struct cohort *last = site->cohort_count ? &site->cohorts[site->cohort_count - 1] : NULL;

	if (last && last->to_ns >= (double)window->end_ns) {
		join(last, cohort);
		return;
	}
	if (!has_room(site)) {
		if (site->cohort_count < 2)
			return;
		make_room(site, (double)window->end_ns);
	}
	site->cohorts[site->cohort_count++] = *cohort;
}

static void add_size(struct site *site, uint64_t bytes)
{
	const uint32_t size = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;

	if (!site->samples || size < site->least_bytes)
		site->least_bytes = size;
	if (size > site->most_bytes)
		site->most_bytes = size;
	site->samples += site->samples < UINT32_MAX;
}

void alloc_heap_close(struct alloc_heap *heap, const struct alloc_window *window)
{
	observe(heap, window);
	forget_gone(heap);
	for (size_t i = 0; i < heap->pending.count; i++) {
		const struct pending *pending = &heap->pending.data[i];
		const struct alloc_birth *birth = &pending->birth;
		const double objects = window->weight / alloc_inclusion(birth->bytes, birth->gap_bytes);
		const double bytes = (double)birth->bytes * objects;
		const struct cohort cohort = { .from_ns = (double)window->begin_ns,
					       .to_ns = (double)window->end_ns,
					       .bytes = bytes,
					       .objects = objects,
					       .squares = bytes * bytes };

		add_size(&heap->sites.data[pending->site], birth->bytes);
		add_cohort(&heap->sites.data[pending->site], &cohort, window);
	}
	heap->pending.count = 0;
	heap->until_ns = window->end_ns;
	if (window->blind || window->open_ns > window->begin_ns || window->close_ns < window->end_ns)
		heap->missed_ns = window->end_ns;
}

int alloc_heap_adopt(struct alloc_heap *heap, const struct alloc_birth *birth)
{
	/* Ages are spread over the time of a cohort. */
	const struct alloc_window window = { .end_ns = birth->time_ns };
	const struct cohort cohort = { .from_ns = (double)birth->time_ns - 1e6,
				       .to_ns = (double)birth->time_ns,
				       .bytes = (double)birth->bytes,
				       .objects = 1,
				       .squares = (double)birth->bytes * (double)birth->bytes };
	uint32_t site;
	int rc = find_site(heap, birth->stack, &site);

	if (rc < 0)
		return rc;
	add_size(&heap->sites.data[site], birth->bytes);
	add_cohort(&heap->sites.data[site], &cohort, &window);
	return track(heap, birth, site);
}

/* ---- what is in use ---------------------------------------------------------------------------
 */

/* ---- one site ----------------------------------------------------------------------------------
 */

/* How far the site's bytes of a time are spread beyond what so few samples are, at least 1. */
static double dispersion(const struct cohort *cohorts, uint32_t count)
{
	struct cohort all = { 0 };
	double span_ns = 0, squares = 0;

	for (uint32_t i = 0; i < count; i++) {
		join(&all, &cohorts[i]);
		span_ns += cohorts[i].to_ns - cohorts[i].from_ns;
	}
	for (uint32_t i = 0; i < count; i++) {
		double share = (cohorts[i].to_ns - cohorts[i].from_ns) / span_ns;
		double relative = cohorts[i].bytes / (all.bytes * share) - 1;

		squares += samples_in(&all) * share * relative * relative;
	}
	return count > 1 && squares > count - 1 ? squares / (count - 1) : 1;
}

/* The cohorts from the last one back, neighbours joined until each has enough samples. */
static uint32_t smooth(const struct site *site, struct cohort *ret)
{
	uint32_t count = 0;

	for (uint32_t i = site->cohort_count; i-- > 0;) {
		if (count && samples_in(&ret[count - 1]) < COHORT_SAMPLES)
			join(&ret[count - 1], &site->cohorts[i]);
		else
			ret[count++] = site->cohorts[i];
	}
	return count;
}

struct estimate {
	struct cohort cohorts[ALLOC_COHORTS_MAX];
	double shares[ALLOC_COHORTS_MAX]; /* still in use */
	struct alloc_tail tails[ALLOC_COHORTS_MAX];
	uint32_t count;
	double error;
};

/* Few deaths leave the hazard of the tail open by orders of magnitude, and what is left with it.
 * All that it may be is tried, as likely as its deaths make it: Gamma(deaths, 1 / risk). Adds to
 * the shares of @e what is left in the tail. The site's bytes become the geometric mean of those by
 * each hazard. Returns the variance of their logarithm. */
static double add_tail(const struct alloc_piece *tail, double *left, struct estimate *e)
{
	double in_tail[ALLOC_COHORTS_MAX] = { 0 }, before = 0, after = 0;
	double weights = 0, logs = 0, squares = 0, scale;

	for (uint32_t k = 0; k < e->count; k++)
		before += e->cohorts[k].bytes * e->shares[k];
	for (unsigned step = 0; step < TAIL_STEPS; step++) {
		const double ratio = exp(TAIL_FIRST + 0.5 * step), per_s = tail->per_s * ratio;
		const double weight = pow(ratio, tail->deaths) * exp(-tail->deaths * ratio);
		double bytes = before;

		for (uint32_t k = 0; k < e->count; k++) {
			const double share = alloc_left_in_tail(&e->tails[k], per_s);

			in_tail[k] += weight * share;
			bytes += e->cohorts[k].bytes * share;
		}
		weights += weight;
		bytes = log(fmax(bytes, DBL_MIN));
		logs += weight * bytes;
		squares += weight * bytes * bytes;
	}
	logs /= weights;
	for (uint32_t k = 0; k < e->count; k++)
		after += e->cohorts[k].bytes * in_tail[k];
	scale = after > 0 ? fmax(exp(logs) - before, 0) / after : 0;
	for (uint32_t k = 0; k < e->count; k++)
		e->shares[k] += in_tail[k] * scale;
	*left = after * scale;
	return fmin(squares / weights - logs * logs, LOG_ERROR_MAX * LOG_ERROR_MAX);
}

static void estimate(const struct site *site, double now_ns, struct estimate *ret)
{
	const bool ends = site->ages.deaths || alloc_ends_unseen(&site->ages);
	struct alloc_remains remains = { 0 };
	struct alloc_hazard hazard;
	double sum = 0, squares = 0;

	if (ends)
		alloc_hazard_of(&site->ages, &hazard);
	if (ends)
		ret->count = smooth(site, ret->cohorts);
	else
		memcpy(ret->cohorts, site->cohorts, (ret->count = site->cohort_count) * sizeof(*ret->cohorts));
	for (uint32_t k = 0; k < ret->count; k++) {
		const struct cohort *cohort = &ret->cohorts[k];

		ret->tails[k] = (struct alloc_tail){ 0 };
		ret->shares[k] = ends ? alloc_survival(&hazard, (now_ns - cohort->to_ns) * 1e-9,
						 (now_ns - cohort->from_ns) * 1e-9, cohort->bytes, &remains,
						 &ret->tails[k])
				      : 1;
	}
	if (ends && hazard.pieces[hazard.count - 1].is_tail)
		hazard.log_variance = add_tail(&hazard.pieces[hazard.count - 1], &remains.bytes[hazard.count - 1],
					ret);
	for (uint32_t k = 0; k < ret->count; k++) {
		sum += ret->cohorts[k].bytes * ret->shares[k];
		squares += ret->cohorts[k].squares * ret->shares[k] * ret->shares[k];
	}
	ret->error = 0;
	if (sum > 0)
		ret->error = sqrt(squares / (sum * sum) * dispersion(ret->cohorts, ret->count) +
				  (ends ? expm1(BIN_LOG_VARIANCE + hazard.log_variance) +
						  alloc_hazard_variance(&hazard, &remains)
					: 0));
}

struct old {
	uint32_t count;
	double age_s; /* of all of them together */
	uint32_t same; /* what is in them has not changed for half as long */
	uint32_t sure; /* of these: since it was born, in a window that would have seen it freed */
	double sure_s;
	bool few;
};

static bool ends_at_times(const struct site *site, const struct old *old)
{
	return site->ages.deaths || site->ages.ended * ENDED_PER_OLD > old->count;
}

/* Are they what they were? An address that is freed and used again between two windows looks as if
 * it lived on, but for what is in it. Many of which none was ever seen to end are believed without
 * (a table may be written for ever). An odd one may be taken for free that is not: data can look
 * like a free list's link. Where blocks are freed, a place that keeps all of its own takes them
 * over: only what has not changed since it was born is the place's still. */
static bool lives_on(const struct site *site, const struct old *old)
{
	const bool ends = ends_at_times(site, old);

	return (ends ? old->sure_s : old->age_s) >= OLD_AGES_S &&
	       site->ended_old * ENDED_PER_OLD <= (ends ? old->sure : old->count) &&
	       (old->same * 2 >= old->count || (!ends && old->count >= OLD_MANY));
}

static bool none_ended(const struct site *site, const struct old *old)
{
	return !site->ages.deaths && !site->ages.ended && !site->ended_old && old->same == old->count;
}

/* Addresses by site that have been followed for long; the caller's. */
static struct old *count_old(const struct alloc_heap *heap, uint64_t now_ns)
{
	struct old *old = calloc(heap->sites.count + 1, sizeof(*old));

	for (size_t i = 0; old && i < heap->tracked.count; i++) {
		const struct tracked *tracked = &heap->tracked.data[i];

		struct old *of_site = &old[tracked->site];
		const double age_s = (double)(now_ns - tracked->birth_ns) * 1e-9;
		const bool unchanged = tracked->same_since_ns <= tracked->birth_ns;

		if (tracked->gone_ns || tracked->birth_ns + ALLOC_OLD_NS >= now_ns)
			continue;
		of_site->count++;
		of_site->age_s += age_s;
		/* Never looked at where the probes stay: no end is missed there. */
		of_site->same += !tracked->content || tracked->same_since_ns + ALLOC_OLD_NS / 2 < now_ns;
		of_site->sure += tracked->watched && unchanged;
		of_site->sure_s += tracked->watched && unchanged ? age_s : 0;
	}
	for (size_t i = 0; old && i < heap->sites.count; i++) {
		if (lives_on(&heap->sites.data[i], &old[i])) {
			if (ends_at_times(&heap->sites.data[i], &old[i]))
				old[i].count = old[i].sure;
			continue;
		}
		old[i].few = old[i].count && none_ended(&heap->sites.data[i], &old[i]);
		if (!old[i].few)
			old[i].count = 0;
	}
	return old;
}

/* ---- places of which none was seen to end ---------------------------------------------------- */

/* Followed addresses of one site that are not young. */
struct own {
	uint32_t count;
	uint32_t same; /* hold what they held when they were born, and nobody else holds the same */
};

/* By site; the caller's. */
static struct own *count_own(const struct alloc_heap *heap)
{
	struct own *own = calloc(heap->sites.count + 1, sizeof(*own));
	struct u64map holders = { 0 };
	int rc = own ? 0 : -ENOMEM;

	for (size_t i = 0; i < heap->tracked.count && rc == 0; i++) {
		uint64_t count = 0;

		(void)u64map_get(&holders, heap->tracked.data[i].content, &count);
		rc = u64map_put(&holders, heap->tracked.data[i].content, count + 1);
	}
	for (size_t i = 0; i < heap->tracked.count && rc == 0; i++) {
		const struct tracked *tracked = &heap->tracked.data[i];
		uint64_t count = 0;

		if (tracked->gone_ns || tracked->birth_ns + OWN_AGE_NS >= heap->until_ns)
			continue;
		(void)u64map_get(&holders, tracked->content, &count);
		own[tracked->site].count++;
		own[tracked->site].same += tracked->content && count == 1 &&
					   tracked->same_since_ns <= tracked->birth_ns;
	}
	u64map_deinit(&holders);
	if (rc < 0) {
		free(own);
		own = NULL;
	}
	return own;
}

/* It keeps what it allocates: the probes have been open since its first, or most of what is in its
 * blocks can only be its own. That windows saw none end says little: what lives for as long as a
 * queue is deep ends at one age, and that no two windows lie so far apart is likely for minutes. */
static bool is_sure(const struct alloc_heap *heap, const struct site *site, const struct own *own)
{
	return (site->cohort_count && site->cohorts[0].from_ns >= (double)heap->missed_ns) ||
	       (own->same >= OWN_MIN && own->same * 2 >= own->count);
}

int alloc_heap_each_live(const struct alloc_heap *heap, uint64_t now_ns, alloc_live_fn *visit,
			 void *ctx)
{
	cleanup_free struct old *old = count_old(heap, now_ns);
	cleanup_free struct own *own = count_own(heap);
	cleanup_free struct estimate *site_now = malloc(sizeof(*site_now));

	if (!old || !own || !site_now)
		return -ENOMEM;
	for (size_t i = 0; i < heap->sites.count; i++) {
		const struct site *site = &heap->sites.data[i];
		const bool sizes = site->samples >= SIZES_SAMPLES;
		const bool unseen = alloc_ends_unseen(&site->ages);
		const bool unsure = !site->ages.deaths && !unseen && !is_sure(heap, site, &own[i]);

		estimate(site, (double)heap->until_ns, site_now);
		for (uint32_t k = 0; k < site_now->count; k++) {
			const struct cohort *cohort = &site_now->cohorts[k];
			double share = site_now->shares[k];
			struct alloc_live live = { .stack = site->stack,
						   .time_ns = (uint64_t)middle_ns(cohort),
						   .bytes = cohort->bytes * share,
						   .objects = cohort->objects * share,
						   .error = site_now->error,
						   .least_bytes = sizes ? site->least_bytes : 0,
						   .most_bytes = sizes ? site->most_bytes : 0,
						   .deaths = unseen ? 1 : site->ages.deaths,
						   .old = old[i].count,
						   .unsure = unsure,
						   .few = old[i].few };
			int rc = share > DEAD_SHARE ? visit(ctx, &live) : 0;

			if (rc < 0)
				return rc;
		}
	}
	return 0;
}
