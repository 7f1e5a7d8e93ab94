// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/reader/go_goroutines.h"
#include "agent/reader/go_snapshot.h"
#include "bpf/profiler.h"

#define OBJECT_FLAGS                                                                               \
	(READ_GOROUTINE_ON_CHANNEL | READ_GOROUTINE_ON_LOCK | READ_GOROUTINE_ON_SEMAPHORE)

static const char *const state_words[] = {
	[G_IDLE] = "idle",	     [G_RUNNABLE] = "runnable",	  [G_RUNNING] = "running",
	[G_SYSCALL] = "syscall",     [G_WAITING] = "waiting",	  [G_DEAD] = "dead",
	[G_COPYSTACK] = "copystack", [G_PREEMPTED] = "preempted", [G_LEAKED] = "leaked",
	[G_DEADEXTRA] = "dead",
};

const char *go_wait_reason(const struct snapshot *s, const struct g_item *item)
{
	unsigned index = item->g[s->layout->fields.g.waitreason];
	bool waits = item->key.status == G_WAITING || item->key.status == G_LEAKED;

	return s->layout->wait_reasons[waits && index < s->layout->wait_reason_count ? index : 0];
}

bool go_may_be_lock(const char *reason)
{
	return text_begins(reason, "sync.Mutex.") || text_begins(reason, "sync.RWMutex.") ||
	       !strcmp(reason, "semacquire");
}

/* ---- facts of one goroutine ------------------------------------------------------------------ */

static uint32_t thread_id(struct snapshot *s, uint64_t m_va)
{
	uint64_t tid = 0;

	if (!m_va || u64map_get(&s->threads, m_va, &tid))
		return (uint32_t)tid;
	if (target_read(s->layout->image.target, m_va + s->layout->fields.m_procid, &tid,
			sizeof(tid)) < 0 ||
	    tid > INT32_MAX)
		tid = 0;
	tid = thread_ids_outer(&s->thread_ids, (uint32_t)tid);
	/* A full table only means reading again. */
	(void)!u64map_put(&s->threads, m_va, tid);
	return (uint32_t)tid;
}

static int label_set_id(struct snapshot *s, uint64_t va, uint32_t *ret)
{
	uint32_t pairs[2 * GO_LABELS_MAX];
	uint64_t known;
	int rc;

	*ret = 0;
	if (!va)
		return 0;
	if (u64map_get(&s->labels, va, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	rc = go_labels_read(s->layout->image.target, va, !go_layout_since(s->layout, 24),
			    &s->label_set);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < s->label_set.count; i++) {
		const struct go_label *label = &s->label_set.items[i];

		pairs[2 * i] = answer_string(s->answer, label->key, label->key_len);
		pairs[2 * i + 1] = answer_string(s->answer, label->value, label->value_len);
	}
	*ret = answer_labels(s->answer, pairs, s->label_set.count);
	(void)!u64map_put(&s->labels, va, *ret);
	return 0;
}

bool go_goroutine_is_blocked(const char *reason)
{
	static const char *const prefixes[] = { "chan ",   "select",	"sync.",    "semacquire",
						"IO wait", "coroutine", "synctest." };

	return text_begins_any(reason, prefixes, ARRAY_SIZE(prefixes));
}


/* true: it waits for a lock. A reason that only says "semacquire" is decided by the functions it
 * waits in. */
static bool is_lock_wait(const struct snapshot *s, const struct g_item *item, const char *reason)
{
	bool in_lock = item->seen ? go_walks_entry(s->walks, item->seen->walk)->lock_wait
				  : s->walk.lock_wait;

	return go_may_be_lock(reason) && (strcmp(reason, "semacquire") != 0 || in_lock);
}

uint32_t go_sudog_span(const struct go_fields *fields, uint32_t *ret_first)
{
	uint32_t low = fields->sudog_c < fields->sudog_elem ? fields->sudog_c : fields->sudog_elem;
	uint32_t high = fields->sudog_c < fields->sudog_elem ? fields->sudog_elem : fields->sudog_c;

	*ret_first = low;
	return high - low + 8 <= SUDOG_BYTES_MAX ? high - low + 8 : 0;
}

/* The object a goroutine waits for: the mutex found in its stack, else the first sudog it is queued
 * with (channels; semaphores too from 1.26). */
static void wait_object(const struct snapshot *s, const struct g_item *item,
			struct read_goroutine *out)
{
	const struct go_fields *f = &s->layout->fields;
	uint64_t channel_va, element_va;
	uint32_t first;

	if (s->walk.count && s->walk.lock_va) {
		out->wait_object = s->walk.lock_va;
		out->flags |= READ_GOROUTINE_ON_LOCK;
		return;
	}
	if (!item->has_sudog)
		return;
	(void)go_sudog_span(f, &first);
	channel_va = g_word(item->sudog, f->sudog_c - first);
	element_va = g_word(item->sudog, f->sudog_elem - first);
	if (channel_va) {
		out->wait_object = channel_va;
		out->flags |= READ_GOROUTINE_ON_CHANNEL;
	} else if (element_va) {
		out->wait_object = element_va;
		out->flags |= READ_GOROUTINE_ON_SEMAPHORE;
	}
}

static int start_facts(struct snapshot *s, const struct g_item *item, const char *reason,
		       struct read_goroutine *out)
{
	const struct go_fields *f = &s->layout->fields;
	uint64_t start_pc = g_word(item->g, f->g.startpc), go_pc = g_word(item->g, f->g.gopc);
	struct go_pc start = { 0 };
	int rc = start_pc ? go_unwinder_pc(s->unwinder, start_pc, &start) : 0;

	if (rc < 0)
		return rc;
	if (start.flags & GO_PC_FINALIZER) {
		if (strstr(reason, "finalizer wait") || strstr(reason, "cleanup wait"))
			out->flags |= READ_GOROUTINE_SYSTEM;
	} else if (start.flags & GO_PC_RUNTIME) {
		out->flags |= READ_GOROUTINE_SYSTEM;
	}
	if (start.flags & GO_PC_IN_TABLE)
		out->start_frame = answer_frame(s->answer, start_pc, 0);
	if (go_pc >= s->layout->table.min_va && go_pc < s->layout->table.max_va)
		out->created_frame = answer_frame(s->answer, go_pc, PROF_FRAME_RETURN);
	return 0;
}

/* ---- writing one goroutine ------------------------------------------------------------------- */

/* How many of the innermost frames are the runtime's way to wait, as its block profile leaves them
 * out. */
static unsigned parking_frames(struct snapshot *s)
{
	struct go_pc info;
	unsigned count = 0;

	if (!(s->flags & (READER_BLOCKED_ONLY | READER_LOCKS_ONLY)))
		return 0;
	while (count + 1 < s->walk.count &&
	       go_unwinder_pc(s->unwinder, s->walk.pcs[count], &info) == 0 &&
	       info.flags & GO_PC_PARKING)
		count++;
	return count;
}

static uint32_t write_walk(struct snapshot *s)
{
	uint64_t frames[READ_FRAMES_MAX + 1];
	uint8_t flags[READ_FRAMES_MAX + 1];
	unsigned count = 0;

	for (unsigned i = parking_frames(s); i < s->walk.count; i++, count++) {
		frames[count] = answer_frame(s->answer, s->walk.pcs[i],
					     s->walk.exact[i] ? 0 : PROF_FRAME_RETURN);
		flags[count] = s->walk.flags[i];
	}
	if (s->walk.end != GO_WALK_TRUNCATED)
		return answer_stack(s->answer, 0, frames, flags, count);
	frames[count] = (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT;
	flags[count] = 0;
	return answer_stack(s->answer, 1, frames, flags, count + 1);
}

/* The answer's id of a walk that has a number, written when it is first asked for. */
static uint32_t numbered_stack(struct snapshot *s, uint32_t number)
{
	if (number > s->stack_id_count)
		return 0;
	if (!s->stack_ids[number - 1]) {
		go_walks_load(s->walks, number, &s->walk);
		s->stack_ids[number - 1] = write_walk(s);
	}
	return s->stack_ids[number - 1];
}

/* Room for the ids of all walks that have a number by now. */
static bool has_room(struct snapshot *s, uint32_t number)
{
	size_t room = s->stack_id_count ? s->stack_id_count : 1024;
	uint32_t *ids;

	if (!number || number <= s->stack_id_count)
		return number != 0;
	while (room < number)
		room *= 2;
	ids = reallocarray(s->stack_ids, room, sizeof(*ids));
	if (!ids)
		return false;
	memset(ids + s->stack_id_count, 0, (room - s->stack_id_count) * sizeof(*ids));
	s->stack_ids = ids;
	s->stack_id_count = room;
	return true;
}

/* Stack and object of a goroutine: known, or found now and then known for the next reading. */
static void write_stack(struct snapshot *s, const struct g_item *item, uint64_t since,
			struct read_goroutine *out)
{
	const struct go_seen *seen = item->seen;
	uint32_t number;

	if (seen && has_room(s, seen->walk)) {
		out->wait_object = seen->object;
		out->flags |= seen->object_flags;
		out->stack = numbered_stack(s, seen->walk);
		return;
	}
	if (!s->walk.count)
		return;
	if (go_wait_reason(s, item)[0])
		wait_object(s, item, out);
	number = go_walks_number(s->walks, &s->walk);
	out->stack = has_room(s, number) ? numbered_stack(s, number) : write_walk(s);
	if (number && since)
		go_walks_keep(s->walks, item->index,
			      &(struct go_seen){ .goid = item->key.goid,
						 .wait_since = since,
						 .pc = item->key.sched_pc,
						 .sp = item->key.sched_sp,
						 .object = out->wait_object,
						 .object_flags = out->flags & OBJECT_FLAGS,
						 .walk = number });
}

static bool has_stack(const struct snapshot *s, const struct g_item *item)
{
	return item->seen || s->walk.count;
}

int go_write_item(struct snapshot *s, const struct g_item *item)
{
	const struct go_fields *f = &s->layout->fields;
	struct read_goroutine out = { .goid = item->key.goid };
	uint64_t since = g_word(item->g, f->g.waitsince), locked_m = g_word(item->g, f->g.lockedm);
	uint32_t status = item->key.status;
	const char *reason = go_wait_reason(s, item);
	int rc;

	if (status >= ARRAY_SIZE(state_words) || !state_words[status])
		return 0;
	rc = start_facts(s, item, reason, &out);
	if (rc < 0)
		return rc;
	if (go_goroutine_is_blocked(reason))
		out.flags |= READ_GOROUTINE_BLOCKED;
	if (is_lock_wait(s, item, reason))
		out.flags |= READ_GOROUTINE_LOCK_WAIT;
	if (s->flags & READER_LOCKS_ONLY && !(out.flags & READ_GOROUTINE_LOCK_WAIT))
		return 0;
	if (s->flags & (READER_BLOCKED_ONLY | READER_LOCKS_ONLY) &&
	    out.flags & READ_GOROUTINE_SYSTEM)
		return 0;
	if (f->g.parent_goid != GO_NO_FIELD)
		out.parent_goid = g_word(item->g, f->g.parent_goid);
	if (since && since <= s->now_ns &&
	    (status == G_WAITING || status == G_SYSCALL || status == G_LEAKED))
		out.wait_ns = s->now_ns - since;
	if (locked_m)
		out.flags |= READ_GOROUTINE_LOCKED;
	out.tid = thread_id(s, locked_m ? locked_m : g_word(item->g, f->g.m));
	if (status == G_LEAKED)
		out.flags |= READ_GOROUTINE_LEAKED;
	if (status == G_RUNNING && !has_stack(s, item))
		out.flags |= READ_GOROUTINE_RUNNING;
	else if (!has_stack(s, item))
		out.flags |= READ_GOROUTINE_INCONSISTENT;
	rc = label_set_id(s, g_word(item->g, f->g.labels), &out.labels);
	if (rc < 0)
		return rc;
	write_stack(s, item, since, &out);
	/* "leaked" is how the runtime marks it; it still waits. */
	out.state = answer_text(s->answer, state_words[status == G_LEAKED ? G_WAITING : status]);
	out.reason = answer_text(s->answer, reason);
	read_writer_fixed(s->answer->writer, READ_GOROUTINE, &out, sizeof(out));
	return s->answer->writer->error;
}
