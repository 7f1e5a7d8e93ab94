/* SPDX-License-Identifier: Apache-2.0 */
/* A profile while it is made of a recording: shared by recording_build.c (stacks, events),
 * build_attrs.c (processes and attributes) and build_totals.c (what the kernel counted of each
 * thread). */
#ifndef PROFD_RECORDING_BUILD_INTERNAL_H
#define PROFD_RECORDING_BUILD_INTERNAL_H

#include "agent/recording/live_fit.h"
#include "agent/recording/lock_names.h"
#include "agent/recording/recording_internal.h"
#include "agent/recording/sample_variance.h"
#include "agent/recording/wakers.h"

struct stack_resolver;
struct thread_totals;
struct moved_totals;

VEC_DEFINE(ids, uint32_t);

struct build {
	const struct recording *recording;
	const struct recording_options *options;
	struct profile_builder *builder;
	const struct name_source *names;
	struct stack_resolver *resolver;
	struct ids_vec nodes;	  /* by pair, NO_NODE until asked for */
	struct ids_vec files;	  /* likewise, empty unless paths are asked for */
	struct ids_vec tiers;	  /* by pair, likewise: enum profile_tier */
	struct ids_vec attrs;	  /* by attr and tier, likewise */
	struct ids_vec processes; /* by process, likewise */
	struct lock_names locks;
	struct thread_totals *totals;
	struct moved_totals *moved;
	struct wakers wakers;
	struct u64map seen; /* process << 32 | tid -> index of an event: threads that run */
	struct wakers releases; /* of CPython's global lock, in mutex profiles */
	struct sample_variance variance;
	struct live_fit fit; /* of what is in use */
};

/* Values of a profile of io. */
enum { IO_VALUE_OPERATIONS, IO_VALUE_DELAY, IO_VALUE_BYTES };

/* NULL: unknown. */
static inline const struct chunk_attr *build_attr(const struct recording *recording, uint32_t id)
{
	return id < recording->attrs.count ? &recording->attrs.data[id] : NULL;
}

/* String id. */
uint32_t build_text(struct build *b, const char *text);
/* A node below the root for what has no stack: the overflow bucket, a stack that never arrived. */
uint32_t build_marker(struct build *b, const char *text);

/* The profile's number of a process of the recording, and of attributes; @file: string id, 0 =
 * none. @holder: the tid of the lock's holder, 0 = as the attributes say. */
uint32_t build_attrs_process(struct build *b, uint32_t id);
uint32_t build_attrs_find(struct build *b, uint32_t id, enum profile_tier tier, uint32_t file,
			  uint32_t holder);
/* Its object is a lock. */
bool build_attrs_has_lock(const struct build *b, const struct chunk_attr *attr);

/* Compares what was sampled of each thread with what the kernel counted. -ENOMEM. */
int build_totals_find(struct build *b) must_use;
/* A wait that was long enough to be recorded whatever chance says. */
bool build_totals_is_exact(const struct chunk_attr *attr, const struct chunk_event *event);
/* The event's value, so that those of its thread agree with the kernel's count. */
int64_t build_totals_scale(const struct build *b, const struct chunk_attr *attr,
			   const struct chunk_event *event);
/* Adds the time and bytes that no sample stands for. */
void build_totals_add_rests(struct build *b);

#endif
