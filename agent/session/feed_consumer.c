// SPDX-License-Identifier: Apache-2.0
#include "agent/session/feed_consumer.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "agent/base/channel.h"
#include "agent/session/alloc_session.h"
#include "agent/session/continuous.h"

#define OUTCOME_DROPPED_FIRST 32 /* bpf/outcome.def: from here on nothing was recorded */

#define COSTS_SPAN_NS (10 * NS_PER_S)

/* ---- dictionary ------------------------------------------------------------------------------ */

static void note_refused(int rc, const char *what)
{
	static struct log_limit limit = { .burst = 5 };

	if (rc < 0 && log_allowed(&limit))
		log_warn("feed: a %s record was refused: %s", what, strerror(-rc));
}

static void add_process(struct sessions *s, const struct ring_record *record)
{
	struct live_process *process = NULL;
	int rc = live_tables_add_process(&s->tables, &s->feed.clock, record->data, record->len,
					 &process);

	note_refused(rc, "process");
	if (rc == 0)
		session_life_saw_process(s, process, clock_monotonic_ns());
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
			note_refused(live_tables_add_module(&s->tables, record.data, record.len),
				     "module");
		else if (record.kind == FEED_STACK)
			note_refused(live_tables_add_stack(&s->tables, record.data, record.len),
				     "stack");
		else if (record.kind == FEED_PROC)
			add_process(s, &record);
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
	/* What was taken refers to the tables of the life that ended. */
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
	}
}

/* What nobody counts or samples: whose it is is not told, so every session that it may be of says it. */
static void note_missing(struct sessions *s, uint8_t outcome)
{
	static const char bytes[] = "bytes", stacks[] = "stacks of waits";
	static const struct {
		uint8_t outcome; /* id of bpf/outcome.def */
		uint32_t wanted;
		const char *what, *why;
	} missing[] = {
		{ 43, PROF_WANT_IO, bytes, "there was no memory to count them in" },
		{ 45, PROF_WANT_IO, bytes, "of a sendmmsg() or recvmmsg() the lengths could not be read" },
		{ 46, PROF_WANT_IO, bytes, "a completion of io_uring did not say what it was of" },
		{ 47, PROF_WANT_IO, bytes, "what a request of Linux AIO was could not be read when it was collected" },
		{ 48, PROF_WANT_OFFCPU, stacks, "the kernel did not tell that a thread was back on a CPU" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
		for (struct session *session = s->running; session && missing[i].outcome == outcome; session = session->next)
			if (session->wants & missing[i].wanted &&
			    (session->phase == PHASE_SAMPLING || session->phase == PHASE_CLOSING))
				recorder_note(session->recorder, "%s of some process of this host may be missing: %s",
					      missing[i].what, missing[i].why);
}

static void on_outcomes(struct sessions *s, const struct ring_record *record)
{
	/* enum ids of bpf/outcome.def whose events are gone: rings full, scratch busy, stack never
	 * delivered. */
	static const uint8_t losses[] = { 34, 36, 38, 39 };
	struct feed_outcomes head;
	const void *tail;
	size_t tail_len;

	if (feed_decode(record->data, record->len, &head, sizeof(head), &tail, &tail_len) < 0 ||
	    head.count > tail_len / sizeof(struct feed_outcome))
		return;
	for (uint32_t i = 0; i < head.count; i++) {
		struct feed_outcome outcome;

		memcpy(&outcome, (const char *)tail + i * sizeof(outcome), sizeof(outcome));
		if (outcome.outcome >= PROFILE_OUTCOMES_MAX)
			continue;
		s->outcomes[outcome.outcome] += outcome.increment;
		if (memchr(losses, (int)outcome.outcome, sizeof(losses)))
			s->host_lost += outcome.increment;
		if (outcome.increment)
			note_missing(s, outcome.outcome);
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
	return s->continuous.source_count > 0;
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

/* Nothing has a deadline that a longer wait would miss: what a session that samples takes counts by its own
 * time, however late it is read. */
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

/* Milliseconds to the next round, at the end of a session at once: what still waits then, and every thread's
 * counters, are looked at. */
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
	uint64_t position = session_life_release_position(s);

	/* Never back: the producer may have written there. */
	if (position > ring_tail(s->feed.ring))
		ring_release(s->feed.ring, position);
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
		s->peers.has_listed |= lists;
		now_ns = clock_monotonic_ns();
		session_life_tick(s, now_ns);
		release(s);
		demand_update(s);
		if (now_ns >= expire_at_ns) {
			live_tables_expire(&s->tables, now_ns);
			expire_at_ns = now_ns + NS_PER_S;
		}
		wait_for_work(s);
	}
	if (!s->abandoned) {
		session_life_end_all(s, clock_monotonic_ns());
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
