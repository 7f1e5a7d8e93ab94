// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/cpython_coroutine.h"

#include <errno.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/reader/cpython_names.h"
#include "agent/runtimes/cpython_layout.h"

#define VALUES_MAX    65536u
#define WRAPPED_AT    16u /* in a coroutine_wrapper, async_generator_asend and _athrow */
#define BYTES_DATA    32u /* in a bytes object of 3.8 to 3.10 */
#define OP_YIELD_FROM 72u /* 3.8 to 3.10 */
/* 3.11 and 3.12: the instruction behind a suspension, whose argument is 2 or 3 at an await and at
 * `yield from`. 3.12 replaces it while a debugger or coverage tool is on. */
#define OP_RESUME_QUICK	 150u /* 3.11 */
#define OP_RESUME	 151u
#define OP_INSTRUMENTED	 237u /* 3.12: these and all above */
#define RESUME_AFTER	 3u   /* bits of the argument */
#define RESUME_AWAIT_MIN 2u
/* 3.13 and newer: gi_frame_state; earlier ones do not tell the two suspended states apart. */
#define STATE_EXECUTING	 0
#define STATE_YIELD_FROM (-1)
#define FRAMES_MAX	 1024u /* of a thread */

/* A frame's bytes, and those behind it that belong to whatever follows. */
static int read_frame(struct cpython_objects *o, uint64_t va,
		      uint8_t ret[SCRIPT_PYTHON_FRAME_BYTES])
{
	const struct script_python *python = o->python;
	const uint32_t ends[] = { python->frame_previous + 8u, python->frame_code + 8u,
				  python->frame_instr + 8u, python->frame_entry + 1u, 88u };
	uint32_t bytes = 0;

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		bytes = ends[i] > bytes ? ends[i] : bytes;
	if (bytes > SCRIPT_PYTHON_FRAME_BYTES || !cpython_is_object(va))
		return -EINVAL;
	memset(ret, 0, SCRIPT_PYTHON_FRAME_BYTES);
	/* A frame object begins with its count of references, which changes. */
	return cpython_minor(python) <= 10 ? cpython_objects_read(o, va + 8, ret + 8, bytes - 8)
					   : cpython_objects_read(o, va, ret, bytes);
}

/* ---- one coroutine --------------------------------------------------------------------------- */

struct coroutine {
	uint64_t frame_va; /* 0 = it has ended */
	int state;	   /* STATE_EXECUTING: it runs */
	uint8_t frame[SCRIPT_PYTHON_FRAME_BYTES];
};

static int read_coroutine(struct cpython_objects *o, const struct cpython_tasks *layout,
			  uint64_t va, struct coroutine *ret)
{
	const unsigned minor = cpython_minor(o->python);
	int8_t state = -1;
	int rc = 0;

	*ret = (struct coroutine){ .frame_va = va + layout->coroutine_frame };
	if (layout->coroutine_state)
		rc = cpython_objects_read(o, va + layout->coroutine_state, &state, sizeof(state));
	if (rc == 0 && minor <= 10)
		rc = cpython_objects_word(o, va + layout->coroutine_frame, &ret->frame_va);
	if (rc < 0 || !ret->frame_va)
		return rc;
	/* gi_running is 1 while it runs; gi_frame_state above 0: it has ended. */
	if (minor >= 11 && state > STATE_EXECUTING) {
		ret->frame_va = 0;
		return 0;
	}
	ret->state = minor <= 9 ? (state ? STATE_EXECUTING : STATE_YIELD_FROM) : state;
	rc = read_frame(o, ret->frame_va, ret->frame);
	if (rc == 0 && layout->frame_state)
		ret->state = (int8_t)ret->frame[layout->frame_state];
	return rc;
}

/* 3.8 to 3.10: is the next instruction one that hands on what its operand yields? */
static int is_at_yield_from(struct cpython_objects *o, const struct cpython_tasks *layout,
			    const struct coroutine *c)
{
	const struct script_python *python = o->python;
	const uint32_t unit = python->flags & SCRIPT_PYTHON_LASTI_UNITS ? 2 : 1;
	int64_t last = (int32_t)bytes_u32_at(c->frame, python->frame_instr);
	uint64_t bytes_va;
	uint8_t op;
	int rc;

	if (last < 0)
		return 0;
	rc = cpython_objects_word(o, bytes_u64_at(c->frame, python->frame_code) + layout->code_bytes,
				  &bytes_va);
	if (rc == 0)
		rc = cpython_objects_read(o, bytes_va + BYTES_DATA + (uint64_t)last * unit + 2, &op,
					  sizeof(op));
	return rc < 0 ? rc : op == OP_YIELD_FROM;
}

static int is_at_resume(struct cpython_objects *o, const struct coroutine *c)
{
	const unsigned minor = cpython_minor(o->python);
	uint8_t code[2]; /* operation, argument */
	int rc = cpython_objects_read(o, bytes_u64_at(c->frame, o->python->frame_instr) + 2, code,
				      sizeof(code));

	if (rc < 0)
		return rc;
	if (code[0] != OP_RESUME && !(minor == 11 && code[0] == OP_RESUME_QUICK) &&
	    !(minor == 12 && code[0] >= OP_INSTRUMENTED))
		return 0;
	return (code[1] & RESUME_AFTER) >= RESUME_AWAIT_MIN;
}

static int is_awaiting(struct cpython_objects *o, const struct cpython_tasks *layout,
		       const struct coroutine *c)
{
	const unsigned minor = cpython_minor(o->python);

	if (minor >= 13)
		return c->state == STATE_YIELD_FROM;
	return minor >= 11 ? is_at_resume(o, c) : is_at_yield_from(o, layout, c);
}

/* The object on top of the frame's values. */
static int read_top(struct cpython_objects *o, const struct cpython_tasks *layout,
		    const struct coroutine *c, uint64_t *ret)
{
	const unsigned minor = cpython_minor(o->python);
	uint64_t va = bytes_u64_at(c->frame, layout->frame_top);
	int rc;

	if (minor >= 10 && minor <= 13) {
		int64_t count = (int32_t)bytes_u32_at(c->frame, layout->frame_top);

		if (count < 1 || count > VALUES_MAX)
			return -EINVAL;
		va = minor == 10 ? bytes_u64_at(c->frame, layout->frame_stack)
				 : c->frame_va + layout->frame_locals;
		va += 8 * (uint64_t)count;
	}
	if (!cpython_is_object(va))
		return -EINVAL;
	rc = cpython_objects_word(o, va - 8, ret);
	*ret &= ~7ull; /* 3.14 keeps a mark in the low bits */
	return rc;
}

/* ---- chains ---------------------------------------------------------------------------------- */

static void reverse(struct cpython_chain *chain)
{
	for (size_t i = 0; i < chain->count / 2; i++) {
		struct control_script_place place = chain->places[i];

		chain->places[i] = chain->places[chain->count - 1 - i];
		chain->places[chain->count - 1 - i] = place;
	}
}

/* Adds the coroutine at *@va, then *@va is what it awaits, 0 = nothing that is known. */
static int step(struct cpython_objects *o, const struct cpython_tasks *layout, uint64_t *va,
		struct cpython_chain *chain)
{
	struct coroutine c;
	int rc = read_coroutine(o, layout, *va, &c);

	*va = 0;
	if (rc < 0 || !c.frame_va)
		return rc;
	if (c.state == STATE_EXECUTING) {
		chain->running_frame = c.frame_va;
		return 0;
	}
	rc = cpython_names_place(o->target, o->python, c.frame, &chain->places[chain->count]);
	if (rc < 0)
		return rc;
	chain->count++;
	rc = is_awaiting(o, layout, &c);
	return rc > 0 ? read_top(o, layout, &c, va) : rc;
}

int cpython_coroutine_chain(struct cpython_objects *o, const struct cpython_tasks *layout,
			    uint64_t va, struct cpython_chain *ret)
{
	ret->count = 0;
	ret->running_frame = 0;
	ret->is_cut = false;
	for (unsigned i = 0; va && i < 2 * CPYTHON_CHAIN_MAX; i++) {
		enum cpython_kind kind = cpython_objects_kind(o, va);
		int rc;

		if (kind != CPYTHON_COROUTINE && kind != CPYTHON_WRAPPER) {
			if (!i)
				return -EINVAL;
			break;
		}
		ret->is_cut = ret->count == CPYTHON_CHAIN_MAX;
		if (ret->is_cut)
			break;
		rc = kind == CPYTHON_WRAPPER ? cpython_objects_word(o, va + WRAPPED_AT, &va)
					     : step(o, layout, &va, ret);
		if (rc < 0)
			return rc;
	}
	ret->is_cut |= va && cpython_objects_kind(o, va) == CPYTHON_WRAPPER;
	reverse(ret);
	return 0;
}

int cpython_coroutine_running(struct cpython_objects *o, uint64_t head_va,
			      struct cpython_chain *chain)
{
	const struct script_python *python = o->python;
	struct control_script_place places[CPYTHON_CHAIN_MAX];
	uint64_t va = head_va;
	size_t count = 0;

	for (unsigned i = 0; i < FRAMES_MAX && va; i++) {
		uint8_t frame[SCRIPT_PYTHON_FRAME_BYTES];
		const bool is_last = va == chain->running_frame;
		int rc = read_frame(o, va, frame);

		if (rc < 0)
			return rc;
		if (count == ARRAY_SIZE(places) - chain->count)
			return -E2BIG;
		/* Frames that separate two entries into the interpreter have no code. */
		if (python->chain < SCRIPT_PYTHON_SHIM_CFRAME ||
		    frame[python->frame_entry] < CPYTHON_OWNER_ENTRY) {
			rc = cpython_names_place(o->target, python, frame, &places[count]);
			if (rc < 0)
				return rc;
			count++;
		}
		if (is_last) {
			memmove(chain->places + count, chain->places,
				chain->count * sizeof(places[0]));
			memcpy(chain->places, places, count * sizeof(places[0]));
			chain->count += count;
			return 0;
		}
		va = bytes_u64_at(frame, python->frame_previous);
	}
	return -ENOENT;
}
