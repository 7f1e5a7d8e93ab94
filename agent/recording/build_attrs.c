// SPDX-License-Identifier: Apache-2.0
/* Processes and attributes of samples, in words. */
#include <string.h>

#include "agent/profile/lock_site.h"
#include "agent/recording/build_internal.h"
#include "agent/recording/wait_types.h"
#include "bpf/profiler.h"

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
					     "epoll", "disk",  "fault", "child",  "other" };
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

/* What the estimate of a place's memory rests on. The number of labels. */
static unsigned labels_of_live(struct build *b, const struct chunk_attr *attr, struct profile_label ret[3])
{
	unsigned count = 0;

	if (attr->state == FEED_ALLOC_LIVE && !attr->holder && feed_alloc_unsure(attr->object))
		ret[count++] = (struct profile_label){ build_text(b, PROFILE_LABEL_UNSURE), build_text(b, "yes") };
	if (attr->state == FEED_ALLOC_LIVE && attr->holder) {
		ret[count++] = number_label(b, PROFILE_LABEL_DEATHS, attr->holder);
		ret[count++] = number_label(b, PROFILE_LABEL_ERROR, (feed_alloc_error(attr->object) + 9) / 10);
	}
	if (attr->state == FEED_ALLOC_LIVE && attr->detail)
		ret[count++] = number_label(b, attr->detail & FEED_ALLOC_FEW ? PROFILE_LABEL_FEW : PROFILE_LABEL_FOLLOWED,
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

static struct profile_label holder_label(struct build *b, const struct chunk_attr *attr)
{
	uint32_t holder = attr->holder == attr->tid
				  ? 0
				  : lock_names_holder(&b->locks, b->builder, attr->process, attr->holder);

	return (struct profile_label){ holder ? build_text(b, "holder") : 0, holder };
}

/* The number of labels. */
static unsigned labels_of(struct build *b, const struct chunk_attr *attr, uint32_t file, struct profile_label ret[3])
{
	unsigned count = 0;

	if (attr->type == PROF_SAMPLE_ALLOC)
		return labels_of_live(b, attr, ret);
	ret[0] = is_disk(b, attr) ? disk_label(b, attr) : holder_label(b, attr);
	count = ret[0].value != 0;
	if (file)
		ret[count++] = (struct profile_label){ build_text(b, "path"), file };
	return count;
}

uint32_t build_attrs_find(struct build *b, uint32_t id, uint32_t file)
{
	static const struct chunk_attr unknown = { .process = UINT32_MAX };
	const struct chunk_attr *attr =
		id < b->attrs.count ? &b->recording->attrs.data[id] : &unknown;
	struct profile_attrs entry = { 0 };
	struct profile_label labels[3] = { 0 };
	uint32_t made;

	if (attr != &unknown && !file && b->attrs.data[id] != NO_NODE)
		return b->attrs.data[id];
	entry.process = build_attrs_process(b, attr->process);
	entry.tid = attr->tid;
	entry.thread_name = profile_builder_string(b->builder, attr->comm,
						   strnlen(attr->comm, sizeof(attr->comm)));
	entry.state = build_text(b, state_word(attr));
	entry.wait = build_text(b, wait_word(attr));
	if (build_attrs_has_lock(b, attr))
		entry.extra = lock_names_lock(&b->locks, b->builder,
					      attr->detail == PROF_DETAIL_KERNEL_LOCK ? "kernel lock"
										      : "futex",
					      attr->process, attr->object);
	else
		entry.extra = build_text(b, kind_word(attr));
	entry.label_count = labels_of(b, attr, file, labels);
	made = profile_builder_attrs(b->builder, &entry, labels);
	if (attr != &unknown && !file)
		b->attrs.data[id] = made;
	return made;
}
