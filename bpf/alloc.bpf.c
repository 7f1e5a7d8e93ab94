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
#include "bpf/alloc_large.bpf.h"

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
} alloc_scratch SEC(".maps");

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
	struct task_struct *task;

	if (have_task_storage)
		return bpf_task_storage_get(&alloc_tasks, bpf_get_current_task_btf(), 0,
					    create ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	task = (void *)bpf_get_current_task();
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
	walk_compat(alloc_walk_turn, 0);
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
