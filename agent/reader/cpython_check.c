// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/cpython_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "agent/reader/cpython_names.h"
#include "agent/reader/thread_pointer.h"
#include "agent/runtimes/cpython_layout.h"
#include "bpf/arch.h"

#define INTERPRETERS_MAX 64u
#define THREADS_MAX	 256u
#define CHECKED_THREADS	 16u
#define FRAMES_MAX	 128u	      /* of a thread, that are looked at */
#define ATTEMPTS	 16u	      /* at the chain of a thread that runs meanwhile */
#define STATE_BYTES	 (1024u + 8u) /* of a PyThreadState: offsets are below 1024 */

/* The part of struct pthread that may hold the values of the first 32 pthread keys. glibc 2.36
 * begins at 0x310 for x86-64 and at 0x110 for AArch64 (nptl/descr.h); other versions differ by a
 * few words. */
#define SLOTS_FROM 0x100u
#define SLOTS_TO   0x900u

#define TLS_BLOCK_BYTES 256u /* of a module's variables that are looked at; CPython has up to 32 */
#define TLS_OWN_BYTES	256u /* of a program's own, just below or above the thread pointer */
#define TLS_OWN_FROM	(ARCH_TLS_ABOVE ? 16 : -(int32_t)TLS_OWN_BYTES)
#define TLS_MODULES_MAX 65536u

struct thread {
	uint64_t state_va;
	uint64_t pthread_va; /* its pthread_t */
	uint64_t pointer_va; /* its thread pointer */
	uint64_t frame_va; /* or that of the cframe */
};

struct check {
	struct target *target;
	struct script_python *python;
	uint64_t deadline_ns;
	struct thread threads[THREADS_MAX];
	size_t count;
	uint32_t pointer_at; /* from pthread_t to the thread pointer */
	struct control_script_place places[FRAMES_MAX];
	struct cpython_name names[FRAMES_MAX];
};

static bool is_object(uint64_t va)
{
	return va >= 4096 && !(va & 7) && va < ARCH_USUAL_END;
}

static int read_word(struct check *c, uint64_t va, uint64_t *ret)
{
	return target_read(c->target, va, ret, sizeof(*ret));
}

/* A process that is gone, or may not be read, ends the check; an address without memory is data. */
static bool is_final(int rc)
{
	return rc == -ESRCH || rc == -EPERM;
}

/* ---- threads -------------------------------------------------------------------------------- */

static uint32_t state_bytes(const struct script_python *python)
{
	const uint32_t offsets[] = { python->thread_next, python->thread_interp,
				     python->thread_frame, python->thread_id };
	uint32_t bytes = 0;

	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		if (offsets[i] + 8 > bytes)
			bytes = offsets[i] + 8;
	return bytes;
}

static int list_threads(struct check *c, uint64_t interpreter_va)
{
	const struct script_python *python = c->python;
	uint32_t bytes = state_bytes(python);
	uint8_t state[STATE_BYTES];
	uint64_t va;
	int rc = read_word(c, interpreter_va + python->interp_threads, &va);

	while (rc == 0 && is_object(va) && c->count < THREADS_MAX) {
		struct thread *thread = &c->threads[c->count];

		if (clock_monotonic_ns() > c->deadline_ns)
			return -ETIMEDOUT;
		rc = target_read(c->target, va, state, bytes);
		if (rc < 0 || bytes_u64_at(state, python->thread_interp) != interpreter_va)
			break;
		*thread = (struct thread){ .state_va = va,
					   .pthread_va = bytes_u64_at(state, python->thread_id),
					   .frame_va = bytes_u64_at(state, python->thread_frame) };
		c->count += is_object(thread->pthread_va);
		va = bytes_u64_at(state, python->thread_next);
	}
	return is_final(rc) ? rc : 0;
}

/* One thread tells how far its thread pointer is, for all. */
static int find_pointers(struct check *c)
{
	int rc = -ENODATA;

	for (size_t i = 0; i < c->count && rc < 0 && !is_final(rc); i++)
		rc = thread_pointer_above(c->target, c->threads[i].pthread_va, &c->pointer_at);
	for (size_t i = 0; i < c->count; i++)
		c->threads[i].pointer_va = c->threads[i].pthread_va + c->pointer_at;
	return rc == 0 || is_final(rc) ? rc : -EOPNOTSUPP;
}

static int list_interpreters(struct check *c)
{
	const struct script_python *python = c->python;
	uint64_t va = 0;
	int rc = read_word(c, python->runtime + python->runtime_interpreters, &va);

	for (unsigned i = 0; rc == 0 && is_object(va) && i < INTERPRETERS_MAX; i++) {
		rc = list_threads(c, va);
		if (rc == 0)
			rc = read_word(c, va + python->interp_next, &va);
	}
	if (is_final(rc) || rc == -ETIMEDOUT)
		return rc;
	return c->count ? find_pointers(c) : -EAGAIN;
}

/* ---- where a thread finds its state --------------------------------------------------------- */

/* How a word of each thread's structure, or beside its pointer, goes with the thread's state. */
struct votes {
	uint16_t same;	/* it is the state's address */
	uint16_t other; /* neither that nor 0 */
};

static void vote(struct votes *votes, const uint8_t *data, size_t bytes, uint64_t state_va)
{
	for (size_t i = 0; i < bytes / 8; i++) {
		uint64_t word = bytes_u64_at(data, (uint32_t)i * 8);

		votes[i].same += word == state_va;
		votes[i].other += word && word != state_va;
	}
}

/* The word that is the state's address in most threads and never anything else; -1 = none. */
static int winner(const struct votes *votes, size_t count)
{
	int best = -1;

	for (size_t i = 0; i < count; i++)
		if (votes[i].same && !votes[i].other &&
		    (best < 0 || votes[i].same > votes[best].same))
			best = (int)i;
	return best;
}

/* The slot of the pthread key. Threads of another interpreter than the first may have the state
 * that they began with, so that 15 of 16 decide. */
static int find_slot(struct check *c)
{
	struct votes votes[(SLOTS_TO - SLOTS_FROM) / 8] = { 0 };
	uint8_t data[SLOTS_TO - SLOTS_FROM];
	unsigned read = 0, best = 0;

	for (size_t i = 0; i < c->count; i++) {
		/* The structure may end before SLOTS_TO, and its page with it. */
		ssize_t got = target_read_some(c->target, c->threads[i].pthread_va + SLOTS_FROM, data,
					       sizeof(data));

		if (got < 0 && is_final((int)got))
			return (int)got;
		if (got <= 0)
			continue;
		memset(data + got, 0, sizeof(data) - (size_t)got);
		vote(votes, data, sizeof(data), c->threads[i].state_va);
		read++;
	}
	for (size_t i = 0; i < ARRAY_SIZE(votes); i++)
		if (votes[i].same > votes[best].same)
			best = (unsigned)i;
	if (read && votes[best].same * 16u >= read * 15u)
		c->python->tss_at = (int32_t)(SLOTS_FROM + best * 8) - (int32_t)c->pointer_at;
	return 0;
}

/* The variable among those of a library, if they lie at one distance from every thread pointer. */
static int find_tls_of_library(struct check *c)
{
	struct votes votes[TLS_BLOCK_BYTES / 8] = { 0 };
	uint8_t data[TLS_BLOCK_BYTES];
	uint64_t module;
	int64_t distance = 0;
	int rc = read_word(c, c->python->tls_got, &module), at;

	if (rc < 0 || !module || module > TLS_MODULES_MAX)
		return is_final(rc) ? rc : 0;
	for (size_t i = 0; i < c->count; i++) {
		uint64_t dtv = 0, block = 0, pointer = c->threads[i].pointer_va;
		int64_t here;

		rc = thread_pointer_dtv(c->target, pointer, &dtv);
		if (rc == 0)
			rc = read_word(c, dtv + THREAD_DTV_ENTRY_BYTES * module, &block);
		if (rc == 0 && is_object(block) && (block > pointer) == ARCH_TLS_ABOVE)
			rc = target_read(c->target, block, data, sizeof(data));
		else
			return is_final(rc) ? rc : 0;
		here = (int64_t)(block - pointer);
		if (rc < 0 || (distance && distance != here) || here > INT32_MAX / 2 ||
		    here < -INT32_MAX)
			return is_final(rc) ? rc : 0;
		distance = here;
		vote(votes, data, sizeof(data), c->threads[i].state_va);
	}
	at = winner(votes, ARRAY_SIZE(votes));
	if (at >= 0)
		c->python->tls_at = (int32_t)(at * 8) + (int32_t)distance;
	return 0;
}

/* The variable among those of the program itself. What its file says is kept unless it is wrong. */
static int find_tls_of_program(struct check *c)
{
	struct votes votes[TLS_OWN_BYTES / 8] = { 0 };
	int32_t claimed = c->python->tls_at;
	uint8_t data[TLS_OWN_BYTES];
	int at;

	for (size_t i = 0; i < c->count; i++) {
		int rc = target_read(c->target,
				     c->threads[i].pointer_va + (uint64_t)(int64_t)TLS_OWN_FROM, data,
				     sizeof(data));

		if (is_final(rc))
			return rc;
		if (rc == 0)
			vote(votes, data, sizeof(data), c->threads[i].state_va);
	}
	at = winner(votes, ARRAY_SIZE(votes));
	if (at >= 0)
		c->python->tls_at = at * 8 + TLS_OWN_FROM;
	else if (claimed && claimed >= TLS_OWN_FROM &&
		 claimed < TLS_OWN_FROM + (int32_t)sizeof(data) &&
		 votes[(claimed - TLS_OWN_FROM) / 8].other)
		c->python->tls_at = 0;
	return 0;
}

static int find_state(struct check *c)
{
	int rc;

	c->python->tss_at = 0;
	if (c->python->tls_got)
		c->python->tls_at = 0;
	rc = find_slot(c);
	if (rc == 0 && cpython_minor(c->python) >= 12)
		rc = c->python->tls_got ? find_tls_of_library(c) : find_tls_of_program(c);
	if (rc < 0)
		return rc;
	return c->python->tss_at || c->python->tls_at ? 0 : -EOPNOTSUPP;
}

/* ---- chains --------------------------------------------------------------------------------- */

/* The frame at @va as a place. 1 = it is one, 0 = it has no Python code, -EINVAL = no frame. */
static int take_frame(struct check *c, uint64_t va, struct control_script_place *ret,
		      uint64_t *previous)
{
	const struct script_python *python = c->python;
	uint8_t frame[SCRIPT_PYTHON_FRAME_BYTES];
	int rc = is_object(va) ? target_read(c->target, va, frame, sizeof(frame)) : -EINVAL;

	if (rc < 0)
		return is_final(rc) ? rc : -EINVAL;
	*previous = bytes_u64_at(frame, python->frame_previous);
	if (python->chain >= SCRIPT_PYTHON_SHIM_CFRAME &&
	    frame[python->frame_entry] >= CPYTHON_OWNER_ENTRY)
		return 0;
	return cpython_names_place(c->target, python, frame, ret) < 0 ? -EINVAL : 1;
}

static bool is_plausible(const struct cpython_name *name)
{
	return name->is_known && name->function[0] && name->file[0];
}

/* Walks a thread's chain and names its frames. 1 = all fit, 0 = it has none, -EINVAL = one does not
 * fit. The thread runs on meanwhile. */
static int walk_once(struct check *c, const struct thread *thread)
{
	uint64_t va = 0;
	size_t count = 0;
	int rc = read_word(c, thread->state_va + c->python->thread_frame, &va);

	if (rc == 0 && (c->python->chain == SCRIPT_PYTHON_IS_ENTRY ||
			c->python->chain == SCRIPT_PYTHON_SHIM_CFRAME))
		rc = is_object(va) ? read_word(c, va + c->python->cframe_frame, &va) : -EINVAL;
	for (unsigned i = 0; rc >= 0 && va && i < FRAMES_MAX; i++) {
		rc = take_frame(c, va, &c->places[count], &va);
		count += rc == 1;
	}
	if (rc < 0)
		return is_final(rc) ? rc : -EINVAL;
	rc = cpython_names_read(c->target, c->python, c->places, count, c->names, c->deadline_ns);
	for (size_t i = 0; rc == 0 && i < count; i++)
		rc = is_plausible(&c->names[i]) ? 0 : -EINVAL;
	return rc < 0 ? rc : count > 0;
}

/* The innermost frame of the thread, 0 = it cannot be read. */
static uint64_t head_of(struct check *c, const struct thread *thread)
{
	uint64_t va = 0;

	return read_word(c, thread->state_va + c->python->thread_frame, &va) == 0 ? va : 0;
}

/* As walk_once(), as often as it takes. A chain that does not fit while its thread runs says
 * nothing: 0, unless its head mostly stayed where it was. */
static int walk(struct check *c, const struct thread *thread)
{
	unsigned still = 0;
	int rc = -EINVAL;

	for (unsigned i = 0; rc == -EINVAL && i < ATTEMPTS; i++) {
		const uint64_t head = head_of(c, thread);

		if (clock_monotonic_ns() > c->deadline_ns)
			return -ETIMEDOUT;
		rc = walk_once(c, thread);
		still += head == head_of(c, thread);
	}
	return rc == -EINVAL && still < ATTEMPTS / 2 ? 0 : rc;
}

static int check_chains(struct check *c)
{
	unsigned fit = 0, seen = 0;

	for (size_t i = 0; i < c->count && seen < CHECKED_THREADS; i++) {
		int rc = walk(c, &c->threads[i]);

		if (rc < 0 && rc != -EINVAL)
			return rc;
		fit += rc == 1;
		seen += rc != 0;
	}
	if (!seen)
		return -EAGAIN;
	return fit * 16u >= seen * 15u ? 0 : -EOPNOTSUPP;
}

int cpython_check(struct target *target, struct script_runtime *runtime, uint64_t deadline_ns)
{
	cleanup_free struct check *c = calloc(1, sizeof(*c));
	struct script_runtime checked = *runtime;
	int rc;

	if (!c)
		return -ENOMEM;
	c->target = target;
	c->python = &checked.python;
	c->deadline_ns = deadline_ns;
	if (!c->python->chain)
		return -EOPNOTSUPP;
	if (state_bytes(c->python) > STATE_BYTES ||
	    c->python->frame_code > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    c->python->frame_previous > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    c->python->frame_instr > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    c->python->frame_entry >= SCRIPT_PYTHON_FRAME_BYTES)
		return -EINVAL;
	rc = list_interpreters(c);
	if (rc == 0)
		rc = find_state(c);
	if (rc == 0)
		rc = check_chains(c);
	if (rc == 0)
		*runtime = checked;
	return rc;
}

int cpython_check_threads(struct target *target, const struct script_python *python,
			  struct cpython_thread *ret, size_t max, size_t *ret_count,
			  uint64_t deadline_ns)
{
	cleanup_free struct check *c = calloc(1, sizeof(*c));
	struct script_python copy = *python;
	int rc;

	if (!c)
		return -ENOMEM;
	c->target = target;
	c->python = &copy;
	c->deadline_ns = deadline_ns;
	if (state_bytes(c->python) > STATE_BYTES)
		return -EINVAL;
	rc = list_interpreters(c);
	if (rc < 0)
		return rc;
	*ret_count = c->count < max ? c->count : max;
	for (size_t i = 0; i < *ret_count; i++)
		ret[i] = (struct cpython_thread){ c->threads[i].pthread_va, c->threads[i].pointer_va };
	return 0;
}
