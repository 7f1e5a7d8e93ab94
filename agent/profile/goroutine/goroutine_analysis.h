/* SPDX-License-Identifier: Apache-2.0 */
/* A goroutine profile as a table of stacks: how many goroutines share a
 * stack, what they wait for, which are blocked. Threads of programs that are not Go come in the
 * same shape.
 *
 * Expected of the profile: one sample per (stack, attributes) whose value is the number of
 * goroutines; attrs.state and attrs.wait in the runtime's own words, attrs.extra the creator's
 * function. Two labels are read where they exist: GOROUTINE_LABEL_WAIT (whole seconds waited, at
 * least) and GOROUTINE_LABEL_SYSTEM ("true": a goroutine of the runtime itself). Without the
 * second, a goroutine whose outermost function is the runtime's own is taken for one, by the
 * runtime's rule (isSystemGoroutine in runtime/traceback.go). Pure, thread-safe. */
#ifndef PROFD_PROFILE_GOROUTINE_ANALYSIS_H
#define PROFD_PROFILE_GOROUTINE_ANALYSIS_H

#include "agent/profile/profile.h"

#define GOROUTINE_LABEL_WAIT   "waitSeconds"
#define GOROUTINE_LABEL_SYSTEM "system"
#define GOROUTINE_LABEL_OBJECT "waitObject" /* "channel 0x1", "sync.Mutex 0x1", "semaphore 0x1" */
#define GOROUTINE_LABEL_ID     "goid"
#define GOROUTINE_LABEL_LEAKED "leaked" /* "true": the runtime found that nothing can wake it */
#define GOROUTINE_LABEL_TASK   "task"   /* name of an asyncio task; others have none */
#define GOROUTINE_NOT_COUNTED  UINT32_MAX

struct goroutine_options {
	bool system;	 /* include the runtime's own goroutines */
	bool raw_frames; /* keep the runtime's innermost frames, which Go's own dump leaves out */
};

/* Texts are string ids of the profile. */
struct goroutine_stack {
	uint64_t count;
	uint32_t state;
	uint32_t wait; /* "" unless waiting */
	uint32_t created_by;
	uint32_t frame_first; /* frames[frame_first … + frame_count), innermost first */
	uint32_t frame_count;
	uint64_t max_wait_s; /* longest known wait, 0 = unknown */
	uint64_t
		identity; /* hash over function names in order and creator; equal across profiles */
	uint32_t made;	  /* its place before sorting */
	bool blocked;	  /* waits for what another goroutine, lock or peer must deliver */
};

struct goroutine_count {
	uint32_t word; /* string id */
	uint64_t count;
};

struct goroutine_analysis {
	const struct profile *p; /* borrowed: texts and frames */
	uint64_t total;		 /* goroutines counted */
	struct goroutine_stack
		*stacks; /* by stack, state, wait reason, creator; largest count first */
	uint32_t stack_count;
	uint32_t *stack_of; /* by sample of the profile: index of stacks, or GOROUTINE_NOT_COUNTED */
	uint32_t *frames; /* frame indices of the profile */
	uint32_t frame_count;
	struct goroutine_count *states, *waits; /* largest first; waits without "" */
	uint32_t state_count, wait_count;
};

/* -EINVAL unless @p is a goroutine profile; -ENOMEM. @ret: goroutine_analysis_deinit(), before @p
 * goes. */
int goroutine_analysis_init(struct goroutine_analysis *ret, const struct profile *p,
			    const struct goroutine_options *options) must_use;
void goroutine_analysis_deinit(struct goroutine_analysis *a);
static inline void cleanup_goroutine_analysis_fn(struct goroutine_analysis *a)
{
	goroutine_analysis_deinit(a);
}
#define cleanup_goroutine_analysis __attribute__((__cleanup__(cleanup_goroutine_analysis_fn)))

/* @view: @p, a goroutine profile, without the runtime's own goroutines and without time order.
 * Borrows everything but view->samples, which the caller frees. -ENOMEM. */
int goroutines_of_program(const struct profile *p, struct profile *view) must_use;

/* current / previous; 1.0 when there is nothing to compare with. */
double goroutine_growth_rate(uint64_t current, uint64_t previous);

/* Whether @p has asyncio tasks. Their number is not compared with that of a profile without. */
bool goroutines_have_tasks(const struct profile *p);

/* Whether Go's own dump shows a frame of this function (showframe in runtime/traceback.go): not the
 * runtime's unexported ones. */
bool goroutine_frame_is_shown(const char *function);
/* Whether a goroutine or thread with this state and wait reason is blocked. */
bool goroutine_is_blocked(const char *state, const char *wait);

#endif
