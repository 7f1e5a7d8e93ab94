// SPDX-License-Identifier: Apache-2.0
#include "agent/base/ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "agent/base/io.h"

#define RING_MAGIC	  0x31474e4952465250ull /* "PRFRING1" */
#define RING_HEADER_BYTES 4096u
#define RING_CAPACITY_MIN 4096u
#define RING_CAPACITY_MAX (1u << 30)
#define RING_FILLER	  UINT32_MAX
#define RECORD_HEAD_BYTES 8u

/* Shared; each end writes only its own line. */
struct ring_header {
	uint64_t magic;
	uint64_t capacity;
	uint64_t identity;
	uint8_t pad0[40];
	_Atomic uint64_t head; /* producer: bytes ever written */
	_Atomic uint64_t lost; /* producer: records refused */
	uint8_t pad1[48];
	_Atomic uint64_t tail; /* consumer: bytes ever released */
};

struct ring {
	struct ring_header *header;
	uint8_t *area;
	size_t capacity;
	uint64_t identity;
};

struct record_head {
	uint32_t len;
	uint32_t kind;
};

static uint64_t padded(uint64_t len)
{
	return RECORD_HEAD_BYTES + ((len + 7) & ~7ull);
}

int ring_create(size_t capacity)
{
	struct ring_header header = { .magic = RING_MAGIC };
	size_t rounded = RING_CAPACITY_MIN;
	cleanup_close int fd = -1;

	if (capacity > RING_CAPACITY_MAX)
		return -EINVAL;
	while (rounded < capacity)
		rounded *= 2;
	header.capacity = rounded;
	if (getrandom(&header.identity, sizeof(header.identity), 0) < 0)
		return -errno;
	fd = io_memfd("profd-feed", RING_HEADER_BYTES + rounded);
	if (fd < 0)
		return fd;
	if (pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		return -EIO;
	return take_fd(&fd);
}

int ring_attach(int fd, struct ring **ret)
{
	struct ring *ring;
	struct stat st;
	void *memory;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)(RING_HEADER_BYTES + RING_CAPACITY_MIN) ||
	    st.st_size > (off_t)RING_HEADER_BYTES + (off_t)RING_CAPACITY_MAX)
		return -EPROTO;
	memory = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	ring = calloc(1, sizeof(*ring));
	if (!ring) {
		(void)munmap(memory, (size_t)st.st_size);
		return -ENOMEM;
	}
	ring->header = memory;
	ring->area = (uint8_t *)memory + RING_HEADER_BYTES;
	ring->capacity = (size_t)st.st_size - RING_HEADER_BYTES;
	ring->identity = ring->header->identity;
	if (ring->header->magic != RING_MAGIC || ring->header->capacity != ring->capacity ||
	    (ring->capacity & (ring->capacity - 1))) {
		ring_destroy(ring);
		return -EPROTO;
	}
	*ret = ring;
	return 0;
}

void ring_destroy(struct ring *ring)
{
	if (!ring)
		return;
	(void)munmap(ring->header, RING_HEADER_BYTES + ring->capacity);
	free(ring);
}

static void put_head(struct ring *ring, uint64_t at, uint32_t kind, uint32_t len)
{
	struct record_head head = { .len = len, .kind = kind };

	memcpy(ring->area + (at & (ring->capacity - 1)), &head, sizeof(head));
}

int ring_write(struct ring *ring, uint32_t kind, const struct iovec *parts, int part_count)
{
	uint64_t head = atomic_load_explicit(&ring->header->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&ring->header->tail, memory_order_acquire);
	uint64_t len = 0, need, to_end, skip, at;

	for (int i = 0; i < part_count; i++)
		len += parts[i].iov_len;
	need = padded(len);
	if (need > ring->capacity / 2)
		return -EMSGSIZE;
	to_end = ring->capacity - (head & (ring->capacity - 1));
	skip = need > to_end ? to_end : 0;
	/* A tail ahead of the head or too far behind is the consumer's nonsense: treat it as full. */
	if (head - tail > ring->capacity || ring->capacity - (head - tail) < skip + need) {
		atomic_fetch_add_explicit(&ring->header->lost, 1, memory_order_relaxed);
		return -ENOSPC;
	}
	if (skip)
		put_head(ring, head, RING_FILLER, (uint32_t)(skip - RECORD_HEAD_BYTES));
	at = head + skip;
	put_head(ring, at, kind, (uint32_t)len);
	at += RECORD_HEAD_BYTES;
	for (int i = 0; i < part_count; i++) {
		memcpy(ring->area + (at & (ring->capacity - 1)), parts[i].iov_base,
		       parts[i].iov_len);
		at += parts[i].iov_len;
	}
	atomic_store_explicit(&ring->header->head, head + skip + need, memory_order_release);
	return 0;
}

uint64_t ring_lost(const struct ring *ring)
{
	return atomic_load_explicit(&ring->header->lost, memory_order_relaxed);
}

int ring_read(struct ring *ring, uint64_t cursor, struct ring_record *ret)
{
	uint64_t head = atomic_load_explicit(&ring->header->head, memory_order_acquire);

	for (int fillers = 0; fillers < 2; fillers++) {
		uint64_t offset = cursor & (ring->capacity - 1);
		struct record_head record;

		if (cursor == head)
			return 0;
		if (cursor > head || head - cursor > ring->capacity || (cursor & 7))
			return -EPROTO;
		memcpy(&record, ring->area + offset, sizeof(record));
		if (padded(record.len) > ring->capacity - offset ||
		    padded(record.len) > head - cursor)
			return -EPROTO;
		if (record.kind != RING_FILLER) {
			*ret = (struct ring_record){
				.kind = record.kind,
				.len = record.len,
				.data = ring->area + offset + RECORD_HEAD_BYTES,
				.end = cursor + padded(record.len),
			};
			return 1;
		}
		cursor += padded(record.len);
	}
	return -EPROTO;
}

void ring_release(struct ring *ring, uint64_t position)
{
	atomic_store_explicit(&ring->header->tail, position, memory_order_release);
}

uint64_t ring_head(const struct ring *ring)
{
	return atomic_load_explicit(&ring->header->head, memory_order_acquire);
}

uint64_t ring_tail(const struct ring *ring)
{
	return atomic_load_explicit(&ring->header->tail, memory_order_acquire);
}

size_t ring_capacity(const struct ring *ring)
{
	return ring->capacity;
}

uint64_t ring_identity(const struct ring *ring)
{
	return ring->identity;
}
