// SPDX-License-Identifier: Apache-2.0
/* Page faults of known number in known functions: "faults PAGES_A PAGES_B FILE FILE_PAGES" says
 * "ready". For each line of its input it touches PAGES_A fresh pages in touch_a(), PAGES_B in
 * touch_b(), and every page of FILE, which it drops from the page cache before, in read_file().
 * Then it writes what getrusage(2) counted in each, as a line of JSON. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static size_t page_bytes;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Without huge pages every page faults by itself. */
static volatile char *fresh(size_t pages)
{
	char *memory = mmap(NULL, pages * page_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap");
	(void)madvise(memory, pages * page_bytes, MADV_NOHUGEPAGE);
	return memory;
}

NOINLINE static void touch_a(volatile char *memory, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		memory[i * page_bytes] = 1;
}

NOINLINE static void touch_b(volatile char *memory, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		memory[i * page_bytes] = 2;
}

/* MADV_RANDOM: no page is read ahead of its fault. */
NOINLINE static unsigned read_file(const char *path, size_t pages)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	volatile const char *file;
	unsigned sum = 0;

	if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		fail(path);
	file = mmap(NULL, pages * page_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (file == MAP_FAILED)
		fail("mmap");
	(void)madvise((void *)(size_t)file, pages * page_bytes, MADV_RANDOM);
	for (size_t i = 0; i < pages; i++)
		sum += (unsigned char)file[i * page_bytes];
	(void)munmap((void *)(size_t)file, pages * page_bytes);
	(void)close(fd);
	return sum;
}

struct counts {
	long minor, major;
};

static struct counts counted(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		fail("getrusage");
	return (struct counts){ usage.ru_minflt, usage.ru_majflt };
}

int main(int argc, char **argv)
{
	size_t a = argc > 4 ? strtoul(argv[1], NULL, 10) : 0;
	size_t b = argc > 4 ? strtoul(argv[2], NULL, 10) : 0;
	volatile char *memory_a, *memory_b;
	struct counts at[4];
	unsigned sum;
	char line[8];

	if (argc < 5) {
		fprintf(stderr, "usage: faults PAGES_A PAGES_B FILE FILE_PAGES\n");
		return 2;
	}
	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	puts("ready");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		memory_a = fresh(a);
		memory_b = fresh(b);
		at[0] = counted();
		touch_a(memory_a, a);
		at[1] = counted();
		touch_b(memory_b, b);
		at[2] = counted();
		sum = read_file(argv[3], strtoul(argv[4], NULL, 10));
		at[3] = counted();
		printf("{\"touch_a\": %ld, \"touch_b\": %ld, \"read_file\": %ld, "
		       "\"read_file_major\": %ld, \"sum\": %u}\n",
		       at[1].minor - at[0].minor, at[2].minor - at[1].minor, at[3].minor - at[2].minor,
		       at[3].major - at[2].major, sum);
		(void)fflush(stdout);
		(void)munmap((void *)(size_t)memory_a, a * page_bytes);
		(void)munmap((void *)(size_t)memory_b, b * page_bytes);
	}
	return 0;
}
