// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The profiler's BPF object: the CPU sampler, the off-CPU programs (offcpu.bpf.h), bytes
 * (io.bpf.h), the kernel's locks (locks.bpf.h), wakers (wakers.bpf.h), exec, fork and exit.
 * See bpf/README.md. */
#include "bpf/io_ring.bpf.h"
#include "bpf/locks.bpf.h"
#include "bpf/sweep.bpf.h"
#include "bpf/wakers.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- cpu ----------------------------------------------------------------------------------- */

/* The user registers: the interrupted ones, or those that were saved when the kernel was entered.
 * OUTCOME_complete with s->at filled, else why there is no user stack. */
static __always_inline uint32_t user_registers(struct scratch *s, struct bpf_perf_event_data *ctx)
{
	if (arch_is_user(&ctx->regs))
		arch_copy_regs(&s->regs, ctx);
	else if (is_executing())
		return OUTCOME_executing;
	else if (bpf_probe_read_kernel(&s->regs, sizeof(s->regs), current_saved_regs()))
		return OUTCOME_no_user_regs;
	if (!arch_is_user(&s->regs))
		return OUTCOME_no_user_regs;
	if (arch_is_compat32(&s->regs))
		return OUTCOME_compat32;
	arch_start_unwind(&s->at, &s->regs);
	return OUTCOME_complete;
}

/* A thread of a process with PROF_WANT_FAST is ticked by the host sampler and by an event of its
 * own; one of the two counts. Its own do when it has used fast_from_ns of CPU time: before, they
 * would always come at the same moments of its life, or never in a short one, while the host's come
 * at random. */
static __always_inline uint64_t fast_period_ns(const struct prof_target *target)
{
	uint64_t period_ns = config.fast_period_ns;
	struct task_struct *task;

	if (!period_ns || !target || !(target->wanted & PROF_WANT_FAST))
		return 0;
	task = (void *)bpf_get_current_task();
	return BPF_CORE_READ(task, se.sum_exec_runtime) >= config.fast_from_ns ? period_ns : 0;
}

static __always_inline bool is_of_thread(const struct bpf_perf_event_data *ctx)
{
	struct bpf_perf_event_data_kern *kern = (void *)ctx;

	return config.fast_period_ns && BPF_CORE_READ(kern, event, cpu) < 0;
}

/* The CPU time that a tick stands for, ns; 0: it is not recorded. */
static __always_inline uint64_t tick_value(struct bpf_perf_event_data *ctx,
					   const struct prof_target *target, uint8_t *source)
{
	uint32_t outcome = target_wants(target, PROF_WANT_CPU);
	uint64_t fast_ns;

	if (!config.cpu_active)
		return 0;
	if (!(uint32_t)bpf_get_current_pid_tgid()) {
		outcome_count(OUTCOME_idle);
		return 0;
	}
	if (outcome) {
		outcome_count(outcome);
		return 0;
	}
	fast_ns = fast_period_ns(target);
	if (is_of_thread(ctx) != (fast_ns > 0)) {
		outcome_count(OUTCOME_other_sampler);
		return 0;
	}
	*source = fast_ns > 0;
	return fast_ns ? fast_ns : config.cpu_period_ns;
}

/* The page faults that an event stands for; 0: it is not recorded. The context is read by a load of
 * its own (volatile), since the verifier takes no address in it that was calculated. */
static __always_inline uint64_t fault_value(const volatile struct bpf_perf_event_data *ctx,
					    const struct prof_target *target)
{
	uint32_t outcome = target_wants(target, PROF_WANT_FAULTS);

	if (outcome)
		outcome_count(outcome);
	return outcome ? 0 : ctx->sample_period;
}

/* Which page faults the event is about (perf_event_attr.config); 0: it is a tick. */
static __always_inline uint64_t faults_of_event(struct bpf_perf_event_data *ctx)
{
	struct bpf_perf_event_data_kern *kern = (void *)ctx;
	uint64_t of = BPF_CORE_READ(kern, event, attr.config);

	return of == PERF_COUNT_SW_PAGE_FAULTS_MIN || of == PERF_COUNT_SW_PAGE_FAULTS_MAJ ? of : 0;
}

/* Everything before the walk, of a tick or of @faults. Returns the scratch @of (enum
 * cpu_scratch_of) to walk in, or NULL: nothing to record. */
static __always_inline struct scratch *sampler_begin(struct bpf_perf_event_data *ctx,
						     uint64_t faults, uint32_t of, bool with_loop)
{
	uint64_t pid_tgid = bpf_get_current_pid_tgid(), value;
	uint32_t tgid = pid_tgid >> 32, outcome;
	const struct prof_target *target = bpf_map_lookup_elem(&targets, &tgid);
	struct task_facts task;
	struct scratch *s;
	uint8_t source = 0;

	value = faults ? fault_value(ctx, target) : tick_value(ctx, target, &source);
	if (!value)
		return NULL;
	s = scratch_enter_at(&cpu_scratch, of);
	if (!s) {
		outcome_count(OUTCOME_scratch_busy);
		return NULL;
	}
	s->sample.head.flags = 0;
	s->sample.type = faults ? PROF_SAMPLE_FAULT : PROF_SAMPLE_CPU;
	s->sample.state = !faults				    ? 0
			  : faults == PERF_COUNT_SW_PAGE_FAULTS_MAJ ? PROF_FAULT_MAJOR
								    : PROF_FAULT_MINOR;
	s->sample.value = value;
	s->sample.value2 = faults ? value * 1024 : 0;
	s->sample.source = source;
	s->sample.time_ns = bpf_ktime_get_ns();
	s->sample.user_stack_hash = 0;
	s->sample.kernel_stack_hash = 0;
	s->sample.tgid = tgid;
	s->sample.tid = (uint32_t)pid_tgid;
	s->sample.cpu = bpf_get_smp_processor_id();
	task = task_facts_of_current();
	s->sample.start_boottime_ns = task.start_boottime_ns;
	walk_none(s);
	if (has_user_stack(task.has_memory, task.flags)) {
		outcome = user_registers(s, ctx);
		if (outcome)
			outcome_count(outcome);
		else
			walk_begin(s, tgid, target, with_loop);
	}
	return s;
}

KERNEL_FRAMES(cpu_kernel_frames, cpu_scratch)

/* Everything after the walk; @s is element @of of `cpu_scratch`. */
static __always_inline void sampler_end(struct scratch *s, struct bpf_perf_event_data *ctx,
					uint32_t of, bool with_loop)
{
	walked_stack_send(s, with_loop);
	if (!arch_is_user(&ctx->regs)) {
		kernel_stack_take(s, bpf_get_stack(ctx, s->frames, KERNEL_STACK_BYTES, 0), true,
				  cpu_kernel_frames, of);
		s->sample.kernel_stack_hash = stack_send(s);
	}
	bpf_get_current_comm(s->sample.comm, sizeof(s->sample.comm));
	sample_send(s);
	scratch_leave(s);
}

/* Ticks, and page faults: the kernel reports a fault when it has been handled. The registers are
 * those of the instruction that faulted, and the thread's memory is there. One program serves both,
 * so the walk is verified once. */
SEC("perf_event")
int cpu_sample(struct bpf_perf_event_data *ctx)
{
	uint64_t faults = faults_of_event(ctx);
	uint32_t of = faults ? CPU_SCRATCH_FAULT : CPU_SCRATCH_SAMPLER;
	struct cost_timer timer = cost_begin(faults ? PROF_PROGRAM_FAULT : PROF_PROGRAM_CPU);
	struct scratch *s = sampler_begin(ctx, faults, of, true);

	if (s) {
		if (s->going)
			sampler_walk(s, of);
		sampler_end(s, ctx, of, true);
	}
	cost_end(&timer);
	return 0;
}

WALK_COMPAT(cpu_walk_turn, cpu_scratch)

/* For kernels without bpf_loop() (before v5.17). */
SEC("perf_event")
int cpu_sample_compat(struct bpf_perf_event_data *ctx)
{
	uint64_t faults = faults_of_event(ctx);
	uint32_t of = faults ? CPU_SCRATCH_FAULT : CPU_SCRATCH_SAMPLER;
	struct cost_timer timer = cost_begin(faults ? PROF_PROGRAM_FAULT : PROF_PROGRAM_CPU);
	struct scratch *s = sampler_begin(ctx, faults, of, false);

	if (s) {
		if (s->going)
			walk_compat(cpu_walk_turn, of);
		sampler_end(s, ctx, of, false);
	}
	cost_end(&timer);
	return 0;
}

/* ---- walks that are due (due.bpf.h) ---------------------------------------------------------- */

/* From the registers in @s, of the current thread. */
static __always_inline void due_begin(struct scratch *s, bool with_loop)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;

	arch_start_unwind(&s->at, &s->regs);
	walk_begin(s, tgid, bpf_map_lookup_elem(&targets, &tgid), with_loop);
}

/* A global function is verified once, however often it is called. */
__attribute__((noinline)) int due_walk(struct scratch *s)
{
	if (!s || !s->going)
		return 0;
	due_begin(s, true);
	walk_whole(s);
	return 0;
}

static __always_inline struct scratch *due_call_begin(void)
{
	struct io_owed *owed = io_owed_of_current();

	return owed ? io_begin(owed) : NULL;
}

static __always_inline void due_call_end(struct scratch *s)
{
	due_end(s);
	io_spent();
}

/* Attached to the tracepoint ARCH_IRQ_WORK_EVENT, and behind off_waker, lock_end and io_exit. At
 * the ends of calls (fexit) this is part of the time of the program that the interrupt
 * interrupts. */
SEC("raw_tp")
int walk_due(void *ctx)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_RESUME);
	struct scratch *s = resume_begin();

	if (s) {
		due_walk(s);
		resume_end(s, true);
	}
	s = due_take();
	if (s) {
		due_walk(s);
		due_end(s);
	}
	if (config.io_by_call) {
		cost_end(&timer);
		timer.start_ns = 0;
	}
	s = due_call_begin();
	if (s) {
		due_walk(s);
		due_call_end(s);
	}
	cost_end(&timer);
	return 0;
}

WALK_COMPAT(due_wait_turn, switch_scratch)
WALK_COMPAT(due_call_turn, io_scratch)

/* For kernels without bpf_loop() (before v5.17), which have neither off_waker nor lock_end. */
SEC("raw_tp")
int walk_due_compat(void *ctx)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_RESUME);
	struct scratch *s = resume_begin();

	if (s) {
		if (s->going) {
			due_begin(s, false);
			walk_compat(due_wait_turn, 0);
		}
		resume_end(s, false);
	}
	if (config.io_by_call) {
		cost_end(&timer);
		timer.start_ns = 0;
	}
	s = due_call_begin();
	if (s) {
		if (s->going) {
			due_begin(s, false);
			walk_compat(due_call_turn, 0);
		}
		due_call_end(s);
	}
	cost_end(&timer);
	return 0;
}

/* ---- life of processes --------------------------------------------------------------------- */

static __always_inline void task_event_send(uint32_t kind, struct task_struct *task,
					    uint32_t parent_tgid)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);
	struct prof_task_event event = {
		.head = { .kind = kind, .size_bytes = sizeof(event) },
		.time_ns = bpf_ktime_get_ns(),
		.start_boottime_ns = BPF_CORE_READ(leader, start_boottime),
		.tgid = task->tgid,
		.parent_tgid = parent_tgid,
		.exec_generation = BPF_CORE_READ(leader, self_exec_id),
	};

	BPF_CORE_READ_INTO(&event.comm, leader, comm);
	if (bpf_ringbuf_output(&events, &event, sizeof(event), BPF_RB_NO_WAKEUP))
		outcome_count(OUTCOME_task_event_lost);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(life_exec, struct task_struct *task, int old_pid, struct linux_binprm *binprm)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_LIFE);
	uint32_t tgid = task->tgid;

	bpf_map_delete_elem(&targets, &tgid);
	bpf_map_delete_elem(&runtimes, &tgid);
	task_event_send(PROF_EVENT_EXEC, task, BPF_CORE_READ(task, real_parent, tgid));
	cost_end(&timer);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(life_fork, struct task_struct *parent, struct task_struct *child)
{
	struct cost_timer timer;
	struct prof_target *target, inherited;
	struct script_runtime *runtime;
	uint32_t parent_tgid = parent->tgid, tgid = child->tgid;

	if (child->pid != child->tgid)
		return 0; /* a thread */
	timer = cost_begin(PROF_PROGRAM_LIFE);
	target = bpf_map_lookup_elem(&targets, &parent_tgid);
	if (target) {
		inherited = *target;
		inherited.wanted &= ~(PROF_WANT_MAPPED | PROF_WANT_FAST);
		inherited.start_boottime_ns = child->start_boottime;
		bpf_map_update_elem(&targets, &tgid, &inherited, BPF_ANY);
	}
	runtime = bpf_map_lookup_elem(&runtimes, &parent_tgid);
	if (runtime)
		bpf_map_update_elem(&runtimes, &tgid, runtime, BPF_ANY);
	task_event_send(PROF_EVENT_FORK, child, parent_tgid);
	cost_end(&timer);
	return 0;
}

/* Runs for every thread; the process is gone when the last has begun to exit. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(life_exit, struct task_struct *task)
{
	uint32_t tgid = task->tgid;
	struct cost_timer timer;

	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	timer = cost_begin(PROF_PROGRAM_LIFE);
	bpf_map_delete_elem(&targets, &tgid);
	bpf_map_delete_elem(&unknown_pcs, &tgid);
	bpf_map_delete_elem(&runtimes, &tgid);
	task_event_send(PROF_EVENT_EXIT, task, BPF_CORE_READ(task, real_parent, tgid));
	cost_end(&timer);
	return 0;
}
