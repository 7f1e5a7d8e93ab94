// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/thread_python.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/reader/cpython_check.h"
#include "agent/reader/cpython_names.h"
#include "agent/reader/thread_ids.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"

struct script_walk;
static int python_read(const struct script_walk *w, void *dst, size_t bytes, uint64_t va);

#define UNWIND_READ(dst, bytes, address) (-EFAULT) /* no native step is taken here */
#define UNWIND_ELEMENT(table, index)	 NULL
#include "bpf/unwind_step.h"

#undef UNWIND_READ
#define UNWIND_READ(dst, bytes, address) python_read(w, dst, bytes, address)
#include "bpf/python.bpf.h"

#define THREADS_MAX 256u
#define PAIRS_MAX   (READ_FRAMES_MAX / 2)

struct thread_python {
	struct answer *answer;
	bool is_looked_at; /* the process */
	int rc;		   /* why it has no frames, 0 = it has */
	struct script_runtime runtime;
	struct script_walk walk;
	struct cpython_thread threads[THREADS_MAX];
	uint32_t tids[THREADS_MAX]; /* here, 0 = unknown */
	size_t thread_count;
	uint32_t tid; /* of the thread at hand */
	bool is_asleep;
	bool is_begun;		 /* its walk has come to Python */
	uint64_t thread_pointer; /* 0 = unknown */
	uint8_t outcome;	 /* why its frames are missing, else complete */
	struct control_script_place places[PAIRS_MAX];
	struct cpython_name names[PAIRS_MAX];
};

static int python_read(const struct script_walk *w, void *dst, size_t bytes, uint64_t va)
{
	const struct thread_python *python =
		(const void *)((const char *)w - offsetof(struct thread_python, walk));

	return target_read(python->answer->target, va, dst, bytes);
}

struct thread_python *thread_python_create(struct answer *answer)
{
	struct thread_python *python = calloc(1, sizeof(*python));

	if (python)
		python->answer = answer;
	return python;
}

void thread_python_destroy(struct thread_python *python)
{
	free(python);
}

/* ---- the process ----------------------------------------------------------------------------- */

static void move(uint64_t *address, uint64_t bias)
{
	if (*address)
		*address += bias;
}

static void place_runtime(struct script_runtime *runtime, uint64_t bias)
{
	for (size_t i = 0; i < SCRIPT_RANGES_MAX; i++) {
		move(&runtime->ranges[i].start, bias);
		move(&runtime->ranges[i].end, bias);
	}
	move(&runtime->python.runtime, bias);
	move(&runtime->python.tls_got, bias);
	move(&runtime->python.code_type, bias);
}

/* The number of each thread is in its structure. */
static int find_threads(struct thread_python *python)
{
	struct target *target = python->answer->target;
	struct thread_ids ids = { 0 };
	int rc = cpython_check_threads(target, &python->runtime.python, python->threads, THREADS_MAX,
				       &python->thread_count, python->answer->deadline_ns);

	if (rc == 0)
		rc = thread_ids_load(target, &ids);
	for (size_t i = 0; rc == 0 && i < python->thread_count; i++) {
		uint32_t tid;

		if (target_read(target, python->threads[i].pthread_va + ARCH_GLIBC_TID_AT, &tid,
				sizeof(tid)) == 0)
			python->tids[i] = thread_ids_outer(&ids, tid);
	}
	thread_ids_deinit(&ids);
	return rc;
}

static void look(struct thread_python *python, const struct script_runtime *file, uint64_t bias)
{
	python->is_looked_at = true;
	python->runtime = *file;
	place_runtime(&python->runtime, bias);
	python->rc = cpython_check(python->answer->target, &python->runtime,
				   python->answer->deadline_ns);
	if (python->rc == 0)
		python->rc = find_threads(python);
}

/* ---- a thread -------------------------------------------------------------------------------- */

void thread_python_begin(struct thread_python *python, uint32_t tid, bool is_asleep)
{
	python->tid = tid;
	python->is_asleep = is_asleep;
	python->is_begun = false;
	python->outcome = OUTCOME_complete;
}

static void begin_frames(struct thread_python *python)
{
	python->is_begun = true;
	python->walk = (struct script_walk){ .python = python->runtime.python };
	python->thread_pointer = 0;
	for (size_t i = 0; i < python->thread_count && python->is_asleep; i++)
		if (python->tids[i] == python->tid)
			python->thread_pointer = python->threads[i].pointer_va;
	if (python->rc == -EOPNOTSUPP)
		python->outcome = OUTCOME_script_unsupported;
	else if (python->rc < 0 || !python->thread_pointer)
		python->outcome = OUTCOME_script_state;
}

static uint8_t outcome_of(enum script_step step)
{
	switch (step) {
	case SCRIPT_STEP_ENTRY:
		return OUTCOME_complete;
	case SCRIPT_STEP_FRAME:
		return OUTCOME_truncated;
	case SCRIPT_STEP_UNREAD:
		return OUTCOME_script_unread;
	case SCRIPT_STEP_DESYNC:
		return OUTCOME_script_desync;
	case SCRIPT_STEP_BACK:
		break;
	}
	return OUTCOME_script_state;
}

uint8_t thread_python_add(struct thread_python *python, const struct row_table *rows, uint64_t bias,
			  uint64_t pc, bool is_call, const uint64_t *regs, uint64_t low,
			  uint64_t high, uint64_t *words, uint16_t max, unsigned *count)
{
	uint16_t at = (uint16_t)*count;

	if (rows->script.kind != SCRIPT_CPYTHON ||
	    !script_is_in_ranges(rows->script.ranges, pc - bias))
		return OUTCOME_complete;
	if (!python->is_looked_at)
		look(python, &rows->script, bias);
	if (!python->is_begun)
		begin_frames(python);
	if (python->outcome != OUTCOME_complete)
		return python->outcome;
	python->outcome = outcome_of(script_python_take(
		&python->walk, python->thread_pointer, low, high,
		script_python_place(rows->script.ranges[0].start, pc - bias, is_call), regs, words,
		max, &at));
	*count = at;
	return python->outcome;
}

unsigned thread_python_name(struct thread_python *python, uint64_t *words, unsigned count)
{
	unsigned pairs = 0, left = 0, next = 0;

	for (unsigned i = 0; i + 1 < count && pairs < PAIRS_MAX; i++)
		if (prof_frame_kind(words[i]) == PROF_FRAME_SCRIPT)
			python->places[pairs++] = (struct control_script_place){ words[i], words[i + 1] };
	if (!pairs)
		return count;
	if (cpython_names_read(python->answer->target, &python->runtime.python, python->places, pairs,
			       python->names, python->answer->deadline_ns) < 0)
		memset(python->names, 0, pairs * sizeof(python->names[0]));
	for (unsigned i = 0; i < count; i++) {
		const struct cpython_name *name = &python->names[next];

		if (prof_frame_kind(words[i]) != PROF_FRAME_SCRIPT) {
			words[left++] = words[i];
			continue;
		}
		words[left++] = answer_script_frame(python->answer, name->function, name->file,
						    name->line, name->first_line);
		next++;
		i++;
	}
	return left;
}

static void find_runtime(struct thread_python *python, struct row_tables *tables)
{
	const struct target_maps *maps = python->answer->maps;

	for (size_t i = 0; i < maps->count && !python->is_looked_at; i++) {
		const struct target_map *map = &maps->maps[i];
		const char *path = target_maps_path(maps, map->module), *slash = strrchr(path, '/');
		const struct row_table *rows = NULL;

		if (map->prot & TARGET_MAP_EXEC && strstr(slash ? slash : path, "python"))
			rows = row_tables_get(tables, python->answer->target, maps, map->module,
					      python->answer->deadline_ns);
		if (rows && rows->script.kind == SCRIPT_CPYTHON)
			look(python, &rows->script, map->start_va - map->start_fo);
	}
}

const struct script_python *thread_python_runtime(struct thread_python *python,
						  struct row_tables *tables, const char **ret_why)
{
	find_runtime(python, tables);
	if (!python->is_looked_at)
		*ret_why = "no Python interpreter was found";
	else if (python->rc == -EOPNOTSUPP)
		*ret_why = "this build of Python is not supported";
	else if (python->rc < 0)
		*ret_why = "the state of Python's threads could not be read";
	return python->is_looked_at && python->rc == 0 ? &python->runtime.python : NULL;
}
