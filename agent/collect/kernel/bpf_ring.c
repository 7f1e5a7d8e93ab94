// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/bpf_ring.h"

#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>

int bpf_ring_init(struct bpf_ring *ring, int fd, size_t data_bytes)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	void *consumer, *producer;

	consumer = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (consumer == MAP_FAILED)
		return -errno;
	producer = mmap(NULL, page_bytes + 2 * data_bytes, PROT_READ, MAP_SHARED, fd,
			(off_t)page_bytes);
	if (producer == MAP_FAILED) {
		int rc = -errno;

		(void)munmap(consumer, page_bytes);
		return rc;
	}
	*ring = (struct bpf_ring){ .consumer = consumer,
				   .producer = producer,
				   .data = (const uint8_t *)producer + page_bytes,
				   .page_bytes = page_bytes,
				   .data_bytes = data_bytes };
	return 0;
}

void bpf_ring_deinit(struct bpf_ring *ring)
{
	if (!ring->consumer)
		return;
	(void)munmap(ring->consumer, ring->page_bytes);
	(void)munmap((void *)(uintptr_t)ring->producer, ring->page_bytes + 2 * ring->data_bytes);
	*ring = (struct bpf_ring){ 0 };
}

int bpf_ring_consume(struct bpf_ring *ring, bpf_ring_record_fn on_record, void *ctx)
{
	unsigned long at = *ring->consumer; /* only we write it */
	unsigned long end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);
	int count = 0;

	while (at < end) {
		const uint32_t *head = (const void *)(ring->data + (at & (ring->data_bytes - 1)));
		uint32_t word = __atomic_load_n(head, __ATOMIC_ACQUIRE);
		size_t bytes = word & ~(BPF_RINGBUF_BUSY_BIT | BPF_RINGBUF_DISCARD_BIT);

		if (word & BPF_RINGBUF_BUSY_BIT)
			break; /* reserved, not written yet: and so nothing behind it either */
		if (!(word & BPF_RINGBUF_DISCARD_BIT)) {
			on_record(ctx, head + BPF_RINGBUF_HDR_SZ / sizeof(*head), bytes);
			count++;
		}
		at += (bytes + BPF_RINGBUF_HDR_SZ + 7) & ~7ul;
		__atomic_store_n(ring->consumer, at, __ATOMIC_RELEASE);
	}
	return count;
}

size_t bpf_ring_used(const struct bpf_ring *ring)
{
	return __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE) - *ring->consumer;
}
