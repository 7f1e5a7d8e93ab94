// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/alloc_session.h"

#include <errno.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/profile/quality.h"
#include "agent/session/core/demand.h"
#include "agent/session/core/services.h"
#include "agent/session/core/sessions.h"

#define ASKED_MAX   64u
#define ANSWER_NS   (3 * NS_PER_S)
#define COST_ERROR   0.1 /* relative, of what a hit is believed to cost */
#define WEIGHT_ERROR_MAX 1.0
#define ASK_AGAIN_NS (200 * NS_PER_MS)
#define UNSEEN_DUTY_PCT 90 /* probes that were open for less have missed much */

bool alloc_session_is(const struct session *session)
{
	return !session->reads && (session->wants & (PROF_WANT_ALLOC | PROF_WANT_LIVE));
}

/* ---- before the start --------------------------------------------------------------------------
 */

struct answers {
	uint64_t procs[ASKED_MAX]; /* still without an answer */
	unsigned waiting;
	size_t matching;
	bool ready;
	char reason[sizeof(((struct live_process *)NULL)->alloc_reason)];
};

/* Why it is not observed for this type, "" = it is. */
static const char *reason_of(enum profile_type type, const struct live_process *process)
{
	return !process->alloc_reason[0] && type == PROFILE_MEMORY ? process->live_reason
								   : process->alloc_reason;
}

/* Lock held. Answers older than @since_ns do not count. */
static void collect(const struct sessions *s, const struct session *wanted, uint64_t since_ns,
		    struct answers *ret)
{
	*ret = (struct answers){ 0 };
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || (process->facts.flags & FEED_PROC_KTHREAD) ||
		    !session_wants_process(wanted, process))
			continue;
		ret->matching++;
		if (process->alloc_asked_ns < since_ns) {
			if (ret->waiting < ASKED_MAX)
				ret->procs[ret->waiting++] = process->proc;
		} else if (!reason_of(wanted->info.type, process)[0]) {
			ret->ready = true;
		} else if (!ret->reason[0]) {
			memcpy(ret->reason, reason_of(wanted->info.type, process), sizeof(ret->reason));
		}
	}
}

int alloc_session_check(struct sessions *s, const struct session_request *request,
			const struct selector *selector, struct err *err)
{
	uint64_t begin_ns = clock_monotonic_ns(), ask_ns = 0;
	struct session wanted = { .selector = *selector, .info.type = request->type };
	struct answers answers;
	bool asks;

	do {
		uint64_t now_ns = clock_monotonic_ns(), told;

		sessions_lock(s);
		told = s->told_count;
		wanted.tenant_rule = sessions_tenant_rule(s, request->tenant);
		asks = s->peers.collector_fd >= 0;
		collect(s, &wanted, begin_ns, &answers);
		if (asks && answers.waiting && !answers.ready && now_ns >= ask_ns) {
			demand_want(s, WANT_ALLOC, answers.procs, answers.waiting);
			ask_ns = now_ns + ASK_AGAIN_NS;
		}
		sessions_unlock(s);
		/* A request for many processes, or for a program to come, learns the answer from
		 * the session. */
		if (!asks || answers.ready || !answers.waiting || answers.matching > ASKED_MAX)
			break;
		sessions_await_told(s, told, ASK_AGAIN_NS);
	} while (clock_monotonic_ns() < begin_ns + ANSWER_NS);
	if (!asks || answers.ready || !answers.reason[0] || answers.waiting)
		return 0;
	return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileType", "%s: %.200s",
		       profile_type_info(request->type)->word, answers.reason);
}

/* ---- what the collector says ----------------------------------------------------------------- */

/* They ask the allocator for large blocks and hand out pieces of them by themselves. */
static bool is_pooled(const struct service_facts *facts)
{
	static const char *const programs[] = { "postgres", "nginx", "httpd", "apache2" };
	const char *name = text_file_name(facts->exe);

	if (facts->flags & (FEED_PROC_PYTHON | FEED_PROC_NODE | FEED_PROC_JVM | FEED_PROC_PHP |
			    FEED_PROC_RUBY))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (strcmp(name, programs[i]) == 0)
			return true;
	return false;
}

static void add_period(struct chunk_alloc *to, const struct feed_alloc *period, bool pooled)
{
	if (!to->since_ns || period->since_ns < to->since_ns)
		to->since_ns = period->since_ns;
	to->windows += period->window_ns > 0;
	to->full += period->full;
	to->period_ns += period->period_ns;
	to->window_ns += period->window_ns;
	to->cpu_ns += period->cpu_ns;
	to->cost_ns += period->cost_ns;
	to->hits += period->hits;
	to->sampled += period->sampled;
	to->lost += period->lost;
	to->gap_bytes = period->gap_bytes;
	to->dilation_sum += period->dilation;
	to->faulted_bytes += period->faulted_bytes;
	to->window_cpu_ns += period->window_cpu_ns;
	to->pooled |= pooled;
	if (period->family < 32)
		to->families |= 1u << period->family;
}

static void saw_period(struct sessions *s, struct live_process *process,
		       const struct feed_alloc *period)
{
	demand_match(s, process);
	for (struct session *session = s->running; session; session = session->next) {
		bool matches = process->match[session->slot / 64] >> session->slot % 64 & 1;

		if (matches && alloc_session_is(session) &&
		    (session->phase == PHASE_SAMPLING || session->phase == PHASE_CLOSING) &&
		    period->time_ns + period->period_ns > session->start_ns &&
		    period->time_ns < session->end_ns)
			add_period(&recorder_quality(session->recorder)->alloc, period,
				   is_pooled(&process->facts));
	}
}

static void saw_refusal(struct sessions *s, const struct live_process *process)
{
	for (struct session *session = s->running; session; session = session->next) {
		const char *reason = reason_of(session->info.type, process);

		if (!reason[0] || !alloc_session_is(session) || !session_wants_process(session, process) ||
		    session->phase < PHASE_WAIT_PROCESS || session->phase > PHASE_SAMPLING)
			continue;
		recorder_note(session->recorder, "process %u is not observed: %.110s",
			      process->facts.tgid, reason);
	}
}

static void saw_sweep(struct sessions *s, uint64_t time_ns)
{
	for (struct session *session = s->running; session; session = session->next)
		if (session->swept && time_ns >= session->swept_ns)
			session->alloc_complete = true;
}

void alloc_session_saw(struct sessions *s, const void *data, size_t len)
{
	struct live_process *process;
	struct feed_string reason;
	struct feed_alloc alloc;
	const void *tail;
	size_t tail_len;

	if (feed_decode(data, len, &alloc, sizeof(alloc), &tail, &tail_len) < 0 ||
	    feed_decode_strings(tail, tail_len, &reason, 1) < 0)
		return;
	if (alloc.what == FEED_ALLOC_SWEPT) {
		saw_sweep(s, alloc.time_ns);
		return;
	}
	process = live_tables_process(&s->tables, alloc.proc);
	if (!process)
		return;
	if (alloc.what == FEED_ALLOC_PERIOD) {
		saw_period(s, process, &alloc);
		return;
	}
	process->alloc_asked_ns = alloc.time_ns;
	(void)snprintf(process->alloc_reason, sizeof(process->alloc_reason), "%.*s",
		       alloc.what == FEED_ALLOC_REFUSED ? (int)reason.len : 0, reason.text);
	(void)snprintf(process->live_reason, sizeof(process->live_reason), "%.*s",
		       alloc.what == FEED_ALLOC_READY ? (int)reason.len : 0, reason.text);
	saw_refusal(s, process);
}

bool alloc_session_takes(struct session *session, const struct feed_sample *sample)
{
	if (session->info.type == PROFILE_ALLOC)
		return sample->state == FEED_ALLOC_BIRTH;
	if (session->info.type != PROFILE_MEMORY || sample->state == FEED_ALLOC_BIRTH || !session->swept)
		return false;
	if (!session->live_sweep)
		session->live_sweep = sample->source;
	return session->live_sweep == sample->source;
}

/* ---- quality -----------------------------------------------------------------------------------
 */

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : -1;
}

/* The weight of a probe window rests on the cost of its probes. An error of that cost weighs more
 * when the programs did less beside them. */
static double weight_error(const struct chunk_alloc *a)
{
	double cost = (double)a->cost_ns, own = (double)a->window_cpu_ns - cost, error;

	if (a->full == a->windows || cost <= 0)
		return 0;
	error = own > 0 ? COST_ERROR * cost / own : WEIGHT_ERROR_MAX;
	return error < WEIGHT_ERROR_MAX ? error : WEIGHT_ERROR_MAX;
}

/* Only glibc's blocks tell by their headers what became of them while no probe was open. */
static void note_unseen_blocks(const struct chunk_alloc *a, double duty_pct,
			       struct profile_quality *ret)
{
	if (!a->heap.resident_bytes || !(a->families & ~(1u << ALLOC_FAMILY_GLIBC)) ||
	    duty_pct >= UNSEEN_DUTY_PCT)
		return;
	quality_note(ret,
		     "large blocks are exact with glibc only: this allocator's are missed or guessed "
		     "if they came or grew in the %.0f %% of the time without probes",
		     100 - duty_pct);
}

void alloc_session_quality(const struct sessions *s, const struct chunk_quality *quality,
			   struct profile_quality *ret)
{
	const struct chunk_alloc *from = &quality->alloc;
	struct profile_probes *to = &ret->probes;
	uint64_t periods = from->windows ? from->windows : 1;

	if (!from->period_ns)
		return;
	(void)snprintf(to->mode, sizeof(to->mode), "%s",
		       from->full == from->windows ? "full" : from->full ? "windows and full" : "windows");
	to->windows = from->windows;
	to->hits = from->hits;
	to->sampled = from->sampled;
	to->gap_bytes = from->gap_bytes;
	to->duty_pct = percent(from->window_ns, from->period_ns);
	to->cost_pct = percent(from->cost_ns, from->cpu_ns);
	to->rel_err = weight_error(from);
	to->pooled = from->pooled;
	to->faulted_bytes = from->faulted_bytes;
	to->heap_bytes = from->heap.bytes;
	to->heap_blocks = from->heap.blocks;
	to->resident_bytes = from->heap.resident_bytes;
	to->heap_mapped_bytes = from->heap.mapped_bytes;
	to->grown_count = from->grown_count;
	memcpy(to->grown, from->grown, sizeof(to->grown));
	to->dilation = (double)from->dilation_sum / (double)periods / 100;
	to->observed_since_ns = clock_to_realtime_ns(&s->feed.clock, from->since_ns);
	note_unseen_blocks(from, to->duty_pct, ret);
}
