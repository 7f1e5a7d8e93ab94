// SPDX-License-Identifier: Apache-2.0
/* Processes and attributes of samples, in words. */
#include <stdio.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/profile/lock_site.h"
#include "agent/recording/build_internal.h"
#include "agent/recording/wait_types.h"
#include "bpf/profiler.h"

#define LABELS_MAX 5u /* of a sample: tier, runtime, three more */

/* The value that the lines of a container have for @name, 0 if none. */
static uint32_t container_text(struct build *b, const struct process *process, const char *name)
{
	size_t len = strlen(name);

	const char *at = process->container, *end;
	char value[256];

	for (; at && (end = strchr(at, '\n')); at = end + 1) {
		if (strncmp(at, name, len) != 0 || at[len] != '=')
			continue;
		at += len + 1;
		(void)snprintf(value, sizeof(value), "%.*s", (int)(end - at), at);
		return build_text(b, value);
	}
	return 0;
}

uint32_t build_attrs_process(struct build *b, uint32_t id)
{
	const struct process *process =
		id < b->processes.count ? &b->recording->processes.data[id] : NULL;
	struct profile_process entry = { 0 };
	uint32_t made;

	if (process && b->processes.data[id] != NO_NODE)
		return b->processes.data[id];
	if (process && process->comm) {
		entry.pid = process->tgid;
		entry.started_at_ns = process->started_at_ns;
		entry.comm = build_text(b, process->comm);
		entry.exe = build_text(b, process->exe);
		entry.service = build_text(b, process->service);
		entry.container = container_text(b, process, "container.name");
		entry.image = container_text(b, process, "container.image.name");
		entry.pod = container_text(b, process, "k8s.pod.name");
		entry.namespace = container_text(b, process, "k8s.namespace.name");
	}
	made = profile_builder_process(b->builder, &entry);
	if (process)
		b->processes.data[id] = made;
	return made;
}

static const char *state_word(const struct chunk_attr *attr)
{
	if (attr->type == PROF_SAMPLE_ALLOC)
		return attr->state == FEED_ALLOC_EXACT			? PROFILE_STATE_EXACT
		       : attr->state == FEED_ALLOC_LIVE && attr->holder ? "estimated"
									: "";
	if (attr->type == PROF_SAMPLE_FAULT)
		return attr->state == PROF_FAULT_MAJOR ? "major" : "minor";
	if (attr->type != PROF_SAMPLE_OFFCPU)
		return "";
	switch (attr->state >> 4) {
	case PROF_OFF_BLOCKED:
		return "blocked";
	case PROF_OFF_RUNQUEUE:
		return "runqueue";
	case PROF_OFF_PREEMPTED:
		return "preempted";
	}
	return "";
}

static const char *wait_word(const struct chunk_attr *attr)
{
	static const char *const words[] = { "",      "futex", "sleep", "socket", "pipe",
					     "epoll", "disk",  "fault", "child",  "other", "gil" };
	unsigned wait = attr->state & 15;

	if (attr->type != PROF_SAMPLE_OFFCPU || attr->state >> 4 != PROF_OFF_BLOCKED)
		return "";
	return wait < ARRAY_SIZE(words) ? words[wait] : "other";
}

static const char *kind_word(const struct chunk_attr *attr)
{
	if (attr->type == PROF_SAMPLE_ALLOC)
		return ""; /* a number */
	switch (attr->detail) {
	case PROF_DETAIL_FILE:
		return "file";
	case PROF_DETAIL_SOCKET:
		return "socket";
	case PROF_DETAIL_PIPE:
		return "pipe";
	case PROF_DETAIL_SYNC:
		return "sync";
	}
	return "";
}

/* A part of a wait for a disk (enum wait_disk), or such a wait as a whole. */
static bool is_disk(const struct build *b, const struct chunk_attr *attr)
{
	return b->options->meta.type == PROFILE_IO && attr->type == PROF_SAMPLE_OFFCPU &&
	       prof_state_is_disk(attr->state);
}

bool build_attrs_has_lock(const struct build *b, const struct chunk_attr *attr)
{
	return attr->object && attr->type != PROF_SAMPLE_ALLOC && !is_disk(b, attr);
}

static struct profile_label number_label(struct build *b, const char *name, uint32_t number)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", number);
	return (struct profile_label){ build_text(b, name), build_text(b, text) };
}

/* Labels that say what the estimate of a place's memory rests on. Returns the number of labels. */
static unsigned labels_of_live(struct build *b, const struct chunk_attr *attr,
			       struct profile_label ret[3])
{
	unsigned count = 0;

	if (attr->state == FEED_ALLOC_LIVE && !attr->holder && feed_alloc_unsure(attr->object))
		ret[count++] = (struct profile_label){ build_text(b, PROFILE_LABEL_UNSURE),
						       build_text(b, "yes") };
	if (attr->state == FEED_ALLOC_LIVE && attr->holder) {
		ret[count++] = number_label(b, PROFILE_LABEL_DEATHS, attr->holder);
		ret[count++] = number_label(b, PROFILE_LABEL_ERROR, (feed_alloc_error(attr->object) + 9) / 10);
	}
	if (attr->state == FEED_ALLOC_LIVE && attr->detail)
		ret[count++] = number_label(b,
					    attr->detail & FEED_ALLOC_FEW ? PROFILE_LABEL_FEW
									  : PROFILE_LABEL_FOLLOWED,
					    attr->detail & ~FEED_ALLOC_FEW);
	return count;
}

static struct profile_label disk_label(struct build *b, const struct chunk_attr *attr)
{
	static const char *const stages[] = { [WAIT_DISK_DEVICE] = "device", [WAIT_DISK_QUEUE] = "queue" };
	char text[32] = "not joined";

	if (attr->holder == WAIT_DISK_DEVICE || attr->holder == WAIT_DISK_QUEUE)
		(void)snprintf(text, sizeof(text), "%.8s %s", (const char *)&attr->object, stages[attr->holder]);
	return (struct profile_label){ build_text(b, "disk"), build_text(b, text) };
}

static struct profile_label holder_label(struct build *b, const struct chunk_attr *attr,
					 uint32_t tid)
{
	uint32_t holder =
		tid == attr->tid ? 0 : lock_names_holder(&b->locks, b->builder, attr->process, tid);

	return (struct profile_label){ holder ? build_text(b, "holder") : 0, holder };
}

/* The work of a virtual machine's own thread, by the name that the machine gives it; NULL: it is no
 * such thread. HotSpot's names are where its sources create them, Node's in src/node_platform.cc
 * (from 26 on; before that its threads have no names). The serial collector works in the VM thread.
 */
static const char *runtime_word(const char comm[16])
{
	static const struct {
		const char *begin, *word;
	} threads[] = {
		{ "GC Thread#", "gc" },	     { "G1 ", "gc" },
		{ "ParGC Thread#", "gc" },   { "XWorker#", "gc" },
		{ "XDriver", "gc" },	     { "XDirector", "gc" },
		{ "ZWorker", "gc" },	     { "ZDriver", "gc" },
		{ "ZDirector", "gc" },	     { "ZUncommitter", "gc" },
		{ "ZStat", "gc" },	     { "Shenandoah ", "gc" },
		{ "Concurrent Mark", "gc" }, { "CMS ", "gc" },
		{ "Gang worker#", "gc" },    { "C1 CompilerThre", "jit" },
		{ "C2 CompilerThre", "jit" }, { "JVMCI Compiler", "jit" },
		{ "Sweeper thread", "jit" }, { "VM Thread", "vm" },
		{ "VM Periodic Tas", "vm" }, { "V8Worker", "gc and jit" },
		{ "node-V8Worker", "gc and jit" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		if (text_begins(comm, threads[i].begin))
			return threads[i].word;
	return NULL;
}

/* The number of labels. */
static unsigned labels_of(struct build *b, const struct chunk_attr *attr, enum profile_tier tier,
			  uint32_t file, uint32_t holder, struct profile_label ret[LABELS_MAX])
{
	static const char *const tiers[PROFILE_TIERS] = {
		[PROFILE_TIER_INTERPRETED] = "interpreted",
		[PROFILE_TIER_BASELINE] = "baseline",
		[PROFILE_TIER_OPTIMIZED] = "optimized",
	};
	const char *runtime = runtime_word(attr->comm);
	unsigned count = 0;

	if (tiers[tier])
		ret[count++] = (struct profile_label){ build_text(b, PROFILE_LABEL_TIER),
						       build_text(b, tiers[tier]) };
	if (runtime)
		ret[count++] = (struct profile_label){ build_text(b, PROFILE_LABEL_RUNTIME),
						       build_text(b, runtime) };
	if (attr->type == PROF_SAMPLE_ALLOC)
		return count + labels_of_live(b, attr, ret + count);
	if (!holder && !wait_is_gil(attr->state))
		holder = attr->holder;
	ret[count] = is_disk(b, attr) ? disk_label(b, attr) : holder_label(b, attr, holder);
	count += ret[count].value != 0;
	if (file)
		ret[count++] = (struct profile_label){ build_text(b, "path"), file };
	return count;
}

uint32_t build_attrs_find(struct build *b, uint32_t id, enum profile_tier tier, uint32_t file,
			  uint32_t holder)
{
	static const struct chunk_attr unknown = { .process = UINT32_MAX };
	const struct chunk_attr *attr =
		id < b->recording->attrs.count ? &b->recording->attrs.data[id] : &unknown;
	struct profile_attrs entry = { 0 };
	struct profile_label labels[LABELS_MAX] = { 0 };
	uint32_t made, *known = NULL;

	if (attr != &unknown)
		known = &b->attrs.data[(size_t)id * PROFILE_TIERS + tier];
	if (known && !file && !holder && *known != NO_NODE)
		return *known;
	entry.process = build_attrs_process(b, attr->process);
	entry.tid = attr->tid;
	entry.thread_name = profile_builder_string(b->builder, attr->comm,
						   strnlen(attr->comm, sizeof(attr->comm)));
	entry.state = build_text(b, state_word(attr));
	entry.wait = build_text(b, wait_word(attr));
	if (build_attrs_has_lock(b, attr))
		entry.extra = lock_names_lock(&b->locks, b->builder,
					      attr->detail == PROF_DETAIL_KERNEL_LOCK ? "kernel lock"
					      : wait_is_gil(attr->state)	      ? "GIL"
										      : "futex",
					      attr->process, attr->object);
	else
		entry.extra = build_text(b, kind_word(attr));
	entry.label_count = labels_of(b, attr, tier, file, holder, labels);
	made = profile_builder_attrs(b->builder, &entry, labels);
	if (known && !file && !holder)
		*known = made;
	return made;
}
