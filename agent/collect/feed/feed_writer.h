/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the records of agent/wire/feed.h into the ring to the server. Never blocks: a full ring
 * refuses the record with -ENOSPC, and the caller says what that means (a lost sample, a fact to be
 * sent again). Every record that the ring took can also be written to a recording
 * (agent/collect/feed/feed_file.h). */
#ifndef PROFD_COLLECT_FEED_WRITER_H
#define PROFD_COLLECT_FEED_WRITER_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/ring.h"
#include "agent/collect/modules/module_table.h"
#include "agent/collect/proc/proc_table.h"
#include "agent/collect/stacks/stack_table.h"
#include "agent/wire/feed.h"

struct bpf_costs;
struct feed_file;

struct feed_writer {
	struct ring *ring;	   /* borrowed */
	struct feed_file *record;  /* borrowed, NULL = none */
	uint8_t *scratch;	   /* owned */
};

int feed_writer_init(struct feed_writer *writer, struct ring *ring) must_use;
void feed_writer_deinit(struct feed_writer *writer);

int feed_write_epoch(struct feed_writer *writer, uint64_t epoch, const uint8_t boot_id[16],
		     uint32_t cpu_count) must_use;
/* Two records: the programs' costs one by one, and the clock with the sums. */
int feed_write_clock(struct feed_writer *writer, uint64_t collector_cpu_ns,
		     const struct bpf_costs *costs) must_use;
int feed_write_module(struct feed_writer *writer, const struct module *module) must_use;
/* @module's id names none any more. */
int feed_write_module_freed(struct feed_writer *writer, uint32_t module) must_use;
/* With its families, by their bits. */
int feed_write_proc(struct feed_writer *writer, const struct proc *proc,
		    const uint64_t families[FEED_FAMILIES_MAX]) must_use;
int feed_write_proc_cpu(struct feed_writer *writer, uint32_t proc, uint64_t time_ns,
			uint64_t cpu_ns) must_use;
int feed_write_proc_exit(struct feed_writer *writer, const struct proc *proc) must_use;
/* Without the words that stand for no frame. */
int feed_write_stack(struct feed_writer *writer, const struct stack *stack) must_use;
/* The name of frame @offset of the module with @key. */
int feed_write_script(struct feed_writer *writer, uint64_t key, uint64_t offset,
		      const struct script_frame *frame) must_use;
int feed_write_sample(struct feed_writer *writer, const struct feed_sample *sample) must_use;
/* Entries with an increment other than zero; none: nothing is written. */
int feed_write_outcomes(struct feed_writer *writer, uint64_t time_ns,
			const uint64_t increments[PROF_OUTCOMES_MAX]) must_use;
int feed_write_alloc(struct feed_writer *writer, const struct feed_alloc *alloc, const char *reason)
	must_use;
int feed_write_demand(struct feed_writer *writer, const struct feed_demand *demand) must_use;

#endif
