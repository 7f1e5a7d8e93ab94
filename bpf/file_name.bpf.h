/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The name of the file, or the peer of the socket, that a call reads or writes, as frames behind
 * the kernel stack's (PROF_FRAME_NAME, decoded by agent/recording/file_name.h). So a name is sent
 * once and kept, like a stack. bpf_d_path() may not be used here, so the directories are followed
 * component by component up to the root of the mounts. A file has the name that the process in its
 * mount namespace uses. No lock is taken: a rename at this moment may show parts of both names. */
#ifndef PROFD_BPF_FILE_NAME_BPF_H
#define PROFD_BPF_FILE_NAME_BPF_H

#include "bpf/stack.bpf.h"
#include "bpf/target.bpf.h"

#include <bpf/bpf_endian.h>

#define NAME_TURNS	24u /* directories and mount points */
#define NAME_TEXT_WORDS 10u /* of a component: longer ones are cut */
#define NAME_FRAMES	256u /* a power of two: kernel stack and name */
#define NAME_END	(PROF_KERNEL_FRAMES_MAX + PROF_NAME_WORDS_MAX)

_Static_assert(NAME_END < NAME_FRAMES && NAME_FRAMES < STACK_FRAMES_MAX,
	       "room behind a kernel stack");
_Static_assert(NAME_TEXT_WORDS * 7 + 8 <= sizeof(((struct scratch *)0)->name.text),
	       "whole words are read");

static __always_inline void name_push(struct scratch *s, uint64_t form, uint64_t bits)
{
	uint64_t frame = (uint64_t)PROF_FRAME_NAME << PROF_FRAME_KIND_SHIFT |
			 form << PROF_NAME_FORM_SHIFT | (bits & PROF_NAME_BITS);
	uint32_t at = s->stack.frame_count;

	if (at >= NAME_END || (form != PROF_NAME_KIND && s->name.words >= PROF_NAME_WORDS_MAX - 1)) {
		s->name.cut = 1;
		return;
	}
	s->name.words++;
	s->frames[index_within(at, NAME_FRAMES)] = frame;
	s->stack.stack_hash = hash_frame(s->stack.stack_hash, frame);
	s->stack.frame_count = at + 1;
}

/* One component, of the kernel's text at @text. */
static __always_inline void name_text(struct scratch *s, const void *text)
{
	long left = bpf_probe_read_kernel_str(s->name.text, NAME_TEXT_WORDS * 7 + 1, text) - 1;

	for (uint32_t i = 0; i < NAME_TEXT_WORDS; i++) {
		uint64_t bits = *(uint64_t *)(s->name.text + i * 7);

		if (left <= 0)
			break;
		if (left < 7)
			bits &= (1ull << (left & 7) * 8) - 1;
		name_push(s, i ? PROF_NAME_MORE : PROF_NAME_BEGIN, bits);
		left -= 7;
	}
}

/* One directory up, or from the root of a mount to where it is mounted. 1: the last. */
static __always_inline int name_step(struct scratch *s)
{
	struct dentry *dentry = (void *)s->name.dentry, *parent;
	struct mount *mount = (void *)s->name.mount, *outer;

	if (dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
		outer = BPF_CORE_READ(mount, mnt_parent);
		s->name.dentry = (uint64_t)BPF_CORE_READ(mount, mnt_mountpoint);
		s->name.mount = (uint64_t)outer;
		s->name.whole = outer == mount;
		return s->name.whole;
	}
	parent = BPF_CORE_READ(dentry, d_parent);
	name_text(s, BPF_CORE_READ(dentry, d_name.name));
	s->name.dentry = (uint64_t)parent;
	s->name.whole = parent == dentry; /* [eventfd] and the like have no directory */
	return s->name.whole;
}

/* A global function is verified once, and the loop that calls it is short; it takes numbers only,
 * and one that it did not use would be left out by its callers. */
#define NAME_TURN(turn, map)                                                                       \
	__attribute__((noinline)) int turn(uint32_t index)                                         \
	{                                                                                          \
		uint32_t zero = 0;                                                                 \
		struct scratch *s = bpf_map_lookup_elem(&(map), &zero);                            \
                                                                                                   \
		asm volatile("" : : "r"(index));                                                   \
		return s ? name_step(s) : 1;                                                       \
	}

static __always_inline void name_unix(struct scratch *s, struct sock *sk)
{
	struct unix_sock *own = (void *)sk, *peer = NULL;
	struct unix_address *address = NULL;
	const char *path;
	char first = 0;

	if (!bpf_core_type_exists(struct unix_sock))
		return;
	/* The end that is bound has the name that both know. */
	peer = (void *)BPF_CORE_READ(own, peer);
	if (peer)
		address = BPF_CORE_READ(peer, addr);
	if (!address)
		address = BPF_CORE_READ(own, addr);
	if (address) {
		path = (const char *)address + bpf_core_field_offset(address->name[0].sun_path);
		if (!bpf_probe_read_kernel(&first, sizeof(first), path))
			name_text(s, first ? path : path + 1);
	}
	name_push(s, PROF_NAME_KIND, address && !first ? PROF_NAME_UNIX_ABSTRACT : PROF_NAME_UNIX);
}

static __always_inline void name_socket(struct scratch *s, struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock *sk = BPF_CORE_READ(socket, sk);
	uint32_t family = BPF_CORE_READ(sk, __sk_common.skc_family);
	uint64_t port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	bool stream = BPF_CORE_READ(socket, type) == 1; /* SOCK_STREAM */
	uint64_t *address = (uint64_t *)s->name.text;

	if (family == AF_UNIX) {
		name_unix(s, sk);
	} else if (family == AF_INET) {
		name_push(s, PROF_NAME_KIND,
			  (stream ? PROF_NAME_TCP : PROF_NAME_UDP) | port << 8 |
				  (uint64_t)BPF_CORE_READ(sk, __sk_common.skc_daddr) << 24);
	} else if (family == AF_INET6) {
		BPF_CORE_READ_INTO((struct in6_addr *)s->name.text, sk, __sk_common.skc_v6_daddr);
		name_push(s, PROF_NAME_MORE, address[0]);
		name_push(s, PROF_NAME_MORE, address[0] >> 56 | address[1] << 8);
		name_push(s, PROF_NAME_MORE, address[1] >> 48);
		name_push(s, PROF_NAME_KIND, (stream ? PROF_NAME_TCP6 : PROF_NAME_UDP6) | port << 8);
	}
}

/* Takes what is known of @file at once. True: it has a path, to be followed by the turns. */
static __always_inline bool name_begin(struct scratch *s, struct file *file)
{
	uint32_t mode = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;

	s->name.words = s->name.whole = s->name.cut = 0;
	if (mode == S_IFIFO) {
		name_push(s, PROF_NAME_KIND, PROF_NAME_PIPE | BPF_CORE_READ(file, f_inode, i_ino) << 8);
		return false;
	}
	if (mode == S_IFSOCK) {
		name_socket(s, file);
		return false;
	}
	s->name.dentry = (uint64_t)BPF_CORE_READ(file, f_path.dentry);
	s->name.mount = (uint64_t)BPF_CORE_READ(file, f_path.mnt) -
			bpf_core_field_offset(struct mount, mnt);
	return true;
}

#define name_of_file(s, file, turn)                                                                \
	do {                                                                                       \
		if (!name_begin(s, file))                                                          \
			break;                                                                     \
		for (uint32_t i_ = 0; i_ < NAME_TURNS; i_++)                                       \
			if (turn(i_))                                                              \
				break;                                                             \
		name_push(s, PROF_NAME_KIND,                                                       \
			  (s)->name.whole && !(s)->name.cut ? PROF_NAME_PATH : PROF_NAME_CUT_PATH);                  \
	} while (0)

static __always_inline bool names_are_wanted(uint32_t tgid)
{
	return have_file_names &&
	       !target_wants(bpf_map_lookup_elem(&targets, &tgid), PROF_WANT_PATHS);
}

#endif
