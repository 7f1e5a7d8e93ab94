/* SPDX-License-Identifier: Apache-2.0 */
/* Compares one hour of a service with the same hour of earlier days, or with earlier hours: finds
 * the functions whose share left the range of those hours. Method: README.md, "Hours and series".
 * Pure, deterministic, thread-safe. */
#ifndef PROFD_PROFILE_HOUR_OUTLIERS_H
#define PROFD_PROFILE_HOUR_OUTLIERS_H

#include "agent/profile/compare/window_matrix.h"

#define HOUR_OUTLIERS_PAST_MAX   24u
#define HOUR_OUTLIERS_PAST_LEAST 4u

struct hour_function {
	const char *name, *package, *file; /* borrowed from the matrix of the hour, or of the past */
	double base, comparison;	   /* shares: centre of the past, this hour */
	double z;			   /* deviation in its own spread; INFINITY without spread */
	double p, q;
	double interval[2]; /* of the change, at 99 % */
	bool changed;	    /* passes threshold and false discovery, and is not another's doing */
};

struct hour_options {
	double threshold; /* least change of a share, 0…1 */
	double q;	  /* false-discovery level */
	/* Whether the past hour @index counts for a function; NULL = all do. Hours inside an open
	 * alarm of the function are not learned from. */
	bool (*counts)(void *ctx, uint32_t index, const char *name, const char *package);
	void *ctx;
};

/* Functions with a mean share of at least half the threshold, largest change first; @ret is the
 * caller's (free), names are borrowed from the matrices. -ENODATA: too few samples or past hours;
 * -ENOMEM. */
int hour_outliers(const struct window_matrix *hour, const struct window_matrix *const *past,
	      uint32_t past_count, const struct hour_options *options, struct hour_function **ret,
	      size_t *ret_count) must_use;

#endif
