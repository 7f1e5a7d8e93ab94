/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How long requests are in the queues of block devices and at the devices, and which part of a
 * thread's wait that is. Attached only while an io session runs.
 *
 * A request belongs to the thread that hands it in (block_rq_insert, or block_rq_issue where it
 * goes straight to the driver). The kernel's own threads (writeback, the journal) write for nobody
 * in particular: theirs are counted (OUTCOME_disk_unjoined). When a request is done its times are
 * noted for its thread, those of requests that overlap as one stretch; a thread that comes back
 * from a wait for a disk, and whose wait is recorded, finds them there. So nothing is sent for a
 * request, however many there are. */
#ifndef PROFD_BPF_DISK_BPF_H
#define PROFD_BPF_DISK_BPF_H

#include "bpf/stats.bpf.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define DISK_REQUESTS_MAX 8192u /* under way at once */
#define DISK_THREADS_MAX  8192u /* the last that had requests */

struct disk_request {
	uint64_t queued_ns;
	uint64_t issued_ns; /* to the driver; 0 = not yet */
	uint64_t disk;	    /* the first eight bytes of its name */
	uint32_t tid;
	uint32_t generation; /* config.disk_generation then: an older one was not seen to end */
};

/* Key: address of the request. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, DISK_REQUESTS_MAX);
	__type(key, uint64_t);
	__type(value, struct disk_request);
} disk_requests SEC(".maps");

/* Requests of a thread that overlap: from the first one's begin to the end of the last that has
 * ended. */
struct disk_stretch {
	uint64_t queued_ns;
	uint64_t issued_ns;
	uint64_t done_ns;
	uint64_t disk;
};

/* Key: tid. Of two requests of a thread that end at once on two CPUs one may be lost; who reads
 * keeps to the bounds of its own wait. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DISK_THREADS_MAX);
	__type(key, uint32_t);
	__type(value, struct disk_stretch);
} disk_stretches SEC(".maps");

static __always_inline uint64_t disk_name(struct request *rq)
{
	uint64_t name = 0;

	if (bpf_core_field_exists(struct request_queue, disk))
		BPF_CORE_READ_INTO(&name, rq, q, disk, disk_name);
	else
		BPF_CORE_READ_INTO(&name, (struct request___disk *)rq, rq_disk, disk_name);
	return name;
}

static __always_inline void disk_begin(struct request *rq, uint64_t now_ns, uint64_t issued_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t key = (uint64_t)rq;
	struct disk_request request = {
		.queued_ns = now_ns,
		.issued_ns = issued_ns,
		.tid = task->pid,
		.generation = config.disk_generation,
	};

	/* When it was made, where the kernel notes that (queue/iostats): it may have been held back
	 * since. */
	if (rq->start_time_ns)
		request.queued_ns = rq->start_time_ns;
	request.disk = disk_name(rq);
	if (task->flags & PF_KTHREAD ||
	    bpf_map_update_elem(&disk_requests, &key, &request, BPF_ANY))
		outcome_count(OUTCOME_disk_unjoined);
}

static __always_inline struct disk_request *disk_find(struct request *rq)
{
	uint64_t key = (uint64_t)rq;
	struct disk_request *request = bpf_map_lookup_elem(&disk_requests, &key);

	/* one that was merged into another is not told to end, and its place is used again */
	if (!request || request->generation != config.disk_generation ||
	    (rq->start_time_ns && rq->start_time_ns != request->queued_ns))
		return NULL;
	return request;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(disk_insert, struct request *rq)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_DISK);
	struct task_struct *task = bpf_get_current_task_btf();

	/* the kernel's own are counted when they are issued, as all are */
	if (!(task->flags & PF_KTHREAD))
		disk_begin(rq, bpf_ktime_get_ns(), 0);
	cost_end(&timer);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(disk_issue, struct request *rq)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_DISK);
	struct disk_request *request = disk_find(rq);
	uint64_t now_ns = bpf_ktime_get_ns();

	if (request)
		request->issued_ns = now_ns;
	else
		disk_begin(rq, now_ns, now_ns);
	cost_end(&timer);
	return 0;
}

static __always_inline void disk_end(const struct disk_request *request, uint64_t now_ns)
{
	uint32_t tid = request->tid;
	struct disk_stretch *known = bpf_map_lookup_elem(&disk_stretches, &tid);
	struct disk_stretch stretch = {
		.queued_ns = request->queued_ns,
		.issued_ns = request->issued_ns ? request->issued_ns : request->queued_ns,
		.done_ns = now_ns,
		.disk = request->disk,
	};

	if (known && known->disk == stretch.disk && stretch.queued_ns <= known->done_ns) {
		if (known->queued_ns < stretch.queued_ns)
			stretch.queued_ns = known->queued_ns;
		if (known->issued_ns < stretch.issued_ns)
			stretch.issued_ns = known->issued_ns;
	}
	bpf_map_update_elem(&disk_stretches, &tid, &stretch, BPF_ANY);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(disk_done, struct request *rq, int error, unsigned int bytes)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_DISK);
	struct disk_request *request = disk_find(rq);
	uint64_t key = (uint64_t)rq;

	/* told for every part of it */
	if (request && bytes >= rq->__data_len) {
		disk_end(request, bpf_ktime_get_ns());
		bpf_map_delete_elem(&disk_requests, &key);
	}
	cost_end(&timer);
	return 0;
}

/* ---- joining ------------------------------------------------------------------------------- */

/* The part of the wait from @since_ns to @until_ns in which a request of the thread's own was at a
 * device, or in its queue while none was at the device. */
static __always_inline struct disk_part disk_join(uint32_t tid, uint64_t since_ns,
						  uint64_t until_ns)
{
	struct disk_stretch *stretch = bpf_map_lookup_elem(&disk_stretches, &tid);
	struct disk_part part = { 0 };
	uint64_t from_ns, issued_ns;

	if (!stretch || stretch->done_ns <= since_ns || stretch->queued_ns >= until_ns)
		return part;
	if (stretch->done_ns < until_ns)
		until_ns = stretch->done_ns;
	from_ns = stretch->queued_ns > since_ns ? stretch->queued_ns : since_ns;
	issued_ns = stretch->issued_ns > from_ns ? stretch->issued_ns : from_ns;
	if (issued_ns > until_ns)
		issued_ns = until_ns;
	part.device_ns = until_ns - issued_ns;
	part.queue_ns = issued_ns - from_ns;
	part.disk = stretch->disk;
	return part;
}

#endif
