// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/kick_rings.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <sys/mman.h>

#include "agent/collect/kernel/bpf_internal.h"

struct kick_ring {
	unsigned long *consumer;
	const unsigned long *producer;
};

static int ring_open(struct kick_ring *ring, int outer_fd, uint32_t cpu, uint64_t *charged)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	cleanup_close int fd =
		bpf_map_create(BPF_MAP_TYPE_RINGBUF, "kick_ring", 0, 0, PROF_KICK_RING_BYTES, NULL);
	void *page;

	if (fd < 0)
		return fd;
	*charged += bpf_map_charged_bytes(fd);
	page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	ring->consumer = page;
	page = mmap(NULL, page_bytes, PROT_READ, MAP_SHARED, fd, (off_t)page_bytes);
	if (page == MAP_FAILED)
		return -errno;
	ring->producer = page;
	return bpf_map_update_elem(outer_fd, &cpu, &fd, BPF_ANY);
}

int kick_rings_init(struct kick_rings *kicks, int outer_fd, unsigned count)
{
	if (kicks->rings)
		return 0;
	kicks->rings = calloc(count, sizeof(*kicks->rings));
	if (!kicks->rings)
		return -ENOMEM;
	kicks->count = count;
	for (unsigned cpu = 0; cpu < count; cpu++) {
		int rc = ring_open(&kicks->rings[cpu], outer_fd, cpu, &kicks->charged_bytes);

		if (rc < 0) {
			kick_rings_deinit(kicks);
			return rc;
		}
	}
	return 0;
}

void kick_rings_deinit(struct kick_rings *kicks)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

	for (unsigned cpu = 0; cpu < kicks->count; cpu++) {
		if (kicks->rings[cpu].consumer)
			(void)munmap(kicks->rings[cpu].consumer, page_bytes);
		if (kicks->rings[cpu].producer)
			(void)munmap((void *)(uintptr_t)kicks->rings[cpu].producer, page_bytes);
	}
	free(kicks->rings);
	*kicks = (struct kick_rings){ 0 };
}

void kick_rings_drain(struct kick_rings *kicks)
{
	for (unsigned cpu = 0; cpu < kicks->count; cpu++) {
		const struct kick_ring *ring = &kicks->rings[cpu];
		unsigned long end = __atomic_load_n(ring->producer, __ATOMIC_ACQUIRE);

		__atomic_store_n(ring->consumer, end, __ATOMIC_RELEASE);
	}
}
