/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Bytes that io_uring moves: told by the tracepoint of completions, in the thread that asked for
 * them or in one of the kernel's that works for its process.
 *
 * A completion names its request, but not one of several that the same request posts (multishot
 * receives and reads, bundles; io_fill_cqe_aux() of io_uring/io_uring.c), nor one that finds no
 * room in its ring: these say ring and user data only. So requests that can post many are
 * remembered by those before they are issued: where they are submitted, and where what they poll
 * wakes them, which also finds those that were submitted before anybody wanted bytes. Programs tell
 * such requests apart by the same user data: of two that share it, the file is that of the one seen
 * last. */
#ifndef PROFD_BPF_IO_RING_BPF_H
#define PROFD_BPF_IO_RING_BPF_H

#include "bpf/io.bpf.h"

/* include/uapi/linux/io_uring.h */
#define RING_RECVMSG	    10
#define RING_SEND	    26
#define RING_RECV	    27
#define RING_READ_MULTISHOT 49

#define RING_RECV_MULTISHOT 0x02 /* IORING_RECV_MULTISHOT: of a request */
#define RING_BUNDLE	    0x10 /* IORING_RECVSEND_BUNDLE */
#define RING_BUFFER	    0x01 /* IORING_CQE_F_BUFFER: the completion used a provided buffer */
#define RING_MORE	    0x02 /* IORING_CQE_F_MORE */

#define RING_RECVMSG_OUT_BYTES 16 /* struct io_uring_recvmsg_out */

/* Does a request with this code (enum io_uring_op) end with the number of bytes it has moved? */
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
	case RING_READ_MULTISHOT:
	case 60: /* READV_FIXED */
	case 61: /* WRITEV_FIXED */
		return PROF_DETAIL_FILE;
	case 9: /* SENDMSG */
	case RING_RECVMSG:
	case RING_SEND:
	case RING_RECV:
	case 47: /* SEND_ZC */
	case 48: /* SENDMSG_ZC */
		return PROF_DETAIL_SOCKET;
	default:
		return PROF_DETAIL_NONE;
	}
}

/* Does this kernel keep what is asked here where it is looked for? */
static __always_inline bool io_ring_is_known(void)
{
	return bpf_core_field_exists(struct io_sr_msg, flags) &&
	       bpf_core_field_exists(struct io_sr_msg, umsg) &&
	       bpf_core_field_exists(struct io_async_msghdr, namelen) &&
	       bpf_core_field_exists(struct io_async_msghdr, controllen);
}

/* Can it post many completions that move bytes? All of them use up provided buffers and say so. */
static __always_inline bool io_ring_posts_many(struct io_kiocb *request)
{
	uint8_t code = BPF_CORE_READ(request, opcode);

	if (code != RING_RECV && code != RING_RECVMSG && code != RING_SEND)
		return code == RING_READ_MULTISHOT;
	if (!io_ring_is_known())
		return true;
	return BPF_CORE_READ((struct io_sr_msg *)request, flags) &
	       (code == RING_SEND ? RING_BUNDLE : RING_RECV_MULTISHOT);
}

/* ---- before requests are issued -------------------------------------------------------------- */

/* The bytes that completions of a RECVMSG that posts many count beside the payload: a header and
 * the room that the message's own leaves for a name and control data, whether used or not
 * (io_recvmsg_multishot() of io_uring/net.c). Negative: not known. */
static __always_inline int64_t io_ring_beside(struct io_kiocb *request)
{
	struct io_async_msghdr *kept = BPF_CORE_READ(request, async_data);
	struct task_struct *task = bpf_get_current_task_btf();
	struct message_header header;

	if (kept)
		return RING_RECVMSG_OUT_BYTES + BPF_CORE_READ(kept, namelen) + BPF_CORE_READ(kept, controllen);
	/* It was submitted just now by this thread, and the kernel is about to read its header
	 * (before 6.10). */
	if (arch_is_compat32((const struct arch_regs *)bpf_task_pt_regs(task)) ||
	    bpf_probe_read_user(&header, sizeof(header), BPF_CORE_READ((struct io_sr_msg *)request, umsg)))
		return -1;
	return RING_RECVMSG_OUT_BYTES + header.name_bytes + header.control_bytes;
}

static __always_inline int io_ring_remember(struct io_kiocb *request)
{
	struct io_ring_shot shot = { .request = request };
	struct io_ring_key key;
	int64_t beside = 0;

	if (!io_ring_is_known() || !io_ring_posts_many(request))
		return 0;
	if (BPF_CORE_READ(request, opcode) == RING_RECVMSG)
		beside = io_ring_beside(request);
	if (beside < 0)
		return 0;
	shot.beside = beside;
	key.ring = (uint64_t)BPF_CORE_READ(request, ctx);
	key.user_data = BPF_CORE_READ(request, cqe.user_data);
	bpf_map_update_elem(&io_ring_shots, &key, &shot, BPF_ANY);
	return 0;
}

/* io_uring_submit_sqe in older kernels, such as 6.1 */
SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(io_ring_submit, struct io_kiocb *request)
{
	return io_ring_remember(request);
}

SEC("tp_btf/io_uring_task_add")
int BPF_PROG(io_ring_wake, struct io_kiocb *request)
{
	return io_ring_remember(request);
}

/* ---- where they end -------------------------------------------------------------------------- */

static __always_inline struct io_call io_ring_call(struct io_kiocb *request, int64_t moved)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct io_call call = { .regs = (const struct arch_regs *)bpf_task_pt_regs(task) };

	if (moved <= 0)
		return call;
	call.detail = io_ring_moves_bytes(BPF_CORE_READ(request, opcode));
	call.moved = moved;
	call.file = BPF_CORE_READ(request, file);
	return call;
}

static __always_inline struct io_call io_ring_unknown(void)
{
	uint32_t tgid = bpf_get_current_pid_tgid() >> 32;

	if (!target_wants(bpf_map_lookup_elem(&targets, &tgid), PROF_WANT_IO))
		outcome_count(OUTCOME_request_unknown);
	return (struct io_call){ .detail = PROF_DETAIL_NONE };
}

/* The call of the request that a completion names, with which it ends. */
static __always_inline struct io_call io_ring_last(struct io_kiocb *request, int64_t moved)
{
	struct io_ring_shot *shot;
	struct io_ring_key key;

	if (!have_ring_shots || !io_ring_posts_many(request))
		return io_ring_call(request, moved);
	key.ring = (uint64_t)BPF_CORE_READ(request, ctx);
	key.user_data = BPF_CORE_READ(request, cqe.user_data);
	shot = bpf_map_lookup_elem(&io_ring_shots, &key);
	if (shot && shot->request == request)
		moved -= shot->beside;
	else if (moved > 0 && BPF_CORE_READ(request, opcode) == RING_RECVMSG)
		return io_ring_unknown();
	bpf_map_delete_elem(&io_ring_shots, &key);
	return io_ring_call(request, moved);
}

/* It is still what it was remembered as: its memory may have been used again. */
static __always_inline bool io_ring_is(struct io_kiocb *request, const struct io_ring_key *key)
{
	return (uint64_t)BPF_CORE_READ(request, ctx) == key->ring &&
	       BPF_CORE_READ(request, cqe.user_data) == key->user_data && io_ring_posts_many(request);
}

/* The call of a completion that names no request. @full: it found no room in its ring, so it may be
 * anybody's. */
static __always_inline struct io_call io_ring_unnamed(const struct io_ring_key *key, int32_t moved,
						      uint32_t flags, bool full)
{
	struct io_call call = { .detail = PROF_DETAIL_NONE };
	struct io_ring_shot *shot;

	if (!(flags & RING_BUFFER) && !full)
		return call;
	shot = have_ring_shots ? bpf_map_lookup_elem(&io_ring_shots, key) : NULL;
	if (moved > 0)
		call = shot && flags & RING_BUFFER && io_ring_is(shot->request, key)
			       ? io_ring_call(shot->request, (int64_t)moved - shot->beside)
			       : io_ring_unknown();
	if (shot && !(flags & RING_MORE))
		bpf_map_delete_elem(&io_ring_shots, key);
	return call;
}

/* Before v5.18 (502c87d65564 "io-uring: Make tracepoints consistent.") the request is not told.
 * The completion comes as arguments of their own in 6.12, and as one in 6.18. */
SEC("tp_btf/io_uring_complete")
int io_ring_done(unsigned long long *arguments)
{
	struct io_ring_key key = { .ring = arguments[0] };
	struct io_kiocb *request = (struct io_kiocb *)arguments[1];
	struct io_uring_cqe done;
	struct io_call call;

	if (!bpf_core_field_exists(struct io_kiocb, cqe))
		return 0;
	if (request) {
		call = io_ring_last(request, BPF_CORE_READ(request, cqe.res));
	} else {
		if (!ring_tells_cqe)
			done = (struct io_uring_cqe){ arguments[2], arguments[3], arguments[4] };
		else if (bpf_probe_read_kernel(&done, sizeof(done), (const void *)arguments[2]))
			return 0;
		key.user_data = done.user_data;
		call = io_ring_unnamed(&key, done.res, done.flags, false);
	}
	io_note(call, IO_ALL, 0, true);
	return 0;
}

SEC("tp_btf/io_uring_cqe_overflow")
int BPF_PROG(io_ring_full, void *ring, uint64_t user_data, int32_t moved, uint32_t flags)
{
	struct io_ring_key key = { (uint64_t)ring, user_data };
	struct io_call call = io_ring_unnamed(&key, moved, flags, true);

	io_note(call, IO_ALL, 0, true);
	return 0;
}

#endif
