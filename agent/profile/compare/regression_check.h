/* SPDX-License-Identifier: Apache-2.0 */
/* The gate for builds (POST /regression/check): thresholds in points of self share, on top of a
 * comparison. Only functions that the comparison calls changed count, so that noise never fails a
 * build. Pure. */
#ifndef PROFD_PROFILE_REGRESSION_CHECK_H
#define PROFD_PROFILE_REGRESSION_CHECK_H

#include "agent/profile/compare/compare.h"

struct regression_thresholds {	     /* percentage points of self share, 0…100 */
	double function_delta_pct;   /* growth of a function: WARNING */
	double new_hotspot_min_pct;  /* share of one that was below the comparison's threshold:
					WARNING */
	double critical_delta_pct;   /* growth: CRITICAL */
	double critical_hotspot_pct; /* share of a new hotspot: CRITICAL */
};
struct regression_thresholds regression_thresholds_default(void); /* 5, 2, 20, 10 */

enum regression_severity { REGRESSION_NONE, REGRESSION_WARNING, REGRESSION_CRITICAL };
const char *regression_severity_word(enum regression_severity severity); /* "NONE", … */

struct regression_report {
	enum regression_severity severity;	 /* regressionDetected is: not NONE */
	const struct compare_function **changed; /* growth or fall of at least function_delta_pct */
	uint32_t changed_count;
	const struct compare_function **hotspots;
	uint32_t hotspot_count;
};

/* Elements are borrowed from @c. Host functions (environment) and improvements are listed, but
 * never raise the severity. -EINVAL a threshold outside 0…100; -ENOMEM; @ret untouched then. */
int regression_check_init(struct regression_report *ret, const struct compare *c,
			  const struct regression_thresholds *thresholds) must_use;
void regression_check_deinit(struct regression_report *report);

#endif
