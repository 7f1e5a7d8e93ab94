/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a process are there. Reading one that is not may wait for whoever provides it (userfaultfd),
 * for ever: the collector reads only those that are. proc(5), /proc/PID/pagemap, bits 62 and 63. */
#ifndef PROFD_COLLECT_ALLOC_PAGES_H
#define PROFD_COLLECT_ALLOC_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#define ALLOC_PAGES_KNOWN 512u

struct alloc_pages {
	int fd; /* -1 = nothing is there */
	uint64_t page[ALLOC_PAGES_KNOWN]; /* number + 1, by its low bits; 0 = none */
	bool there[ALLOC_PAGES_KNOWN];
};

/* Answers are remembered: open it for what is read now. */
void alloc_pages_open(uint32_t tgid, struct alloc_pages *ret);
void alloc_pages_close(struct alloc_pages *pages);
/* Are all of the @len bytes (at most a page) there? */
bool alloc_pages_have(struct alloc_pages *pages, uint64_t va, uint64_t len);

#endif
