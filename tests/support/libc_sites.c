// SPDX-License-Identifier: Apache-2.0
#include "tests/support/libc_sites.h"

#include <fcntl.h>
#include <gelf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

unsigned libc_sites(char path[512], struct control_alloc_site sites[ALLOC_SITES_MAX],
		    enum alloc_family *ret_family)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[1024];
	unsigned count;
	Elf *elf;
	int fd;

	assert_non_null(maps);
	path[0] = '\0';
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "/libc.so.6") && sscanf(line, "%*s %*s %*s %*s %*s %511s", path) == 1)
			break;
	(void)fclose(maps);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	count = alloc_sites_load(elf, sites, ret_family);
	(void)elf_end(elf);
	(void)close(fd);
	return count;
}
