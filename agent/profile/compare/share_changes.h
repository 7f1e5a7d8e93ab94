/* SPDX-License-Identifier: Apache-2.0 */
/* The test of shares: which functions changed their part of a profile by more than their own noise.
 * It sees numbers only; compare.c knows names and profiles. README.md describes the method;
 * comments here use its symbols. Pure, deterministic, thread-safe. */
#ifndef PROFD_PROFILE_SHARE_CHANGES_H
#define PROFD_PROFILE_SHARE_CHANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define SHARE_BLOCKS_WANTED 12u /* about as many time blocks a side */
#define SHARE_BLOCKS_LEAST  6u	/* with samples; below: not enough data */
#define SHARE_SAMPLES_LEAST 200
#define SHARE_CHANGED_MAX   50u /* functions explained one after the other */
#define SHARE_TOTALS_PHI    3.0 /* dispersion and degrees of freedom assumed without windows */
#define SHARE_TOTALS_DF	    10.0
#define SHARE_UNSTEADY_DRIFT                                                                       \
	4.0 /* R above this: the workload's cycle is longer than the profile                       \
	     */

/* Two sides of windows: 0 = base, 1 = comparison. Values are effective samples. */
struct share_data {
	uint32_t window_count[2];
	const double *window_total[2]; /* n of each window */
	void *ctx;
	/* Writes the values of @function on @side into @ret (window_count[side] zeros before). */
	void (*values)(void *ctx, int side, uint32_t function, double *ret);
	bool totals_only; /* no windows known: a fixed, wide noise is assumed */
};

/* One candidate function. */
struct share_row {
	uint32_t function;
	double base, comparison; /* shares p_b, p_c */
	double pooled;		 /* P: share in both sides' samples together */
	double delta;		 /* D = p_c - p_b */
	double tau;		 /* relative restart deviation to allow for */
	double phi, phi_star;	 /* own and shrunk dispersion; of the last data added */
	double variance;	 /* V */
	double df;
	double p, q;	   /* of D; q after false-discovery control */
	double cost_delta; /* d = p_c - k p_b, with the final k */
	bool barred;	   /* never called changed (its name is in doubt, it only waits for work) */
	bool band;	   /* not a candidate: functions below their limit, together (share_bands()) */
	bool doubtful;	   /* barred because of its name; the caller's, not read here */
	bool significant;  /* q and |D| pass */
	bool changed;	   /* and it does not follow from the scale of the steady part */
};

struct share_noise {
	double nu0, phi0;   /* prior of the dispersion */
	double drift;	    /* R */
	uint32_t blocks[2]; /* with samples */
	double samples[2];  /* N */
};

/* Adds the noise of @data to the rows with weight @weight (1 unless the data is one of several
 * strata): shares, D and V grow by the weighted parts, df follows Satterthwaite. Rows start zeroed
 * but for `function`; call share_rows_test() after the last. -ENOMEM. */
int share_noise_add(const struct share_data *data, double weight, struct share_row *rows,
		    size_t row_count, struct share_noise *ret) must_use;

struct share_limits {
	double threshold; /* delta: least change of a share, 0…1 */
	double q;	  /* false-discovery level, 1 - confidence */
	double lives[2];  /* effective process lives of the sides */
	/* Cost of the comparison over that of the base, per second or unit of work; 0 = not known. */
	double cost_ratio;
};

/* The answer of the steady part of a profile. */
struct share_fit {
	double scale; /* k: its share in the comparison over its share in the base */
	bool settled; /* it is a majority; else shares cannot tell what changed and what stayed */
};

/* Restart variance, p, q, then what the scale of the steady part leaves of each change: sets
 * everything from `variance` on. Bands say what is steady, but are neither judged nor counted.
 * @explain false: every significant row is changed (values that are no shares). -ENOMEM. */
int share_rows_test(struct share_row *rows, size_t row_count, const struct share_limits *limits,
		    bool explain, struct share_fit *ret) must_use;

#define SHARE_BANDS_MAX 24u
#define SHARE_BAND_NONE UINT32_MAX

/* Puts the functions whose mean @share is below @limit into bands of like size, each about a
 * twentieth of the profile, the larger functions first: @ret_band[i], SHARE_BAND_NONE for the
 * others. Returns the number of bands; the functions too small for one are the last band's.
 * -ENOMEM. */
int share_bands(const double *share, uint32_t count, double limit, uint32_t *ret_band) must_use;

/* Drift factor R of one series of block values: how much more long blocks vary than short ones. */
double share_series_drift(const double *y, uint32_t count, double least);

/* Windows of one block for sides of @a and @b windows: about SHARE_BLOCKS_WANTED blocks of the
 * shorter. */
uint32_t share_block_windows(uint32_t a, uint32_t b);
/* The least drift factor R0 to assume for sides of @a and @b windows. */
double share_drift_least(uint32_t a, uint32_t b);

#endif
