/* SPDX-License-Identifier: Apache-2.0 */
/* The profiles that Go's runtime keeps by itself: heap allocations (sampled; unsampled here by the
 * program's true rate) and, where the program turned them on, block and mutex waits. Read by
 * walking the runtime's lists of buckets, which only grow at the head and never move. See README.md
 * "Profile buckets". */
#ifndef PROFD_READER_GO_BUCKETS_H
#define PROFD_READER_GO_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/reader/answer.h"
#include "agent/reader/cpu_ticks.h"
#include "agent/reader/go_unwind.h"

#define GO_BUCKETS_MAX	     100000u /* of one list; more are not read */
#define GO_LIST_OPERANDS_MAX 16u

/* Addresses of the program's sampling rates and lists; found once per process instance. */
struct go_profile_places {
	bool searched;
	bool memory_linked;		      /* false: the linker turned the heap profile off */
	uint64_t memory_va;		      /* runtime.MemProfileRate, 0 = not found */
	uint64_t block_va;		      /* blockprofilerate */
	uint64_t mutex_va;		      /* mutexprofilerate */
	uint64_t lists[GO_LIST_OPERANDS_MAX]; /* variables that runtime.stkbucket uses, among them
						 the heads */
	unsigned list_count;
};

/* Writes READ_PROFILE, READ_BUCKET and what they refer to (not the end).
 * @what  enum reader_profile, which is also the type of bucket
 * -ENODATA the profile is off in this program (why is in @err), -EIO, -ESRCH, -EPERM, -ENOMEM,
 * errors of the writer. */
int go_buckets_read(struct go_unwinder *unwinder, struct go_profile_places *places,
		    const struct cpu_ticks *ticks, uint32_t what, struct answer *answer,
		    struct err *err) must_use;

/* Scales a sampled (count, bytes) pair in place, as runtime/pprof does
 * (src/runtime/pprof/protomem.go, scaleHeapSample()). Pure. */
void go_unsample(int64_t *count, int64_t *bytes, uint64_t rate);

#endif
