// SPDX-License-Identifier: Apache-2.0
#include "tests/support/feed_view.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "symbolize/symbol_index.h"

void feed_view_init(struct feed_view *view, int feed_fd)
{
	*view = (struct feed_view){ 0 };
	assert_int_equal(ring_attach(feed_fd, &view->ring), 0);
}

void feed_view_deinit(struct feed_view *view)
{
	for (size_t i = 0; i < view->stack_count; i++)
		free(view->stacks[i].frames);
	free(view->stacks);
	free(view->modules);
	free(view->procs);
	free(view->samples);
	ring_destroy(view->ring);
	*view = (struct feed_view){ 0 };
}

static void *grown(void *array, size_t count, size_t size)
{
	void *bigger = array;

	if ((count & (count - 1)) == 0)
		bigger = realloc(array, (count ? 2 * count : 1) * size);
	assert_non_null(bigger);
	return bigger;
}

static void text_of(const struct feed_string *string, char *out, size_t size)
{
	size_t len = string->len < size ? string->len : size - 1;

	memcpy(out, string->text, len);
	out[len] = '\0';
}

static void on_module(struct feed_view *view, const struct ring_record *record)
{
	struct view_module module = { 0 }, *slot = NULL;
	struct feed_string path;
	const void *tail;
	size_t tail_len;

	assert_int_equal(feed_decode(record->data, record->len, &module.fixed, sizeof(module.fixed),
				     &tail, &tail_len),
			 0);
	assert_int_equal(feed_decode_strings(tail, tail_len, &path, 1), 0);
	text_of(&path, module.path, sizeof(module.path));
	for (size_t i = 0; i < view->module_count; i++)
		if (view->modules[i].fixed.module == module.fixed.module)
			slot = &view->modules[i];
	if (!slot) {
		view->modules = grown(view->modules, view->module_count, sizeof(module));
		slot = &view->modules[view->module_count++];
	}
	*slot = module;
}

static struct view_proc *find_proc(const struct feed_view *view, uint32_t id)
{
	for (size_t i = view->proc_count; i-- > 0;)
		if (view->procs[i].fixed.proc == id)
			return &view->procs[i];
	return NULL;
}

static void on_proc(struct feed_view *view, const struct ring_record *record)
{
	struct feed_string strings[6];
	struct view_proc proc = { 0 }, *slot;
	const void *tail;
	size_t tail_len;

	assert_int_equal(feed_decode(record->data, record->len, &proc.fixed, sizeof(proc.fixed),
				     &tail, &tail_len),
			 0);
	assert_int_equal(feed_decode_strings(tail, tail_len, strings, 6), 0);
	text_of(&strings[0], proc.comm, sizeof(proc.comm));
	text_of(&strings[1], proc.exe, sizeof(proc.exe));
	text_of(&strings[2], proc.cmdline, sizeof(proc.cmdline));
	text_of(&strings[3], proc.cgroup, sizeof(proc.cgroup));
	text_of(&strings[4], proc.environment, sizeof(proc.environment));
	text_of(&strings[5], proc.ports, sizeof(proc.ports));
	slot = find_proc(view, proc.fixed.proc);
	if (!slot) {
		view->procs = grown(view->procs, view->proc_count, sizeof(proc));
		slot = &view->procs[view->proc_count++];
		*slot = (struct view_proc){ 0 };
	}
	proc.times = slot->times + 1;
	proc.exit_ns = slot->exit_ns;
	*slot = proc;
}

static void on_exit_record(struct feed_view *view, const struct ring_record *record)
{
	struct feed_proc_exit fixed;
	struct view_proc *proc;
	const void *tail;
	size_t tail_len;

	assert_int_equal(feed_decode(record->data, record->len, &fixed, sizeof(fixed), &tail, &tail_len),
			 0);
	proc = find_proc(view, fixed.proc);
	if (proc) /* a view that joined late does not know all */
		proc->exit_ns = fixed.time_ns;
}

static void on_stack(struct feed_view *view, const struct ring_record *record)
{
	struct view_stack stack = { 0 };
	const void *tail;
	size_t tail_len;

	assert_int_equal(feed_decode(record->data, record->len, &stack.fixed, sizeof(stack.fixed),
				     &tail, &tail_len),
			 0);
	assert_true(stack.fixed.stack != 0 && stack.fixed.frame_count > 0);
	stack.frames = calloc(FEED_FRAMES_MAX, sizeof(*stack.frames));
	assert_non_null(stack.frames);
	assert_int_equal(feed_decode_frames(&stack.fixed, tail, tail_len, stack.frames), 0);
	view->stacks = grown(view->stacks, view->stack_count, sizeof(stack));
	view->stacks[view->stack_count++] = stack;
}

static void on_outcomes(struct feed_view *view, const struct ring_record *record)
{
	struct feed_outcomes fixed;
	const void *tail;
	size_t tail_len;

	assert_int_equal(feed_decode(record->data, record->len, &fixed, sizeof(fixed), &tail, &tail_len),
			 0);
	assert_true(tail_len == fixed.count * sizeof(struct feed_outcome));
	for (uint32_t i = 0; i < fixed.count; i++) {
		struct feed_outcome outcome;

		memcpy(&outcome, (const char *)tail + i * sizeof(outcome), sizeof(outcome));
		assert_true(outcome.outcome < PROF_OUTCOMES_MAX && outcome.increment > 0);
		view->outcomes[outcome.outcome] += outcome.increment;
	}
}

static void on_record(struct feed_view *view, const struct ring_record *record)
{
	struct feed_proc_cpu reading;
	const void *tail;
	uint64_t sum_ns;
	size_t tail_len;

	switch (record->kind) {
	case FEED_EPOCH:
		assert_int_equal(feed_decode(record->data, record->len, &view->epoch,
					     sizeof(view->epoch), &tail, &tail_len),
				 0);
		view->epochs++;
		break;
	case FEED_CLOCK:
		assert_int_equal(feed_decode(record->data, record->len, &view->clock,
					     sizeof(view->clock), &tail, &tail_len),
				 0);
		view->clocks++;
		sum_ns = 0;
		for (size_t i = 0; i < FEED_PROGRAMS_MAX; i++)
			sum_ns += view->costs.run_ns[i];
		assert_int_equal(sum_ns, view->clock.bpf_run_ns);
		break;
	case FEED_COSTS:
		assert_int_equal(feed_decode(record->data, record->len, &view->costs,
					     sizeof(view->costs), &tail, &tail_len),
				 0);
		break;
	case FEED_DEMAND:
		assert_int_equal(feed_decode(record->data, record->len, &view->demand,
					     sizeof(view->demand), &tail, &tail_len),
				 0);
		view->demands++;
		break;
	case FEED_MODULE:
		on_module(view, record);
		break;
	case FEED_PROC:
		on_proc(view, record);
		break;
	case FEED_PROC_EXIT:
		on_exit_record(view, record);
		break;
	case FEED_STACK:
		on_stack(view, record);
		break;
	case FEED_OUTCOMES:
		on_outcomes(view, record);
		break;
	case FEED_SAMPLE:
		view->samples = grown(view->samples, view->sample_count, sizeof(*view->samples));
		assert_int_equal(feed_decode(record->data, record->len,
					     &view->samples[view->sample_count],
					     sizeof(*view->samples), &tail, &tail_len),
				 0);
		view->sample_count++;
		break;
	case FEED_ALLOC:
		assert_int_equal(feed_decode(record->data, record->len, &view->alloc,
					     sizeof(view->alloc), &tail, &tail_len),
				 0);
		view->allocs++;
		break;
	case FEED_PROC_CPU:
		assert_int_equal(feed_decode(record->data, record->len, &reading, sizeof(reading),
					     &tail, &tail_len),
				 0);
		if (!reading.proc)
			view->lives_told_ns = reading.time_ns;
		break;
	default:
		fail_msg("a record of kind %u", record->kind);
	}
}

void feed_view_read(struct feed_view *view)
{
	struct ring_record record;
	int rc;

	while ((rc = ring_read(view->ring, view->cursor, &record)) == 1) {
		on_record(view, &record);
		view->cursor = record.end;
		ring_release(view->ring, view->cursor);
	}
	assert_int_equal(rc, 0);
}

void feed_view_run(struct feed_view *view, unsigned ms)
{
	uint64_t end_ns = clock_monotonic_ns() + ms * NS_PER_MS;

	do {
		feed_view_read(view);
		clock_sleep_ns(20 * NS_PER_MS);
	} while (clock_monotonic_ns() < end_ns);
	feed_view_read(view);
}

const struct view_module *feed_view_module(const struct feed_view *view, uint32_t module)
{
	for (size_t i = 0; i < view->module_count; i++)
		if (view->modules[i].fixed.module == module)
			return &view->modules[i];
	return NULL;
}

const struct view_proc *feed_view_proc(const struct feed_view *view, uint32_t proc)
{
	return find_proc(view, proc);
}

const struct view_stack *feed_view_stack(const struct feed_view *view, uint64_t stack)
{
	for (size_t i = view->stack_count; i-- > 0;)
		if (view->stacks[i].fixed.stack == stack)
			return &view->stacks[i];
	return NULL;
}

const struct view_proc *feed_view_tgid(const struct feed_view *view, uint32_t tgid)
{
	const struct view_proc *newest = NULL;

	for (size_t i = 0; i < view->proc_count; i++)
		if (view->procs[i].fixed.tgid == tgid &&
		    (!newest || view->procs[i].fixed.proc > newest->fixed.proc))
			newest = &view->procs[i];
	return newest;
}

static size_t missing_modules(const struct feed_view *view)
{
	size_t missing = 0;

	for (size_t i = 0; i < view->stack_count; i++)
		for (uint16_t f = 0; f < view->stacks[i].fixed.frame_count; f++) {
			uint64_t frame = view->stacks[i].frames[f];

			missing += prof_frame_kind(frame) == PROF_FRAME_MODULE &&
				   !feed_view_module(view, prof_frame_module_id(frame));
		}
	return missing;
}

static size_t missing_stacks(const struct feed_view *view)
{
	size_t missing = 0;

	for (size_t i = 0; i < view->sample_count; i++) {
		const struct feed_sample *sample = &view->samples[i];

		missing += sample->user_stack && !feed_view_stack(view, sample->user_stack);
		missing += sample->kernel_stack && !feed_view_stack(view, sample->kernel_stack);
	}
	return missing;
}

void feed_view_check(struct feed_view *view)
{
	for (size_t i = 0; i < view->sample_count; i++)
		assert_non_null(find_proc(view, view->samples[i].proc));
	for (int i = 0; i < 100 && (missing_modules(view) || missing_stacks(view)); i++)
		feed_view_run(view, 200);
	assert_int_equal(missing_modules(view), 0);
	assert_int_equal(missing_stacks(view), 0);
}

const struct view_proc *feed_view_await_exit(struct feed_view *view, pid_t pid)
{
	const struct view_proc *proc = NULL;

	for (int i = 0; i < 600 && (!proc || !proc->exit_ns); i++) {
		feed_view_run(view, 100);
		proc = feed_view_tgid(view, (uint32_t)pid);
	}
	assert_non_null(proc);
	assert_true(proc->exit_ns > 0);
	feed_view_run(view, 300);
	return feed_view_tgid(view, (uint32_t)pid);
}

/* ---- names -------------------------------------------------------------------------------------
 */

static struct symbol_index *names_index;
static char names_path[256]; /* whose names they are */

const char *feed_view_function(const struct feed_view *view, uint64_t frame, const char *path)
{
	struct symbol_frame names[SYMBOL_INLINE_MAX];
	const struct view_module *module =
		feed_view_module(view, prof_frame_module_id(frame));
	uint64_t fo = prof_frame_offset(frame) - !!(frame & PROF_FRAME_RETURN);
	int count;

	if (prof_frame_kind(frame) != PROF_FRAME_MODULE || !module ||
	    strcmp(module->path, path) != 0)
		return "";
	if (strcmp(names_path, path) != 0) {
		cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
		Elf *elf = elf_version(EV_CURRENT) == EV_NONE ? NULL : elf_begin(fd, ELF_C_READ, NULL);

		symbol_index_destroy(names_index);
		names_index = NULL;
		assert_int_equal(symbol_index_build(elf, NULL, &names_index), 0);
		(void)elf_end(elf);
		(void)snprintf(names_path, sizeof(names_path), "%s", path);
	}
	count = symbol_index_find(names_index, fo, names);
	return count ? names[count - 1].function : "";
}

bool feed_view_has_function(const struct feed_view *view, uint64_t stack_id, const char *path,
			    const char *name)
{
	const struct view_stack *stack = feed_view_stack(view, stack_id);

	for (uint16_t i = 0; stack && i < stack->fixed.frame_count; i++)
		if (strcmp(feed_view_function(view, stack->frames[i], path), name) == 0)
			return true;
	return false;
}
