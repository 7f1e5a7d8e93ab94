/* SPDX-License-Identifier: Apache-2.0 */
/* State of one comparison, shared by the compare_*.c files. Side 0 is the base, 1 the comparison.
 */
#ifndef PROFD_PROFILE_COMPARE_INTERNAL_H
#define PROFD_PROFILE_COMPARE_INTERNAL_H

#include "agent/profile/compare/compare.h"
#include "agent/profile/compare/compare_join.h"
#include "agent/profile/compare/share_changes.h"

/* A level is one point of a saw-tooth (collector cycles): relative deviation to allow for. */
#define COMPARE_LEVEL_TAU 0.10

struct comparison {
	struct compare *out;
	const struct compare_side *side[2];
	const struct window_matrix *m[2]; /* of equal window length */
	uint32_t *map[2]; /* owned: profile function -> matrix function; NULL for a lent matrix */
	struct join join;
	double threshold, q; /* fractions */
	double sample_bytes;
	double *sum[2];	 /* owned: self value by joined function */
	double total[2]; /* value, as the cells sum to */
	double seconds[2];
	double tau_user, tau_kernel;
	bool composition;	      /* processes came or went */
	const char *composition_name; /* one of them */
	struct share_row *rows;	      /* owned: candidates */
	size_t row_count;
	size_t band_count; /* rows after them: functions below their limit, in bands */
	uint32_t *band_of; /* owned: by joined function; NULL = there are no bands */
	struct share_noise noise;
	double scale;			   /* k */
	bool unsettled; /* no majority of the profile is steady */
	struct share_row *cumulative_rows; /* owned: candidates by cumulative share */
	size_t cumulative_row_count;
};

/* Candidates: mean share at least half the threshold, by self or by cumulative cells. -ENOMEM. */
int compare_candidates(struct comparison *c, bool cumulative, struct share_row **ret,
		       size_t *ret_count) must_use;
/* Adds bands of the functions that are no candidates to the rows. -ENOMEM. */
int compare_bands(struct comparison *c) must_use;
/* Relative restart deviation of a joined function. */
double compare_tau(const struct comparison *c, uint32_t function);

/* The families of types; each fills rows, noise and scale. -ENOMEM. */
int compare_by_shares(struct comparison *c) must_use;
int compare_by_durations(struct comparison *c) must_use;
int compare_by_levels(struct comparison *c) must_use; /* memory, alloc */
int compare_by_counts(struct comparison *c) must_use; /* goroutine */

/* Cumulative changes that neither a callee nor an own change explains, into out->unexplained.
 * -ENOMEM. */
int compare_unexplained(struct comparison *c) must_use;

/* Takes inlined, outlined and renamed functions out of the changed ones, into out->moved. -ENOMEM.
 */
int compare_moved(struct comparison *c) must_use;

/* Overall change of cost, verdict and cause. -ENOMEM. */
/* Sets c->out->names_in_doubt. -ENOMEM. */
int compare_names(struct comparison *c) must_use;
int compare_overall(struct comparison *c) must_use;
/* Functions whose names are in doubt may outweigh the judged ones: then there is not enough data.
 * After compare_moved(). */
void compare_doubt(struct comparison *c);
void compare_verdict(struct comparison *c);
void compare_summary(struct comparison *c);

/* One list element from a row. */
struct compare_function compare_element(const struct comparison *c, const struct share_row *row);

/* Whether an exact count went from @base to @comparison by more than a steady program's counts do.
 */
bool compare_count_changed(double base, double comparison);

/* Whether the whole is judged by its cost per unit of work. Both sides' units must be known, and
 * the type's values must grow with the work; a level does not. */
bool compare_by_unit(const struct comparison *c);
/* Cost of the comparison over that of the base, per unit of work if units are known, else per
 * second; 0 = not known. */
double compare_cost_ratio(const struct comparison *c);

/* Whether a type's values are durations of waits, a level of bytes, or exact counts. */
static inline bool compare_is_judged(const struct comparison *c, enum profile_judged judged)
{
	return profile_type_info(c->m[0]->type)->judged == judged;
}

#endif
