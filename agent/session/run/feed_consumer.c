// SPDX-License-Identifier: Apache-2.0
/* The thread that reads the feed, with two cursors: one runs ahead and fills the tables of modules,
 * processes and stacks, the other hands out samples behind it, so that a sample finds what it
 * refers to even when a predecessor died and the facts had to be asked for again (they come behind
 * the samples). A restart of the collector (FEED_EPOCH) stops the first cursor until the second
 * has come up to it.
 *
 * Space is released up to what every session has made durable: a server that is killed loses
 * nothing. */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "agent/base/channel.h"
#include "agent/profile/outcome.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/core/alloc_session.h"
#include "agent/session/core/demand.h"
#include "agent/session/core/session_life.h"
#include "agent/session/core/session_way.h"
#include "agent/session/core/session_take.h"
#include "agent/session/run/run.h"

#define FEED_STALL_NS	     (2 * NS_PER_S) /* longest wait for the facts of one process */
#define FEED_ABSENT_NS	     (5 * NS_PER_S) /* the same while there is no collector to ask */
#define FEED_RECORDS_AT_ONCE 20000u	    /* handled under one hold of the lock */

/* Time between two rounds. */
#define SESSION_TICK_NS	     (100 * NS_PER_MS)
#define SESSION_CALM_TICK_NS (200 * NS_PER_MS)
#define SESSION_SLOW_TICK_NS (1 * NS_PER_S) /* at rates up to SESSION_SLOW_HZ, as the collector */
#define SESSION_SLOW_HZ	     50

#define COSTS_SPAN_NS (10 * NS_PER_S)

/* ---- dictionary ------------------------------------------------------------------------------ */

static void note_refused(int rc, const char *what)
{
	static struct log_limit limit = { .burst = 5 };

	if (rc < 0 && log_allowed(&limit))
		log_warn("feed: a %s record was refused: %s", what, strerror(-rc));
}

/* Callers wait for what the collector tells (sessions_await_told()). */
static void note_told(struct sessions *s)
{
	s->told_count++;
	(void)pthread_cond_broadcast(&s->told);
}

static void add_module(struct sessions *s, const struct ring_record *record)
{
	note_refused(live_tables_add_module(&s->tables, record->data, record->len), "module");
	note_told(s);
}

static void add_process(struct sessions *s, const struct ring_record *record)
{
	struct live_process *process = NULL;
	int rc = live_tables_add_process(&s->tables, &s->feed.clock, record->data, record->len,
					 &process);

	note_refused(rc, "process");
	if (rc == 0)
		session_life_saw_process(s, process, clock_monotonic_ns());
	note_told(s);
}

static void take_script(struct sessions *s, const struct ring_record *record)
{
	struct feed_function functions[FEED_FUNCTIONS_MAX];
	struct feed_script script;
	int count = feed_decode_script(record->data, record->len, &script, functions);

	note_refused(count < 0 ? count : 0, "script name");
	if (count > 0)
		names_client_tell(s->names, &script, functions, (unsigned)count);
}

/* Fills the tables as far as there are records; never past a new epoch. */
static void read_ahead(struct sessions *s)
{
	struct ring_record record;

	if (s->feed.ahead < s->feed.cursor)
		s->feed.ahead = s->feed.cursor;
	while (ring_read(s->feed.ring, s->feed.ahead, &record) == 1) {
		if (record.kind == FEED_EPOCH)
			return;
		if (record.kind == FEED_MODULE)
			add_module(s, &record);
		else if (record.kind == FEED_STACK)
			note_refused(live_tables_add_stack(&s->tables, record.data, record.len),
				     "stack");
		else if (record.kind == FEED_PROC)
			add_process(s, &record);
		else if (record.kind == FEED_SCRIPT)
			take_script(s, &record);
		s->feed.ahead = record.end;
	}
}

/* ---- samples and the rest, in order ---------------------------------------------------------- */

static int take_fixed(const struct ring_record *record, void *fixed, size_t size)
{
	const void *tail;
	size_t tail_len;
	int rc = feed_decode(record->data, record->len, fixed, size, &tail, &tail_len);

	note_refused(rc, "malformed");
	return rc;
}

static void on_epoch(struct sessions *s, const struct ring_record *record)
{
	struct feed_epoch epoch;

	if (take_fixed(record, &epoch, sizeof(epoch)) < 0)
		return;
	/* The samples taken so far refer to the tables of the collector that ended. */
	for (struct session *session = s->running; session; session = session->next)
		if (recorder_seal(session->recorder, &s->tables, s->feed.cursor, false, NULL) < 0)
			session_life_fail(s, session, "the session's data does not fit in memory");
	continuous_forget_epoch(s);
	live_tables_clear(&s->tables);
	for (struct session *session = s->running; session; session = session->next) {
		recorder_forget_epoch(session->recorder);
		if (s->feed.has_epoch && session->phase == PHASE_SAMPLING)
			recorder_note(session->recorder,
				      "the collector was restarted: nothing was sampled meanwhile%s",
				      session->selector.children ?
					      ", and of the process's descendants only those are followed on whose parents live" :
					      "");
	}
	s->feed.has_epoch = true;
	s->feed.clock = epoch.clock;
	s->feed.cpu_count = epoch.cpu_count;
	s->feed.demand = (struct feed_demand){ 0 };
	s->feed.costs = s->feed.costs_before = s->feed.costs_next = (struct feed_clock){ 0 };
	s->feed.programs = s->feed.programs_before = s->feed.programs_next = (struct feed_costs){ 0 };
	s->peers.demand_dirty = s->peers.targets_dirty = true;
}

static void on_clock(struct sessions *s, const struct ring_record *record)
{
	struct feed_clock clock;

	if (take_fixed(record, &clock, sizeof(clock)) < 0)
		return;
	if (clock.clock.monotonic_ns >= s->feed.costs_next.clock.monotonic_ns + COSTS_SPAN_NS) {
		bool is_first = !s->feed.costs_next.clock.monotonic_ns;

		s->feed.costs_before = is_first ? clock : s->feed.costs_next;
		s->feed.programs_before = is_first ? s->feed.programs : s->feed.programs_next;
		s->feed.costs_next = clock;
		s->feed.programs_next = s->feed.programs;
	}
	s->feed.costs = clock;
	s->feed.clock = clock.clock;
}

static void on_costs(struct sessions *s, const struct ring_record *record)
{
	struct feed_costs costs;

	if (take_fixed(record, &costs, sizeof(costs)) == 0)
		s->feed.programs = costs;
}

static void on_exit_of(struct sessions *s, const struct ring_record *record)
{
	struct feed_proc_exit gone;
	struct live_process *process;

	if (take_fixed(record, &gone, sizeof(gone)) < 0)
		return;
	process = live_tables_process(&s->tables, gone.proc);
	if (!process || process->exited_ns)
		return;
	process->exited_ns = gone.time_ns ? gone.time_ns : clock_monotonic_ns();
	session_life_saw_exit(s, process);
	note_told(s);
}

static void on_proc_cpu(struct sessions *s, const struct ring_record *record)
{
	struct live_process *process;
	struct feed_proc_cpu reading;

	if (take_fixed(record, &reading, sizeof(reading)) < 0)
		return;
	process = live_tables_process(&s->tables, reading.proc);
	if (process)
		live_process_read_cpu(process, reading.time_ns, reading.cpu_ns);
	if (!reading.proc) {
		s->feed.lives_told_ns = reading.time_ns;
		s->feed.ports_told_ns = reading.cpu_ns;
		note_told(s);
	}
}

/* Notes in every running session that may lack data by an event whose process is unknown. */
static void note_missing(struct sessions *s, const struct outcome_info *outcome)
{
	const bool bytes = outcome->shown == OUTCOME_SHOWN_BYTES_NOTE;
	const uint32_t wanted = bytes ? PROF_WANT_IO : PROF_WANT_OFFCPU;

	for (struct session *session = s->running; session; session = session->next)
		if (session->wants & wanted &&
		    (session->phase == PHASE_SAMPLING || session->phase == PHASE_CLOSING)) {
			if (bytes)
				recorder_unnote(session->recorder, SESSION_BYTES_ARE_EXACT);
			recorder_note(session->recorder, "%s of a process on this host may be missing: %s",
				      bytes ? "bytes" : "waits", outcome->sentence);
		}
}

static void on_outcome(struct sessions *s, uint32_t id, uint64_t increment)
{
	const struct outcome_info *outcome = outcome_info(id);

	if (!outcome)
		return;
	s->outcomes[id] += increment;
	if (outcome->shown == OUTCOME_SHOWN_LOST)
		s->host_lost += increment;
	else if (increment && (outcome->shown == OUTCOME_SHOWN_BYTES_NOTE ||
			       outcome->shown == OUTCOME_SHOWN_WAITS_NOTE))
		note_missing(s, outcome);
}

static void on_outcomes(struct sessions *s, const struct ring_record *record)
{
	struct feed_outcomes head;
	const void *tail;
	size_t tail_len;

	if (feed_decode(record->data, record->len, &head, sizeof(head), &tail, &tail_len) < 0 ||
	    head.count > tail_len / sizeof(struct feed_outcome))
		return;
	for (uint32_t i = 0; i < head.count; i++) {
		struct feed_outcome outcome;

		memcpy(&outcome, (const char *)tail + i * sizeof(outcome), sizeof(outcome));
		on_outcome(s, outcome.outcome, outcome.increment);
	}
}

static void on_demand(struct sessions *s, const struct ring_record *record)
{
	struct feed_demand demand;

	if (take_fixed(record, &demand, sizeof(demand)) < 0)
		return;
	for (struct session *session = s->running; session; session = session->next)
		if (session->phase == PHASE_SAMPLING && demand.time_ns >= session->start_ns)
			session_life_note_restraint(session, &demand);
	s->feed.demand = demand;
	s->feed.has_demand = true;
	session_life_saw_demand(s, demand.time_ns);
}

static void on_gap(struct sessions *s, const struct ring_record *record)
{
	struct feed_gap gap;

	if (take_fixed(record, &gap, sizeof(gap)) < 0 || gap.to_ns < gap.from_ns)
		return;
	for (struct session *session = s->running; session; session = session->next)
		if (session->phase == PHASE_SAMPLING && gap.to_ns > session->start_ns)
			recorder_note(session->recorder,
				      "nothing was sampled for %.1f s: the collector was away",
				      (double)(gap.to_ns - gap.from_ns) / 1e9);
}

static bool somebody_samples(const struct sessions *s)
{
	for (const struct session *session = s->running; session; session = session->next)
		if (session->phase == PHASE_SAMPLING || session->phase == PHASE_CLOSING)
			return true;
	return continuous_is_on(s);
}

/* The process of a sample. NULL with *ret_wait: its facts are asked for and the cursor waits. When
 * they never come it is known by its thread's name alone: a sample is never dropped for that. */
static struct live_process *process_of(struct sessions *s, const struct feed_sample *sample,
				       bool *ret_wait)
{
	struct live_process *process = live_tables_process(&s->tables, sample->proc);
	uint64_t now_ns, id = sample->proc;

	*ret_wait = false;
	if (process || !somebody_samples(s)) {
		s->feed.stall_until_ns = 0;
		return process;
	}
	now_ns = clock_monotonic_ns();
	if (now_ns >= s->feed.no_stall_before_ns) {
		if (!s->feed.stall_until_ns || s->feed.stall_proc != sample->proc) {
			s->feed.stall_proc = sample->proc;
			s->feed.stall_until_ns =
				now_ns +
				(s->peers.collector_fd >= 0 ? FEED_STALL_NS : FEED_ABSENT_NS);
			demand_want(s, WANT_PROC, &id, 1);
		}
		if (now_ns < s->feed.stall_until_ns) {
			*ret_wait = true;
			return NULL;
		}
		s->feed.no_stall_before_ns = now_ns + 5 * FEED_STALL_NS;
	}
	s->feed.stall_until_ns = 0;
	if (live_tables_add_nameless(&s->tables, sample->proc, sample->comm, &process) < 0)
		return NULL;
	return process;
}

/* After a restart of the server the record that said what is sampled may be gone: the samples
 * themselves tell, the rate by their period. */
static void infer_demand(struct sessions *s, const struct feed_sample *sample)
{
	uint32_t bit = sample->type == PROF_SAMPLE_CPU ? PROF_WANT_CPU : PROF_WANT_OFFCPU;

	if (sample->type > PROF_SAMPLE_OFFCPU || sample->source || !sample->value ||
	    (s->feed.demand.types & bit))
		return;
	if (bit == PROF_WANT_CPU)
		s->feed.demand.rate_hz = (uint32_t)((NS_PER_S + sample->value / 2) / sample->value);
	s->feed.demand.types |= bit;
	s->feed.demand.time_ns = sample->time_ns;
	session_life_saw_demand(s, sample->time_ns);
}

/* false: the cursor waits. */
static bool on_sample(struct sessions *s, const struct ring_record *record)
{
	struct live_process *process;
	struct feed_sample sample;
	bool wait;

	if (take_fixed(record, &sample, sizeof(sample)) < 0)
		return true;
	process = process_of(s, &sample, &wait);
	if (wait)
		return false;
	/* Before the sessions take it: a group they seal here must not lead to this record again.
	 */
	s->feed.record_at = s->feed.cursor;
	s->feed.cursor = record->end;
	s->samples += !prof_sample_is_reading(sample.type);
	if (sample.type < ARRAY_SIZE(s->host_samples))
		s->host_samples[sample.type]++;
	if (!process)
		return true;
	if (!s->feed.has_demand)
		infer_demand(s, &sample);
	demand_match(s, process);
	for (unsigned i = 0; i < LIVE_SLOTS / 64; i++) {
		for (uint64_t left = process->match[i]; left; left &= left - 1) {
			struct session *session =
				s->slots[i * 64 + (unsigned)__builtin_ctzll(left)];

			if (session)
				session_take(s, session, &sample, process);
		}
	}
	continuous_take(s, process, &sample);
	return true;
}

/* false: the cursor waits. */
static bool handle(struct sessions *s, const struct ring_record *record)
{
	switch (record->kind) {
	case FEED_EPOCH:
		on_epoch(s, record);
		break;
	case FEED_CLOCK:
		on_clock(s, record);
		break;
	case FEED_COSTS:
		on_costs(s, record);
		break;
	case FEED_PROC_EXIT:
		on_exit_of(s, record);
		break;
	case FEED_PROC_CPU:
		on_proc_cpu(s, record);
		break;
	case FEED_OUTCOMES:
		on_outcomes(s, record);
		break;
	case FEED_DEMAND:
		on_demand(s, record);
		break;
	case FEED_GAP:
		on_gap(s, record);
		break;
	case FEED_ALLOC:
		alloc_session_saw(s, record->data, record->len);
		note_told(s);
		break;
	case FEED_SAMPLE:
		return on_sample(s, record);
	}
	return true;
}

static void skip_damage(struct sessions *s)
{
	log_error("feed: the ring is damaged; what was in it is skipped");
	for (struct session *session = s->running; session; session = session->next)
		recorder_note(session->recorder,
			      "the feed was damaged: a part of the samples is missing");
	s->feed.cursor = s->feed.ahead = ring_head(s->feed.ring);
}

/* true: there may be more at once. */
static bool read_feed(struct sessions *s)
{
	struct ring_record record;
	int rc = 0;

	read_ahead(s);
	for (unsigned i = 0; i < FEED_RECORDS_AT_ONCE; i++) {
		rc = ring_read(s->feed.ring, s->feed.cursor, &record);
		if (rc != 1)
			break;
		/* Samples stay behind the dictionary. */
		if (record.end > s->feed.ahead && record.kind != FEED_EPOCH)
			break;
		if (!handle(s, &record))
			return false;
		s->feed.cursor = record.end;
	}
	if (rc == -EPROTO)
		skip_damage(s);
	return rc == 1;
}

/* ---- the collector's channel ----------------------------------------------------------------- */

static void lose_collector(struct sessions *s)
{
	cleanup_close_fn(&s->peers.collector_fd);
	s->peers.collector_fd = -1;
	s->peers.has_status = false;
}

static void adopt_collector(struct sessions *s)
{
	struct control_want all = { .head = { .kind = CONTROL_WANT }, .what = WANT_ALL };

	if (!s->peers.has_new_collector)
		return;
	lose_collector(s);
	s->peers.collector_fd = s->peers.new_collector_fd;
	s->peers.new_collector_fd = -1;
	s->peers.has_new_collector = false;
	s->peers.demand_sent = (struct control_demand){ 0 };
	s->peers.families_sent = (struct control_families){ 0 };
	s->peers.demand_dirty = s->peers.targets_dirty = true;
	if (s->feed.stall_until_ns)
		s->feed.stall_until_ns = clock_monotonic_ns() + FEED_STALL_NS;
	for (size_t i = 0; i < s->tables.processes.count; i++)
		s->tables.processes.data[i]->wanted_sent = 0;
	if (s->peers.collector_fd >= 0 &&
	    channel_send(s->peers.collector_fd, &all, sizeof(all), NULL, 0) == -EPIPE)
		lose_collector(s);
}

static void read_collector(struct sessions *s, struct channel_message *message)
{
	int rc = 0;

	while (s->peers.collector_fd >= 0 &&
	       (rc = channel_receive(s->peers.collector_fd, message)) != 0) {
		const struct channel_head *head = (const void *)message->data;

		channel_message_close(message);
		if (rc == -EPROTO)
			continue;
		if (rc < 0) {
			lose_collector(s);
			return;
		}
		if (head->kind == CONTROL_STATUS && message->len == sizeof(struct control_status)) {
			if (s->peers.has_status && s->peers.status.loading)
				s->peers.loaded_ns = clock_monotonic_ns();
			memcpy(&s->peers.status, message->data, sizeof(s->peers.status));
			s->peers.status.failure[sizeof(s->peers.status.failure) - 1] = '\0';
			s->peers.has_status = true;
		}
	}
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Nothing has a deadline that a longer wait would miss: what a session that samples takes counts by
 * its own time, however late it is read. */
static bool is_calm(const struct sessions *s)
{
	for (const struct session *session = s->running; session; session = session->next)
		if (session->phase != PHASE_SAMPLING || session->swept || session->reads)
			return false;
	return !s->feed.stall_until_ns;
}

static uint64_t tick_ns(const struct sessions *s)
{
	const struct feed_demand *demand = &s->feed.demand;

	if (!is_calm(s))
		return SESSION_TICK_NS;
	return demand->types == PROF_WANT_CPU && demand->rate_hz <= SESSION_SLOW_HZ ? SESSION_SLOW_TICK_NS
										    : SESSION_CALM_TICK_NS;
}

/* Milliseconds to the next round, at the end of a session at once: what still waits then, and every
 * thread's counters, are looked at. */
static int next_round_ms(const struct sessions *s)
{
	uint64_t now_ns = clock_monotonic_ns();
	uint64_t until_ns = now_ns + tick_ns(s);

	for (const struct session *session = s->running; session; session = session->next)
		if (session->phase == PHASE_SAMPLING && !session->swept && session->end_ns < until_ns)
			until_ns = session->end_ns > now_ns ? session->end_ns : now_ns;
	return (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static void wait_for_work(struct sessions *s)
{
	struct pollfd fds[2] = { { .fd = s->wake_fd, .events = POLLIN },
				 { .fd = s->peers.collector_fd, .events = POLLIN } };
	int wait_ms = next_round_ms(s);
	uint64_t ignored;

	sessions_unlock(s);
	(void)poll(fds, 2, wait_ms);
	if (fds[0].revents & POLLIN)
		(void)!read(s->wake_fd, &ignored, sizeof(ignored));
	sessions_lock(s);
}

static void release(struct sessions *s)
{
	uint64_t position = continuous_release_position(s, session_life_release_position(s));

	/* Never back: the producer may have written there. */
	if (position > ring_tail(s->feed.ring))
		ring_release(s->feed.ring, position);
}

/* A ring that fills faster than the interval: durable sooner, so that it can be released. */
static bool is_ring_filling(const struct sessions *s)
{
	return s->feed.ring && ring_head(s->feed.ring) - ring_tail(s->feed.ring) >
				       ring_capacity(s->feed.ring) / 2;
}

static bool is_flush_due(const struct sessions *s, uint64_t now_ns)
{
	return now_ns >= s->flush_at_ns ||
	       (is_ring_filling(s) && now_ns + s->options.flush_interval_ns > s->flush_at_ns + NS_PER_S);
}

/* Sessions first: a new minute of continuous profiling does not depend on them. */
static void flush(struct sessions *s, uint64_t now_ns)
{
	s->flush_at_ns = now_ns + s->options.flush_interval_ns;
	session_life_flush(s);
	if (now_ns >= s->continuous_at_ns || is_ring_filling(s)) {
		s->continuous_at_ns = now_ns + continuous_flush_interval(s);
		continuous_flush(s);
	}
	/* Building and rendering a profile of the host takes tens of MB for a moment, in pieces:
	 * the C library keeps free memory until malloc_trim() gives it back. */
	if (atomic_exchange(&s->has_built, false))
		(void)malloc_trim(0);
}

static void do_round(struct sessions *s, uint64_t now_ns)
{
	session_life_check(s, now_ns);
	continuous_sweep(s);
	if (is_flush_due(s, now_ns))
		flush(s, now_ns);
	session_life_save(s, now_ns);
}

static void end_all(struct sessions *s)
{
	uint64_t now_ns = clock_monotonic_ns();

	session_life_end_all(s, now_ns);
	continuous_flush(s);
	session_life_save(s, now_ns);
}

static void *feed_main(void *ctx)
{
	struct sessions *s = ctx;
	struct channel_message *message = calloc(1, sizeof(*message));
	uint64_t expire_at_ns = 0;

	sessions_lock(s);
	while (!s->stopping && message) {
		uint64_t now_ns;
		bool lists;

		adopt_collector(s);
		read_collector(s, message);
		lists = s->peers.has_status && s->peers.status.listed;
		while (read_feed(s)) {
			sessions_unlock(s);
			sessions_lock(s);
		}
		if (lists && !s->peers.has_listed)
			note_told(s);
		s->peers.has_listed |= lists;
		now_ns = clock_monotonic_ns();
		do_round(s, now_ns);
		release(s);
		demand_update(s);
		if (now_ns >= expire_at_ns) {
			live_tables_expire(&s->tables, now_ns);
			expire_at_ns = now_ns + NS_PER_S;
		}
		wait_for_work(s);
	}
	if (!s->abandoned) {
		end_all(s);
		release(s);
	}
	sessions_unlock(s);
	free(message);
	return NULL;
}

int feed_consumer_start(struct sessions *s, int feed_fd, struct err *err)
{
	int rc = ring_attach(feed_fd, &s->feed.ring);

	if (rc < 0)
		return err_set(err, -rc, NULL, NULL,
			       "the feed from the collector is not usable: %s", strerror(-rc));
	s->feed.cursor = s->feed.ahead = ring_tail(s->feed.ring);
	rc = resume_sessions(s, err);
	if (rc < 0)
		return rc;
	rc = pthread_create(&s->feed_thread, NULL, feed_main, s);
	if (rc != 0)
		return err_set(err, rc, NULL, NULL, "no thread to read the feed: %s", strerror(rc));
	s->has_feed_thread = true;
	return 0;
}

void feed_consumer_stop(struct sessions *s)
{
	if (s->has_feed_thread)
		(void)pthread_join(s->feed_thread, NULL);
	s->has_feed_thread = false;
	lose_collector(s);
	ring_destroy(s->feed.ring);
	s->feed.ring = NULL;
}
