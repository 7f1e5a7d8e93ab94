// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/task_records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/reader/cpython_names.h"
#include "agent/reader/cpython_tasks.h"
#include "bpf/outcome.h"

#define HOPS_MAX    32u /* tasks of one stack */
#define NAMES_GROUP 64u
#define AWAITED_BY_NAMES 8u
#define NAMING_SHARE 4u /* of the time that is left: a quarter */

/* Functions of the standard library that wait for a future of their own say what a task that stands
 * in them waits for. */
enum place_wait { WAIT_OTHER, WAIT_SLEEP, WAIT_QUEUE, WAIT_LOCK, WAIT_STREAM, WAIT_SOCKET };

static const char *const wait_words[] = {
	[WAIT_SLEEP] = "asyncio sleep",	  [WAIT_QUEUE] = "asyncio queue",
	[WAIT_LOCK] = "asyncio lock",	  [WAIT_STREAM] = "asyncio stream",
	[WAIT_SOCKET] = "asyncio socket",
};

static const struct {
	const char *file, *function; /* function "": each of the file */
	enum place_wait wait;
} waits[] = {
	{ "/asyncio/tasks.py", "sleep", WAIT_SLEEP },
	{ "/asyncio/queues.py", "", WAIT_QUEUE },
	{ "/asyncio/locks.py", "", WAIT_LOCK },
	{ "/asyncio/streams.py", "", WAIT_STREAM },
	{ "/asyncio/selector_events.py", "", WAIT_SOCKET },
};

struct task_records {
	struct answer *answer;
	struct cpython_task_list list;
	uint64_t *frames;     /* of list.places: frame words */
	uint8_t *frame_waits; /* of list.places: enum place_wait */
	size_t *await_of;     /* per task: index of its first in list.awaits; one more at the end */
	uint64_t marker;
	uint64_t words[READ_FRAMES_MAX + 1];
	uint8_t flags[READ_FRAMES_MAX + 1]; /* zero */
	struct cpython_name names[NAMES_GROUP];
};

static void records_destroy(struct task_records *r)
{
	cpython_task_list_deinit(&r->list);
	free(r->frames);
	free(r->frame_waits);
	free(r->await_of);
	free(r);
}
CLEANUP_DEFINE(records, struct task_records *, records_destroy);

/* ---- names ----------------------------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
	const size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && !strcmp(text + len - end_len, end);
}

static enum place_wait wait_of(const struct cpython_name *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
		if (ends_in(name->file, waits[i].file) &&
		    (!*waits[i].function || !strcmp(name->function, waits[i].function)))
			return waits[i].wait;
	return WAIT_OTHER;
}

static int name_group(struct task_records *r, const struct script_python *python,
		      const uint32_t *at, size_t count)
{
	struct control_script_place places[NAMES_GROUP];
	int rc;

	for (size_t i = 0; i < count; i++)
		places[i] = r->list.places.data[at[i]];
	rc = cpython_names_read(r->answer->target, python, places, count, r->names,
				r->answer->deadline_ns);
	if (rc == -ESRCH || rc == -EPERM || rc == -ENOMEM)
		return rc;
	if (rc < 0)
		memset(r->names, 0, sizeof(r->names));
	for (size_t i = 0; i < count; i++) {
		const struct cpython_name *name = &r->names[i];

		r->frames[at[i]] = answer_script_frame(r->answer, name->function, name->file,
						       name->line, name->first_line);
		r->frame_waits[at[i]] = (uint8_t)wait_of(name);
	}
	return 0;
}

/* Many tasks stand in the same places: each place is named once. */
static int name_places(struct task_records *r, const struct script_python *python)
{
	const size_t count = r->list.places.count;
	cleanup_free uint32_t *first = calloc(count + 1, sizeof(*first));
	struct u64map known = { 0 };
	uint32_t group[NAMES_GROUP];
	size_t in_group = 0;
	int rc = first ? 0 : -ENOMEM;

	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		const struct control_script_place *place = &r->list.places.data[i];
		const uint64_t hash = hash_combine(place->a, place->b);
		uint64_t before = i;

		if (u64map_get(&known, hash, &before)) {
			first[i] = (uint32_t)before;
			continue;
		}
		first[i] = i;
		rc = u64map_put(&known, hash, i);
		group[in_group++] = i;
		if (rc == 0 && in_group == NAMES_GROUP) {
			rc = name_group(r, python, group, in_group);
			in_group = 0;
		}
	}
	if (rc == 0 && in_group)
		rc = name_group(r, python, group, in_group);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		r->frames[i] = r->frames[first[i]];
		r->frame_waits[i] = r->frame_waits[first[i]];
	}
	u64map_deinit(&known);
	return rc;
}

/* ---- one task -------------------------------------------------------------------------------- */

static size_t awaiters(const struct task_records *r, size_t task)
{
	return r->await_of[task + 1] - r->await_of[task];
}

static unsigned add_own(struct task_records *r, const struct cpython_task *task, unsigned count)
{
	for (uint32_t i = 0; i < task->place_count && count < READ_FRAMES_MAX; i++)
		r->words[count++] = r->frames[task->place_first + i];
	if (count < READ_FRAMES_MAX)
		r->words[count++] = r->marker;
	return count;
}

/* Returns the id of the stack, 0 = it has none. */
static uint32_t write_stack(struct task_records *r, size_t task)
{
	uint8_t outcome = OUTCOME_complete;
	size_t seen[HOPS_MAX], hops = 0, at = task;
	unsigned count = 0;

	if (r->list.tasks.data[task].is_moving)
		return 0;
	for (;;) {
		const struct cpython_task *one = &r->list.tasks.data[at];
		bool is_known = false;

		seen[hops++] = at;
		count = add_own(r, one, count);
		if (one->is_cut || count == READ_FRAMES_MAX || hops == HOPS_MAX)
			outcome = OUTCOME_truncated;
		if (outcome != OUTCOME_complete || awaiters(r, at) != 1)
			break;
		at = r->list.awaits.data[r->await_of[at]].awaiter;
		for (size_t i = 0; i < hops; i++)
			is_known |= seen[i] == at;
		if (is_known)
			break; /* tasks that await each other */
	}
	if (outcome != OUTCOME_complete)
		r->answer->end.incomplete++;
	return answer_stack(r->answer, outcome, r->words, r->flags, count);
}

static const char *state_word(const struct cpython_task *task)
{
	switch (task->state) {
	case CPYTHON_TASK_RUNNING:
		return "running";
	case CPYTHON_TASK_READY:
		return "runnable";
	case CPYTHON_TASK_WAITING:
		break;
	}
	return "waiting";
}

static const char *wait_word(const struct task_records *r, const struct cpython_task *task)
{
	const uint8_t hint = task->place_count ? r->frame_waits[task->place_first] : WAIT_OTHER;

	switch (task->wait) {
	case CPYTHON_WAIT_NONE:
		return "";
	case CPYTHON_WAIT_TASK:
		return "asyncio task";
	case CPYTHON_WAIT_GATHER:
		return "asyncio gather";
	case CPYTHON_WAIT_FUTURE:
		break;
	}
	return hint != WAIT_OTHER ? wait_words[hint] : "asyncio future";
}

static uint32_t write_labels(struct task_records *r, size_t task)
{
	const size_t count = awaiters(r, task);
	char names[AWAITED_BY_NAMES * (CPYTHON_TASK_NAME_MAX + 3) + 32] = "";
	uint32_t pairs[4];
	unsigned used = 0;
	size_t len = 0;

	for (size_t i = 0; i < count && i < AWAITED_BY_NAMES; i++) {
		const struct cpython_await *await = &r->list.awaits.data[r->await_of[task] + i];

		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len ? ", " : "",
					r->list.tasks.data[await->awaiter].name);
	}
	if (count > AWAITED_BY_NAMES)
		(void)snprintf(names + len, sizeof(names) - len, " and %zu more",
			       count - AWAITED_BY_NAMES);
	if (count) {
		pairs[used++] = answer_text(r->answer, TASK_LABEL_AWAITED_BY);
		pairs[used++] = answer_text(r->answer, names);
	}
	pairs[used++] = answer_text(r->answer, TASK_LABEL_NAME);
	pairs[used++] = answer_text(r->answer, r->list.tasks.data[task].name);
	return answer_labels(r->answer, pairs, used / 2);
}

static int write_task(struct task_records *r, size_t index)
{
	const struct cpython_task *task = &r->list.tasks.data[index];
	struct read_goroutine out = {
		.stack = write_stack(r, index),
		.state = answer_text(r->answer, state_word(task)),
		.reason = answer_text(r->answer, wait_word(r, task)),
		.labels = write_labels(r, index),
		.flags = task->is_moving ? READ_GOROUTINE_INCONSISTENT : 0,
	};

	r->answer->end.inconsistent += task->is_moving;
	read_writer_fixed(r->answer->writer, READ_GOROUTINE, &out, sizeof(out));
	return r->answer->writer->error;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int index_awaits(struct task_records *r)
{
	size_t at = 0;

	r->await_of = calloc(r->list.tasks.count + 1, sizeof(*r->await_of));
	if (!r->await_of)
		return -ENOMEM;
	for (size_t task = 0; task < r->list.tasks.count; task++) {
		r->await_of[task] = at;
		while (at < r->list.awaits.count && r->list.awaits.data[at].awaited == task)
			at++;
	}
	r->await_of[r->list.tasks.count] = at;
	return 0;
}

static void write_note(struct answer *answer, const char *text)
{
	struct read_note out = { .text = answer_text(answer, text) };

	read_writer_fixed(answer->writer, READ_NOTE, &out, sizeof(out));
}

static void note_misses(struct task_records *r)
{
	const struct cpython_task_list *list = &r->list;
	char text[160];

	if (!list->listed && !list->foreign && !list->is_partial)
		write_note(r->answer, "no asyncio tasks: asyncio is not used");
	if (list->is_partial) {
		(void)snprintf(text, sizeof(text),
			       "%llu asyncio tasks were read, not all: the time was over, or there are more "
			       "than %u",
			       (unsigned long long)list->tasks.count, CPYTHON_TASKS_MAX);
		write_note(r->answer, text);
	}
	if (list->foreign) {
		(void)snprintf(text, sizeof(text),
			       "%llu asyncio tasks are not listed: their class Task is written in Python",
			       (unsigned long long)list->foreign);
		write_note(r->answer, text);
	}
	if (list->unreadable) {
		(void)snprintf(text, sizeof(text),
			       "%llu asyncio tasks are not listed: they run no Python coroutine",
			       (unsigned long long)list->unreadable);
		write_note(r->answer, text);
	}
}

/* Tasks without names say nothing: a part of the time is left for these. */
static uint64_t tasks_deadline_ns(const struct answer *answer)
{
	const uint64_t now = clock_monotonic_ns();
	const uint64_t left = answer->deadline_ns > now ? answer->deadline_ns - now : 0;

	return answer->deadline_ns - left / NAMING_SHARE;
}

int task_records_write(struct answer *answer, const struct script_python *python, const char *why)
{
	cleanup(records) struct task_records *r = calloc(1, sizeof(*r));
	int rc = r ? -EOPNOTSUPP : -ENOMEM;
	char text[160];

	if (!r)
		return rc;
	r->answer = answer;
	if (python)
		rc = cpython_tasks_read(answer->target, answer->maps, python,
					tasks_deadline_ns(answer), &r->list, &why);
	if (rc == -EOPNOTSUPP) {
		(void)snprintf(text, sizeof(text), "no asyncio tasks: %s", why);
		write_note(answer, text);
		return answer->writer->error;
	}
	if (rc < 0)
		return rc;
	r->frames = calloc(r->list.places.count + 1, sizeof(*r->frames));
	r->frame_waits = calloc(r->list.places.count + 1, sizeof(*r->frame_waits));
	rc = r->frames && r->frame_waits ? index_awaits(r) : -ENOMEM;
	if (rc == 0)
		rc = name_places(r, python);
	if (rc == 0)
		r->marker = answer_script_frame(answer, TASK_MARKER, "", 0, 0);
	for (size_t i = 0; rc == 0 && i < r->list.tasks.count; i++)
		rc = write_task(r, i);
	if (rc < 0)
		return rc;
	answer->end.listed += r->list.listed;
	answer->end.read += r->list.tasks.count;
	note_misses(r);
	return answer->writer->error;
}
