/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks and samples on their way from BPF to the feed. A stack stays as it came until its first
 * sample says which process it belongs to and when it was taken. Loop thread only. */
#ifndef PROFD_COLLECT_SAMPLES_H
#define PROFD_COLLECT_SAMPLES_H

#include "agent/collect/collector_internal.h"

/* Callbacks of struct bpf_sink; @ctx is the struct collector. */
void samples_stack(void *ctx, const struct prof_stack_event *event);
void samples_task(void *ctx, const struct prof_task_event *event);
void samples_sample(void *ctx, const struct prof_sample_event *event);
/* Callback of stack_table_create(): the kernel sends the stack in full when it meets it again. */
void samples_evicted(void *ctx, uint64_t hash);
/* Writes a sample whose value is final, with its process and stacks. A sample that does not fit
 * into the ring is counted as feed_full. */
void samples_feed(struct collector *c, const struct prof_sample_event *event);

#endif
