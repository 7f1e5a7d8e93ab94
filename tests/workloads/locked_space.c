// SPDX-License-Identifier: Apache-2.0
/* Keeps the lock of its own address space for as long as the file system of FILE is silent
 * (`locked_space FILE`): one thread reads the file, so that its first page is locked until it
 * comes, and the other maps it, where it was opened for direct access, which drops its pages one by
 * one with that lock held (fuse_file_mmap()). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static char byte;

static void *read_one(void *ctx)
{
	(void)!pread(*(int *)ctx, &byte, 1, 0);
	return NULL;
}

int main(int argc, char **argv)
{
	int direct = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1,
	    cached = argc > 1 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	pthread_t thread;

	if (direct < 0 || cached < 0 || pthread_create(&thread, NULL, read_one, &cached))
		return 1;
	(void)sleep(1); /* until the page is asked for: its system call cannot be waited for from here */
	(void)printf("ready\n");
	(void)fflush(stdout);
	(void)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, direct, 0);
	for (;;)
		(void)pause();
}
