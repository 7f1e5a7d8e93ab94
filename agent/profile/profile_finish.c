// SPDX-License-Identifier: Apache-2.0
/* From interned tables to an immutable profile: order, sums and the percentages of quality. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/builder_internal.h"
#include "agent/profile/quality.h"

/* By node, in the order they came within one: a counting sort, linear in samples and nodes. */
static int sort_samples(struct profile *p)
{
	cleanup_free uint32_t *first = NULL;
	struct profile_sample *sorted;
	uint32_t i;

	if (!p->sample_count)
		return 0;
	first = calloc((size_t)p->node_count + 1, sizeof(*first));
	sorted = malloc(p->sample_count * sizeof(*sorted));
	if (!first || !sorted) {
		free(sorted);
		return -ENOMEM;
	}
	for (i = 0; i < p->sample_count; i++)
		first[p->samples[i].node + 1]++;
	for (i = 0; i < p->node_count; i++)
		first[i + 1] += first[i];
	for (i = 0; i < p->sample_count; i++)
		sorted[first[p->samples[i].node]++] = p->samples[i];
	free(p->samples);
	p->samples = sorted;
	return 0;
}

static int event_order(const void *left, const void *right)
{
	const struct profile_event *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	if (a->node != b->node)
		return a->node < b->node ? -1 : 1;
	if (a->attrs != b->attrs)
		return a->attrs < b->attrs ? -1 : 1;
	return (a->value > b->value) - (a->value < b->value);
}

static void sort_events(struct profile *p)
{
	uint32_t i;

	for (i = 1; i < p->event_count; i++) {
		if (p->events[i].time_ns < p->events[i - 1].time_ns) {
			qsort(p->events, p->event_count, sizeof(*p->events), event_order);
			return;
		}
	}
}

static void sum(struct profile *p)
{
	const struct profile_type_info *type = profile_type_info(p->meta.type);
	uint32_t i, process;
	unsigned k;

	for (i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];

		for (k = 0; k < type->value_count; k++)
			p->totals[k] = profile_add(p->totals[k], s->values[k]);
		process = p->attrs[s->attrs].process;
		if (process < p->process_count)
			p->processes[process].value = profile_add(p->processes[process].value,
								  s->values[type->value_index]);
	}
}

int profile_builder_finish(struct profile_builder *b, const struct profile_quality *quality,
			   struct profile **ret)
{
	int rc = b->error;

	if (rc == 0 && !b->p)
		rc = -EINVAL; /* spent */
	if (rc == 0)
		rc = sort_samples(b->p);
	if (rc < 0)
		return rc;
	sort_events(b->p);
	sum(b->p);
	b->p->quality = *quality;
	rc = quality_of_frames(b->p, &b->p->quality);
	if (rc < 0)
		return rc;
	if (b->overflow_calls)
		quality_note(&b->p->quality, "more than %u stack nodes: the rest is under %s",
			     b->max_nodes, PROFILE_TRUNCATED);
	*ret = take_ptr(b->p);
	b->error = -EINVAL; /* spent: later calls do nothing */
	return 0;
}
