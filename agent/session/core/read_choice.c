// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/read_choice.h"

#include <errno.h>
#include <string.h>

#include "agent/recording/reading_chunk.h"
#include "agent/session/core/alloc_session.h"
#include "agent/session/core/services.h"
#include "agent/session/core/sessions.h"

#define PROBE_DEADLINE_MS 5000u
#define RUNTIME_KNOWN_NS  (6 * NS_PER_S) /* of age: its files have been indexed by then */
#define GROWTH_MIN_NS                                                                              \
	(10 * NS_PER_S) /* sessions that are meant to be shorter cannot grow by much */

uint32_t read_job_what(enum profile_type type)
{
	return type == PROFILE_BLOCK ? READER_BLOCK
	       : type == PROFILE_MUTEX ? READER_MUTEX
				       : READER_MEMORY;
}

bool read_session_takes(enum profile_type type, uint32_t flags)
{
	return profile_type_is_read(type, flags & FEED_PROC_GO);
}

bool read_session_suits(const struct sessions *s, const char *tenant,
			const struct selector *selector, enum profile_type type)
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = sessions_tenant_rule(s, tenant) };
	size_t all = 0, go = 0;

	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || !session_wants_process(&wanted, process))
			continue;
		all++;
		go += (process->facts.flags & FEED_PROC_GO) != 0;
	}
	return read_session_takes(type, go * 2 > all ? FEED_PROC_GO : 0);
}

bool read_session_is_decided(struct sessions *s, const char *tenant,
			     const struct selector *selector)
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = sessions_tenant_rule(s, tenant) };
	uint64_t now_ns = clock_boottime_ns();
	sessions_scope(s);

	if (selector->kind == SELECTOR_HOST) /* some program is always young */
		return true;
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && session_wants_process(&wanted, process) &&
		    !(process->facts.flags & FEED_PROC_GO) &&
		    process->facts.start_boottime_ns + RUNTIME_KNOWN_NS > now_ns)
			return false;
	}
	return true;
}

/* Read from Go programs, sampled of others. */
static bool is_by_runtime(enum profile_type type)
{
	return read_session_takes(type, FEED_PROC_GO) && !read_session_takes(type, 0);
}

bool read_session_waits(const struct sessions *s, const struct session *session)
{
	return is_by_runtime(session->info.type) && session->selector.kind != SELECTOR_HOST &&
	       !session_matches_any(s, session);
}

/* ---- availability ---------------------------------------------------------------------------- */

const char *read_session_missing(const struct sessions *s, enum profile_type type)
{
	return reader_client_is_connected(s->reader)
		       ? ""
		       : "the reader process is not running; it is being restarted";
}

const char *read_session_refusal(enum profile_type type, uint32_t flags)
{
	if (!(flags & FEED_PROC_KTHREAD))
		return NULL;
	switch (profile_type_info(type)->way) {
	case PROFILE_WAY_SNAPSHOT:
		return "kernel threads cannot be read from outside";
	case PROFILE_WAY_PROBES:
		return "kernel threads have no allocator of their own";
	default:
		return NULL;
	}
}

/* Why none of the processes that a session would follow now can be its target; NULL: one can, or
 * none is there. */
static const char *find_refusal(struct sessions *s, const char *tenant,
				const struct selector *selector, enum profile_type type)
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = sessions_tenant_rule(s, tenant) };
	const char *refusal = NULL;
	sessions_scope(s);

	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || !session_wants_process(&wanted, process))
			continue;
		refusal = read_session_refusal(type, process->facts.flags);
		if (!refusal)
			return NULL;
	}
	return refusal;
}

static int ignore_record(void *ctx, const struct read_record *record)
{
	return 0;
}

int read_choice_probe(struct sessions *s, uint32_t tgid, uint64_t start_boottime_ns)
{
	const struct reader_request request = {
		.kind = CONTROL_GO_PROFILE,
		.what = READER_BLOCK,
		.tgid = tgid,
		.start_boottime_ns = start_boottime_ns,
		.deadline_ms = PROBE_DEADLINE_MS,
	};
	struct err err = { 0 };
	int rc = reader_client_ask(s->reader, &request, ignore_record, NULL, &err);

	if (rc == 0 || rc == -ENODATA || rc == -EOPNOTSUPP)
		return 1;
	return rc == -ENOEXEC ? 0 : -EAGAIN;
}

/* @count of @ret is what was found; the first PROBES_MAX, those known to be Go before others. */
static size_t find_probes(struct sessions *s, const char *tenant, const struct selector *selector,
			  struct reader_request ret[PROBES_MAX])
{
	struct session wanted = { .selector = *selector,
				  .tenant_rule = sessions_tenant_rule(s, tenant) };
	size_t found = 0, matching = 0;
	sessions_scope(s);

	for (int go = 1; go >= 0 && (go || !found); go--) {
		for (size_t i = 0; i < s->tables.processes.count; i++) {
			const struct live_process *process = s->tables.processes.data[i];
			bool is_go = (process->facts.flags & FEED_PROC_GO) != 0;

			if (process->exited_ns || (process->facts.flags & FEED_PROC_KTHREAD) ||
			    is_go != (go == 1) || !session_wants_process(&wanted, process))
				continue;
			matching++;
			if (found < PROBES_MAX)
				ret[found++] = (struct reader_request){
					.kind = CONTROL_GO_PROFILE,
					.tgid = process->facts.tgid,
					.start_boottime_ns = process->facts.start_boottime_ns,
					.deadline_ms = PROBE_DEADLINE_MS
				};
		}
	}
	/* None of many is known to be Go: it is not worth asking them all. */
	return matching <= PROBES_MAX || found < PROBES_MAX ? found : PROBES_MAX;
}

/* 2: one of them can be read. 1: that is not known. 0: none, and the first one's reason is in
 * @first. */
static int ask_processes(struct sessions *s, const struct session_request *request,
			 const struct selector *selector, struct err *first)
{
	struct reader_request probes[PROBES_MAX];
	size_t count = find_probes(s, request->tenant, selector, probes);

	for (size_t i = 0; i < count; i++) {
		struct err why = { 0 };
		int rc;

		probes[i].what = read_job_what(request->type);
		rc = reader_client_ask(s->reader, &probes[i], ignore_record, NULL, &why);
		if (rc == 0)
			return 2;
		/* An error that says nothing about the program does not refuse it. */
		if (rc == -EPIPE || rc == -ETIMEDOUT || rc == -EHOSTDOWN || rc == -EAGAIN ||
		    rc == -EIO || rc == -ESRCH)
			return 1;
		/* Its own profile is off: its goroutines' states are sampled. */
		if (rc == -ENODATA && profile_type_info(request->type)->way != PROFILE_WAY_PROBES)
			return 2;
		if (!first->code)
			*first = why;
	}
	return 0;
}

int read_session_check(struct sessions *s, const struct session_request *request,
		       const struct selector *selector, bool *ret_reads, struct err *err)
{
	const bool by_runtime = is_by_runtime(request->type);
	const bool heap = profile_type_info(request->type)->way == PROFILE_WAY_PROBES;
	const char *refusal = find_refusal(s, request->tenant, selector, request->type);
	struct err first = { 0 };
	bool reads;

	if (refusal)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileType", "%s: %s",
			       profile_type_info(request->type)->word, refusal);
	sessions_lock(s);
	reads = read_session_suits(s, request->tenant, selector, request->type);
	sessions_unlock(s);
	/* A program that has just started may not be known to be Go yet: the reader sees it. */
	if (by_runtime && (reads || heap)) {
		int can = ask_processes(s, request, selector, &first);

		if (!can && first.code && (reads || first.code != ENOEXEC))
			return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileType", "%s: %.200s",
				       profile_type_info(request->type)->word, first.text);
		reads = can > !reads;
	}
	*ret_reads = reads;
	return 0;
}

/* ---- phases ---------------------------------------------------------------------------------- */

bool read_session_is_ready(const struct session *session)
{
	return !profile_type_info(session->info.type)->counter ||
	       recorder_has_read(session->recorder, READING_START) ||
	       recorder_has_read(session->recorder, READING_STATES);
}

bool read_session_is_done(const struct session *session)
{
	return recorder_has_read(session->recorder, READING_END);
}

bool heap_job_is_due(const struct session *session)
{
	if (session->info.type != PROFILE_MEMORY || !alloc_session_is(session))
		return false;
	if (session->swept)
		return !session->heap_read;
	/* The owners of the heaps are known with the first period. */
	return session->phase == PHASE_SAMPLING && !session->reloaded &&
	       (!session->heap_begun || clock_monotonic_ns() >= session->heap_next_ns) &&
	       session->end_ns - session->start_ns >= GROWTH_MIN_NS &&
	       recorder_counters(session->recorder)->alloc.families;
}
