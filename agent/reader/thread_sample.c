// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/thread_sample.h"

#include <linux/perf_event.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/clock.h"

#define PAGE_BYTES 4096u
#define DATA_BYTES (16 * PAGE_BYTES) /* a power of two that holds one sample */
#define RING_BYTES (PAGE_BYTES + DATA_BYTES)

/* The registers that the kernel copies, in the order that it writes them (ascending by their
 * numbers in asm/perf_regs.h), as {that number, the one of DWARF}. */
#define NOT_A_GENERAL_ONE ARCH_REG_COUNT
static const uint8_t copied[][2] = { ARCH_PERF_REGISTERS };
#define COPIED ARRAY_SIZE(copied)

/* A record as the kernel writes it for PERF_SAMPLE_REGS_USER and STACK_USER (perf_event_open(2));
 * @stack_len bytes of room for the stack follow, and how many of them it wrote. */
struct sample_record {
	struct perf_event_header head;
	uint64_t abi;
	uint64_t regs[COPIED];
	uint64_t stack_len;
};

static int open_clock(uint32_t tid)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1, /* ns: as soon as the kernel can */
		.sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER,
		.sample_stack_user = THREAD_SAMPLE_STACK_BYTES,
		.wakeup_events = 1,
		.disabled = 1,
		.exclude_kernel = 1, /* what is asked for without CAP_PERFMON */
		.exclude_hv = 1,
	};

	for (size_t i = 0; i < COPIED; i++)
		attr.sample_regs_user |= 1ull << copied[i][0];
	return (int)syscall(SYS_perf_event_open, &attr, (pid_t)tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

void thread_samples_open(struct thread_samples *samples, uint32_t tid)
{
	struct thread_clock *clock = &samples->clocks[samples->count++];
	cleanup_close int fd = open_clock(tid);
	void *ring;

	*clock = (struct thread_clock){ .fd = -1 };
	if (fd < 0)
		return;
	ring = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (ring == MAP_FAILED)
		return;
	/* REFRESH: ticks once, then the kernel turns it off */
	if (ioctl(fd, PERF_EVENT_IOC_REFRESH, 1) < 0) {
		(void)munmap(ring, RING_BYTES);
		return;
	}
	clock->ring = ring;
	clock->fd = take_fd(&fd);
}

static uint64_t written(const struct thread_clock *clock)
{
	const struct perf_event_mmap_page *page = clock->ring;

	return clock->fd < 0 ? 0 : __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
}

void thread_samples_wait(const struct thread_samples *samples, uint64_t until_ns)
{
	for (unsigned i = 0; i < samples->count; i++) {
		struct pollfd fd = { .fd = samples->clocks[i].fd, .events = POLLIN };

		while (fd.fd >= 0 && !written(&samples->clocks[i])) {
			uint64_t now = clock_monotonic_ns();

			if (now >= until_ns || poll(&fd, 1, (int)((until_ns - now) / NS_PER_MS) + 1) < 0 ||
			    fd.revents & (POLLHUP | POLLERR))
				break;
		}
	}
}

bool thread_samples_get(const struct thread_samples *samples, unsigned index,
			struct thread_sample *ret)
{
	const struct thread_clock *clock = &samples->clocks[index];
	const uint8_t *data;
	struct sample_record record;
	uint64_t copied_len;

	if (written(clock) < sizeof(record))
		return false;
	data = (const uint8_t *)clock->ring + PAGE_BYTES;
	memcpy(&record, data, sizeof(record));
	if (record.head.type != PERF_RECORD_SAMPLE || record.abi != PERF_SAMPLE_REGS_ABI_64 ||
	    !record.stack_len || record.stack_len > THREAD_SAMPLE_STACK_BYTES ||
	    sizeof(record) + record.stack_len + sizeof(copied_len) > record.head.size)
		return false;
	memcpy(&copied_len, data + sizeof(record) + record.stack_len, sizeof(copied_len));
	for (size_t i = 0; i < COPIED; i++)
		if (copied[i][1] == NOT_A_GENERAL_ONE)
			ret->ip = record.regs[i];
		else
			ret->regs[copied[i][1]] = record.regs[i];
	ret->stack = data + sizeof(record);
	ret->stack_len = (uint32_t)(copied_len < record.stack_len ? copied_len : record.stack_len);
	return true;
}

void thread_samples_close(struct thread_samples *samples)
{
	for (unsigned i = 0; i < samples->count; i++) {
		if (samples->clocks[i].fd < 0)
			continue;
		(void)munmap(samples->clocks[i].ring, RING_BYTES);
		(void)close(samples->clocks[i].fd);
	}
	samples->count = 0;
}
