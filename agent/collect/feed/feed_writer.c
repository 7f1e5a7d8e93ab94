// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/feed/feed_writer.h"

#include <errno.h>
#include <string.h>

#include "agent/collect/kernel/bpf_agent.h"
#include "agent/collect/feed/feed_file.h"
#include "agent/wire/module_key.h"

/* The longest text record: the fixed part and six strings, of which each is bounded where it is
 * read. */
#define SCRATCH_BYTES 65536u

int feed_writer_init(struct feed_writer *writer, struct ring *ring)
{
	*writer = (struct feed_writer){ .ring = ring, .scratch = malloc(SCRATCH_BYTES) };
	return writer->scratch ? 0 : -ENOMEM;
}

void feed_writer_deinit(struct feed_writer *writer)
{
	free(writer->scratch);
	writer->scratch = NULL;
}

static int write_parts(struct feed_writer *writer, uint32_t kind, const void *fixed,
		       size_t fixed_len, const void *tail, size_t tail_len)
{
	struct iovec parts[2] = {
		{ .iov_base = (void *)(uintptr_t)fixed, .iov_len = fixed_len },
		{ .iov_base = (void *)(uintptr_t)tail, .iov_len = tail_len },
	};
	int rc = ring_write(writer->ring, kind, parts, tail_len ? 2 : 1);

	if (rc == 0 && writer->record)
		feed_file_add(writer->record, kind, parts, tail_len ? 2 : 1);
	return rc;
}

int feed_write_epoch(struct feed_writer *writer, uint64_t epoch, const uint8_t boot_id[16],
		     uint32_t cpu_count)
{
	struct feed_epoch record = { .clock = clock_now(),
				     .epoch = epoch,
				     .cpu_count = cpu_count,
				     .byte_order = FEED_FILE_BYTE_ORDER };

	memcpy(record.boot_id, boot_id, sizeof(record.boot_id));
	return write_parts(writer, FEED_EPOCH, &record, sizeof(record), NULL, 0);
}

int feed_write_clock(struct feed_writer *writer, uint64_t collector_cpu_ns,
		     const struct bpf_costs *costs)
{
	struct feed_clock record = { .clock = clock_now(),
				     .collector_cpu_ns = collector_cpu_ns,
				     .bpf_run_ns = costs->run_ns,
				     .map_bytes = costs->map_bytes };
	struct feed_costs each = { .time_ns = record.clock.monotonic_ns };
	int rc;

	_Static_assert(sizeof(costs->program_ns) <= sizeof(each.run_ns), "a record holds all programs");
	memcpy(each.run_ns, costs->program_ns, sizeof(costs->program_ns));
	rc = write_parts(writer, FEED_COSTS, &each, sizeof(each), NULL, 0);
	return rc < 0 ? rc : write_parts(writer, FEED_CLOCK, &record, sizeof(record), NULL, 0);
}

int feed_write_module(struct feed_writer *writer, const struct module *module)
{
	struct feed_module record = { .key = module->key,
				      .module = module->id,
				      .kind = module->gone ? FEED_MODULE_GONE : (uint8_t)module->kind,
				      .build_id_len = module->build_id_len,
				      .file = module_file_number(module->file.dev_major,
								 module->file.dev_minor,
								 module->file.inode) };
	size_t at = 0;

	memcpy(record.build_id, module->build_id, sizeof(record.build_id));
	feed_encode_string(writer->scratch, SCRATCH_BYTES, &at, module->path,
			   strlen(module->path));
	return write_parts(writer, FEED_MODULE, &record, sizeof(record), writer->scratch, at);
}

int feed_write_module_freed(struct feed_writer *writer, uint32_t module)
{
	struct feed_module record = { .module = module, .kind = FEED_MODULE_FREED };
	size_t at = 0;

	feed_encode_string(writer->scratch, SCRATCH_BYTES, &at, "", 0);
	return write_parts(writer, FEED_MODULE, &record, sizeof(record), writer->scratch, at);
}

int feed_write_proc(struct feed_writer *writer, const struct proc *proc,
		    const uint64_t families[FEED_FAMILIES_MAX])
{
	struct feed_proc record = { .start_boottime_ns = proc->start_boottime_ns,
				    .seen_monotonic_ns = proc->seen_ns,
				    .proc = proc->id,
				    .tgid = proc->tgid,
				    .parent_tgid = proc->parent_tgid,
				    .uid = proc->uid,
				    .exec_generation = proc->exec_generation,
				    .flags = proc->flags };
	const size_t room = SCRATCH_BYTES - FEED_FAMILIES_MAX * sizeof(*families);
	size_t at = 0;

	feed_encode_string(writer->scratch, room, &at, proc->comm,
			   strnlen(proc->comm, sizeof(proc->comm)));
	for (int i = 0; i < PROC_TEXT_MAX; i++)
		feed_encode_string(writer->scratch, room, &at, proc->text[i], strlen(proc->text[i]));
	for (uint64_t left = proc->families; left; left &= left - 1) {
		memcpy(writer->scratch + at, &families[__builtin_ctzll(left)], sizeof(*families));
		at += sizeof(*families);
	}
	return write_parts(writer, FEED_PROC, &record, sizeof(record), writer->scratch, at);
}

int feed_write_proc_cpu(struct feed_writer *writer, uint32_t proc, uint64_t time_ns,
			uint64_t cpu_ns)
{
	struct feed_proc_cpu record = { .time_ns = time_ns, .cpu_ns = cpu_ns, .proc = proc };

	return write_parts(writer, FEED_PROC_CPU, &record, sizeof(record), NULL, 0);
}

int feed_write_proc_exit(struct feed_writer *writer, const struct proc *proc)
{
	struct feed_proc_exit record = { .time_ns = proc->ended_ns, .proc = proc->id };

	return write_parts(writer, FEED_PROC_EXIT, &record, sizeof(record), NULL, 0);
}

int feed_write_stack(struct feed_writer *writer, const struct stack *stack)
{
	struct feed_stack record = { .stack = stack->id, .outcome = stack->outcome };
	uint64_t *frames = (void *)writer->scratch;

	for (uint16_t i = 0; i < stack->frame_count && record.frame_count < FEED_FRAMES_MAX; i++)
		if (stack->frames[i])
			frames[record.frame_count++] = stack->frames[i];
	return write_parts(writer, FEED_STACK, &record, sizeof(record), frames,
			   record.frame_count * sizeof(*frames));
}

int feed_write_script(struct feed_writer *writer, uint64_t key, uint64_t offset,
		      const struct script_frame *frame)
{
	struct feed_script record = { .key = key, .offset = offset };
	const size_t lines = sizeof(record.line) + sizeof(record.first_line);

	/* The reader sends them in the form of the feed. */
	memcpy(&record.line, frame->functions, sizeof(record.line));
	memcpy(&record.first_line, frame->functions + sizeof(record.line), sizeof(record.first_line));
	return write_parts(writer, FEED_SCRIPT, &record, sizeof(record), frame->functions + lines,
			   frame->bytes - lines);
}

int feed_write_sample(struct feed_writer *writer, const struct feed_sample *sample)
{
	return write_parts(writer, FEED_SAMPLE, sample, sizeof(*sample), NULL, 0);
}

int feed_write_outcomes(struct feed_writer *writer, uint64_t time_ns,
			const uint64_t increments[PROF_OUTCOMES_MAX])
{
	struct feed_outcome entries[PROF_OUTCOMES_MAX];
	struct feed_outcomes record = { .time_ns = time_ns };

	for (uint32_t i = 0; i < PROF_OUTCOMES_MAX; i++)
		if (increments[i])
			entries[record.count++] = (struct feed_outcome){
				.outcome = i, .increment = increments[i]
			};
	if (record.count == 0)
		return 0;
	return write_parts(writer, FEED_OUTCOMES, &record, sizeof(record), entries,
			   record.count * sizeof(entries[0]));
}

int feed_write_demand(struct feed_writer *writer, const struct feed_demand *demand)
{
	return write_parts(writer, FEED_DEMAND, demand, sizeof(*demand), NULL, 0);
}

int feed_write_alloc(struct feed_writer *writer, const struct feed_alloc *alloc, const char *reason)
{
	size_t at = 0;

	feed_encode_string(writer->scratch, SCRATCH_BYTES, &at, reason, strlen(reason));
	return write_parts(writer, FEED_ALLOC, alloc, sizeof(*alloc), writer->scratch, at);
}
