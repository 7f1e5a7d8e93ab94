// SPDX-License-Identifier: Apache-2.0
/* Input is a perf map (first byte even) or a jitdump file (odd). Property: read as it grows, in two
 * steps, it names the same code as read at once. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/io.h"
#include "symbolize/perf_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int update(bool jitdump, struct perf_map_cursor *cursor, int fd, struct jit_map *map)
{
	return jitdump ? perf_map_update_jitdump(cursor, fd, map)
		       : perf_map_update(cursor, fd, map);
}

static void compare(struct jit_map *a, struct jit_map *b)
{
	(void)jit_map_find(a, 0);
	(void)jit_map_find(b, 0);
	if (a->entries.count != b->entries.count)
		abort();
	for (size_t i = 0; i < a->entries.count; i++) {
		const struct jit_entry *x = &a->entries.data[i], *y = &b->entries.data[i];

		if (x->start_va != y->start_va || x->end_va != y->end_va ||
		    x->end_va <= x->start_va ||
		    (i && x->start_va < a->entries.data[i - 1].end_va) ||
		    strcmp(a->names.data + x->name, b->names.data + y->name))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct perf_map_cursor once = { 0 }, twice = { 0 };
	struct jit_map a = { 0 }, b = { 0 };
	cleanup_close int fd = -1;
	size_t cut;
	bool jitdump;

	if (size < 3 || size > 1u << 16)
		return 0;
	fd = io_memfd("map", 0);
	if (fd < 0)
		return 0;
	jitdump = data[0] & 1;
	cut = (size_t)(size - 2) * data[1] / 255;
	(void)!io_write_all(fd, data + 2, cut);
	(void)!update(jitdump, &twice, fd, &b);
	(void)!io_write_all(fd, data + 2 + cut, size - 2 - cut);
	(void)!update(jitdump, &twice, fd, &b);
	(void)!update(jitdump, &once, fd, &a);
	compare(&a, &b);
	jit_map_deinit(&a);
	jit_map_deinit(&b);
	return 0;
}
