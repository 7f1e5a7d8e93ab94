// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/heap_job.h"

#include <inttypes.h>

#include "agent/base/clock.h"
#include "agent/session/core/alloc_session.h"
#include "agent/session/core/sessions.h"

#define HEAPS_MAX   16u /* the collector observes no more processes at once */
#define DEADLINE_MS 5000u
#define WALK_NS	    1u /* of CPU time for a byte, with room to spare */

struct run {
	bool is_glibc; /* all of them; else only their memory as a whole is asked for */
	struct reader_request requests[HEAPS_MAX];
	size_t count;
	size_t walked;
	struct chunk_heap sum;
	uint32_t blocks_of[READ_HEAP_SIZES];
	uint64_t took_ns;
};

/* Those that are observed. Lock held. */
static void collect(const struct sessions *s, const struct session *session, struct run *run)
{
	run->is_glibc = recorder_counters(session->recorder)->alloc.families == 1u << ALLOC_FAMILY_GLIBC;
	if (!run->is_glibc && !session->swept)
		return;
	for (size_t i = 0; i < s->tables.processes.count && run->count < HEAPS_MAX; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || !process->alloc_asked_ns || process->alloc_reason[0] ||
		    !session_wants_process(session, process))
			continue;
		run->requests[run->count++] = (struct reader_request){
			.kind = CONTROL_HEAP,
			.flags = run->is_glibc ? 0 : READER_RESIDENT_ONLY,
			.tgid = process->facts.tgid,
			.start_boottime_ns = process->facts.start_boottime_ns,
			.deadline_ms = DEADLINE_MS,
		};
	}
}

static int take_heap(void *ctx, const struct read_record *record)
{
	if (record->kind == READ_HEAP)
		*(struct read_heap *)ctx = *record->heap;
	return 0;
}

static void note(struct sessions *s, const struct read_job *job, uint32_t tgid,
		 const struct err *err)
{
	struct session *session;
	sessions_scope(s);

	session = session_find(s, job->tenant, job->id);
	if (session && session->swept)
		recorder_note(session->recorder, "process %u: how much is in use in all is not known: %.80s",
			      tgid, err->text);
}

static void walk(struct sessions *s, const struct read_job *job, struct run *run)
{
	const uint64_t begin_ns = clock_monotonic_ns();

	for (size_t i = 0; i < run->count; i++) {
		struct read_heap heap = { 0 };
		struct err err = { 0 };

		if (reader_client_ask(s->reader, &run->requests[i], take_heap, &heap, &err) < 0) {
			note(s, job, run->requests[i].tgid, &err);
			continue;
		}
		run->walked++;
		run->sum.resident_bytes += heap.resident_bytes;
		run->sum.bytes += heap.in_use_bytes + (heap.mapped_known ? heap.mapped_bytes : 0);
		run->sum.blocks += heap.in_use_blocks + (heap.mapped_known ? heap.mapped_blocks : 0);
		run->sum.mapped_bytes += heap.mapped_known ? heap.mapped_bytes : 0;
		run->sum.walked_bytes += heap.walked_bytes;
		for (unsigned k = 0; k < READ_HEAP_SIZES; k++)
			run->blocks_of[k] += heap.blocks_of[k];
	}
	run->took_ns = clock_monotonic_ns() - begin_ns;
}

static void take_growth(struct session *session)
{
	struct chunk_alloc *alloc = &recorder_quality(session->recorder)->alloc;

	alloc->grown_count = heap_growth_find(&session->growth, alloc->grown);
	if (alloc->grown_count)
		recorder_note(session->recorder,
			      "the heap gained blocks of %u to %u bytes steadily: %" PRIu64 " more than the %" PRIu64
			      " at the beginning",
			      alloc->grown[0].block_bytes > 24 ? alloc->grown[0].block_bytes - 15 : 0,
			      alloc->grown[0].block_bytes, alloc->grown[0].blocks, alloc->grown[0].before);
}

/* Lock held. A part of the whole would be taken for it. */
static void take(struct session *session, const struct run *run, bool ends)
{
	const bool whole = run->walked && run->walked == run->count;
	struct chunk_heap *heap = &recorder_quality(session->recorder)->alloc.heap;
	const uint64_t now_ns = clock_monotonic_ns(), before = heap->before_bytes;

	if (whole && run->is_glibc)
		heap_growth_add(&session->growth, now_ns, run->blocks_of);
	if (whole && ends) {
		*heap = run->sum;
		heap->before_bytes = before;
		memcpy(recorder_quality(session->recorder)->alloc.blocks_of, run->blocks_of,
		       sizeof(run->blocks_of));
	} else if (whole && !session->heap_begun) {
		heap->before_bytes = run->sum.bytes - run->sum.mapped_bytes;
	}
	if (whole && ends)
		take_growth(session);
	/* A failed walk was tried several times, up to its deadline. */
	session->heap_next_ns = heap_growth_next_ns(&session->growth, now_ns,
						    whole ? WALK_NS * run->sum.walked_bytes : run->took_ns);
	session->heap_begun = true;
	session->heap_read = ends;
}

void heap_job_run(struct sessions *s, const struct read_job *job)
{
	struct run run = { 0 };
	struct session *session;
	bool ends;

	sessions_lock(s);
	session = session_find(s, job->tenant, job->id);
	if (session)
		collect(s, session, &run);
	ends = session && session->swept;
	sessions_unlock(s);
	walk(s, job, &run);
	sessions_lock(s);
	session = session_find(s, job->tenant, job->id);
	if (session)
		take(session, &run, ends);
	sessions_unlock(s);
}
