/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's own records of new executable mappings and of exec, one perf ring per CPU
 * (perf_event_open(2), PERF_RECORD_MMAP2 and PERF_RECORD_COMM with PERF_RECORD_MISC_COMM_EXEC on a
 * software dummy event). A record describes a mapping at the time of the mmap(), also of processes
 * that are gone. exec's COMM record comes before the new image's mappings; the sched_process_exec
 * tracepoint comes after them. munmap is not reported. */
#ifndef PROFD_COLLECT_MMAP_RECORDS_H
#define PROFD_COLLECT_MMAP_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define MMAP_RECORDS_BATCH_MAX 65536u /* records of one drain; more stay in the rings */

enum mmap_record_kind { MMAP_RECORD_MAP = 1, MMAP_RECORD_EXEC = 2 };

struct mmap_record {
	uint64_t time_ns; /* CLOCK_MONOTONIC */
	uint64_t start_va, end_va;
	uint64_t pgoff_fo; /* bytes */
	uint64_t inode, inode_generation;
	uint32_t dev_major, dev_minor;
	uint32_t tgid, tid;
	uint32_t kind;	   /* enum mmap_record_kind */
	uint32_t path_at;  /* MAP: of the path in the batch's texts; EXEC: of the comm */
};

struct mmap_batch {
	struct mmap_record *records; /* by time */
	size_t count, capacity;
	char *texts; /* NUL-terminated */
	size_t text_bytes, text_capacity;
	uint64_t lost; /* records that the kernel dropped, or that did not fit here */
};

void mmap_batch_deinit(struct mmap_batch *batch);
static inline void cleanup_mmap_batch_fn(struct mmap_batch *batch)
{
	mmap_batch_deinit(batch);
}

/* One record as it lies in the ring, @len bytes with its header; appended to @batch.
 * 1 = appended, 0 = of a kind or sort that is of no interest, -EPROTO malformed, -ENOMEM, -E2BIG
 * the batch is full. Pure. */
int mmap_batch_parse(struct mmap_batch *batch, const void *record, size_t len) must_use;

struct mmap_records;

/* Opens an event on every online CPU. -EACCES, -EPERM, … with the remedy in @err. */
int mmap_records_create(struct mmap_records **ret, struct err *err) must_use;
void mmap_records_destroy(struct mmap_records *records);
CLEANUP_DEFINE(mmap_records, struct mmap_records *, mmap_records_destroy);
/* Opens CPUs that came online, closes those that went; with @anew all are closed before, as for
 * perf_events_follow(), and what was not drained is gone. */
void mmap_records_follow_cpus(struct mmap_records *records, bool anew);
/* Whether the event of a CPU does not count since it was last asked: the CPU went and came back,
 * and so are dead all other events of it. At the cost of an interrupt on each CPU. */
bool mmap_records_have_died(struct mmap_records *records);
/* Readable (epoll) when a ring has something; owned by @records. */
int mmap_records_poll_fd(const struct mmap_records *records);
/* Moves everything from the rings into @batch (emptied first), sorted by time. */
void mmap_records_drain(struct mmap_records *records, struct mmap_batch *batch);
/* The same behind what is in @batch, of which the records from @from on are sorted with the new
 * ones; texts may move. Those that were lost are added. */
void mmap_records_drain_more(struct mmap_records *records, struct mmap_batch *batch, size_t from);

#endif
