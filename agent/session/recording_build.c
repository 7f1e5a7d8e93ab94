// SPDX-License-Identifier: Apache-2.0
/* From a session's data to its profile. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "agent/profile/lock_site.h"
#include "agent/profile/quality.h"
#include "agent/profile/stack_resolver.h"
#include "agent/session/file_name.h"
#include "agent/session/live_fit.h"
#include "agent/session/lock_names.h"
#include "agent/session/moved_totals.h"
#include "agent/session/recording_internal.h"
#include "agent/session/sample_variance.h"
#include "agent/session/thread_totals.h"
#include "agent/session/wait_types.h"
#include "agent/session/wakers.h"
#include "bpf/profiler.h"

enum { IO_VALUE_OPERATIONS, IO_VALUE_DELAY, IO_VALUE_BYTES };

VEC_DEFINE(ids, uint32_t);

struct build {
	const struct recording *recording;
	const struct recording_options *options;
	struct profile_builder *builder;
	const struct name_source *names;
	struct stack_resolver *resolver;
	struct ids_vec nodes;	  /* by pair, NO_NODE until asked for */
	struct ids_vec files;	  /* likewise, empty unless paths are asked for */
	struct ids_vec attrs;	  /* by attr, likewise */
	struct ids_vec processes; /* by process, likewise */
	struct lock_names locks;
	struct thread_totals *totals;
	struct moved_totals *moved;
	struct wakers wakers;
	struct sample_variance variance;
	struct live_fit fit; /* of what is in use */
};

static bool find_module(void *ctx, uint32_t id, struct stack_module *ret)
{
	const struct recording *recording = ctx;
	const struct module *module;

	if (id >= recording->modules.count || !recording->modules.data[id].path)
		return false;
	module = &recording->modules.data[id];
	*ret = (struct stack_module){ module->key, module->path, module->build_id,
				      module->build_id_len, module->kind };
	return true;
}

static int fill_ids(struct ids_vec *ids, size_t count)
{
	int rc = ids_vec_reserve(ids, count + 1);

	for (size_t i = 0; rc == 0 && i < count; i++)
		ids->data[i] = NO_NODE;
	ids->count = rc == 0 ? count : 0;
	return rc;
}

static uint32_t text_id(struct build *b, const char *text)
{
	return profile_builder_string(b->builder, text, strlen(text));
}

/* A node below the root for what has no stack: the overflow bucket, a stack that never arrived. */
static uint32_t marker_node(struct build *b, const char *text)
{
	struct profile_function function = { .name = text_id(b, text) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER };

	frame.function = profile_builder_function(b->builder, &function);
	return profile_builder_node(b->builder, 0, profile_builder_frame(b->builder, &frame));
}

/* The frames and behind them the file's name, if there is one. false: there is a stack, but its frames are missing. */
static bool find_raw_stack(const struct recording *recording, uint64_t id, struct stack_frames *ret)
{
	const struct stack *stack;
	uint64_t at;

	*ret = (struct stack_frames){ 0 };
	if (!id)
		return true;
	if (!u64map_get(&recording->stack_at, id, &at))
		return false;
	stack = &recording->stacks.data[at];
	*ret = (struct stack_frames){ recording->frames.data + stack->first, stack->count };
	return true;
}

static bool find_stack(const struct recording *recording, uint64_t id, struct stack_frames *ret)
{
	bool whole = find_raw_stack(recording, id, ret);

	ret->count = file_name_at(ret->frames, ret->count);
	return whole;
}

/* String id of the file or peer behind a kernel stack; 0 = there is none, or it was not asked for. */
static uint32_t file_of(struct build *b, uint32_t pair)
{
	char text[FILE_NAME_SIZE];
	struct stack_frames stack;
	size_t code;

	if (pair >= b->files.count)
		return 0;
	if (b->files.data[pair] != NO_NODE)
		return b->files.data[pair];
	(void)find_raw_stack(b->recording, b->recording->pairs.data[pair].kernel, &stack);
	if (!stack.count)
		return b->files.data[pair] = 0;
	code = file_name_at(stack.frames, stack.count);
	file_name_text(stack.frames + code, stack.count - code, text);
	return b->files.data[pair] = text[0] ? text_id(b, text) : 0;
}

static bool is_heap(const struct build *b)
{
	return b->options->meta.type == PROFILE_MEMORY || b->options->meta.type == PROFILE_ALLOC;
}

/* What allocates in C++ is who says new, not operator new. */
static struct stack_frames without_allocator(const struct build *b, struct stack_frames stack)
{
	struct name_frame names[NAMES_INLINE_MAX];
	struct stack_module module;

	while (b->names && stack.count > 1 && prof_frame_kind(stack.frames[0]) == PROF_FRAME_MODULE &&
	       find_module((void *)(uintptr_t)b->recording, prof_frame_module_id(stack.frames[0]), &module)) {
		uint64_t offset = prof_frame_offset(stack.frames[0]);

		if ((stack.frames[0] & PROF_FRAME_RETURN) && offset)
			offset--;
		if (b->names->find(b->names->ctx, module.key, offset, names) < 1 ||
		    strncmp(names[0].function, "operator new", strlen("operator new")) != 0)
			break;
		stack.frames++;
		stack.count--;
	}
	return stack;
}

static int node_of(struct build *b, uint32_t pair, uint32_t *ret)
{
	struct stack_frames user, kernel;
	struct recording_tree *tree;
	bool whole;
	int rc;

	if (pair >= b->nodes.count) {
		*ret = marker_node(b, "[unknown]");
		return 0;
	}
	if (b->nodes.data[pair] != NO_NODE) {
		*ret = b->nodes.data[pair];
		return 0;
	}
	if (pair == CHUNK_PAIR_OVERFLOW) {
		*ret = b->nodes.data[pair] = marker_node(b, PROFILE_TRUNCATED);
		return 0;
	}
	tree = recording_trees_find(&b->recording->trees, pair);
	if (tree) {
		rc = recording_tree_node(tree, b->resolver, pair, ret, &whole);
		if (rc == 0 && !*ret)
			*ret = marker_node(b, whole ? "[no stack]" : "[unknown]");
		b->nodes.data[pair] = rc == 0 ? *ret : NO_NODE;
		return rc;
	}
	whole = find_stack(b->recording, b->recording->pairs.data[pair].user, &user);
	whole &= find_stack(b->recording, b->recording->pairs.data[pair].kernel, &kernel);
	if (is_heap(b))
		user = without_allocator(b, user);
	if (!user.count && !kernel.count)
		*ret = whole ? marker_node(b, "[no stack]") : marker_node(b, "[unknown]");
	else {
		rc = stack_resolver_node(b->resolver, user, kernel, ret);
		if (rc < 0)
			return rc;
	}
	b->nodes.data[pair] = *ret;
	return 0;
}

static uint32_t process_of(struct build *b, uint32_t id)
{
	const struct process *process =
		id < b->processes.count ? &b->recording->processes.data[id] : NULL;
	struct profile_process entry = { 0 };
	uint32_t made;

	if (process && b->processes.data[id] != NO_NODE)
		return b->processes.data[id];
	if (process && process->comm) {
		entry.pid = process->tgid;
		entry.started_at_ns = process->started_at_ns;
		entry.comm = text_id(b, process->comm);
		entry.exe = text_id(b, process->exe);
		entry.service = text_id(b, process->service);
	}
	made = profile_builder_process(b->builder, &entry);
	if (process)
		b->processes.data[id] = made;
	return made;
}

static const char *state_word(const struct chunk_attr *attr)
{
	if (attr->type == PROF_SAMPLE_ALLOC)
		return attr->state == FEED_ALLOC_EXACT			? PROFILE_STATE_EXACT
		       : attr->state == FEED_ALLOC_LIVE && attr->holder ? "estimated"
									: "";
	if (attr->type != PROF_SAMPLE_OFFCPU)
		return "";
	switch (attr->state >> 4) {
	case PROF_OFF_BLOCKED:
		return "blocked";
	case PROF_OFF_RUNQUEUE:
		return "runqueue";
	case PROF_OFF_PREEMPTED:
		return "preempted";
	}
	return "";
}

static const char *wait_word(const struct chunk_attr *attr)
{
	static const char *const words[] = { "",      "futex", "sleep", "socket", "pipe",
					     "epoll", "disk",  "fault", "child",  "other" };
	unsigned wait = attr->state & 15;

	if (attr->type != PROF_SAMPLE_OFFCPU || attr->state >> 4 != PROF_OFF_BLOCKED)
		return "";
	return wait < ARRAY_SIZE(words) ? words[wait] : "other";
}

static const char *kind_word(const struct chunk_attr *attr)
{
	switch (attr->detail) {
	case PROF_DETAIL_FILE:
		return "file";
	case PROF_DETAIL_SOCKET:
		return "socket";
	case PROF_DETAIL_PIPE:
		return "pipe";
	case PROF_DETAIL_SYNC:
		return "sync";
	}
	return "";
}

/* A part of a wait for a disk (enum wait_disk), or such a wait as a whole. */
static bool is_disk(const struct build *b, const struct chunk_attr *attr)
{
	return b->options->meta.type == PROFILE_IO && attr->type == PROF_SAMPLE_OFFCPU &&
	       prof_state_is_disk(attr->state);
}

/* Its object is a lock. */
static bool has_lock(const struct build *b, const struct chunk_attr *attr)
{
	return attr->object && attr->type != PROF_SAMPLE_ALLOC && !is_disk(b, attr);
}

/* Finds out for every futex of the session which function waits for it. */
static int find_locks(struct build *b)
{
	const struct recording *recording = b->recording;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = event->attr < recording->attrs.count
							? &recording->attrs.data[event->attr]
							: NULL;
		uint32_t node;

		if (!attr || !has_lock(b, attr) || prof_sample_is_reading(attr->type))
			continue;
		rc = node_of(b, event->pair, &node);
		if (rc == 0)
			rc = lock_names_wait(&b->locks, attr->process, attr->object,
					     attr->detail == PROF_DETAIL_KERNEL_LOCK
						     ? lock_site_kernel(b->builder, node)
						     : lock_site(b->builder, node),
					     event->value);
	}
	for (size_t i = 0; rc == 0 && i < recording->attrs.count; i++) {
		const struct chunk_attr *attr = &recording->attrs.data[i];

		if (b->options->meta.type == PROFILE_MUTEX && attr->type != PROF_SAMPLE_WAKER)
			rc = lock_names_thread(&b->locks, attr->process, attr->tid, attr->comm);
	}
	return rc;
}

static struct profile_label number_label(struct build *b, const char *name, uint32_t number)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", number);
	return (struct profile_label){ text_id(b, name), text_id(b, text) };
}

/* What the estimate of a place's memory rests on. The number of labels. */
static unsigned labels_of_live(struct build *b, const struct chunk_attr *attr, struct profile_label ret[3])
{
	unsigned count = 0;

	if (attr->state == FEED_ALLOC_LIVE && attr->holder) {
		ret[count++] = number_label(b, PROFILE_LABEL_DEATHS, attr->holder);
		ret[count++] = number_label(b, PROFILE_LABEL_ERROR, (uint32_t)(attr->object + 9) / 10);
	}
	if (attr->state == FEED_ALLOC_LIVE && attr->detail)
		ret[count++] = number_label(b, PROFILE_LABEL_FOLLOWED, attr->detail);
	return count;
}

static struct profile_label disk_label(struct build *b, const struct chunk_attr *attr)
{
	static const char *const stages[] = { [WAIT_DISK_DEVICE] = "device", [WAIT_DISK_QUEUE] = "queue" };
	char text[32] = "not joined";

	if (attr->holder == WAIT_DISK_DEVICE || attr->holder == WAIT_DISK_QUEUE)
		(void)snprintf(text, sizeof(text), "%.8s %s", (const char *)&attr->object, stages[attr->holder]);
	return (struct profile_label){ text_id(b, "disk"), text_id(b, text) };
}

static struct profile_label holder_label(struct build *b, const struct chunk_attr *attr)
{
	uint32_t holder = attr->holder == attr->tid
				  ? 0
				  : lock_names_holder(&b->locks, b->builder, attr->process, attr->holder);

	return (struct profile_label){ holder ? text_id(b, "holder") : 0, holder };
}

/* The number of labels. */
static unsigned labels_of(struct build *b, const struct chunk_attr *attr, uint32_t file, struct profile_label ret[3])
{
	unsigned count = 0;

	if (attr->type == PROF_SAMPLE_ALLOC)
		return labels_of_live(b, attr, ret);
	ret[0] = is_disk(b, attr) ? disk_label(b, attr) : holder_label(b, attr);
	count = ret[0].value != 0;
	if (file)
		ret[count++] = (struct profile_label){ text_id(b, "path"), file };
	return count;
}

static uint32_t attrs_of(struct build *b, uint32_t id, uint32_t file)
{
	static const struct chunk_attr unknown = { .process = UINT32_MAX };
	const struct chunk_attr *attr =
		id < b->attrs.count ? &b->recording->attrs.data[id] : &unknown;
	struct profile_attrs entry = { 0 };
	struct profile_label labels[3] = { 0 };
	uint32_t made;

	if (attr != &unknown && !file && b->attrs.data[id] != NO_NODE)
		return b->attrs.data[id];
	entry.process = process_of(b, attr->process);
	entry.tid = attr->tid;
	entry.thread_name = profile_builder_string(b->builder, attr->comm,
						   strnlen(attr->comm, sizeof(attr->comm)));
	entry.state = text_id(b, state_word(attr));
	entry.wait = text_id(b, wait_word(attr));
	if (has_lock(b, attr))
		entry.extra = lock_names_lock(&b->locks, b->builder,
					      attr->detail == PROF_DETAIL_KERNEL_LOCK ? "kernel lock"
										      : "futex",
					      attr->process, attr->object);
	else
		entry.extra = text_id(b, kind_word(attr));
	entry.label_count = labels_of(b, attr, file, labels);
	made = profile_builder_attrs(b->builder, &entry, labels);
	if (attr != &unknown && !file)
		b->attrs.data[id] = made;
	return made;
}

/* Time comes from the waits, bytes and operations from the calls that moved some; of those that move none
 * (fsync) the wait is all there is. */
static void values_of_io(const struct chunk_attr *attr, const struct chunk_event *event,
			 int64_t ret[PROFILE_VALUES_MAX])
{
	bool moved = attr && attr->type == PROF_SAMPLE_IO;

	if (moved || (attr && attr->detail == PROF_DETAIL_SYNC))
		ret[IO_VALUE_OPERATIONS] = (int64_t)(event->value2 + 512) / 1024;
	ret[moved ? IO_VALUE_BYTES : IO_VALUE_DELAY] = event->value;
}

/* One event's values in the order of its type. */
static void values_of(enum profile_type type, bool sums, const struct chunk_attr *attr,
		      const struct chunk_event *event, int64_t ret[PROFILE_VALUES_MAX])
{
	memset(ret, 0, PROFILE_VALUES_MAX * sizeof(*ret));
	if (type == PROFILE_IO) {
		values_of_io(attr, event, ret);
		return;
	}
	if (profile_type_info(type)->value_count == 1) {
		ret[0] = event->value;
		return;
	}
	ret[0] = type == PROFILE_CPU && !sums ? 1 : (int64_t)(event->value2 + 512) / 1024;
	ret[1] = event->value;
}

/* ---- time ------------------------------------------------------------------------------------ */

static const struct chunk_attr *attr_of(const struct recording *recording, uint32_t id)
{
	return id < recording->attrs.count ? &recording->attrs.data[id] : NULL;
}

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

/* A wait that was long enough to be recorded whatever chance says. The run-queue part of a wait does not
 * tell (it counts no event). */
static bool is_exact(const struct chunk_attr *attr, const struct chunk_event *event)
{
	return attr->type == PROF_SAMPLE_OFFCPU && attr->state >> 4 != PROF_OFF_RUNQUEUE &&
	       (event->value2 == 0 || event->value2 == 1024);
}

/* What the kernel counted for a thread by then. */
static int read_thread(struct build *b, const struct chunk_attr *attr, const struct chunk_event *event)
{
	const struct clock_triple *clock = &b->recording->quality.clock;
	const uint32_t pid = pid_of(b->recording, attr);
	struct thread_reading reading = { .time_ns = clock_to_realtime_ns(clock, event->time_ns),
					  .start_ns = clock_to_realtime_ns(clock, attr->object),
					  .counts = { (uint64_t)event->value },
					  .ends = attr->state != 0 };

	if (attr->type == PROF_SAMPLE_MOVED)
		return moved_totals_read(b->moved, pid, attr->tid, &reading);
	reading.counts[THREAD_COUNT_WAITS_NS] = event->value2;
	return thread_totals_read(b->totals, pid, attr->tid, &reading);
}

/* Compares what was sampled of each thread with what the kernel counted. */
static int find_totals(struct build *b)
{
	const struct recording *recording = b->recording;
	const struct profile_meta *meta = &b->options->meta;
	int rc = 0;

	if ((meta->type != PROFILE_OFFCPU && meta->type != PROFILE_WALL) || recording->sums)
		return 0;
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = attr_of(recording, event->attr);

		if (attr && attr->type == PROF_SAMPLE_THREAD)
			rc = read_thread(b, attr, event);
	}
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = attr_of(recording, event->attr);

		if (attr && !prof_sample_is_reading(attr->type) && attr->type != PROF_SAMPLE_WAKER)
			thread_totals_add(b->totals, pid_of(recording, attr), attr->tid,
					  class_of(attr), is_exact(attr, event), event->value);
	}
	thread_totals_settle(b->totals, meta->start_ns, meta->start_ns + meta->duration_ns,
			     meta->type == PROFILE_WALL);
	return rc;
}

/* The same of what each thread has read and written. */
static int find_moved(struct build *b)
{
	const struct recording *recording = b->recording;
	const struct profile_meta *meta = &b->options->meta;
	int rc = 0;

	if (meta->type != PROFILE_IO || recording->sums)
		return 0;
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = attr_of(recording, event->attr);

		if (attr && attr->type == PROF_SAMPLE_MOVED)
			rc = read_thread(b, attr, event);
	}
	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = attr_of(recording, event->attr);

		if (attr && attr->type == PROF_SAMPLE_IO)
			moved_totals_add(b->moved, pid_of(recording, attr), attr->tid, event->value);
	}
	moved_totals_settle(b->moved, meta->start_ns, meta->start_ns + meta->duration_ns);
	return rc;
}

static void add_marked(struct build *b, const struct chunk_attr *attr, const char *marker, const char *state,
		       const int64_t values[PROFILE_VALUES_MAX])
{
	struct profile_attrs entry = { .tid = attr->tid };

	entry.process = process_of(b, attr->process);
	entry.thread_name = profile_builder_string(b->builder, attr->comm,
						   strnlen(attr->comm, sizeof(attr->comm)));
	entry.state = text_id(b, state);
	entry.wait = entry.extra = text_id(b, "");
	profile_builder_sample(b->builder, marker_node(b, marker),
			       profile_builder_attrs(b->builder, &entry, NULL), values);
}

/* Time that no sample stands for. */
static void add_rest(struct build *b, const struct chunk_attr *attr, enum thread_class class)
{
	static const char *const markers[THREAD_CLASS_MAX] = {
		[THREAD_ON_CPU] = "[on cpu, not sampled]",
		[THREAD_WAITS] = "[waiting for a cpu, not sampled]",
		[THREAD_BLOCKED] = "[blocked, not sampled]",
	};
	static const char *const states[THREAD_CLASS_MAX] = { "", "runqueue", "blocked" };
	int64_t values[PROFILE_VALUES_MAX] = { 0 };
	int64_t rest_ns = thread_totals_take_rest(b->totals, pid_of(b->recording, attr), attr->tid,
						  class);

	if (rest_ns <= 0)
		return;
	values[profile_type_info(b->options->meta.type)->value_index] = rest_ns;
	add_marked(b, attr, markers[class], states[class], values);
}

static void add_rest_of_moved(struct build *b, const struct chunk_attr *attr)
{
	int64_t values[PROFILE_VALUES_MAX] = { 0 };

	values[IO_VALUE_BYTES] = moved_totals_take_rest(b->moved, pid_of(b->recording, attr), attr->tid);
	if (values[IO_VALUE_BYTES] > 0)
		add_marked(b, attr, "[moved, not sampled]", "", values);
}

static void add_rests(struct build *b)
{
	for (size_t i = 0; i < b->recording->attrs.count; i++) {
		const struct chunk_attr *attr = &b->recording->attrs.data[i];

		for (int k = 0; k < THREAD_CLASS_MAX && attr->type == PROF_SAMPLE_THREAD; k++)
			add_rest(b, attr, (enum thread_class)k);
		if (attr->type == PROF_SAMPLE_MOVED)
			add_rest_of_moved(b, attr);
	}
}

/* ---- events ---------------------------------------------------------------------------------- */

static int find_wakers(struct build *b)
{
	const struct recording *recording = b->recording;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = attr_of(recording, event->attr);

		if (attr && attr->type == PROF_SAMPLE_WAKER)
			rc = wakers_add(&b->wakers, &(struct waking){ .process = attr->process,
								       .tid = attr->tid,
								       .time_ns = event->time_ns,
								       .pair = event->pair });
	}
	wakers_sort(&b->wakers);
	return rc;
}

/* Below a wait the stack of who ended it, the other way round: so both ends meet. What an interrupt
 * interrupted did not wake anybody. */
static int add_waker(struct build *b, const struct chunk_attr *attr, const struct chunk_event *event,
		     uint32_t *node)
{
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER };
	struct profile_function function = { 0 };
	struct stack_frames user, kernel;
	uint32_t pair, top, interrupt;
	int rc;

	if (attr->type != PROF_SAMPLE_OFFCPU || attr->state >> 4 != PROF_OFF_BLOCKED ||
	    !is_exact(attr, event) ||
	    !wakers_find(&b->wakers, attr->process, attr->tid, event->time_ns - (uint64_t)event->value,
			 event->time_ns, &pair) ||
	    pair >= b->recording->pairs.count)
		return 0;
	(void)find_stack(b->recording, b->recording->pairs.data[pair].user, &user);
	(void)find_stack(b->recording, b->recording->pairs.data[pair].kernel, &kernel);
	function.name = text_id(b, "[woken by]");
	frame.function = profile_builder_function(b->builder, &function);
	*node = top = profile_builder_node(b->builder, *node,
					   profile_builder_frame(b->builder, &frame));
	rc = stack_resolver_turned(b->resolver, kernel, node);
	interrupt = rc < 0 ? 0 : lock_site_interrupt(b->builder, *node, top);
	if (interrupt)
		*node = interrupt;
	if (rc < 0 || interrupt)
		return rc;
	return stack_resolver_turned(b->resolver, user, node);
}

/* Of types that waits are in, where samples are single ones. */
static bool has_variance(const struct build *b)
{
	enum profile_type type = b->options->meta.type;

	return !b->recording->sums && (type == PROFILE_OFFCPU || type == PROFILE_WALL || type == PROFILE_BLOCK ||
				       type == PROFILE_MUTEX || type == PROFILE_IO);
}

static int add_event(struct build *b, const struct chunk_event *stored,
		     const struct chunk_attr *attr)
{
	const struct recording *recording = b->recording;
	int64_t values[PROFILE_VALUES_MAX];
	struct chunk_event event = *stored;
	struct profile_event timed = { 0 };
	int rc = node_of(b, event.pair, &timed.node);

	if (rc == 0 && attr && b->wakers.wakings.count)
		rc = add_waker(b, attr, stored, &timed.node);
	if (rc < 0)
		return rc;
	if (attr)
		event.value = thread_totals_scale(b->totals, pid_of(recording, attr), attr->tid,
						  class_of(attr), is_exact(attr, stored),
						  event.value);
	if (attr && attr->type == PROF_SAMPLE_IO)
		event.value = moved_totals_scale(b->moved, pid_of(recording, attr), attr->tid, event.value);
	if (attr && attr->type == PROF_SAMPLE_ALLOC) {
		event.value = (int64_t)((double)event.value * live_fit_scale(&b->fit, stored));
		event.value2 = (uint64_t)((double)event.value2 * live_fit_scale(&b->fit, stored));
	}
	timed.attrs = attrs_of(b, event.attr, file_of(b, event.pair));
	values_of(b->options->meta.type, recording->sums, attr, &event, values);
	profile_builder_estimate(b->builder, timed.node, timed.attrs, values,
				 attr && has_variance(b) ? sample_variance(&b->variance, attr, stored, (double)event.value)
							  : 0);
	timed.value = values[profile_type_info(b->options->meta.type)->value_index];
	if (!b->options->events || !timed.value)
		return 0;
	timed.time_ns = clock_to_realtime_ns(&recording->quality.clock, event.time_ns);
	profile_builder_event(b->builder, &timed);
	return 0;
}

static int add_events(struct build *b)
{
	const struct recording *recording = b->recording;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_attr *attr =
			attr_of(recording, recording->events.data[i].attr);

		if (!attr || (!prof_sample_is_reading(attr->type) && attr->type != PROF_SAMPLE_WAKER))
			rc = add_event(b, &recording->events.data[i], attr);
	}
	add_rests(b);
	return rc;
}

static bool lend_stack(void *ctx, uint64_t id, struct stack_frames *ret)
{
	const struct build *b = ctx;

	return find_stack(b->recording, id, ret);
}

static uint32_t lend_process(void *ctx, uint32_t id)
{
	return process_of(ctx, id);
}

static int add_readings(struct build *b, unsigned *damaged)
{
	const struct reading_lender lender = {
		b, lend_stack, lend_process, { (void *)(uintptr_t)b->recording, find_module }
	};

	return reading_build(&b->recording->readings, b->options->meta.type, b->options->bare, &lender,
			     b->names, b->builder, damaged);
}

/* Tells the name source which frames will be asked for. */
static int prefetch(const struct build *b)
{
	const struct recording *recording = b->recording;
	struct recording_tree *tree;
	int rc = stack_resolver_prefetch(b->resolver, recording->frames.data, recording->frames.count);

	for (size_t i = 0; rc == 0 && recording->trees.count && i < recording->events.count; i++) {
		tree = recording_trees_find(&recording->trees, recording->events.data[i].pair);
		if (tree)
			recording_tree_want(tree, recording->events.data[i].pair);
	}
	for (size_t i = 0; rc == 0 && i < recording->trees.count; i++)
		rc = recording_tree_begin(&recording->trees.data[i], b->resolver);
	return rc;
}

static int build_profile(struct build *b, struct profile **ret)
{
	unsigned damaged = b->recording->damaged;
	const struct recording *recording = b->recording;
	struct profile_quality quality = b->options->quality;
	int rc = fill_ids(&b->nodes, recording->pairs.count);

	if (rc == 0)
		rc = fill_ids(&b->files, b->options->paths ? recording->pairs.count : 0);
	if (rc == 0)
		rc = fill_ids(&b->attrs, recording->attrs.count);
	if (rc == 0)
		rc = fill_ids(&b->processes, recording->processes.count);
	if (rc == 0)
		rc = prefetch(b);
	if (rc == 0)
		rc = find_locks(b);
	if (rc == 0)
		rc = find_totals(b);
	if (rc == 0)
		rc = find_moved(b);
	if (rc == 0)
		rc = find_wakers(b);
	if (rc == 0 && b->options->meta.type == PROFILE_MEMORY)
		rc = live_fit_recording(&b->fit, recording, b->options->quality.probes.rel_err);
	if (rc == 0)
		rc = add_events(b);
	if (rc == 0 && recording->readings.count)
		rc = add_readings(b, &damaged);
	if (rc < 0)
		return rc;
	if (b->fit.scale != 1 && b->options->meta.type == PROFILE_MEMORY)
		quality_note(&quality, "what was estimated to be in use was fitted into what the heap holds: %.0f %% of it",
			     100 * b->fit.scale);
	if (damaged)
		quality_note(&quality, "%u damaged pieces of the stored data were left out",
			     damaged);
	if (recording->dropped)
		quality_note(&quality, "%llu events beyond the limit were left out",
			     (unsigned long long)recording->dropped);
	return profile_builder_finish(b->builder, &quality, ret);
}

int recording_build(const struct recording *recording, const struct recording_options *options,
		    const struct name_source *names, struct profile **ret)
{
	struct stack_modules modules = { (void *)(uintptr_t)recording, find_module };
	cleanup(profile_builder) struct profile_builder *builder =
		profile_builder_create(&options->meta, options->nodes_max);
	cleanup(thread_totals) struct thread_totals *totals = thread_totals_create();
	cleanup(moved_totals) struct moved_totals *moved = moved_totals_create();
	cleanup(stack_resolver) struct stack_resolver *resolver = NULL;
	struct build b = { .recording = recording,
			   .options = options,
			   .builder = builder,
			   .names = names,
			   .totals = totals,
			   .moved = moved };
	int rc = -ENOMEM;

	if (builder && totals && moved)
		resolver = b.resolver = stack_resolver_create(builder, &modules, names, 0);
	if (resolver)
		rc = build_profile(&b, ret);
	live_fit_deinit(&b.fit);
	ids_vec_deinit(&b.nodes);
	ids_vec_deinit(&b.files);
	ids_vec_deinit(&b.attrs);
	ids_vec_deinit(&b.processes);
	lock_names_deinit(&b.locks);
	wakers_deinit(&b.wakers);
	return rc;
}
