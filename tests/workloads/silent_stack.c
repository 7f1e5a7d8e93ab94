// SPDX-License-Identifier: Apache-2.0
/* A thread that sleeps on a stack which a userfaultfd, who never answers, would have to bring back:
 * who reads it from outside waits until it is killed. The other thread is busy. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "asleep.h"

#define STACK_BYTES (256u << 10)

static unsigned begun;

static void *sleep_for_ever(void *ctx)
{
	(void)ctx;
	__atomic_store_n(&begun, 1, __ATOMIC_RELEASE);
	for (;;)
		(void)pause();
	return NULL;
}

int main(void)
{
	char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register range = { .range = { .start = (uintptr_t)stack, .len = STACK_BYTES },
					 .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	pthread_attr_t attr;
	pthread_t thread;

	if (stack == MAP_FAILED || fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	    pthread_attr_init(&attr) || pthread_attr_setstack(&attr, stack, STACK_BYTES) ||
	    pthread_create(&thread, &attr, sleep_for_ever, NULL))
		return 1;
	await_asleep(&begun, 1, 0);
	if (madvise(stack, STACK_BYTES, MADV_DONTNEED) || ioctl(fd, UFFDIO_REGISTER, &range))
		return 1;
	(void)printf("ready\n");
	(void)fflush(stdout);
	for (volatile uint64_t sink = 0;;)
		sink++;
}
