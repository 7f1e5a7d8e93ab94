// SPDX-License-Identifier: Apache-2.0
#include "api/breakdown.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/profile/attribute.h"

#define LABELS_MAX 16 /* distinct label names that are summed */

struct sum {
	const char *value; /* borrowed from the profile; NULL: the text is in @own */
	char own[ATTRIBUTE_SCRATCH_SIZE];
	int64_t total;
};

static const char *sum_text(const struct sum *sum)
{
	return sum->value ? sum->value : sum->own;
}

struct sums {
	struct sum *items;
	size_t count;
};

static int compare_sums(const void *a, const void *b)
{
	const struct sum *x = a, *y = b;

	if (x->total != y->total)
		return x->total < y->total ? 1 : -1;
	return strcmp(sum_text(x), sum_text(y));
}

/* Values of one attribute over all attribute sets; @totals is the main value by attribute set. */
static int collect(const struct profile *p, struct attribute attribute, const int64_t *totals,
		   struct sums *ret)
{
	struct u64map known = { 0 };
	int rc = 0;

	ret->items = calloc(p->attrs_count + 1, sizeof(*ret->items));
	if (!ret->items)
		return -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < p->attrs_count; i++) {
		char scratch[ATTRIBUTE_SCRATCH_SIZE];
		const char *text = attribute_text(p, i, attribute, scratch);
		uint64_t key = hash_bytes(text, strlen(text), 3), at;

		if (!*text || !totals[i])
			continue;
		if (!u64map_get(&known, key, &at)) {
			struct sum *sum = &ret->items[at = ret->count++];

			sum->value = text;
			if (text == scratch) {
				memcpy(sum->own, scratch, sizeof(sum->own));
				sum->value = NULL;
			}
			rc = u64map_put(&known, key, at);
		}
		ret->items[at].total += totals[i];
	}
	u64map_deinit(&known);
	return rc;
}

static void write_attribute(struct json_out *json, const struct profile *p, const char *name,
			    const int64_t *totals)
{
	struct attribute attribute;
	struct sums sums = { 0 };
	int64_t other = 0;

	if (attribute_parse(p, name, &attribute) < 0 || collect(p, attribute, totals, &sums) < 0 ||
	    sums.count == 0) {
		free(sums.items);
		return;
	}
	qsort(sums.items, sums.count, sizeof(*sums.items), compare_sums);
	json_out_key(json, name);
	json_out_open(json, NULL, '{');
	for (size_t i = 0; i < sums.count; i++) {
		const struct sum *sum = &sums.items[i];

		if (i >= BREAKDOWN_VALUES_MAX) {
			other += sum->total;
			continue;
		}
		json_out_key(json, sum_text(sum));
		json_out_int(json, NULL, sum->total);
	}
	if (other) {
		json_out_key(json, "other");
		json_out_int(json, NULL, other);
	}
	json_out_close(json, '}');
	free(sums.items);
}

static bool named(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; at && (at = strstr(at, name)); at += len)
		if ((at == list || at[-1] == ',') && (at[len] == ',' || !at[len]))
			return true;
	return false;
}

static void write_labels(struct json_out *json, const struct profile *p, const int64_t *totals,
			 const char *extra)
{
	uint32_t seen[LABELS_MAX];
	unsigned count = 0;

	for (uint32_t i = 0; i < p->label_count; i++) {
		const char *name = profile_string(p, p->labels[i].name);
		struct attribute attribute;
		bool known = false, many = strcmp(name, "goid") == 0 || strcmp(name, "path") == 0 ||
					   strcmp(name, "waitObject") == 0;

		for (unsigned k = 0; k < count && !known; k++)
			known = seen[k] == p->labels[i].name;
		if (known || count == LABELS_MAX || (many && !named(extra, name)))
			continue;
		/* A program may call its labels what attributes are called, which stand above already. */
		if (attribute_parse(p, name, &attribute) < 0 || attribute.kind != ATTRIBUTE_LABEL)
			continue;
		seen[count++] = p->labels[i].name;
		write_attribute(json, p, name, totals);
	}
}

void breakdown_json(struct json_out *json, const struct profile *p, const char *extra)
{
	static const char *const always[] = { "process", "thread", "state", "wait",
					      "kind",	 "lock",   "createdBy" };
	static const char *const asked[] = { "pid", "tid" };
	cleanup_free int64_t *totals = calloc(p->attrs_count + 1, sizeof(*totals));
	unsigned value = profile_value_index(p);

	if (!totals)
		return;
	for (uint32_t i = 0; i < p->sample_count; i++)
		totals[p->samples[i].attrs] += p->samples[i].values[value];
	json_out_open(json, "breakdown", '{');
	for (size_t i = 0; i < ARRAY_SIZE(always); i++)
		write_attribute(json, p, always[i], totals);
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
		if (named(extra, asked[i]))
			write_attribute(json, p, asked[i], totals);
	write_labels(json, p, totals, extra);
	json_out_close(json, '}');
}
