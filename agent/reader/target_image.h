/* SPDX-License-Identifier: Apache-2.0 */
/* One ELF file as it is loaded in a target: segments, load bias, build-id, and cached reads of what
 * does not change. Read-only segments are read from the file where it can be opened, so that
 * reading touches no page of the target. Everything else is read from the target's memory. Section
 * headers are not used: stripped files read the same. Borrows the target; not thread-safe. Sources:
 * gABI "Program Header", "Note Section". */
#ifndef PROFD_READER_TARGET_IMAGE_H
#define PROFD_READER_TARGET_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/target_memory.h"

#define IMAGE_SEGMENTS_MAX 16
#define IMAGE_BUILD_ID_MAX 32
#define IMAGE_GO_ID_MAX	   128

struct image_segment {
	uint64_t va;	     /* in the process */
	uint64_t file_bytes; /* initialized from the file */
	uint64_t mem_bytes;
	uint64_t fo;   /* file offset of va */
	uint32_t prot; /* enum target_map_prot, as the file wants it (relro counts as writable) */
};

struct image_block;

struct image {
	struct target *target; /* borrowed */
	int fd;		       /* the file, -1 = read everything from memory */
	uint64_t inode;
	uint64_t bias; /* va - ELF address */
	uint64_t start_va;
	uint64_t end_va;   /* of the last segment */
	uint16_t machine;  /* EM_X86_64, EM_AARCH64 */
	uint8_t go_id_len; /* text of the Go build id, 0 = no such note */
	char go_id[IMAGE_GO_ID_MAX];
	uint8_t build_id_len; /* GNU build-id, 0 = none */
	uint8_t build_id[IMAGE_BUILD_ID_MAX];
	unsigned segment_count;
	struct image_segment segments[IMAGE_SEGMENTS_MAX]; /* PT_LOAD, ascending */
	struct image_block *blocks; /* cache of unchanging bytes, allocated at first use */
};

/* Opens module @module of @maps. Only the executable itself is opened as a file (/proc/PID/exe);
 * others are read from memory, since opening a path of the target may block or lie. -ENOEXEC not a
 * supported 64-bit ELF file, -EFAULT, -ESRCH, -EPERM. Release with image_close(). */
int image_open(struct target *target, const struct target_maps *maps, uint32_t module,
	       struct image *ret) must_use;
void image_close(struct image *image);

/* Exactly @len bytes of unchanging content (code, read-only data, tables that are only relocated)
 * through the cache. -EFAULT. */
int image_read(struct image *image, uint64_t va, void *buf, size_t len) must_use;
/* The same without the cache, for scans of whole segments; up to @len bytes, at least 1. */
ssize_t image_read_some(struct image *image, uint64_t va, void *buf, size_t len) must_use;

/* Calls @fn with aligned, overlapping chunks of [@from, @to). Each chunk holds at least @overlap
 * bytes of the next one, so that a record of that size is whole in one of them. Unreadable parts
 * are passed over. @fn returns 0 to go on, else the result (negative errno or a positive find). 0
 * at the end. */
typedef int (*image_chunk_fn)(void *ctx, uint64_t va, const uint8_t *data, size_t len);
int image_scan(struct image *image, uint64_t from, uint64_t to, size_t overlap, image_chunk_fn fn,
	       void *ctx) must_use;

static inline void cleanup_image_fn(struct image *image)
{
	image_close(image);
}
#define cleanup_image __attribute__((__cleanup__(cleanup_image_fn)))

#endif
