// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/stacks/late_stacks.h"

#include <errno.h>
#include <string.h>

#include "agent/base/vec.h"
#include "bpf/outcome.h"

struct unwind_state;
static int copied_read(const struct unwind_state *at, void *dst, size_t bytes, uint64_t va);
static const uint32_t *place_element(const void *table, uint32_t index);

#define UNWIND_READ(dst, bytes, address) copied_read(at, dst, bytes, address)
#define UNWIND_ELEMENT(table, index)	 place_element(table, index)
#include "bpf/hotspot.bpf.h"
#include "bpf/unwind_step.h"

struct script_walk;
static int python_read(const struct script_walk *w, void *dst, size_t bytes, uint64_t va);

#undef UNWIND_READ
#define UNWIND_READ(dst, bytes, address) python_read(w, dst, bytes, address)
#include "bpf/python.bpf.h"

_Static_assert(PROF_REGS == ARCH_REG_COUNT, "struct prof_late_event");

/* ---- the table ---------------------------------------------------------------------------------
 */

static size_t bytes_of(const struct prof_late_event *event)
{
	return sizeof(*event) + event->stack_bytes;
}

void late_stacks_deinit(struct late_stacks *late)
{
	while (late->count)
		late_stacks_remove(late, late->count - 1);
	free(late->items);
	*late = (struct late_stacks){ 0 };
}

int late_stacks_put(struct late_stacks *late, const struct prof_late_event *event,
		    uint64_t until_ns)
{
	void *data = late->items;
	struct late_stack *item;
	int rc;

	if (late->count == LATE_STACKS_MAX || late->bytes + bytes_of(event) > LATE_STACKS_BYTES_MAX)
		return -ENOSPC;
	rc = vec_grow(&data, &late->capacity, late->count + 1, sizeof(*late->items),
		      LATE_STACKS_MAX);
	late->items = data;
	if (rc < 0)
		return rc;
	item = &late->items[late->count];
	*item = (struct late_stack){ .event = malloc(bytes_of(event)), .until_ns = until_ns };
	if (!item->event)
		return -ENOMEM;
	memcpy(item->event, event, bytes_of(event));
	late->bytes += bytes_of(event);
	late->count++;
	return 0;
}

struct late_stack *late_stacks_find(struct late_stacks *late, uint64_t time_ns, uint32_t tid)
{
	for (size_t i = late->count; i-- > 0;)
		if (late->items[i].event->time_ns == time_ns && late->items[i].event->tid == tid)
			return &late->items[i];
	return NULL;
}

void late_stacks_remove(struct late_stacks *late, size_t at)
{
	late->bytes -= bytes_of(late->items[at].event);
	free(late->items[at].event);
	late->count--;
	memmove(&late->items[at], &late->items[at + 1], (late->count - at) * sizeof(*late->items));
}

/* ---- walking -----------------------------------------------------------------------------------
 */

struct walk {
	struct unwind_state state; /* first: copied_read() gets only this */
	const struct prof_late_event *event;
	const struct late_code *code;
	struct hotspot_walk hotspot;
	struct script_walk python;
	uint8_t python_outcome; /* why its frames are missing, else complete */
};

static int copied_read(const struct unwind_state *at, void *dst, size_t bytes, uint64_t va)
{
	const struct walk *walk = (const void *)at;
	const struct prof_late_event *event = walk->event;
	uint64_t offset = va - (event->sp - ARCH_BELOW_SP);

	if (offset > event->stack_bytes || event->stack_bytes - offset < bytes)
		return walk->code->runtime ? walk->code->read(walk->code->ctx, dst, bytes, va)
					   : -EFAULT;
	memcpy(dst, event->stack + offset, bytes);
	return 0;
}

static int python_read(const struct script_walk *w, void *dst, size_t bytes, uint64_t va)
{
	const struct walk *walk =
		(const void *)((const char *)w - offsetof(struct walk, python));

	return copied_read(&walk->state, dst, bytes, va);
}

static const uint32_t *place_element(const void *table, uint32_t index)
{
	const struct late_place *place = table;

	if (index >= place->table_bytes / UNWIND_ELEMENT_BYTES)
		return NULL;
	return (const uint32_t *)(const void *)((const char *)place->table +
						(size_t)index * UNWIND_ELEMENT_BYTES);
}

static void start(struct walk *walk, const struct prof_late_event *event,
		  const struct late_code *code)
{
	*walk = (struct walk){ .event = event,
			       .code = code,
			       .state = { .ip = event->ip,
					  .sp = event->sp,
					  .fp = event->fp,
					  .context_at = event->context_at,
					  .regs_known = event->regs_known,
					  .is_return = event->is_return } };
	memcpy(walk->state.regs, event->regs, sizeof(walk->state.regs));
	if (code->runtime && code->runtime->kind == SCRIPT_HOTSPOT)
		walk->hotspot.facts = code->runtime->hotspot;
	if (code->runtime && code->runtime->kind == SCRIPT_CPYTHON)
		walk->python.python = code->runtime->python;
	walk->python_outcome = OUTCOME_complete;
}

/* A frame in code that HotSpot has generated. */
static int take_java_frame(struct walk *walk, uint64_t ret_words[2])
{
	int rc = hotspot_step(&walk->hotspot, &walk->state, ret_words);

	if (ret_words[0] && (rc == UNWIND_STEPPED || rc == UNWIND_FINISHED))
		return rc == UNWIND_STEPPED;
	ret_words[0] = 0;
	return -ENOENT;
}

static bool is_loop(const struct late_code *code, uint64_t pc)
{
	const struct script_runtime *runtime = code->runtime;

	return runtime && runtime->kind == SCRIPT_CPYTHON &&
	       script_is_in_ranges(runtime->ranges, pc);
}

/* The Python frames of the C frame of the loop that begins at @low and was left. False: there is no
 * room for all. */
static bool take_python(struct walk *walk, uint64_t low, enum script_place place, uint64_t *frames,
			uint16_t max, uint16_t *count)
{
	if (walk->python_outcome != OUTCOME_complete)
		return true;
	switch (script_python_take(&walk->python, walk->event->thread_pointer, low, walk->state.sp,
				   place, walk->state.regs, frames, max, count)) {
	case SCRIPT_STEP_FRAME:
		return false;
	case SCRIPT_STEP_BACK:
		walk->python_outcome = OUTCOME_script_state;
		break;
	case SCRIPT_STEP_UNREAD:
		walk->python_outcome = OUTCOME_script_unread;
		break;
	case SCRIPT_STEP_DESYNC:
		walk->python_outcome = OUTCOME_script_desync;
		break;
	default:
		break;
	}
	return true;
}

/* The words of the present frame, one or two, and the step to its caller. */
static int take_frame(struct walk *walk, const struct late_code *code, uint64_t ret_words[2])
{
	uint64_t pc = walk->state.ip - !!walk->state.is_return;
	uint64_t flags = walk->state.is_return ? PROF_FRAME_RETURN : 0;
	struct unwind_table_head head;
	struct unwind_rule rule;
	struct late_place place;
	int rc;

	ret_words[0] = ret_words[1] = 0;
	if (code->runtime && code->runtime->kind == SCRIPT_HOTSPOT &&
	    hotspot_is_code(&code->runtime->hotspot, pc))
		return take_java_frame(walk, ret_words);
	rc = code->find(code->ctx, pc, &place);
	if (rc < 0)
		return rc;
	ret_words[0] = prof_frame_module(place.module, walk->state.ip - place.bias, flags);
	if (place.table_bytes < sizeof(head))
		return -ENOENT;
	memcpy(&head, place.table, sizeof(head));
	if (unwind_find_rule(&place, &head, pc - place.bias, &rule) != UNWIND_STEPPED)
		return -ENOENT;
	if (rule.cfa == UNWIND_CFA_SIGNAL) /* nobody called the trampoline: its address is exact */
		ret_words[0] = prof_frame_module(place.module, walk->state.ip - place.bias, 0);
	rc = unwind_step(&walk->state, &rule);
	if (rc == UNWIND_FINISHED)
		return 0;
	if (rc == UNWIND_FAULT)
		return -EFAULT;
	return rc == UNWIND_STEPPED ? 1 : -ENOENT;
}

int late_stack_walk(const struct prof_late_event *event, const struct late_code *code,
		    uint64_t *frames, uint16_t max, uint16_t *count, uint8_t *ret_outcome)
{
	uint16_t at = *count;
	struct walk walk;
	int rc = 1;

	start(&walk, event, code);
	while (rc > 0) {
		uint64_t words[2] = { 0, 0 }, low = walk.state.sp;
		bool is_call = walk.state.is_return;
		uint64_t pc = walk.state.ip - is_call;
		bool has_room = at < max;

		if (has_room)
			rc = take_frame(&walk, code, words);
		/* the last one that is known */
		if (has_room && (rc == -EFAULT || rc == -ENOENT) && words[0])
			frames[at++] = words[0];
		if (has_room && rc < 0 && rc != -EAGAIN)
			*count = at;
		if (has_room && rc < 0)
			return rc;
		has_room = has_room && (!words[1] || at + 2 <= max);
		if (has_room)
			frames[at++] = words[0];
		if (has_room && words[1])
			frames[at++] = words[1];
		if (has_room && rc > 0 && is_loop(code, pc))
			has_room = take_python(
				&walk, low,
				script_python_place(code->runtime->ranges[0].start, pc, is_call),
				frames, max, &at);
		if (!has_room) {
			frames[at++] = (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT;
			*count = at;
			*ret_outcome = OUTCOME_truncated;
			return 0;
		}
	}
	*count = at;
	*ret_outcome = walk.python_outcome;
	return 0;
}
