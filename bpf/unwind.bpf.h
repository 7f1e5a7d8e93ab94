/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The walk over a user stack. One frame is one call of walk_any_frame(): find its mapping, append
 * its frame word, step to its caller. Programs drive it by bpf_loop() where the kernel has it (up
 * to PROF_FRAMES_MAX frames), else by a plain loop over a global function (WALK_COMPAT), because
 * the verifier of older kernels follows every turn of a loop. */
#ifndef PROFD_BPF_UNWIND_BPF_H
#define PROFD_BPF_UNWIND_BPF_H

#include "bpf/mapping.bpf.h"
#include "bpf/script.bpf.h"

#define WALK_COMPAT_FRAMES PROF_FRAMES_MAX
#define WALK_FP_FRAMES	   16u
#define WALK_TURNS_MAX	   (PROF_WORDS_MAX + 1) /* every frame, and the ends of entries */
#define WALK_PROBED_MAX	   8u /* calls within each other that are probed where they return */
#define WALK_PAGE_MASK	   4095ull
#define WALK_OFFSET_BITS   40u /* more than the offsets that a table describes (UNWIND_PAGES_MAX) */

_Static_assert(WALK_COMPAT_FRAMES >= 127, "the API promises 127 frames on every kernel");

/* Stack hash: two multiply-xorshift rounds per frame word. Chance that among n stacks any two share
 * an id: about n^2 / 2^65 (one million stacks: 3e-8). */
static __always_inline uint64_t hash_frame(uint64_t hash, uint64_t frame)
{
	hash = (hash ^ frame) * 0x9fb21c651e98df25ull;
	hash ^= hash >> 32;
	hash *= 0xd6e8feb86659fd93ull;
	return hash ^ hash >> 29;
}

/* Addresses that belong to one process must not share an id with another's. */
static __always_inline uint64_t hash_any_frame(uint64_t hash, uint64_t frame, uint32_t tgid)
{
	uint32_t kind = prof_frame_kind(frame);

	if (kind == PROF_FRAME_ADDRESS || kind == PROF_FRAME_SCRIPT)
		hash = hash_frame(hash, tgid);
	return hash_frame(hash, frame);
}

/* Appends a frame word. The array has room for one marker behind the last frame. */
static __always_inline void walk_push(struct scratch *s, uint64_t frame)
{
	uint32_t count = s->stack.frame_count;

	if (count >= STACK_FRAMES_MAX)
		return;
	s->frames[index_within(count, PROF_WORDS_MAX)] = frame;
	s->stack.frame_count = count + 1;
	s->stack.stack_hash = hash_any_frame(s->stack.stack_hash, frame, s->stack.tgid);
}

/* The rule for @fo in @module's table. UNWIND_STEPPED, or UNWIND_NO_RULE with the reason in @gap.
 */
static __always_inline int walk_rule(struct scratch *s, uint32_t module, uint64_t fo,
				     struct unwind_rule *rule, uint32_t *gap)
{
	void *table = bpf_map_lookup_elem(&tables, &module);
	const uint32_t *part;

	*gap = OUTCOME_no_rows;
	if (!table)
		return UNWIND_NO_RULE;
	if (s->table_module != module) {
		part = UNWIND_ELEMENT(table, 0);
		if (!part)
			return UNWIND_NO_RULE;
		s->head.first_page = part[2];
		s->head.page_count = part[3];
		part = UNWIND_ELEMENT(table, 1);
		if (!part)
			return UNWIND_NO_RULE;
		s->head.rules_at = part[0];
		s->head.rule_count = part[1];
		s->head.rows_at = part[2];
		s->table_module = module;
	}
	*gap = OUTCOME_no_row_for_pc;
	return unwind_find_rule(table, &s->head, fo, rule);
}

/* The rest of the stack will be known when the rows of this frame, the last of @frame_count + 1,
 * are. */
static __always_inline void walk_expect_rows(struct scratch *s, uint32_t frame_count)
{
	if (s->late.wanted)
		return; /* the first gap counts */
	s->late.wanted = 1;
	s->late.frame_count = frame_count;
	s->late.at = s->at;
}

/* The last frame turned out to be a signal trampoline: nobody called it, its address is exact. */
static __always_inline void walk_mark_exact(struct scratch *s)
{
	uint32_t last = s->stack.frame_count - 1;

	if (last < STACK_FRAMES_MAX)
		s->frames[last] &= ~PROF_FRAME_RETURN;
}

/* A step without any rows: what the code itself says, if it is a signal trampoline or returns at
 * once, else the frame pointer, which the next frame must prove. */
static __always_inline int walk_guess(struct scratch *s, uint32_t gap)
{
	uint8_t code[16];
	int result;

	if (s->at.is_return && !bpf_probe_read_user(code, sizeof(code), (void *)s->at.ip)) {
		if (arch_is_sigreturn(code)) {
			walk_mark_exact(s);
			return unwind_step_signal(&s->at);
		}
		result = unwind_step_return(&s->at, code);
		if (result == UNWIND_STEPPED)
			return result;
	}
	s->gap = gap;
	s->guessed_any = 1;
	return unwind_step_fp(&s->at);
}

/* Ends the walk: what the stack is worth. */
static __always_inline int walk_end(struct scratch *s, uint32_t outcome)
{
	if (outcome == OUTCOME_complete && s->script.outcome)
		outcome = s->script.outcome;
	s->stack.outcome = outcome;
	s->going = 0;
	return 1;
}

static __always_inline int walk_finish(struct scratch *s, int result)
{
	if (result == UNWIND_STEPPED)
		return 0;
	/* a guess that leads nowhere ended where the knowledge ended */
	if (s->gap)
		return walk_end(s, s->gap);
	if (result == UNWIND_FINISHED)
		return walk_end(s, s->guessed_any ? OUTCOME_guessed : OUTCOME_complete);
	if (result == UNWIND_FAULT)
		return walk_end(s, OUTCOME_user_read_fault);
	if (result == UNWIND_NO_PROGRESS)
		return walk_end(s, OUTCOME_no_progress);
	return walk_end(s, OUTCOME_unsupported_rule);
}

/* A script frame of @function was pushed: the chain of functions of a stack, whatever they execute
 * (stack.bpf.h). */
static __always_inline void walk_chain(struct scratch *s, uint64_t function)
{
	s->script.chain = (s->script.chain ^ function) * 0x9fb21c651e98df25ull;
}

/* Keeps what a step from a frame of a runtime said, and reads it back (struct scratch). */
static __always_inline int walk_said(struct scratch *s, int result, uint64_t words[2])
{
	s->result = result;
	s->words[0] = words[0];
	s->words[1] = words[1];
	words[0] = s->words[0];
	words[1] = s->words[1];
	return s->result;
}

/* The step from code of V8: generated code, and what has no rows in V8's own file. Frames of
 * JavaScript stand for the native frames that execute them; what executes an innermost one is shown
 * as well. */
static __always_inline int walk_v8_inline(struct scratch *s)
{
	bool in_file = !(s->map.mapping.flags & PROF_MAPPING_JIT);
	bool replaces = !in_file || s->at.is_return;
	uint64_t words[2] = { 0, 0 };
	int result = walk_said(s, v8_step(&s->v8, &s->at, in_file, words), words);

	if (words[0]) {
		if (replaces)
			script_roll_back(s);
		walk_push(s, words[0]);
		walk_push(s, words[1]);
		walk_chain(s, v8_word_function(words));
		s->frame_limit++; /* a frame counts once */
	}
	return result;
}

VERIFIED_ONCE(walk_v8)

/* The step from a frame in a known mapping. @compat as for walk_any_frame(). */
static __always_inline int walk_step(struct scratch *s, uint64_t fo, const bool compat)
{
	uint64_t place = (uint64_t)s->map.mapping.module << WALK_OFFSET_BITS | fo;
	uint32_t gap = OUTCOME_jit_end;
	struct unwind_rule rule;
	int result;

	if (s->map.mapping.flags & PROF_MAPPING_FP && s->at.is_return) {
		/* callers have set up their frame; the rest of such a file is found by its rows */
		result = unwind_step_fp(&s->at);
		if (result == UNWIND_STEPPED || result == UNWIND_FINISHED)
			return result;
	}
	if (s->script.is_v8 && place == s->script.bare_at &&
	    s->table_module == s->map.mapping.module) {
		gap = OUTCOME_no_row_for_pc; /* all interpreted functions return to one pc */
	} else if (!(s->map.mapping.flags & PROF_MAPPING_JIT)) {
		if (walk_rule(s, s->map.mapping.module, fo, &rule, &gap) == UNWIND_STEPPED) {
			if (rule.cfa == UNWIND_CFA_SIGNAL)
				walk_mark_exact(s);
			return unwind_step(&s->at, &rule);
		}
		s->script.bare_at = place;
	}
	if (s->script.is_v8 && gap != OUTCOME_no_rows &&
	    s->map.mapping.flags & (PROF_MAPPING_JIT | PROF_MAPPING_RUNTIME))
		return compat ? walk_v8(s) : walk_v8_once(s);
	if (gap == OUTCOME_no_rows && !s->guessed_any &&
	    s->map.mapping.flags & (PROF_MAPPING_AWAITED | PROF_MAPPING_ROWS))
		walk_expect_rows(s, s->stack.frame_count - 1);
	return walk_guess(s, gap);
}

/* An address in no mapping that is known: the list was published before this mapping was made, or
 * there is no list at all. */
static __always_inline bool walk_may_be_new(const struct scratch *s, uint32_t found)
{
	return found == MAPPING_NONE && !s->vma_count;
}

/* A probe of returns, ours or anybody's, puts the beginning of a page of the kernel's in the place
 * of a return address. Where the call that it was at @at returns to, 0 = none is known. */
static __attribute__((noinline)) uint64_t walk_probed_return(uint64_t at)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct return_instance *call;

	if (!bpf_core_field_exists(task->utask))
		return 0; /* a kernel without uprobes */
	call = BPF_CORE_READ(task, utask, return_instances);
	for (uint32_t i = 0; i < WALK_PROBED_MAX && call; i++) {
		if (BPF_CORE_READ(call, stack) == at)
			return BPF_CORE_READ(call, orig_ret_vaddr);
		call = BPF_CORE_READ(call, next);
	}
	return 0;
}

/* The flag of a frame word whose address is a return address, else 0. Without a branch, as
 * script_sign(). */
static __always_inline uint64_t walk_is_return(const struct scratch *s)
{
	return s->at.is_return * PROF_FRAME_RETURN;
}

/* One frame in code that HotSpot has generated; 1 ends the walk. */
static __always_inline int walk_hotspot_inline(struct scratch *s)
{
	uint64_t ip = s->at.ip, flags = walk_is_return(s), words[2] = { 0, 0 };
	int result = walk_said(s, hotspot_step(&s->hotspot, &s->at, words), words);

	if (words[0]) {
		walk_push(s, words[0]);
		walk_push(s, words[1]);
		if (!hotspot_word_is_stub(words[0]))
			walk_chain(s, words[0]);
		s->frame_limit++; /* a frame counts once */
	} else if (!flags || result != UNWIND_NO_RULE) {
		walk_push(s, prof_frame_address(PROF_FRAME_ADDRESS, ip, flags));
	}
	if (result == UNWIND_NO_RULE) /* rbp is the caller's: a guess by it would pass one over */
		return walk_end(s, OUTCOME_jit_end);
	return walk_finish(s, result);
}

VERIFIED_ONCE(walk_hotspot)

/* V8 maps more memory for its code while it runs: an address that lies in no known mapping and in
 * no file is taken for such code, for this frame alone. */
static __always_inline enum mapping_found walk_as_generated(struct scratch *s, uint64_t ip)
{
	if (!s->unknown_pc)
		s->unknown_pc = ip;
	s->map.start = s->map.end = 0;
	s->map.mapping.flags = PROF_MAPPING_JIT;
	s->map.mapping.bias = 0;
	return MAPPING_KNOWN;
}

#define WALK_HOTSPOT 2 /* the frame at hand is one for walk_hotspot() */

/* One frame; 1 ends the walk. @compat is a constant: is this a walk of WALK_COMPAT, which leaves
 * frames of HotSpot to its caller (WALK_HOTSPOT)? */
static __always_inline int walk_any_frame(struct scratch *s, const bool compat)
{
	uint64_t ip = s->at.ip, low = s->at.sp, pc, probed;
	uint64_t flags = walk_is_return(s);
	uint32_t guess = s->gap, found;
	bool is_loop;
	int ended;

	probed = flags && !(ip & WALK_PAGE_MASK) ? walk_probed_return(s->at.sp - sizeof(ip)) : 0;
	if (probed)
		ip = s->at.ip = probed;
	pc = ip - s->at.is_return;
	if (ip < 4096 || ip >= ARCH_USER_END)
		return walk_end(s, guess ? guess : OUTCOME_no_mapping);
	s->found = mapping_find(s, pc);
	found = s->found;
	if (guess) {
		flags |= PROF_FRAME_GUESSED;
		if (found == MAPPING_NONE && s->code_is_listed)
			return walk_end(s, guess); /* the guess led to no code */
	}
	if (s->stack.frame_count >= s->frame_limit) {
		walk_push(s, (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT);
		return walk_end(s, OUTCOME_truncated);
	}
	s->gap = 0;
	if ((found != MAPPING_KNOWN || s->map.mapping.flags & PROF_MAPPING_JIT) &&
	    script_is_hotspot(s, pc, compat))
		return compat ? WALK_HOTSPOT : walk_hotspot_once(s);
	if ((found == MAPPING_NONE || found == MAPPING_CODE) && script_is_v8(s, compat))
		found = walk_as_generated(s, ip);
	if (found != MAPPING_KNOWN) {
		if (!s->unknown_pc)
			s->unknown_pc = ip;
		if (!s->guessed_any && (found == MAPPING_FILE || walk_may_be_new(s, found)))
			walk_expect_rows(s, s->stack.frame_count);
		walk_push(s, prof_frame_address(PROF_FRAME_ADDRESS, ip, flags));
		return walk_finish(s, walk_guess(s, OUTCOME_no_mapping));
	}
	is_loop = s->map.mapping.flags & PROF_MAPPING_RUNTIME && script_is_loop(s, pc, compat);
	if (s->script.is_v8)
		script_save(s);
	if (s->map.mapping.flags & PROF_MAPPING_JIT)
		walk_push(s, prof_frame_address(PROF_FRAME_ADDRESS, ip, flags));
	else
		walk_push(s, prof_frame_module(s->map.mapping.module, ip - s->map.mapping.bias,
					       flags));
	ended = walk_finish(s, walk_step(s, pc - s->map.mapping.bias, compat));
	if (is_loop && !ended)
		script_enter(s, low, s->at.sp, pc, ip != pc);
	return ended;
}

/* One script frame of the entry at hand, or its end; 1 ends the walk. */
static __attribute__((noinline)) int walk_script_frame(struct scratch *s)
{
	uint64_t words[2];

	if (s->stack.frame_count >= s->frame_limit) {
		walk_push(s, (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT);
		return walk_end(s, OUTCOME_truncated);
	}
	switch (script_python_step(&s->script.walk, words)) {
	case SCRIPT_STEP_FRAME:
		walk_push(s, words[0]);
		walk_push(s, words[1]);
		walk_chain(s, words[0]);
		s->frame_limit++; /* a frame counts once */
		break;
	case SCRIPT_STEP_ENTRY:
		script_save(s);
		break;
	case SCRIPT_STEP_BACK:
		script_roll_back(s);
		break;
	case SCRIPT_STEP_UNREAD:
		script_roll_back(s);
		script_fail(s, OUTCOME_script_unread);
		break;
	case SCRIPT_STEP_DESYNC:
		script_roll_back(s);
		script_fail(s, OUTCOME_script_desync);
		break;
	}
	return 0;
}

/* Callers in code that keeps frame pointers follow each other without look-ups, and their words lie
 * close together: up to WALK_FP_FRAMES of them with one read of the stack. What is not plain is
 * left to walk_any_frame(). */
static __always_inline void walk_fp_frames(struct scratch *s)
{
	uint64_t start = s->map.start, bytes = s->map.end - start, bias = s->map.mapping.bias;
	uint64_t word = prof_frame_module(s->map.mapping.module, 0, PROF_FRAME_RETURN);
	uint64_t ip = s->at.ip, sp = s->at.sp, fp = s->at.fp, window = fp, hash = s->stack.stack_hash;
	uint32_t count = s->stack.frame_count;

	if ((s->map.mapping.flags & (PROF_MAPPING_FP | PROF_MAPPING_RUNTIME)) != PROF_MAPPING_FP ||
	    !s->at.is_return || s->gap || s->one_by_one ||
	    ip - 1 - start >= bytes || fp >= ARCH_USER_END || fp & 7 ||
	    bpf_probe_read_user(s->window, sizeof(s->window), (void *)fp))
		return;
#pragma clang loop unroll(disable)
	for (uint32_t i = 0; i < WALK_FP_FRAMES; i++) {
		uint64_t at = fp - window, caller, frame;
		uint32_t word_at = index_within(at / 8, WALK_WINDOW_WORDS);

		if (at > sizeof(s->window) - 16 || at & 7 || fp < sp || fp - sp > UNWIND_GUESS_SPAN_BYTES ||
		    ip - 1 - start >= bytes || count >= s->frame_limit)
			break;
		caller = s->window[word_at + 1];
		if (!caller)
			break;
		frame = word | ((ip - bias) & PROF_FRAME_OFFSET_MASK);
		s->frames[index_within(count, PROF_WORDS_MAX)] = frame;
		hash = hash_frame(hash, frame);
		count++;
		sp = fp + 16;
		ip = arch_return_address(caller);
		fp = s->window[word_at];
	}
	if (count == s->stack.frame_count)
		return;
	s->stack.frame_count = count;
	s->stack.stack_hash = hash;
	unwind_to_caller(&s->at, sp, ip, fp);
	s->at.third_is = UNWIND_THIRD_UNKNOWN;
}

static __always_inline int walk_frames(struct scratch *s, const bool compat)
{
	if (s->script.walk.on)
		return walk_script_frame(s);
	walk_fp_frames(s);
	return walk_any_frame(s, compat);
}

/* The context of a callback must lie on the stack. */
struct walk_context {
	struct scratch *scratch;
};

/* Verified once, not in each state that the turns before may leave. */
__attribute__((noinline)) int walk_frames_once(struct scratch *s)
{
	return s ? walk_frames(s, false) : 1;
}

static long walk_turn(uint32_t turn, void *context)
{
	return !!walk_frames_once(((struct walk_context *)context)->scratch);
}

static __always_inline void walk_whole(struct scratch *s)
{
	struct walk_context context = { .scratch = s };

	bpf_loop(WALK_TURNS_MAX, walk_turn, &context, 0);
}

/* No user stack so far. */
static __always_inline void walk_none(struct scratch *s)
{
	s->going = 0;
	s->stack.frame_count = 0;
	s->script.chain = 0;
	s->unknown_pc = 0;
	s->late.wanted = 0;
}

/* Lists the mappings with code of a process that is not published yet, one turn of the list; 1 when
 * that is done. */
static __always_inline long walk_list_code(struct scratch *s)
{
	if (s->code_is_listed || !have_vma_walk)
		return 1;
	if (!s->young.begun)
		young_begin(s);
	if (!young_turn(s))
		return 0;
	/* A whole list leaves nothing to ask for; after an exec the published ones are of the image
	 * that is gone. */
	s->code_is_listed = young_is_whole(s);
	s->mappings_are_published = !s->code_is_listed;
	return 1;
}

static long walk_list_turn(uint32_t turn, void *context)
{
	return walk_list_code(((struct walk_context *)context)->scratch);
}

/* Prepares the walk from the registers in s->at. @with_loop is a constant: may bpf_loop() be named
 * in this program? Without it the walk itself lists the code (WALK_COMPAT). */
static __always_inline void walk_begin(struct scratch *s, uint32_t tgid,
				       const struct prof_target *target, bool with_loop)
{
	struct walk_context context = { .scratch = s };

	s->frame_limit = with_loop ? PROF_FRAMES_MAX : WALK_COMPAT_FRAMES;
	s->stack.stack_hash = 0;
	s->stack.tgid = tgid;
	s->stack.frame_count = 0;
	s->stack.outcome = OUTCOME_complete;
	s->map.start = s->map.end = 0;
	s->table_module = PROF_MODULES_MAX;
	s->gap = 0;
	s->guessed_any = 0;
	s->unknown_pc = 0;
	s->late.wanted = 0;
	script_none(s);
	s->vma_count = 0;
	s->going = 1;
	s->one_by_one = 0;
	s->code_is_listed = target && target->wanted & PROF_WANT_MAPPED;
	s->mappings_are_published = 1;
	s->young.begun = 0;
	if (with_loop && !s->code_is_listed && have_vma_walk)
		bpf_loop(YOUNG_TURNS, walk_list_turn, &context, 0);
}

/* Defines the turn of a walk without bpf_loop(), and the walk. Global functions are verified once,
 * however often they are called, and what follows the walk is verified once, not for each turn that
 * may end it (5.10). They take numbers only, so the turn looks the scratch up again. Functions that
 * call each other share 512 bytes of stack, so a frame of HotSpot is walked by the walk, not by the
 * turn. */
#define WALK_COMPAT_PART(name, map, walked)                                                        \
	__attribute__((noinline)) int name(uint32_t at)                                            \
	{                                                                                          \
		struct scratch *s = bpf_map_lookup_elem(&(map), &at);                              \
                                                                                                   \
		return s ? walked : 1;                                                             \
	}

#define WALK_COMPAT(name, map)                                                                     \
	WALK_COMPAT_PART(name, map, walk_frames(s, true))                                          \
	WALK_COMPAT_PART(name##_hotspot, map, walk_hotspot(s))                                     \
	WALK_COMPAT_PART(name##_young, map, walk_list_code(s))                                     \
                                                                                                   \
	__attribute__((noinline)) int name##s(uint32_t at)                                         \
	{                                                                                          \
		uint32_t i;                                                                        \
                                                                                                   \
		for (i = 0; i < YOUNG_TURNS; i++)                                                  \
			if (name##_young(at))                                                      \
				break;                                                             \
		for (i = 0; i < WALK_COMPAT_FRAMES + 1; i++) {                                     \
			int ended = name(at);                                                      \
                                                                                                   \
			if (ended == WALK_HOTSPOT)                                                 \
				ended = name##_hotspot(at);                                        \
			if (ended)                                                                 \
				break;                                                             \
		}                                                                                  \
		return i;                                                                          \
	}

/* The walk in the element @at of @turn's map. */
#define walk_compat(turn, at) turn##s(at)

#endif
