// SPDX-License-Identifier: Apache-2.0
/* From a session's data to its profile. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/profile/lock_site.h"
#include "agent/profile/profile_fold.h"
#include "agent/profile/quality.h"
#include "agent/profile/stack_resolver.h"
#include "agent/recording/build_internal.h"
#include "agent/recording/file_name.h"
#include "agent/recording/moved_totals.h"
#include "agent/recording/thread_totals.h"
#include "agent/recording/wait_types.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"

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

uint32_t build_text(struct build *b, const char *text)
{
	return profile_builder_string(b->builder, text, strlen(text));
}

uint32_t build_marker(struct build *b, const char *text)
{
	struct profile_function function = { .name = build_text(b, text) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER };

	frame.function = profile_builder_function(b->builder, &function);
	return profile_builder_node(b->builder, 0, profile_builder_frame(b->builder, &frame));
}

/* The frames and behind them the file's name, if there is one. false: there is a stack, but its
 * frames are missing. */
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

/* String id of the file or peer behind a kernel stack; 0 = there is none, or it was not asked for.
 */
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
	return b->files.data[pair] = text[0] ? build_text(b, text) : 0;
}

static bool is_heap(const struct build *b)
{
	return profile_type_info(b->options->meta.type)->way == PROFILE_WAY_PROBES;
}

/* The caller of operator new allocates, not operator new. */
static struct stack_frames without_allocator(const struct build *b, struct stack_frames stack)
{
	struct name_frame names[NAMES_INLINE_MAX];
	struct stack_module module;

	while (b->names && stack.count > 1 &&
	       prof_frame_kind(stack.frames[0]) == PROF_FRAME_MODULE &&
	       find_module((void *)(uintptr_t)b->recording, prof_frame_module_id(stack.frames[0]),
			   &module)) {
		uint64_t offset = prof_frame_offset(stack.frames[0]);

		if ((stack.frames[0] & PROF_FRAME_RETURN) && offset)
			offset--;
		if (b->names->find(b->names->ctx, module.key, offset, names) < 1 ||
		    !text_begins(names[0].function, "operator new"))
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
	uint32_t number;
	bool whole, has_user;
	int rc = 0;

	if (pair >= b->nodes.count) {
		*ret = build_marker(b, PROFILE_LOST);
		return 0;
	}
	if (b->nodes.data[pair] != NO_NODE) {
		*ret = b->nodes.data[pair];
		return 0;
	}
	if (pair == CHUNK_PAIR_OVERFLOW) {
		*ret = b->nodes.data[pair] = build_marker(b, PROFILE_TRUNCATED);
		return 0;
	}
	number = recording_pair_number(b->recording, pair);
	tree = recording_trees_find(&b->recording->trees, number);
	if (tree) {
		rc = recording_tree_node(tree, b->resolver, number, ret, &whole);
		if (rc == 0 && !*ret)
			*ret = build_marker(b, whole ? "[no stack]" : PROFILE_LOST);
		b->nodes.data[pair] = rc == 0 ? *ret : NO_NODE;
		return rc;
	}
	has_user = find_stack(b->recording, b->recording->pairs.data[pair].user, &user);
	whole = find_stack(b->recording, b->recording->pairs.data[pair].kernel, &kernel) && has_user;
	if (is_heap(b))
		user = without_allocator(b, user);
	if (!user.count && !kernel.count)
		*ret = build_marker(b, whole ? "[no stack]" : PROFILE_LOST);
	else if (has_user)
		rc = stack_resolver_node(b->resolver, user, kernel, ret);
	else {
		*ret = build_marker(b, PROFILE_LOST);
		rc = stack_resolver_below(b->resolver, kernel, ret);
	}
	if (rc < 0)
		return rc;
	b->nodes.data[pair] = *ret;
	return 0;
}

/* @node: of that pair. */
static enum profile_tier tier_of(struct build *b, uint32_t pair, uint32_t node)
{
	if (pair >= b->tiers.count)
		return PROFILE_TIER_NONE;
	if (b->tiers.data[pair] == NO_NODE)
		b->tiers.data[pair] = profile_builder_tier(b->builder, node);
	return b->tiers.data[pair];
}

static bool is_futex_wait(const struct build *b, const struct chunk_attr *attr)
{
	return b->options->meta.type == PROFILE_MUTEX && attr && attr->type == PROF_SAMPLE_OFFCPU &&
	       attr->detail != PROF_DETAIL_KERNEL_LOCK && !wait_is_gil(attr->state);
}

/* A wait that the value of its futex made one for a lock, and its stack one for something else;
 * after find_locks() also one whose stack could not be read, where others wait for something else.
 */
static bool is_other_wait(const struct build *b, const struct chunk_attr *attr, uint32_t node)
{
	if (!is_futex_wait(b, attr))
		return false;
	return lock_site_is_other(b->builder, node) ||
	       (!lock_site(b->builder, node) &&
		lock_names_is_other(&b->locks, attr->process, attr->object));
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

		if (!attr || !build_attrs_has_lock(b, attr) || prof_sample_is_reading(attr->type) ||
		    wait_is_gil(attr->state)) /* every function waits for that one */
			continue;
		rc = node_of(b, event->pair, &node);
		if (rc == 0 && is_futex_wait(b, attr) && lock_site_is_other(b->builder, node))
			rc = lock_names_other(&b->locks, attr->process, attr->object);
		else if (rc == 0)
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

/* Time comes from the waits, bytes and operations from the calls that moved some; of those that
 * move none (fsync) the wait is all there is. */
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

/* ---- events ---------------------------------------------------------------------------------- */

static int find_wakers(struct build *b)
{
	const struct recording *recording = b->recording;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = build_attr(recording, event->attr);
		struct waking waking = { .time_ns = event->time_ns, .pair = event->pair };

		if (!attr || attr->type != PROF_SAMPLE_WAKER || event->pair >= recording->pairs.count)
			continue;
		waking.process = attr->process;
		waking.tid = attr->tid;
		waking.waker = attr->holder;
		if (b->options->meta.type != PROFILE_MUTEX || !wait_is_gil(attr->state)) {
			rc = wakers_add(&b->wakers, &waking);
			continue;
		}
		waking.tid = (uint32_t)attr->object;
		waking.since_ns = event->time_ns - (uint64_t)event->value;
		rc = wakers_add(&b->releases, &waking);
	}
	wakers_sort(&b->wakers);
	wakers_sort(&b->releases);
	return rc;
}

/* A marker below *node becomes *node. */
static void add_marker(struct build *b, const char *text, uint32_t *node)
{
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER };
	struct profile_function function = { .name = build_text(b, text) };

	frame.function = profile_builder_function(b->builder, &function);
	*node = profile_builder_node(b->builder, *node, profile_builder_frame(b->builder, &frame));
}

static bool is_script(const struct build *b, uint64_t frame)
{
	const struct recording *recording = b->recording;

	return prof_frame_kind(frame) == PROF_FRAME_MODULE &&
	       prof_frame_module_id(frame) < recording->modules.count &&
	       recording->modules.data[prof_frame_module_id(frame)].kind == FEED_MODULE_SCRIPT;
}

/* Copies @stack to @ret without the interpreter's own functions, as profile_fold() leaves them out:
 * the C function inside of a Python frame is the interpreter's loop, and tells its module. */
static struct stack_frames without_interpreter(const struct build *b, struct stack_frames stack,
					       uint64_t ret[FEED_FRAMES_MAX])
{
	struct stack_frames left = { .frames = ret };
	uint32_t interpreter = UINT32_MAX;
	size_t outermost = 0;

	for (size_t i = 1; i < stack.count; i++) {
		if (!is_script(b, stack.frames[i]))
			continue;
		outermost = i;
		if (!is_script(b, stack.frames[i - 1]))
			interpreter = prof_frame_module_id(stack.frames[i - 1]);
	}
	for (size_t i = 0; i < stack.count && left.count < FEED_FRAMES_MAX; i++)
		if (i > outermost || is_script(b, stack.frames[i]) ||
		    prof_frame_kind(stack.frames[i]) != PROF_FRAME_MODULE ||
		    prof_frame_module_id(stack.frames[i]) != interpreter)
			ret[left.count++] = stack.frames[i];
	return left;
}

/* Below a wait for CPython's global lock the stack with which its holder released it, the other way
 * round, as a waker's. *ret_holder: the holder's tid, 0 = it was not seen. */
static int add_holder(struct build *b, const struct chunk_attr *attr,
		      const struct chunk_event *event, uint32_t *node, uint32_t *ret_holder)
{
	const struct waking *release =
		wakers_find_release(&b->releases, attr->process, attr->holder,
				    event->time_ns - (uint64_t)event->value, event->time_ns);
	uint64_t words[FEED_FRAMES_MAX];
	struct stack_frames user;

	add_marker(b, release ? "[held by]" : "[holder not seen]", node);
	if (!release)
		return 0;
	*ret_holder = release->waker;
	(void)find_stack(b->recording, b->recording->pairs.data[release->pair].user, &user);
	if (!b->options->raw)
		user = without_interpreter(b, user, words);
	return stack_resolver_turned(b->resolver, user, node);
}

/* Below a wait the stack of who ended it, the other way round: so both ends meet. What an interrupt
 * interrupted did not wake anybody. */
static int add_waker(struct build *b, const struct chunk_attr *attr,
		     const struct chunk_event *event, uint32_t *node)
{
	struct stack_frames user, kernel;
	uint32_t pair, top, interrupt;
	int rc;

	if (attr->type != PROF_SAMPLE_OFFCPU || attr->state >> 4 != PROF_OFF_BLOCKED ||
	    !build_totals_is_exact(attr, event) ||
	    !wakers_find(&b->wakers, attr->process, attr->tid, event->time_ns - (uint64_t)event->value,
			 event->time_ns, &pair))
		return 0;
	(void)find_stack(b->recording, b->recording->pairs.data[pair].user, &user);
	(void)find_stack(b->recording, b->recording->pairs.data[pair].kernel, &kernel);
	add_marker(b, "[woken by]", node);
	top = *node;
	rc = stack_resolver_turned(b->resolver, kernel, node);
	interrupt = rc < 0 ? 0 : lock_site_interrupt(b->builder, *node, top);
	if (interrupt)
		*node = interrupt;
	if (rc < 0 || interrupt)
		return rc;
	return stack_resolver_turned(b->resolver, user, node);
}

/* Sums of minutes do not say what their samples were. */
static bool has_variance(const struct build *b)
{
	return !b->recording->sums &&
	       profile_type_info(b->options->meta.type)->judged == PROFILE_JUDGED_AMOUNTS;
}

static int add_event(struct build *b, const struct chunk_event *stored,
		     const struct chunk_attr *attr)
{
	const struct recording *recording = b->recording;
	int64_t values[PROFILE_VALUES_MAX];
	struct chunk_event event = *stored;
	struct profile_event timed = { 0 };
	enum profile_tier tier = PROFILE_TIER_NONE;
	uint32_t holder = 0;
	int rc = node_of(b, event.pair, &timed.node);

	if (rc == 0 && is_other_wait(b, attr, timed.node))
		return 0;
	if (rc == 0)
		tier = tier_of(b, event.pair, timed.node);
	if (rc == 0 && attr && b->releases.wakings.count && wait_is_gil(attr->state))
		rc = add_holder(b, attr, stored, &timed.node, &holder);
	else if (rc == 0 && attr && b->wakers.wakings.count)
		rc = add_waker(b, attr, stored, &timed.node);
	if (rc < 0)
		return rc;
	if (attr)
		event.value = build_totals_scale(b, attr, stored);
	if (attr && attr->type == PROF_SAMPLE_ALLOC) {
		event.value = (int64_t)((double)event.value * live_fit_scale(&b->fit, stored));
		event.value2 = (uint64_t)((double)event.value2 * live_fit_scale(&b->fit, stored));
	}
	timed.attrs = build_attrs_find(b, event.attr, tier, file_of(b, event.pair), holder);
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
			build_attr(recording, recording->events.data[i].attr);

		if (!attr || (!prof_sample_is_reading(attr->type) && attr->type != PROF_SAMPLE_WAKER &&
			      !chunk_attr_is_seen(attr)))
			rc = add_event(b, &recording->events.data[i], attr);
	}
	build_totals_add_rests(b);
	return rc;
}

static bool lend_stack(void *ctx, uint64_t id, struct stack_frames *ret)
{
	const struct build *b = ctx;

	return find_stack(b->recording, id, ret);
}

static uint32_t lend_process(void *ctx, uint32_t id)
{
	return build_attrs_process(ctx, id);
}

/* By process and thread the newest event that shows a thread on a CPU with a whole stack. */
static int find_seen(struct build *b)
{
	const struct recording *recording = b->recording;
	uint64_t at, stack;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < recording->events.count; i++) {
		const struct chunk_event *event = &recording->events.data[i];
		const struct chunk_attr *attr = build_attr(recording, event->attr);
		uint64_t key = attr ? (uint64_t)attr->process << 32 | attr->tid : 0;

		if (!attr || !chunk_attr_is_seen(attr) || event->pair >= recording->pairs.count ||
		    !u64map_get(&recording->stack_at, recording->pairs.data[event->pair].user, &stack) ||
		    recording->stacks.data[stack].outcome != OUTCOME_complete)
			continue;
		if (!u64map_get(&b->seen, key, &at) ||
		    recording->events.data[at].time_ns < event->time_ns)
			rc = u64map_put(&b->seen, key, i);
	}
	return rc;
}

static uint64_t lend_running(void *ctx, uint32_t process, uint32_t tid)
{
	const struct build *b = ctx;
	const struct recording *recording = b->recording;
	uint64_t at;

	if (!u64map_get(&b->seen, (uint64_t)process << 32 | tid, &at))
		return 0;
	return recording->pairs.data[recording->events.data[at].pair].user;
}

static int add_readings(struct build *b, unsigned *damaged)
{
	const struct reading_lender lender = { .ctx = b,
					       .stack = lend_stack,
					       .process = lend_process,
					       .modules = { (void *)(uintptr_t)b->recording,
							    find_module },
					       .running = lend_running };
	int rc = find_seen(b);

	if (rc < 0)
		return rc;
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
		uint32_t number = recording_pair_number(recording, recording->events.data[i].pair);

		tree = recording_trees_find(&recording->trees, number);
		if (tree)
			recording_tree_want(tree, number);
	}
	for (size_t i = 0; rc == 0 && i < recording->trees.count; i++)
		rc = recording_tree_begin(&recording->trees.data[i], b->resolver);
	return rc;
}

static int finish(struct build *b, const struct profile_quality *quality, struct profile **ret)
{
	cleanup(profile) struct profile *raw = NULL;
	int rc = profile_builder_finish(b->builder, quality, &raw);

	if (rc == 0 && !b->options->raw)
		return profile_fold(raw, ret);
	if (rc == 0)
		*ret = take_ptr(raw);
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
		rc = fill_ids(&b->tiers, recording->pairs.count);
	if (rc == 0)
		rc = fill_ids(&b->attrs, recording->attrs.count * PROFILE_TIERS);
	if (rc == 0)
		rc = fill_ids(&b->processes, recording->processes.count);
	if (rc == 0)
		rc = prefetch(b);
	if (rc == 0)
		rc = find_locks(b);
	if (rc == 0)
		rc = build_totals_find(b);
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
	if (b->options->meta.type == PROFILE_MEMORY) {
		quality.probes.fitted = b->fit.scale;
		quality.probes.gone_bytes = b->fit.gone_bytes;
	}
	if (b->fit.scale != 1 && b->options->meta.type == PROFILE_MEMORY)
		quality_note(
			&quality,
			"estimates of memory in use were scaled to the size of the heap: to %.0f %%",
			100 * b->fit.scale);
	if (damaged)
		quality_note(&quality, "%u damaged pieces of the stored data were left out",
			     damaged);
	if (recording->dropped)
		quality_note(&quality, "%llu events beyond the limit were left out",
			     (unsigned long long)recording->dropped);
	return finish(b, &quality, ret);
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
	ids_vec_deinit(&b.tiers);
	ids_vec_deinit(&b.attrs);
	ids_vec_deinit(&b.processes);
	lock_names_deinit(&b.locks);
	wakers_deinit(&b.wakers);
	wakers_deinit(&b.releases);
	u64map_deinit(&b.seen);
	return rc;
}
