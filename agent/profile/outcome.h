/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of bpf/outcome.def as a table: what an outcome means for a sample and where it is shown.
 * Thread-safe. */
#ifndef PROFD_PROFILE_OUTCOME_H
#define PROFD_PROFILE_OUTCOME_H

#include <stdbool.h>

enum outcome_place {
	OUTCOME_PLACE_UNWINDING,
	OUTCOME_PLACE_KERNEL,
	OUTCOME_PLACE_USER_SPACE,
};

enum outcome_sample {
	OUTCOME_SAMPLE_WHOLE,
	OUTCOME_SAMPLE_CUT,  /* kept without a part of its stack */
	OUTCOME_SAMPLE_LOST,
	OUTCOME_SAMPLE_NONE, /* no sample was to be taken */
};

enum outcome_shown {
	OUTCOME_SHOWN_METRICS,
	OUTCOME_SHOWN_UNWIND_ERRORS,
	OUTCOME_SHOWN_LOST,
	OUTCOME_SHOWN_BYTES_NOTE,
	OUTCOME_SHOWN_WAITS_NOTE,
};

struct outcome_info {
	const char *name; /* in quality.unwindErrors and /metrics */
	enum outcome_place place;
	enum outcome_sample sample;
	enum outcome_shown shown;
	const char *sentence; /* no capital, no full stop */
};

/* The row of @id; NULL for an id that is not in use. */
const struct outcome_info *outcome_info(unsigned id);

#endif
