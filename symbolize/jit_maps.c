// SPDX-License-Identifier: Apache-2.0
#include "symbolize/jit_maps.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/log.h"

static void process_deinit(struct jit_process *process)
{
	if (process->fd >= 0)
		(void)close(process->fd);
	jit_map_deinit(&process->map);
}

void jit_maps_deinit(struct jit_maps *maps)
{
	for (size_t i = 0; i < maps->processes.count; i++)
		process_deinit(&maps->processes.data[i]);
	jit_process_vec_deinit(&maps->processes);
	*maps = (struct jit_maps){ 0 };
}

static void set_behind(struct jit_maps *maps, struct jit_process *process, bool is_behind)
{
	maps->behind += (unsigned)is_behind - (unsigned)process->is_behind;
	process->is_behind = is_behind;
}

static void drop(struct jit_maps *maps, size_t at)
{
	struct jit_process *process = &maps->processes.data[at];

	set_behind(maps, process, false);
	process_deinit(process);
	*process = maps->processes.data[--maps->processes.count];
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static uint64_t bytes_of_map(const struct jit_map *map)
{
	/* An entry is also in the map by start, at most half full. */
	return map->names.len + map->entries.count * (sizeof(struct jit_entry) + 32);
}

/* Forgets the least recently used until everything is inside the bounds; @keep, the newest, stays.
 */
static void keep_bounds(struct jit_maps *maps, uint64_t keep)
{
	for (;;) {
		size_t oldest = maps->processes.count;
		uint64_t bytes = 0;

		for (size_t i = 0; i < maps->processes.count; i++) {
			const struct jit_process *process = &maps->processes.data[i];

			bytes += bytes_of_map(&process->map);
			if (process->key != keep &&
			    (oldest == maps->processes.count ||
			     process->used < maps->processes.data[oldest].used))
				oldest = i;
		}
		if (oldest == maps->processes.count ||
		    (maps->processes.count <= JIT_MAPS_MAX && bytes <= JIT_MAPS_BYTES_MAX))
			return;
		drop(maps, oldest);
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_slice(struct jit_maps *maps, struct jit_process *process)
{
	int rc;

	if (!process->cursor.offset) /* nothing read of it yet, perhaps because nothing was written */
		process->is_jitdump = perf_map_is_jitdump(process->fd);
	rc = process->is_jitdump ?
		     perf_map_update_jitdump(&process->cursor, process->fd, &process->map) :
		     perf_map_update(&process->cursor, process->fd, &process->map);
	set_behind(maps, process, rc > 0);
	return rc < 0 ? rc : 0;
}

static struct jit_process *find(const struct jit_maps *maps, uint64_t key)
{
	for (size_t i = 0; i < maps->processes.count; i++)
		if (maps->processes.data[i].key == key)
			return &maps->processes.data[i];
	return NULL;
}

int jit_maps_add_take(struct jit_maps *maps, uint64_t key, int fd_take)
{
	struct jit_process *process = find(maps, key);
	struct jit_process added = { .key = key, .fd = fd_take, .used = ++maps->clock };
	int rc;

	if (process)
		drop(maps, (size_t)(process - maps->processes.data));
	rc = jit_process_vec_push(&maps->processes, added);
	if (rc < 0) {
		(void)close(fd_take);
		return rc;
	}
	rc = read_slice(maps, &maps->processes.data[maps->processes.count - 1]);
	if (rc < 0)
		drop(maps, maps->processes.count - 1);
	else
		keep_bounds(maps, key);
	return rc;
}

struct jit_process *jit_maps_find(struct jit_maps *maps, uint64_t key)
{
	struct jit_process *process = find(maps, key);

	if (!process)
		return NULL;
	process->used = ++maps->clock;
	if (read_slice(maps, process) < 0)
		log_debug("the map of JIT code %016llx cannot be read on", (unsigned long long)key);
	keep_bounds(maps, key);
	return find(maps, key);
}

const char *jit_process_name(struct jit_process *process, uint64_t offset)
{
	return jit_map_find(&process->map, offset);
}

void jit_maps_advance(struct jit_maps *maps)
{
	for (size_t i = 0; i < maps->processes.count; i++) {
		struct jit_process *process = &maps->processes.data[i];

		if (!process->is_behind)
			continue;
		(void)!read_slice(maps, process);
		keep_bounds(maps, process->key);
		return;
	}
}
