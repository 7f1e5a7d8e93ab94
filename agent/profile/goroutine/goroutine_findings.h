/* SPDX-License-Identifier: Apache-2.0 */
/* Findings from a series of goroutine profiles of one service: stacks that look like leaks, waits
 * that cannot or do not end, the longest waits, goroutines by label. Pure, thread-safe. */
#ifndef PROFD_PROFILE_GOROUTINE_FINDINGS_H
#define PROFD_PROFILE_GOROUTINE_FINDINGS_H

#include "agent/profile/goroutine/goroutine_analysis.h"

#define FINDINGS_HISTORY_MAX  5u  /* profiles looked at, the newest included */
#define FINDINGS_HISTORY_MIN  3u  /* a leak grows over at least so many */
#define FINDINGS_LIST_MAX     100u
#define FINDINGS_LABELS_MAX   32u
#define FINDINGS_DEADLOCK_S   60u /* a wait for a lock or a receiver is suspect from here on */

/* A stack with more goroutines in each profile than in the one before, in which those of before
 * still wait. Where the program's own clock tells (wait times are known since the last garbage
 * collection), the longest wait has grown as well: workers that pause between jobs are no leak. */
struct goroutine_leak {
	const struct goroutine_stack *stack; /* of the newest analysis, its largest group */
	uint64_t counts[FINDINGS_HISTORY_MAX]; /* by profile of the series, oldest first */
	uint32_t first; /* the first profile of the series since which it has grown */
	uint64_t max_wait_s;
};

enum goroutine_deadlock_kind {
	DEADLOCK_NIL_CHANNEL, /* nobody can ever send or receive */
	DEADLOCK_UNREACHABLE, /* the Go runtime found that nothing can wake it */
	DEADLOCK_LOCK,	      /* everybody waits, for long: whoever holds it does not let go */
	DEADLOCK_SENDERS,     /* only senders wait, for long: nobody receives */
	DEADLOCK_KIND_MAX,
};
/* "nilChannel", "unreachable", "lock", "senders". */
const char *goroutine_deadlock_word(enum goroutine_deadlock_kind kind);

struct goroutine_deadlock {
	enum goroutine_deadlock_kind kind;
	uint32_t process;		     /* of the profile */
	uint32_t object;		     /* string id: "sync.Mutex 0x…"; "" if it is none */
	const struct goroutine_stack *stack; /* of the one that waits longest */
	uint64_t count;			     /* goroutines */
	uint64_t max_wait_s;
};

struct goroutine_wait {
	uint64_t id; /* goroutine, or thread of other programs */
	uint64_t wait_s;
	uint32_t process, object;
	const struct goroutine_stack *stack;
};

struct goroutine_label {
	uint32_t name, value; /* string ids */
	uint64_t count;
};

struct goroutine_findings {
	struct goroutine_leak *leaks; /* largest growth first */
	struct goroutine_deadlock *deadlocks; /* most goroutines first */
	struct goroutine_wait *waits; /* longest first */
	struct goroutine_label *labels; /* by name, then largest count first */
	uint32_t leak_count, deadlock_count, wait_count, label_count;
};

/* @series: analyses oldest first, the last is the one that is asked about, all borrowed and alive
 * as long as @ret. Lists have at most @limit entries (FINDINGS_LIST_MAX at most). -ENOMEM. */
int goroutine_findings_init(struct goroutine_findings *ret, const struct goroutine_analysis *series,
			    uint32_t series_count, uint32_t limit) must_use;
void goroutine_findings_deinit(struct goroutine_findings *findings);
static inline void cleanup_goroutine_findings_fn(struct goroutine_findings *findings)
{
	goroutine_findings_deinit(findings);
}
#define cleanup_goroutine_findings __attribute__((__cleanup__(cleanup_goroutine_findings_fn)))

#endif
