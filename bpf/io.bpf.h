/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes read and written. A call that moves n bytes is recorded always if n is at least the threshold t,
 * else with probability n / t, and then with the value t: the expected value is n. The threshold is the
 * CPU's own and follows what is moved, so that a CPU records a bounded number of calls a second; it is
 * decided by what came before, so that the present call has no part in it.
 *
 * Where a call ends is the only place that sees what was moved, for every kind of file and also without
 * waiting; the kernel lets no cheaper hook be attached everywhere. Every system call of the host takes the
 * longer way meanwhile, so it is attached only while somebody wants bytes. */
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
	s->sample.kernel_stack_hash = 0;
}

/* Everything before the walk. Returns the scratch to walk in, or NULL: nothing to record. */
static __always_inline struct scratch *io_begin(const struct arch_regs *regs, long moved,
						bool with_loop)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t number = regs->orig_ax, value;
	struct prof_target *target;
	uint32_t detail, tgid = task->tgid;
	struct scratch *s;

	detail = arch_moves_bytes(number);
	if (!detail)
		return NULL;
	target = bpf_map_lookup_elem(&targets, &tgid);
	if (target_wants(target, PROF_WANT_IO))
		return NULL;
	value = io_value(moved, bpf_ktime_get_ns());
	if (!value)
		return NULL;
	s = scratch_enter(&io_scratch);
	if (!s) {
		outcome_count(OUTCOME_scratch_busy);
		return NULL;
	}
	io_sample_begin(s, task, moved, value);
	s->sample.detail = detail == PROF_DETAIL_FILE
				   ? detail_of_wait(wait_of_file(task, regs->di))
				   : detail;
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

SEC("tp_btf/sys_exit")
int BPF_PROG(io_exit, struct pt_regs *regs, long moved)
{
	struct cost_timer timer;
	struct scratch *s;

	if (moved <= 0)
		return 0;
	timer = cost_begin(PROF_PROGRAM_IO);
	s = io_begin((const struct arch_regs *)regs, moved, true);
	if (s) {
		if (s->going)
			walk_whole(s);
		walked_send(s);
		scratch_leave(s);
	}
	cost_end(&timer);
	return 0;
}

WALK_COMPAT(io_walk_turn, io_scratch)

/* For kernels without bpf_loop() (before v5.17). */
SEC("tp_btf/sys_exit")
int BPF_PROG(io_exit_compat, struct pt_regs *regs, long moved)
{
	struct cost_timer timer;
	struct scratch *s;

	if (moved <= 0)
		return 0;
	timer = cost_begin(PROF_PROGRAM_IO);
	s = io_begin((const struct arch_regs *)regs, moved, false);
	if (s) {
		if (s->going)
			walk_compat(s, io_walk_turn);
		walked_send(s);
		scratch_leave(s);
	}
	cost_end(&timer);
	return 0;
}

#endif
