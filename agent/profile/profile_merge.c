// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/builder_internal.h"
#include "agent/profile/copy.h"
#include "agent/profile/quality.h"

struct span {
	uint64_t from, to;
};

static int by_start(const void *left, const void *right)
{
	const struct span *a = left, *b = right;

	return (a->from > b->from) - (a->from < b->from);
}

/* Time covered by at least one part: consecutive windows add up, hosts side by side do not. */
static int covered(struct profile *const *parts, size_t count, uint64_t *ret)
{
	cleanup_free struct span *spans = calloc(count, sizeof(*spans));
	uint64_t sum = 0, end = 0;
	size_t i;

	if (!spans)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		spans[i].from = parts[i]->meta.start_ns;
		if (__builtin_add_overflow(spans[i].from, parts[i]->meta.duration_ns, &spans[i].to))
			spans[i].to = UINT64_MAX;
	}
	qsort(spans, count, sizeof(*spans), by_start);
	for (i = 0; i < count; i++) {
		uint64_t from = spans[i].from > end ? spans[i].from : end;

		if (spans[i].to > from)
			sum += spans[i].to - from;
		if (spans[i].to > end)
			end = spans[i].to;
	}
	*ret = sum;
	return 0;
}

static int merged_meta(struct profile *const *parts, size_t count, struct profile_meta *ret)
{
	struct profile_meta meta = parts[0]->meta;
	size_t i;
	int rc;

	for (i = 1; i < count; i++) {
		const struct profile_meta *part = &parts[i]->meta;

		if (part->type != meta.type || part->source != meta.source)
			return -EINVAL;
		if (part->start_ns < meta.start_ns)
			meta.start_ns = part->start_ns;
		if (part->sample_rate > meta.sample_rate)
			meta.sample_rate = part->sample_rate;
		if (part->grain_ns > meta.grain_ns)
			meta.grain_ns = part->grain_ns;
		if (strcmp(part->host, meta.host)) {
			(void)strcpy(meta.host, "*");
		} else if (part->cpu_count > meta.cpu_count) {
			meta.cpu_count = part->cpu_count;
		}
		if (strcmp(part->service, meta.service))
			(void)strcpy(meta.service, "*");
	}
	rc = covered(parts, count, &meta.duration_ns);
	if (rc < 0)
		return rc;
	*ret = meta;
	return 0;
}

static int add_part(struct profile_builder *b, const struct profile *part)
{
	cleanup_copy struct copy copy = { 0 };
	uint32_t i;
	int rc = copy_init(&copy, part, b);

	if (rc < 0)
		return rc;
	copy_nodes(&copy, 0);
	for (i = 0; i < part->sample_count; i++)
		profile_builder_estimate(b, copy.nodes[part->samples[i].node], copy.attrs[part->samples[i].attrs],
					 part->samples[i].values, part->samples[i].variance);
	for (i = 0; i < part->event_count; i++) {
		struct profile_event event = part->events[i];

		event.node = copy.nodes[event.node];
		event.attrs = copy.attrs[event.attrs];
		profile_builder_event(b, &event);
	}
	return 0;
}

/* Rounds so that sums stay: what one value loses the next one gets. */
static int64_t divide(int64_t value, int64_t by, int64_t *rest)
{
	int64_t sum = profile_add(value, *rest), ret = sum / by;

	*rest = sum - ret * by;
	return ret;
}

static void divide_values(struct profile *p, int64_t by)
{
	int64_t rests[PROFILE_VALUES_MAX] = { 0 }, rest = 0;

	for (uint32_t i = 0; i < p->sample_count; i++) {
		for (unsigned k = 0; k < profile_type_info(p->meta.type)->value_count; k++)
			p->samples[i].values[k] = divide(p->samples[i].values[k], by, &rests[k]);
		p->samples[i].variance /= (double)by * (double)by;
	}
	for (uint32_t i = 0; i < p->event_count; i++)
		p->events[i].value = divide(p->events[i].value, by, &rest);
}

static int sum_parts(struct profile *const *parts, size_t count, int64_t divisor,
		     struct profile **ret)
{
	cleanup(profile_builder) struct profile_builder *b = NULL;
	struct profile_quality quality = quality_empty();
	uint64_t nodes = 1;
	struct profile_meta meta;
	size_t i;
	int rc;

	rc = merged_meta(parts, count, &meta);
	if (rc < 0)
		return rc;
	/* The parts were bounded each; their sum is the merge's bound. */
	for (i = 0; i < count; i++)
		nodes += parts[i]->node_count;
	b = profile_builder_create(&meta, nodes < INTERN_NONE ? (uint32_t)nodes : INTERN_NONE);
	if (!b)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		rc = add_part(b, parts[i]);
		if (rc < 0)
			return rc;
		quality_add(&quality, &parts[i]->quality);
	}
	if (divisor > 1 && !b->error)
		divide_values(b->p, divisor);
	return profile_builder_finish(b, &quality, ret);
}

static bool same_place(const struct profile *a, const struct profile *b)
{
	return strcmp(a->meta.host, b->meta.host) == 0 && strcmp(a->meta.service, b->meta.service) == 0;
}

/* The average level of each place; places that stand side by side are summed. */
static int merge_levels(struct profile *const *parts, size_t count, struct profile **ret)
{
	cleanup_free struct profile **means = calloc(count, sizeof(struct profile *)),
				    **group = calloc(count, sizeof(struct profile *));
	size_t mean_count = 0;
	int rc = means && group ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && rc == 0; i++) {
		size_t in_group = 0, first = 0;

		while (!same_place(parts[first], parts[i]))
			first++;
		if (first < i)
			continue;
		for (size_t j = i; j < count; j++)
			if (same_place(parts[i], parts[j]))
				group[in_group++] = parts[j];
		rc = sum_parts(group, in_group, (int64_t)in_group, &means[mean_count]);
		mean_count += rc == 0;
	}
	if (rc == 0)
		rc = sum_parts(means, mean_count, 1, ret);
	for (size_t i = 0; means && i < mean_count; i++)
		(void)profile_unref(means[i]);
	return rc;
}

int profile_merge(struct profile *const *parts, size_t count, struct profile **ret)
{
	if (!count)
		return -EINVAL;
	if (profile_type_info(parts[0]->meta.type)->rate)
		return sum_parts(parts, count, 1, ret);
	return merge_levels(parts, count, ret);
}
