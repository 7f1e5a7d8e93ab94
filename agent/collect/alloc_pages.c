// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc_pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define PAGE  4096u
#define THERE (3ull << 62) /* present or swapped */

void alloc_pages_open(uint32_t tgid, struct alloc_pages *ret)
{
	char path[40];

	(void)snprintf(path, sizeof(path), "/proc/%u/pagemap", tgid);
	*ret = (struct alloc_pages){ .fd = open(path, O_RDONLY | O_CLOEXEC) };
}

void alloc_pages_close(struct alloc_pages *pages)
{
	if (pages->fd >= 0)
		(void)close(pages->fd);
	pages->fd = -1;
}

static bool has_page(struct alloc_pages *pages, uint64_t number)
{
	const uint64_t slot = number % ALLOC_PAGES_KNOWN;
	uint64_t entry = 0;

	if (pages->page[slot] != number + 1) {
		pages->there[slot] = pages->fd >= 0 &&
				     pread(pages->fd, &entry, sizeof(entry), (off_t)(number * sizeof(entry))) ==
					     sizeof(entry) &&
				     entry & THERE;
		pages->page[slot] = number + 1;
	}
	return pages->there[slot];
}

bool alloc_pages_have(struct alloc_pages *pages, uint64_t va, uint64_t len)
{
	return va >> 47 == 0 && has_page(pages, va / PAGE) && has_page(pages, (va + len - 1) / PAGE);
}
