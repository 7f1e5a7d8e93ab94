// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/session_way.h"

#include "agent/recording/wait_types.h"
#include "agent/session/core/alloc_session.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/session_life.h"

#define GRACE_NS (400 * NS_PER_MS) /* the collector delivers within this */
#define HEAP_NS	 (15 * NS_PER_S)   /* longest wait for the heap walks */

/* ---- sampled --------------------------------------------------------------------------------- */

/* The collector samples as the session needs it. */
static bool is_sampled(const struct sessions *s, const struct session *session)
{
	const struct feed_demand *demand = &s->feed.demand;

	if ((demand->types & session->wants) != session->wants || !session_is_followed(session))
		return false;
	return !(session->wants & PROF_WANT_CPU) ||
	       session_sampled_hz(session, demand) >= session->info.rate_hz;
}

static void nothing(struct sessions *s, struct session *session)
{
}

static bool takes_all(struct session *session, const struct feed_sample *sample)
{
	return true;
}

/* true: everything that the collector has delivered is read. */
static bool is_read(const struct sessions *s, const struct session *session, uint64_t now_ns,
		    bool final)
{
	return !s->feed.ring || s->feed.cursor == ring_head(s->feed.ring) || final;
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Notes say what a profile of @types does not see of a runtime, and what to do. A thread that waits
 * for a monitor of the JVM (os::PlatformEvent::park()) or for Ruby's Mutex (native_sleep()) waits
 * for a condition of glibc. PHP's allocator maps chunks of 2 MiB (zend_mm_mmap()). */
static const struct unseen {
	uint32_t runtime; /* enum feed_proc_flag */
	enum profile_type types[2];
	const char *note;
} unseen[] = {
	{ FEED_PROC_JVM,
	  { PROFILE_MUTEX, PROFILE_MUTEX },
	  "Java's locks are conditions to the system: a block session has their waits" },
	{ FEED_PROC_RUBY,
	  { PROFILE_MUTEX, PROFILE_MUTEX },
	  "Ruby's locks are conditions to the system: a block session has their waits" },
	{ FEED_PROC_PHP,
	  { PROFILE_MEMORY, PROFILE_ALLOC },
	  "memory of PHP is only seen if PHP has USE_ZEND_ALLOC=0 in its environment: PHP's own "
	  "allocator maps its memory" },
};

static void note_unseen(const struct sessions *s, const struct session *session,
			const struct unseen *of)
{
	if (session->info.type != of->types[0] && session->info.type != of->types[1])
		return;
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || !(process->facts.flags & of->runtime) ||
		    !session_wants_process(session, process))
			continue;
		recorder_note(session->recorder, "%s", of->note);
		return;
	}
}

static void note_runtimes(const struct sessions *s, const struct session *session)
{
	for (size_t i = 0; i < ARRAY_SIZE(unseen); i++)
		note_unseen(s, session, &unseen[i]);
}

/* Notes what a session does to the host beyond its own target, and what it cannot see. */
static void note_costs(struct session *session, const struct feed_demand *demand)
{
	if (session->wants & (PROF_WANT_WAKERS | PROF_WANT_LOCKS))
		recorder_note(session->recorder,
			      "a BPF program runs at every wakeup of the host while the session runs");
	if (session->wants & PROF_WANT_KERNEL_LOCKS)
		recorder_note(session->recorder,
			      "kernel locks: only locks on which threads sleep; a thread that waits for a "
			      "spin lock is on a CPU");
	if (!(session->wants & PROF_WANT_IO))
		return;
	recorder_note(session->recorder, SESSION_BYTES_ARE_EXACT);
	recorder_note(session->recorder, "bytes of Linux AIO count where io_getevents() collects "
					 "them; a program that reads its ring itself is not seen");
	if (session->wants & PROF_WANT_PATHS)
		recorder_note(session->recorder, "waits that did not end inside of the session have no path");
	recorder_note(
		session->recorder,
		demand->by_call
			? "bytes are taken where the calls that move them end (fexit): no others take "
			  "longer; those under way when the session began are not counted"
			: "bytes are taken where system calls end: while the session runs every one of the "
			  "host takes longer (about 0.1 us)");
}

/* Waits that are under way become samples: they begin before the session, or end after it. */
static void sweep(struct sessions *s, struct session *session)
{
	s->peers.sweep_due = true;
}

static void start_waits(struct sessions *s, struct session *session)
{
	sweep(s, session);
	note_costs(session, &s->feed.demand);
	note_runtimes(s, session);
}

static void start_probes(struct sessions *s, struct session *session)
{
	sweep(s, session);
	note_runtimes(s, session);
}

static bool takes_wait(struct session *session, const struct feed_sample *sample)
{
	return sample->type != PROF_SAMPLE_OFFCPU || wait_is_wanted(session->info.type, sample);
}

/* ---- probes ---------------------------------------------------------------------------------- */

static bool is_swept(const struct sessions *s, const struct session *session, uint64_t now_ns,
		     bool final)
{
	return is_read(s, session, now_ns, final) && (session->alloc_complete || final) &&
	       (!heap_job_is_due(session) || now_ns >= session->end_ns + HEAP_NS);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static bool has_begun(const struct sessions *s, const struct session *session)
{
	return read_session_is_ready(session) && !recorder_groups(session->recorder);
}

static bool takes_none(struct session *session, const struct feed_sample *sample)
{
	return false;
}

static bool has_ended(const struct sessions *s, const struct session *session, uint64_t now_ns,
		      bool final)
{
	return read_session_is_done(session) &&
	       (!session->glances || is_read(s, session, now_ns, final));
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct session_way ways[] = {
	[PROFILE_WAY_SAMPLED] = { .is_ready = is_sampled,
				  .start = nothing,
				  .stop = nothing,
				  .takes = takes_all,
				  .is_whole = is_read,
				  .grace_ns = GRACE_NS },
	[PROFILE_WAY_WAITS] = { .is_ready = is_sampled,
				.start = start_waits,
				.stop = sweep,
				.takes = takes_wait,
				.is_whole = is_read,
				.grace_ns = GRACE_NS },
	[PROFILE_WAY_PROBES] = { .check = alloc_session_check,
				 .is_ready = is_sampled,
				 .start = start_probes,
				 .stop = sweep,
				 .takes = alloc_session_takes,
				 .is_whole = is_swept,
				 .grace_ns = GRACE_NS },
	[PROFILE_WAY_SNAPSHOT] = { .is_ready = has_begun,
				   .start = nothing,
				   .stop = nothing,
				   .takes = takes_none,
				   .is_whole = has_ended },
};

const struct session_way *session_way_of(enum profile_type type, bool reads)
{
	return &ways[reads ? PROFILE_WAY_SNAPSHOT : profile_type_info(type)->way];
}

const struct session_way *session_way(const struct session *session)
{
	return session_way_of(session->info.type, session->reads);
}
