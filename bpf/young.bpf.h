/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The executable mappings of a process whose mappings are not published yet, read from the kernel's
 * own structures at the moment of the sample.
 *
 * No lock is taken, and no helper or kfunc is used: bpf_find_vma() may be called once an interrupt,
 * and the task_vma iterator refuses where interrupts are off (-EBUSY in current stable kernels),
 * which is where samplers run. Instead bpf_probe_read_kernel() follows the structure. The program
 * runs inside an RCU read section, and maple nodes and mappings are freed only after a grace
 * period. A read that meets a change by another thread misses a mapping and never faults.
 *
 *   v6.1 and newer  the maple tree mm->mm_mt (lib/maple_tree.c). A node has 256 bytes; a pointer to
 *                   it carries its type in bits 3-6. Slot i holds the entry that ends at pivot i. A
 *                   pivot of 0 behind the first one, or one at the node's own end, is the last.
 *   before          the list mm->mmap, vma->vm_next
 */
#ifndef PROFD_BPF_YOUNG_BPF_H
#define PROFD_BPF_YOUNG_BPF_H

#include "bpf/stats.bpf.h"

#include <bpf/bpf_core_read.h>

#define YOUNG_TURNS	 1024u /* mappings of the list, or nodes of the tree and slots of its leaves */
#define YOUNG_NO_FILE	 ~0u  /* dev_major of memory without a file: no file has it */
#define MAPLE_NODE_MASK	 255ull
#define MAPLE_TYPE_MASK	 15u
#define MAPLE_TYPE_SHIFT 3u
#define MAPLE_SLOTS	 16u

/* The inode of a mapped file as the kernel prints it: if an overlay or FUSE mapped the file of
 * another file system, the inode that the user opened (since v6.8). The flag of such files was bit
 * 25 until v6.14 made it bit 24. Each of the two bits has had other meanings in other versions, so
 * the type of the file system decides. */
static __always_inline struct inode *young_inode(struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode), *opened;
	struct backing_file *backing = (void *)file;
	unsigned long magic;

	if (!bpf_core_field_exists(struct backing_file, user_path) ||
	    !(BPF_CORE_READ(file, f_mode) & FMODE_BACKING))
		return inode;
	opened = BPF_CORE_READ(backing, user_path.dentry, d_inode);
	magic = BPF_CORE_READ(opened, i_sb, s_magic);
	return magic == OVERLAYFS_SUPER_MAGIC || magic == FUSE_SUPER_MAGIC ? opened : inode;
}

/* The file's identity as /proc/PID/maps prints it. */
static __always_inline void young_file(struct file *file, struct prof_file_key *key)
{
	struct inode *inode = young_inode(file);
	uint32_t device;

	device = BPF_CORE_READ(inode, i_sb, s_dev);
	key->inode = BPF_CORE_READ(inode, i_ino);
	key->dev_major = device >> 20; /* MAJOR(), include/linux/kdev_t.h */
	key->dev_minor = device & ((1u << 20) - 1);
}

/* Remembers one mapping if it is executable. Without a file: the vDSO gets the key of all zeros,
 * other memory (JIT) one that no file has. */
static __always_inline void young_add(struct scratch *s, struct vm_area_struct *vma)
{
	uint32_t at = s->vma_count;
	struct young_vma *young;
	struct file *file;

	if (!(BPF_CORE_READ(vma, vm_flags) & VM_EXEC))
		return;
	if (at >= YOUNG_VMAS_MAX) {
		s->young.overflow = 1;
		return;
	}
	file = BPF_CORE_READ(vma, vm_file);
	young = &s->vmas[index_within(at, YOUNG_VMAS_MAX)];
	young->start = BPF_CORE_READ(vma, vm_start);
	young->end = BPF_CORE_READ(vma, vm_end);
	young->file_offset = 0;
	young->file = (struct prof_file_key){};
	if (file) {
		young->file_offset = (uint64_t)BPF_CORE_READ(vma, vm_pgoff) << PAGE_SHIFT;
		young_file(file, &young->file);
	} else if (young->start != s->young.vdso) {
		young->file.dev_major = YOUNG_NO_FILE;
	}
	s->vma_count++;
}

/* ---- the list ------------------------------------------------------------------------------ */

/* The next mapping in @vma; 1 at the end of the list. */
static __always_inline long list_turn(struct scratch *s, struct vm_area_struct **vma)
{
	struct vm_area_struct___list *listed = (void *)s->young.node;

	s->young.whole = !listed;
	if (!listed)
		return 1;
	*vma = (void *)listed;
	s->young.node = (uint64_t)BPF_CORE_READ(listed, vm_next);
	return 0;
}

/* ---- the tree ------------------------------------------------------------------------------ */

static __always_inline void tree_restart(struct scratch *s)
{
	s->young.node = s->young.root;
	s->young.node_end = ~0ull;
	s->young.slot = MAPLE_SLOTS;
}

/* The next slot of a leaf, one in each turn, so that a verifier follows one of them; behind the
 * last from the root again. */
static __always_inline long tree_slot(struct scratch *s, struct vm_area_struct **vma)
{
	const uint32_t pivots = bpf_core_field_offset(struct maple_range_64, pivot) / 8;
	const uint32_t slots = bpf_core_field_offset(struct maple_range_64, slot) / 8;
	uint32_t i = s->young.slot;
	uint64_t entry = s->young.words[(slots + i) & 31];
	uint64_t pivot = s->young.words[(pivots + i) & 31];

	if (entry >> 63 && !(entry & 3)) /* not a gap, not the node's own metadata */
		*vma = (void *)entry;
	s->young.slot = i + 1;
	if (i < MAPLE_SLOTS - 1 && !(i && !pivot) && pivot < s->young.node_end)
		return 0;
	if (s->young.node_end >= ARCH_USER_END) {
		s->young.whole = 1;
		return 1;
	}
	s->young.cursor = s->young.node_end + 1;
	tree_restart(s);
	return 0;
}

/* The child that the cursor lies in. @words: index of the first pivot and slot, number of slots. */
static __always_inline void tree_child(struct scratch *s, uint32_t pivots, uint32_t slots,
				       uint32_t count)
{
	for (uint32_t i = 0; i < MAPLE_SLOTS; i++) {
		uint64_t pivot = s->young.words[(pivots + i) & 31];

		s->young.node = s->young.words[(slots + i) & 31];
		if (i >= count - 1 || (i && !pivot) || pivot >= s->young.node_end)
			return;
		if (s->young.cursor <= pivot) {
			s->young.node_end = pivot;
			return;
		}
	}
}

/* Reads one node, or takes one slot of a leaf that was read: its mapping in @vma, if it has one; 1
 * at the end of the tree. */
static __always_inline long tree_turn(struct scratch *s, struct vm_area_struct **vma)
{
	uint64_t node = s->young.node;
	uint32_t type = node >> MAPLE_TYPE_SHIFT & MAPLE_TYPE_MASK;

	if (s->young.slot < MAPLE_SLOTS)
		return tree_slot(s, vma);
	if (bpf_probe_read_kernel(s->young.words, sizeof(s->young.words),
				  (void *)(node & ~MAPLE_NODE_MASK)))
		return 1;
	if (type == bpf_core_enum_value(enum maple_type, maple_leaf_64))
		s->young.slot = 0;
	else if (type == bpf_core_enum_value(enum maple_type, maple_arange_64))
		tree_child(s, bpf_core_field_offset(struct maple_arange_64, pivot) / 8,
			   bpf_core_field_offset(struct maple_arange_64, slot) / 8,
			   bpf_core_field_size(struct maple_arange_64, slot) / 8);
	else if (type == bpf_core_enum_value(enum maple_type, maple_range_64))
		tree_child(s, bpf_core_field_offset(struct maple_range_64, pivot) / 8,
			   bpf_core_field_offset(struct maple_range_64, slot) / 8, MAPLE_SLOTS);
	else
		return 1;
	return 0;
}

/* ---- both ---------------------------------------------------------------------------------- */

static __always_inline void young_begin(struct scratch *s)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	struct mm_struct___arch *with_vdso = (void *)mm;
	struct mm_struct___list *with_list = (void *)mm;
	struct mm_struct___tree *with_tree = (void *)mm;

	s->young.begun = 1;
	s->young.whole = 0;
	s->young.overflow = 0;
	s->young.vdso = (uint64_t)BPF_CORE_READ(with_vdso, context.vdso);
	if (bpf_core_field_exists(struct mm_struct___list, mmap)) {
		s->young.node = (uint64_t)BPF_CORE_READ(with_list, mmap);
	} else if (bpf_core_field_exists(struct mm_struct___tree, mm_mt)) {
		s->young.root = (uint64_t)BPF_CORE_READ(with_tree, mm_mt.ma_root);
		s->young.cursor = 0;
		tree_restart(s);
	}
}

/* Reads on, and fills s->vmas in the order of addresses; 1 when nothing is left to read. */
static __always_inline long young_turn(struct scratch *s)
{
	struct vm_area_struct *vma = NULL;
	long ended = 1;

	if (bpf_core_field_exists(struct mm_struct___list, mmap))
		ended = list_turn(s, &vma);
	else if (bpf_core_field_exists(struct mm_struct___tree, mm_mt))
		ended = tree_turn(s, &vma);
	if (vma)
		young_add(s, vma);
	return ended;
}

/* No executable mapping is missing in s->vmas. */
static __always_inline bool young_is_whole(const struct scratch *s)
{
	return s->young.whole && !s->young.overflow;
}

#endif
