/* SPDX-License-Identifier: Apache-2.0 */
/* One answer of the reader under construction. It interns strings, modules, stacks and label sets,
 * and turns addresses into frames of the target's mapped files. Records are written in the order
 * that agent/wire/read_stream.h demands. Errors are sticky in the writer. Not thread-safe. */
#ifndef PROFD_READER_ANSWER_H
#define PROFD_READER_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/target_memory.h"
#include "agent/wire/read_stream.h"

struct answer {
	struct target *target;		/* borrowed */
	const struct target_maps *maps; /* borrowed */
	struct read_writer *writer;	/* borrowed */
	uint64_t deadline_ns;		/* monotonic: when to stop and report what there is */
	uint32_t *module_ids;		/* by index of maps->modules, 0 = not written yet */
	uint32_t module_count;
	struct u64map strings; /* hash -> id */
	struct u64map stacks;
	struct u64map labels;
	struct u64map scripts;
	uint32_t script_module; /* id of the module of script frames, 0 = not written yet */
	struct read_end end; /* counters, written by answer_finish() */
	uint64_t started_ns;
	uint64_t started_cpu_ns;
};

/* -ENOMEM. Borrows everything for the life of the answer. */
int answer_init(struct answer *answer, struct target *target, const struct target_maps *maps,
		struct read_writer *writer, uint64_t deadline_ns) must_use;
void answer_deinit(struct answer *answer);
bool answer_is_late(const struct answer *answer);

/* Ids, 0 on a sticky error or for "". */
uint32_t answer_string(struct answer *answer, const char *text, size_t len);
uint32_t answer_text(struct answer *answer, const char *text);
uint32_t answer_stack(struct answer *answer, uint8_t outcome, const uint64_t *frames,
		      const uint8_t *flags, unsigned count);
uint32_t answer_labels(struct answer *answer, const uint32_t *pairs, unsigned count);
/* The frame word of address @va, with its module written; @flags of bpf/profiler.h. */
uint64_t answer_frame(struct answer *answer, uint64_t va, uint64_t flags);
/* The frame word of a script frame, with its module written. @function "": it has no name. */
uint64_t answer_script_frame(struct answer *answer, const char *function, const char *file,
			     uint32_t line, uint32_t first_line);
/* Writes READ_END and the last chunk. 0 or the first error of the answer. */
int answer_finish(struct answer *answer) must_use;

static inline void cleanup_answer_fn(struct answer *answer)
{
	answer_deinit(answer);
}
#define cleanup_answer __attribute__((__cleanup__(cleanup_answer_fn)))

#endif
