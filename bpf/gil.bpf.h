/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Waits for CPython's global lock (the GIL), and who holds it.
 *
 * A thread waits for the GIL's condition, 5 ms at a time (sys.setswitchinterval()). Such a part
 * names the holder as it begins: the lock keeps its thread state. The stack is that with which the
 * holder releases the lock. The lock counts how often it changes hands. So it is known since when a
 * holder was seen to have it, and user space joins a release to the parts of that time, by the
 * number of the thread state.
 *
 * A release shows in two ways. It wakes one of those who wait (off_waker), unless a part of that
 * one has just timed out. And a holder that waits next for another thread to take the lock, or for
 * the lock itself, does so in the call that released it: with the same Python frames (off_send).
 *
 * A wakeup is recorded if the wait that it ends is. That wait is a chain of parts,
 * all but the last of which time out. If the lock's count grew by at most 1 from one part to the
 * next, the waiter had no turn in between: a turn counts twice, for the waiter and for the next
 * holder. If it grew by more, another chain begins. */
#ifndef PROFD_BPF_GIL_BPF_H
#define PROFD_BPF_GIL_BPF_H

#include "bpf/stack.bpf.h"
#include "bpf/task.bpf.h"

/* struct _gil_runtime_state (Include/internal/pycore_gil.h of 3.8 to 3.14) begins with these words.
 * glibc's condition follows. */
struct gil_head {
	uint64_t interval_us;
	uint64_t last_holder; /* address of its PyThreadState */
	uint32_t locked;
	uint32_t reserved;
	uint64_t switches; /* how often the lock changed hands */
};

/* From the GIL to the condition's two futexes, __g_signals of struct __pthread_cond_s
 * (sysdeps/nptl/bits/thread-shared-types.h): before glibc 2.41, and from then on. */
#define GIL_FUTEXES_AT	   72u
#define GIL_FUTEXES_AT_241 64u
/* Another mutex and another condition follow, at which a holder waits that was asked for it. */
#define GIL_TO_SWITCH	 (48u + ARCH_MUTEX_BYTES)
#define GIL_INTERVAL_MAX (1ull << 40)

/* A number of a thread state in its process. */
static __always_inline uint32_t gil_thread_number(uint64_t thread_state)
{
	return (uint32_t)(thread_state >> 4);
}

/* Since when the present holder of a process's GIL was seen to have it. */
struct gil_tenure {
	uint64_t seen_ns;
	uint32_t switches; /* of the lock then, low part */
	uint32_t number;   /* of the holder */
	uint64_t before_ns; /* the same of the holder before */
	uint32_t before;
	uint32_t reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, uint32_t);
	__type(value, struct gil_tenure);
} gil_tenures SEC(".maps");

static __always_inline bool gil_read(uint64_t at, struct gil_head *ret)
{
	return !bpf_probe_read_user(ret, sizeof(*ret), (void *)at) && ret->interval_us &&
	       ret->interval_us < GIL_INTERVAL_MAX && ret->locked <= 1 &&
	       ret->last_holder > 65536 && !(ret->last_holder & 7) && ret->last_holder < ARCH_USER_END;
}

/* The GIL whose condition @futex belongs to, in the memory of the current thread: other words of
 * the interpreter's state, too, are futexes, and do not look like one. */
static __always_inline bool gil_find(uint64_t futex, struct gil_head *ret)
{
	futex &= ~7ull; /* of both */
	return gil_read(futex - GIL_FUTEXES_AT, ret) || gil_read(futex - GIL_FUTEXES_AT_241, ret);
}

/* The facts of the interpreter of process @tgid if @futex lies in its state, else NULL. */
static __always_inline const struct script_python *gil_python(uint32_t tgid, uint64_t futex)
{
	const struct script_runtime *runtime = bpf_map_lookup_elem(&runtimes, &tgid);

	if (!runtime || runtime->kind != SCRIPT_CPYTHON ||
	    runtime->python.flags & SCRIPT_PYTHON_FREE_THREADED ||
	    futex - runtime->python.runtime >= runtime->python.runtime_bytes)
		return NULL;
	return &runtime->python;
}

/* For how long the holder @gil names was seen to have it, ns. */
static __always_inline uint64_t gil_tenure_ns(const struct gil_head *gil, uint32_t tgid,
					      uint64_t now_ns)
{
	const struct gil_tenure *tenure = bpf_map_lookup_elem(&gil_tenures, &tgid);

	return tenure && tenure->switches == (uint32_t)gil->switches ? now_ns - tenure->seen_ns : 0;
}

/* The number of the current thread @task, 0 = it has no state. */
static __always_inline uint32_t gil_own_number(struct task_struct *task,
					       const struct script_python *py)
{
	uint64_t own = 0, at = arch_thread_pointer(task) + (uint64_t)(int64_t)py->tss_at;

	if (!py->tss_at || bpf_probe_read_user(&own, sizeof(own), (void *)at))
		return 0;
	return gil_thread_number(own);
}

/* The wait that begins follows the release of a lock that the thread had for @tenure_ns. Like
 * waits, short ones are recorded by chance. */
static __always_inline void gil_note_release(struct off_state *state, uint32_t number,
					     uint64_t tenure_ns, uint64_t now_ns)
{
	if (tenure_ns < config.off_threshold_ns &&
	    bpf_get_prandom_u32() * config.off_threshold_ns >> 32 >= tenure_ns)
		return;
	state->gil_release.number = number;
	state->gil_release.time_ns = now_ns;
	state->gil_release.tenure_ns = tenure_ns;
}

/* The thread @own waits at @futex, which is not the lock's: perhaps for another one to take the
 * lock that it has given up, and whose last holder it is. */
static __always_inline void gil_leave_beside(struct off_state *state, uint32_t tgid, uint32_t own,
					     uint64_t futex, uint64_t now_ns)
{
	struct gil_head gil;

	if (gil_find(futex - GIL_TO_SWITCH, &gil) && gil_thread_number(gil.last_holder) == own)
		gil_note_release(state, own, gil_tenure_ns(&gil, tgid, now_ns), now_ns);
}

/* A thread waits for @gil, whose holder is seen to have it. */
static __always_inline void gil_see(uint32_t tgid, const struct gil_head *gil, uint64_t now_ns)
{
	struct gil_tenure *known = bpf_map_lookup_elem(&gil_tenures, &tgid);
	struct gil_tenure tenure = { .seen_ns = now_ns,
				     .switches = (uint32_t)gil->switches,
				     .number = gil_thread_number(gil->last_holder) };

	if (known && known->switches == tenure.switches)
		return;
	if (known && known->switches + 1 == tenure.switches) {
		tenure.before_ns = known->seen_ns;
		tenure.before = known->number;
	}
	bpf_map_update_elem(&gil_tenures, &tgid, &tenure, BPF_ANY);
}

/* The thread @own begins to wait for the lock: perhaps it was the holder before the present one. */
static __always_inline void gil_leave_again(struct off_state *state, uint32_t tgid, uint32_t own,
					    uint64_t now_ns)
{
	const struct gil_tenure *tenure = bpf_map_lookup_elem(&gil_tenures, &tgid);

	if (tenure && own && tenure->before == own)
		gil_note_release(state, own, now_ns - tenure->before_ns, now_ns);
}

/* The next wait of a thread is none for the GIL, until gil_leave() says so. */
static __always_inline void gil_forget(struct off_state *state)
{
	state->waits_for_gil = 0;
	state->gil_release.number = 0;
}

/* @task, the current thread, begins to wait in state->call. Says in @state whether it waits for the
 * GIL, and since when, or has just released it. */
static __attribute__((noinline)) int gil_leave(struct off_state *state, struct task_struct *task,
					       uint64_t now_ns)
{
	uint64_t futex = arch_first_argument(&state->call);
	const struct script_python *py = NULL;
	uint32_t tgid = task->tgid, own;
	struct gil_head gil;

	if (arch_call_is_known(&state->call) && arch_is_futex(arch_system_call(&state->call)))
		py = gil_python(tgid, futex);
	if (!py) {
		state->gil_since_ns = 0;
		return 0;
	}
	own = gil_own_number(task, py);
	if (!gil_find(futex, &gil)) {
		gil_leave_beside(state, tgid, own, futex, now_ns);
		return 0;
	}
	if (!state->gil_since_ns || (uint32_t)gil.switches - state->gil_switches > 1) {
		state->gil_since_ns = now_ns;
		state->gil_draw = bpf_get_prandom_u32();
	}
	gil_see(tgid, &gil, now_ns);
	if (state->gil_since_ns == now_ns)
		gil_leave_again(state, tgid, own, now_ns);
	state->gil_switches = (uint32_t)gil.switches;
	state->holder = gil_thread_number(gil.last_holder);
	state->waits_for_gil = 1;
	return 0;
}

/* Is the wakeup of a thread in @state the release of the GIL by the current thread? Then it still
 * has the lock's own mutex: the lock says who that was. A part that times out is ended by an
 * interrupt, of any thread. */
static __always_inline bool gil_is_release(const struct off_state *state, struct gil_head *ret)
{
	uint64_t futex = arch_first_argument(&state->call);
	struct arch_call call;

	task_get_call(&call, bpf_get_current_task_btf());
	return arch_call_is_known(&call) && arch_is_futex(arch_system_call(&call)) &&
	       arch_is_futex_wake(arch_second_argument(&call)) &&
	       arch_first_argument(&call) == futex && gil_find(futex, ret);
}

/* Sends the release of the GIL that the pending sample's wait follows: with its stack. */
static __always_inline void gil_send_release(struct scratch *s)
{
	if (!s->resume.release.number || !s->sample.user_stack_hash)
		return;
	s->sample.type = PROF_SAMPLE_WAKER;
	s->sample.state = PROF_OFF_BLOCKED << 4 | PROF_WAIT_GIL;
	s->sample.time_ns = s->resume.release.time_ns;
	s->sample.kernel_stack_hash = 0;
	s->sample.object = s->sample.tgid;
	s->sample.value = s->sample.start_boottime_ns;
	s->sample.value2 = s->resume.release.tenure_ns;
	s->sample.waker = s->resume.release.number;
	s->sample.holder = s->sample.tid;
	s->sample.detail = PROF_DETAIL_NONE;
	s->sample.head.flags = 0;
	sample_send(s);
}

#endif
