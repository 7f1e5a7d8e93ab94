/* SPDX-License-Identifier: Apache-2.0 */
/* The hazard of a site's blocks by age: how likely one of an age is freed in the next second, from
 * what windows of the probes saw. Pure. */
#ifndef PROFD_COLLECT_ALLOC_HAZARD_H
#define PROFD_COLLECT_ALLOC_HAZARD_H

#include <stdbool.h>
#include <stdint.h>

#define ALLOC_AGE_BINS 40u /* powers of two from 1 us on */

/* Followed addresses of one site, and what became of them. By age: how often an address was
 * observed at it, for how long (seconds; one that died, for as long as it would have been), and how
 * often it died. */
struct alloc_ages {
	uint32_t deaths;	  /* seen in windows */
	uint32_t followed, ended; /* addresses so far; of them freed unseen */
	double followed_s;	  /* how long they were followed, in all */
	float observed[ALLOC_AGE_BINS];
	float at_risk[ALLOC_AGE_BINS];
	float died[ALLOC_AGE_BINS];
};

/* Bin 0 ends at 1,024 ns, each other at twice the age of the one before. */
unsigned alloc_bin_of(double age_ns);
double alloc_bin_end_ns(unsigned bin);
/* An address was observed from one age to the other. Its time counts @scale times. */
void alloc_ages_watch(struct alloc_ages *ages, double from_ns, double to_ns, double scale);
/* No window saw one end, but the allocator's own headers say that many are free. What was reused
 * meanwhile is missing there. */
bool alloc_ends_unseen(const struct alloc_ages *ages);

/* Hazard by age: neighbouring bins share theirs until they hold enough deaths. The tail, after the
 * last death, has its own, so that survivors of an early death count as survivors. None that died
 * there would say that nothing ends any more: a part of a death at the hazard before it is added
 * (TAIL_PRIOR). Blocks of a queue live for about the same time: before it none ends
 * (MISSED_DEATHS). */
struct alloc_piece {
	double end_s;
	double per_s;
	double deaths, risk_s;
	bool is_tail;
};

struct alloc_hazard {
	double log_variance; /* of what all pieces together leave open */
	unsigned count;
	struct alloc_piece pieces[ALLOC_AGE_BINS];
};

/* The tail of one cohort: the share of its births that reaches the tail, and for how long the first
 * and the last of them are in it. */
struct alloc_tail {
	double reaches, from_s, to_s;
};

/* The bytes of a site that are left, by the piece of the hazard that they have reached, and how
 * much the hazard of that piece took: the effect of an error of the hazard. */
struct alloc_remains {
	double bytes[ALLOC_AGE_BINS];
	double taken[ALLOC_AGE_BINS];
};

/* @ages: with deaths, or alloc_ends_unseen(). */
void alloc_hazard_of(const struct alloc_ages *ages, struct alloc_hazard *ret);
/* The mean survival of births whose ages are spread from @from_s to @to_s, without the tail, for
 * which it fills @tail; @tail is untouched if none of them reaches it. @bytes of births go into
 * @ret. */
double alloc_survival(const struct alloc_hazard *hazard, double from_s, double to_s, double bytes,
		      struct alloc_remains *ret, struct alloc_tail *tail);
/* The share of a cohort's births that is left in the tail, if its hazard is @per_s. */
double alloc_left_in_tail(const struct alloc_tail *tail, double per_s);
/* The variance of the logarithm of what is left that errors of the hazard before the tail cause
 * (delta method): a piece with d deaths is known to 1/sqrt(d), and it changes what it took of all
 * that went through it. */
double alloc_hazard_variance(const struct alloc_hazard *hazard,
			     const struct alloc_remains *remains);

#endif
