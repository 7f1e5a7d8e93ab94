/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Script frames in the walk. A native frame whose pc lies in an interpreter's loop is pushed and
 * stepped as any other. The turns that follow push the script frames that this C frame executes,
 * until its entry ends. A process without a runtime pays one test of a mapping's flag. */
#ifndef PROFD_BPF_SCRIPT_BPF_H
#define PROFD_BPF_SCRIPT_BPF_H

#include "bpf/maps.bpf.h"

static __always_inline void script_none(struct scratch *s)
{
	s->script.looked = 0;
	s->script.is_there = 0;
	s->script.is_hotspot = 0;
	s->script.is_v8 = 0;
	s->script.outcome = 0;
	s->script.chain = 0;
	s->script.walk.on = 0;
}

/* Ends the script side of this walk, unless it is known where its next entry is; native frames go
 * on. */
static __always_inline void script_fail(struct scratch *s, uint32_t outcome)
{
	s->script.walk.on = 0;
	s->script.is_there = s->script.walk.is_torn;
	if (!s->script.outcome)
		s->script.outcome = outcome;
}

/* Takes back what was pushed for the entry at hand. */
static __always_inline void script_roll_back(struct scratch *s)
{
	s->stack.frame_count = s->script.saved_count;
	s->stack.stack_hash = s->script.saved_hash;
	s->frame_limit = s->script.saved_limit;
}

static __always_inline void script_save(struct scratch *s)
{
	s->script.saved_count = s->stack.frame_count;
	s->script.saved_hash = s->stack.stack_hash;
	s->script.saved_limit = s->frame_limit;
}

/* Defines @name() and @name_once(), which do what @name_inline() does. The kernel verifies a static
 * function at each call, for each state of the caller, but a global one once. Kernels before v5.12
 * take no pointer as the argument of a global function, so the walks of WALK_COMPAT call @name().
 */
#define VERIFIED_ONCE(name)                                                                        \
	static __attribute__((noinline, unused)) int name(struct scratch *s)                       \
	{                                                                                          \
		return name##_inline(s);                                                           \
	}                                                                                          \
                                                                                                   \
	__attribute__((noinline)) int name##_once(struct scratch *s)                               \
	{                                                                                          \
		return s ? name##_inline(s) : 0;                                                   \
	}

/* Copies what is known of the process's runtime: once in a walk, at its first frame in code that
 * may be a runtime's. */
static __always_inline int script_look_inline(struct scratch *s)
{
	uint32_t tgid = s->stack.tgid, module = s->map.mapping.module;
	struct script_runtime *runtime = bpf_map_lookup_elem(&runtimes, &tgid);
	uint64_t bias = 0;

	s->script.looked = 1;
	if (!runtime) { /* the collector has not looked at this process yet */
		runtime = bpf_map_lookup_elem(&file_runtimes, &module);
		bias = s->map.mapping.bias;
	}
	if (!runtime)
		return 0;
	if (ARCH_HAS_HOTSPOT && runtime->kind == SCRIPT_HOTSPOT) {
		__builtin_memcpy(&s->hotspot.facts, &runtime->hotspot, sizeof(runtime->hotspot));
		hotspot_forget(&s->hotspot);
		s->script.is_hotspot = 1;
		return 0;
	}
	if (runtime->kind == SCRIPT_V8) {
		__builtin_memcpy(&s->v8.facts, &runtime->v8, sizeof(runtime->v8));
		v8_forget(&s->v8);
		s->script.bare_at = 0;
		s->script.is_v8 = 1;
		return 0;
	}
	if (runtime->kind != SCRIPT_CPYTHON) {
		s->script.outcome = OUTCOME_script_unsupported;
		return 0;
	}
	for (uint32_t i = 0; i < SCRIPT_RANGES_MAX; i++) {
		s->script.ranges[i].start = runtime->ranges[i].start + bias;
		s->script.ranges[i].end = runtime->ranges[i].end + bias;
	}
	__builtin_memcpy(&s->script.walk.python, &runtime->python, sizeof(runtime->python));
	s->script.walk.is_known = 0;
	s->script.is_there = 1;
	return 0;
}

VERIFIED_ONCE(script_look)

/* @compat is a constant: is this a walk of WALK_COMPAT? */
static __always_inline void script_begin(struct scratch *s, const bool compat)
{
	if (s->script.looked)
		return;
	if (compat)
		script_look(s);
	else
		script_look_once(s);
}

/* Is @pc, in a mapping with PROF_MAPPING_RUNTIME, code of an interpreter's loop? */
static __always_inline bool script_is_loop(struct scratch *s, uint64_t pc, const bool compat)
{
	script_begin(s, compat);
	if (!s->script.is_there) {
		/* it is still starting, or the collector does not know it yet */
		if (!s->script.outcome && !s->script.is_v8)
			s->script.outcome = OUTCOME_script_state;
		return false;
	}
	return script_is_in_ranges(s->script.ranges, pc);
}

static __always_inline bool script_is_v8(struct scratch *s, const bool compat)
{
	script_begin(s, compat);
	return s->script.is_v8;
}

/* Is @ip, which lies in no file, code that HotSpot has generated? */
static __always_inline bool script_is_hotspot(struct scratch *s, uint64_t ip, const bool compat)
{
	script_begin(s, compat);
	return s->script.is_hotspot && hotspot_is_code(&s->hotspot.facts, ip);
}

/* The C frame of an interpreter's loop, [@low, @high) with @pc, was walked. */
static __always_inline void script_enter(struct scratch *s, uint64_t low, uint64_t high,
					 uint64_t pc, bool is_return)
{
	struct script_walk *walk = &s->script.walk;

	if (!walk->is_known) {
		if (!script_python_begin(walk, arch_thread_pointer((void *)bpf_get_current_task()))) {
			script_fail(s, OUTCOME_script_state);
			return;
		}
		walk->is_known = 1;
	}
	script_python_enter(walk, low, high,
			    script_python_place(s->script.ranges[0].start, pc, is_return),
			    s->at.regs);
	script_save(s);
}

#endif
