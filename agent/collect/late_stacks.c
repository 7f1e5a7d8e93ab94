// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/late_stacks.h"

#include <errno.h>
#include <string.h>

#include "agent/base/vec.h"
#include "bpf/outcome.h"

struct unwind_state;
static int copied_read(const struct unwind_state *at, void *dst, size_t bytes, uint64_t va);
static const uint32_t *place_element(const void *table, uint32_t index);

#define UNWIND_READ(dst, bytes, address) copied_read(at, dst, bytes, address)
#define UNWIND_ELEMENT(table, index)	 place_element(table, index)
#include "bpf/unwind_step.h"

_Static_assert(PROF_REGS == ARCH_REG_COUNT, "struct prof_late_event");

/* ---- the table --------------------------------------------------------------------------------- */

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

int late_stacks_put(struct late_stacks *late, const struct prof_late_event *event, uint64_t until_ns)
{
	void *data = late->items;
	struct late_stack *item;
	int rc;

	if (late->count == LATE_STACKS_MAX || late->bytes + bytes_of(event) > LATE_STACKS_BYTES_MAX)
		return -ENOSPC;
	rc = vec_grow(&data, &late->capacity, late->count + 1, sizeof(*late->items), LATE_STACKS_MAX);
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

/* ---- walking ----------------------------------------------------------------------------------- */

struct walk {
	struct unwind_state state; /* first: copied_read() gets only this */
	const struct prof_late_event *event;
};

static int copied_read(const struct unwind_state *at, void *dst, size_t bytes, uint64_t va)
{
	const struct prof_late_event *event = ((const struct walk *)(const void *)at)->event;
	uint64_t offset = va - event->sp;

	if (offset > event->stack_bytes || event->stack_bytes - offset < bytes)
		return -EFAULT;
	memcpy(dst, event->stack + offset, bytes);
	return 0;
}

static const uint32_t *place_element(const void *table, uint32_t index)
{
	const struct late_place *place = table;

	if (index >= place->table_bytes / UNWIND_ELEMENT_BYTES)
		return NULL;
	return (const uint32_t *)(const void *)((const char *)place->table +
						(size_t)index * UNWIND_ELEMENT_BYTES);
}

static void start(struct walk *walk, const struct prof_late_event *event)
{
	*walk = (struct walk){ .event = event,
			       .state = { .ip = event->ip,
					  .sp = event->sp,
					  .fp = event->fp,
					  .context_at = event->context_at,
					  .regs_known = event->regs_known,
					  .is_return = event->is_return } };
	memcpy(walk->state.regs, event->regs, sizeof(walk->state.regs));
}

/* The word of the present frame and the step to its caller. */
static int take_frame(struct walk *walk, const struct late_code *code, uint64_t *ret_frame)
{
	uint64_t pc = walk->state.ip - !!walk->state.is_return;
	uint64_t flags = walk->state.is_return ? PROF_FRAME_RETURN : 0;
	struct unwind_table_head head;
	struct unwind_rule rule;
	struct late_place place;
	int rc = code->find(code->ctx, pc, &place);

	if (rc < 0)
		return rc;
	if (place.table_bytes < sizeof(head))
		return -ENOENT;
	memcpy(&head, place.table, sizeof(head));
	if (unwind_find_rule(&place, &head, pc - place.bias, &rule) != UNWIND_STEPPED)
		return -ENOENT;
	if (rule.cfa == UNWIND_CFA_SIGNAL)
		flags = 0; /* nobody called the trampoline: its address is exact */
	*ret_frame = prof_frame_module(place.module, walk->state.ip - place.bias, flags);
	rc = unwind_step(&walk->state, &rule);
	if (rc == UNWIND_FINISHED)
		return 0;
	return rc == UNWIND_STEPPED ? 1 : -ENOENT;
}

int late_stack_walk(const struct prof_late_event *event, const struct late_code *code, uint64_t *frames,
		    uint16_t max, uint16_t *count, uint8_t *ret_outcome)
{
	uint16_t at = *count;
	struct walk walk;
	int rc = 1;

	start(&walk, event);
	while (rc > 0) {
		if (at >= max) {
			frames[at++] = (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT;
			*count = at;
			*ret_outcome = OUTCOME_truncated;
			return 0;
		}
		rc = take_frame(&walk, code, &frames[at]);
		if (rc == -ENOENT)
			*count = at;
		if (rc < 0)
			return rc;
		at++;
	}
	*count = at;
	*ret_outcome = OUTCOME_complete;
	return 0;
}
