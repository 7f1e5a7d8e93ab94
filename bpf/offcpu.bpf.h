/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Time off the CPU.
 *
 * At a context switch the thread that leaves notes the time in its task storage. When it is
 * switched in again its time off the CPU is known, and only then it is decided whether to record
 * it: always if it was at least the threshold t, else with probability d / t, and then with the
 * value t. The expected value is d in both cases, so the profile is unbiased, a long block is never
 * missed, and a thread costs at most 1 / t samples a second.
 *
 * The stack of a thread does not change while it is off the CPU, so it can be taken at the return
 * too; no work is spent on blocks that are not recorded. But at sched_switch the memory of the
 * process that comes is not mapped yet: only its kernel stack can be walked (bpf_get_task_stack()
 * of a thread that does not run). For the user stack the program makes a ring buffer raise its
 * irq_work, a self-interrupt that the CPU takes as soon as the switch is finished and interrupts
 * are on again: in the context of the thread that came back, before it has executed anything. The
 * tracepoint at the entry of that interrupt runs walk_due (due.bpf.h). A ring buffer has one
 * irq_work, which is in use until its interrupt was taken, so every CPU has a ring of its own.
 * Should the interrupt not have come by the next switch of the CPU, of the user stack only where
 * the thread entered the kernel is recorded (OUTCOME_resume_missed).
 *
 * The part of the time that was spent runnable comes from the thread's own run delay, which the
 * scheduler has updated by then; no wakeup is traced. What a blocked thread waited for is read from
 * its saved registers: no system call is traced either. */
#ifndef PROFD_BPF_OFFCPU_BPF_H
#define PROFD_BPF_OFFCPU_BPF_H

#include "bpf/disk.bpf.h"
#include "bpf/due.bpf.h"
#include "bpf/file_name.bpf.h"
#include "bpf/gil.bpf.h"
#include "bpf/task.bpf.h"

#include <bpf/bpf_tracing.h>

/* ---- stolen -------------------------------------------------------------------------------- */

/* While a thread has a CPU, interrupts may run there, and a hypervisor may take it away. Where the
 * kernel knows of this time it does not count as the thread's (update_rq_clock_task() in
 * kernel/sched/core.c), which was not blocked either. The CPU's two clocks differ by all of it. */
#define OFF_HAS_CLOCKS (have_stolen && bpf_core_field_exists(struct sched_entity, cfs_rq))

/* The time stolen from the CPU that @task is on, ns since the host began; 0 = none or not known.
 * @is_often is a constant: a load of a pointer from a trusted one takes a nanosecond, but for each
 * the verifier (6.18, btf_nested_type_is_trusted()) searches all types of the kernel by name. */
static __always_inline uint64_t off_cpu_stolen(struct task_struct *task, const bool is_often)
{
	struct rq *rq;

	if (!OFF_HAS_CLOCKS)
		return 0;
	if (is_often) {
		rq = task->se.cfs_rq->rq;
		return rq->clock - rq->clock_task;
	}
	rq = BPF_CORE_READ(task, se.cfs_rq, rq);
	return BPF_CORE_READ(rq, clock) - BPF_CORE_READ(rq, clock_task);
}

/* The time stolen from @task since it came onto its CPU, which until now had @cpu_stolen_ns. If
 * nobody saw it come, the kernel's own notes tell: the time since then less the time that was
 * counted for it. That holds unless it was moved between cgroups or the like since (it shows too
 * much then). */
static __always_inline uint64_t off_stolen_now(const struct off_state *state,
					       struct task_struct *task, uint64_t cpu_stolen_ns)
{
	int64_t stolen_ns;

	if (state && state->came == config.off_generation)
		stolen_ns = cpu_stolen_ns - state->came_stolen_ns;
	else if (!OFF_HAS_CLOCKS || !bpf_core_field_exists(struct task_struct, sched_info))
		return 0;
	else
		stolen_ns = BPF_CORE_READ(task, se.cfs_rq, rq, clock) -
			    task->sched_info.last_arrival -
			    (task->se.sum_exec_runtime - task->se.prev_sum_exec_runtime);
	/* the clocks of another CPU may be moved on between the one and the other reading */
	return stolen_ns > 0 ? stolen_ns : 0;
}

/* The time stolen in all times on CPUs that were seen. Another CPU may switch the thread meanwhile:
 * then its last time is left out. */
static __always_inline uint64_t off_stolen(struct task_struct *task)
{
	volatile struct off_state *state = off_state_get(task, false);
	uint64_t stolen_ns = state ? state->stolen_ns : 0,
		 came_stolen_ns = state ? state->came_stolen_ns : 0;
	uint64_t since_ns = state ? state->since_ns : 0, now_ns;

	if (!task->on_cpu || (since_ns && state->generation == config.off_generation))
		return stolen_ns;
	now_ns = off_stolen_now((const struct off_state *)state, task, off_cpu_stolen(task, false));
	if (state && (state->since_ns != since_ns || state->came_stolen_ns != came_stolen_ns))
		return stolen_ns;
	return stolen_ns + now_ns;
}

/* ---- leaving ------------------------------------------------------------------------------- */

/* include/linux/sched.h: __TASK_STOPPED, __TASK_TRACED and, from 6.1, TASK_FROZEN. */
#define OFF_HALTED_STATES 0x800cu
#define OFF_INTERRUPTIBLE 1u /* TASK_INTERRUPTIBLE */

/* Zero: runnable, also of a thread that was preempted on its way to sleep. */
static __always_inline uint32_t off_task_state(struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct, __state))
		return task->__state;
	return (uint32_t)((struct task_struct___pre514 *)task)->state;
}

/* Stopped by a signal, a tracer or the freezer, a thread waits for nothing that it asked for,
 * whatever call that interrupted. A cgroup's freezer lets its threads sleep interruptibly and notes
 * it; the note alone is also there in vfork() (kernel/signal.c, kernel/fork.c). */
static __always_inline uint32_t off_how(struct task_struct *task)
{
	uint32_t state = off_task_state(task);

	if (!state)
		return OFF_RUNS;
	if (state & OFF_HALTED_STATES ||
	    (state & OFF_INTERRUPTIBLE && BPF_CORE_READ_BITFIELD(task, frozen)))
		return OFF_HALTED;
	return OFF_WAITS;
}

static __always_inline uint64_t off_run_delay(struct task_struct *task)
{
	return bpf_core_field_exists(struct task_struct, sched_info) ? task->sched_info.run_delay
								     : 0;
}

static __always_inline uint64_t off_run_delay_of_current(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (have_task_btf)
		return off_run_delay(bpf_get_current_task_btf());
	return bpf_core_field_exists(struct task_struct, sched_info)
		       ? BPF_CORE_READ(task, sched_info.run_delay)
		       : 0;
}

/* The holder of the lock that a system call waits for, as the lock says; 0 = it does not say. The
 * memory is that of the thread that leaves. The caller checks that the holder is a thread of the
 * process: locks of other libraries keep something else where glibc keeps the owner. */
static __always_inline uint32_t off_holder(const struct arch_call *call)
{
	struct arch_lock_wait wait;
	uint32_t words[2] = { 0 };

	const uint64_t operation = arch_second_argument(call), expected = arch_third_argument(call);

	if (!arch_call_is_known(call) || !arch_is_futex(arch_system_call(call)) ||
	    !arch_is_lock_wait(operation, expected))
		return 0;
	wait = arch_lock_owner(operation, expected);
	if (wait.owner)
		return wait.owner;
	if (bpf_probe_read_user(words, sizeof(words), (void *)(arch_first_argument(call) + wait.owner_at)))
		return 0;
	return (words[0] > 1 ? words[0] : words[1] * wait.or_next) & FUTEX_TID_MASK;
}

/* Is the time of @task wanted? The state to note it in, or NULL. Decisions about processes are few,
 * so a thread remembers the last good one: the look-up of its process would cost more than all the
 * rest. */
static __always_inline struct off_state *off_wanted(struct task_struct *task)
{
	struct off_state *state = off_state_get(task, false);
	uint32_t generation = config.target_generation << 1, tgid = task->tgid;
	struct prof_target *target;

	if (state && (state->wanted & ~1u) == generation)
		return state;
	target = bpf_map_lookup_elem(&targets, &tgid);
	if (target_wants(target, PROF_WANT_OFFCPU))
		return NULL;
	if (!state)
		state = off_state_get(task, true);
	if (state)
		state->wanted = generation | (target && target->wanted & PROF_WANT_LOCKS);
	return state;
}

/* How @task, which is off the CPU or leaves it, had entered the kernel. */
static __always_inline void off_note_call(struct off_state *state, struct task_struct *task)
{
	if (has_user_stack(task->mm, task->flags))
		task_get_call(&state->call, task);
	else
		arch_call_clear(&state->call);
}

/* ---- what it waited for -------------------------------------------------------------------- */

/* Files without an inode of their own are known by the name that the kernel gave them
 * (fs/eventfd.c, fs/timerfd.c, fs/signalfd.c): a counter that another thread raises is as good as a
 * pipe. */
static __always_inline uint32_t wait_of_nameless(struct file *file)
{
	const unsigned char *at = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	char name[7] = "";

	if (bpf_probe_read_kernel(name, sizeof(name), at) || name[0] != '[')
		return PROF_WAIT_OTHER;
	if (name[1] == 'e' && name[2] == 'v' && name[3] == 'e' && name[6] == 'f')
		return PROF_WAIT_PIPE; /* [eventfd] */
	if ((name[1] == 't' && name[2] == 'i' && name[5] == 'r' && name[6] == 'f') ||
	    (name[1] == 's' && name[2] == 'i' && name[5] == 'a' && name[6] == 'l'))
		return PROF_WAIT_SLEEP; /* [timerfd], [signalfd] */
	return PROF_WAIT_OTHER;
}

static __always_inline struct file *file_of(struct task_struct *task, uint64_t number)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **slots = BPF_CORE_READ(table, fd), *file;

	if (number >= BPF_CORE_READ(table, max_fds) ||
	    bpf_probe_read_kernel(&file, sizeof(file), slots + number))
		return NULL;
	return file;
}

static __always_inline uint32_t wait_of_file(struct file *file)
{
	uint32_t mode, named;

	if (!file)
		return PROF_WAIT_OTHER;
	mode = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
	if (mode == S_IFIFO)
		return PROF_WAIT_PIPE;
	if (mode == S_IFSOCK)
		return PROF_WAIT_SOCKET;
	named = wait_of_nameless(file);
	if (named != PROF_WAIT_OTHER)
		return named;
	if (mode == S_IFREG || mode == S_IFBLK || mode == S_IFDIR)
		return PROF_WAIT_DISK;
	return PROF_WAIT_OTHER;
}

static __always_inline uint32_t detail_of_wait(uint32_t wait)
{
	switch (wait) {
	case PROF_WAIT_PIPE:
		return PROF_DETAIL_PIPE;
	case PROF_WAIT_SOCKET:
		return PROF_DETAIL_SOCKET;
	case PROF_WAIT_DISK:
		return PROF_DETAIL_FILE;
	default:
		return PROF_DETAIL_NONE;
	}
}

/* A wait with a time limit that was interrupted (by a tracer, SIGSTOP, the freezer) goes on as
 * restart_syscall(), with the arguments of the system call that it was. Of the three that can wait
 * long, the kernel's note (kernel/futex/waitwake.c, fs/select.c, kernel/time/hrtimer.c) begins with
 * the first argument in futex() and poll(), and goes on with the value expected or with poll()'s
 * second argument. */
static __always_inline uint64_t off_restarted(struct scratch *s, struct task_struct *task)
{
	if ((uint64_t)BPF_CORE_READ(task, restart_block.futex.uaddr) != arch_first_argument(&s->regs))
		return ARCH_NANOSLEEP;
	if (BPF_CORE_READ(task, restart_block.futex.val) == (uint32_t)arch_second_argument(&s->regs))
		return ARCH_POLL;
	return ARCH_FUTEX;
}

/* Behind a global function the verifier goes on once, not from each of its results. */
__attribute__((noinline)) uint32_t off_wait_of_call(uint64_t number)
{
	return arch_wait_of_syscall(number);
}

__attribute__((noinline)) uint32_t off_detail_of_call(uint64_t number)
{
	return arch_detail_of_syscall(number);
}

/* Wait kind of a blocked thread by the registers it entered the kernel with (s->regs); also says
 * in the sample what else is known. */
static __attribute__((noinline)) uint32_t off_wait(struct scratch *s, struct task_struct *task)
{
	uint64_t number;
	uint32_t wait;

	if (arch_is_compat32(&s->regs))
		return PROF_WAIT_OTHER; /* other numbers */
	if (!arch_is_system_call(&s->regs))
		return PROF_WAIT_FAULT;
	number = arch_system_call(&s->regs);
	if (number == ARCH_RESTART_SYSCALL)
		number = off_restarted(s, task);
	wait = off_wait_of_call(number);
	s->sample.detail = off_detail_of_call(number);
	if (wait == PROF_WAIT_FUTEX && number != ARCH_FUTEX_WAITV) {
		s->sample.object = arch_first_argument(&s->regs);
		if ((arch_is_futex(number) && arch_is_lock_wait(arch_second_argument(&s->regs),
								arch_third_argument(&s->regs))) ||
		    (number == ARCH_FUTEX_WAIT && arch_is_lock_wait(9, arch_second_argument(&s->regs))))
			s->sample.detail = PROF_DETAIL_LOCK;
	}
	if (wait == PROF_WAIT_NONE) {
		wait = wait_of_file(file_of(task, arch_first_argument(&s->regs)));
		if (wait == PROF_WAIT_OTHER && BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
			wait = PROF_WAIT_DISK;
		s->sample.detail = detail_of_wait(wait);
	}
	if (wait == PROF_WAIT_OTHER && BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait))
		return PROF_WAIT_DISK;
	return wait;
}

/* ---- coming back --------------------------------------------------------------------------- */

static __always_inline uint64_t off_disk_share(uint64_t part_ns, uint64_t blocked_ns)
{
	if (part_ns >= blocked_ns)
		return PROF_DISK_WHOLE;
	return blocked_ns < 1ull << 47 ? part_ns * PROF_DISK_WHOLE / blocked_ns : 0; /* 39 hours */
}

/* Divides a wait for a disk of @blocked_ns into the device's part and its queue's. */
static __always_inline void off_disk(struct scratch *s, uint64_t blocked_ns)
{
	uint64_t device = off_disk_share(s->resume.disk.device_ns, blocked_ns);
	uint64_t queue = off_disk_share(s->resume.disk.queue_ns, blocked_ns);

	if (queue > PROF_DISK_WHOLE - device)
		queue = PROF_DISK_WHOLE - device;
	s->sample.object = s->resume.disk.disk;
	s->sample.holder = device << 16 | queue;
}

/* Sends the pending sample, split into the time blocked and the time on the run queue. */
static __attribute__((noinline)) void off_send(struct scratch *s, uint64_t run_delay_ns)
{
	uint64_t value = s->sample.value, waited = run_delay_ns - s->resume.run_delay_ns;

	s->resume.owed = 0;
	if (waited > s->resume.off_ns)
		waited = s->resume.off_ns;
	if (s->resume.disk.disk)
		off_disk(s, s->resume.off_ns - waited);
	if (s->sample.state >> 4 == PROF_OFF_BLOCKED && waited) {
		/* below the threshold, itself below 2^32 ns, the product stays below 2^64 */
		uint64_t part =
			value == s->resume.off_ns ? waited : value * waited / s->resume.off_ns;

		s->sample.value = value - part;
		if (s->sample.value)
			sample_send(s);
		s->sample.value = part;
		s->sample.value2 = 0; /* one event, already counted */
		/* what it had waited for stays with it */
		s->sample.state = PROF_OFF_RUNQUEUE << 4 | (s->sample.state & 15);
	}
	if (s->sample.value)
		sample_send(s);
	gil_send_release(s);
}

/* The user stack of a thread whose memory is not read: where it entered the kernel. */
static __always_inline void off_entry_stack(struct scratch *s, uint32_t outcome)
{
	walk_none(s);
	s->frames[0] = prof_frame_address(PROF_FRAME_ADDRESS, arch_ip(&s->regs), 0);
	s->stack.tgid = s->sample.tgid;
	s->stack.frame_count = 1;
	s->stack.outcome = outcome;
	s->stack.stack_hash = hash_frame(s->sample.tgid, s->frames[0]);
}

/* Behind that, in the place of its callers. */
static __always_inline void off_mark_blocked(struct scratch *s)
{
	s->frames[1] = (uint64_t)PROF_FRAME_MARKER << PROF_FRAME_KIND_SHIFT | PROF_MARKER_BLOCKED;
	s->stack.frame_count = 2;
	s->stack.stack_hash = hash_frame(s->stack.stack_hash, s->frames[1]);
}

/* Sends the pending sample, whose user stack cannot be walked any more. */
static __attribute__((noinline)) void off_give_up(struct scratch *s)
{
	outcome_count(OUTCOME_resume_missed);
	s->resume.release.number = 0;
	if (arch_is_user(&s->regs) && !arch_is_compat32(&s->regs)) {
		off_entry_stack(s, OUTCOME_resume_missed);
		s->sample.user_stack_hash = stack_send(s);
	}
	off_send(s, s->resume.run_delay_ns);
}

/* Value of a time off the CPU by the random number @draw, 0: not recorded. */
static __always_inline uint64_t off_value_by(uint64_t off_ns, uint32_t draw)
{
	uint64_t threshold_ns = config.off_threshold_ns;

	if (off_ns >= threshold_ns)
		return off_ns;
	return draw * threshold_ns >> 32 < off_ns ? threshold_ns : 0;
}

static __always_inline uint64_t off_value(uint64_t off_ns)
{
	return off_value_by(off_ns, bpf_get_prandom_u32());
}

/* Begins a sample with @value of @amount, of a thread that the caller fills in. */
static __always_inline void sample_begin(struct scratch *s, uint64_t now_ns, uint64_t amount,
					 uint64_t value)
{
	s->sample.head.flags = 0;
	s->sample.time_ns = now_ns;
	s->sample.user_stack_hash = 0;
	s->sample.value = value;
	s->sample.value2 = value * 1024 / amount;
	s->sample.source = 0;
	s->sample.cpu = bpf_get_smp_processor_id();
	s->sample.type = PROF_SAMPLE_OFFCPU;
	s->sample.object = 0;
	s->sample.holder = s->sample.waker = 0;
	s->sample.detail = PROF_DETAIL_NONE;
}

static __always_inline void off_sample_begin(struct scratch *s, struct task_struct *task,
					     uint64_t now_ns, uint64_t off_ns, uint64_t value)
{
	sample_begin(s, now_ns, off_ns, value);
	s->sample.start_boottime_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	s->sample.tgid = task->tgid;
	s->sample.tid = task->pid;
	bpf_probe_read_kernel(s->sample.comm, sizeof(s->sample.comm), task->comm);
}

/* The wait of @off_ns that the pending sample stands for. */
static __always_inline void off_wait_begin(struct scratch *s, const struct off_state *state,
					   uint64_t off_ns)
{
	s->resume.off_ns = off_ns;
	s->resume.run_delay_ns = state->run_delay_ns;
	s->resume.disk = (struct disk_part){ 0 };
	s->resume.release = state->gil_release;
	s->sample.holder = state->holder;
	s->sample.waker = state->waker;
}

/* The kind of the wait is not known yet. */
static __always_inline uint8_t off_state_of(uint32_t blocked)
{
	return blocked ? PROF_OFF_BLOCKED << 4 | PROF_WAIT_OTHER : PROF_OFF_PREEMPTED << 4;
}

/* Asks for the interrupt. The record is empty and thrown away. False: there will be none. */
static __always_inline bool off_raise_interrupt(void)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&kick_rings, &cpu);
	void *record = ring ? bpf_ringbuf_reserve(ring, 0, 0) : NULL;

	if (!record)
		return false;
	bpf_ringbuf_discard(record, BPF_RB_FORCE_WAKEUP);
	return true;
}

NAME_TURN(off_name_turn, switch_scratch)
KERNEL_FRAMES(off_kernel_frames, switch_scratch)

/* The file that a blocked thread waits for goes behind its kernel stack where somebody wants it. */
static __always_inline void off_name(struct scratch *s, struct task_struct *task)
{
	struct file *file;

	if (!arch_names_file(arch_system_call(&s->regs)) || !names_are_wanted(task->tgid))
		return;
	file = file_of(task, arch_first_argument(&s->regs));
	if (file)
		name_of_file(s, file, off_name_turn);
}

/* Records a time off the CPU that ended now. */
static __always_inline void off_record(struct scratch *s, struct task_struct *task,
				       uint32_t blocked)
{
	bool has_registers;

	walk_none(s);
	kernel_stack_take(s, bpf_get_task_stack(task, s->frames, KERNEL_STACK_BYTES, 0), false,
			  off_kernel_frames, 0);
	has_registers = has_user_stack(BPF_CORE_READ(task, mm), task->flags) &&
			!bpf_probe_read_kernel(&s->regs, sizeof(s->regs), task_saved_regs(task));
	s->sample.state = off_state_of(blocked);
	if (has_registers && blocked == OFF_WAITS) {
		s->sample.state = PROF_OFF_BLOCKED << 4 | off_wait(s, task);
		if (prof_state_is_disk(s->sample.state))
			s->resume.disk = disk_join(task->pid, s->sample.time_ns - s->resume.off_ns,
						   s->sample.time_ns);
		off_name(s, task);
	}
	s->sample.kernel_stack_hash = stack_send(s);
	walk_none(s);
	if (!has_registers) {
		off_send(s, s->resume.run_delay_ns);
		return;
	}
	s->resume.owed = have_irq_work && off_raise_interrupt();
	if (!s->resume.owed)
		off_give_up(s);
}

/* ---- a return that nobody saw -------------------------------------------------------------- */

/* The user stack of a wait that is over: where it had entered the kernel. */
static __always_inline void unseen_user_stack(struct scratch *s)
{
	off_entry_stack(s, OUTCOME_return_unseen);
	if (s->sample.state >> 4 == PROF_OFF_BLOCKED)
		off_mark_blocked(s);
	s->sample.user_stack_hash = stack_send(s);
}

/* The kernel may hide a switch from tracers. That @task came back shows when it leaves again, and
 * the kernel has noted when that was: the length of its wait is exact. What it waited for says the
 * call that it was in, of which the file is the present one of its descriptor. */
static __attribute__((noinline)) void off_record_unseen(const struct off_state *state,
							struct task_struct *task, uint64_t now_ns)
{
	uint64_t ran_ns, off_ns, value;
	uint32_t zero = 0;
	struct scratch *s;

	if (!OFF_HAS_CLOCKS || !bpf_core_field_exists(struct task_struct, sched_info))
		return;
	ran_ns = BPF_CORE_READ(task, se.cfs_rq, rq, clock) - task->sched_info.last_arrival;
	off_ns = now_ns - ran_ns - state->since_ns;
	if ((int64_t)ran_ns < 0 || (int64_t)off_ns <= 0)
		return;
	value = off_value(off_ns);
	s = bpf_map_lookup_elem(&switch_scratch, &zero);
	if (!value || !s)
		return;
	if (s->resume.owed)
		off_give_up(s);
	off_sample_begin(s, task, now_ns - ran_ns, off_ns, value);
	off_wait_begin(s, state, off_ns);
	s->resume.release.number = 0; /* its stack is not there any more */
	s->sample.kernel_stack_hash = 0;
	s->sample.state = off_state_of(state->blocked);
	arch_set_call(&s->regs, &state->call);
	if (arch_call_is_known(&state->call) && state->blocked == OFF_WAITS)
		s->sample.state = PROF_OFF_BLOCKED << 4 | off_wait(s, task);
	if (arch_call_is_known(&state->call) && !arch_is_compat32(&s->regs))
		unseen_user_stack(s);
	off_send(s, off_run_delay(task));
}

/* ---- switching ----------------------------------------------------------------------------- */

#define OFF_NOT_READ (~0ull)

/* Returns the time stolen from the CPU; OFF_NOT_READ: nobody wanted to know. */
static __always_inline uint64_t off_leave(struct task_struct *task, bool preempted, uint64_t now_ns)
{
	struct off_state *state;
	uint64_t cpu_stolen_ns;
	bool ends;

	if (!task->pid)
		return OFF_NOT_READ;
	ends = task->flags & PF_EXITING;
	state = ends ? off_state_get(task, false) : off_wanted(task);
	if (!state)
		return OFF_NOT_READ;
	if (state->since_ns && state->generation == config.off_generation) {
		outcome_count(OUTCOME_return_missed);
		off_record_unseen(state, task, now_ns);
		state->came = state->since_ns = 0;
	}
	if (ends)
		return OFF_NOT_READ;
	cpu_stolen_ns = off_cpu_stolen(task, true);
	state->stolen_ns += off_stolen_now(state, task, cpu_stolen_ns);
	state->since_ns = now_ns;
	state->run_delay_ns = off_run_delay(task);
	state->generation = config.off_generation;
	state->blocked = preempted ? OFF_RUNS : off_how(task);
	state->holder = state->waker = 0;
	gil_forget(state);
	off_note_call(state, task);
	if (state->blocked && state->wanted & 1) {
		state->holder = off_holder(&state->call);
		if (config.gils)
			gil_leave(state, task, now_ns);
	}
	return cpu_stolen_ns;
}

static __always_inline void off_return(struct task_struct *task, uint64_t now_ns,
				       uint64_t cpu_stolen_ns)
{
	struct off_state *state;
	uint64_t off_ns, value;
	uint32_t zero = 0;
	struct scratch *s;

	if (!task->pid)
		return;
	state = off_state_get(task, false);
	if (!state)
		return;
	state->came_stolen_ns =
		cpu_stolen_ns == OFF_NOT_READ ? off_cpu_stolen(task, true) : cpu_stolen_ns;
	state->came = config.off_generation;
	if (!state->since_ns || state->generation != config.off_generation)
		return;
	off_ns = now_ns - state->since_ns;
	state->since_ns = 0;
	value = state->waits_for_gil ? off_value_by(off_ns, state->gil_draw) : off_value(off_ns);
	if ((!value && !state->gil_release.number) || !off_ns)
		return;
	s = bpf_map_lookup_elem(&switch_scratch, &zero);
	if (!s)
		return;
	if (s->resume.owed)
		off_give_up(s);
	off_sample_begin(s, task, now_ns, off_ns, value);
	off_wait_begin(s, state, off_ns);
	off_record(s, task, state->blocked);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(off_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_SWITCH);
	uint64_t now_ns = bpf_ktime_get_ns();

	off_return(next, now_ns, off_leave(prev, preempt, now_ns));
	cost_end(&timer);
	return 0;
}

/* ---- wakers -------------------------------------------------------------------------------- */

/* A thread that wakes a waiter for a lock has just released the lock: it is the holder of locks
 * that do not say who holds them. Attached only while locks are wanted. Wakers of other processes,
 * and interrupts of their threads, do not count. The GIL says who holds it (gil.bpf.h). */
SEC("tp_btf/sched_waking")
int BPF_PROG(off_waking, struct task_struct *task)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_SWITCH);
	uint64_t pid_tgid = bpf_get_current_pid_tgid();
	struct off_state *state;

	if (task->tgid == pid_tgid >> 32 && task->pid != (uint32_t)pid_tgid) {
		state = off_state_get(task, false);
		if (state && state->blocked && !state->waits_for_gil)
			state->waker = (uint32_t)pid_tgid;
	}
	cost_end(&timer);
	return 0;
}

/* ---- the user stack ------------------------------------------------------------------------ */

/* The scratch of this CPU if a user stack is owed to the current thread. */
static __always_inline struct scratch *resume_begin(void)
{
	uint32_t zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&switch_scratch, &zero);

	if (!s || !s->resume.owed)
		return NULL;
	if (s->sample.tid != (uint32_t)bpf_get_current_pid_tgid() || !arch_is_user(&s->regs)) {
		off_give_up(s);
		return NULL;
	}
	if (arch_is_compat32(&s->regs))
		outcome_count(OUTCOME_compat32);
	else
		s->going = 1;
	return s;
}

/* futex_waitv(): the first of its futexes, struct futex_waitv of include/uapi/linux/futex.h, where
 * the program's memory can be read. */
static __always_inline void resume_waitv(struct scratch *s)
{
	uint64_t first[2]; /* the expected value, the address */

	if (s->sample.state != (PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX) ||
	    arch_system_call(&s->regs) != ARCH_FUTEX_WAITV ||
	    bpf_probe_read_user(first, sizeof(first), (void *)arch_first_argument(&s->regs)))
		return;
	s->sample.object = first[1];
	if (arch_is_lock_wait(9, first[0]))
		s->sample.detail = PROF_DETAIL_LOCK;
}

static __always_inline void resume_end(struct scratch *s, bool with_loop)
{
	resume_waitv(s);
	walked_stack_send(s, with_loop);
	off_send(s, off_run_delay_of_current());
}

#endif
