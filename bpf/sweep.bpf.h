/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The scheduler's exact sums of a thread, at both ends of a session and as the thread ends; and the
 * sweep, which visits every thread of the host for them and cuts the waits that go on in two. */
#ifndef PROFD_BPF_SWEEP_BPF_H
#define PROFD_BPF_SWEEP_BPF_H

#include "bpf/offcpu.bpf.h"

/* ---- exact sums ---------------------------------------------------------------------------- */

/* The wait for a CPU that a thread is in: run_delay has it when it ends. The scheduler's clock is
 * known by the thread that sweeps, which came onto its CPU just before. */
static __always_inline uint64_t off_queued(struct task_struct *task, uint64_t now_ns)
{
	uint64_t queued_ns;

	if (!bpf_core_field_exists(struct task_struct, sched_info) || !config.sweep_clock_ns ||
	    off_task_state(task) || task->on_cpu)
		return 0;
	queued_ns = task->sched_info.last_queued + config.sweep_clock_ns;
	return task->sched_info.last_queued && queued_ns < now_ns ? now_ns - queued_ns : 0;
}

static __always_inline void reading_send(struct prof_sample_event *event, uint8_t type,
					 uint64_t value, uint64_t value2)
{
	event->type = type;
	event->value = value;
	event->value2 = value2;
	if (bpf_ringbuf_output(&events, event, sizeof(*event), BPF_RB_NO_WAKEUP))
		outcome_count(OUTCOME_ring_full);
}

/* The scheduler's own counts for a thread. Between two of them its time on CPUs and on run queues
 * is exact, and so is the time stolen from it; the remaining time it was blocked. */
static __always_inline void thread_send(struct task_struct *task, uint64_t now_ns,
					uint64_t queued_ns, bool ends, bool with_moved)
{
	const struct io_moved *moved;
	struct prof_sample_event event = {
		.head = { .kind = PROF_EVENT_SAMPLE, .size_bytes = sizeof(event) },
		.time_ns = now_ns,
		.start_boottime_ns = BPF_CORE_READ(task, group_leader, start_boottime),
		.tgid = task->tgid,
		.tid = task->pid,
		.cpu = bpf_get_smp_processor_id(),
		.state = ends,
		.object = task->start_time,
	};

	bpf_probe_read_kernel(event.comm, sizeof(event.comm), task->comm);
	reading_send(&event, PROF_SAMPLE_THREAD, task->se.sum_exec_runtime,
		     off_run_delay(task) + queued_ns);
	reading_send(&event, PROF_SAMPLE_STOLEN, off_stolen(task),
		     2 * task->nvcsw - (!task->on_cpu && off_task_state(task)));
	if (!with_moved)
		return;
	moved = io_moved_get(task);
	reading_send(&event, PROF_SAMPLE_MOVED, moved ? moved->bytes : 0, 0);
}

/* The target of a process is gone already when its last thread ends: it counts as undecided. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(off_exit, struct task_struct *task)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_LIFE);
	uint32_t tgid = task->tgid;
	struct prof_target *target = bpf_map_lookup_elem(&targets, &tgid);

	if (!target_wants(target, PROF_WANT_OFFCPU))
		thread_send(task, bpf_ktime_get_ns(), 0, true, !target_wants(target, PROF_WANT_IO));
	task_forget(task->pid);
	cost_end(&timer);
	return 0;
}

/* ---- sweeping ------------------------------------------------------------------------------ */

/* Adds what is needed to complete a blocked thread's stack. */
static __always_inline void sweep_user_stack(struct scratch *s, struct task_struct *task)
{
	off_entry_stack(s, OUTCOME_complete);
	off_mark_blocked(s);
	s->sample.user_stack_hash = stack_send(s);
	s->sample.head.flags =
		late_send_registers(s, arch_thread_pointer(task), 0) ? PROF_SAMPLE_LATE : 0;
}

KERNEL_FRAMES(sweep_kernel_frames, sweep_scratch)

static __always_inline void sweep_send(struct scratch *s, struct task_struct *task,
				       uint64_t now_ns, const struct off_state *state)
{
	uint64_t off_ns = now_ns - state->since_ns;

	off_sample_begin(s, task, now_ns, off_ns, off_ns);
	s->sample.value2 = 0; /* counted when it ends */
	s->sample.holder = state->holder;
	walk_none(s);
	kernel_stack_take(s, bpf_get_task_stack(task, s->frames, KERNEL_STACK_BYTES, 0), false,
			  sweep_kernel_frames, 0);
	s->sample.kernel_stack_hash = stack_send(s);
	s->sample.state = off_state_of(state->blocked);
	if (has_user_stack(BPF_CORE_READ(task, mm), task->flags) &&
	    !bpf_probe_read_kernel(&s->regs, sizeof(s->regs), task_saved_regs(task))) {
		if (state->blocked == OFF_WAITS)
			s->sample.state = PROF_OFF_BLOCKED << 4 | off_wait(s, task);
		if (arch_is_user(&s->regs) && !arch_is_compat32(&s->regs))
			sweep_user_stack(s, task);
	}
	sample_send(s);
}

/* The time that @task is off the CPU so far becomes a sample and begins anew. */
static __always_inline void sweep_wait(struct task_struct *task, uint64_t now_ns)
{
	struct off_state *state;
	uint32_t zero = 0;
	struct scratch *s;

	if (bpf_core_field_exists(struct task_struct, on_cpu) && task->on_cpu)
		return;
	s = bpf_map_lookup_elem(&sweep_scratch, &zero);
	state = off_state_get(task, true);
	if (!s || !state)
		return;
	if (state->since_ns && state->generation == config.off_generation) {
		if (now_ns > state->since_ns)
			sweep_send(s, task, now_ns, state);
	} else {
		state->blocked = off_how(task);
		state->holder = state->waker = 0;
		gil_forget(state);
		state->gil_since_ns = 0;
		state->generation = config.off_generation;
		off_note_call(state, task);
	}
	state->run_delay_ns = off_run_delay(task);
	state->since_ns = now_ns;
}

/* Visits every thread of the host: so that a session has what fell inside of a wait that began
 * before it, or has not ended with it, and the exact sums of each thread at both ends. A thread
 * that comes back in this very moment may count its time twice.
 * A byte for each that leaves something in the ring: after as many as a read has room for, the
 * reader takes out what is there (bpf_seq_read() in kernel/bpf/bpf_iter.c). */
SEC("iter/task")
int off_sweep(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct prof_target *target;
	uint64_t now_ns;
	uint32_t tgid;
	bool wanted;

	if (!task || !config.off_generation)
		return 0;
	if (!task->pid || task->flags & PF_EXITING)
		return 0;
	tgid = task->tgid;
	target = bpf_map_lookup_elem(&targets, &tgid);
	wanted = !target_wants(target, PROF_WANT_OFFCPU);
	if (!wanted && !config.sweep_all)
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (!config.sweep_clock_ns && bpf_core_field_exists(struct task_struct, sched_info))
		config.sweep_clock_ns = now_ns - BPF_CORE_READ((struct task_struct *)bpf_get_current_task(),
							       sched_info.last_arrival);
	if (wanted) {
		thread_send(task, now_ns, off_queued(task, now_ns), false,
			    !target_wants(target, PROF_WANT_IO));
		bpf_seq_write(ctx->meta->seq, "", 1);
	}
	sweep_wait(task, now_ns);
	return 0;
}

#endif /* PROFD_BPF_SWEEP_BPF_H */
