// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/target_image.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/reader/watch.h"

#define BLOCK_SHIFT  14
#define BLOCK_BYTES  (1u << BLOCK_SHIFT)
#define BLOCK_COUNT  128u /* 2 MiB of cache */
#define SCAN_BYTES   (1u << 20)
#define NOTE_BYTES   4096u
#define PHDRS_MAX    64u
#define IMAGE_SEGMENT_MAX (1ull << 40) /* bytes of one segment */
#define GO_NOTE_TYPE 4u /* cmd/link: ELF_NOTE_GOBUILDID_TAG, name "Go" */

struct image_block {
	uint64_t va; /* of the first byte; 0 = empty */
	uint32_t len;
	uint8_t data[BLOCK_BYTES];
};

/* ---- opening --------------------------------------------------------------------------------- */

static void image_note(struct image *image, const uint8_t *data, size_t len)
{
	size_t at = 0;

	while (len - at >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr head;
		size_t name_bytes, desc_bytes;
		const uint8_t *name = data + at + sizeof(head);

		memcpy(&head, data + at, sizeof(head));
		at += sizeof(head);
		name_bytes = ((size_t)head.n_namesz + 3) & ~(size_t)3;
		desc_bytes = ((size_t)head.n_descsz + 3) & ~(size_t)3;
		if (name_bytes > len - at || desc_bytes > len - at - name_bytes)
			return;
		if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
		    !memcmp(name, "GNU", 4) && head.n_descsz &&
		    head.n_descsz <= IMAGE_BUILD_ID_MAX) {
			image->build_id_len = (uint8_t)head.n_descsz;
			memcpy(image->build_id, name + name_bytes, head.n_descsz);
		}
		if (head.n_type == GO_NOTE_TYPE && head.n_namesz == 4 && !memcmp(name, "Go\0", 4) &&
		    head.n_descsz && head.n_descsz <= IMAGE_GO_ID_MAX) {
			image->go_id_len = (uint8_t)head.n_descsz;
			memcpy(image->go_id, name + name_bytes, head.n_descsz);
		}
		at += name_bytes + desc_bytes;
	}
}

/* Go's linker puts a GNU build-id note (from 1.24) right behind its own but leaves it out of
 * PT_NOTE. */
static void image_note_behind(struct image *image, uint64_t va)
{
	uint8_t data[sizeof(Elf64_Nhdr) + 4 + IMAGE_BUILD_ID_MAX];
	size_t len = sizeof(data);

	while (image_read(image, va, data, len) < 0) {
		if (len <= sizeof(Elf64_Nhdr))
			return;
		len -= 4;
	}
	image_note(image, data, len);
}

static void image_notes(struct image *image, const Elf64_Phdr *phdrs, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		uint64_t va = image->bias + phdrs[i].p_vaddr;
		uint8_t data[NOTE_BYTES];
		size_t len = phdrs[i].p_filesz < sizeof(data) ? phdrs[i].p_filesz : sizeof(data);

		if (phdrs[i].p_type != PT_NOTE || image_read(image, va, data, len) < 0)
			continue;
		image_note(image, data, len);
		if (image->go_id_len && !image->build_id_len)
			image_note_behind(image, (va + len + 3) & ~(uint64_t)3);
	}
}

static int image_segments(struct image *image, const Elf64_Phdr *phdrs, unsigned count)
{
	uint64_t lowest = UINT64_MAX;

	for (unsigned i = 0; i < count; i++)
		if (phdrs[i].p_type == PT_LOAD && phdrs[i].p_vaddr < lowest)
			lowest = phdrs[i].p_vaddr & ~(uint64_t)4095;
	if (lowest == UINT64_MAX)
		return -ENOEXEC;
	image->bias = image->start_va - lowest;
	for (unsigned i = 0; i < count; i++) {
		struct image_segment *s = &image->segments[image->segment_count];

		if (phdrs[i].p_type != PT_LOAD)
			continue;
		if (image->segment_count == IMAGE_SEGMENTS_MAX ||
		    phdrs[i].p_memsz > IMAGE_SEGMENT_MAX || phdrs[i].p_filesz > phdrs[i].p_memsz)
			return -ENOEXEC;
		*s = (struct image_segment){
			.va = image->bias + phdrs[i].p_vaddr,
			.file_bytes = phdrs[i].p_filesz,
			.mem_bytes = phdrs[i].p_memsz,
			.fo = phdrs[i].p_offset,
			.prot = (phdrs[i].p_flags & PF_R ? TARGET_MAP_READ : 0u) |
				(phdrs[i].p_flags & PF_W ? TARGET_MAP_WRITE : 0u) |
				(phdrs[i].p_flags & PF_X ? TARGET_MAP_EXEC : 0u),
		};
		/* Ascending, and no segment goes around the end of the address space. */
		if (s->va < image->end_va || s->va > UINT64_MAX - s->mem_bytes ||
		    s->fo > INT64_MAX - s->file_bytes)
			return -ENOEXEC;
		image->end_va = s->va + s->mem_bytes;
		image->segment_count++;
	}
	return 0;
}

/* The executable, if it is still the file that is mapped; st_dev is not compared: it differs from
 * the device in maps on overlay and btrfs. */
static int image_open_file(const struct target *target, const struct target_module *module)
{
	cleanup_close int fd = openat(target->proc_fd, "exe", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_ino != module->inode)
		return -1;
	return take_fd(&fd);
}

int image_open(struct target *target, const struct target_maps *maps, uint32_t module,
	       struct image *ret)
{
	const struct target_map *first = &maps->maps[maps->modules[module].first_map];
	struct image image = { .target = target,
			       .fd = -1,
			       .start_va = first->start_va,
			       .inode = maps->modules[module].inode };
	Elf64_Phdr phdrs[PHDRS_MAX];
	Elf64_Ehdr ehdr;
	int rc;

	if (first->start_fo != 0)
		return -ENOEXEC;
	rc = target_read(target, first->start_va, &ehdr, sizeof(ehdr));
	if (rc < 0)
		return rc;
	if (memcmp(ehdr.e_ident, ELFMAG, SELFMAG) || ehdr.e_ident[EI_CLASS] != ELFCLASS64 ||
	    ehdr.e_ident[EI_DATA] != ELFDATA2LSB || ehdr.e_phentsize != sizeof(Elf64_Phdr) ||
	    ehdr.e_phnum > PHDRS_MAX ||
	    (ehdr.e_machine != EM_X86_64 && ehdr.e_machine != EM_AARCH64))
		return -ENOEXEC;
	image.machine = ehdr.e_machine;
	rc = target_read(target, first->start_va + ehdr.e_phoff, phdrs,
			 ehdr.e_phnum * sizeof(phdrs[0]));
	if (rc == 0)
		rc = image_segments(&image, phdrs, ehdr.e_phnum);
	if (rc < 0)
		return rc;
	if (!maps->modules[module].vdso)
		image.fd = image_open_file(target, &maps->modules[module]);
	image_notes(&image, phdrs, ehdr.e_phnum);
	*ret = image;
	return 0;
}

void image_close(struct image *image)
{
	if (image->fd >= 0)
		(void)close(image->fd);
	free(image->blocks);
	image->fd = -1;
	image->blocks = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const struct image_segment *image_segment(const struct image *image, uint64_t va)
{
	for (unsigned i = 0; i < image->segment_count; i++)
		if (va >= image->segments[i].va &&
		    va - image->segments[i].va < image->segments[i].mem_bytes)
			return &image->segments[i];
	return NULL;
}

ssize_t image_read_some(struct image *image, uint64_t va, void *buf, size_t len)
{
	const struct image_segment *s = image_segment(image, va);
	uint64_t at;

	if (!s)
		return -EFAULT;
	at = va - s->va;
	if (len > s->mem_bytes - at)
		len = s->mem_bytes - at;
	if (image->fd >= 0 && !(s->prot & TARGET_MAP_WRITE) && at < s->file_bytes) {
		ssize_t got;

		watch_touch();
		got = pread(image->fd, buf, len < s->file_bytes - at ? len : s->file_bytes - at,
			    (off_t)(s->fo + at));

		if (got > 0)
			return got;
	}
	return target_read_some(image->target, va, buf, len);
}

static struct image_block *image_block(struct image *image, uint64_t va, int *ret_error)
{
	uint64_t start = va & ~(uint64_t)(BLOCK_BYTES - 1);
	const struct image_segment *s = image_segment(image, va);
	struct image_block *block;
	size_t len = 0;

	if (!image->blocks)
		image->blocks = calloc(BLOCK_COUNT, sizeof(*image->blocks));
	if (!image->blocks || !s) {
		*ret_error = s ? -ENOMEM : -EFAULT;
		return NULL;
	}
	if (start < s->va)
		start = s->va;
	block = &image->blocks[(va >> BLOCK_SHIFT) % BLOCK_COUNT];
	if (block->va == start)
		return block;
	block->va = 0;
	while (len < BLOCK_BYTES) {
		size_t want = ((start | (BLOCK_BYTES - 1)) + 1) - (start + len);
		ssize_t got =
			want ? image_read_some(image, start + len, block->data + len, want) : 0;

		if (got <= 0)
			break;
		len += (size_t)got;
	}
	block->va = start;
	block->len = (uint32_t)len;
	return block;
}

int image_read(struct image *image, uint64_t va, void *buf, size_t len)
{
	while (len) {
		int error = 0;
		struct image_block *block = image_block(image, va, &error);
		size_t at, part;

		if (!block)
			return error;
		at = va - block->va;
		if (at >= block->len)
			return -EFAULT;
		part = block->len - at < len ? block->len - at : len;
		memcpy(buf, block->data + at, part);
		buf = (char *)buf + part;
		va += part;
		len -= part;
	}
	return 0;
}

int image_scan(struct image *image, uint64_t from, uint64_t to, size_t overlap, image_chunk_fn fn,
	       void *ctx)
{
	cleanup_free uint8_t *data = malloc(SCAN_BYTES);
	uint64_t va = from & ~(uint64_t)7;

	if (!data)
		return -ENOMEM;
	while (va < to) {
		size_t want = to - va < SCAN_BYTES ? to - va : SCAN_BYTES, len = 0;
		int rc;

		while (len < want) {
			ssize_t got = image_read_some(image, va + len, data + len, want - len);

			if (got == -ESRCH || got == -EPERM)
				return (int)got;
			if (got <= 0)
				break;
			len += (size_t)got;
		}
		rc = len ? fn(ctx, va, data, len) : 0;
		if (rc)
			return rc;
		if (va + len >= to)
			break;
		if (len < want) /* a hole: go on behind it */
			va = (va + len + 4096) & ~(uint64_t)4095;
		else
			va += len - overlap;
	}
	return 0;
}
