/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes read and written. A call that moves n bytes is recorded always if n is at least the threshold t,
 * else with probability n / t, and then with the value t: the expected value is n. The threshold is the
 * CPU's own and follows what is moved, so that a CPU records a bounded number of calls a second; it is
 * decided by what came before, so that the present call has no part in it.
 *
 * What a thread has moved is also counted, every call of it: that is exact, and samples say where
 * (PROF_SAMPLE_MOVED, sent by offcpu.bpf.h at both ends of a session and of the thread).
 *
 * Where a call ends is the only place that sees what was moved, for every kind of file and also without
 * waiting; the kernel lets no cheaper hook be attached everywhere. Every system call of the host takes the
 * longer way meanwhile, so it is attached only while somebody wants bytes. What io_uring moves is told by a
 * tracepoint of its own, in the thread that asked for it or in one of the kernel's that works for its process. */
#ifndef PROFD_BPF_IO_BPF_H
#define PROFD_BPF_IO_BPF_H

#include "bpf/offcpu.bpf.h"

#define IO_WINDOW_NS	100000000ull
#define IO_PER_WINDOW	100u
#define IO_BURST	400u /* calls in a window that double the threshold at once */
#define IO_THRESHOLD_MIN 4096u
#define IO_THRESHOLD_MAX (1u << 30) /* the most that one call moves is twice that */

static __always_inline uint64_t io_threshold(struct io_rate *rate, uint64_t now_ns, uint64_t bytes)
{
	if (now_ns - rate->since_ns >= IO_WINDOW_NS) {
		rate->threshold = rate->bytes / IO_PER_WINDOW;
		rate->since_ns = now_ns;
		rate->bytes = rate->count = 0;
	}
	if (rate->count >= IO_BURST) {
		rate->threshold *= 2;
		rate->count = 0;
	}
	if (rate->threshold > IO_THRESHOLD_MAX)
		rate->threshold = IO_THRESHOLD_MAX;
	rate->bytes += bytes;
	if (rate->threshold < IO_THRESHOLD_MIN)
		rate->threshold = IO_THRESHOLD_MIN;
	return rate->threshold;
}

/* Value of a call that moved @bytes, 0: not recorded. */
static __always_inline uint64_t io_value(uint64_t bytes, uint64_t now_ns)
{
	uint32_t zero = 0;
	struct io_rate *rate = bpf_map_lookup_elem(&io_rates, &zero);
	uint64_t threshold;

	if (!rate)
		return 0;
	threshold = io_threshold(rate, now_ns, bytes);
	if (bytes < threshold) {
		if (bpf_get_prandom_u32() * threshold >> 32 >= bytes)
			return 0;
		bytes = threshold;
	}
	rate->count++;
	return bytes;
}

static __always_inline void io_sample_begin(struct scratch *s, struct task_struct *task,
					    uint64_t bytes, uint64_t value)
{
	off_sample_begin(s, task, bpf_ktime_get_ns(), bytes, value);
	s->sample.type = PROF_SAMPLE_IO;
	s->sample.state = 0;
}

NAME_TURN(io_name_turn, io_scratch)

/* One call, or one request of io_uring. */
struct io_call {
	const struct arch_regs *regs; /* of the thread, as it entered the kernel */
	uint32_t detail;	      /* FILE where the kind depends on the file */
	uint64_t moved;		      /* bytes */
	struct file *file;	      /* NULL: the one that its first argument names */
};

static __always_inline void io_count(struct task_struct *task, uint64_t bytes)
{
	struct io_moved *moved = bpf_task_storage_get(&io_moved, task, 0,
						      BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (moved)
		moved->bytes += bytes;
	else
		outcome_count(OUTCOME_uncounted);
}

/* Everything before the walk. Returns the scratch to walk in, or NULL: nothing to record. */
static __always_inline struct scratch *io_begin(struct io_call call, bool with_loop)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct arch_regs *regs = call.regs;
	struct prof_target *target;
	uint32_t tgid = task->tgid;
	struct scratch *s;
	uint64_t value;

	target = bpf_map_lookup_elem(&targets, &tgid);
	if (target_wants(target, PROF_WANT_IO))
		return NULL;
	io_count(task, call.moved);
	value = io_value(call.moved, bpf_ktime_get_ns());
	if (!value)
		return NULL;
	s = scratch_enter(&io_scratch);
	if (!s) {
		outcome_count(OUTCOME_scratch_busy);
		return NULL;
	}
	io_sample_begin(s, task, call.moved, value);
	if (!call.file && !bpf_probe_read_kernel(&value, sizeof(value), &regs->di))
		call.file = file_of(task, value);
	s->sample.detail = call.detail == PROF_DETAIL_FILE ? detail_of_wait(wait_of_file(call.file))
							   : call.detail;
	kernel_stack_take(s, 0, false, false);
	if (call.file && names_are_wanted(tgid))
		name_of_file(s, call.file, io_name_turn);
	s->sample.kernel_stack_hash = stack_send(s);
	walk_none(s);
	if (!has_user_stack(task->mm, task->flags) ||
	    bpf_probe_read_kernel(&s->regs, sizeof(s->regs), regs) || !arch_is_user(&s->regs))
		return s;
	if (arch_is_compat32(&s->regs)) {
		outcome_count(OUTCOME_compat32);
		return s;
	}
	arch_start_unwind(&s->at, &s->regs);
	walk_begin(s, tgid, target, with_loop);
	return s;
}

/* What a system call that returned @moved has moved; detail NONE: nothing. */
static __always_inline struct io_call io_of_exit(struct pt_regs *regs, long moved)
{
	struct io_call call = { .regs = (const struct arch_regs *)regs, .moved = moved };

	if (moved > 0 && !arch_is_compat32(call.regs))
		call.detail = arch_moves_bytes(call.regs->orig_ax);
	return call;
}

static __always_inline void io_record(struct io_call call)
{
	struct cost_timer timer = cost_begin(PROF_PROGRAM_IO);
	struct scratch *s = call.detail ? io_begin(call, true) : NULL;

	if (s) {
		if (s->going)
			walk_whole(s);
		walked_send(s);
		scratch_leave(s);
	}
	cost_end(&timer);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(io_exit, struct pt_regs *regs, long moved)
{
	if (moved > 0)
		io_record(io_of_exit(regs, moved));
	return 0;
}

WALK_COMPAT(io_walk_turn, io_scratch)

/* For kernels without bpf_loop() (before v5.17). */
SEC("tp_btf/sys_exit")
int BPF_PROG(io_exit_compat, struct pt_regs *regs, long moved)
{
	struct io_call call = io_of_exit(regs, moved);
	struct cost_timer timer;
	struct scratch *s;

	if (!call.detail)
		return 0;
	timer = cost_begin(PROF_PROGRAM_IO);
	s = io_begin(call, false);
	if (s) {
		if (s->going)
			walk_compat(s, io_walk_turn);
		walked_send(s);
		scratch_leave(s);
	}
	cost_end(&timer);
	return 0;
}

/* ---- io_uring ------------------------------------------------------------------------------ */

/* Does a request with this code (enum io_uring_op of include/uapi/linux/io_uring.h) end with the number of bytes
 * it has moved? Multishot requests answer many times and are not told apart here. */
static __always_inline uint32_t io_ring_moves_bytes(uint8_t code)
{
	switch (code) {
	case 1:	 /* READV */
	case 2:	 /* WRITEV */
	case 4:	 /* READ_FIXED */
	case 5:	 /* WRITE_FIXED */
	case 22: /* READ */
	case 23: /* WRITE */
	case 30: /* SPLICE */
	case 33: /* TEE */
	case 60: /* READV_FIXED */
	case 61: /* WRITEV_FIXED */
		return PROF_DETAIL_FILE;
	case 9:	 /* SENDMSG */
	case 10: /* RECVMSG */
	case 26: /* SEND */
	case 27: /* RECV */
	case 47: /* SEND_ZC */
	case 48: /* SENDMSG_ZC */
		return PROF_DETAIL_SOCKET;
	default:
		return PROF_DETAIL_NONE;
	}
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(io_ring_done, void *ring, struct io_kiocb *request)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct io_call call = { 0 };
	int32_t moved;

	if (!bpf_core_field_exists(struct io_kiocb, cqe))
		return 0; /* before v5.19 the request is not told */
	moved = BPF_CORE_READ(request, cqe.res);
	if (moved <= 0)
		return 0;
	call.moved = moved;
	call.detail = io_ring_moves_bytes(BPF_CORE_READ(request, opcode));
	call.file = BPF_CORE_READ(request, file);
	call.regs = (const struct arch_regs *)bpf_task_pt_regs(task);
	io_record(call);
	return 0;
}

#endif
