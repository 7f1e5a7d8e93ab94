// SPDX-License-Identifier: Apache-2.0
/* Scales the samples of each thread to the kernel's own counts. */
#include "agent/recording/build_internal.h"
#include "agent/recording/moved_totals.h"
#include "agent/recording/thread_totals.h"
#include "bpf/profiler.h"

static uint32_t pid_of(const struct recording *recording, const struct chunk_attr *attr)
{
	return attr->process < recording->processes.count
		       ? recording->processes.data[attr->process].tgid
		       : 0;
}

static enum thread_class class_of(const struct chunk_attr *attr)
{
	if (attr->type == PROF_SAMPLE_CPU)
		return THREAD_ON_CPU;
	return attr->state >> 4 == PROF_OFF_BLOCKED ? THREAD_BLOCKED : THREAD_WAITS;
}

/* The run-queue part of a wait does not tell (it counts no event). */
bool build_totals_is_exact(const struct chunk_attr *attr, const struct chunk_event *event)
{
	return attr->type == PROF_SAMPLE_OFFCPU && attr->state >> 4 != PROF_OFF_RUNQUEUE &&
	       (event->value2 == 0 || event->value2 == 1024);
}

/* Takes one reading of the kernel's counts for a thread. */
static int read_thread(struct build *b, const struct chunk_attr *attr,
		       const struct chunk_event *event)
{
	const struct clock_triple *clock = &b->recording->quality.clock;
	const uint32_t pid = pid_of(b->recording, attr);
	struct thread_reading reading = { .time_ns = clock_to_realtime_ns(clock, event->time_ns),
					  .start_ns = clock_to_realtime_ns(clock, attr->object),
					  .counts = { (uint64_t)event->value, event->value2 },
					  .ends = attr->state != 0 };

	if (attr->type == PROF_SAMPLE_MOVED)
		return moved_totals_read(b->moved, pid, attr->tid, &reading);
	return attr->type == PROF_SAMPLE_STOLEN
		       ? thread_totals_read_stolen(b->totals, pid, attr->tid, &reading)
		       : thread_totals_read(b->totals, pid, attr->tid, &reading);
}

/* Before samples are added: those of threads without a reading are ignored. */
static int read_threads(struct build *b, unsigned type)
{
	const struct recording *recording = b->recording;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = build_attr(recording, event->attr);

		if (attr && attr->type == type)
			rc = read_thread(b, attr, event);
	}
	return rc;
}

static int find_totals(struct build *b)
{
	const struct recording *recording = b->recording;
	const struct profile_meta *meta = &b->options->meta;
	int rc;

	if (!(profile_type_info(meta->type)->samples & 1u << PROF_SAMPLE_STOLEN) || recording->sums)
		return 0;
	thread_totals_until(b->totals, meta->start_ns + meta->duration_ns);
	rc = read_threads(b, PROF_SAMPLE_THREAD);
	if (rc == 0)
		rc = read_threads(b, PROF_SAMPLE_STOLEN);
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = build_attr(recording, event->attr);

		if (attr && !prof_sample_is_reading(attr->type) && attr->type != PROF_SAMPLE_WAKER)
			thread_totals_add(b->totals, pid_of(recording, attr), attr->tid,
					  class_of(attr), build_totals_is_exact(attr, event), event->value);
	}
	thread_totals_settle(b->totals, meta->start_ns, meta->start_ns + meta->duration_ns,
			     profile_type_info(meta->type)->samples & 1u << PROF_SAMPLE_CPU);
	return rc;
}

/* Takes the readings of the bytes that each thread read and wrote. */
static int find_moved(struct build *b)
{
	const struct recording *recording = b->recording;
	const struct profile_meta *meta = &b->options->meta;
	int rc;

	if (!(profile_type_info(meta->type)->samples & 1u << PROF_SAMPLE_MOVED) || recording->sums)
		return 0;
	moved_totals_until(b->moved, meta->start_ns + meta->duration_ns);
	rc = read_threads(b, PROF_SAMPLE_MOVED);
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = build_attr(recording, event->attr);

		if (attr && attr->type == PROF_SAMPLE_IO)
			moved_totals_add(b->moved, pid_of(recording, attr), attr->tid, event->value,
					 attr->state == CHUNK_IO_SUM);
	}
	moved_totals_settle(b->moved, meta->start_ns, meta->start_ns + meta->duration_ns);
	return rc;
}

int build_totals_find(struct build *b)
{
	int rc = find_totals(b);

	return rc < 0 ? rc : find_moved(b);
}

int64_t build_totals_scale(const struct build *b, const struct chunk_attr *attr,
			   const struct chunk_event *event)
{
	const uint32_t pid = pid_of(b->recording, attr);
	int64_t value = thread_totals_scale(b->totals, pid, attr->tid, class_of(attr),
					    build_totals_is_exact(attr, event), event->value);

	return attr->type == PROF_SAMPLE_IO ? moved_totals_scale(b->moved, pid, attr->tid, value,
								 attr->state == CHUNK_IO_SUM)
					    : value;
}

static void add_marked(struct build *b, const struct chunk_attr *attr, const char *marker,
		       const char *state, const char *wait,
		       const int64_t values[PROFILE_VALUES_MAX])
{
	struct profile_attrs entry = { .tid = attr->tid };

	entry.process = build_attrs_process(b, attr->process);
	entry.thread_name = profile_builder_string(b->builder, attr->comm,
						   strnlen(attr->comm, sizeof(attr->comm)));
	entry.state = build_text(b, state);
	entry.wait = build_text(b, wait);
	entry.extra = build_text(b, "");
	profile_builder_sample(b->builder, build_marker(b, marker),
			       profile_builder_attrs(b->builder, &entry, NULL), values);
}

/* Time that no sample stands for. */
static void add_rest(struct build *b, const struct chunk_attr *attr, enum thread_class class)
{
	static const char *const markers[THREAD_CLASS_MAX] = {
		[THREAD_ON_CPU] = "[on cpu, not sampled]",
		[THREAD_WAITS] = "[waiting for a cpu, not sampled]",
		[THREAD_BLOCKED] = "[blocked, not sampled]",
		[THREAD_STOLEN] = PROFILE_STOLEN,
	};
	static const char *const states[THREAD_CLASS_MAX] = { "", "runqueue", "blocked", "preempted" };
	static const char *const waits[THREAD_CLASS_MAX] = { "", "", "unsampled", "" };
	int64_t values[PROFILE_VALUES_MAX] = { 0 };
	int64_t rest_ns = thread_totals_take_rest(b->totals, pid_of(b->recording, attr), attr->tid,
						  class);

	if (rest_ns <= 0)
		return;
	values[profile_type_info(b->options->meta.type)->value_index] = rest_ns;
	add_marked(b, attr, markers[class], states[class], waits[class], values);
}

static void add_rest_of_moved(struct build *b, const struct chunk_attr *attr)
{
	int64_t values[PROFILE_VALUES_MAX] = { 0 };

	values[IO_VALUE_BYTES] = moved_totals_take_rest(b->moved, pid_of(b->recording, attr), attr->tid);
	if (values[IO_VALUE_BYTES] > 0)
		add_marked(b, attr, "[moved, not sampled]", "", "", values);
}

void build_totals_add_rests(struct build *b)
{
	for (size_t i = 0; i < b->recording->attrs.count; i++) {
		const struct chunk_attr *attr = &b->recording->attrs.data[i];

		for (int k = 0; k < THREAD_CLASS_MAX && attr->type == PROF_SAMPLE_THREAD; k++)
			add_rest(b, attr, (enum thread_class)k);
		if (attr->type == PROF_SAMPLE_MOVED)
			add_rest_of_moved(b, attr);
	}
}
