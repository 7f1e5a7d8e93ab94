/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two profiles: which functions changed, what that means, and how significant it is.
 * README.md of this folder describes the method, its constants and its error rates. Pure,
 * deterministic, thread-safe; profiles and matrices are borrowed. */
#ifndef PROFD_PROFILE_COMPARE_H
#define PROFD_PROFILE_COMPARE_H

#include "agent/profile/profile.h"
#include "agent/profile/compare/window_matrix.h"

struct compare_side {
	const struct profile *profile;
	const struct window_matrix *windows; /* NULL = made here from the profile's events */
	double units;	       /* of work done (requests, …) on this side; 0 = not known */
	double runqueue_share; /* run-queue wait / (CPU + run-queue wait), 0…1; < 0 = not known */
};

struct compare_options {
	double threshold_points;    /* points of share, > 0; 0 = 0.5 */
	double confidence;	    /* 0.5…0.99999; 0 = 0.99 */
	double memory_sample_bytes; /* mean sampling interval of memory and alloc; 0 = 512 KiB, Go's
				       default */
};

enum compare_change { COMPARE_CHANGED, COMPARE_NEW, COMPARE_GONE };

/* Percentages are of the side's total; values per second, or the level for memory and goroutine. */
struct compare_function {
	const char *name, *package, *file; /* borrowed from the comparison's matrices */
	uint32_t line;
	uint8_t kind; /* enum profile_frame_kind */
	enum compare_change change;
	double base_pct, comparison_pct, delta_pct;
	double base_cumulative_pct, comparison_cumulative_pct;
	double base_value, comparison_value;
	double p_value, q_value;
	double interval[2];    /* of delta_pct, at the confidence asked for */
	double cost_delta_pct; /* change of its cost against the unchanged rest, in points of base
				*/
	double cost_growth;    /* comparison / (k base) - 1; INFINITY for new ones */
	bool environment;      /* shows the host, not the program: never decides the verdict */
	bool cumulative;       /* shares above are cumulative: no callee explains the change */
};

struct compare_moved {
	const char *from, *to; /* function names, borrowed as above */
	double points;
};

enum compare_verdict { COMPARE_UNCHANGED, COMPARE_IMPROVED, COMPARE_REGRESSED };
enum compare_cause {
	COMPARE_CAUSE_NONE,
	COMPARE_CAUSE_FUNCTIONS,
	COMPARE_CAUSE_LOAD,
	COMPARE_CAUSE_CONTENDED,
	COMPARE_CAUSE_COMPOSITION,
};

#define COMPARE_SUMMARY_SIZE 640
#define COMPARE_DILUTED_MAX  50u

struct compare {
	enum compare_verdict verdict;
	enum compare_cause cause;
	bool insufficient_data;
	/* One side has so many more unknown frames that names were found for it, not made by the
	 * program: functions of one side only are never called changed. */
	bool names_in_doubt;
	bool unsteady;	      /* the workload's cycle is longer than half of a side */
	bool different_lives; /* the sides are different process lives: restart noise is allowed for
			       */
	bool overall_known;   /* false: base is 0 and comparison is not (overallDelta null) */
	bool overall_significant;
	double overall_delta_pct; /* of cost per second (per unit, of the level) */
	double overall_p;
	double min_detectable_points; /* for a function of 5 %; < 0 = not known */
	double confidence, threshold_points;
	uint64_t unchanged; /* functions of either side in no list */
	struct compare_function *regressions, *improvements; /* largest change first; owned */
	uint32_t regression_count, improvement_count;
	struct compare_function
		*diluted; /* significant, but explained by another's change; owned */
	uint32_t diluted_count;
	struct compare_function
		*doubtful; /* significant, but on one side only while names are in doubt; owned */
	uint32_t doubtful_count;
	struct compare_function
		*unexplained; /* cumulative changes that no callee explains; owned */
	uint32_t unexplained_count;
	struct compare_moved *moved; /* owned */
	uint32_t moved_count;
	bool moved_partly; /* too many functions came and went: renames were not looked for among all */
	struct profile_quality base_quality, comparison_quality;
	char summary[COMPARE_SUMMARY_SIZE]; /* one sentence or two for people */
	struct window_matrix *owned[4];	    /* private: hold the texts */
};

const char *compare_verdict_word(enum compare_verdict verdict); /* "improved", … */
const char *compare_cause_word(enum compare_cause cause);	/* "load", …; NULL for none */
const char *compare_change_word(enum compare_change change);

/* Fills @ret (compare_deinit()). -EINVAL: types differ or an option is out of range; -ENOMEM,
 * -E2BIG.
 * @ret is untouched on failure. */
int compare_init(struct compare *ret, const struct compare_side *base,
		 const struct compare_side *comparison, const struct compare_options *options)
	must_use;
void compare_deinit(struct compare *c);
static inline void cleanup_compare_fn(struct compare *c)
{
	compare_deinit(c);
}
#define cleanup_compare __attribute__((__cleanup__(cleanup_compare_fn)))

#endif
