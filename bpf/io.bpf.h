/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes read and written. A call that moves n bytes is recorded always if n is at least the
 * threshold t, else with probability n / t, and then with the value t: the expected value is n. The
 * threshold is the CPU's own. It is 0, every call is recorded, while there are no more than
 * io_calls_max and that takes no more of the CPU's time than io_budget_ns; else it follows what is
 * moved, so that a CPU records as many as the densest session keeps. It is decided by what came
 * before, so that the present call has no part in it. Processes that nobody has decided on have one
 * of their own, and less room: a build's, which are forgotten later, would take the others' share.
 *
 * What a thread has moved is also counted, every call of it: that is exact, and samples say where
 * (PROF_SAMPLE_MOVED, sent by sweep.bpf.h at both ends of a session and of the thread).
 *
 * Where a call ends is the only place that sees what was moved, for every kind of file and also
 * without waiting: the end of the kernel's function of each call that moves bytes (fexit), which no
 * other call pays for. Where the kernel refuses that, the end of every system call, and all of the
 * host take the longer way meanwhile. Either is attached only while somebody wants bytes. What
 * io_uring moves is in io_ring.bpf.h. */
#ifndef PROFD_BPF_IO_BPF_H
#define PROFD_BPF_IO_BPF_H

#include "bpf/offcpu.bpf.h"

#define IO_PER_WINDOW_MIN 20u
#define IO_SAMPLED                                                                                 \
	100u /* of them where not every call is recorded, and of processes that nobody has decided \
		on */
#define IO_BURST	 2u    /* times so many in one window double the threshold at once */
#define IO_COST_GUESS_NS 5000u
#define IO_COST_CLIP                                                                               \
	4u /* times what one took so far: more is somebody else's, a hypervisor's, an interrupt's  \
	    */
#define IO_COST_OF	 64u /* so many calls are what one took so far */
#define IO_THRESHOLD_MIN 4096u /* if it is any */
#define IO_THRESHOLD_MAX (1u << 30) /* the most that one call moves is twice that */

/* The cost of recording a call. */
static __always_inline uint64_t io_cost_ns(const struct io_pace *pace)
{
	return pace->cost_ns ? pace->cost_ns : IO_COST_GUESS_NS;
}

/* How many calls may be recorded in a window. */
static __always_inline uint64_t io_per_window(const struct io_pace *pace)
{
	uint64_t count = config.io_budget_ns / io_cost_ns(pace);

	if (count > config.io_calls_max)
		return config.io_calls_max;
	return count < IO_PER_WINDOW_MIN ? IO_PER_WINDOW_MIN : count;
}

static __always_inline uint64_t io_threshold(struct io_rate *rate, uint64_t per_window,
					     uint64_t now_ns, uint64_t bytes)
{
	uint64_t threshold = rate->threshold;

	if (now_ns - rate->since_ns >= PROF_IO_WINDOW_NS) {
		threshold = 0;
		if (rate->calls > per_window) {
			threshold = rate->bytes / (per_window < IO_SAMPLED ? per_window : IO_SAMPLED);
			if (threshold < IO_THRESHOLD_MIN)
				threshold = IO_THRESHOLD_MIN;
		}
		rate->since_ns = now_ns;
		rate->bytes = rate->calls = rate->count = 0;
	}
	if (rate->count >= IO_BURST * per_window) {
		threshold = threshold ? threshold * 2 : IO_THRESHOLD_MIN;
		rate->count = 0;
	}
	if (threshold > IO_THRESHOLD_MAX)
		threshold = IO_THRESHOLD_MAX;
	rate->threshold = threshold;
	rate->bytes += bytes;
	rate->calls++;
	return threshold;
}

/* Value of a call that moved @bytes, 0: not recorded. */
static __attribute__((noinline)) uint64_t io_value(bool undecided, uint64_t bytes)
{
	uint64_t threshold, now_ns = bpf_ktime_get_ns();
	uint32_t zero = 0;
	struct io_pace *pace = bpf_map_lookup_elem(&io_paces, &zero);
	struct io_rate *rate;

	if (!pace)
		return 0;
	rate = undecided ? &pace->undecided : &pace->wanted;
	threshold = io_threshold(rate, undecided ? IO_SAMPLED : io_per_window(pace), now_ns, bytes);
	if (bytes < threshold) {
		if (bpf_get_prandom_u32() * threshold >> 32 >= bytes)
			return 0;
		bytes = threshold;
	}
	rate->count++;
	pace->chosen_ns = now_ns;
	return bytes;
}

/* A call was recorded. */
static __always_inline void io_spent(void)
{
	uint32_t zero = 0;
	struct io_pace *pace = bpf_map_lookup_elem(&io_paces, &zero);
	uint64_t cost_ns, before_ns;

	if (!pace)
		return;
	before_ns = io_cost_ns(pace);
	cost_ns = bpf_ktime_get_ns() - pace->chosen_ns;
	if (cost_ns > IO_COST_CLIP * before_ns)
		cost_ns = IO_COST_CLIP * before_ns;
	pace->cost_ns = (before_ns * (IO_COST_OF - 1) + cost_ns) / IO_COST_OF;
}

static __always_inline void io_sample_begin(struct scratch *s, const struct task_facts *task,
					    uint64_t bytes, uint64_t value)
{
	uint64_t pid_tgid = bpf_get_current_pid_tgid();

	sample_begin(s, bpf_ktime_get_ns(), bytes, value);
	s->sample.start_boottime_ns = task->start_boottime_ns;
	s->sample.tgid = pid_tgid >> 32;
	s->sample.tid = (uint32_t)pid_tgid;
	bpf_get_current_comm(s->sample.comm, sizeof(s->sample.comm));
	s->sample.type = PROF_SAMPLE_IO;
	s->sample.state = 0;
}

NAME_TURN(io_name_turn, io_scratch)

enum io_unit { IO_IN_BYTES, IO_IN_MESSAGES, IO_IN_EVENTS };
#define IO_ANY_UNIT (1u << IO_IN_MESSAGES | 1u << IO_IN_EVENTS)

/* Numbers of no file. */
#define IO_NO_FILE (1ull << 32)
#define IO_FILES   (IO_NO_FILE + 1) /* of several requests, for each its own */

/* include/uapi/linux/aio_abi.h, IOCB_CMD_* */
#define AIO_PREAD   0
#define AIO_PWRITE  1
#define AIO_PREADV  7
#define AIO_PWRITEV 8

/* One call, or one request of io_uring. */
struct io_call {
	const struct arch_regs *regs; /* of the thread, as it entered the kernel */
	uint32_t detail;	      /* FILE where the kind depends on the file */
	uint64_t moved;
	enum io_unit unit;	      /* of @moved */
	struct file *file;	      /* NULL: the one that its first argument names */
};

/* Calls may move many messages or events: IO_RUNS runs of IO_RUN. A run is a global function that
 * the verifier looks at by itself: it would follow every turn of one long loop. */
#define IO_RUN	    32u
#define IO_RUNS	    32u
/* sendmmsg() takes at most so many (UIO_MAXIOV). */
#define IO_MESSAGES (IO_RUN * IO_RUNS)

#define IO_MESSAGE_BYTES     64u
#define IO_MESSAGE_LENGTH_AT 56u
#define IO_EVENT_BYTES	     32u
#define IO_UNREAD	     (1ull << 63) /* a message behind those whose sum it is was not read */

/* The sum over the first @count messages of a run at @address: struct mmsghdr
 * (include/linux/socket.h), where the kernel notes each one's length, in the memory of the current
 * thread. With IO_UNREAD: the sum over those before the first that cannot be read. */
__attribute__((noinline)) uint64_t io_messages_run(uint64_t address, uint64_t count)
{
	uint64_t moved = 0;

	for (uint32_t i = 0; i < IO_RUN && i < count; i++) {
		int32_t bytes;

		if (bpf_probe_read_user(
			    &bytes, sizeof(bytes),
			    (const void *)(address + i * IO_MESSAGE_BYTES + IO_MESSAGE_LENGTH_AT)))
			return moved | IO_UNREAD;
		if (bytes > 0) /* else a number of its own that the program has put there */
			moved += (uint32_t)bytes;
	}
	return moved;
}

/* The sum over the first @count messages at @address. */
__attribute__((noinline)) uint64_t io_messages(uint64_t address, uint64_t count)
{
	bool is_unread = count > IO_MESSAGES;
	uint64_t moved = 0;

	for (uint32_t i = 0; i < IO_RUNS && i * IO_RUN < count; i++) {
		uint64_t run = io_messages_run(address + i * IO_RUN * IO_MESSAGE_BYTES,
					       count - i * IO_RUN);

		moved += run & ~IO_UNREAD;
		is_unread |= run >> 63;
		if (run & IO_UNREAD)
			break;
	}
	if (is_unread)
		outcome_count(OUTCOME_messages_unread);
	return moved;
}

/* Adds what the event at @address has moved, 1: that is not known. What was asked for is looked up
 * where the program wrote it when it asked. It may have other things there by now: the kernel has
 * kept only its address and its data. */
static __always_inline int io_event_add(struct io_owed *owed, uint64_t address)
{
	struct aio_request request;
	struct aio_event event;

	if (bpf_probe_read_user(&event, sizeof(event), (const void *)address))
		return 1;
	if (event.moved <= 0)
		return 0;
	if (bpf_probe_read_user(&request, sizeof(request), (const void *)event.request) ||
	    request.data != event.data)
		return 1;
	if (request.code != AIO_PREAD && request.code != AIO_PWRITE && request.code != AIO_PREADV &&
	    request.code != AIO_PWRITEV)
		return 0; /* a poll says which events came */
	if ((request.code == AIO_PREAD || request.code == AIO_PWRITE) &&
	    (uint64_t)event.moved > request.bytes)
		return 1;
	if (owed->descriptor == IO_NO_FILE)
		owed->descriptor = request.descriptor;
	else if (owed->descriptor != request.descriptor)
		owed->descriptor = IO_FILES;
	owed->collected += event.moved;
	return 0;
}

/* The sums are in a map, where the verifier does not follow them from turn to turn. */
__attribute__((noinline)) int io_event(uint64_t address)
{
	uint32_t zero = 0;
	struct io_owed *owed = bpf_map_lookup_elem(&io_owed, &zero);

	if (owed)
		owed->unread |= io_event_add(owed, address);
	return 0;
}

/* The first @count events of a run at @address. */
__attribute__((noinline)) int io_events_run(uint64_t address, uint64_t count)
{
	for (uint32_t i = 0; i < IO_RUN && i < count; i++)
		io_event(address + i * IO_EVENT_BYTES);
	return 0;
}

/* The sum over the first @count events at @address. */
__attribute__((noinline)) uint64_t io_events(uint64_t address, uint64_t count)
{
	uint32_t zero = 0;
	struct io_owed *owed = bpf_map_lookup_elem(&io_owed, &zero);

	if (!owed)
		return 0;
	owed->descriptor = IO_NO_FILE;
	owed->collected = 0;
	owed->unread = count > IO_MESSAGES;
	for (uint32_t i = 0; i < IO_RUNS && i * IO_RUN < count; i++)
		io_events_run(address + i * IO_RUN * IO_EVENT_BYTES, count - i * IO_RUN);
	if (owed->unread)
		outcome_count(OUTCOME_events_unread);
	return owed->collected;
}

/* The descriptor of the file that a call of this @number is about; IO_NO_FILE if none or
 * several. */
__attribute__((noinline)) uint64_t io_descriptor(uint64_t number, uint64_t first_argument)
{
	uint32_t zero = 0;
	struct io_owed *owed;

	if (!arch_collects_events(number))
		return (uint32_t)first_argument;
	owed = bpf_map_lookup_elem(&io_owed, &zero);
	return owed ? owed->descriptor : IO_NO_FILE;
}

/* Everything before the walk of the call that is owed. Returns the scratch to walk in, or NULL. It
 * is apart from the walk, which has what this used of the stack: before v6.13 a program and all
 * that it calls have 512 bytes. */
static __attribute__((noinline)) struct scratch *io_begin(const struct io_owed *owed)
{
	const struct task_facts task = task_facts_of_current();
	const void *regs = current_saved_regs();
	uint64_t descriptor = IO_NO_FILE;
	struct file *file = (struct file *)owed->file;
	struct scratch *s = due_enter();
	struct arch_call call;

	if (!s)
		return NULL;
	io_sample_begin(s, &task, owed->moved, owed->value);
	if (!file && arch_read_call(&call, regs)) {
		descriptor = io_descriptor(arch_system_call(&call), arch_first_argument(&call));
		file = file_of((struct task_struct *)bpf_get_current_task(), descriptor);
	}
	s->sample.detail = owed->detail == PROF_DETAIL_FILE && descriptor != IO_FILES
				   ? detail_of_wait(wait_of_file(file))
				   : owed->detail;
	kernel_stack_begin(s, 0, false);
	if (file && names_are_wanted(s->sample.tgid))
		name_of_file(s, file, io_name_turn);
	s->sample.kernel_stack_hash = stack_send(s);
	walk_none(s);
	if (!has_user_stack(task.has_memory, task.flags) ||
	    bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs) || !arch_is_user(&s->regs))
		return s;
	if (arch_is_compat32(&s->regs)) {
		outcome_count(OUTCOME_compat32);
		return s;
	}
	s->going = 1;
	return s;
}

/* As off_wait_of_call(). */
__attribute__((noinline)) uint32_t io_detail_of_call(uint64_t number)
{
	return arch_collects_events(number) ? PROF_DETAIL_FILE : arch_moves_bytes(number);
}

/* The effect of a system call that returned @moved; detail NONE: nothing. @units as above. */
static __always_inline struct io_call io_of_exit(struct pt_regs *regs, long moved, uint32_t units)
{
	struct io_call call = { .regs = (const struct arch_regs *)regs, .moved = moved };
	uint64_t number = arch_system_call(call.regs);

	if (moved <= 0 || arch_is_compat32(call.regs))
		return call;
	call.detail = io_detail_of_call(number);
	if (units & 1u << IO_IN_MESSAGES && arch_moves_messages(number))
		call.unit = IO_IN_MESSAGES;
	if (units & 1u << IO_IN_EVENTS && arch_collects_events(number))
		call.unit = IO_IN_EVENTS;
	return call;
}

/* The call that the current thread is to be recorded with; NULL: none. */
static __always_inline struct io_owed *io_owed_of_current(void)
{
	uint32_t zero = 0;
	struct io_owed *owed = bpf_map_lookup_elem(&io_owed, &zero);

	if (!owed || !owed->tid || owed->tid != (uint32_t)bpf_get_current_pid_tgid())
		return NULL;
	owed->tid = 0;
	return owed;
}

/* Leaves @call to walk_due (profiler.bpf.c), which is attached behind this program, or else comes
 * at once in the interrupt that is raised (@raise): these programs are many, and a verifier would
 * look at a walk in each. The room is the CPU's, and where the kernel preempts its own code another
 * thread may use it before. False: its user stack will be missing, or all of it. */
static __attribute__((noinline)) bool io_owe(const struct io_call *call, uint64_t value, bool raise)
{
	uint32_t zero = 0;
	struct io_owed *owed = bpf_map_lookup_elem(&io_owed, &zero);

	if (!owed)
		return false;
	if (owed->tid)
		outcome_count(OUTCOME_resume_missed);
	owed->moved = call->moved;
	owed->value = value;
	owed->file = (uint64_t)call->file;
	owed->detail = call->detail;
	if (!have_irq_work) {
		struct scratch *s = io_begin(owed);

		if (s)
			due_leave(s);
		return false;
	}
	asm volatile("" : : : "memory"); /* others raise the interrupt too */
	owed->tid = (uint32_t)bpf_get_current_pid_tgid();
	if (!raise || off_raise_interrupt())
		return true;
	owed->tid = 0;
	return false;
}

/* Counts the bytes that @call has moved. @units: a bit for each that it may count in instead of
 * bytes. */
static __always_inline void io_count(struct io_call *call, uint32_t units)
{
	struct io_moved *moved;

	if (units & 1u << IO_IN_EVENTS && call->unit == IO_IN_EVENTS)
		call->moved = io_events(arch_fourth_argument(call->regs), call->moved);
	if (units & 1u << IO_IN_MESSAGES && call->unit == IO_IN_MESSAGES)
		call->moved = io_messages(arch_second_argument(call->regs), call->moved);
	if (!call->moved)
		return;
	moved = io_moved_of_current();
	if (moved)
		moved->bytes += call->moved;
	else
		outcome_count(OUTCOME_uncounted);
}

/* Where the kernel preempts its own code, the call of another thread may end on this CPU while a
 * thread stands inside of a program. The same program does not run twice there, and to forbid
 * preemption does not help: what was due comes where it is allowed again, still inside. So a short
 * program counts, and a second one records, which takes an interrupt and a walk. What the second
 * one misses is recorded with the thread's next call. The kernel runs the program first that was
 * attached last (bpf_trampoline_link_prog()). If the second one finds nothing counted, because the
 * first one was missed or comes later, it counts, and the first one passes over one call. */
static __always_inline void io_tally(uint64_t bytes)
{
	struct io_moved *moved = io_moved_of_current();

	if (!moved) {
		outcome_count(OUTCOME_uncounted);
	} else if (moved->is_counted) {
		moved->is_counted = 0;
	} else {
		moved->bytes += bytes;
		moved->unrecorded += bytes;
	}
}

/* The bytes that the second program is to record: the call's @bytes, and those that it missed. */
static __always_inline uint64_t io_take(uint64_t bytes)
{
	struct io_moved *moved = io_moved_of_current();

	if (!moved)
		return bytes;
	if (moved->unrecorded) {
		bytes = moved->unrecorded;
		moved->unrecorded = 0;
	} else {
		moved->bytes += bytes;
		moved->is_counted = 1;
	}
	return bytes;
}

/* The part that a program does at the end of a call. */
enum io_part { IO_ALL, IO_COUNTS, IO_RECORDS };

/* Counts @call, whose cost is this program's, and records it if it is chosen. */
static __always_inline void io_note(struct io_call call, enum io_part part, uint32_t units,
				    bool raise)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;
	const struct prof_target *target;
	struct cost_timer timer;
	uint64_t value = 0;

	if (!call.detail)
		return;
	timer = cost_begin(PROF_PROGRAM_IO);
	target = bpf_map_lookup_elem(&targets, &tgid);
	if (!target_wants(target, PROF_WANT_IO)) {
		if (part == IO_COUNTS)
			io_tally(call.moved);
		else if (part == IO_RECORDS)
			call.moved = io_take(call.moved);
		else
			io_count(&call, units);
		if (part != IO_COUNTS && call.moved)
			value = io_value(!target, call.moved);
		if (value && !io_owe(&call, value, raise))
			outcome_count(OUTCOME_resume_missed);
	}
	cost_end(&timer);
}

/* ---- at the ends of the calls that move bytes ------------------------------------------------ */

#define IO_END(program, name, part, units)                                                         \
	SEC("fexit/" ARCH_CALL_PREFIX #name)                                                       \
	int BPF_PROG(program##name, struct pt_regs *regs, long moved)                              \
	{                                                                                          \
		if (config.io_by_call)                                                             \
			io_note(io_of_exit(regs, moved, units), part, units, true);                \
		return 0;                                                                          \
	}

#define IO_CALL(name)                                                                              \
	IO_END(io_, name, IO_COUNTS, 0)                                                            \
	IO_END(record_, name, IO_RECORDS, 0)
#define IO_MESSAGE_CALL(name) IO_END(io_, name, IO_ALL, 1u << IO_IN_MESSAGES)
#define IO_EVENT_CALL(name)   IO_END(io_, name, IO_ALL, 1u << IO_IN_EVENTS)

ARCH_BYTE_CALLS(IO_CALL)
ARCH_MESSAGE_CALLS(IO_MESSAGE_CALL)
ARCH_EVENT_CALLS(IO_EVENT_CALL)

/* ---- at the end of every system call --------------------------------------------------------- */

SEC("tp_btf/sys_exit")
int BPF_PROG(io_exit, struct pt_regs *regs, long moved)
{
	io_note(io_of_exit(regs, moved, IO_ANY_UNIT), IO_ALL, IO_ANY_UNIT, false);
	return 0;
}

#endif
