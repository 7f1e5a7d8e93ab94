// SPDX-License-Identifier: Apache-2.0
/* 61 frames of down() below run(), on a stack in shared memory, of which all but the innermost
 * frames is taken from the page tables: once and then it spins in leaf() (`paged_out once`), again
 * and again while it spins (`paged_out spin`), before each sleep of 10 ms (`paged_out doze`), or
 * once to have it back only from a userfaultfd that never answers, and then it spins (`paged_out
 * hang`). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE    __attribute__((noipa))
#define STACK_BYTES (512u << 10) /* 61 frames of 4 KiB, and what else there is */
#define HANDED	    (128u << 10) /* of the outermost frames */
#define RESIDENT    16384u /* of the innermost frames, at least */
#define ROUNDS	    32u	   /* of leaf(), 0.1 ms each, between two */

static char mode; /* first letter of the argument */
static char *stack;

static void page_out(void)
{
	volatile char here = 0;
	char *far = (char *)(((uintptr_t)&here + RESIDENT) & ~(uintptr_t)4095);

	if (madvise(far, (size_t)(stack + STACK_BYTES - far), MADV_DONTNEED))
		exit(1);
}

static void hand_over(void)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_MINOR_SHMEM };
	struct uffdio_register range = { .range = { .start = (uintptr_t)stack + STACK_BYTES - HANDED,
						    .len = HANDED },
					 .mode = UFFDIO_REGISTER_MODE_MINOR };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range)) {
		perror("userfaultfd");
		exit(1);
	}
}

NOINLINE uint64_t leaf(uint64_t x)
{
	for (int i = 0; i < 100000; i++)
		x = x * 3 + (uint64_t)i;
	return x;
}

static _Noreturn void work(void)
{
	volatile uint64_t sink = 0;

	if (mode == 'h')
		hand_over();
	page_out();
	(void)puts("ready");
	(void)fflush(stdout);
	for (unsigned i = 0;; i++) {
		if (mode == 'd')
			(void)usleep(10000);
		else
			sink = leaf(sink);
		if (mode == 'd' || (mode == 's' && i % ROUNDS == 0))
			page_out();
	}
}

NOINLINE int down(int depth)
{
	volatile char pad[4096];

	pad[0] = 1;
	if (!depth)
		work();
	return down(depth - 1) + pad[0];
}

NOINLINE void run(void)
{
	exit(down(60) == 1);
}

int main(int argc, char **argv)
{
	int fd = memfd_create("stack", MFD_CLOEXEC);
	ucontext_t inner, outer;

	if (argc != 2 || fd < 0 || ftruncate(fd, STACK_BYTES) < 0)
		return 1;
	mode = argv[1][0];
	stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (stack == MAP_FAILED || getcontext(&inner) < 0)
		return 1;
	inner.uc_link = NULL; /* getcontext() leaves it as it was */
	inner.uc_stack.ss_sp = stack;
	inner.uc_stack.ss_size = STACK_BYTES;
	makecontext(&inner, run, 0);
	return swapcontext(&outer, &inner);
}
