/* SPDX-License-Identifier: Apache-2.0 */
/* How much each function had in each time window: what a comparison needs to know the real noise of
 * a profile, and what a baseline keeps of it. Functions are canonical (canonical.h), so that
 * matrices of two builds can be joined. Values are in the profile's main unit; @scale turns them
 * into effective samples. Built from the profile's events; without events there is one window and
 * @totals_only.
 *
 * Self means the innermost frame. For durations (offcpu, wall, block, mutex, io) it is the
 * innermost frame of the program itself: in the kernel every wait ends in the scheduler, and most
 * begin in the same few functions of libc. Immutable once made. */
#ifndef PROFD_PROFILE_WINDOW_MATRIX_H
#define PROFD_PROFILE_WINDOW_MATRIX_H

#include "agent/base/buf.h"
#include "agent/profile/profile.h"

#define WINDOW_MATRIX_WINDOWS_MAX   3600u /* an hour of seconds */
#define WINDOW_MATRIX_FUNCTIONS_MAX (1u << 22)
#define WINDOW_MATRIX_LIVES_MAX	    256u
#define WINDOW_MATRIX_STRATA_MAX    16u
#define WINDOW_MATRIX_TEXT_MAX	    (1u << 28) /* bytes */
#define WINDOW_MATRIX_CELLS_MAX	    (1u << 27)

enum window_function_flag {
	WINDOW_FUNCTION_ENVIRONMENT = 1, /* shows the host, not the program */
	WINDOW_FUNCTION_IDLE = 2,	 /* most of its value is waiting for work */
	WINDOW_FUNCTION_UNKNOWN =
		4, /* name is `[unknown] module+0x…` of its start, or rounded to 256 bytes */
};

struct window_function {
	uint32_t name, package, file; /* offsets in text; package without a library's version */
	uint32_t label; /* offset in text: the package as it was first seen, for people */
	uint32_t line;
	uint8_t kind;	/* enum profile_frame_kind */
	uint8_t flags;	/* enum window_function_flag */
	uint64_t build; /* hash of the build-id; unknown functions only */
};

/* Sparse, by function: cells first[f] … first[f + 1), windows ascending. */
struct window_cells {
	uint32_t *first; /* function_count + 1 */
	uint32_t *window;
	int64_t *value;
	uint32_t count;
};

struct window_life {
	uint64_t started_at_ns; /* realtime */
	uint32_t pid;
	double part; /* of the profile's total */
};

/* Processes of one name that hold a hundredth or more of the profile, next to others that do too.
 */
struct window_stratum {
	uint32_t name;	 /* offset in text; "" = all that is in no other */
	int64_t *totals; /* by window */
	struct window_cells self;
};

struct window_matrix {
	enum profile_type type;
	uint64_t start_ns;    /* realtime of window 0 */
	uint64_t window_ns;   /* the last window is longer or shorter */
	uint64_t duration_ns; /* from its begin to its end */
	uint64_t covered_ns;  /* of it, the time that was profiled: there may be gaps between what
				 was merged */
	double scale;	      /* effective samples per unit of value; 0 for types without samples */
	bool totals_only;
	uint32_t window_count, function_count, life_count, stratum_count;
	double effective_lives; /* 1 / sum of squared parts; at least 1 */
	char *text;
	uint32_t text_len;
	struct window_function *functions;
	int64_t *totals; /* by window */
	struct window_cells self, cumulative;
	struct window_life *lives;     /* largest first */
	struct window_stratum *strata; /* none, or two and more that cover everything */
};

struct window_options {
	uint64_t window_ns;  /* 0 = one second; a minute or 10 s where the events' stamps are that
				coarse */
	uint32_t window_max; /* 0 = WINDOW_MATRIX_WINDOWS_MAX */
};

/* -ENOMEM, -E2BIG. @options may be NULL. @ret_map: NULL, or the matrix function of each of the
 * profile's functions (function_count of the profile, caller's; UINT32_MAX = occurs in no stack).
 */
int window_matrix_create(const struct profile *p, const struct window_options *options,
			 struct window_matrix **ret, uint32_t **ret_map) must_use;
void window_matrix_destroy(struct window_matrix *m);
CLEANUP_DEFINE(window_matrix, struct window_matrix *, window_matrix_destroy);

/* A copy with neighbouring windows merged, @factor by @factor; the last takes the rest. */
int window_matrix_coarsen(const struct window_matrix *m, uint32_t factor,
			  struct window_matrix **ret) must_use;

static inline const char *window_text(const struct window_matrix *m, uint32_t at)
{
	return m->text + at;
}

/* Seconds that window @i covers. */
double window_seconds(const struct window_matrix *m, uint32_t i);

#endif
