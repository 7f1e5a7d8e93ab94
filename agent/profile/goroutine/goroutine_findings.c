// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/goroutine/goroutine_findings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"

#define STAYED_SHARE 0.9 /* of those before that must still wait */
#define OBJECTS_MAX  100000u

VEC_DEFINE(leaks, struct goroutine_leak);
VEC_DEFINE(deadlocks, struct goroutine_deadlock);
VEC_DEFINE(waits, struct goroutine_wait);
VEC_DEFINE(labels, struct goroutine_label);

/* ---- facts of one sample --------------------------------------------------------------------- */

/* String ids of the names under which facts are kept. */
struct fact_names {
	uint32_t id, wait, system, object, leaked;
};

struct facts {
	uint64_t id, wait_s, count;
	uint32_t object; /* string id */
	uint32_t process;
	bool leaked;
	const struct goroutine_stack *stack;
};

static struct fact_names find_names(const struct profile *p)
{
	struct fact_names names = { 0 };

	for (uint32_t i = 1; i < p->string_count; i++) {
		const char *text = profile_string(p, i);

		if (!strcmp(text, GOROUTINE_LABEL_ID))
			names.id = i;
		else if (!strcmp(text, GOROUTINE_LABEL_WAIT))
			names.wait = i;
		else if (!strcmp(text, GOROUTINE_LABEL_SYSTEM))
			names.system = i;
		else if (!strcmp(text, GOROUTINE_LABEL_OBJECT))
			names.object = i;
		else if (!strcmp(text, GOROUTINE_LABEL_LEAKED))
			names.leaked = i;
	}
	return names;
}

static bool is_fact(const struct fact_names *names, uint32_t label)
{
	return label == names->id || label == names->wait || label == names->system ||
	       label == names->object || label == names->leaked;
}

static uint64_t number(const struct profile *p, uint32_t text)
{
	uint64_t value;

	return parse_u64(profile_string(p, text), 0, UINT64_MAX, &value) < 0 ? 0 : value;
}

/* false: not one of those that are counted. */
static bool facts_of(const struct goroutine_analysis *a, const struct fact_names *names,
		     uint32_t sample, struct facts *ret)
{
	const struct profile *p = a->p;
	const struct profile_attrs *attrs = &p->attrs[p->samples[sample].attrs];

	if (a->stack_of[sample] == GOROUTINE_NOT_COUNTED)
		return false;
	*ret = (struct facts){ .id = attrs->tid,
			       .count = (uint64_t)p->samples[sample].values[0],
			       .process = attrs->process,
			       .stack = &a->stacks[a->stack_of[sample]] };
	for (uint32_t i = 0; i < attrs->label_count; i++) {
		const struct profile_label *label = &p->labels[attrs->label_first + i];

		if (label->name == names->id)
			ret->id = number(p, label->value);
		else if (label->name == names->wait)
			ret->wait_s = number(p, label->value);
		else if (label->name == names->object)
			ret->object = label->value;
		else if (label->name == names->leaked)
			ret->leaked = true;
	}
	return true;
}

/* ---- leaks ----------------------------------------------------------------------------------- */

/* Sums of one analysis by identity of the stack. */
struct by_identity {
	uint64_t count, max_wait_s;
	const struct goroutine_stack *largest;
};
VEC_DEFINE(sums, struct by_identity);

struct side {
	const struct goroutine_analysis *a;
	struct fact_names names;
	struct sums_vec sums;
	struct u64map at;      /* identity -> index of sums */
	struct u64map members; /* hash of identity, process and goroutine -> 1 */
};

static void side_deinit(struct side *side)
{
	sums_vec_deinit(&side->sums);
	u64map_deinit(&side->at);
	u64map_deinit(&side->members);
}

static uint64_t member(const struct profile *p, const struct facts *f)
{
	return hash_combine(f->stack->identity,
			    hash_combine(p->processes ? p->processes[f->process].pid : 0, f->id));
}

static int side_add(struct side *side, const struct goroutine_stack *stack)
{
	struct by_identity *sum;
	uint64_t at;
	int rc;

	if (!u64map_get(&side->at, stack->identity, &at)) {
		at = side->sums.count;
		rc = sums_vec_push(&side->sums, (struct by_identity){ .largest = stack });
		if (rc == 0)
			rc = u64map_put(&side->at, stack->identity, at);
		if (rc < 0)
			return rc;
	}
	sum = &side->sums.data[at];
	sum->count += stack->count;
	if (stack->max_wait_s > sum->max_wait_s)
		sum->max_wait_s = stack->max_wait_s;
	return 0;
}

static int side_init(struct side *side, const struct goroutine_analysis *a)
{
	int rc = 0;

	*side = (struct side){ .a = a, .names = find_names(a->p) };
	for (uint32_t i = 0; rc == 0 && i < a->stack_count; i++)
		rc = side_add(side, &a->stacks[i]);
	for (uint32_t i = 0; rc == 0 && i < a->p->sample_count; i++) {
		struct facts f;

		if (facts_of(a, &side->names, i, &f) && f.id)
			rc = u64map_put(&side->members, member(a->p, &f), 1);
	}
	return rc;
}

static const struct by_identity *side_find(const struct side *side, uint64_t identity)
{
	uint64_t at;

	return u64map_get(&side->at, identity, &at) ? &side->sums.data[at] : NULL;
}

/* More in each profile than in the one before, over FINDINGS_HISTORY_MIN at least up to the newest,
 * and not shorter waits where they are known. */
static bool grows(const struct side *sides, uint32_t count, uint64_t identity,
		  struct goroutine_leak *ret)
{
	const struct by_identity *later = NULL;

	ret->first = count;
	for (uint32_t i = count; i-- > 0;) {
		const struct by_identity *sum = side_find(&sides[i], identity);

		ret->counts[i] = sum ? sum->count : 0;
		if (ret->first != i + 1)
			continue; /* it began to grow later */
		if (!sum || (later && (sum->count >= later->count ||
				       (later->max_wait_s && sum->max_wait_s >= later->max_wait_s))))
			continue;
		ret->first = i;
		later = sum;
	}
	if (ret->first + FINDINGS_HISTORY_MIN > count)
		return false;
	ret->stack = side_find(&sides[count - 1], identity)->largest;
	ret->max_wait_s = side_find(&sides[count - 1], identity)->max_wait_s;
	return true;
}

/* The growing stacks, of which those of an earlier profile are looked for in the next. */
struct stayed {
	uint64_t all, still;
};

static int drop_changing(const struct side *sides, uint32_t count, struct leaks_vec *leaks)
{
	cleanup_free struct stayed *stayed = calloc(leaks->count + 1, sizeof(*stayed));
	struct u64map at = { 0 };
	size_t kept = 0;
	int rc = stayed ? 0 : -ENOMEM;

	for (size_t i = 0; rc == 0 && i < leaks->count; i++)
		rc = u64map_put(&at, leaks->data[i].stack->identity, i);
	for (uint32_t i = 0; rc == 0 && i + 1 < count; i++) {
		const struct goroutine_analysis *a = sides[i].a;

		for (uint32_t j = 0; j < a->p->sample_count; j++) {
			struct facts f;
			uint64_t leak;

			if (!facts_of(a, &sides[i].names, j, &f) ||
			    !u64map_get(&at, f.stack->identity, &leak) ||
			    i < leaks->data[leak].first)
				continue;
			stayed[leak].all++;
			stayed[leak].still += u64map_get(&sides[i + 1].members, member(a->p, &f),
							 &(uint64_t){ 0 });
		}
	}
	u64map_deinit(&at);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < leaks->count; i++)
		if ((double)stayed[i].still >= STAYED_SHARE * (double)stayed[i].all)
			leaks->data[kept++] = leaks->data[i];
	leaks->count = kept;
	return 0;
}

static uint64_t growth(const struct goroutine_leak *leak)
{
	uint64_t most = 0;

	for (uint32_t i = leak->first; i < FINDINGS_HISTORY_MAX; i++)
		if (leak->counts[i] > most)
			most = leak->counts[i];
	return most - leak->counts[leak->first];
}

static int by_growth(const void *left, const void *right)
{
	const struct goroutine_leak *a = left, *b = right;
	uint64_t x = growth(a);
	uint64_t y = growth(b);

	return (x < y) - (x > y);
}

static int find_leaks(const struct goroutine_analysis *series, uint32_t count,
		      struct leaks_vec *leaks)
{
	struct side sides[FINDINGS_HISTORY_MAX] = { 0 };
	int rc = 0;

	if (count < FINDINGS_HISTORY_MIN)
		return 0;
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = side_init(&sides[i], &series[i]);
	for (size_t i = 0; rc == 0 && i < sides[count - 1].sums.count; i++) {
		const struct goroutine_stack *stack = sides[count - 1].sums.data[i].largest;
		struct goroutine_leak leak = { 0 };

		if (stack->blocked && grows(sides, count, stack->identity, &leak))
			rc = leaks_vec_push(leaks, leak);
	}
	if (rc == 0)
		rc = drop_changing(sides, count, leaks);
	for (uint32_t i = 0; i < count; i++)
		side_deinit(&sides[i]);
	if (rc == 0 && leaks->count)
		qsort(leaks->data, leaks->count, sizeof(*leaks->data), by_growth);
	return rc;
}

/* ---- waits that do not end --------------------------------------------------------------------
 */

const char *goroutine_deadlock_word(enum goroutine_deadlock_kind kind)
{
	static const char *const words[] = { "nilChannel", "unreachable", "lock", "senders" };

	return words[kind];
}

struct suspect {
	struct goroutine_deadlock deadlock;
	bool receives; /* somebody waits at the other end */
};
VEC_DEFINE(suspects, struct suspect);

/* The kind of wait that a goroutine may be stuck in; false: none. */
static bool kind_of(const struct goroutine_analysis *a, const struct facts *f,
		    enum goroutine_deadlock_kind *ret)
{
	const char *wait = profile_string(a->p, f->stack->wait);
	const char *object = profile_string(a->p, f->object);

	if (f->leaked)
		*ret = DEADLOCK_UNREACHABLE;
	else if (strstr(wait, "(nil chan)"))
		*ret = DEADLOCK_NIL_CHANNEL;
	else if (text_begins(object, "sync.Mutex "))
		*ret = DEADLOCK_LOCK;
	else if (text_begins(object, "channel "))
		*ret = DEADLOCK_SENDERS;
	else
		return false;
	return true;
}

static int suspect_add(struct suspects_vec *suspects, struct u64map *at,
		       const struct goroutine_analysis *a, const struct facts *f)
{
	enum goroutine_deadlock_kind kind;
	struct suspect *suspect;
	uint64_t key, index;
	int rc;

	if (!kind_of(a, f, &kind))
		return 0;
	/* A lock or channel is one suspect; what can never be woken is one by its stack. */
	key = hash_combine((uint64_t)kind << 32 | f->process,
			   kind >= DEADLOCK_LOCK ? f->object : f->stack->identity);
	if (!u64map_get(at, key, &index)) {
		struct suspect made = { .deadlock = { .kind = kind, .process = f->process } };

		if (suspects->count >= OBJECTS_MAX)
			return 0;
		made.deadlock.object = kind >= DEADLOCK_LOCK ? f->object : 0;
		made.deadlock.stack = f->stack;
		index = suspects->count;
		rc = suspects_vec_push(suspects, made);
		if (rc == 0)
			rc = u64map_put(at, key, index);
		if (rc < 0)
			return rc;
	}
	suspect = &suspects->data[index];
	suspect->deadlock.count += f->count;
	suspect->receives |= kind == DEADLOCK_SENDERS &&
			     !text_begins(profile_string(a->p, f->stack->wait), "chan send");
	if (f->wait_s > suspect->deadlock.max_wait_s) {
		suspect->deadlock.max_wait_s = f->wait_s;
		suspect->deadlock.stack = f->stack;
	}
	return 0;
}

static int by_goroutines(const void *left, const void *right)
{
	const struct goroutine_deadlock *a = left, *b = right;

	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	return (a->max_wait_s < b->max_wait_s) - (a->max_wait_s > b->max_wait_s);
}

static int find_deadlocks(const struct goroutine_analysis *a, const struct fact_names *names,
			  struct deadlocks_vec *ret)
{
	struct suspects_vec suspects = { 0 };
	struct u64map at = { 0 };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < a->p->sample_count; i++) {
		struct facts f;

		if (facts_of(a, names, i, &f))
			rc = suspect_add(&suspects, &at, a, &f);
	}
	for (size_t i = 0; rc == 0 && i < suspects.count; i++) {
		const struct suspect *s = &suspects.data[i];

		if (s->deadlock.kind >= DEADLOCK_LOCK &&
		    (s->receives || s->deadlock.max_wait_s < FINDINGS_DEADLOCK_S))
			continue;
		rc = deadlocks_vec_push(ret, s->deadlock);
	}
	suspects_vec_deinit(&suspects);
	u64map_deinit(&at);
	if (rc == 0 && ret->count)
		qsort(ret->data, ret->count, sizeof(*ret->data), by_goroutines);
	return rc;
}

/* ---- longest waits, labels ------------------------------------------------------------------- */

static int by_wait(const void *left, const void *right)
{
	const struct goroutine_wait *a = left, *b = right;

	if (a->wait_s != b->wait_s)
		return a->wait_s > b->wait_s ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}

static int find_waits(const struct goroutine_analysis *a, const struct fact_names *names,
		      struct waits_vec *ret)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < a->p->sample_count; i++) {
		struct facts f;

		if (facts_of(a, names, i, &f) && f.wait_s)
			rc = waits_vec_push(ret, (struct goroutine_wait){ f.id, f.wait_s, f.process,
									  f.object, f.stack });
	}
	if (rc == 0 && ret->count)
		qsort(ret->data, ret->count, sizeof(*ret->data), by_wait);
	return rc;
}

static int by_label(const void *left, const void *right)
{
	const struct goroutine_label *a = left, *b = right;

	if (a->name != b->name)
		return a->name < b->name ? -1 : 1;
	if (a->count != b->count)
		return a->count > b->count ? -1 : 1;
	return (a->value > b->value) - (a->value < b->value);
}

static int find_labels(const struct goroutine_analysis *a, const struct fact_names *names,
		       struct labels_vec *ret)
{
	const struct profile *p = a->p;
	struct u64map at = { 0 };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < p->sample_count; i++) {
		const struct profile_attrs *attrs = &p->attrs[p->samples[i].attrs];

		if (a->stack_of[i] == GOROUTINE_NOT_COUNTED)
			continue;
		for (uint32_t j = 0; rc == 0 && j < attrs->label_count; j++) {
			const struct profile_label *label = &p->labels[attrs->label_first + j];
			uint64_t index, key = (uint64_t)label->name << 32 | label->value;

			if (is_fact(names, label->name))
				continue;
			if (!u64map_get(&at, key, &index)) {
				index = ret->count;
				rc = labels_vec_push(ret, (struct goroutine_label){ label->name,
										    label->value, 0 });
				if (rc == 0)
					rc = u64map_put(&at, key, index);
			}
			if (rc == 0)
				ret->data[index].count += (uint64_t)p->samples[i].values[0];
		}
	}
	u64map_deinit(&at);
	if (rc == 0 && ret->count)
		qsort(ret->data, ret->count, sizeof(*ret->data), by_label);
	return rc;
}

/* Keeps the first values of each of the first names and drops the rest. */
static uint32_t cut_labels(struct labels_vec *labels, uint32_t limit)
{
	uint32_t kept = 0, names = 0, values = 0;

	for (size_t i = 0; i < labels->count; i++) {
		if (!i || labels->data[i].name != labels->data[i - 1].name) {
			names++;
			values = 0;
		}
		if (names <= FINDINGS_LABELS_MAX && values++ < limit)
			labels->data[kept++] = labels->data[i];
	}
	return kept;
}

/* ---- whole ----------------------------------------------------------------------------------- */

static uint32_t at_most(size_t count, uint32_t limit)
{
	return count < limit ? (uint32_t)count : limit;
}

int goroutine_findings_init(struct goroutine_findings *ret, const struct goroutine_analysis *series,
			    uint32_t series_count, uint32_t limit)
{
	const struct goroutine_analysis *newest = &series[series_count - 1];
	const struct fact_names names = find_names(newest->p);
	struct leaks_vec leaks = { 0 };
	struct deadlocks_vec deadlocks = { 0 };
	struct waits_vec waits = { 0 };
	struct labels_vec labels = { 0 };
	int rc;

	if (series_count > FINDINGS_HISTORY_MAX) {
		series += series_count - FINDINGS_HISTORY_MAX;
		series_count = FINDINGS_HISTORY_MAX;
	}
	if (limit > FINDINGS_LIST_MAX)
		limit = FINDINGS_LIST_MAX;
	rc = find_leaks(series, series_count, &leaks);
	if (rc == 0)
		rc = find_deadlocks(newest, &names, &deadlocks);
	if (rc == 0)
		rc = find_waits(newest, &names, &waits);
	if (rc == 0)
		rc = find_labels(newest, &names, &labels);
	if (rc == 0) {
		*ret = (struct goroutine_findings){
			.leak_count = at_most(leaks.count, limit),
			.deadlock_count = at_most(deadlocks.count, limit),
			.wait_count = at_most(waits.count, limit),
			.label_count = cut_labels(&labels, limit),
		};
		ret->leaks = take_ptr(leaks.data);
		ret->deadlocks = take_ptr(deadlocks.data);
		ret->waits = take_ptr(waits.data);
		ret->labels = take_ptr(labels.data);
	}
	leaks_vec_deinit(&leaks);
	deadlocks_vec_deinit(&deadlocks);
	waits_vec_deinit(&waits);
	labels_vec_deinit(&labels);
	return rc;
}

void goroutine_findings_deinit(struct goroutine_findings *findings)
{
	free(findings->leaks);
	free(findings->deadlocks);
	free(findings->waits);
	free(findings->labels);
	*findings = (struct goroutine_findings){ 0 };
}
