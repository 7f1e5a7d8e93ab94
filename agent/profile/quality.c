// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/quality.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/builder_internal.h"

/* Per node, of the stack that ends there: a parent's numbers come first, so one pass fills all. */
struct stack_facts {
	uint32_t frames, unknown, guessed;
	bool truncated, lost, jit;
};

#define JIT_NOTE_PCT 1.0 /* of the samples, from which on it is worth a word */

static struct stack_facts extend(const struct profile *p, struct stack_facts facts, uint32_t frame)
{
	const struct profile_frame *f = &p->frames[frame];
	const char *name = profile_string(p, p->functions[f->function].name);

	if (f->kind == PROFILE_FRAME_MARKER) {
		facts.truncated |= !strcmp(name, PROFILE_TRUNCATED);
		facts.lost |= !strcmp(name, PROFILE_LOST);
		return facts;
	}
	facts.frames++;
	facts.unknown += f->kind == PROFILE_FRAME_UNKNOWN;
	facts.jit |= f->kind == PROFILE_FRAME_JIT && !strcmp(name, PROFILE_JIT);
	facts.guessed += (f->flags & PROFILE_FRAME_GUESSED) != 0;
	return facts;
}

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

/* Frames of files that nobody could read are told apart from those that a debug package would name. */
static int note_unread(const struct profile *p, struct profile_quality *ret)
{
	cleanup_free bool *seen = calloc(p->mapping_count, sizeof(*seen));
	const char *path = "";
	uint32_t count = 0;

	if (!seen)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->frame_count; i++) {
		uint32_t mapping = p->frames[i].mapping;

		if (p->frames[i].kind != PROFILE_FRAME_UNKNOWN || !p->mappings[mapping].unread || seen[mapping])
			continue;
		seen[mapping] = true;
		if (!count++)
			path = profile_string(p, p->mappings[mapping].path);
	}
	if (count)
		quality_note(ret, "no names in files that were gone, or could not be read, when they were met: %u, %.70s", count,
			     *path ? path : "not even known by its path");
	return 0;
}

int quality_of_frames(const struct profile *p, struct profile_quality *ret)
{
	cleanup_free struct stack_facts *facts = calloc(p->node_count, sizeof(*facts));
	double samples = 0, truncated = 0, lost = 0, jit = 0, frames = 0, unknown = 0, guessed = 0;
	uint32_t i;

	if (!facts)
		return -ENOMEM;
	for (i = 1; i < p->node_count; i++)
		facts[i] = extend(p, facts[p->nodes[i].parent], p->nodes[i].frame);
	for (i = 0; i < p->sample_count; i++) {
		const struct stack_facts *f = &facts[p->samples[i].node];
		double weight = (double)p->samples[i].values[0];

		if (weight <= 0)
			continue;
		samples += weight;
		truncated += f->truncated ? weight : 0;
		jit += f->jit ? weight : 0;
		lost += f->lost ? weight : 0;
		if (f->lost)
			continue;
		frames += weight * f->frames;
		unknown += weight * f->unknown;
		guessed += weight * f->guessed;
	}
	ret->truncated_pct = percent(truncated, samples);
	/* as if a stack that is lost had as many frames as others have */
	ret->unknown_frame_pct = percent(lost, samples) + (1 - lost / (samples > 0 ? samples : 1)) * percent(unknown, frames);
	ret->guessed_frame_pct = percent(guessed, frames);
	/* Without a figure: parts of a profile, and what they are merged into, say the same once. */
	if (percent(jit, samples) >= JIT_NOTE_PCT)
		quality_note(ret, "[jit] is code that only its runtime can name: node --perf-basic-prof, jcmd PID Compiler.perfmap "
				  "(JDK 17), DOTNET_PerfMapEnabled=1");
	if (lost > 0)
		quality_note(ret, "[unknown] without a file: samples whose stacks are lost, as those from before collector and server "
				  "ended at once");
	return note_unread(p, ret);
}

static void add_note(struct profile_quality *quality, const char *text)
{
	uint32_t i;

	for (i = 0; i < quality->note_count; i++)
		if (!strcmp(quality->notes[i], text))
			return;
	if (quality->note_count >= ARRAY_SIZE(quality->notes))
		return;
	(void)snprintf(quality->notes[quality->note_count++], sizeof(quality->notes[0]), "%s",
		       text);
}

void quality_note(struct profile_quality *quality, const char *fmt, ...)
{
	char text[sizeof(quality->notes[0])];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	add_note(quality, text);
}

void quality_skip(struct profile_quality *quality, uint32_t pid, const char *reason)
{
	struct profile_skipped *skipped;

	for (uint32_t i = 0; i < quality->skipped_count; i++)
		if (quality->skipped[i].pid == pid)
			return;
	if (quality->skipped_count >= PROFILE_SKIPPED_MAX) {
		add_note(quality, "more processes than are listed were left out");
		return;
	}
	skipped = &quality->skipped[quality->skipped_count++];
	skipped->pid = pid;
	(void)snprintf(skipped->reason, sizeof(skipped->reason), "%s", reason);
}

struct profile_quality quality_empty(void)
{
	return (struct profile_quality){
		.samples = -1, .lost = -1, .effective_rate = -1, .overhead_pct = -1, .type_overhead_pct = -1
	};
}

static double weighted(double sum, double sum_weight, double part, double part_weight)
{
	if (sum < 0)
		return part;
	if (part < 0)
		return sum;
	return (sum * sum_weight + part * part_weight) / (sum_weight + part_weight);
}

static int64_t add_known(int64_t sum, int64_t part)
{
	if (sum < 0)
		return part;
	return part < 0 ? sum : profile_add(sum, part);
}

void quality_add(struct profile_quality *sum, const struct profile_quality *part)
{
	double before = sum->samples > 0 ? (double)sum->samples : 1;
	double added = part->samples > 0 ? (double)part->samples : 1;
	uint32_t i;

	sum->effective_rate = weighted(sum->effective_rate, before, part->effective_rate, added);
	sum->overhead_pct = weighted(sum->overhead_pct, before, part->overhead_pct, added);
	sum->type_overhead_pct = weighted(sum->type_overhead_pct, before, part->type_overhead_pct, added);
	sum->samples = add_known(sum->samples, part->samples);
	sum->lost = add_known(sum->lost, part->lost);
	for (i = 0; i < PROFILE_OUTCOMES_MAX; i++)
		sum->outcomes[i] += part->outcomes[i];
	for (i = 0; i < part->skipped_count && i < PROFILE_SKIPPED_MAX; i++)
		quality_skip(sum, part->skipped[i].pid, part->skipped[i].reason);
	for (i = 0; i < part->note_count && i < ARRAY_SIZE(part->notes); i++)
		add_note(sum, part->notes[i]);
}
