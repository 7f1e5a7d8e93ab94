// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/goroutine/goroutine_analysis.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/intern.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/base/vec.h"
#include "agent/profile/attribute.h"

VEC_DEFINE(stacks, struct goroutine_stack);
VEC_DEFINE(frames, uint32_t);

bool goroutine_frame_is_shown(const char *function)
{
	static const char *const always[] = { "runtime.gopanic", "runtime.runFinalizers",
					      "runtime.runCleanups" };
	const char *dot = strrchr(function, '.'), *rest = function + strlen("runtime.");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(always); i++)
		if (!strcmp(function, always[i]))
			return true;
	if (!dot)
		return false;
	if (!text_begins(function, "runtime."))
		return true;
	/* Exported functions, and exported methods of exported types: runtime.(*Frames).Next. */
	if (text_begins(rest, "(*"))
		return rest[2] >= 'A' && rest[2] <= 'Z' && dot[1] >= 'A' && dot[1] <= 'Z';
	return rest[0] >= 'A' && rest[0] <= 'Z';
}

bool goroutine_is_blocked(const char *state, const char *wait)
{
	/* Prefixes, because versions add qualifiers: "chan receive (nil chan)", "select (durable)".
	 */
	static const char *const go[] = { "chan ",     "select",  "semacquire", "sync.",
					  "synctest.", "IO wait", "coroutine" };
	static const char *const task[] = { "asyncio task",	  "asyncio gather", "asyncio future",
					    "asyncio queue",  "asyncio lock",   "asyncio stream",
					    "asyncio socket" };
	static const char *const thread[] = { "futex", "pipe",	  "socket", "epoll",
					      "poll",  "select",  "accept", "recv",
					      "send",  "connect", "child",  "wait",
					      "join",  "sem",	  "msg",    "unix" };
	size_t i;

	if (!strcmp(state, "waiting") || !strcmp(state, "leaked")) {
		for (i = 0; i < ARRAY_SIZE(go); i++)
			if (text_begins(wait, go[i]))
				return true;
		for (i = 0; i < ARRAY_SIZE(task); i++)
			if (!strcmp(wait, task[i]))
				return true;
		return false;
	}
	if (!strcmp(state, "sleeping") || !strcmp(state, "blocked"))
		for (i = 0; i < ARRAY_SIZE(thread); i++)
			if (text_begins(wait, thread[i]))
				return true;
	return false;
}

bool goroutines_have_tasks(const struct profile *p)
{
	struct attribute task;

	return attribute_parse(p, GOROUTINE_LABEL_TASK, &task) == 0;
}

double goroutine_growth_rate(uint64_t current, uint64_t previous)
{
	return previous ? (double)current / (double)previous : 1.0;
}

/* ---- from samples to stacks ------------------------------------------------------------------ */

struct work {
	const struct profile *p;
	const struct goroutine_options *options;
	struct stacks_vec stacks;
	struct frames_vec frames;
	struct intern index; /* of stacks, by key() */
	struct attribute wait_label, system_label;
	bool has_wait_label, has_system_label;
};

static const char *function_name(const struct profile *p, uint32_t frame)
{
	return profile_string(p, p->functions[p->frames[frame].function].name);
}

static bool is_system(const struct work *w, const struct profile_sample *s)
{
	static const char *const users[] = { "runtime.main", "runtime.corostart",
					     "runtime.handleAsyncEvent", "runtime.goexit" };
	const struct profile *p = w->p;
	const char *outermost = "", *wait = profile_string(p, p->attrs[s->attrs].wait);
	char scratch[ATTRIBUTE_SCRATCH_SIZE];
	uint32_t node;
	size_t i;

	if (w->has_system_label)
		return !strcmp(attribute_text(p, s->attrs, w->system_label, scratch), "true");
	for (node = s->node; node; node = p->nodes[node].parent)
		if (strcmp(function_name(p, p->nodes[node].frame), "runtime.goexit"))
			outermost = function_name(p, p->nodes[node].frame);
	if (!text_begins(outermost, "runtime."))
		return false;
	for (i = 0; i < ARRAY_SIZE(users); i++)
		if (!strcmp(outermost, users[i]))
			return false;
	/* The finalizer and cleanup goroutines are the user's while they run his code. */
	if (text_begins(outermost, "runtime.runfinq") || text_begins(outermost, "runtime.runFinalizers"))
		return text_begins(wait, "finalizer wait");
	if (text_begins(outermost, "runtime.runCleanups"))
		return text_begins(wait, "cleanup wait");
	return true;
}

/* Appends the shown frames of a stack, innermost first; all of them if none would be shown. */
static int append_frames(struct work *w, uint32_t leaf)
{
	const struct profile *p = w->p;
	size_t before = w->frames.count;
	bool all = w->options->raw_frames;
	uint32_t node;
	int rc = 0;

	for (;;) {
		for (node = leaf; rc == 0 && node; node = p->nodes[node].parent) {
			uint32_t frame = p->nodes[node].frame;

			if (all || p->frames[frame].kind != PROFILE_FRAME_GO ||
			    goroutine_frame_is_shown(function_name(p, frame)))
				rc = frames_vec_push(&w->frames, frame);
		}
		if (rc < 0 || all || w->frames.count > before)
			return rc;
		all = true;
	}
}

static uint64_t text_hash(const struct profile *p, uint32_t id, uint64_t seed)
{
	const char *text = profile_string(p, id);

	return hash_bytes(text, strlen(text), seed);
}

static uint64_t identity(const struct work *w, size_t first, uint32_t created_by)
{
	const struct profile *p = w->p;
	uint64_t hash = text_hash(p, created_by, 1);
	size_t i;

	for (i = first; i < w->frames.count; i++)
		hash = text_hash(p, p->functions[p->frames[w->frames.data[i]].function].name, hash);
	return hash;
}

static uint64_t waited_s(const struct work *w, uint32_t attrs)
{
	char scratch[ATTRIBUTE_SCRATCH_SIZE];
	uint64_t seconds;

	if (!w->has_wait_label || parse_u64(attribute_text(w->p, attrs, w->wait_label, scratch), 0,
					    UINT64_MAX, &seconds) < 0)
		return 0;
	return seconds;
}

static struct goroutine_stack *find_stack(struct work *w, const struct goroutine_stack *wanted,
					  uint64_t hash)
{
	struct intern_probe probe = intern_probe(&w->index, hash);
	uint32_t id;

	while ((id = intern_next(&w->index, &probe)) != INTERN_NONE) {
		struct goroutine_stack *known = &w->stacks.data[id];

		if (known->identity == wanted->identity && known->state == wanted->state &&
		    known->wait == wanted->wait)
			return known;
	}
	return NULL;
}

static int add_sample(struct work *w, const struct profile_sample *s, uint32_t *ret_stack)
{
	const struct profile_attrs *attrs = &w->p->attrs[s->attrs];
	struct goroutine_stack stack = { .count = (uint64_t)s->values[0],
					 .state = attrs->state,
					 .wait = attrs->wait,
					 .created_by = attrs->extra,
					 .frame_first = (uint32_t)w->frames.count,
					 .max_wait_s = waited_s(w, s->attrs) };
	struct goroutine_stack *known;
	uint64_t hash;
	int rc = append_frames(w, s->node);

	if (rc < 0)
		return rc;
	stack.frame_count = (uint32_t)w->frames.count - stack.frame_first;
	stack.identity = identity(w, stack.frame_first, stack.created_by);
	hash = hash_combine(stack.identity, (uint64_t)stack.state << 32 | stack.wait);
	known = find_stack(w, &stack, hash);
	if (known) {
		w->frames.count = stack.frame_first;
		known->count += stack.count;
		if (stack.max_wait_s > known->max_wait_s)
			known->max_wait_s = stack.max_wait_s;
		*ret_stack = known->made;
		return 0;
	}
	stack.blocked = goroutine_is_blocked(profile_string(w->p, stack.state),
					     profile_string(w->p, stack.wait));
	*ret_stack = stack.made = (uint32_t)w->stacks.count;
	rc = intern_add(&w->index, hash, (uint32_t)w->stacks.count);
	return rc < 0 ? rc : stacks_vec_push(&w->stacks, stack);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int by_count(const void *left, const void *right)
{
	const struct goroutine_stack *a = left, *b = right;

	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	if (a->identity != b->identity)
		return a->identity < b->identity ? -1 : 1;
	if (a->state != b->state)
		return a->state < b->state ? -1 : 1;
	return (a->wait > b->wait) - (a->wait < b->wait);
}

static int by_word_count(const void *left, const void *right)
{
	const struct goroutine_count *a = left, *b = right;

	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	return (a->word > b->word) - (a->word < b->word);
}

/* Sums of one word of each stack; @offset of the word in struct goroutine_stack. */
static int count_words(const struct goroutine_analysis *a, size_t offset,
		       struct goroutine_count **ret, uint32_t *ret_count)
{
	cleanup_free uint64_t *sums = calloc(a->p->string_count, sizeof(*sums));
	cleanup_free struct goroutine_count *counts = NULL;
	uint32_t i, used = 0;

	if (!sums)
		return -ENOMEM;
	for (i = 0; i < a->stack_count; i++)
		sums[*(const uint32_t *)((const char *)&a->stacks[i] + offset)] +=
			a->stacks[i].count;
	for (i = 1; i < a->p->string_count; i++)
		used += sums[i] != 0;
	counts = calloc((size_t)used + 1, sizeof(*counts));
	if (!counts)
		return -ENOMEM;
	for (i = 1, used = 0; i < a->p->string_count; i++)
		if (sums[i])
			counts[used++] = (struct goroutine_count){ i, sums[i] };
	qsort(counts, used, sizeof(*counts), by_word_count);
	*ret = take_ptr(counts);
	*ret_count = used;
	return 0;
}

/* Samples name their stacks by the places that sorting gave them. */
static int renumber(struct goroutine_analysis *a)
{
	cleanup_free uint32_t *place = malloc((a->stack_count + 1u) * sizeof(*place));

	if (!place)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->stack_count; i++)
		place[a->stacks[i].made] = i;
	for (uint32_t i = 0; i < a->p->sample_count; i++)
		if (a->stack_of[i] != GOROUTINE_NOT_COUNTED)
			a->stack_of[i] = place[a->stack_of[i]];
	return 0;
}

static void work_deinit(struct work *w)
{
	stacks_vec_deinit(&w->stacks);
	frames_vec_deinit(&w->frames);
	intern_deinit(&w->index);
}

int goroutines_of_program(const struct profile *p, struct profile *view)
{
	struct work w = { .p = p };

	w.has_system_label = attribute_parse(p, GOROUTINE_LABEL_SYSTEM, &w.system_label) == 0;
	*view = *p;
	view->sample_count = view->event_count = 0;
	view->samples = calloc((size_t)p->sample_count + 1, sizeof(*view->samples));
	if (!view->samples)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->sample_count; i++)
		if (!is_system(&w, &p->samples[i]))
			view->samples[view->sample_count++] = p->samples[i];
	return 0;
}

int goroutine_analysis_init(struct goroutine_analysis *ret, const struct profile *p,
			    const struct goroutine_options *options)
{
	__attribute__((__cleanup__(work_deinit))) struct work w = { .p = p, .options = options };
	cleanup_goroutine_analysis struct goroutine_analysis a = { .p = p };
	uint32_t i;
	int rc = 0;

	if (p->meta.type != PROFILE_GOROUTINE)
		return -EINVAL;
	w.has_wait_label = attribute_parse(p, GOROUTINE_LABEL_WAIT, &w.wait_label) == 0;
	w.has_system_label = attribute_parse(p, GOROUTINE_LABEL_SYSTEM, &w.system_label) == 0;
	a.stack_of = malloc((p->sample_count + 1u) * sizeof(*a.stack_of));
	if (!a.stack_of)
		return -ENOMEM;
	for (i = 0; rc == 0 && i < p->sample_count; i++) {
		a.stack_of[i] = GOROUTINE_NOT_COUNTED;
		if (p->samples[i].values[0] <= 0 ||
		    (!options->system && is_system(&w, &p->samples[i])))
			continue;
		a.total += (uint64_t)p->samples[i].values[0];
		rc = add_sample(&w, &p->samples[i], &a.stack_of[i]);
	}
	if (rc < 0)
		return rc;
	if (w.stacks.count)
		qsort(w.stacks.data, w.stacks.count, sizeof(*w.stacks.data), by_count);
	a.stacks = take_ptr(w.stacks.data);
	a.stack_count = (uint32_t)w.stacks.count;
	a.frames = take_ptr(w.frames.data);
	a.frame_count = (uint32_t)w.frames.count;
	rc = renumber(&a);
	if (rc == 0)
		rc = count_words(&a, offsetof(struct goroutine_stack, state), &a.states, &a.state_count);
	if (rc == 0)
		rc = count_words(&a, offsetof(struct goroutine_stack, wait), &a.waits,
				 &a.wait_count);
	if (rc < 0)
		return rc;
	*ret = a;
	a = (struct goroutine_analysis){ 0 };
	return 0;
}

void goroutine_analysis_deinit(struct goroutine_analysis *a)
{
	free(a->stacks);
	free(a->stack_of);
	free(a->frames);
	free(a->states);
	free(a->waits);
	*a = (struct goroutine_analysis){ 0 };
}
