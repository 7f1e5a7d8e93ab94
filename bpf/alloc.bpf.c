// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Allocations: uprobes on the functions of a process's allocator, attached for short windows by the
 * collector (agent/collect/alloc/alloc_pace.h says when). The object is loaded when somebody first
 * asks, and shares the maps of profiler.bpf.c.
 *
 * A hit counts down bytes; only an allocation at which the count passes zero is looked at: its
 * stack is walked from the caller, whose registers are known since nothing but pushes has happened,
 * and in a session only it gets a return probe. What is counted down is drawn anew after each
 * sample from an exponential distribution with the mean of one gap, so that an allocation of s
 * bytes is sampled with probability 1 - exp(-s/gap), whatever the program does.
 *
 * The gap is the slot's, or less: a caller that has allocated little in the window is looked at
 * closely, the first time always. A place that loses a block now and then would hardly ever be
 * sampled among those that allocate and free ten thousand times as much. As the gap follows from
 * what happened before, the probability that it gives is that of the sample, whoever the caller is.
 *
 * While all is tracked every return is looked at: an address that is handed out again had been
 * freed unseen. */
#include "bpf/stack.bpf.h"

#include <bpf/bpf_tracing.h>

#include "bpf/alloc.h"
#include "bpf/task.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* As agent/wire/control.h, enum alloc_kind. */
enum {
	KIND_MALLOC = 1,
	KIND_CALLOC = 2,
	KIND_REALLOC = 3,
	KIND_ALIGNED = 4,
	KIND_POSIX_MEMALIGN = 5,
	KIND_FREE = 6,
};

#define RELAYED_ALIGNMENT 16 /* glibc, MALLOC_ALIGNMENT: up to it aligned functions call malloc */
#define GAP_SHIFT	  32 /* a mean gap of the countdown, whatever its bytes */
#define GAPS_CERTAIN	  64 /* no draw is so large */
#define CALLER_SAMPLES	  8  /* a caller's gap is this part of what it has allocated */
#define CLOSER_FIRST                                                                               \
	64 /* samples of small gaps in a window and on a CPU, and one more for each of so many … \
	    */
#define CLOSER_EACH	  16 /* … allocations */

const volatile uint32_t gaps[ALLOC_GAPS] = { 0 };
struct alloc_slot slots[ALLOC_SLOTS_MAX] = {};
struct alloc_places places[ALLOC_SLOTS_MAX] = {}; /* for kernels without attach cookies */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ALLOC_SLOTS_MAX);
	__type(key, uint32_t);
	__type(value, struct alloc_counts);
} alloc_counts SEC(".maps");

/* Tracked addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ALLOC_TRACKED_MAX);
	__type(key, struct alloc_key);
	__type(value, uint64_t);
} alloc_live SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct scratch);
} alloc_scratch SEC(".maps"), alloc_fault_scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ALLOC_SLOTS_MAX);
	__type(key, uint32_t); /* tgid */
	__type(value, struct alloc_owner);
} alloc_owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ALLOC_MOVED_MAX);
	__type(key, struct alloc_key);
	__type(value, struct alloc_moved);
} alloc_moves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ALLOC_CALLERS);
	__type(key, uint32_t);
	__type(value, struct alloc_caller);
} alloc_callers SEC(".maps");

/* A thread: its countdown, and the call that is to be looked at when it returns. */
struct alloc_task {
	int64_t left; /* gaps until the next sample, in 1 << GAP_SHIFT; 0 = to be drawn */
	uint64_t gap; /* of the call that is to be looked at when it returns */
	uint64_t bytes;
	uint64_t stack;
	uint64_t sp;	 /* when the call returns; 0 = none */
	uint64_t result; /* posix_memalign: where the address is put */
	uint64_t time_ns;
	uint64_t run_delay_ns; /* sched_info.run_delay at the last hit */
	uint32_t hits;	       /* in this window */
	uint32_t window;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct alloc_task);
} alloc_tasks SEC(".maps");

TASK_STATES(alloc_task_by_tid, alloc_tasks_by_tid, alloc_task)

/* State of the current thread. NULL: there is none, or with @create no room for it. */
static __always_inline struct alloc_task *alloc_task_get(bool create)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (have_task_storage)
		return bpf_task_storage_get(&alloc_tasks, bpf_get_current_task_btf(), 0,
					    create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	return alloc_task_by_tid((uint32_t)bpf_get_current_pid_tgid(),
				 BPF_CORE_READ(task, start_time), create);
}

static __always_inline uint64_t alloc_register(const struct arch_numbered *registers,
					       uint64_t number)
{
	return registers->of[number & 15];
}

static __always_inline struct alloc_counts *alloc_counts_of(uint32_t slot)
{
	return bpf_map_lookup_elem(&alloc_counts, &slot);
}

/* ---- events -------------------------------------------------------------------------------- */

static __always_inline bool alloc_send(struct prof_sample_event *event, uint64_t wakeup)
{
	const uint64_t ids = bpf_get_current_pid_tgid();

	event->head.kind = PROF_EVENT_SAMPLE;
	event->head.size_bytes = sizeof(*event);
	event->type = PROF_SAMPLE_ALLOC;
	event->tgid = ids >> 32;
	event->tid = (uint32_t)ids;
	event->start_boottime_ns = task_facts_of_current().start_boottime_ns;
	event->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(event->comm, sizeof(event->comm));
	return !bpf_ringbuf_output(&events, event, sizeof(*event), wakeup);
}

/* Reports the end of a tracked address. Events are made in functions of their own: before v6.13 the
 * stack of a program and of all that it calls, walks included, has 512 bytes. */
static __attribute__((noinline)) void alloc_gone(uint32_t slot, uint64_t address, uint32_t window,
						 uint8_t how)
{
	struct alloc_key key = { .address = address, .slot = slot };
	struct prof_sample_event event = {
		.object = address,
		.source = window,
		.detail = how,
		.holder = slot,
	};
	struct alloc_counts *counts;

	if (!address || bpf_map_delete_elem(&alloc_live, &key))
		return;
	event.time_ns = bpf_ktime_get_ns();
	counts = alloc_counts_of(slot);
	if (!alloc_send(&event, BPF_RB_NO_WAKEUP) && counts)
		counts->lost++;
}

static __attribute__((noinline)) void alloc_birth(struct alloc_task *state, uint32_t slot,
						  uint32_t window, uint64_t address)
{
	struct alloc_key key = { .address = address, .slot = slot };
	struct prof_sample_event event = {
		.time_ns = state->time_ns,
		.user_stack_hash = state->stack,
		.value = state->bytes,
		.value2 = state->gap,
		.object = address,
		.source = window,
		.detail = ALLOC_BIRTH,
		.holder = slot,
	};
	struct alloc_counts *counts = alloc_counts_of(slot);

	if (alloc_send(&event, BPF_RB_NO_WAKEUP)) {
		if (address)
			bpf_map_update_elem(&alloc_live, &key, &state->time_ns, BPF_ANY);
	} else if (counts) {
		counts->lost++;
	}
}

/* It costs more than was foreseen: every moment until the probes are gone does. */
static __attribute__((noinline)) int alloc_alarm(uint32_t slot, uint32_t window)
{
	struct prof_sample_event event = {
		.time_ns = bpf_ktime_get_ns(),
		.source = window,
		.detail = ALLOC_BUSY,
		.holder = slot,
	};

	return alloc_send(&event, BPF_RB_FORCE_WAKEUP);
}

/* ---- the stack ----------------------------------------------------------------------------- */

/* Begins the walk from the registers in the scratch memory. */
static __always_inline struct scratch *alloc_walk_begin(bool with_loop)
{
	uint32_t zero = 0, tgid = bpf_get_current_pid_tgid() >> 32;
	struct scratch *s = bpf_map_lookup_elem(&alloc_scratch, &zero);

	if (s)
		walk_begin(s, tgid, bpf_map_lookup_elem(&targets, &tgid), with_loop);
	return s;
}

static __always_inline uint64_t alloc_walk_send(struct scratch *s)
{
	if (!s->stack.frame_count)
		return 0;
	outcome_count(s->stack.outcome);
	return stack_send(s);
}

/* Walks and sends the stack. 0 = nothing is known of it. A global function is verified once, by
 * itself; else the walk would be for each way to it. */
__attribute__((noinline)) uint64_t alloc_walk_whole(uint32_t zero)
{
	struct scratch *s = alloc_walk_begin(true);

	if (!s)
		return 0;
	walk_whole(s);
	return alloc_walk_send(s);
}

WALK_COMPAT(alloc_walk_turn, alloc_scratch)

/* For kernels without bpf_loop() (before v5.17). */
__attribute__((noinline)) uint64_t alloc_walk_compat(uint32_t zero)
{
	struct scratch *s = alloc_walk_begin(false);

	if (!s)
		return 0;
	walk_compat(alloc_walk_turn);
	return alloc_walk_send(s);
}

/* The scratch memory with the registers of the caller: only pushes have happened since the call.
 * Another thread may come to run here in mid-walk: uprobe programs can be preempted since v6.0. */
static __always_inline struct scratch *alloc_scratch_enter(struct arch_regs *ctx,
							   uint64_t return_at, bool with_loop)
{
	uint32_t zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&alloc_scratch, &zero);
	uint64_t caller;

	if (!s || !arch_return_of(ctx, return_at, &caller))
		return NULL;
	/* Kernels without bpf_loop() have no atomic exchange either (v5.12). */
	if (with_loop ? __sync_lock_test_and_set(&s->busy, 1) : s->busy) {
		outcome_count(OUTCOME_scratch_busy);
		return NULL;
	}
	s->busy = 1;
	arch_start_at_caller(&s->at, ctx, return_at, caller);
	return s;
}

/* 0 = could not be taken. */
static __attribute__((noinline)) uint64_t alloc_stack(struct arch_regs *ctx, uint64_t return_at)
{
	struct scratch *s = alloc_scratch_enter(ctx, return_at, true);
	uint64_t hash = s ? alloc_walk_whole(0) : 0;

	if (s)
		scratch_leave(s);
	return hash;
}

static __attribute__((noinline)) uint64_t alloc_stack_compat(struct arch_regs *ctx,
							     uint64_t return_at)
{
	struct scratch *s = alloc_scratch_enter(ctx, return_at, false);
	uint64_t hash = s ? alloc_walk_compat(0) : 0;

	if (s)
		scratch_leave(s);
	return hash;
}

/* ---- hits ---------------------------------------------------------------------------------- */

static __always_inline void alloc_draw(struct alloc_task *state)
{
	uint32_t at = bpf_get_prandom_u32() & (ALLOC_GAPS - 1);

	state->left = (int64_t)(((uint64_t)gaps[at] << GAP_SHIFT) / ALLOC_GAP_ONE) + 1;
}

/* The gap for a call that asks for @bytes, at most @most. */
static __always_inline uint64_t alloc_gap(const struct arch_regs *ctx, uint64_t most,
					  const struct alloc_slot *slot, uint32_t number,
					  uint64_t return_at, uint64_t bytes,
					  const struct alloc_counts *counts)
{
	uint32_t window = slot->window * ALLOC_SLOTS_MAX + number, at;
	struct alloc_caller *caller;
	uint64_t gap, ip;

	if (!arch_return_of(ctx, return_at, &ip))
		return most;
	/* Others meet in every window. */
	at = hash_frame(hash_frame(window, ip), return_at) % ALLOC_CALLERS;
	caller = bpf_map_lookup_elem(&alloc_callers, &at);
	if (!caller)
		return most;
	if (caller->window != window) {
		caller->window = window;
		caller->bytes = 0;
	}
	gap = caller->bytes / CALLER_SAMPLES + 1;
	caller->bytes += bytes;
	if (slot->certain_bytes && bytes >= slot->certain_bytes)
		return 1;
	if (counts->closer > CLOSER_FIRST + counts->allocations / CLOSER_EACH)
		return most;
	return gap < most ? gap : most;
}

/* The part of the countdown that an allocation takes. */
static __always_inline int64_t alloc_gaps_in(uint64_t bytes, uint64_t gap)
{
	if (bytes / GAPS_CERTAIN >= gap)
		return (int64_t)GAPS_CERTAIN << GAP_SHIFT;
	return (int64_t)((bytes << GAP_SHIFT) / gap);
}

/* Bytes of an allocation by what is in its arguments; 0 = none, or one that another site sees. */
static __always_inline uint64_t alloc_bytes(const struct arch_numbered *registers,
					    uint64_t cookie, uint32_t kind)
{
	uint64_t first = alloc_register(registers, cookie >> 8), second, bytes;
	bool relays = cookie >> 40 & ALLOC_COOKIE_RELAYS;

	if (kind == KIND_MALLOC)
		return first ? first : 1;
	second = alloc_register(registers, cookie >> 12);
	switch (kind) {
	case KIND_CALLOC:
		if (first >> 32 || second >> 32)
			return 0;
		bytes = first * second;
		break;
	case KIND_REALLOC:
		if ((!first && relays) || (first && !second))
			return 0;
		bytes = second;
		break;
	case KIND_ALIGNED:
		if (relays && first <= RELAYED_ALIGNMENT)
			return 0;
		bytes = second;
		break;
	case KIND_POSIX_MEMALIGN:
		if (relays && second <= RELAYED_ALIGNMENT)
			return 0;
		bytes = alloc_register(registers, cookie >> 16);
		break;
	default:
		return 0;
	}
	return bytes ? bytes : 1;
}

static __always_inline int alloc_return(struct arch_regs *ctx, uint64_t cookie,
					struct alloc_slot *slot)
{
	struct alloc_task *state = alloc_task_get(false);
	uint32_t number = cookie >> 32 & 0xff;
	uint64_t address = arch_result(ctx), sp = arch_sp(ctx);
	bool ours = state && state->sp == sp;

	/* posix_memalign() returns no address. */
	if (ours && state->result &&
	    (address || bpf_probe_read_user(&address, sizeof(address), (void *)state->result)))
		address = 0;
	if (address)
		alloc_gone(number, address, slot->window, ALLOC_UNSEEN);
	if (!ours)
		return 0;
	state->sp = 0;
	if (address)
		alloc_birth(state, number, slot->window, address);
	return 0;
}

static __always_inline uint64_t alloc_run_delay_ns(void)
{
	struct task_struct *task;

	if (!bpf_core_field_exists(struct task_struct, sched_info))
		return 0;
	if (have_task_btf)
		return bpf_get_current_task_btf()->sched_info.run_delay;
	task = (void *)bpf_get_current_task();
	return BPF_CORE_READ(task, sched_info.run_delay);
}

static __always_inline void alloc_count_thread(struct alloc_task *state,
					       const struct alloc_slot *slot,
					       struct alloc_counts *counts)
{
	uint64_t run_delay_ns = alloc_run_delay_ns();

	if (state->window != slot->window) {
		state->window = slot->window;
		state->hits = 0;
	} else if (run_delay_ns > state->run_delay_ns) {
		counts->delay_ns += run_delay_ns - state->run_delay_ns;
	}
	state->run_delay_ns = run_delay_ns;
	counts->allocations++;
	counts->squares += 2 * (uint64_t)state->hits++ + 1;
}

enum alloc_decision {
	DECIDED_LEAVE = 1,  /* the return is not wanted as well */
	DECIDED_SAMPLE = 2, /* the thread's state says what is sampled */
};

/* Decides apart from the walk, which has what this used of the stack. Bits of enum
 * alloc_decision. */
static __attribute__((noinline)) int alloc_decide(struct arch_regs *ctx, uint64_t cookie,
						  struct alloc_slot *slot,
						  struct alloc_counts *counts)
{
	uint32_t number = cookie >> 32 & 0xff, kind = cookie & 0xff;
	bool session = cookie >> 40 & ALLOC_COOKIE_SESSION;
	struct alloc_task *state;
	uint64_t bytes, gap, return_at, most = *(volatile uint64_t *)&slot->mean_gap_bytes;
	int take = !(session && slot->track == ALLOC_TRACK_ALL);
	const struct arch_numbered registers_in = arch_numbered_of(ctx), *registers = &registers_in;

	if (kind == KIND_FREE || kind == KIND_REALLOC) {
		/* Without probes on free, blocks moved by realloc are no measure of how blocks end. */
		if (slot->track)
			alloc_gone(number, alloc_register(registers, cookie >> 8), slot->window,
				   slot->track == ALLOC_TRACK_ALL ? ALLOC_DEATH : ALLOC_UNSEEN);
		if (kind == KIND_FREE)
			return 1;
	}
	bytes = alloc_bytes(registers, cookie, kind);
	if (!bytes || bytes >> 47 || !most)
		return 1;
	state = alloc_task_get(true);
	if (!state) {
		counts->lost++;
		return 1;
	}
	/* One whose return fell behind the end of its window is not this one's. */
	if (state->window != slot->window)
		state->sp = 0;
	if (!state->left)
		alloc_draw(state);
	alloc_count_thread(state, slot, counts);
	return_at = arch_sp(ctx) + (cookie >> 20 & ALLOC_PUSHED_MAX) * sizeof(uint64_t);
	gap = alloc_gap(ctx, most, slot, number, return_at, bytes, counts);
	state->left -= alloc_gaps_in(bytes, gap);
	if (state->left <= 0 && session && slot->track)
		take = 0;
	counts->returns += !take || cookie >> 40 & ALLOC_COOKIE_RETURNS;
	if (state->left > 0)
		return take;
	alloc_draw(state);
	counts->sampled++;
	counts->closer += gap < most;
	state->time_ns = bpf_ktime_get_ns();
	state->bytes = bytes;
	state->gap = gap;
	state->sp = return_at + ARCH_CALL_PUSHES;
	state->result = kind == KIND_POSIX_MEMALIGN ? alloc_register(registers, cookie >> 8) : 0;
	return DECIDED_SAMPLE | take;
}

/* 0: the return is wanted as well. */
static __always_inline int alloc_entry(struct arch_regs *ctx, uint64_t cookie,
				       struct alloc_slot *slot, struct alloc_counts *counts,
				       bool with_loop)
{
	int decided = alloc_decide(ctx, cookie, slot, counts), take = decided & DECIDED_LEAVE;
	uint32_t number = cookie >> 32 & 0xff;
	struct alloc_task *state;

	if (!(decided & DECIDED_SAMPLE))
		return take;
	state = alloc_task_get(false);
	if (!state)
		return take;
	state->stack = with_loop ? alloc_stack(ctx, state->sp - ARCH_CALL_PUSHES)
				 : alloc_stack_compat(ctx, state->sp - ARCH_CALL_PUSHES);
	if (!state->stack)
		counts->lost++;
	if (take) {
		state->sp = 0;
		if (state->stack)
			alloc_birth(state, number, slot->window, 0);
	} else if (!state->stack) {
		state->sp = 0;
	}
	counts->walk_ns += bpf_ktime_get_ns() - state->time_ns;
	return take;
}

static __always_inline struct alloc_slot *alloc_slot_of(uint64_t cookie)
{
	struct alloc_slot *slot = &slots[cookie >> 32 & (ALLOC_SLOTS_MAX - 1)];

	return slot->mean_gap_bytes ? slot : NULL;
}

static __always_inline int alloc_hit(struct arch_regs *ctx, uint64_t cookie, bool is_return,
				     bool with_loop)
{
	struct alloc_slot *slot = alloc_slot_of(cookie);
	struct alloc_counts *counts;

	if (is_return && (!slot || slot->tgid != bpf_get_current_pid_tgid() >> 32))
		return 1;
	if (is_return)
		return alloc_return(ctx, cookie, slot);
	counts = alloc_counts_of(cookie >> 32 & (ALLOC_SLOTS_MAX - 1));
	if (!counts)
		return 1;
	counts->hits++;
	if (!slot)
		return 1;
	if (slot->hits_alarm && counts->hits % slot->hits_alarm == 0)
		alloc_alarm(cookie >> 32 & (ALLOC_SLOTS_MAX - 1), slot->window);
	if (counts->capped >= slot->hits_max)
		return 1;
	counts->capped++;
	return alloc_entry(ctx, cookie, slot, counts, with_loop);
}

/* Linux 6.13 and newer: the return value says whether the return is probed. At an entry the probed
 * instruction is the next one. The kernel function that tells as well, bpf_session_is_return(),
 * takes another number of arguments since v7.0. */
SEC("uprobe")
int alloc_session(struct arch_regs *ctx)
{
	return alloc_hit(ctx, bpf_get_attach_cookie(ctx), arch_ip(ctx) != bpf_get_func_ip(ctx), true);
}

/* Kernels without sessions: entries, and all returns where some are to be looked at. */
SEC("uprobe")
int alloc_entries(struct arch_regs *ctx)
{
	alloc_hit(ctx, bpf_get_attach_cookie(ctx), false, true);
	return 0;
}

SEC("uprobe")
int alloc_returns(struct arch_regs *ctx)
{
	alloc_hit(ctx, bpf_get_attach_cookie(ctx), true, true);
	return 0;
}

/* The cookie of the probe at @ip in the current process, or with 0 the one of its returns; 0 =
 * none. A global function is verified once. */
__attribute__((noinline)) uint64_t alloc_cookie_at(uint64_t ip)
{
	const uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	const struct alloc_places *of = NULL;

	for (uint32_t i = 0; i < ALLOC_SLOTS_MAX; i++)
		if (slots[i].tgid == tgid)
			of = &places[i];
	if (!of)
		return 0;
	for (uint32_t i = 0; i < ALLOC_PLACES_MAX; i++)
		if (of->address[i] == ip && of->cookie[i])
			return of->cookie[i];
	return 0;
}

/* For kernels without attach cookies (before v5.15) or bpf_loop() (before v5.17). */
SEC("uprobe")
int alloc_entries_compat(struct arch_regs *ctx)
{
	uint64_t cookie = alloc_cookie_at(arch_ip(ctx));

	if (cookie)
		alloc_hit(ctx, cookie, false, false);
	return 0;
}

SEC("uprobe")
int alloc_returns_compat(struct arch_regs *ctx)
{
	uint64_t cookie = alloc_cookie_at(0);

	if (cookie)
		alloc_hit(ctx, cookie, true, false);
	return 0;
}

/* ---- blocks with a mapping of their own ------------------------------------------------------ */

#define PAGE_MASK	4095ul
#define HUGE_BYTES	(2ul << 20) /* x86-64, and AArch64 with pages of 4 KiB */
#define CODE_FRAMES_MAX 16 /* of the allocator, from its innermost function on */
#define EBUSY		16 /* of bpf_find_vma(): the mappings are locked for a change */
#define TREE_DEPTH_MAX	40 /* twice the logarithm of the mappings that a process may have */

static long alloc_vma_found(struct task_struct *task, struct vm_area_struct *vma, uint64_t *begin)
{
	*begin = vma->vm_file ? 0 : vma->vm_start;
	return 0;
}

struct alloc_walk {
	struct scratch *scratch;
	uint64_t code_va, code_end_va;
	bool in_call;
};

/* Steps over a frame of the allocator, or over the function that is nothing but a system call. */
static long alloc_leave_turn(uint32_t turn, struct alloc_walk *walk)
{
	struct scratch *s = walk->scratch;
	uint64_t pc = s->at.ip - !!s->at.is_return;
	int ended;

	if ((pc < walk->code_va || pc >= walk->code_end_va) && !(walk->in_call && !turn))
		return 1;
	ended = walk_any_frame(s, false, false);
	s->stack.frame_count = 0;
	s->stack.stack_hash = 0;
	return ended;
}

/* The registers are in @s. */
static __always_inline bool alloc_fault_begin(struct scratch *s, uint32_t tgid, bool with_loop)
{
	if (!arch_is_user(&s->regs))
		return false;
	arch_start_unwind(&s->at, &s->regs);
	walk_begin(s, tgid, bpf_map_lookup_elem(&targets, &tgid), with_loop);
	return true;
}

/* Apart from the walk that follows, which has what this used of the stack. */
static __attribute__((noinline)) int alloc_leave(struct scratch *s, const struct alloc_owner *owner,
						 bool in_call)
{
	struct alloc_walk walk = { s, owner->code_va, owner->code_end_va, in_call };

	return (int)bpf_loop(CODE_FRAMES_MAX, alloc_leave_turn, &walk, 0);
}

static __attribute__((noinline)) uint64_t alloc_fault_stack(struct scratch *s, uint32_t tgid,
							    const struct alloc_owner *owner,
							    bool in_call)
{
	if (!alloc_fault_begin(s, tgid, true))
		return 0;
	alloc_leave(s, owner, in_call);
	if (s->going)
		walk_whole(s);
	return alloc_walk_send(s);
}

/* The same turn where there is no bpf_loop(): verified once. */
__attribute__((noinline)) int alloc_leave_compat(uint32_t in_call)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	const struct alloc_owner *owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	struct alloc_walk walk = { .scratch = bpf_map_lookup_elem(&alloc_fault_scratch, &zero),
				   .in_call = in_call };

	if (!owner || !walk.scratch)
		return 1;
	walk.code_va = owner->code_va;
	walk.code_end_va = owner->code_end_va;
	return alloc_leave_turn(0, &walk);
}

WALK_COMPAT(alloc_fault_turn, alloc_fault_scratch)

static __attribute__((noinline)) uint64_t alloc_fault_stack_compat(struct scratch *s, uint32_t tgid,
								   bool in_call)
{
	if (!alloc_fault_begin(s, tgid, false))
		return 0;
	for (uint32_t i = 0; i < CODE_FRAMES_MAX; i++)
		if (alloc_leave_compat(in_call && !i))
			break;
	if (s->going)
		walk_compat(alloc_fault_turn);
	return alloc_walk_send(s);
}

static __attribute__((noinline)) bool alloc_mapped(uint32_t slot, uint64_t address, uint64_t ip,
						   uint64_t stack)
{
	struct prof_sample_event event = {
		.detail = ALLOC_MAPPED,
		.user_stack_hash = stack,
		.object = address,
		.value = ip,
		.holder = slot,
		.time_ns = bpf_ktime_get_ns(),
	};

	return alloc_send(&event, BPF_RB_NO_WAKEUP);
}

/* The first address of the mapping without a file that holds @address, where bpf_find_vma() is not
 * there (before v5.17): by the tree of mappings that those kernels have. A read that meets a change
 * by another thread finds none. */
__attribute__((noinline)) uint64_t alloc_tree_begin(uint64_t address)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct___rb *mm = (void *)BPF_CORE_READ(task, mm);
	struct vm_area_struct *vma;
	struct rb_node *node;
	uint64_t start;

	if (!bpf_core_field_exists(mm->mm_rb))
		return 0;
	node = BPF_CORE_READ(mm, mm_rb.rb_node);
	for (uint32_t i = 0; i < TREE_DEPTH_MAX && node; i++) {
		vma = (void *)((char *)node - bpf_core_field_offset(struct vm_area_struct___rb, vm_rb));
		start = BPF_CORE_READ(vma, vm_start);
		if (address < start)
			node = BPF_CORE_READ(node, rb_left);
		else if (address >= BPF_CORE_READ(vma, vm_end))
			node = BPF_CORE_READ(node, rb_right);
		else
			return BPF_CORE_READ(vma, vm_file) ? 0 : start;
	}
	return 0;
}

/* Is @address where a mapping begins? While other threads change the mappings the kernel does not
 * say. Until it is known which instruction writes headers, a touch by the one that was the last to
 * touch a new mapping is taken for a block then, and its header decides. Others are not: each page
 * that memset() writes would be one, and use up the stacks that may be walked. */
static __always_inline bool alloc_begins(struct alloc_owner *owner, uint64_t address, uint64_t ip,
					 bool with_loop)
{
	const bool allocator = ip >= owner->code_va && ip < owner->code_end_va;
	uint64_t begin = 0;
	long rc = 0;

	if (with_loop)
		rc = bpf_find_vma(bpf_get_current_task_btf(), address, alloc_vma_found, &begin, 0);
	else
		begin = alloc_tree_begin(address);
	if (rc == -EBUSY)
		return allocator && !owner->header_ip && (!owner->first_ip || ip == owner->first_ip);
	if (rc || begin != address)
		return false;
	if (allocator)
		owner->first_ip = ip;
	return true;
}

/* The scratch memory for the stack of a touch at @address by the instruction at @ip, NULL: it does not
 * begin a block, or no more stacks may be walked. */
static __always_inline struct scratch *alloc_touch_begin(struct alloc_owner *owner,
							 uint64_t address, uint64_t ip,
							 bool with_loop)
{
	struct scratch *s;

	if ((address & PAGE_MASK) > sizeof(uint64_t))
		return NULL;
	address &= ~PAGE_MASK;
	if ((ip != owner->header_ip && !alloc_begins(owner, address, ip, with_loop)) || !owner->left)
		return NULL;
	owner->left--;
	s = scratch_enter(&alloc_fault_scratch);
	if (!s)
		outcome_count(OUTCOME_scratch_busy);
	return s;
}

/* The registers are in @s. */
static __always_inline void alloc_touch_end(struct scratch *s, uint32_t tgid,
					    const struct alloc_owner *owner, uint64_t address,
					    uint64_t ip, bool with_loop)
{
	uint64_t stack = with_loop ? alloc_fault_stack(s, tgid, owner, false)
				   : alloc_fault_stack_compat(s, tgid, false);

	scratch_leave(s);
	if (stack)
		alloc_mapped(owner->slot, address & ~PAGE_MASK, ip, stack);
}

static __always_inline int alloc_touched(unsigned long address, const struct arch_regs *regs,
					 unsigned long error, bool with_loop)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	struct alloc_owner *owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	struct scratch *s;
	uint64_t ip;

	if (!owner || !(error & ARCH_FAULT_WRITE))
		return 0;
	ip = arch_ip(regs);
	s = alloc_touch_begin(owner, address, ip, with_loop);
	if (!s)
		return 0;
	if (bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs))
		scratch_leave(s);
	else
		alloc_touch_end(s, tgid, owner, address, ip, with_loop);
	return 0;
}

static __always_inline int alloc_touched_event(struct bpf_perf_event_data *ctx, bool with_loop)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	struct alloc_owner *owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	uint64_t address = ctx->addr, ip = ctx->regs.ip;
	struct scratch *s;

	if (!owner || !arch_is_user(&ctx->regs))
		return 0;
	s = alloc_touch_begin(owner, address, ip, with_loop);
	if (!s)
		return 0;
	arch_copy_regs(&s->regs, ctx);
	alloc_touch_end(s, tgid, owner, address, ip, with_loop);
	return 0;
}

/* glibc takes large blocks from mmap() one by one and writes their headers at once: the first touch
 * of a mapping's first bytes. What it was is told by the header, which user space reads later, and
 * says which instruction wrote it: from then on mappings that the kernel joined to those below are
 * known by that. */
SEC("tp_btf/page_fault_user")
int BPF_PROG(alloc_fault, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	return alloc_touched(address, (struct arch_regs *)regs, error, true);
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(alloc_fault_compat, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	return alloc_touched(address, (struct arch_regs *)regs, error, false);
}

/* The kernel's software event of page faults serves where there is no such tracepoint (AArch64). It
 * is raised before the kernel handles the fault, too, and does not tell reads from writes. A mapping
 * that is read first has no header yet, and user space drops it. */
SEC("perf_event")
int alloc_fault_event(struct bpf_perf_event_data *ctx)
{
	return alloc_touched_event(ctx, true);
}

SEC("perf_event")
int alloc_fault_event_compat(struct bpf_perf_event_data *ctx)
{
	return alloc_touched_event(ctx, false);
}

/* A file-less mapping whose length is a multiple of a huge page is put where huge pages fit: the
 * kernel looks for one huge page more, and takes the address there that is aligned as the offset.
 * Source: mm/huge_memory.c, __thp_get_unmapped_area(), since Linux 6.7. */
static __always_inline uint64_t alloc_moved_to(uint64_t found, uint64_t from, uint64_t bytes,
					       uint64_t looked_for)
{
	uint64_t up = (from - found) & (HUGE_BYTES - 1);

	if (looked_for == ((bytes + PAGE_MASK) & ~PAGE_MASK))
		return found;
	return found + (up ? up : HUGE_BYTES);
}

/* realloc() moves such blocks by mremap(). The pages come along, so no first touch tells of the new
 * address, but the kernel looks for it. One entry follows a block through any number of moves. What
 * is resized in place keeps its header. */
static __always_inline int alloc_moves_to(uint64_t found, uint64_t looked_for, bool with_loop)
{
	struct alloc_moved moved = { .first_ns = bpf_ktime_get_ns() }, *before;
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	struct alloc_owner *owner = bpf_map_lookup_elem(&alloc_owners, &tgid);
	const void *regs = current_saved_regs();
	struct alloc_key key = {};
	struct arch_call call;
	struct scratch *s;

	if (!owner || found & PAGE_MASK || !arch_read_call(&call, regs))
		return 0;
	if (arch_system_call(&call) != ARCH_MREMAP || arch_is_compat32(&call))
		return 0;
	moved.bytes = arch_third_argument(&call);
	moved.from_va = arch_first_argument(&call);
	moved.last_ns = moved.first_ns;
	key.slot = owner->slot;
	key.address = arch_first_argument(&call);
	before = bpf_map_lookup_elem(&alloc_moves, &key);
	if (before) {
		moved.from_va = before->from_va;
		moved.first_ns = before->first_ns;
		moved.stack = before->stack;
		bpf_map_delete_elem(&alloc_moves, &key);
	}
	s = owner->left ? scratch_enter(&alloc_fault_scratch) : NULL;
	if (s) {
		uint64_t stack = 0;

		if (!bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs))
			stack = with_loop ? alloc_fault_stack(s, tgid, owner, true)
					  : alloc_fault_stack_compat(s, tgid, true);
		owner->left--;
		scratch_leave(s);
		moved.stack = stack ? stack : moved.stack;
	}
	key.address = alloc_moved_to(found, arch_first_argument(&call), arch_third_argument(&call),
				     looked_for);
	bpf_map_update_elem(&alloc_moves, &key, &moved, BPF_ANY);
	return 0;
}

SEC("tp_btf/vm_unmapped_area")
int BPF_PROG(alloc_mremap, unsigned long found, struct vm_unmapped_area_info *info)
{
	return alloc_moves_to(found, info->length, true);
}

SEC("tp_btf/vm_unmapped_area")
int BPF_PROG(alloc_mremap_compat, unsigned long found, struct vm_unmapped_area_info *info)
{
	return alloc_moves_to(found, info->length, false);
}
