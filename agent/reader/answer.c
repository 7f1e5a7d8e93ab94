// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/reader/target_image.h"
#include "bpf/profiler.h"

#define INTERNED_MAX (4u << 20)

int answer_init(struct answer *answer, struct target *target, const struct target_maps *maps,
		struct read_writer *writer, uint64_t deadline_ns)
{
	*answer = (struct answer){
		.target = target,
		.maps = maps,
		.writer = writer,
		.deadline_ns = deadline_ns,
		.started_ns = clock_monotonic_ns(),
		.started_cpu_ns = clock_process_ns(),
	};
	answer->module_ids = calloc(maps->module_count + 1, sizeof(*answer->module_ids));
	if (!answer->module_ids)
		return -ENOMEM;
	u64map_init(&answer->strings, INTERNED_MAX);
	u64map_init(&answer->stacks, INTERNED_MAX);
	u64map_init(&answer->labels, INTERNED_MAX);
	return 0;
}

void answer_deinit(struct answer *answer)
{
	free(answer->module_ids);
	answer->module_ids = NULL;
	u64map_deinit(&answer->strings);
	u64map_deinit(&answer->stacks);
	u64map_deinit(&answer->labels);
	u64map_deinit(&answer->scripts);
}

bool answer_is_late(const struct answer *answer)
{
	return clock_monotonic_ns() >= answer->deadline_ns;
}

static void answer_fail(struct answer *answer, int error)
{
	if (!answer->writer->error)
		answer->writer->error = error;
}

/* The id of @key in @map. True if it is new, or 0 with the sticky error set. */
static bool intern(struct answer *answer, struct u64map *map, uint64_t key, uint32_t *ret_id)
{
	uint64_t id;
	int rc;

	if (u64map_get(map, key, &id)) {
		*ret_id = (uint32_t)id;
		return false;
	}
	*ret_id = (uint32_t)map->count + 1;
	rc = u64map_put(map, key, *ret_id);
	if (rc < 0) {
		answer_fail(answer, rc);
		*ret_id = 0;
		return false;
	}
	return true;
}

uint32_t answer_string(struct answer *answer, const char *text, size_t len)
{
	uint32_t id;

	if (!len)
		return 0;
	if (len > READ_STRING_MAX)
		len = READ_STRING_MAX;
	if (intern(answer, &answer->strings, hash_bytes(text, len, len), &id))
		read_writer_string(answer->writer, id, text, len);
	return id;
}

uint32_t answer_text(struct answer *answer, const char *text)
{
	return answer_string(answer, text, strlen(text));
}

uint32_t answer_stack(struct answer *answer, uint8_t outcome, const uint64_t *frames,
		      const uint8_t *flags, unsigned count)
{
	uint64_t key = hash_bytes(frames, count * sizeof(*frames), outcome);
	uint32_t id;

	if (!count)
		return 0;
	if (intern(answer, &answer->stacks, hash_bytes(flags, count, key), &id))
		read_writer_stack(answer->writer, id, outcome, frames, flags, count);
	return id;
}

uint32_t answer_labels(struct answer *answer, const uint32_t *pairs, unsigned count)
{
	uint32_t id;

	if (!count)
		return 0;
	if (intern(answer, &answer->labels, hash_bytes(pairs, count * 2 * sizeof(*pairs), count),
		   &id))
		read_writer_labels(answer->writer, id, pairs, count);
	return id;
}

static uint32_t answer_module(struct answer *answer, uint32_t index)
{
	const struct target_module *known = &answer->maps->modules[index];
	struct read_module module = { .inode = known->inode,
				      .dev_major = known->dev_major,
				      .dev_minor = known->dev_minor,
				      .kind = known->vdso ? READ_MODULE_VDSO : READ_MODULE_ELF };
	struct image image = { 0 };

	if (answer->module_ids[index])
		return answer->module_ids[index];
	/* Without readable headers the module is still known by device, inode and path. */
	if (image_open(answer->target, answer->maps, index, &image) == 0) {
		module.build_id_len = image.build_id_len;
		memcpy(module.build_id, image.build_id, image.build_id_len);
		module.go_id_len = image.go_id_len;
		image_close(&image);
	}
	module.id = answer->module_ids[index] = ++answer->module_count;
	read_writer_module(answer->writer, &module, target_maps_path(answer->maps, index),
			   image.go_id);
	return module.id;
}

uint64_t answer_frame(struct answer *answer, uint64_t va, uint64_t flags)
{
	/* A call at the very end of a mapping returns to just behind it. */
	uint64_t inside = flags & PROF_FRAME_RETURN && va ? va - 1 : va;
	const struct target_map *map = target_maps_find(answer->maps, inside);

	if (!map)
		return prof_frame_address(PROF_FRAME_ADDRESS, va, flags);
	return prof_frame_module(answer_module(answer, map->module),
				 va - map->start_va + map->start_fo, flags);
}

static uint32_t script_module(struct answer *answer)
{
	struct read_module module = { .kind = READ_MODULE_SCRIPT };

	if (!answer->script_module) {
		module.id = answer->script_module = ++answer->module_count;
		read_writer_module(answer->writer, &module, "[python]", "");
	}
	return answer->script_module;
}

uint64_t answer_script_frame(struct answer *answer, const char *function, const char *file,
			     uint32_t line, uint32_t first_line)
{
	struct read_script script = { .function = answer_text(answer, function),
				      .file = answer_text(answer, file),
				      .line = line,
				      .first_line = first_line };
	const uint32_t facts[] = { script.function, script.file, line, first_line };
	uint32_t id = 0;

	if (script.function &&
	    intern(answer, &answer->scripts, hash_bytes(facts, sizeof(facts), 0), &id)) {
		script.id = id;
		read_writer_fixed(answer->writer, READ_SCRIPT, &script, sizeof(script));
	}
	return prof_frame_module(script_module(answer), id, 0);
}

int answer_finish(struct answer *answer)
{
	answer->end.duration_ns = clock_monotonic_ns() - answer->started_ns;
	answer->end.cpu_ns = clock_process_ns() - answer->started_cpu_ns;
	read_writer_fixed(answer->writer, READ_END, &answer->end, sizeof(answer->end));
	return read_writer_finish(answer->writer);
}
