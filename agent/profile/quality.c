// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/quality.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "agent/profile/builder_internal.h"
#include "agent/wire/module_key.h"
#include "bpf/outcome.h"

/* Per node, of the stack that ends there: a parent's numbers come first, so one pass fills all. */
struct stack_facts {
	uint32_t frames, unknown, guessed;
	uint32_t bare; /* the file without symbols of the innermost such frame; 0 = none */
	bool truncated, lost, jit, approximate_java, approximate_js;
	uint8_t interpreters; /* bits: elements of interpreters[] */
};

/* Interpreters whose functions have no names. @loop runs them, and is exported for their
 * extensions, so that a stripped file names it, too. */
static const struct interpreter {
	const char *language, *loop, *remedy;
} interpreters[] = {
	{ "PHP", "execute_ex", "PHP-FPM's slow log (request_slowlog_timeout) names them" },
	{ "Ruby", "rb_vm_exec", "rbspy or stackprof names them" },
	{ "Perl", "Perl_runops_standard", "Devel::NYTProf names them" },
};

#define JIT_NOTE_PCT	  1.0 /* of the samples, from which on it is worth a word */
#define APPROXIMATE_NOTE_PCT 1.0
#define INTERPRETER_NOTE_PCT 1.0
#define STRIPPED_NOTE_PCT 2.0 /* of the frames */
#define STRIPPED_NOTES	  2u  /* files at most */
#define JS_MODULE	  "[js]" /* agent/collect/script.c */

static uint8_t interpreter_bit(const char *name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(interpreters); i++)
		if (!strcmp(name, interpreters[i].loop))
			return (uint8_t)(1u << i);
	return 0;
}

/* Would a debug package name @frame? Files that nobody could read are counted apart. */
static bool is_bare(const struct profile *p, const struct profile_frame *frame)
{
	const struct profile_mapping *mapping = &p->mappings[frame->mapping];

	return frame->kind == PROFILE_FRAME_UNKNOWN && !mapping->unread && !mapping->is_unanswered &&
	       profile_string(p, mapping->path)[0] == '/';
}

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
	if (is_bare(p, f))
		facts.bare = f->mapping;
	if (f->kind == PROFILE_FRAME_NATIVE)
		facts.interpreters |= interpreter_bit(name);
	facts.jit |= f->kind == PROFILE_FRAME_JIT && !strcmp(name, PROFILE_JIT);
	if (f->flags & PROFILE_FRAME_APPROXIMATE) {
		bool is_js = !strcmp(profile_string(p, p->mappings[f->mapping].path), JS_MODULE);

		facts.approximate_js |= is_js;
		facts.approximate_java |= !is_js;
	}
	facts.guessed += (f->flags & PROFILE_FRAME_GUESSED) != 0;
	return facts;
}

static double percent(double part, double whole)
{
	return whole > 0 ? 100 * part / whole : 0;
}

/* Frames of files that nobody could read: no debug package would name them. */
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
		quality_note(
			ret,
			"no names in files that were gone, or could not be read, when they were met: %u, %.70s",
			count, *path ? path : "not even known by its path");
	return 0;
}

/* Weights of a file's unknown frames. */
struct bare_file {
	double frames;	/* all of them */
	double samples; /* samples whose innermost unknown frame is one of them */
};

/* The file of @files that hides the most samples, of those that are worth a word; 0 = none. */
static uint32_t worst_file(const struct bare_file *files, uint32_t count, double all_frames)
{
	uint32_t worst = 0;

	for (uint32_t i = 1; i < count; i++)
		if (percent(files[i].frames, all_frames) >= STRIPPED_NOTE_PCT &&
		    files[i].samples > files[worst].samples)
			worst = i;
	return worst;
}

/* Notes the files without symbols that hide where most samples end: names of a library's functions
 * answer more than those of the program that calls it. @weight: by node, what the samples that end
 * there weigh; becomes that of all samples that pass there. */
static int note_stripped(const struct profile *p, const struct stack_facts *facts, double *weight,
			 struct profile_quality *ret)
{
	cleanup_free struct bare_file *files = calloc(p->mapping_count + 1, sizeof(*files));
	double frames = 0;
	uint32_t worst, i;

	if (!files)
		return -ENOMEM;
	for (i = 1; i < p->node_count; i++)
		if (facts[i].bare)
			files[facts[i].bare].samples += weight[i];
	for (i = p->node_count; i-- > 1;) {
		const struct profile_frame *f = &p->frames[p->nodes[i].frame];

		weight[p->nodes[i].parent] += weight[i];
		frames += f->kind != PROFILE_FRAME_MARKER ? weight[i] : 0;
		if (is_bare(p, f))
			files[f->mapping].frames += weight[i];
	}
	for (unsigned n = 0; n < STRIPPED_NOTES; n++) {
		worst = worst_file(files, p->mapping_count, frames);
		if (!worst)
			break;
		quality_note(ret,
			     "no symbols in %.60s: install its debug package (-dbgsym, -debuginfo) or "
			     "set collect.debuginfod_urls",
			     profile_string(p, p->mappings[worst].path));
		files[worst].samples = 0;
	}
	return 0;
}

/* Files with one build-id that others could have written, or with code at other places, have names
 * of their own (agent/wire/module_key.h). */
static int note_claims(const struct profile *p, struct profile_quality *ret)
{
	struct u64map keys; /* by build-id, of the first file that has it */
	const char *path = "";
	uint32_t count = 0;
	int rc = 0;

	u64map_init(&keys, p->mapping_count + 1);
	for (uint32_t i = 0; rc == 0 && i < p->mapping_count; i++) {
		const struct profile_mapping *m = &p->mappings[i];
		uint64_t id = module_key_of_build_id(m->build_id, m->build_id_len), key = m->key;

		if (m->build_id_len && !u64map_get(&keys, id, &key))
			rc = u64map_put(&keys, id, key);
		if (key != m->key && !count++)
			path = profile_string(p, m->path);
	}
	if (count)
		quality_note(ret,
			     "files that have another file's build-id, but another owner or layout: "
			     "%u, %.60s; each is named apart",
			     count, path);
	u64map_deinit(&keys);
	return rc;
}

/* Weights of the samples that the notes are about. */
struct shares {
	double jit, approximate_java, approximate_js, lost;
	double interpreters[ARRAY_SIZE(interpreters)];
};

/* Adds the weight of a sample that lies in interpreters. */
static void add_interpreters(struct shares *shares, uint8_t bits, double weight)
{
	for (unsigned i = 0; i < ARRAY_SIZE(interpreters); i++)
		shares->interpreters[i] += bits >> i & 1 ? weight : 0;
}

/* Without a figure: parts of a profile, and what they are merged into, say the same once. */
static void note_shares(const struct shares *shares, double samples, struct profile_quality *ret)
{
	if (percent(shares->jit, samples) >= JIT_NOTE_PCT)
		quality_note(ret, "[jit] is code that only its runtime can name: "
				  "DOTNET_PerfMapEnabled=1, and for a Java virtual machine other "
				  "than HotSpot its perf map");
	for (unsigned i = 0; i < ARRAY_SIZE(interpreters); i++)
		if (percent(shares->interpreters[i], samples) >= INTERPRETER_NOTE_PCT)
			quality_note(ret,
				     "functions of %s have no names here, only the C functions that "
				     "they call; %s",
				     interpreters[i].language, interpreters[i].remedy);
	if (percent(shares->approximate_java, samples) >= APPROXIMATE_NOTE_PCT)
		quality_note(ret, "innermost compiled Java frames are approximate: line and inlined "
				  "methods are of the next recorded place (-XX:+DebugNonSafepoints "
				  "records all)");
	if (percent(shares->approximate_js, samples) >= APPROXIMATE_NOTE_PCT)
		quality_note(ret, "optimized JavaScript frames are approximate: line of a call nearby, "
				  "some inlined functions missing (--detailed-line-info: Turbofan "
				  "records all)");
	if (ret->outcomes[OUTCOME_script_unsupported])
		quality_note(ret, "script_unsupported: a runtime's version or build is not supported, "
				  "such as V8 with compressed pointers (Electron); the hint of the service "
				  "says more");
	if (shares->lost > 0)
		quality_note(ret, "[unknown] without a file: samples whose stacks are lost, as "
				  "those from before collector and server "
				  "ended at once");
}

int quality_of_frames(const struct profile *p, struct profile_quality *ret)
{
	cleanup_free struct stack_facts *facts = calloc(p->node_count, sizeof(*facts));
	cleanup_free double *weights = calloc(p->node_count, sizeof(*weights));
	int rc;
	double samples = 0, truncated = 0, frames = 0, unknown = 0, guessed = 0;
	struct shares shares = { 0 };
	uint32_t i;

	if (!facts || !weights)
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
		shares.jit += f->jit ? weight : 0;
		shares.approximate_java += f->approximate_java ? weight : 0;
		shares.approximate_js += f->approximate_js ? weight : 0;
		shares.lost += f->lost ? weight : 0;
		add_interpreters(&shares, f->interpreters, weight);
		if (f->lost)
			continue;
		weights[p->samples[i].node] += weight;
		frames += weight * f->frames;
		unknown += weight * f->unknown;
		guessed += weight * f->guessed;
	}
	ret->truncated_pct = percent(truncated, samples);
	/* as if a stack that is lost had as many frames as others have */
	ret->unknown_frame_pct = percent(shares.lost, samples) +
				 (1 - shares.lost / (samples > 0 ? samples : 1)) * percent(unknown, frames);
	ret->guessed_frame_pct = percent(guessed, frames);
	note_shares(&shares, samples, ret);
	rc = note_stripped(p, facts, weights, ret);
	if (rc == 0)
		rc = note_claims(p, ret);
	return rc < 0 ? rc : note_unread(p, ret);
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
