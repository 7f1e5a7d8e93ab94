/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From an address of the current process to the mapping it lies in: the last frame's mapping, else the
 * published mappings (a trie), else, for a process whose mappings are not published yet, its own list of
 * mappings in the kernel, read at most once per sample. */
#ifndef PROFD_BPF_MAPPING_BPF_H
#define PROFD_BPF_MAPPING_BPF_H

#include "bpf/stats.bpf.h"

#include <bpf/bpf_core_read.h>

/* Open-coded iterator over a task's mappings (kfuncs since v6.7, 4ac454682158 "bpf: Introduce task_vma
 * open-coded iterator kfuncs"). Takes the mmap lock by trylock; where interrupts are off the lock is
 * released by an irq_work of which a CPU has one, hence at most one iterator or bpf_find_vma a sample. */
struct bpf_iter_task_vma {
	uint64_t opaque[1];
} __attribute__((aligned(8)));
extern int bpf_iter_task_vma_new(struct bpf_iter_task_vma *it, struct task_struct *task,
				 uint64_t address) __ksym __weak;
extern struct vm_area_struct *bpf_iter_task_vma_next(struct bpf_iter_task_vma *it) __ksym __weak;
extern void bpf_iter_task_vma_destroy(struct bpf_iter_task_vma *it) __ksym __weak;

/* The file's identity as /proc/PID/maps prints it: where an overlay mapped the file of a layer, the
 * kernel prints the overlay's own inode (since v6.8). */
static __always_inline void young_file(struct file *file, struct prof_file_key *key)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	uint32_t device;

	if (bpf_core_field_exists(struct backing_file, user_path) &&
	    BPF_CORE_READ(file, f_mode) & FMODE_BACKING) {
		struct backing_file *backing = (void *)file;

		inode = BPF_CORE_READ(backing, user_path.dentry, d_inode);
	}
	device = BPF_CORE_READ(inode, i_sb, s_dev);
	key->inode = BPF_CORE_READ(inode, i_ino);
	key->dev_major = device >> 20; /* MAJOR(), include/linux/kdev_t.h */
	key->dev_minor = device & ((1u << 20) - 1);
}

/* Remembers one mapping if it is executable. Without a file: the vDSO gets the key of all zeros, other
 * memory (JIT) one that no file has. */
static __always_inline void young_add(struct scratch *s, struct vm_area_struct *vma, uint64_t vdso)
{
	uint32_t at = s->vma_count;
	uint64_t start = BPF_CORE_READ(vma, vm_start);
	struct young_vma *young;
	struct file *file;

	if (!(BPF_CORE_READ(vma, vm_flags) & VM_EXEC) || at >= YOUNG_VMAS_MAX)
		return;
	file = BPF_CORE_READ(vma, vm_file);
	young = &s->vmas[at];
	young->start = start;
	young->end = BPF_CORE_READ(vma, vm_end);
	young->file_offset = 0;
	young->file = (struct prof_file_key){};
	if (file) {
		young->file_offset = (uint64_t)BPF_CORE_READ(vma, vm_pgoff) << PAGE_SHIFT;
		young_file(file, &young->file);
	} else if (start != vdso) {
		young->file.dev_major = ~0u;
	}
	s->vma_count = at + 1;
}

static __always_inline uint64_t young_vdso(struct task_struct *task)
{
	struct mm_struct___x86 *mm = (void *)BPF_CORE_READ(task, mm);

	return (uint64_t)BPF_CORE_READ(mm, context.vdso);
}

static __always_inline void young_scan(struct scratch *s, struct task_struct *task)
{
	uint64_t vdso = young_vdso(task);
	struct bpf_iter_task_vma it;
	struct vm_area_struct *vma;

	bpf_iter_task_vma_new(&it, task, 0);
	while ((vma = bpf_iter_task_vma_next(&it))) {
		young_add(s, vma, vdso);
		/* counted in memory: a register's value would make every turn a new state to verify */
		if (++s->vma_seen >= YOUNG_SCAN_MAX)
			break;
	}
	bpf_iter_task_vma_destroy(&it);
	s->code_is_listed = s->vma_seen && s->vma_seen < YOUNG_SCAN_MAX &&
			    s->vma_count < YOUNG_VMAS_MAX;
}

/* The context of a callback must lie on the stack. */
struct young_context {
	struct scratch *scratch;
};

static long young_found(struct task_struct *task, struct vm_area_struct *vma, void *context)
{
	young_add(((struct young_context *)context)->scratch, vma, 0);
	return 0;
}

/* Fills the list of a young process: all its mappings, or, where the kernel cannot list them, the one
 * that the innermost frame is in, which holds most frames of a small program. */
static __always_inline void young_begin(struct scratch *s)
{
	struct young_context context = { .scratch = s };

	if (have_vma_iter)
		young_scan(s, bpf_get_current_task_btf());
	else if (have_find_vma)
		bpf_find_vma(bpf_get_current_task_btf(), s->at.ip, young_found, &context, 0);
}

enum mapping_found {
	MAPPING_NONE,
	MAPPING_CODE,  /* executable memory, but of no known file */
	MAPPING_KNOWN, /* s->map */
};

/* The last mapping that starts at or before @address; the kernel lists them in order. */
static __always_inline enum mapping_found young_find(struct scratch *s, uint64_t address)
{
	uint32_t low = 0, count = s->vma_count;
	struct young_vma *vma;
	struct prof_file *file;

	if (!count)
		return MAPPING_NONE;
	for (uint32_t step = 0; step < 7 && count > 1; step++) {
		uint32_t half = count >> 1;

		if (s->vmas[(low + half) & (YOUNG_VMAS_MAX - 1)].start <= address) {
			low += half;
			count -= half;
		} else {
			count = half;
		}
	}
	vma = &s->vmas[low & (YOUNG_VMAS_MAX - 1)];
	if (address - vma->start >= vma->end - vma->start)
		return MAPPING_NONE;
	file = bpf_map_lookup_elem(&files, &vma->file);
	if (!file)
		return MAPPING_CODE;
	s->map.start = vma->start;
	s->map.end = vma->end;
	s->map.mapping.bias = vma->start - vma->file_offset;
	s->map.mapping.module = file->module;
	s->map.mapping.flags = file->flags;
	return MAPPING_KNOWN;
}

static __always_inline bool trie_find(struct scratch *s, uint64_t address)
{
	struct prof_mapping_key key = {
		.prefix_bits = 96,
		.tgid_be = __builtin_bswap32(s->stack.tgid),
		.address_be = __builtin_bswap64(address),
	};
	struct prof_mapping_range *range = bpf_map_lookup_elem(&mappings, &key);

	if (!range)
		return false;
	s->map = *range;
	return true;
}

/* Puts the mapping of @address into s->map if it is known. */
static __always_inline enum mapping_found mapping_find(struct scratch *s, uint64_t address)
{
	enum mapping_found found;

	if (address - s->map.start < s->map.end - s->map.start)
		return MAPPING_KNOWN;
	if (trie_find(s, address))
		return MAPPING_KNOWN;
	found = young_find(s, address);
	if (found != MAPPING_KNOWN)
		s->map.start = s->map.end = 0;
	return found;
}

#endif
